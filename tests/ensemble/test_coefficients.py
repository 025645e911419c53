"""Coefficient tables: formulas against brute force, names, and refusals with the reason."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import deeptram as dt
from deep_models import FAST, TERMS, make, table
from deeptram.ensemble.coefficients import (
    between_variance,
    drawn_means,
    interval_table,
    resampled_quantiles,
    total_variance,
)
from deeptram.errors import InvalidInputError, StructureError, UnknownNameError, UnsupportedError

BETA = np.array([[0.5, -1.0], [0.7, -1.1], [0.4, -0.7], [0.9, -1.3]])
EQUAL = np.full(4, 0.25)


def fitted(name="Polr", terms="SI-CS-LS", **arguments):
    X, _ = table()
    loss = arguments.pop("loss", "nll")
    model, y = make(name, TERMS[terms], loss=loss)
    return dt.Ensemble(model, 3, random_state=4, **arguments).fit(X, y), X, y


def test_unequal_weights_are_said_to_be_held():
    X, (model, y) = table()[0], make("Polr", [dt.LS("a")])
    members = [model.fit(X, y), model]
    for weights, said in (([0.5, 0.5], False), ([0.7, 0.3], True), ([1.0, 0.0], True)):
        header = dt.Ensemble.from_members(members, weights=weights).coef_table().attrs["header"]
        assert any("what tuned weights would vary by is not in se" in line for line in header) == said


def test_variance_between_members():
    np.testing.assert_allclose(between_variance(BETA, EQUAL), BETA.var(axis=0, ddof=1))
    two = np.array([0.5, 0.0, 0.5, 0.0])  # a member of weight zero does not count, even if it is infinite
    values = BETA.copy()
    values[1] = np.inf
    np.testing.assert_allclose(between_variance(values, two), BETA[[0, 2]].var(axis=0, ddof=1))
    assert np.isnan(between_variance(BETA, np.array([1.0, 0, 0, 0]))).all()
    infinite = np.array([[np.inf, np.inf], [np.inf, 1.0]])
    assert between_variance(infinite, np.array([0.5, 0.5])).tolist() == [0.0, np.inf]


def test_asymptotic_interval_is_that_of_a_mean():
    found = interval_table(BETA, EQUAL, [None] * 4, 0.9, "asymptotic")
    se = stats.sem(BETA)
    np.testing.assert_allclose(found["coef"], BETA.mean(axis=0))
    np.testing.assert_allclose(found["se"], se)
    np.testing.assert_allclose(found["upper"], BETA.mean(axis=0) + stats.norm.ppf(0.95) * se)
    np.testing.assert_allclose(found["exp_lower"], np.exp(found["lower"]))


def test_total_adds_the_variance_within_members():
    within = [np.array([0.04, 0.01 * m]) for m in range(4)]
    found = interval_table(BETA, EQUAL, within, 0.95, "total")
    np.testing.assert_allclose(found["se"] ** 2, np.mean(within, axis=0) + BETA.var(axis=0, ddof=1))
    np.testing.assert_allclose(found["se"] ** 2, total_variance(BETA, np.stack(within), EQUAL))
    single = interval_table(BETA, np.array([0, 1.0, 0, 0]), within, 0.95, "total")
    np.testing.assert_allclose(single["se"], np.sqrt(within[1]))
    with pytest.raises(UnsupportedError, match=r"method='total' needs the observed information .*loss='nll'"):
        interval_table(BETA, EQUAL, [*within[:3], None], 0.95, "total")


def test_total_of_one_member_is_its_own_variance():
    assert total_variance(np.array([[1.0]]), np.array([[0.04]]), np.ones(1)) == pytest.approx([0.04])


def test_a_member_without_weight_has_no_say():
    within = np.array([[0.04], [np.nan], [0.06]])
    values, weights = np.array([[1.0], [np.inf], [2.0]]), np.array([0.5, 0.0, 0.5])
    assert total_variance(values, within, weights) == pytest.approx([0.05 + 0.5])
    assert set(drawn_means(values, weights, 200, np.random.default_rng(1)).ravel()) == {1.0, 1.5, 2.0}


@pytest.mark.parametrize("weights", [EQUAL, np.array([0.1, 0.2, 0.3, 0.4]), np.array([0.5, 0.0, 0.2, 0.3])])
def test_bootstrap_over_members_by_enumeration(weights):
    used = np.flatnonzero(weights)
    draws = list(itertools.product(used, repeat=len(used)))
    means = np.array([BETA[list(draw)].mean(axis=0) for draw in draws])
    probability = np.array([weights[list(draw)].prod() for draw in draws])
    lower, upper = resampled_quantiles(BETA, weights, 0.8)
    for j in range(2):
        order = np.argsort(means[:, j], kind="stable")
        cumulative = np.cumsum(probability[order]) / probability.sum()
        assert lower[j] == pytest.approx(means[order[np.searchsorted(cumulative, 0.1 - 1e-9)], j])
        assert upper[j] == pytest.approx(means[order[np.searchsorted(cumulative, 0.9 - 1e-9)], j])


def test_bootstrap_of_many_members_is_drawn_and_reproducible():
    values = np.random.default_rng(1).normal(size=(30, 1))
    weights = np.full(30, 1 / 30)
    lower, upper = resampled_quantiles(values, weights, 0.95)
    se = values.std() / np.sqrt(30)
    assert lower[0] == pytest.approx(values.mean() - 1.96 * se, abs=0.15 * se)
    assert upper[0] == pytest.approx(values.mean() + 1.96 * se, abs=0.15 * se)
    np.testing.assert_array_equal(lower, resampled_quantiles(values, weights, 0.95)[0])


@pytest.mark.parametrize("method", ["bootstrap", "asymptotic", "total"])
def test_the_table_of_an_ensemble(method):
    ensemble, _, _ = fitted()
    found = ensemble.coef_table(level=0.9, method=method)
    columns = ["coef", "se", "lower", "upper", "exp_coef", "exp_lower", "exp_upper"]
    assert found.columns.tolist() == columns + ["variation"] * (method != "total")
    assert ("seeds only" in repr(found)) == (method != "total")
    assert "log odds-ratio of a larger outcome" in repr(found)
    assert found.index.tolist() == ["a"]
    assert found.index.name == "log odds-ratio"
    assert found.attrs["effect"] == "log odds-ratio"
    assert found.attrs["exp_effect"] == "odds ratio"
    assert "positive coefficient means a larger outcome" in found.attrs["sign"]
    assert (found["lower"] <= found["coef"]).all()
    assert (found["coef"] <= found["upper"]).all()
    np.testing.assert_allclose(found["exp_coef"], np.exp(ensemble.coef_))
    assert ensemble.member_coefficients().shape == (3, 1)


def test_total_is_wider_than_between():
    ensemble, _, _ = fitted()
    assert (ensemble.coef_table(method="total")["se"] > ensemble.coef_table(method="asymptotic")["se"]).all()


def test_the_effect_is_named_by_the_latent():
    ensemble, _, _ = fitted("Coxph")
    table = ensemble.coef_table()
    assert table.attrs["exp_effect"] == "inverse hazard ratio"
    np.testing.assert_allclose(table["hazard_ratio"], np.exp(-table["coef"]))
    np.testing.assert_allclose(table["hazard_ratio_lower"], np.exp(-table["upper"]))
    np.testing.assert_allclose(table["hazard_ratio_upper"], np.exp(-table["lower"]))
    summary = ensemble.summary(0.95)
    pd.testing.assert_frame_equal(pd.DataFrame(summary), pd.DataFrame(table))
    first = ensemble.members_[0]
    said = f"transformation pool, weights 0.333, 0.333, 0.333; members fitted to {first.n_obs_} rows"
    assert said in repr(summary)
    assert not any("exp" in name for name in fitted("BoxCox")[0].coef_table())


def test_a_model_without_linear_shift_has_an_empty_table():
    ensemble, _, _ = fitted(terms="CI")
    for method in ("bootstrap", "asymptotic", "total"):
        assert len(ensemble.coef_table(method=method)) == 0
    assert len(ensemble.coef_) == 0


def test_bad_arguments():
    ensemble, _, _ = fitted()
    with pytest.raises(UnknownNameError, match="method must be one of 'total', 'bootstrap', 'asymptotic'"):
        ensemble.coef_table(method="wald")
    with pytest.raises(InvalidInputError, match=r"for 95 percent write 0\.95"):
        ensemble.coef_table(level=95)


def test_total_is_the_default_and_needs_a_variance_within_members():
    ensemble, _, _ = fitted(loss="rps")
    pd.testing.assert_frame_equal(ensemble.coef_table(), ensemble.coef_table(method="total"))
    assert (ensemble.coef_table()["se"] > ensemble.coef_table(method="asymptotic")["se"]).all()
    ensemble, _, _ = fitted("Colr", loss="crps")
    with pytest.raises(UnsupportedError, match="train them with loss='nll', or use method='bootstrap'"):
        ensemble.coef_table()


# -- refusals ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pooling", ["linear", "log-linear", "log-linear-density"])
def test_other_pools_have_no_coefficients(pooling):
    ensemble, X, _ = fitted(pooling=pooling)
    with pytest.raises(
        StructureError, match=rf"the {pooling} pool .*has no log odds-ratio; use pooling='transfor"
    ):
        ensemble.coef_table()
    with pytest.raises(StructureError, match="no parts that add up"):
        ensemble.contributions(X)
    with pytest.raises(StructureError, match="cannot be compared"):
        ensemble.member_coefficients()
    assert not hasattr(ensemble, "coef_")
    with pytest.raises(AttributeError, match=r"this ensemble has no coefficients: the .* pool"):
        _ = ensemble.coef_


def test_where_another_pool_is_the_transformation_pool():
    ensemble, X, _ = fitted("Logit", pooling="log-linear-density")
    same = ensemble.predict_distribution(X, pooling="transformation").pmf()
    np.testing.assert_allclose(ensemble.predict_proba(X), same, atol=1e-12)
    assert len(ensemble.coef_table()) == 1
    single, _, _ = fitted(pooling="linear", weights=[0.0, 1.0, 0.0])
    assert single.coef_["a"] == single.members_[1].coef_["a"]


def test_multinomial_logits_need_the_density_pool():
    ensemble, _, _ = fitted("nominal")
    mean = np.mean([member.coef_ for member in ensemble.members_], axis=0)  # the default averages the logits
    np.testing.assert_allclose(ensemble.coef_, mean, atol=1e-12)
    ensemble.set_params(pooling="linear")
    with pytest.raises(StructureError, match="no multinomial logit; use pooling='log-linear-density'"):
        ensemble.coef_table()
    X, _ = table()
    model, y = make("nominal", TERMS["SI-CS-LS"])
    recalibrated = dt.Ensemble(model, 2, recalibrate=True, random_state=1, pooling="log-linear-density")
    recalibrated.fit(X, y, validation=0.3)
    with pytest.raises(StructureError, match="not on its logits; use recalibrate=False"):
        recalibrated.coef_table()


def test_members_of_different_kinds_have_no_common_coefficients():
    X, z = table()
    y = z > 0
    logit, probit = dt.Logit().fit(X, y), dt.Logit(latent="probit").fit(X, y)
    fewer = dt.Logit([dt.LS("a", "b")]).fit(X, y)
    knots = [
        dt.Logit([dt.LS("bs(a, df=4)")]).fit(X[rows], y[rows]) for rows in (slice(0, 70), slice(50, 120))
    ]

    class Foreign:
        def predict_proba(self, X):
            return np.full((len(X), 2), 0.5)

    for members, match in [
        ([logit, probit], "different scales .*binary, logistic and binary, normal"),
        ([logit, fewer], r"different linear shifts \(\[a, b, c\] and \[a, b\]\)"),
        (knots, "encode the columns .*differently"),
        ([logit, Foreign()], "member 1 is a Foreign, which has no linear shift"),
    ]:
        with pytest.raises(StructureError, match=match):
            dt.Ensemble.from_members(members).coef_table()


def test_training_on_another_score_keeps_the_structure():
    ensemble, X, y = fitted(loss="rps")
    assert (np.diag(ensemble.members_[0].shift_vcov_) > 0).all()
    assert FAST.epochs == 3
    assert np.isfinite(ensemble.score(X, y))
