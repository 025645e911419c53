"""Tables of coefficients that say what they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from deeptram._tables import HeadedTable
from deeptram.estimators.varying_effects import SIGN as SIGN
from deeptram.estimators.varying_effects import varying_rows
from deeptram.latent import Latent
from deeptram.model import Outcome

if TYPE_CHECKING:
    from deeptram.estimators.base import BaseTram

Array = NDArray[np.float64]

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


def wald_table(
    index: Sequence[str], coef: Array, se: Array, level: float, latent: Latent
) -> CoefficientTable:
    """Return estimates with standard errors, tests and limits; exponentials where they mean something.

    Parameters
    ----------
    index : sequence of str
        Names of the p coefficients.
    coef, se : array, shape (p,)
    level : float
    latent : Latent
        F_Z; with the normal one exp(coefficient) has no meaning and is left out.
    """
    half = stats.norm.ppf((1 + level) / 2) * se
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        z = coef / se
        columns = {
            "coef": coef,
            "se": se,
            "z": z,
            "p": 2 * stats.norm.sf(np.abs(z)),
            "lower": coef - half,
            "upper": coef + half,
        }
        if latent.name != "normal":
            columns["exp_coef"] = np.exp(coef)
    table = CoefficientTable(columns, index=list(index))
    table.attrs.update(sign=SIGN, effect=latent.effect_name, exp_effect=latent.exp_effect_name, level=level)
    return table


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


def model_summary(model: BaseTram, level: float) -> CoefficientTable:
    """Return the table of ``BaseTram.summary``.

    Parameters
    ----------
    model : BaseTram
        Fitted.
    level : float
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
        with np.errstate(over="ignore"):
            table["hazard_ratio"] = np.exp(-table["coef"].where(shift).to_numpy())
    _add_time_ratios(model, table, level)
    table.attrs["header"] = _header(model, level, table)
    return table


def _all_coefficients(model: BaseTram) -> pd.Series:
    if len(model.scale_coef_) == 0:
        return model.coef_
    return pd.concat([model.coef_, model.scale_coef_.rename("scale({})".format)])


def _standard_errors(model: BaseTram, n: int) -> Array:
    """Return those of the n coefficients of shift and scale; given the networks where there are some."""
    if getattr(model, "vcov_", None) is not None:
        variance = np.diag(model.vcov_.to_numpy())[len(model.vcov_) - n :]
    else:
        variance = np.full(n, np.nan)
        shift = getattr(model, "shift_vcov_", None)
        if shift is not None:
            variance[: len(shift)] = np.diag(shift.to_numpy())
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
        half = stats.norm.ppf((1 + level) / 2) * np.sqrt(variance) / slope
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
    lines = [
        f"{type(model).__name__}: {described_outcome(model.outcome_)}",
        ", ".join(numbers),
        meaning(model.outcome_, model.latent_),
    ]
    if "time_ratio" in table:
        lines.append("time_ratio: factor of the times, exp(coef / slope of h in log time)")
    if not exact:
        lines.append("se: of the linear shift given the networks")
    elif model.loss != "nll":
        sandwich = model.loss in ("rps", "brier") and model.design_.scale is None
        lines.append(f"se: {'sandwich' if sandwich else 'not available'} for loss={model.loss!r}")
    return [*lines, f"lower, upper: {100 * level:g} % Wald limits"]
