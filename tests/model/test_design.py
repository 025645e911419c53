"""Design matrices of the structured terms, and strata."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

import deeptram as dt
from deeptram.errors import InvalidInputError, UnknownNameError
from deeptram.model import Design
from deeptram.model.design import Spec, Strata

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
    strata, codes = Strata.fit("g", values)
    assert strata.levels == levels
    assert [levels[c] for c in codes] == list(values)
    np.testing.assert_array_equal(strata.encode(values), codes)
    assert strata.n_levels == len(levels)


def test_strata_of_another_type_of_column_are_the_same():
    strata, _ = Strata.fit("g", np.array(["a", "b"]))
    np.testing.assert_array_equal(
        strata.encode(pd.Categorical(["b", "a"], categories=["b", "a", "c"])), [1, 0]
    )
    numbers, _ = Strata.fit("g", np.array([1, 2]))
    np.testing.assert_array_equal(numbers.encode(np.array([2.0])), [1])


def test_strata_refuse_what_has_no_baseline():
    strata, _ = Strata.fit("g", np.arange(12))
    with pytest.raises(
        UnknownNameError,
        match=r"strata column 'g' must hold levels .*\.\.\. \(12 in all\)\), got 99 in row 1",
    ):
        strata.encode(np.array([3, 99]))
    with pytest.raises(
        InvalidInputError, match="Input strata column 'g' contains NaN: 1 missing value in row 1"
    ):
        strata.encode(np.array([3.0, np.nan]))
    with pytest.raises(
        InvalidInputError, match=r"strata column 'g' must hold categories, got real numbers such as 0\.5"
    ):
        Strata.fit("g", np.array([0.5, 1.0]))
