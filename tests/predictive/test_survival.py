"""Lifetimes: sample space from zero on, restricted means, survival curves of other software, marked quantiles."""

from __future__ import annotations

import itertools
import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.stats as st
import torch
from scipy.integrate import quad

import deeptram as dt
from deeptram.bases import Bernstein, Linear, LogLinear
from deeptram.errors import ExtrapolationWarning, InvalidInputError, InvalidTypeError, UnsupportedError
from deeptram.predictive import Predictive, SurvivalPredictive, TransformationPredictive
from deeptram.predictive.survival import StraightSurvival

TIMES = np.array([0.5, 1.0, 2.0, 4.0])
CURVES = np.array([[0.9, 0.7, 0.4, 0.0], [1.0, 0.8, 0.8, 0.3]])


def clipped(mu, sd, latent="normal", **more):
    """A linear model of a lifetime: the law of max(Y, 0) for Y normal."""
    theta = np.array([[-mu / sd, 1 / sd]])
    return TransformationPredictive(Linear(), latent, theta, lifetimes=True, **more)


@pytest.mark.parametrize(("mu", "sd"), [(1.0, 1.0), (-1.0, 1.0), (4.0, 1.0), (0.3, 2.0)])
def test_a_lifetime_on_the_original_scale_has_its_lower_mass_after_zero(mu, sd):
    pred, law = clipped(mu, sd), st.norm(mu, sd)
    assert pred.support == (0.0, np.inf)
    for t in (0.0, -1.0, -np.inf):
        assert (pred.cdf(t)[0], pred.sf(t)[0], pred.pdf(t)[0]) == (0.0, 1.0, 0.0)
        assert (pred.hazard(t)[0], pred.cumhazard(t)[0]) == (0.0, 0.0)
    for t in (1e-9, 0.7, 3.0):  # nothing changes for t > 0
        assert pred.cdf(t)[0] == pytest.approx(law.cdf(t), rel=1e-12)
        assert pred.log_prob(t)[0] == pytest.approx(law.logpdf(t), rel=1e-12)
        assert pred.hazard(t)[0] == pytest.approx(law.pdf(t) / law.sf(t), rel=1e-9)
    start = law.cdf(0.0)
    q = np.array([0.0, start / 2, start * (1 - 1e-9), (1 + start) / 2, 0.999])
    np.testing.assert_allclose(pred.quantile(q)[0], np.maximum(law.ppf(q), 0.0), rtol=1e-10, atol=1e-7)
    assert (pred.quantile(q[:3])[0] == 0).all()
    draws = pred.sample(4000, random_state=0)
    assert draws.min() >= 0
    assert (draws == 0).mean() == pytest.approx(start, abs=0.03)
    end = mu + 12 * sd
    mean = quad(law.sf, 0, end, points=[max(mu, 0)], epsabs=1e-13)[0]
    assert pred.mean()[0] == pytest.approx(mean, rel=1e-8)
    assert pred.rmst(1.7)[0] == pytest.approx(quad(law.sf, 0, 1.7)[0], rel=1e-9)
    want = quad(lambda t: law.cdf(t) ** 2, 0, 0.8)[0] + quad(lambda t: law.sf(t) ** 2, 0.8, end)[0]
    assert pred.crps(0.8)[0] == pytest.approx(want, rel=1e-8)
    censored = dt.Surv.interval([0.0], [2.0])
    assert pred.log_prob(censored)[0] == pytest.approx(law.logcdf(2.0), rel=1e-10)
    assert pred.log_prob(dt.Surv.right([2.0], [0], entry=[0.0]))[0] == pytest.approx(law.logsf(2.0))
    np.testing.assert_allclose(pred.cdf_grid([-1.0, 0.0, 1.0]), [[0.0, 0.0, law.cdf(1.0)]], rtol=1e-12)


METHODS = ["linear", "log-linear", "transformation", dt.QuasiArithmetic(np.sqrt, np.square)]


