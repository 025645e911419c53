"""``deeptram reproduce``: a study from the command line, and what it says to bad input."""

from __future__ import annotations

import json
import re

import pandas as pd
import pytest

from deeptram.paper.aggregate import METRIC_COLUMNS
from deeptram.paper.protocols import DATASETS
from digits_report import LOG
from digits_report import digits_report as make_report


@pytest.fixture(scope="module")
def digits_run(tmp_path_factory):
    return make_report(tmp_path_factory)


def test_quick_digits_leaves_a_whole_run(digits_run):
    config = json.loads((digits_run / "config.json").read_text())
    study = config["study"]
    assert (study["preset"], study["splits"], study["n_members"]) == ("quick", [1], 2)
    assert study["changed"] == {"epochs": 2}
    markers = list(digits_run.glob("members/nll/*/split-1/member-*/deeptram.json"))
    assert len(markers) == 2 + 4 * 2  # exact models once, ensembles of two


def test_metrics_table_has_the_columns_and_names_of_the_contract(digits_run):
    table = pd.read_csv(digits_run / "metrics.csv")
    assert table.columns[: len(METRIC_COLUMNS)].tolist() == METRIC_COLUMNS
    assert set(table["model"]) == {"SI", "SI-LS", "SI-CS", "SI-CS-LS", "CI", "CI-LS"}
    assert set(table["method"]) == {"single", "member", "average", "linear", "log-linear", "transformation"}
    assert set(table["weights"]) == {"equal", "tuned"}
    metrics = {"nll", "rps", "brier", "accuracy", "auc", "qwk", "citl", "calibration_slope"}
    assert set(table["metric"]) == metrics
    overall = table[table["split"].isna() & (table["metric"] == "nll")]
    assert (overall["lower"] <= overall["estimate"]).all()
    assert (overall["estimate"] <= overall["upper"]).all()


def test_the_summary_names_the_run_and_the_next_step(digits_run):
    said = (digits_run.parent / LOG).read_text(encoding="utf-8")
    assert "digits: 10 of 10 members" in said
    assert f"deeptram report {digits_run}" in said
    assert "transformation" in said


def test_started_again_it_repeats_nothing(digits_run, run):
    before = {path: path.stat().st_mtime_ns for path in digits_run.glob("members/**/deeptram.json")}
    options = ["--epochs", "2", "--splits", "1", "--members", "2", "--n-boot", "40"]
    result = run("reproduce", "digits", "--preset", "quick", "--out", digits_run, *options)
    assert result.exit_code == 0, result.output
    assert {path: path.stat().st_mtime_ns for path in before} == before


def test_quiet_says_nothing(tmp_path, run):
    out = tmp_path / "run"
    options = ["--models", "SI", "--splits", "1", "--n-boot", "0", "--quiet"]
    result = run("reproduce", "digits", "--preset", "quick", "--out", out, *options)
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "")
    assert (out / "metrics.csv").is_file()


def test_progress_counts_members(tmp_path, run):
    options = ["--models", "SI", "SI-LS", "--splits", "2", "--n-boot", "0"]
    result = run("reproduce", "digits", "--preset", "quick", "--out", tmp_path / "run", *options)
    assert "[1/2] digits SI (nll) split 2" in result.stderr
    assert "[2/2] digits SI-LS (nll) split 2" in result.stderr


BAD = {
    "unknown data set": (["cifar"], "data set must be one of .*digits.*got 'cifar'"),
    "unknown preset": (["digits", "--preset", "slow"], "preset must be one of .*quick.*got 'slow'"),
    "unknown model": (["digits", "--models", "SI-XX"], "models must be one of .*SI-LS.*got 'SI-XX'"),
    "model of another study": (["mnist", "--models", "SI-LS"], "models must be .*CI.*got 'SI-LS'"),
    "unknown loss": (["digits", "--losses", "mse"], "losses must be one of .*got 'mse'"),
    "split out of range": (["digits", "--splits", "7"], "splits must be numbers from 1 to 6, got 7"),
    "no members": (["digits", "--members", "0"], "members must be .*got 0"),
    "no epochs": (["digits", "--epochs", "0"], "epochs must be .*got 0"),
    "no processes": (["digits", "--n-jobs", "0"], "n_jobs must be .*got 0"),
    "pixels of one size": (["digits", "--pixels", "64"], "images of digits have one size"),
    "negative bootstrap": (["digits", "--n-boot", "-1"], "--n-boot must be .*got -1"),
    "not a number": (["digits", "--splits", "one"], "--splits.*integer.*see 'deeptram reproduce --help'"),
}


@pytest.mark.parametrize(("arguments", "sentence"), BAD.values(), ids=BAD.keys())
def test_bad_input_is_one_sentence(arguments, sentence, refused, tmp_path):
    message = refused("reproduce", *arguments, "--out", tmp_path / "run")
    assert re.search(sentence, message), message
    assert not (tmp_path / "run" / "config.json").exists()


def test_without_out_it_says_so(refused):
    assert "--out" in refused("reproduce", "digits")


def test_a_folder_with_other_files_is_left_alone(refused, tmp_path):
    (tmp_path / "thesis.txt").write_text("dear to me")
    message = refused("reproduce", "digits", "--preset", "quick", "--out", tmp_path)
    assert "must be empty or hold an earlier run" in message
    assert [path.name for path in tmp_path.iterdir() if path.name not in (".lock", ".fence")] == [
        "thesis.txt"
    ]


def test_another_study_does_not_continue_a_run(refused, digits_run):
    message = refused("reproduce", "digits", "--preset", "quick", "--epochs", "3", "--out", digits_run)
    assert "epochs 2, now 3" in message


def test_a_damaged_configuration_is_named(refused, tmp_path):
    (tmp_path / "config.json").write_text('{"study": ')
    message = refused("reproduce", "digits", "--preset", "quick", "--out", tmp_path)
    assert "config.json must be readable" in message


@pytest.mark.parametrize("dataset", [name for name in DATASETS if name != "digits"])
def test_missing_data_are_named(dataset, refused, tmp_path):
    message = refused("reproduce", dataset, "--data", tmp_path, "--out", tmp_path / "run")
    assert dataset in message.lower()
    assert str(tmp_path) in message


@pytest.mark.parametrize("option", ["--epochs", "--batch-size", "--members"])
def test_options_for_networks_need_networks(option, refused, tmp_path):
    message = refused("reproduce", "digits", "--models", "SI", "SI-LS", option, "3", "--out", tmp_path / "r")
    assert f"{option} is for networks, got models without (SI, SI-LS)" in message
