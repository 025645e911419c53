"""Weighted means with infinities: the limit of symmetric truncation."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from deeptram.pooling.linear import LinearRule
from deeptram.pooling.points import log_weighted_mean, weighted_mean
from deeptram.pooling.trimmed import TrimmedMean

INF = float("inf")


@pytest.mark.parametrize("weights", [(0.5, 0.5), (0.3, 0.7), (0.2, 0.3, 0.5), (0.1, 0.2, 0.3, 0.4)])
def test_is_the_limit_of_truncation(weights):
    values = [-INF, -1.5, 0.0, 2.0, INF]
    table = np.array(list(itertools.product(values, repeat=len(weights))))
    found = weighted_mean(
        [torch.tensor(column) for column in table.T], torch.tensor(weights, dtype=torch.float64)
    ).numpy()
    truncated = np.clip(table, -1e12, 1e12) @ np.array(weights)
    assert not np.isnan(found).any()
    decided = np.abs(truncated) > 1e6
    assert np.array_equal(np.isinf(found), decided)
    assert np.array_equal(np.sign(found[decided]), np.sign(truncated[decided]))
    np.testing.assert_allclose(found[~decided], truncated[~decided], atol=1e-3)


def test_a_tie_is_found_in_spite_of_rounding():
    weights = torch.tensor([0.1, 0.2, 0.3, 0.4], dtype=torch.float64)
    values = [torch.tensor(v, dtype=torch.float64) for v in (INF, INF, -INF, 5.0)]
    assert float(weighted_mean(values, weights)) == pytest.approx(2.0)


def test_monotone_members_give_a_monotone_mean(rng):
    steps = np.sort(rng.choice([-INF, -3.0, -1.0, 0.5, 2.0, INF], size=(4, 500, 8)), axis=2)
    weights = rng.dirichlet(np.ones(4))
    found = weighted_mean([torch.tensor(one) for one in steps], torch.tensor(weights)).numpy()
    assert (found[:, 1:] >= found[:, :-1]).all()


def test_log_weighted_mean_of_tiny_and_impossible_values():
    values = [
        torch.tensor([-1e5, -INF], dtype=torch.float64),
        torch.tensor([-1e5 - 1, -INF], dtype=torch.float64),
    ]
    found = log_weighted_mean(values, torch.tensor([0.25, 0.75], dtype=torch.float64))
    assert float(found[0]) == pytest.approx(-1e5 + np.log(0.25 + 0.75 * np.exp(-1)), rel=1e-14)
    assert float(found[1]) == -INF


def test_rules_say_their_name_and_parameters():
    assert repr(LinearRule()) == "LinearRule()"
    assert repr(TrimmedMean(0.2)) == "TrimmedMean(trim=0.2)"
