"""Tables of every ending, from pipes and in parts; results for people, pipes and programs."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

import deeptram as dt
from deeptram.cli.main import app
from deeptram.cli.tables import read_table_file, table_batches, table_writer
from deeptram.errors import FileFormatError


def call(*arguments, stdin=None):
    return CliRunner().invoke(app, [str(a) for a in arguments], input=stdin)


@pytest.fixture
def frame():
    rng = np.random.default_rng(1)
    n = 50
    return pd.DataFrame(
        {
            "id": [f"{k:03d}" for k in range(n)],
            "a": rng.normal(size=n),
            "text": ["x, y"] * n,
            "late": [str(k) for k in range(n - 1)] + ["z"],  # numbers, until the last part
            "whole": [1] * (n - 1) + [0.5],
            "gap": [np.nan] * 30 + [2.0] * (n - 30),
            "mixed": ["True"] * 40 + ["1"] * 10,
        }
    )


@pytest.mark.parametrize("ending", ["csv", "csv.gz", "tsv", "tsv.gz", "parquet", "pq"])
@pytest.mark.parametrize("rows", [7, 50, 1000])
def test_parts_are_the_table(frame, tmp_path, ending, rows):
    path = tmp_path / f"t.{ending}"
    with table_writer(path) as write:
        for start in range(0, 50, 20):
            write(frame[start : start + 20])
    whole = read_table_file(path)
    np.testing.assert_array_equal(whole["a"], frame["a"])
    assert whole["id"].tolist() == frame["id"].tolist()
    parts = list(table_batches(path, rows))
    assert [len(part) for part in parts] == [min(rows, 50 - k) for k in range(0, 50, rows)]
    together = pd.concat(parts, ignore_index=True)
    pd.testing.assert_frame_equal(together, whole, check_dtype=False)
    for name in ("late", "text", "mixed"):
        assert {type(v) for part in parts for v in part[name]} == {type(v) for v in whole[name]}


def test_a_file_takes_its_name_when_it_is_complete(frame, tmp_path):
    def interrupted():
        with table_writer(tmp_path / "t.parquet") as write:
            write(frame)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        interrupted()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a;b\n1.5;x\n2;y\n", ["has semicolons between its fields"]),
        ("a\tb\n1.5\tx\n2\ty\n", ["has tabs between its fields"]),
        ("a|b\n1.5|x\n2|y\n", ["has bars between its fields"]),
        ("a;b\n1,5;x\n2;y\n", ["has semicolons", "has commas in its decimal numbers"]),
        ("a;b\n1,5;01.02.2020\n2;y\n", ["has semicolons", "has commas in its decimal numbers"]),
    ],
)
def test_other_separators_are_read_with_a_note(text, said, tmp_path, capsys):
    path = tmp_path / "t.csv"
    path.write_text(text)
    for found in (read_table_file(path), next(table_batches(path))):
        assert found["a"].tolist() == [1.5, 2.0]
    told = capsys.readouterr().err
    for sentence in said:
        assert told.count(sentence) == 2
    (tmp_path / "t.tsv").write_text("a\tb\n1.5\tx\n")
    read_table_file(tmp_path / "t.tsv")
    assert capsys.readouterr().err == ""


def test_damage_is_found_in_any_part(tmp_path):
    (tmp_path / "t.csv").write_text("a,b\n" + "1,2\n" * 30 + "1,2,3\n")
    message = "as many fields in every row as in the header, got 3 fields in line 32 where the header has 2"
    for read in (read_table_file, lambda path: list(table_batches(path, 10))):
        with pytest.raises(FileFormatError, match=message):
            read(tmp_path / "t.csv")
    (tmp_path / "t.csv").write_text("a,b\n")
    with pytest.raises(FileFormatError, match="at least one row below its header, got none"):
        list(table_batches(tmp_path / "t.csv", 10))
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(b"a,b\n" + b"1,2\n" * 99)[:-9])
    with pytest.raises(FileFormatError, match="must be a CSV table"):
        list(table_batches(tmp_path / "t.csv.gz", 10))


@pytest.fixture
def model(tmp_path):
    """A saved linear model of numbers, and a table of new rows."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"x": rng.normal(size=80), "sex": ["f", "m"] * 40})
    table["y"] = table["x"] + rng.normal(size=80)
    dt.Lm(dt.LS("x + sex")).fit(table, table["y"]).save(tmp_path / "model")
    table.drop(columns="y").assign(id=range(80)).to_csv(tmp_path / "new.csv", index=False)
    return tmp_path / "model"


