"""Terms: what users write, and how a list of them is sorted and checked."""

from __future__ import annotations

import dataclasses
import functools

import pytest

import deeptram as dt
from deeptram.errors import InvalidInputError, InvalidTypeError
from deeptram.model.terms import Spec

NET = functools.partial(dt.networks.MLP, hidden=(4,))


@pytest.mark.parametrize("make", [dt.LS, dt.Scale, dt.Varying])
def test_structured_terms_take_a_formula_or_columns(make):
    assert make("a * b").columns == "a * b"
    assert make("a", "b").columns == ("a", "b")
    assert make(["a", "b"]).columns == ("a", "b")
    assert make(["a"]).columns == ("a",)
    assert make().columns is None
    assert make(None).columns is None


@pytest.mark.parametrize("make", [dt.LS, dt.Scale, dt.Varying])
def test_structured_terms_refuse_what_is_no_name(make):
    with pytest.raises(
        InvalidTypeError, match=rf"{make.__name__} takes a formula or column names \(strings\); got"
    ):
        make("a", 3)


def test_terms_are_values():
    assert dt.LS("a + b") == dt.LS("a + b")
    assert dt.LS("a") != dt.Scale("a")
    assert len({dt.SI(), dt.SI(), dt.SI(strata="s")}) == 2
    assert dt.CS(NET, "x").columns == ("x",)
    with pytest.raises(dataclasses.FrozenInstanceError):
        dt.LS("a").columns = "b"
    assert "LS" in repr(dt.LS("a"))


def test_no_terms_mean_a_linear_shift_of_everything():
    spec = Spec.of(None)
    assert spec.intercept == dt.SI()
    assert spec.linear == dt.LS()
    assert not spec.is_deep


def test_an_empty_list_is_a_model_without_covariates():
    spec = Spec.of([])
    assert spec.intercept == dt.SI()
    assert spec.linear is None


def test_one_term_needs_no_list():
    assert Spec.of(dt.LS("a")).linear == dt.LS("a")
    assert Spec.of(dt.SI(strata="s")).intercept.strata == "s"


def test_terms_are_sorted_by_their_part():
    spec = Spec.of(
        [dt.Scale("z"), dt.CS(NET, "i"), dt.LS("a"), dt.Varying("v"), dt.CS(NET, "j"), dt.SI(strata="s")]
    )
    assert (spec.scale, spec.linear, spec.varying) == (dt.Scale("z"), dt.LS("a"), dt.Varying("v"))
    assert [term.columns for term in spec.shifts] == [("i",), ("j",)]
    assert spec.is_deep


def test_a_scale_may_have_a_network():
    term = dt.Scale(NET, "a", "b")
    assert (term.net, term.columns, dt.Scale(NET).columns) == (NET, ("a", "b"), ())
    assert term == dt.Scale(NET, ["a", "b"]) != dt.Scale("a", "b")
    spec = Spec.of([dt.Scale(NET, "a"), dt.CI(NET, "c"), dt.Scale("z"), dt.CS(NET, "b"), dt.Scale(NET, "d")])
    assert [one.columns for one in spec.networks] == [("c",), ("b",), ("a",), ("d",)]
    assert (spec.scale, spec.has_scale) == (dt.Scale("z"), True)
    assert Spec.of(term).has_scale
    assert not Spec.of(dt.CS(NET)).has_scale
    with pytest.raises(InvalidTypeError, match=r"Scale takes the names of columns, got 3 among them"):
        dt.Scale(NET, 3)


@pytest.mark.parametrize(
    ("terms", "name"),
    [
        ([], "SI"),
        ([dt.LS("a")], "SI-LS"),
        ([dt.CS(NET)], "SI-CS"),
        ([dt.CS(NET), dt.LS("a")], "SI-CS-LS"),
        ([dt.CI(NET)], "CI"),
        ([dt.CI(NET), dt.LS("a")], "CI-LS"),
    ],
)
def test_names_are_those_of_the_paper(terms, name):
    assert Spec.of(terms).name == name


@pytest.mark.parametrize(
    ("terms", "text"),
    [
        ([dt.LS("a"), dt.LS("b")], "at most one LS term is allowed; got 2"),
        ([dt.Scale("a"), dt.Scale("b")], "at most one Scale term is allowed; got 2"),
        ([dt.Varying("a"), dt.Varying("b")], "at most one Varying term is allowed; got 2"),
        ([dt.SI(), dt.CI(NET)], r"at most one intercept \(SI or CI\) term is allowed; got 2"),
    ],
)
def test_each_part_may_be_given_once(terms, text):
    with pytest.raises(InvalidInputError, match=text):
        Spec.of(terms)


@pytest.mark.parametrize(
    ("terms", "got"), [(["a"], "str"), ([dt.SI], "type"), ([None], "NoneType"), ("a + b", "str")]
)
def test_only_terms_are_terms(terms, got):
    with pytest.raises(InvalidTypeError, match=f"terms must be SI, CI, LS, CS, Scale or Varying; got {got}"):
        Spec.of(terms)


def test_something_that_cannot_be_listed():
    with pytest.raises(
        InvalidTypeError, match="terms must be a list of SI, CI, LS, CS, Scale and Varying; got 3"
    ):
        Spec.of(3)
