"""Results in words."""

from __future__ import annotations

import math
import re

import pytest

from deeptram.paper.results import best_sentence, coefficient_readings, gain_sentences, guarantee_summary
from deeptram.plots.wording import coefficient_words


def test_odds_ratios_in_words():
    numbers = (math.log(value) for value in (1.9, 1.7, 2.1))
    sentence = coefficient_words("One standard deviation of age", *numbers, event="melanoma")
    assert sentence == "One standard deviation of age multiplies the odds of melanoma by 1.90 (1.70 to 2.10)."


def test_an_interval_with_no_effect_says_so():
    sentence = coefficient_words("One unit of x", 0.05, -0.1, 0.2, given=", given the image")
    assert sentence.endswith("by 1.05 (0.90 to 1.22), given the image; the interval includes no effect.")


def test_without_an_interval_there_are_no_brackets():
    assert "(" not in coefficient_words("One unit of x", 0.5, math.nan, math.nan)


def test_readings_are_of_every_model_with_a_linear_shift(view):
    readings = coefficient_readings(view, "nll")
    assert [r["model"] for r in readings[::10]] == ["SI-LS", "SI-CS-LS", "CI-LS"]
    assert len(readings) == 30
    for r in readings:
        assert r["lower"] < r["estimate"] < r["upper"]
        assert f"by {math.exp(r['estimate']):.2f} (" in r["sentence"]
        assert (", given the image" in r["sentence"]) == (r["model"] != "SI-LS")
    assert readings[4]["truth"] == pytest.approx(math.log(1.5))


def test_gains_are_the_numbers_of_the_table(view):
    table = view.tables.metrics
    nll = table[(table["metric"] == "nll") & table["split"].isna() & (table["weights"] == "equal")]
    nll = nll.set_index(["model", "method"])["estimate"]
    sentences = gain_sentences(view, "nll")
    assert len(sentences) == 4
    for sentence, model in zip(sentences, ("SI-CS", "SI-CS-LS", "CI", "CI-LS"), strict=True):
        assert f"{model}: the transformation ensemble has NLL {nll[model, 'transformation']:.4f}" in sentence
        gain = nll[model, "average"] - nll[model, "transformation"]
        assert f", better by {gain:.4f} (" in sentence  # Prop. 3: never worse
        assert f"than its members on average ({nll[model, 'average']:.4f};" in sentence


def test_the_best_model_is_the_one_with_the_smallest_score(view):
    table = view.tables.metrics
    nll = table[(table["metric"] == "nll") & table["split"].isna()]
    smallest = nll[nll["method"].isin(["single", "transformation"])]["estimate"].min()
    assert re.search(rf"smallest NLL: {smallest:.4f} \(", best_sentence(view, "nll"))


def test_guarantees_are_counted(view):
    summary = guarantee_summary(view)
    assert (summary["held"] == summary["checks"]).all()
    assert {"Prop. 1", "Prop. 2", "Prop. 3", "Prop. 5", "Cor. 2"} == set(summary["statement"])
    assert (summary["checks"] == 4 * 2).all()  # ensembles x kinds of weights