@pytest.mark.parametrize("method", METHODS, ids=lambda m: m if isinstance(m, str) else "quasi")
@pytest.mark.parametrize("other", [clipped(2.0, 1.5), TransformationPredictive(
    Bernstein(3, (0.5, 6.0), log_first=True), "normal", np.array([[-2.0, 0.0, 0.5, 2.0]]), lifetimes=True
)], ids=["linear", "log"])  # fmt: skip
def test_pools_of_lifetimes_stay_above_zero(method, other):
    pooled = dt.pool([clipped(-0.5, 1.0), other], method=method)
    assert pooled.support == (0.0, np.inf)
    assert (pooled.cdf(0.0)[0], pooled.sf(-1.0)[0]) == (0.0, 1.0)
    start = pooled.cdf(1e-300)[0]
    if start > 0:
        assert pooled.quantile(start / 2)[0] == 0.0
    draws = pooled.sample(3000, random_state=1)
    assert draws.min() >= 0
    assert (draws == 0).mean() == pytest.approx(start, abs=0.03)
    grid = np.linspace(0.0, 3.0, 30_001)[1:]
    assert pooled.rmst(3.0)[0] == pytest.approx(np.trapezoid(pooled.sf_grid(grid)[0], grid) + 1e-4, rel=1e-3)
    assert pooled[[0, 0]].lifetimes


def test_the_averaged_model_is_a_lifetime_too():
    models = [clipped(1.0, 1.0, observed=(0.2, 3.0)), clipped(2.0, 1.0, observed=(0.1, 5.0))]
    pooled = dt.pool(models)
    assert isinstance(pooled, TransformationPredictive)
    assert (pooled.lifetimes, pooled.observed, pooled.support) == (True, (0.1, 5.0), (0.0, np.inf))
    assert pooled.quantile(1e-9)[0] == 0.0
    mixed = dt.pool([models[0], Predictive.from_scipy(st.norm(1.0, 1.0))])
    assert (mixed.lifetimes, mixed.observed) == (False, None)


# -- restricted means ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "law",
    [
        st.norm(1.0, 2.0),
        st.gamma(0.3),
        st.lognorm(2.0),
        st.uniform(1.0, 3.0),
        st.cauchy(1.0),
        st.norm(1e6, 1.0),
    ],
    ids=["normal", "gamma", "lognormal", "uniform", "cauchy", "far"],
)
@pytest.mark.parametrize("tau", [1e-3, 1.0, 2.5, 1e4])
def test_the_restricted_mean_is_the_area_under_the_survivor(law, tau):
    ends = [0.0, *[x for x in law.ppf([1e-6, 0.01, 0.5, 0.99, 1 - 1e-6]) if 0 < x < tau], tau]
    want = sum(quad(law.sf, a, b, epsabs=0, epsrel=1e-11, limit=200)[0] for a, b in itertools.pairwise(ends))
    assert Predictive.from_scipy(law).rmst(tau)[0] == pytest.approx(want, rel=1e-8)


def test_restricted_means_of_other_kinds():
    poisson = st.poisson([1.0, 4.0])
    want = [sum(poisson.sf(k)[i] for k in range(2)) + 0.5 * poisson.sf(2)[i] for i in (0, 1)]
    np.testing.assert_allclose(Predictive.from_scipy(poisson).rmst(2.5), want)
    draws = np.array([[-1.0, 1.0, 2.0, 5.0]])
    assert Predictive.from_samples(draws).rmst(3.0)[0] == (0 + 1 + 2 + 3) / 4
    torch_law = torch.distributions.Exponential(torch.tensor([2.0], dtype=torch.float64, requires_grad=True))
    value = Predictive.from_torch(torch_law).rmst(1.0)
    assert float(value.detach()) == pytest.approx((1 - np.exp(-2.0)) / 2, rel=1e-10)
    assert value.requires_grad
    two = Predictive.from_scipy(st.expon(scale=[1.0, 2.0])).rmst([1.0, 2.0])
    np.testing.assert_allclose(two, [1 - np.exp(-1.0), 2 * (1 - np.exp(-1.0))], rtol=1e-9)
    with pytest.raises(UnsupportedError, match="rmst is for times and counts, got the levels"):
        Predictive.from_proba([[0.5, 0.5]]).rmst(1.0)
    for tau in (0.0, -1.0, np.inf):
        with pytest.raises(InvalidInputError, match="tau must be a positive, finite time, got"):
            Predictive.from_scipy(st.norm()).rmst(tau)


