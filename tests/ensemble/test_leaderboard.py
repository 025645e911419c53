"""The leaderboard against cross-validations by hand, library by library."""

from __future__ import annotations

import functools
import subprocess
import sys
from typing import ClassVar

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import scipy.stats
import scoringrules
from lifelines import CoxPHFitter, KaplanMeierFitter, WeibullAFTFitter
from ngboost import NGBRegressor, NGBSurvival
from ngboost.distns import LogNormal
from sklearn.compose import make_column_transformer
from sklearn.ensemble import GradientBoostingRegressor, RandomForestClassifier
from sklearn.linear_model import LinearRegression, LogisticRegression, QuantileRegressor
from sklearn.metrics import log_loss
from sklearn.model_selection import KFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.tree import DecisionTreeRegressor
from sksurv.ensemble import RandomSurvivalForest
from sksurv.svm import FastSurvivalSVM
from statsmodels.api import OLS, Poisson
from statsmodels.miscmodels.ordinal_model import OrderedModel

import deeptram as dt
from deeptram.ensemble import Adapter, adapters
from deeptram.ensemble.adapters import LEVELS, adapter_of, indicators
from deeptram.errors import InvalidInputError, InvalidTypeError, UnknownNameError, UnsupportedError
from deeptram.model.persistence import JSON_NAME

SPLITTER = KFold(3, shuffle=True, random_state=1)


def table(n=150, seed=0):
    rng = np.random.default_rng(seed)
    X = pd.DataFrame({"a": rng.normal(size=n), "b": rng.normal(size=n)})
    return X, X["a"].to_numpy() - 0.5 * X["b"].to_numpy(), rng


def levels_of(numbers, rng):
    return np.digitize(numbers + rng.logistic(size=len(numbers)), [-1.0, 1.0])


@functools.cache
def levels_case():
    X, eta, rng = table()
    y = np.array(["low", "mid", "high"])[levels_of(2 * eta, rng)]
    y = pd.Categorical(y, categories=["low", "mid", "high"], ordered=True)
    models = {
        "logistic": make_pipeline(StandardScaler(), LogisticRegression()),
        "forest": RandomForestClassifier(20, min_samples_leaf=10, random_state=0),
        "polr": dt.Polr(),
        "statsmodels": functools.partial(OrderedModel, distr="logit"),
        "points": LinearRegression(),
    }
    return X, y, models, dt.leaderboard(models, X, y, cv=SPLITTER)


class TestLevels:
    @pytest.fixture
    def case(self):
        return levels_case()

    def test_scores_are_those_of_cross_val_predict(self, case):
        X, y, models, board = case
        codes = np.asarray(y.codes)
        for name in ("logistic", "forest"):
            proba = cross_val_predict(models[name], X, codes, cv=SPLITTER, method="predict_proba")
            found = board[(board["name"] == name) & (board["metric"] == "nll")]["estimate"].item()
            with np.errstate(divide="ignore"):
                own = -np.log(proba[np.arange(len(codes)), codes]).mean()
            assert found == pytest.approx(own, rel=1e-12)
            assert np.isinf(own) or own == pytest.approx(log_loss(codes, proba))
            np.testing.assert_allclose(board.predictions[name].pmf(), proba)

    def test_statsmodels_and_polr_agree(self, case):
        board = case[3]
        nll = board[board["metric"] == "nll"].set_index("name")["estimate"]
        assert nll["statsmodels"] == pytest.approx(nll["polr"], abs=1e-4)
        assert (
            board.predictions["polr"].levels
            == board.predictions["statsmodels"].levels
            == ("low", "mid", "high")
        )

    def test_a_model_that_fails_is_a_row_with_its_sentence(self, case):
        board = case[3]
        row = board.ranking().loc["points"]
        assert np.isnan(row["nll"])
        assert row["note"].startswith(
            "UnsupportedError: a model must predict distributions, got LinearRegression"
        )

    def test_pools_are_last_and_choose_weights_on_other_folds(self, case):
        X, y, _, board = case
        assert list(dict.fromkeys(board["name"]))[-4:] == [
            "pool: linear, equal", "pool: linear, tuned", "pool: transformation, equal", "pool: transformation, tuned",
        ]  # fmt: skip
        names = [name for name in board.predictions if not name.startswith("pool: ")]
        members = [board.predictions[name] for name in names]
        rows = np.empty(len(y))
        lines = board.weights[board.weights["pool"] == "pool: linear, tuned"]
        for number, (train, held) in enumerate(SPLITTER.split(X)):
            tuned = dt.tune_weights([m[train] for m in members], y[train], method="linear")
            np.testing.assert_allclose(lines.iloc[number][names].astype(float), tuned.weights, atol=1e-8)
            pooled = dt.pool([m[held] for m in members], method="linear", weights=tuned.weights)
            rows[held] = dt.scores.nll(y[held], pooled, reduction="none")
        found = board[(board["name"] == "pool: linear, tuned") & (board["metric"] == "nll")]
        assert found["estimate"].item() == pytest.approx(rows.mean())
        assert (lines["gap"] < 1e-8).all()

    def test_intervals_are_paired(self, case):
        _, y, _, board = case
        best = board["name"].iloc[0]
        again = dt.evaluate(board.predictions, y, reference=best, n_boot=0)
        merged = board.merge(again, on=["name", "metric"])
        np.testing.assert_allclose(merged["difference_x"], merged["difference_y"], atol=1e-12)
        own = board[(board["metric"] == "nll") & (board["name"] == "statsmodels")]
        assert (own["upper"] - own["lower"]).item() > 3 * (
            own["difference_upper"] - own["difference_lower"]
        ).item()

    def test_it_prints_and_draws(self, case):
        board = case[3]
        first, *_ = repr(board).splitlines()
        assert first == "5 models, 150 rows out of fold (3 folds), ordered by nll"
        assert "points" in repr(board)
        assert "<p>5 models" in board._repr_html_()
        assert "5 models" not in repr(board[["name", "estimate"]])
        ranking = board.ranking()
        assert list(ranking.columns[:4]) == ["nll", "difference", "lower", "upper"]
        assert list(ranking.columns[-3:]) == ["fit_seconds", "predict_seconds", "note"]
        assert (ranking["fit_seconds"] >= 0).all()
        board.plot()
        plt.close("all")


