"""From data to a scaled problem and back: maps, starts, monotonicity, and invariance of the fit."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from deeptram import latent as latents
from deeptram.bases import Bernstein, Cutpoints, Linear, LogLinear
from deeptram.errors import InvalidInputError
from deeptram.fitting.exact.columns import StructuredData
from deeptram.fitting.exact.fit import fit_exact
from deeptram.fitting.exact.problem import ExactProblem, typical_values, weighted_quantile
from deeptram.responses import Observations

N = 50


def loglik_rows(fit):
    likelihood = fit.problem.coordinates.likelihood(fit.problem.data)
    return likelihood.rows(torch.from_numpy(fit.solution)).numpy()


def line_data(basis=None, seed=0, **extra):
    rng = np.random.default_rng(seed)
    x = 10 + 3 * rng.normal(size=(N, 2))
    y = np.exp(0.2 * (x @ [1.0, -1.0]) + 0.4 * rng.normal(size=N))
    basis = Bernstein(3, (float(y.min()), float(y.max()))) if basis is None else basis
    return StructuredData(latents.get("logistic"), basis, x, Observations(y, y), **extra)


def class_data(seed=0, **extra):
    rng = np.random.default_rng(seed)
    x = 10 + 3 * rng.normal(size=(N, 2))
    codes = np.digitize((x - 10) @ [0.3, 0.2] + rng.logistic(size=N), [-1.0, 0.0, 1.5])
    return StructuredData(latents.get("logistic"), Cutpoints(4), x, codes=codes, n_classes=4, **extra)


def extras(kind):
    rng = np.random.default_rng(1)
    return {
        "plain": {},
        "weights": {"weights": rng.uniform(0.5, 2.0, size=N)},
        "strata": {"strata": np.arange(N) % 2, "n_strata": 2},
        "varying": {"varying": 5 + rng.normal(size=(N, 2))},
        "strata and varying": {
            "strata": np.arange(N) % 2,
            "n_strata": 2,
            "varying": 5 + rng.normal(size=(N, 1)),
        },
        "scale": {"scale": rng.normal(size=(N, 2))},
    }[kind]


KINDS = ["plain", "weights", "strata", "varying", "strata and varying", "scale"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("make", [line_data, class_data])
def test_the_back_map_gives_the_same_h(make, kind):
    """Rows of the likelihood from scaled parameters equal those of the user's parameters on plain columns."""
    data = make(**extras(kind))
    problem = ExactProblem(data)
    rng = np.random.default_rng(2)
    point = problem.start + 0.02 * rng.normal(size=len(problem.start))
    user = problem.back @ point
    d, blocks, p = data.basis.n_coef, data.n_blocks, 2
    theta = user[: blocks * d].reshape(blocks, d)
    beta, gamma = user[blocks * d : blocks * d + p], user[blocks * d + p :]
    rows = theta[:1] if data.strata is None else theta[: data.n_strata][data.strata]
    if data.varying is not None:
        rows = rows + data.varying @ theta[data.n_strata :]
    rows = np.broadcast_to(rows, (N, d))
    stretch = np.ones(N) if data.scale is None else np.exp(data.scale @ gamma / 2)
    shift = data.x @ beta
    latent = data.latent
    if data.codes is None:
        y = data.observations.lower
        z = stretch * (data.basis.evaluate(y) * rows).sum(axis=1) - shift
        slope = stretch * (data.basis.derivative(y) * rows).sum(axis=1)
        expected = latent.log_pdf(z) + np.log(slope)
    else:
        ends = np.column_stack(
            [np.full(N, -np.inf), stretch[:, None] * rows - shift[:, None], np.full(N, np.inf)]
        )
        expected = latent.log_interval(ends[np.arange(N), data.codes], ends[np.arange(N), data.codes + 1])
    np.testing.assert_allclose(
        problem.objective.rows(torch.from_numpy(point)), expected, rtol=1e-8, atol=1e-10
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("make", [line_data, class_data])
def test_starts_are_feasible(make, kind):
    problem = ExactProblem(make(**extras(kind)))
    assert np.isfinite(problem.objective.value(torch.from_numpy(problem.start)))
    if problem.constraints is not None and len(problem.constraints):
        assert (problem.constraints @ problem.start > 0).all()


@pytest.mark.parametrize("basis", [Linear(), LogLinear(), LogLinear(1.0), Bernstein(1, (0.1, 30.0))])
def test_every_basis_has_a_feasible_start_for_every_kind_of_row(basis):
    rng = np.random.default_rng(3)
    low = rng.exponential(size=N) + 0.1
    seen = Observations(
        np.select([np.arange(N) % 4 == 1, np.arange(N) % 4 == 2], [0.0, -np.inf], low),
        np.select([np.arange(N) % 4 == 3], [np.inf], low + (np.arange(N) % 4 > 0)),
    )
    problem = ExactProblem(StructuredData(latents.get("normal"), basis, rng.normal(size=(N, 1)), seen))
    assert np.isfinite(problem.objective.value(torch.from_numpy(problem.start)))


@given(seed=st.integers(0, 10_000), n=st.integers(1, 12))
def test_weighted_quantiles_are_those_of_repeated_rows(seed, n):
    rng = np.random.default_rng(seed)
    values, weights = rng.normal(size=n).round(1), rng.integers(1, 5, size=n)
    p = rng.uniform(0.01, 0.99, size=7)
    np.testing.assert_allclose(
        weighted_quantile(values, weights.astype(float), p),
        weighted_quantile(values.repeat(weights), None, p),
    )


def test_typical_values_leave_out_rows_that_say_nothing():
    seen = Observations(np.array([1.0, 0.0, 2.0, -np.inf, 0.0]), np.array([1.0, 4.0, np.inf, 3.0, np.inf]))
    values, weights = typical_values(seen, LogLinear(), np.arange(5.0))
    np.testing.assert_array_equal(values, [1.0, 4.0, 2.0, 3.0])
    np.testing.assert_array_equal(weights, [0.0, 1.0, 2.0, 3.0])


@pytest.mark.parametrize("make", [line_data, class_data])
def test_row_contributions_add_up_to_the_log_likelihood(make):
    data = make()
    fit = fit_exact(data)
    rows = loglik_rows(fit)
    assert rows.sum() == pytest.approx(fit.loglik, rel=1e-12)
    weighted = dataclasses.replace(data, weights=np.linspace(0.5, 2.0, N))
    fit = fit_exact(weighted)
    assert weighted.weights @ loglik_rows(fit) == pytest.approx(fit.loglik, rel=1e-12)


def test_a_start_close_by_gives_the_same_optimum_in_fewer_steps():
    data = line_data()
    fit = fit_exact(data)
    again = fit_exact(data, start=fit.solution)
    assert again.n_iter <= 1
    assert again.loglik == pytest.approx(fit.loglik, rel=1e-13)
    np.testing.assert_allclose(again.vcov, fit.vcov, rtol=1e-5)


def test_varying_effects_are_monotone_over_the_observed_range():
    data = line_data(**extras("varying"))
    fit = fit_exact(data)
    theta = fit.theta[0] + data.varying @ fit.theta[1:]
    assert (np.diff(theta, axis=1) >= -1e-8).all()


def test_many_varying_columns_are_bounded_by_a_box_or_refused():
    rng = np.random.default_rng(4)
    n = 600
    y = rng.exponential(size=n)
    data = StructuredData(
        latents.get("normal"),
        Linear(),
        np.zeros((n, 0)),
        Observations(y, y),
        varying=rng.uniform(size=(n, 3)),
    )
    problem = ExactProblem(data)
    assert len(problem.constraints) == 8
    too_many = dataclasses.replace(data, varying=rng.uniform(size=(n, 9)))
    with pytest.raises(InvalidInputError, match="Varying takes at most 8 numeric columns at a time; got 9"):
        ExactProblem(too_many)


def test_neither_classes_nor_observations():
    with pytest.raises(InvalidInputError, match="neither classes nor observations; give one of them"):
        ExactProblem(StructuredData(latents.get("normal"), Linear(), np.zeros((3, 0))))


def test_empty_end_classes_need_plain_cutpoints():
    data = class_data(scale=np.ones((N, 1)))
    shifted = dataclasses.replace(data, codes=data.codes + 1, n_classes=5, basis=Cutpoints(5))
    with pytest.raises(
        InvalidInputError, match="the first and the last level must be observed in a model with"
    ):
        ExactProblem(shifted)


def test_inputs_are_never_written_to():
    data = line_data(**extras("strata and varying"), weights=np.linspace(0.5, 2.0, N))
    before = {name: np.copy(getattr(data, name)) for name in ("x", "weights", "strata", "varying")}
    fit_exact(data)
    for name, value in before.items():
        np.testing.assert_array_equal(getattr(data, name), value)
