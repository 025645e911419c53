"""Objectives of weight tuning for members on the line, exact, censored and truncated."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from deeptram import latent as latents
from deeptram.errors import InvalidInputError
from deeptram.latent import Latent
from deeptram.pooling.log_linear import log_minus_log, log_ratio
from deeptram.pooling.rule import inner_support, outer_support
from deeptram.pooling.weights import likelihood
from deeptram.pooling.weights.ends import LogCdfEnds, TransformedEnds
from deeptram.pooling.weights.likelihood import Build
from deeptram.pooling.weights.objective import Objective
from deeptram.pooling.weights.squared_errors import (
    CumulativePanels,
    ExponentialLink,
    LatentLink,
    SoftmaxErrors,
    SquaredErrors,
    ThresholdErrors,
)
from deeptram.predictive.line import LinePredictive
from deeptram.predictive.panels import fixed_rule, halved, lay_panels, partial_rule
from deeptram.predictive.transformation import TrafoPredictive
from deeptram.responses.observations import Observations, encode_continuous

_NARROW = 1e-6
_EMPTY = -60.0


class LineRows:
    """The outcomes of members on the line, sorted into exact, interval-censored and truncated ones."""

    def __init__(self, members: Sequence[LinePredictive], y: Any) -> None:
        self.seen = check_observations(y, len(members[0]))
        self.all_members = list(members)
        lower, upper = (
            torch.as_tensor(end, dtype=torch.float64) for end in (self.seen.lower, self.seen.upper)
        )
        self.exact = torch.nonzero(lower == upper)[:, 0]
        self.intervals = torch.nonzero(lower != upper)[:, 0]
        self.value = lower[self.exact].unsqueeze(1)
        self.lower, self.upper = lower[self.intervals].unsqueeze(1), upper[self.intervals].unsqueeze(1)
        entry = self.seen.entry
        at = (
            torch.full_like(lower, -torch.inf)
            if entry is None
            else torch.as_tensor(entry, dtype=torch.float64)
        )
        self.truncated = torch.nonzero(at > -torch.inf)[:, 0]
        self.entry = at[self.truncated].unsqueeze(1)

    def members(self, rows: Tensor) -> list[LinePredictive]:
        """Return the members restricted to some rows."""
        if len(rows) == len(self.seen):
            return self.all_members
        return [member[rows] for member in self.all_members]


def check_observations(y: Any, n: int) -> Observations:
    """Return the outcomes as observations, one per row."""
    seen = encode_continuous(y)
    if len(seen) != n:
        raise InvalidInputError(
            f"y must have one value per row, got {len(seen)} for {n} rows; "
            "pass the outcomes that belong to these predictions"
        )
    return seen


def terms(
    members: Sequence[LinePredictive], y: Any, method: str, latent: Latent | None
) -> Callable[[Build], None] | None:
    """Return what adds the NLL terms of a pool of these members; None for censored log-linear densities."""
    rows = LineRows(members, y)
    if method == "transformation":
        return _transformation(rows, latent or latents.get("logistic"))
    if method == "linear":
        return _linear(rows)
    if method == "log-linear":
        return _log_linear(rows)
    return None if len(rows.intervals) or len(rows.truncated) else _log_linear_density(rows)


def _transformation(rows: LineRows, latent: Latent) -> Callable[[Build], None]:
    exact = rows.members(rows.exact)
    h = _gather([m.trafo_t(rows.value, latent) for m in exact])
    log_slope = _gather([m.log_slope_t(rows.value, latent) for m in exact])
    log_slope = torch.where(torch.isinf(h), -torch.inf, log_slope)
    ends = _ends(rows.members(rows.intervals), rows.lower, rows.upper, latent)
    at_entry = _gather([m.trafo_t(rows.entry, latent) for m in rows.members(rows.truncated)])

    def add(build: Build) -> None:
        likelihood.transformation_exact(build, h, log_slope, rows.exact, latent)
        likelihood.transformation_intervals(build, ends, rows.intervals, latent)
        likelihood.transformation_truncation(build, at_entry, rows.truncated, latent)

    return add


def _ends(members: Sequence[LinePredictive], lower: Tensor, upper: Tensor, latent: Latent) -> TransformedEnds:
    low = _gather([m.trafo_t(lower, latent) for m in members])
    high = _gather([m.trafo_t(upper, latent) for m in members])
    gaps = []
    for member, a, b in zip(members, low, high, strict=True):
        open_end = torch.isinf(a) | torch.isinf(b)
        if isinstance(member, TrafoPredictive) and member.latent == latent:
            log_increment = member.log_increment_t(lower, upper)[:, 0].to(torch.float64)
        else:
            difference = torch.where(open_end, torch.ones_like(a), b - a)
            middle = torch.where(open_end, torch.zeros_like(a), (a + b) / 2)
            thin = member.log_interval_t(lower, upper)[:, 0] - latent.log_pdf_t(middle)
            log_increment = torch.where(difference < _NARROW, thin, torch.log(difference))
        gaps.append(torch.where(open_end, torch.inf, log_increment))
    return TransformedEnds(low, high, torch.stack(gaps))


def _linear(rows: LineRows) -> Callable[[Build], None]:
    density = _gather([m.log_pdf_t(rows.value) for m in rows.members(rows.exact)])
    mass = _gather([m.log_interval_t(rows.lower, rows.upper) for m in rows.members(rows.intervals)])
    log_sf = _gather([m.log_sf_t(rows.entry) for m in rows.members(rows.truncated)])

    def add(build: Build) -> None:
        likelihood.linear_probabilities(build, density, rows.exact)
        likelihood.linear_probabilities(build, mass, rows.intervals)
        likelihood.linear_truncation(build, log_sf, rows.truncated)

    return add


def _log_linear(rows: LineRows) -> Callable[[Build], None]:
    exact, censored = rows.members(rows.exact), rows.members(rows.intervals)
    log_cdf = _gather([m.log_cdf_t(rows.value) for m in exact])
    log_pdf = _gather([m.log_pdf_t(rows.value) for m in exact])
    open_above = torch.isposinf(rows.upper)
    uppers, ratios = [], []
    for member in censored:
        low, high = member.log_cdf_t(rows.lower), member.log_cdf_t(rows.upper)
        ratio = log_ratio(low, high, member.log_interval_t(rows.lower, rows.upper))
        tail = log_minus_log(low, member.log_sf_t(rows.lower))
        uppers.append(torch.where(open_above, 0.0, high))
        ratios.append(torch.where(open_above, tail, ratio))
    ends = LogCdfEnds(_gather(uppers), _gather(ratios))
    truncated = rows.members(rows.truncated)
    entry = _gather([log_minus_log(m.log_cdf_t(rows.entry), m.log_sf_t(rows.entry)) for m in truncated])

    def add(build: Build) -> None:
        likelihood.log_linear_exact(build, log_cdf, log_pdf, rows.exact)
        likelihood.log_linear_intervals(build, ends, rows.intervals)
        likelihood.log_linear_truncation(build, entry, rows.truncated)

    return add


def _log_linear_density(rows: LineRows) -> Callable[[Build], None]:
    members = rows.all_members
    frame, edges = lay_panels(members, inner_support(members))
    nodes, log_weights = fixed_rule(frame, halved(edges))
    log_nodes = torch.stack([m.log_pdf_t(nodes) for m in members]).to(torch.float64)
    # Where every member has next to no mass, so has every pool; such nodes would only bring huge numbers in.
    empty = (log_nodes + log_weights).amax(dim=0) < _EMPTY
    log_weights = torch.where(empty, -torch.inf, log_weights).T
    log_nodes = torch.where(empty, 0.0, log_nodes).transpose(1, 2)
    log_density = _gather([m.log_pdf_t(rows.value) for m in members])

    def add(build: Build) -> None:
        likelihood.log_linear_density(build, log_density, log_nodes, log_weights, rows.exact)

    return add


def objective(
    members: Sequence[LinePredictive], y: Any, method: str, score: str, latent: Latent | None
) -> Objective:
    """Return the objective of the CRPS by a fixed quadrature rule."""
    at = members[0]._exact(y).expand(len(members[0]), 1).to(torch.float64)
    support = inner_support(members) if method == "log-linear-density" else outer_support(members)
    frame, edges = lay_panels(members, support, at)
    nodes, log_weights = fixed_rule(frame, edges)
    weights, above = torch.exp(log_weights), nodes >= at
    if method == "linear":
        errors = [torch.exp(torch.where(above, m.log_sf_t(nodes), m.log_cdf_t(nodes))) for m in members]
        return SquaredErrors(torch.stack(errors).to(torch.float64), weights)
    if method == "transformation":
        scale = latent or latents.get("logistic")
        forms = torch.stack([m.trafo_t(nodes, scale) for m in members]).to(torch.float64)
        return ThresholdErrors(LatentLink(scale), forms, above, weights)
    if method == "log-linear":
        forms = torch.stack([m.log_cdf_t(nodes) for m in members]).to(torch.float64)
        return ThresholdErrors(ExponentialLink(), forms, above, weights)
    masses = torch.stack([m.log_pdf_t(nodes) for m in members]).to(torch.float64)
    operator = CumulativePanels(partial_rule(), above)
    return SoftmaxErrors(masses, log_weights, operator, torch.zeros_like(weights), weights)


def _gather(parts: Sequence[Tensor]) -> Tensor:
    """Stack (m, 1) tensors of the members to (M, m)."""
    return torch.stack([part.detach()[:, 0] for part in parts]).to(torch.float64)
