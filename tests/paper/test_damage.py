"""Run folders that were edited, cut off, blown up or begun twice: said in a sentence, or repaired."""

from __future__ import annotations

import copy
import dataclasses
import errno
import json
import os
import shutil
import socket
import time

import numpy as np
import pytest

from deeptram.errors import FileFormatError, FittingError, InvalidInputError
from deeptram.model.persistence import JSON_NAME, TENSOR_NAME, read_folder, write_folder
from deeptram.paper import (
    RunFolder,
    Unit,
    aggregate,
    make_study,
    members,
    run_study,
    storage,
)

STUDY = make_study("digits", "quick", models=["SI", "SI-LS"], losses=["nll"], splits=[1])
UNIT = Unit("SI-LS", "nll", 1, 1)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole") / "run"
    run_study(STUDY, folder)
    aggregate(folder, n_boot=0)
    return folder


@pytest.fixture
def run(whole, tmp_path):
    shutil.copytree(whole, tmp_path / "run")
    return RunFolder(tmp_path / "run")


def rewrite(folder, change):
    """Change what a folder says, checksums included, as somebody would who wants it to be believed."""
    content, tensors = read_folder(folder)
    kept = {name: value for name, value in content.items() if name not in ("schema", "tensors", "sha256")}
    change(kept["record"], tensors)
    write_folder(folder, kept, tensors, overwrite=True)


@pytest.mark.parametrize("name", [JSON_NAME, TENSOR_NAME])
def test_an_edited_member_reaches_no_table_and_is_made_again(run, name):
    path = run.member(UNIT) / name
    before = path.read_bytes()
    path.write_bytes(before.replace(b"x_1", b"x_9") if name == JSON_NAME else before[:-1] + b"9")
    assert len(path.read_bytes()) == len(before)
    with pytest.raises(FileFormatError, match=rf"member-1' in which .*{name} was changed"):
        aggregate(run.path, n_boot=0)
    assert run_study(STUDY, run.path).finished == 1
    if name == TENSOR_NAME:
        assert path.read_bytes() == before
    aggregate(run.path, n_boot=0)


@pytest.mark.parametrize("name", ["metrics.csv", "tables/coefficients.csv", "tables/key.json"])
def test_cut_off_tables_are_made_again(run, name):
    path = run.path / name
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    aggregate(run.path, n_boot=0)
    assert path.read_bytes() == whole


def test_cut_off_data_of_the_run_are_named_and_made_again(run):
    path = run.path / storage.DATA / TENSOR_NAME
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    (run.path / "tables" / "key.json").unlink()
    with pytest.raises(FileFormatError, match=rf"data' in which {TENSOR_NAME} has \d+ bytes, not"):
        aggregate(run.path, n_boot=0)
    run_study(STUDY, run.path)
    assert path.read_bytes() == whole


def test_a_run_that_ended_before_its_configuration_goes_on(run, tmp_path):
    begun, name = tmp_path / "begun", f"{storage.DATA}/{TENSOR_NAME}"
    (begun / storage.DATA).mkdir(parents=True)
    (begun / name).write_bytes((run.path / name).read_bytes()[:100])
    for left in (".lock", ".fence", ".config.json.x1y2.tmp"):
        (begun / left).write_bytes(b'{"token": "of a dead process"}')
    (begun / ".data.12-ab.tmp").mkdir()
    assert run_study(STUDY, begun).finished == 2
    assert (begun / name).read_bytes() == (run.path / name).read_bytes()
    assert not list(begun.glob(".*.tmp"))


