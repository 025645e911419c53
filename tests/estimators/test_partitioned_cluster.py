"""Exact fits on worker processes of a Dask cluster: the model of all rows, from small messages."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import deeptram as dt
from deeptram.estimators import partitioned

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.filterwarnings("ignore"),  # what Dask deprecates is not ours
]


@pytest.fixture(scope="module")
def client():
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


@pytest.mark.parametrize("preset", [dt.Polr, dt.Coxph, dt.Cotram], ids=lambda one: one.__name__)
def test_worker_processes_give_the_model_of_all_rows(preset, client, tmp_path, monkeypatch):
    import dask.dataframe as dd

    monkeypatch.setattr(partitioned, "PILOT_ROWS", 500)
    rng = np.random.default_rng(2)
    table = pd.DataFrame({"a": rng.normal(size=9000), "g": rng.choice(["u", "v", "w"], size=9000)})
    eta = 0.5 * table["a"] + (table["g"] == "v")
    table["grade"] = np.digitize(eta + rng.logistic(size=9000), [-1, 0, 2])
    table["count"] = rng.poisson(np.exp(eta / 3))
    table["time"], table["event"] = np.exp(eta / 3) * rng.exponential(size=9000), rng.uniform(size=9000) < 0.7
    y = {dt.Polr: "grade", dt.Coxph: dt.Surv.right("time", "event"), dt.Cotram: "count"}[preset]
    terms = [dt.LS("a", "g")]
    expected = preset(terms).fit(table, y)
    table.to_parquet(tmp_path / "rows.parquet", row_group_size=1300)
    assert len(client.scheduler_info()["workers"]) == 2
    found = preset(terms).fit(dd.read_parquet(tmp_path / "rows.parquet", split_row_groups=1), y)
    np.testing.assert_allclose(found.coef_, expected.coef_, rtol=1e-9)
    np.testing.assert_allclose(found.summary()["se"], expected.summary()["se"], rtol=1e-9)
    assert found.loglik_ == pytest.approx(expected.loglik_, abs=1e-7)
