"""Where Newton's method starts: the model without covariates, or nearer to the optimum where that is cheap.

Starts depend on the data as a weighted sample only (not on the order of rows,
nor on whether a row stands twice or has weight two), so fits do not either.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from deeptram.bases import Basis
from deeptram.errors import InvalidInputError
from deeptram.fitting.exact.structured_data import StructuredData
from deeptram.likelihood.binary import BinaryLikelihood
from deeptram.likelihood.cutpoints import CutpointLikelihood
from deeptram.optimise.newton import Objective, minimize
from deeptram.optimise.quadratic import nonnegative_least_squares
from deeptram.responses import Observations

Array = NDArray[np.float64]

_START_POINTS = 64
_FAR_APART = 16.0
_EVERY = 10
_MANY_ROWS = 20_000
_ROWS_PER_PARAMETER = 20
_FAR_OUT = 8.0


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


def discriminant_start(objective: BinaryLikelihood, correlations: Array, start: Array) -> Array:
    r"""Return the optimum if x were normal with the same covariance in both classes, or ``start``.

    Two classes with means :math:`m_0, m_1` and common covariance :math:`S` have
    log odds-ratios :math:`S^{-1}(m_1 - m_0)`: no pass over the rows beyond their
    sums, and some two Newton steps less. Classes that lie far apart (they may be
    separated) are left alone.

    Parameters
    ----------
    objective : BinaryLikelihood
        Of centred and scaled columns.
    correlations : ndarray, shape (p, p)
        Their (weighted) correlation matrix.
    start : ndarray, shape (1 + p,)
        The model without covariates.

    Examples
    --------
    >>> from deeptram.latent import Logistic
    >>> x = np.array([[-1.5], [0.5], [-0.5], [1.5]]) / np.sqrt(1.25)
    >>> objective = BinaryLikelihood(np.array([True, True, False, False]), x, None, Logistic())
    >>> discriminant_start(objective, np.eye(1), np.zeros(2))
    array([0.        , 1.118...])
    """
    lower, upper, difference = objective.class_sums()
    # centred columns: the sums of both classes are half the difference, and minus that
    low, high = difference / (2 * lower), -difference / (2 * upper)
    total = lower + upper
    within = correlations - (lower * np.outer(low, low) + upper * np.outer(high, high)) / total
    try:
        slopes = np.linalg.solve(within, high - low)
    except np.linalg.LinAlgError:
        return start
    if not 0 <= float(slopes @ (high - low)) < _FAR_APART:
        return start
    cutpoint = np.log(lower / upper) + (low + high) @ slopes / 2
    return np.asarray(objective.latent.relative_slope * np.concatenate([[cutpoint], slopes]))


def subsample_start(objective: Objective, start: Array) -> Array:
    """Return a better start for a large problem, or ``start`` itself.

    Every tenth row (of the rows sorted by class) is fitted first, which costs
    a tenth and saves about half of the steps over all rows. The result is
    discarded where a class is too small, the small fit did not settle, or its
    parameters are far out (as under separation).

    Examples
    --------
    >>> import torch
    >>> from deeptram.likelihood.cutpoint_cells import cells_of
    >>> from deeptram.latent import Logistic
    >>> codes = np.array([0, 1, 0, 1])
    >>> small = CutpointLikelihood(codes, cells_of(codes, 2, None, 1), torch.zeros(4, 0), None, Logistic())
    >>> subsample_start(small, np.zeros(1))
    array([0.])
    """
    if not isinstance(objective, CutpointLikelihood) or objective.n_rows < _MANY_ROWS:
        return start
    part = objective.every(_EVERY)
    if part.smallest_class < _ROWS_PER_PARAMETER * objective.n_parameters:
        return start
    result = minimize(part, start, tolerance=1e-5, max_iter=10)
    settled = result.converged and float(np.abs(result.parameters).max(initial=0.0)) < _FAR_OUT
    return result.parameters if settled else start
