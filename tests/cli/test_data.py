"""``deeptram data check``: which data sets are usable, and what is missing where."""

from __future__ import annotations

import pytest


def lines(text):
    """Return the rows of the table by data set."""
    cells = [[cell.strip() for cell in line.split("│")[1:-1]] for line in text.splitlines() if "│" in line]
    return {row[0]: row[1:] for row in cells if row[0]}


def test_an_empty_folder_has_digits_only(run, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    result = run("data", "check", tmp_path)
    assert result.exit_code == 0, result.output
    table = lines(result.stdout)
    assert table["digits"][:3] == ["yes", "yes", "1,797"]
    for name in ("mnist", "melanoma", "utkface", "ham10000"):
        assert table[name][:3] == ["no", "no", ""]
        assert table[name][3]  # what is missing


def test_the_variable_names_the_folder(run, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("DEEPTRAM_DATA", str(tmp_path))
    assert run("data", "check").stdout == run("data", "check", tmp_path).stdout


def test_a_folder_that_is_not_there_is_bad_input(refused, tmp_path):
    assert "nowhere" in refused("data", "check", tmp_path / "nowhere")


def test_the_data_here_are_usable(run, data_dir, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    table = lines(run("data", "check", data_dir).stdout)
    present = [name for name in ("mnist", "melanoma", "utkface", "ham10000") if (data_dir / name).is_dir()]
    if not present:
        pytest.skip("DEEPTRAM_DATA has no folder named after a data set")
    for name in present:
        assert table[name][0] == "yes", table[name]


def test_broken_folders_are_described(run, tmp_path, monkeypatch):
    """No file in a data folder, whatever is in it, ends the check."""
    monkeypatch.setenv("COLUMNS", "400")
    for name in ("mnist", "melanoma", "utkface", "ham10000"):
        (tmp_path / name).mkdir()
    (tmp_path / "mnist" / "train-images-idx3-ubyte.gz").write_bytes(b"\x1f\x8bnothing")
    columns = "image_name,patient_id,sex,age_approx,anatom_site_general_challenge,target"
    (tmp_path / "melanoma" / "train.csv").write_text(f"{columns}\na,b,male,old,head,0\n")
    (tmp_path / "utkface" / "UTKFace.tar.gz").mkdir()
    (tmp_path / "ham10000" / "HAM10000_metadata.csv").write_bytes(bytes(100))
    result = run("data", "check", tmp_path)
    assert result.exit_code == 0, result.output
    table = lines(result.stdout)
    assert all(table[name][0] == "no" for name in ("mnist", "melanoma", "utkface", "ham10000"))
    assert "age_approx in" in table["melanoma"][3]
    assert "must hold numbers, at least two different ones, got old" in table["melanoma"][3]
    assert (
        "HAM10000_metadata.csv must be a CSV table" in table["ham10000"][3]
        or "columns" in table["ham10000"][3]
    )
