from __future__ import annotations

import json

import numpy as np
import pytest

from deeptram._files import write_bytes
from deeptram.errors import FileFormatError, InvalidInputError
from deeptram.paper import RunFolder, Unit, make_study, storage

UNIT = Unit("CI", "nll", 1, 1)


@pytest.fixture
def member(tmp_path):
    run = RunFolder(tmp_path)
    run.start(UNIT)
    write_bytes(run.member(UNIT) / "a.bin", b"12345")
    run.finish(UNIT, "hash", ("a.bin",))
    return run


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
        storage.owned(tmp_path),
        pytest.raises(InvalidInputError, match="must be used by one process at a time"),
        storage.owned(tmp_path),
    ):
        pass
    with storage.owned(tmp_path):
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
