"""What formulas may call, and what they may not."""

from __future__ import annotations

import numpy as np
import pytest

from deeptram.errors import InvalidInputError
from deeptram.inputs.expressions import exp10, factor_column, variables

COLUMNS = frozenset(["a", "b", "my col", "Sum"])


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("bs(a, df=4)", ["a"]),
        ("np.log(a + b * 2) - a", ["a", "b"]),
        ("bs(`my col`, knots=[1, 2.5]) + a", ["my col", "a"]),
        ("Q('my col')", ["my col"]),
        ("C(a, contr.treatment(base='x'))", ["a"]),
        ("C(a, Treatment('x'))", ["a"]),
        ("C(a, Helmert)", ["a"]),
        ("C(a, {'first': [1, 0, -1]})", ["a"]),
        ("scale(Sum)", ["Sum"]),
        ("np.where(a > 0, b, -1)", ["a", "b"]),
        ("np.maximum(a, b)", ["a", "b"]),
        ("I(a ** 2) + log", ["a", "log"]),
        ("a * (2 + 3)", ["a"]),
    ],
)
def test_columns_used(expression, expected):
    assert variables(expression, COLUMNS) == expected


@pytest.mark.parametrize(
    "expression",
    [
        "__import__('os')",
        "eval('1')",
        "open(a)",
        "a.to_csv('x')",
        "np.load('x')",
        "np.__config__",
        "np.lib.format",
        "np.log(a, b)",  # the second argument of a NumPy function is written to
        "np.log(a, out=a)",
        "np.where(a, b, a, b)",
        "contr.custom(a)",
        "contr.__class__",
        "[x for x in a]",
        "(lambda: 1)()",
        "a if b else a",
        "a[0]",
        "f'{a}'",
        "bs(a, **b)",
        "bs(*a)",
        "a + 9 ** 9 ** 9",
        "a + 'x' * 10000000",
        "a + (1 << 99999)",
        "(bs)(a)(b)",
        "bs(a).x",
        """bs(a, knots='"')""",
        """bs(a, knots="'")""",
        r"bs(a, knots='\\')",
        "C(a, b'x')",
        "a := 1",
    ],
)
def test_everything_else_is_refused(expression):
    with pytest.raises(
        InvalidInputError, match=r"formulas may call only .*; compute|must be an expression in column"
    ):
        variables(expression, COLUMNS)


def test_syntax_errors():
    with pytest.raises(
        InvalidInputError, match=r"piece 'a \+' of the formula must be an expression in column names, got"
    ):
        variables("a +", COLUMNS)


@pytest.mark.parametrize(
    ("expression", "column"),
    [("C(a)", "a"), ("C(`my col`, Sum)", "my col"), ("C(a + b)", None), ("bs(a)", None), ("a", None)],
)
def test_column_of_a_factor(expression, column):
    assert factor_column(expression) == column


def test_powers_of_ten():
    np.testing.assert_allclose(exp10([0, 1, 2]), [1, 10, 100])
