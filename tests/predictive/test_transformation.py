"""The distributions of transformation models: accuracy, tails, gradients, shared coefficients."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
import scipy.stats as st
import torch
from hypothesis import given
from hypothesis import strategies as hs

from deeptram import latent as latents
from deeptram.bases import Bernstein, Linear, LogLinear
from deeptram.errors import ExtrapolationWarning, InvalidInputError, UnsupportedError
from deeptram.predictive import TransformationPredictive, functionals
from deeptram.responses import Observations

SCIPY = {
    "normal": st.norm,
    "logistic": st.logistic,
    "minimum-extreme-value": st.gumbel_l,
    "maximum-extreme-value": st.gumbel_r,
}
BASIS = Bernstein(4, (0.0, 10.0))
FLAT = np.array([[-2.0, -2.0, 0.0, 1.0, 1.0]])  # both tails flat


def line(latent, theta=((0.0, 1.0),), **parameters):
    return TransformationPredictive(Linear(), latent, np.array(theta), **parameters)


@pytest.mark.parametrize("latent", latents.names())
@given(loc=hs.floats(-50, 50), scale=hs.floats(0.01, 100), u=hs.floats(-6, 6), log_scale=hs.floats(-1, 1))
def test_straight_lines_are_location_scale_families(latent, loc, scale, u, log_scale):
    reference = SCIPY[latent](loc, scale)
    y = loc + scale * u
    # exp(s) (theta0 + theta1 y) - shift = (y - loc) / scale
    slope = np.exp(-log_scale) / scale
    pred = line(latent, [[0.0, slope]], shift=np.array([loc / scale]), log_scale=np.array([log_scale]))
    for got, expected in (
        (pred.log_prob(y), reference.logpdf(y)),
        (pred.cdf(y), reference.cdf(y)),
        (pred.sf(y), reference.sf(y)),
        (pred.quantile(0.2), reference.ppf(0.2)),
        (pred.mean(), reference.mean()),
    ):
        np.testing.assert_allclose(got, expected, rtol=1e-8, atol=1e-9 * scale)


@pytest.mark.parametrize("latent", latents.names())
@pytest.mark.parametrize("h", [-700.0, -40.0, 40.0, 700.0])
def test_far_out_log_probabilities_are_finite_and_right(latent, h):
    pred = line(latent)
    z = mpmath.mpf(h)
    with mpmath.workdps(50):
        log_pdf = {
            "logistic": lambda: -abs(z) - 2 * mpmath.log1p(mpmath.exp(-abs(z))),
            "normal": lambda: -z * z / 2 - mpmath.log(2 * mpmath.pi) / 2,
            "minimum-extreme-value": lambda: z - mpmath.exp(z),
            "maximum-extreme-value": lambda: -z - mpmath.exp(-z),
        }[latent]()
    assert np.isfinite(pred.log_prob(h)).all()
    np.testing.assert_allclose(pred.log_prob(h), float(log_pdf), rtol=1e-13)
    interval = pred.log_prob(Observations(np.array([h]), np.array([h + 1.0])))
    assert np.isfinite(interval).all()


@pytest.mark.parametrize("latent", latents.names())
def test_hazards_are_accurate_where_the_survivor_is_zero(latent):
    z = 50.0
    pred = line(latent)
    if latent != "maximum-extreme-value" and latent != "logistic":
        assert pred.sf(z)[0] < 1e-300
    with mpmath.workdps(2000 if latent == "minimum-extreme-value" else 60):
        x = mpmath.mpf(z)
        hazard = {
            "logistic": lambda: 1 / (1 + mpmath.exp(-x)),
            "normal": lambda: mpmath.npdf(x) / (mpmath.erfc(x / mpmath.sqrt(2)) / 2),
            "minimum-extreme-value": lambda: mpmath.exp(x),
            "maximum-extreme-value": lambda: mpmath.exp(-x - mpmath.exp(-x)) / -mpmath.expm1(-mpmath.exp(-x)),
        }[latent]()
    np.testing.assert_allclose(pred.hazard(z), float(hazard), rtol=1e-12)
    assert np.isfinite(pred.cumhazard(z)).all()


def test_naive_hazard_would_fail_there():
    pred = line("minimum-extreme-value")
    with np.errstate(invalid="ignore", divide="ignore"):
        assert not np.isfinite(pred.pdf(50.0) / pred.sf(50.0)).all()


def test_flat_tails():
    pred = TransformationPredictive(BASIS, "logistic", FLAT)
    assert pred.log_prob(-3.0)[0] == -np.inf
    assert pred.log_prob(12.0)[0] == -np.inf
    assert pred.hazard(12.0)[0] == 0
    low, high = pred.cdf(-1e6)[0], pred.cdf(1e6)[0]
    np.testing.assert_allclose([low, high], latents.get("logistic").cdf([-2.0, 1.0]), rtol=1e-14)
    got = pred.quantile([low / 2, 0.3, (1 + high) / 2])[0]
    assert got[0] == -np.inf
    assert pred.cdf(got[1])[0] == pytest.approx(0.3, abs=1e-14)
    assert got[2] == np.inf
    with pytest.warns(ExtrapolationWarning, match="the CRPS is infinite in row 0"):
        assert np.isinf(pred.crps(3.0))
    with pytest.raises(UnsupportedError, match="two heavy tails has no mean"):  # mass at both infinities
        pred.mean()
    assert 0 < pred.mode()[0] < 10


def test_flat_lower_tail_in_logarithms_is_mass_at_zero():
    basis = Bernstein(3, (1.0, 4.0), log_first=True)
    pred = TransformationPredictive(basis, "normal", np.array([[-1.0, -1.0, 0.5, 2.0]]))
    assert pred.quantile(0.1)[0] == 0.0
    assert pred.cdf(1e-300)[0] == pytest.approx(st.norm.cdf(-1.0))
    draws = pred.sample(200_000, random_state=0)
    assert pred.mean()[0] == pytest.approx(draws.mean(), rel=0.02)


def test_rounding_below_zero_counts_as_flat_and_a_real_decrease_as_nan():
    noise = FLAT.copy()
    noise[0, 4] -= 2e-16
    assert TransformationPredictive(BASIS, "normal", noise).log_prob(12.0)[0] == -np.inf
    falling = np.array([[0.0, -1.0, 0.0, 1.0, 2.0]])
    assert np.isnan(TransformationPredictive(BASIS, "normal", falling).log_prob(-1.0)[0])


def test_log_bases_know_no_values_below_zero():
    pred = TransformationPredictive(LogLinear(), "logistic", np.array([[0.0, 2.0]]))
    for y in (-1.0, 0.0):
        assert pred.cdf(y)[0] == 0
        assert pred.sf(y)[0] == 1
        assert pred.log_prob(y)[0] == -np.inf
        assert pred.trafo(y)[0] == -np.inf
        assert pred.hazard(y)[0] == 0
    assert pred.log_prob(Observations(np.array([0.0]), np.array([2.0])))[0] == pytest.approx(np.log(0.8))
    crps = pred.crps(-1.0)[0]
    assert crps == pytest.approx(1 + pred.crps(0.0)[0], rel=1e-12)


@given(seed=hs.integers(0, 10**6), q=hs.floats(1e-9, 1 - 1e-9), logs=hs.booleans())
def test_quantiles_solve_to_ten_digits(seed, q, logs):
    rng = np.random.default_rng(seed)
    basis = Bernstein(6, (0.5, 4.0), log_first=logs)
    increments = rng.choice([0.0, 1e-8, 0.3, 5.0], size=(5, 6))
    increments[:, [0, 5]] = np.maximum(increments[:, [0, 5]], 1e-3)  # tails that reach every q
    theta = np.cumsum(np.column_stack([rng.normal(-3, 1, 5), increments]), axis=1)
    pred = TransformationPredictive(basis, "logistic", theta, rng.normal(size=5), rng.normal(size=5) / 2)
    y = pred.quantile(q)
    finite = np.isfinite(y) & ((y > 0) if logs else True)  # exp(x) may over- or underflow far out
    assert np.abs(pred.cdf(y) - q)[finite].max(initial=0.0) < 1e-10


def test_shared_coefficients_equal_repeated_ones(rng):
    theta = np.array([[-3.0, -1.0, 0.0, 0.5, 3.0]])
    shift, y = rng.normal(size=50), rng.normal(3, 4, size=50)
    one = TransformationPredictive(BASIS, "normal", theta, shift)
    many = TransformationPredictive(BASIS, "normal", np.repeat(theta, 50, axis=0), shift)
    assert one.theta.shape == (1, 5)
    assert one[:7].theta.data_ptr() == one.theta.data_ptr()  # nothing is copied
    for method in ("cdf", "log_prob", "trafo", "hazard", "crps"):
        np.testing.assert_allclose(getattr(one, method)(y), getattr(many, method)(y), rtol=1e-10)
    np.testing.assert_allclose(one.quantile([0.1, 0.9]), many.quantile([0.1, 0.9]), rtol=1e-10)
    np.testing.assert_allclose(one.cdf_grid([0.0, 1.0, 7.0]), many.cdf_grid([0.0, 1.0, 7.0]), rtol=1e-12)


def test_gradients_flow_and_are_right():
    theta = torch.tensor([[-3.0, -1.0, 0.0, 0.5, 3.0]], dtype=torch.float64, requires_grad=True)
    shift = torch.tensor([0.3, -0.2], dtype=torch.float64, requires_grad=True)
    log_scale = torch.tensor([0.1, 0.2], dtype=torch.float64, requires_grad=True)
    y = torch.tensor([2.0, -1.0], dtype=torch.float64)

    def predictive(theta, shift, log_scale):
        return TransformationPredictive(BASIS, "logistic", theta, shift, log_scale)

    seen = Observations(np.array([1.0, -np.inf]), np.array([4.0, 2.0]), np.array([-1.0, -np.inf]))
    functions = {
        "log_prob": lambda *p: predictive(*p).log_prob(y),
        "censored": lambda *p: predictive(*p).log_prob(seen),
        "cdf": lambda *p: predictive(*p).cdf(y),
        "quantile": lambda *p: predictive(*p).quantile(torch.tensor([0.02, 0.5, 0.97])),
        "crps": lambda *p: predictive(*p).crps(y),
        "mean": lambda *p: predictive(*p).mean(),
        "hazard": lambda *p: predictive(*p).hazard(y),
    }
    for name, function in functions.items():
        assert torch.autograd.gradcheck(function, (theta, shift, log_scale), atol=1e-6, rtol=1e-5), name


def test_gradients_do_not_become_nan_at_the_edges():
    theta = torch.tensor([[0.0, 1.0]], dtype=torch.float64, requires_grad=True)
    pred = TransformationPredictive(LogLinear(), "normal", theta)
    value = pred.quantile(torch.tensor([0.0, 0.5, 1.0]))[0, 1] + pred.log_prob(2.0)[0] + pred.cdf(-1.0)[0]
    value.backward()
    assert torch.isfinite(theta.grad).all()


def test_float32_stays_float32():
    theta = torch.tensor([[-3.0, -1.0, 0.0, 0.5, 3.0]])
    pred = TransformationPredictive(BASIS, "logistic", theta, torch.zeros(3))
    for value in (pred.cdf(1.0), pred.quantile(0.3), pred.crps(2.0), pred.mean(), pred.log_prob(2.0)):
        assert value.dtype == torch.float32
    exact = TransformationPredictive(BASIS, "logistic", theta.numpy().astype(float), np.zeros(3))
    np.testing.assert_allclose(pred.crps(2.0).numpy(), exact.crps(2.0), rtol=1e-4)
    np.testing.assert_allclose(pred.quantile(0.3).numpy(), exact.quantile(0.3), rtol=1e-4)


@pytest.mark.parametrize("latent", ["normal", "logistic"])
def test_closed_form_crps_equals_quadrature(latent, rng):
    pred = line(latent, [[0.3, 0.7]], shift=rng.normal(size=20), log_scale=rng.normal(size=20))
    y = torch.tensor(rng.normal(0, 20, size=(20, 1)))
    np.testing.assert_allclose(pred.crps(y[:, 0].numpy()), functionals.crps(pred, y).numpy(), rtol=1e-9)


def test_one_row_without_shift():
    pred = TransformationPredictive(Linear(), "normal", np.array([[0.0, 1.0], [0.0, 2.0]]))
    assert len(pred) == 2
    assert (
        len(TransformationPredictive(Linear(), "normal", np.array([[0.0, 1.0]]), log_scale=np.zeros(3))) == 3
    )


@pytest.mark.parametrize(
    ("parameters", "match"),
    [
        (
            {"theta": np.zeros((2, 4)), "shift": np.zeros(2)},
            r"theta must have shape \(2, 5\) or \(1, 5\) .*got \(2, 4\)",
        ),
        (
            {"theta": np.zeros((3, 5)), "shift": np.zeros(2)},
            r"theta must have shape .*got \(3, 5\); pass one row",
        ),
        ({"theta": np.zeros(5), "shift": np.zeros(2)}, r"theta must have shape .*got \(5,\)"),
        (
            {"theta": np.zeros((1, 5)), "shift": np.zeros(2), "log_scale": np.zeros(3)},
            r"log_scale must have one value per row, shape \(2,\), got \(3,\)",
        ),
    ],
)
def test_messages(parameters, match):
    with pytest.raises(InvalidInputError, match=match):
        TransformationPredictive(BASIS, "normal", **parameters)
