"""``dt.predict_frame``: a table in, its predictions out, in parts and on partitioned data."""

from __future__ import annotations

import functools

import numpy as np
import pandas as pd
import pytest

import deeptram as dt
from deeptram.errors import InvalidInputError, UnknownNameError, UnsupportedError

QUANTILES = [0.05, 0.5, 0.95]


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(3)
    n = 60
    table = pd.DataFrame(
        {"key": np.arange(n) + 100, "x": rng.normal(size=n), "sex": rng.choice(["f", "m"], n)}
    )
    z = table["x"] + rng.logistic(size=n)
    return table.assign(
        grade=pd.Categorical(np.array(["low", "mid", "high"])[np.digitize(z, [-1, 1])], ["low", "mid", "high"], ordered=True),
        value=z,
        count=np.floor(np.exp(z / 3)).astype(int),
    )  # fmt: skip


def members(preset, table, outcome):
    rows = [slice(0, 45), slice(15, 60), slice(5, 55)]
    levels = {"levels": ("low", "mid", "high")} if outcome == "grade" else {}
    common = {} if outcome == "grade" else {"support": (table[outcome].min(), table[outcome].max())}
    return [preset(dt.LS("x + sex"), **levels, **common).fit(table[r], table[outcome][r]) for r in rows]


@pytest.fixture(scope="module")
def ensembles(table):
    return {
        "grade": dt.Ensemble.from_members(members(dt.Polr, table, "grade"), [0.5, 0.3, 0.2]),
        "value": dt.Ensemble.from_members(members(dt.BoxCox, table, "value"), [0.5, 0.3, 0.2]),
    }


def options(kind):
    return {"members_spread": True, "uncertainty": True} | (
        {"quantiles": QUANTILES} if kind == "value" else {}
    )


@pytest.mark.parametrize("kind", ["grade", "value"])
def test_columns_are_what_the_methods_return(table, ensembles, kind):
    ensemble, X = ensembles[kind], table.set_index("key")
    found = dt.predict_frame(ensemble, X, **options(kind), keep=["sex"])
    assert found.index.equals(X.index)
    assert found.columns[0] == "sex"
    pooled, each = ensemble.predict_distribution(X), ensemble.predict_members(X)
    if kind == "grade":
        names = ["low", "mid", "high"]
        np.testing.assert_allclose(found[names], pooled.pmf())
        assert found["prediction"].tolist() == ensemble.predict(X).tolist()
        values = np.stack([one.pmf() for one in each])
    else:
        names = ["q0.05", "q0.5", "q0.95"]
        np.testing.assert_allclose(found[names], pooled.quantile(QUANTILES), rtol=1e-12)
        np.testing.assert_allclose(found["prediction"], pooled.median(), rtol=1e-12)
        values = np.stack([one.quantile(QUANTILES) for one in each])
    w = np.array([0.5, 0.3, 0.2])[:, None, None]
    sd = np.sqrt((w * (values - (w * values).sum(0)) ** 2).sum(0) / (1 - (w**2).sum()))
    np.testing.assert_allclose(found[[f"sd({name})" for name in names]], sd, rtol=1e-10)
    pd.testing.assert_frame_equal(
        found[["total", "aleatoric", "epistemic"]], ensemble.uncertainty(X), check_names=False
    )


@pytest.mark.parametrize("kind", ["grade", "value"])
def test_parts_give_the_whole_and_no_rows_give_its_columns(table, ensembles, kind):
    whole = dt.predict_frame(ensembles[kind], table, **options(kind))
    parts = [dt.predict_frame(ensembles[kind], table[k : k + 7], **options(kind)) for k in range(0, 60, 7)]
    pd.testing.assert_frame_equal(pd.concat(parts), whole, rtol=1e-12)
    nothing = dt.predict_frame(ensembles[kind], table[:0], **options(kind))
    assert len(nothing) == 0
    pd.testing.assert_series_equal(nothing.dtypes, whole.dtypes)


