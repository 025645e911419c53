"""Accuracy and quadratically weighted kappa."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats
import torch
from sklearn.metrics import accuracy_score, cohen_kappa_score

from deeptram.evaluation import metrics
from deeptram.predictive import Predictive
from deeptram.predictive.discrete import DiscretePredictive


@pytest.mark.parametrize("n_levels", [2, 3, 8])
def test_scikit_learn_agrees(n_levels, rng):
    pmf, y = rng.dirichlet(np.ones(n_levels), size=300), rng.integers(n_levels, size=300)
    pred = DiscretePredictive.from_log_pmf(np.log(pmf))
    guess = pmf.argmax(1)
    assert metrics.accuracy(y, pred) == accuracy_score(y, guess)
    expected = cohen_kappa_score(y, guess, weights="quadratic", labels=np.arange(n_levels))
    assert metrics.qwk(y, pred) == pytest.approx(expected, abs=1e-14)


def test_levels_that_do_not_occur_keep_their_place():
    pmf = np.array([[0.7, 0.1, 0.1, 0.1], [0.1, 0.1, 0.1, 0.7], [0.1, 0.1, 0.1, 0.7]])
    pred = DiscretePredictive.from_log_pmf(np.log(pmf), levels=("a", "b", "c", "d"))
    # Outcomes a, d, a; guesses a, d, d. Only the outer levels occur, three steps apart.
    table = np.zeros((4, 4))
    table[0, 0], table[3, 3], table[0, 3] = 1, 1, 1
    weight = (np.arange(4)[:, None] - np.arange(4)) ** 2 / 9
    expected = 1 - (weight * table).sum() / (weight * np.outer(table.sum(1), table.sum(0)) / 3).sum()
    assert metrics.qwk(["a", "d", "a"], pred) == pytest.approx(expected, rel=1e-14)


def test_perfect_agreement_and_none_to_be_had():
    pred = DiscretePredictive.from_log_pmf(np.log([[0.9, 0.05, 0.05], [0.05, 0.05, 0.9]]))
    assert metrics.qwk([0, 2], pred) == 1
    assert metrics.accuracy([0, 2], pred) == 1
    assert np.isnan(metrics.qwk([0, 0], pred[[0, 0]]))


def test_the_first_of_equals_counts():
    pred = DiscretePredictive.from_log_pmf(np.log([[0.5, 0.5]]))
    assert metrics.accuracy([0], pred) == 1
    assert metrics.accuracy([1], pred) == 0


def test_predictions_that_carry_gradients():
    h = torch.tensor([[0.3, 0.9], [-2.0, -1.0]], requires_grad=True)
    assert metrics.accuracy([0, 2], DiscretePredictive.from_h(h)) == 1.0
    assert metrics.qwk([0, 2], DiscretePredictive.from_h(h)) == 1.0


@pytest.mark.parametrize("name", ["accuracy", "qwk"])
def test_messages(name):
    pred = DiscretePredictive.from_log_pmf(np.log([[0.5, 0.5]]))
    with pytest.raises(TypeError, match="pred must be a Predictive, got ndarray; wrap probabilities"):
        metrics.get(name)([0], np.array([[0.5, 0.5]]))
    with pytest.raises(ValueError, match="one value per row, got 2 values for 1 rows"):
        metrics.get(name)([0, 1], pred)
    with pytest.raises(ValueError, match=f"{name} needs a distribution on levels"):
        metrics.get(name)([0.0], Predictive.from_scipy(scipy.stats.norm([0.0])))
