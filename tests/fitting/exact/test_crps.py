"""The CRPS of a transformation model against SciPy's quadrature, closed forms and finite differences."""

from __future__ import annotations

import time

import numpy as np
import pytest
import torch
from scipy import stats
from scipy.integrate import quad, simpson
from scipy.optimize import minimize

import deeptram as dt
from deeptram import latent as latents
from deeptram.bases import Bernstein, Linear, LogLinear
from deeptram.fitting.exact.scored import CrpsObjective
from deeptram.latent import Latent, Logistic, MinimumExtremeValue

SCIPY = {
    "logistic": stats.logistic,
    "normal": stats.norm,
    "minimum-extreme-value": stats.gumbel_l,
    "maximum-extreme-value": stats.gumbel_r,
}
BASES = {
    "linear": (Linear(), [-1.0, 1.2]),
    "bernstein": (Bernstein(3, (0.3, 2.0)), [-2.0, 0.0, 1.5, 3.0]),
    "bernstein in log y": (Bernstein(3, (0.3, 2.0), log_first=True), [-3.0, -1.0, 1.5, 4.0]),
    "log-linear": (LogLinear(), [0.1, 2.2]),
    "rayleigh": (LogLinear(2.0), [0.1]),
}
N = 6


def rows(seed=0):
    rng = np.random.default_rng(seed)
    return rng.exponential(size=N) + 0.1, 0.5 * rng.normal(size=N), 0.3 * rng.normal(size=N)


@pytest.mark.parametrize("latent", list(SCIPY))
@pytest.mark.parametrize("z", [-6.0, -1.0, 0.0, 2.0, 5.0])
def test_tails_in_closed_form(latent, z):
    law = SCIPY[latent]
    with np.errstate(over="ignore"):
        left = quad(lambda v: law.cdf(v) ** 2, -40.0, z, epsabs=1e-13)[0]
        right = quad(lambda v: law.sf(v) ** 2, z, 40.0, epsabs=1e-13)[0]
    assert float(
        latents.get(latent).squared_cdf_integral(torch.tensor(z, dtype=torch.float64))
    ) == pytest.approx(left, abs=1e-11)
    assert float(
        latents.get(latent).squared_sf_integral(torch.tensor(z, dtype=torch.float64))
    ) == pytest.approx(right, abs=1e-11)


@pytest.mark.parametrize("latent", list(SCIPY))
def test_tails_are_finite_and_non_negative_everywhere(latent):
    z, law = torch.tensor([-1e6, -800.0, -30.0, 30.0, 800.0], dtype=torch.float64), latents.get(latent)
    for integral in (law.squared_cdf_integral, law.squared_sf_integral):
        value = integral(z)
        assert torch.isfinite(value).all()
        assert (value >= -1e-12).all()


@pytest.mark.parametrize("latent", list(SCIPY))
def test_probabilities_equal_scipy(latent):
    z = np.linspace(-12.0, 12.0, 97)
    law = SCIPY[latent]
    with np.errstate(over="ignore"):
        expected = law.cdf(z), law.sf(z), law.pdf(z)
    for ours, theirs in zip(latents.get(latent).probabilities(torch.from_numpy(z)), expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-40)


@pytest.mark.parametrize("latent", list(SCIPY))
@pytest.mark.parametrize("basis", list(BASES))
def test_rows_equal_numerical_integration(latent, basis):
    law, (made, theta) = SCIPY[latent], BASES[basis]
    y, shift, log_scale = rows()
    ours = CrpsObjective(made, latents.get(latent), y).evaluate(
        np.array(theta), shift, log_scale, np.ones(N)
    )[0]
    for i in range(N):

        def z(v, i=i):
            return np.exp(log_scale[i]) * (made.evaluate(v) @ theta + made.offset(v)) - shift[i]

        steps = np.linspace(0.0, 50.0, 40_001)
        if made.domain[0] == 0.0:
            below, above = y[i] * np.exp(-steps), y[i] * np.exp(steps)
        else:
            below, above = y[i] - steps, y[i] + steps
        with np.errstate(over="ignore", under="ignore"):
            left = -simpson(law.cdf(z(below)) ** 2, x=below)
            right = simpson(law.sf(z(above)) ** 2, x=above)
        assert ours[i] == pytest.approx(left + right, rel=2e-6), i


