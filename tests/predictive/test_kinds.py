"""Row parameters become the right kind of predictive."""

from __future__ import annotations

import copy
import json
import pickle

import numpy as np
import pytest
import torch

from deeptram.bases import Bernstein, Linear
from deeptram.errors import InvalidTypeError, UnknownNameError, UnsupportedError
from deeptram.predictive import (
    OUTCOMES,
    DiscretePredictive,
    RowParameters,
    TransformationCount,
    TransformationPredictive,
    build_predictive,
    kind_of,
)

THETA = np.array([[-1.0, 0.5, 2.0]])
SHIFT = np.array([0.0, 1.0, -2.0])
SCALE = np.array([0.2, 0.0, -0.4])
KINDS = {
    "binary": DiscretePredictive,
    "ordinal": DiscretePredictive,
    "nominal": DiscretePredictive,
    "continuous": TransformationPredictive,
    "survival": TransformationPredictive,
    "count": TransformationCount,
}


@pytest.mark.parametrize("outcome", OUTCOMES)
@pytest.mark.parametrize("kind", [np.asarray, torch.as_tensor], ids=["numpy", "torch"])
def test_kinds(outcome, kind):
    theta = THETA[:, :1] if outcome == "binary" else THETA
    shift = None if outcome == "nominal" else kind(SHIFT)
    pred = build_predictive(outcome, RowParameters(kind(theta), shift), Bernstein(2, (0.0, 1.0)), "logistic")
    assert type(pred) is KINDS[outcome]
    value = pred.cdf() if outcome in ("binary", "ordinal", "nominal") else pred.cdf(1)
    assert isinstance(value, torch.Tensor if kind is torch.as_tensor else np.ndarray)


def test_ordinal_is_scale_times_theta_minus_shift():
    params = RowParameters(THETA, SHIFT, SCALE, np.log(np.diff(THETA)))
    pred = build_predictive("ordinal", params, None, "normal", levels=list("abcd"))
    h = np.exp(SCALE)[:, None] * THETA - SHIFT[:, None]
    np.testing.assert_allclose(pred.trafo(), h, rtol=1e-14)
    np.testing.assert_allclose(pred.log_increments_t().numpy(), np.log(np.diff(h)), rtol=1e-12)
    assert pred.levels == ("a", "b", "c", "d")
    assert params.n_rows == len(pred) == 3


def test_increments_are_carried():
    params = RowParameters(np.array([[3.0, 3.0]]), SHIFT, None, np.array([[-60.0]]))
    pred = build_predictive("ordinal", params, None, "logistic")
    np.testing.assert_allclose(pred.log_prob([1, 1, 1]), -60.0 + pred.latent.log_pdf(3.0 - SHIFT), rtol=1e-12)


def test_line_is_scale_times_h_minus_shift():
    params = RowParameters(np.array([[0.5, 2.0]]), SHIFT, SCALE)
    pred = build_predictive("continuous", params, Linear(), "normal")
    np.testing.assert_allclose(pred.trafo(1.5), np.exp(SCALE) * (0.5 + 2.0 * 1.5) - SHIFT)
    # A positive shift means a larger outcome, on every scale.
    assert (
        pred.median()[1]
        > build_predictive(
            "continuous", RowParameters(params.theta, SHIFT - 1, SCALE), Linear(), "normal"
        ).median()[1]
    )


@pytest.mark.parametrize(("log_first", "at"), [(False, 2.0), (True, 3.0)])
def test_counts_are_evaluated_one_higher_in_logarithms(log_first, at):
    basis = Bernstein(2, (1.0, 9.0), log_first)
    params = RowParameters(THETA, SHIFT)
    count = build_predictive("count", params, basis, "logistic", log_first=log_first)
    line = build_predictive("continuous", params, basis, "logistic")
    np.testing.assert_array_equal(count.cdf(2), line.cdf(at))


def test_nominal_is_a_softmax_with_the_first_level_as_reference():
    logits = np.array([[0.3, -1.0], [700.0, 2.0]])
    pred = build_predictive("nominal", RowParameters(logits), None, "normal", levels=("x", "y", "z"))
    np.testing.assert_allclose(np.log(pred.pmf()[0, 1:] / pred.pmf()[0, 0]), logits[0])
    assert pred.log_prob(["x", "x"])[1] == pytest.approx(-700.0)
    assert pred.levels == ("x", "y", "z")


def test_messages():
    with pytest.raises(
        UnknownNameError, match=r"outcome must be one of .* got 'ordnal'; did you mean 'ordinal'"
    ):
        build_predictive("ordnal", RowParameters(THETA), None, "logistic")
    with pytest.raises(InvalidTypeError, match=r"a survival outcome needs a basis, got None; pass one of"):
        build_predictive("survival", RowParameters(THETA), None, "logistic")


@pytest.mark.parametrize("name", OUTCOMES)
def test_a_kind_equals_its_name_also_after_copies(name):
    kind = kind_of(name)
    for one in (kind, pickle.loads(pickle.dumps(kind)), copy.deepcopy(kind)):
        assert one == name
        assert type(one) is type(kind)
        assert json.dumps(one) == json.dumps(name)
    assert kind.is_discrete + kind.is_count + kind.has_density == 1


@pytest.mark.parametrize(
    ("name", "loss", "match"),
    [
        ("survival", "rps", "loss='rps' is for classes, got outcome='survival'; use loss='crps'"),
        ("binary", "crps", "loss='crps' is for outcomes on the line, got outcome='binary'; use loss='rps'"),
        ("nominal", "rps", "loss='rps' needs an ordered outcome, got outcome='nominal'; use loss='brier'"),
        ("nominal", "crps", "loss='crps' needs an ordered outcome, got outcome='nominal'; use loss='brier'"),
    ],
)
def test_losses_without_meaning_are_refused(name, loss, match):
    with pytest.raises(UnsupportedError, match=match):
        kind_of(name).check_loss(loss)


def test_classes_are_not_read_as_numbers():
    with pytest.raises(
        UnsupportedError, match="outcome='ordinal' is read by its levels; use DiscreteResponse"
    ):
        kind_of("ordinal").observe([1, 2])
