from __future__ import annotations

import hashlib
import os

import pandas as pd
import pytest

from deeptram import _files
from deeptram._files import write_bytes, write_json, write_table
from deeptram.paper import storage


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "file"
    write_bytes(path, b"old")

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="disk full"):
        write_bytes(path, b"new")
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_files_are_as_readable_as_others(tmp_path):
    write_bytes(tmp_path / "ours", b"")
    (tmp_path / "plain").write_bytes(b"")
    assert (tmp_path / "ours").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_tables_keep_every_digit(tmp_path, rng):
    table = pd.DataFrame({"x": rng.normal(size=20) * 10.0 ** rng.integers(-30, 30, 20)})
    write_table(tmp_path / "t.csv", table)
    pd.testing.assert_frame_equal(storage.read_frame(tmp_path / "t.csv"), table, check_exact=True)


def test_infinities_are_not_written_as_json(tmp_path):
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(tmp_path / "a.json", {"x": float("inf")})


def test_infinities_are_not_read_from_json():
    with pytest.raises(ValueError, match="NaN is no JSON"):
        _files.parse_json(b'{"x": NaN}')


def test_hashes(tmp_path):
    write_json(tmp_path / "a.json", {"b": 1, "a": "\u00e4"})
    content = (tmp_path / "a.json").read_bytes()
    assert _files.parse_json(content) == {"b": 1, "a": "\u00e4"}
    assert (
        _files.sha256(content)
        == _files.file_sha256(tmp_path / "a.json")
        == hashlib.sha256(content).hexdigest()
    )


def test_leftovers_of_interrupted_writes_go(tmp_path):
    (tmp_path / "below" / ".folder.12-ab.tmp").mkdir(parents=True)
    (tmp_path / "below" / ".folder.12-ab.tmp" / "half").write_bytes(b"1")
    (tmp_path / ".a.json.x1.tmp").write_bytes(b"1")
    write_bytes(tmp_path / "a.json", b"1")
    _files.clear_leftovers(tmp_path)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["a.json", "below"]
