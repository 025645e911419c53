"""torch.distributions as predictives: tails, supports, gradients."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats as st
import torch
from torch import distributions as td

from deeptram.errors import InvalidInputError, InvalidTypeError, UnsupportedError
from deeptram.predictive import CountPredictive, DiscretePredictive, Predictive


def double(*values):
    tensors = [torch.tensor(v, dtype=torch.float64) for v in values]
    return tensors[0] if len(tensors) == 1 else tensors


def logistic(loc, scale):
    base = td.Uniform(torch.zeros_like(loc), torch.ones_like(loc))
    return td.TransformedDistribution(base, [td.SigmoidTransform().inv, td.AffineTransform(loc, scale)])


LOC, SCALE = double([0.0, 1.0], [1.0, 2.0])
PAIRS = {
    "normal": (td.Normal(LOC, SCALE), st.norm([0.0, 1.0], [1.0, 2.0])),
    "laplace": (td.Laplace(LOC, SCALE), st.laplace([0.0, 1.0], [1.0, 2.0])),
    "cauchy": (td.Cauchy(LOC, SCALE), st.cauchy([0.0, 1.0], [1.0, 2.0])),
    "gumbel": (td.Gumbel(LOC, SCALE), st.gumbel_r([0.0, 1.0], [1.0, 2.0])),
    "logistic": (logistic(LOC, SCALE), st.logistic([0.0, 1.0], [1.0, 2.0])),
    "exponential": (td.Exponential(SCALE), st.expon(scale=[1.0, 0.5])),
    "weibull": (td.Weibull(SCALE, SCALE + 0.5), st.weibull_min([1.5, 2.5], scale=[1.0, 2.0])),
    "pareto": (td.Pareto(SCALE, SCALE + 1), st.pareto([2.0, 3.0], scale=[1.0, 2.0])),
    "lognormal": (td.LogNormal(LOC, SCALE), st.lognorm([1.0, 2.0], scale=np.exp([0.0, 1.0]))),
    "half normal": (td.HalfNormal(SCALE), st.halfnorm(scale=[1.0, 2.0])),
    "uniform": (td.Uniform(LOC, LOC + SCALE), st.uniform([0.0, 1.0], [1.0, 2.0])),
    "gamma": (td.Gamma(SCALE, SCALE), st.gamma([1.0, 2.0], scale=[1.0, 0.5])),
    "shifted exponential": (
        td.TransformedDistribution(td.Exponential(SCALE), [td.AffineTransform(LOC, 1.0)]),
        st.expon([0.0, 1.0], [1.0, 0.5]),
    ),
    "mirrored gumbel": (
        td.TransformedDistribution(td.Gumbel(-LOC, SCALE), [td.AffineTransform(0.0, -1.0)]),
        st.gumbel_l([0.0, 1.0], [1.0, 2.0]),
    ),
}
EVERY = pytest.mark.parametrize("name", PAIRS)


@EVERY
@pytest.mark.parametrize("y", [-3.0, 0.0, 0.4, 1.2, 2.5, 30.0])
def test_agrees_with_scipy(name, y):
    distribution, reference = PAIRS[name]
    pred = Predictive.from_torch(distribution)
    with np.errstate(divide="ignore"):
        np.testing.assert_allclose(pred.cdf(y).numpy(), reference.cdf(y), rtol=1e-9, atol=1e-15)
        np.testing.assert_allclose(pred.sf(y).numpy(), reference.sf(y), rtol=1e-9, atol=1e-15)
        np.testing.assert_allclose(pred.log_prob(y).numpy(), reference.logpdf(y), rtol=1e-9, atol=1e-12)


@EVERY
def test_quantiles_and_means(name):
    distribution, reference = PAIRS[name]
    pred = Predictive.from_torch(distribution)
    q = np.array([1e-9, 0.2, 0.999])
    np.testing.assert_allclose(pred.quantile(q).numpy(), reference.ppf(q[:, None]).T, rtol=1e-7)
    if name == "cauchy":
        with pytest.raises(
            UnsupportedError, match="a distribution with two heavy tails has no mean, got row"
        ):
            pred.mean()
        return
    np.testing.assert_allclose(pred.mean().numpy(), reference.mean(), rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize(
    ("name", "y", "log_sf"),
    [
        ("normal", 40.0, st.norm.logsf(40.0)),
        ("logistic", 50.0, -50.0),
        ("laplace", 60.0, -60.0 - np.log(2)),
        ("gumbel", 60.0, -60.0),
        ("exponential", 800.0, -800.0),
        ("weibull", 900.0, -27000.0),
        ("lognormal", 1e20, st.norm.logsf(20 * np.log(10))),
        ("half normal", 40.0, st.norm.logsf(40.0) + np.log(2)),
        ("cauchy", 1e20, np.log(1e-20 / np.pi)),
    ],
)
def test_upper_tails_are_not_lost(name, y, log_sf):
    pred = Predictive.from_torch(PAIRS[name][0])
    assert -pred.cumhazard(y)[0].item() == pytest.approx(log_sf, rel=1e-10)
    assert torch.isfinite(pred.log_prob(y)[0])


def test_mixture_tails():
    weights, centres = double([[0.3, 0.7]]), double([[0.0, 5.0]])
    pred = Predictive.from_torch(td.MixtureSameFamily(td.Categorical(weights), td.Normal(centres, 1.0)))
    expected = np.log(0.7) + st.norm.logsf(40.0)
    assert -pred.cumhazard(45.0)[0].item() == pytest.approx(expected, rel=1e-9)


def test_gradients():
    loc, scale = (t.clone().requires_grad_(True) for t in double([0.3, -0.4], [1.0, 2.0]))
    y = double([0.1, 2.0])

    def value(loc, scale):
        pred = Predictive.from_torch(td.Normal(loc, scale))
        return torch.cat(
            [pred.log_prob(y), pred.crps(y), pred.quantile(0.2), pred.mean(), pred[[1, 1]].cdf(0.5)]
        )

    assert torch.autograd.gradcheck(value, (loc, scale))


def test_float32_is_torchs_default():
    pred = Predictive.from_torch(td.Normal(torch.zeros(2), 1.0))
    assert pred.cdf(0.0).dtype == torch.float32
    np.testing.assert_allclose(pred.crps(0.0).numpy(), 0.2336950, rtol=1e-4)


def test_scalar_batch():
    assert len(Predictive.from_torch(td.Normal(0.0, 1.0))) == 1


def test_discrete_distributions():
    logits = double([[0.0, 1.0, 2.0], [3.0, 1.0, 0.0]])
    for distribution in (td.Categorical(logits=logits), td.OneHotCategorical(logits=logits)):
        pred = Predictive.from_torch(distribution)
        assert isinstance(pred, DiscretePredictive)
        assert pred.levels == (0, 1, 2)
        torch.testing.assert_close(pred.pmf(), torch.softmax(logits, dim=1))
    binary = Predictive.from_torch(td.Bernoulli(logits=double([800.0, -2.0])))
    assert binary.log_prob([0, 1])[0].item() == -800.0
    assert binary.latent.name == "logistic"


@pytest.mark.parametrize(
    ("distribution", "reference"),
    [
        (td.Poisson(double([0.4, 40.0])), st.poisson([0.4, 40.0])),
        (td.Geometric(double([0.2, 0.6])), st.nbinom(1, [0.2, 0.6])),
        (td.NegativeBinomial(double([2.0, 5.0]), double([0.3, 0.6])), st.nbinom([2.0, 5.0], [0.7, 0.4])),
        (td.Binomial(10, double([0.2, 0.9])), st.binom(10, [0.2, 0.9])),
    ],
    ids=["poisson", "geometric", "negative binomial", "binomial"],
)
def test_counts_agree_with_scipy(distribution, reference):
    pred = Predictive.from_torch(distribution)
    assert isinstance(pred, CountPredictive)
    for k in (0, 1, 7, 30):
        np.testing.assert_allclose(pred.cdf(k).numpy(), reference.cdf(k), rtol=1e-10)
        np.testing.assert_allclose(pred.sf(k).numpy(), reference.sf(k), rtol=1e-9, atol=1e-300)
        np.testing.assert_allclose(pred.pmf(k).numpy(), reference.pmf(k), rtol=1e-10, atol=1e-300)
    np.testing.assert_allclose(pred.mean().numpy(), reference.mean())
    np.testing.assert_array_equal(pred[[1, 0, 1]].quantile(0.3).numpy(), reference.ppf(0.3)[[1, 0, 1]])


@pytest.mark.parametrize(
    ("distribution", "error", "match"),
    [
        ("normal", InvalidTypeError, r"from_torch needs a torch.distributions object, got str; build one"),
        (
            td.StudentT(double([3.0])),
            UnsupportedError,
            r"a distribution with a CDF, got StudentT, .* use from_scipy",
        ),
        (
            td.Normal(torch.zeros(2, 2), 1.0),
            InvalidInputError,
            r"must have batch shape \(n,\) and scalar events, got",
        ),
        (
            td.MultivariateNormal(torch.zeros(2), torch.eye(2)),
            InvalidInputError,
            r"event shape \(2,\); build one scalar distribution per row",
        ),
        (
            td.Categorical(logits=torch.zeros(2, 2, 3)),
            InvalidInputError,
            r"got parameters of shape \(2, 2, 3\)",
        ),
        (
            td.Normal(double([0.0, np.nan]), 1.0, validate_args=False),
            InvalidInputError,
            r"the CDF is NaN in row 1; correct these parameters",
        ),
    ],
)
def test_messages(distribution, error, match):
    with pytest.raises(error, match=match):
        Predictive.from_torch(distribution)


def test_tables_that_do_not_fit_are_refused():
    pred = Predictive.from_torch(td.Poisson(double([1e8])))
    with pytest.raises(UnsupportedError, match=r"do not fit in memory for 1 rows; use from_scipy"):
        pred.cdf(10)
