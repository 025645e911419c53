"""Members that are bags, snapshots or dropout draws: what they are, what they share, what they refuse."""

from __future__ import annotations

import copy
import shutil

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
import torch

import deeptram as dt
from deep_models import FAST, table
from deeptram.ensemble.coefficients import interval_table
from deeptram.ensemble.plans import plan_members
from deeptram.errors import InvalidInputError, UnknownNameError, UnsupportedError
from deeptram.model.dropout import MemberDropout, fix_units

TRAINING = FAST.replace(epochs=6, learning_rate=0.02)


def fitted(kind, n_members=3, validation=0.2, dropout=0.2, training=TRAINING, **settings):
    X, z = table()
    terms = [dt.CS(dt.networks.MLP((8, 8), dropout=dropout), "b", "c"), dt.LS("a")]
    model = dt.Colr(terms, training=training)
    ensemble = dt.Ensemble(model, n_members, members=kind, random_state=3, **settings)
    return ensemble.fit(X, z, validation=validation)


@pytest.mark.parametrize("kind", ["bags", "snapshots", "dropout"])
def test_every_kind_is_pooled_read_saved_and_exported_like_others(kind, tmp_path):
    X, z = table()
    ensemble = fitted(kind)
    h = [np.asarray(one.trafo(z)) for one in ensemble.predict_members(X)]
    np.testing.assert_allclose(ensemble.predict_distribution(X).trafo(z), np.mean(h, axis=0), atol=1e-8)
    assert np.ptp(h, axis=0).max() > 1e-3  # they do differ
    np.testing.assert_allclose(ensemble.coef_["a"], np.mean([m.coef_["a"] for m in ensemble.members_]))
    again = dt.load(ensemble.save(tmp_path / "ensemble"))
    assert again.members == kind
    np.testing.assert_array_equal(
        again.predict_distribution(X).cdf(0.3), ensemble.predict_distribution(X).cdf(0.3)
    )
    assert again.coef_table().equals(ensemble.coef_table())
    module = ensemble.module_
    inputs = {**module.inputs(X), "y": torch.as_tensor(z)}
    np.testing.assert_allclose(module(inputs).detach().numpy(), np.mean(h, axis=0), atol=1e-4)


def test_bags_in_one_pass_are_those_trained_alone():
    X, _ = table()
    together, alone = (fitted("bags", strategy=strategy) for strategy in ("stacked", "sequential"))
    for one, other in zip(together.members_, alone.members_, strict=True):
        np.testing.assert_allclose(one.coef_, other.coef_, atol=1e-5)
        np.testing.assert_allclose(one.shift_vcov_, other.shift_vcov_, rtol=1e-3)
        np.testing.assert_allclose(one.predict_quantile(X, 0.5), other.predict_quantile(X, 0.5), atol=1e-4)
    assert len({round(float(member.coef_["a"]), 6) for member in together.members_}) == 3


def test_bags_are_drawn_from_the_rows_that_are_not_held_out():
    X, z = table()
    template = dt.Colr([dt.CS(dt.networks.MLP((4,)), "b"), dt.LS("a")], training=FAST)
    plans = plan_members(template, {}, 4, (X, z, None), 0.25, 7, "bags")
    held = plans[0].task.validation_rows
    for plan in plans:
        assert len(plan.task.train_rows) == 90
        assert not np.isin(plan.task.train_rows, held).any()
        assert 50 < len(np.unique(plan.task.train_rows)) < 65  # 1 - 1/e of them
    assert not np.array_equal(plans[0].task.train_rows, plans[1].task.train_rows)


def test_the_spread_of_bags_is_the_standard_error_of_least_squares():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, 2))
    y = x @ [1.0, -0.5] + rng.normal(size=400)
    bags = dt.Ensemble.from_folds(dt.Lm(), x, y, cv=dt.Bags(200), random_state=1)
    reference = sm.OLS(y, sm.add_constant(x)).fit()
    scale = np.sqrt(reference.scale)  # coefficients of Lm are in units of the residual's deviation
    robust = reference.get_robustcov_results("HC0").bse[1:] / scale
    # the slope's own scale is estimated along: var(b / s) = var(b) / s^2 + b^2 / (2 n s^2)
    expected = np.sqrt(robust**2 + (reference.params[1:] / scale) ** 2 / 800)
    found = bags.coef_table()
    np.testing.assert_allclose(found["se"], expected, rtol=0.15)
    assert "rows and seeds drawn anew (bootstrap)" in repr(found)


def test_intervals_of_bags_have_quantiles_of_t():
    beta = np.array([[0.5], [0.7], [0.4], [0.9]])
    found = interval_table(beta, np.full(4, 0.25), [None] * 4, 0.95, "total", bagged=True)
    half = 3.182446 * beta.std(ddof=1)  # t with 3 degrees of freedom, from tables
    np.testing.assert_allclose(found["upper"] - found["coef"], [half], rtol=1e-6)


def test_deep_members_say_that_their_intervals_are_too_narrow():
    shown = repr(fitted("seeds").coef_table())
    assert "sampling given the networks, and seeds" in shown
    assert "too narrow: other rows would give other networks; Ensemble(model, 30, members='bags')" in shown
    assert "too narrow" not in repr(fitted("bags").coef_table())
    x = np.random.default_rng(0).normal(size=(60, 1))
    exact = dt.Ensemble.from_members([dt.Lm().fit(x[k::2], x[k::2, 0] ** 3) for k in (0, 1)])
    assert "too narrow" not in repr(exact.coef_table())


