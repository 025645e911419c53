"""Mean and CRPS by quadrature, against closed forms and high-precision integrals."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
import scipy.stats as st
import torch
from hypothesis import given, settings
from hypothesis import strategies as hs
from torch import distributions as td

from deeptram.bases import Bernstein, LogLinear
from deeptram.errors import ExtrapolationWarning
from deeptram.predictive import Predictive, TransformationPredictive, functionals


def crps(pred, y):
    return functionals.crps(pred, torch.tensor(np.broadcast_to(y, len(pred)).astype(float))[:, None]).numpy()


@settings(max_examples=25)
@given(loc=hs.floats(-1e3, 1e3), scale=hs.floats(1e-3, 1e3), z=hs.floats(-30, 30))
def test_normal(loc, scale, z):
    pred = Predictive.from_scipy(st.norm(loc, scale))
    z = ((loc + scale * z) - loc) / scale
    exact = scale * (z * (2 * st.norm.cdf(z) - 1) + 2 * st.norm.pdf(z) - 1 / math.sqrt(math.pi))
    assert crps(pred, loc + scale * z)[0] == pytest.approx(exact, rel=1e-8)


@settings(max_examples=25)
@given(loc=hs.floats(-1e3, 1e3), scale=hs.floats(1e-3, 1e3), z=hs.floats(-30, 30))
def test_logistic(loc, scale, z):
    pred = Predictive.from_scipy(st.logistic(loc, scale))
    z = ((loc + scale * z) - loc) / scale
    exact = scale * (z - 2 * st.logistic.logcdf(z) - 1)
    assert crps(pred, loc + scale * z)[0] == pytest.approx(exact, rel=1e-8)


@pytest.mark.parametrize("y", [-2.0, 0.0, 1e-9, 0.3, 4.0, 200.0])
def test_exponential_uniform_and_laplace(y):
    exponential = Predictive.from_scipy(st.expon())
    exact = abs(y) - 2 * st.expon.cdf(y) + 0.5
    assert crps(exponential, y)[0] == pytest.approx(exact, rel=1e-9)
    uniform = Predictive.from_scipy(st.uniform())
    inside = min(max(y, 0.0), 1.0)
    exact = inside**3 / 3 + (1 - inside) ** 3 / 3 + abs(y - inside)
    assert crps(uniform, y)[0] == pytest.approx(exact, rel=1e-9)
    laplace = Predictive.from_scipy(st.laplace())
    assert crps(laplace, y)[0] == pytest.approx(abs(y) + math.exp(-abs(y)) - 0.75, rel=1e-9)


@pytest.mark.parametrize("a", [0.51, 0.6, 1.0, 3.0])
def test_heavy_tails(a):
    """Log-logistic: the squared survivor is integrable for a > 1/2, the survivor itself for a > 1."""
    pred = TransformationPredictive(LogLinear(), "logistic", np.array([[0.0, a]]))
    with mpmath.workdps(25):
        slope, start = mpmath.mpf(a), mpmath.log(2)
        below = mpmath.quad(lambda u: mpmath.exp(u) / (1 + mpmath.exp(-slope * u)) ** 2, [-60, -5, start])
        points = [start, 5, 12, 25, 50, 100, 200, 400, 800, 1600, 3200]
        above = mpmath.quad(lambda u: mpmath.exp(u) / (1 + mpmath.exp(slope * u)) ** 2, points)
        exact = float(below + above)
    assert pred.crps(2.0)[0] == pytest.approx(exact, rel=1e-9)
    mean = math.pi / a / math.sin(math.pi / a) if a > 1 else math.inf
    assert pred.mean()[0] == pytest.approx(mean, rel=1e-9)


def test_divergent_integrals_are_infinite():
    pred = TransformationPredictive(LogLinear(), "logistic", np.array([[0.0, 0.5], [0.0, 0.4], [0.0, 1.001]]))
    with pytest.warns(ExtrapolationWarning, match="infinite in rows? .*because the tails of F are too heavy"):
        assert np.isinf(pred.crps(1.0)).tolist() == [True, True, False]
    assert np.isinf(pred.mean()).tolist() == [True, True, False]
    assert pred.mean()[2] == pytest.approx(math.pi / 1.001 / math.sin(math.pi / 1.001), rel=1e-6)
    cauchy = functionals.mean(Predictive.from_scipy(st.cauchy()))
    assert torch.isnan(cauchy).all()


def test_one_heavy_row_does_not_disturb_the_others():
    theta = np.array([[0.0, 0.4], [0.0, 2.0], [0.0, 5.0]])
    pred = TransformationPredictive(LogLinear(), "logistic", theta)
    with pytest.warns(ExtrapolationWarning, match="too heavy"):
        alone = np.array([pred[[row]].crps(1.5)[0] for row in range(3)])
    with pytest.warns(ExtrapolationWarning, match="too heavy"):
        together = pred.crps(1.5)
    np.testing.assert_allclose(together, alone, rtol=1e-12)


@settings(max_examples=12)
@given(seed=hs.integers(0, 10**6), logs=hs.booleans())
def test_rough_transformations(seed, logs):
    """Steep and flat stretches side by side: refinement has to notice."""
    rng = np.random.default_rng(seed)
    theta = np.cumsum(np.concatenate([[-8.0, 9.0], rng.choice([0.01, 0.5, 9.0], size=6), [9.0]]))[None, :]
    basis = Bernstein(8, (0.5, 20.0), log_first=logs)
    pred = TransformationPredictive(basis, rng.choice(["logistic", "normal"]), theta, rng.normal(size=1))
    y = float(pred.quantile(rng.uniform(0.01, 0.99))[0])
    levels = np.concatenate([np.geomspace(1e-15, 0.02, 300), np.linspace(0.021, 0.5, 300)])
    edges = np.concatenate([pred.quantile(np.concatenate([levels, 1 - levels[-2::-1]]))[0], [y, 0.5, 20.0]])
    edges.sort()
    nodes, weights = np.polynomial.legendre.leggauss(12)
    t = edges[:-1, None] + np.diff(edges)[:, None] * (nodes + 1) / 2
    log_cdf, log_sf = (x.numpy().reshape(t.shape) for x in pred.log_tails_t(torch.tensor(t.reshape(1, -1))))
    brute = (np.exp(2 * np.where(t < y, log_cdf, log_sf)) * weights * np.diff(edges)[:, None] / 2).sum()
    assert pred.crps(y)[0] == pytest.approx(brute, rel=1e-8)


@pytest.mark.parametrize("sd", [1.0, 0.1, 0.003])
@pytest.mark.parametrize("y", [0.3, -7.0, 6.0])
def test_peaks_far_apart(sd, y):
    """A mixture of ever narrower normals (closed form of Grimit et al. 2006): steps between quadrature nodes."""
    centres, weights = np.array([-5.0, -2.0, 0.0, 0.5, 6.0]), np.array([0.1, 0.3, 0.2, 0.3, 0.1])
    components = td.Normal(torch.tensor(centres)[None], sd)
    pred = Predictive.from_torch(
        td.MixtureSameFamily(td.Categorical(torch.tensor(weights)[None]), components)
    )

    def expected_distance(m, s):
        return m * (2 * st.norm.cdf(m / s) - 1) + 2 * s * st.norm.pdf(m / s)

    pairs = expected_distance(centres[:, None] - centres, sd * math.sqrt(2))
    exact = weights @ expected_distance(y - centres, sd) - weights @ pairs @ weights / 2
    assert pred.crps(y)[0].item() == pytest.approx(exact, rel=1e-9)


def test_chunks_of_rows_agree_with_single_rows(rng):
    n = 5000
    pred = TransformationPredictive(
        Bernstein(3, (-2.0, 2.0)), "normal", np.array([[-2.0, -0.5, 0.5, 2.0]]), rng.normal(size=n)
    )
    y = rng.normal(size=n)
    rows = [0, 2047, 2048, 4999]
    np.testing.assert_allclose(pred.crps(y)[rows], pred[rows].crps(y[rows]), rtol=1e-12)
    np.testing.assert_allclose(pred.mode()[rows], pred[rows].mode(), atol=1e-6)


def test_sum_of_both_integrals_does_not_depend_on_where_they_meet():
    """For p = 1 moving the cut by d adds d to left - right."""
    pred = Predictive.from_scipy(st.t([2.5, 4.0]))
    at_zero = functionals.tail_integrals(pred, torch.zeros(2, 1, dtype=torch.float64), 1)
    at_nine = functionals.tail_integrals(pred, torch.full((2, 1), 9.0, dtype=torch.float64), 1)
    change = (at_nine[0] - at_nine[1]) - (at_zero[0] - at_zero[1])
    np.testing.assert_allclose(change.numpy(), 9.0, rtol=1e-8)
