"""Every rule with members that contradict each other, weights of zero, point masses and infinite ends."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.integrate
import scipy.special
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

import deeptram as dt
from deeptram.bases import Bernstein
from deeptram.errors import ExtrapolationWarning, UnsupportedError
from deeptram.predictive import TransformationPredictive
from drawn_members import weights

P = dt.Predictive
RULES = {
    "linear": "linear",
    "log-linear": "log-linear",
    "log-linear-density": "log-linear-density",
    "transformation": "transformation",
    "median": "median",
    "trimmed": dt.TrimmedMean(0.2),
    "beta-linear": dt.BetaLinear(1.7, 0.6),
    "quantile": "quantile",
}


@st.composite
def level_members(draw):
    """Members on levels, of which some are certain, and of things that exclude each other."""
    count, levels = draw(st.integers(1, 4)), draw(st.integers(2, 4))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    members = []
    for _ in range(count):
        proba = rng.dirichlet(np.full(levels, 0.7), 6)
        for row in draw(st.lists(st.integers(0, 5), max_size=4)):
            proba[row] = np.eye(levels)[rng.integers(levels)]  # certain
        for row in draw(st.lists(st.integers(0, 5), max_size=3)):
            some = rng.random(levels) < 0.5
            proba[row] = np.where(some, 1.0, 0.0) / max(some.sum(), 1) if some.any() else proba[row]
        members.append(P.from_proba(proba))
    return members, draw(weights(count)), rng.integers(0, levels, 6)


@st.composite
def line_members(draw):
    """Members on the line: normal, with bounded and one-sided sample spaces, and with point masses."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    kinds = draw(
        st.lists(st.sampled_from(["normal", "uniform", "exponential", "masses"]), min_size=1, max_size=3)
    )
    members = []
    for kind in kinds:
        place, size = rng.normal(scale=2.0, size=4), np.exp(rng.normal(scale=0.5, size=4))
        if kind == "masses":
            steps = rng.exponential(size=(4, 5)) * (rng.random((4, 5)) < 0.7)
            steps[:, 2] += 0.1
            values = np.cumsum(steps, axis=1) + place[:, None]
            members.append(P.from_quantiles([0.1, 0.3, 0.5, 0.7, 0.9], values))
        else:
            family = {"normal": scipy.stats.norm, "uniform": scipy.stats.uniform}.get(kind, scipy.stats.expon)
            members.append(P.from_scipy(family(place, size)))
    return members, draw(weights(len(members))), rng.normal(scale=2.0, size=4)


@pytest.mark.parametrize("name", [name for name in RULES if name != "quantile"])
@given(case=level_members())
@settings(max_examples=8)
def test_on_levels_every_pool_is_a_distribution_and_keeps_its_promises(name, case):
    members, w, y = case
    pooled = dt.pool(members, method=RULES[name], weights=w)
    cdf, pmf = pooled.cdf(), pooled.pmf()
    assert not np.isnan(cdf).any()
    assert (np.diff(cdf, axis=1) >= -1e-12).all()
    np.testing.assert_allclose(pmf.sum(axis=1), 1.0, atol=1e-9)
    result = dt.guarantees(members, pooled, y)
    assert result.held, str(result)
    kept = [m for m, weight in zip(members, w, strict=True) if weight > 0]
    alone = dt.pool(kept, method=RULES[name], weights=w[w > 0])
    np.testing.assert_array_equal(cdf, alone.cdf())  # a weight of zero is no member


