r"""What was observed of a response, whatever its kind: :math:`Y \in (l, u]`.

An exact value is the interval that has shrunk to a point, :math:`l = u`; right,
left and interval censoring and counts are proper intervals. The likelihood
contribution is :math:`f(y)` for the former and :math:`F(u) - F(l)` for the
latter, divided by :math:`1 - F(e)` under left truncation at the entry time e.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import numpy.typing as npt

from deeptram._validation import first_rows
from deeptram.errors import InvalidInputError

Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]


@dataclasses.dataclass(frozen=True, eq=False)
class Observations:
    """Intervals on the scale on which h is evaluated; made by the ``encode_*`` functions and ``Surv``.

    Parameters
    ----------
    lower, upper : array, shape (n,)
        Y lies in (lower, upper]; ``lower == upper`` is an exact value. Minus
        and plus infinity stand for open ends, where F is 0 and 1.
    entry : array, shape (n,), optional
        Left truncation: the row was seen only because Y > entry; minus
        infinity for rows without.

    Examples
    --------
    >>> seen = Observations(np.array([1.0, 2.0]), np.array([1.0, np.inf]))
    >>> len(seen), seen.exact, seen.right_censored
    (2, array([ True, False]), array([False,  True]))
    """

    lower: Floats
    upper: Floats
    entry: Floats | None = None

    def __len__(self) -> int:
        return len(self.lower)

    @property
    def exact(self) -> Mask:
        """Rows whose value is known."""
        return np.equal(self.lower, self.upper)

    @property
    def right_censored(self) -> Mask:
        """Rows of which only Y > lower is known."""
        return np.isposinf(self.upper) & np.isfinite(self.lower)

    @property
    def left_censored(self) -> Mask:
        """Rows of which only Y <= upper is known."""
        return np.isneginf(self.lower) & np.isfinite(self.upper)

    @property
    def interval_censored(self) -> Mask:
        """Rows with two finite, different ends."""
        return np.isfinite(self.lower) & np.isfinite(self.upper) & ~self.exact

    def take(self, rows: Any) -> Observations:
        """Return the given rows (integer array, boolean mask or slice).

        Examples
        --------
        >>> Observations(np.arange(3.0), np.arange(3.0)).take([2, 0]).lower
        array([2., 0.])
        """
        entry = None if self.entry is None else self.entry[rows]
        return Observations(self.lower[rows], self.upper[rows], entry)

    def within(self, domain: tuple[float, float]) -> Observations:
        """Return the observations as a basis with this open domain sees them.

        A lower end or an entry at or below the start of the domain says
        nothing (F = 0 there) and becomes minus infinity. A value or upper end
        there is impossible and refused.

        Examples
        --------
        >>> Observations(np.array([0.0]), np.array([5.0])).within((0.0, np.inf)).lower
        array([-inf])
        """
        start = domain[0]
        if np.isneginf(start):
            return self
        impossible = self.upper <= start
        if impossible.any():
            raise InvalidInputError(
                f"y must be greater than {start:g} for a transformation of log y, got "
                f"{self.upper[impossible][0]:g} and the like in {first_rows(impossible)}; "
                "use a basis in y (log_first=False), or shift the response"
            )
        entry = None if self.entry is None else np.where(self.entry <= start, -np.inf, self.entry)
        return Observations(np.where(self.lower <= start, -np.inf, self.lower), self.upper, entry)
