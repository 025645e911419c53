"""Run folders that were edited, cut off, blown up or begun twice: said in a sentence, or repaired."""

from __future__ import annotations

import copy
import dataclasses
import errno
import gzip
import hashlib
import io
import json
import os
import shutil
import socket
import time
import zipfile

import numpy as np
import pytest

from deeptram._files import write_table
from deeptram.errors import FileFormatError, FittingError, InvalidInputError
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


def rewrite(run, path, content):
    """Change a file and the checksum that is kept of it, as somebody would who wants it to be believed."""
    path.write_bytes(content)
    sha = hashlib.sha256(content).hexdigest()
    holder = path.parent / "DONE" if path.parent != run.path else run.path / "config.json"
    state = json.loads(holder.read_text())
    state["files"][path.name] = sha
    holder.write_text(json.dumps(state))


def test_an_edited_member_reaches_no_table_and_is_made_again(run):
    path = run.member(UNIT) / storage.COEFFICIENTS
    before = path.read_text()
    path.write_text(before.replace("0", "9", 3))
    assert len(path.read_text()) == len(before)
    with pytest.raises(
        FileFormatError, match=r"coefficients\.csv must be readable, got other content than when"
    ):
        aggregate(run.path, n_boot=0)
    assert run_study(STUDY, run.path).finished == 1
    assert path.read_text() == before
    aggregate(run.path, n_boot=0)


@pytest.mark.parametrize("name", ["metrics.csv", "tables/coefficients.csv", "tables/key.json"])
def test_cut_off_tables_are_made_again(run, name):
    path = run.path / name
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    aggregate(run.path, n_boot=0)
    assert path.read_bytes() == whole