@pytest.mark.parametrize("ending", ["csv", "tsv", "csv.gz", "parquet"])
def test_predictions_in_batches_are_those_of_the_whole(model, tmp_path, ending):
    out = tmp_path / f"p.{ending}"
    arguments = ["predict", model, "--data", tmp_path / "new.csv", "--quantiles", "0.05", "0.5", "0.95"]
    told = call(*arguments, "--out", out, "--batch-rows", "9")
    assert told.exit_code == 0, told.output
    assert "80 rows written" in told.stdout
    new = pd.read_csv(tmp_path / "new.csv")
    expected = dt.predict_frame(dt.load(model), new, quantiles=[0.05, 0.5, 0.95])
    found = read_table_file(out)
    assert found["id"].tolist() == [str(k) for k in range(80)]
    np.testing.assert_allclose(found[list(expected.columns)], expected, rtol=1e-13, atol=1e-14)


def test_pipes(model, tmp_path):
    """CSV and Parquet in, CSV out, nothing else on stdout."""
    arguments = ["predict", model, "--data", "-", "--out", "-", "--quantiles", "0.5"]
    for content in ((tmp_path / "new.csv").read_bytes(), None):
        if content is None:
            pd.read_csv(tmp_path / "new.csv").to_parquet(tmp_path / "new.parquet")
            content = (tmp_path / "new.parquet").read_bytes()
        told = call(*arguments, stdin=content)
        assert told.exit_code == 0, told.output
        lines = told.stdout.splitlines()
        assert lines[0] == "id,q0.5,prediction"
        assert len(lines) == 81
    assert (
        "-: " in call(*arguments, stdin=b"").stderr
        or "must be a CSV table, got an empty file" in call(*arguments, stdin=b"").stderr
    )
    both = call(*arguments, "--json", stdin=b"x\n1\n")
    assert both.exit_code == 2
    assert "--json and --out - both write to stdout" in both.stderr


def test_nothing_is_replaced_without_force(model, tables, tmp_path):
    arguments = ["predict", model, "--data", tmp_path / "new.csv", "--out", tmp_path / "p.csv"]
    assert call(*arguments).exit_code == 0
    told = call(*arguments)
    assert told.exit_code == 2
    assert "--out must not exist yet, got" in told.stderr
    assert "pass --force, or another path" in told.stderr
    assert call(*arguments, "--force").exit_code == 0
    pool = ["pool", "--members", *tables.write(), "--out", tmp_path / "o"]
    assert call(*pool).exit_code == 0
    assert "pooled.csv; pass --force" in call(*pool).stderr
    assert call(*pool, "--force").exit_code == 0


def test_json(model, tables, tmp_path):
    told = call("predict", model, "--data", tmp_path / "new.csv", "--out", tmp_path / "p.csv", "--json")
    assert json.loads(told.stdout)["rows"] == 80
    pd.read_csv(tmp_path / "new.csv").assign(y=np.arange(80.0)).to_csv(tmp_path / "d.tsv", sep="\t")
    fit = ["fit", "--data", tmp_path / "d.tsv", "--outcome", "y", "--type", "continuous", "--linear", "x"]
    found = call(*fit, "--out", tmp_path / "n", "--json")
    assert found.exit_code == 2  # the row names of pandas have no name
    pd.read_csv(tmp_path / "new.csv").assign(y=np.arange(80.0)).to_csv(
        tmp_path / "d.tsv", sep="\t", index=False
    )
    record = json.loads(call(*fit, "--out", tmp_path / "n", "--json").stdout)
    assert record["coefficients"][0]["term"] == "x"
    assert record["loglik"] == pytest.approx(dt.load(tmp_path / "n").loglik_)
    args = [
        "pool",
        "--members",
        *tables.write(),
        "--truth",
        tables.truth(),
        "--out",
        tmp_path / "o",
        "--json",
    ]
    record = json.loads(call(*args, "--n-boot", "30", "--no-figures").stdout)
    assert record["weights"] == pytest.approx([1 / 3] * 3)
    assert record["verdict"][0].startswith("The transformation pool is better than the average member by 0.")
    assert {row["metric"] for row in record["scores"]} >= {"nll", "rps"}
    assert record["files"] == ["pooled.csv", "weights.json", "metrics.csv", "guarantees.csv"]


