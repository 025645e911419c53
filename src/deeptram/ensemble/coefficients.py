r"""Coefficients of a transformation ensemble and three kinds of intervals for them.

The ensemble's coefficients are the weighted means :math:`\bar\beta = \sum_m w_m \beta_m` (Prop. 2). Three
sources of variation can be asked for:

* ``"bootstrap"``: the members are resampled (as in Appendix B of the paper): how much would :math:`\bar\beta`
  change with other initial weights? Percentile intervals;
* ``"asymptotic"``: the same question with the normal distribution,
  :math:`\bar\beta \pm z \sqrt{B \sum_m w_m^2}` with the variance B between members;
* ``"total"``: how far may :math:`\bar\beta` be from the truth? Sampling and seeds together, see
  :func:`total_variance`. Of bagged members that is the bootstrap: each was trained on rows drawn anew, its
  networks, too, so :math:`\mathrm{se}^2 = B`, with quantiles of the t distribution with M - 1 degrees of
  freedom because B is an estimate from M numbers.

The transformation pool averages :math:`h_m(y \mid x) = \ldots - x'\beta_m`, so its linear shift is
:math:`x' \sum_m w_m \beta_m`. Multinomial logits are averaged by the log-linear density pool instead. Every
other pool leaves the model class of its members: there is no coefficient to report.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations_with_replacement
from math import comb, lgamma
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from deeptram.errors import UnsupportedError
from deeptram.estimators.base import BaseTram
from deeptram.estimators.coefficient_table import (
    CoefficientTable,
    add_hazard_ratios,
    coefficient_covariance,
    described_outcome,
    meaning,
    sign,
)
from deeptram.estimators.deep import said_of_networks, training_messages
from deeptram.pooling import get_rule
from deeptram.pooling.recalibration import Recalibration

Array = NDArray[np.float64]

METHODS = ("total", "bootstrap", "asymptotic")
_MOST_SAMPLES = 10_000
_GIVEN_NETWORKS = "sampling given the networks, and seeds"
TOO_NARROW = (
    "too narrow: other rows would give other networks; Ensemble(model, 30, members='bags') draws them"
)
WEIGHTS_HELD = "the weights are held as they are: what tuned weights would vary by is not in se"


def between_variance(values: Array, weights: Array) -> Array:
    r"""Return the variance between members, :math:`\sum_m w_m (v_m - \bar v)^2 / (1 - \sum_m w_m^2)`.

    With equal weights this is the usual variance with M - 1 in the denominator;
    it is NaN where a single member has all the weight, and infinite where some
    but not all members are.

    Parameters
    ----------
    values : array, shape (M, ...)
    weights : array, shape (M,)

    Examples
    --------
    >>> between_variance(np.array([1.0, 2.0, 6.0]), np.full(3, 1 / 3))
    array(7.)
    """
    spread = 1.0 - float(weights @ weights)
    if spread <= 1e-12:
        return np.full(values.shape[1:], np.nan)
    used = weights > 0
    shares = weights[used].reshape(-1, *(1,) * (values.ndim - 1))
    with np.errstate(invalid="ignore"):
        mean = (shares * values[used]).sum(axis=0)
        variance = (shares * (values[used] - mean) ** 2).sum(axis=0) / spread
    agree = (values[used] == values[used][0]).all(axis=0)  # also on an infinite value
    return np.where(agree, 0.0, np.where(np.isfinite(values[used]).all(axis=0), variance, np.inf))


def total_variance(coefficients: Array, within: Array, weights: Array) -> Array:
    r"""Return the variance of the pooled coefficients over samples and seeds, shape (p,).

    .. math:: \mathrm{se}^2 = \sum_m w_m V_m + B

    By the law of total variance, with :math:`\mu = E(\beta_m \mid \text{data})`, which is the same for all
    members because they see the same data and differ in their seeds only,

    .. math::
        \mathrm{Var}\Big(\sum_m w_m \beta_m\Big)
        = \mathrm{Var}_\text{data}(\mu) + E(B) \sum_m w_m^2 .

    Averaging does not reduce the first part. :math:`V_m`, from the observed information *given the
    networks*, is too small an estimate of it: other data would give other networks, too. In
    ``benchmarks/coverage.py`` it is 30 % short, so that :math:`W + B \sum_m w_m^2` covers 89 to 91 % where
    95 % are asked for. The whole of B, :math:`B (1 - \sum_m w_m^2)` more than the seeds need, is the
    allowance for that: 94 to 97 % where seeds matter. It is an allowance, not an estimate: where the members
    agree (B near 0) both cover 89 to 91 %, and it does not shrink with more members.

    Parameters
    ----------
    coefficients, within : array, shape (M, p)
        Estimates of each member and their variances given its networks.
    weights : array, shape (M,)

    Examples
    --------
    >>> total_variance(np.array([[1.0], [3.0]]), np.array([[0.5], [0.7]]), np.array([0.5, 0.5]))
    array([2.6])
    """
    used = weights > 0
    between = between_variance(coefficients, weights)
    seeds = np.where(np.isnan(between), 0.0, between)  # NaN: a single member has all the weight
    return np.asarray(weights[used] @ within[used] + seeds)


def interval_table(
    coefficients: Array,
    weights: Array,
    within: Sequence[Array | None],
    level: float,
    method: str,
    bagged: bool = False,
) -> pd.DataFrame:
    """Return estimates, standard errors and intervals of the pooled coefficients.

    Parameters
    ----------
    coefficients : array, shape (M, p)
        Of each member.
    weights : array, shape (M,)
    within : sequence of M arrays of shape (p,), or None
        Variances within the members (``"total"`` only).
    level : float
    method : {"bootstrap", "asymptotic", "total"}
    bagged : bool
        Whether the members were trained on bootstrap samples of the rows.

    Returns
    -------
    DataFrame
        Columns ``coef, se, lower, upper, exp_coef, exp_lower, exp_upper``.
    """
    estimate = weights @ coefficients
    between = between_variance(coefficients, weights)
    if method == "bootstrap":
        se = np.sqrt(between * float(weights @ weights))
        lower, upper = resampled_quantiles(coefficients, weights, level)
    else:
        factor = stats.norm.ppf((1 + level) / 2)
        if method == "total" and bagged:
            variance, factor = between, stats.t.ppf((1 + level) / 2, max((weights > 0).sum() - 1, 1))
        elif method == "total":
            variance = total_variance(coefficients, np.stack([_known(one) for one in within]), weights)
        else:
            variance = between * float(weights @ weights)
        se = np.sqrt(variance)
        half = factor * se
        lower, upper = estimate - half, estimate + half
    table = pd.DataFrame({"coef": estimate, "se": se, "lower": lower, "upper": upper})
    with np.errstate(over="ignore"):  # beyond the floats: infinite
        return table.assign(
            **{f"exp_{name}": np.exp(table[name].to_numpy()) for name in ("coef", "lower", "upper")}
        )


def _known(variance: Array | None) -> Array:
    if variance is None:
        raise UnsupportedError(
            "method='total' needs the observed information of members trained with loss='nll', got members "
            "without it; train them with loss='nll', or use method='bootstrap'"
        )
    return variance


def resampled_quantiles(values: Array, weights: Array, level: float) -> tuple[Array, Array]:
    """Return percentile limits of the mean of M members drawn with probabilities ``weights``.

    All samples are enumerated where they are at most 10,000 (up to 8 members);
    else 10,000 are drawn, with a fixed seed.

    Parameters
    ----------
    values : array, shape (M, p)
    weights : array, shape (M,)
    level : float

    Examples
    --------
    >>> resampled_quantiles(np.array([[0.0], [1.0]]), np.array([0.5, 0.5]), 0.9)
    (array([0.]), array([1.]))
    """
    used = np.flatnonzero(weights > 0)
    size = len(used)
    if comb(2 * size - 1, size) <= _MOST_SAMPLES:
        counts = np.array(
            [np.bincount(draw, minlength=size) for draw in combinations_with_replacement(range(size), size)]
        )
        log_factorials = np.array([lgamma(count + 1) for count in range(size + 1)])
        logs = lgamma(size + 1) - log_factorials[counts].sum(axis=1) + counts @ np.log(weights[used])
        means, probabilities = counts @ values[used] / size, np.exp(logs)
    else:
        means = drawn_means(values, weights, _MOST_SAMPLES, np.random.default_rng(0))
        probabilities = np.full(_MOST_SAMPLES, 1 / _MOST_SAMPLES)
    return (
        _weighted_quantile(means, probabilities, (1 - level) / 2),
        _weighted_quantile(means, probabilities, (1 + level) / 2),
    )


def drawn_means(values: Array, weights: Array, n_draws: int, rng: np.random.Generator) -> Array:
    """Return means of as many members as have weight, drawn with probabilities ``weights``, (n_draws, p).

    Parameters
    ----------
    values : array, shape (M, p)
    weights : array, shape (M,)
    n_draws : int
    rng : Generator

    Examples
    --------
    >>> drawn_means(np.array([[1.0], [5.0]]), np.array([1.0, 0.0]), 3, np.random.default_rng(1)).ravel()
    array([1., 1., 1.])
    """
    used = weights > 0
    size, share = int(used.sum()), weights[used] / weights[used].sum()
    return np.asarray(rng.multinomial(size, share, size=n_draws) @ values[used] / size)


def _weighted_quantile(values: Array, probabilities: Array, q: float) -> Array:
    """Return the smallest value whose cumulative probability reaches q, per column."""
    order = np.argsort(values, axis=0, kind="stable")
    cumulative = np.cumsum(probabilities[order], axis=0)
    position = (cumulative < q * cumulative[-1] - 1e-12).sum(axis=0)
    return np.asarray(np.take_along_axis(values, order, axis=0)[position, np.arange(values.shape[1])])


# -- of an ensemble ----------------------------------------------------------------------------------


def slopes_of(recalibrations: Sequence[Recalibration] | None, count: int) -> Array:
    """Return the factors by which recalibration multiplies h, and with it coefficients, shape (M,).

    Examples
    --------
    >>> slopes_of(None, 2)
    array([1., 1.])
    """
    if recalibrations is None:
        return np.ones(count)
    return np.array([one.slope_[0] for one in recalibrations], dtype=float)


def member_table(members: Sequence[BaseTram], slopes: Array) -> pd.DataFrame:
    """Return the coefficients of each member, one line per member.

    Parameters
    ----------
    members : sequence of M fitted models
    slopes : array, shape (M,)
        From :func:`slopes_of`.
    """
    rows = [member.coef_.to_numpy() * slope for member, slope in zip(members, slopes, strict=True)]
    return pd.DataFrame(rows, columns=list(members[0].coef_.index))


def ensemble_table(
    members: Sequence[BaseTram],
    weights: Array,
    slopes: Array,
    level: float,
    method: str,
    bagged: bool = False,
) -> CoefficientTable:
    """Return the coefficients of an ensemble with intervals, under a header that says what they are.

    Parameters
    ----------
    members : sequence of M fitted models
    weights, slopes : array, shape (M,)
    level : float
    method : {"total", "bootstrap", "asymptotic"}
    bagged : bool
        Whether the members were trained on bootstrap samples of the rows.
    """
    first = members[0]
    latent, outcome = first.latent_, first.outcome_
    within = [_variance_within(member, slope) for member, slope in zip(members, slopes, strict=True)]
    table = interval_table(member_table(members, slopes).to_numpy(), weights, within, level, method, bagged)
    if latent.name == "normal":
        table = table[["coef", "se", "lower", "upper"]]
    elif latent.name == "minimum-extreme-value" and not outcome.is_discrete:
        add_hazard_ratios(table)
    if method != "total":
        table["variation"] = "seeds only"
    table = CoefficientTable(table)
    table.index = pd.Index(first.coef_.index, name=latent.effect_name)
    said = _what_varies(method, bagged, first.spec_.is_deep)
    table.attrs.update(
        sign=sign(outcome),
        effect=latent.effect_name,
        exp_effect=latent.exp_effect_name,
        level=level,
        method=method,
        header=[
            f"Ensemble of {len(members)} {type(first).__name__}: {described_outcome(outcome)}",
            meaning(outcome, latent),
            f"se, lower, upper ({100 * level:g} %): {said}",
            *([TOO_NARROW] if said == _GIVEN_NETWORKS else []),
            *([] if np.allclose(weights, 1 / len(weights)) else [WEIGHTS_HELD]),
            *said_of_networks(first.spec_, first.design_),
            *training_messages(members).values(),
        ],
    )
    return table


def _what_varies(method: str, bagged: bool, deep: bool) -> str:
    """Return what the standard errors are of, in words."""
    if method != "total":
        return f"seeds only, not sampling ({method})"
    if bagged:
        return "rows and seeds drawn anew (bootstrap)"
    return _GIVEN_NETWORKS if deep else "sampling and seeds"


def _variance_within(member: BaseTram, slope: float) -> Array | None:
    covariance = coefficient_covariance(member)
    if covariance is None:
        return np.zeros(0) if len(member.coef_) == 0 else None
    return np.asarray(np.diag(covariance)) * slope**2


# -- where there are none ----------------------------------------------------------------------------


def why_no_coefficients(
    members: Sequence[Any], pooling: Any, weights: Array, recalibrated: bool
) -> str | None:
    """Return why the pool of these members has no coefficients, or None if it has.

    Parameters
    ----------
    members : sequence
        Fitted models.
    pooling : str or Rule
    weights : array, shape (M,)
    recalibrated : bool
        Whether the members' transformations are recalibrated before pooling.
    """
    models: list[BaseTram] = []
    for number, member in enumerate(members):
        if not isinstance(member, BaseTram):
            return (
                f"member {number} is a {type(member).__name__}, which has no linear shift; "
                "use members that are deeptram models"
            )
        models.append(member)
    return _different(models) or _leaves_the_class(models[0], pooling, weights, recalibrated)


def _different(models: Sequence[BaseTram]) -> str | None:
    first = models[0]
    for number, model in enumerate(models[1:], start=1):
        if model.latent_ != first.latent_ or model.outcome_.kind != first.outcome_.kind:
            return (
                f"members 0 and {number} measure effects on different scales ({_scale(first)} and "
                f"{_scale(model)}), so their coefficients cannot be averaged; use members of one kind"
            )
        if list(model.coef_.index) != list(first.coef_.index):
            return (
                f"members 0 and {number} have different linear shifts ({_columns(first)} and "
                f"{_columns(model)}); use members with the same LS term"
            )
        if model.design_ is not first.design_ and _encoding(model) != _encoding(first):
            return (
                f"members 0 and {number} encode the columns of their linear shifts differently (levels, "
                "knots or centres), so coefficients of one name mean different things; "
                "fit them with one encoding"
            )
    return None


def _leaves_the_class(model: BaseTram, pooling: Any, weights: Array, recalibrated: bool) -> str | None:
    name = get_rule(pooling).name
    if model.outcome_.kind.is_nominal:
        if recalibrated:
            return (
                "recalibration acts on the distribution function of a nominal outcome, not on its logits; "
                "use recalibrate=False"
            )
        if name == "log-linear-density" or (weights > 0).sum() == 1:
            return None
        return (
            f"the {name} pool of multinomial logits is no multinomial logit; "
            "use pooling='log-linear-density', which averages the logits"
        )
    logits = model.outcome_.kind == "binary" and model.latent_.name == "logistic"
    if name == "transformation" or (weights > 0).sum() == 1 or (logits and name == "log-linear-density"):
        return None
    return (
        f"the {name} pool of transformation models is in general none: it has no "
        f"{model.latent_.effect_name}; use pooling='transformation', which averages h and with it the "
        "coefficients"
    )


def _scale(model: BaseTram) -> str:
    return f"{model.outcome_.kind}, {model.latent_.name}"


def _columns(model: BaseTram) -> str:
    names = list(model.coef_.index)
    return f"[{', '.join(names[:4])}{', ...' if len(names) > 4 else ''}]"


def _encoding(model: BaseTram) -> Any:
    """Return what decides the meaning of the columns of the linear shift."""
    linear = model.design_.linear
    return None if linear is None else linear.to_dict()
