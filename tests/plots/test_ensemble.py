"""Figures of a fitted ensemble, from its own tables."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import deeptram as dt
from deeptram import plots
from drawing import labels


@pytest.fixture(scope="module")
def fitted():
    rng = np.random.default_rng(2)
    X = pd.DataFrame(rng.normal(size=(240, 2)), columns=["age", "dose"])
    y = ((X["age"] + rng.logistic(size=240)).to_numpy()[:, None] > [-1, 1]).sum(axis=1)
    parts = [slice(0, 80), slice(80, 160), slice(160, 240)]
    models = [dt.Polr([dt.LS("age", "dose")]).fit(X[part], y[part]) for part in parts]
    return dt.Ensemble.from_members(models), X, y


def test_coefficients(fitted, drawn):
    ensemble, _, _ = fitted
    table = ensemble.coef_table(method="total")
    members = pd.DataFrame([member.coef_ for member in ensemble.members_])
    display = plots.coefficients(table, members=members)
    frame = display.frame()
    assert frame.loc[0, "estimate"] == pytest.approx(members["age"].mean())
    assert drawn(display).get_xlabel() == "log odds-ratio (positive: larger outcome)"
    np.testing.assert_allclose(
        plots.coefficients(table, exp=True).frame()[["lower", "upper"]], table[["exp_lower", "exp_upper"]]
    )


@pytest.mark.parametrize("scale", ["trafo", "cdf"])
def test_epistemic_bands_are_the_same_from_table_and_members(fitted, scale, drawn):
    ensemble, X, _ = fitted
    table = ensemble.epistemic(X[:3], scale=scale)
    direct = plots.epistemic(ensemble.predict_members(X[:3]), scale=scale)
    pd.testing.assert_frame_equal(plots.epistemic(table, scale=scale).frame(), direct.frame())
    drawn(plots.epistemic(table, scale=scale))


def test_structure_weights_and_curves(fitted, drawn):
    ensemble, X, y = fitted
    ax = drawn(plots.structure(ensemble.structure_check(X, y)))
    assert labels(ax)[-1] == "transformation pool"
    pooled = ensemble.predict_distribution(X)
    assert plots.weights(pooled).frame()["weight"].tolist() == pytest.approx([1 / 3] * 3)
    drawn(plots.cdf({"members": ensemble.predict_members(X), "transformation": pooled}, rows=[0]))
