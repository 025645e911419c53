"""Likelihood terms in linear forms: values, gradients and Hessians against autograd."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from deeptram import latent as latents
from deeptram.likelihood import linear_forms as terms
from deeptram.responses.observations import Cases

THETA = torch.tensor([0.2, 0.5, 0.3], dtype=torch.float64)
ROWS = torch.arange(60)


@pytest.fixture
def design():
    torch.manual_seed(3)
    lower = 1.5 * torch.randn(3, 60, dtype=torch.float64)
    log_increment = 2 * torch.randn(3, 60, dtype=torch.float64) - 1
    return lower, log_increment


def compare(found, function, rtol=1e-9):
    value, gradient, hessian = found
    theta = THETA.clone().requires_grad_()
    expected = function(theta)
    (slope,) = torch.autograd.grad(expected, theta)
    second = torch.autograd.functional.hessian(function, THETA)
    np.testing.assert_allclose(value, expected.detach(), rtol=1e-12)
    np.testing.assert_allclose(gradient, slope, rtol=rtol, atol=1e-9)
    np.testing.assert_allclose(hessian, second, rtol=rtol, atol=1e-7)


@pytest.mark.parametrize("latent", latents.names())
@pytest.mark.parametrize("block", [7, 1 << 15])
def test_terms_of_a_latent(design, latent, block, monkeypatch):
    monkeypatch.setattr(terms, "_BLOCK", block)
    scale, (lower, log_increment) = latents.get(latent), design
    gap = log_increment.exp()
    parts = (lower, lower + gap, *terms.scaled(log_increment))
    cases = [
        (terms.LogCdf(scale, ROWS, lower), lambda t: scale.log_cdf_t(t @ lower).sum()),
        (terms.LogSf(scale, ROWS, lower), lambda t: scale.log_sf_t(t @ lower).sum()),
        (terms.LogPdf(scale, ROWS, lower), lambda t: scale.log_pdf_t(t @ lower).sum()),
        (terms.Negated(terms.LogSf(scale, ROWS, lower)), lambda t: -scale.log_sf_t(t @ lower).sum()),
    ]
    for term, function in cases:
        compare(term.evaluate(THETA), function)

    def interval(t):
        return scale.log_interval_t(t @ lower, t @ (lower + gap), torch.log(t @ gap)).sum()

    tolerance = 1e-6 if latent == "normal" else 1e-8
    compare(terms.LogInterval(scale, ROWS, *parts).evaluate(THETA), interval, tolerance)
    closed = torch.ones(len(ROWS), dtype=torch.bool)
    made = terms.interval_terms(scale, ROWS, Cases.of_ends(closed, closed), *parts)
    compare(terms.total(made, THETA), interval, tolerance)


def test_terms_without_a_latent(design):
    lower, log_increment = design
    gap, parts = log_increment.exp(), terms.scaled(log_increment)
    compare(terms.LinearForm(ROWS, lower).evaluate(THETA), lambda t: (t @ lower).sum() + 0 * (t**2).sum())
    compare(terms.LogForm(ROWS, *parts).evaluate(THETA), lambda t: torch.log(t @ gap).sum())
    compare(
        terms.LogOneMinusExp(ROWS, *parts).evaluate(THETA),
        lambda t: torch.log(-torch.expm1(-(t @ gap))).sum(),
    )
    x, offset = torch.randn(3, 5, 60, dtype=torch.float64), torch.randn(5, 60, dtype=torch.float64)
    offset[2, :10] = -torch.inf
    compare(
        terms.LogNormaliser(ROWS, x, offset).evaluate(THETA),
        lambda t: -torch.logsumexp(torch.tensordot(t, x, dims=1) + offset, dim=0).sum(),
    )


@pytest.mark.parametrize("log_increment", [-800.0, -400.0, -30.0, 0.0, 5.0])
def test_gaps_that_underflow(log_increment):
    logs = torch.tensor([[log_increment], [log_increment - 1], [log_increment + 0.5]], dtype=torch.float64)
    value, gradient, hessian = terms.LogOneMinusExp(torch.arange(1), *terms.scaled(logs)).evaluate(THETA)
    total = torch.logsumexp(torch.log(THETA) + logs[:, 0], dim=0)
    if log_increment < -20:
        assert float(value) == pytest.approx(float(total), rel=1e-9)
        ratio = torch.exp(logs[:, 0] - total)
        np.testing.assert_allclose(gradient, ratio, rtol=1e-6)
        np.testing.assert_allclose(hessian, -torch.outer(ratio, ratio), rtol=1e-6)
    assert torch.isfinite(value)
    assert torch.isfinite(hessian).all()


@pytest.mark.parametrize("latent", ["normal", "minimum-extreme-value", "maximum-extreme-value"])
@pytest.mark.parametrize("log_increment", [-25.0, -14.0, -10.0, -6.0])
def test_narrow_intervals_have_the_derivatives_of_a_density(latent, log_increment):
    scale = latents.get(latent)
    lower = torch.tensor([[-0.5], [0.8], [0.1]], dtype=torch.float64)
    logs = torch.full_like(lower, log_increment)
    upper = lower + logs.exp()
    term = terms.LogInterval(scale, torch.arange(1), lower, upper, *terms.scaled(logs))
    _, gradient, _ = term.evaluate(THETA)
    middle = THETA @ (lower + upper) / 2
    expected = scale.dlog_pdf_t(middle) * ((lower + upper) / 2)[:, 0] + 1.0
    np.testing.assert_allclose(gradient, expected, rtol=1e-4 if log_increment > -8 else 1e-7)


def test_rows_can_be_taken(design):
    lower, _ = design
    term = terms.LogCdf(latents.get("logistic"), torch.arange(10, 70), lower)
    keep = torch.zeros(80, dtype=torch.bool)
    keep[[0, 12, 30, 75]] = True
    value, _, _ = term.take(keep).evaluate(THETA)
    expected = latents.get("logistic").log_cdf_t(THETA @ lower[:, [2, 20]]).sum()
    assert float(value) == pytest.approx(float(expected))
    nothing, _, _ = term.take(torch.zeros(80, dtype=torch.bool)).evaluate(THETA)
    assert float(nothing) == 0.0