@pytest.mark.parametrize("name", [storage.SPLITS, storage.OUTCOMES])
def test_cut_off_files_of_the_run_are_named_and_made_again(run, name):
    path = run.path / name
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    (run.path / "tables" / "key.json").unlink()
    with pytest.raises(FileFormatError, match="must be readable, got other content than when it was written"):
        aggregate(run.path, n_boot=0)
    run_study(STUDY, run.path)
    assert path.read_bytes() == whole
    rewrite(run, path, whole[: len(whole) // 2])
    with pytest.raises(FileFormatError, match=r"must be readable, got (EOFError|BadZipFile)"):
        aggregate(run.path, n_boot=0)


def test_a_run_that_ended_before_its_configuration_goes_on(run, tmp_path):
    begun = tmp_path / "begun"
    begun.mkdir()
    (begun / storage.SPLITS).write_bytes((run.path / storage.SPLITS).read_bytes()[:100])
    for name in (".lock", ".fence", ".config.json.x1y2.tmp"):
        (begun / name).write_bytes(b'{"token": "of a dead process"}')
    assert run_study(STUDY, begun).finished == 2
    assert (begun / storage.SPLITS).read_bytes() == (run.path / storage.SPLITS).read_bytes()
    assert not list(begun.glob(".*.tmp"))


@pytest.mark.parametrize(
    "name", [storage.SPLITS, storage.OUTCOMES, storage.CONFIG, storage.PREDICTIONS, "DONE"]
)
def test_a_run_that_met_a_full_disk_goes_on(tmp_path, monkeypatch, name):
    replace = os.replace

    def full(source, target):
        if str(target).endswith(name):
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
                run.described()
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


def test_members_that_lie_are_refused(run):
    """Consistent checksums, other content."""
    folder = run.member(UNIT)
    loaders = {
        storage.COEFFICIENTS: members.load_coefficients,
        storage.INFO: members.load_info,
        storage.HISTORY: members.load_history,
    }
    for name, load in loaders.items():
        whole = (folder / name).read_bytes()
        load(run, UNIT)
        for content in (
            b"",
            b"[]",
            b"{}",
            b"a,b\n1,2\n",
            b"\x00\xff" * 50,
            whole + b"x,y,z,w,v,u\n",
            b"[" * 10**5,
        ):
            rewrite(run, folder / name, content)
            with pytest.raises(
                FileFormatError, match=r"must be readable|must have the columns|must hold the numbers"
            ):
                load(run, UNIT)
        rewrite(run, folder / name, whole)
    arrays = storage.read_arrays(folder / storage.PREDICTIONS)
    for change in (
        {"val_h": np.zeros(3)},
        {"val_h": arrays["val_h"].astype(int)},
        {"test_h": arrays["test_h"] * np.nan},
        {"test_log_gaps": np.zeros((2, 2))},
        {"test_h": arrays["test_h"][:5], "test_log_gaps": arrays["test_log_gaps"][:5]},
    ):
        storage.write_arrays(folder / storage.PREDICTIONS, {**arrays, **change})
        rewrite(run, folder / storage.PREDICTIONS, (folder / storage.PREDICTIONS).read_bytes())
        with pytest.raises(
            FileFormatError, match=r"must hold h for 10 levels|must hold predictions of 360 and 360"
        ):
            aggregate(run.path, n_boot=0, refresh=True)


def test_coefficients_of_other_variables_are_refused(small_run, tmp_path):
    run = RunFolder(tmp_path / "run")
    shutil.copytree(small_run.path, run.path)
    path = run.member(Unit("CI-LS", "nll", 1, 1)) / storage.COEFFICIENTS
    rewrite(run, path, path.read_bytes().replace(b"x_1,", b"y_1,"))
    with pytest.raises(FileFormatError, match="must name the same variables in the same order"):
        aggregate(run.path, n_boot=0)


def test_bombs_are_not_unpacked(tmp_path):
    header = {"descr": "|u1", "fortran_order": False, "shape": (2**28,)}
    with (
        zipfile.ZipFile(tmp_path / "bomb.npz", "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
        archive.open("x.npy", "w", force_zip64=True) as file,
    ):
        np.lib.format.write_array_header_1_0(file, header)
        for _ in range(256):
            file.write(bytes(2**20))
    with pytest.raises(FileFormatError, match=r"got 1 arrays of 268435.* bytes, far too many"):
        storage.read_arrays(tmp_path / "bomb.npz")
    buffer = io.BytesIO()
    with gzip.open(buffer, "wb", compresslevel=1) as file:
        for _ in range(130):
            file.write(b"1\n" * 2**19)
    (tmp_path / "bomb.csv.gz").write_bytes(buffer.getvalue())
    with pytest.raises(FileFormatError, match="must hold at most 134217728 bytes, got more"):
        storage.read_frame(tmp_path / "bomb.csv.gz")


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


def test_outcomes_and_splits_that_lie_are_refused(run):
    path = run.path / storage.OUTCOMES
    whole, codes = path.read_bytes(), storage.read_arrays(path)["codes"]
    for wrong in ({"codes": codes[:9]}, {"codes": codes + 1}, {"codes": codes / 2}):
        storage.write_arrays(path, wrong)
        rewrite(run, path, path.read_bytes())
        with pytest.raises(FileFormatError, match="must hold a class from 0 to 9 for each of 1797 rows"):
            members.load_parts(run)
    storage.write_arrays(path, {"other": codes})
    rewrite(run, path, path.read_bytes())
    with pytest.raises(FileFormatError, match="got a file without codes"):
        members.load_parts(run)
    rewrite(run, path, whole)
    path = run.path / storage.SPLITS
    table = storage.read_frame(path)
    write_table(path, table[table["spl"] < 4])
    rewrite(run, path, path.read_bytes())
    with pytest.raises(FileFormatError, match="must hold 6 splits of 1797 rows, got others"):
        members.load_parts(run)


def test_files_without_checksums_and_strange_digests_are_refused(run):
    config = json.loads((run.path / "config.json").read_text())
    (run.path / "config.json").write_text(json.dumps({**config, "files": {}}))
    with pytest.raises(FileFormatError, match="got a file without a checksum"):
        run.file(storage.SPLITS)
    (run.path / "config.json").write_text(json.dumps({**config, "data": {"table": 3}}))
    with pytest.raises(FileFormatError, match="got digests that are no text"):
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
