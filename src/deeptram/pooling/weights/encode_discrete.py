"""Objectives of weight tuning for members on levels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from deeptram import latent as latents
from deeptram.latent import Latent, Logistic
from deeptram.pooling.members import CdfStack
from deeptram.pooling.weights import likelihood
from deeptram.pooling.weights.ends import (
    log_cdf_class_ends,
    pick,
    stacked_class_ends,
    transformed_class_ends,
)
from deeptram.pooling.weights.likelihood import Build
from deeptram.pooling.weights.logistic_classes import LogisticClasses, logistic_classes
from deeptram.pooling.weights.objective import Objective
from deeptram.pooling.weights.squared_errors import (
    ClassErrors,
    CumulativeSum,
    ExponentialLink,
    LatentLink,
    Operator,
    SoftmaxErrors,
    SquaredErrors,
    ThresholdErrors,
)
from deeptram.predictive.discrete import DiscretePredictive


def terms(
    members: Sequence[DiscretePredictive], y: Any, method: str, latent: Latent | None
) -> Callable[[Build], None]:
    """Return what adds the NLL terms of a pool of these members to a ``Build``."""
    codes = members[0].encode(y)
    rows = torch.arange(len(codes))
    if method == "transformation":
        scale = latent or latents.get("logistic")
        ends = transformed_class_ends(members, codes, scale)

        def add(build: Build) -> None:
            likelihood.transformation_intervals(build, ends, rows, scale)

    elif method == "log-linear":
        log_ends = log_cdf_class_ends(members, codes)

        def add(build: Build) -> None:
            likelihood.log_linear_intervals(build, log_ends, rows)

    elif method == "linear":
        log_prob = _stack([pick(m.log_pmf_t(), codes) for m in members])

        def add(build: Build) -> None:
            likelihood.linear_probabilities(build, log_prob, rows)

    else:
        log_pmf = _stack([m.log_pmf_t().T for m in members])
        observed = log_pmf.gather(1, codes.expand(len(members), 1, -1)).squeeze(1)
        nothing = torch.zeros_like(log_pmf[0])

        def add(build: Build) -> None:
            likelihood.log_linear_density(build, observed, log_pmf, nothing, rows)

    return add


def stack_terms(stack: CdfStack, y: Any, method: str, latent: Latent | None) -> Callable[[Build], None]:
    """Return the same for an array of CDFs; the transformation pool reads two columns per row only."""
    members = stack.members()
    if method != "transformation":
        return terms(members, y, method, latent)
    scale = latent or latents.get("logistic")
    codes = members[0].encode(y)
    fast = logistic_classes(stack, codes) if isinstance(scale, Logistic) else None
    if fast is not None:
        return _AddTerm(fast)
    ends, rows = stacked_class_ends(stack, codes, scale), torch.arange(stack.n_rows)

    def add(build: Build) -> None:
        likelihood.transformation_intervals(build, ends, rows, scale)

    return add


class _AddTerm:
    """Add a term over all members, restricted to those that are held."""

    def __init__(self, term: LogisticClasses) -> None:
        self.term = term

    def __call__(self, build: Build) -> None:
        build.add(self.term if bool(build.held.all()) else self.term.of_members(build.held))


def objective(
    members: Sequence[DiscretePredictive], y: Any, method: str, score: str, latent: Latent | None
) -> Objective:
    """Return the objective of RPS, CRPS, Brier or quadratic score."""
    codes = members[0].encode(y)
    levels = len(members[0].levels)
    of_cdf = score in ("rps", "crps")
    weight = {"rps": 1 / (levels - 1), "brier": 0.5}.get(score, 1.0)
    constant = -1.0 if score == "quadratic" else 0.0
    above = torch.arange(levels - 1) >= codes.unsqueeze(1)
    if method == "linear":
        if of_cdf:
            sides = [torch.exp(torch.where(above, m.log_sf_t(), m.log_cdf_t())) for m in members]
            return SquaredErrors(_stack(sides), weight)
        return SquaredErrors(_stack([_probability_errors(m, codes) for m in members]), weight, constant)
    if method == "log-linear-density":
        masses = _stack([m.log_pmf_t() for m in members])
        truth = above if of_cdf else torch.arange(levels) == codes.unsqueeze(1)
        operator = CumulativeSum() if of_cdf else Operator()
        targets = truth.to(torch.float64)
        return SoftmaxErrors(masses, torch.zeros_like(masses[0]), operator, targets, weight, constant)
    kind = ThresholdErrors if of_cdf else ClassErrors
    if method == "transformation":
        scale = latent or latents.get("logistic")
        forms = _stack([m.trafo_t(scale) for m in members])
        return kind(LatentLink(scale), forms, above, weight, constant)
    return kind(ExponentialLink(), _stack([m.log_cdf_t() for m in members]), above, weight, constant)


def _probability_errors(member: DiscretePredictive, codes: Tensor) -> Tensor:
    """Return f_k - 1(y = k), the error at the outcome summed from the other probabilities, (n, K)."""
    truth = torch.arange(len(member.levels)) == codes.unsqueeze(1)
    others = torch.where(truth, 0.0, torch.exp(member.log_pmf_t()))
    return torch.where(truth, -others.sum(dim=1, keepdim=True), others)


def _stack(parts: Sequence[Tensor]) -> Tensor:
    return torch.stack([part.detach() for part in parts]).to(torch.float64)