def test_regressors():
    X, eta, rng = table(120)
    y = eta + rng.normal(size=120)
    tree = DecisionTreeRegressor(max_depth=3, random_state=0)
    settings = {"Base": tree, "n_estimators": 20, "verbose": False, "random_state": 0}
    models = {
        "normal": dt.Lm(),
        "boosted": NGBRegressor(**settings),
        "quantiles": QuantileRegressor(alpha=0),
        "trees": GradientBoostingRegressor(loss="quantile", n_estimators=10, random_state=0),
        "least squares": OLS,
    }
    board = dt.leaderboard(models, X, y, cv=SPLITTER, pool=False)
    crps = board[board["metric"] == "crps"].set_index("name")["estimate"]
    scores = np.empty(120)
    values = np.empty((120, len(LEVELS)))
    for train, held in SPLITTER.split(X):
        fitted = NGBRegressor(**settings).fit(X.to_numpy()[train], y[train])
        found = fitted.pred_dist(X.to_numpy()[held]).params
        scores[held] = scoringrules.crps_normal(y[held], found["loc"], found["scale"])
        for j, q in enumerate(LEVELS):
            values[held, j] = (
                QuantileRegressor(alpha=0, quantile=q).fit(X.iloc[train], y[train]).predict(X.iloc[held])
            )
    assert crps["boosted"] == pytest.approx(scores.mean(), rel=1e-9)
    np.testing.assert_allclose(
        board.predictions["quantiles"].quantile(LEVELS), np.sort(values, axis=1), rtol=1e-3
    )
    assert crps["least squares"] == pytest.approx(crps["normal"], rel=0.02)  # n against n - p
    assert np.isfinite(crps["trees"])
    assert board.ranking().index[0] == board["name"].iloc[0]


