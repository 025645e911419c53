"""Rows of several predictions together say what each part says of its own."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats

import deeptram as dt
from deeptram.errors import InvalidInputError
from deeptram.predictive import join_rows

ROWS = [np.array([4, 0, 2]), np.array([1, 3])]
TIMES = np.array([0.5, 1.0, 2.0])


def whole_and_parts(kind):
    rng = np.random.default_rng(0)
    if kind == "levels":
        whole = dt.Predictive.from_trafo(np.sort(rng.normal(size=(5, 2)), axis=1))
    elif kind == "line":
        whole = dt.Predictive.from_scipy(scipy.stats.norm(rng.normal(size=5), 2.0))
    elif kind == "bounded":
        whole = dt.Predictive.from_scipy(scipy.stats.gamma(1 + rng.random(5)))
    elif kind == "curves":
        whole = dt.Predictive.from_survival(TIMES, np.sort(rng.random((5, 3)), axis=1)[:, ::-1])
    elif kind == "quantiles":
        whole = dt.Predictive.from_quantiles([0.1, 0.5, 0.9], np.sort(rng.normal(size=(5, 3)), axis=1))
    else:
        whole = dt.Predictive.from_scipy(scipy.stats.poisson(1 + 3 * rng.random(5)))
    return whole, join_rows([whole[rows] for rows in ROWS], ROWS)


KINDS = ["levels", "line", "bounded", "curves", "quantiles", "counts"]


@pytest.mark.filterwarnings("ignore::deeptram.errors.ExtrapolationWarning")
@pytest.mark.parametrize("kind", KINDS)
def test_every_answer_is_that_of_the_parts(kind):
    whole, joined = whole_and_parts(kind)
    y = np.array([0, 1, 2, 1, 0]) if kind in ("levels", "counts") else np.array([0.3, 0.7, 1.2, 0.9, 1.9])
    same = np.testing.assert_allclose
    for name in ("cdf", "sf", "log_prob", "crps", "cumhazard"):
        same(getattr(joined, name)(y), getattr(whole, name)(y), rtol=1e-12, err_msg=name)
    same(joined.quantile([0.2, 0.5]), whole.quantile([0.2, 0.5]), rtol=1e-9)
    same(joined.trafo(y), whole.trafo(y), rtol=1e-12)
    same(joined.mode(), whole.mode(), rtol=1e-6)
    same(joined.cdf_grid([0, 1]), whole.cdf_grid([0, 1]), rtol=1e-12)
    same(joined[[3, 3, 0]].cdf(y[[3, 3, 0]]), whole[[3, 3, 0]].cdf(y[[3, 3, 0]]), rtol=1e-12)
    same(dt.pool([joined, whole]).cdf(y), whole.cdf(y), rtol=1e-9)
    if kind != "curves":
        same(joined.mean(), whole.mean(), rtol=1e-9)
    if kind not in ("levels", "line", "quantiles"):
        same(joined.rmst(1.5), whole.rmst(1.5), rtol=1e-12)
    if kind in ("line", "bounded", "curves", "quantiles"):
        censored = dt.Surv.right(y, [1, 0, 1, 0, 1])
        same(joined.log_prob(censored), whole.log_prob(censored), rtol=1e-12)
        same(joined.hazard(y), whole.hazard(y), rtol=1e-12)
    assert len(joined) == 5
    assert joined.support == whole.support
    assert len(joined[[]]) == 0


def test_parts_of_different_kinds_of_distributions_on_the_line():
    normal = dt.Predictive.from_scipy(scipy.stats.norm([0.0, 1.0], 1.0))
    stretches = dt.Predictive.from_quantiles([0.1, 0.5, 0.9], [[-1.0, 0.0, 1.0]])
    joined = join_rows([normal, stretches])
    np.testing.assert_allclose(joined.crps(0.3), [*normal.crps(0.3), *stretches.crps(0.3)])
    mixed = dt.pool([joined, joined[[1, 0, 2]]], method="linear")
    np.testing.assert_allclose(
        mixed.crps(0.3), dt.pool([joined, joined[[1, 0, 2]]], method="linear")[[0, 1, 2]].crps(0.3)
    )


def test_refusals():
    normal = dt.Predictive.from_scipy(scipy.stats.norm([0.0, 1.0], 1.0))
    with pytest.raises(
        InvalidInputError, match="must be of one kind with the same levels, got DiscretePredictive"
    ):
        join_rows([normal, dt.Predictive.from_proba([[0.5, 0.5]])])
    with pytest.raises(InvalidInputError, match="rows must name every row from 0 to 1 once"):
        join_rows([normal], [[0, 2]])
