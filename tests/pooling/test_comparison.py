"""compare_pools against a cross-fit by hand, and what it tells."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats
from sklearn.model_selection import KFold, ShuffleSplit

import deeptram as dt
from deeptram.calibration import Recalibration, Temperature
from deeptram.errors import InvalidInputError, InvalidTypeError, UnknownNameError, UnsupportedError
from deeptram.pooling import METHODS
from deeptram.pooling.comparison import FittedPool, folds_of


@pytest.fixture
def ordinal():
    rng = np.random.default_rng(0)
    x = rng.normal(size=300)
    cut = np.array([-1.5, 0.0, 1.5])
    y = (rng.logistic(size=300)[:, None] > cut - x[:, None]).sum(axis=1)
    noise = rng.normal(size=(3, 300, 1))
    return [
        dt.Predictive.from_trafo(cut - s * x[:, None] + 0.5 * e)
        for s, e in zip((0.5, 1, 3), noise, strict=True)
    ], y


@pytest.mark.parametrize("score", ["nll", "rps"])
def test_scores_are_those_of_a_cross_fit_by_hand(ordinal, score):
    members, y = ordinal
    splitter = KFold(4, shuffle=True, random_state=3)
    table = dt.compare_pools(
        members,
        y,
        methods=["linear", "transformation"],
        corrections=[None, "recalibration"],
        cv=splitter,
        score=score,
    )
    for method in ("linear", "transformation"):
        for weights in ("equal", "tuned"):
            for correction in ("none", "recalibration"):
                rows = np.empty(300)
                for train, test in splitter.split(y):
                    known, new = [m[train] for m in members], [m[test] for m in members]
                    tuned = dt.tune_weights(known, y[train], method=method, score=score).weights
                    w = tuned if weights == "tuned" else None
                    pooled = dt.pool(new, method=method, weights=w)
                    if correction == "recalibration":
                        fitted = Recalibration().fit(dt.pool(known, method=method, weights=w), y[train])
                        pooled = fitted.apply(pooled)
                    rows[test] = getattr(dt.scores, score)(y[test], pooled, reduction="none")
                here = (table["pool"] == method) & (table["weights"] == weights)
                found = table[here & (table["correction"] == correction)]
                assert found["score"].item() == pytest.approx(rows.mean(), abs=1e-10)
    assert list(table["score"]) == sorted(table["score"])
    np.testing.assert_allclose(table["difference"], table["score"] - table["score"].min(), atol=1e-12)
    assert (table["lower"] <= table["difference"]).all()
    assert (table["difference"] <= table["upper"]).all()


def test_intervals_are_those_of_paired_differences(ordinal):
    members, y = ordinal
    table = dt.compare_pools(
        members, y, methods="linear", weights="equal", corrections=[None, Temperature()], cv=5
    )
    assert len(table) == 2
    assert {"none", "Temperature"} == set(table["correction"])
    again = dt.compare_pools(
        members, y, methods="linear", weights="equal", corrections=[None, Temperature()], cv=5
    )
    assert table.equals(again)
    width = (table["upper"] - table["lower"])[1]
    plain = dt.scores.nll(y, dt.pool(members, method="linear"), reduction="none")
    fitted = Temperature().fit_apply(dt.pool(members, method="linear"), y)
    expected = 2 * 1.96 * np.std(plain - dt.scores.nll(y, fitted, reduction="none")) / np.sqrt(300)
    assert width == pytest.approx(expected, rel=0.2)


def test_choosing_has_a_price_where_all_are_alike():
    """Eight pools of pure noise: the best looks better than it is by what the nested score says."""
    rng = np.random.default_rng(4)
    prices, gains = [], []
    for _ in range(6):
        proba = rng.dirichlet(np.ones(3) * 20, size=(2, 60))
        y = rng.integers(0, 3, 60)
        members = [dt.Predictive.from_proba(p) for p in proba]
        table = dt.compare_pools(members, y, corrections=[None], methods=METHODS[:4], score="rps")
        prices.append(table.attrs["nested"] - table["score"][0])
        gains.append(table["score"].max() - table["score"].min())
        equal = dt.compare_pools(members, y, corrections=[None], weights=["equal"], score="rps")
        # a theorem where nothing is fitted: what is best elsewhere is no better here than the best of all
        assert equal.attrs["nested"] - equal["score"][0] > -1e-12
    assert 0 < np.mean(prices) < np.mean(gains)


def test_the_choice_knows_nothing_of_the_fold_it_is_judged_on(ordinal):
    """By hand: for each fold all is fitted and compared on the rest alone, and only then judged there."""
    members, y = ordinal
    y, methods, ways = np.asarray(y), ["linear", "transformation", "log-linear"], ["equal", "tuned"]
    folds = [held for _, held in folds_of(4, len(y), y, np.random.default_rng(7))]
    table = dt.compare_pools(
        members, y, methods=methods, weights=ways, corrections=[None], cv=4, random_state=7
    )

    def rows_of(known, new, method, way):
        fitted = FittedPool.fit(method, way, [m[known] for m in members], y[known], "nll")
        return -fitted.apply([m[new] for m in members]).log_prob(y[new])

    judged = []
    for held in folds:
        rest = np.setdiff1d(np.arange(len(y)), held)
        inner = [one for one in folds if one is not held]
        sums = {
            (m, w): sum(rows_of(np.setdiff1d(rest, g), g, m, w).sum() for g in inner)
            for m in methods
            for w in ways
        }
        judged.append(rows_of(rest, held, *min(sums, key=sums.get)))
    assert table.attrs["nested"] == pytest.approx(np.concatenate(judged).mean(), rel=1e-9)
    assert "price of choosing" in repr(table)
    assert np.isnan(dt.compare_pools(members, y, methods=["linear"], cv=2).attrs["nested"])


def times():
    """Survival curves of three members, as software writes them, and censored times."""
    rng = np.random.default_rng(11)
    x, grid = rng.normal(size=70), np.linspace(0.05, 8.0, 40)
    time, limit = rng.exponential(np.exp(0.5 * x)), rng.exponential(3.0, 70)
    curves = [
        np.exp(-np.outer(np.exp(-s * x), grid**shape)) for s, shape in ((0.2, 1), (0.6, 0.8), (0.5, 1.4))
    ]
    members = [dt.Predictive.from_survival(grid, one) for one in curves]
    return members, dt.Surv.right(np.minimum(np.minimum(time, limit), 7.9), time <= np.minimum(limit, 7.9))


def normals():
    rng = np.random.default_rng(12)
    x = rng.normal(size=90)
    members = [dt.Predictive.from_scipy(scipy.stats.norm(s * x, sd)) for s, sd in ((0.5, 1.0), (1.5, 2.0))]
    return members, x + rng.normal(size=90)


@pytest.mark.parametrize(
    ("case", "methods"),
    [(times, ["linear", "transformation"]), (normals, ["linear", "trimmed-mean"])],
)
def test_what_folds_share_changes_no_number(case, methods):
    """Every candidate of every fold and pair of folds, fitted by itself from its own rows."""
    members, y = case()
    n = len(members[0])
    folds = [held for _, held in folds_of(3, n, y, np.random.default_rng(0))]
    table = dt.compare_pools(members, y, methods=methods, corrections=[None, "spread"], cv=3)
    names = [(m, w, c) for m in methods for w in ("equal", "tuned") for c in (None, "spread")]

    def rows_of(known, new, method, way, change):
        some, own = [m[known] for m in members], y[known]
        fitted = FittedPool.fit(method, way, some, own, "nll").corrected(change, some, own, "nll")
        return -fitted.apply([m[new] for m in members]).log_prob(y[new])

    rows, judged = {name: np.empty(n) for name in names}, []
    for held in folds:
        rest = np.setdiff1d(np.arange(n), held)
        for name in names:
            rows[name][held] = rows_of(rest, held, *name)
    for held in folds:
        inner = [one for one in folds if one is not held]
        sums = {
            name: sum(
                rows_of(np.concatenate([h for h in inner if h is not g]), g, *name).sum() for g in inner
            )
            for name in names
        }
        judged.append(rows[min(sums, key=sums.get)][held])
    for method, way, change in names:
        here = (
            (table["pool"] == method)
            & (table["weights"] == way)
            & (table["correction"] == (change or "none"))
        )
        assert table[here]["score"].item() == pytest.approx(rows[method, way, change].mean(), abs=1e-6)
    assert table.attrs["nested"] == pytest.approx(np.concatenate(judged).mean(), abs=1e-6)


def test_a_candidate_with_an_infinite_score_is_last_and_says_where():
    """Row 0 is covered by the poor member alone, whose weight is 0 when row 0 is not there to tune on."""
    rng = np.random.default_rng(3)
    y = np.append(2, rng.integers(0, 2, 39))
    good = np.where(y[:, None] == np.arange(3), 0.7, 0.3) * [1.0, 1.0, 0.0]
    members = [dt.Predictive.from_proba(p / p.sum(axis=1, keepdims=True)) for p in (good, np.ones((40, 3)))]
    table = dt.compare_pools(members, y, methods=["linear"], corrections=[None], cv=KFold(4))
    assert list(table["weights"]) == ["equal", "tuned"]
    assert np.isposinf(table["score"][1])
    assert list(table["note"]) == ["", "infinite in row 0, so not to be chosen"]
    assert "not to be chosen" in repr(table)
    assert np.isposinf(table.attrs["nested"])  # a choice that does not know row 0 takes the tuned weights


def test_progress_is_shown_where_asked_for(ordinal, capfd):
    members, y = ordinal
    dt.compare_pools(members, y, methods=["linear"], corrections=[None], cv=3, progress=True)
    assert "linear, tuned" in capfd.readouterr().err
    dt.compare_pools(members, y, methods=["linear"], corrections=[None], cv=3)
    assert not capfd.readouterr().err


def test_header_says_what_was_done(ordinal):
    members, y = ordinal
    table = dt.compare_pools(members, y, methods=["linear"])
    first, second, third, *_ = repr(table).splitlines()
    assert first == "Pools of 3 members: nll of 300 rows out of fold (5 folds)"
    assert second.startswith(
        f"best: linear, {table['weights'][0]}, correction {table['correction'][0]}, score "
    )
    assert third.startswith("price of choosing: ")
    assert "<p>Pools of 3 members" in table._repr_html_()
    assert "Pools" not in repr(table[["pool", "score"]])


def test_arrays_and_other_outcomes():
    rng = np.random.default_rng(1)
    cdfs = np.sort(rng.random((2, 80, 3)), axis=2)
    cdfs[:, :, -1] = 1
    table = dt.compare_pools(
        cdfs, rng.integers(0, 3, 80), methods=["linear", "log-linear"], corrections=[None]
    )
    assert len(table) == 4
    time, event = rng.exponential(size=60), rng.random(60) < 0.7
    members = [dt.Predictive.from_scipy(scipy.stats.expon(scale=s * np.ones(60))) for s in (0.5, 2.0)]
    table = dt.compare_pools(
        members, dt.Surv.right(time, event), methods=["transformation", "linear"], corrections=[None]
    )
    assert np.isfinite(table["score"]).all()
    table = dt.compare_pools(
        members, time, methods=["transformation"], weights="equal", score="crps", corrections=None
    )
    assert table["score"].item() == pytest.approx(dt.scores.crps(time, dt.pool(members)))


def test_all_pools_and_corrections_of_levels(ordinal):
    members, y = ordinal
    table = dt.compare_pools(members, y, weights="equal")
    assert set(table["pool"]) == set(METHODS) - {"quantile"}
    assert set(table["correction"]) == {"none", "spread"}
    assert "left out: quantile, equal, none; quantile, equal, spread: the quantile pool averages" in repr(
        table
    )
    mixed = [members[0], dt.Predictive.from_trafo(members[1].trafo() / 1.7, latent="normal")]
    found = dt.compare_pools(mixed, y, methods="transformation", weights="equal", corrections=None)
    expected = dt.scores.nll(y, dt.pool(mixed, latent="logistic"))
    assert found["score"].item() == pytest.approx(expected)


def test_pools_without_closed_form_are_tuned_on_some_rows():
    rng = np.random.default_rng(5)
    x = rng.normal(size=8600)
    cut = np.array([-1.0, 1.0])
    y = (rng.logistic(size=8600)[:, None] > cut - x[:, None]).sum(axis=1)
    members = [dt.Predictive.from_trafo(cut - s * x[:, None]) for s in (0.2, 1.0)]
    found = FittedPool.fit("trimmed-mean", "tuned", members, y, "nll")
    some = np.arange(0, 8600, 3)
    expected = dt.tune_weights([m[some] for m in members], y[some], method="trimmed-mean")
    np.testing.assert_allclose(found.weights, expected.weights)


class Refuses(Recalibration):
    def fit(self, pred, y):
        raise UnsupportedError("not for these")


def test_what_has_no_meaning_is_left_out_with_its_reason(ordinal):
    members, y = ordinal
    table = dt.compare_pools(members, y, methods=["linear"], weights=["equal"], corrections=[None, Refuses()])
    assert len(table) == 1
    assert table.attrs["left_out"] == {"linear, equal, Refuses": "not for these"}
    assert "left out: linear, equal, Refuses: not for these" in repr(table)
    with pytest.raises(UnsupportedError, match="not for these"):
        dt.compare_pools(members, y, methods=["linear"], corrections=[Refuses()])


@pytest.mark.parametrize(
    ("given", "error", "match"),
    [
        ({"methods": ["linaer"]}, UnknownNameError, "methods must be one of .*did you mean 'linear'"),
        ({"methods": []}, InvalidInputError, "methods must hold something to compare, got nothing"),
        ({"weights": ["best"]}, UnknownNameError, "weights must be one of 'equal', 'tuned', got 'best'"),
        ({"corrections": ["sharpen"]}, UnknownNameError, "corrections must be one of"),
        ({"corrections": [3]}, InvalidTypeError, "objects with fit and apply, got int"),
        ({"cv": 1}, InvalidInputError, "cv must be an integer of at least 2"),
        ({"cv": 301}, InvalidInputError, "cv must not exceed the number of rows, got 301 folds for 300 rows"),
        (
            {"cv": ShuffleSplit(2, random_state=0)},
            InvalidInputError,
            "cv must hold out every row once, got 60 rows",
        ),
        ({"cv": 2.5}, InvalidInputError, "cv must be a number of folds or a scikit-learn splitter, got 2.5"),
        ({"progress": 3}, InvalidInputError, "progress must be True, False or 'auto', got 3"),
        ({"score": "auc"}, UnknownNameError, "score must be a mean over rows, one of"),
    ],
)
def test_bad_input(ordinal, given, error, match):
    with pytest.raises(error, match=match):
        dt.compare_pools(*ordinal, **given)


def test_lengths_must_agree(ordinal):
    members, y = ordinal
    with pytest.raises(InvalidInputError, match="members, y must have the same number of rows"):
        dt.compare_pools(members, y[:10])
