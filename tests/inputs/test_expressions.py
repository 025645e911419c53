"""What the pieces of a formula may hold, how they are spelled, and their limits."""

from __future__ import annotations

import numpy as np
import pytest

from deeptram.errors import InvalidInputError
from deeptram.inputs.expressions import Scope, read_expression
from deeptram.inputs.transforms import CONTRASTS, FUNCTIONS, KNOWN, NUMPY, TRANSFORMS, exp10


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("bs(a, df=4)", ["a"]),
        ("np.log(a + b * 2) - a", ["a", "b"]),
        ("bs(`my col`, knots=[1, 2.5])", ["my col"]),
        ("Q('my col')", ["my col"]),
        ("Q('a`b')", ["a`b"]),
        ("C(a, contr.treatment(base='x'))", ["a"]),
        ("C(a, Treatment('x'))", ["a"]),
        ("C(a, Helmert)", ["a"]),
        ("C(a, {'first': [1, 0, -1]})", ["a"]),
        ("C(a, contrasts=None, levels=['`', 'b'])", ["a"]),
        ("scale(Sum)", ["Sum"]),
        ("np.where(a > 0, b, -1)", ["a", "b"]),
        ("np.maximum(a, b)", ["a", "b"]),
        ("I(a ** 2) + log", ["a", "log"]),
        ("a * (2 + 3)", ["a"]),
        ("`it's` + `b` + `größe`", ["it's", "b", "größe"]),
        ("a == 'warm'", ["a"]),
        ("(a > 1) & ~(b < 2) | (a != b) ^ (a >= b)", ["a", "b"]),
    ],
)
def test_columns_used(expression, expected):
    read = read_expression(expression)
    assert list(read.columns) == expected
    again = read_expression(read.text)
    assert (again.text, again.columns, again.width) == (read.text, read.columns, read.width)


def test_spelling_is_uniform():
    assert read_expression(" bs( `age`,df = 4 ) ").text == "bs(age, df=4)"
    assert read_expression("log(`my col`)").text == "log(`my col`)"
    assert read_expression('C(a, levels=["`b`"])').text == "C(a, levels=['`b`'])"
    assert read_expression("quoted0x + `my col`").columns == ("quoted0x", "my col")


@pytest.mark.parametrize("name", sorted(NUMPY))
def test_numpy_functions_are_read_only_and_take_their_arguments(name):
    arguments = ["a > 0", "a", "a"][: NUMPY[name]] if name == "where" else ["a"] * NUMPY[name]
    call = f"np.{name}({', '.join(arguments)})"
    a = np.array([0.5, 0.25])
    with np.errstate(all="ignore"):
        value = read_expression(call).compute(Scope({"a": a}, {}, is_fitting=True))
        np.testing.assert_array_equal(value, eval(call, {"np": np, "a": a}))
    with pytest.raises(InvalidInputError, match=rf"got {NUMPY[name] + 1} arguments of np.{name} in"):
        read_expression(f"np.{name}({', '.join([*arguments, 'a'])})")
    with pytest.raises(InvalidInputError, match=rf"got named arguments of np.{name} in"):
        read_expression(f"np.{name}({', '.join(arguments)}, out=a)")
    assert a.tolist() == [0.5, 0.25]


def test_function_that_is_not_known_is_named_whatever_its_arguments():
    with pytest.raises(InvalidInputError, match=r"got ns in 'ns\(age, df=4\)'"):
        read_expression("ns(age, df=4)")


def test_what_may_be_called_is_what_the_message_says():
    assert set(KNOWN) == {*FUNCTIONS, *TRANSFORMS, "C", "I", "Q"}
    assert {"Treatment", "contr.treatment", "contr.SAS", "contr.sum", "contr.poly"} <= set(CONTRASTS)


