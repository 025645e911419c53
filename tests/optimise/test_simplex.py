"""The solver on the simplex: exact answers, certificates, degenerate cases."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.optimize

from deeptram.optimise.simplex import minimize


def mixture_oracle(p):
    """Return the mean NLL of a mixture with component likelihoods p (n, M)."""

    def oracle(w):
        f = p @ w
        ratio = p / f[:, None]
        return -np.log(f).mean(), -ratio.mean(axis=0), ratio.T @ ratio / len(p)

    return oracle


def slsqp(oracle, size):
    return scipy.optimize.minimize(
        lambda w: oracle(w)[0],
        np.full(size, 1 / size),
        jac=lambda w: oracle(w)[1],
        bounds=[(1e-12, 1)] * size,
        constraints={"type": "eq", "fun": lambda w: w.sum() - 1, "jac": lambda w: np.ones(size)},
        method="SLSQP",
        options={"ftol": 1e-15, "maxiter": 500},
    )


@pytest.mark.parametrize("seed", range(12))
def test_as_good_as_slsqp_and_certified(seed):
    rng = np.random.default_rng(seed)
    members = int(rng.integers(2, 9))
    p = rng.random((300, members)) ** rng.uniform(0.5, 6) + 1e-9
    oracle = mixture_oracle(p)
    found = minimize(oracle, np.full(members, 1 / members))
    assert found.converged
    assert found.gap <= 1e-10 * max(1, abs(found.value))
    assert found.weights.sum() == pytest.approx(1, abs=1e-14)
    assert (found.weights >= 0).all()
    assert found.value <= slsqp(oracle, members).fun + 1e-10


def test_the_gap_bounds_the_distance_from_the_optimum():
    rng = np.random.default_rng(3)
    oracle = mixture_oracle(rng.random((200, 5)) ** 3 + 1e-6)
    best = minimize(oracle, np.full(5, 0.2)).value
    for _ in range(50):
        w = rng.dirichlet(np.ones(5))
        value, gradient, _ = oracle(w)
        assert value - (gradient @ w - gradient.min()) <= best + 1e-12


def test_vertices_are_reached_exactly():
    p = np.column_stack([np.full(50, 0.9), np.linspace(0.1, 0.5, 50), np.linspace(0.2, 0.6, 50)])
    found = minimize(mixture_oracle(p), np.full(3, 1 / 3))
    assert found.weights.tolist() == [1.0, 0.0, 0.0]
    assert found.gap == 0.0


def test_identical_members_do_not_matter():
    p = np.random.default_rng(0).random((100, 2)) + 0.01
    twice = minimize(mixture_oracle(np.column_stack([p, p[:, 0]])), np.full(3, 1 / 3))
    once = minimize(mixture_oracle(p), np.full(2, 1 / 2))
    assert twice.converged
    assert twice.value == pytest.approx(once.value, abs=1e-11)


def test_starts_outside_the_domain_are_left_behind():
    p = np.array([[0.0, 0.5], [0.3, 0.2]])
    with np.errstate(divide="ignore", invalid="ignore"):
        found = minimize(mixture_oracle(p), np.array([1.0, 0.0]))
    assert np.isfinite(found.value)


def test_saddle_points_are_left_in_a_non_convex_problem():
    target = np.array([[-2.0, 0.0], [0.0, -1.0]])

    def oracle(w):
        return float(w @ target @ w), 2 * target @ w, 2 * target

    found = minimize(oracle, np.array([0.4, 0.6]))
    assert found.weights.tolist() in ([1.0, 0.0], [0.0, 1.0])


@pytest.mark.parametrize("seed", range(10))
def test_a_quadratic_programme_against_enumeration_takes_one_step(seed):
    rng = np.random.default_rng(seed)
    a = rng.normal(size=(6, 4))
    h, c = a.T @ a + 1e-3 * np.eye(4), rng.normal(size=4)
    grid = rng.dirichlet(np.full(4, 0.5), 200_000)
    found = minimize(lambda v: (0.5 * v @ h @ v + c @ v, h @ v + c, h), np.full(4, 0.25))
    values = 0.5 * np.einsum("ij,jk,ik->i", grid, h, grid) + grid @ c
    assert found.value <= values.min() + 1e-12
    assert found.gap <= 1e-10
    assert found.n_iter == 1
