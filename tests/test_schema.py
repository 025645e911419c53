"""Declared forms: what fits passes, what does not is named with its path, and nothing else is raised."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deeptram import _schema as schema
from deeptram._schema import plain, unplain
from deeptram.errors import FileFormatError, InvalidInputError

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
    max_leaves=10,
)
POINT = schema.fields(
    {"x": schema.number(0, 9), "name": schema.text, "on": schema.flag},
    {"n": schema.optional(schema.integer(1, 9)), "kind": schema.choice(["a", "b"])},
)
SHAPE = schema.tagged("kind", {"line": {"at": schema.listed(POINT, 1, 2)}, "dot": {}})
PAIR = schema.fixed(schema.text, schema.scalar)
NAMES = schema.listed(schema.text, distinct=True)
GOOD = {"x": 1, "name": "p", "on": True}


@pytest.mark.parametrize(
    ("check", "good"),
    [
        (POINT, GOOD),
        (POINT, {**GOOD, "n": None, "kind": "b"}),
        (SHAPE, {"kind": "line", "at": [GOOD, GOOD]}),
        (SHAPE, {"kind": "dot"}),
        (PAIR, ["a", None]),
        (PAIR, ["a", -1.5]),
        (NAMES, ["ü", "b"]),
        (schema.mapping(schema.flag), {"any": False}),
    ],
)
def test_what_fits_passes(check, good):
    check(good, "f.json: top")


@pytest.mark.parametrize(
    ("check", "bad", "match"),
    [
        (POINT, [], r"^f\.json: top must be an object with x, name, on, n, kind, got \[\]; save it again$"),
        (POINT, {**GOOD, "x": True}, r"top\.x must be a number from 0 to 9, got True"),
        (POINT, {**GOOD, "x": float("nan")}, r"top\.x must be a number from 0 to 9, got nan"),
        (POINT, {**GOOD, "x": 10**400}, r"top\.x must be a number from 0 to 9, got 1000"),
        (POINT, {**GOOD, "n": 1.0}, r"top\.n must be an integer from 1 to 9, got 1.0"),
        (POINT, {**GOOD, "name": "\ud800"}, r"top\.name must be a text, got '\\ud800'"),
        (POINT, {**GOOD, "on": 1}, r"top\.on must be true or false, got 1"),
        (POINT, {**GOOD, "kind": ["a"]}, r"top\.kind must be one of a, b, got \['a'\]"),
        (POINT, {"x": 1}, r"top\.name must be there, got None"),
        (POINT, {**GOOD, "y": 1}, r"top\.y must be absent, got 1"),
        (SHAPE, 3, r"top must be an object with kind, got 3"),
        (SHAPE, {"kind": "arc"}, r"top\.kind must be one of line, dot, got 'arc'"),
        (SHAPE, {"kind": "dot", "at": []}, r"top\.at must be absent, got \[\]"),
        (SHAPE, {"kind": "line", "at": [GOOD, {**GOOD, "x": -1}]}, r"top\.at\[1\]\.x must be a number"),
        (SHAPE, {"kind": "line", "at": []}, r"top\.at must be a list of 1 to 2 entries, got \[\]"),
        (PAIR, ["a"], r"top must be a list of 2 entries, got \['a'\]"),
        (PAIR, ["a", []], r"top\[1\] must be a number from -1e\+100 to 1e\+100, got \[\]"),
        (NAMES, ["a", "a"], r"top must be a list without repetition, got \['a', 'a'\]"),
        (schema.mapping(schema.flag), [], r"top must be an object, got \[\]"),
        (schema.mapping(schema.flag), {"\udfff": True}, r"top: a name must be a text"),
    ],
)
def test_what_does_not_fit_is_named(check, bad, match):
    with pytest.raises(FileFormatError, match=match):
        check(bad, "f.json: top")


def test_parts_that_must_agree():
    schema.agree("f.json: n", "the number of names", 2, 2)
    with pytest.raises(FileFormatError, match=r"n must be the number of names \(2\), got 3; save it again"):
        schema.agree("f.json: n", "the number of names", 2, 3)
    whole = schema.fields(
        {"n": schema.integer()}, then=lambda v, at: schema.agree(f"{at}.n", "two", 2, v["n"])
    )
    whole({"n": 2}, "f")
    with pytest.raises(FileFormatError, match=r"f\.n must be two"):
        whole({"n": 3}, "f")


@pytest.mark.parametrize("check", [POINT, SHAPE, PAIR, NAMES, schema.mapping(schema.scalar)])
@given(value=json_values)
def test_nothing_else_is_raised(check, value):
    try:
        check(value, "f.json: top")
        message = "f.json: top fits"
    except FileFormatError as error:
        message = str(error)
    assert message.startswith("f.json: top")
    assert len(message) < 600


# -- values --------------------------------------------------------------------------------------------

scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner) | st.lists(inner).map(tuple) | st.dictionaries(st.text(), inner),
    max_leaves=12,
)


@given(values)
def test_plain_values_come_back(value):
    written = json.dumps(plain(value), allow_nan=False)
    assert unplain(json.loads(written)) == value


def test_what_cannot_be_saved_is_refused():
    assert np.isnan(unplain(plain(np.nan)))
    assert plain(np.array([1, 2])) == {"array": [1, 2]}
    with pytest.raises(InvalidInputError, match=r"only numbers, strings, booleans and lists .* got function"):
        plain(plain)


def test_round_trip_keeps_every_bit():
    state = {
        "alpha": {0: np.float64(0.1) + 0.2, 1: -1e-300},
        "knots": np.array([[0.1, 0.2], [0.3, np.inf]]),
        "list": [1, (2.5, None), "x", True],
        "bounds": [-np.inf, np.nan],
        "empty": {},
        "marked": {"items": {"dict": 1}},
    }
    back = unplain(json.loads(json.dumps(plain(state), allow_nan=False)))
    np.testing.assert_array_equal(back.pop("knots"), state.pop("knots"))
    assert np.isnan(back["bounds"].pop())
    assert state["bounds"].pop()
    assert back == state
