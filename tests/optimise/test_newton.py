"""Constrained Newton steps and their certificate against SciPy's general optimisers."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch
from scipy.optimize import minimize as scipy_minimize

from deeptram import latent as latents
from deeptram.bases import Bernstein, Cutpoints, Linear
from deeptram.fitting.exact.columns import StructuredData
from deeptram.fitting.exact.problem import ExactProblem
from deeptram.optimise.newton import minimize, newton_step
from deeptram.responses import Observations


class Function:
    """An objective from a tensor function, with derivatives by automatic differentiation."""

    def __init__(self, function, n_parameters):
        self._function, self.n_parameters = function, n_parameters

    def value(self, parameters):
        return float(self._function(parameters))

    def evaluate(self, parameters):
        gradient = torch.autograd.functional.jacobian(self._function, parameters)
        hessian = torch.autograd.functional.hessian(self._function, parameters)
        return self.value(parameters), gradient, hessian

    def longest_step(self, parameters, step):
        return 1.0


def line_data(n=60, latent="logistic", basis=None, seed=0, **extra):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 2))
    y = np.exp(0.3 * (x @ [1.0, -1.0]) + 0.4 * rng.normal(size=n))
    basis = Bernstein(4, (float(y.min()), float(y.max()))) if basis is None else basis
    return StructuredData(latents.get(latent), basis, x, Observations(y, y), **extra)


def by_scipy(problem):
    """Minimise the same objective over the same cone by SLSQP with a tight tolerance."""
    objective = problem.objective
    rows = problem.constraints

    def value(p):
        found = objective.value(torch.from_numpy(p))
        return found if np.isfinite(found) else 1e10

    constraints = (
        []
        if rows is None or not len(rows)
        else {"type": "ineq", "fun": lambda p: rows @ p, "jac": lambda p: rows}
    )
    return scipy_minimize(
        value,
        problem.start,
        jac=lambda p: objective.evaluate(torch.from_numpy(p))[1].numpy(),
        method="SLSQP",
        constraints=constraints,
        options={"maxiter": 2000, "ftol": 1e-14},
    )


@pytest.mark.parametrize("latent", ["logistic", "normal", "minimum-extreme-value", "maximum-extreme-value"])
@pytest.mark.parametrize("seed", [0, 1])
def test_reaches_the_optimum_of_slsqp_and_certifies_it(latent, seed):
    problem = ExactProblem(line_data(latent=latent, seed=seed))
    result = minimize(problem.objective, problem.start, problem.constraints)
    theirs = by_scipy(problem)
    assert result.converged
    assert result.value <= theirs.fun + 1e-9
    assert theirs.fun - result.value <= 1e-4
    certificate = result.certificate
    assert certificate.gap <= 1e-11
    assert certificate.gradient <= 1e-6
    assert all(m > 0 for m in certificate.multipliers)
    # Kuhn-Tucker: the gradient is the multipliers' combination of the active constraints, which hold exactly
    active = problem.constraints[list(certificate.active)]
    np.testing.assert_allclose(active @ result.parameters, 0.0, atol=1e-9)
    np.testing.assert_allclose(result.gradient, active.T @ np.array(certificate.multipliers), atol=1e-6)
    assert (problem.constraints @ result.parameters >= -1e-9).all()


def test_constraints_become_active_where_they_must():
    """Counts with a hole: the density between the two clouds falls to zero, so increments do."""
    y = np.concatenate([np.linspace(0.0, 1.0, 30), np.linspace(9.0, 10.0, 30)])
    data = StructuredData(
        latents.get("normal"), Bernstein(8, (0.0, 10.0)), np.zeros((60, 0)), Observations(y, y)
    )
    problem = ExactProblem(data)
    result = minimize(problem.objective, problem.start, problem.constraints)
    assert result.converged
    assert result.certificate.active
    free = minimize(problem.objective, problem.start)
    assert free.value <= result.value
    assert result.value <= by_scipy(problem).fun + 1e-9


def test_the_value_falls_at_every_step_and_the_end_is_stationary():
    problem = ExactProblem(line_data())
    values = [
        minimize(problem.objective, problem.start, problem.constraints, max_iter=k).value for k in range(8)
    ]
    assert all(a >= b for a, b in pairwise(values))
    result = minimize(problem.objective, problem.start, problem.constraints)
    again = minimize(problem.objective, result.parameters, problem.constraints)
    assert again.n_iter <= 1
    assert again.value == pytest.approx(result.value, rel=1e-14)


def test_an_early_stop_is_not_called_converged():
    problem = ExactProblem(line_data())
    result = minimize(problem.objective, problem.start, problem.constraints, max_iter=1)
    assert not result.converged
    assert result.n_iter == 1
    assert result.certificate.gap > 1e-6


def test_a_step_that_is_not_optimal_on_its_face_is_not_called_converged(monkeypatch):
    """As if the solver of the quadratic model had missed the active constraints and stayed where it was."""
    problem = ExactProblem(line_data())
    monkeypatch.setattr(
        "deeptram.optimise.newton.newton_step",
        lambda gradient, hessian, rows, slack, lift: (np.zeros_like(gradient), np.zeros(len(rows))),
    )
    result = minimize(problem.objective, problem.start, problem.constraints)
    assert result.certificate.gap == 0
    assert result.certificate.gradient > 1e-3
    assert not result.converged


def test_the_gap_bounds_the_distance_to_the_optimum_near_it():
    problem = ExactProblem(line_data())
    best = minimize(problem.objective, problem.start, problem.constraints).value
    for k in (3, 4, 5):
        result = minimize(problem.objective, problem.start, problem.constraints, max_iter=k)
        assert result.value - best <= 2 * result.certificate.gap + 1e-12


def test_non_convex_functions_descend_to_a_minimum():
    """Rosenbrock's valley from the far side, where the Hessian is indefinite."""

    def valley(p):
        return (1 - p[0]) ** 2 + 100 * (p[1] - p[0] ** 2) ** 2

    result = minimize(Function(valley, 2), np.array([-1.2, 3.0]), convex=False)
    assert result.converged
    assert not result.certificate.convex
    np.testing.assert_allclose(result.parameters, [1.0, 1.0], atol=1e-6)
    saddle = minimize(
        Function(lambda p: (p[0] ** 2 - 1) ** 2 + p[1] ** 2, 2), np.array([0.1, 1.0]), convex=False
    )
    np.testing.assert_allclose(saddle.parameters, [1.0, 0.0], atol=1e-6)


