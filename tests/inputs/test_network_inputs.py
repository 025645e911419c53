"""What networks see, and how it is kept for new data."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
import torch

from deeptram.errors import InvalidInputError
from deeptram.inputs.images import ImageSource
from deeptram.inputs.network_inputs import NetworkInputs


@pytest.fixture
def data(rng):
    return {
        "mri": rng.random((12, 6, 5)),
        "age": rng.normal(60, 10, 12),
        "sex": np.array(["f", "m", "x"] * 4),
        "embedding": rng.normal(size=(12, 4)),
        "photo": rng.integers(0, 256, size=(12, 3, 8, 8), dtype=np.uint8),
    }


@pytest.mark.parametrize(
    ("columns", "shape"),
    [
        (("age",), (1,)),
        (("age", "sex"), (3,)),
        (("embedding",), (4,)),
        (("embedding", "age"), (5,)),
        (("mri",), (1, 6, 5)),
        (("photo", "mri"), ((3, 8, 8), (1, 6, 5))),
        (("age", "mri", "sex"), ((3,), (1, 6, 5))),
        (("mri", "sex", "photo", "age"), ((1, 6, 5), (3,), (3, 8, 8))),
        ((), ((1, 6, 5), (7,), (3, 8, 8))),
    ],
)
def test_shapes_follow_the_order_of_the_columns(columns, shape, data):
    inputs = NetworkInputs.fit(data, columns)
    assert inputs.in_shape == shape
    sources = inputs.sources(data)
    shapes = shape if isinstance(shape[0], tuple) else (shape,)
    assert tuple(source.shape for source in sources) == shapes == tuple(part.shape for part in inputs.parts)


def test_columns_are_standardised_by_the_training_rows(data):
    inputs = NetworkInputs.fit(data, ("age", "embedding", "sex"))
    (source,) = inputs.sources(data, torch.float64)
    values = source.span(0, 12).numpy()
    np.testing.assert_allclose(values.mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(values.std(axis=0), 1, atol=1e-12)
    new = {"age": np.array([70.0]), "sex": np.array(["m"]), "embedding": np.zeros((1, 4))}
    (source,) = inputs.sources(new, torch.float64)
    expected = (70.0 - data["age"].mean()) / data["age"].std()
    assert source.span(0, 1)[0, 0].item() == pytest.approx(expected)


def test_constant_columns_do_not_divide_by_zero():
    inputs = NetworkInputs.fit({"a": [5.0, 5.0], "b": [1.0, 2.0]}, ())
    (source,) = inputs.sources({"a": [5.0, 6.0], "b": [1.0, 2.0]})
    assert source.span(0, 2).tolist() == [[0.0, -1.0], [1.0, 1.0]]


@pytest.mark.parametrize("make", [pd.DataFrame, np.asarray])
def test_tables_of_any_kind(make, rng):
    values = rng.normal(size=(6, 3))
    X = make(values)
    inputs = NetworkInputs.fit(X, ("x0", "x2"))
    assert inputs.in_shape == (2,)
    (source,) = inputs.sources(X, torch.float64)
    scaled = (values - values.mean(axis=0)) / values.std(axis=0)
    np.testing.assert_allclose(source.span(0, 6).numpy(), scaled[:, [0, 2]])


def test_wrapped_images(data):
    wrapped = {**data, "mri": ImageSource(data["mri"])}
    assert NetworkInputs.fit(wrapped, ("mri", "age")).in_shape == ((1, 6, 5), (1,))


def test_json_round_trip(data):
    inputs = NetworkInputs.fit(data, ())
    rebuilt = NetworkInputs.from_dict(json.loads(json.dumps(inputs.to_dict())))
    assert rebuilt.in_shape == inputs.in_shape
    rows = torch.tensor([3, 1])
    for a, b in zip(inputs.sources(data), rebuilt.sources(data), strict=True):
        assert torch.equal(a.gather(rows), b.gather(rows))


def test_missing_columns_are_named(data):
    with pytest.raises(
        InvalidInputError, match=r"column 'mro' is needed but missing from X, .*; did you mean 'mri'"
    ):
        NetworkInputs.fit(data, ("mro",))
    inputs = NetworkInputs.fit(data, ("mri", "embedding", "age"))
    for name in ("mri", "embedding", "age"):
        rest = {key: value for key, value in data.items() if key != name}
        with pytest.raises(InvalidInputError, match=f"column '{name}' is needed but missing from X"):
            inputs.sources(rest)
    with pytest.raises(InvalidInputError, match="column 'mri' is needed but missing from X"):
        inputs.sources(pd.DataFrame({"age": data["age"]}))


def test_another_width_is_refused(data):
    inputs = NetworkInputs.fit(data, ("embedding",))
    with pytest.raises(
        InvalidInputError, match=r"'embedding' must have 4 columns as in fit, got shape \(12, 3\)"
    ):
        inputs.sources({"embedding": data["embedding"][:, :3]})


def test_missing_numbers_are_named(data):
    values = data["embedding"].copy()
    values[4, 2] = np.nan
    with pytest.raises(InvalidInputError, match=r"embedding\[2\].*row 4"):
        NetworkInputs.fit({"embedding": values}, ())


@pytest.mark.parametrize(("formula", "written"), [("age + sex", "'age', 'sex'"), ("age*sex", "'age', 'sex'")])
def test_a_formula_is_no_column_of_a_network(data, formula, written):
    said = rf"takes the names of columns, got the formula .*; write \(net, {written}\)"
    with pytest.raises(InvalidInputError, match=said):
        NetworkInputs.fit(data, (formula,))
    with pytest.raises(InvalidInputError, match="column 'a-b' is needed but missing"):
        NetworkInputs.fit(data, ("a-b",))
