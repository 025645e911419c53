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
