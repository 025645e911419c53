from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from deeptram.errors import InvalidTypeError, UnknownNameError
from deeptram.paper import make_study
from deeptram.paper.protocols import (
    comparable,
    is_same_protocol,
    published_coefficients,
    published_metrics,
    published_weights,
)


def mean(**conditions):
    table = published_metrics()
    for name, value in conditions.items():
        table = table[table[name] == value]
    assert len(table) == 6
    return table["estimate"].mean()


# Means over six splits, printed in the paper's supplement.
@pytest.mark.parametrize(
    ("dataset", "model", "weights", "method", "expected"),
    [
        ("mnist", "CI", "equal", "average", 0.2870),
        ("mnist", "CI", "equal", "transformation", 0.2629),
        ("mnist", "CI", "tuned", "linear", 0.2476),
        ("melanoma", "CI-LS", "tuned", "log-linear", 0.0742),
        ("melanoma", "SI", "equal", "single", 0.0865),
        ("utkface", "CI-LS", "equal", "log-linear", 0.8659),
        ("utkface", "SI-LS", "equal", "single", 1.5563),
    ],
)
def test_published_means(dataset, model, weights, method, expected):
    conditions = {"dataset": dataset, "model": model, "weights": weights, "method": method}
    assert mean(loss="nll", metric="nll", **conditions) == pytest.approx(expected, abs=6e-5)


def test_published_coefficients():
    table = published_coefficients()
    age = table[(table["dataset"] == "melanoma") & (table["loss"] == "nll") & (table["weights"] == "equal")]
    assert age.groupby("model")["estimate"].mean().round(3).to_dict() == {"SI-LS": 0.678, "CI-LS": 0.636}


def test_published_weights():
    table = published_weights()
    cells = table.groupby(["dataset", "model", "loss", "method", "split"])["weight"]
    assert len(cells) == 252
    np.testing.assert_allclose(cells.sum(), 1, atol=1e-7)  # eight digits are kept
    first = table[(table["dataset"] == "mnist") & (table["loss"] == "nll") & (table["method"] == "linear")]
    first = first[first["split"] == 1].sort_values("member")["weight"].round(4)
    assert first.tolist() == [0.0, 0.0275, 0.5794, 0.3931, 0.0]
    assert set(table["model"]) <= set(published_metrics()["model"])


@pytest.mark.parametrize(
    ("dataset", "options", "model", "same"),
    [
        ("mnist", {"preset": "paper"}, "CI", True),
        ("mnist", {"preset": "modern"}, "CI", False),
        ("utkface", {"preset": "paper", "pixels": 64}, "CI", False),
        ("mnist", {"preset": "paper", "n_members": 2}, "CI", False),
        ("utkface", {"preset": "quick"}, "SI-LS", True),
        ("digits", {"preset": "paper"}, "SI-LS", False),
    ],
)
def test_only_the_same_protocol_is_compared(dataset, options, model, same):
    assert is_same_protocol(make_study(dataset, **options), model) is same


@pytest.mark.parametrize(("dataset", "model"), [("utkface", "nonsense"), ("mnist", "SI"), ("melanoma", None)])
def test_models_that_a_data_set_has_not_are_refused(dataset, model):
    with pytest.raises(UnknownNameError, match=f"models of {dataset} must be one of .*'CI'.*, got {model!r}"):
        is_same_protocol(make_study(dataset, "paper"), model)


def test_only_studies_have_a_protocol():
    with pytest.raises(InvalidTypeError, match=r"study must be a Study, got 'x'; make one with make_study"):
        is_same_protocol("x", "SI")
    own = dataclasses.replace(make_study("digits").protocol, dataset="own")
    assert not is_same_protocol(dataclasses.replace(make_study("digits"), protocol=own), "SI")


def test_authors_splits_are_compared_one_by_one():
    study = make_study("mnist")
    table = published_metrics()
    table = table[(table["metric"] == "nll") & (table["loss"] == "nll") & (table["method"] == "average")]
    first = comparable(table, study, [1]).query("weights == 'equal'")["estimate"].item()
    own = table.query("dataset == 'mnist' and split == 1 and weights == 'equal'")["estimate"].item()
    assert first == own
    utk = comparable(table, make_study("utkface"), [1]).query("model == 'CI' and weights == 'equal'")
    assert utk["estimate"].item() == pytest.approx(1.0276, abs=6e-5)
    assert utk["smallest"].item() < utk["estimate"].item() < utk["largest"].item()


def test_recalibrated_cells_are_apart_and_are_those_of_melanoma():
    raw, after = published_metrics(), published_metrics(recalibrated=True)
    assert list(raw.columns) == list(after.columns)
    assert "recalibrated" not in raw
    assert set(after["dataset"]) == {"melanoma"}
    slopes = after.query("metric == 'calibration_slope' and method == 'transformation' and loss == 'nll'")
    means = slopes.groupby(["model", "weights"])["estimate"].mean().round(3).to_dict()
    assert means == {
        ("CI", "equal"): 1.339,
        ("CI", "tuned"): 1.061,
        ("CI-LS", "equal"): 1.089,
        ("CI-LS", "tuned"): 0.994,
    }


def test_infinite_published_average_is_kept():
    table = published_metrics().query("dataset == 'utkface' and loss == 'rps' and metric == 'nll'")
    assert np.isinf(table["estimate"]).sum() == 2


def test_smaller_images_are_another_protocol_however_they_came_about():
    study = dataclasses.replace(make_study("utkface", "paper"), pixels=64)
    assert not is_same_protocol(study, "CI")
    assert is_same_protocol(study, "SI-LS")
