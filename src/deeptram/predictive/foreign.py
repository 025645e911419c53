"""Constructors that turn anybody's predictions into ``Predictive``s, and refuse what is no distribution.

Pooling (Def. 5 of the paper) needs nothing but each member's CDF, so any
software's predictions can be members. Every row is checked once, here; a row
that is not a distribution is named, never repaired.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from deeptram import latent as latents
from deeptram._arrays import as_numpy, as_tensor
from deeptram._validation import as_float, first_rows
from deeptram.errors import InvalidInputError, InvalidTypeError
from deeptram.latent import Latent
from deeptram.predictive.base import Predictive
from deeptram.predictive.discrete import DiscretePredictive
from deeptram.predictive.rows import refuse_complex
from deeptram.predictive.scipy_backed import predictive_of_scipy
from deeptram.predictive.survival import SurvivalPredictive
from deeptram.predictive.tabulated import QuantilesPredictive, SamplesPredictive
from deeptram.predictive.torch_backed import predictive_of_torch
from deeptram.responses.discrete import DiscreteResponse

SUM_TOLERANCE = 1e-8
SUM_TOLERANCE_FLOAT32 = 1e-5
ROUNDING = 1e-12
ROUNDING_FLOAT32 = 1e-6
LARGEST = 1e150
LARGEST_FLOAT32 = 1e15


def from_cdf(cdf: Any, levels: Sequence[Any] | None = None) -> DiscretePredictive:
    r"""Build discrete distributions from the CDF at every level.

    Parameters
    ----------
    cdf : array-like or Tensor, shape (n, K)
        P(Y <= y_k) in the order of the levels, ending in 1 (within 1e-8;
        float32: 1e-5). Equal neighbours are levels of probability exactly 0,
        whose log-probability is minus infinity. A decrease of up to 1e-12
        (float32: 1e-6) counts as rounding of such a level.
    levels : sequence, optional
        Default 0, ..., K - 1, or the columns of a DataFrame.

    Notes
    -----
    The upper tail is known only as 1 - F: an h of 40 on the logistic scale is
    F = 1 in float64. Software that has probabilities or h itself does better
    with ``from_proba`` or ``from_trafo``.

    Examples
    --------
    >>> from_cdf([[0.2, 0.7, 1.0]]).pmf().round(3)
    array([[0.2, 0.5, 0.3]])
    """
    values, names, numpy, rounding, tolerance = _table(cdf, levels, "cdf")
    _refuse_outside(values, "cdf", rounding, tolerance)
    short = (values[:, -1] - 1).abs() > tolerance
    if bool(short.any()):
        raise InvalidInputError(
            f"each row of cdf must end in 1, got {float(values[short][0, -1]):g} in {_rows(short)}; "
            "append a column of ones if the last level was left out"
        )
    falls = (values.diff(dim=1) < -rounding).any(dim=1)
    if bool(falls.any()):
        raise InvalidInputError(
            f"each row of cdf must not decrease, got a decrease in {_rows(falls)}; "
            "order the columns as the levels, or use from_proba for probabilities"
        )
    inner = values[:, :-1].cummax(dim=1).values.clamp(0.0, 1.0)
    return DiscretePredictive(levels=names, latent=None, numpy=numpy, cdf=inner)


def from_proba(proba: Any, levels: Sequence[Any] | None = None) -> DiscretePredictive:
    r"""Build discrete distributions from class probabilities.

    Both tails are accumulated from their own end, so a survivor probability of
    1e-30 is kept.

    Parameters
    ----------
    proba : array-like or Tensor, shape (n, K)
        P(Y = y_k) in the order of the levels; each row sums to one (within
        1e-8; float32: 1e-5) and is divided by its sum.
    levels : sequence, optional
        Default 0, ..., K - 1, or the columns of a DataFrame.

    Examples
    --------
    >>> from_proba([[0.2, 0.5, 0.3]], levels=["a", "b", "c"]).cdf().round(3)
    array([[0.2, 0.7, 1. ]])
    """
    values, names, numpy, rounding, tolerance = _table(proba, levels, "proba")
    _refuse_outside(values, "proba", rounding, tolerance)
    total = values.sum(dim=1)
    wrong = (total - 1).abs() > tolerance
    if bool(wrong.any()):
        raise InvalidInputError(
            f"each row of proba must sum to one, got {float(total[wrong][0]):g} in {_rows(wrong)}; "
            "divide each row by its sum, or use from_cdf for a CDF"
        )
    values = values.clamp(min=0.0) / total.unsqueeze(1)
    lower = values.cumsum(dim=1)[:, :-1]
    upper = values.flip(1).cumsum(dim=1).flip(1)[:, 1:]
    small = lower < upper
    safe_lower = torch.where(small, lower, torch.full_like(lower, 0.5))
    safe_upper = torch.where(small, torch.full_like(upper, 0.5), upper)
    log_cdf = torch.where(small, torch.log(lower), torch.log1p(-safe_upper))
    log_sf = torch.where(small, torch.log1p(-safe_lower), torch.log(upper))
    return DiscretePredictive(
        levels=names,
        latent=None,
        numpy=numpy,
        log_cdf=log_cdf,
        log_sf=log_sf,
        log_pmf=torch.log(values),
    )


def from_trafo(
    h: Any, levels: Sequence[Any] | None = None, latent: str | Latent = "logistic"
) -> DiscretePredictive:
    r"""Build discrete distributions from transformation values :math:`h_k = F_Z^{-1}(P(Y \le y_k))`.

    Parameters
    ----------
    h : array-like or Tensor, shape (n, K - 1)
        Non-decreasing along each row. Minus and plus infinity, and equal
        neighbours, are levels of probability 0.
    levels : sequence, optional
        The K levels; default 0, ..., K - 1.
    latent : str or Latent
        F_Z.

    Examples
    --------
    >>> from_trafo([[-1.0, 700.0]]).log_prob([2])
    array([-700.])
    """
    values, names, numpy, _, _ = _table(h, levels, "h", extra=1)
    falls = (values[:, 1:] < values[:, :-1]).any(dim=1)
    if bool(falls.any()):
        raise InvalidInputError(
            f"each row of h must not decrease, got a decrease in {_rows(falls)}; "
            "order the columns as the levels"
        )
    return DiscretePredictive(levels=names, latent=latents.get(latent), numpy=numpy, h=values)


def from_scipy(frozen: Any) -> Predictive:
    """Build from a SciPy distribution whose parameters are n-vectors (scalars: n = 1).

    Continuous distributions give distributions on the line, distributions on
    the counts count distributions, ``bernoulli`` a binary outcome. Both frozen
    distributions (``scipy.stats.norm(loc, scale)``) and the newer objects
    (``scipy.stats.Normal(mu=..., sigma=...)``) are understood.

    Examples
    --------
    >>> import scipy.stats
    >>> len(from_scipy(scipy.stats.gamma([1.0, 2.0, 3.0])))
    3
    """
    return predictive_of_scipy(frozen)


def from_torch(distribution: Any) -> Predictive:
    """Build from a ``torch.distributions`` object with batch shape (n,) (or (): n = 1).

    ``Categorical``, ``OneHotCategorical`` and ``Bernoulli`` give discrete
    distributions with levels 0, 1, ..., distributions on the counts count
    distributions, all others distributions on the line (their ``cdf`` must be
    implemented). Answers are tensors that carry gradients.

    Examples
    --------
    >>> pred = from_torch(torch.distributions.Normal(torch.zeros(2, dtype=torch.float64), 1.0))
    >>> pred.cdf(0.0)
    tensor([0.5000, 0.5000], dtype=torch.float64)
    """
    return predictive_of_torch(distribution)


def from_quantiles(q: Any, values: Any) -> QuantilesPredictive:
    """Build from quantiles; F is linear between them and exponential beyond the outer ones.

    Parameters
    ----------
    q : array-like, shape (Q,)
        At least two increasing probabilities, strictly between 0 and 1.
    values : array-like or Tensor, shape (n, Q)
        The quantiles, not decreasing along each row; equal ones are a point mass (no admissions at all, say).

    Examples
    --------
    >>> from_quantiles([0.1, 0.5, 0.9], [[-1.0, 0.0, 1.0]]).median()
    array([0.])
    """
    numpy = not isinstance(values, Tensor)
    quantiles = _matrix(values, "values")
    probability = as_tensor(q, quantiles.dtype)
    inside = bool(((probability > 0) & (probability < 1)).all())
    if probability.ndim != 1 or len(probability) < 2 or not inside or bool((probability.diff() <= 0).any()):
        raise InvalidInputError(
            f"q must hold at least two increasing probabilities strictly between 0 and 1, got {q!r}; "
            "sort them and leave 0 and 1 out"
        )
    if quantiles.shape[1] != len(probability):
        raise InvalidInputError(
            f"values must have one column per probability, shape (n, {len(probability)}), "
            f"got {tuple(quantiles.shape)}; pass one quantile for each q"
        )
    _refuse_not_finite(quantiles, "values")
    falls = (quantiles.diff(dim=1) < 0).any(dim=1)
    if bool(falls.any()):
        raise InvalidInputError(
            f"each row of values must not decrease, got a decrease in {_rows(falls)}; sort the quantiles"
        )
    return QuantilesPredictive(probability.clone(), quantiles.clone(), numpy)


def from_samples(draws: Any) -> SamplesPredictive:
    """Build from draws: the empirical distribution, with a kernel estimate where a density is needed.

    Parameters
    ----------
    draws : array-like or Tensor, shape (n, S)
        Forecast draws of each row, in any order; a different number of draws
        in each row is not supported.

    Examples
    --------
    >>> from_samples([[3.0, 1.0, 2.0]]).quantile([0.1, 0.5, 0.9])
    array([[1., 2., 3.]])
    """
    numpy = not isinstance(draws, Tensor)
    values = _matrix(draws, "draws")
    _refuse_not_finite(values, "draws")
    return SamplesPredictive(values, numpy)


def from_survival(times: Any, survival: Any) -> SurvivalPredictive:
    """Build from survival curves of any software; see ``SurvivalPredictive`` for what is read into them.

    Parameters
    ----------
    times : array-like, shape (T,)
        Increasing, finite times, not negative.
    survival : array-like or Tensor, shape (n, T)
        P(Y > t) of each row at these times, not increasing along a row (within 1e-12; float32: 1e-6).
        lifelines has rows and times the other way round: ``from_survival(df.index, df.T)``.

    Examples
    --------
    >>> from_survival([1.0, 2.0], [[0.8, 0.3]]).survivor(1.5)
    array([0.8])
    """
    numpy = not isinstance(survival, Tensor)
    curves = _matrix(survival, "survival")
    given = as_float(times, "times")
    moments = _matrix(given[None] if given.ndim == 1 else given, "times").to(curves.dtype)
    proper = moments.shape[0] == 1 and bool(torch.isfinite(moments).all() & (moments >= 0).all())
    if not proper or bool((moments.diff(dim=1) <= 0).any()):
        raise InvalidInputError(
            f"times must be a vector of increasing, finite times, not negative, got {times!r}; sort them"
        )
    if curves.shape[1] != moments.shape[1]:
        raise InvalidInputError(
            f"survival must have one column per time, shape (n, {moments.shape[1]}), got "
            f"{tuple(curves.shape)}; transpose it if rows and times are swapped"
        )
    _refuse_not_finite(curves, "survival")
    single = (np.asarray(survival).dtype if numpy else survival.dtype) in (np.float32, torch.float32)
    rounding = ROUNDING_FLOAT32 if single else ROUNDING
    _refuse_outside(curves, "survival", rounding, rounding)
    steps, curves = curves.diff(dim=1), curves.clamp(0.0, 1.0)
    if steps.numel() and bool(steps.max() > 0):
        rises = (steps > rounding).any(dim=1)
        if bool(rises.any()):
            raise InvalidInputError(
                f"each row of survival must not increase, got an increase in {_rows(rises)}; "
                "order the columns by time, or pass 1 - cdf"
            )
        curves = curves.cummin(dim=1).values
    return SurvivalPredictive(moments[0].clone(), curves, numpy)


def from_sklearn(model: Any, X: Any, levels: Sequence[Any] | None = None) -> DiscretePredictive:
    """Build from a fitted scikit-learn classifier: ``predict_proba(X)`` with ``classes_`` as levels.

    scikit-learn sorts the classes; for an ordinal outcome say their order with ``levels``.

    Parameters
    ----------
    model : classifier
    X : data
    levels : sequence, optional
        All of ``classes_``, in the order of the outcome.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> model = LogisticRegression().fit([[0.0], [1.0], [2.0]], ["no", "no", "yes"])
    >>> from_sklearn(model, [[1.5]]).levels
    ('no', 'yes')
    >>> from_sklearn(model, [[1.5]], levels=["yes", "no"]).levels
    ('yes', 'no')
    """
    if not callable(getattr(model, "predict_proba", None)):
        raise InvalidTypeError(
            f"model must have predict_proba, got {type(model).__name__}; "
            "use a classifier that estimates probabilities, for example with CalibratedClassifierCV; for a "
            "regressor use from_quantiles (quantile regressors), from_samples (the trees of a forest) or "
            "from_scipy (a mean and a standard deviation)"
        )
    proba, classes = model.predict_proba(X), list(model.classes_)
    if levels is None:
        return from_proba(proba, levels=tuple(classes))
    ordered = DiscreteResponse(tuple(levels)).levels
    if set(ordered) != set(classes):
        raise InvalidInputError(
            f"levels must be all classes of {type(model).__name__} ({classes}), got {list(ordered)}; "
            "name each of them once"
        )
    return from_proba(np.asarray(proba)[:, [classes.index(level) for level in ordered]], levels=ordered)


def _table(
    values: Any, levels: Sequence[Any] | None, name: str, extra: int = 0
) -> tuple[Tensor, tuple[Any, ...], bool, float, float]:
    """Return the (n, columns) values, the levels, whether to answer in NumPy, and the two tolerances."""
    numpy = not isinstance(values, Tensor)
    if levels is None and isinstance(values, pd.DataFrame) and not extra:
        levels = tuple(values.columns)
    table = _matrix(values, name)
    single = (np.asarray(values).dtype if numpy else values.dtype) in (np.float32, torch.float32)
    n_levels = table.shape[1] + extra
    if n_levels < 2:
        raise InvalidInputError(
            f"{name} must have one column per level, at least two, got shape {tuple(table.shape)}; "
            "for a binary outcome pass both columns, np.column_stack([1 - p, p])"
        )
    names = (
        tuple(range(n_levels)) if levels is None else DiscreteResponse(levels).levels  # type: ignore[arg-type]
    )
    if len(names) != n_levels:
        raise InvalidInputError(
            f"levels must name every level, got {len(names)} names for {n_levels} levels of {name}; "
            "pass one name for each"
        )
    missing = torch.isnan(table).any(dim=1)
    if bool(missing.any()):
        raise InvalidInputError(
            f"{name} must not contain NaN, got NaN in {_rows(missing)}; drop or fill these rows"
        )
    if single:
        return table, names, numpy, ROUNDING_FLOAT32, SUM_TOLERANCE_FLOAT32
    return table, names, numpy, ROUNDING, SUM_TOLERANCE


def _matrix(values: Any, name: str) -> Tensor:
    """Return two-dimensional numbers: float64 from NumPy, the own type of a tensor."""
    try:
        refuse_complex(values)
        matrix = (
            as_tensor(values) if isinstance(values, Tensor) else as_tensor(np.asarray(values), torch.float64)
        )
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidTypeError(
            f"{name} must be a matrix of numbers, got {type(values).__name__}; pass one row per observation"
        ) from error
    if matrix.ndim != 2 or matrix.shape[0] == 0 or matrix.shape[1] == 0:
        raise InvalidInputError(
            f"{name} must be a matrix with one row per observation, got shape {tuple(matrix.shape)}; "
            "reshape it to two axes"
        )
    return matrix


def _refuse_outside(values: Tensor, name: str, rounding: float, tolerance: float) -> None:
    if _all_within(values, -rounding, 1 + tolerance):
        return
    wrong = (values < -rounding) | (values > 1 + tolerance)
    outside = wrong.any(dim=1)
    if bool(outside.any()):
        raise InvalidInputError(
            f"{name} must lie between 0 and 1, got {float(values[wrong][0]):g} in {_rows(outside)}; "
            "pass probabilities"
        )


def _refuse_not_finite(values: Tensor, name: str) -> None:
    most = LARGEST_FLOAT32 if values.dtype == torch.float32 else LARGEST
    if _all_within(values, -most, most):
        return
    bad = (~torch.isfinite(values)).any(dim=1)
    if bool(bad.any()):
        raise InvalidInputError(
            f"{name} must be finite, got NaN or infinity in {_rows(bad)}; drop or correct these rows"
        )
    large = (values.abs() > most).any(dim=1)
    if bool(large.any()):
        raise InvalidInputError(
            f"{name} must lie within {most:g} of zero, so that squares are finite, got larger numbers in "
            f"{_rows(large)}; use larger units"
        )


def _all_within(values: Tensor, low: float, high: float) -> bool:
    """Whether all numbers lie between two ends, in one pass; NaN lies nowhere."""
    lowest, highest = torch.aminmax(values)
    return bool((lowest >= low) & (highest <= high))


def _rows(mask: Tensor) -> str:
    return first_rows(as_numpy(mask))