def test_survival():
    X, eta, rng = table(150)
    time, censoring = rng.exponential(np.exp(0.7 * eta)), rng.exponential(2.0, size=150)
    y = dt.Surv.right(np.minimum(time, censoring), time <= censoring)
    forest = RandomSurvivalForest(10, min_samples_leaf=10, random_state=0)
    models = {
        "cox": dt.Coxph(),
        "lifelines": CoxPHFitter(),
        "weibull": WeibullAFTFitter(),
        "curve": KaplanMeierFitter(),
        "forest": forest,
        "boosted": NGBSurvival(Dist=LogNormal, n_estimators=10, verbose=False),
        "ranks": FastSurvivalSVM(),
    }
    board = dt.leaderboard(models, X, y, cv=SPLITTER)
    assert list(dict.fromkeys(board["metric"])) == ["ibs", "concordance", "nll"]
    notes = board.ranking()["note"]
    assert notes["ranks"].startswith(
        "UnsupportedError: FastSurvivalSVM ranks rows but has no survival function"
    )
    assert set(board.predictions) == {
        *(set(models) - {"ranks"}),
        *[n for n in notes.index if n.startswith("pool")],
    }
    seen = np.array(
        list(zip(y.observations.exact, y.observations.lower, strict=True)), dtype=[("e", bool), ("t", float)]
    )
    for train, held in SPLITTER.split(X):
        curves = forest.fit(X.iloc[train], seen[train]).predict_survival_function(X.iloc[held])
        expected = [curve(0.8) for curve in curves]
        np.testing.assert_allclose(board.predictions["forest"][held].survivor(0.8), expected)
        frame = X.iloc[train].assign(t=seen["t"][train], e=seen["e"][train])
        cox = CoxPHFitter().fit(frame, "t", "e").predict_survival_function(X.iloc[held], times=[0.8])
        grid = np.unique(seen["t"][train][seen["e"][train]])
        at = grid[np.searchsorted(grid, 0.8, side="right") - 1]
        cox = CoxPHFitter().fit(frame, "t", "e").predict_survival_function(X.iloc[held], times=[at])
        np.testing.assert_allclose(
            board.predictions["lifelines"][held].survivor(0.8), cox.to_numpy()[0], rtol=1e-6
        )
        km = KaplanMeierFitter().fit(seen["t"][train], seen["e"][train])
        np.testing.assert_allclose(board.predictions["curve"][held].survivor(0.8), km.predict(0.8), rtol=1e-9)
    near = board.predictions["cox"].survivor(0.8) - board.predictions["lifelines"].survivor(0.8)
    assert np.abs(near).mean() < 0.05


def test_counts_of_statsmodels():
    X, eta, rng = table(100)
    y = rng.poisson(np.exp(0.5 * eta + 1))
    board = dt.leaderboard({"ours": dt.Cotram(), "poisson": Poisson}, X, y, cv=SPLITTER, pool=False)
    rows = np.empty(100)
    for train, held in SPLITTER.split(X):
        exog = np.column_stack([np.ones(100), X])
        mean = Poisson(y[train], exog[train]).fit(disp=False).predict(exog[held])
        rows[held] = -scipy.stats.poisson.logpmf(y[held], mean)
    found = board[(board["name"] == "poisson") & (board["metric"] == "nll")]["estimate"].item()
    assert found == pytest.approx(rows.mean(), rel=1e-9)
    assert not any(name.startswith("pool") for name in board["name"])


def test_columns_of_text_become_indicators_where_numbers_are_needed():
    X, eta, rng = table(120)
    X["group"] = np.array(["u", "v", "w"])[rng.integers(0, 3, 120)]
    y = levels_of(eta, rng) > 0
    coded = make_pipeline(
        make_column_transformer((OneHotEncoder(), ["group"]), remainder="passthrough"), LogisticRegression()
    )
    board = dt.leaderboard({"plain": LogisticRegression(), "pipeline": coded, "own": dt.Logit()}, X, y, cv=3)
    assert (board.ranking()["note"] == "").all()
    assert list(indicators(X).columns) == ["a", "b", "group_v", "group_w"]
    assert indicators(X[["a"]]) is not None
    assert indicators(np.eye(2)).shape == (2, 2)


class Counting:
    """A model of no library: the distribution of the training outcomes; counts its fits."""

    fits: ClassVar[list[int]] = []

    def fit(self, X, y):
        self.fits.append(len(y))
        self.share = np.bincount(y, minlength=3) / len(y)
        return self

    def predict_distribution(self, X):
        return dt.Predictive.from_proba(np.tile(self.share, (len(X), 1)))


