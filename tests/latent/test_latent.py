"""Latent distributions against mpmath, autograd and their own definitions."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from deeptram import latent
from deeptram.errors import UnknownNameError

mpmath.mp.dps = 60
ALL = pytest.mark.parametrize("name", latent.names())

EXACT_CDF = {
    "logistic": lambda z: 1 / (1 + mpmath.exp(-z)),
    "normal": lambda z: mpmath.erfc(-z / mpmath.sqrt(2)) / 2,
    "minimum-extreme-value": lambda z: -mpmath.expm1(-mpmath.exp(z)),
    "maximum-extreme-value": lambda z: mpmath.exp(-mpmath.exp(-z)),
}
EXACT_PDF = {
    "logistic": lambda z: mpmath.exp(-z) / (1 + mpmath.exp(-z)) ** 2,
    "normal": lambda z: mpmath.exp(-z * z / 2) / mpmath.sqrt(2 * mpmath.pi),
    "minimum-extreme-value": lambda z: mpmath.exp(z - mpmath.exp(z)),
    "maximum-extreme-value": lambda z: mpmath.exp(-z - mpmath.exp(-z)),
}
GRID = [-1e3, -700.0, -50.0, -8.0, -1.3, -1e-3, 0.0, 0.4, 2.0, 6.0, 36.0, 40.0, 650.0, 1e3]


def exact_log_sf(name: str, z: float) -> float:
    """The survivor function from the mirrored definition, so nothing cancels."""
    low, high = "minimum-extreme-value", "maximum-extreme-value"
    mirror = {low: high, high: low}
    return to_float(mpmath.log(EXACT_CDF[mirror.get(name, name)](-mpmath.mpf(z))))


def to_float(x: mpmath.mpf) -> float:
    """mpmath value as float; beyond the range it is infinite."""
    return float(x)


def close(ours: np.ndarray, theirs: list[float], rtol: float) -> None:
    np.testing.assert_allclose(ours, np.array(theirs), rtol=rtol, atol=1e-300)


@ALL
def test_log_functions_equal_mpmath_from_minus_to_plus_one_thousand(name: str) -> None:
    one, z = latent.get(name), np.array(GRID)
    with mpmath.workdps(500):
        log_cdf = [to_float(mpmath.log(EXACT_CDF[name](mpmath.mpf(v)))) for v in GRID]
        log_sf = [exact_log_sf(name, v) for v in GRID]
        log_pdf = [to_float(mpmath.log(EXACT_PDF[name](mpmath.mpf(v)))) for v in GRID]
    close(one.log_cdf(z), log_cdf, 1e-12)
    close(one.log_sf(z), log_sf, 1e-12)
    close(one.log_pdf(z), log_pdf, 1e-12)
    close(one.cdf(z), [to_float(EXACT_CDF[name](mpmath.mpf(v))) for v in GRID], 1e-12)


INTERVALS = [
    (-1e3, -999.0),
    (-40.0, -39.5),
    (-3.0, 2.0),
    (0.1, 0.1 + 1e-6),
    (5.0, 5.05),
    (36.0, 37.0),
    (-8.0, 9.0),
    (700.0, 700.5),
]


@ALL
def test_log_interval_equals_mpmath(name: str) -> None:
    one = latent.get(name)
    with mpmath.workdps(1200):
        for lo, hi in INTERVALS:
            mass = EXACT_CDF[name](mpmath.mpf(hi)) - EXACT_CDF[name](mpmath.mpf(lo))
            if mass <= 0:  # the double exponential is beyond 1200 digits as well
                continue
            exact = to_float(mpmath.log(mass))
            if not np.isfinite(exact):
                continue
            assert one.log_interval(lo, hi) == pytest.approx(exact, rel=1e-9), (lo, hi)


def test_logistic_log_interval_is_finite_up_to_one_thousand() -> None:
    lo = np.array([-1e3, 999.0, -1e3])
    hi = np.array([-999.0, 1e3, 1e3])
    tail = -999 + np.log1p(-np.exp(-1))
    np.testing.assert_allclose(latent.get("logistic").log_interval(lo, hi), [tail, tail, 0])


@ALL
def test_log_interval_with_infinite_ends(name: str) -> None:
    one = latent.get(name)
    z = np.array([-3.0, 0.2, 2.5])
    np.testing.assert_array_equal(one.log_interval(np.full(3, -np.inf), z), one.log_cdf(z))
    np.testing.assert_array_equal(one.log_interval(z, np.full(3, np.inf)), one.log_sf(z))
    assert one.log_interval(-np.inf, np.inf) == 0.0


@ALL
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gradients_are_finite_in_saturation(name: str, dtype: torch.dtype) -> None:
    one = latent.get(name)
    bound = 80.0 if "extreme" in name else 900.0
    z = torch.linspace(-bound, bound, 181, dtype=dtype, requires_grad=True)
    for method in (one.log_cdf, one.log_sf, one.log_pdf):
        value = method(z)
        (gradient,) = torch.autograd.grad(value.sum(), z)
        assert torch.isfinite(value).all(), method
        assert torch.isfinite(gradient).all(), method
    lo = torch.cat([z[:-1], torch.full((2,), -torch.inf, dtype=dtype)]).detach().requires_grad_()
    hi = torch.cat([z[1:], torch.tensor([0.3, torch.inf], dtype=dtype)]).detach().requires_grad_()
    value = one.log_interval(lo, hi)
    gradients = torch.autograd.grad(value.sum(), (lo, hi))
    assert torch.isfinite(value).all()
    assert all(torch.isfinite(g).all() for g in gradients)


@ALL
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("what", ["cdf", "sf", "pdf"])
def test_gradients_of_probabilities_are_their_derivatives_as_far_as_numbers_go(name, dtype, what) -> None:
    """Zero where the probability is: F' = f, (1 - F)' = -f, f' by mpmath."""
    z = torch.tensor(GRID, dtype=dtype, requires_grad=True)
    getattr(latent.get(name), what)(z).sum().backward()
    if what == "pdf":
        slopes = [mpmath.diff(EXACT_PDF[name], mpmath.mpf(v), h=mpmath.mpf(10) ** -20) for v in GRID]
    else:
        slopes = [(1 if what == "cdf" else -1) * EXACT_PDF[name](mpmath.mpf(v)) for v in GRID]
    tiny, rtol = (1e-37, 2e-4) if dtype == torch.float32 else (1e-40, 1e-9)
    exact = [to_float(v) for v in slopes]
    np.testing.assert_allclose(z.grad.double().numpy(), exact, rtol=rtol, atol=tiny)