@pytest.mark.parametrize("method", ["linear", "transformation", "log-linear", "median", "log-linear-density"])
def test_restricted_means_of_pools_with_curves(method, monkeypatch):
    """Gauss-Legendre rules between the times of the curves; members are asked at a bounded number of points."""
    rng = np.random.default_rng(7)
    scale, times = rng.uniform(1.0, 4.0, (60, 1)), np.linspace(0.1, 30.0, 200)
    members = [
        Predictive.from_scipy(st.weibull_min(1.5, scale=1.2 * scale[:, 0])),
        Predictive.from_survival(times, np.exp(-times / scale)),
    ]
    pooled = dt.pool(members, method=method)
    asked = []
    for owner, name in ((SurvivalPredictive, "_survivor"), (StraightSurvival, "_place")):
        own = getattr(owner, name)
        monkeypatch.setattr(
            owner, name, lambda self, y, own=own: asked.append(len(self) * y.shape[1]) or own(self, y)
        )
    tau = np.where(np.arange(60) % 2, 5.0, 0.03)
    found = pooled.rmst(tau)
    assert sum(asked) < 60 * 20_000  # of the density from F at every node: 60 * 58,000
    x, weights = np.polynomial.legendre.leggauss(12)
    for row in (0, 1, 2, 59):
        edges = np.array([0.0, *np.geomspace(1e-9, 0.09, 40), *times])
        edges = np.append(edges[edges < tau[row]], tau[row])
        half = np.diff(edges)[:, None] / 2
        grid = (edges[:-1, None] + half * (1 + x)).ravel()
        survivor = 1 - pooled[row : row + 1].cdf_grid(grid)[0].reshape(len(half), -1)
        assert found[row] == pytest.approx(float(((survivor * half) @ weights).sum()), rel=1e-9)


@pytest.mark.parametrize("tau", [0.5, 2.5, 7.0])
@pytest.mark.parametrize(
    "laws",
    [
        [st.norm([1.0, 2.0], 2.0), st.norm([3.0, -1.0], 0.5)],
        [st.gamma([2.0, 3.0]), st.gamma([1.5, 0.7], scale=2.0)],
        [st.beta(2.0, [3.0, 2.0], 1.0, 4.0), st.beta(1.5, [2.0, 4.0], 1.0, 4.0)],
    ],
    ids=["normal", "gamma", "beta"],
)
def test_restricted_means_of_normalised_densities(laws, tau):
    pooled = dt.pool([Predictive.from_scipy(law) for law in laws], method="log-linear-density")
    found = pooled.rmst(tau)
    for row in (0, 1):

        def height(t, row=row):
            return np.sqrt(np.prod([law.pdf(t)[row] for law in laws]))

        low, high = min(law.ppf(1e-17)[row] for law in laws), max(law.isf(1e-17)[row] for law in laws)
        pieces = [low, *[x for x in (0.0, tau) if low < x < high], *np.linspace(low, high, 33)[1:-1], high]
        pieces = sorted(pieces)
        total = sum(quad(height, a, b, epsabs=1e-13)[0] for a, b in itertools.pairwise(pieces))
        mean = sum(
            quad(lambda t: height(t) * min(max(t, 0.0), tau), a, b, epsabs=1e-13)[0]
            for a, b in itertools.pairwise(pieces)
        )
        assert found[row] == pytest.approx(mean / total, rel=1e-8)


