"""Cut points of a discrete response."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from deeptram.bases import Cutpoints
from deeptram.errors import InvalidInputError, UnsupportedError


def test_indicator_of_the_code():
    theta = np.array([-1.0, 0.0, 2.0])
    basis = Cutpoints(4)
    np.testing.assert_array_equal(basis.evaluate([0, 2, 1]) @ theta, theta[[0, 2, 1]])
    np.testing.assert_array_equal(basis.evaluate([3, -1]), np.zeros((2, 3)))
    assert basis.evaluate(torch.tensor([0, 3])).dtype == torch.float64
    assert basis.evaluate(np.zeros((2, 5))).shape == (2, 5, 3)
    assert basis.support == (0.0, 3.0)


def test_constraints_are_successive_differences():
    np.testing.assert_array_equal(Cutpoints(4).monotone_differences, [[-1, 1, 0], [0, -1, 1]])
    assert Cutpoints(2).monotone_differences.shape == (0, 1)


def test_there_is_no_slope():
    with pytest.raises(UnsupportedError, match=r"needs a continuous response, .*; use probabilities \(pmf\)"):
        Cutpoints(3).derivative([0])


def test_at_least_two_levels():
    with pytest.raises(InvalidInputError, match=r"n_levels must be an integer of at least 2, got 1"):
        Cutpoints(1)
