from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from deeptram.errors import FileFormatError, InvalidInputError
from deeptram.model.persistence import JSON_NAME, TENSOR_NAME
from deeptram.paper import RunFolder, Unit, make_study, storage
from deeptram.paper.members import machine

UNIT = Unit("CI", "nll", 1, 1)
ABOUT = {"levels": ["a", "b"], "n_rows": 9, "info": {}, "versions": {}, "machine": machine()}


@pytest.fixture
def member(tmp_path):
    run = RunFolder(tmp_path)
    run.members.save(UNIT.folder, "hash", {"a": 1}, {"x": np.arange(3.0)})
    return run


def test_finished_members(member):
    assert member.is_done(UNIT)
    assert member.is_done(UNIT, "hash")
    assert not member.is_done(UNIT, "other")
    assert not member.is_done(Unit("CI", "nll", 1, 2))


@pytest.mark.parametrize("damage", ["gone", "shorter", "edited", "no json", "empty json", "strange json"])
def test_damaged_members_do_not_count_and_are_replaced(member, damage):
    json_file, tensors = (member.member(UNIT) / name for name in (JSON_NAME, TENSOR_NAME))
    if damage == "gone":
        tensors.unlink()
    elif damage == "shorter":
        tensors.write_bytes(b"1")
    elif damage == "edited":
        tensors.write_bytes(tensors.read_bytes()[:-1] + b"x")
    elif damage == "no json":
        json_file.unlink()
    else:
        json_file.write_text("" if damage == "empty json" else "[1, 2]")
    assert not member.is_done(UNIT, "hash")
    member.members.save(UNIT.folder, "hash", {"a": 2}, {"x": np.arange(2.0)})
    assert member.members.load(UNIT.folder, "hash")[0] == {"a": 2}
    assert sorted(path.name for path in member.member(UNIT).parent.iterdir()) == ["member-1"]


def test_members_written_twice_at_the_same_time_are_there_once(member, monkeypatch):
    exists = []

    def rename(path, target, original=Path.rename):
        if not exists and not target.exists():
            exists.append(target)
            member.members.save(UNIT.folder, "hash", {"a": "of another process"}, {})
        return original(path, target)

    shutil.rmtree(member.member(UNIT))
    monkeypatch.setattr(Path, "rename", rename)
    member.members.save(UNIT.folder, "hash", {"a": 3}, {})
    assert exists
    assert member.members.load(UNIT.folder, "hash")[0] == {"a": 3}
    assert not list(member.path.rglob("*.tmp"))


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
    run.save_study(study, {"table": "x", "image": None}, **ABOUT)
    assert run.study() == study
    assert run.data_digests() == {"table": "x", "image": None}
    assert json.loads((tmp_path / "config.json").read_text())["levels"] == ["a", "b"]


def test_runs_of_an_older_schema_are_refused(tmp_path):
    run, study = RunFolder(tmp_path), make_study("melanoma")
    run.save_study(study, {"table": "x", "image": None}, **ABOUT)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "study": {**config["study"], "schema": 1}}))
    with pytest.raises(
        FileFormatError, match=r"config\.json .*a study must have schema 2, got 1; run it again"
    ):
        run.study()