@ALL
def test_log_interval_with_a_gap_too_small_for_floats(name: str) -> None:
    one = latent.get(name)
    lo = torch.tensor([0.7], dtype=torch.float64)
    value = one.log_interval(lo, lo, torch.tensor([-1000.0], dtype=torch.float64))
    assert value.item() == pytest.approx(-1000.0 + one.log_pdf(0.7), abs=1e-9)


@ALL
@given(z=st.floats(-30, 30), step=st.floats(1e-3, 5))
def test_log_concave(name: str, z: float, step: float) -> None:
    one = latent.get(name)
    for method in (one.log_pdf, one.log_cdf, one.log_sf):
        a, b, c = method(np.array([z - step, z, z + step]))
        assert a + c <= 2 * b + 1e-12 * max(1.0, abs(a), abs(c))
    assert one.d2log_pdf(z) <= 0


@ALL
def test_derivatives_equal_autograd(name: str) -> None:
    one = latent.get(name)
    z = torch.linspace(-6, 6, 25, dtype=torch.float64, requires_grad=True)
    for value, first, second, method in (
        (*one.log_pdf_derivatives(z), one.log_pdf),
        (*one.log_cdf_derivatives(z), one.log_cdf),
        (*one.log_sf_derivatives(z), one.log_sf),
    ):
        (g,) = torch.autograd.grad(method(z).sum(), z, create_graph=True)
        (h,) = torch.autograd.grad(g.sum(), z) if g.requires_grad else (torch.zeros_like(z),)
        torch.testing.assert_close(value, method(z))
        torch.testing.assert_close(first, g, rtol=1e-9, atol=1e-11)
        torch.testing.assert_close(second, h, rtol=1e-7, atol=1e-9)


@ALL
@pytest.mark.parametrize("gap", [1e-3, 0.05, 0.7, 4.0])
def test_interval_derivatives_equal_autograd(name: str, gap: float) -> None:
    one = latent.get(name)
    lo = torch.linspace(-4, 3, 15, dtype=torch.float64)
    for a in lo:
        ends = torch.stack([a, a + gap])
        value, d_lo, d_hi, w_lo, w_hi, q = one.log_interval_derivatives(ends[:1], ends[1:])

        def f(e: torch.Tensor) -> torch.Tensor:
            return one.log_interval(e[0], e[1])

        gradient = torch.autograd.functional.jacobian(f, ends)
        hessian = torch.autograd.functional.hessian(f, ends)
        torch.testing.assert_close(value[0], f(ends), rtol=1e-9, atol=1e-10)
        torch.testing.assert_close(torch.cat([d_lo, d_hi]), gradient, rtol=1e-6, atol=1e-6)
        ours = torch.stack([torch.cat([-w_lo - q, q]), torch.cat([q, -w_hi - q])])
        torch.testing.assert_close(ours, hessian, rtol=1e-5, atol=1e-3 / gap)


@ALL
@given(p=st.floats(1e-12, 1 - 1e-12))
def test_quantile_inverts_cdf(name: str, p: float) -> None:
    one = latent.get(name)
    assert one.cdf(one.icdf(p)) == pytest.approx(p, rel=1e-9)


@ALL
def test_from_log_inverts_the_log_functions_far_beyond_float_probabilities(name: str) -> None:
    one = latent.get(name)
    z = np.array([-500.0, -30.0, -5.0, -0.1, 0.0, 0.3, 4.0, 20.0, 500.0])
    log_cdf, log_sf = one.log_cdf(z), one.log_sf(z)
    usable = np.isfinite(log_cdf) & np.isfinite(log_sf)
    np.testing.assert_allclose(one.from_log(log_cdf, log_sf)[usable], z[usable], rtol=1e-10, atol=1e-12)
    np.testing.assert_array_equal(one.from_log([-np.inf, 0.0], [0.0, -np.inf]), [-np.inf, np.inf])


def test_numpy_in_numpy_out_tensor_in_tensor_out() -> None:
    one = latent.get("logistic")
    assert isinstance(one.cdf([0.0]), np.ndarray)
    assert isinstance(one.cdf(torch.zeros(1)), torch.Tensor)
    assert one.cdf(np.zeros(1, dtype=np.float32)).dtype == np.float32


@ALL
def test_aliases_lead_to_the_same_object(name: str) -> None:
    one = latent.get(name)
    assert all(latent.get(alias) == one for alias in one.aliases)
    assert hash(latent.get(one.aliases[0])) == hash(one)


def test_unknown_latent_is_refused_with_the_known_names() -> None:
    with pytest.raises(UnknownNameError, match=r"latent must be one of cloglog, .*; got 'cauchy'\."):
        latent.get("cauchy")
