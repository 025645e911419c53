"""Rows in pieces: the same model as from the same rows in memory, with the same diagnosis and refusals."""

from __future__ import annotations

import itertools
import warnings

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from threadpoolctl import threadpool_info, threadpool_limits

import deeptram as dt
from deeptram.errors import (
    CollinearityWarning,
    EmptyClassWarning,
    InvalidInputError,
    InvalidTypeError,
    SeparationWarning,
    UnknownNameError,
    UnsupportedError,
)
from deeptram.estimators import partitioned
from deeptram.fitting.exact.pieces import Likeness
from deeptram.inputs.partitions import Parquet
from deeptram.latent import Logistic
from deeptram.likelihood.cutpoints import CutpointLikelihood, cells_of

N = 1500
CUTS = (0, 0, 311, 330, 900, 1204, N)  # uneven pieces, the first of them empty


@pytest.fixture(autouse=True)
def _small_pilot(monkeypatch):
    """Let the first pass draw few rows, so that the fit has to work on what it did not see, in batches."""
    monkeypatch.setattr(partitioned, "PILOT_ROWS", 60)
    monkeypatch.setattr(partitioned, "BATCH_ROWS", 200)
    with dask.config.set(scheduler="synchronous"):
        yield


@pytest.fixture(scope="module")
def frame():
    rng = np.random.default_rng(4)
    table = pd.DataFrame(
        {
            "a": rng.normal(size=N),
            "b": 50 + 8 * rng.normal(size=N),
            "g": rng.choice(["u", "v", "w"], size=N, p=[0.6, 0.38, 0.02]),
            "s": rng.integers(0, 3, size=N),
        }
    )
    eta = 0.5 * table["a"] - 0.04 * (table["b"] - 50) + 0.4 * (table["g"] == "v")
    time = np.exp(eta / 2 + 0.5 * np.log(rng.exponential(size=N)))
    end = rng.exponential(3.0, size=N)
    table["grade"] = np.digitize(eta + rng.logistic(size=N), [-2.0, -1.0, 0.0, 1.5])
    table["sick"] = table["grade"] > 2
    table["level"] = eta + rng.logistic(size=N)
    table["count"] = rng.poisson(np.exp(1 + 0.3 * eta))
    table["time"], table["event"] = np.minimum(time, end), time <= end
    table["entry"] = 0.2 * table["time"] * rng.uniform(size=N)
    table["low"] = np.where(np.arange(N) % 5 == 0, -np.inf, np.floor(table["level"]))
    table["high"] = np.where(np.arange(N) % 7 == 0, np.inf, np.floor(table["level"]) + 1)
    table["w"] = rng.integers(0, 4, size=N).astype(float)
    return table


def as_dask(frame):
    parts = [frame.iloc[start:stop] for start, stop in itertools.pairwise(CUTS)]
    return dd.from_delayed([dask.delayed(part) for part in parts], meta=frame.iloc[:0])


@pytest.fixture(params=["dask", "parquet"])
def cut(request, tmp_path):
    """A function that turns a table into pieces."""
    if request.param == "dask":
        return as_dask

    def write(table):
        for number, (start, stop) in enumerate(itertools.pairwise(CUTS)):
            table.iloc[start:stop].to_parquet(tmp_path / f"{number}.parquet", index=False)
        return dt.parquet(tmp_path, batch_rows=200)

    return write


def agree(found, expected, tolerance=1e-9):
    """Compare everything a fit reports, in units of standard errors where these are larger than one."""
    assert found.coef_.index.tolist() == expected.coef_.index.tolist()
    assert found.vcov_.columns.tolist() == expected.vcov_.columns.tolist()
    parts = [m.theta_.tolist() + m.coef_.tolist() + m.scale_coef_.tolist() for m in (found, expected)]
    unit = np.maximum(1.0, np.sqrt(np.diag(expected.vcov_.to_numpy())))
    np.testing.assert_allclose(parts[0] / unit, parts[1] / unit, rtol=tolerance, atol=tolerance)
    scale = np.outer(unit, unit)
    np.testing.assert_allclose(found.vcov_ / scale, expected.vcov_ / scale, rtol=1e-7, atol=tolerance)
    assert found.loglik_ == pytest.approx(expected.loglik_, abs=1e-8)
    assert (found.n_obs_, found.n_parameters_) == (expected.n_obs_, expected.n_parameters_)
    assert found.converged_ == expected.converged_
    assert getattr(found, "n_events_", None) == getattr(expected, "n_events_", None)


