"""From data and basis to a convex problem in well-scaled parameters, and back.

The solver works with centred and scaled columns; every public number is mapped
back by one matrix, so coefficients, standard errors and profiles all pass
through the same door. What is learned from the rows (``Coordinates``) is small and
applies to any rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.linalg import block_diag, null_space
from torch import Tensor

from deeptram.bases import Basis
from deeptram.errors import InvalidInputError
from deeptram.fitting.exact.columns import (
    ScaledColumns,
    StructuredData,
    aliased_columns,
    are_independent,
    centre_within,
    informative_rows,
    moments,
    rounding_of,
    standardize,
)
from deeptram.fitting.exact.pieces import Pieces, PiecewiseLikelihood
from deeptram.likelihood.cutpoints import BinaryLikelihood, Cells, CutpointLikelihood, cells_of
from deeptram.likelihood.line import LineDesign, LineLikelihood, Rows
from deeptram.optimise.quadratic import nonnegative_least_squares
from deeptram.responses import Observations

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]
Likelihood = CutpointLikelihood | BinaryLikelihood | LineLikelihood

_MAX_VERTICES = 256


@dataclass(frozen=True)
class Held:
    """A coefficient held fixed: the rest of the shift's parameters, and the known part."""

    rest: Array
    known: Array


@dataclass(frozen=True)
class Coordinates:
    """The scaled parameters of a problem: how any rows enter the likelihood in them.

    Attributes
    ----------
    columns : ScaledColumns
        Of the linear shift.
    cells : Cells or None
        Cutpoints of classes that depend on strata only.
    basis_map : ndarray, shape (d, d)
        From scaled to plain baseline coefficients.
    varying, scale : ScaledColumns or None
        Of these terms.
    """

    columns: ScaledColumns
    cells: Cells | None
    basis_map: Array
    varying: ScaledColumns | None
    scale: ScaledColumns | None

    def likelihood(self, data: StructuredData, held: Held | None = None) -> Likelihood:
        """Return the negative log-likelihood of some rows."""
        if self.cells is not None:
            return self._of_cutpoints(data, self.cells, held)
        parts = self.line_rows(data, held)
        n_theta = self._n_blocks(data) * data.basis.n_coef
        p = len(self.columns.turn) - (held is not None)
        q = 0 if self.scale is None else len(self.scale.turn)
        return LineLikelihood(parts, data.latent, n_theta, p, q, len(data.x))

    def line_rows(self, data: StructuredData, held: Held | None = None) -> list[Rows]:
        """Return some rows as parts of the likelihood on the line, where classes are intervals."""
        if data.codes is not None:
            seen = Observations.of_classes(data.codes, data.n_classes)
        elif data.observations is not None:
            seen = data.observations.within(data.basis.domain)
        else:
            return []
        x, known = self._shift(data, held)
        scale = None
        if self.scale is not None and data.scale is not None:
            scale = torch.from_numpy(self.scale.of(data.scale))
        design = LineDesign(data.basis, self.basis_map, x, data.weights, self._blocks(data), scale, known)
        return design.rows(seen)

    def _shift(self, data: StructuredData, held: Held | None) -> tuple[Tensor, Tensor | None]:
        """Return the columns of the shift, and its known part."""
        x = self.columns.of(data.x)
        if held is None:
            return torch.from_numpy(x), None
        return torch.from_numpy(x @ held.rest.T), torch.from_numpy(x @ held.known)

    def _of_cutpoints(
        self, data: StructuredData, cells: Cells, held: Held | None
    ) -> CutpointLikelihood | BinaryLikelihood:
        """Return the likelihood of classes; two of them in one stratum have a quicker one."""
        weights = None if data.weights is None else torch.from_numpy(data.weights)
        parts: dict[str, Any] = {}
        if held is None and self.columns.are_plain:
            x, parts = data.x, {"centre": self.columns.mean, "spread": self.columns.sd}
        else:
            scaled, known = self._shift(data, held)
            x, parts = scaled.numpy(), {"shift_offset": known}
        if data.latent.is_symmetric and len(cells.counts) == 1 and cells.n_columns == 1:
            lower = data.cell == np.flatnonzero(cells.upper == 0)[0]
            return BinaryLikelihood(lower, x, weights, data.latent, **parts)
        columns = torch.from_numpy(x if x.flags.writeable else x.copy())  # torch refuses what is read-only
        return CutpointLikelihood(data.cell, cells, columns, weights, data.latent, **parts)

    def _n_blocks(self, data: StructuredData) -> int:
        return data.n_strata + (0 if self.varying is None else len(self.varying.turn))

    def _blocks(self, data: StructuredData) -> Tensor | None:
        """Return the columns that multiply the basis: indicators of strata, then varying columns."""
        if self.varying is None and data.n_strata == 1:
            return None
        blocks = np.ones((len(data.x), 1))
        if data.strata is not None:
            blocks = np.eye(data.n_strata)[data.strata]
        if self.varying is not None and data.varying is not None:
            blocks = np.hstack([blocks, self.varying.of(data.varying)])
        return torch.from_numpy(blocks)


