"""Members of a run fitted on Dask and on Ray: the same members, whatever happens to the workers."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sys
import threading

import pytest

from deeptram.errors import FittingError, InvalidInputError
from deeptram.paper import RunFolder, make_study, run_study, storage
from deeptram.paper.places import place_named

N_RUNS = int(os.environ.get("DEEPTRAM_KILLED_RUNS", "3"))
STUDY = make_study(
    "digits",
    "quick",
    models=["SI-LS", "CI-LS"],
    losses=["nll"],
    splits=[1, 2],
    n_members=2,
    training={"epochs": 3, "batch_size": 256},
)


def contents(folder):
    members = RunFolder(folder).path / storage.MEMBERS
    names = (storage.PREDICTIONS, storage.COEFFICIENTS)
    return {str(p.relative_to(members)): p.read_bytes() for name in names for p in members.rglob(name)}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    run_study(STUDY, folder)
    return contents(folder)


@pytest.mark.parametrize(
    ("backend", "address", "text"),
    [
        ("spark", None, "backend must be one of local, dask, ray, got 'spark'"),
        ("local", "tcp://127.0.0.1:8786", "address is for a cluster"),
    ],
)
def test_places_that_do_not_exist(tmp_path, backend, address, text):
    with pytest.raises(InvalidInputError, match=text):
        run_study(STUDY, tmp_path, backend=backend, address=address)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("backend", "module"), [("dask", "distributed"), ("ray", "ray")])
def test_engines_that_are_not_installed(tmp_path, monkeypatch, backend, module):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(InvalidInputError, match="pip install 'deeptram\\[cluster\\]'"):
        list(place_named(backend)(None, [], 1))


@pytest.mark.cluster
@pytest.mark.filterwarnings("ignore")  # what Dask and Ray deprecate is not ours
class TestClusters:
    @pytest.mark.parametrize("backend", ["dask", "ray"])
    def test_the_same_members(self, backend, undisturbed, tmp_path):
        pytest.importorskip("distributed" if backend == "dask" else "ray")
        result = run_study(STUDY, tmp_path, backend=backend, n_jobs=2)
        assert (result.finished, result.failed) == (6, {})
        assert contents(tmp_path) == undisturbed

    def test_nobody_there(self, tmp_path):
        pytest.importorskip("distributed")
        with pytest.raises(FittingError, match=r"a Dask scheduler must answer at tcp:"):
            run_study(STUDY, tmp_path, backend="dask", address="tcp://127.0.0.1:1")

    def test_other_data_on_the_workers_are_refused(self, tmp_path, monkeypatch):
        distributed = pytest.importorskip("distributed")
        import deeptram.paper.runner as runner

        digests = runner.data_digests

        def other(study, data):
            return {**digests(study, data), "table": "another"}

        monkeypatch.setattr(runner, "data_digests", other)
        with distributed.LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None) as cluster:
            address = cluster.scheduler_address
            result = run_study(STUDY, tmp_path, backend="dask", address=address)
        assert len(result.failed) == 6
        assert "must open the same data" in next(iter(result.failed.values()))

    @pytest.mark.parametrize("number", range(N_RUNS))
    def test_killed_workers_change_nothing(self, number, undisturbed, tmp_path):
        """Worker processes are killed at random moments; the scheduler is reached over TCP."""
        distributed = pytest.importorskip("distributed")
        moments = random.Random(number)
        settings = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None}
        with distributed.LocalCluster(**settings, protocol="tcp") as cluster:
            killed, over = [], threading.Event()

            def kill():
                while len(killed) < 3 and not over.wait(moments.uniform(0.2, 3)):
                    worker = moments.choice(list(cluster.workers.values()))
                    with contextlib.suppress(AttributeError, ProcessLookupError):  # on its way down or up
                        os.kill(worker.process.pid, signal.SIGKILL)
                        killed.append(worker.name)

            killer = threading.Thread(target=kill)
            killer.start()
            try:
                result = run_study(STUDY, tmp_path, backend="dask", address=cluster.scheduler_address)
            finally:
                over.set()
                killer.join()
        assert killed
        assert (result.finished, result.failed) == (6, {})
        assert contents(tmp_path) == undisturbed
