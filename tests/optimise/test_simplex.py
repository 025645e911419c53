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


def test_a_kink_ends_the_search_soon():
    best, calls = np.array([0.3, 0.3, 0.4]), {"oracle": 0, "value": 0}

    def value(w):
        calls["value"] += 1
        return 1 + abs(w[0] - 0.3) + ((w - best) ** 2).sum()

    def oracle(w):
        calls["oracle"] += 1
        slope = 2 * (w - best) + np.array([np.sign(w[0] - 0.3), 0, 0])
        return 1 + abs(w[0] - 0.3) + ((w - best) ** 2).sum(), slope, 2 * np.eye(3)

    found = minimize(oracle, np.array([0.8, 0.1, 0.1]), tol=1e-8, value_at=value)
    assert found.value <= 1 + 1e-7
    assert calls["oracle"] <= 2 * found.n_iter + 3  # a full step each, and what a shorter one ends with
    assert sum(calls.values()) < 250  # halving down to nothing takes twice as many


def test_small_slopes_are_not_lost_to_the_sum_of_weights():
    rng = np.random.default_rng(2)  # all slopes are near -1: of the last Newton step nothing else was left
    size = int(rng.integers(2, 9))
    oracle, calls = mixture_oracle(rng.random((300, size)) ** rng.uniform(0.5, 6) + 1e-9), []
    found = minimize(lambda w: calls.append(w) or oracle(w), np.full(size, 1 / size), tol=1e-12)
    assert found.converged
    assert len(calls) == found.n_iter + 1  # no step was shortened


@pytest.mark.parametrize("seed", [0, 2, 3])
def test_small_slopes_are_not_lost_to_a_weight_that_stays_zero(seed):
    pulls, far = np.append(np.random.default_rng(seed).uniform(0.5, 2, 4), 0.0), 1e3

    def oracle(w):
        gradient = -pulls / (w + 0.1) + far * (pulls == 0)
        return far * w[-1] - pulls @ np.log(w + 0.1), gradient, np.diag(pulls / (w + 0.1) ** 2)

    found = minimize(oracle, np.full(5, 0.2))
    assert found.weights[-1] == 0
    assert found.converged
