"""Rules of a user's own, as objects and by name: pool, tune, evaluate, guarantees."""

from __future__ import annotations

import importlib

import numpy as np
import pytest
import scipy.integrate
import scipy.stats
import torch

import deeptram as dt
from deeptram.errors import FileFormatError, UnsupportedError
from deeptram.pooling import CdfRule, DensityRule, Rule, get_rule, register_rule
from deeptram.pooling.linear import LinearRule


class Earliest(CdfRule):
    """The largest F of all members; on two of them, with the density of the one that decides."""

    name = "earliest"

    def log_cdf(self, at):
        return torch.stack(at.log_cdf()).amax(dim=0)

    def log_sf(self, at):
        return torch.stack(at.log_sf()).amin(dim=0)

    def log_pdf(self, at):
        which = torch.stack(at.log_cdf()).argmax(dim=0, keepdim=True)
        return torch.stack(at.log_pdf()).gather(0, which)[0]


class Plain(Earliest):
    """The same, for those who need no density."""

    name = "plain"
    log_pdf = CdfRule.log_pdf


class Power(DensityRule):
    """A mean of powers of densities, normalised; 1 is the linear pool."""

    name = "power"
    parameters = ("power",)

    def __init__(self, power):
        self.power = power

    def log_density(self, each, weights):
        logs = [self.power * one + torch.log(w) for one, w in zip(each, weights, strict=True)]
        return torch.logsumexp(torch.stack(logs), dim=0) / self.power


class OfTimes(Earliest):
    """A rule that is not meant for classes."""

    name = "of-times"
    refuses_classes = "this pool is one of times, got classes; use the linear pool"


@pytest.fixture
def registered(registries):
    return register_rule(Earliest())


@pytest.fixture
def levels(rng):
    cdfs = rng.dirichlet(np.ones(4), (3, 40)).cumsum(axis=2)
    cdfs[..., -1] = 1.0
    return cdfs, rng.integers(0, 4, 40)


def test_a_rule_says_why_classes_have_no_such_pool(levels):
    cdfs, y = levels
    model = dt.Polr([dt.CI(dt.networks.MLP((2,)))])
    for refused in (
        lambda: dt.pool(cdfs, method=OfTimes()),
        lambda: dt.tune_weights(cdfs, y, method=OfTimes()),
        lambda: dt.Ensemble(model, 2, pooling=OfTimes()).fit(cdfs[0], y),
    ):
        with pytest.raises(UnsupportedError, match="one of times, got classes; use the linear pool"):
            refused()
    assert dt.pool(line(0.0, 1.0), method=OfTimes()).cdf(0.0).shape == (2,)


def line(*means):
    return [dt.Predictive.from_scipy(scipy.stats.norm([m, m + 1.0], 1.0)) for m in means]


def test_levels_as_a_list_and_as_an_array(levels):
    cdfs, y = levels
    expected = cdfs.max(axis=0)
    for members in (cdfs, [dt.Predictive.from_cdf(one) for one in cdfs]):
        pooled = dt.pool(members, method=Earliest())
        np.testing.assert_allclose(pooled.cdf(), expected, rtol=1e-12)
        np.testing.assert_allclose(pooled.pmf(), np.diff(expected, axis=1, prepend=0), atol=1e-12)
        assert (pooled.pool_info.method, pooled.pool_info.latent) == ("earliest", None)
        assert np.isfinite(dt.evaluate({"earliest": pooled}, y, metrics=["nll", "rps"])["estimate"]).all()


def test_line_and_counts():
    members = line(0.0, 2.0)
    pooled = dt.pool(members, method=Earliest())
    np.testing.assert_allclose(pooled.quantile(0.3), members[0].quantile(0.3), rtol=1e-9)
    np.testing.assert_allclose(pooled.crps([0.5, 0.5]), members[0].crps([0.5, 0.5]), rtol=1e-8)
    seen = dt.Surv.interval([0.0, 1.0], [1.0, np.inf])
    np.testing.assert_allclose(pooled.log_prob(seen), members[0].log_prob(seen), rtol=1e-10)
    counts = [dt.Predictive.from_scipy(scipy.stats.poisson([m])) for m in (1.0, 3.0)]
    np.testing.assert_allclose(dt.pool(counts, method=Earliest()).pmf(2), counts[0].pmf(2), rtol=1e-10)
    assert dt.pool(counts, method=Earliest()).mean() == pytest.approx(1.0)