def test_a_stopped_run_goes_on(tmp_path):
    X, eta, rng = table(90)
    y = levels_of(eta, rng)
    models = {"own": Counting(), "polr": dt.Polr(), "curves/of: odd name": Counting()}
    Counting.fits.clear()
    first = dt.leaderboard(models, X, y, cv=3, path=tmp_path / "run")
    assert len(Counting.fits) == 6
    again = dt.leaderboard(models, X, y, cv=3, path=tmp_path / "run")
    assert len(Counting.fits) == 6
    assert first.drop(columns=["fit_seconds"]).equals(again.drop(columns=["fit_seconds"]))
    seconds = [
        board[~board["name"].str.startswith("pool")]["fit_seconds"].tolist() for board in (first, again)
    ]
    assert seconds[0] == seconds[1]
    (next((tmp_path / "run").glob("own-*")) / "fold-1" / JSON_NAME).write_text("{")  # damaged: fitted again
    dt.leaderboard(models, X, y, cv=3, path=tmp_path / "run")
    assert len(Counting.fits) == 7
    dt.leaderboard(models, X, np.minimum(y, 1), cv=3, path=tmp_path / "run")  # other data
    assert len(Counting.fits) == 13


def test_every_form_of_distribution_is_kept(tmp_path):
    X, eta, rng = table(80)
    time = rng.exponential(np.exp(eta))
    models = {
        "line": dt.Colr(), "scaled": dt.BoxCox([dt.LS("a"), dt.Scale("b")]), "quantiles": QuantileRegressor(alpha=0),
        "curve": KaplanMeierFitter(),
    }  # fmt: skip
    boards = [
        dt.leaderboard(models, X, time, cv=2, path=tmp_path, pool=False, metrics="nll") for _ in range(2)
    ]
    for name in models:
        one, two = (board.predictions[name] for board in boards)
        np.testing.assert_array_equal(one.log_prob(time), two.log_prob(time))
        assert type(one.parts[0]) is type(two.parts[0])
    counts = [
        dt.leaderboard(
            {"count": dt.Cotram()},
            X,
            rng.poisson(2, 80) if i < 0 else np.arange(80) % 5,
            cv=2,
            path=tmp_path / "c",
        )
        for i in (0, 1)
    ]
    assert counts[0]["estimate"].tolist() == counts[1]["estimate"].tolist()


@pytest.mark.slow
def test_jobs_in_other_processes():
    X, eta, rng = table(90)
    y = eta + rng.normal(size=90)
    models = {"normal": dt.Lm(), "transformed": dt.BoxCox()}
    one, two = (dt.leaderboard(models, X, y, cv=3, n_jobs=jobs) for jobs in (1, 2))
    assert one["estimate"].tolist() == two["estimate"].tolist()


class Climatology:
    pass


class ClimatologyAdapter(Adapter):
    def matches(self, model):
        return isinstance(model, Climatology)

    def fit(self, model, X, y, levels):
        return np.mean(y), np.std(y)

    def predict(self, fitted, X):
        return dt.Predictive.from_scipy(scipy.stats.norm(np.full(len(X), fitted[0]), fitted[1]))


def test_an_adapter_of_ones_own(monkeypatch):
    monkeypatch.setattr(adapters, "_ADAPTERS", list(adapters._ADAPTERS))
    with pytest.raises(UnsupportedError, match="got Climatology, which predicts points at most"):
        adapter_of(Climatology())
    dt.register_adapter(ClimatologyAdapter())
    X, eta, rng = table(60)
    board = dt.leaderboard(
        {"climatology": Climatology(), "normal": dt.Lm()}, X, eta + rng.normal(size=60), cv=3
    )
    assert list(dict.fromkeys(board["name"]))[:2] == ["normal", "climatology"]
    with pytest.raises(InvalidTypeError, match="an adapter must be an Adapter, got Climatology"):
        dt.register_adapter(Climatology())