class ExactProblem:
    """A scaled problem with the map back to the user's parameters.

    The user's parameters are ``(theta blocks, beta, gamma)``: ``theta`` has
    ``n_blocks * d`` entries, block after block.

    Parameters
    ----------
    data : StructuredData
        The rows; or, where these come in pieces, some of them that tell the same: every level and class,
        the extremes, and as many independent rows as there are.
    pieces : Pieces, optional
        All rows. Without them, ``data`` is all there is.

    Attributes
    ----------
    coordinates : Coordinates
        The scaled parameters.
    objective : Likelihood
        To be minimised.
    start : ndarray
        The model without covariates.
    constraints : ndarray or None
        Rows that must not be negative.
    back : ndarray
        From scaled to the user's parameters.
    n_rows, unit : int, float
        Number of rows, and their total weight.
    """

    def __init__(self, data: StructuredData, pieces: Pieces | None = None) -> None:
        self.data, self.pieces = data, pieces
        self.n_rows = len(data.x) if pieces is None else pieces.n_rows
        weight = float(self.n_rows if data.weights is None else data.weights.sum())
        self.unit = weight if pieces is None else pieces.weight
        self.constant = _constant_vector(data.basis)
        self.coordinates = _coordinates(data)
        self.objective = self._likelihood()
        if self.coordinates.cells is None:
            self._set_up_line()
        else:
            self._set_up_cutpoints(self.coordinates.cells)

    def _likelihood(self, held: Held | None = None) -> Likelihood | PiecewiseLikelihood:
        if self.pieces is None:
            return self.coordinates.likelihood(self.data, held)
        return PiecewiseLikelihood(self.pieces, self.coordinates, self.data, held)

    @property
    def columns(self) -> ScaledColumns:
        """Columns of the linear shift."""
        return self.coordinates.columns

    @property
    def aliased(self) -> Mask:
        """Columns of the linear shift that are left out, shape (p,)."""
        return self.columns.aliased

    @property
    def aliased_varying(self) -> Mask:
        """Columns of the varying term that are left out, shape (J,)."""
        return _aliased_of(self.coordinates.varying)

    @property
    def aliased_scale(self) -> Mask:
        """Columns of the scale term that are left out, shape (q,)."""
        return _aliased_of(self.coordinates.scale)

    @property
    def has_odd_columns(self) -> bool:
        """Whether some columns are left out or nearly collinear."""
        left_out = self.aliased_varying.any() or self.aliased_scale.any()
        return bool(left_out) or not self.columns.are_plain

    def _set_up_cutpoints(self, cells: Cells) -> None:
        data, columns, kept = self.data, self.columns, ~self.aliased
        mass = np.bincount(data.cell, weights=data.weights, minlength=data.n_strata * data.n_classes)
        theta = np.zeros(cells.n_columns)
        for s, row in enumerate(mass.reshape(data.n_strata, data.n_classes)):
            shares = np.cumsum(row)[:-1] / row.sum() if row.sum() else np.zeros(0)
            for k, column in enumerate(cells.columns[s]):
                if column >= 0:
                    theta[column] = float(data.latent.icdf_t(torch.tensor(shares[k])))
        self.start = np.concatenate([theta, np.zeros(int(kept.sum()))])
        self.constraints: Array | None = None
        self._level = np.ones(cells.n_columns)
        d = data.n_strata * (data.n_classes - 1)
        back = np.zeros((d + len(kept), len(self.start)))
        places = cells.columns.ravel()
        finite = places >= 0
        back[np.flatnonzero(finite), places[finite]] = 1.0
        slopes = columns.turn / columns.sd[kept, None]
        back[d + np.flatnonzero(kept), cells.n_columns :] = slopes
        back[np.flatnonzero(finite), cells.n_columns :] = columns.mean[kept] @ slopes
        self.back = back

    def _set_up_line(self) -> None:
        data, columns, kept = self.data, self.columns, ~self.aliased
        block_map, vertices = _modulation(data, self.coordinates.varying)
        basis_map, d = self.coordinates.basis_map, data.basis.n_coef
        n_theta, p = block_map.shape[1] * d, len(columns.turn)
        scale_back = np.zeros((0, 0))
        if self.coordinates.scale is not None:
            scale_back = _back(self.coordinates.scale)
        increments = data.basis.monotone_differences @ basis_map
        rows = [np.kron(vertex, increments) for vertex in vertices] if len(increments) else []
        stacked = np.vstack(rows) if rows else np.zeros((0, n_theta))
        self.constraints = np.pad(stacked, ((0, 0), (0, p + scale_back.shape[1])))
        first = np.linalg.solve(basis_map, start_theta(data, self.constant))
        self.start = np.zeros(n_theta + p + scale_back.shape[1])
        self.start[: data.n_strata * d] = np.tile(first, data.n_strata)
        self._level = np.zeros(n_theta)
        self._level[: data.n_strata * d] = np.tile(np.linalg.solve(basis_map, self.constant), data.n_strata)
        # theta_user = (block_map kron basis_map) theta + constant * (mean / sd)' beta
        theta_back = np.kron(block_map, basis_map)
        back = block_diag(theta_back, np.zeros((len(kept), p)), scale_back)
        slopes = columns.turn / columns.sd[kept, None]
        back[len(theta_back) + np.flatnonzero(kept), n_theta : n_theta + p] = slopes
        for block in range(data.n_strata):
            target = np.s_[block * d : (block + 1) * d, n_theta : n_theta + p]
            back[target] = np.outer(self.constant, columns.mean[kept] @ slopes)
        self.back = back

    def line_parts(self) -> tuple[list[Rows], int]:
        """Return the likelihood's parts with their points, and the number of baseline parameters.

        Classes with plain cutpoints are the intervals between them; the
        parameters are those of the fit where no class is empty.
        """
        return self.coordinates.line_rows(self.data), len(self._level)

    @property
    def coefficient_rows(self) -> Array:
        """The rows that give the coefficients of the kept, scaled columns from all parameters."""
        rows = np.zeros((len(self.columns.turn), len(self.start)))
        rows[:, self._shift] = self.columns.turn
        return rows

    @property
    def _shift(self) -> slice:
        """Where the parameters of the linear shift are."""
        return slice(len(self._level), len(self._level) + len(self.columns.turn))

    # -- profiles ---------------------------------------------------------------------------------

    def rest_of(self, column: int) -> Array:
        """Return orthonormal rows: what is left of all parameters with one (kept) coefficient held fixed."""
        shift, place = self._shift, int((~self.aliased[:column]).sum())
        row = self.columns.turn[place]
        if np.count_nonzero(row) == 1:
            return np.delete(np.eye(len(self.start)), shift.start + place, axis=0)
        inner = null_space(row[None]).T
        after = len(self.start) - shift.stop
        return np.asarray(block_diag(np.eye(shift.start), inner, np.eye(after)))

    def with_fixed(self, column: int, value: float) -> Likelihood | PiecewiseLikelihood:
        """Return the likelihood of ``rest_of(column)`` with that coefficient held at ``value``."""
        row, shift = self.columns.turn[int((~self.aliased[:column]).sum())], self._shift
        known = row / (row @ row) * (value * self.columns.sd[column])
        held = Held(self.rest_of(column)[shift.start : shift.stop - 1, shift], known)
        return self._likelihood(held)


