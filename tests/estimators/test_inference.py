"""Coefficient tables, covariances and their names."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
import torch
from lifelines import WeibullAFTFitter
from scipy import stats

import deeptram as dt
from deeptram.errors import InvalidInputError, SeparationWarning, UnsupportedError

N = 200
COLUMNS = ["coef", "se", "z", "p", "lower", "upper", "exp_coef", "exp_lower", "exp_upper"]


@pytest.fixture(scope="module")
def frame():
    rng = np.random.default_rng(51)
    return pd.DataFrame(
        {
            "a": rng.normal(size=N),
            "b": rng.uniform(size=N),
            "f": rng.choice(["p", "q", "r"], size=N),
            "s": np.where(np.arange(N) % 2, "u", "v"),
        }
    )


@pytest.fixture(scope="module")
def latent(frame):
    return (frame["a"] - frame["b"]).to_numpy() + np.random.default_rng(52).logistic(size=N)


@pytest.fixture(scope="module")
def grades(latent):
    return np.array(["low", "mid", "high"])[np.digitize(latent, [-1.0, 0.5])]


LEVELS = ["low", "mid", "high"]


def test_summary_is_built_from_coefficients_and_covariance(frame, grades):
    model = dt.Polr([dt.LS("a + b + f")], levels=LEVELS).fit(frame, grades)
    table = model.summary(level=0.9)
    assert list(table.columns) == COLUMNS
    assert list(table.index) == ["a", "b", "fq", "fr"]
    se = np.sqrt(np.diag(model.vcov_.loc[table.index, table.index]))
    np.testing.assert_allclose(table["coef"], model.coef_)
    np.testing.assert_allclose(table["se"], se)
    np.testing.assert_allclose(table["z"], model.coef_ / se)
    np.testing.assert_allclose(table["p"], 2 * stats.norm.sf(np.abs(model.coef_ / se)))
    np.testing.assert_allclose(table["lower"], model.coef_ - stats.norm.ppf(0.95) * se)
    np.testing.assert_allclose(table["upper"], model.coef_ + stats.norm.ppf(0.95) * se)
    np.testing.assert_allclose(table["exp_coef"], np.exp(model.coef_))
    np.testing.assert_allclose(table[["exp_lower", "exp_upper"]], np.exp(table[["lower", "upper"]]))
    pd.testing.assert_frame_equal(model.summary(0.9, exp=True), table)
    assert "exp_coef  exp_lower  exp_upper" in repr(table)
    assert "<th>exp_upper</th>" in table._repr_html_()
    pd.testing.assert_frame_equal(model.confint(0.9), table[["lower", "upper"]], check_like=True)


def test_a_summary_has_the_same_columns_with_the_normal_latent(frame, grades):
    """There exp(coefficient) means nothing: it is in the table, and not shown."""
    model = dt.Polr([dt.LS("a + b")], latent="probit", levels=LEVELS).fit(frame, grades)
    table = model.summary()
    assert list(table.columns) == COLUMNS[:-2]
    np.testing.assert_allclose(table["exp_coef"], np.exp(model.coef_))
    assert "exp_coef" not in repr(table)
    assert "exp_coef" not in table._repr_html_()


def test_summary_says_what_a_coefficient_is(frame, grades, latent):
    table = dt.Polr([dt.LS("a")], levels=LEVELS).fit(frame, grades).summary()
    assert table.attrs["sign"].startswith("F_Z(h(y) - x'beta)")
    assert table.attrs["effect"] == "log odds-ratio"
    assert table.attrs["exp_effect"] == "odds ratio"
    assert table.attrs["level"] == 0.95
    cox = dt.Coxph([dt.LS("a")], order=3).fit(frame, np.exp(latent / 3)).summary()
    assert "hazard" in cox.attrs["effect"]


def test_default_level_is_95_percent(frame, grades):
    model = dt.Polr([dt.LS("a")], levels=LEVELS).fit(frame, grades)
    pd.testing.assert_frame_equal(model.summary(), model.summary(0.95))


@pytest.mark.parametrize(
    ("model", "names"),
    [
        (dt.Polr([dt.LS("a")], levels=LEVELS), ["low|mid", "mid|high", "a"]),
        (
            dt.Polr([dt.SI(strata="s"), dt.LS("a")], levels=LEVELS),
            ["low|mid:su", "mid|high:su", "low|mid:sv", "mid|high:sv", "a"],
        ),
        (
            dt.Polr([dt.Varying("b"), dt.LS("a")], levels=LEVELS),
            ["low|mid:(Intercept)", "mid|high:(Intercept)", "low|mid:b", "mid|high:b", "a"],
        ),
        (
            dt.Polr([dt.LS("a"), dt.Scale("b + f")], levels=LEVELS),
            ["low|mid", "mid|high", "a", "scale(b)", "scale(fq)", "scale(fr)"],
        ),
        (
            dt.Tram([dt.LS("a + b")], outcome="nominal", levels=LEVELS),
            ["mid:(Intercept)", "high:(Intercept)", "mid:a", "mid:b", "high:a", "high:b"],
        ),
    ],
    ids=["plain", "strata", "varying", "scale", "nominal"],
)
def test_names_of_the_covariance_of_classes(model, names, frame, grades):
    model.fit(frame, grades)
    assert list(model.vcov_.index) == list(model.vcov_.columns) == names
    np.testing.assert_allclose(model.vcov_, model.vcov_.T)
    assert (np.linalg.eigvalsh(model.vcov_) > 0).all()
    assert model.n_parameters_ == len(names)


@pytest.mark.parametrize(
    ("model", "names"),
    [
        (dt.Lm([dt.LS("a")]), ["(Intercept)", "y", "a"]),
        (dt.Survreg([dt.LS("a")]), ["(Intercept)", "log(y)", "a"]),
        (dt.Survreg([dt.LS("a")], dist="exponential"), ["(Intercept)", "a"]),
        (dt.Colr([dt.LS("a")], order=2), ["Bs1", "Bs2", "Bs3", "a"]),
        (
            dt.Lm([dt.SI(strata="s"), dt.Varying("b")]),
            ["(Intercept):su", "y:su", "(Intercept):sv", "y:sv", "(Intercept):b", "y:b"],
        ),
    ],
    ids=["Lm", "weibull", "exponential", "Colr", "strata and varying"],
)
def test_names_of_the_covariance_on_the_line(model, names, frame, latent):
    model.fit(frame, np.exp(latent / 4))
    assert list(model.vcov_.index) == names
    assert len(model.theta_) + len(model.coef_) == len(names)


@pytest.mark.parametrize(
    "model",
    [
        dt.Polr([dt.LS("a + b")], levels=LEVELS),
        dt.Polr([dt.SI(strata="s"), dt.LS("a")], levels=LEVELS, latent="cloglog"),
        dt.Polr([dt.LS("a"), dt.Scale("b")], levels=LEVELS),
        dt.Polr([dt.Varying("b"), dt.LS("a")], levels=LEVELS),
    ],
    ids=["plain", "strata", "scale", "varying"],
)
def test_covariance_is_the_inverse_hessian_of_the_public_log_likelihood(model, frame, grades):
    """Differentiate the model's own predictive distributions, in the user's parameters."""
    model.fit(frame, grades)
    sizes = [len(model.theta_), len(model.coef_), len(model.scale_coef_)]
    matrices = model.design_.matrices(frame)
    codes = torch.as_tensor(pd.Categorical(grades, categories=LEVELS).codes.astype(np.int64))

    def loglik(point):
        theta, beta, gamma = torch.split(point, sizes)
        blocks = theta.reshape(-1, 2)
        strata = 1 if matrices.strata is None else int(matrices.strata.max()) + 1
        rows = blocks[:1] if matrices.strata is None else blocks[torch.as_tensor(matrices.strata)]
        if matrices.varying is not None:
            rows = rows + torch.as_tensor(matrices.varying) @ blocks[strata:]
        if matrices.scale is not None:
            rows = rows * torch.exp(torch.as_tensor(matrices.scale) @ gamma / 2).unsqueeze(1)
        h = rows - (torch.as_tensor(matrices.x) @ beta).unsqueeze(1)
        predictive = dt.predictive.DiscretePredictive.from_h(h, latent=model.latent_)
        return predictive.log_prob_of_codes_t(codes).sum()

    point = torch.from_numpy(np.concatenate([model.theta_, model.coef_, model.scale_coef_]))
    assert float(loglik(point)) == pytest.approx(model.loglik_, rel=1e-10)
    hessian = torch.autograd.functional.hessian(loglik, point).numpy()
    np.testing.assert_allclose(model.vcov_, np.linalg.inv(-hessian), rtol=1e-4, atol=1e-8)


def test_nominal_standard_errors_equal_statsmodels(frame, grades):
    model = dt.Tram([dt.LS("a + b")], outcome="nominal", levels=LEVELS).fit(frame, grades)
    codes = pd.Categorical(grades, categories=LEVELS).codes
    theirs = sm.MNLogit(codes, sm.add_constant(frame[["a", "b"]])).fit(disp=0)
    table = model.summary()
    assert list(table.index) == ["mid:a", "mid:b", "high:a", "high:b"]
    np.testing.assert_allclose(table["z"], theirs.tvalues[1:].to_numpy().T.ravel(), rtol=1e-4)
    np.testing.assert_allclose(table["p"], theirs.pvalues[1:].to_numpy().T.ravel(), rtol=1e-3)


def test_summary_of_a_scale_term(frame, latent):
    model = dt.Lm([dt.LS("a"), dt.Scale("b")]).fit(frame, latent)
    table = model.summary()
    assert list(table.index) == ["a", "scale(b)"]
    assert table.loc["scale(b)", "coef"] == model.scale_coef_["b"]
    assert table.loc["scale(b)", "se"] == pytest.approx(np.sqrt(model.vcov_.loc["scale(b)", "scale(b)"]))
    assert list(model.confint(method="profile").index) == ["a"]


def test_a_model_without_coefficients_has_an_empty_table(frame, grades):
    table = dt.Polr([dt.SI()], levels=LEVELS).fit(frame, grades).summary()
    assert list(table.columns) == COLUMNS
    assert len(table) == 0


def test_infinite_and_finite_coefficients_in_one_table(frame, grades):
    group = frame.assign(g=(np.arange(N) % 8 == 0).astype(float))
    with pytest.warns(SeparationWarning):
        model = dt.Polr([dt.LS("a + g")], levels=LEVELS).fit(group, np.where(group["g"] == 1, "high", grades))
    table = model.summary()
    assert table.loc["g", "coef"] == table.loc["g", "exp_coef"] == np.inf
    assert table.loc["g", COLUMNS[1:6]].isna().all()
    assert np.isfinite(table.loc["a"]).all()


def test_wald_coverage_is_nominal():
    """400 samples: 95% intervals of a Polr coefficient cover the truth in 95% +- 3%."""
    rng = np.random.default_rng(53)
    hits = 0
    for _ in range(400):
        x = rng.normal(size=(80, 1))
        y = np.digitize(0.7 * x[:, 0] + rng.logistic(size=80), [-1.0, 0.0, 1.0])
        row = dt.Polr().fit(x, y).summary().iloc[0]
        hits += row["lower"] <= 0.7 <= row["upper"]
    assert 0.92 <= hits / 400 <= 0.98


@pytest.mark.parametrize("weight", [2.0, 0.25])
def test_weights_scale_the_covariance(frame, grades, weight):
    plain = dt.Polr([dt.LS("a")], levels=LEVELS).fit(frame, grades)
    weighted = dt.Polr([dt.LS("a")], levels=LEVELS).fit(frame, grades, sample_weight=np.full(N, weight))
    np.testing.assert_allclose(weight * weighted.vcov_, plain.vcov_, rtol=1e-6)


# -- what the numbers are ---------------------------------------------------------------------------------


def test_headers_say_what_a_coefficient_is(frame, grades, latent):
    ordinal = repr(dt.Polr([dt.LS("a")], levels=LEVELS).fit(frame, grades).summary())
    assert "Polr: ordinal outcome, low < mid < high\nn = 200, log-likelihood -" in ordinal
    assert "coef: log odds-ratio of a larger outcome" in ordinal
    binary = dt.Logit([dt.LS("a")]).fit(frame, np.where(latent > 0, "yes", "no")).summary()
    assert "yes is the larger class (the other: no)" in repr(binary)
    assert "log odds-ratio of yes against no" in repr(binary.round(2))
    assert repr(binary[["coef", "se"]]).lstrip().startswith("coef")
    assert binary._repr_html_().startswith("<p>Logit: binary outcome, yes is")
    nominal = dt.Tram([dt.LS("a")], outcome="nominal", levels=LEVELS).fit(frame, grades).summary()
    assert "log odds-ratio of the level in its name against low" in repr(nominal)
    normal = dt.BoxCox([dt.LS("a")], order=3).fit(frame, latent).summary()
    assert "difference in standard deviations" in repr(normal)
    assert list(normal.columns) == COLUMNS[:7]


def test_survival_shows_events_hazard_and_time_ratios(frame, latent, tmp_path):
    time, event = np.exp(latent / 3), np.arange(N) % 3 > 0
    cox = dt.Coxph([dt.LS("a")], order=3).fit(frame, dt.Surv.right(time, event))
    table = cox.summary()
    assert f"n = 200, {event.sum()} events, log-likelihood" in repr(table)
    assert "minus the log hazard-ratio; positive: later events (R reports the log hazard-ratio" in repr(table)
    np.testing.assert_allclose(table["hazard_ratio"], np.exp(-cox.coef_))
    limits = table[["hazard_ratio_lower", "hazard_ratio_upper"]]
    np.testing.assert_allclose(limits, np.exp(-table[["upper", "lower"]]))
    uncensored = dt.Coxph([dt.LS("a")], order=3)
    assert "events (no time is censored)" in repr(
        uncensored.fit(frame, dt.Surv.right(time, event | True)).summary()
    )
    assert "not dt.Surv, so every row is taken as an event" in repr(uncensored.fit(frame, time).summary())
    cox.save(tmp_path / "cox")
    assert repr(dt.load(tmp_path / "cox").summary()) == repr(table)
    weibull = dt.Survreg([dt.LS("a + b")]).fit(frame, dt.Surv.right(time, event)).summary(0.9)
    theirs = WeibullAFTFitter(alpha=0.1).fit(
        frame[["a", "b"]].assign(t=time, e=event), duration_col="t", event_col="e"
    )
    rows = theirs.summary.loc["lambda_"].loc[["a", "b"]]
    for ours, name in (("", ""), ("_lower", " lower 90%"), ("_upper", " upper 90%")):
        np.testing.assert_allclose(weibull[f"time_ratio{ours}"], rows[f"exp(coef){name}"], rtol=2e-3)
    assert "time_ratio: factor of the times" in repr(weibull)
    exponential = (
        dt.Survreg([dt.LS("a")], dist="exponential").fit(frame, dt.Surv.right(time, event)).summary()
    )
    np.testing.assert_allclose(exponential["time_ratio_upper"], np.exp(exponential["upper"]))


def test_information_criteria_equal_statsmodels(frame, latent):
    y = (latent > 0).astype(int)
    model = dt.Logit([dt.LS("a + b")]).fit(frame, y)
    theirs = sm.Logit(y, sm.add_constant(frame[["a", "b"]])).fit(disp=0)
    assert model.aic_ == pytest.approx(theirs.aic)
    assert model.bic_ == pytest.approx(theirs.bic)
    scored = dt.Logit([dt.LS("a")], loss="brier").fit(frame, y)
    assert not hasattr(scored, "aic_")
    with pytest.raises(UnsupportedError, match=r"bic_ needs exact maximum likelihood .* got loss='brier'"):
        _ = scored.bic_


def test_effects_that_vary(frame, grades, latent):
    model = dt.Polr([dt.LS("a"), dt.Varying("b")], levels=LEVELS).fit(frame, grades)
    table, effect = model.summary(0.9), model.effect(level=0.9)
    assert list(table.index) == ["a", "b at low|mid", "b at mid|high"]
    assert list(effect.columns) == ["column", "y", "coef", "se", "lower", "upper"]
    assert effect["y"].tolist() == ["low", "mid"]
    h = (
        model.predict_distribution(frame[:1].assign(b=[1.0])).trafo()
        - model.predict_distribution(frame[:1].assign(b=[0.0])).trafo()
    )
    np.testing.assert_allclose(effect["coef"], -h[0])
    names = ["low|mid:b", "mid|high:b"]
    np.testing.assert_allclose(effect["se"], np.sqrt(np.diag(model.vcov_.loc[names, names])))
    limits = ["coef", "se", "lower", "upper"]
    np.testing.assert_allclose(table.loc[["b at low|mid", "b at mid|high"], limits], effect[limits])
    assert model.effect("mid")["coef"].tolist() == effect["coef"].tolist()[1:]
    with pytest.raises(InvalidInputError, match="all levels but the last, got 'high'"):
        model.effect(["low", "high"])
    with pytest.raises(UnsupportedError, match="got a model without them; add"):
        dt.Polr([dt.LS("a")], levels=LEVELS).fit(frame, grades).effect()


def test_effects_that_vary_on_the_line(frame, latent):
    smooth = dt.Colr([dt.Varying("b")], order=3).fit(frame, latent)
    one, zero = (smooth.predict_distribution(frame[:1].assign(b=[value])) for value in (0.6, 0.4))
    points = np.array([-0.5, 1.0])
    found = smooth.effect(points)
    np.testing.assert_allclose(0.2 * found["coef"], (zero.trafo_grid(points) - one.trafo_grid(points))[0])
    assert len(smooth.effect()) == 101
    assert len(smooth.summary()) == 3
    line = dt.Lm([dt.Varying("b")]).fit(frame, latent)
    assert list(line.summary().index) == ["b at 0", "b per unit of y"]
    np.testing.assert_allclose(line.effect([0.0])["coef"], line.summary().loc["b at 0", "coef"])
    with pytest.raises(InvalidInputError, match="a straight line has no support to take them from; pass y"):
        line.effect()
    counts = dt.Cotram([dt.Varying("b")], order=2).fit(frame, np.floor(np.exp(latent / 3 + 1)))
    h = [counts.predict_distribution(frame[:1].assign(b=[value])).trafo([2])[0] for value in (0.6, 0.4)]
    assert 0.2 * counts.effect([2])["coef"][0] == pytest.approx(h[1] - h[0])


@pytest.mark.parametrize("loss", ["rps", "brier"])
def test_standard_errors_under_other_scores(loss, frame, grades):
    """The sandwich by automatic differentiation of the public score."""
    model = dt.Polr([dt.LS("a + b")], levels=LEVELS, loss=loss).fit(frame, grades)
    design = torch.tensor(frame[["a", "b"]].to_numpy())

    def losses(point):
        h = point[:2] - (design @ point[2:]).unsqueeze(1)
        predictive = dt.predictive.DiscretePredictive.from_h(h, levels=LEVELS)
        return getattr(dt.scores, loss)(grades, predictive, reduction="none")

    point = torch.tensor(np.concatenate([model.theta_, model.coef_]))
    inverse = torch.linalg.inv(torch.autograd.functional.hessian(lambda p: losses(p).sum(), point))
    gradients = torch.autograd.functional.jacobian(losses, point)
    expected = torch.sqrt(torch.diag(inverse @ gradients.T @ gradients @ inverse))[2:]
    np.testing.assert_allclose(model.summary()["se"], expected.numpy(), rtol=1e-5)
    assert f"se: sandwich for loss='{loss}'" in repr(model.summary())


def test_sandwich_errors_against_the_spread_of_fits_to_fresh_data(rng):
    estimates, errors = [], []
    for _ in range(60):
        x = rng.normal(size=(600, 2))
        y = np.digitize(rng.logistic(size=600) + x @ [0.8, -0.4], [-1.0, 0.0, 1.5])
        table = dt.Polr(loss="rps").fit(x, y).summary()
        estimates.append(table["coef"].to_numpy())
        errors.append(table["se"].to_numpy())
    ratio = np.mean(errors, axis=0) / np.std(estimates, axis=0, ddof=1)
    assert (np.abs(ratio - 1) < 0.3).all()


def test_a_printed_summary_shows_every_column():
    rng = np.random.default_rng(0)
    model = dt.Coxph().fit(rng.normal(size=(50, 2)), dt.Surv.right(rng.exponential(size=50), np.ones(50)))
    printed = str(model.summary())
    assert "..." not in printed
    assert all(column in printed for column in model.summary().columns)
