from __future__ import annotations

import json
import os

import numpy as np
import pandas as pd
import pytest

from deeptram.errors import FileFormatError, InvalidInputError
from deeptram.paper import RunFolder, Unit, make_study, storage

UNIT = Unit("CI", "nll", 1, 1)


@pytest.fixture
def member(tmp_path):
    run = RunFolder(tmp_path)
    run.start(UNIT)
    storage.write_bytes(run.member(UNIT) / "a.bin", b"12345")
    run.finish(UNIT, "hash", ("a.bin",))
    return run


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "file"
    storage.write_bytes(path, b"old")

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="disk full"):
        storage.write_bytes(path, b"new")
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_files_are_as_readable_as_others(tmp_path):
    storage.write_bytes(tmp_path / "ours", b"")
    (tmp_path / "plain").write_bytes(b"")
    assert (tmp_path / "ours").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_tables_keep_every_digit(tmp_path, rng):
    table = pd.DataFrame({"x": rng.normal(size=20) * 10.0 ** rng.integers(-30, 30, 20)})
    for name in ("t.csv", "t.csv.gz"):
        storage.write_table(tmp_path / name, table)
        pd.testing.assert_frame_equal(storage.read_table(tmp_path / name), table, check_exact=True)
    first = (tmp_path / "t.csv.gz").read_bytes()
    storage.write_table(tmp_path / "t.csv.gz", table)
    assert (tmp_path / "t.csv.gz").read_bytes() == first


def test_arrays_are_checked(tmp_path):
    path = tmp_path / "a.npz"
    storage.write_arrays(path, {"x": np.arange(3)})
    assert storage.read_arrays(path)["x"].tolist() == [0, 1, 2]
    with pytest.raises(FileFormatError, match="got other content than when it was written; delete it"):
        storage.read_arrays(path, "0" * 64)
    path.write_bytes(path.read_bytes()[:50])
    with pytest.raises(FileFormatError, match=r"a\.npz must be readable, got"):
        storage.read_arrays(path)


def test_pickles_are_refused(tmp_path):
    path = tmp_path / "a.npz"
    np.savez(path, x=np.array([object()], dtype=object))
    with pytest.raises(FileFormatError, match="must be readable"):
        storage.read_arrays(path)


def test_infinities_are_not_written_as_json(tmp_path):
    with pytest.raises(ValueError, match="not JSON compliant"):
        storage.write_json(tmp_path / "a.json", {"x": float("inf")})


def test_finished_members(member):
    assert member.is_done(UNIT)
    assert member.is_done(UNIT, "hash")
    assert not member.is_done(UNIT, "other")
    assert not member.is_done(Unit("CI", "nll", 1, 2))


@pytest.mark.parametrize("damage", ["gone", "shorter", "no marker", "empty marker", "strange marker"])
def test_damaged_members_do_not_count(member, damage):
    folder = member.member(UNIT)
    if damage == "gone":
        (folder / "a.bin").unlink()
    elif damage == "shorter":
        (folder / "a.bin").write_bytes(b"1")
    elif damage == "no marker":
        (folder / "DONE").unlink()
    else:
        (folder / "DONE").write_text("" if damage == "empty marker" else "[1, 2]")
    assert not member.is_done(UNIT, "hash")


def test_a_new_attempt_removes_what_was_left_behind(member):
    folder = member.member(UNIT)
    (folder / ".a.bin.xyz.tmp").write_bytes(b"half")
    member.start(UNIT)
    assert sorted(p.name for p in folder.iterdir()) == ["a.bin"]


def test_two_processes_do_not_share_a_folder(tmp_path):
    with (
        RunFolder(tmp_path).lock(),
        pytest.raises(InvalidInputError, match="must be used by one process at a time"),
        RunFolder(tmp_path).lock(),
    ):
        pass
    with RunFolder(tmp_path).lock():
        pass


def test_folders_without_a_run_are_named(tmp_path):
    with pytest.raises(InvalidInputError, match=r"must be the folder of a run, got one without config\.json"):
        RunFolder(tmp_path).require()


@pytest.mark.parametrize("text", ["{", "[]", '{"study": {}}', '{"study": {"schema": 1}, "data": {}}'])
def test_damaged_configurations_are_named(tmp_path, text):
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(FileFormatError, match=r"config\.json must be readable"):
        RunFolder(tmp_path).study()


def test_configuration_round_trip(tmp_path):
    run, study = RunFolder(tmp_path), make_study("melanoma")
    run.save_study(study, {"table": "x", "image": None}, levels=["a", "b"])
    assert run.study() == study
    assert run.data_digests() == {"table": "x", "image": None}
    assert json.loads((tmp_path / "config.json").read_text())["levels"] == ["a", "b"]
