"""Tables of coefficients that say what they are: of a model, and of effects that change with the outcome."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from deeptram._html import HeadedTable, card, few_digits
from deeptram._validation import check_float_vector
from deeptram.bases import Basis, Bernstein
from deeptram.errors import InvalidInputError, UnsupportedError
from deeptram.estimators.deep import said_of_networks, training_fact, training_messages
from deeptram.latent import Latent
from deeptram.model import Outcome

if TYPE_CHECKING:
    from deeptram.estimators.base import BaseTram

Array = NDArray[np.float64]

SIGN = "F_Z(h(y) - x'beta): a positive coefficient means a larger outcome"
_POINTS = 101


def effect_table(model: BaseTram, y: Any, level: float) -> pd.DataFrame:
    """Return the table of ``BaseTram.effect``.

    Parameters
    ----------
    model : BaseTram
        Fitted.
    y : array-like or None
    level : float
    """
    if model.design_.varying is None:
        raise UnsupportedError(
            "effect() shows effects that change with the outcome, got a model without them; add "
            "dt.Varying(...), or read coef_"
        )
    points, rows = _basis_rows(model.outcome_, y)
    half = ndtri((1 + level) / 2)
    frames = []
    for j, name in enumerate(model.design_.varying.names):
        value, se = _linear_combination(model, j, rows)
        columns = {"coef": value, "se": se, "lower": value - half * se, "upper": value + half * se}
        frames.append(pd.DataFrame({"column": name, "y": points, **columns}))
    table = pd.concat(frames, ignore_index=True)
    table.attrs.update(sign=SIGN, effect=model.latent_.effect_name, level=level)
    return table


def _basis_rows(outcome: Outcome, y: Any) -> tuple[list[Any], Array]:
    """Return outcomes and the basis at them, shape (m, d)."""
    d = outcome.basis.n_coef
    if outcome.levels is not None:
        chosen = list(outcome.levels[:-1] if y is None else np.atleast_1d(np.asarray(y)).ravel())
        codes = np.asarray(outcome.encode(chosen).codes)
        if (codes == d).any():
            raise InvalidInputError(
                "effects of classes belong to the cutoffs above all levels but the last, got "
                f"{outcome.levels[-1]!r}; leave it out"
            )
        return chosen, np.eye(d)[codes]
    values = _support_points(outcome, _POINTS) if y is None else check_float_vector(np.atleast_1d(y), "y")
    seen = outcome.encode(values).observations
    at = values if seen is None else seen.within(outcome.basis.domain).upper
    return list(values), outcome.basis.evaluate(at)


def _support_points(outcome: Outcome, count: int) -> Array:
    """Return evenly spaced outcomes from one end of the support to the other."""
    basis = outcome.basis
    if not isinstance(basis, Bernstein):
        raise InvalidInputError(
            "effect() needs the outcomes at which effects are wanted, got none, and a straight line "
            "has no support to take them from; pass y"
        )
    points = (np.geomspace if basis.log_first else np.linspace)(*basis.support, count)
    if outcome.kind.is_count:
        return np.asarray(np.unique(points.round()) - int(basis.log_first))
    return np.asarray(points)


def _linear_combination(model: BaseTram, column: int, rows: Array) -> tuple[Array, Array]:
    """Return -a'theta of a varying column for rows a, and standard errors."""
    block, d = model.design_.n_strata + column, rows.shape[1]
    own = slice(block * d, (block + 1) * d)
    variance = np.einsum("ij,jk,ik->i", rows, model.vcov_.to_numpy()[own, own], rows)
    with np.errstate(invalid="ignore"):
        return -rows @ model.model_.theta[block], np.sqrt(np.where(variance >= 0, variance, np.nan))


