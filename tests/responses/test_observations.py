"""Intervals on the line."""

from __future__ import annotations

import numpy as np
import pytest

from deeptram.errors import InvalidInputError
from deeptram.responses import Observations, Surv

POSITIVE = (0.0, np.inf)


def test_rows_can_be_taken():
    seen = Observations(np.arange(4.0), np.arange(4.0) + 1, np.full(4, -np.inf))
    part = seen.take(np.array([True, False, False, True]))
    assert part.lower.tolist() == [0.0, 3.0]
    assert part.upper.tolist() == [1.0, 4.0]
    assert len(part) == len(part.entry) == 2
    assert len(seen.take(slice(1, 3))) == 2


def test_the_domain_of_a_logarithm_opens_ends_at_zero():
    seen = Surv.interval([0.0, -1.0, 2.0], [1.0, 1.0, 2.0], entry=[0.0, -np.inf, 1.0]).observations
    inside = seen.within(POSITIVE)
    assert inside.lower.tolist() == [-np.inf, -np.inf, 2.0]
    assert inside.upper.tolist() == [1.0, 1.0, 2.0]
    assert inside.entry.tolist() == [-np.inf, -np.inf, 1.0]
    assert seen.lower[0] == 0.0
    assert seen.within((-np.inf, np.inf)) is seen


def test_values_outside_the_domain_are_refused():
    seen = Observations(np.array([1.0, 0.0, -3.0]), np.array([1.0, 0.0, -3.0]))
    expected = r"y must be greater than 0 for a transformation of log y, got 0 and the like in rows 1, 2; use"
    with pytest.raises(InvalidInputError, match=expected):
        seen.within(POSITIVE)