def _coordinates(data: StructuredData) -> Coordinates:
    """Find the moments of x and its aliased columns; often the correlations alone show there are none."""
    cells = None
    if data.codes is not None and data.varying is None and data.scale is None:
        cells = cells_of(data.codes, data.n_classes, data.strata, data.n_strata)
    basis_map = _basis_scaling(data)
    if data.strata is None and data.varying is None and data.scale is None:
        mean, sd, correlations = moments(data.x, data.weights)
        if are_independent(correlations):
            none, all_own = np.zeros(len(mean), dtype=bool), np.ones(len(mean))
            columns = ScaledColumns(mean, sd, none, correlations, all_own)
            return Coordinates(columns, cells, basis_map, None, None)
    aliased, aliased_varying, aliased_scale = _aliased(data)
    columns = ScaledColumns.learn(data.x, data.weights, aliased, centre=data.scale is None)
    varying = scale = None
    if data.varying is not None:
        varying = ScaledColumns.learn(data.varying, data.weights, aliased_varying, centre=True, turn=False)
    if data.scale is not None:
        scale = ScaledColumns.learn(data.scale, data.weights, aliased_scale, centre=False, turn=False)
    return Coordinates(columns, cells, basis_map, varying, scale)


def _aliased_of(columns: ScaledColumns | None) -> Mask:
    return np.zeros(0, dtype=bool) if columns is None else columns.aliased


