"""The likelihood of rows that come in pieces: passes over them.

Value, gradient and Hessian are sums over rows, so a Newton step is one pass that brings back one small matrix
of each piece. A fit in memory is the case of one piece, and needs nothing of this.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from deeptram.fitting.exact.columns import StructuredData
from deeptram.fitting.exact.separation import TOLERANCE, FoundRows, compressed, unit_rows
from deeptram.optimise.newton import Found, SmoothObjective

if TYPE_CHECKING:
    from deeptram.fitting.exact.problem import Coordinates, Held

Array = NDArray[np.float64]
T = TypeVar("T")

_WORST = 200  # rows that one pass adds to a linear program
_FORESEEN = 1e-19  # a row of the pilot: a step of length 1e-9 times the root of its rows, by its square


class Pieces(Protocol):
    """All rows of a fit, of which only sums are ever needed."""

    @property
    def n_rows(self) -> int:
        """Number of rows (of positive weight)."""

    @property
    def weight(self) -> float:
        """Their total weight."""

    def reduce(self, task: Callable[[StructuredData], T], merge: Callable[[T, T], T]) -> T:
        """Return what ``merge`` makes of ``task`` of every piece."""


class PiecewiseLikelihood:
    """The likelihood of rows in pieces: a sum, of which each evaluation is one pass over the rows.

    Parameters
    ----------
    pieces : Pieces
        All rows.
    coordinates : Coordinates
        The scaled parameters.
    pilot : StructuredData
        Some of the rows, with weights that make them stand for all: to ask what needs no pass.
    held : Held, optional
        A coefficient held fixed.
    """

    def __init__(
        self, pieces: Pieces, coordinates: Coordinates, pilot: StructuredData, held: Held | None = None
    ) -> None:
        self.pieces, self.coordinates, self.held = pieces, coordinates, held
        self.pilot = coordinates.likelihood(pilot, held)
        self.n_parameters, self.is_convex = self.pilot.n_parameters, self.pilot.is_convex
        # third derivatives of m rows are known to 1 / sqrt(m): after such a step the Hessian is right to 1e-9
        self.foreseen = _FORESEEN * len(pilot.x)

    def likeness(self, point: Array, found: Found) -> Likeness:
        """Return the pilot's likelihood, with the value and the derivatives of all rows at a point."""
        return Likeness(self.pilot, point, found)

    def _sum(self, method: str, merge: Callable[[Any, Any], Any], *arguments: Tensor) -> Any:
        task = partial(_ask, self.coordinates, self.held, method, [one.numpy() for one in arguments])
        return self.pieces.reduce(task, merge)

    def value(self, parameters: Tensor) -> float:
        """Return the negative log-likelihood."""
        if self.pilot.value(parameters) == float("inf"):
            return float("inf")
        return float(self._sum("value", operator.add, parameters))

    def evaluate(self, parameters: Tensor) -> tuple[float, Tensor, Tensor]:
        """Return the negative log-likelihood with gradient and Hessian."""
        found: tuple[float, Tensor, Tensor] = self._sum("evaluate", _add, parameters)
        return found

    def longest_step(self, parameters: Tensor, step: Tensor) -> float:
        """Return the length up to which no density of the pilot's rows vanishes."""
        return self.pilot.longest_step(parameters, step)

    def margin(self, parameters: Tensor) -> float:
        """Return how far inside its class every row is at least."""
        if self.pilot.margin(parameters) <= 0:
            return -float("inf")
        return float(self._sum("margin", min, parameters))

    def recession_rows(
        self, parameters: Array, coordinates: Array, direction: Array, unit: Array
    ) -> FoundRows:
        """Return the rows that forbid a direction to infinity, and those it leaves alone.

        Parameters
        ----------
        parameters : ndarray, shape (k,)
            Only its scale coefficients matter.
        coordinates, unit : ndarray, shapes (k, k) and (k,)
            Of the ``RecessionCone`` that asks.
        direction : ndarray, shape (k,)
            In its coordinates.
        """
        task = partial(_recession_rows, self.coordinates, parameters, coordinates, direction, unit)
        found: FoundRows = self.pieces.reduce(task, partial(_merge_rows, direction))
        return found


