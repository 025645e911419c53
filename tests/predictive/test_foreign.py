"""Anybody's predictions: what is read, what is refused, and with which sentence."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as hs
from hypothesis.extra import numpy as hnp
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.svm import LinearSVC

from deeptram import latent as latents
from deeptram.errors import InvalidInputError, InvalidTypeError, UnknownNameError
from deeptram.predictive import DiscretePredictive, Predictive, from_sklearn

PROBA = hnp.arrays(float, (4, 5), elements=hs.floats(1e-6, 1.0)).map(
    lambda a: a / a.sum(axis=1, keepdims=True)
)


@given(proba=PROBA)
def test_three_roads_to_the_same_distribution(proba):
    cdf = proba.cumsum(axis=1)
    cdf[:, -1] = 1.0
    by_proba, by_cdf = Predictive.from_proba(proba), Predictive.from_cdf(cdf)
    by_trafo = Predictive.from_trafo(latents.get("normal").icdf(cdf[:, :-1]), latent="normal")
    for pred in (by_cdf, by_trafo):
        np.testing.assert_allclose(pred.cdf(), by_proba.cdf(), rtol=1e-9)
        np.testing.assert_allclose(pred.pmf(), by_proba.pmf(), rtol=1e-6, atol=1e-12)
    np.testing.assert_allclose(by_proba.pmf(), proba, rtol=1e-12)
    np.testing.assert_array_equal(by_cdf.cdf(), cdf)


def test_both_tails_are_kept():
    tiny = 1e-30
    pred = Predictive.from_proba([[tiny, 1.0, tiny]])
    np.testing.assert_allclose(pred.cdf(0), tiny)
    np.testing.assert_allclose(pred.sf(1), tiny)
    assert pred.trafo(1)[0] == pytest.approx(-np.log(tiny))
    assert pred.trafo(0)[0] == pytest.approx(np.log(tiny))


def test_exact_zeros_stay_zeros():
    for pred in (
        Predictive.from_cdf([[0.0, 0.4, 0.4, 1.0, 1.0]]),
        Predictive.from_proba([[0.0, 0.4, 0.0, 0.6, 0.0]]),
    ):
        np.testing.assert_allclose(pred.pmf(), [[0.0, 0.4, 0.0, 0.6, 0.0]])
        assert pred.log_prob([2])[0] == -np.inf
        assert pred.sf(3)[0] == 0
        assert not np.isnan(pred.trafo()).any()


def test_rounding_is_tolerated_where_documented():
    pred = Predictive.from_cdf([[0.3, 0.3 - 1e-13, 1.0 + 1e-10]])
    assert pred.log_prob([1])[0] == -np.inf  # a level of probability zero, not a tiny negative one
    assert pred.cdf()[0, -1] == 1.0
    assert (np.diff(pred.cdf()) >= 0).all()
    single = np.array([[0.1, 0.2, 0.7]], dtype=np.float32)
    assert Predictive.from_proba(single).pmf().sum() == pytest.approx(1.0, abs=1e-15)


def test_rows_are_divided_by_their_sum():
    pred = Predictive.from_proba([[0.5, 0.5 + 5e-9]])
    assert pred.pmf().sum() == pytest.approx(1.0, abs=1e-15)


def test_levels_and_data_frames():
    frame = pd.DataFrame({"low": [0.2, 0.3], "high": [0.8, 0.7]})
    pred = Predictive.from_proba(frame)
    assert pred.levels == ("low", "high")
    assert Predictive.from_proba(frame, levels=[1, 2]).levels == (1, 2)
    assert Predictive.from_trafo([[0.0]]).levels == (0, 1)
    assert Predictive.from_cdf(frame.cumsum(axis=1)).levels == ("low", "high")


def test_input_is_not_changed():
    proba = np.array([[0.2, 0.8], [0.5, 0.5 + 1e-9]])
    cdf = np.array([[0.3, 0.3 - 1e-13, 1.0]])
    before = proba.copy(), cdf.copy()
    Predictive.from_proba(proba).pmf(), Predictive.from_cdf(cdf).log_prob([0])
    np.testing.assert_array_equal(proba, before[0])
    np.testing.assert_array_equal(cdf, before[1])


@pytest.mark.parametrize("numpy", [True, False])
def test_answers_are_not_what_the_object_holds(numpy):
    grid, values = np.array([1.0, 2.0, 4.0]), np.array([[0.9, 0.5, 0.2]])
    kind = np.array if numpy else torch.tensor
    curves = Predictive.from_survival(grid, kind(values))
    quantiles = Predictive.from_quantiles(values[0, ::-1].copy(), kind(np.add(values, [0.0, 1.0, 2.0])))
    for answer in (lambda: curves.sf_grid(grid), lambda: quantiles.quantile(values[0, ::-1].copy())):
        before = np.asarray(answer()).copy()
        answer()[:] = 7.0
        np.testing.assert_array_equal(answer(), before)


def test_tensors_carry_gradients():
    logits = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    proba = torch.softmax(logits, dim=1)
    for pred in (
        Predictive.from_proba(proba),
        Predictive.from_cdf(
            torch.cat([proba.cumsum(dim=1)[:, :-1], torch.ones(3, 1, dtype=torch.float64)], dim=1)
        ),
        Predictive.from_trafo(logits.sort(dim=1).values),
    ):
        value = pred.log_prob([0, 1, 2])
        assert isinstance(value, torch.Tensor)
        (grad,) = torch.autograd.grad(value.sum(), logits, retain_graph=True)
        assert torch.isfinite(grad).all()
        assert grad.abs().sum() > 0


def test_memory_maps_and_read_only_arrays():
    array = np.array([[0.2, 0.8]])
    array.flags.writeable = False
    assert Predictive.from_proba(array).pmf(1)[0] == pytest.approx(0.8)


def test_sklearn_classifiers(rng):
    x = rng.normal(size=(60, 2))
    y = np.where(x[:, 0] + rng.normal(size=60) > 0, "yes", "no")
    model = LogisticRegression().fit(x, y)
    for pred in (from_sklearn(model, x), Predictive.from_sklearn(model, x)):
        assert isinstance(pred, DiscretePredictive)
        assert pred.levels == ("no", "yes")
        np.testing.assert_allclose(pred.pmf(), model.predict_proba(x), rtol=1e-12)
    other = from_sklearn(model, x, levels=["yes", "no"])
    assert other.levels == ("yes", "no")
    np.testing.assert_allclose(other.pmf(), model.predict_proba(x)[:, ::-1], rtol=1e-12)
    with pytest.raises(
        InvalidInputError, match=r"all classes of LogisticRegression .* got \['yes', 'maybe'\]"
    ):
        from_sklearn(model, x, levels=["yes", "maybe"])
    with pytest.raises(
        InvalidTypeError, match=r"model must have predict_proba, got LinearSVC; use a classifier"
    ):
        from_sklearn(LinearSVC().fit(x, y), x)
    with pytest.raises(InvalidTypeError, match=r"got Ridge; .* for a regressor use from_quantiles \("):
        from_sklearn(Ridge().fit(x, x[:, 0]), x)


GOOD = [0.2, 0.5, 1.0]


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (
            lambda: Predictive.from_cdf([GOOD, [0.5, 0.2, 1.0]]),
            r"cdf must not decrease, got a decrease in row 1; order",
        ),
        (
            lambda: Predictive.from_cdf([[0.2, 0.5, 0.9], GOOD]),
            r"must end in 1, got 0.9 in row 0; append a column of ones",
        ),
        (
            lambda: Predictive.from_cdf([[0.2, 0.5], [0.1, 0.7]]),
            r"must end in 1, got 0.5 in rows 0, 1; append a column",
        ),
        (
            lambda: Predictive.from_cdf([GOOD, [np.nan, 0.5, 1]]),
            r"cdf must not contain NaN, got NaN in row 1; drop",
        ),
        (
            lambda: Predictive.from_cdf([GOOD, [-0.1, 0.5, 1]]),
            r"cdf must lie between 0 and 1, got -0.1 in row 1",
        ),
        (
            lambda: Predictive.from_cdf([GOOD, [0.1, 1.5, 1]]),
            r"cdf must lie between 0 and 1, got 1.5 in row 1",
        ),
        (
            lambda: Predictive.from_cdf([0.2, 1.0]),
            r"cdf must be a matrix with one row per observation, got shape \(2,\)",
        ),
        (
            lambda: Predictive.from_cdf([[1.0]]),
            r"cdf must have one column per level, at least two, got shape \(1, 1\)",
        ),
        (lambda: Predictive.from_cdf(np.zeros((0, 3))), r"cdf must be a matrix .* got shape \(0, 3\)"),
        (
            lambda: Predictive.from_cdf([GOOD], levels=["a", "b"]),
            r"levels must name every level, got 2 names for 3 levels",
        ),
        (
            lambda: Predictive.from_cdf([GOOD], levels=["a", "b", "a"]),
            r"levels must be distinct, got 'a' twice",
        ),
        (
            lambda: Predictive.from_proba([[0.5, 0.4], [0.5, 0.5]]),
            r"proba must sum to one, got 0.9 in row 0; divide each",
        ),
        (
            lambda: Predictive.from_proba([[0.5, 0.5], [1.5, -0.5]]),
            r"proba must lie between 0 and 1, got 1.5 in row 1",
        ),
        (lambda: Predictive.from_proba([[0.5, np.nan]]), r"proba must not contain NaN, got NaN in row 0"),
        (lambda: Predictive.from_proba([[0.5, np.inf]]), r"proba must lie between 0 and 1, got inf in row 0"),
        (lambda: Predictive.from_proba([0.2, 0.8]), r"proba must be a matrix .* reshape it to two axes"),
        (
            lambda: Predictive.from_proba([[0.2], [0.8]]),
            r"for a binary outcome pass both columns, np.column_stack",
        ),
        (
            lambda: Predictive.from_trafo([[1.0, 0.0]]),
            r"each row of h must not decrease, got a decrease in row 0",
        ),
        (lambda: Predictive.from_trafo([[np.nan, 0.0]]), r"h must not contain NaN, got NaN in row 0"),
        (lambda: Predictive.from_trafo([[0.0]], levels=["a"]), r"levels must name at least two classes"),
        (
            lambda: Predictive.from_quantiles([0.5], [[1.0]]),
            r"q must hold at least two increasing probabilities",
        ),
        (
            lambda: Predictive.from_quantiles([0.5, 0.2], [[1, 2]]),
            r"q must hold .* sort them and leave 0 and 1 out",
        ),
        (lambda: Predictive.from_quantiles([0.0, 0.5], [[1, 2]]), r"q must hold .* strictly between 0 and 1"),
        (
            lambda: Predictive.from_quantiles([0.1, 0.5], [[1, 2, 3]]),
            r"one column per probability, shape \(n, 2\), got \(1, 3\)",
        ),
        (
            lambda: Predictive.from_quantiles([0.1, 0.5], [[1, 2], [2, 1]]),
            r"must not decrease, got a decrease in row 1; sort",
        ),
        (
            lambda: Predictive.from_quantiles([0.1, 0.5], [[1, np.inf]]),
            r"values must be finite, got NaN or infinity in row 0",
        ),
        (
            lambda: Predictive.from_samples([[1.0, np.nan]]),
            r"draws must be finite, got NaN or infinity in row 0; drop",
        ),
        (lambda: Predictive.from_samples([1.0, 2.0]), r"draws must be a matrix with one row per observation"),
    ],
)
def test_what_is_no_distribution_is_refused(call, match):
    with pytest.raises(InvalidInputError, match=match):
        call()


def test_many_bad_rows_are_counted():
    proba = np.full((41, 2), 0.4)
    with pytest.raises(InvalidInputError, match=r"got 0.8 in rows 0, 1, 2, 3, 4, ... \(41 in all\)"):
        Predictive.from_proba(proba)


def test_types():
    with pytest.raises(
        InvalidTypeError, match=r"proba must be a matrix of numbers, got list; pass one row per"
    ):
        Predictive.from_proba([["a", "b"]])
    with pytest.raises(UnknownNameError, match=r"latent must be one of"):
        Predictive.from_trafo([[0.0]], latent="cauchy")


@pytest.mark.parametrize("kind", ["cdf", "proba", "trafo", "quantiles", "samples", "survival", "times"])
@pytest.mark.parametrize("convert", [np.asarray, torch.as_tensor])
def test_what_happens_to_an_array_later_does_not_reach_the_distribution(kind, convert):
    rng = np.random.default_rng(0)
    rising = np.sort(rng.uniform(size=(4, 3)), axis=1)
    whole = np.concatenate([rising[:, :-1], np.ones((4, 1))], axis=1)
    levels, times = [0.1, 0.5, 0.9], np.arange(1.0, 4.0)
    given, build = {
        "cdf": (whole, Predictive.from_cdf),
        "proba": (rng.dirichlet(np.ones(3), 4), Predictive.from_proba),
        "trafo": (rising, Predictive.from_trafo),
        "quantiles": (rising, lambda values: Predictive.from_quantiles(levels, values)),
        "samples": (rng.normal(size=(4, 20)), Predictive.from_samples),
        "survival": (1 - rising, lambda values: Predictive.from_survival(times, values)),
        "times": (times, lambda values: Predictive.from_survival(values, convert(1 - rising))),
    }[kind]
    array = convert(given.copy())
    pred = build(array)

    def read():
        values = pred.cdf(2.0) if pred.levels is None else pred.cdf()
        return np.asarray(values).copy()

    before = read()
    array *= 0.25
    np.testing.assert_array_equal(read(), before)
