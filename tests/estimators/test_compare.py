"""Likelihood-ratio tests against SciPy and statsmodels."""

from __future__ import annotations

import numpy as np
import pytest
import statsmodels.api as sm
from scipy import stats

import deeptram as dt
from deeptram.errors import InvalidInputError, UnsupportedError


@pytest.fixture
def data(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    x = rng.normal(size=(300, 3))
    return x, (x[:, 0] + rng.logistic(size=300) > 0.3).astype(int)


def test_likelihood_ratio_equals_statsmodels_logit(data: tuple[np.ndarray, np.ndarray]) -> None:
    x, y = data
    table = dt.compare(dt.Logit().fit(x, y), dt.Logit([dt.LS("x1")]).fit(x, y))
    big = sm.Logit(y, sm.add_constant(x)).fit(disp=0)
    small = sm.Logit(y, sm.add_constant(x[:, 1])).fit(disp=0)
    assert table["statistic"].iloc[1] == pytest.approx(2 * (big.llf - small.llf), rel=1e-6)
    assert table["df"].iloc[1] == 2
    assert table["p"].iloc[1] == pytest.approx(stats.chi2.sf(2 * (big.llf - small.llf), 2), rel=1e-5)
    np.testing.assert_allclose(table["aic"], [small.aic, big.aic], rtol=1e-8)
    np.testing.assert_allclose(table["bic"], [small.bic, big.bic], rtol=1e-8)


def test_models_are_named_by_what_differs(data: tuple[np.ndarray, np.ndarray]) -> None:
    x, y = data
    z = x[:, 0] + np.random.default_rng(2).logistic(size=300)
    table = dt.compare(dt.Logit([dt.SI()]).fit(x, y), dt.Logit([dt.LS("x0", "x1")]).fit(x, y))
    assert table["model"].tolist() == ["1", "x0 + x1"]
    support = (float(z.min()), float(z.max()))
    table = dt.compare(*(dt.Colr(order=order, support=support).fit(x, z) for order in (6, 3)))
    assert table["model"].tolist() == ["order 3", "order 6"]
    table = dt.compare(
        dt.Colr(order=3).fit(x, z), dt.Colr([dt.Varying("x0"), dt.LS("x1", "x2")], order=3).fit(x, z)
    )
    assert table["model"].tolist() == ["x0 + x1 + x2", "x1 + x2 + Varying(x0)"]
    assert table["df"].iloc[1] == 3
    table = dt.compare(
        *(dt.Colr([dt.LS(f"bs(x0, df=4){more}")], order=3).fit(x, z) for more in ("", " + x1"))
    )
    assert table["model"].tolist() == ["bs(x0, df=4)", "bs(x0, df=4) + x1"]
    same = dt.compare(dt.Lm([dt.LS("x0")]).fit(x, z), dt.BoxCox([dt.LS("x0")], order=3).fit(x, z))
    assert same["model"].tolist() == ["Lm, order None", "BoxCox, order 3"]


def test_refusals(data: tuple[np.ndarray, np.ndarray]) -> None:
    x, y = data
    m = dt.Logit().fit(x, y)
    with pytest.raises(InvalidInputError, match="at least two models, got 1"):
        dt.compare(m)
    with pytest.raises(InvalidInputError, match=r"same outcomes, got 300 rows .* and 200 rows"):
        dt.compare(dt.Logit([dt.SI()]).fit(x, y), dt.Logit().fit(x[:200], y[:200]))
    with pytest.raises(InvalidInputError, match="same outcomes and weights, got values that differ"):
        dt.compare(dt.Logit([dt.SI()]).fit(x, 1 - y), m)
    with pytest.raises(InvalidInputError, match="same outcomes and weights, got values that differ"):
        dt.compare(dt.Logit([dt.SI()]).fit(x, y, sample_weight=np.full(300, 2.0)), m)
    with pytest.raises(InvalidInputError, match=r"2 parameters in both; compare them by AIC \(x0: .*, x1: "):
        dt.compare(dt.Logit([dt.LS("x0")]).fit(x, y), dt.Logit([dt.LS("x1")]).fit(x, y))
    with pytest.raises(InvalidInputError, match="smaller log-likelihood from the larger model"):
        dt.compare(dt.Logit([dt.LS("x0")]).fit(x, y), dt.Logit([dt.LS("x1", "x2")]).fit(x, y))
    with pytest.raises(InvalidInputError, match="columns of the smaller model that the larger one does not"):
        dt.compare(dt.Logit([dt.LS("x1")]).fit(x, y), dt.Logit([dt.LS("x0", "x2")]).fit(x, y))
    with pytest.raises(
        InvalidInputError, match=r"latent distributions logistic and normal; .* AIC \(logistic"
    ):
        dt.compare(dt.Logit([dt.LS("x0")]).fit(x, y), dt.Logit(latent="probit").fit(x, y))
    z = x[:, 0] + np.random.default_rng(2).logistic(size=300)
    with pytest.raises(InvalidInputError, match="baselines of which none contains the other"):
        dt.compare(dt.Colr(order=3).fit(x, z), dt.Colr(order=5, support=(-9, 9)).fit(x, z))
    with pytest.raises(UnsupportedError, match="exact maximum likelihood"):
        dt.compare(m, dt.Logit([dt.LS("x0")], loss="brier").fit(x, y))