RIGHT = dt.Surv.right("time", "event")
CASES = {
    "ordinal": (lambda: dt.Polr([dt.LS("a", "b", "g")]), "grade", None),
    "weights": (lambda: dt.Polr([dt.LS("a", "b", "g")]), "grade", "w"),
    "probit": (lambda: dt.Polr([dt.LS("a", "g")], latent="probit"), "grade", None),
    "strata": (lambda: dt.Polr([dt.SI("s"), dt.LS("a + g")]), "grade", "w"),
    "scale": (lambda: dt.Polr([dt.LS("a"), dt.Scale("b")]), "grade", None),
    "binary": (lambda: dt.Logit([dt.LS("a * g")]), "sick", None),
    "continuous": (lambda: dt.Colr([dt.LS("a", "b")], order=4), "level", None),
    "normal": (lambda: dt.Lm([dt.LS("a", "b", "g")]), "level", "w"),
    "varying": (lambda: dt.BoxCox([dt.LS("a"), dt.Varying("b")], order=3), "level", None),
    "interval": (lambda: dt.Colr([dt.LS("a", "b")], order=4), dt.Surv.interval("low", "high"), None),
    "right": (lambda: dt.Coxph([dt.LS("a", "b", "g")], order=4), RIGHT, None),
    "left": (lambda: dt.Coxph([dt.LS("a")], order=3), dt.Surv.left("time", "event"), None),
    "truncated": (
        lambda: dt.Survreg([dt.LS("a", "g")]),
        dt.Surv.right("time", "event", entry="entry"),
        "w",
    ),
    "strata of times": (lambda: dt.Coxph([dt.SI("s"), dt.LS("a")], order=3), RIGHT, None),
    "count": (lambda: dt.Cotram([dt.LS("a", "b")], order=4), "count", None),
    "formula": (
        lambda: dt.Polr([dt.LS("scale(a) * center(b) + C(s) + bs(b, knots=[45, 55]) + standardize(a):g")]),
        "grade",
        "w",
    ),
}


@pytest.mark.filterwarnings("ignore::deeptram.errors.CollinearityWarning")
@pytest.mark.parametrize("case", CASES)
def test_pieces_give_the_model_of_all_rows(case, frame, cut):
    make, y, weight = CASES[case]
    outcome = frame[y] if isinstance(y, str) else y.of(frame)
    named = [y] if isinstance(y, str) else list(y.parts.values())
    X = frame.drop(columns=named)
    expected = make().fit(X, outcome, sample_weight=None if weight is None else frame[weight])
    found = make().fit(cut(frame), y, sample_weight=weight)
    agree(found, expected)
    np.testing.assert_allclose(found.predict_quantile(X[:5], 0.5), expected.predict_quantile(X[:5], 0.5))


def test_all_other_columns_are_covariates_and_series_stand_beside_x(frame):
    table = frame[["a", "b", "g", "time", "event", "w"]]
    expected = dt.Coxph(order=3).fit(table[["a", "b", "g"]], RIGHT.of(table), sample_weight=table["w"])
    lazy = as_dask(table)
    agree(dt.Coxph(order=3).fit(lazy, RIGHT, sample_weight="w"), expected)
    y = dt.Surv.right(lazy["time"], lazy["event"])
    agree(dt.Coxph(order=3).fit(lazy[["a", "b", "g"]], y, sample_weight=lazy["w"]), expected)
    assert repr(y) == "Surv.right(time=<Series>, event=<Series>)"
    polr = dt.Polr([dt.LS("a")]).fit(lazy[["a"]], as_dask(frame)["grade"])
    agree(polr, dt.Polr([dt.LS("a")]).fit(frame, frame["grade"]))


def test_names_of_columns_work_in_memory_too(frame):
    table = frame[["a", "grade", "time", "event", "w"]]
    expected = dt.Polr([dt.LS("a")]).fit(table[["a"]], table["grade"], sample_weight=table["w"])
    agree(dt.Polr([dt.LS("a")]).fit(table, "grade", sample_weight="w"), expected)
    agree(
        dt.Coxph([dt.LS("a")], order=3).fit(table, RIGHT),
        dt.Coxph([dt.LS("a")], order=3).fit(table, RIGHT.of(table)),
    )
    with pytest.raises(InvalidTypeError, match="named as y or sample_weight need a data frame as X, got nd"):
        dt.Polr().fit(table[["a"]].to_numpy(), "grade")
    with pytest.raises(UnknownNameError, match=r"column 'grad' is needed but missing from X.*mean 'grade'"):
        dt.Polr().fit(table, "grad")