def test_members_without_networks_are_explained(model, tmp_path):
    pd.read_csv(tmp_path / "new.csv").assign(y=np.arange(80.0)).to_csv(tmp_path / "d.csv", index=False)
    fit = ["fit", "--data", tmp_path / "d.csv", "--outcome", "y", "--type", "continuous", "--linear", "x"]
    told = call(*fit, "--members", "5", "--out", tmp_path / "n")
    assert told.exit_code == 0
    assert "a model without networks has one optimum" in told.stderr
    assert call(*fit, "--members", "5", "--out", tmp_path / "o", "--quiet").stderr == ""


# -- quantiles and draws as members ---------------------------------------------------------------------

LEVELS = [0.025, 0.1, 0.25, 0.5, 0.75, 0.9, 0.975]


@pytest.fixture
def forecasts(tmp_path):
    """Quantiles and draws of three members, and numeric outcomes."""
    import scipy.stats

    rng = np.random.default_rng(4)
    n = 40
    x = rng.normal(size=n)
    y = 10 + 2 * x + rng.normal(size=n)
    pd.DataFrame({"y": y}).to_csv(tmp_path / "y.csv", index=False)
    files: dict[str, list[Path]] = {"quantiles": [], "samples": []}
    for k, slope in enumerate((1.0, 2.0, 3.0)):
        dist = scipy.stats.norm(10 + slope * x, 1 + 0.2 * k)
        quantiles = pd.DataFrame(dist.ppf(np.array(LEVELS)[:, None]).T, columns=[f"q{q}" for q in LEVELS])
        files["quantiles"].append(tmp_path / f"q{k}.csv")
        quantiles.assign(prediction=quantiles["q0.5"]).to_csv(files["quantiles"][-1], index=False)
        files["samples"].append(tmp_path / f"s{k}.parquet")
        draws = dist.rvs((30 + k, n), random_state=k).T
        pd.DataFrame(draws, columns=[f"draw {j}" for j in range(30 + k)]).to_parquet(files["samples"][-1])
    return files, y


@pytest.mark.parametrize("form", ["quantiles", "samples"])
@pytest.mark.parametrize("method", ["linear", "transformation"])
def test_numbers_are_pooled(forecasts, tmp_path, form, method):
    files, y = forecasts
    arguments = ["pool", "--members", *files[form], "--input", form, "--method", method]
    told = call(*arguments, "--truth", tmp_path / "y.csv", "--n-boot", "20", "--out", tmp_path / "o")
    assert told.exit_code == 0, told.output
    pooled = pd.read_csv(tmp_path / "o" / "pooled.csv", float_precision="round_trip")
    if form == "quantiles":
        members = [
            dt.Predictive.from_quantiles(LEVELS, pd.read_csv(p)[[f"q{q}" for q in LEVELS]])
            for p in files[form]
        ]
        assert list(pooled.columns) == [f"q{q}" for q in LEVELS]
        np.testing.assert_allclose(pooled, dt.pool(members, method=method).quantile(LEVELS), rtol=1e-9)
        again = call("pool", "--members", tmp_path / "o" / "pooled.csv", files[form][0], "--input", form,
                     "--out", tmp_path / "p")  # fmt: skip
        assert again.exit_code == 0, again.output
    else:
        members = [dt.Predictive.from_samples(pd.read_parquet(p)) for p in files[form]]
    table = pd.read_csv(tmp_path / "o" / "metrics.csv").set_index(["name", "metric"])["estimate"]
    expected = float(dt.scores.crps(y, dt.pool(members, method=method)))
    assert table[method, "crps"] == pytest.approx(expected, rel=1e-9)
    assert (tmp_path / "o" / "calibration.png").is_file()
    assert " pool is better than the average member by 0." in " ".join(told.stdout.split())


def test_numbers_are_tuned_by_the_crps(forecasts, tmp_path):
    files, y = forecasts
    tuning = ["--weights", "tuned", "--tune-members", *files["quantiles"], "--tune-truth", tmp_path / "y.csv"]
    told = call("pool", "--members", *files["quantiles"], "--input", "quantiles", *tuning, "--method", "linear",
                "--out", tmp_path / "o")  # fmt: skip
    assert told.exit_code == 0, told.output
    record = json.loads((tmp_path / "o" / "weights.json").read_text())
    members = [
        dt.Predictive.from_quantiles(LEVELS, pd.read_csv(p)[[f"q{q}" for q in LEVELS]])
        for p in files["quantiles"]
    ]
    expected = dt.tune_weights(members, y, method="linear", score="crps")
    np.testing.assert_allclose(record["weights"], expected.weights, atol=1e-6)
    assert record["tuning"]["score"] == "crps"
    assert record["tuning"]["same_data_as_evaluation"] is True