@pytest.mark.parametrize("kind", ["levels", "line", "count"])
def test_a_density_rule_is_normalised(kind, levels):
    members, y = {
        "levels": (levels[0], levels[1]),
        "line": (line(0.0, 1.0), [0.3, 2.0]),
        "count": ([dt.Predictive.from_scipy(scipy.stats.poisson([m, 4.0])) for m in (1.0, 3.0)], [2, 5]),
    }[kind]
    linear = dt.pool(members, method="linear")
    np.testing.assert_allclose(dt.pool(members, method=Power(1.0)).log_prob(y), linear.log_prob(y), rtol=1e-8)
    pooled = dt.pool(members, method=Power(0.5))
    assert (np.abs(pooled.log_prob(y) - linear.log_prob(y)) > 1e-6).any()
    if kind == "line":
        total, _ = scipy.integrate.quad(lambda t: pooled.pdf(t)[0], -12, 13)
        assert total == pytest.approx(1.0, abs=1e-8)
    else:
        assert pooled.pmf(0).shape == (len(pooled),)


def test_weights_are_tuned_by_differences(levels):
    cdfs, y = levels
    tuned = dt.tune_weights(cdfs, y, method=Power(0.5))
    assert np.isnan(tuned.gap)
    equal = -dt.pool(cdfs, method=Power(0.5)).log_prob(y).mean()
    assert tuned.value <= equal + 1e-9
    pooled = dt.pool(cdfs, method=Power(0.5), weights=tuned.weights)
    assert tuned.value == pytest.approx(-pooled.log_prob(y).mean())


def test_a_rule_object_of_our_own_is_tuned_exactly(levels):
    cdfs, y = levels
    by_name, by_object = (dt.tune_weights(cdfs, y, method=m) for m in ("linear", LinearRule()))
    np.testing.assert_array_equal(by_name.weights, by_object.weights)
    assert by_object.gap < 1e-8


def test_no_guarantee_applies(levels):
    cdfs, y = levels
    found = dt.guarantees(cdfs, dt.pool(cdfs, method=Earliest()), y)
    assert not any(one.applies for one in found.statements)
    assert found.statements[0].note == "no proposition covers the earliest pool"


def test_by_name(registered, levels):
    assert get_rule("earliest") is registered
    pooled = dt.pool(levels[0], method="earliest")
    np.testing.assert_allclose(pooled.cdf(), levels[0].max(axis=0), rtol=1e-12)
    assert np.isnan(dt.tune_weights(levels[0], levels[1], method="earliest").gap)


def test_without_a_density():
    pooled = dt.pool(line(0.0, 2.0), method=Plain())
    assert pooled.cdf(0.0)[0] == pytest.approx(0.5)
    with pytest.raises(UnsupportedError, match="the plain pool has no density on the line; give its rule"):
        pooled.pdf(0.0)


def test_what_is_no_rule_is_refused(levels):
    with pytest.raises(TypeError, match="method must be the name of a pool or a rule, got int; use one of"):
        dt.pool(levels[0], method=3)
    taken = type("Taken", (Earliest,), {"name": "linear"})()
    assert isinstance(taken, Rule)
    for refuse in (register_rule, lambda rule: dt.pool(levels[0], method=rule)):
        with pytest.raises(ValueError, match="must have a name of its own, got 'linear', which is taken"):
            refuse(taken)


def test_an_ensemble_with_a_rule_is_saved_by_name(registries, tmp_path, rng):
    x = rng.normal(size=(60, 2))
    y = np.digitize(x @ [1.0, -0.5] + rng.logistic(size=60), [-1.0, 1.0])
    models = [dt.Polr().fit(x[part], y[part]) for part in (slice(0, 40), slice(20, 60))]
    ensemble = dt.Ensemble.from_members(models, pooling=Power(0.5))
    with pytest.raises(UnsupportedError, match="a pool must have a name to be saved"):
        ensemble.save(tmp_path / "unnamed")
    register_rule(Power(1.0))
    path = ensemble.save(tmp_path / "named")
    again = dt.load(path)
    assert again.pooling.power == 0.5
    np.testing.assert_array_equal(again.predict_proba(x), ensemble.predict_proba(x))
    assert ensemble.tune_weights(x, y).value <= -ensemble.score(x, y) + 1e-9
    assert "power" in ensemble.why_no_coefficients()


def test_loading_needs_the_rule(registries, tmp_path, rng):
    x = rng.normal(size=(30, 1))
    register_rule(Power(1.0))
    ensemble = dt.Ensemble.from_members([dt.Logit().fit(x, rng.integers(0, 2, 30))], pooling=Power(2.0))
    path = ensemble.save(tmp_path / "e")
    rules = importlib.import_module("deeptram.pooling.pool")
    del rules._REGISTRY._known["power"]
    with pytest.raises(
        FileFormatError, match=r"ensemble\.settings\.pooling: a saved pool must be one of .* 'power'"
    ):
        dt.load(path)
    register_rule(type("Power", (Power,), {"parameters": ()})(1.0))
    with pytest.raises(
        FileFormatError, match=r"must have the parameters \[\], got \[2.0\]; save the ensemble"
    ):
        dt.load(path)
