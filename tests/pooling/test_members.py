"""What cannot be pooled is refused in one clear sentence."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats

import deeptram as dt
from deeptram.errors import InvalidInputError, InvalidTypeError, UnknownNameError

A = dt.Predictive.from_proba([[0.2, 0.8], [0.5, 0.5]])
LINE = dt.Predictive.from_scipy(scipy.stats.norm([0.0, 1.0], 1.0))
COUNT = dt.Predictive.from_scipy(scipy.stats.poisson([1.0, 2.0]))
PROBIT = dt.Predictive.from_trafo([[0.0], [1.0]], latent="normal")
LOGIT = dt.Predictive.from_trafo([[0.0], [1.0]])


@pytest.mark.parametrize(
    ("members", "options", "error", "match"),
    [
        ([], {}, InvalidInputError, "at least one Predictive, got none"),
        (A, {}, InvalidTypeError, "got a single one; put it into a list"),
        (3, {}, InvalidTypeError, "sequence of Predictive or an array .* got int"),
        ([A, [[0.1, 0.9]]], {}, InvalidTypeError, "got list at position 1"),
        ([A, LINE], {}, InvalidInputError, "one kind, got discrete for member 0 and continuous for member 1"),
        (
            [LINE, COUNT],
            {},
            InvalidInputError,
            "one kind, got continuous for member 0 and count for member 1",
        ),
        ([A, A[:1]], {}, InvalidInputError, "same number of rows, got 2 for member 0 and 1 for member 1"),
        (
            [A, dt.Predictive.from_proba([[0.2, 0.8], [0.5, 0.5]], levels=["b", "a"])],
            {},
            InvalidInputError,
            r"same levels in the same order, got \[0, 1\] for member 0 and \['b', 'a'\] for member 1; name the",
        ),
        (
            [A, dt.Predictive.from_proba([[0.2, 0.8], [0.5, 0.5]], levels=[1, 0])],
            {},
            InvalidInputError,
            r"\[1, 0\] for member 1; reorder the columns of one of them",
        ),
        (
            [dt.Predictive.from_proba([[0.2, 0.3, 0.5]] * 2), A],
            {},
            InvalidInputError,
            r"member 1; member 1 has no 2, perhaps .* insert a column of zeros",
        ),
        (
            [A, dt.Predictive.from_proba([[0.2, 0.3, 0.5]] * 2)],
            {},
            InvalidInputError,
            "member 0 has no 2, perhaps",
        ),
        ([A, A], {"method": "log_linear"}, UnknownNameError, "method must be one of .* got 'log_linear'"),
        ([A, A], {"weights": [0.5, 0.6]}, InvalidInputError, "sum to one, got 1.1"),
        ([A, A], {"weights": [-0.5, 1.5]}, InvalidInputError, "not be negative"),
        ([A, A], {"weights": [1.0]}, InvalidInputError, "one number per member"),
        ([A, A], {"latent": "cauchy"}, UnknownNameError, "latent must be one of"),
        ([PROBIT, LOGIT], {}, InvalidInputError, "share one latent .* got logistic, normal; pass latent="),
    ],
)
def test_messages(members, options, error, match):
    with pytest.raises(error, match=match):
        dt.pool(members, **options)


def test_different_latents_are_no_obstacle_where_the_scale_does_not_matter():
    pooled = dt.pool([PROBIT, LOGIT], method="linear")
    np.testing.assert_allclose(pooled.cdf(), (PROBIT.cdf() + LOGIT.cdf()) / 2)
    assert dt.pool([PROBIT, LOGIT], latent="probit").pool_info.latent == "normal"
    assert dt.pool([PROBIT, LOGIT], weights=[1.0, 0.0]).pool_info.latent == "normal"


def test_weights_may_be_off_by_rounding():
    exact = dt.pool([A, A[::-1]], method="linear", weights=[0.5, 0.5]).pmf()
    nearly = dt.pool([A, A[::-1]], method="linear", weights=[0.5, 0.5 + 5e-9])
    np.testing.assert_allclose(nearly.pmf(), exact, atol=1e-8)
    assert sum(nearly.pool_info.weights) == pytest.approx(1.0, abs=1e-15)


def test_a_generator_of_members_is_fine():
    np.testing.assert_allclose(dt.pool(one for one in (A, A)).pmf(), A.pmf(), rtol=1e-14)


@pytest.mark.parametrize(
    ("g", "g_inverse", "match"),
    [
        (np.square, np.square, "g_inverse must undo g"),
        (lambda u: u * 0 + 1, np.exp, "strictly monotone, vectorised function"),
        (lambda u: 1.0, np.exp, "strictly monotone, vectorised function"),
        (lambda u: (u - 0.3) ** 2, np.sqrt, "strictly monotone, vectorised function"),
    ],
)
def test_quasi_arithmetic_functions_are_checked(g, g_inverse, match):
    with pytest.raises(InvalidInputError, match=match):
        dt.QuasiArithmetic(g, g_inverse)


def test_quasi_arithmetic_needs_g_at_the_ends():
    def not_at_zero(u):
        return np.where(np.asarray(u) == 0, np.nan, np.log(np.maximum(u, 1e-300)))

    certain = dt.Predictive.from_proba([[0.0, 1.0], [0.5, 0.5]])
    with pytest.raises(InvalidInputError, match=r"defined on all of \[0, 1\]"):
        dt.pool([A, certain], method=dt.QuasiArithmetic(not_at_zero, np.exp)).cdf()