@pytest.mark.parametrize(
    ("name", "folder"), [(JSON_NAME, "data"), ("config.json", ""), (JSON_NAME, "member-1")]
)
def test_a_run_that_met_a_full_disk_goes_on(tmp_path, monkeypatch, name, folder):
    replace = os.replace

    def full(source, target):
        if target.name == name and folder in target.parent.name:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        replace(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", full)
        with pytest.raises(OSError, match="No space left") as caught:
            run_study(STUDY, tmp_path)
        assert caught.value.filename.endswith(name)
    assert run_study(STUDY, tmp_path).finished >= 1
    assert not list(tmp_path.rglob("*.tmp"))


HUGE = [1e308, 10**30, -1, "many", None, {}]


def edits(state, path=()):
    """Every place in nested JSON."""
    if path:
        yield path
    if isinstance(state, dict):
        for key in state:
            yield from edits(state[key], (*path, key))
    elif isinstance(state, list):
        for position in range(min(len(state), 2)):
            yield from edits(state[position], (*path, position))


def test_configurations_that_lie_are_refused_at_once(run):
    config = json.loads((run.path / "config.json").read_text())
    refused = 0
    for place in list(edits(config)):
        for value in HUGE:
            changed = copy.deepcopy(config)
            inner = changed
            for key in place[:-1]:
                inner = inner[key]
            inner[place[-1]] = value
            (run.path / "config.json").write_text(json.dumps(changed))
            started = time.perf_counter()
            try:
                study = run.study()
                run.finished(study, run.data_digests())
            except FileFormatError:
                refused += 1
            assert time.perf_counter() - started < 2, (place, value)
    assert refused > 200


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("n_members", 10**9, "members must be at most 1000"),
        ("seed", 10**30, "seed must be at most"),
        ("pixels", 10**9, "pixels must be at most 10000"),
        ("splits", [1] * 5, "splits must be named once each"),
        ("models", "SI", "models must be one of"),
    ],
)
def test_settings_beyond_reason_are_named(run, name, value, message):
    config = json.loads((run.path / "config.json").read_text())
    config["study"][name] = value
    (run.path / "config.json").write_text(json.dumps(config))
    with pytest.raises(FileFormatError, match=rf"config\.json must be readable, got .*{message}"):
        run.study()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda r, t: r.update(variables=["a"]), r"coefficients must be float64 of shape \(1, 2\)"),
        (lambda r, t: r.pop("variables"), r"member-1\.variables must be there"),
        (lambda r, t: r.update(more=1), r"member-1\.more must be absent"),
        (lambda r, t: r["info"].update(seconds=-1), r"info\.seconds must be a number from 0"),
        (lambda r, t: r["info"].update(n_epochs=10**30), r"info\.n_epochs must be an integer"),
        (lambda r, t: r["info"].update(n_epochs=3), r"history must be float64 of shape \(3, 5\)"),
        (lambda r, t: t.update(history=np.zeros((0, 4))), r"history must be float64 of shape \(0, 5\)"),
        (lambda r, t: t.update(coefficients=np.zeros((10, 2), int)), "coefficients must be float64"),
        (lambda r, t: t.pop("history"), "history must be float64"),
        (lambda r, t: t.update(strange=np.zeros(2)), "strange must be none, got float64"),
        (lambda r, t: r["val"].update(kind="magic"), "kind must be one of"),
        (lambda r, t: r["val"].update(levels=[0, 1]), r"h must be float64 of shape \(360, 1\)"),
        (lambda r, t: r["val"].update(latent="mine"), "distribution.latent"),
        (lambda r, t: t.update({"val/h": np.zeros(3)}), r"h must be float64 of shape \(3, 9\)"),
        (lambda r, t: t.update({"test/h": t["test/h"] * np.nan}), "h must hold numbers from -inf to inf"),
        (lambda r, t: t.pop("test/log_increments"), "log_increments must be float64"),
        (lambda r, t: t.pop("val/h"), "must be float64 of shape|cannot be rebuilt"),
        (
            lambda r, t: t.update({name: value[:5] for name, value in t.items() if name.startswith("test/")}),
            "must hold predictions of 360 and 360 rows",
        ),
    ],
)
def test_members_that_lie_are_refused(run, change, message):
    """Consistent checksums, other content."""
    rewrite(run.member(UNIT), change)
    with pytest.raises(FileFormatError, match=message):
        aggregate(run.path, n_boot=0, refresh=True)


def test_coefficients_of_other_variables_are_refused(small_run, tmp_path):
    run = RunFolder(tmp_path / "run")
    shutil.copytree(small_run.path, run.path)
    rewrite(run.member(Unit("CI-LS", "nll", 1, 1)), lambda r, t: r["variables"].reverse())
    with pytest.raises(FileFormatError, match="must name the same variables in the same order"):
        aggregate(run.path, n_boot=0)


def test_large_files_are_not_read(tmp_path):
    with (tmp_path / "config.json").open("wb") as file:
        file.truncate(2**40)
    with pytest.raises(FileFormatError, match="got something of 1099511627776 bytes, which is far too large"):
        RunFolder(tmp_path).study()


# --- who owns a run -------------------------------------------------------------------------------


