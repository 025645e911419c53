"""The likelihood on the line against SciPy and automatic differentiation, for every kind of row and term."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats

from deeptram import latent as latents
from deeptram.bases import Bernstein, Cutpoints, Linear, LogLinear
from deeptram.fitting.exact.columns import StructuredData
from deeptram.fitting.exact.problem import ExactProblem
from deeptram.responses import Observations
from derivatives import check_derivatives

LATENTS = ["logistic", "normal", "minimum-extreme-value", "maximum-extreme-value"]
SCIPY = {
    "logistic": stats.logistic,
    "normal": stats.norm,
    "minimum-extreme-value": stats.gumbel_l,
    "maximum-extreme-value": stats.gumbel_r,
}
BASES = {
    "bernstein": Bernstein(3, (0.2, 6.0)),
    "bernstein-log": Bernstein(3, (0.2, 6.0), log_first=True),
    "linear": Linear(),
    "log-linear": LogLinear(),
    "exponential": LogLinear(1.0),
}
N = 40


def observations(kind: str) -> Observations:
    rng = np.random.default_rng(4)
    low = rng.uniform(0.3, 4.0, size=N)
    high = low + rng.uniform(0.1, 2.0, size=N)
    ends = {
        "exact": (low, low),
        "right": (low, np.where(np.arange(N) % 3, low, np.inf)),
        "left": (np.where(np.arange(N) % 3, low, -np.inf), low),
        "interval": (low, high),
        "mixed": (
            np.where(np.arange(N) % 4 == 1, -np.inf, low),
            np.select([np.arange(N) % 4 == 0], [low], high),
        ),
        "truncated": (low, np.where(np.arange(N) % 3, low, np.inf)),
    }
    lower, upper = ends[kind]
    if kind == "mixed":
        upper = np.where(np.arange(N) % 4 == 2, np.inf, upper)
    entry = np.where(np.arange(N) % 2, 0.5 * low, -np.inf) if kind == "truncated" else None
    return Observations(lower, upper, entry)


def problem(
    kind="exact",
    basis="bernstein",
    latent="logistic",
    scale=False,
    varying=False,
    strata=1,
    weighted=False,
    p=2,
):
    rng = np.random.default_rng(5)
    data = StructuredData(
        latent=latents.get(latent),
        basis=BASES[basis],
        x=rng.normal(size=(N, p)),
        observations=observations(kind),
        weights=rng.uniform(0.2, 2.0, size=N) if weighted else None,
        strata=np.arange(N) % strata if strata > 1 else None,
        n_strata=strata,
        varying=rng.uniform(size=(N, 2)) if varying else None,
        scale=rng.normal(size=(N, 2)) if scale else None,
    )
    return ExactProblem(data)


def inner_point(made: ExactProblem) -> np.ndarray:
    """A feasible point away from the start: increasing baselines, all other parameters non-zero."""
    rng = np.random.default_rng(6)
    return made.start * 1.3 + 0.02 * rng.normal(size=len(made.start))


@pytest.mark.parametrize("latent", LATENTS)
@pytest.mark.parametrize("kind", ["exact", "right", "left", "interval", "mixed", "truncated"])
def test_derivatives_for_every_kind_of_row(kind, latent):
    made = problem(kind, latent=latent, weighted=True)
    check_derivatives(made.objective, inner_point(made), made.data.weights)


@pytest.mark.parametrize("basis", list(BASES))
@pytest.mark.parametrize("kind", ["mixed", "truncated"])
def test_derivatives_for_every_basis(basis, kind):
    made = problem(kind, basis=basis)
    check_derivatives(made.objective, inner_point(made))


@pytest.mark.parametrize("kind", ["exact", "mixed", "truncated"])
@pytest.mark.parametrize(
    "terms",
    [
        {"scale": True},
        {"varying": True},
        {"strata": 3},
        {"strata": 2, "varying": True},
        {"scale": True, "strata": 2, "weighted": True},
        {"scale": True, "varying": True, "weighted": True},
        {"scale": True, "basis": "exponential"},
        {"p": 0},
    ],
    ids=str,
)
def test_derivatives_for_every_term(terms, kind):
    made = problem(kind, **terms)
    check_derivatives(made.objective, inner_point(made), made.data.weights)


@pytest.mark.parametrize("scale", [False, True])
@pytest.mark.parametrize("kind", ["exact", "mixed", "truncated"])
def test_derivatives_with_one_coefficient_held_fixed(kind, scale):
    made = problem(kind, scale=scale, weighted=True)
    fixed = made.with_fixed(1, 0.4)
    n_theta = made.data.basis.n_coef
    point = np.delete(inner_point(made), n_theta + 1)
    check_derivatives(fixed, point, made.data.weights)
    whole = np.insert(point, n_theta + 1, 0.4 * made.columns.sd[1])
    np.testing.assert_allclose(
        fixed.value(torch.from_numpy(point)), made.objective.value(torch.from_numpy(whole)), rtol=1e-12
    )


@pytest.mark.parametrize("latent", LATENTS)
@pytest.mark.parametrize("kind", ["mixed", "truncated"])
def test_rows_equal_scipy(kind, latent):
    """log f(h) + log h', log(F(h_u) - F(h_l)), minus log(1 - F(h_entry)), in the user's parameters."""
    made = problem(kind, latent=latent, scale=True)
    point = inner_point(made)
    rows = made.objective.rows(torch.from_numpy(point)).numpy()
    user = made.back @ point
    data, basis, law = made.data, made.data.basis, SCIPY[latent]
    theta, beta, gamma = user[: basis.n_coef], user[basis.n_coef : -2], user[-2:]
    stretch = np.exp(data.scale @ gamma / 2)

    def z(y):
        inside = np.where(np.isfinite(y), y, 1.0)
        return np.where(np.isfinite(y), stretch * (basis.evaluate(inside) @ theta) - data.x @ beta, y)

    seen = data.observations
    exact = seen.exact
    inside = np.where(exact, seen.lower, 1.0)
    density = law.logpdf(z(inside)) + np.log(stretch * (basis.derivative(inside) @ theta))
    with np.errstate(divide="ignore"):
        interval = np.log(law.cdf(z(seen.upper)) - law.cdf(z(seen.lower)))
    expected = np.where(exact, density, interval)
    if seen.entry is not None:
        expected = expected - law.logsf(z(seen.entry))
    np.testing.assert_allclose(rows, expected, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("latent", LATENTS)
@pytest.mark.parametrize(
    "terms", [{"scale": True}, {"varying": True}, {"scale": True, "varying": True}], ids=str
)
def test_derivatives_of_classes_with_scale_and_varying_terms(latent, terms):
    rng = np.random.default_rng(7)
    data = StructuredData(
        latent=latents.get(latent),
        basis=Cutpoints(4),
        x=rng.normal(size=(N, 1)),
        codes=rng.integers(0, 4, size=N),
        n_classes=4,
        weights=rng.uniform(0.2, 2.0, size=N),
        varying=rng.uniform(size=(N, 2)) if "varying" in terms else None,
        scale=rng.normal(size=(N, 1)) if "scale" in terms else None,
    )
    made = ExactProblem(data)
    check_derivatives(made.objective, inner_point(made), data.weights)


def test_is_convex_only_without_scale_and_truncation():
    assert problem("mixed").objective.is_convex
    assert not problem("truncated").objective.is_convex
    assert not problem("exact", scale=True).objective.is_convex


@pytest.mark.parametrize("kind", ["exact", "interval"])
def test_decreasing_baselines_are_outside_the_domain(kind):
    made = problem(kind)
    turned = -made.start
    assert made.objective.value(torch.from_numpy(turned)) == np.inf
    assert made.objective.evaluate(torch.from_numpy(turned))[0] == np.inf


def test_a_row_known_only_to_be_a_number_contributes_nothing():
    rng = np.random.default_rng(8)
    base = observations("right")
    open_ended = Observations(np.append(base.lower, -np.inf), np.append(base.upper, np.inf))
    x = rng.normal(size=(N + 1, 2))
    made = ExactProblem(StructuredData(latents.get("logistic"), BASES["linear"], x, open_ended))
    rows = made.objective.rows(torch.from_numpy(made.start))
    assert rows[-1] == 0.0
    assert torch.isfinite(rows).all()


def test_interval_starting_at_zero_is_left_censored_for_a_basis_in_log_y():
    x = np.zeros((3, 0))
    ends = Observations(np.array([0.0, 1.0, 2.0]), np.array([2.0, 3.0, 2.0]))
    left = Observations(np.array([-np.inf, 1.0, 2.0]), ends.upper)
    values = []
    for seen in (ends, left):
        made = ExactProblem(StructuredData(latents.get("normal"), LogLinear(), x, seen))
        values.append(made.objective.value(torch.tensor([0.1, 1.2], dtype=torch.float64)))
    assert values[0] == values[1]
    assert np.isfinite(values[0])
