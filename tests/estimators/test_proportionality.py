"""The test of proportional odds: size, power, and its likelihood by another optimiser."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import optimize, stats

import deeptram as dt
from deeptram.errors import InvalidInputError, UnsupportedError


def ordinal(rng: np.random.Generator, n: int, spread: float) -> tuple[np.ndarray, np.ndarray]:
    x = rng.normal(size=(n, 2))
    latent = 0.7 * x[:, 0] + np.exp(spread * x[:, 1]) * rng.logistic(size=n)
    return x, np.digitize(latent, [-1.5, 0.0, 1.5])


def test_likelihood_ratio_equals_a_direct_maximisation(rng: np.random.Generator) -> None:
    x, y = ordinal(rng, 400, 0.4)
    model = dt.Polr().fit(x, y)
    table = dt.proportionality_test(model)

    def nll(p: np.ndarray) -> float:  # cutpoints, slope of x0, one slope of x1 per cutpoint
        h = p[:3] - x[:, [0]] * p[3] - x[:, [1]] * p[4:7]
        cdf = np.column_stack([np.zeros(len(y)), 1 / (1 + np.exp(-h)), np.ones(len(y))])
        mass = cdf[np.arange(len(y)), y + 1] - cdf[np.arange(len(y)), y]
        return -np.log(mass).sum() if (mass > 0).all() else 1e10

    start = np.concatenate([model.theta_, [model.coef_.iloc[0]], np.repeat(model.coef_.iloc[1], 3)])
    best = optimize.minimize(
        nll, start, method="Nelder-Mead", options={"maxfev": 20000, "xatol": 1e-7, "fatol": 1e-9}
    )
    assert table["statistic"]["x1"] == pytest.approx(2 * (-best.fun - model.loglik_), abs=1e-3)
    assert table["df"].to_dict() == {"x0": 2, "x1": 2, "overall": 4}
    assert table["p"]["x1"] == pytest.approx(stats.chi2.sf(table["statistic"]["x1"], 2))


def test_score_and_likelihood_ratio_agree_under_the_null(rng: np.random.Generator) -> None:
    x, y = ordinal(rng, 5000, 0.0)
    model = dt.Polr().fit(x, y)
    lr, score = dt.proportionality_test(model), dt.proportionality_test(model, test="score")
    np.testing.assert_allclose(score["statistic"], lr["statistic"], rtol=0.1, atol=0.1)
    assert (score["df"] == lr["df"]).all()


def test_score_test_keeps_its_level_and_has_power(rng: np.random.Generator) -> None:
    p_null, p_power = [], []
    for _ in range(120):
        p_null.append(
            dt.proportionality_test(dt.Polr().fit(*ordinal(rng, 300, 0.0)), test="score")["p"]["x1"]
        )
    for _ in range(20):
        p_power.append(
            dt.proportionality_test(dt.Polr().fit(*ordinal(rng, 300, 0.6)), test="score")["p"]["x1"]
        )
    assert stats.kstest(p_null, "uniform").pvalue > 0.01
    assert np.mean(np.array(p_null) < 0.05) < 0.1
    assert np.mean(np.array(p_power) < 0.05) > 0.8


def test_proportional_hazards(rng: np.random.Generator) -> None:
    n = 600
    x = rng.integers(0, 2, size=(n, 1)).astype(float)
    crossing = rng.weibull(np.where(x[:, 0] == 1, 3.0, 0.8))
    model = dt.Survreg(dist="weibull").fit(x, dt.Surv.right(crossing, np.ones(n)))
    assert dt.proportionality_test(model)["p"]["x0"] < 1e-6
    proportional = rng.weibull(1.5, size=n) * np.exp(0.5 * x[:, 0])
    model = dt.Survreg(dist="weibull").fit(x, dt.Surv.right(proportional, np.ones(n)))
    assert dt.proportionality_test(model)["p"]["x0"] > 0.01


def test_refusals(rng: np.random.Generator) -> None:
    x, y = ordinal(rng, 200, 0.0)
    with pytest.raises(InvalidInputError, match="no linear shift to test; add an LS term"):
        dt.proportionality_test(dt.Polr([dt.SI()]).fit(x, y))
    with pytest.raises(UnsupportedError, match="single cutpoint"):
        dt.proportionality_test(dt.Logit().fit(x, y > 1))
    with pytest.raises(UnsupportedError, match="in this session"):
        dt.proportionality_test(dt.Polr(loss="rps").fit(x, y), test="score")