@pytest.mark.parametrize(
    ("expression", "match"),
    [
        ("bs(a, df=1000000)", r"df of bs must be a whole number from 1 to 1000, got '1000000' in"),
        ("bs(a, 1000000)", r"df of bs must be a whole number from 1 to 1000"),
        ("bs(a, df=4, degree=1000000)", r"degree of bs must be a whole number from 0 to 100, got"),
        ("cr(a, df=10**6)", r"got '10 \*\* 6' where a number, a string or a list of these is needed"),
        ("cc(a, df=True)", r"df of cc must be a whole number"),
        ("poly(a, 1000000)", r"degree of poly must be a whole number from 0 to 100, got '1000000'"),
        ("poly(a, -1)", r"degree of poly must be a whole number"),
        (f"bs(a, knots={list(range(2000))})", r"knots of bs must be a list of at most 1000 numbers"),
        ("bs(a, knots=[1e999])", r"knots of bs must be a list of at most 1000 numbers"),
        ("bs(a, df=4, lower_bound='x')", r"lower_bound of bs must be a number, got 'x'"),
        ("bs(a, df=4, upper_bound=[])", r"upper_bound of bs must be a number"),
        ("bs(a, df=4, extrapolation='far')", r"extrapolation of bs must be one of 'extend', .*, got 'far'"),
        ("bs(a, include_intercept=2)", r"include_intercept of bs must be True or False, got '2'"),
        ("cr(a, df=4, constraints='no')", r"constraints of cr must be None or 'center'"),
        ("poly(a, 2, raw=1)", r"raw of poly must be True or False"),
        ("scale(a, center='x')", r"center of scale must be True, False or a number"),
        ("scale(a, scale='x')", r"scale of scale must be True, False or a number"),
        ("scale(a, ddof=0.5)", r"ddof of scale must be a whole number"),
        ("standardize(a, rescale=2)", r"rescale of standardize must be True or False"),
        ("C(a, Treatment(None))", r"reference of Treatment must be a level, got 'None'"),
        ("C(a, contr.SAS(base=[1]))", r"base of contr.SAS must be a level"),
        ("C(a, Helmert(reverse=3))", r"reverse of Helmert must be True or False"),
        ("C(a, Diff(backward=3))", r"backward of Diff must be True or False"),
        ("C(a, Poly(scores='x'))", r"scores of Poly must be a list of at most 1000 numbers"),
        ("C(a, levels=[None])", r"levels of C must be a list of numbers or strings"),
        ("C(a, spans_intercept=1)", r"spans_intercept of C must be True or False"),
        ("C(a, {'a': [1]*100000000})", r"where a number, a string or a list of these is needed"),
        ("C(a, {'a': [1], 'b': [1, 2]})", r"got lists of unequal length in"),
        ("C(a, {1: [1, 2]})", r"got contrasts without names of their own in"),
        ("C(a, {'a': 1})", r"where lists of numbers are needed"),
        ("C(a, [])", r"where lists of numbers are needed"),
        ("C(a, b, a)", r"got 3 arguments of C in"),
        ("C(a, Other)", r"got Other in"),
        ("C()", r"got 0 arguments of C in"),
        ("bs()", r"got bs\(\) without a column in"),
        ("bs(a, 1, 2, 3, True, 1, 2, 'clip', 9)", r"got 9 arguments of bs in"),
        ("bs(a, _state={})", r"got the argument _state of bs in"),
        ("bs(a, 4, df=4)", r"got the argument df of bs in"),
        ("bs(a, **b)", r"got the argument None of bs in"),
        ("log(bs(a))", r"got the columns of bs inside another expression in"),
        ("poly(a, 2) + 1", r"got the columns of poly inside another expression in"),
        ("C(a) + 1", r"got C in"),
        ("log(a, b)", r"got 2 arguments of log in"),
        ("a + 9j", r"got the constant '9j' in"),
        ("a + 10000000000000000000000", r"got the constant"),
        ("a << 2", r"got LShift in"),
        ("log(a) # b", r"got a comment in"),
        ("not a", r"got Not in"),
        ("a < b < a", r"got Compare in"),
        ("a in b", r"got Compare in"),
        ("a @ b", r"got MatMult in"),
        ("bs(a, knots='\\'')", r"got a backslash or an unprintable character in"),
        ("C(a, levels=['\x00'])", r"got a backslash or|must be an expression in column names"),
        ("a" * 30_000, r"a piece of a formula must have at most 20000 characters, got 30000 in 'aaa"),
        ("-" * 1_000 + "a", r"a piece of a formula may be nested at most 100 deep, got more in"),
        ("-" * 19_000 + "a", r"a piece of a formula may be nested at most 100 deep, got more in"),
        ("I(" * 120 + "a" + ")" * 120, r"a piece of a formula may be nested at most 100 deep, got more in"),
        ("+".join("a" * 200), r"a piece of a formula may be nested at most 100 deep, got more in"),
    ],
    ids=lambda value: value[:40],
)
def test_limits(expression, match):
    with pytest.raises(InvalidInputError, match=match):
        read_expression(expression)


@pytest.mark.parametrize("expression", ["a +", "", "a\x00", "a b", "(a", "'", "`a", "a\ud800"])
def test_syntax_errors(expression):
    with pytest.raises(
        InvalidInputError, match=r"of the formula must be an expression in column names, got a syntax error"
    ):
        read_expression(expression)


def test_powers_of_ten():
    np.testing.assert_allclose(exp10([0, 1, 2]), [1, 10, 100])
