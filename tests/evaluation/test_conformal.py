"""Conformal prediction: the law of its coverage, direct computations, distributions that are distributions."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import scipy.integrate
import scipy.stats
import torch
from lifelines import KaplanMeierFitter

import deeptram as dt
from deeptram.evaluation.censoring import censoring_weights
from deeptram.predictive.pit_map import PitMap

LEVEL = 0.9


class Simulation:
    """Outcomes of one kind, and distributions by a model that is wrong (too narrow, shifted)."""

    def __init__(self, kind: str, n: int, seed: int) -> None:
        rng = np.random.default_rng(seed)
        x = rng.normal(size=n)
        if kind == "ordinal":
            cutpoints = np.array([-2.0, -1.0, 0.0, 1.0, 2.0])
            self.y = (rng.logistic(size=n)[:, None] > cutpoints - x[:, None]).sum(axis=1)
            self.pred = dt.Predictive.from_trafo(2 * (cutpoints - 0.7 * x[:, None]) + 0.3)
        elif kind == "count":
            self.y = rng.poisson(np.exp(1.5 + 0.5 * x))
            self.pred = dt.Predictive.from_scipy(scipy.stats.poisson(np.exp(1.2 + 0.3 * x)))
        elif kind == "continuous":
            self.y = x + rng.normal(size=n)
            self.pred = dt.Predictive.from_scipy(scipy.stats.norm(0.8 * x + 0.2, 0.5))
        else:
            self.time = rng.exponential(np.exp(0.5 * x))
            self.y = dt.Surv.right(self.time, np.ones(n))
            self.pred = dt.Predictive.from_scipy(scipy.stats.expon(scale=0.7 * np.exp(0.4 * x)))


def counts_covered(kind: str, repetitions: int, n: int, m: int) -> np.ndarray:
    """How many of m new outcomes are covered, in each repetition with n calibration rows of its own."""
    calibration, new = Simulation(kind, repetitions * n, 11), Simulation(kind, repetitions * m, 12)
    groups = np.repeat(np.arange(repetitions), n)
    fitted = dt.conformal(calibration.pred, calibration.y, groups=groups)
    again = np.repeat(np.arange(repetitions), m)
    if kind == "ordinal":
        covered = fitted.sets(new.pred, LEVEL, groups=again).contains(new.y)
    elif kind == "survival":
        covered = new.time >= fitted.lower_bound(new.pred, LEVEL, groups=again)
    else:
        lower, upper = fitted.interval(new.pred, LEVEL, groups=again)
        covered = (lower <= new.y) & (new.y <= upper)
    return covered.reshape(repetitions, m).sum(axis=1)


def check_law(counts: np.ndarray, n: int, m: int) -> None:
    k = int((n + 1) * (1 - LEVEL) + 1e-9)
    law = scipy.stats.betabinom(m, n + 1 - k, k)
    z = (counts.mean() - law.mean()) / (law.std() / np.sqrt(len(counts)))
    assert abs(z) < scipy.stats.norm.ppf(0.9995)
    low, high = law.ppf([0.0005, 0.9995])
    outside = int(((counts < low) | (counts > high)).sum())
    assert outside <= scipy.stats.binom(len(counts), 0.001).ppf(0.9995)
    cuts = np.unique(law.ppf(np.arange(1, 8) / 8))
    edges = np.concatenate([[-1], cuts, [m]])
    expected = len(counts) * np.diff(law.cdf(edges))
    observed = np.histogram(counts, edges + 0.5)[0]
    assert scipy.stats.chisquare(observed, expected).pvalue > 0.001


@pytest.mark.parametrize("kind", ["ordinal", "count", "continuous", "survival"])
def test_coverage_has_its_beta_binomial_law_in_a_thousand_repetitions(kind):
    check_law(counts_covered(kind, 1000, 99, 30), 99, 30)


def test_lower_bounds_of_censored_times_cover():
    repetitions, n, m = 400, 200, 100
    rng = np.random.default_rng(5)
    calibration, new = Simulation("survival", repetitions * n, 1), Simulation("survival", repetitions * m, 2)
    censoring = rng.exponential(1.5, size=repetitions * n)
    y = dt.Surv.right(np.minimum(calibration.time, censoring), calibration.time <= censoring)
    assert 0.3 < 1 - np.mean(calibration.time <= censoring) < 0.5
    groups, again = (np.repeat(np.arange(repetitions), size) for size in (n, m))
    fitted = dt.conformal(calibration.pred, y, groups=groups)
    covered = (new.time >= fitted.lower_bound(new.pred, LEVEL, groups=again)).reshape(repetitions, m)
    share = covered.mean(axis=1)
    error = share.std() / np.sqrt(repetitions)
    k = int((n + 1) * (1 - LEVEL) + 1e-9)
    assert abs(share.mean() - (n + 1 - k) / (n + 1)) < scipy.stats.norm.ppf(0.9995) * error + 1 / n
    naive = dt.conformal(calibration.pred, np.minimum(calibration.time, censoring), groups=groups)
    conservative = new.time >= naive.lower_bound(new.pred, LEVEL, groups=again)
    assert conservative.mean() > share.mean() + 0.01  # censored times taken for events


def test_interval_is_that_of_split_conformal_prediction():
    data = Simulation("continuous", 300, 3)
    u = scipy.stats.norm.cdf(data.y[:180], data.pred.mean()[:180], 0.5)
    scores = np.sort(np.abs(u - 0.5))
    q = scores[int(np.ceil(181 * 0.8)) - 1]
    centre = data.pred.mean()[180:]
    expected = centre + 0.5 * scipy.stats.norm.ppf([[0.5 - q], [0.5 + q]])
    found = dt.conformal(data.pred[:180], data.y[:180]).interval(data.pred[180:], 0.8)
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_sets_are_the_levels_that_conform():
    data = Simulation("ordinal", 120, 4)
    cdf = np.column_stack([np.zeros(120), data.pred.cdf()])
    conformity = np.minimum(np.minimum(cdf[:, 1:], 1 - cdf[:, :-1]), 0.5)
    own = np.sort(conformity[np.arange(80), data.y[:80]])
    tau = own[80 - int(np.ceil(81 * 0.75))]
    fitted = dt.conformal(data.pred[:80], data.y[:80])
    sets = fitted.sets(data.pred[80:], 0.75)
    np.testing.assert_array_equal(np.asarray(sets), conformity[80:] >= tau - 1e-12)
    assert (np.diff(sets.mask.astype(int), axis=1) == 1).sum(axis=1).max() <= 1  # contiguous
    assert sets.sizes.min() >= 1
    lower, upper = fitted.interval(data.pred[80:], 0.75)
    assert [(one[0], one[-1]) for one in sets] == list(zip(lower, upper, strict=True))
    assert sets.frame().columns.tolist() == [0, 1, 2, 3, 4, 5]
    np.testing.assert_array_equal(sets.contains(data.y[80:]), sets.mask[np.arange(40), data.y[80:]])


def test_count_intervals_hold_with_ties():
    """All rows have the same distribution, so that conformities tie: coverage must not fall short."""
    rng = np.random.default_rng(2)
    pred = dt.Predictive.from_scipy(scipy.stats.poisson(np.full(2000, 3.0)))
    y = rng.poisson(4.0, size=2000)
    lower, upper = dt.conformal(pred[:1000], y[:1000]).interval(pred[1000:], 0.8)
    tails = np.minimum(scipy.stats.poisson.cdf(y[:1000], 3), scipy.stats.poisson.sf(y[:1000] - 1, 3))
    tau = np.sort(np.minimum(tails, 0.5))[int(1001 * 0.2 + 1e-9) - 1]
    grid = np.arange(30)
    inside = np.minimum(scipy.stats.poisson.cdf(grid, 3), scipy.stats.poisson.sf(grid - 1, 3)) >= tau - 1e-12
    assert lower[0] == grid[inside].min()
    assert upper[0] == grid[inside].max()
    assert np.mean((lower <= y[1000:]) & (y[1000:] <= upper)) > 0.77


def test_weights_are_those_of_kaplan_meier():
    rng = np.random.default_rng(0)
    time = np.ceil(rng.exponential(10, size=300))  # ties
    event = rng.random(300) < 0.6
    weights = censoring_weights(dt.Surv.right(time, event).observations)
    curve = KaplanMeierFitter().fit(time, event)
    for t in (2.0, 5.0, 11.0, 20.0):
        expected = 1 - curve.survival_function_at_times(t).iloc[0]
        assert weights[time <= t].sum() / 300 == pytest.approx(expected, abs=1e-12)


def test_lower_bound_of_exact_times_is_an_order_statistic():
    data = Simulation("survival", 150, 6)
    u = np.sort(data.pred.cdf(data.time)[:99])
    expected = data.pred[99:].quantile(u[int(100 * 0.05 + 1e-9) - 1])
    found = dt.conformal(data.pred[:99], data.y[:99]).lower_bound(data.pred[99:], 0.95)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.parametrize("kind", ["ordinal", "count", "continuous", "survival"])
def test_conformal_distribution_is_calibrated(kind):
    data = Simulation(kind, 4000, 7)
    better = dt.conformal(data.pred[:2000], data.y[:2000]).transform(data.pred[2000:])
    y = data.y[2000:]
    before = scipy.stats.kstest(dt.metrics.pit(y, data.pred[2000:]), "uniform").statistic
    after = scipy.stats.kstest(dt.metrics.pit(y, better), "uniform").statistic
    assert before > 0.09
    assert after < 0.05  # two samples of 2000: 99 % of such distances are below 0.0515
    assert dt.scores.nll(y, better) < dt.scores.nll(y, data.pred[2000:])
    pooled = dt.pool([better, data.pred[2000:]])
    assert np.isfinite(dt.scores.nll(y, pooled))
    np.testing.assert_allclose(better[5:9].log_prob(y[5:9]), better.log_prob(y)[5:9], rtol=1e-12)


WRONG = {
    "too narrow": scipy.stats.norm(0.0, 3.0),
    "too wide": scipy.stats.norm(0.0, 0.5),
    "heavy tails": scipy.stats.t(4, scale=2.0),
    "right": scipy.stats.norm(),
    "biased": scipy.stats.norm(1.0),
    "skewed": scipy.stats.gamma(2.0, loc=-2.0),
}


def normals(law, n, seed):
    """Outcomes around means of their own, and N(mean, 1) for them."""
    rng = np.random.default_rng(seed)
    mean = rng.normal(size=n)
    y = mean + law.rvs(size=n, random_state=rng)
    return y, dt.Predictive.from_scipy(scipy.stats.norm(mean, 1.0)), mean


def check_coverage(pit: np.ndarray, levels: list[float], allowance: float) -> None:
    """Whether central intervals cover, from one row of PITs for each calibration."""
    for level in levels:
        share = (np.abs(pit - 0.5) <= level / 2).mean(axis=1)
        error = share.std() / np.sqrt(len(share))
        assert abs(share.mean() - level) < scipy.stats.norm.ppf(0.9995) * error + allowance, level


@pytest.mark.parametrize("wrong", WRONG)
def test_conformal_distributions_cover_what_they_say(wrong):
    """Exactly at the first and the last rank and at quartiles, nearly so between, whatever the model."""
    repetitions, n, m = 300, 99, 40
    law = WRONG[wrong]
    y, pred, _ = normals(law, repetitions * n, 1)
    new, new_pred, _ = normals(law, repetitions * m, 2)
    groups, again = (np.repeat(np.arange(repetitions), size) for size in (n, m))
    better = dt.conformal(pred, y, groups=groups).transform(new_pred, groups=again)
    pit = better.cdf(new).reshape(repetitions, m)
    check_coverage(pit, [0.5, 1 - 2 / (n + 1)], 0.0)
    check_coverage(pit, [0.8, 0.9, 0.95], 0.01)
    lower, upper = better[:2000].quantile([0.025, 0.975]).T
    inside = (lower <= new[:2000]) & (new[:2000] <= upper)
    np.testing.assert_array_equal(inside, np.abs(pit.ravel()[:2000] - 0.5) <= 0.475)


@pytest.mark.parametrize("kind", ["count", "survival"])
def test_conformal_distributions_of_other_outcomes_cover(kind):
    repetitions, n, m = 200, 99, 40
    calibration, new = Simulation(kind, repetitions * n, 21), Simulation(kind, repetitions * m, 22)
    groups, again = (np.repeat(np.arange(repetitions), size) for size in (n, m))
    better = dt.conformal(calibration.pred, calibration.y, groups=groups).transform(new.pred, groups=again)
    pit = dt.metrics.pit(new.y, better).reshape(repetitions, m)
    check_coverage(pit, [0.5, 1 - 2 / (n + 1)], 0.0)
    check_coverage(pit, [0.8, 0.9, 0.95], 0.01)


def test_conformal_distributions_of_censored_times_cover():
    repetitions, n, m = 200, 200, 50
    rng = np.random.default_rng(6)
    calibration, new = (
        Simulation("survival", repetitions * n, 31),
        Simulation("survival", repetitions * m, 32),
    )
    censoring = rng.exponential(3.0, size=repetitions * n)
    y = dt.Surv.right(np.minimum(calibration.time, censoring), calibration.time <= censoring)
    groups, again = (np.repeat(np.arange(repetitions), size) for size in (n, m))
    better = dt.conformal(calibration.pred, y, groups=groups).transform(new.pred, groups=again)
    cdf = better.cdf(new.time).reshape(repetitions, m)
    for level in (0.01, 0.025, 0.05, 0.1, 0.5, 0.8):
        share = (cdf <= level).mean(axis=1)
        error = share.std() / np.sqrt(repetitions)
        assert abs(share.mean() - level) < scipy.stats.norm.ppf(0.9995) * error + 1.5 / n, level


@pytest.mark.parametrize("wrong", WRONG)
def test_calibrated_densities_score_nearly_as_well_as_the_true_ones(wrong):
    law = WRONG[wrong]
    y, pred, mean = normals(law, 2800, 3)
    better = dt.conformal(pred[:800], y[:800]).transform(pred[800:])
    lost = law.logpdf(y[800:] - mean[800:]) - better.log_prob(y[800:])
    assert lost.mean() < 0.07  # of too narrow a model by a map that is straight in u: 0.6


def test_calibrated_distribution_is_proper_continuous_and_has_its_density():
    law = WRONG["too narrow"]
    y, pred, _ = normals(law, 405, 4)
    better = dt.conformal(pred[:400], y[:400]).transform(pred[400:])
    grid = np.linspace(-400.0, 400.0, 20001)
    cdf, sf = better.cdf_grid(grid), better.sf_grid(grid)
    assert (np.diff(cdf, axis=1) >= 0).all()
    assert (np.diff(sf, axis=1) <= 0).all()
    assert cdf[:, 0].max() < 1e-300
    assert sf[:, -1].max() < 1e-300
    np.testing.assert_allclose(cdf + sf, 1.0, rtol=1e-14)
    q = np.array([1e-12, 1e-6, 1e-3, 0.02, 0.3, 0.5, 0.77, 0.99, 1 - 1e-4, 1 - 1e-9])
    values = better.quantile(q)
    assert (np.diff(values, axis=1) > 0).all()
    for level, at in zip(q, values.T, strict=True):
        np.testing.assert_allclose(better.cdf(at), level, rtol=1e-9)
        np.testing.assert_allclose(better.sf(at), 1 - level, rtol=1e-6)
        step = 1e-5
        log_tail = "log_sf_t" if level > 0.5 else "log_cdf_t"
        low, high = (
            getattr(better, log_tail)(torch.as_tensor(at + side * step)[:, None])[:, 0].numpy()
            for side in (-1, 1)
        )
        # f = F (log F)' or -S (log S)': nothing cancels in the tails
        slope = np.log(np.abs(high - low) / (2 * step)) + (high + low) / 2
        np.testing.assert_allclose(better.log_prob(at), slope, atol=1e-5)
    np.testing.assert_allclose(better.quantile([0.0, 1.0]), np.tile([-np.inf, np.inf], (5, 1)))


@pytest.mark.parametrize("scale", [0.2, 5.0], ids=["too short", "too long"])
def test_densities_are_finite_at_the_ends_of_the_sample_space(scale):
    rng = np.random.default_rng(5)
    for law, ends in ((scipy.stats.expon(scale=np.full(300, scale)), [0.0]), (None, [0.0, 1.0])):
        y = rng.exponential(size=300) if law else rng.beta(scale, scale, size=300)
        pred = dt.Predictive.from_scipy(law or scipy.stats.uniform(np.zeros(300), 1.0))
        better = dt.conformal(pred, y).transform(pred)
        assert np.isfinite(better.log_prob(ends[0])).all()
        assert np.isfinite(better.log_prob(ends[-1])).all()
        np.testing.assert_allclose(better.log_prob(0.0), better.log_prob(1e-150), atol=1e-9)


def test_map_of_the_pit_against_many_digits():
    mpmath = pytest.importorskip("mpmath")
    knots, values = [-6.0, -1.0, 0.5, 7.0], [-2.0, -0.5, 0.0, 3.0]
    change = PitMap.through(np.array(knots), np.array(values))
    mpmath.mp.dps = 60

    def logit_g(odds):
        for j in range(3):
            if knots[j] <= odds <= knots[j + 1]:
                share = (odds - knots[j]) / mpmath.mpf(knots[j + 1] - knots[j])
                return values[j] + share * mpmath.mpf(values[j + 1] - values[j])
        return odds + (values[0] - knots[0] if odds < 0 else values[3] - knots[3])

    def cdf(odds):
        return 1 / (1 + mpmath.exp(-odds))

    def tails(odds):
        pair = mpmath.log(cdf(odds)), mpmath.log(cdf(-odds))
        return tuple(torch.tensor([[float(one)]], dtype=torch.float64) for one in pair)

    for odds, gap in itertools.product((-40.0, -6.5, -3.0, -1.1, 0.6, 3.0, 45.0), (1e-25, 1e-8, 2, 30)):
        low, high = mpmath.mpf(odds), mpmath.mpf(odds) + mpmath.mpf(gap)
        new_low, new_high = cdf(logit_g(low)), cdf(logit_g(high))
        log_mass = torch.tensor([[float(mpmath.log(cdf(high) - cdf(low)))]], dtype=torch.float64)
        found = change.log_mass(tails(low), tails(high), log_mass)
        assert float(found) == pytest.approx(float(mpmath.log(new_high - new_low)), abs=2e-7)
        up, down = change.log_tails(*tails(low))
        assert float(up) == pytest.approx(float(mpmath.log(new_low)), rel=1e-13)
        assert float(down) == pytest.approx(float(mpmath.log(cdf(-logit_g(low)))), rel=1e-13)
    back = change.inverse(
        torch.tensor([[float(logit_g(mpmath.mpf(one))) for one in (-9.0, -2.0, 3.0, 80.0)]])
    )
    np.testing.assert_allclose(back, [[-9.0, -2.0, 3.0, 80.0]], rtol=1e-6)


def test_map_takes_ranks_of_the_calibration_rows():
    """G(u_(j)) = j / (n + 1) at its knots: that of conformal predictive systems."""
    data = Simulation("continuous", 400, 8)
    better = dt.conformal(data.pred[:300], data.y[:300]).transform(data.pred[300:301])
    u = np.sort(data.pred.cdf(data.y)[:300])
    rank = np.searchsorted(u, u, side="right") / 301
    found = better.cdf_grid(data.pred[300:301].quantile(u)[0])[0]
    exact = np.abs(found - rank) < 1e-9
    assert exact.sum() >= 12  # about n^(1/3) knots, and some in each tail
    assert exact[[0, 75, 150, 225, 299]].all()
    assert np.abs(found - rank).max() < 0.06


def test_conformal_density_belongs_to_its_distribution_function():
    data = Simulation("continuous", 300, 9)
    fitted = dt.conformal(data.pred[:200], data.y[:200], groups=np.arange(200) % 2)
    pred = dt.Predictive.from_scipy(scipy.stats.norm([-0.5, 0.2, 1.0], 0.5))
    better = fitted.transform(pred, groups=[0, 1, 0])
    grid = np.linspace(-6, 8, 140001)
    total = scipy.integrate.cumulative_trapezoid(better.pdf_grid(grid), grid, initial=0)
    np.testing.assert_allclose(total, better.cdf_grid(grid), atol=2e-4)
    q = np.array([0.001, 0.2, 0.5, 0.9, 0.999])
    values = better.quantile(q)
    for j, level in enumerate(q):
        np.testing.assert_allclose(better.cdf(values[:, j]), level, rtol=1e-9)
    np.testing.assert_allclose(better.cdf(0.3) + better.sf(0.3), 1.0)
    error = (better.cdf_grid(grid) - (grid >= 0.5)) ** 2
    np.testing.assert_allclose(better.crps(0.5), scipy.integrate.trapezoid(error, grid), rtol=1e-3)


def test_far_tails_stay_finite():
    y = np.concatenate([np.linspace(-1, 1, 99), [40.0]])
    pred = dt.Predictive.from_scipy(scipy.stats.logistic(np.zeros(100), 0.01))
    fitted = dt.conformal(pred, y)
    better = fitted.transform(pred)
    assert np.isfinite(better.log_prob(y)).all()
    assert np.isfinite(better.log_prob(-60.0)).all()
    lower, upper = fitted.interval(pred, 0.5)
    order = np.sort(np.abs(y))[int(np.ceil(101 * 0.5)) - 1]
    np.testing.assert_allclose([lower[0], upper[0]], [-order, order], rtol=1e-9)


def test_levels_of_tiny_probability_keep_them():
    pred = dt.Predictive.from_trafo(np.tile([[-1.0, 1.0, 90.0]], (200, 1)))
    y = np.repeat([0, 1, 2], [90, 60, 50])
    better = dt.conformal(pred, y).transform(pred)
    np.testing.assert_allclose(better.pmf().sum(axis=1), 1.0)
    assert -95 < better.log_prob(np.full(200, 3))[0] < -80


def test_survival_curves_stay_curves_and_pool():
    data = Simulation("survival", 400, 10)
    times = np.linspace(0.05, 6, 60)
    curves = dt.Predictive.from_survival(times, np.exp(-times / (0.7 * np.ones((400, 1)))))
    event = np.arange(400) % 3 > 0
    better = dt.conformal(curves[:300], dt.Surv.right(data.time[:300], event[:300])).transform(curves[300:])
    pooled = dt.pool([better, curves[300:]], method="linear")
    assert type(better) is type(curves[:1])
    assert isinstance(pooled, type(better))
    km = KaplanMeierFitter().fit(data.time[:300], event[:300])
    expected = km.survival_function_at_times([0.5, 1.0, 2.0]).to_numpy()
    found = np.array([better.survivor(t)[0] for t in (0.5, 1.0, 2.0)])
    np.testing.assert_allclose(found, expected, atol=0.06)


def test_gradients_pass_through_the_map():
    data = Simulation("ordinal", 100, 11)
    h = torch.tensor(data.pred.trafo()[:5], requires_grad=True)
    better = dt.conformal(data.pred, data.y).transform(dt.Predictive.from_trafo(h, levels=range(6)))
    better.log_prob(torch.as_tensor(data.y[:5])).sum().backward()
    assert bool(torch.isfinite(h.grad).all() & (h.grad != 0).any())


def test_classes_without_an_order_have_sets():
    rng = np.random.default_rng(1)
    x = rng.normal(size=(600, 2))
    y = np.array(["a", "b", "c"])[np.argmax(x @ rng.normal(size=(2, 3)) + rng.gumbel(size=(600, 3)), axis=1)]
    model = dt.Tram(outcome="nominal").fit(x[:200], y[:200])
    fitted = dt.conformal(model.predict_distribution(x[200:400]), y[200:400])
    new = model.predict_distribution(x[400:])
    sets = fitted.sets(new, 0.8)
    assert 0.72 < sets.contains(y[400:]).mean() < 0.88
    own = model.predict_distribution(x[200:400]).pmf(y[200:400])
    expected = new.pmf() >= np.sort(own)[int(201 * 0.2 + 1e-9) - 1]
    np.testing.assert_array_equal(sets.mask, expected | (new.pmf() == new.pmf().max(1, keepdims=True)))
    for call in (fitted.interval, fitted.lower_bound, fitted.transform):
        with pytest.raises(
            dt.errors.UnsupportedError, match="needs ordered outcomes, got nominal ones; use sets"
        ):
            call(new)


def test_groups_are_calibrated_by_themselves():
    rng = np.random.default_rng(3)
    groups = np.array(["a", "b"])[rng.integers(0, 2, 1000)]
    y = rng.normal(size=1000) * np.where(groups == "a", 1.0, 3.0)
    pred = dt.Predictive.from_scipy(scipy.stats.norm(np.zeros(1000), 1.0))
    fitted = dt.conformal(pred[:600], y[:600], groups=groups[:600])
    lower, _ = fitted.interval(pred[600:], 0.8, groups=groups[600:])
    for group in ("a", "b"):
        own = groups[600:] == group
        alone = dt.conformal(pred[:600][groups[:600] == group], y[:600][groups[:600] == group])
        np.testing.assert_allclose(lower[own], alone.interval(pred[600:][own], 0.8)[0])
        better = alone.transform(pred[600:][own]).cdf(1.0)
        np.testing.assert_allclose(fitted.transform(pred[600:], groups=groups[600:]).cdf(1.0)[own], better)
    assert repr(fitted) == "Conformal(continuous, n = 600, 2 groups)"
    assert fitted.groups == list(dict.fromkeys(groups[:600]))
    assert fitted.n == 600


class TestErrors:
    @pytest.fixture
    def data(self):
        return Simulation("continuous", 30, 12)

    def test_too_few_rows(self, data):
        fitted = dt.conformal(data.pred[:18], data.y[:18])
        with pytest.raises(
            dt.errors.InvalidInputError, match=r"level 0.95 needs at least 19 calibration rows .* got 18"
        ):
            fitted.interval(data.pred, 0.95)
        assert len(dt.conformal(data.pred[:19], data.y[:19]).interval(data.pred, 0.95)[0]) == 30

    def test_groups(self, data):
        groups = np.repeat(["a", "b"], 15)
        fitted = dt.conformal(data.pred, data.y, groups=groups)
        with pytest.raises(dt.errors.InvalidInputError, match=r"\('a', 'b'\), got 'c' in row 29; calibrate"):
            fitted.interval(data.pred, 0.8, groups=[*groups[:29], "c"])
        with pytest.raises(dt.errors.InvalidInputError, match="by group, got no groups; pass the group"):
            fitted.interval(data.pred, 0.8)
        with pytest.raises(dt.errors.InvalidInputError, match="groups were not part of the calibration"):
            dt.conformal(data.pred, data.y).interval(data.pred, 0.8, groups=groups)
        with pytest.raises(
            dt.errors.InvalidTypeError, match="groups must hold one label per row, got 'clinic'"
        ):
            dt.conformal(data.pred, data.y, groups="clinic")

    def test_kinds(self, data):
        fitted = dt.conformal(data.pred, data.y)
        with pytest.raises(
            dt.errors.UnsupportedError, match="sets are for outcomes on levels, got a continuous"
        ):
            fitted.sets(data.pred)
        with pytest.raises(
            dt.errors.InvalidInputError, match=r"kind of the calibration \(continuous\), got ordinal"
        ):
            fitted.interval(Simulation("ordinal", 5, 1).pred)
        with pytest.raises(dt.errors.InvalidTypeError, match="pred must be a Predictive"):
            fitted.interval(np.zeros(3))

    def test_censoring(self, data):
        with pytest.raises(
            dt.errors.UnsupportedError, match="exact and right-censored outcomes without left"
        ):
            dt.conformal(data.pred, dt.Surv.interval(data.y - 1, data.y))
        late = dt.Surv.right(np.arange(1.0, 31), np.arange(30) < 10)
        times = dt.Predictive.from_scipy(scipy.stats.expon(scale=np.full(30, 20.0)))
        with pytest.raises(
            dt.errors.InvalidInputError, match=r"a share of 0.667 beyond the last event; use lower"
        ):
            dt.conformal(times, late).interval(times, 0.8)
        with pytest.raises(
            dt.errors.InvalidInputError, match="needs observed events, got 30 censored rows only"
        ):
            dt.conformal(times, dt.Surv.right(np.arange(1.0, 31), np.zeros(30)))
