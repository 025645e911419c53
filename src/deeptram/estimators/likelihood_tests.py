"""Likelihood-ratio tests between nested models, and score tests of proportional odds or hazards."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from deeptram._validation import check_choice
from deeptram.bases import Basis, Bernstein
from deeptram.errors import InvalidInputError, InvalidTypeError, UnsupportedError
from deeptram.estimators.base import BaseTram
from deeptram.estimators.data_checks import require_fit, training_fit
from deeptram.fitting.exact.columns import StructuredData
from deeptram.fitting.exact.fit import ExactFit
from deeptram.fitting.exact.inference import TRANSFORMS, OutcomeEffects, finite_values

Array = NDArray[np.float64]


def compare(*models: BaseTram) -> pd.DataFrame:
    r"""Compare nested models by likelihood-ratio tests, the smallest first.

    The statistic :math:`2(\ell_1 - \ell_0)` is referred to a chi-squared
    distribution with the difference in free parameters as degrees of freedom.

    Parameters
    ----------
    *models : Tram
        Two or more models fitted by maximum likelihood to the same rows.

    Returns
    -------
    DataFrame
        One row per model in order of size: ``model, n_parameters, loglik, aic,
        bic, statistic, df, p`` (the last three against the row above). Models are
        named by what differs between them.

    Raises
    ------
    InvalidInputError
        For models that are not nested: another latent distribution, other
        outcomes, terms of which none contains the other. Where AIC may compare
        them (the same outcomes), the message has it.

    Examples
    --------
    >>> import numpy as np, deeptram as dt
    >>> rng = np.random.default_rng(1)
    >>> x = rng.normal(size=(200, 2))
    >>> y = np.digitize(x[:, 0] + rng.logistic(size=200), [-1, 1])
    >>> m0 = dt.Polr([dt.SI()]).fit(x, y)
    >>> m1 = dt.Polr([dt.LS("x0")]).fit(x, y)
    >>> table = dt.compare(m0, m1)
    >>> table["model"].tolist(), bool(table["p"].iloc[1] < 0.001)
    (['1', 'x0'], True)
    """
    if len(models) < 2:
        raise InvalidInputError(
            f"compare needs at least two models, got {len(models)}; pass compare(m0, m1)."
        )
    for model in models:
        if not isinstance(model, BaseTram):
            raise InvalidTypeError(
                f"compare needs fitted models, got {type(model).__name__}; pass compare(m0, m1)"
            )
        require_fit(model)
        if model.loss != "nll" or model.spec_.is_deep:
            raise UnsupportedError(
                "compare needs models fitted by exact maximum likelihood (loss='nll', no networks); "
                f"got {type(model).__name__} with loss={model.loss!r}."
            )
    ordered = sorted(models, key=_size)
    names = _names(ordered)
    for model in ordered[1:]:
        _check_same_outcomes(ordered[0], model)
    for small, large in itertools.pairwise(ordered):
        reason = _why_not_nested(small, large)
        if reason is not None:
            aic = ", ".join(f"{name}: {one.aic_:.2f}" for name, one in zip(names, ordered, strict=True))
            raise InvalidInputError(
                f"a likelihood-ratio test needs nested models, got {reason}; compare them by AIC ({aic})."
            )
    rows: list[dict[str, Any]] = []
    for name, below, model in zip(names, [None, *ordered[:-1]], ordered, strict=True):
        statistic = df = p = np.nan
        if below is not None:
            df = float(model.n_parameters_ - below.n_parameters_)
            statistic = max(2 * (model.loglik_ - below.loglik_), 0.0)
            p = float(stats.chi2.sf(statistic, df))
        rows.append(
            {
                "model": name,
                "n_parameters": model.n_parameters_,
                "loglik": model.loglik_,
                "aic": model.aic_,
                "bic": model.bic_,
                "statistic": statistic,
                "df": df,
                "p": p,
            }
        )
    return pd.DataFrame(rows)


def _size(model: BaseTram) -> int:
    return int(model.n_parameters_)


def _check_same_outcomes(first: BaseTram, model: BaseTram) -> None:
    """Refuse models of other outcomes; values are compared where both models still hold them."""
    kinds = first.outcome_.kind, model.outcome_.kind
    on_line = {"continuous", "survival"}
    same = kinds[0] == kinds[1] or set(kinds) <= on_line
    if first.n_obs_ != model.n_obs_ or not same or first.outcome_.levels != model.outcome_.levels:
        raise InvalidInputError(
            f"models must be fitted to the same outcomes, got {first.n_obs_} rows of a {kinds[0]} outcome "
            f"and {model.n_obs_} rows of a {kinds[1]} one; refit them on the same data."
        )
    a, b = _data(first), _data(model)
    if a is not None and b is not None and not _equal_outcomes(a, b):
        raise InvalidInputError(
            "models must be fitted to the same outcomes and weights, got values that differ; refit them on "
            "the same data."
        )


def _data(model: BaseTram) -> StructuredData | None:
    problem = getattr(model.fit_, "problem", None)
    return None if problem is None or problem.pieces is not None else problem.data


def _equal_outcomes(a: StructuredData, b: StructuredData) -> bool:
    pairs: list[tuple[Any, Any]] = [(a.codes, b.codes), (a.weights, b.weights)]
    if a.observations is not None and b.observations is not None:
        pairs += [
            (getattr(a.observations, end), getattr(b.observations, end))
            for end in ("lower", "upper", "entry")
        ]
    return all(
        (one is None and other is None)
        or (one is not None and other is not None and np.array_equal(one, other, equal_nan=True))
        for one, other in pairs
    )


def _why_not_nested(small: BaseTram, large: BaseTram) -> str | None:
    """Return why the smaller model is no special case of the larger, or None."""
    if small.latent_.name != large.latent_.name:
        return f"the latent distributions {small.latent_.name} and {large.latent_.name}"
    if not _contains(large.outcome_.basis, small.outcome_.basis):
        return "baselines of which none contains the other"
    if small.n_parameters_ == large.n_parameters_:
        return f"{small.n_parameters_} parameters in both"
    if large.loglik_ < small.loglik_ - 1e-6 * (1 + abs(large.loglik_)):
        return (
            f"the smaller log-likelihood from the larger model ({large.loglik_:.4f} against "
            f"{small.loglik_:.4f})"
        )
    a, b = _data(small), _data(large)
    if a is not None and b is not None and not _spans(b, a):
        return "columns of the smaller model that the larger one does not have"
    return None


def _contains(large: Basis, small: Basis) -> bool:
    """Return whether every h of a basis is one of another; a polynomial is one of any higher degree."""
    if large == small:
        return True
    if isinstance(large, Bernstein) and isinstance(small, Bernstein):
        return large.order >= small.order and (large.support, large.log_first) == (
            small.support,
            small.log_first,
        )
    lines = {"linear": False, "log-linear": True}
    if isinstance(large, Bernstein) and small.name in lines:
        return large.log_first == lines[small.name]
    return large.name == small.name and large.n_coef >= small.n_coef  # a slope that is free, or fixed


def _spans(large: StructuredData, small: StructuredData) -> bool:
    """Return whether linear, varying, scale and strata columns of one model lie in those of another."""
    inner, outer = _moving(small), _moving(large)
    shifts = np.hstack([small.x, inner]), np.hstack([large.x, outer])
    none = np.zeros((len(small.x), 0))
    scales = (none if small.scale is None else small.scale, none if large.scale is None else large.scale)
    return all(_is_within(a, b) for a, b in ((inner, outer), shifts, scales))


def _moving(data: StructuredData) -> Array:
    """Return the columns with which the whole of h changes, shape (n, k)."""
    blocks = [np.zeros((len(data.x), 0))]
    if data.varying is not None:
        blocks.append(data.varying)
    if data.strata is not None:
        blocks.append((data.strata[:, None] == np.arange(data.n_strata)).astype(float))
    return np.hstack(blocks)


def _is_within(inner: Array, outer: Array) -> bool:
    """Return whether columns are linear combinations of others and a constant."""
    inner, outer = (columns - columns.mean(axis=0) for columns in (inner, outer))
    inner, outer = (columns / np.maximum(np.abs(columns).max(axis=0), 1e-300) for columns in (inner, outer))
    rest = inner - outer @ np.linalg.lstsq(outer, inner, rcond=None)[0] if outer.size else inner
    return bool((np.abs(rest) <= 1e-6).all())


def _names(models: list[BaseTram]) -> list[str]:
    """Name models by what differs: class, latent, order, and always the terms."""
    parts = [
        {
            "class": type(model).__name__,
            "latent": model.latent_.name,
            "order": f"order {getattr(model.outcome_.basis, 'order', None)}",
            "terms": _terms(model),
        }
        for model in models
    ]
    shown = [key for key in parts[0] if len({part[key] for part in parts}) > 1] or ["terms"]
    return [", ".join(part[key] for key in shown) for part in parts]


def _terms(model: BaseTram) -> str:
    design = model.design_
    found = [] if design.linear is None else [*design.linear.terms]
    found += [] if design.varying is None else [f"Varying({', '.join(design.varying.terms)})"]
    found += [] if design.scale is None else [f"Scale({', '.join(design.scale.terms)})"]
    found += [] if design.strata_column is None else [f"SI(strata={design.strata_column})"]
    return " + ".join(found) or "1"


# -- proportionality ----------------------------------------------------------------------------------


def proportionality_test(
    model: BaseTram,
    X: Any = None,
    y: Any = None,
    *,
    transform: str = "rank",
    test: str = "score",
    sample_weight: Any = None,
) -> pd.DataFrame:
    r"""Test a linear shift against effects that vary with the outcome.

    The model :math:`F_Z(h(y) - x'\beta)` says that a covariate shifts h by the
    same amount at every y: proportional odds with the logistic latent,
    proportional hazards with the minimum extreme value one. The alternative is
    an effect :math:`\beta_j + \delta_j g(y)`; a score test of
    :math:`\delta_j = 0` for each column, for all columns of a factor (or spline)
    together, and overall. For proportional hazards it is the effect on the log
    hazard that is linear in g(t), as in the test by Schoenfeld's residuals.

    Parameters
    ----------
    model : Tram
        A model with an LS term and an ordered outcome of any kind, censored and
        truncated ones included, fitted by exact maximum likelihood.
    X, y, sample_weight : data, optional
        The training data, for a model that was loaded.
    transform : {"rank", "log", "identity"}
        g: the distribution function at average covariates, log y, or y. For
        classes, "rank": the number of the cutpoint.
    test : {"score"}
        A likelihood-ratio test against a ``Varying`` term is refused: constraints
        of monotonicity are active or nearly so in most such fits, and no
        chi-squared distribution is right then.

    Returns
    -------
    DataFrame
        Index: terms of the linear shift, then ``overall``. Columns
        ``statistic, df, p``. Small p: the effect changes with the outcome;
        consider ``Varying`` or strata.

    Notes
    -----
    The statistic uses the observed information and is referred to the
    chi-squared distribution. h is a nuisance: for outcomes on the line it is a
    Bernstein polynomial of degree 8 on the scale of ranks (with fewer than 120
    events one degree for 15 of them, at least 3), whatever the basis of
    the model, so that a baseline that is too stiff does not pass for a changing
    effect. ``benchmarks/proportionality.py`` has size and power; of 33 events
    and three columns, single tests reject 4 to 6 % of proportional hazards at
    the level of 5 %, the overall one 8 %; with
    ``transform="identity"`` a few very large outcomes decide, and the level is
    less well kept.

    Examples
    --------
    >>> import numpy as np, deeptram as dt
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=(500, 1))
    >>> latent = rng.logistic(size=500) * np.exp(0.8 * x[:, 0])
    >>> model = dt.Polr().fit(x, np.digitize(latent, [-1.0, 0.0, 1.0]))
    >>> bool(dt.proportionality_test(model)["p"]["overall"] < 0.01)
    True
    """
    check_choice(transform, TRANSFORMS, "transform")
    if check_choice(test, ("score", "lr"), "test") == "lr":
        raise UnsupportedError(
            "a likelihood-ratio test of proportionality has no known reference distribution, as constraints "
            "of monotonicity are active; use test='score'."
        )
    fit = training_fit(model, X, y, sample_weight, "the test of proportionality")
    _check_testable(fit, transform)
    usable = np.flatnonzero(~fit.problem.aliased & (fit.infinite == 0))
    if model.design_.linear is None or not len(usable):
        raise InvalidInputError(
            "the test needs a linear shift with a finite coefficient, got none; add an LS term, or columns "
            "that are neither collinear nor separating."
        )
    effects = OutcomeEffects(fit, transform, [int(j) for j in usable])
    place = {int(j): k for k, j in enumerate(usable)}
    terms = model.design_.linear.terms.items()
    groups = {name: [place[j] for j in columns if j in place] for name, columns in terms}
    groups = {name: columns for name, columns in groups.items() if columns}
    groups["overall"] = list(range(len(usable)))
    rows = {}
    for name, columns in groups.items():
        value, df = effects.test(columns)
        rows[name] = {"statistic": value, "df": df, "p": float(stats.chi2.sf(value, df)) if df else np.nan}
    table = pd.DataFrame.from_dict(rows, orient="index").astype({"df": int})
    table.attrs.update(transform=transform, test="score", reference="chi-squared")
    return table


def _check_testable(fit: ExactFit, transform: str) -> None:
    """Refuse models in which no effect can change with the outcome, or g is not defined."""
    data = fit.problem.data
    if data.observations is None and data.basis.n_coef < 2:
        raise UnsupportedError(
            "with a single cutpoint the effect cannot vary with the outcome; there is nothing to test."
        )
    if not np.isfinite(fit.theta).all():
        raise UnsupportedError(
            "the test needs every level to be observed in every stratum; leave empty levels out of `levels`."
        )
    if data.observations is None:
        if transform != "rank":
            raise UnsupportedError(
                f"classes have ranks only, got transform={transform!r}; use transform='rank'."
            )
        return
    values = finite_values(data)
    if len(np.unique(values)) < 2:
        raise UnsupportedError(
            "the test needs outcomes that differ, got a single value; there is nothing to test."
        )
    if transform == "log" and values.min() <= 0:
        raise InvalidInputError(
            f"transform='log' needs positive outcomes, got {values.min():g}; use transform='rank'."
        )