def varying_rows(model: BaseTram) -> list[tuple[str, float, float]]:
    """Return names, values and standard errors of varying effects for the summary.

    Parameters
    ----------
    model : BaseTram
        Fitted.
    """
    levels, basis = model.outcome_.levels, model.outcome_.basis
    if levels is not None:
        rows, labels = np.eye(basis.n_coef), [f"at {a}|{b}" for a, b in itertools.pairwise(levels)]
    elif isinstance(basis, Bernstein):
        points, rows = _basis_rows(model.outcome_, _support_points(model.outcome_, 5)[1:-1])
        labels = [f"at {point:.4g}" for point in points]
    else:
        rows = np.eye(basis.n_coef)
        labels = ["at 0", "per unit of y"] if basis.name == "linear" else ["at 1", "per unit of log(y)"]
        labels = labels[: basis.n_coef]
    found = []
    for j, name in enumerate(model.design_.names_of("varying")):
        pairs = zip(labels, *_linear_combination(model, j, rows), strict=True)
        found += [(f"{name} {label}", float(value), float(error)) for label, value, error in pairs]
    return found


_SHOWN_LEVELS = 12


class CoefficientTable(HeadedTable):
    """A table of coefficients whose print and HTML have a header, from ``attrs["header"]``.

    Pieces of it, without all of ``coef, se, lower, upper``, print like any table.

    Examples
    --------
    >>> table = CoefficientTable({"coef": [1.0], "se": [1.0], "lower": [-1.0], "upper": [3.0]}, index=["a"])
    >>> table.attrs["header"] = ["Polr, n = 10"]
    >>> table
    Polr, n = 10
    <BLANKLINE>
       coef   se  lower  upper
    a   1.0  1.0   -1.0    3.0
    """

    whole: ClassVar[frozenset[str]] = frozenset({"coef", "se", "lower", "upper"})

    def printed(self) -> pd.DataFrame:
        """Return the columns that mean something: with the normal latent, exp(coefficient) does not."""
        return super().printed().drop(columns=self.attrs.get("hidden", []), errors="ignore")


def add_exp_limits(table: pd.DataFrame) -> None:
    """Add the limits of ``exp_coef``.

    Examples
    --------
    >>> table = pd.DataFrame({"lower": [0.0], "upper": [np.inf]})
    >>> add_exp_limits(table)
    >>> table[["exp_lower", "exp_upper"]].values.tolist()
    [[1.0, inf]]
    """
    with np.errstate(over="ignore"):
        table["exp_lower"], table["exp_upper"] = np.exp(table["lower"]), np.exp(table["upper"])


def wald_table(
    index: Sequence[str], coef: Array, se: Array, level: float, latent: Latent
) -> CoefficientTable:
    """Return estimates with standard errors, tests, limits and exponentials.

    Parameters
    ----------
    index : sequence of str
        Names of the p coefficients.
    coef, se : array, shape (p,)
    level : float
    latent : Latent
        F_Z.
    """
    half = ndtri((1 + level) / 2) * se
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        z = coef / se
        columns = {
            "coef": coef,
            "se": se,
            "z": z,
            "p": 2 * ndtr(-np.abs(z)),
            "lower": coef - half,
            "upper": coef + half,
            "exp_coef": np.exp(coef),
        }
    table = CoefficientTable(columns, index=list(index))
    table.attrs.update(sign=SIGN, effect=latent.effect_name, exp_effect=latent.exp_effect_name, level=level)
    return table


def add_hazard_ratios(table: pd.DataFrame, rows: Any = True) -> None:
    """Add exp(-coef), the hazard ratio, with its limits, for the rows that are shifts.

    Examples
    --------
    >>> table = pd.DataFrame({"coef": [0.0], "lower": [-1.0], "upper": [np.inf]})
    >>> add_hazard_ratios(table)
    >>> table[["hazard_ratio", "hazard_ratio_lower", "hazard_ratio_upper"]].round(2).values.tolist()
    [[1.0, 0.0, 2.72]]
    """
    with np.errstate(over="ignore"):
        for name, end in (("", "coef"), ("_lower", "upper"), ("_upper", "lower")):
            table[f"hazard_ratio{name}"] = np.where(rows, np.exp(-table[end].to_numpy()), np.nan)