def test_the_owner_is_named(tmp_path):
    with storage.owned(tmp_path):
        who = f"process {os.getpid()} on {socket.gethostname()} \\(since 20"
        with (
            pytest.raises(InvalidInputError, match=f"one process at a time, got a run that {who}"),
            storage.owned(tmp_path),
        ):
            pass
    assert (tmp_path / ".lock").read_bytes() == b""


def test_the_lock_of_a_dead_process_is_taken_over_and_its_workers_write_no_more(tmp_path):
    (tmp_path / ".lock").write_text('{"pid": 1, "host": "gone", "started": "long ago", "token": "old"}')
    with storage.writing(tmp_path, "old"):
        pass
    with storage.owned(tmp_path) as token:
        with storage.writing(tmp_path, token):
            pass
        with (
            pytest.raises(InvalidInputError, match=r"must still be owned by the process .* has taken over"),
            storage.writing(tmp_path, "old"),
        ):
            pass
    with (
        pytest.raises(InvalidInputError, match="another process has taken over"),
        storage.writing(tmp_path, "old"),
    ):
        pass


def test_damaged_lock_files_keep_nobody_out(tmp_path):
    for content in (b"\xff\xfe", b"[1]", b"[" * 4000, b"9" * 10_000):
        (tmp_path / ".lock").write_bytes(content)
        with storage.owned(tmp_path):
            pass


def test_members_of_a_run_that_was_taken_over_are_not_written(tmp_path, monkeypatch):
    import deeptram.paper.places as places

    fit = places.fit_member

    def overtaken(*args):
        (tmp_path / ".lock").write_text('{"token": "another"}')
        return fit(*args)

    monkeypatch.setattr(places, "fit_member", overtaken)
    with pytest.raises(InvalidInputError, match="has taken over; what was computed here is not kept"):
        run_study(dataclasses.replace(STUDY, models=("SI",)), tmp_path)
    assert not (tmp_path / storage.MEMBERS).exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.update(codes=t["codes"][:9]), "must hold a class from 0 to 9 for each of 1797 rows"),
        (lambda t: t.update(codes=t["codes"] + 1), "must hold a class from 0 to 9 for each of 1797 rows"),
        (lambda t: t.update(codes=t["codes"] / 2), "must hold whole numbers as codes, rows, sizes"),
        (lambda t: t.pop("codes"), "must hold whole numbers as codes, rows, sizes"),
        (lambda t: t.update(sizes=t["sizes"] + 9), "must hold 6 splits of 1797 rows"),
        (lambda t: t.update(sizes=t["sizes"] - [[400, -400, 0]]), "must hold 6 splits of 1797 rows"),
        (lambda t: t.update(sizes=t["sizes"][:, :2]), "must hold 6 splits of 1797 rows"),
        (lambda t: t.update(rows=t["rows"][:, :9]), "must hold 6 splits of 1797 rows"),
        (lambda t: t.update(rows=t["rows"] * 0), "must hold 6 splits of 1797 rows"),
        (lambda t: t.update(rows=t["rows"].ravel()), "must hold 6 splits of 1797 rows"),
    ],
)
def test_outcomes_and_splits_that_lie_are_refused(run, change, message):
    members.load_parts(run)
    rewrite(run.path / storage.DATA, lambda record, tensors: change(tensors))
    with pytest.raises(FileFormatError, match=message):
        members.load_parts(run)


def test_splits_of_another_study_are_refused(run):
    rewrite(run.path / storage.DATA, lambda r, t: t.update(rows=t["rows"][::-1].copy()))
    with pytest.raises(FileFormatError, match="must hold the splits of this study, got others"):
        run_study(STUDY, run.path)


def test_strange_digests_are_refused(run):
    config = json.loads((run.path / "config.json").read_text())
    (run.path / "config.json").write_text(json.dumps({**config, "data": {"table": 3, "image": None}}))
    with pytest.raises(
        FileFormatError, match=r"config\.json must be readable, got .*data\.table must be a text"
    ):
        run.data_digests()


def test_a_killed_worker_is_said_so(tmp_path, monkeypatch):
    import deeptram.paper.places as places

    def killed(*_, **__):
        def run_all(_):
            raise places.BrokenProcessPool("a worker was killed")

        return run_all

    monkeypatch.setattr(places, "worker_processes", killed)
    with pytest.raises(FittingError, match=r"got one that was killed .* finished members are kept"):
        run_study(STUDY, tmp_path, n_jobs=2)
