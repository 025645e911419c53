"""Pools of members on levels: identities, extreme values, certainty, brute force."""

from __future__ import annotations

import itertools

import mpmath
import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit, logit
from sklearn.base import clone

import deeptram as dt
from deeptram.pooling import PoolInfo
from deeptram.predictive.discrete import DiscretePredictive
from drawn_members import METHODS, discrete_ensembles

HARMONIC = dt.QuasiArithmetic(np.reciprocal, np.reciprocal)
EVERY_METHOD = [*METHODS, pytest.param(HARMONIC, id="harmonic")]


def plain_pool(method, proba, weights, latent="logistic"):
    """Return pooled class probabilities by the formulas of the paper on plain numbers, (n, K)."""
    cdfs = proba.cumsum(axis=2)[..., :-1]
    if method == "linear":
        return np.tensordot(weights, proba, axes=1)
    if method == "log-linear-density":
        product = np.exp(np.tensordot(weights, np.log(proba), axes=1))
        return product / product.sum(axis=1, keepdims=True)
    scale = dt.latent.get(latent)
    pooled = {
        "log-linear": lambda: np.exp(np.tensordot(weights, np.log(cdfs), axes=1)),
        "transformation": lambda: scale.cdf(np.tensordot(weights, scale.icdf(cdfs), axes=1)),
        "quasi-arithmetic": lambda: 1 / np.tensordot(weights, 1 / cdfs, axes=1),
    }[method]()
    return np.diff(pooled, axis=1, prepend=0, append=1)


