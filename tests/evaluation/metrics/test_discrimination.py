"""ROC area and probabilistic index."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given
from sklearn.metrics import roc_auc_score

from deeptram.evaluation.metrics import auc
from deeptram.predictive.discrete import DiscretePredictive


def all_pairs(p, event):
    """Return the ROC area by comparing every pair."""
    wins = [0.5 * (float(i < j) + float(i <= j)) for i in p[~event] for j in p[event]]
    return float(np.mean(wins))


@given(
    p=st.lists(st.sampled_from([0.1, 0.2, 0.3, 0.5, 0.9]), min_size=4, max_size=30),
    first=st.booleans(),
)
def test_ties_count_one_half(p, first):
    event = np.arange(len(p)) % 2 == first
    p = np.array(p)
    pred = DiscretePredictive.from_log_pmf(np.log(np.column_stack([1 - p, p])))
    value = auc(event.astype(int), pred)
    assert value == pytest.approx(all_pairs(p, event), abs=1e-14)
    assert value == pytest.approx(roc_auc_score(event, p), abs=1e-14)


@pytest.mark.parametrize("cutoff", [0, 1, 3])
def test_scikit_learn_agrees_at_every_cutoff(cutoff, rng):
    pmf, y = rng.dirichlet(np.ones(5), size=400), rng.integers(5, size=400)
    tail = 1 - pmf.cumsum(1)[:, cutoff]
    value = auc(y, DiscretePredictive.from_log_pmf(np.log(pmf)), cutoff=cutoff)
    assert value == pytest.approx(roc_auc_score(y > cutoff, tail), abs=1e-12)


def test_probabilities_that_round_to_one_keep_their_order():
    h = np.array([[-60.0], [-50.0], [-40.0], [-45.0]])
    pred = DiscretePredictive.from_h(h)
    assert (pred.sf()[:, 0] == 1).all()
    assert auc([1, 1, 0, 0], pred) == 1.0


def test_index_over_all_pairs(rng):
    pmf, y = rng.dirichlet(np.ones(4), size=25), rng.integers(4, size=25)
    event = y > 1
    values = [
        sum(f[k] * (g[k + 1 :].sum() + 0.5 * g[k]) for k in range(4)) for f in pmf[~event] for g in pmf[event]
    ]
    value = auc(y, DiscretePredictive.from_log_pmf(np.log(pmf)), cutoff=1, kind="index")
    assert value == pytest.approx(np.mean(values), abs=1e-13)


def test_index_for_two_levels_is_half_one_plus_the_difference_of_means(rng):
    p = rng.uniform(size=30)
    event = rng.uniform(size=30) < p
    pred = DiscretePredictive.from_log_pmf(np.log(np.column_stack([1 - p, p])))
    expected = 0.5 + 0.5 * (p[event].mean() - p[~event].mean())
    assert auc(event.astype(int), pred, kind="index") == pytest.approx(expected, abs=1e-14)


@pytest.mark.parametrize("kind", ["roc", "index"])
def test_fold(kind):
    p = np.array([0.9, 0.8, 0.3, 0.1])
    pred = DiscretePredictive.from_log_pmf(np.log(np.column_stack([1 - p, p])))
    value = auc([0, 0, 1, 1], pred, kind=kind)
    assert value < 0.5
    assert auc([0, 0, 1, 1], pred, kind=kind, fold=True) == 1 - value
    assert auc([1, 1, 0, 0], pred, kind=kind, fold=True) == auc([1, 1, 0, 0], pred, kind=kind)


@pytest.mark.parametrize("kind", ["roc", "index"])
@pytest.mark.parametrize("level", [0, 1])
def test_nan_without_two_kinds_of_rows(kind, level):
    pred = DiscretePredictive.from_log_pmf(np.log([[0.2, 0.8], [0.5, 0.5]]))
    assert np.isnan(auc([level, level], pred, kind=kind))


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"cutoff": 2}, "cutoff must be at most 1 for 3 levels, got 2"),
        ({"cutoff": -1}, "cutoff must be an integer of at least 0, got -1"),
        ({"kind": "pr"}, "kind must be one of 'roc', 'index', got 'pr'"),
    ],
)
def test_messages(options, match):
    pred = DiscretePredictive.from_log_pmf(np.log([[0.2, 0.3, 0.5]]))
    with pytest.raises(ValueError, match=match):
        auc([0], pred, **options)
