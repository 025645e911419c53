"""Exact fits against an independent optimiser, on random problems full of traps."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from independent_fits import KINDS, TRAPS, Case, best_loglik, random_case

ROUND = len(KINDS) * len(TRAPS)  # seeds in a row that meet every kind with every trap


def check(case: Case) -> None:
    """The log-likelihood is the best one, and ``converged_`` says whether there is a finite optimum."""
    best, attained = best_loglik(case)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = case.model.fit(case.x, case.outcome)
    said = f"seed {case.seed}: {case.kind}, {case.trap}, {case.x.shape}, {model.loglik_!r} for {best!r}"
    assert np.isfinite(model.loglik_), said
    assert model.converged_ == attained, said
    if attained:
        assert model.loglik_ == pytest.approx(best, abs=1e-6), said
    elif case.event is None and case.kind != "normal":  # classes: a supremum
        assert 1e-6 >= model.loglik_ >= best - 1e-6, said


@pytest.mark.parametrize("seed", range(3 * ROUND))
def test_agrees_with_an_independent_optimiser(seed: int) -> None:
    check(random_case(seed))


@pytest.mark.slow
@pytest.mark.parametrize("first", range(3 * ROUND, 3 * ROUND + 1000, 50))
def test_agrees_with_an_independent_optimiser_on_a_thousand_problems(first: int) -> None:
    for seed in range(first, first + 50):
        check(random_case(seed))
