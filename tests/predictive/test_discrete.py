"""Distributions on ordered levels: laws of probability, extremes, gradients, labels."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as hs
from hypothesis.extra import numpy as hnp

from deeptram import latent as latents
from deeptram.errors import InvalidInputError, UnknownNameError, UnsupportedError
from deeptram.predictive import DiscretePredictive, Predictive

N, K = 5, 4
LEVELS = ("none", "mild", "severe", "fatal")


def h_values(seed=0, spread=2.0):
    rng = np.random.default_rng(seed)
    return np.sort(rng.normal(0, spread, (N, K - 1)), axis=1)


def proba(seed=0):
    return np.random.default_rng(seed).dirichlet(np.ones(K), size=N)


def with_gaps(seed=0):
    h = h_values(seed)
    return DiscretePredictive.from_h(h, np.log(np.diff(h, axis=1)), levels=LEVELS, latent="normal")


FORMS = {
    **{
        f"h {name}": (lambda name=name: DiscretePredictive.from_h(h_values(), levels=LEVELS, latent=name))
        for name in latents.names()
    },
    "h with gaps": with_gaps,
    "proba": lambda: Predictive.from_proba(proba(), LEVELS),
    "cdf": lambda: Predictive.from_cdf(proba().cumsum(axis=1), LEVELS),
    "log pmf": lambda: DiscretePredictive.from_log_pmf(np.log(proba()), levels=LEVELS),
    "inner cdf": lambda: DiscretePredictive.from_inner_cdf(proba().cumsum(axis=1)[:, :-1], levels=LEVELS),
    "binary": lambda: Predictive.from_proba(
        np.column_stack([1 - proba()[:, 0], proba()[:, 0]]), ("no", "yes")
    ),
}
EVERY = pytest.mark.parametrize("name", FORMS)


@EVERY
def test_laws_of_probability(name):
    pred = FORMS[name]()
    cdf, sf, pmf = pred.cdf(), pred.sf(), pred.pmf()
    assert cdf.shape == (N, len(pred.levels))
    assert (cdf[:, -1] == 1).all()
    assert (sf[:, -1] == 0).all()
    assert ((cdf >= 0) & (cdf <= 1) & (sf >= 0) & (sf <= 1)).all()
    assert (np.diff(cdf, axis=1) >= 0).all()
    np.testing.assert_allclose(cdf + sf, 1.0, rtol=1e-12)
    np.testing.assert_allclose(pmf.sum(axis=1), 1.0, rtol=1e-12)
    np.testing.assert_allclose(pmf.cumsum(axis=1), cdf, rtol=1e-10)


@EVERY
def test_values_at_levels(name):
    pred = FORMS[name]()
    n_levels = len(pred.levels)
    codes = np.arange(N) % n_levels
    y = np.array(pred.levels)[codes]
    rows = np.arange(N)
    for method in ("cdf", "sf", "pmf"):
        full = getattr(pred, method)()
        np.testing.assert_array_equal(getattr(pred, method)(y), full[rows, codes])
        np.testing.assert_array_equal(getattr(pred, method)(pred.levels[0]), full[:, 0])
    np.testing.assert_allclose(pred.log_prob(y), np.log(pred.pmf()[rows, codes]), rtol=1e-12)
    at_risk = np.column_stack([np.ones(N), pred.sf()[:, :-1]])
    np.testing.assert_allclose(pred.hazard(y), (pred.pmf() / at_risk)[rows, codes], rtol=1e-10)
    with np.errstate(divide="ignore"):
        np.testing.assert_allclose(pred.cumhazard(y), -np.log(pred.sf()[rows, codes]), rtol=1e-10, atol=1e-15)
    np.testing.assert_array_equal(pred.cdf_grid(list(pred.levels[:2])), pred.cdf()[:, :2])
    h = pred.trafo()
    np.testing.assert_array_equal(pred.trafo(pred.levels[0]), h[:, 0])
    assert np.isposinf(pred.trafo(pred.levels[-1])).all()


@EVERY
@pytest.mark.parametrize("latent", latents.names())
def test_trafo_and_gaps_on_every_scale(name, latent):
    pred, scale = FORMS[name](), latents.get(latent)
    h = pred.trafo_t(scale).numpy()
    np.testing.assert_allclose(h, scale.icdf(pred.cdf()[:, :-1]), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(
        np.exp(pred.log_increments_t(scale).numpy()), np.diff(h, axis=1), rtol=1e-9, atol=1e-12
    )


@EVERY
def test_quantile_mode_crps(name):
    pred = FORMS[name]()
    levels, cdf = np.array(pred.levels), pred.cdf()
    q = np.linspace(0.0, 1.0, 21)
    expected = levels[(cdf[:, :-1, None] < q).sum(axis=1)]
    np.testing.assert_array_equal(pred.quantile(q), expected)
    np.testing.assert_array_equal(pred.median(), pred.quantile(0.5))
    for code, level in enumerate(pred.levels[:-1]):  # the quantile of F(y) is y
        np.testing.assert_array_equal(pred.quantile(cdf[0, code])[0], level)
    np.testing.assert_array_equal(pred.mode(), levels[pred.pmf().argmax(axis=1)])
    codes = np.arange(N) % len(levels)
    step = np.arange(len(levels)) >= codes[:, None]
    np.testing.assert_allclose(pred.crps(levels[codes]), ((cdf - step) ** 2).sum(axis=1), rtol=1e-9)


@EVERY
def test_sample_frequencies(name):
    pred = FORMS[name]()
    draws = pred.sample(20_000, random_state=3)
    shares = np.stack([(draws == level).mean(axis=1) for level in pred.levels], axis=1)
    error = np.sqrt(pred.pmf() * (1 - pred.pmf()) / 20_000)
    assert (np.abs(shares - pred.pmf()) < 4.5 * error + 1e-12).all()
    np.testing.assert_array_equal(draws, pred.sample(20_000, random_state=3))


@EVERY
@pytest.mark.parametrize(
    "rows", [slice(1, 4), [4, 0, 4], np.arange(N) > 2, torch.tensor([1, 2]), -1, []], ids=str
)
def test_slicing(name, rows):
    pred = FORMS[name]()
    index = np.atleast_1d(np.arange(N)[slice(0) if isinstance(rows, list) and not rows else rows])
    part = pred[rows]
    assert len(part) == len(index)
    np.testing.assert_array_equal(part.cdf(), pred.cdf()[index])
    np.testing.assert_array_equal(part.pmf(), pred.pmf()[index])
    np.testing.assert_array_equal(part.trafo(), pred.trafo()[index])


@pytest.mark.parametrize("latent", latents.names())
@given(h=hnp.arrays(float, (3, 4), elements=hs.floats(-30, 30)))
def test_pmf_sums_to_one_for_any_h(latent, h):
    pred = DiscretePredictive.from_h(np.sort(h, axis=1), latent=latent)
    np.testing.assert_allclose(pred.pmf().sum(axis=1), 1.0, rtol=1e-9)
    assert (np.diff(pred.cdf(), axis=1) >= 0).all()


@pytest.mark.parametrize("latent", latents.names())
@pytest.mark.parametrize("middle", [-699.0, -50.0, 50.0, 699.0])
def test_extreme_h_gives_finite_log_probabilities(latent, middle):
    pred = DiscretePredictive.from_h(np.array([[middle - 1, middle + 1]]), latent=latent)
    got = np.concatenate([pred.log_prob([k]) for k in range(3)])
    assert np.isfinite(got).all()
    if latent == "logistic":
        with mpmath.workdps(400):
            low, high = (1 / (1 + mpmath.exp(-mpmath.mpf(x))) for x in (middle - 1, middle + 1))
            exact = [float(mpmath.log(p)) for p in (low, high - low, 1 - high)]
        np.testing.assert_allclose(got, exact, rtol=1e-13, atol=1e-300)


def test_naive_route_loses_these_probabilities():
    h = np.array([[698.0, 700.0]])
    cdf = 1 / (1 + np.exp(-h))
    assert cdf[0, 1] - cdf[0, 0] == 0
    assert DiscretePredictive.from_h(h).log_prob([1])[0] == pytest.approx(-698.1454, abs=1e-3)


@pytest.mark.parametrize("latent", latents.names())
def test_infinite_h_means_empty_levels(latent):
    pred = DiscretePredictive.from_h(np.array([[-np.inf, -np.inf, 0.0, np.inf]]), latent=latent)
    pmf = pred.pmf()[0]
    assert pmf[0] == pmf[1] == pmf[4] == 0
    assert pmf[2] + pmf[3] == pytest.approx(1.0)
    assert pred.log_prob([0])[0] == -np.inf
    assert not np.isnan(pred.trafo()).any()
    assert not np.isnan(pred.log_increments_t().numpy()).any()


def test_carried_gaps_save_narrow_classes():
    """An increment of 1e-20 vanishes in h itself, not in its logarithm."""
    h = np.array([[5.0, 5.0 + 1e-20]])
    kept = DiscretePredictive.from_h(h, np.log([[1e-20]]), latent="logistic")
    assert kept.log_prob([1])[0] == pytest.approx(
        np.log(1e-20) + latents.get("logistic").log_pdf(5.0), rel=1e-12
    )
    assert DiscretePredictive.from_h(h).log_prob([1])[0] == -np.inf


@pytest.mark.parametrize("latent", latents.names())
def test_gradients(latent):
    h = torch.tensor(h_values()[:2], requires_grad=True)
    codes = [0, 2]

    def value(h):
        pred = DiscretePredictive.from_h(h, latent=latent)
        return torch.cat(
            [pred.log_prob(codes), pred.cdf().flatten(), pred.crps(codes), pred.trafo().flatten()]
        )

    assert torch.autograd.gradcheck(value, (h,))


def test_log_probabilities_near_one_are_taken_from_the_other_tail():
    pred = DiscretePredictive.from_log_pmf(np.log([[0.3, 0.7, 1e-20]]))
    assert pred.log_cdf_t()[0, 1].item() == pytest.approx(-1e-20, rel=1e-12, abs=0)
    many = np.log(np.random.default_rng(0).dirichlet(np.ones(30), size=500))
    held = DiscretePredictive.from_log_pmf(many)
    assert (held.log_cdf_t() <= 0).all()
    assert (held.log_sf_t() <= 0).all()


def test_gradients_of_log_probabilities_with_an_impossible_class():
    logits = torch.tensor([[0.0, 1.0, -torch.inf, 0.5]], dtype=torch.float64)
    free = logits.clone().requires_grad_(True)
    pred = DiscretePredictive.from_log_pmf(torch.log_softmax(free, dim=1))
    (pred.log_prob([1]) + pred.crps([0])).sum().backward()
    assert torch.isfinite(free.grad[0, [0, 1, 3]]).all()


def test_tensors_in_tensors_out():
    pred = DiscretePredictive.from_h(torch.tensor(h_values()))
    for value in (pred.cdf(), pred.pmf(), pred.log_prob([0] * N), pred.crps([1] * N), pred.mean()):
        assert isinstance(value, torch.Tensor)
    assert DiscretePredictive.from_h(torch.zeros(2, 1, dtype=torch.float32)).cdf().dtype == torch.float32


def test_labels_keep_their_type():
    numbers = Predictive.from_proba([[0.1, 0.2, 0.7]], levels=[10, 20, 30])
    assert numbers.mode().tolist() == [30]
    assert numbers.mean()[0] == pytest.approx(26.0)
    mixed = Predictive.from_proba([[0.1, 0.9]], levels=[1, "many"])
    assert mixed.mode().tolist() == ["many"]
    assert Predictive.from_proba([[0.9, 0.1]], levels=[False, True]).mean()[0] == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (
            lambda p: p.log_prob(["mild"]),
            InvalidInputError,
            r"y must have one value per row, got 1 for 5 rows",
        ),
        (
            lambda p: p.log_prob(["unknown"] * N),
            UnknownNameError,
            r"one of the levels .* got 'unknown' in rows 0, 1",
        ),
        (
            lambda p: p.quantile(-0.1),
            InvalidInputError,
            r"q must be a number or a vector of numbers between 0 and 1",
        ),
        (
            lambda p: p.mean(),
            UnsupportedError,
            r"mean needs numeric levels, got \['none', 'mild', 'severe'\]",
        ),
        (
            lambda p: p.pdf(1.0),
            UnsupportedError,
            r"pdf is for continuous outcomes, got a DiscretePredictive; use pmf",
        ),
        (
            lambda p: DiscretePredictive(levels=LEVELS, latent=None, numpy=True).cdf(),
            UnsupportedError,
            r"a discrete distribution needs h, a CDF or log-probabilities, got none",
        ),
    ],
)
def test_messages(call, error, match):
    with pytest.raises(error, match=match):
        call(FORMS["proba"]())