@pytest.mark.parametrize("name", RULES)
@given(case=line_members())
@settings(max_examples=8)
def test_on_the_line_every_pool_is_a_distribution_and_keeps_its_promises(name, case):
    members, w, y = case
    pooled, grid = dt.pool(members, method=RULES[name], weights=w), np.linspace(-15.0, 25.0, 60)
    ends = [m.quantile([0.0, 1.0]) for m, v in zip(members, w, strict=True) if v > 0]
    apart = np.max([one[:, 0] for one in ends], axis=0) >= np.min([one[:, 1] for one in ends], axis=0)
    if name == "log-linear-density" and apart.any():
        with pytest.raises(UnsupportedError, match="needs members whose densities overlap, got none in row"):
            pooled.cdf_grid(grid)
        return
    cdf = pooled.cdf_grid(grid)
    assert not np.isnan(cdf).any()
    assert (np.diff(cdf, axis=1) >= -1e-9).all()
    assert (cdf[:, 0] >= 0).all()
    assert (cdf[:, -1] <= 1).all()
    np.testing.assert_array_equal(pooled.cdf(-np.inf), 0.0)
    np.testing.assert_allclose(pooled.cdf(np.inf), 1.0, rtol=1e-15)
    levels = np.array([0.05, 0.3, 0.5, 0.8, 0.95])
    quantiles = pooled.quantile(levels)
    assert (np.diff(quantiles, axis=1) >= -1e-9).all()
    reached = np.stack([pooled.cdf(q + 1e-7 * (1 + np.abs(q))) for q in quantiles.T], axis=1)
    assert (reached >= levels - 1e-6).all()
    before = np.stack([pooled.cdf(q - 1e-7 * (1 + np.abs(q))) for q in quantiles.T], axis=1)
    assert (before <= levels + 1e-6).all()
    result = dt.guarantees(members, pooled, y)
    assert result.held, str(result)


@pytest.mark.filterwarnings("ignore::deeptram.errors.ExtrapolationWarning")
@given(case=line_members(), curves=st.booleans())
@settings(max_examples=30)
def test_the_ends_of_a_transformation_pool_are_where_it_becomes_certain(case, curves):
    members, w, _ = case
    if curves:
        steps = P.from_survival([1.0, 2.0, 4.0], [[0.9, 0.5, s] for s in (0.4, 0.0, 0.0, 0.2)])
        members, w = [*members, steps], np.append(w / 2, 0.5)
    pooled = dt.pool(members, weights=w)
    for q, end in zip((0.0, 1.0), pooled.quantile([0.0, 1.0]).T, strict=True):
        step = 1e-9 * (1 + np.abs(end))
        known = np.isfinite(end)
        near = np.where(known, end, 0.0)
        below, above = pooled.cdf(near - step), pooled.cdf(near + step)
        if q == 0:
            assert (below[known] == 0).all()
            assert (above[known] > 0).all()
            assert (pooled.trafo(np.full(4, -1e6))[~known] > -np.inf).all()
        else:
            assert (below[known] < 1).all() or np.isfinite(pooled.trafo(near - step))[known].any()
            assert (above[known] == 1).all()
            assert (pooled.trafo(np.full(4, 1e6))[~known] < np.inf).all()


def test_the_ends_of_pools_of_sample_spaces_apart():
    uniform = [P.from_scipy(scipy.stats.uniform([start], 1.0)) for start in (0.0, 2.0)]
    for weights_, ends in (([0.6, 0.4], (1.0, 1.0)), ([0.5, 0.5], (1.0, 2.0)), ([0.4, 0.6], (2.0, 2.0))):
        pooled = dt.pool(uniform, weights=weights_)
        np.testing.assert_array_equal(pooled.quantile([0.0, 1.0]), [ends])
        middle = np.mean(ends)  # F is 0, 1/2 and 1 before, between and after the ends
        expected = abs(middle - 3.0) if ends[0] == ends[1] else 0.25 * (ends[1] - ends[0]) + 1.0
        np.testing.assert_allclose(pooled.crps([3.0]), [expected], rtol=1e-9)


def test_a_quantile_lies_at_the_jump_of_the_member_that_prevails():
    masses = P.from_quantiles([0.1, 0.5, 0.9], [[-1.0, 0.0, 0.0]])  # all of it up to 0
    pooled = dt.pool([masses, P.from_scipy(scipy.stats.uniform([2.0], 1.0))], weights=[2 / 3, 1 / 3])
    np.testing.assert_array_equal(pooled.cdf_grid([-1e-9, 0.0]), [[0.0, 1.0]])
    np.testing.assert_array_equal(pooled.quantile([0.05, 0.5, 0.8, 0.95]), np.zeros((1, 4)))


def test_weights_that_sum_to_more_than_one_by_rounding_leave_the_beta_pool_at_one():
    members = [P.from_scipy(scipy.stats.norm([mu], 1.0)) for mu in (0.0, 1.0)]
    pooled = dt.pool(members, method=dt.BetaLinear(1.7, 0.6), weights=[5 / 12, 7 / 12])
    np.testing.assert_array_equal(pooled.cdf_grid([30.0, 60.0]), np.ones((1, 2)))


