"""polars frames and pandas columns in Arrow's memory keep names, numbers, labels and the order of levels."""

from __future__ import annotations

import sys

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import deeptram as dt
from deeptram.errors import InvalidInputError, InvalidTypeError, UnknownNameError
from deeptram.inputs import LinearEncoder, read_table

N = 90
STAGES = ["mild", "bad", "worst"]


@pytest.fixture
def pair():
    """The same rows in polars and in pandas."""
    rng = np.random.default_rng(4)
    columns = {
        "age": rng.normal(50, 10, N),
        "k": rng.integers(0, 5, N),
        "flag": rng.random(N) < 0.5,
        "temp": rng.choice(["warm", "cold"], N),
    }
    stage = rng.choice(STAGES, N)
    frame = pl.DataFrame(columns).with_columns(
        pl.Series("stage", stage, dtype=pl.Enum(STAGES)),
        pl.Series("site", columns["temp"], dtype=pl.Categorical),
    )
    same = pd.DataFrame(columns).assign(
        stage=pd.Categorical(stage, STAGES, ordered=True), site=pd.Categorical(columns["temp"])
    )
    y = rng.choice(["low", "mid", "high"], N)
    levels = ["low", "mid", "high"]
    return frame, same, pl.Series("y", y, dtype=pl.Enum(levels)), pd.Categorical(y, levels, ordered=True)


@pytest.mark.parametrize(
    "spec", [None, "bs(age, df=4) * stage + C(k) + flag:temp", ["stage", "flag", "site"]]
)
def test_designs_are_those_of_pandas(pair, spec):
    frame, same, *_ = pair
    encoder, design = LinearEncoder.fit_transform(frame, spec)
    expected, wanted = LinearEncoder.fit_transform(same, spec)
    assert encoder.names == expected.names
    np.testing.assert_array_equal(design, wanted)
    np.testing.assert_array_equal(encoder.transform(frame[:7]), wanted[:7])
    np.testing.assert_array_equal(expected.transform(frame[:7]), wanted[:7])


def test_columns_keep_their_kind(pair):
    table = read_table(pair[0])
    assert table.names == ("age", "k", "flag", "temp", "stage", "site")
    assert [table.column(name).dtype.kind for name in ("age", "k", "flag")] == ["f", "i", "b"]
    assert table.column("stage").categories.tolist() == STAGES
    assert table.column("stage").ordered
    assert table.column("temp").categories.tolist() == ["cold", "warm"]
    assert read_table({"s": pair[0]["stage"]}).column("s").categories.tolist() == STAGES


def test_an_enum_is_the_order_of_an_outcome(pair):
    frame, same, y, ordered = pair
    model = dt.Polr([dt.LS("age + stage")]).fit(frame, y)
    assert model.classes_.tolist() == ["low", "mid", "high"]
    expected = dt.Polr([dt.LS("age + stage")]).fit(same, ordered)
    assert model.loglik_ == expected.loglik_
    np.testing.assert_array_equal(model.predict_proba(frame), expected.predict_proba(same))
    assert model.coef_.index.tolist() == ["age", "stagebad", "stageworst"]


def test_all_columns_and_their_names(pair):
    frame, y = pair[0].drop("site"), pair[2]
    model = dt.Polr().fit(frame, y)
    assert model.feature_names_in_.tolist() == frame.columns
    model.predict(frame)
    with pytest.raises(InvalidInputError, match=r"[Ff]eature names"):
        model.predict(frame.rename({"age": "years"}))


def test_weights_of_zero_and_surv(pair):
    frame, same, *_ = pair
    weights = (np.arange(N) % 3 > 0).astype(float)
    time, event = np.arange(1.0, N + 1), pl.Series([True] * N)
    model = dt.Coxph([dt.LS("age")]).fit(frame, dt.Surv.right(pl.Series(time), event), sample_weight=weights)
    expected = dt.Coxph([dt.LS("age")]).fit(
        same, dt.Surv.right(time, event.to_numpy()), sample_weight=weights
    )
    assert model.loglik_ == expected.loglik_


def test_an_ensemble(pair):
    frame, same, y, ordered = pair
    models = []
    for X, outcome in ((frame, y), (same, ordered)):
        member = dt.Polr(
            [dt.CS(dt.networks.MLP((4,)), "age"), dt.LS("stage")], training=dt.Training(epochs=2)
        )
        models.append(dt.Ensemble(member, n_members=2, random_state=1).fit(X, outcome))
    np.testing.assert_array_equal(models[0].predict_proba(frame), models[1].predict_proba(same))


def test_missing_values_and_unseen_levels_are_named(pair):
    frame, *_ = pair
    encoder = LinearEncoder.fit(frame, "age + stage + flag")
    for name in ("age", "stage", "flag"):
        holes = frame.with_columns(pl.when(pl.col("k") == 0).then(None).otherwise(pl.col(name)).alias(name))
        with pytest.raises(
            InvalidInputError, match=rf"contains NaN. Column '{name}' has \d+ missing values in rows"
        ):
            encoder.transform(holes)
    other = frame.with_columns(pl.lit("dead").alias("stage"))
    with pytest.raises(UnknownNameError, match=r"column 'stage' must hold levels .* got 'dead'"):
        encoder.transform(other)


def test_what_is_no_table(pair):
    frame, *_ = pair
    with pytest.raises(
        InvalidTypeError, match=r"X must hold data, got a polars LazyFrame; call X.collect\(\) first"
    ):
        dt.Polr().fit(frame.lazy(), pair[2])
    dated = frame.with_columns(pl.lit("2020-01-01").str.to_date().alias("day"), pl.lit([1, 2]).alias("list"))
    for name in ("day", "list"):
        with pytest.raises(InvalidTypeError, match=rf"column '{name}' must hold numbers or strings, got"):
            LinearEncoder.fit(dated, [name])


def test_polars_is_not_needed():
    assert "polars" in sys.modules  # by this file; the package does not import it
    source = [module for name, module in sys.modules.items() if name.startswith("deeptram")]
    assert not any(hasattr(module, "pl") or hasattr(module, "polars") for module in source)


@pytest.mark.parametrize(
    ("values", "dtype", "names"),
    [
        ([1, 2, 3, 4], pa.int64(), ("a",)),
        ([1.5, 2, 3, 4], pa.float32(), ("a",)),
        ([True, False, True, True], pa.bool_(), ("a",)),
        (["u", "v", "w", "u"], pa.string(), ("av", "aw")),
        (["u", "v", "w", "u"], pa.dictionary(pa.int32(), pa.string()), ("av", "aw")),
        ([1, 2, 3, 4], pa.decimal128(25, 2), ("a",)),
    ],
    ids=str,
)
def test_columns_in_arrow_memory(values, dtype, names):
    frame = pd.DataFrame({"a": pd.Series(pd.arrays.ArrowExtensionArray(pa.array(values).cast(dtype)))})
    for spec in (None, "{a == 'u'} + a" if len(names) > 1 else "I(a * 1) + a"):
        encoder, design = LinearEncoder.fit_transform(frame, spec)
        expected = LinearEncoder.fit_transform(pd.DataFrame({"a": values}), spec)[1]
        np.testing.assert_array_equal(design, expected)
        assert set(names) <= set(encoder.names)
        np.testing.assert_array_equal(encoder.transform(frame), design)
