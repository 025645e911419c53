"""The most likely value."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats as st
import torch
from torch import distributions as td

from deeptram.bases import LogLinear
from deeptram.predictive import Predictive, TransformationPredictive


@pytest.mark.parametrize(
    ("frozen", "mode"),
    [
        (st.norm([0.0, 1e6], [1.0, 10.0]), [0.0, 1e6]),
        (st.gamma([3.0, 1.5], scale=2.0), [4.0, 1.0]),
        (st.lognorm([0.5, 1.0]), np.exp([-0.25, -1.0])),
        (st.beta([2.0, 5.0], [3.0, 2.0]), [1 / 3, 0.8]),
        (st.expon(scale=[1.0, 3.0]), [0.0, 0.0]),
        (st.powerlaw([2.0, 5.0]), [1.0, 1.0]),
        (st.t([2.0, 9.0], loc=[-4.0, 7.0]), [-4.0, 7.0]),
    ],
    ids=lambda x: x.dist.name if hasattr(x, "dist") else "",
)
def test_known_modes(frozen, mode):
    np.testing.assert_allclose(Predictive.from_scipy(frozen).mode(), mode, rtol=1e-6, atol=1e-6)


def test_the_higher_of_two_peaks():
    weights = torch.tensor([[0.3, 0.7], [0.7, 0.3]], dtype=torch.float64)
    centres = torch.tensor([-5.0, 5.0], dtype=torch.float64).expand(2, -1)
    pred = Predictive.from_torch(td.MixtureSameFamily(td.Categorical(weights), td.Normal(centres, 1.0)))
    np.testing.assert_allclose(pred.mode().numpy(), [5.0, -5.0], atol=1e-6)


@pytest.mark.parametrize(("shape", "mode"), [(0.5, 0.0), (1.0, 0.0), (2.0, np.sqrt(0.5))])
def test_weibull(shape, mode):
    pred = TransformationPredictive(LogLinear(), "minimum-extreme-value", np.array([[0.0, shape]]))
    assert pred.mode()[0] == pytest.approx(mode, abs=1e-6)
