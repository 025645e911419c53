"""A latent distribution, a basis and a network of the user's own, from fit to load, against SciPy."""

from __future__ import annotations

import copy
import dataclasses
import functools
import math
from typing import ClassVar

import numpy as np
import pytest
import scipy.optimize
import scipy.stats
import torch
from sklearn.base import clone

import deeptram as dt
from deeptram import bases, latent, networks
from deeptram.bases import Basis, Linear, elementwise
from deeptram.bases.basis import successive_differences
from deeptram.errors import FileFormatError, InvalidInputError, InvalidTypeError, UnsupportedError
from deeptram.latent import Latent, distribution

SECANT = scipy.stats.hypsecant
_FAR = -18.0  # below, atan(e^z) is e^z to the last bit


class Secant(Latent):
    """Hyperbolic secant distribution, f(z) = 1 / (pi cosh z): log-concave, with the tails of the logistic."""

    name = "hyperbolic-secant"
    is_symmetric = True

    def log_cdf_t(self, z):
        near = torch.log(torch.atan(torch.exp(z.clamp(min=_FAR))))
        return torch.where(z < _FAR, z, near) + math.log(2 / math.pi)

    def log_sf_t(self, z):
        return self.log_cdf_t(-z)

    def log_pdf_t(self, z):
        return -torch.logaddexp(z, -z) + math.log(2 / math.pi)

    def from_log_t(self, log_cdf, log_sf):
        left = log_cdf <= log_sf
        angle = torch.where(left, log_cdf, log_sf) + math.log(math.pi / 2)
        near = torch.log(torch.tan(torch.exp(angle.clamp(min=_FAR))))
        z = torch.where(angle < _FAR, angle, near)
        return torch.where(left, z, -z)

    def dlog_pdf_t(self, z):
        return -torch.tanh(z)

    def d2log_pdf_t(self, z):
        return -1 / torch.cosh(z.clamp(-300, 300)) ** 2


@dataclasses.dataclass(frozen=True)
class Steps(Basis):
    """Piecewise linear functions with given knots; constant slopes beyond them."""

    knots: tuple[float, ...]
    name: ClassVar[str] = "steps"

    @property
    def n_coef(self):
        return len(self.knots)

    @property
    def support(self):
        return self.knots[0], self.knots[-1]

    @property
    def monotone_differences(self):
        return successive_differences(self.n_coef)

    def _cells(self, y):
        knots = torch.tensor(self.knots, dtype=y.dtype)
        cell = (torch.searchsorted(knots, y.contiguous(), right=True) - 1).clamp(0, self.n_coef - 2)
        width = knots[cell + 1] - knots[cell]
        one = torch.nn.functional.one_hot
        return cell, (y - knots[cell]) / width, width, functools.partial(one, num_classes=self.n_coef)

    @elementwise
    def evaluate(self, y):
        cell, part, _, hot = self._cells(y)
        return hot(cell) * (1 - part).unsqueeze(-1) + hot(cell + 1) * part.unsqueeze(-1)

    @elementwise
    def derivative(self, y):
        cell, _, width, hot = self._cells(y)
        return (hot(cell + 1) - hot(cell)) / width.unsqueeze(-1)


def small_net(in_shape, out_features, width=4):
    return torch.nn.Sequential(
        torch.nn.Linear(in_shape[0], width), torch.nn.Tanh(), torch.nn.Linear(width, out_features)
    )


@pytest.fixture
def data():
    rng = np.random.default_rng(7)
    x = rng.normal(size=(300, 2))
    noise = SECANT.ppf(rng.random(300))
    return x, x @ [0.8, -0.5] + noise, rng


def negative_loglik(parameters, x, lower, upper):
    """Ordinal NLL by SciPy: cutpoints, then slopes."""
    cuts = np.concatenate([[-np.inf], parameters[:2], [np.inf]])
    shift = x @ parameters[2:]
    return -np.log(SECANT.cdf(cuts[upper] - shift) - SECANT.cdf(cuts[lower] - shift)).sum()


