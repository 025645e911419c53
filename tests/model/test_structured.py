"""Row parameters of a model without networks, term by term."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import deeptram as dt
from deeptram import latent as latents
from deeptram.model import Design, Outcome, OutcomeSettings, StructuredModel
from deeptram.model.terms import Spec

FRAME = pd.DataFrame({"a": [1.0, 2.0, 3.0], "b": [0.0, 1.0, -1.0], "s": ["u", "v", "u"]})


def build(terms, theta, beta, gamma=(), kind="ordinal", y=("p", "q", "r")):
    outcome, _ = Outcome.fit(OutcomeSettings(kind, levels=y), list(y))
    design, matrices = Design.fit(Spec.of(terms), FRAME)
    model = StructuredModel(
        outcome, latents.get("logistic"), design, np.array(theta), np.array(beta), np.array(gamma)
    )
    return model, matrices


def test_a_linear_shift_is_subtracted():
    model, matrices = build([dt.LS("a")], [[-1.0, 1.0]], [2.0])
    rows = model.row_parameters(FRAME, matrices)
    np.testing.assert_array_equal(rows.shift, [2.0, 4.0, 6.0])
    np.testing.assert_array_equal(np.broadcast_to(rows.theta, (3, 2)), [[-1.0, 1.0]] * 3)
    assert rows.log_scale is None


def test_strata_choose_the_baseline():
    model, matrices = build([dt.SI(strata="s")], [[-1.0, 1.0], [-2.0, 2.0]], np.zeros(0))
    rows = model.row_parameters(FRAME, matrices)
    np.testing.assert_array_equal(rows.theta, [[-1.0, 1.0], [-2.0, 2.0], [-1.0, 1.0]])


def test_varying_columns_move_the_baseline():
    model, matrices = build(
        [dt.SI(strata="s"), dt.Varying("b")], [[-1.0, 1.0], [-2.0, 2.0], [0.1, 0.3]], np.zeros(0)
    )
    rows = model.row_parameters(FRAME, matrices)
    np.testing.assert_allclose(rows.theta, [[-1.0, 1.0], [-1.9, 2.3], [-1.1, 0.7]])


def test_a_scale_term_is_half_its_linear_predictor():
    model, matrices = build([dt.Scale("b")], [[-1.0, 1.0]], np.zeros(0), [3.0])
    np.testing.assert_array_equal(model.row_parameters(FRAME, matrices).log_scale, [0.0, 1.5, -1.5])


def test_a_nominal_outcome_has_logits():
    model, matrices = build([dt.LS("a")], [[0.5, -0.5]], [[1.0, 2.0]], kind="nominal")
    rows = model.row_parameters(FRAME, matrices)
    np.testing.assert_array_equal(rows.theta, [[1.5, 1.5], [2.5, 3.5], [3.5, 5.5]])
    np.testing.assert_array_equal(rows.shift, 0.0)


def test_contributions_have_the_sign_of_h():
    model, matrices = build([dt.LS("a + b"), dt.Scale("b")], [[-1.0, 1.0]], [2.0, -1.0], [3.0])
    parts = model.contributions(FRAME, matrices)
    np.testing.assert_array_equal(parts["a"], [-2.0, -4.0, -6.0])
    np.testing.assert_array_equal(parts["b"], [0.0, 1.0, -1.0])
    np.testing.assert_array_equal(parts["log scale"], [0.0, 1.5, -1.5])


@pytest.mark.parametrize("k", [0, 1])
def test_predicted_probabilities_are_those_of_the_formula(k):
    model, matrices = build([dt.LS("a")], [[-1.0, 1.0]], [0.7])
    from deeptram.predictive.kinds import build_predictive

    rows = model.row_parameters(FRAME, matrices).numpy()
    predictive = build_predictive(
        "ordinal", rows, model.outcome.basis, model.latent, levels=model.outcome.levels
    )
    expected = 1 / (1 + np.exp(-([-1.0, 1.0][k] - 0.7 * FRAME["a"])))
    np.testing.assert_allclose(predictive.cdf()[:, k], expected)