def _aliased(data: StructuredData) -> tuple[Mask, Mask, Mask]:
    """Mark the columns of the linear shift, the varying and the scale term that are not identified.

    A varying effect contains the constant one, and a baseline per stratum
    every function of the strata; so the linear shift comes last.
    """
    rows: NDArray[np.int64] | slice = slice(None)
    if data.codes is not None and data.strata is not None:
        rows = informative_rows(data.codes, data.strata, data.n_classes, data.n_strata)
    strata = None if data.strata is None else data.strata[rows]
    none = np.zeros((len(data.x), 0))
    split = 0 if data.varying is None else data.varying.shape[1]
    columns = data.x if data.varying is None else np.hstack([data.varying, data.x])
    mean, sd, scaled = standardize(columns, data.weights, centre=True)
    together = aliased_columns(centre_within(scaled, strata, rows), rounding_of(mean, sd))
    fixed = len(data.basis.monotone_differences) == 0
    mean, sd, scale = standardize(none if data.scale is None else data.scale, data.weights, centre=not fixed)
    stretch = aliased_columns(scale if fixed else centre_within(scale, strata, rows), rounding_of(mean, sd))
    return together[split:], together[:split], stretch


def _constant_vector(basis: Basis) -> Array:
    """Return the coefficients of the constant function 1 (the null space of the increments)."""
    increments = basis.monotone_differences
    if len(increments) == 0:
        return np.ones(basis.n_coef)
    _, _, right = np.linalg.svd(increments)
    vector = right[-1]
    return np.asarray(vector / vector[np.abs(vector).argmax()])


def _basis_scaling(data: StructuredData) -> Array:
    """Return the map from scaled to plain baseline coefficients: (theta0, theta1) of a line is centred."""
    basis = data.basis
    if data.observations is None or basis.n_coef != 2 or len(basis.monotone_differences) != 1:
        return np.eye(basis.n_coef)
    mean, sd = line_scale(data.observations, basis, data.weights)
    return np.array([[1.0, -mean / sd], [0.0, 1 / sd]])


def line_scale(observations: Observations, basis: Basis, weights: Array | None) -> tuple[float, float]:
    """Return mean and standard deviation of what the second of two coefficients multiplies."""
    values, weights = typical_values(observations, basis, weights)
    mean, sd, _ = standardize(basis.evaluate(values)[:, 1:], weights, centre=True)
    return float(mean[0]), float(sd[0])


def _back(columns: ScaledColumns) -> Array:
    """Return the map from coefficients of the columns of the fit to those of plain columns, shape (p, k)."""
    kept = ~columns.aliased
    back = np.zeros((len(kept), len(columns.turn)))
    back[kept] = columns.turn / columns.sd[kept, None]
    return back


def _modulation(data: StructuredData, varying: ScaledColumns | None) -> tuple[Array, list[Array]]:
    """Return the back map of the columns that multiply the basis, and the points of monotonicity."""
    strata = np.eye(data.n_strata)
    if varying is None or data.varying is None:
        return strata, list(strata)
    slopes = _back(varying)
    back = block_diag(strata, slopes)
    back[: data.n_strata, data.n_strata :] = -varying.mean @ slopes
    corners = _vertices(varying.of(data.varying))
    return back, [np.concatenate([d, c]) for d in strata for c in corners]


def _vertices(scaled: Array) -> list[Array]:
    """Return points whose convex hull holds the observed varying columns."""
    if scaled.shape[1] == 1:
        return [np.array([scaled.min()]), np.array([scaled.max()])]
    distinct = np.unique(scaled, axis=0)
    if len(distinct) <= _MAX_VERTICES:
        return list(distinct)
    corners = list(product(*zip(scaled.min(axis=0), scaled.max(axis=0), strict=True)))
    if len(corners) > _MAX_VERTICES:
        raise InvalidInputError(
            f"Varying takes at most 8 numeric columns at a time; got {scaled.shape[1]}: "
            "move some of them to LS or stratify."
        )
    return [np.array(c) for c in corners]


# -- where Newton's method starts on the line --------------------------------------------------------
# Starts depend on the data as a weighted sample only (not on the order of rows, nor on whether a row stands
# twice or has weight two), so fits do not either.


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
    if weights is None:
        place = np.ceil(probabilities * len(values)).astype(np.int64) - 1
        return np.asarray(np.sort(values)[np.maximum(place, 0)])
    order = np.argsort(values, kind="stable")
    share = np.cumsum(weights[order])
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