def test_ordered_categories_keep_their_order(frame, cut):
    order = ["none", "some", "much"]
    table = frame[["a"]].assign(
        y=pd.Categorical.from_codes(np.minimum(frame["grade"], 2), order, ordered=True),
        g=pd.Categorical(frame["g"], ["w", "u", "v"]),
    )
    found = dt.Polr().fit(cut(table), "y")
    assert found.classes_.tolist() == order
    assert found.coef_.index.tolist() == ["a", "gu", "gv"]
    agree(found, dt.Polr().fit(table[["a", "g"]], table["y"]))


def test_a_model_of_pieces_is_saved_loaded_and_profiled(frame, cut, tmp_path_factory):
    model = dt.Polr([dt.LS("a")]).fit(cut(frame), "grade")
    expected = dt.Polr([dt.LS("a")]).fit(frame, frame["grade"])
    interval, other = (m.confint(method="profile").to_numpy() for m in (model, expected))
    np.testing.assert_allclose(interval, other, rtol=1e-6)
    path = model.save(tmp_path_factory.mktemp("saved") / "model")
    again = dt.load(path)
    np.testing.assert_array_equal(again.predict_proba(frame[:4]), model.predict_proba(frame[:4]))
    assert dt.compare(model, dt.Polr([dt.SI()]).fit(cut(frame), "grade"))["p"].iloc[1] < 1e-6
    with pytest.raises(UnsupportedError, match="the test of proportionality needs the training rows in mem"):
        dt.proportionality_test(model)


# -- diagnosis -----------------------------------------------------------------------------------------


def both(make, table, y, cut, category):
    """Fit in memory and in pieces, and return both models and the texts of their warnings."""
    results = []
    for X, outcome in ((table.drop(columns=y), table[y]), (cut(table), y)):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", category)
            model = make().fit(X, outcome)
        results.append((model, [str(one.message) for one in caught]))
    return results


def test_collinear_columns_are_left_out_alike(frame, cut):
    table = frame[["a", "b", "grade"]].assign(twice=2 * frame["a"] - frame["b"] / 3)
    (expected, said), (found, told) = both(dt.Polr, table, "grade", cut, CollinearityWarning)
    assert said == told
    assert len(told) == 1
    agree(found, expected)


def test_rare_rows_that_make_columns_independent_are_found(frame, cut):
    """Two columns that differ in one row only, and an interaction seen in one row."""
    table = frame[["a", "grade"]].copy()
    table["almost"] = np.where(np.arange(N) == 1000, 0.0, table["a"])
    table["f"] = np.where(np.arange(N) % 10 == 0, "p", "q")
    table["h"] = np.where((np.arange(N) % 10 == 1) | (np.arange(N) == 1200), "x", "z")
    make = lambda: dt.Polr([dt.LS("a + almost + f * h")])  # noqa: E731
    (expected, said), (found, told) = both(make, table, "grade", cut, UserWarning)
    assert (said, told) == ([], [])
    agree(found, expected, 1e-8)


@pytest.mark.parametrize("make", [dt.Logit, dt.Polr], ids=["binary", "ordinal"])
def test_separation_is_found_in_all_rows(make, cut):
    """Column d is one for outcomes of the last class only; so is e, but for a row that no pilot has."""
    rng = np.random.default_rng(8)
    x, group = rng.normal(size=N), np.arange(N) % 50
    d, e = (group == 3).astype(float), (group == 7).astype(float)
    cuts = [0.5] if make is dt.Logit else [-1.0, 0.0, 1.0]
    y = np.where((d == 1) | (e == 1), len(cuts), np.digitize(x + rng.logistic(size=N), cuts))
    y[1457] = 0
    table = pd.DataFrame({"x": x, "d": d, "e": e, "y": y})
    assert e[1457] == 1
    (expected, said), (found, told) = both(make, table, "y", cut, SeparationWarning)
    assert said == told
    assert "for ever in: d (+inf);" in told[0]
    assert found.coef_["d"] == expected.coef_["d"] == np.inf
    assert not found.converged_
    np.testing.assert_allclose(found.coef_[["x", "e"]], expected.coef_[["x", "e"]], rtol=1e-6)
    assert found.loglik_ == pytest.approx(expected.loglik_, abs=1e-6)
    rows = table[["x", "d", "e"]][:50]
    np.testing.assert_allclose(found.predict_proba(rows), expected.predict_proba(rows), atol=1e-7)


def test_a_pilot_that_is_separated_does_not_decide(cut):
    """All rows of a rare level but one are of one class; that one is in the last piece."""
    rng = np.random.default_rng(9)
    x, d = rng.normal(size=N), (np.arange(N) % 50 == 0).astype(float)
    y = np.where(d == 1, 1, (x + rng.logistic(size=N) > 0).astype(int))
    y[1450] = 0
    table = pd.DataFrame({"x": x, "d": d, "y": y})
    (expected, said), (found, told) = both(dt.Logit, table, "y", cut, SeparationWarning)
    assert (said, told) == ([], [])
    agree(found, expected)