@pytest.mark.parametrize("latent", dt.latent.names())
@pytest.mark.parametrize("method", EVERY_METHOD)
def test_formulas(rng, method, latent):
    proba, weights = rng.dirichlet(np.ones(5), (3, 50)), np.array([0.2, 0.5, 0.3])
    members = [dt.Predictive.from_proba(one) for one in proba]
    pooled = dt.pool(members, method=method, weights=weights, latent=latent)
    name = pooled.pool_info.method
    expected = plain_pool(name, proba, weights, latent)
    np.testing.assert_allclose(pooled.pmf(), expected, rtol=1e-9, atol=1e-13)
    np.testing.assert_allclose(pooled.cdf(), expected.cumsum(axis=1), rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(
        pooled.sf()[:, :-1], 1 - expected.cumsum(axis=1)[:, :-1], rtol=1e-9, atol=1e-14
    )
    assert (pooled.cdf()[:, -1] == 1).all()
    assert pooled.pool_info == PoolInfo(name, (0.2, 0.5, 0.3), latent if name == "transformation" else None)


@pytest.mark.parametrize("method", EVERY_METHOD)
@given(case=discrete_ensembles())
@settings(max_examples=30)
def test_a_pool_is_a_distribution(method, case):
    members, weights, _ = case
    pooled = dt.pool(members, method=method, weights=weights)
    pmf, cdf = pooled.pmf(), pooled.cdf()
    assert not torch.isnan(pooled.log_pmf_t()).any()
    np.testing.assert_allclose(pmf.sum(axis=1), 1, rtol=1e-9)
    np.testing.assert_allclose(pmf.cumsum(axis=1), cdf, atol=1e-12)
    np.testing.assert_allclose(pooled.sf() + cdf, 1, atol=1e-14)
    assert (np.diff(cdf, axis=1) >= -1e-15).all()


@pytest.mark.parametrize("method", EVERY_METHOD)
@given(case=discrete_ensembles(rows=10, scale=3.0), seed=st.integers(0, 100))
@settings(max_examples=25)
def test_invariances(method, case, seed):
    members, weights, _ = case
    pooled = dt.pool(members, method=method, weights=weights).pmf()
    same = dt.pool([members[0]] * 3, method=method, weights=[0.2, 0.3, 0.5])
    np.testing.assert_allclose(same.pmf(), members[0].pmf(), rtol=1e-10, atol=1e-12)
    order = np.random.default_rng(seed).permutation(len(members))
    permuted = dt.pool([members[i] for i in order], method=method, weights=weights[order])
    np.testing.assert_allclose(permuted.pmf(), pooled, rtol=1e-10, atol=1e-13)
    extended = dt.pool([*members, members[0][::-1]], method=method, weights=[*weights, 0.0])
    assert np.array_equal(extended.pmf(), pooled)


@pytest.mark.parametrize("method", EVERY_METHOD)
def test_a_member_of_weight_zero_is_left_out_whatever_it_says(method):
    good = dt.Predictive.from_proba([[0.2, 0.5, 0.3]])
    sure = dt.Predictive.from_proba([[0.0, 0.0, 1.0]])
    pooled = dt.pool([good, sure], method=method, weights=[1.0, 0.0])
    np.testing.assert_allclose(pooled.pmf(), good.pmf(), rtol=1e-14)


# -- members whose h is finite up to +-700 --------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
def test_no_infinite_nll_from_finite_h(method):
    edges = [-700.0, -650.0, -40.0, -37.0, 0.0, 37.0, 40.0, 650.0, 700.0]
    thresholds = np.array(list(itertools.combinations(edges, 2)))
    members = [DiscretePredictive.from_h(thresholds), DiscretePredictive.from_h(thresholds[::-1].copy())]
    pooled = dt.pool(members, method=method, weights=[0.3, 0.7])
    for y in range(3):
        nll = dt.scores.nll(np.full(len(thresholds), y), pooled, reduction="none")
        assert np.isfinite(nll).all()
    with np.errstate(all="ignore"):  # the naive route: CDFs, logit, differences
        cdfs = np.stack([expit(m.trafo()) for m in members])
        naive = np.diff(expit(np.tensordot([0.3, 0.7], logit(cdfs), axes=1)), axis=1, prepend=0, append=1)
        assert not np.isfinite(-np.log(naive)).all()


def exact_nll(method, h, weights, y):
    """Return the NLL of one row in 800 digits."""
    with mpmath.workdps(800):
        cdfs = [[1 / (1 + mpmath.exp(-mpmath.mpf(one))) for one in row] for row in h]
        pmfs = [[c[0], c[1] - c[0], 1 - c[1]] for c in cdfs]
        w = [mpmath.mpf(float(one)) for one in weights]
        pairs = range(len(w))
        if method == "linear":
            value = sum(w[m] * pmfs[m][y] for m in pairs)
        elif method == "log-linear-density":
            raw = [mpmath.exp(sum(w[m] * mpmath.log(pmfs[m][k]) for m in pairs)) for k in range(3)]
            value = raw[y] / sum(raw)
        else:
            if method == "log-linear":
                pooled = [mpmath.exp(sum(w[m] * mpmath.log(cdfs[m][k]) for m in pairs)) for k in range(2)]
            else:
                pooled = [
                    1 / (1 + mpmath.exp(-sum(w[m] * mpmath.mpf(h[m][k]) for m in pairs))) for k in range(2)
                ]
            value = [pooled[0], pooled[1] - pooled[0], 1 - pooled[1]][y]
        return float(-mpmath.log(value))


@pytest.mark.parametrize("method", METHODS)
def test_extreme_h_against_many_digits(method):
    rows = [
        [[-700.0, 700.0], [-600.0, 500.0]],
        [[650.0, 700.0], [-700.0, -650.0]],
        [[39.0, 41.0], [38.0, 60.0]],
        [[-300.0, -299.0], [-310.0, -200.0]],
        [[5.0, 5.0 + 2.0**-40], [4.0, 4.0 + 2.0**-38]],
        [[690.0, 690.0 + 2.0**-40], [700.0, 700.0 + 2.0**-41]],
    ]
    weights = [0.375, 0.625]
    for h in rows:
        members = [DiscretePredictive.from_h(np.array([one])) for one in h]
        pooled = dt.pool(members, method=method, weights=weights)
        for y in range(3):
            expected = exact_nll(method, h, weights, y)
            assert dt.scores.nll([y], pooled) == pytest.approx(expected, rel=1e-9, abs=1e-15)


def test_carried_gaps_outlive_the_rounding_of_h():
    # The thresholds agree to the last bit; only their gaps tell the classes apart.
    members = [
        DiscretePredictive.from_h(np.array([[h, h]]), np.array([[g]]))
        for h, g in ((700.0, -900.0), (500.0, -950.0))
    ]
    pooled = dt.pool(members)
    log_increment = np.log(0.5) - 900.0 + np.log1p(np.exp(-50.0))
    assert pooled.log_prob([1])[0] == pytest.approx(-600.0 + log_increment, rel=1e-12)


@pytest.mark.parametrize("latent", dt.latent.names())
@pytest.mark.parametrize("method", METHODS)
def test_other_latents_stay_finite_in_their_tails(method, latent):
    bound = {"logistic": 700.0, "normal": 700.0}.get(latent, 600.0)
    h = np.array([[-bound, bound], [-bound, -bound / 2], [bound / 2, bound], [-1.0, 1.0]])
    members = [
        DiscretePredictive.from_h(h, latent=latent),
        DiscretePredictive.from_h(h / 2 - 1, latent=latent),
    ]
    pooled = dt.pool(members, method=method)
    assert torch.isfinite(pooled.log_pmf_t()).all()


# -- certainty ---------------------------------------------------------------------------------------------


def proba(*rows):
    return dt.Predictive.from_proba(np.array(rows, dtype=float))


CERTAIN = [
    # method, weights, members (one row each), pooled probabilities
    ("linear", (0.5, 0.5), [(1, 0, 0), (0, 0, 1)], (0.5, 0, 0.5)),
    ("log-linear", (0.5, 0.5), [(1, 0, 0), (0, 0, 1)], (0, 0, 1)),
    ("log-linear", (0.9, 0.1), [(1, 0, 0), (0, 1, 0)], (0, 1, 0)),
    ("log-linear-density", (0.6, 0.4), [(1, 0, 0), (0, 0, 1)], (1, 0, 0)),
    ("log-linear-density", (0.5, 0.5), [(1, 0, 0), (0, 0, 1)], (0.5, 0, 0.5)),
    ("log-linear-density", (0.5, 0.5), [(0.5, 0.5, 0), (0, 0.1, 0.9)], (0, 1, 0)),
    ("transformation", (0.6, 0.4), [(1, 0, 0), (0, 0, 1)], (1, 0, 0)),
    ("transformation", (0.4, 0.6), [(1, 0, 0), (0, 0, 1)], (0, 0, 1)),
    ("transformation", (0.5, 0.5), [(1, 0, 0), (0, 0, 1)], (0.5, 0, 0.5)),
    ("transformation", (0.1, 0.9), [(0, 1, 0), (0.2, 0.3, 0.5)], (0, 1, 0)),
    ("transformation", (0.25, 0.25, 0.5), [(1, 0, 0), (0, 0, 1), (0.2, 0.6, 0.2)], (1 / 3, 1 / 3, 1 / 3)),
    (HARMONIC, (0.5, 0.5), [(1, 0, 0), (0, 0, 1)], (0, 0, 1)),
]


@pytest.mark.parametrize(("method", "weights", "members", "expected"), CERTAIN, ids=str)
@pytest.mark.parametrize("form", ["predictive", "array"])
def test_certain_and_contradicting_members(method, weights, members, expected, form):
    rows = [np.array([one], dtype=float) for one in members]
    given_as = np.stack(rows).cumsum(axis=2) if form == "array" else [proba(*row) for row in rows]
    pooled = dt.pool(given_as, method=method, weights=weights)
    np.testing.assert_allclose(pooled.pmf()[0], expected, atol=1e-12)
    np.testing.assert_allclose(pooled.cdf()[0], np.cumsum(expected), atol=1e-12)
    np.testing.assert_allclose(pooled.sf()[0], 1 - np.cumsum(expected), atol=1e-12)
    for value in (pooled.log_pmf_t(), pooled.log_cdf_t(), pooled.log_sf_t(), pooled.trafo_t()):
        assert not torch.isnan(value).any()


@pytest.mark.parametrize("method", EVERY_METHOD)
def test_any_mixture_of_certainty_gives_a_distribution(rng, method):
    raw = rng.choice([0.0, 0.0, 1.0, 2.0], size=(4, 2000, 5))
    raw[..., 2] += raw.sum(axis=2) == 0
    members = [dt.Predictive.from_proba(one / one.sum(axis=1, keepdims=True)) for one in raw]
    pooled = dt.pool(members, method=method, weights=[0.25, 0.25, 0.3, 0.2])
    pmf = pooled.pmf()
    assert not np.isnan(pmf).any()
    assert not np.isnan(pooled.trafo()).any()
    np.testing.assert_allclose(pmf.sum(axis=1), 1, rtol=1e-9)
    assert (np.diff(pooled.cdf(), axis=1) >= -1e-12).all()


# -- a pool is a full Predictive -----------------------------------------------------------------------------


@pytest.mark.parametrize("method", EVERY_METHOD)
def test_rows_labels_and_samples(rng, method):
    levels = ("low", "mid", "high")
    members = [dt.Predictive.from_proba(rng.dirichlet(np.ones(3), 20), levels=levels) for _ in range(3)]
    pooled = dt.pool(members, method=method)
    part = pooled[[3, 3, 7]]
    np.testing.assert_allclose(part.pmf(), pooled.pmf()[[3, 3, 7]], rtol=1e-14)
    assert part.pool_info == pooled.pool_info
    assert pooled.levels == levels
    assert len(pooled) == 20
    assert list(pooled.mode()) == [levels[k] for k in pooled.pmf().argmax(axis=1)]
    draws = pooled.sample(4000, random_state=1)
    np.testing.assert_allclose((draws == "mid").mean(axis=1), pooled.pmf()[:, 1], atol=0.05)
    np.testing.assert_allclose(pooled.hazard("mid"), pooled.pmf()[:, 1] / pooled.pmf()[:, 1:].sum(axis=1))
    assert pooled.quantile([0.0, 1.0]).shape == (20, 2)


@pytest.mark.parametrize("method", METHODS)
def test_gradients_flow_to_the_members(method):
    h = torch.tensor([[[-1.0, 0.5]], [[0.2, 30.0]]], dtype=torch.float64, requires_grad=True)
    members = [DiscretePredictive.from_h(one) for one in h]
    pooled = dt.pool(members, method=method)
    value = pooled.log_prob([1])
    assert isinstance(value, torch.Tensor)
    (gradient,) = torch.autograd.grad(value.sum(), h)
    step = 1e-6
    for index in itertools.product(range(2), [0], range(2)):
        moved = h.detach().clone()
        moved[index] += step
        up = dt.pool([DiscretePredictive.from_h(one) for one in moved], method=method).log_prob([1])
        assert float(gradient[index]) == pytest.approx(float(up - value.detach()) / step, abs=1e-5)


def test_float32_members_stay_float32_tensors():
    members = [DiscretePredictive.from_h(torch.zeros(2, 1)), DiscretePredictive.from_h(torch.ones(2, 1))]
    assert dt.pool(members).cdf().dtype == torch.float32


def test_the_latent_of_the_members_is_the_default():
    normal = DiscretePredictive.from_h(np.zeros((1, 1)), latent="normal")
    foreign = proba((0.2, 0.8))
    assert dt.pool([normal, foreign]).pool_info.latent == "normal"
    assert dt.pool([foreign, foreign]).pool_info.latent == "logistic"
    assert dt.pool([normal, foreign], method="linear").latent == dt.latent.get("normal")


# -- classes without an order ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def nominal():
    """Predictions of two models of three classes, and the same with the classes written in another order."""
    rng = np.random.default_rng(3)
    X, y = pd.DataFrame({"a": rng.normal(size=200)}), rng.integers(0, 3, 200)
    found = {}
    for order in ((0, 1, 2), (2, 0, 1)):
        model = dt.Tram([dt.SI(), dt.LS("a")], outcome="nominal", levels=list(order))
        models = [clone(model).fit(X[k::2], y[k::2]) for k in (0, 1)]
        found[order] = ([one.predict_distribution(X) for one in models], models)
    return X, y, found


def test_the_default_pool_of_classes_does_not_look_at_their_order(nominal):
    X, _, found = nominal
    (ours, models), (others, _) = found.values()
    pooled = dt.pool(ours)
    assert pooled.pool_info.method == "log-linear-density"
    np.testing.assert_allclose(pooled.pmf()[:, [2, 0, 1]], dt.pool(others).pmf(), atol=1e-6)
    np.testing.assert_allclose(pooled.pmf(), dt.Ensemble.from_members(models).predict_proba(X), atol=1e-12)
    asked = dt.pool(ours, latent="logistic")  # the scale of F, in the order of the levels
    assert asked.pool_info.method == "transformation"
    assert np.abs(asked.pmf() - pooled.pmf()).max() > 1e-4


def test_pools_of_classes_are_compared_without_an_order(nominal):
    _, y, found = nominal
    tables = [dt.compare_pools(members, y, nested=False) for members, _ in found.values()]
    for table in tables:
        assert set(table["pool"]) == {"linear", "log-linear-density"}
        assert set(table["correction"]) == {"none"}
        assert all("classes without an order" in reason for reason in table.attrs["left_out"].values())
    keys = ["pool", "weights"]
    ours, others = (table.set_index(keys)["score"].sort_index() for table in tables)
    np.testing.assert_allclose(ours, others, atol=1e-5)
    weights = [dt.tune_weights(members, y).weights for members, _ in found.values()]
    np.testing.assert_allclose(weights[0], weights[1], atol=1e-4)