def test_equal_quantiles_are_point_masses(tmp_path):
    """Counts have them: F jumps at the value, and the linear pool averages the jumps."""
    for k, row in enumerate(([0, 0, 0, 1], [0, 1, 2, 2])):
        pd.DataFrame([row], columns=["q0.2", "q0.4", "q0.6", "q0.8"]).to_csv(
            tmp_path / f"c{k}.csv", index=False
        )
    told = call("pool", "--members", tmp_path / "c0.csv", tmp_path / "c1.csv", "--input", "quantiles", "--method",
                "linear", "--out", "-")  # fmt: skip
    assert told.exit_code == 0, told.output
    found = np.array(told.stdout.splitlines()[1].split(","), dtype=float)
    # F at 0: (0.6 + 0.2) / 2 = 0.4; at 1: (0.8 + 0.4) / 2 = 0.6
    np.testing.assert_allclose(found[:3], [0, 0, 1], atol=1e-8)


@pytest.mark.parametrize(
    ("form", "text", "message"),
    [
        ("quantiles", "a,b\n1,2\n", "two or more columns named after quantiles in ascending order, such as q0.1 and q0.9, got none"),
        ("quantiles", "q0.9,q0.1\n1,2\n", "got q0.9, q0.1; rename or reorder them"),
        ("quantiles", "q0.1,q0.9\n2,1\n", "each row of values must not decrease, got a decrease in line 2; sort the quantiles"),
        ("quantiles", "q0.1,q0.9\n1,inf\n", "must be finite"),
        ("samples", "a\n1\n", "must have one column per draw, at least two, got a"),
        ("samples", "a,b\n1,inf\n", "draws must"),
        ("samples", "a,b\n1,x\n", "column 'b' of .* must hold numbers, got 'x' in line 2"),
        ("proba", "q0.1,q0.9,prediction\n1,2,1\n", "got quantiles of numbers .*pass --input quantiles"),
    ],
)  # fmt: skip
def test_tables_of_numbers_that_are_none(form, text, message, tmp_path):
    (tmp_path / "a.csv").write_text(text)
    told = call(
        "pool", "--members", tmp_path / "a.csv", tmp_path / "a.csv", "--input", form, "--out", tmp_path / "o"
    )
    assert told.exit_code == 2
    assert len(told.stderr.splitlines()) == 1
    assert pd.Series([told.stderr]).str.contains(message).item(), told.stderr


def test_the_pool_alone_goes_to_stdout(tables, tmp_path):
    told = call("pool", "--members", *tables.write(), "--out", "-")
    assert told.stdout.splitlines()[0] == "low,mid,high"
    refused = call("pool", "--members", *tables.write(), "--out", "-", "--json")
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert "--out - prints the pool alone" in refused.stderr


def test_a_pool_as_parquet(tables, tmp_path):
    assert (
        call("pool", "--members", *tables.write(), "--out", tmp_path / "o", "--format", "parquet").exit_code
        == 0
    )
    assert pd.read_parquet(tmp_path / "o" / "pooled.parquet").columns.tolist() == ["low", "mid", "high"]
    assert not (tmp_path / "o" / "pooled.csv").exists()


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
def test_wrong_cells_are_named_with_file_line_and_column(model, tmp_path, ending):
    table = pd.read_csv(tmp_path / "new.csv").astype({"x": object})
    path = tmp_path / f"wrong{ending}"
    for column, value in (("sex", "other"), ("x", "12,5")):
        wrong = table.copy() if ending == ".csv" else table.astype({"x": float if column == "sex" else str})
        wrong.loc[60, column] = value
        (wrong.to_csv if ending == ".csv" else wrong.to_parquet)(path, index=False)
        rows = ["--batch-rows", "50"] if ending == ".csv" or column == "sex" else []
        call = ["predict", model, "--data", path, "--out", tmp_path / "out.csv", *rows]
        result = CliRunner().invoke(app, list(map(str, call)))
        assert result.exit_code == 2
        line = " ".join(result.stderr.split())
        for part in (str(path), repr(column), value, "line 62;" if ending == ".csv" else "row 60;"):
            assert part in line, line