def test_restricted_means_of_normalised_densities_of_many_rows():
    """Chunks of rows: the normalised geometric mean of normals is the normal of the mean precision."""
    mean, sd = np.linspace(-1.0, 4.0, 1100), np.linspace(0.5, 2.0, 1100)
    members = [Predictive.from_scipy(st.norm(m, s)) for m, s in ((mean, sd), (mean + 1, 2 * sd))]
    precision = (1 / sd**2 + 1 / (2 * sd) ** 2) / 2
    law = st.norm((mean / sd**2 + (mean + 1) / (2 * sd) ** 2) / 2 / precision, precision**-0.5)
    tau = np.linspace(0.5, 3.0, 1100)
    found = dt.pool(members, method="log-linear-density").rmst(tau)
    np.testing.assert_allclose(found, Predictive.from_scipy(law).rmst(tau), rtol=1e-9, atol=1e-13)


# -- survival curves -------------------------------------------------------------------------------------


def test_curves_are_right_continuous_steps():
    pred = Predictive.from_survival(TIMES, CURVES)
    np.testing.assert_array_equal(pred.survivor(0.49), [1.0, 1.0])
    np.testing.assert_array_equal(pred.survivor(0.5), CURVES[:, 0])
    np.testing.assert_array_equal(pred.survivor(3.9), CURVES[:, 2])
    np.testing.assert_array_equal(pred.survivor(99.0), CURVES[:, 3])  # the mass beyond stays there
    np.testing.assert_array_equal(pred.cdf(np.inf), [1.0, 1.0])
    assert (pred.support, pred.observed, pred.lifetimes) == ((0.0, np.inf), (0.5, 4.0), True)
    seen = dt.Surv.interval([1.2, 0.0], [np.inf, 1.0])
    np.testing.assert_allclose(pred.log_prob(seen), np.log([0.7, 0.2]))
    # The density is that of lines between drops: of (2, 0.4) to (4, 0), and of (0, 1) to (1, 0.8).
    np.testing.assert_allclose(pred.log_prob([3.0, 0.2]), [np.log(0.2), np.log(0.2)])
    with pytest.warns(ExtrapolationWarning, match="no density after their last drop.* infinite in rows 0, 1"):
        assert pred.log_prob(5.0)[1] == -np.inf
    pred.log_prob(5.0)  # said already
    np.testing.assert_array_equal(pred.rmst(4.0), [0.5 + 0.45 + 0.7 + 0.8, 0.5 + 0.5 + 0.8 + 1.6])
    np.testing.assert_allclose(pred.mean(), [2.45, np.inf])
    np.testing.assert_array_equal(pred[::-1].survivor(0.5), CURVES[::-1, 0])
    assert pred.mode()[0] == 1.0


def test_times_at_which_a_curve_is_flat_change_nothing():
    """Software lists the times of censored rows, too; an event there must not cost infinity."""
    short = Predictive.from_survival([1.0, 3.0, 6.0], [[0.8, 0.5, 0.1]])
    long = Predictive.from_survival([0.4, 1.0, 1.5, 2.0, 3.0, 5.9, 6.0], [[1, 0.8, 0.8, 0.8, 0.5, 0.5, 0.1]])
    grid = np.array([0.1, 0.4, 0.9, 1.0, 1.7, 2.0, 2.9, 3.0, 4.0, 5.95, 6.0])
    for ask in (SurvivalPredictive.pdf_grid, SurvivalPredictive.sf_grid, SurvivalPredictive.hazard_grid):
        np.testing.assert_allclose(ask(long, grid), ask(short, grid))
    assert long.mode() == short.mode() == 1.0
    at = (grid[1:] + grid[:-1]) / 2
    for drop in ((0.0, 1.0), (1.0, 3.0), (3.0, 6.0)):  # the mass between drops is that of the curve
        area = quad(lambda t: long.pdf(t)[0], *drop, points=[x for x in at if drop[0] < x < drop[1]])[0]
        assert area == pytest.approx(long.sf(drop[0])[0] - long.sf(drop[1])[0])


