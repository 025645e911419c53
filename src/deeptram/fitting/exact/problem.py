"""From data and basis to a convex problem in well-scaled parameters, and back.

The solver works with centred and scaled columns; every public number is mapped
back by one matrix, so coefficients, standard errors and profiles all pass
through the same door.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from itertools import product

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.linalg import block_diag, null_space
from torch import Tensor

from deeptram.bases import Basis
from deeptram.errors import InvalidInputError
from deeptram.fitting.exact.columns import (
    aliased_columns,
    are_independent,
    centre_within,
    informative_rows,
    moments,
    orthogonal,
    own_share,
    rounding_of,
    standardize,
)
from deeptram.fitting.exact.separation import RecessionCone
from deeptram.fitting.exact.starts import start_theta, typical_values
from deeptram.fitting.exact.structured_data import LikelihoodParts, StructuredData
from deeptram.likelihood.binary import BinaryLikelihood
from deeptram.likelihood.cutpoint_cells import Cells, cells_of
from deeptram.likelihood.cutpoints import CutpointLikelihood
from deeptram.likelihood.line import LineLikelihood, Rows

Array = NDArray[np.float64]

_MAX_VERTICES = 256
_OBLIQUE = 1e-4
_MOSTLY = 0.5  # a column with more zeros than this is sparse
_ROUNDING = 1e-12  # of entries of about one


@dataclass
class Problem:
    """A scaled problem with the map back to the user's parameters.

    The user's parameters are ``(theta blocks, beta, gamma)``: ``theta`` has
    ``n_blocks * d`` entries, block after block.
    """

    data: StructuredData
    aliased: NDArray[np.bool_] = field(init=False)
    objective: CutpointLikelihood | BinaryLikelihood | LineLikelihood = field(init=False)
    start: Array = field(init=False)
    constraints: Array | None = field(init=False)
    back: Array = field(init=False)
    cells: Cells | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        """Standardise, detect aliased columns, and set up the likelihood."""
        data = self.data
        self.unit = float(len(data.x) if data.weights is None else data.weights.sum())
        self._w = None if data.weights is None else torch.from_numpy(data.weights)
        self._centre_and_scale()
        self.constant = _constant_vector(data.basis)
        if data.codes is not None and data.varying is None and data.scale is None:
            self._set_up_cutpoints(data.codes)
        else:
            self._set_up_line()

    def _centre_and_scale(self) -> None:
        """Find the moments of x and its aliased columns; often the correlations alone show there are none."""
        data = self.data
        p = data.x.shape[1]
        plain = data.strata is None and data.varying is None and data.scale is None
        self.x_mean, self.x_sd, self.correlations = moments(data.x, data.weights)
        none = np.zeros(0, dtype=bool)
        self.aliased, self.aliased_varying, self.aliased_scale = np.zeros(p, dtype=bool), none, none
        self.turn, self.own = np.eye(p), np.ones(p)
        if plain and are_independent(self.correlations):
            return
        self.x_mean, self.x_sd, scaled = standardize(data.x, data.weights, centre=data.scale is None)
        self.aliased, self.aliased_varying, self.aliased_scale = _aliased(data)
        kept = np.flatnonzero(~self.aliased)
        w = np.ones(len(scaled)) if data.weights is None else data.weights
        x = scaled if len(kept) == p else np.ascontiguousarray(scaled[:, kept])
        self.turn = np.eye(len(kept))
        if len(kept) > 1:
            self.own[kept] = own_share(x)
        if bool(self.own.min(initial=1.0) < _OBLIQUE):
            # coordinates in which nothing cancels: coefficients of scaled columns are turn @ parameters
            centre = w if data.scale is None else None
            x, self.turn = orthogonal(data.x[:, kept], x, self.x_sd[kept], centre)
        self.correlations = x.T @ (x * w[:, None]) / self.unit
        self._x = torch.from_numpy(x)

    @cached_property
    def _x(self) -> Tensor:
        """The identified columns, centred and scaled."""
        return torch.from_numpy((self.data.x - self.x_mean) / self.x_sd)

    # -- discrete outcomes with plain cutpoints -------------------------------------------------

    def _set_up_cutpoints(self, codes: NDArray[np.int64]) -> None:
        data = self.data
        cells = cells_of(codes, data.n_classes, data.strata, data.n_strata)
        self.cells = cells
        cell = codes if data.strata is None else data.strata * data.n_classes + codes
        self._cell = cell
        self.objective = self._discrete_likelihood()
        mass = np.bincount(cell, weights=data.weights, minlength=data.n_strata * data.n_classes)
        theta = np.zeros(cells.n_columns)
        for s, row in enumerate(mass.reshape(data.n_strata, data.n_classes)):
            shares = np.cumsum(row)[:-1] / row.sum() if row.sum() else np.zeros(0)
            for k, column in enumerate(cells.columns[s]):
                if column >= 0:
                    theta[column] = data.latent.icdf(shares[k])
        kept = ~self.aliased
        self.start = np.concatenate([theta, np.zeros(int(kept.sum()))])
        self.constraints = None
        self._level = np.ones(cells.n_columns)
        d = data.n_strata * (data.n_classes - 1)
        back = np.zeros((d + len(kept), len(self.start)))
        columns = cells.columns.ravel()
        finite = columns >= 0
        back[np.flatnonzero(finite), columns[finite]] = 1.0
        slopes = self.turn / self.x_sd[kept, None]
        back[d + np.flatnonzero(kept), cells.n_columns :] = slopes
        back[np.flatnonzero(finite), cells.n_columns :] = self.x_mean[kept] @ slopes
        self.back = back

    def _discrete_likelihood(
        self, x: Tensor | None = None, offset: Tensor | None = None
    ) -> CutpointLikelihood | BinaryLikelihood:
        """Return the likelihood of (other) scaled columns; two classes in one stratum have a quicker one."""
        cells, data = self.cells, self.data
        if cells is None:
            raise ValueError("a likelihood with cutpoints needs classes")
        if not (data.latent.is_symmetric and len(cells.counts) == 1 and cells.n_columns == 1):
            return CutpointLikelihood(
                self._cell, cells, self._x if x is None else x, self._w, data.latent, offset
            )
        lower = self._cell == np.flatnonzero(cells.upper == 0)[0]
        if x is not None or "_x" in vars(self):
            scaled = self.scaled_x if x is None else x.numpy()
            return BinaryLikelihood(lower, scaled, self._w, data.latent, shift_offset=offset)
        return BinaryLikelihood(lower, data.x, self._w, data.latent, centre=self.x_mean, spread=self.x_sd)

    # -- everything else ---------------------------------------------------------------------------

    def _set_up_line(self) -> None:
        data = self.data
        blocks, block_map, vertices = self._modulator()
        basis_map = _basis_scaling(data)
        kept, kept_scale = ~self.aliased, ~self.aliased_scale
        q = int(kept_scale.sum())
        scale_sd = np.ones(q)
        scale = None
        if data.scale is not None:
            _, scale_sd, scaled = standardize(data.scale[:, kept_scale], data.weights, centre=False)
            scale = torch.from_numpy(scaled)
        self._parts = LikelihoodParts(data, blocks, basis_map, scale)
        parts = self._parts.of(self._x)
        d = data.basis.n_coef
        n_theta, p = block_map.shape[1] * d, self._x.shape[1]
        self._sizes = n_theta, q
        self.objective = LineLikelihood(parts, data.latent, n_theta, p, q, len(data.x))
        increments = data.basis.monotone_differences @ basis_map
        rows = [np.kron(vertex, increments) for vertex in vertices] if len(increments) else []
        stacked = np.vstack(rows) if rows else np.zeros((0, n_theta))
        self.constraints = np.hstack([stacked, np.zeros((len(stacked), p + q))])
        self.start = np.concatenate([self._line_start(basis_map, n_theta), np.zeros(p + q)])
        self._level = np.zeros(n_theta)
        self._level[: data.n_strata * d] = np.tile(np.linalg.solve(basis_map, self.constant), data.n_strata)
        # theta_user = (block_map kron basis_map) theta + constant * (mean / sd)' beta
        theta_back, scale_back = np.kron(block_map, basis_map), np.zeros((len(kept_scale), q))
        scale_back[kept_scale] = np.diag(1 / scale_sd)
        back = block_diag(theta_back, np.zeros((len(kept), p)), scale_back)
        slopes = self.turn / self.x_sd[kept, None]
        back[len(theta_back) + np.flatnonzero(kept), n_theta : n_theta + p] = slopes
        for block in range(data.n_strata):
            target = np.s_[block * d : (block + 1) * d, n_theta : n_theta + p]
            back[target] = np.outer(self.constant, self.x_mean[kept] @ slopes)
        self.back = back

    def _modulator(self) -> tuple[Tensor | None, Array, list[Array]]:
        """Return the columns that multiply the basis, their back map, and the points of monotonicity."""
        data = self.data
        if data.varying is None and data.n_strata == 1:
            return None, np.eye(1), [np.ones(1)]
        n = len(data.x)
        dummies = np.ones((n, 1))
        if data.strata is not None:
            dummies = np.zeros((n, data.n_strata))
            dummies[np.arange(n), data.strata] = 1.0
        if data.varying is None:
            return torch.from_numpy(dummies), np.eye(data.n_strata), list(np.eye(data.n_strata))
        kept = np.flatnonzero(~self.aliased_varying)
        mean, sd, scaled = standardize(data.varying[:, kept], data.weights, centre=True)
        back = np.eye(data.n_blocks, data.n_strata + len(kept))
        back[data.n_strata :] = 0.0
        back[: data.n_strata, data.n_strata :] = -mean / sd
        back[data.n_strata + kept, data.n_strata + np.arange(len(kept))] = 1 / sd
        corners = _vertices(scaled)
        vertices = [np.concatenate([d, c]) for d in np.eye(data.n_strata) for c in corners]
        return torch.from_numpy(np.hstack([dummies, scaled])), back, vertices

    def _line_start(self, basis_map: Array, n_theta: int) -> Array:
        """Return the baseline of the model without covariates for every stratum, and no varying effects."""
        data = self.data
        first = np.linalg.solve(basis_map, start_theta(data, self.constant))
        blocks = np.zeros((n_theta // data.basis.n_coef, data.basis.n_coef))
        blocks[: data.n_strata] = first
        return blocks.ravel()

    @property
    def scaled_x(self) -> Array:
        """The columns as the fit sees them: identified ones, centred and scaled (or made orthogonal)."""
        return self._x.numpy()

    def line_parts(self) -> tuple[list[Rows], int]:
        """Return the likelihood's parts with their points, and the number of baseline parameters.

        Classes with plain cutpoints are the intervals between them; the
        parameters are those of the fit where no class is empty.
        """
        if self.cells is None:
            return self._parts.of(self._x), self._sizes[0]
        blocks = self._modulator()[0]
        parts = LikelihoodParts(self.data, blocks, np.eye(self.data.basis.n_coef), None)
        return parts.of(self._x), self.cells.n_columns

    @property
    def coefficient_rows(self) -> Array:
        """The rows that give the coefficients of the kept, scaled columns from all parameters."""
        p = len(self.turn)
        rows = np.zeros((p, len(self.start)))
        rows[:, self._shift] = self.turn
        return rows

    @property
    def _shift(self) -> slice:
        """Where the parameters of the linear shift are."""
        end = len(self.start) - int((~self.aliased_scale).sum())
        return slice(end - len(self.turn), end)

    # -- profiles ---------------------------------------------------------------------------------

    def rest_of(self, column: int) -> Array:
        """Return orthonormal rows: what is left of all parameters with one (kept) coefficient held fixed."""
        shift, place = self._shift, int((~self.aliased[:column]).sum())
        row = self.turn[place]
        if np.count_nonzero(row) == 1:
            return np.delete(np.eye(len(self.start)), shift.start + place, axis=0)
        inner = null_space(row[None]).T
        after = len(self.start) - shift.stop
        return np.asarray(block_diag(np.eye(shift.start), inner, np.eye(after)))

    def with_fixed(self, column: int, value: float) -> CutpointLikelihood | BinaryLikelihood | LineLikelihood:
        """Return the likelihood of ``rest_of(column)`` with that coefficient held at ``value``."""
        row = self.turn[int((~self.aliased[:column]).sum())]
        held = torch.from_numpy(row / (row @ row) * (value * self.x_sd[column]))
        shift = self._shift
        inner = self.rest_of(column)[shift.start : shift.stop - 1, shift]
        offset, rest = self._x @ held, self._x @ torch.from_numpy(np.ascontiguousarray(inner.T))
        if self.cells is not None:
            return self._discrete_likelihood(rest, offset)
        parts = self._parts.of(rest, offset)
        n_theta, q = self._sizes
        return LineLikelihood(parts, self.data.latent, n_theta, rest.shape[1], q, len(self.data.x))

    # -- maxima at infinity -----------------------------------------------------------------------

    def recession_cone(self, parameters: Array) -> RecessionCone:
        """Return the directions in which nothing falls, to look for maxima at infinity.

        Columns that are mostly zero (levels of a factor) stand there without their
        means: the linear programs are sparse then, and a hundred times quicker.
        """
        found = [rows.numpy() for rows in self.objective.recession_rows(torch.from_numpy(parameters))]
        level, shift = self._level, self._shift
        coordinates = np.eye(len(self.start))
        if len(self.turn) == (~self.aliased).sum() and np.array_equal(self.turn, np.eye(len(self.turn))):
            zero = (self.data.x == 0).mean(axis=0) > _MOSTLY
            means = np.where(zero, self.x_mean / self.x_sd, 0.0)[~self.aliased]
            coordinates[: len(level), shift] = -np.outer(level, means)
            for rows in found:
                rows[:, shift] -= np.outer(rows[:, : len(level)] @ level, means)
                rows[np.abs(rows) < _ROUNDING] = 0.0
        growing, exact, slopes = found
        constraints = np.zeros((0, len(self.start))) if self.constraints is None else self.constraints
        return RecessionCone(growing, exact, constraints, slopes, coordinates)

    def undetermined_strata(self) -> tuple[int, ...]:
        """Return the strata whose outcomes one value explains; their baseline has no finite optimum."""
        data = self.data
        if data.strata is None or self.cells is not None:
            return ()
        if data.observations is None:
            lower = upper = np.asarray(data.codes, dtype=np.float64)
        else:
            lower, upper = data.observations.lower, data.observations.upper
        highest, lowest = np.full(data.n_strata, -np.inf), np.full(data.n_strata, np.inf)
        np.maximum.at(highest, data.strata, lower)
        np.minimum.at(lowest, data.strata, upper)
        exact = np.zeros(data.n_strata, dtype=bool)
        exact[data.strata[lower == upper]] = True
        alike = (highest < lowest) | (exact & (highest == lowest))
        return tuple(int(s) for s in np.flatnonzero(alike))


def _aliased(
    data: StructuredData,
) -> tuple[NDArray[np.bool_], NDArray[np.bool_], NDArray[np.bool_]]:
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
    values, weights = typical_values(data.observations, basis, data.weights)
    mean, sd, _ = standardize(basis.evaluate(values)[:, 1:], weights, centre=True)
    return np.array([[1.0, -mean[0] / sd[0]], [0.0, 1 / sd[0]]])


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
