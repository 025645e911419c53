from __future__ import annotations

import io

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from deeptram.cli.pool_report import PoolReport, show_report, verdict
from deeptram.pooling import Guarantees, PoolInfo, Statement
from deeptram.pooling.weights import TunedWeights


def shown(width=80, **changes):
    table = pd.DataFrame(
        [
            [name, metric, value, value - 0.1, value + 0.1]
            for name, value in (("net", 0.7), ("tree", 0.9), ("average", 0.8), ("linear", 0.6))
            for metric in ("nll", "rps", "citl")
        ],
        columns=["name", "metric", "estimate", "lower", "upper"],
    )
    statements = (
        Statement("Prop. 1", "", "nll", True, 0.6, 0.8, True, -0.1, ""),
        Statement("Prop. 2", "", "structure", False, 0.6, 0.0, False, 0.6, ""),
        Statement("none", "", "rps", False, 0.6, 0.8, True, -0.1, ""),
    )
    report = {
        "names": ["net", "tree"],
        "n_given": 2,
        "n_rows": 1234,
        "columns": "3 levels",
        "info": PoolInfo("linear", (0.5, 0.5)),
        "tuned": None,
        "n_tuning": 0,
        "score": "nll",
        "table": table,
        "level": 0.95,
        "verdict": ["The linear pool is better.", "No other pool is."],
        "guarantees": Guarantees("linear", statements),
        "notes": [],
        "folder": __import__("pathlib").Path("out"),
        "files": ["pooled.csv"],
        **changes,
    }
    stream = io.StringIO()
    show_report(PoolReport(**report), Console(file=stream, width=width))
    return stream.getvalue()


@pytest.mark.parametrize("width", [80, 140])
def test_scores_and_guarantees(width):
    text = shown(width)
    assert "2 members, 1,234 rows, 3 levels" in text
    assert "linear pool, equal weights" in text
    for name in ("net", "tree", "average member", "linear"):
        assert name in text
    assert "0.7000" in text
    assert "0.600 to 0.800" in text
    assert "NLL at most the average" in text
    assert "held in every row" in text
    assert "no such guarantee exists for RPS" in text
    assert "Prop. 2" not in text  # it does not apply
    assert max(map(len, text.splitlines())) <= width


def test_tuned_weights_with_certificate():
    tuned = TunedWeights(np.array([1.0, 0.0]), 0.5, 1e-12, 3, True)
    info = PoolInfo("transformation", (1.0, 0.0), "logistic")
    text = shown(tuned=tuned, n_tuning=200, info=info)
    assert "transformation pool on the logistic scale, tuned weights" in text
    assert "weights: net 1.000" in text
    assert "weight zero: tree" in text
    assert "NLL 0.5000 on 200 rows for tuning, within 1e-12 of the optimum" in text
    uncertain = TunedWeights(np.array([1.0, 0.0]), 0.5, np.nan, 3, True)
    assert "no certificate: not convex" in shown(tuned=uncertain, n_tuning=200, info=info)


def test_a_violation_is_not_hidden():
    wrong = Statement("Prop. 3", "", "nll", True, 0.9, 0.8, False, 0.3, "")
    assert "violated" in shown(guarantees=Guarantees("transformation", (wrong,)))


def test_without_truth_and_with_notes():
    text = shown(table=None, guarantees=None, notes=["mind the [gap]"])
    assert "Scores" not in text
    assert "note: mind the [gap]" in text


def test_without_bootstrap_and_with_infinite_scores():
    table = pd.DataFrame(
        {"name": ["net"], "metric": ["nll"], "estimate": [np.inf], "lower": [np.nan], "upper": [np.nan]}
    )
    assert "inf" in shown(table=table, names=["net"], info=PoolInfo("linear", (1.0,)))


@pytest.mark.parametrize(
    ("difference", "said"),
    [
        (np.inf, "The linear pool is better than the average member. NLL of the average member is infinite"),
        (-np.inf, "The average member is better than the linear pool. NLL of the linear pool is infinite"),
        (np.nan, "NLL of the linear pool is infinite"),
    ],
)
def test_an_infinite_score_is_no_draw(difference, said):
    found = pd.DataFrame(
        {
            "name": ["average", "linear"],
            "metric": "nll",
            "estimate": [0.9, 0.8],
            "difference": [difference, 0.0],
            "difference_lower": np.nan,
            "difference_upper": np.nan,
        }
    )
    (sentence,) = verdict(found, "linear", [], "nll")
    assert sentence.startswith(said)
    assert sentence.endswith("it gives some outcomes no probability.")
