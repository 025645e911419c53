from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from deeptram.cli.predictions import member_names


@pytest.fixture
def pool_of(tables, refused, tmp_path):
    """Run pool on good files and one bad one, and return the sentence."""

    def call(text=None, table=None, name="bad.csv", truth=None, form="proba"):
        paths = tables.write(form=form)
        if text is not None:
            (tmp_path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
        elif table is not None:
            tables.write_one(table, name)
        extra = [] if truth is None else ["--truth", truth]
        members = paths if text is None and table is None else [paths[0], str(tmp_path / name)]
        return refused("pool", "--members", *members, *extra, "--input", form, "--out", tmp_path / "o")

    return call


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("", "bad.csv must be a CSV table, got an empty file"),
        ("low,mid,high\n", "bad.csv must hold at least one row below its header, got none"),
        ("low,mid,high\n0.2,0.3,0.5,0.1\n", "as many fields in every row as in the header"),
        ("low,mid,high\n0.2,0.3,0.5\n0.2,0.3,0.5,0.1,9\n", "as many fields in every row as in the header"),
        ('low,mid,high\n0.2,"0.3,0.5\n', "must be a CSV table with as many fields"),
        (b"low,mid,h\xff\xfe\n0.2,0.3,0.5\n", "must be text in UTF-8"),
        ("low,mid,low\n0.2,0.3,0.5\n", "must have different names, got 'low' twice"),
        (
            ",low,mid,high\n0,0.2,0.3,0.5\n",
            "got none for column 1; write the table without row",
        ),
    ],
    ids=["empty", "header only", "long first", "long row", "quote", "encoding", "twice", "index"],
)
def test_broken_csv(pool_of, text, match):
    assert pd.Series([pool_of(text)]).str.contains(match).item(), pool_of(text)


def frame(tables, **changes):
    return tables.members["test"][1].assign(**changes)


def test_a_short_row_is_named(pool_of, tables):
    lines = tables.members["test"][1].to_csv(index=False).splitlines()
    lines[4] = "0.2,0.8"
    message = pool_of("\n".join(lines) + "\n")
    assert "proba must not contain NaN, got NaN in line 5" in message


def test_text_where_numbers_should_be(pool_of, tables):
    table = tables.members["test"][1].astype(object)
    table.loc[3, "high"] = "half"
    assert "bad.csv must hold numbers, got 'half' in line 5; correct it" in pool_of(table=table)


def test_files_of_different_length(pool_of, tables):
    message = pool_of(table=tables.members["test"][1].iloc[:59])
    assert "all files must have the same number of rows, got 60 in" in message
    assert "and 59 in" in message


@pytest.mark.parametrize(
    ("columns", "match"),
    [
        (["low", "mid", "hihg"], "got an unknown column 'hihg' and no column 'high'; rename the columns"),
        (["low", "high", "mid"], "must have its columns in the order of .* got low, high, mid; reorder them"),
    ],
    ids=["unknown", "order"],
)
def test_other_columns(pool_of, tables, columns, match):
    message = pool_of(table=tables.members["test"][1].set_axis(columns, axis=1))
    assert pd.Series([message]).str.contains(match).item(), message


def test_a_missing_or_further_column(pool_of, tables):
    assert "got no column 'high'; add it (zeros for a level" in pool_of(
        table=tables.members["test"][1][["low", "mid"]]
    )
    assert "got an unknown column 'extra'" in pool_of(table=frame(tables, extra=0.0))


@pytest.mark.parametrize("levels", [["2", "10", "1"], ["3", "2", "1"], ["1", "1.0", "2"]])
def test_unsorted_numeric_levels(tables, refused, tmp_path, levels):
    paths = [
        tables.write_one(table.set_axis(levels, axis=1), f"u{k}.csv")
        for k, table in enumerate(tables.members["test"])
    ]
    message = refused("pool", "--members", *paths, "--out", tmp_path / "o")
    assert (
        f"must be in ascending order of the levels, got {', '.join(levels)}; reorder the columns" in message
    )


def test_one_column_is_no_distribution(tables, refused, tmp_path):
    path = tables.write_one(pd.DataFrame({"yes": [0.5]}), "one.csv")
    message = refused("pool", "--members", path, "--out", tmp_path / "o")
    assert "must have one column per level, at least two, got yes" in message


