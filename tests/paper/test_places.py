"""Members of a run fitted on Dask and on Ray: the same members, whatever happens to the workers.

``make kill-workers N=20`` kills workers in more runs than ``make test-cluster`` does.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sys
import threading
from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest

from deeptram.errors import FittingError, InvalidInputError, MissingDependencyError
from deeptram.model.persistence import JSON_NAME, read_folder
from deeptram.paper import RunFolder, make_study, run_study
from deeptram.paper.places import Work, place_named

N_RUNS = int(os.environ.get("DEEPTRAM_KILLED_RUNS", "4"))
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
    members = [path.parent for path in RunFolder(folder).members.folder.rglob(JSON_NAME)]
    arrays = {str(member.relative_to(folder)): read_folder(member)[1] for member in members}
    return {
        (member, name): values.tobytes()
        for member, found in arrays.items()
        for name, values in found.items()
        if name != "history"
    }


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
    with pytest.raises(MissingDependencyError, match="pip install 'deeptram\\[cluster\\]'"):
        list(place_named(backend)(None, [], 1))


class Crashed(Exception):
    """What an engine raises when several workers died of one task."""


def crash(*_arguments):
    raise Crashed


ENGINES = {
    "distributed": {
        "Client": MagicMock(),
        "wait": lambda futures, **_: SimpleNamespace(done={MagicMock(result=crash)}),
        "TimeoutError": TimeoutError,
        "KilledWorker": Crashed,
    },
    "ray": {
        "init": lambda **_: None,
        "remote": lambda **_: lambda function: SimpleNamespace(remote=lambda *_: None),
        "wait": lambda waiting, **_: (waiting[:1], waiting[1:]),
        "get": crash,
        "exceptions": SimpleNamespace(WorkerCrashedError=Crashed, OutOfMemoryError=Crashed),
        "shutdown": lambda: None,
    },
}


@pytest.mark.parametrize(("backend", "module"), [("dask", "distributed"), ("ray", "ray")])
def test_members_that_workers_die_of(monkeypatch, backend, module):
    monkeypatch.setitem(sys.modules, module, SimpleNamespace(**ENGINES[module]))
    work = Work(STUDY, {}, "token", "out")
    with pytest.raises(FittingError, match="finished by one of its workers, got one that several died of"):
        list(place_named(backend)(work, list(STUDY.units())[:1], 1))


@pytest.mark.filterwarnings("ignore")  # what Dask deprecates is not ours
def test_a_cluster_without_workers_is_told(monkeypatch):
    distributed = pytest.importorskip("distributed")
    monkeypatch.setattr("deeptram.paper.places._PATIENCE", 0.2)
    with distributed.LocalCluster(n_workers=0, dashboard_address=None, processes=False) as cluster:
        fit = place_named("dask", cluster.scheduler_address)
        with pytest.raises(FittingError, match="must have workers until all members are finished, got none"):
            list(fit(Work(STUDY, {}, "token", "out"), list(STUDY.units())[:1], 1))


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
        """Workers are killed at random moments of the run: of Dask, reached over TCP, every fourth of Ray."""
        backend = "ray" if number % 4 == 3 else "dask"
        pytest.importorskip("distributed" if backend == "dask" else "ray")
        psutil = pytest.importorskip("psutil")
        moments, killed, over = random.Random(number), [], threading.Event()
        finished = sorted([0, moments.randrange(5), moments.randrange(5)])  # members before each kill
        clusters = []

        def busy():
            if backend == "dask":
                processes = [worker.process for worker in clusters[0].workers.values()]
                return [process.pid for process in processes if process is not None and process.pid]
            children = psutil.Process().children(recursive=True)
            return [child.pid for child in children if child.name().startswith("ray::fit_unit")]

        def kill():
            for members in finished:
                pids = []
                while not over.wait(0.05) and (
                    len(list(tmp_path.glob("members/**/deeptram.json"))) < members or not pids
                ):
                    with contextlib.suppress(psutil.Error, AttributeError):  # on their way down or up
                        pids = busy()
                if over.wait(moments.uniform(0, 2)):
                    return
                with contextlib.suppress(ProcessLookupError):
                    os.kill(moments.choice(pids), signal.SIGKILL)
                    killed.append(len(list(tmp_path.glob("members/**/deeptram.json"))))

        killer = threading.Thread(target=kill)
        with contextlib.ExitStack() as stack:
            if backend == "dask":
                settings = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None}
                cluster = pytest.importorskip("distributed").LocalCluster(**settings, protocol="tcp")
                clusters.append(stack.enter_context(cluster))
            address = clusters[0].scheduler_address if clusters else None
            stack.callback(killer.join)
            stack.callback(over.set)
            killer.start()
            result = run_study(STUDY, tmp_path, backend=backend, address=address, n_jobs=2)
        print(f"run {number} ({backend}): workers killed after {killed} finished members", flush=True)
        assert killed
        assert (result.finished, result.failed) == (6, {})
        assert contents(tmp_path) == undisturbed
