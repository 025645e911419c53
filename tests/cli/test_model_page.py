"""``deeptram report MODEL --data``: the page of a saved model, and what the command says to bad input."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import deeptram as dt


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A saved ordinal model, a saved survival model, and tables of rows for both."""
    folder = tmp_path_factory.mktemp("models")
    rng = np.random.default_rng(1)
    table = pd.DataFrame({"age": rng.uniform(20, 80, 150), "sex": rng.choice(["f", "m"], 150)})
    eta = 0.03 * table["age"] + rng.logistic(size=150)
    table["grade"] = pd.cut(eta, [-np.inf, 1, 2, np.inf], labels=["1", "2", "3"]).astype(int)
    dt.Polr([dt.LS("age + sex")]).fit(table[["age", "sex"]], table["grade"]).save(folder / "polr")
    table.to_csv(folder / "grades.csv", index=False)
    time = rng.exponential(np.exp(-0.02 * table["age"]))
    dead = time < 1
    times = table[["age", "sex"]].assign(time=np.minimum(time, 1), dead=dead.astype(int))
    dt.Coxph([dt.LS("age")]).fit(times, dt.Surv.right(times["time"], dead)).save(folder / "cox")
    times.to_csv(folder / "times.csv", index=False)
    return folder


def test_the_page_of_a_model(saved, run, tmp_path):
    page = tmp_path / "page.html"
    result = run("report", saved / "polr", "--data", saved / "grades.csv", "--out", page, "--n-boot", "20")
    assert result.exit_code == 0, result.output
    assert result.stdout.strip() == str(page)
    text = page.read_text(encoding="utf-8")
    assert "Polr on 150 rows" in text
    assert "file grades.csv" in text
    assert 'id="what-if-data"' in text


def test_survival_needs_the_event(saved, run, refused, tmp_path):
    page = tmp_path / "page.html"
    data = ("report", saved / "cox", "--data", saved / "times.csv", "--out", page, "--outcome", "time")
    result = run(*data, "--event", "dead", "--n-boot", "20", "--quiet")
    assert (result.exit_code, result.output) == (0, "")
    assert "Kaplan-Meier" in page.read_text(encoding="utf-8")


def test_a_page_is_not_replaced_by_accident(saved, run, refused, tmp_path):
    page = tmp_path / "page.html"
    page.write_text("mine")
    command = ("report", saved / "polr", "--data", saved / "grades.csv", "--out", page, "--n-boot", "0")
    assert "must not exist yet" in refused(*command)
    assert page.read_text() == "mine"
    assert run(*command, "--force").exit_code == 0
    assert page.read_text() != "mine"


def test_the_table_is_not_replaced_by_the_page(saved, refused, tmp_path):
    table = tmp_path / "t.csv"
    table.write_bytes((saved / "grades.csv").read_bytes())
    message = refused("report", saved / "polr", "--data", table, "--out", table, "--force")
    assert f"--out must not replace what is read, got {table}" in message
    assert table.read_bytes() == (saved / "grades.csv").read_bytes()


def test_rows_too_few_for_intervals_are_refused(saved, refused, tmp_path):
    table = pd.read_csv(saved / "grades.csv")[:4]
    table.to_csv(tmp_path / "t.csv", index=False)
    page = tmp_path / "page.html"
    message = refused("report", saved / "polr", "--data", tmp_path / "t.csv", "--out", page)
    assert "a report needs at least 5 rows with outcomes to make intervals of, got 4;" in message
    assert not page.exists()


def test_an_outcome_that_is_not_clear_has_to_be_named(saved, refused, tmp_path):
    message = refused("report", saved / "cox", "--data", saved / "times.csv", "--out", tmp_path / "page.html")
    assert "--outcome must name the column of the outcome where it is not clear" in message
    assert "3 columns that the model does not read (sex, time, dead)" in message


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--data", __file__, "--markdown"], "--markdown is for a run, got --data, which is for a model"),
        (["--data", __file__, "--n-jobs", "2"], "--n-jobs is for a run, got --data"),
        (["--outcome", "y"], "--outcome is for a model with --data, got no --data"),
        (["--out", "page.html"], "--out is for a model with --data, got no --data"),
    ],
)
def test_options_of_the_other_report(options, sentence, refused, saved):
    assert sentence in refused("report", saved / "polr", *options)


def test_a_model_without_data(saved, refused):
    message = refused("report", saved / "polr")
    assert "is a saved model, got no --data" in message


def test_a_folder_that_is_no_model(saved, refused, tmp_path):
    assert "a saved model is a folder with" in refused(
        "report", tmp_path, "--data", saved / "grades.csv", "--out", tmp_path / "page.html"
    )


def test_a_table_without_a_column(saved, refused, tmp_path):
    table = tmp_path / "t.csv"
    pd.DataFrame({"age": [30.0, 40.0], "grade": [1, 2]}).to_csv(table, index=False)
    message = refused(
        "report", saved / "polr", "--data", table, "--outcome", "grade", "--out", tmp_path / "p.html"
    )
    assert "sex" in message
