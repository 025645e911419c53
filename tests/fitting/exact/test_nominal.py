"""The multinomial likelihood against SciPy and automatic differentiation; its fit against statsmodels."""

from __future__ import annotations

import numpy as np
import pytest
import statsmodels.api as sm
import torch
from scipy.special import log_softmax

from deeptram.errors import ConvergenceWarning, InvalidInputError
from deeptram.fitting.exact import nominal
from deeptram.fitting.exact.nominal import MultinomialLikelihood, fit_nominal
from deeptram.optimise.newton import minimize
from derivatives import check_derivatives


@pytest.fixture
def data(rng):
    x = rng.normal(size=(200, 3))
    logits = x @ rng.normal(size=(3, 4)) + rng.gumbel(size=(200, 4))
    return x, logits.argmax(axis=1), rng.uniform(0.1, 3.0, size=200)


@pytest.mark.parametrize("n_classes", [2, 4, 5])
@pytest.mark.parametrize("weighted", [False, True])
def test_derivatives(data, rng, n_classes, weighted):
    x, codes, weights = data
    used = weights if weighted else None
    likelihood = MultinomialLikelihood(
        np.minimum(codes, n_classes - 1),
        n_classes,
        torch.from_numpy(x),
        None if used is None else torch.from_numpy(used),
    )
    check_derivatives(likelihood, rng.normal(size=likelihood.n_parameters), used)


def test_rows_equal_scipy(data, rng):
    x, codes, _ = data
    likelihood = MultinomialLikelihood(codes, 4, torch.from_numpy(x), None)
    point = rng.normal(size=likelihood.n_parameters)
    blocks = point.reshape(3, 4)
    logits = np.column_stack([np.zeros(200), blocks[:, 0] + x @ blocks[:, 1:].T])
    expected = log_softmax(logits, axis=1)[np.arange(200), codes]
    np.testing.assert_allclose(likelihood.rows(torch.from_numpy(point)), expected, rtol=1e-12)


def test_fit_equals_statsmodels(data):
    """statsmodels gets well scaled columns (it does not converge on ours); coefficients scale with them."""
    x, codes, _ = data
    factor, shift = np.array([1.0, 100.0, 0.01]), np.array([0.0, 5.0, 2000.0])
    ours = fit_nominal(codes, 4, x * factor + shift, None)
    theirs = sm.MNLogit(codes, sm.add_constant(x)).fit(method="newton", maxiter=100, disp=0)
    assert ours.loglik == pytest.approx(theirs.llf, abs=1e-8)
    np.testing.assert_allclose(ours.beta, theirs.params[1:] / factor[:, None], rtol=1e-6)
    np.testing.assert_allclose(ours.theta.ravel() + shift @ ours.beta, theirs.params[0], rtol=1e-5, atol=1e-6)
    se = np.sqrt(np.diag(ours.vcov))
    np.testing.assert_allclose(se[3:].reshape(3, 3).T, theirs.bse[1:] / factor[:, None], rtol=1e-5)
    plain = fit_nominal(codes, 4, x, None)
    np.testing.assert_allclose(np.sqrt(np.diag(plain.vcov))[:3], theirs.bse[0], rtol=1e-5)


def test_levels_without_observations_get_probability_zero(data):
    x, codes, _ = data
    spread = np.array([0, 2, 3, 5])[codes]
    ours, plain = fit_nominal(spread, 7, x, None), fit_nominal(codes, 4, x, None)
    assert ours.loglik == pytest.approx(plain.loglik, abs=1e-10)
    np.testing.assert_array_equal(np.isneginf(ours.theta.ravel()), [True, False, False, True, False, True])
    np.testing.assert_allclose(ours.beta[:, [1, 2, 4]], plain.beta, rtol=1e-8)
    assert ours.n_parameters == plain.n_parameters == 12
    variances = np.diag(ours.vcov)
    np.testing.assert_array_equal(np.isnan(variances[:6]), np.isneginf(ours.theta.ravel()))


def test_an_empty_reference_level_is_refused(data):
    x, codes, _ = data
    with pytest.raises(
        InvalidInputError, match=r"the first level \('a'\) is the reference of a nominal outcome"
    ):
        fit_nominal(codes + 1, 5, x, None, levels=list("abcde"))


def test_a_fit_that_stops_early_says_so(data, monkeypatch):
    x, codes, _ = data

    def impatient(*arguments, **options):
        return minimize(*arguments, **options, max_iter=1)

    monkeypatch.setattr(nominal, "minimize", impatient)
    with pytest.warns(
        ConvergenceWarning, match=r"the fit stopped after 1 steps with an estimated distance of"
    ):
        fit = fit_nominal(codes, 4, x, None)
    assert not fit.converged
