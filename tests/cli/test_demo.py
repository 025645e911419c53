"""``deeptram demo``: a short run leaves every table and figure it promises."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

import deeptram as dt
from deeptram.cli import demo
from deeptram.cli.main import app


def test_a_short_demo(tmp_path):
    arguments = ["demo", "--out", str(tmp_path / "d"), "--members", "2", "--epochs", "2", "--n-boot", "20"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert "guarantees of the paper that apply held" in result.stdout
    folder = tmp_path / "d"
    expected = {
        "README.txt", "ensemble", "scores.csv", "coefficients.csv", "calibration.csv", "uncertainty.csv",
        "guarantees.csv", "scores.png", "calibration.png", "coefficients.png", "history.png", "epistemic.png",
        "structure.png", "gains.png",
    }  # fmt: skip
    assert {path.name for path in folder.iterdir()} == expected
    scores = pd.read_csv(folder / "scores.csv")
    names = set(scores["name"])
    assert {"SI", "SI-LS", "CI: members", "CI-LS: transformation", "SI-CS-LS: log-linear"} <= names
    nll = scores[scores["metric"] == "nll"].set_index("name")["estimate"]
    for model in ("SI-CS-LS", "CI", "CI-LS"):
        for pool in ("linear", "log-linear", "transformation"):
            assert nll[f"{model}: {pool}"] <= nll[f"{model}: members"] + 1e-12
    guarantees = pd.read_csv(folder / "guarantees.csv")
    assert guarantees.loc[guarantees["applies"], "held"].all()
    coefficients = pd.read_csv(folder / "coefficients.csv")
    assert set(coefficients["model"]) == {"SI-LS", "SI-CS-LS", "CI-LS"}
    exact = coefficients[coefficients["model"] == "SI-LS"]
    assert (np.abs(exact["coef"] - exact["truth"]) < 3 * exact["se"]).all()
    ensemble = dt.load(folder / "ensemble")
    test = demo.split_digits(1).test
    assert ensemble.score(test.X, test.y) == pytest.approx(-nll["CI-LS: transformation"], rel=1e-12)


def test_a_quiet_demo_prints_nothing(tmp_path, monkeypatch):
    class Saved:
        def save(self, path, overwrite):
            path.mkdir()

    monkeypatch.setattr(demo, "fit_models", lambda *_: {"CI-LS": Saved()})
    monkeypatch.setattr(demo, "demo_tables", lambda *_: {})
    monkeypatch.setattr(demo, "draw", lambda *_: None)
    result = CliRunner().invoke(app, ["demo", "--out", str(tmp_path / "d"), "--quiet"])
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "")


def test_log_odds_ratios_beside_an_image_are_near_the_truth():
    data = dt.datasets.load_digits()
    truth = pd.Series(data.info["beta"])
    training = dt.Training(epochs=60, batch_size=64, learning_rate=0.01, progress=False)
    model = dt.Polr([dt.CI(demo.NET, "image"), dt.LS(*demo.COVARIATES)], training=training)
    ensemble = dt.Ensemble(model, 3, random_state=3).fit(dict(data.X), data.y, validation=0.15)
    table = ensemble.coef_table(method="total")
    assert (np.abs(ensemble.coef_ - truth) < 0.1).all()
    assert (table["lower"] <= truth).all()
    assert (table["upper"] >= truth).all()