def test_single_models_counts_times_and_paths(table, tmp_path):
    model = dt.Cotram(dt.LS("x")).fit(table, table["count"])
    found = dt.predict_frame(model, table[:5], times=[1.0], quantiles=[0.1])
    assert found.columns.tolist() == ["q0.1", "P(Y>1)", "prediction"]
    np.testing.assert_allclose(found["P(Y>1)"], model.predict_distribution(table[:5]).sf(1.0))
    model.save(tmp_path / "m")
    pd.testing.assert_frame_equal(
        dt.predict_frame(tmp_path / "m", table[:5], times=[1.0], quantiles=[0.1]), found
    )
    columns = {name: np.asarray(table[name][:5]) for name in ("x", "sex")}
    by_name = dt.predict_frame(str(tmp_path / "m"), columns, times=[1.0], quantiles=[0.1])
    pd.testing.assert_frame_equal(by_name, found)
    pd.testing.assert_series_equal(
        dt.predict_frame(model, table[:0], times=[1.0]).dtypes,
        dt.predict_frame(model, table, times=[1.0]).dtypes,
    )


@pytest.mark.parametrize("rows", [0, 5])
def test_refusals(table, ensembles, rows):
    single = ensembles["value"].members_[0]
    part = table[:rows]
    for name in ("members_spread", "uncertainty"):
        with pytest.raises(InvalidInputError, match=f"{name} is for ensembles, got a single model"):
            dt.predict_frame(single, part, **{name: True})
    with pytest.raises(InvalidInputError, match="pooling is for ensembles"):
        dt.predict_frame(single, part, pooling="linear")
    with pytest.raises(InvalidInputError, match=r"quantiles must be strictly between 0 and 1, got 1\.0"):
        dt.predict_frame(single, part, quantiles=[1])
    with pytest.raises(UnsupportedError, match="quantiles are for numbers, got a model of classes"):
        dt.predict_frame(ensembles["grade"], part, quantiles=[0.5])
    with pytest.raises(UnsupportedError, match="times are for numbers"):
        dt.predict_frame(ensembles["grade"], part, times=[1])
    with pytest.raises(UnknownNameError, match="keep must name columns of the table, got 'id'"):
        dt.predict_frame(single, part, keep=["id"])
    with pytest.raises(
        InvalidInputError, match="names than predictions, got 'prediction' for both; rename it"
    ):
        dt.predict_frame(single, part.assign(prediction=1.0), keep=["prediction"])


# -- partitioned data --------------------------------------------------------------------------------


@pytest.fixture
def saved(ensembles, tmp_path):
    ensembles["value"].save(tmp_path / "ensemble")
    return str(tmp_path / "ensemble")


def test_dask_partitions(table, saved):
    dd = pytest.importorskip("dask.dataframe")
    body = functools.partial(dt.predict_frame, saved, quantiles=QUANTILES, members_spread=True, keep=["key"])
    whole = body(table)
    parts = dd.from_pandas(table, npartitions=4)
    lazy = parts.map_partitions(body, meta=body(table[:0]))
    pd.testing.assert_frame_equal(lazy.compute(scheduler="synchronous"), whole, rtol=1e-12)


def test_spark_iterators(table, saved):
    """What ``mapInPandas`` does: an iterator of frames in, an iterator of frames out."""

    def predict(frames):
        for frame in frames:
            yield dt.predict_frame(saved, frame, quantiles=QUANTILES, keep=["key"])

    found = pd.concat(list(predict(iter([table[:25], table[25:25], table[25:]]))))
    pd.testing.assert_frame_equal(
        found, dt.predict_frame(saved, table, quantiles=QUANTILES, keep=["key"]), rtol=1e-12
    )


@pytest.mark.cluster
@pytest.mark.filterwarnings("ignore")  # what Dask and Ray deprecate is not ours
def test_dask_cluster(table, saved):
    distributed = pytest.importorskip("distributed")
    dd = pytest.importorskip("dask.dataframe")
    body = functools.partial(dt.predict_frame, saved, quantiles=QUANTILES)
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        distributed.Client(cluster),
    ):
        lazy = dd.from_pandas(table, npartitions=4).map_partitions(body, meta=body(table[:0]))
        pd.testing.assert_frame_equal(lazy.compute(), body(table), rtol=1e-12)


@pytest.mark.cluster
@pytest.mark.filterwarnings("ignore")
def test_ray_batches(table, saved):
    ray = pytest.importorskip("ray")
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    try:
        body = functools.partial(dt.predict_frame, saved, quantiles=QUANTILES, keep=["key"])
        plain = table.drop(columns="grade")
        found = (
            ray.data.from_pandas(plain).map_batches(body, batch_format="pandas", batch_size=16).to_pandas()
        )
        found = found.sort_values("key", ignore_index=True)
        pd.testing.assert_frame_equal(found, body(plain), rtol=1e-12, check_dtype=False)
    finally:
        ray.shutdown()