@pytest.mark.parametrize(
    ("row", "form", "match"),
    [
        ([0.2, 0.3, 0.4], "proba", "each row of proba must sum to one, got 0.9 in line 9; divide each row"),
        ([-0.1, 0.6, 0.5], "proba", "proba must lie between 0 and 1, got -0.1 in line 9"),
        ([0.2, 0.3, 0.502], "proba", "or allow rounding with --tolerance"),
        (
            [0.5, 0.4, 1.0],
            "cdf",
            "must not decrease, got a decrease in line 9; .*or --input proba",
        ),
        ([0.5, 0.6, 0.9], "cdf", "each row of cdf must end in 1, got 0.9 in line 9"),
    ],
    ids=["sum", "negative", "rounded", "decrease", "end"],
)
def test_rows_that_are_no_distribution(pool_of, tables, row, form, match):
    table = tables.members["test"][1].copy()
    table = table if form == "proba" else table.cumsum(axis=1).assign(high=1.0)
    table.iloc[7] = row
    message = pool_of(table=table, form=form)
    assert "bad.csv: " in message
    assert pd.Series([message]).str.contains(match).item(), message


def test_cdfs_given_as_probabilities_hint_at_input(tables, refused, tmp_path):
    message = refused("pool", "--members", *tables.write(form="cdf"), "--out", tmp_path / "o")
    assert "or --input cdf for a CDF" in message


@pytest.mark.parametrize("name", ["bad.txt", "bad"])
def test_unknown_kind_of_file(pool_of, name):
    assert "must be a table ending in .csv, .csv.gz, .tsv, .tsv.gz, .parquet, .pq" in pool_of("x", name=name)


def test_missing_file_and_folder(tables, refused, tmp_path):
    missing = refused("pool", "--members", tmp_path / "no.csv", "--out", tmp_path / "o")
    assert "no.csv must be a file, got no such file; check the path" in missing
    assert "must be a file, got a folder" in refused("pool", "--members", tmp_path, "--out", tmp_path / "o")


def test_broken_parquet(pool_of):
    assert "bad.parquet must be a Parquet table, got" in pool_of("not parquet", name="bad.parquet")


def test_parquet_without_pyarrow(pool_of, tables, monkeypatch):
    import sys

    table = tables.members["test"][1]
    path = tables.write_one(table, "good.parquet")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    message = pool_of(Path(path).read_bytes(), name="again.parquet")
    assert "reading again.parquet needs pyarrow, which is not installed" in message
    assert "pip install 'deeptram[parquet]'" in message


def test_truth_with_an_unknown_level(pool_of, tables):
    tables.y["test"][5] = "hihg"
    message = pool_of(truth=tables.truth())
    assert "must be one of the columns low, mid, high, got 'hihg' in line 7; correct it" in message


def test_truth_of_another_length(pool_of, tables):
    assert "got 60 in" in pool_of(truth=tables.truth("tune"))


def test_truth_with_several_columns(pool_of, tables):
    message = pool_of(truth=tables.truth(x=1.0))
    assert "must have one column with the outcome (and possibly id), got 'x', 'y'" in message


def test_truth_without_a_header(pool_of, tables, tmp_path):
    (tmp_path / "truth.csv").write_text("\n".join(tables.y["test"]) + "\n")
    message = pool_of(truth=tmp_path / "truth.csv")
    assert "the first line of" in message
    assert f"must be a header, got the level '{tables.y['test'][0]}'" in message


@pytest.mark.parametrize(
    ("ids", "match"),
    [
        (range(60), "must be in all files or in none, got it in .*bad.csv, not in .*test_m0.csv"),
        ([0] * 60, "id in .*bad.csv must name each row once, got '0' twice"),
        ([None, *range(59)], "id in .*bad.csv must name each row once, got a missing one"),
    ],
    ids=["some files", "repeated", "missing"],
)
def test_ids(pool_of, tables, ids, match):
    message = pool_of(table=frame(tables, id=list(ids)))
    assert pd.Series([message]).str.contains(match).item(), message


def test_ids_of_other_rows(tables, refused, tmp_path):
    first, second = tables.write(ids=range(60))[0], tables.write(ids=range(1, 61), name="other")[1]
    message = refused("pool", "--members", first, second, "--out", tmp_path / "o")
    assert "got no row with id '0'; predict the same rows" in message


def test_names_of_members():
    assert member_names([Path("x/a.csv"), Path("b.parquet")]) == ["a", "b"]
    assert member_names([Path("a.csv"), Path("a.csv")]) == ["a (1)", "a (2)"]
    assert member_names([Path("1/p.csv.gz"), Path("2/p.csv.gz")]) == ["1/p", "2/p"]
