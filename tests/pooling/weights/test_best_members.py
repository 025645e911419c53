"""The best members, with their weights in the right order."""

from __future__ import annotations

import functools

import numpy as np
import pytest

import deeptram as dt
from deeptram.errors import InvalidInputError, UnknownNameError

NAMES = {"linear": "linear", "log-linear": "log-linear", "trafo": "transformation"}


@functools.cache
def reference(golden, name, part):
    case, table = golden(f"{name}.json"), golden(f"{name}_{part}.csv.gz")
    members, levels = case["data"]["M"], case["data"]["K"]
    cdfs = np.ones((members, len(table), levels))
    for j in range(members):
        for k in range(levels - 1):
            cdfs[j, :, k] = table[f"m{j + 1}_k{k + 1}"]
    return case, cdfs, table["y"].to_numpy() - 1


@pytest.mark.parametrize("name", ["ens_k2", "ens_k7", "ens_k10"])
@pytest.mark.parametrize("score", ["nll", "rps"])
def test_order_of_the_reference(golden, name, score):
    case, cdfs, y = reference(golden, name, "val")
    best = dt.top_k(cdfs, y, len(cdfs), score)
    assert best.indices.tolist() == case["order_by_validation"][score]
    assert (np.diff(best.scores) >= 0).all()


@pytest.mark.parametrize("method", NAMES)
def test_pools_of_the_best_of_the_reference(golden, method):
    case, cdfs, y = reference(golden, "ens_k7", "val")
    _, test, truth = reference(golden, "ens_k7", "test")
    key = next(key for key in case if key.startswith(("topn", "top_n", "metrics_top")))
    for k in (1, 3):
        best = dt.top_k(cdfs, y, k)
        pooled = dt.pool(test[best.indices], method=NAMES[method])
        assert dt.scores.nll(truth, pooled) == pytest.approx(case[key][method][f"top{k}"]["nll"], rel=1e-9)


def test_weights_follow_their_members():
    members = [dt.Predictive.from_proba([[p, 1 - p]]) for p in (0.5, 0.9, 0.1, 0.7)]
    best = dt.top_k(members, [0], 3)
    assert best.indices.tolist() == [1, 3, 0]
    assert len(best) == 3
    np.testing.assert_allclose(best.weights([0.1, 0.2, 0.3, 0.4]), np.array([0.2, 0.4, 0.1]) / 0.7)
    pooled = dt.pool(best.members, method="linear", weights=best.weights([0.1, 0.2, 0.3, 0.4]))
    assert pooled.pmf()[0, 0] == pytest.approx((0.2 * 0.9 + 0.4 * 0.7 + 0.1 * 0.5) / 0.7)


def test_an_infinite_score_is_the_last_and_none_is_refused():
    members = [dt.Predictive.from_proba([[p, 1 - p]]) for p in (0.0, 0.3, 0.6)]
    best = dt.top_k(members, [0], 3)
    assert best.indices.tolist() == [2, 1, 0]
    assert best.scores[2] == np.inf
    with pytest.raises(
        InvalidInputError, match=r"finite or infinite, got NaN for members \[0, 1, 2\]; choose by"
    ):
        dt.top_k(members, [0], 2, lambda y, pred: float("nan"))


def test_messages():
    members = [dt.Predictive.from_proba([[0.5, 0.5]]), dt.Predictive.from_proba([[0.9, 0.1]])]
    with pytest.raises(InvalidInputError, match="got 3 for 2 members; use a smaller k"):
        dt.top_k(members, [0], 3)
    with pytest.raises(InvalidInputError, match="k must be an integer of at least 1"):
        dt.top_k(members, [0], 0)
    with pytest.raises(UnknownNameError, match="score must be a mean over rows, one of"):
        dt.top_k(members, [0], 1, "accuracy")
    with pytest.raises(InvalidInputError, match="must not all have weight zero"):
        dt.top_k(members, [0], 1).weights([1.0, 0.0])