def test_snapshots_go_on_where_the_last_one_ended_and_share_the_epochs():
    ensemble = fitted("snapshots", validation=None)
    assert [member.n_iter_ for member in ensemble.members_] == [2, 2, 2]
    assert ensemble.strategy_ == "sequential"
    first, second, _ = ensemble.members_
    gap = {
        name: float((value - first.model_.state_dict()[name]).abs().max())
        for name, value in second.model_.state_dict().items()
        if name.endswith("weight")
    }
    fresh = fitted("seeds", validation=None, training=TRAINING.replace(epochs=2)).members_[1]
    for name, change in gap.items():  # far from a fresh draw, near the member before
        assert change < 0.5 * float(
            (fresh.model_.state_dict()[name] - first.model_.state_dict()[name]).abs().max()
        )
    rates = [member.history_.learning_rate.tolist() for member in ensemble.members_]
    assert rates == [[0.02, 0.01]] * 3  # cosine, begun anew


def test_snapshots_resume_from_the_finished_ones(tmp_path):
    whole = fitted("snapshots", n_members=3, training=TRAINING)
    fitted("snapshots", n_members=3, checkpoint=tmp_path / "kept")
    for number in (1, 2):
        shutil.rmtree(tmp_path / "kept" / f"member-{number:04d}")
    resumed = fitted("snapshots", n_members=3, checkpoint=tmp_path / "kept")
    np.testing.assert_array_equal(resumed.coef_, whole.coef_)


def test_a_dropout_draw_is_one_network_for_all_rows():
    X, _ = table()
    ensemble = fitted("dropout", n_members=4)
    member = ensemble.members_[1]
    whole = member.predict_quantile(X, 0.5)
    np.testing.assert_allclose(member.predict_quantile(X.iloc[7:9], 0.5), whole[7:9], atol=1e-5)
    model = copy.deepcopy(member.model_)
    np.testing.assert_array_equal(
        model.row_parameters(X, member.design_.matrices(X)).shift,
        member.model_.row_parameters(X, member.design_.matrices(X)).shift,
    )
    states = [one.model_.state_dict() for one in ensemble.members_]
    assert all((state["beta"] == states[0]["beta"]).all() for state in states)


def test_units_are_dropped_at_the_rate_and_scaled_to_mean_one():
    layers = torch.nn.Sequential(MemberDropout(0.3), MemberDropout(0.3)).eval()
    drawn = []
    for seed in range(300):
        fix_units(layers, seed)
        drawn.append(torch.cat([layer(torch.ones(1, 8)) for layer in layers]))
    masks = torch.stack(drawn)
    np.testing.assert_allclose(masks.unique(), [0.0, 1 / 0.7], rtol=1e-6)
    error = np.sqrt(0.3 / 0.7 / 2400)  # of the mean of 2400 of them
    np.testing.assert_allclose(masks.mean(dim=(0, 2)), [1.0, 1.0], atol=4 * error)
    assert not torch.equal(masks[:, 0], masks[:, 1])


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"kind": "boosting"}, UnknownNameError, "members must be one of"),
        (
            {"kind": "bags", "validation": 3},
            UnsupportedError,
            "folds are for members='seeds', got members='bags'",
        ),
        (
            {"kind": "snapshots", "strategy": "stacked"},
            UnsupportedError,
            "members='snapshots' come out of one",
        ),
        ({"kind": "dropout", "vary": {"dropout": [0.1]}}, UnsupportedError, "got vary=.*; leave it out"),
        (
            {"kind": "dropout", "dropout": 0.0},
            InvalidInputError,
            "members='dropout' need networks with dropout",
        ),
    ],
)
def test_what_does_not_go_together_is_refused(settings, error, message):
    with pytest.raises(error, match=message):
        fitted(settings.pop("kind"), **settings)


def test_bags_of_an_exact_model_are_bootstrap_fits(tmp_path):
    rng = np.random.default_rng(8)
    x = rng.normal(size=(80, 2))
    y = x @ [1.0, -1.0] + rng.normal(size=80)
    bags = dt.Ensemble(dt.Lm(), 5, members="bags", random_state=2).fit(x, y)
    same = dt.Ensemble.from_folds(dt.Lm(), x, y, cv=dt.Bags(5), random_state=2)
    np.testing.assert_array_equal(bags.coef_, same.coef_)
    assert bags.coef_table().equals(same.coef_table())
    assert np.ptp([one.coef_["x0"] for one in bags.members_]) > 0
    assert dt.load(bags.save(tmp_path / "bags")).members == "bags"
    tuned = dt.Ensemble(dt.Lm(), 3, members="bags", weights="tuned", random_state=2)
    assert tuned.fit(x, y, validation=(x, y)).weights_.sum() == pytest.approx(1)
    with pytest.raises(UnsupportedError, match=r"exact fits to samples of all rows, got .*; leave it out"):
        tuned.fit(x, y, validation=0.2)
    with pytest.raises(UnsupportedError, match="use members='bags' for bootstrap samples"):
        dt.Ensemble(dt.Lm()).fit(x, y)


@pytest.mark.parametrize(("orthogonalize", "said"), [(False, True), (True, False)])
def test_columns_that_a_network_sees_too_are_named_above_their_coefficients(rng, orthogonalize, said):
    X = pd.DataFrame(rng.normal(size=(60, 2)), columns=["a", "b"])
    network = dt.CS(dt.networks.MLP(hidden=(2,)), "b", orthogonalize=orthogonalize)
    model = dt.Lm([dt.LS("a + b"), network], training=dt.Training(epochs=1, progress=False))
    ensemble = dt.Ensemble(model, 2, random_state=0).fit(X, rng.normal(size=60))
    for shown in (ensemble.coef_table(), ensemble.members_[0].summary()):
        assert any(line.startswith("b: also in a network") for line in shown.attrs["header"]) is said
