"""Objectives of weight tuning for count members."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from deeptram import latent as latents
from deeptram.errors import InvalidInputError, UnsupportedError
from deeptram.latent import Latent
from deeptram.pooling.log_linear import log_ratio
from deeptram.pooling.weights import likelihood
from deeptram.pooling.weights.ends import LogCdfEnds, TransformedEnds
from deeptram.pooling.weights.likelihood import Build
from deeptram.pooling.weights.objective import Objective
from deeptram.pooling.weights.squared_errors import (
    CumulativeSum,
    ExponentialLink,
    LatentLink,
    SoftmaxErrors,
    SquaredErrors,
    ThresholdErrors,
)
from deeptram.predictive.count import CountPredictive
from deeptram.responses.observations import Observations, Surv, encode_count

_NARROW = 1e-6
_NEGLIGIBLE = 1e-12
_LARGEST_TABLE = 2**27


def _counts(members: Sequence[CountPredictive], y: Any) -> Tensor:
    """Return the counts as (n, 1)."""
    if isinstance(y, (Surv, Observations)):
        raise UnsupportedError(
            "weights of count members are tuned on exact counts, got a censored response; pass the counts"
        )
    k = torch.as_tensor(encode_count(y).upper, dtype=torch.float64).unsqueeze(1)
    if len(k) != len(members[0]):
        raise InvalidInputError(
            f"y must have one value per row, got {len(k)} for {len(members[0])} rows; "
            "pass the outcomes that belong to these predictions"
        )
    return k


def terms(
    members: Sequence[CountPredictive], y: Any, method: str, latent: Latent | None
) -> Callable[[Build], None]:
    """Return what adds the NLL terms of a pool of these members to a ``Build``."""
    k = _counts(members, y)
    rows = torch.arange(len(k))
    first = k[:, 0] == 0
    log_prob = _gather([m.log_pmf_t(k) for m in members])
    if method == "transformation":
        scale = latent or latents.get("logistic")
        upper = _gather([m.trafo_t(k, scale) for m in members])
        lower = _gather([m.trafo_t((k - 1).clamp(min=0), scale) for m in members])
        lower = torch.where(first, -torch.inf, lower)
        open_end = torch.isinf(lower) | torch.isinf(upper)
        difference = torch.where(open_end, torch.ones_like(lower), upper - lower)
        middle = torch.where(open_end, torch.zeros_like(lower), (lower + upper) / 2)
        log_increment = torch.where(
            difference < _NARROW, log_prob - scale.log_pdf_t(middle), torch.log(difference)
        )
        ends = TransformedEnds(lower, upper, torch.where(open_end, torch.inf, log_increment))

        def add(build: Build) -> None:
            likelihood.transformation_intervals(build, ends, rows, scale)

    elif method == "log-linear":
        log_upper = _gather([m.log_cdf_t(k) for m in members])
        log_lower = _gather([m.log_cdf_t((k - 1).clamp(min=0)) for m in members])
        ratio = log_ratio(torch.where(first, -torch.inf, log_lower), log_upper, log_prob)
        log_ends = LogCdfEnds(log_upper, ratio)

        def add(build: Build) -> None:
            likelihood.log_linear_intervals(build, log_ends, rows)

    elif method == "linear":

        def add(build: Build) -> None:
            likelihood.linear_probabilities(build, log_prob, rows)

    else:
        grid = _grid(members, k)
        log_nodes = torch.stack([m.log_pmf_t(grid).T for m in members]).to(torch.float64)

        def add(build: Build) -> None:
            likelihood.log_linear_density(build, log_prob, log_nodes, torch.zeros_like(log_nodes[0]), rows)

    return add


def objective(
    members: Sequence[CountPredictive], y: Any, method: str, score: str, latent: Latent | None
) -> Objective:
    """Return the objective of the CRPS, a sum over counts."""
    k = _counts(members, y)
    grid = _grid(members, k)
    above = grid >= k
    if method == "linear":
        errors = [torch.exp(torch.where(above, m.log_sf_t(grid), m.log_cdf_t(grid))) for m in members]
        return SquaredErrors(torch.stack(errors).to(torch.float64), 1.0)
    if method == "transformation":
        scale = latent or latents.get("logistic")
        forms = torch.stack([m.trafo_t(grid, scale) for m in members]).to(torch.float64)
        return ThresholdErrors(LatentLink(scale), forms, above, 1.0)
    if method == "log-linear-density":
        masses = torch.stack([m.log_pmf_t(grid) for m in members]).to(torch.float64)
        targets = above[:, :-1].to(torch.float64)
        return SoftmaxErrors(masses, torch.zeros_like(masses[0]), CumulativeSum(), targets, 1.0)
    forms = torch.stack([m.log_cdf_t(grid) for m in members]).to(torch.float64)
    return ThresholdErrors(ExponentialLink(), forms, above, 1.0)


def _grid(members: Sequence[CountPredictive], k: Tensor) -> Tensor:
    """Return 0, 1, ... as (1, G), beyond every outcome and every quantile that matters."""
    top = max(float(m.quantile_t(k.new_tensor([1 - _NEGLIGIBLE])).max()) for m in members)
    length = max(top, float(k.max())) + 2
    if length * len(k) * len(members) > _LARGEST_TABLE:
        raise UnsupportedError(
            f"this score of {len(k)} count distributions needs sums up to {top:.3g}, too long a table; "
            "tune by score='nll', or on fewer rows"
        )
    return torch.arange(length, dtype=torch.float64).unsqueeze(0)


def _gather(parts: Sequence[Tensor]) -> Tensor:
    return torch.stack([part.detach()[:, 0] for part in parts]).to(torch.float64)