def test_weights_of_curves_are_the_best_for_the_pooled_nll():
    lifelines = pytest.importorskip("lifelines")
    rng = np.random.default_rng(5)
    x = rng.normal(size=160)
    time, event = rng.exponential(np.exp(x)), rng.random(160) < 0.6
    fit, new = slice(0, 100), slice(100, 160)
    data = {"x": x, "t": time, "e": event}
    cox = lifelines.CoxPHFitter().fit(pd.DataFrame({k: v[fit] for k, v in data.items()}), "t", "e")
    curves = cox.predict_survival_function(pd.DataFrame({"x": x[new]}))
    km = lifelines.KaplanMeierFitter().fit(time[fit], event[fit]).survival_function_
    members = [
        Predictive.from_survival(curves.index, curves.T),
        Predictive.from_survival(km.index, np.tile(km.to_numpy().T, (60, 1))),
        Predictive.from_scipy(st.expon(scale=np.full(60, 1.5))),
    ]
    y = dt.Surv.right(np.minimum(time[new], time[fit][event[fit]].max() - 1e-9), event[new])
    assert all(np.isfinite(dt.scores.nll(y, member)) for member in members)
    for method, some in itertools.product(("linear", "log-linear", "transformation"), (members, members[:2])):
        tuned = dt.tune_weights(some, y, method=method)
        nll = [
            dt.scores.nll(y, dt.pool(some, method=method, weights=w))
            for w in (tuned.weights, *np.eye(len(some)), *rng.dirichlet(np.ones(len(some)), 5))
        ]
        assert tuned.value == pytest.approx(nll[0])
        assert nll[0] <= min(nll) + 1e-9
        assert tuned.gap < 1e-6
    late = dt.Surv.right(time[new] + 99.0, np.ones(60))  # no curve has mass there: the others must carry it
    assert dt.tune_weights(members, late, method="linear").weights.tolist() == [0.0, 0.0, 1.0]


def test_quantiles_of_curves():
    pred = Predictive.from_survival(TIMES, CURVES)
    np.testing.assert_array_equal(pred.quantile([0.0, 0.1, 0.3, 0.31])[0], [0.0, 0.5, 1.0, 2.0])
    with pytest.warns(ExtrapolationWarning, match="some quantiles lie beyond 4, the last observed"):
        np.testing.assert_array_equal(pred.quantile(0.8), [4.0, np.inf])
    draws = pred.sample(5000, random_state=0)
    assert np.isinf(draws[1]).mean() == pytest.approx(0.3, abs=0.03)


def test_crps_of_curves():
    pred = Predictive.from_survival(TIMES, CURVES)
    for y in (-1.0, 0.3, 1.5, 4.0, 6.0):
        end = max(y, 4.0)
        grid = np.linspace(min(y, 0.0), end, 400_001)
        middle = (grid[1:] + grid[:-1]) / 2
        error = (pred.cdf_grid(middle) - (y <= middle)) ** 2 * np.diff(grid)
        stays = middle <= 4.0  # of the second row only min(Y, 4) is scored
        want = [error[0].sum(), error[1, stays].sum()]
        np.testing.assert_allclose(pred.crps(y), want, rtol=1e-4)


def test_pools_of_curves_work_time_by_time():
    first = Predictive.from_survival(TIMES, CURVES)
    second = Predictive.from_survival([1.0, 3.0], [[0.6, 0.1], [0.9, 0.5]])
    mixture = dt.pool([first, second], method="linear", weights=[0.25, 0.75])
    assert isinstance(mixture, SurvivalPredictive)
    grid = [0.2, 0.5, 1.0, 2.5, 3.0, 9.0]
    want = 0.75 * second.sf_grid(grid) + 0.25 * first.sf_grid(grid)
    np.testing.assert_allclose(mixture.sf_grid(grid), want)
    pooled = dt.pool([first, first])
    np.testing.assert_allclose(pooled.survival, CURVES, atol=1e-15)
    model = clipped(2.0, 1.0)
    both = dt.pool([model, first[0]], method="linear")
    assert both.sf(2.5)[0] == pytest.approx((st.norm.sf(0.5) + 0.4) / 2)
    with pytest.raises(
        UnsupportedError, match="log-linear-density pool needs densities, got survival curves"
    ):
        dt.pool([first, second], method="log-linear-density")