def test_unconstrained_quadratic_takes_one_step():
    result = minimize(Function(lambda p: ((p - 3.0) ** 2).sum(), 3), np.zeros(3))
    assert result.n_iter == 1
    np.testing.assert_allclose(result.parameters, 3.0)


def test_parameters_without_any_curvature_stay_where_they_are():
    result = minimize(Function(lambda p: (p[0] - 1.0) ** 2 + 0.0 * p[1], 2), np.array([0.0, 0.7]))
    assert result.converged
    np.testing.assert_allclose(result.parameters, [1.0, 0.7])


@pytest.mark.parametrize("factor", [1e-12, 1e-6, 1.0, 1e6, 1e12])
def test_the_optimum_does_not_depend_on_the_size_of_the_weights(factor):
    plain = ExactProblem(line_data(weights=np.linspace(0.5, 2.0, 60)))
    scaled = ExactProblem(line_data(weights=factor * np.linspace(0.5, 2.0, 60)))
    reference = minimize(plain.objective, plain.start, plain.constraints, unit=plain.unit)
    result = minimize(scaled.objective, scaled.start, scaled.constraints, unit=scaled.unit)
    assert result.converged
    np.testing.assert_allclose(result.parameters, reference.parameters, atol=1e-7)
    assert result.value == pytest.approx(factor * reference.value, rel=1e-12)


def test_a_function_without_minimum_ends_the_search_when_recognised():
    calls = []

    def is_hopeless(point):
        calls.append(point)
        return True

    result = minimize(Function(lambda p: -torch.log(p).sum(), 2), np.ones(2), is_hopeless=is_hopeless)
    assert not result.converged
    assert len(calls) == 1
    assert 1e3 < np.abs(result.parameters).max() < 1e5
    unrecognised = minimize(
        Function(lambda p: -torch.log(p).sum(), 2), np.ones(2), is_hopeless=lambda p: False
    )
    assert not unrecognised.converged


def test_steps_respect_constraints_from_points_on_the_boundary():
    rows = np.array([[-1.0, 1.0, 0.0], [0.0, -1.0, 1.0]])
    step, multipliers = newton_step(np.array([0.0, 1.0, 0.0]), np.eye(3), rows, np.array([0.0, 1.0]))
    np.testing.assert_allclose(step, [-0.5, -0.5, 0.0])
    np.testing.assert_allclose(multipliers, [0.5, 0.0])


