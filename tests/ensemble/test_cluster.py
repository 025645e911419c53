"""Members on a Dask and on a Ray cluster, by nothing but joblib's configuration: the same members."""

from __future__ import annotations

import joblib
import numpy as np
import pytest

import deeptram as dt
from deep_models import FAST, TERMS, table
from deeptram.fitting.deep.task import DeepTask

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.filterwarnings("ignore"),  # what Dask and Ray deprecate is not ours
]


def data():
    X, z = table()
    return X, np.digitize(z, [-1, 0, 1])


@pytest.fixture(scope="module")
def reference():
    X, y = data()
    model = dt.Polr(TERMS["SI-CS-LS"], training=FAST)
    return dt.Ensemble(model, 4, random_state=3, strategy="sequential").fit(X, y, validation=0.2)


def assert_same_members(reference, **settings):
    X, y = data()
    model = dt.Polr(TERMS["SI-CS-LS"], training=FAST)
    ensemble = dt.Ensemble(model, 4, random_state=3, **settings).fit(X, y, validation=0.2)
    assert ensemble.strategy_ == "parallel"
    for a, b in zip(reference.members_, ensemble.members_, strict=True):
        assert a.seed_ == b.seed_
        np.testing.assert_allclose(a.predict_proba(X), b.predict_proba(X), atol=1e-5)
        assert a.loglik_ == pytest.approx(b.loglik_, rel=1e-5)


@pytest.mark.parametrize("strategy", ["auto", "parallel"])
def test_dask(reference, strategy, tmp_path):
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
        joblib.parallel_config(backend="dask"),
    ):
        assert len(client.scheduler_info()["workers"]) == 2
        assert_same_members(reference, strategy=strategy, checkpoint=tmp_path / "members")
        assert len(list((tmp_path / "members").glob("member-*/deeptram.json"))) == 4


def test_data_travel_once_and_not_with_each_member(monkeypatch):
    distributed = pytest.importorskip("distributed")
    sent = []

    def counted(task):
        sent.append(task)
        return dict(vars(task))

    monkeypatch.setattr(DeepTask, "__getstate__", counted, raising=False)
    X, y = data()
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        distributed.Client(cluster),
        joblib.parallel_config(backend="dask"),
    ):
        dt.Ensemble(dt.Polr(TERMS["SI-CS-LS"], training=FAST), 4, random_state=3).fit(X, y)
    assert len(sent) == 1


@pytest.mark.parametrize("strategy", ["auto", "parallel"])
def test_ray(reference, strategy):
    ray = pytest.importorskip("ray")
    from ray.util.joblib import register_ray

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    try:
        register_ray()
        with joblib.parallel_config(backend="ray"):
            assert_same_members(reference, strategy=strategy)
    finally:
        ray.shutdown()
