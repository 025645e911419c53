"""SciPy distributions as predictives."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats as st
import torch

from deeptram.errors import InvalidInputError, InvalidTypeError
from deeptram.predictive import CountPredictive, DiscretePredictive, LinePredictive, Predictive

NEW = hasattr(st, "Normal")


def test_vector_and_scalar_parameters():
    pred = Predictive.from_scipy(st.norm(loc=[0.0, 1.0, 2.0], scale=2.0))
    assert isinstance(pred, LinePredictive)
    assert len(pred) == 3
    np.testing.assert_allclose(pred.cdf([0.0, 1.0, 2.0]), 0.5)
    assert len(Predictive.from_scipy(st.norm())) == 1
    assert Predictive.from_scipy(st.norm()).latent is None


@pytest.mark.parametrize(
    "frozen",
    [
        st.norm([0.0, 3.0], 2.0),
        st.gamma([0.5, 3.0]),
        st.t([3.0, 9.0]),
        st.beta([2.0, 3.0], 4.0),
        st.lognorm([1.0, 0.5]),
    ],
    ids=lambda f: f.dist.name,
)
def test_every_method_is_scipys(frozen):
    pred, y = Predictive.from_scipy(frozen), np.array([0.2, 0.7])
    np.testing.assert_allclose(pred.cdf(y), frozen.cdf(y), rtol=1e-12)
    np.testing.assert_allclose(pred.sf(y), frozen.sf(y), rtol=1e-12)
    np.testing.assert_allclose(pred.pdf(y), frozen.pdf(y), rtol=1e-12)
    np.testing.assert_allclose(
        pred.quantile([0.1, 0.9]), np.stack([frozen.ppf(0.1), frozen.ppf(0.9)], axis=1)
    )
    np.testing.assert_allclose(pred.mean(), frozen.mean())
    lower, upper = pred.support_t()
    np.testing.assert_array_equal(
        torch.cat([lower, upper], dim=1), np.stack(np.broadcast_arrays(*frozen.support()), 1)
    )


def test_accurate_tails():
    pred = Predictive.from_scipy(st.norm([0.0], 1.0))
    assert pred.log_sf_t(torch.tensor([[40.0]], dtype=torch.float64)).item() == pytest.approx(-804.608442)
    assert pred.hazard(40.0)[0] == pytest.approx(40.02496, rel=1e-6)


@pytest.mark.skipif(not NEW, reason="needs the distribution objects of SciPy 1.15")
def test_new_style_distributions():
    mu = np.array([0.0, 1.0, 2.0])
    pred = Predictive.from_scipy(st.Normal(mu=mu, sigma=2.0))
    old = Predictive.from_scipy(st.norm(mu, 2.0))
    np.testing.assert_allclose(pred.log_prob(0.3), old.log_prob(0.3), rtol=1e-12)
    np.testing.assert_allclose(pred.crps(0.3), old.crps(0.3), rtol=1e-9)
    np.testing.assert_allclose(pred[[2, 2]].quantile(0.1), old[[2, 2]].quantile(0.1), rtol=1e-9)
    mixed = Predictive.from_scipy(st.Mixture([st.Normal(mu=0.0), st.Normal(mu=3.0)], weights=[0.5, 0.5]))
    assert mixed.cdf(1.5)[0] == pytest.approx(0.5)


@pytest.mark.skipif(not hasattr(st, "Binomial"), reason="needs a newer SciPy")
def test_new_style_counts():
    pred = Predictive.from_scipy(st.Binomial(n=5, p=np.array([0.3, 0.5])))
    assert isinstance(pred, CountPredictive)
    np.testing.assert_allclose(pred.pmf(2), st.binom(5, [0.3, 0.5]).pmf(2))


def test_counts_and_bernoulli():
    counts = Predictive.from_scipy(st.poisson([1.0, 2.0]))
    assert isinstance(counts, CountPredictive)
    np.testing.assert_allclose(counts.crps([0, 3]), [st_crps(1.0, 0), st_crps(2.0, 3)], rtol=1e-10)
    binary = Predictive.from_scipy(st.bernoulli([0.2, 0.7]))
    assert isinstance(binary, DiscretePredictive)
    assert binary.levels == (0, 1)
    np.testing.assert_allclose(binary.pmf(1), [0.2, 0.7])


def st_crps(rate, y):
    k = np.arange(200)
    return ((st.poisson(rate).cdf(k) - (k >= y)) ** 2).sum()


@pytest.mark.parametrize(
    ("distribution", "error", "match"),
    [
        (
            st.norm,
            InvalidTypeError,
            r"from_scipy needs a frozen SciPy distribution, got norm_gen; call the distribution",
        ),
        (3.0, InvalidTypeError, r"from_scipy needs a frozen SciPy distribution, got float"),
        (st.norm(np.zeros((2, 2))), InvalidInputError, r"vectors of length n, got a batch of shape \(2, 2\)"),
        (
            st.norm([0.0, 1.0], [1.0, -1.0]),
            InvalidInputError,
            r"SciPy's CDF is NaN in row 1; correct these parameters",
        ),
        (
            st.skellam([1.0, 2.0], 1.0),
            InvalidInputError,
            r"must start at 0 or above, got negative values possible in rows 0, 1",
        ),
    ],
)
def test_messages(distribution, error, match):
    with pytest.raises(error, match=match):
        Predictive.from_scipy(distribution)


def test_parameters_that_are_no_numbers_are_refused():
    with pytest.raises(InvalidInputError, match="the parameters must be numbers, got some SciPy cannot"):
        Predictive.from_scipy(st.norm(np.array([1.0, None], dtype=object), 1.0))


def test_rows_ask_scipy_about_themselves_alone():
    asked = []

    class Uniform(st.rv_continuous):
        def _cdf(self, x, width):
            asked.append(np.size(x))
            return x / width

        def _argcheck(self, width):
            return width > 0

    widths = np.linspace(2.0, 9.0, 50)
    whole = Predictive.from_scipy(Uniform(a=0.0, b=1.0)(widths, loc=0.5, scale=2.0))
    asked.clear()
    some = whole[[3, 3, 40]]
    np.testing.assert_allclose(some.cdf(1.0), 0.25 / widths[[3, 3, 40]])
    assert max(asked) <= 3
    np.testing.assert_array_equal(some[1:].cdf(1.0), whole.cdf(1.0)[[3, 40]])
    assert len(whole[:0][:0]) == 0
