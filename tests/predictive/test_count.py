"""Distributions on the counts: laws of probability, sums, tails, censoring."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.special
import scipy.stats as st
import torch
from hypothesis import given, settings
from hypothesis import strategies as hs
from torch import distributions as td

from deeptram import latent as latents
from deeptram.bases import Bernstein, Linear, LogLinear
from deeptram.errors import InvalidInputError, UnsupportedError
from deeptram.predictive import CountPredictive, Predictive, TransformationCount, TransformationPredictive
from deeptram.responses import Observations, Surv, encode_count

N = 3
SHIFT = np.array([-0.5, 0.0, 1.0])
THETA = np.array([[-2.0, -1.0, 0.0, 1.5, 3.0]])


def transformation(latent, log_first):
    basis = Bernstein(4, (1.0, 9.0) if log_first else (0.0, 8.0), log_first)
    return TransformationCount(TransformationPredictive(basis, latent, THETA, SHIFT), int(log_first))


def double(values):
    return torch.tensor(values, dtype=torch.float64)


COUNTS = {
    **{f"{name} log": (transformation, name, True) for name in latents.names()},
    **{f"{name} plain": (transformation, name, False) for name in latents.names()},
    "scipy poisson": (lambda: Predictive.from_scipy(st.poisson([0.3, 2.0, 30.0])),),
    "scipy nbinom": (lambda: Predictive.from_scipy(st.nbinom([1, 3, 5], 0.4)),),
    "torch poisson": (lambda: Predictive.from_torch(td.Poisson(double([0.3, 2.0, 30.0]))),),
    "torch nbinom": (
        lambda: Predictive.from_torch(td.NegativeBinomial(double([1.0, 3.0, 5.0]), double([0.6] * 3))),
    ),
    "torch binomial": (lambda: Predictive.from_torch(td.Binomial(6, double([0.1, 0.5, 0.9]))),),
}
EVERY = pytest.mark.parametrize("name", COUNTS)


def build(name) -> CountPredictive:
    make, *arguments = COUNTS[name]
    return make(*arguments)


def array(value):
    return value.detach().numpy() if isinstance(value, torch.Tensor) else value


def table(pred, size=400):
    return array(pred.pmf_grid(np.arange(size)))


@EVERY
def test_laws_of_probability(name):
    pred = build(name)
    pmf, cdf = table(pred), array(pred.cdf_grid(np.arange(400)))
    np.testing.assert_allclose(pmf.cumsum(axis=1), cdf, rtol=1e-9, atol=1e-14)
    assert ((cdf >= 0) & (cdf <= 1 + 1e-15)).all()
    assert (np.diff(cdf, axis=1) >= -1e-15).all()
    for k in (0, 3, 7):
        np.testing.assert_allclose(array(pred.cdf(k)) + array(pred.sf(k)), 1.0, rtol=1e-12)
        with np.errstate(divide="ignore"):
            np.testing.assert_allclose(array(pred.log_prob(k)), np.log(pmf[:, k]), rtol=1e-9)
        np.testing.assert_array_equal(array(pred.cdf(k + 0.7)), array(pred.cdf(k)))
    assert (array(pred.cdf(-0.5)) == 0).all()
    assert (array(pred.sf(-3)) == 1).all()
    assert (array(pred.trafo(-1)) == -np.inf).all()
    np.testing.assert_allclose(array(pred.cdf(np.inf)), 1.0)


@EVERY
def test_trafo_on_every_scale(name):
    pred = build(name)
    k = double([[0.0, 1.0, 4.0]])
    for scale in map(latents.get, latents.names()):
        np.testing.assert_allclose(
            array(pred.trafo_t(k, scale)), scale.icdf(array(pred.cdf_grid([0, 1, 4]))), rtol=1e-9, atol=1e-9
        )
    np.testing.assert_allclose(array(pred.trafo_grid([0, 1, 4])), array(pred.trafo_t(k)))


@EVERY
def test_quantiles_are_the_smallest_counts(name):
    pred = build(name)
    cdf = array(pred.cdf_grid(np.arange(2000)))
    q = np.array([0.0, 1e-6, 0.1, 0.5, 0.9, 0.99])
    expected = np.stack([(cdf < level).sum(axis=1) for level in q], axis=1)
    np.testing.assert_array_equal(array(pred.quantile(q)), expected)
    for k in (0, 1, 2, 5):  # the quantile of F(k) is k
        exact = array(pred.quantile_t(torch.tensor(cdf[:, [k]])))[:, 0]
        np.testing.assert_array_equal(exact[cdf[:, k] > cdf[:, max(k - 1, 0)]], k)
    generic = CountPredictive.quantile_t(pred, torch.tensor(q))
    np.testing.assert_array_equal(array(generic), expected)


@EVERY
def test_mean_mode_and_crps_against_sums(name):
    pred = build(name)
    size = 20_000
    k = np.arange(size)
    pmf = table(pred, size)
    cdf = array(pred.cdf_grid(k))
    y = np.array([0, 2, 9])
    # Tails beyond the table are negligible except for 1/k^a ones, which have their own test.
    rtol = 1e-9 if cdf[:, -1].min() > 1 - 1e-12 else 2e-3
    np.testing.assert_allclose(
        array(pred.mean()), pmf @ k, rtol=max(rtol, 1e-9) * (1 if rtol < 1e-3 else 100)
    )
    np.testing.assert_allclose(array(pred.crps(y)), ((cdf - (k >= y[:, None])) ** 2).sum(axis=1), rtol=rtol)
    np.testing.assert_allclose(
        np.take_along_axis(pmf, array(pred.mode()).astype(int)[:, None], axis=1)[:, 0],
        pmf.max(axis=1),
        rtol=1e-12,
    )


@EVERY
def test_hazards(name):
    pred = build(name)
    for t in (0, 1, 5):
        at_risk = array(pred.sf(t - 1))
        np.testing.assert_allclose(array(pred.hazard(t)), array(pred.pmf(t)) / at_risk, rtol=1e-9)
        np.testing.assert_allclose(
            array(pred.cumhazard(t)), -np.log(array(pred.sf(t))), rtol=1e-9, atol=1e-15
        )


@EVERY
def test_censored_counts(name):
    pred = build(name)
    pmf = table(pred)
    y = Surv.interval([1, 2, -np.inf], [4, 2, 3])
    expected = np.log([pmf[0, 2:5].sum(), pmf[1, 2], pmf[2, :4].sum()])
    np.testing.assert_allclose(array(pred.log_prob(y)), expected, rtol=1e-8)
    right = Surv.interval([1, 2, 3], [np.inf] * 3, entry=[0, 1, -np.inf])
    expected = np.log(
        [array(pred.sf(1))[0] / array(pred.sf(0))[0], array(pred.sf(2))[1] / array(pred.sf(1))[1]]
    )
    np.testing.assert_allclose(array(pred.log_prob(right))[:2], expected, rtol=1e-8)


@pytest.mark.parametrize("log_first", [False, True])
def test_observations_are_on_the_scale_of_h(log_first):
    pred = transformation("logistic", log_first)
    y = np.array([0, 3, 6])
    np.testing.assert_array_equal(pred.log_prob(encode_count(y, log_first)), pred.log_prob(y))
    shifted = Observations(y + float(log_first), y + float(log_first))
    np.testing.assert_allclose(pred.log_prob(shifted), pred.log_prob(y))


@EVERY
def test_slicing_and_samples(name):
    pred = build(name)
    part = pred[[2, 0, 2]]
    np.testing.assert_allclose(array(part.pmf([3, 1, 4])), table(pred)[[2, 0, 2], [3, 1, 4]], rtol=1e-10)
    np.testing.assert_allclose(array(part.mean()), array(pred.mean())[[2, 0, 2]])
    assert len(pred[array(pred.cdf(0)) > 2]) == 0
    draws = array(pred.sample(20_000, random_state=5))
    assert draws.shape == (N, 20_000)
    shares = np.stack([(draws == k).mean(axis=1) for k in range(5)], axis=1)
    np.testing.assert_allclose(shares, table(pred)[:, :5], atol=0.017)


@pytest.mark.parametrize("latent", latents.names())
def test_extreme_h(latent):
    line = TransformationPredictive(Linear(), latent, np.array([[0.0, 1.0]]), np.array([700.0, -690.0]))
    pred = TransformationCount(line)
    got = np.concatenate([pred.log_prob(k) for k in (0, 1, 5)])
    assert np.isfinite(got).all()


@settings(max_examples=20)
@given(slope=hs.floats(1.3, 4.0), y=hs.integers(0, 10**4), location=hs.floats(-3.0, 3.0))
def test_heavy_tailed_sums(slope, y, location):
    r"""P(Y > k) = 1 / (1 + e^c (k + 1)^a): the tail of the sum by the Hurwitz zeta function."""
    line = TransformationPredictive(LogLinear(), "logistic", np.array([[location, slope]]))
    pred = TransformationCount(line, offset=1)
    size = 200_000
    k = np.arange(size) + 1.0
    survivor = scipy.special.expit(-(location + slope * np.log(k)))
    # Beyond the table 1/(1 + x) = 1/x - 1/x^2 + ...
    tail = [
        (-1) ** (j + 1) * np.exp(-j * location) * scipy.special.zeta(j * slope, size + 1.0) for j in (1, 2, 3)
    ]
    assert pred.mean()[0] == pytest.approx(survivor.sum() + sum(tail), rel=1e-9)
    error = np.where(np.arange(size) < y, 1 - survivor, survivor)
    squares = [
        np.exp(-2 * location) * scipy.special.zeta(2 * slope, size + 1.0),
        -2 * np.exp(-3 * location) * scipy.special.zeta(3 * slope, size + 1.0),
    ]
    assert pred.crps(y)[0] == pytest.approx((error**2).sum() + sum(squares), rel=1e-9)


def test_infinite_means():
    line = TransformationPredictive(LogLinear(), "logistic", np.array([[0.0, 1.0], [0.0, 0.4], [0.0, 3.0]]))
    pred = TransformationCount(line, offset=1)
    assert np.isinf(pred.mean()).tolist() == [True, True, False]
    assert np.isinf(pred.crps(2)).tolist() == [False, True, False]


def test_flat_tail_is_never_reached():
    line = TransformationPredictive(Bernstein(2, (0.0, 5.0)), "logistic", np.array([[-1.0, 1.0, 1.0]]))
    pred = TransformationCount(line)
    assert pred.quantile(0.9)[0] == np.inf
    assert np.isinf(pred.mean()[0])
    assert pred.mode()[0] == 0
    assert pred.pmf(9)[0] == 0


def test_gradients():
    theta = double(THETA.tolist()).requires_grad_(True)
    shift = double(SHIFT.tolist()).requires_grad_(True)

    def value(theta, shift):
        basis = Bernstein(4, (1.0, 9.0), log_first=True)
        pred = TransformationCount(TransformationPredictive(basis, "logistic", theta, shift), 1)
        return torch.cat([pred.log_prob([0, 3, 20]), pred.cdf(2), pred.crps([1, 2, 3])])

    assert torch.autograd.gradcheck(value, (theta, shift), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda p: p.pmf(), InvalidInputError, r"y must be a number or one value per row .* got None"),
        (lambda p: p.log_prob([1, 2]), InvalidInputError, r"shape \(3,\), got shape \(2,\)"),
        (
            lambda p: p.log_prob([0, -1, 2]),
            InvalidInputError,
            r"counts must not be negative, got -1 in row 1",
        ),
        (lambda p: p.crps([0, 0.5, 2]), InvalidInputError, r"counts must be whole numbers, got 0.5 in row 1"),
        (lambda p: p.pdf(1), UnsupportedError, r"pdf is for continuous outcomes"),
        (
            lambda p: p.log_prob(Surv.interval([1.0], [2.0])),
            InvalidInputError,
            r"y must have one value per row, got 1 for 3 rows",
        ),
    ],
)
def test_messages(call, error, match):
    with pytest.raises(error, match=match):
        call(build("logistic log"))


def test_sums_that_are_too_long_are_refused():
    pred = Predictive.from_scipy(st.zipf([1.5, 4.0]))
    with pytest.raises(UnsupportedError, match=r"more than 1048576 terms in row 0; use quantiles"):
        pred.crps([1, 1])