@pytest.mark.parametrize("latent", list(SCIPY))
@pytest.mark.parametrize("basis", list(BASES))
def test_gradients_equal_finite_differences(latent, basis):
    made, theta = BASES[basis]
    theta = np.array(theta)
    y, shift, log_scale = rows()
    weights = np.linspace(0.5, 2.0, N)
    objective = CrpsObjective(made, latents.get(latent), y)

    def total(t, s, ls):
        return weights @ objective.evaluate(t, s, ls, weights)[0]

    _, d_theta, d_shift, d_scale = objective.evaluate(theta, shift, log_scale, weights)
    step = 1e-6
    for j in range(len(theta)):
        e = step * np.eye(len(theta))[j]
        numeric = (total(theta + e, shift, log_scale) - total(theta - e, shift, log_scale)) / (2 * step)
        assert d_theta[j] == pytest.approx(numeric, abs=1e-6 * (1 + abs(numeric)))
    for i in range(N):
        e = step * np.eye(N)[i]
        numeric = (total(theta, shift + e, log_scale) - total(theta, shift - e, log_scale)) / (2 * step)
        assert d_shift[i] == pytest.approx(numeric, abs=1e-6 * (1 + abs(numeric)))
        numeric = (total(theta, shift, log_scale + e) - total(theta, shift, log_scale - e)) / (2 * step)
        assert d_scale[i] == pytest.approx(numeric, abs=1e-6 * (1 + abs(numeric)))


def test_normal_distributions_have_the_known_score():
    """Gneiting and Raftery (2007), eq. (21)."""
    y, shift, _ = rows()
    ours = CrpsObjective(Linear(), latents.get("normal"), y).evaluate(
        np.array([0.0, 2.0]), shift, None, np.ones(N)
    )[0]
    z = 2 * y - shift
    expected = 0.5 * (z * (2 * stats.norm.cdf(z) - 1) + 2 * stats.norm.pdf(z) - 1 / np.sqrt(np.pi))
    np.testing.assert_allclose(ours, expected, rtol=1e-12)


@pytest.mark.parametrize("latent", list(SCIPY))
@pytest.mark.parametrize("log_first", [True, False])
def test_counts_are_summed(latent, log_first):
    rng = np.random.default_rng(1)
    counts = rng.poisson(4, size=N).astype(float)
    shift = 0.5 * rng.normal(size=N)
    basis = Bernstein(3, (1.0, 13.0), log_first=True) if log_first else Bernstein(3, (0.0, 12.0))
    theta = np.array([-4.0, -1.0, 1.0, 5.0])
    objective = CrpsObjective(basis, latents.get(latent), counts + log_first, counts=True)
    ours = objective.evaluate(theta, shift, None, np.ones(N))[0]
    support = np.arange(20_000.0)
    with np.errstate(over="ignore"):
        cdf = SCIPY[latent].cdf(basis.evaluate(support + log_first) @ theta - shift[:, None])
    expected = ((cdf - (counts[:, None] <= support)) ** 2).sum(axis=1)
    np.testing.assert_allclose(ours, expected, rtol=1e-6)


def test_rows_do_not_depend_on_the_chunks(monkeypatch):
    y, shift, log_scale = rows()
    made, theta = BASES["bernstein"]
    objective = CrpsObjective(made, latents.get("logistic"), y)
    whole = objective.evaluate(np.array(theta), shift, log_scale, np.ones(N))
    monkeypatch.setattr("deeptram.fitting.exact.scored._CHUNK", 200)
    parts = objective.evaluate(np.array(theta), shift, log_scale, np.ones(N))
    for a, b in zip(whole, parts, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)


class OwnLogistic(Logistic):
    """The logistic distribution under another name, as a user would write it: without closed forms."""

    name, aliases = "own", ()
    probabilities = Latent.probabilities
    squared_cdf_integral = Latent.squared_cdf_integral


class OwnGumbel(MinimumExtremeValue):
    """An asymmetric one."""

    name, aliases = "own-gumbel", ()
    probabilities = Latent.probabilities
    squared_cdf_integral = Latent.squared_cdf_integral
    squared_sf_integral = Latent.squared_sf_integral


