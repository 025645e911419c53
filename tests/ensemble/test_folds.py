"""``Ensemble.from_folds``: which folds there can be, tuned weights, weights of rows, files."""

from __future__ import annotations

import json

import numpy as np
import pytest
from sklearn.model_selection import GroupKFold, KFold

import deeptram as dt
from deep_models import FAST, TERMS, table
from deeptram.errors import FileFormatError, InvalidInputError, InvalidTypeError, UnsupportedError
from deeptram.model import persistence

EXACT = dt.Colr([dt.LS("a")])
DEEP = dt.Colr(TERMS["SI-CS-LS"], training=FAST.replace(epochs=2))
TWO = {"n_members": 2, "weights": "tuned"}


@pytest.fixture
def data():
    return table(90)


@pytest.fixture
def untrained(monkeypatch):
    """Let no member be trained."""

    def fit(*_, **__):
        raise AssertionError("a member was trained")

    monkeypatch.setattr(dt.Colr, "fit", fit)


# -- tuned weights -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "options", "kind", "match"),
    [
        (
            DEEP,
            {"weights": "tuned"},
            InvalidInputError,
            "got n_members=1, one per fold; set n_members=2 or more",
        ),
        (DEEP, {"weights": "tuned", "cv": dt.Bags(3)}, InvalidInputError, "set n_members=2 or more"),
        (
            EXACT,
            {"weights": "tuned"},
            UnsupportedError,
            "got a model without networks, .*; leave weights out",
        ),
        (EXACT, TWO, UnsupportedError, "got a model without networks"),
        (DEEP, {**TWO, "n_members": "2"}, InvalidInputError, "n_members must be an integer of at least 1"),
        (DEEP, {**TWO, "pooling": "auto"}, UnsupportedError, "got pooling='auto'; name it"),
        (
            DEEP,
            {**TWO, "pooling": "beta-linear"},
            UnsupportedError,
            "got pooling='beta-linear', .* use pooling='linear'",
        ),
        (DEEP, {"weights": [0.5, 0.5]}, InvalidInputError, "weights must hold one number per member"),
        (DEEP, {"weights": "best"}, InvalidInputError, "weights must be one of 'equal', 'tuned', got 'best'"),
    ],
)
def test_weights_that_folds_cannot_have_are_refused_before_training(
    untrained, data, model, options, kind, match
):
    with pytest.raises(kind, match=match):
        dt.Ensemble.from_folds(model, *data, **{"cv": 3, **options})


def test_a_pool_with_parameters_of_its_own_can_be_tuned_in_folds(data):
    rule = dt.pooling.BetaLinear(1.2, 1.1)
    folds = dt.Ensemble.from_folds(DEEP, *data, cv=2, pooling=rule, random_state=1, **TWO)
    assert folds.method() is rule
    np.testing.assert_allclose(folds.weights_, folds.fold_weights_.ravel() / 2)


def test_equal_weights_have_a_name(data):
    named, plain = (
        dt.Ensemble.from_folds(EXACT, *data, cv=3, weights=weights, random_state=1)
        for weights in ("equal", None)
    )
    np.testing.assert_array_equal(named.weights_, np.full(3, 1 / 3))
    np.testing.assert_array_equal(named.coef_, plain.coef_)
    assert (named.weights, plain.weights) == ("equal", "equal")
    assert not hasattr(named, "fold_weights_")  # nothing was tuned


# -- folds -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cv", "kind", "match"),
    [
        ("a", InvalidTypeError, "cv must be a number of folds, .* got 'a'; write cv=5"),
        (2.5, InvalidTypeError, "cv must be a number of folds, .* got 2.5; write cv=5"),
        (True, InvalidTypeError, "cv must be a number of folds, .* got True; write cv=5"),
        ({"folds": 3}, InvalidTypeError, "cv must be a number of folds, .* write cv=5"),
        (1, InvalidInputError, "cv must be an integer of at least 2, got 1"),
        (
            1000,
            InvalidInputError,
            "cv must not exceed the number of rows, got 1000 folds for 90 rows; use fewer",
        ),
        (
            KFold(1000),
            InvalidInputError,
            "cv must divide 90 rows into folds by itself, got KFold, which says: .*1000",
        ),
        (
            GroupKFold(3),
            InvalidInputError,
            r"got GroupKFold, which says: The 'groups' parameter should not be None; pass its folds instead",
        ),
        (
            GroupKFold,
            InvalidTypeError,
            r"got the class GroupKFold; make an object of it, as in GroupKFold\(5\)",
        ),
        (dt.Bags, InvalidTypeError, r"got the class Bags; make an object of it, as in Bags\(5\)"),
        ([3, 4], InvalidInputError, "got other entries in a list; pass pairs of rows"),
        ([([0, 1], [90])], InvalidInputError, r"rows of 'cv' must lie in 0\.\.89, got 90"),
        ([([0, 1], [])], InvalidInputError, "got 1 folds, not all with both"),
        ([], InvalidInputError, "got 0 folds"),
    ],
)
def test_each_wrong_number_of_folds_has_its_sentence(untrained, data, cv, kind, match):
    with pytest.raises(kind, match=match):
        dt.Ensemble.from_folds(EXACT, *data, cv=cv)


