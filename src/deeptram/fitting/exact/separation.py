"""Directions in which the likelihood increases for ever."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.linalg import null_space
from scipy.optimize import linprog

from deeptram.optimise.quadratic import solve_quadratic

Array = NDArray[np.float64]

TOLERANCE = 1e-7
_VIOLATION = 1e-8
_SPANNED = 1e-6
_WORKING_ROWS = 1000
_MAX_ROUNDS = 50
_FAR = 1e3
_NO_ERROR = 0.01
_SPARSE = 0.1
_MANY_ENTRIES = 500_000  # sorting them takes longer than solving with some rows twice

CERTAIN = 40.0  # the argument of F at which a probability is one, up to rounding


class FoundRows(NamedTuple):
    """Rows found by a pass over all rows: of R that fall, of E that move, and a basis of those left alone."""

    falling: Array
    moved: Array
    still: Array


class RecessionCone:
    r"""The directions along which no contribution to a log-concave likelihood falls.

    A log-concave likelihood has its maximum at infinity exactly when some
    d :math:`\ne 0` has :math:`R d \ge 0` for the rows R whose contribution
    grows with their argument, :math:`E d = 0` for exact observations and
    :math:`C d \ge 0` for the constraints, with :math:`R d \ne 0` somewhere
    (complete or quasi-complete separation; Konis 2007) or :math:`S d \ne 0` for
    the slopes S of exact observations (a perfect fit: the likelihood is
    unbounded). Such directions are found by linear programs, so the answer is
    not a matter of tolerance on the fit; large problems by adding violated
    rows to a small one.

    Parameters
    ----------
    increasing : ndarray, shape (r, k)
        R: upper ends as they are, lower ends with their sign turned.
    fixed : ndarray, shape (e, k)
        E: rows of exact observations.
    constraints : ndarray, shape (m, k)
        C.
    slopes : ndarray, optional, shape (e, k)
        S: rows of the slope of h at exact observations (non-negative where C d >= 0).
    coordinates : ndarray, optional, shape (k, k)
        T, where all rows are given for c with d = T c: coordinates in which they
        have many zeros. Directions come back as d.
    search : callable, optional
        Where R and E are some of the rows only: finds others that forbid a direction, by passes over all.

    Examples
    --------
    >>> rows = np.array([[1.0, -2.0], [1.0, -1.0], [-1.0, 3.0]])  # (theta, -x), sign by class
    >>> none = np.zeros((0, 2))
    >>> RecessionCone(-rows, none, none).growth_direction() is None
    False
    """

    def __init__(
        self,
        increasing: Array,
        fixed: Array,
        constraints: Array,
        slopes: Array | None = None,
        coordinates: Array | None = None,
        search: Callable[[Array, Array], FoundRows] | None = None,
    ) -> None:
        self._search = search
        self.n_parameters = increasing.shape[1]
        self._coordinates = np.eye(self.n_parameters) if coordinates is None else coordinates
        self._slopes = np.zeros((0, self.n_parameters)) if slopes is None else slopes
        largest = np.abs(increasing).max(axis=0, initial=0.0)
        largest = np.maximum(largest, np.abs(fixed).max(axis=0, initial=0.0))
        self._unit = np.where(largest > 0, largest, 1.0)
        self._rows = unit_rows(increasing / self._unit)
        self._gains = np.vstack([self._rows, unit_rows(self._slopes / self._unit)])
        self._fixed = fixed
        equal = compressed(fixed / self._unit)
        self._equal = equal / max(float(np.abs(equal).max(initial=0.0)), 1e-300)
        self._constraints = constraints / self._unit
        self._growing = np.zeros(self.n_parameters)

    def growth_direction(self) -> Array | None:
        """Return the direction of largest total growth (in a box), or ``None`` if nothing grows."""
        if len(self._gains) == 0:
            return None
        answer = self._extreme(self._gains.sum(axis=0))
        if answer is None or float((self._gains @ answer).max()) <= TOLERANCE:
            return None
        self._growing = answer
        return self._outside(answer)

    def raises_densities(self) -> bool:
        """Return whether the direction of largest growth makes some outcome's density grow for ever."""
        return bool((self._slopes @ (self._growing / self._unit)).max(initial=0.0) > TOLERANCE)

    def fits_exactly(self, parameters: Array) -> bool:
        """Return whether all outcomes are exact and, at a point far along the way, fitted without error."""
        inside = np.linalg.solve(self._coordinates, parameters)
        return not len(self._rows) and bool(np.abs(self._fixed @ inside).max() < _NO_ERROR)

    def certain_direction(self) -> Array:
        r"""Return the direction in which the densities that grow for ever grow fastest, the slowest of them.

        The shortest d of the cone with :math:`S d \ge 1` where S d can grow at all: one point, whatever
        way led to the cone, and the same for a row that stands twice and one of weight two.
        """
        slopes = unit_rows(self._slopes / self._unit)
        growing = slopes[slopes @ self._all_growing(slopes) > TOLERANCE]
        basis = null_space(self._equal) if len(self._equal) else np.eye(self.n_parameters)
        limits = np.vstack([growing, self._constraints]) @ basis
        bounds = np.concatenate([np.ones(len(growing)), np.zeros(len(self._constraints))])
        shortest, _ = solve_quadratic(np.eye(basis.shape[1]), np.zeros(basis.shape[1]), limits, bounds)
        return self._outside(basis @ shortest)

    def _outside(self, direction: Array) -> Array:
        """Return a direction in the parameters' own coordinates."""
        return np.asarray(self._coordinates @ (direction / self._unit))

    def infinite_part(self, coefficients: Array, preferred: Array) -> tuple[Array, Array]:
        r"""Return the signs with which coefficients run to infinity (0: they do not), and a way there.

        A direction in the relative interior of the cone makes grow all that can.
        The cone spans what leaves the other rows alone; a coefficient runs to
        infinity unless it is constant there.

        Parameters
        ----------
        coefficients : ndarray, shape (c, k)
            The coefficients to look at, as linear functions of the parameters.
        preferred : ndarray, shape (c,)
            Decides where the cone leaves both signs open.

        Returns
        -------
        signs : ndarray, shape (c,)
            One per coefficient.
        displacement : ndarray, shape (k,)
            A step so long that what separates is all but certain, along which
            everything else stays where it is.
        """
        direction = self._all_growing(self._gains)
        wanted = np.where(preferred >= 0, 1.0, -1.0)
        rows = coefficients @ self._coordinates / self._unit
        rows = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-300)
        spanned = (
            np.linalg.norm(rows @ self._span(direction + self._all_growing(self._constraints)), axis=1)
            > _SPANNED
        )
        signs, total = np.zeros(len(rows)), direction.copy()
        whole = len(self._rows) and not len(self._equal) and bool((self._rows @ direction > TOLERANCE).all())
        for i in np.flatnonzero(spanned):
            signs[i] = wanted[i]
            if whole and not len(self._constraints):
                continue  # an open cone: either sign is possible
            if rows[i] @ direction * wanted[i] <= TOLERANCE:
                end = self._extreme(wanted[i] * rows[i])
                if end is None or rows[i] @ end * wanted[i] <= TOLERANCE:
                    signs[i] = -wanted[i]
                else:
                    total = total + end
        return signs, self._displacement(total)

    def reaches(self, row: Array) -> bool:
        """Return whether a linear function of the parameters grows in some direction of the cone."""
        row = row @ self._coordinates / self._unit
        end = self._extreme(row)
        return end is not None and float(row @ end) > TOLERANCE * float(np.abs(row).max())

    def _all_growing(self, rows: Array) -> Array:
        """Return a direction of the cone in which every one of the rows grows that grows in any."""
        direction = self._growing
        pending = rows @ direction <= TOLERANCE
        while pending.any():
            step = self._extreme(rows[pending].sum(axis=0))
            if step is None or float((rows[pending] @ step).max()) <= TOLERANCE:
                break
            direction = direction + step
            pending = rows @ direction <= TOLERANCE
        return direction

    def _span(self, direction: Array) -> Array:
        """Return an orthonormal basis of all that the rows left alone by the direction leave open."""
        size = max(float(np.abs(direction).max(initial=0.0)), 1e-300)
        still = [rows[rows @ direction <= TOLERANCE * size] for rows in (self._rows, self._constraints)]
        fixed = compressed(np.vstack([*still, self._equal, self._still_elsewhere(direction)]))
        return np.asarray(null_space(fixed, rcond=1e-9)) if len(fixed) else np.eye(self.n_parameters)

    def _displacement(self, direction: Array) -> Array:
        """Return a long step along a direction, with what it leaves alone left alone to full precision."""
        growth = self._rows @ direction
        grows = growth > TOLERANCE * max(float(np.abs(direction).max(initial=0.0)), 1e-300)
        if not grows.any():
            return np.zeros(self.n_parameters)
        still = compressed(np.vstack([self._rows[~grows], self._equal, self._still_elsewhere(direction)]))
        if len(still):
            _, sizes, right = np.linalg.svd(still)
            fixed = right[: int((sizes > 1e-9 * max(float(sizes[0]), 1e-300)).sum())]
            direction = direction - fixed.T @ (fixed @ direction)
        typical = float(np.median((self._rows @ direction)[grows]))
        return self._outside(_FAR * direction / typical)

    def _still_elsewhere(self, direction: Array) -> Array:
        """Return rows beyond the known ones that a direction leaves alone."""
        none = np.zeros((0, self.n_parameters))
        return none if self._search is None else self._search(direction, self._unit).still

    def _extreme(self, objective: Array) -> Array | None:
        """Maximise a linear function over the cone in a box; what other rows forbid is added to the known."""
        for _ in range(_MAX_ROUNDS):
            answer = self._extreme_of_known(objective)
            if answer is None or self._search is None:
                return answer
            found = self._search(answer, self._unit)
            if not len(found.falling) and not len(found.moved):
                return answer
            self._rows = np.vstack([self._rows, found.falling])
            self._equal = np.vstack([self._equal, found.moved])
        return None

    @cached_property
    def _is_sparse(self) -> bool:
        return bool(np.count_nonzero(self._rows) < _SPARSE * self._rows.size)

    def _extreme_of_known(self, objective: Array) -> Array | None:
        """Maximise a linear function over the cone in a box, by the rows that turn out to matter."""
        rows = self._rows
        every = 1 if self._is_sparse else max(len(rows) // _WORKING_ROWS, 1)
        chosen = np.arange(0, len(rows), every)
        objective = objective / max(float(np.abs(objective).max()), 1e-300)
        for _ in range(_MAX_ROUNDS):
            inequalities: Any = np.vstack([rows[chosen], self._constraints])
            if self._is_sparse:
                inequalities = sparse.csr_array(inequalities)
            answer = linprog(
                -objective,
                A_ub=-inequalities if inequalities.shape[0] else None,
                b_ub=np.zeros(inequalities.shape[0]) if inequalities.shape[0] else None,
                A_eq=self._equal if len(self._equal) else None,
                b_eq=np.zeros(len(self._equal)) if len(self._equal) else None,
                bounds=(-1.0, 1.0),
                method="highs",
            )
            if answer.status != 0:
                return None
            growth = rows @ answer.x
            new = np.setdiff1d(np.flatnonzero(growth < -TOLERANCE), chosen)
            if not len(new):
                return self._checked(answer.x)
            chosen = np.concatenate([chosen, new[np.argsort(growth[new])[:_WORKING_ROWS]]])
        return None

    def _checked(self, direction: Array) -> Array | None:
        """Return the direction if it truly lies in the cone, its rounding errors set to zero."""
        size = float(np.abs(direction).max(initial=0.0))
        violation = max(
            -float((self._rows @ direction).min(initial=0.0)),
            float(np.abs(self._equal @ direction).max(initial=0.0)),
        )
        if violation > _VIOLATION * max(size, 1e-2):
            return None
        return np.asarray(np.where(np.abs(direction) > TOLERANCE, direction, 0.0))


def compressed(rows: Array) -> Array:
    """Return no more rows than columns that span the same."""
    return rows if len(rows) <= rows.shape[1] else np.asarray(np.linalg.qr(rows, mode="r"))


def unit_rows(rows: Array) -> Array:
    """Return the rows, each divided by its largest entry; of few rows the distinct ones only.

    Examples
    --------
    >>> unit_rows(np.array([[2.0, 1.0], [4.0, 2.0]]))
    array([[1. , 0.5]])
    """
    size = np.abs(rows).max(axis=1, keepdims=True, initial=0.0)
    scaled = rows / np.where(size > 0, size, 1.0)
    return scaled if rows.size > _MANY_ENTRIES else np.unique(np.round(scaled, 12), axis=0)