def test_empty_classes_are_told_by_stratum(frame, cut):
    table = frame[["a", "s", "grade"]].copy()
    table.loc[table["s"] == 1, "grade"] = np.maximum(table["grade"], 1)
    make = lambda: dt.Polr([dt.SI("s"), dt.LS("a")])  # noqa: E731
    (expected, said), (found, told) = both(make, table, "grade", cut, EmptyClassWarning)
    assert said == told
    assert len(said) == 1
    np.testing.assert_allclose(found.theta_, expected.theta_, rtol=1e-8)


# -- refusals -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "error", "message"),
    [
        (
            dt.Polr([dt.CS(print, "a")]),
            UnsupportedError,
            r"Polr with networks needs rows that can",
        ),
        (
            dt.Polr(loss="rps"),
            UnsupportedError,
            "partitioned data need loss='nll', got loss='rps'; change it",
        ),
        (dt.Tram(outcome="nominal"), UnsupportedError, "partitioned data need an ordered outcome, got outc"),
        (dt.Polr([dt.LS("bs(b, df=4)")]), InvalidInputError, "learned in pieces, got 'bs.*give knots="),
        (dt.Polr([dt.LS("poly(b, 2)")]), InvalidInputError, "which needs all rows at once"),
        (dt.Polr([dt.LS("center(log(b))")]), InvalidInputError, "compute the column before fitting"),
        (dt.Polr([dt.LS("c")]), UnknownNameError, "column 'c' is needed but missing from X"),
    ],
    ids=["networks", "loss", "nominal", "spline", "poly", "expression", "column"],
)
def test_what_cannot_be_fitted_in_pieces_is_refused_with_the_reason(model, error, message, frame, cut):
    with pytest.raises(error, match=message):
        model.fit(cut(frame), "grade")


def test_bad_rows_are_named_by_piece(frame, cut):
    table = frame[["a", "grade"]].copy()
    table.loc[905, "a"] = np.nan
    with pytest.raises(InvalidInputError, match=r"partition \d+: .*Column 'a' has 1 missing value in row 5"):
        dt.Polr().fit(cut(table), "grade")
    table = frame[["a", "time", "event"]].copy()
    table.loc[905, "time"] = -1.0
    with pytest.raises(InvalidInputError, match=r"partition \d+: time must not be negative, .* in row 5"):
        dt.Coxph().fit(cut(table), RIGHT)


def test_calls_that_are_not_meant_are_refused(frame, tmp_path):
    lazy = as_dask(frame)
    with pytest.raises(InvalidTypeError, match="must be the name of a column or a Dask series, got ndarray"):
        dt.Polr().fit(lazy, frame["grade"].to_numpy())
    with pytest.raises(InvalidTypeError, match="sample_weight of partitioned data must be the name of a col"):
        dt.Polr().fit(lazy, "grade", sample_weight=frame["w"])
    with pytest.raises(UnknownNameError, match="column 'grades' is needed but missing from X"):
        dt.Polr().fit(lazy, "grades")
    with pytest.raises(InvalidInputError, match=r"X and \(y\) must have the same partitions, got 6 and 1"):
        dt.Polr().fit(lazy, lazy["grade"].repartition(npartitions=1))
    shorter = dd.from_delayed([dask.delayed(frame["grade"].iloc[:9])] * 6, meta=frame["grade"].iloc[:0])
    with pytest.raises(InvalidInputError, match=r"same number of rows, got \d+ and 9 in partition \d"):
        dt.Polr().fit(lazy[["a"]], shorter)
    with pytest.raises(UnsupportedError, match=r"must be a Dask data frame or dt.parquet.path., got Array"):
        dt.Polr().fit(lazy[["a"]].to_dask_array(), "grade")
    with pytest.raises(InvalidInputError, match="X must hold at least one row, got 0 sample"):
        dt.Polr().fit(dd.from_pandas(frame.iloc[:0], npartitions=1), "grade")
    with pytest.raises(
        InvalidInputError, match=r"dt.parquet needs a Parquet file, a folder of them, or a list"
    ):
        dt.parquet(tmp_path / "nowhere.parquet")
    with pytest.raises(InvalidInputError, match="batch_rows must be"):
        dt.parquet(tmp_path, batch_rows=0)
    with pytest.raises(InvalidTypeError, match="names of columns or Dask series, all of one sort, got"):
        dt.Surv.right("time", [1, 0])
    many = pd.DataFrame({"a": [str(k) for k in range(10_010)], "y": np.arange(10_010) % 2})
    with pytest.raises(
        InvalidInputError, match="a factor must have at most 10000 levels, got more in column"
    ):
        dt.Logit().fit(dd.from_pandas(many, npartitions=1), "y")