@pytest.mark.parametrize(("own", "known"), [(OwnLogistic(), "logistic"), (OwnGumbel(), "cloglog")])
def test_an_own_latent_is_integrated_numerically(own, known):
    z = torch.linspace(-45.0, 45.0, 181, dtype=torch.float64)
    law = latents.get(known)
    for name in ("squared_cdf_integral", "squared_sf_integral"):
        ours, formula = getattr(own, name)(z), getattr(law, name)(z)
        torch.testing.assert_close(ours, formula, rtol=1e-11, atol=1e-13)
    for ours, formula in zip(own.probabilities(z), law.probabilities(z), strict=True):
        torch.testing.assert_close(ours, formula, rtol=1e-9, atol=1e-40)


@pytest.mark.parametrize(("own", "known"), [(OwnLogistic(), "logistic"), (OwnGumbel(), "cloglog")])
@pytest.mark.parametrize("basis", ["linear", "bernstein"])
def test_an_own_latent_gives_the_same_crps_fit(own, known, basis):
    """Falling through to another distribution's formula gave 0.606 instead of 0.867."""
    rng = np.random.default_rng(3)
    x = rng.normal(size=(80, 1))
    y = x[:, 0] + rng.logistic(size=80)
    fits = [
        dt.Tram(outcome="continuous", latent=one, basis=basis, order=3, loss="crps").fit(x, y)
        for one in (own, known)
    ]
    assert fits[0].coef_["x0"] == pytest.approx(fits[1].coef_["x0"], rel=1e-6)


def direct_sum(made, theta, law, y, shift, last):
    """The definition: a sum over all whole numbers up to where nothing is left."""
    k = np.arange(0.0, last)
    at = k + 1 if made.domain[0] == 0.0 else k
    z = made.evaluate(at) @ theta + made.offset(at)
    return [float(((law.cdf(z - s) - (k >= v)) ** 2).sum()) for v, s in zip(y, shift, strict=True)]


@pytest.mark.parametrize("log_first", [False, True])
@pytest.mark.parametrize("latent", ["logistic", "normal", "minimum-extreme-value"])
@pytest.mark.parametrize(("centre", "spread"), [(1_000_000, 3_000), (20_000, 8_000), (700, 300)])
def test_large_counts_equal_the_sum_over_whole_numbers(centre, spread, latent, log_first):
    rng = np.random.default_rng(4)
    y = np.clip(np.round(centre + spread * rng.uniform(-1.7, 1.7, size=8)), 0, None)
    support = (y.min() + log_first, y.max() + log_first)
    made = Bernstein(4, support, log_first=log_first)
    theta = np.array([-3.0, -1.5, 0.2, 1.0, 3.5])
    shift = 0.5 * rng.normal(size=len(y))
    ours = CrpsObjective(made, latents.get(latent), y + log_first, 7.0, counts=True).evaluate(
        theta, shift, None, np.ones(len(y))
    )[0]
    expected = direct_sum(made, theta, SCIPY[latent], y, shift, last=int(y.max() + 40 * spread))
    np.testing.assert_allclose(ours, expected, rtol=1e-6)


def test_a_fit_to_counts_around_a_million_ends_at_the_minimum():
    """Of the linear baseline: the CRPS of a discretised normal, minimised by SciPy on the sum itself."""
    rng = np.random.default_rng(5)
    x = rng.normal(size=40)
    y = np.round(1e6 + 80 * x + 100 * rng.normal(size=40)).astype(int)
    model = dt.Tram(outcome="count", latent="normal", order=1, support=(y.min(), y.max()), loss="crps")
    begin = time.process_time()
    model.fit(x[:, None], y)
    assert time.process_time() - begin < 10.0
    k = np.arange(y.min() - 2000, y.max() + 2000)

    def mean_crps(p):
        z = (k[None] - 1e6 - 100 * p[0]) / (100 * np.exp(p[1])) - p[2] * x[:, None]
        return float(((stats.norm.cdf(z) - (k[None] >= y[:, None])) ** 2).sum(axis=1).mean())

    best = minimize(mean_crps, [0.0, 0.0, 0.8], method="Nelder-Mead", options={"xatol": 1e-5, "fatol": 1e-6})
    assert model.coef_["x0"] == pytest.approx(best.x[2], abs=1e-3)
    ours = model.predict_distribution(x[:, None]).crps(y)
    assert float(np.mean(ours)) == pytest.approx(best.fun, rel=1e-5)