def test_ordinal_optimum_equals_bfgs():
    rng = np.random.default_rng(9)
    x = rng.normal(size=(80, 2))
    codes = np.digitize(x @ [1.0, 0.5] + rng.logistic(size=80), [-1.0, 0.0, 1.5])
    problem = ExactProblem(StructuredData(latents.get("normal"), Cutpoints(4), x, codes=codes, n_classes=4))
    result = minimize(problem.objective, problem.start)
    theirs = by_scipy(problem)
    assert result.value <= theirs.fun + 1e-10
    np.testing.assert_allclose(result.parameters, theirs.x, atol=1e-4)


def test_normal_linear_model_is_least_squares():
    data = line_data(latent="normal", basis=Linear())
    problem = ExactProblem(data)
    result = minimize(problem.objective, problem.start, problem.constraints)
    user = problem.back @ result.parameters
    design = np.column_stack([np.ones(60), data.x])
    y = data.observations.lower
    coefficients, residual, _, _ = np.linalg.lstsq(design, y, rcond=None)
    np.testing.assert_allclose(user[2:] / user[1], coefficients[1:], rtol=1e-9)
    np.testing.assert_allclose(1 / user[1] ** 2, residual / 60, rtol=1e-8)


class Quadratic:
    """x'Hx/2 + c'x."""

    def __init__(self, hessian, linear):
        self.hessian, self.linear = torch.from_numpy(hessian), torch.from_numpy(linear)
        self.n_parameters = len(linear)

    def value(self, x):
        return float(0.5 * x @ self.hessian @ x + self.linear @ x)

    def evaluate(self, x):
        return self.value(x), self.hessian @ x + self.linear, self.hessian

    def longest_step(self, x, step):
        return 1.0


@pytest.mark.parametrize("seed", range(8))
def test_more_constraints_than_parameters_against_slsqp(seed):
    rng = np.random.default_rng(seed)
    a = rng.normal(size=(8, 4))
    problem = Quadratic(a.T @ a, rng.normal(size=4))
    constraints = np.concatenate([np.eye(4), rng.normal(size=(3, 4))])
    start = np.linalg.lstsq(constraints, np.ones(7), rcond=None)[0]
    if (constraints @ start <= 0).any():
        constraints, start = np.eye(4), np.ones(4)
    found = minimize(problem, start, constraints)
    other = scipy_minimize(
        lambda x: problem.value(torch.from_numpy(x)),
        start,
        constraints={"type": "ineq", "fun": lambda x: constraints @ x, "jac": lambda x: constraints},
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 300},
    )
    assert found.converged
    assert (constraints @ found.parameters > -1e-12).all()
    assert found.value == pytest.approx(other.fun, abs=1e-9)


def test_the_last_step_needs_no_evaluation_where_a_likeness_foresees_it():
    def function(p):
        return torch.logsumexp(torch.stack([p[0], -p[0], 0.5 * p[1], -p[1]]), 0) + p.square().sum() / 10

    class Counted(Function):
        points: list

        def evaluate(self, parameters):
            self.points.append(parameters.clone())
            return super().evaluate(parameters)

    def run(foreseen, factor):
        objective = Counted(function, 2)
        objective.points = []

        def likeness(point, found):  # with third derivatives that are a thousandth wrong
            own, at = Function(lambda p: factor * function(p), 2), torch.from_numpy(point)
            slope, curvature = (
                torch.from_numpy(all_rows) - part
                for all_rows, part in zip(found[1:], own.evaluate(at)[1:], strict=True)
            )
            constant = found[0] - own.value(at)

            def like(p):
                away = p - at
                return factor * function(p) + constant + away @ slope + away @ curvature @ away / 2

            return Function(like, 2)

        start = np.array([0.02, 0.5])
        found = minimize(objective, start, tolerance=1e-9, likeness=likeness, foreseen=foreseen)
        return found, objective.points

    usual, all_points = run(0.0, 1.001)
    quick, points = run(1e-9, 1.001)
    assert len(points) < len(all_points)
    assert usual.converged
    assert quick.converged
    last = points[-1].numpy()
    assert not np.allclose(quick.parameters, last, rtol=0, atol=1e-7)  # a step further than what was seen
    np.testing.assert_allclose(quick.parameters, usual.parameters, rtol=0, atol=1e-9)
    np.testing.assert_allclose(quick.hessian, usual.hessian, rtol=1e-7, atol=1e-9)
    assert quick.value == pytest.approx(usual.value, abs=1e-13)
    assert quick.certificate.gap >= usual.certificate.gap  # that of the point before: a bound