def meaning(outcome: Outcome, latent: Latent) -> str:
    """Return what a coefficient is.

    Parameters
    ----------
    outcome, latent : Outcome, Latent

    Examples
    --------
    >>> from deeptram import latent
    >>> from deeptram.model import Outcome, OutcomeSettings
    >>> meaning(Outcome.fit(OutcomeSettings("binary"), [0, 1])[0], latent.get("logit"))
    'coef: log odds-ratio of 1 against 0; exp_coef: odds ratio'
    """
    levels = outcome.levels
    if levels is not None and outcome.kind.is_nominal:
        return f"coef: log odds-ratio of the level in its name against {levels[0]}; exp_coef: odds ratio"
    if levels is not None and len(levels) == 2 and latent.name == "logistic":
        return f"coef: log odds-ratio of {levels[1]} against {levels[0]}; exp_coef: odds ratio"
    ratio = latent.name == "minimum-extreme-value" and levels is None
    return f"coef: {latent.effect_meaning or latent.effect_name}" + (
        "; hazard_ratio: exp(-coef)" if ratio else ""
    )


def sign(outcome: Outcome) -> str:
    """Return what a positive coefficient means; that of a level without order is about this level.

    Parameters
    ----------
    outcome : Outcome
    """
    if outcome.kind.is_nominal and outcome.levels is not None:
        return f"a positive coefficient means larger odds of its level against {outcome.levels[0]}"
    return SIGN


def described_outcome(outcome: Outcome) -> str:
    """Return the kind of outcome, and the order of its levels.

    Parameters
    ----------
    outcome : Outcome

    Examples
    --------
    >>> from deeptram.model import Outcome, OutcomeSettings
    >>> settings = OutcomeSettings("ordinal", levels=["low", "mid", "high"])
    >>> described_outcome(Outcome.fit(settings, ["mid", "low"])[0])
    'ordinal outcome, low < mid < high'
    """
    levels: tuple[Any, ...] = outcome.levels or ()
    named = [str(level) for level in levels]
    if len(named) > _SHOWN_LEVELS:
        named = [*named[: _SHOWN_LEVELS - 1], "...", named[-1]]
    if outcome.kind.is_nominal:
        return f"nominal outcome, levels {', '.join(named)}"
    if len(levels) == 2:
        return f"{outcome.kind} outcome, {levels[1]} is the larger class (the other: {levels[0]})"
    return f"{outcome.kind} outcome" + (f", {' < '.join(named)}" if named else "")


# -- of a fitted model -------------------------------------------------------------------------------


def model_summary(model: BaseTram, level: float, exp: bool = False) -> CoefficientTable:
    """Return the table of ``BaseTram.summary``.

    Parameters
    ----------
    model : BaseTram
        Fitted.
    level : float
    exp : bool
        Whether to add the limits of ``exp_coef`` also where another ratio has limits.
    """
    coef = _all_coefficients(model)
    se = _standard_errors(model, len(coef))
    se[~np.isfinite(coef.to_numpy())] = np.nan
    names, values = list(coef.index), coef.to_numpy()
    if model.design_.varying is not None:
        moving = varying_rows(model)
        names += [name for name, _, _ in moving]
        values = np.concatenate([values, [value for _, value, _ in moving]])
        se = np.concatenate([se, [error for _, _, error in moving]])
    table = wald_table(names, values, se, level, model.latent_)
    shift = np.arange(len(table)) < len(model.coef_)
    if model.latent_.name == "minimum-extreme-value" and not model.outcome_.is_discrete:
        add_hazard_ratios(table, shift)
    _add_time_ratios(model, table, level)
    table.attrs["hidden"] = ["exp_coef"] if model.latent_.name == "normal" else []
    if not table.attrs["hidden"] and (exp or not any(name.endswith("_lower") for name in table)):
        add_exp_limits(table)
    table.attrs["header"] = _header(model, level, table)
    table.attrs["sign"] = sign(model.outcome_)
    return table


def _all_coefficients(model: BaseTram) -> pd.Series:
    if len(model.scale_coef_) == 0:
        return model.coef_
    return pd.concat([model.coef_, model.scale_coef_.rename("scale({})".format)])