def test_parquet_knows_its_columns_and_rows_and_reads_lists_and_folders_by_name(frame, tmp_path):
    for s, part in frame.groupby("s"):
        (tmp_path / f"s={s}").mkdir()
        part.drop(columns="s").to_parquet(tmp_path / f"s={s}" / "part.parquet")
    source = dt.parquet(tmp_path)
    assert len(source) == N
    assert set(source.columns) == set(frame.columns)
    files = sorted(str(path) for path in tmp_path.glob("*/*.parquet"))
    model, other = dt.Polr([dt.LS("a")]), dt.Polr([dt.SI("s"), dt.LS("a")])
    agree(model.fit(dt.parquet(files), "grade"), dt.Polr([dt.LS("a")]).fit(frame, "grade"))
    expected = dt.Polr([dt.SI("s"), dt.LS("a")]).fit(frame, "grade")
    np.testing.assert_allclose(other.fit(source, "grade").coef_, expected.coef_, rtol=1e-9)


@pytest.mark.parametrize("model", [dt.Polr(), dt.Cotram(order=4)])
def test_a_fit_needs_a_pass_for_the_rows_and_few_for_the_steps(model, monkeypatch, tmp_path):
    rng = np.random.default_rng(2)
    table = pd.DataFrame(rng.normal(size=(40_000, 3)), columns=["a", "b", "c"])
    table["y"] = np.digitize(table["a"] - table["b"] / 2 + rng.logistic(size=40_000), [-2, 0, 1])
    table.to_parquet(tmp_path / "rows.parquet")
    monkeypatch.setattr(partitioned, "PILOT_ROWS", 8_000)
    passes, reduce = [], Parquet.reduce
    monkeypatch.setattr(Parquet, "reduce", lambda *one: passes.append(1) or reduce(*one))
    found = clone(model).fit(dt.parquet(tmp_path / "rows.parquet", batch_rows=9_000), "y")
    expected = clone(model).fit(table[["a", "b", "c"]], table["y"])
    assert len(passes) <= 4
    np.testing.assert_allclose(found.coef_, expected.coef_, rtol=1e-8)
    np.testing.assert_allclose(found.vcov_, expected.vcov_, rtol=1e-7)


def test_the_likeness_of_a_likelihood_has_its_derivatives():
    rng = np.random.default_rng(3)
    x = rng.normal(size=(200, 2))
    codes = np.digitize(x[:, 0] + rng.logistic(size=200), [-1.0, 1.0])
    codes[:3] = [0, 1, 2]
    cells = cells_of(codes, 3, None, 1)
    whole, part = (
        CutpointLikelihood(
            codes[:n], cells, torch.from_numpy(x[:n]), torch.full((n,), 200.0 / n).double(), Logistic()
        )
        for n in (200, 40)
    )
    point, away = np.array([-1.0, 0.8, 0.3, 0.1]), torch.tensor([0.02, -0.01, 0.03, 0.01])
    at = torch.from_numpy(point)
    value, gradient, hessian = whole.evaluate(at)
    near = Likeness(part, point, (value, gradient.numpy(), hessian.numpy()))
    for found, expected in zip(near.evaluate(at), (value, gradient, hessian), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-10)
    moved = at + away.double()
    value, gradient, hessian = near.evaluate(moved)
    assert value == pytest.approx(near.value(moved), rel=1e-12)
    for j, step in enumerate(1e-5 * torch.eye(4, dtype=torch.float64)):
        ends = [near.evaluate(moved + sign * step) for sign in (1, -1)]
        assert float(gradient[j]) == pytest.approx((ends[0][0] - ends[1][0]) / 2e-5, rel=1e-5, abs=1e-5)
        np.testing.assert_allclose(hessian[j], (ends[0][1] - ends[1][1]) / 2e-5, rtol=1e-5, atol=1e-4)


def test_blas_has_one_thread_while_batches_are_read(frame, tmp_path):
    frame.to_parquet(tmp_path / "rows.parquet")

    def threads(_, __):
        return {one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas"}

    with threadpool_limits(2, user_api="blas"):
        before = threads(None, 0)
        assert dt.parquet(tmp_path / "rows.parquet", batch_rows=500).reduce(threads, set.union) == {1}
        assert threads(None, 0) == before