class Likeness:
    r"""A function like the likelihood of all rows near a point :math:`\psi_0`, without a pass over them.

    :math:`\ell_0(\psi) + (g - g_0)'d + d'(H - H_0)d/2` plus a constant, with
    :math:`d = \psi - \psi_0`; :math:`\ell_0, g_0, H_0` belong to the pilot and :math:`g, H` to all rows, at
    :math:`\psi_0`. Its third derivatives are those of the pilot, so the error of a step to its
    minimum is that of a Newton step times the sampling error of these.

    Parameters
    ----------
    pilot : SmoothObjective
        The likelihood of some rows, which stand for all.
    point : ndarray, shape (k,)
    found : (float, ndarray, ndarray)
        Value, gradient and Hessian of all rows there.
    """

    def __init__(self, pilot: SmoothObjective, point: Array, found: Found) -> None:
        self.pilot, self.n_parameters = pilot, len(point)
        self.point = torch.from_numpy(point)
        own = pilot.evaluate(self.point)
        self.constant = found[0] - own[0]
        self.slope, self.curvature = (
            torch.from_numpy(all_rows) - part for all_rows, part in zip(found[1:], own[1:], strict=True)
        )

    def value(self, parameters: Tensor) -> float:
        """Return the value."""
        away = parameters - self.point
        rest = self.constant + float(away @ self.slope + away @ self.curvature @ away / 2)
        return self.pilot.value(parameters) + rest

    def evaluate(self, parameters: Tensor) -> tuple[float, Tensor, Tensor]:
        """Return value, gradient and Hessian."""
        value, gradient, hessian = self.pilot.evaluate(parameters)
        away = parameters - self.point
        bent = self.curvature @ away
        rest = self.constant + float(away @ self.slope + away @ bent / 2)
        return value + rest, gradient + self.slope + bent, hessian + self.curvature

    def longest_step(self, parameters: Tensor, step: Tensor) -> float:
        """Return that of the pilot."""
        return self.pilot.longest_step(parameters, step)


def _ask(
    coordinates: Coordinates, held: Held | None, method: str, arguments: list[Array], data: StructuredData
) -> Any:
    """Call a method of the likelihood of one piece."""
    likelihood = coordinates.likelihood(data, held)
    return getattr(likelihood, method)(*(torch.from_numpy(one) for one in arguments))


def _add(first: tuple[Any, ...], second: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(one + other for one, other in zip(first, second, strict=True))


def _recession_rows(
    scaled: Coordinates,
    parameters: Array,
    coordinates: Array,
    direction: Array,
    unit: Array,
    data: StructuredData,
) -> FoundRows:
    rows = scaled.likelihood(data).recession_rows(torch.from_numpy(parameters))
    growing, exact = (unit_rows(part.numpy() @ coordinates / unit) for part in rows[:2])
    none = growing[:0]
    size = TOLERANCE * max(float(np.abs(direction).max(initial=0.0)), 1e-300)
    found = FoundRows(
        falling=growing[growing @ direction < -size],
        moved=exact[np.abs(exact @ direction) > size],
        still=np.vstack([growing[np.abs(growing @ direction) <= size], exact]),
    )
    return _merge_rows(direction, found, FoundRows(none, none, none))


def _merge_rows(direction: Array, first: FoundRows, second: FoundRows) -> FoundRows:
    """Keep the rows that forbid most, and as many of the others as span them."""
    falling, moved, still = (np.vstack(pair) for pair in zip(first, second, strict=True))
    falling = falling[np.argsort(falling @ direction, kind="stable")[:_WORST]]
    moved = moved[np.argsort(-np.abs(moved @ direction), kind="stable")[:_WORST]]
    return FoundRows(falling, moved, compressed(still))