def test_folds_of_groups_are_given_by_their_rows(data):
    X, z = data
    groups = np.arange(90) // 10
    rows = list(GroupKFold(3).split(X, z, groups))
    folds = dt.Ensemble.from_folds(EXACT, X, z, cv=rows, random_state=1)
    for member, score, (train, test) in zip(folds.members_, folds.fold_scores_, rows, strict=True):
        assert member.n_obs_ == len(train)
        assert score == pytest.approx(member.score(X.iloc[test], z[test]))


def test_rows_of_folds_are_those_of_the_data_where_some_have_no_weight(data):
    X, z = data
    some = (np.arange(90) % 3 > 0).astype(float)
    some[:30] = 1.0
    rows = list(KFold(3).split(X))
    folds = dt.Ensemble.from_folds(EXACT, X, z, cv=rows, sample_weight=some, random_state=1)
    for member, score, (train, test) in zip(folds.members_, folds.fold_scores_, rows, strict=True):
        assert member.n_obs_ == some[train].sum()
        held = test[some[test] > 0]
        assert score == pytest.approx(member.score(X.iloc[held], z[held]))


# -- weights of rows ---------------------------------------------------------------------------------


@pytest.mark.parametrize("model", [EXACT, DEEP], ids=["exact", "deep"])
def test_rows_are_weighted_where_members_are_judged(data, model):
    X, z = data
    weights = np.random.default_rng(1).uniform(0.1, 5, 90)
    folds = dt.Ensemble.from_folds(model, X, z, cv=KFold(3), sample_weight=weights, random_state=1)
    for member, score, (_, test) in zip(folds.members_, folds.fold_scores_, KFold(3).split(X), strict=True):
        weighted = member.score(X.iloc[test], z[test], weights[test])
        assert score == pytest.approx(weighted)
        if model is DEEP:  # the best epoch is chosen with these weights, too
            assert member.history_["validation_loss"].min() == pytest.approx(-weighted, rel=1e-5)


# -- files -------------------------------------------------------------------------------------------


def test_scores_and_weights_of_folds_are_saved(data, tmp_path):
    folds = dt.Ensemble.from_folds(DEEP, *data, cv=3, random_state=1, **TWO)
    again = dt.load(folds.save(tmp_path / "tuned"))
    np.testing.assert_array_equal(again.fold_weights_, folds.fold_weights_)
    np.testing.assert_array_equal(again.fold_scores_, folds.fold_scores_)
    equal = dt.Ensemble.from_folds(EXACT, *data, cv=2, random_state=1)
    equal.fold_scores_[0] = -np.inf
    again = dt.load(equal.save(tmp_path / "equal"))
    np.testing.assert_array_equal(again.fold_scores_, equal.fold_scores_)
    assert not hasattr(again, "fold_weights_")
    other = dt.Ensemble.from_members(folds.members_[:1])
    other.save(tmp_path / "others")
    assert not hasattr(dt.load(tmp_path / "others"), "fold_scores_")


def test_another_fit_has_no_folds(data):
    folds = dt.Ensemble.from_folds(DEEP, *data, cv=2, random_state=1, **TWO)
    folds.fit(*data)
    assert not hasattr(folds, "fold_weights_")
    assert not hasattr(folds, "fold_scores_")


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"fold_scores": [0.1]}, r"fold_scores must be one for each member \(2\), got 1"),
        ({"fold_weights": [[0.5, 0.5], [1.0]]}, r"fold_weights must be one for each member \(2\), got 3"),
        ({"fold_weights": [[], [0.5, 0.5]]}, r"fold_weights\[0\] must be a list of 1"),
        ({"fold_weights": [[-1.0], [2.0]]}, r"fold_weights\[0\]\[0\] must be a number from 0"),
    ],
)
def test_forged_folds(data, tmp_path, change, match):
    path = dt.Ensemble.from_folds(EXACT, *data, cv=2, random_state=1).save(tmp_path / "e")
    file = path / persistence.JSON_NAME
    content = json.loads(file.read_text(encoding="utf-8"))
    content["ensemble"].update(change)
    content["sha256"] = persistence._digest(content)
    file.write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(FileFormatError, match=match):
        dt.load(path)
