"""Design matrices of the structured terms, and strata."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

import deeptram as dt
from deeptram.errors import InvalidInputError, UnknownNameError
from deeptram.model import Design
from deeptram.model.terms import Spec

FRAME = pd.DataFrame(
    {"a": [1.0, 2.0, 3.0, 4.0], "f": list("pqpq"), "s": ["v", "u", "v", "w"], "k": [3, 1, 3, 1]}
)
TERMS = [dt.SI(strata="s"), dt.LS("a + f"), dt.Scale("a"), dt.Varying("f")]


def test_every_term_has_its_columns():
    design, matrices = Design.fit(Spec.of(TERMS), FRAME)
    assert design.names == ["a", "fq"]
    np.testing.assert_array_equal(matrices.x, [[1, 0], [2, 1], [3, 0], [4, 1]])
    np.testing.assert_array_equal(matrices.scale, FRAME[["a"]])
    np.testing.assert_array_equal(matrices.varying, [[0], [1], [0], [1]])
    np.testing.assert_array_equal(matrices.strata, [1, 0, 1, 2])
    assert design.n_strata == 3
    taken = matrices.take([3, 0])
    np.testing.assert_array_equal(taken.strata, [2, 1])
    np.testing.assert_array_equal(taken.x, [[4, 1], [1, 0]])


def test_new_data_are_encoded_like_the_old():
    design, matrices = Design.fit(Spec.of(TERMS), FRAME)
    again = design.matrices(FRAME.iloc[[2]])
    np.testing.assert_array_equal(again.x, matrices.x[[2]])
    np.testing.assert_array_equal(again.strata, [1])


def test_terms_that_are_not_there_have_no_columns():
    design, matrices = Design.fit(Spec.of([dt.SI()]), FRAME)
    assert matrices.x.shape == (4, 0)
    assert matrices.scale is matrices.varying is matrices.strata is None
    assert design.n_strata == 1
    assert design.names == []


def test_designs_survive_json():
    design, matrices = Design.fit(Spec.of(TERMS), FRAME)
    copy = Design.from_dict(json.loads(json.dumps(design.to_dict())))
    again = copy.matrices(FRAME)
    np.testing.assert_array_equal(again.x, matrices.x)
    np.testing.assert_array_equal(again.strata, matrices.strata)
    assert copy.strata == design.strata


@pytest.mark.parametrize(
    ("values", "levels"),
    [
        (np.array(["b", "a"]), ("a", "b")),
        (np.array([3, 1, 3]), (1, 3)),
        (np.array([True, False]), (False, True)),
        (np.array([2.0, 1.0]), (1.0, 2.0)),
        (pd.Categorical(["x", "y"], categories=["z", "y", "x"]), ("y", "x")),
        (np.array(["only"]), ("only",)),
    ],
)
def test_strata_are_the_levels_that_occur(values, levels):
    design, matrices = Design.fit(Spec.of([dt.SI("g")]), {"g": values})
    assert design.strata.levels == levels
    assert [levels[c] for c in matrices.strata] == list(values)
    np.testing.assert_array_equal(design.matrices({"g": values}).strata, matrices.strata)
    assert (design.n_strata, design.strata_column) == (len(levels), "g")


def strata_of(values):
    return Design.fit(Spec.of([dt.SI("g")]), {"g": values})[0]


def test_strata_of_another_type_of_column_are_the_same():
    design = strata_of(np.array(["a", "b"]))
    other = pd.Categorical(["b", "a"], categories=["b", "a", "c"])
    np.testing.assert_array_equal(design.matrices({"g": other}).strata, [1, 0])
    np.testing.assert_array_equal(strata_of(np.array([1, 2])).matrices({"g": np.array([2.0])}).strata, [1])


def test_strata_refuse_what_has_no_baseline():
    design = strata_of(np.arange(12))
    with pytest.raises(
        UnknownNameError,
        match=r"column 'g' must hold levels seen in fitting .*\.\.\. 12 in all\), got 99 in row 1",
    ):
        design.matrices({"g": np.array([3, 99])})
    with pytest.raises(InvalidInputError, match=r"contains NaN\. Column 'g' has 1 missing value in row 1"):
        design.matrices({"g": np.array([3.0, np.nan])})
    with pytest.raises(
        InvalidInputError, match=r"strata column 'g' must hold categories, got real numbers such as 0\.5"
    ):
        strata_of(np.array([0.5, 1.0]))
    with pytest.raises(InvalidInputError, match="a factor must have several rows per level"):
        strata_of(np.arange(30))