def test_other_libraries_are_not_imported():
    code = (
        "import sys, numpy as np, deeptram as dt; rng = np.random.default_rng(0); x = rng.normal(size=(40, 1));"
        "dt.leaderboard({'a': dt.Lm()}, x, x[:, 0] + rng.normal(size=40), cv=2);"
        "print([m for m in ('lifelines', 'sksurv', 'ngboost', 'statsmodels') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


class Shares:
    """Tells the shares of classes of the rows it was fitted to, or the same for all."""

    def __init__(self, same=False):
        self.same = same

    def fit(self, X, y):
        counts = np.bincount(y, minlength=3) + 1e-300
        self.share_ = np.full(3, 1 / 3) if self.same else np.where(counts < 0.5, 0.0, counts) / counts.sum()
        return self

    def predict_distribution(self, X):
        return dt.Predictive.from_proba(np.tile(self.share_ / self.share_.sum(), (len(X), 1)))


def test_infinite_scores_are_noted():
    """The only row of the last class: no share elsewhere, and no weight for the model that covers it."""
    X = pd.DataFrame({"a": np.arange(40.0)})
    y = np.append(2, np.random.default_rng(0).integers(0, 2, 39))
    models = {"shares": Shares(), "same": Shares(same=True), "polr": dt.Polr()}
    board = dt.leaderboard(models, X, y, cv=KFold(4), metrics=["rps", "nll"], pool=["linear"])
    notes = board.ranking()["note"]
    assert notes["shares"] == "nll is infinite in row 0"
    assert notes["same"] == notes["pool: linear, equal"] == ""
    told = "nll is infinite in row 0: weights tuned on the other folds give these outcomes no probability"
    assert notes["pool: linear, tuned"] == told


class TestErrors:
    def test_metrics(self):
        X, eta, rng = table(30)
        with pytest.raises(UnknownNameError, match=r"metric must be one of .*'nll'.* got 'nlll'"):
            dt.leaderboard({"never fitted": None}, X, eta, metrics=["nlll"])
        y = levels_of(eta, rng)
        with pytest.raises(
            UnsupportedError,
            match=r"metrics must be defined for the outcome, got uno: .*predictions are .*rps",
        ):
            dt.leaderboard({"polr": dt.Polr()}, X, y, cv=2, metrics=["uno"])

    def test_models(self):
        X, eta, _ = table(30)
        with pytest.raises(InvalidInputError, match="models must be a dict of names and models, got list"):
            dt.leaderboard([dt.Lm()], X, eta)
        with pytest.raises(
            InvalidInputError, match=r"at least one model must predict distributions, .*LinearRegression"
        ):
            dt.leaderboard({"points": LinearRegression()}, X, eta)
        with pytest.raises(InvalidTypeError, match="pool must be the name of a pool or a rule, got int"):
            dt.leaderboard({"a": dt.Lm(), "b": dt.BoxCox()}, X, eta + np.sin(9 * eta), cv=2, pool=[1])
        with pytest.raises(InvalidInputError, match="X, y must have the same number of rows"):
            dt.leaderboard({"normal": dt.Lm()}, X, eta[:5])

    @pytest.mark.parametrize(
        ("model", "sentence"),
        [
            (LogisticRegression(), "LogisticRegression is a classifier, got an outcome of numbers"),
            (OrderedModel, "OrderedModel is for levels, got an outcome of numbers"),
            (functools.partial(OrderedModel, distr="logit"), "OrderedModel is for levels"),
        ],
    )
    def test_models_of_levels_refuse_numbers(self, model, sentence):
        X, eta, _ = table(30)
        with pytest.raises(UnsupportedError, match=sentence):
            adapter_of(model).fit(model, X, eta, None)

    def test_late_entry(self):
        X, _, rng = table(30)
        y = dt.Surv.right(1 + rng.random(30), np.ones(30), entry=rng.random(30))
        with pytest.raises(
            UnsupportedError,
            match="CoxPHFitter needs exact and right-censored outcomes without left truncation",
        ):
            adapter_of(CoxPHFitter()).fit(CoxPHFitter(), X, y, None)

    def test_a_prediction_must_have_the_rows(self):
        class Short(Counting):
            def predict_distribution(self, X):
                return super().predict_distribution(X[:1])

        X, eta, rng = table(30)
        board = dt.leaderboard({"short": Short(), "polr": dt.Polr()}, X, levels_of(eta, rng), cv=2)
        assert "a prediction must be a Predictive of 15 rows" in board.ranking().loc["short", "note"]

    def test_warnings_are_noted(self):
        X, eta, rng = table(60)
        board = dt.leaderboard(
            {"short": LogisticRegression(max_iter=1), "polr": dt.Polr()}, X, levels_of(eta, rng), cv=2
        )
        assert board.ranking().loc["short", "note"].startswith("warned: lbfgs failed to converge")

    def test_an_order_of_text_is_told(self):
        X, eta, rng = table(60)
        y = np.array(["low", "mid", "high"])[levels_of(eta, rng)]
        with pytest.warns(dt.errors.OrderWarning, match="high < low < mid"):
            dt.leaderboard({"polr": dt.Polr()}, X, y, cv=2, pool=False)
        board = dt.leaderboard({"polr": dt.Polr(levels=["low", "mid", "high"])}, X, y, cv=2, pool=False)
        assert board.predictions["polr"].levels == ("low", "mid", "high")
