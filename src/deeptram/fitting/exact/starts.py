"""Where Newton's method starts for outcomes on the line: the model without covariates.

Starts depend on the data as a weighted sample only (not on the order of rows,
nor on whether a row stands twice or has weight two), so fits do not either.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from deeptram.bases import Basis
from deeptram.errors import InvalidInputError
from deeptram.fitting.exact.columns import StructuredData
from deeptram.optimise.quadratic import nonnegative_least_squares
from deeptram.responses import Observations

Array = NDArray[np.float64]

_START_POINTS = 64


def typical_values(
    observations: Observations, basis: Basis, weights: Array | None
) -> tuple[Array, Array | None]:
    """Return one finite value per row (the exact one, the middle, or the finite end) and its weight.

    Rows that say nothing (no finite end) are left out.
    """
    seen = observations.within(basis.domain)
    lower, upper = seen.lower, seen.upper
    both = np.isfinite(lower) & np.isfinite(upper)
    value = np.where(np.isfinite(lower), lower, upper)
    value[both] = lower[both] + (upper[both] - lower[both]) / 2
    known = np.isfinite(value)
    return value[known], None if weights is None else weights[known]


def weighted_quantile(values: Array, weights: Array | None, probabilities: Array) -> Array:
    """Return quantiles that are the same for a weight of two and for a row that stands twice.

    Examples
    --------
    >>> weighted_quantile(np.array([3.0, 1.0]), np.array([1.0, 3.0]), np.array([0.5, 0.9]))
    array([1., 3.])
    """
    order = np.argsort(values, kind="stable")
    share = np.arange(1.0, len(values) + 1) if weights is None else np.cumsum(weights[order])
    place = np.searchsorted(share, probabilities * share[-1])
    return np.asarray(values[order[np.minimum(place, len(values) - 1)]])


def start_theta(data: StructuredData, constant: Array) -> Array:
    """Return a baseline close to that of the model without covariates, with positive increments.

    Parameters
    ----------
    data : StructuredData
        Outcome, basis and weights.
    constant : ndarray, shape (d,)
        Coefficients of the constant function.
    """
    if data.codes is not None:
        return _start_cutpoints(data, data.codes)
    if data.observations is None:
        raise InvalidInputError("the data hold neither classes nor observations; give one of them.")
    increments = data.basis.monotone_differences
    values, weights = typical_values(data.observations, data.basis, data.weights)
    probabilities = (np.arange(_START_POINTS) + 0.5) / _START_POINTS
    points = weighted_quantile(values, weights, probabilities)
    target = np.asarray(data.latent.icdf(probabilities)) - data.basis.offset(points)
    if len(increments) == 0:
        return constant * float(target.mean())
    # least squares for (level, increments >= small): theta = level * constant + lift @ increments
    rows = data.basis.evaluate(points)
    lift = np.linalg.pinv(increments)
    design = np.column_stack([rows @ constant, -rows @ constant, rows @ lift])
    steps = nonnegative_least_squares(design, target)[2:]
    steps = np.maximum(steps, 0.05 * max(float(steps.mean()), 1e-3))
    theta = lift @ steps
    return np.asarray(theta + constant * float((target - rows @ theta).mean()))


def _start_cutpoints(data: StructuredData, codes: NDArray[np.int64]) -> Array:
    mass = np.bincount(codes, weights=data.weights, minlength=data.n_classes)
    if (mass[[0, -1]] == 0).any():
        raise InvalidInputError(
            "the first and the last level must be observed in a model with Scale or Varying terms; "
            "leave the empty level out of `levels`."
        )
    theta = np.asarray(data.latent.icdf(np.cumsum(mass)[:-1] / mass.sum()))
    return np.asarray(theta + 1e-3 * np.arange(len(theta)) * (mass[1:-1] == 0).any())
