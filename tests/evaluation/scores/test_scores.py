"""Public scores: independent software, kinds of outcome, propriety, the edge."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pandas as pd
import pytest
import scipy.stats
import torch
from hypothesis import given
from hypothesis.extra.numpy import arrays
from sklearn.metrics import brier_score_loss, log_loss

from deeptram.evaluation import scores
from deeptram.predictive import Predictive
from deeptram.predictive.discrete import DiscretePredictive
from deeptram.responses import Surv

LOGITS = st.floats(-8, 8, width=32)


def discrete(pmf, levels=None):
    with np.errstate(divide="ignore"):
        return DiscretePredictive.from_log_pmf(np.log(np.asarray(pmf, dtype=float)), levels=levels)


@st.composite
def two_distributions(draw):
    """Two distributions on the same levels."""
    n_levels = draw(st.integers(2, 6))
    logits = draw(arrays(np.float64, (2, n_levels), elements=LOGITS))
    pmf = np.exp(logits - logits.max(1, keepdims=True))
    return pmf / pmf.sum(1, keepdims=True)


def expected_score(name, truth, forecast):
    """Return the mean of the score of ``forecast`` when levels are drawn from ``truth``."""
    n_levels = len(truth)
    values = scores.get(name)(range(n_levels), discrete([forecast] * n_levels), reduction="none")
    return float(values @ truth)


@pytest.mark.parametrize("name", scores.core.NAMES)
@given(pair=two_distributions())
def test_proper(name, pair):
    truth, forecast = pair
    best = expected_score(name, truth, truth)
    assert expected_score(name, truth, forecast) >= best - 1e-12 * max(1, abs(best))


@pytest.mark.parametrize("name", scores.core.NAMES)
def test_strictly_proper_by_search(name):
    truth = np.array([0.2, 0.5, 0.3])
    grid = [np.array([a, b, 20 - a - b]) / 20 for a in range(1, 19) for b in range(1, 20 - a)]
    values = [expected_score(name, truth, forecast) for forecast in grid]
    np.testing.assert_allclose(grid[int(np.argmin(values))], truth)


@given(p=st.floats(1e-6, 1 - 1e-6), y=st.integers(0, 1))
def test_rps_is_brier_for_two_levels(p, y):
    pred = discrete([[1 - p, p]])
    np.testing.assert_allclose(scores.rps([y], pred), (y - p) ** 2, rtol=1e-9, atol=1e-16)
    np.testing.assert_allclose(scores.brier([y], pred), (y - p) ** 2, rtol=1e-9, atol=1e-16)


def test_brier_and_quadratic_are_one_score_in_two_scales(rng):
    pred, y = discrete(rng.dirichlet(np.ones(4), size=30)), rng.integers(4, size=30)
    brier = scores.brier(y, pred, reduction="none")
    np.testing.assert_allclose(scores.quadratic(y, pred, reduction="none"), 2 * brier - 1, atol=1e-14)
    np.testing.assert_allclose(
        scores.crps(y, pred, reduction="none"), 3 * scores.rps(y, pred, reduction="none"), atol=1e-14
    )


def test_scikit_learn_agrees(rng):
    pmf, y = rng.dirichlet(np.ones(5), size=200), rng.integers(5, size=200)
    pred = discrete(pmf)
    labels = np.arange(5)
    assert scores.nll(y, pred) == pytest.approx(log_loss(y, pmf, labels=labels), rel=1e-13)
    expected = brier_score_loss(y, pmf, labels=labels, scale_by_half=True)
    assert scores.brier(y, pred) == pytest.approx(expected, rel=1e-13)
    binary = discrete(pmf[:, :2] / pmf[:, :2].sum(1, keepdims=True))
    event = y % 2
    assert scores.brier(event, binary) == pytest.approx(
        brier_score_loss(event, binary.pmf()[:, 1]), rel=1e-13
    )


def test_labels_are_matched_by_level_not_by_position():
    pred = discrete([[0.1, 0.2, 0.7]] * 3, levels=("low", "mid", "high"))
    y = pd.Series(pd.Categorical(["high", "low", "mid"], categories=["high", "low", "mid"]), index=[7, 8, 9])
    np.testing.assert_allclose(scores.nll(y, pred, reduction="none"), -np.log([0.7, 0.1, 0.2]))


def test_zero_probability_costs_infinity_and_is_neither_clipped_nor_dropped():
    pred = discrete([[1.0, 0.0], [0.5, 0.5]])
    assert scores.nll([1, 0], pred) == np.inf
    assert scores.nll([1, 0], pred, reduction="none").tolist() == [np.inf, np.log(2)]
    assert scores.nll([0, 0], pred) == pytest.approx(np.log(2) / 2)
    assert scores.brier([1, 0], pred) == pytest.approx((1 + 0.25) / 2)


def test_nll_is_finite_where_probabilities_underflow():
    h = np.array([[-700.0, -650.0], [650.0, 700.0], [-700.0, 700.0]])
    values = scores.nll([2, 0, 1], DiscretePredictive.from_h(h), reduction="none")
    assert np.isfinite(values).all()
    values = scores.nll([0, 2, 0], DiscretePredictive.from_h(h), reduction="none")
    np.testing.assert_allclose(values, 700.0, rtol=1e-12)


def test_tensors_in_tensors_out():
    h = torch.tensor([[0.3], [-0.2]], requires_grad=True)
    for name in scores.core.NAMES:
        value = scores.get(name)([0, 1], DiscretePredictive.from_h(h))
        assert isinstance(value, torch.Tensor)
        assert value.requires_grad
        assert value.dtype == torch.float32
    rows = scores.nll([0, 1], DiscretePredictive.from_h(h), reduction="none")
    assert rows.shape == (2,)
    assert isinstance(scores.nll([0, 1], DiscretePredictive.from_h(h.detach().numpy())), float)


def test_continuous_outcomes(rng):
    location, y = rng.normal(size=50), rng.normal(size=50)
    pred = Predictive.from_scipy(scipy.stats.norm(location, 2.0))
    assert scores.nll(y, pred) == pytest.approx(-scipy.stats.norm(location, 2.0).logpdf(y).mean(), rel=1e-12)
    z = (y - location) / 2
    normal = scipy.stats.norm
    closed_form = 2 * (z * (2 * normal.cdf(z) - 1) + 2 * normal.pdf(z) - 1 / np.sqrt(np.pi))
    np.testing.assert_allclose(scores.crps(y, pred, reduction="none"), closed_form, rtol=1e-7)


def test_censored_outcomes():
    rate = np.array([1.0, 2.0, 0.5])
    pred = Predictive.from_scipy(scipy.stats.expon(scale=1 / rate))
    y = Surv.right([0.5, 1.0, 2.0], [True, False, False])
    expected = [rate[0] * 0.5 - np.log(rate[0]), rate[1] * 1.0, rate[2] * 2.0]
    np.testing.assert_allclose(scores.nll(y, pred, reduction="none"), expected, rtol=1e-10)
    between = Surv.interval([0.5, 0.5, -np.inf], [1.0, 1.0, 1.0])
    expected = [
        -np.log(np.exp(-r * low) - np.exp(-r * 1.0)) for r, low in zip(rate, [0.5, 0.5, 0.0], strict=True)
    ]
    np.testing.assert_allclose(scores.nll(between, pred, reduction="none"), expected, rtol=1e-10)


def test_counts():
    mean, y = np.array([1.0, 4.0]), np.array([0, 6])
    pred = Predictive.from_scipy(scipy.stats.poisson(mean))
    np.testing.assert_allclose(
        scores.nll(y, pred, reduction="none"), -scipy.stats.poisson(mean).logpmf(y), rtol=1e-10
    )
    k = np.arange(200)
    expected = [
        ((scipy.stats.poisson(m).cdf(k) - (observed <= k)) ** 2).sum()
        for m, observed in zip(mean, y, strict=True)
    ]
    np.testing.assert_allclose(scores.crps(y, pred, reduction="none"), expected, rtol=1e-9)


@pytest.mark.parametrize("name", scores.core.NAMES)
def test_inputs_are_not_written_to(name):
    log_pmf, y = np.log([[0.2, 0.8], [0.5, 0.5]]), np.array([1, 0])
    copies = log_pmf.copy(), y.copy()
    scores.get(name)(y, DiscretePredictive.from_log_pmf(log_pmf))
    np.testing.assert_array_equal(log_pmf, copies[0])
    np.testing.assert_array_equal(y, copies[1])


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (
            lambda p: scores.nll([0, 1], [[0.2, 0.8], [0.5, 0.5]]),
            TypeError,
            "pred must be a Predictive, got list",
        ),
        (
            lambda p: scores.nll([0, 1, 1], p),
            ValueError,
            "y must have one value per row, got 3 values for 2 rows",
        ),
        (lambda p: scores.nll(np.int64(0), p), ValueError, "got a single value for 2 rows"),
        (lambda p: scores.nll(torch.tensor(0), p), ValueError, "got a single value for 2 rows"),
        (
            lambda p: scores.rps(0, p),
            ValueError,
            "y must have one value per row, got a single value for 2 rows",
        ),
        (
            lambda p: scores.rps([0, 5], p),
            ValueError,
            "every y must be one of the levels 0, 1, got 5 in row 1",
        ),
        (
            lambda p: scores.rps([0, 1], p, reduction="sum"),
            ValueError,
            "reduction must be one of 'mean', 'none'",
        ),
        (lambda p: scores.get("logscore"), ValueError, "score must be one of 'brier', 'crps'"),
        (
            lambda p: scores.rps([0.0], Predictive.from_scipy(scipy.stats.norm([0.0]))),
            ValueError,
            "rps needs a distribution on levels .* use nll or crps",
        ),
    ],
)
def test_messages(call, error, match):
    with pytest.raises(error, match=match):
        call(discrete([[0.2, 0.8], [0.5, 0.5]]))
