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


def test_refusals(data: tuple[np.ndarray, np.ndarray]) -> None:
    x, y = data
    m = dt.Logit().fit(x, y)
    with pytest.raises(InvalidInputError, match="at least two models, got 1"):
        dt.compare(m)
    with pytest.raises(InvalidInputError, match=r"same outcomes, got 300 rows .* and 200 rows"):
        dt.compare(dt.Logit([dt.SI()]).fit(x, y), dt.Logit().fit(x[:200], y[:200]))
    with pytest.raises(InvalidInputError, match="differ in their number of parameters, got 2 for both"):
        dt.compare(dt.Logit([dt.LS("x0")]).fit(x, y), dt.Logit([dt.LS("x1")]).fit(x, y))
    with pytest.raises(InvalidInputError, match="not nested; compare them by AIC"):
        dt.compare(dt.Logit([dt.LS("x0")]).fit(x, y), dt.Logit([dt.LS("x1", "x2")]).fit(x, y))
    with pytest.raises(UnsupportedError, match="exact maximum likelihood"):
        dt.compare(m, dt.Logit([dt.LS("x0")], loss="brier").fit(x, y))