def test_the_quantile_pool_of_counts_needs_no_table_of_a_heavy_tail():
    heavy = scipy.stats.zipf([2.0], loc=-1)  # P(Y > k) is about 0.6 / k: negligible nowhere
    members = [P.from_scipy(heavy), P.from_scipy(scipy.stats.poisson([3.0]))]
    pooled = dt.pool(members, method="quantile")
    reached = dt.pool([members[0]] * 2, method="quantile").cdf([200])
    np.testing.assert_allclose(reached, heavy.cdf(200), rtol=1e-12)
    assert pooled.cdf([50])[0] == pytest.approx(heavy.cdf(90), abs=2e-3)


def test_a_corrected_pool_has_no_promises(rng):
    mu = rng.normal(size=60)
    members = [P.from_scipy(scipy.stats.norm(mu + shift, 1.0)) for shift in (0.0, 1.0)]
    y, pooled = mu + rng.normal(size=60), dt.pool(members)
    corrected = dt.correct(pooled, y).apply(pooled)
    assert any(one.applies for one in dt.guarantees(members, pooled, y).statements)
    found = dt.guarantees(members, corrected, y)
    assert not any(one.applies for one in found.statements)
    assert found.statements[0].note == "no proposition covers a pool that was corrected afterwards"


def test_curves_that_end_at_different_times_have_no_promise_in_crps():
    members = [P.from_survival([1.0, 2.0], [[0.9, 0.8]]), P.from_survival([1.0, 9.0], [[0.6, 0.5]])]
    found = dt.guarantees(members, dt.pool(members, method="linear"), [2.0]).frame().set_index("score")
    assert not found.loc["crps", "applies"]
    assert found.loc["crps", "pool"] > found.loc["crps", "bound"]  # and it is not even true
    assert found.loc["crps", "note"].startswith(
        "the CRPS of survival curves that end at different times are not"
    )
    same = [P.from_survival([1.0, 9.0], [[0.9, s]]) for s in (0.8, 0.3)]
    assert dt.guarantees(same, dt.pool(same, method="linear"), [2.0]).frame()["applies"].any()


def flat_tail(rise):
    theta = np.cumsum([[-2.0, 1.0, 1.0, 1.0, rise]], axis=1)
    return TransformationPredictive(Bernstein(4, (0.0, 1.0)), "logistic", theta)


def test_the_crps_of_a_nearly_flat_tail_is_the_true_one():
    """Beyond the support h = h_1 + s (y - 1), so the integral over y is one over h, divided by s."""
    members = [flat_tail(1e-8), flat_tail(0.7)]
    theta = members[0].theta.numpy()[0]
    start, slope = theta[4], 4 * (theta[4] - theta[3])

    def tail(power_of):
        return scipy.integrate.quad(lambda h: power_of(scipy.special.expit(h)) ** 2, start, 60)[0] / slope

    of_member = (np.log1p(np.exp(-start)) - scipy.special.expit(-start)) / slope
    assert tail(lambda f: 1 - f) == pytest.approx(of_member, rel=1e-9)
    expected = {
        "linear": of_member / 4,
        "log-linear": tail(lambda f: 1 - np.sqrt(f)),
        "median": of_member / 4,
    }
    assert members[0].crps(0.4)[0] == pytest.approx(of_member, rel=1e-6)
    for method in ("linear", "log-linear", "median"):
        assert dt.pool(members, method=method).crps(0.4)[0] == pytest.approx(expected[method], rel=1e-6)


@pytest.mark.parametrize("method", ["linear", "log-linear", "median"])
def test_where_the_crps_is_infinite_the_cause_is_said(method):
    members = [flat_tail(0.0), flat_tail(0.7)]
    pooled = dt.pool(members, method=method)
    match = (
        "the CRPS is infinite in row 0, because F does not reach 0 or 1, as where h is flat beyond the data;"
    )
    with pytest.warns(ExtrapolationWarning, match=match):
        assert np.isposinf(pooled.crps(0.4)).all()
    assert np.isfinite(dt.pool(members).crps(0.4)).all()  # the transformation pool has a slope
