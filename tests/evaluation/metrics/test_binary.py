"""Dichotomised outcomes."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from deeptram.evaluation import metrics, scores
from deeptram.evaluation.metrics.discrimination import exceedance_log_odds
from deeptram.predictive.discrete import DiscretePredictive


@pytest.mark.parametrize("cutoff", [0, 1, 2])
def test_probabilities_of_the_event(cutoff, rng):
    pmf = rng.dirichlet(np.ones(4), size=10)
    y = np.array(list("abcd"))[rng.integers(4, size=10)]
    pred = DiscretePredictive.from_log_pmf(np.log(pmf), levels=tuple("abcd"))
    event, binary = metrics.at_cutoff(y, pred, cutoff)
    np.testing.assert_array_equal(event, y > "abcd"[cutoff])
    np.testing.assert_allclose(binary.pmf()[:, 1], pmf[:, cutoff + 1 :].sum(1), rtol=1e-12)
    p = pmf[:, cutoff + 1 :].sum(1)
    assert scores.brier(event, binary) == pytest.approx(np.mean((p - event) ** 2), rel=1e-12)


@pytest.mark.parametrize("latent", ["logistic", "normal", "minimum-extreme-value", "maximum-extreme-value"])
def test_h_is_carried_over(latent):
    pred = DiscretePredictive.from_h(np.array([[-3.0, 2.0, 6.0]]), latent=latent)
    _, binary = metrics.at_cutoff([0], pred, 1)
    assert binary.has_trafo
    assert binary.latent == pred.latent
    np.testing.assert_array_equal(binary.trafo(), [[2.0]])


def test_tensors_keep_their_graph():
    h = torch.tensor([[0.3, 0.9]], requires_grad=True)
    _, binary = metrics.at_cutoff([0], DiscretePredictive.from_h(h), 1)
    assert binary.log_prob([True]).requires_grad


def test_log_odds_come_from_h_or_the_two_tails():
    h = np.array([[-700.0, 0.0, 700.0]])
    np.testing.assert_array_equal(exceedance_log_odds(DiscretePredictive.from_h(h)), -h)
    log_pmf = np.array([[-300.0, np.log1p(-2 * np.exp(-300.0)), -300.0]])
    odds = exceedance_log_odds(DiscretePredictive.from_log_pmf(log_pmf))
    np.testing.assert_allclose(odds, [[300.0, -300.0]], rtol=1e-14)
    normal = DiscretePredictive.from_h(np.array([[-30.0, 30.0]]), latent="normal")
    np.testing.assert_allclose(exceedance_log_odds(normal), [[454.321, -454.321]], rtol=1e-5)


def test_messages():
    pred = DiscretePredictive.from_log_pmf(np.log([[0.2, 0.8]]))
    with pytest.raises(ValueError, match="cutoff must be at most 0 for 2 levels, got 1; it is the position"):
        metrics.at_cutoff([0], pred, 1)