def test_a_pool_that_does_not_reach_a_probability_says_infinity():
    stays = Predictive.from_survival([1.0], [[0.6]])
    pooled = dt.pool([stays, Predictive.from_scipy(st.expon(scale=0.1))], method="linear")
    assert pooled.quantile_t(torch.tensor([0.69, 0.71], dtype=torch.float64)).tolist()[0] == [
        pytest.approx(1.0), np.inf
    ]  # fmt: skip


def test_kaplan_meier_of_lifelines():
    lifelines = pytest.importorskip("lifelines")
    rng = np.random.default_rng(3)
    time, event = rng.exponential(2.0, 60), rng.random(60) < 0.7
    km = lifelines.KaplanMeierFitter().fit(time, event)
    curve = km.survival_function_
    pred = Predictive.from_survival(curve.index, curve.T)
    at = np.quantile(time, [0.1, 0.5, 0.8])
    np.testing.assert_allclose(pred.sf_grid(at)[0], km.predict(at).to_numpy())
    assert pred.quantile(0.5)[0] == km.median_survival_time_
    rmst = lifelines.utils.restricted_mean_survival_time(km, t=2.0)
    assert pred.rmst(2.0)[0] == pytest.approx(rmst, rel=1e-6)


@pytest.mark.parametrize(
    ("times", "survival", "message"),
    [
        ([2.0, 1.0], [[0.5, 0.4]], "times must be a vector of increasing, finite times, not negative, got"),
        ([-1.0, 1.0], [[0.5, 0.4]], "times must be a vector of increasing"),
        ([[1.0], [2.0]], [[0.5, 0.4]], "times must be a vector of increasing"),
        ([1.0, 2.0], [[0.5], [0.4]], r"survival must have one column per time, shape \(n, 2\), got \(2, 1\); transpose"),
        ([1.0, 2.0], [[0.5, 0.6]], "each row of survival must not increase, got an increase in row 0"),
        ([1.0, 2.0], [[1.5, 0.6]], "survival must lie between 0 and 1, got 1.5"),
        ([1.0, 2.0], [[np.nan, 0.6]], "survival must be finite"),
    ],
)  # fmt: skip
def test_what_is_no_survival_curve_is_refused(times, survival, message):
    with pytest.raises(InvalidInputError, match=message):
        Predictive.from_survival(times, survival)


# -- marked quantiles ------------------------------------------------------------------------------------


def test_quantiles_beyond_the_last_observed_time_are_marked_once():
    pred = clipped(2.0, 1.0, observed=(0.5, 3.0))
    assert pred.last_time == 3.0
    pred.quantile([0.1, 0.5])  # no warning
    with pytest.warns(
        ExtrapolationWarning, match=r"some quantiles lie beyond 3, the last observed \(uncensored\)"
    ):
        pred.interval(0.9)
    pred.quantile(0.99)  # said already
    pred[[0]].quantile(0.99)
    plain = TransformationPredictive(Linear(), "normal", np.array([[0.0, 1.0]]), observed=(-1.0, 1.0))
    assert plain.last_time == np.inf
    plain.quantile(0.99)
    for pooled in (
        dt.pool([clipped(2.0, 1.0, observed=(0.5, 3.0))] * 2, method=m) for m in ("linear", "transformation")
    ):
        with pytest.warns(ExtrapolationWarning, match="beyond 3"):
            pooled.quantile(0.99)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            pooled.mean(), pooled.sample(10, random_state=0), pooled.rmst(9.0), pooled.crps(1.0)


