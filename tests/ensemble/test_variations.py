"""Members with settings of their own, and members that leave out folds: in one pass as one by one."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from sklearn.base import clone

import deeptram as dt
from deep_models import FAST, table
from deeptram.ensemble.plans import vary_setting
from deeptram.errors import InvalidInputError, InvalidTypeError, UnknownNameError
from deeptram.fitting.deep.seeds import MemberSeeds, fold_rows

MLP = dt.networks.MLP
VARY = {
    "learning_rate": [1e-3, 1e-2],
    "weight_decay": [0.0, 0.5],
    "dropout": [0.0, 0.0, 0.3],
    "latent": ["logistic", "normal", "cloglog"],
}


def model(**training):
    return dt.Tram(
        [dt.CI(MLP((8, 8)), "b", "c"), dt.LS("a")],
        outcome="continuous",
        training=FAST.replace(epochs=4, **training),
    )


def fitted(of, n_members=6, validation=0.2, **settings):
    X, z = table()
    settings = {"pooling": "linear", **settings}
    return dt.Ensemble(of, n_members, random_state=3, **settings).fit(X, z, validation=validation)


def assert_same_members(one, other):
    X, _ = table()
    for a, b in zip(one.members_, other.members_, strict=True):
        assert a.best_epoch_ == b.best_epoch_
        np.testing.assert_allclose(a.coef_, b.coef_, atol=1e-5)
        np.testing.assert_allclose(
            a.predict_distribution(X).cdf(0.2), b.predict_distribution(X).cdf(0.2), atol=1e-5
        )


@pytest.mark.parametrize(
    "training",
    [{"optimizer": "adam"}, {"optimizer": "adamw", "average": 0.9}, {"schedule": "cosine", "patience": 1}],
    ids=["adam", "adamw", "patience"],
)
def test_members_with_settings_of_their_own_are_those_trained_alone(training):
    together, alone = (
        fitted(model(**training), vary=VARY, strategy=strategy) for strategy in ("stacked", "sequential")
    )
    assert_same_members(together, alone)
    rates = [member.history_.learning_rate.iloc[0] for member in together.members_]
    assert rates == [1e-3, 1e-2] * 3
    assert [str(member.latent) for member in together.members_] == VARY["latent"] * 2
    assert [member.terms[0].net.dropout for member in together.members_] == VARY["dropout"] * 2


def test_members_are_those_of_models_with_these_settings():
    X, z = table()
    varied = fitted(model(), vary={"learning_rate": [1e-3, 1e-2], "latent": ["logistic", "normal"]})
    own = model(learning_rate=1e-2).set_params(latent="normal")
    plain = fitted(own)
    np.testing.assert_allclose(
        varied.members_[1].predict_distribution(X).cdf(z), plain.members_[1].predict_distribution(X).cdf(z)
    )
    assert varied.model.latent == "logistic"  # the model that was given is left as it was


def test_settings_that_change_shapes_have_passes_of_their_own():
    vary = {"hidden": [(4,), (8, 8)], "order": [4, 4, 6], "learning_rate": [1e-3, 1e-2]}
    together, alone = (fitted(model(), vary=vary, strategy=s) for s in ("stacked", "sequential"))
    assert_same_members(together, alone)
    assert [member.terms[0].net.hidden for member in together.members_] == vary["hidden"] * 3
    assert [member.order for member in together.members_] == [4, 4, 6] * 2


def test_residual_members_are_vectorised_as_they_are():
    net = MLP((8, 8, 8), dropout=0.2, residual=True, activation="silu")
    of = dt.Tram([dt.CI(net, "b", "c")], outcome="continuous", training=FAST.replace(epochs=3))
    together, alone = (fitted(of, 3, strategy=s) for s in ("stacked", "sequential"))
    assert_same_members(together, alone)


# -- folds -------------------------------------------------------------------------------------------


def test_each_member_leaves_out_a_fold_in_turn():
    X, z = table()
    vary = {"learning_rate": [1e-2, 1e-9]}
    together, alone = (
        fitted(model(), 6, 3, vary=vary, strategy=s, weights="tuned", pooling="linear")
        for s in ("stacked", "sequential")
    )
    assert_same_members(together, alone)
    rates = [member.history_.learning_rate.iloc[0] for member in together.members_]
    assert rates == [1e-2] * 3 + [1e-9] * 3
    rows = fold_rows(np.arange(len(z)), 3, MemberSeeds.of(3).validation)
    assert np.unique(np.concatenate(rows)).size == 3 * (len(z) // 3)
    held = together.members_[1].history_.validation_loss.min()
    own = together.members_[1].predict_distribution(X.iloc[rows[1]])
    assert held == pytest.approx(dt.scores.nll(z[rows[1]], own), rel=1e-4)
    # one weight for each kind, shared by its folds; no others are better out of fold
    weights = together.weights_.reshape(2, 3)
    np.testing.assert_allclose(weights, weights[:, :1] * np.ones(3))
    assert weights.sum() == pytest.approx(1)
    assert together.tuning_.gap < 1e-6
    kinds = [
        np.concatenate(
            [
                together.members_[3 * j + k].predict_distribution(X.iloc[rows[k]]).pdf(z[rows[k]])
                for k in range(3)
            ]
        )
        for j in range(2)
    ]
    tuned = 3 * weights[:, 0] @ np.array(kinds)
    assert together.tuning_.value == pytest.approx(-np.log(tuned).mean())
    for share in np.linspace(0, 1, 21):
        assert -np.log(share * kinds[0] + (1 - share) * kinds[1]).mean() >= together.tuning_.value - 1e-9


def test_the_pool_is_chosen_out_of_fold():
    chosen = fitted(model(), 4, 2, pooling="auto")
    assert chosen.choice_.pool
    assert chosen.weights_.sum() == pytest.approx(1)


def test_it_can_be_saved_cloned_and_continued(tmp_path):
    X, z = table()
    vary = {"hidden": [(4,), (6,)], "latent": ["logistic", dt.latent.get("normal")]}
    ensemble = dt.Ensemble(
        model(), 2, vary=vary, random_state=1, checkpoint=tmp_path / "c", pooling="linear"
    ).fit(X, z)
    again = dt.load(ensemble.save(tmp_path / "e"))
    assert again.vary == {"hidden": [(4,), (6,)], "latent": ["logistic", "normal"]}
    np.testing.assert_allclose(again.predict(X), ensemble.predict(X))
    assert clone(ensemble).vary == vary
    more = clone(ensemble).set_params(n_members=3).fit(X, z)
    np.testing.assert_array_equal(more.members_[1].predict(X), ensemble.members_[1].predict(X))
    other = dt.Ensemble(model(), 2, vary={"hidden": [(4,), (5,)]}, random_state=1, checkpoint=tmp_path / "c")
    with pytest.raises(InvalidInputError, match="got another model"):
        other.fit(X, z)


# -- what is refused ---------------------------------------------------------------------------------


def test_settings_of_networks_made_by_partial():
    net = functools.partial(dt.networks.embedded_columns, size=3)
    of = dt.Colr([dt.CS(net, "a")])
    vary_setting(of, "size", 5)
    assert of.terms[0].net.keywords == {"size": 5}
    with pytest.raises(UnknownNameError, match=r"vary takes arguments of the model.* got 'depth'"):
        vary_setting(of, "depth", 5)


@pytest.mark.parametrize(
    ("settings", "validation", "error", "message"),
    [
        ({"vary": [1]}, None, InvalidTypeError, "vary must be a dict"),
        ({"vary": {"dropout": 0.1}}, None, InvalidInputError, "must be a list of at least one value"),
        ({}, 1, InvalidInputError, "validation must be a share, data or at least 2 folds, got 1"),
        ({}, 500, InvalidInputError, "folds need at least as many rows"),
        (
            {"vary": {"latent": ["normal", "logistic"]}, "pooling": "transformation"},
            None,
            InvalidInputError,
            "one latent distribution, got logistic, normal in vary",
        ),
        ({"weights": "tuned"}, 2, InvalidInputError, "kinds of 2 members each .* set n_members to 4, 6"),
        ({"recalibrate": True}, 2, InvalidInputError, "recalibrate=True needs data that no member"),
    ],
)
def test_wrong_settings(settings, validation, error, message):
    with pytest.raises(error, match=message):
        fitted(model(), 2, validation, **settings)
