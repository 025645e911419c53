"""The barrier method against SciPy."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.optimize

from deeptram.optimise.barrier import minimize


@pytest.mark.parametrize("seed", range(8))
def test_quadratic_programmes(seed):
    rng = np.random.default_rng(seed)
    a = rng.normal(size=(8, 4))
    h, c = a.T @ a, rng.normal(size=4)
    constraints = np.concatenate([np.eye(4), rng.normal(size=(3, 4))])
    start = np.linalg.lstsq(constraints, np.ones(7), rcond=None)[0]
    if (constraints @ start <= 0).any():
        constraints, start = np.eye(4), np.ones(4)

    def oracle(x):
        return 0.5 * x @ h @ x + c @ x, h @ x + c, h

    found = minimize(oracle, constraints, start)
    other = scipy.optimize.minimize(
        lambda x: oracle(x)[0],
        start,
        jac=lambda x: oracle(x)[1],
        constraints={"type": "ineq", "fun": lambda x: constraints @ x, "jac": lambda x: constraints},
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 300},
    )
    assert found.converged
    assert (constraints @ found.x > 0).all()
    assert found.value == pytest.approx(other.fun, abs=1e-9)


def test_no_constraints():
    found = minimize(
        lambda x: (float(np.cosh(x[0] - 2)), np.sinh(x - 2), np.cosh(x - 2)[None]),
        np.zeros((0, 1)),
        np.zeros(1),
    )
    assert found.x[0] == pytest.approx(2.0, abs=1e-6)
    assert found.converged


def test_domains_are_respected():
    def oracle(x):
        if x[0] <= 0:
            return np.inf, np.zeros(1), np.eye(1)
        return float(x[0] - np.log(x[0])), 1 - 1 / x, (1 / x**2)[None]

    assert minimize(oracle, np.zeros((0, 1)), np.array([50.0])).x[0] == pytest.approx(1.0, abs=1e-6)