def coefficient_covariance(model: BaseTram, *, scale: bool = False) -> Array | None:
    """Return the covariance of the coefficients of LS (given networks, where there are some), if known.

    Parameters
    ----------
    model : fitted BaseTram
    scale : bool
        Whether those of Scale follow, which are not known beside networks.
    """
    whole, shift = getattr(model, "vcov_", None), getattr(model, "shift_vcov_", None)
    if whole is None:
        return None if shift is None or scale else shift.to_numpy()
    p, end = len(model.coef_), len(whole) - len(model.scale_coef_)
    part = slice(end - p, None if scale else end)
    return np.asarray(whole.to_numpy()[part, part])


def _standard_errors(model: BaseTram, n: int) -> Array:
    """Return those of the n coefficients of shift and scale; given the networks where there are some."""
    if getattr(model, "vcov_", None) is not None:
        variance = np.diag(model.vcov_.to_numpy())[len(model.vcov_) - n :]
    else:
        variance, shift = np.full(n, np.nan), coefficient_covariance(model)
        if shift is not None:
            variance[: len(shift)] = np.diag(shift)
    with np.errstate(invalid="ignore"):
        return np.sqrt(np.where(variance >= 0, variance, np.nan))


def _add_time_ratios(model: BaseTram, table: pd.DataFrame, level: float) -> None:
    """Add by what a unit of a column multiplies times, where h is a line in log time."""
    basis = model.outcome_.basis
    plain = model.design_.n_strata == 1 and model.design_.varying is None and model.design_.scale is None
    if basis.name != "log-linear" or not plain or model.spec_.is_deep:
        return
    p = len(model.coef_)
    beta = model.coef_.to_numpy()
    fixed = basis.n_coef == 1
    slope = float(basis.offset_derivative(np.ones(1))[0]) if fixed else float(model.theta_[1])
    covariance = model.vcov_.to_numpy()
    shift = np.arange(basis.n_coef, basis.n_coef + p)
    variance = covariance[shift, shift]
    if not fixed:  # the delta method for beta / slope
        ratio = np.where(np.isfinite(beta), beta, np.nan) / slope
        variance = variance - 2 * ratio * covariance[shift, 1] + ratio**2 * covariance[1, 1]
    with np.errstate(invalid="ignore", over="ignore"):
        half = ndtri((1 + level) / 2) * np.sqrt(variance) / slope
        for name, values in (("", 0.0), ("_lower", -half), ("_upper", half)):
            table[f"time_ratio{name}"] = np.exp(beta / slope + values)


def _header(model: BaseTram, level: float, table: pd.DataFrame) -> list[str]:
    """Return what stands above the coefficients."""
    events = getattr(model, "n_events_", None)
    numbers = [f"n = {model.n_obs_}", *([] if events is None else [f"{events} events"])]
    numbers.append(f"log-likelihood {model.loglik_:.2f}")
    exact = not model.spec_.is_deep
    if exact and model.loss == "nll":
        numbers.append(f"AIC {model.aic_:.2f}")
    if events is not None and events == model.n_obs_:
        numbers[1] += " (no time is censored)"
    kind = described_outcome(model.outcome_)
    if model.expects_events and not model.outcome_.kind.is_time:
        kind += ": numbers, not dt.Surv, so every row is taken as an event"
    lines = [
        f"{type(model).__name__}: {kind}",
        ", ".join(numbers),
        meaning(model.outcome_, model.latent_),
    ]
    if hasattr(model, "latent_choice_"):
        lines.append(said_of_choice(model.latent_choice_))
    if "time_ratio" in table:
        lines.append("time_ratio: factor of the times, exp(coef / slope of h in log time)")
    if not exact:
        lines += ["se: of the linear shift given the networks", *said_of_networks(model.spec_, model.design_)]
    elif model.loss != "nll":
        sandwich = model.loss in ("rps", "brier") and model.design_.scale is None
        lines.append(f"se: {'sandwich' if sandwich else 'not available'} for loss={model.loss!r}")
    lines += training_messages([model]).values()
    return [*lines, f"lower, upper: {100 * level:g} % Wald limits"]


