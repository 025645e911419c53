"""Reading the columns of X."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from deeptram.errors import InvalidInputError
from deeptram.inputs import read_table
from deeptram.inputs.table import as_column


def test_blocks_of_columns(rng):
    X = rng.normal(size=(5, 3))
    frame = pd.DataFrame(X, columns=list("abc"))
    assert read_table(X).numeric_block(("x0", "x1", "x2")) is X
    np.testing.assert_array_equal(read_table(X).numeric_block(("x2",)), X[:, 2:])
    np.testing.assert_array_equal(read_table(frame).numeric_block(("c", "a")), X[:, [2, 0]])
    assert read_table(frame).numeric_block(("a", "z")) is None
    assert read_table(X).numeric_block(("x7",)) is None
    assert read_table(frame.astype({"a": str})).numeric_block(("a",)) is None
    assert read_table({"a": [1.0]}).numeric_block(("a",)) is None


def test_a_table_is_returned_as_it_is():
    table = read_table([[1.0]])
    assert read_table(table) is table


def test_renaming_leaves_the_frame_alone():
    frame = pd.DataFrame({"a": [1.0], "b": [2.0]})
    table = read_table(frame).renamed(("u", "v"))
    assert table.column("v").tolist() == [2.0]
    assert list(frame.columns) == ["a", "b"]


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([1, 2], "i"),
        ([True, False], "b"),
        (np.array([1, None], dtype=object), "f"),
        (np.array([None, None], dtype=object), "f"),
        (pd.array([1, None], dtype="Int64"), "f"),
        (pd.array([1, 2], dtype="Int64"), "i"),
    ],
)
def test_numbers(values, kind):
    assert as_column(values, "a").dtype.kind == kind


@pytest.mark.parametrize(
    "values", [["v", "u"], np.array(["v", "u"]), pd.array(["v", "u"], dtype="string"), np.array([b"v", b"u"])]
)
def test_text(values):
    column = as_column(values, "a")
    assert isinstance(column, pd.Categorical)
    assert column.codes.tolist() == [1, 0]


def test_nested_lists_in_a_dict_are_images():
    table = read_table({"a": [1, 2], "img": [[[1, 2], [3, 4]], [[1, 2], [3, 4]]]})
    assert table.names == ("a",)
    with pytest.raises(
        InvalidInputError, match=r"got 'img' of shape \(2, 2, 2\); use dt.CS or dt.CI for images"
    ):
        table.column("img")
