"""Simulated data: the response follows the stated model, and independent software finds the effects."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from lifelines import WeibullAFTFitter
from scipy import stats
from statsmodels.miscmodels.ordinal_model import OrderedModel

from deeptram.datasets import simulate
from deeptram.errors import InvalidInputError, UnknownNameError
from deeptram.responses import Surv

BETA = (1.0, -0.5, 0.0)


def offset_table(data) -> pd.DataFrame:
    """The columns and the true image effect, whose coefficient must be one."""
    return data.table().assign(eta=data.info["rows"]["eta"])


def test_ordinal_effects_are_found():
    data = simulate("ordinal", n=6000, seed=1)
    fit = OrderedModel(data.codes, offset_table(data), distr="logit").fit(method="bfgs", disp=False)
    np.testing.assert_allclose(fit.params[["x_1", "x_2", "x_3", "eta"]], [*BETA, 1], atol=0.1)
    cutpoints = fit.model.transform_threshold_params(fit.params.to_numpy())[1:-1]
    np.testing.assert_allclose(cutpoints, data.info["theta"], atol=0.1)


def test_binary_effects_are_found():
    data = simulate("binary", n=6000, seed=2)
    fit = sm.Logit(data.codes, sm.add_constant(offset_table(data))).fit(disp=False)
    np.testing.assert_allclose(fit.params, [0, *BETA, 1], atol=0.15)


def test_continuous_response_is_the_transformed_latent():
    data = simulate("continuous", n=6000, seed=3)
    fit = sm.OLS(2 * np.arcsinh(data.y), sm.add_constant(offset_table(data))).fit()
    np.testing.assert_allclose(fit.params, [0, *BETA, 1], atol=0.05)
    assert stats.kstest(fit.resid, "norm").pvalue > 0.01
    assert data.levels is None


def test_survival_effects_are_found():
    data = simulate("survival", n=5000, censoring=0.4, seed=4)
    seen = data.y.observations
    assert isinstance(data.y, Surv)
    assert (~seen.exact).mean() == pytest.approx(0.4, abs=0.03)
    frame = offset_table(data).assign(time=seen.lower, event=seen.exact)
    fit = WeibullAFTFitter().fit(frame, "time", "event")
    shape = np.exp(fit.params_["rho_"]["Intercept"])
    assert shape == pytest.approx(1.5, rel=0.05)
    effects = fit.params_["lambda_"][["x_1", "x_2", "x_3", "eta"]] * shape  # log time to the scale of h
    np.testing.assert_allclose(effects, [*BETA, 1], atol=0.1)
    assert simulate("survival", n=50, censoring=0).y.observations.exact.all()


def test_images_carry_the_effect_and_nothing_else_does():
    data = simulate("ordinal", n=4000, seed=5, image_effect=2.0)
    brightest = data.X["image"].reshape(4000, -1).max(axis=1)
    eta = data.info["rows"]["eta"]
    assert np.corrcoef(brightest, eta)[0, 1] > 0.85
    assert eta.mean() == pytest.approx(0, abs=0.1)
    assert eta.std() == pytest.approx(2, abs=0.05)
    assert np.abs(np.corrcoef(np.column_stack([data.table(), eta]).T) - np.eye(4)).max() < 0.06
    assert data.X["image"].dtype == np.float32
    assert simulate(n=3, image_effect=0).info["rows"]["eta"].tolist() == [0, 0, 0]


@pytest.mark.parametrize("outcome", ["ordinal", "binary", "continuous", "survival"])
def test_seed_decides_and_rows_travel_together(outcome):
    first, again, other = (simulate(outcome, n=20, seed=seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first.X["image"], again.X["image"])
    assert str(first.y) == str(again.y)
    assert not np.array_equal(first.X["x_1"], other.X["x_1"])
    part = first.take([3, 1])
    assert len(part) == 2
    np.testing.assert_array_equal(part.info["rows"]["eta"], first.info["rows"]["eta"][[3, 1]])


@pytest.mark.parametrize("latent", ["probit", "cloglog", "loglog"])
def test_other_latents(latent):
    data = simulate("continuous", n=4000, beta=(0.5,), image_effect=0, latent=latent, seed=6)
    distribution = {"probit": stats.norm, "cloglog": stats.gumbel_l, "loglog": stats.gumbel_r}[latent]
    z = 2 * np.arcsinh(data.y) - 0.5 * data.X["x_1"]
    assert stats.kstest(z, distribution.cdf).pvalue > 0.01


@pytest.mark.parametrize(
    ("arguments", "error", "match"),
    [
        ({"outcome": "count"}, UnknownNameError, "outcome must be one of .*, got 'count'"),
        ({"n": 0}, InvalidInputError, "n must be an integer of at least 1, got 0"),
        ({"image_size": 4}, InvalidInputError, "image_size must be an integer of at least 5, got 4"),
        ({"censoring": 1.0}, InvalidInputError, r"censoring must be a share in \[0, 1\), got 1.0"),
    ],
)
def test_refusals(arguments, error, match):
    with pytest.raises(error, match=match):
        simulate(**arguments)