# -- what is asked where there is no answer --------------------------------------------------------------


def test_hazards_where_nothing_is_left():
    assert Predictive.from_scipy(st.uniform(0.0, 1.0)).hazard(2.0)[0] == np.inf
    assert Predictive.from_scipy(st.uniform(0.0, 1.0)).hazard(1.0)[0] == np.inf
    model = TransformationPredictive(LogLinear(), "normal", np.array([[0.0, 1.0]]))
    assert model.hazard(np.inf)[0] == np.inf
    assert Predictive.from_survival([1.0], [[0.0]]).hazard(3.0)[0] == np.inf
    assert Predictive.from_scipy(st.binom(3, [0.5, 0.2])).hazard(5).tolist() == [1.0, 1.0]
    assert Predictive.from_proba([[0.4, 0.6, 0.0, 0.0]]).hazard(3).tolist() == [1.0]


def test_means_that_do_not_exist():
    for law in (st.cauchy([0.0, 1.0]), st.cauchy(0.0, [1.0, 3.0])):
        with pytest.raises(
            UnsupportedError, match="a distribution with two heavy tails has no mean, got rows 0, 1"
        ):
            Predictive.from_scipy(law).mean()
    heavy = TransformationPredictive(LogLinear(), "logistic", np.array([[0.0, 0.5]]))
    assert heavy.mean()[0] == np.inf
    assert Predictive.from_scipy(st.invgamma(0.5)).mean()[0] == np.inf
    mixed = dt.pool(
        [Predictive.from_scipy(st.cauchy([0.0])), Predictive.from_scipy(st.norm([0.0]))], method="linear"
    )
    with pytest.raises(UnsupportedError, match="two heavy tails"):
        mixed.mean()


def test_arguments_of_the_wrong_kind():
    pred = Predictive.from_scipy(st.norm([0.0, 1.0]))
    with pytest.raises(InvalidTypeError, match="y must hold numbers that a float can hold, got int"):
        pred.cdf(10**400)
    pool = dt.pool([pred, pred], method="linear")
    counts = Predictive.from_scipy(st.poisson([1.0, 2.0]))
    levels = Predictive.from_proba([[0.5, 0.5]])
    for each in (pred, pool, counts, levels):
        for wrong in ("seed", 1.5, -1, object()):
            with pytest.raises(InvalidInputError, match="random_state must be None, a non-negative integer"):
                each.sample(2, random_state=wrong)
        for wrong in (-1, 1.5, "2", None):
            with pytest.raises(InvalidInputError, match="size must be an integer of at least 0, got"):
                each.sample(wrong)
        assert each[::-1].sample(2, random_state=np.random.RandomState(0)).shape == (len(each), 2)
    assert levels.support == (0, 1)
    assert counts.support == (0.0, np.inf)
    for wrong in (1j, [1j, 2j], torch.tensor(1j)):
        with pytest.raises(InvalidTypeError, match="y must hold numbers that a float can hold, got"):
            pred.cdf(wrong)
    with pytest.raises(InvalidTypeError, match="proba must be a matrix of numbers, got list"):
        Predictive.from_proba([[1j, 0]])
    with pytest.raises(
        InvalidInputError, match="draws must lie within 1e\\+150 of zero, so that squares are finite"
    ):
        Predictive.from_samples([[1e200, 2e200]])


def test_heavy_tails_in_single_precision():
    law = torch.distributions.Cauchy(torch.zeros(2), torch.ones(2))
    pred = Predictive.from_torch(law)
    with pytest.raises(UnsupportedError, match="two heavy tails"):
        pred.mean()
    want = Predictive.from_scipy(st.cauchy([0.0, 0.0])).crps([0.2, 3.0])
    np.testing.assert_allclose(pred.crps([0.2, 3.0]), want, rtol=1e-4)