def said_of_choice(losses: Any) -> str:
    """Return which latent distribution was chosen and what the next had.

    Examples
    --------
    >>> import pandas as pd
    >>> said_of_choice(pd.Series({"normal": 1.2, "logistic": 1.3}, name="nll"))
    "latent='auto': normal, nll 1.2 of rows left out (logistic 1.3)"
    """
    named = [f"{name} {value:.4g}" for name, value in losses.items()]
    others = f" ({', '.join(named[1:])})" if len(named) > 1 else ""
    return f"latent='auto': {losses.index[0]}, {losses.name} {losses.iloc[0]:.4g} of rows left out{others}"


# -- what a notebook shows ---------------------------------------------------------------------------


SHOWN_ROWS = 20


def model_card(model: BaseTram) -> str:
    """Return the card of a fitted model.

    Parameters
    ----------
    model : BaseTram
        Fitted.
    """
    events = getattr(model, "n_events_", None)
    rows = f"{model.n_obs_}" if events is None else f"{model.n_obs_}, {events} events"
    exact = not model.spec_.is_deep
    how = "exact maximum likelihood" if exact and model.loss == "nll" else f"minimum {model.loss}"
    facts = {
        "terms": described_terms(model),
        "h": h_in_words(model.outcome_),
        "F_Z": model.latent_.name,
        "rows": rows,
        "log-likelihood": f"{model.loglik_:.2f} ({how if exact else 'trained with gradients'})",
    }
    facts |= training_fact([model])
    title = f"{type(model).__name__}: {described_outcome(model.outcome_)}"
    return card(title, facts, coefficients_html(model.summary()))


def coefficients_html(table: Any) -> str:
    """Return the first rows of a coefficient table, with its header."""
    if not len(table):
        return "<p>No coefficients.</p>"
    shown = table.head(SHOWN_ROWS)
    shown.attrs["header"] = [
        line for line in table.attrs.get("header", ()) if line.startswith(("coef:", "se:"))
    ]
    return str(shown.round(4)._repr_html_())


def described_terms(model: BaseTram) -> str:
    """Return the terms as they were written, or what stands for none."""
    terms = model.terms
    if terms is None:
        return "linear shift of all columns"
    return ", ".join(_term(term) for term in (terms if isinstance(terms, list | tuple) else [terms]))


def _term(term: Any) -> str:
    """Return a term without the settings of its network: ``CS(MLP: bp)``."""
    columns = getattr(term, "columns", None) or getattr(term, "strata", None) or ""
    named = ", ".join(columns) if isinstance(columns, tuple) else str(columns)
    net = getattr(term, "net", None)
    inside = [] if net is None else [getattr(net, "__name__", type(net).__name__)]
    return f"{type(term).__name__}({': '.join([*inside, *([named] if named else [])])})"


def h_in_words(outcome: Outcome) -> str:
    """Return what form h has.

    Parameters
    ----------
    outcome : Outcome

    Examples
    --------
    >>> from deeptram.model import OutcomeSettings
    >>> h_in_words(Outcome.fit(OutcomeSettings("ordinal"), [1, 2, 3])[0])
    'a cutpoint below each level but the first'
    >>> h_in_words(Outcome.fit(OutcomeSettings("continuous"), [1.0, 2.0, 4.0])[0])
    'smooth and increasing: a Bernstein polynomial of order 6 between 1 and 4'
    """
    if outcome.kind.is_nominal:
        return "none: each level has a logit against the first"
    if outcome.levels is not None:
        return "a cutpoint below each level but the first"
    return _line_in_words(outcome.basis)


def _line_in_words(basis: Basis) -> str:
    if basis.name == "bernstein":
        low, high = (few_digits(end) for end in basis.support)
        scale = " of log y" if getattr(basis, "log_first", False) else ""
        order = getattr(basis, "order", basis.n_coef - 1)
        return (
            f"smooth and increasing: a Bernstein polynomial{scale} of order {order} between {low} and {high}"
        )
    if basis.is_line or basis.n_coef == 1:
        return f"a line in {'log y' if basis.domain[0] == 0 else 'y'}"
    return f"increasing, {basis.n_coef} coefficients of the basis {basis.name!r}"
