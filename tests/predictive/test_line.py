"""Every distribution on the line keeps the laws of probability, whoever made it."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats as st
import torch
from hypothesis import given, settings
from hypothesis import strategies as hs
from torch import distributions as td

from deeptram import latent as latents
from deeptram.bases import Bernstein, Linear, LogLinear
from deeptram.errors import InvalidInputError, InvalidTypeError, UnsupportedError
from deeptram.predictive import LinePredictive, Predictive, TransformationPredictive
from deeptram.responses import Observations, Surv

N = 4
SHIFT = np.array([-1.3, 0.0, 0.4, 2.0])
NODES, WEIGHTS = np.polynomial.legendre.leggauss(10)
SCALE = np.array([0.3, -0.5, 0.0, 0.1])


def increasing(d, seed=0):
    rng = np.random.default_rng(seed)
    return np.cumsum(np.column_stack([np.full(N, -4.0), rng.uniform(0.1, 2.5, (N, d - 1))]), axis=1)


def transformation(basis, latent, shared=False, scale=False):
    theta = (
        increasing(basis.n_coef) if basis.n_coef > 2 else np.tile([[-0.5, 0.8]], (N, 1))[:, : basis.n_coef]
    )
    return TransformationPredictive(
        basis, latent, theta[:1] if shared else theta, SHIFT, SCALE if scale else None
    )


def double(*values):
    return (torch.tensor(v, dtype=torch.float64) for v in values)


def mixture():
    weights, centres, widths = double(
        np.full((N, 2), 0.5), np.tile([[-1.0, 2.0]], (N, 1)), np.full((N, 2), 0.7)
    )
    return td.MixtureSameFamily(td.Categorical(weights), td.Normal(centres, widths))


def numpy_samples():
    return Predictive.from_samples(np.random.default_rng(3).normal(size=(N, 50)))


LINES = {
    **{f"linear {name}": (transformation, Linear(), name) for name in latents.names()},
    **{f"bernstein {name}": (transformation, Bernstein(6, (-2.0, 5.0)), name) for name in latents.names()},
    "bernstein shared": (transformation, Bernstein(6, (-2.0, 5.0)), "logistic", True),
    "bernstein scale": (transformation, Bernstein(3, (-2.0, 5.0)), "normal", True, True),
    "bernstein log": (transformation, Bernstein(5, (0.5, 6.0), log_first=True), "minimum-extreme-value"),
    "log-linear": (transformation, LogLinear(), "normal"),
    "log-linear fixed slope": (transformation, LogLinear(fixed_slope=2.0), "minimum-extreme-value"),
    "scipy t": (lambda: Predictive.from_scipy(st.t([3.0, 4.0, 9.0, 30.0], SHIFT)),),
    "scipy gamma": (lambda: Predictive.from_scipy(st.gamma([1.5, 2.0, 3.0, 7.0])),),
    "scipy beta": (lambda: Predictive.from_scipy(st.beta([1.5, 2.0, 3.0, 7.0], 2.5)),),
    "torch normal": (lambda: Predictive.from_torch(td.Normal(*double(SHIFT, np.exp(SCALE)))),),
    "torch lognormal": (lambda: Predictive.from_torch(td.LogNormal(*double(SHIFT, np.exp(SCALE)))),),
    "torch gamma": (lambda: Predictive.from_torch(td.Gamma(*double([1.5, 2.0, 3.0, 7.0], np.exp(SCALE)))),),
    "torch mixture": (lambda: Predictive.from_torch(mixture()),),
    "quantiles": (
        lambda: Predictive.from_quantiles(
            [0.1, 0.4, 0.5, 0.8], np.cumsum(np.random.default_rng(1).uniform(0.2, 2.0, (N, 4)), axis=1)
        ),
    ),
}
EXACT = pytest.mark.parametrize("name", LINES)


def build(name) -> LinePredictive:
    make, *arguments = LINES[name]
    return make(*arguments)


def as_array(value):
    return value.detach().numpy() if isinstance(value, torch.Tensor) else value


def central_points(pred, seed):
    """One point per row, away from the far tails."""
    levels = np.random.default_rng(seed).uniform(0.02, 0.98, N)
    return as_array(pred.quantile_t(torch.tensor(levels)[:, None]))[:, 0], levels


@EXACT
@settings(max_examples=6)
@given(a=hs.floats(-30, 30), b=hs.floats(-30, 30))
def test_cdf_is_monotone_and_within_bounds(name, a, b):
    pred = build(name)
    low, high = as_array(pred.cdf(min(a, b))), as_array(pred.cdf(max(a, b)))
    assert (low <= high).all()
    assert ((low >= 0) & (high <= 1)).all()
    np.testing.assert_allclose(low + as_array(pred.sf(min(a, b))), 1.0, rtol=1e-12)


@EXACT
def test_infinity(name):
    pred = build(name)
    assert (as_array(pred.cdf(np.inf)) == 1).all()
    assert (as_array(pred.sf(-np.inf)) == 1).all()
    assert (as_array(pred.cdf(-np.inf)) == 0).all()
    assert (as_array(pred.pdf(np.inf)) == 0).all()


@EXACT
@settings(max_examples=6)
@given(seed=hs.integers(0, 10**6))
def test_quantile_inverts_cdf(name, seed):
    pred = build(name)
    y, levels = central_points(pred, seed)
    np.testing.assert_allclose(as_array(pred.cdf(y)), levels, rtol=0, atol=1e-10)
    back = as_array(pred.quantile_t(torch.tensor(as_array(pred.cdf(y)))[:, None]))[:, 0]
    np.testing.assert_allclose(back, y, rtol=1e-8, atol=1e-9)


@EXACT
@pytest.mark.parametrize("q", [1e-12, 1 - 1e-9])
def test_generic_solver_agrees_with_closed_forms(name, q):
    pred = build(name)
    generic = as_array(LinePredictive.quantile_t(pred, torch.tensor([[q]], dtype=torch.float64)))
    np.testing.assert_allclose(generic[:, 0], as_array(pred.quantile(q)), rtol=1e-6, atol=1e-9)
    assert np.abs(as_array(pred.cdf(generic[:, 0])) - q).max() < 1e-10


@EXACT
def test_quantiles_of_zero_and_one_are_the_ends(name):
    pred = build(name)
    low, high = (as_array(end)[:, 0] for end in pred.support_t())
    got = as_array(pred.quantile([0.0, 1.0]))
    np.testing.assert_array_equal(got[:, 0], np.broadcast_to(low, (N,)))
    np.testing.assert_array_equal(got[:, 1], np.broadcast_to(high, (N,)))


@EXACT
@settings(max_examples=6)
@given(seed=hs.integers(0, 10**6))
def test_pdf_is_the_derivative_of_cdf(name, seed):
    pred = build(name)
    y, _ = central_points(pred, seed)
    knots = pred.knots_t()
    if knots is not None:  # one-sided limits differ at a knot
        y = y + 1e-3 * (np.abs(y[:, None] - as_array(knots.expand(N, -1))) < 1e-4).any(axis=1)
    step = 1e-5
    slope = (as_array(pred.cdf(y + step)) - as_array(pred.cdf(y - step))) / (2 * step)
    np.testing.assert_allclose(as_array(pred.pdf(y)), slope, rtol=2e-6, atol=1e-9)
    np.testing.assert_allclose(
        as_array(pred.log_prob(y)), np.log(as_array(pred.pdf(y))), rtol=1e-12, atol=1e-12
    )


@EXACT
@pytest.mark.parametrize("latent", latents.names())
def test_trafo_and_slope_on_every_scale(name, latent):
    pred, scale = build(name), latents.get(latent)
    y = torch.tensor(central_points(pred, 5)[0])[:, None]
    h = as_array(pred.trafo_t(y, scale))
    np.testing.assert_allclose(h, scale.icdf(as_array(pred.cdf(y[:, 0])))[:, None], rtol=1e-9, atol=1e-9)
    step = 1e-6
    slope = as_array(pred.trafo_t(y + step, scale) - pred.trafo_t(y - step, scale)) / (2 * step)
    np.testing.assert_allclose(np.exp(as_array(pred.log_slope_t(y, scale))), slope, rtol=1e-5)


@EXACT
def test_censored_and_truncated_contributions(name):
    pred = build(name)
    points = np.sort(np.stack([central_points(pred, seed)[0] for seed in (1, 2, 3)]), axis=0)
    entry, lower, upper = points
    cdf = [as_array(pred.cdf(p)) for p in points]
    infinity = np.full(N, np.inf)
    cases = {
        "exact": (Observations(lower, lower), np.log(as_array(pred.pdf(lower)))),
        "right": (Observations(lower, infinity), np.log(1 - cdf[1])),
        "left": (Observations(-infinity, upper), np.log(cdf[2])),
        "interval": (Observations(lower, upper), np.log(cdf[2] - cdf[1])),
        "nothing": (Observations(-infinity, infinity), np.zeros(N)),
        "truncated": (Observations(lower, upper, entry), np.log((cdf[2] - cdf[1]) / (1 - cdf[0]))),
        "not truncated": (Observations(lower, upper, -infinity), np.log(cdf[2] - cdf[1])),
    }
    for label, (seen, expected) in cases.items():
        np.testing.assert_allclose(
            as_array(pred.log_prob(seen)), expected, rtol=1e-8, atol=1e-12, err_msg=label
        )
    mixed = Observations(lower, np.where(np.arange(N) % 2 == 0, lower, upper))
    expected = np.where(np.arange(N) % 2 == 0, cases["exact"][1], cases["interval"][1])
    np.testing.assert_allclose(as_array(pred.log_prob(mixed)), expected, rtol=1e-8)


def test_surv_is_understood():
    pred = build("log-linear")
    y = Surv.right([1.0, 2.0, 3.0, 4.0], [1, 0, 1, 0], entry=[0.5, 0.1, 1.0, 2.0])
    np.testing.assert_array_equal(pred.log_prob(y), pred.log_prob(y.observations))


@EXACT
def test_hazards(name):
    pred = build(name)
    y, _ = central_points(pred, 9)
    pdf, sf = as_array(pred.pdf(y)), as_array(pred.sf(y))
    np.testing.assert_allclose(as_array(pred.hazard(y)), pdf / sf, rtol=1e-9)
    np.testing.assert_allclose(as_array(pred.cumhazard(y)), -np.log(sf), rtol=1e-9)
    np.testing.assert_array_equal(as_array(pred.survivor(y)), sf)


@EXACT
def test_crps_against_brute_force(name):
    pred = build(name)
    y, _ = central_points(pred, 11)
    got = as_array(pred.crps(y))
    levels = np.concatenate([np.geomspace(1e-14, 0.02, 80), np.linspace(0.03, 0.5, 60)])
    levels = torch.tensor(np.concatenate([levels, 1 - levels[-2::-1]]))
    edges = np.column_stack([as_array(pred.quantile_t(levels)), y])
    if pred.knots_t() is not None:
        edges = np.column_stack([edges, as_array(pred.knots_t().expand(N, -1))])
    edges.sort(axis=1)
    half = np.diff(edges, axis=1)[:, :, None] / 2
    t = (edges[:, :-1, None] + half * (1 + NODES[:, None].T)).reshape(N, -1)
    log_cdf, log_sf = (as_array(x) for x in pred.log_tails_t(torch.tensor(t)))
    value = np.exp(2 * np.where(t < y[:, None], log_cdf, log_sf)).reshape(N, -1, len(NODES))
    np.testing.assert_allclose(got, (value * WEIGHTS * half).sum(axis=(1, 2)), rtol=1e-8)


@EXACT
def test_mean_against_quadrature_of_quantiles(name):
    pred = build(name)
    nodes, weights = np.polynomial.legendre.leggauss(200)
    quantiles = as_array(pred.quantile((nodes + 1) / 2))
    np.testing.assert_allclose(as_array(pred.mean()), quantiles @ weights / 2, rtol=5e-3, atol=5e-3)
    np.testing.assert_allclose(
        as_array(pred.mean()), as_array(LinePredictive.mean_t(pred)), rtol=1e-7, atol=1e-9
    )


@EXACT
def test_no_point_is_denser_than_the_mode(name):
    pred = build(name)
    top = as_array(pred.log_prob(as_array(pred.mode())))
    grid = as_array(pred.quantile(np.linspace(0.001, 0.999, 1999)))
    height = as_array(pred.log_pdf_t(torch.tensor(grid)))
    assert (height.max(axis=1) <= top + 1e-6).all()


@EXACT
def test_samples_follow_the_distribution(name):
    pred = build(name)
    draws = as_array(pred.sample(2000, random_state=1))
    assert draws.shape == (N, 2000)
    for row in range(N):
        uniform = as_array(pred[[row]].log_cdf_t(torch.tensor(draws[row])[None, :]))[0]
        assert st.kstest(np.exp(uniform), "uniform").pvalue > 1e-3
    np.testing.assert_array_equal(draws, as_array(pred.sample(2000, random_state=1)))
    generator = torch.Generator().manual_seed(4)
    assert as_array(pred.sample(3, random_state=generator)).shape == (N, 3)


@EXACT
@pytest.mark.parametrize(
    "rows", [slice(1, 3), [2, 0, 2, 2], np.array([True, False, True, False]), -1], ids=str
)
def test_slicing(name, rows):
    pred = build(name)
    part, index = pred[rows], np.atleast_1d(np.arange(N)[rows])
    assert len(part) == len(index)
    y, _ = central_points(pred, 2)
    costly = () if isinstance(rows, slice) else ("crps",)
    for method in ("cdf", "sf", "pdf", "log_prob", "trafo", "hazard", *costly):
        np.testing.assert_allclose(
            as_array(getattr(part, method)(y[index])), as_array(getattr(pred, method)(y))[index], rtol=1e-9
        )
    np.testing.assert_allclose(
        as_array(part.quantile([0.2, 0.7])), as_array(pred.quantile([0.2, 0.7]))[index]
    )
    np.testing.assert_allclose(as_array(part[[0]].cdf(1.0)), as_array(pred.cdf(1.0))[index[:1]], rtol=1e-12)


@EXACT
def test_grids_are_columns_of_single_values(name):
    pred = build(name)
    grid = [0.3, 0.5, 2.0]
    for many, single in (
        ("cdf_grid", "cdf"),
        ("sf_grid", "sf"),
        ("pdf_grid", "pdf"),
        ("trafo_grid", "trafo"),
        ("hazard_grid", "hazard"),
    ):
        got = as_array(getattr(pred, many)(grid))
        expected = np.stack([as_array(getattr(pred, single)(g)) for g in grid], axis=1)
        np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-300, err_msg=many)


@EXACT
def test_median_and_interval(name):
    pred = build(name)
    np.testing.assert_array_equal(as_array(pred.median()), as_array(pred.quantile(0.5)))
    lower, upper = pred.interval(0.9)
    np.testing.assert_allclose(
        as_array(pred.cdf(as_array(upper)) - pred.cdf(as_array(lower))), 0.9, atol=1e-9
    )


@EXACT
def test_answers_in_kind(name):
    pred = build(name)
    kind = torch.Tensor if name.startswith("torch") else np.ndarray
    for value in (
        pred.cdf(0.5),
        pred.quantile(0.3),
        pred.mean(),
        pred.mode(),
        pred.crps(1.0),
        pred.sample(2, 0),
    ):
        assert isinstance(value, kind)


def test_inputs_are_not_changed():
    theta, shift, y = increasing(7), SHIFT.copy(), np.array([0.1, 0.2, 0.3, 0.4])
    before = [a.copy() for a in (theta, shift, y)]
    pred = TransformationPredictive(Bernstein(6, (-2.0, 5.0)), "logistic", theta, shift)
    pred.cdf(y), pred.quantile(0.2), pred.crps(y), pred.mean(), pred.mode()
    for now, then in zip((theta, shift, y), before, strict=True):
        np.testing.assert_array_equal(now, then)


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (
            lambda p: p.cdf(),
            InvalidInputError,
            r"y must be a number or one value per row .* got None; pass y, or",
        ),
        (
            lambda p: p.cdf([1.0, 2.0]),
            InvalidInputError,
            r"shape \(4,\), got shape \(2,\); for a common grid use",
        ),
        (
            lambda p: p.cdf(np.array([1, np.nan, 2, 3])),
            InvalidInputError,
            r"y must not be missing, got NaN in row 1",
        ),
        (lambda p: p.hazard([1.0]), InvalidInputError, r"t must be a number or one value per row"),
        (
            lambda p: p.cdf("a"),
            InvalidTypeError,
            r"y must hold numbers that a float can hold, got str; convert it",
        ),
        (
            lambda p: p.cdf_grid([[1.0]]),
            InvalidInputError,
            r"grid must be a vector of numbers without NaN, got shape",
        ),
        (
            lambda p: p.quantile(1.5),
            InvalidInputError,
            r"q must be a number or a vector of numbers between 0 and 1",
        ),
        (lambda p: p.quantile(np.nan), InvalidInputError, r"between 0 and 1, got nan; pass probabilities"),
        (
            lambda p: p.interval(95),
            InvalidInputError,
            r"level must be a number strictly between 0 and 1, got 95",
        ),
        (
            lambda p: p.pmf(),
            UnsupportedError,
            r"pmf is for discrete outcomes and counts, got a .*; use pdf\(y\)",
        ),
        (
            lambda p: p.log_prob(Observations(np.zeros(2), np.ones(2))),
            InvalidInputError,
            r"y must have one value per row, got 2 for 4 rows; pass the outcomes",
        ),
        (
            lambda p: p.crps(Surv.right([1.0, 2.0, 3.0, 4.0], [1, 0, 1, 0])),
            UnsupportedError,
            r"the CRPS needs exact outcomes, got censored ones in rows 1, 3; use log_prob",
        ),
    ],
)
def test_messages(call, error, match):
    with pytest.raises(error, match=match):
        call(build("linear normal"))


def test_crps_of_exact_observations():
    pred = build("linear normal")
    y = np.array([0.5, 1.0, 2.0, 3.0])
    np.testing.assert_array_equal(pred.crps(Surv.right(y, [1, 1, 1, 1])), pred.crps(y))
    assert np.isinf(build("bernstein normal").crps(np.inf)).all()
