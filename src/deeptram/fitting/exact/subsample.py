"""Start a large fit from the optimum of a tenth of its rows."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from deeptram.likelihood.cutpoints import CutpointLikelihood
from deeptram.optimise.newton import Objective, minimize

Array = NDArray[np.float64]

_EVERY = 10
_LARGE = 20_000
_ROWS_PER_PARAMETER = 20
_FAR = 8.0


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
    if not isinstance(objective, CutpointLikelihood) or objective.n_rows < _LARGE:
        return start
    part = objective.every(_EVERY)
    if part.smallest_class < _ROWS_PER_PARAMETER * objective.n_parameters:
        return start
    result = minimize(part, start, tolerance=1e-5, max_iter=10)
    settled = result.converged and float(np.abs(result.parameters).max(initial=0.0)) < _FAR
    return result.parameters if settled else start
