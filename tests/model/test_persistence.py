"""The file format: complete or not there, checked before use, never executed."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from deeptram._files import file_sha256
from deeptram.errors import FileFormatError, InvalidInputError
from deeptram.model import persistence
from deeptram.model.persistence import (
    JSON_NAME,
    SCHEMA,
    TENSOR_NAME,
    read_content,
    read_folder,
    write_folder,
)

CONTENT = {"kind": "note", "text": "größer", "numbers": [1, 2.5, None]}
TENSORS = {
    "a": np.arange(6.0).reshape(2, 3),
    "b": np.array([True, False]),
    "c": np.zeros(0),
    "d": np.float32([1.5]),
    "e": np.arange(4)[::2],
    "f": np.array(7),
}


@pytest.fixture
def saved(tmp_path):
    return write_folder(tmp_path / "saved", CONTENT, TENSORS)


def rewrite(folder, change):
    """Change the JSON part and give it a valid digest again, as a forger would."""
    file = folder / JSON_NAME
    content = json.loads(file.read_text(encoding="utf-8"))
    change(content)
    content["sha256"] = persistence._digest(content)
    file.write_text(json.dumps(content), encoding="utf-8")


def test_round_trip(saved):
    content, tensors = read_folder(saved)
    assert {key: content[key] for key in CONTENT} == CONTENT
    assert content["schema"] == SCHEMA
    assert set(tensors) == set(TENSORS)
    for name, value in TENSORS.items():
        np.testing.assert_array_equal(tensors[name], value)
        assert tensors[name].dtype == value.dtype
    assert sorted(path.name for path in saved.iterdir()) == [JSON_NAME, TENSOR_NAME]
    assert [path.name for path in saved.parent.iterdir()] == ["saved"]  # nothing temporary is left


def test_an_existing_path_is_never_replaced_silently(saved):
    with pytest.raises(InvalidInputError, match="which does; pass overwrite=True to replace it"):
        write_folder(saved, CONTENT, TENSORS)
    write_folder(saved, {"kind": "other"}, {}, overwrite=True)
    assert read_content(saved)["kind"] == "other"
    assert [path.name for path in saved.parent.iterdir()] == ["saved"]


def test_overwrite_replaces_saved_models_only(tmp_path):
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.tex").write_text("precious")
    (tmp_path / "file").write_text("precious")
    for name in ("thesis", "file"):
        with pytest.raises(InvalidInputError, match=r"replaces saved models only, got .* which is none"):
            write_folder(tmp_path / name, CONTENT, TENSORS, overwrite=True)
    (tmp_path / "empty").mkdir()
    write_folder(tmp_path / "empty", CONTENT, TENSORS, overwrite=True)


def test_a_failed_write_leaves_nothing_and_the_old_one_untouched(saved, monkeypatch):
    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr(persistence, "_put_in_place", fail)
    with pytest.raises(OSError, match="disk full"):
        write_folder(saved, {"kind": "new"}, TENSORS, overwrite=True)
    assert read_content(saved)["kind"] == "note"
    assert [path.name for path in saved.parent.iterdir()] == ["saved"]


def flip(path, position):
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(bytes(data))


def test_every_flipped_bit_is_noticed(saved):
    for name in (TENSOR_NAME, JSON_NAME):
        original = (saved / name).read_bytes()
        for position in range(0, len(original), 7):
            flip(saved / name, position)
            with pytest.raises(FileFormatError):
                read_folder(saved)
            (saved / name).write_bytes(original)
    read_folder(saved)


@pytest.mark.parametrize(
    ("harm", "match"),
    [
        (lambda f: shutil.rmtree(f), "a saved model is a folder with deeptram.json and tensors.safetensors"),
        (lambda f: (f / JSON_NAME).unlink(), "pass the path that was given to save"),
        (lambda f: (f / TENSOR_NAME).unlink(), "tensors.safetensors is missing"),
        (lambda f: (f / JSON_NAME).write_text("[]"), "is not that of a saved model"),
        (lambda f: (f / JSON_NAME).write_text("{"), "deeptram.json cannot be read"),
        (lambda f: (f / JSON_NAME).write_bytes(b"\xff\xfe"), "deeptram.json cannot be read"),
        (lambda f: (f / JSON_NAME).write_text("[" * 100_000), "deeptram.json cannot be read"),
        (lambda f: (f / JSON_NAME).write_text('{"schema": NaN}'), "deeptram.json cannot be read"),
        (
            lambda f: (f / JSON_NAME).write_text('{"schema": 1' + "0" * 5000 + "}"),
            "deeptram.json cannot be read",
        ),
        (lambda f: os.truncate(f / TENSOR_NAME, 50), "has 50 bytes, not"),
        (lambda f: flip(f / TENSOR_NAME, -1), "the content of tensors.safetensors was changed"),
        (
            lambda f: (f / JSON_NAME).write_text((f / JSON_NAME).read_text().replace("note", "NOTE")),
            "was changed",
        ),
    ],
)
def test_damage_is_told_in_a_sentence(saved, harm, match):
    harm(saved)
    with pytest.raises(FileFormatError, match=match):
        read_folder(saved)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda c: c.update(schema=SCHEMA + 1), rf"reads models of schema {SCHEMA}, got schema {SCHEMA + 1}"),
        (lambda c: c.update(schema="1"), "got schema '1'"),
        (lambda c: c["tensors"].update(bytes=10**12), "bytes, not 1000000000000"),
        (lambda c: c["tensors"]["shapes"].update(a=[3, 2]), r"tensor 'a' has shape \[2, 3\], not \[3, 2\]"),
        (lambda c: c["tensors"]["shapes"].pop("a"), "holds other tensors than"),
        (lambda c: c.update(tensors=[]), "does not say which tensors belong to it"),
        (lambda c: c["tensors"].update(sha256="0" * 64), "the content of tensors.safetensors was changed"),
    ],
)
def test_forged_records_are_refused(saved, change, match):
    rewrite(saved, change)
    with pytest.raises(FileFormatError, match=match):
        read_folder(saved)


@pytest.mark.parametrize(
    ("name", "match"), [("LARGEST_JSON", "bytes, more than 10"), ("MOST_VALUES", "values, more than 10")]
)
def test_a_huge_json_file_is_neither_read_nor_written(saved, monkeypatch, name, match):
    monkeypatch.setattr(persistence, name, 10)
    with pytest.raises(FileFormatError, match=rf"deeptram\.json has \d+ {match}"):
        read_folder(saved)
    with pytest.raises(
        InvalidInputError, match=rf"must be described in a small file, got \d+ {match}; use fewer"
    ):
        write_folder(saved.parent / "other", CONTENT, TENSORS)
    assert [path.name for path in saved.parent.iterdir()] == ["saved"]


def test_a_tensor_file_that_is_none_is_refused(saved):
    (saved / TENSOR_NAME).write_bytes(b"\x80" * 64)  # a header length of 10^19 bytes
    rewrite(
        saved,
        lambda c: c["tensors"].update(bytes=64, sha256=file_sha256(saved / TENSOR_NAME)),
    )
    with pytest.raises(FileFormatError, match=r"the header of tensors\.safetensors is longer than \d+ bytes"):
        read_folder(saved)
    (saved / TENSOR_NAME).write_bytes(b"\x08" + b"\0" * 63)  # a header that is no JSON
    rewrite(saved, lambda c: c["tensors"].update(sha256=file_sha256(saved / TENSOR_NAME)))
    with pytest.raises(FileFormatError, match=r"tensors\.safetensors cannot be read"):
        read_folder(saved)


def test_types_without_meaning_here_are_refused(saved):
    save_file({"a": np.zeros(2, dtype=np.uint64)}, saved / TENSOR_NAME)
    size, digest = (saved / TENSOR_NAME).stat().st_size, file_sha256(saved / TENSOR_NAME)
    rewrite(saved, lambda c: c.update(tensors={"bytes": size, "sha256": digest, "shapes": {"a": [2]}}))
    with pytest.raises(FileFormatError, match="tensor 'a' has the unknown type 'U64'"):
        read_folder(saved)


def test_what_appears_while_a_model_is_written_is_not_touched(tmp_path, monkeypatch):
    target, rename = tmp_path / "m", Path.rename

    def late(path, to):
        target.mkdir(exist_ok=True)
        (target / "thesis.tex").write_text("precious")
        monkeypatch.setattr(Path, "rename", rename)
        return rename(path, to)

    monkeypatch.setattr(Path, "rename", late)
    with pytest.raises(OSError, match="m'"):
        write_folder(target, {"kind": "note"}, {"x": np.arange(3.0)})
    assert [path.name for path in tmp_path.rglob("*")] == ["m", "thesis.tex"]