def test_the_latent_is_scipys():
    z, one = np.linspace(-30, 30, 61), Secant()
    np.testing.assert_allclose(one.cdf(z), SECANT.cdf(z), rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(one.log_pdf(z), SECANT.logpdf(z), rtol=1e-9)
    np.testing.assert_allclose(one.icdf(SECANT.cdf(z[15:40])), z[15:40], rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(one.from_log(one.log_cdf(z), one.log_sf(z)), z, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("width", [1e-9, 1e-4, 2e-3, 5e-3, 0.1, 3.0])
@pytest.mark.parametrize("start", [-600.0, -20.0, -1.0, 0.0, 2.0, 30.0, 600.0])
def test_the_default_interval_is_the_closed_form(start, width):
    """Of the logistic: the default of the base class against the formula without differences."""
    one = latent.Logistic()
    lo = torch.tensor([start], dtype=torch.float64)
    arguments = (lo, lo + width, torch.log(lo + width - lo))
    np.testing.assert_allclose(
        Latent.log_interval_t(one, *arguments), one.log_interval_t(*arguments), rtol=1e-11, atol=1e-11
    )


def test_the_default_crps_integrals_are_quadrature(data):
    one, z = Secant(), np.linspace(-3, 3, 7)
    ours = one.squared_cdf_integral(torch.from_numpy(z)).numpy()
    theirs = [scipy.integrate.quad(lambda v: SECANT.cdf(v) ** 2, -40, end)[0] for end in z]
    np.testing.assert_allclose(ours, theirs, rtol=1e-8)


def test_ordinal_against_scipy_from_fit_to_load(data, registries, tmp_path):
    x, score, _ = data
    y = np.digitize(score, [-0.7, 0.9])
    model = dt.Polr(latent=Secant()).fit(x, y)
    best = scipy.optimize.minimize(negative_loglik, [-0.7, 0.9, 0, 0], (x, y, y + 1), "BFGS", tol=1e-8)
    np.testing.assert_allclose(model.coef_, best.x[2:], rtol=1e-4)
    np.testing.assert_allclose(model.theta_.ravel(), best.x[:2], rtol=1e-4)
    assert model.loglik_ == pytest.approx(-best.fun, rel=1e-9)
    assert model.converged_
    assert clone(model).latent == Secant()
    pred = model.predict_distribution(x)
    cuts = model.theta_.ravel() - (x @ model.coef_.to_numpy())[:, None]
    np.testing.assert_allclose(pred.cdf()[:, :2], SECANT.cdf(cuts), rtol=1e-9)

    other = dt.Polr([dt.LS("x0")], latent=Secant()).fit({"x0": x[:, 0], "x1": x[:, 1]}, y)
    members = [pred, other.predict_distribution({"x0": x[:, 0], "x1": x[:, 1]})]
    pooled = dt.pool(members, weights=[0.25, 0.75])
    h = 0.25 * members[0].trafo() + 0.75 * members[1].trafo()
    np.testing.assert_allclose(pooled.cdf()[:, :2], SECANT.cdf(h), rtol=1e-9)
    assert pooled.latent == Secant()
    tuned = dt.tune_weights(members, y)
    assert tuned.converged
    assert tuned.weights[0] > 0.8
    table = dt.evaluate({"model": pred, "pool": pooled}, y, metrics=["nll", "rps"], n_boot=20)
    assert np.isfinite(table["estimate"]).all()

    with pytest.raises(UnsupportedError, match=r"a latent must have a name to be saved.*latent\.register"):
        model.save(tmp_path / "refused")
    latent.register(Secant())
    model.save(tmp_path / "model")
    loaded = dt.load(tmp_path / "model")
    assert loaded.latent_ == Secant()
    np.testing.assert_array_equal(loaded.predict_distribution(x).cdf(), pred.cdf())


def test_an_unknown_latent_is_named_on_loading(data, registries, tmp_path):
    x, score, _ = data
    before = copy.copy(distribution._REGISTRY._known)
    latent.register(Secant())
    dt.Polr(latent="hyperbolic-secant").fit(x, np.digitize(score, [0.0, 1.0])).save(tmp_path / "model")
    distribution._REGISTRY._known = before
    with pytest.raises(FileFormatError, match=r"got 'hyperbolic-secant', .* deeptram\.latent\.register"):
        dt.load(tmp_path / "model")


def test_continuous_against_scipy(data, registries, tmp_path):
    x, y, _ = data
    model = dt.Tram(outcome="continuous", latent=Secant(), basis="linear").fit(x, y)

    def total(parameters):
        slope = np.exp(parameters[1])
        z = parameters[0] + slope * y - x @ parameters[2:]
        return -(SECANT.logpdf(z) + parameters[1]).sum()

    best = scipy.optimize.minimize(total, np.zeros(4), method="BFGS", tol=1e-8)
    np.testing.assert_allclose(model.coef_, best.x[2:], rtol=1e-4)
    assert model.loglik_ == pytest.approx(-best.fun, rel=1e-9)
    pred = model.predict_distribution(x)
    z = model.theta_.ravel()[0] + model.theta_.ravel()[1] * y - x @ model.coef_.to_numpy()
    np.testing.assert_allclose(
        pred.log_prob(y), SECANT.logpdf(z) + np.log(model.theta_.ravel()[1]), rtol=1e-9
    )
    frozen = SECANT(
        loc=(x @ model.coef_.to_numpy() - model.theta_.ravel()[0]) / model.theta_.ravel()[1],
        scale=1 / model.theta_.ravel()[1],
    )
    np.testing.assert_allclose(pred.crps(y), dt.Predictive.from_scipy(frozen).crps(y), rtol=1e-6)
    latent.register(Secant())
    model.save(tmp_path / "model")
    np.testing.assert_array_equal(dt.load(tmp_path / "model").predict(x), model.predict(x))


def test_crps_fit_with_an_own_latent(data):
    x, y, _ = data
    model = dt.Tram(outcome="continuous", latent=Secant(), basis="linear", loss="crps").fit(x, y)
    np.testing.assert_allclose(model.coef_ / model.theta_.ravel()[1], [0.8, -0.5], atol=0.15)


def test_survival_against_scipy(data):
    x, score, rng = data
    time, censored = np.exp(score), rng.exponential(6.0, 300)
    y = dt.Surv.right(np.minimum(time, censored), time <= censored)
    model = dt.Tram(outcome="survival", latent=Secant(), basis="log-linear").fit(x, y)
    seen, event = np.minimum(time, censored), time <= censored

    def total(parameters):
        z = parameters[0] + np.exp(parameters[1]) * np.log(seen) - x @ parameters[2:]
        exact = SECANT.logpdf(z) + parameters[1] - np.log(seen)
        return -np.where(event, exact, SECANT.logsf(z)).sum()

    best = scipy.optimize.minimize(total, np.zeros(4), method="BFGS", tol=1e-8)
    np.testing.assert_allclose(model.coef_, best.x[2:], rtol=1e-4)
    assert model.loglik_ == pytest.approx(-best.fun, rel=1e-9)
    theta = model.theta_.ravel()
    expected = SECANT.sf(theta[0] + theta[1] * np.log(2.0) - x @ model.coef_.to_numpy())
    np.testing.assert_allclose(model.predict_survival(x, [2.0]).ravel(), expected, rtol=1e-9)


def test_an_own_basis_from_fit_to_load(data, registries, tmp_path):
    x, y, _ = data
    basis = Steps((float(y.min()), float(np.median(y)), float(y.max())))
    model = dt.Tram(outcome="continuous", basis=basis).fit(x, y)
    linear = dt.Tram(outcome="continuous", basis="linear").fit(x, y)
    assert model.loglik_ >= linear.loglik_ - 1e-6
    np.testing.assert_allclose(model.coef_, linear.coef_, atol=0.2)
    pred = model.predict_distribution(x)
    middle = np.full(len(x), basis.knots[1])
    np.testing.assert_allclose(
        pred.trafo(middle), model.theta_.ravel()[1] - x @ model.coef_.to_numpy(), rtol=1e-10
    )
    pooled = dt.pool([pred, linear.predict_distribution(x)])
    assert np.isfinite(pooled.log_prob(y)).all()
    with pytest.raises(UnsupportedError, match=r"a basis must have a name to be saved.*bases\.register"):
        model.save(tmp_path / "refused")
    bases.register(Steps)
    model.save(tmp_path / "model")
    loaded = dt.load(tmp_path / "model")
    assert loaded.outcome_.basis == basis == loaded.basis
    np.testing.assert_array_equal(loaded.predict_distribution(x).log_prob(y), pred.log_prob(y))
    del bases.basis._REGISTRY._known["steps"]
    with pytest.raises(FileFormatError, match=r"got 'steps', .* deeptram\.bases\.register"):
        dt.load(tmp_path / "model")


def test_an_own_basis_latent_and_network_train_together(data, registries, tmp_path):
    x, y, _ = data
    latent.register(Secant())
    bases.register(Steps)
    networks.register("small-net", small_net)
    basis = Steps((float(y.min()), 0.0, float(y.max())))
    X = {"a": x[:, 0], "b": x[:, 1]}
    model = dt.Tram(
        [dt.CS(functools.partial(small_net, width=3), "a"), dt.LS("b")],
        outcome="continuous",
        latent=Secant(),
        basis=basis,
        training=dt.Training(epochs=3, validation=None),
        random_state=1,
    )
    ensemble = dt.Ensemble(model, n_members=2, random_state=1).fit(X, y)
    ensemble.save(tmp_path / "ensemble")
    loaded = dt.load(tmp_path / "ensemble")
    before, after = (one.predict_distribution(X).log_prob(y) for one in (ensemble, loaded))
    np.testing.assert_allclose(after, before, rtol=1e-9)


def test_what_cannot_be_registered():
    with pytest.raises(
        InvalidTypeError, match=r"register takes an object of a subclass of Latent, got 'cauchy'"
    ):
        latent.register("cauchy")

    class Impostor(Secant):
        name = "logit"

    with pytest.raises(InvalidInputError, match=r"name of a latent must be new, got 'logit', which is taken"):
        latent.register(Impostor())


class LevelAndSlope(Linear):
    """A straight line that does not say that it is one."""

    name: ClassVar[str] = "level-and-slope"
    is_line = False


@pytest.mark.parametrize(
    "basis", [LevelAndSlope(), Steps((-4.0, -1.0, 0.0, 1.0, 4.0))], ids=["line", "steps"]
)
def test_networks_train_and_predict_the_same_model_whatever_the_basis(basis, data):
    x, y, _ = data
    X = {"a": x[:, 0] + 3.0, "b": x[:, 1]}  # columns of LS are centred in training, and not in predictions
    training = dt.Training(epochs=1, batch_size=300, learning_rate=1e-12, dtype="float64", progress=False)
    terms = [dt.LS("a"), dt.CS(small_net, "b")]
    model = dt.Tram(terms, outcome="continuous", basis=basis, training=training, random_state=1).fit(X, y)
    assert model.history_["train_loss"].iloc[0] == pytest.approx(-model.score(X, y), rel=1e-9)
