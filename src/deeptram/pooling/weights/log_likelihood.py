r"""The log-likelihood of a pool as terms in linear forms of the weights, from the values of its members.

A member that gives the outcome of some row probability zero, so that any positive weight makes the pooled
likelihood zero, cannot have a positive weight: it is marked as impossible. A member that is certain in the
right direction (h(l) = -inf) makes the pool certain whatever its weight, as long as it is positive: it is
marked as decisive, for the likelihood jumps where its weight reaches zero.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from deeptram.latent import Latent
from deeptram.likelihood.linear_forms import (
    LinearForm,
    LogForm,
    LogNormaliser,
    LogOneMinusExp,
    LogPdf,
    LogSf,
    Negated,
    Term,
    columns,
    interval_terms,
    scaled,
)
from deeptram.pooling.log_linear import log_minus_log
from deeptram.pooling.weights.member_values import LogCdfEnds, Masses, MemberValues, TransformedEnds
from deeptram.responses.observations import Cases


@dataclass
class Build:
    """Terms under construction, over members that may have a positive weight.

    Attributes
    ----------
    allowed : Tensor of bool, shape (M,)
        Members that are considered at all.
    impossible, decisive : Tensor of bool, shape (M,)
        See the module's docstring.
    terms : list of Term
        For the allowed members that are not impossible, in their order.
    """

    allowed: Tensor
    impossible: Tensor
    decisive: Tensor
    terms: list[Term] = field(default_factory=list)
    convex: bool = True

    @classmethod
    def start(cls, allowed: Tensor) -> Build:
        """Return an empty set of terms."""
        nothing = torch.zeros_like(allowed)
        return cls(allowed, nothing.clone(), nothing.clone())

    @property
    def held(self) -> Tensor:
        """Members over which the terms run."""
        return self.allowed & ~self.impossible

    def exclude(self, mask: Tensor) -> None:
        """Mark the allowed members for which some row of the mask (M, m) is set as impossible."""
        self.impossible |= mask.any(dim=1) & self.allowed

    def note_decisive(self, certain: Tensor) -> Tensor:
        """Return the rows (m,) in which some held member is certain; note the members that decide them."""
        held = self.held.unsqueeze(1)
        any_certain = (certain & held).any(dim=0)
        shared = (certain | ~held).all(dim=0)
        self.decisive |= (certain & held & ~shared).any(dim=1)
        return any_certain

    def add(self, term: Term) -> None:
        """Add a term unless it has no rows."""
        if len(term.rows):
            self.terms.append(term)


def transformation_intervals(build: Build, ends: TransformedEnds, rows: Tensor, latent: Latent) -> None:
    r"""Add :math:`\log(F_Z(\sum w_m u_m) - F_Z(\sum w_m l_m))` for rows whose ends are given."""
    build.exclude(torch.isposinf(ends.lower) | torch.isneginf(ends.upper))
    open_below = build.note_decisive(torch.isneginf(ends.lower))
    open_above = build.note_decisive(torch.isposinf(ends.upper))
    held = build.held
    every = bool(held.all())
    lower, upper, log_gap = (x if every else x[held] for x in (ends.lower, ends.upper, ends.log_increment))
    cases = Cases.of_ends(~open_below, ~open_above)
    gap, scale = scaled(columns(log_gap, cases.interval))
    for term in interval_terms(latent, rows, cases, lower, upper, gap, scale):
        build.add(term)


def transformation_exact(build: Build, h: Tensor, log_slope: Tensor, rows: Tensor, latent: Latent) -> None:
    r"""Add :math:`\log f_Z(\sum w_m h_m) + \log\sum w_m h_m'` for exact values; h and log h' are (M, m)."""
    build.exclude(torch.isinf(h))
    held = build.held
    build.add(LogPdf(latent, rows, h[held]))
    build.add(LogForm(rows, *scaled(log_slope[held])))


def transformation_truncation(build: Build, h: Tensor, rows: Tensor, latent: Latent) -> None:
    r"""Subtract :math:`\log(1 - F_Z(\sum w_m h_m))` at entry; the sum is no longer concave."""
    build.exclude(torch.isposinf(h))
    free = ~build.note_decisive(torch.isneginf(h))
    if bool(free.any()):
        build.convex = False
        build.add(Negated(LogSf(latent, rows[free], columns(h[build.held], free))))


def linear_probabilities(build: Build, log_prob: Tensor, rows: Tensor) -> None:
    r"""Add :math:`\log\sum_m w_m p_m`; log p is (M, m)."""
    build.add(LogForm(rows, *scaled(log_prob[build.held])))


def linear_truncation(build: Build, log_sf: Tensor, rows: Tensor) -> None:
    r"""Subtract :math:`\log\sum_m w_m S_m` at entry."""
    truncated = (log_sf < 0).any(dim=0)
    if bool(truncated.any()):
        build.convex = False
        build.add(Negated(LogForm(rows[truncated], *scaled(columns(log_sf[build.held], truncated)))))


def log_linear_intervals(build: Build, ends: LogCdfEnds, rows: Tensor) -> None:
    r"""Add :math:`\log \bar F(u) + \log(1 - e^{-D})`, both linear in the weights inside."""
    build.exclude(torch.isneginf(ends.log_upper))
    open_below = build.note_decisive(torch.isposinf(ends.log_ratio))
    held = build.held
    build.add(LinearForm(rows, ends.log_upper[held]))
    closed = ~open_below
    build.add(LogOneMinusExp(rows[closed], *scaled(columns(ends.log_ratio[held], closed))))


def log_linear_exact(build: Build, log_cdf: Tensor, log_pdf: Tensor, rows: Tensor) -> None:
    r"""Add :math:`\sum w_m \log F_m + \log\sum w_m f_m / F_m` for exact values."""
    build.exclude(torch.isneginf(log_cdf))
    held = build.held
    build.add(LinearForm(rows, log_cdf[held]))
    build.add(LogForm(rows, *scaled(log_pdf[held] - log_cdf[held])))


def log_linear_truncation(build: Build, log_minus_log_cdf: Tensor, rows: Tensor) -> None:
    r"""Subtract :math:`\log(1 - \bar F)` at entry; the argument is log(-log F_m), (M, m)."""
    build.exclude(torch.isneginf(log_minus_log_cdf))
    free = ~build.note_decisive(torch.isposinf(log_minus_log_cdf))
    if bool(free.any()):
        build.convex = False
        entry = columns(log_minus_log_cdf[build.held], free)
        build.add(Negated(LogOneMinusExp(rows[free], *scaled(entry))))


def log_linear_density(build: Build, masses: Masses, rows: Tensor) -> None:
    r"""Add :math:`\sum w_m \log f_m(y) - \log\sum_k q_k e^{\sum_m w_m \log f_m(t_k)}`."""
    build.exclude(torch.isneginf(masses.observed))
    held = build.held
    build.add(LinearForm(rows, masses.observed[held]))
    nodes = masses.nodes[held]
    excluded = torch.isneginf(nodes)
    some = excluded.any(dim=0)
    everyone = excluded.all(dim=0)
    build.decisive[held] |= (excluded & ~everyone).flatten(1).any(dim=1)
    offset = torch.where(some, -torch.inf, masses.log_weights)
    build.add(LogNormaliser(rows, torch.where(some, 0.0, nodes), offset))


Adding = Callable[[Build], None]


def _transformation(values: MemberValues, latent: Latent) -> Adding:
    whole = values.one_term(latent)
    if whole is not None:
        return lambda build: build.add(whole.of_parameters(build.held))
    h, log_slope = values.exact_trafo(latent)
    ends, at_entry = values.interval_trafo(latent), values.entry_trafo(latent)

    def add(build: Build) -> None:
        transformation_exact(build, h, log_slope, values.exact, latent)
        transformation_intervals(build, ends, values.intervals, latent)
        transformation_truncation(build, at_entry, values.truncated, latent)

    return add


def _linear(values: MemberValues, latent: Latent) -> Adding:
    density, mass = values.exact_logs()[1], values.interval_log_prob()
    log_sf = values.entry_logs()[1]

    def add(build: Build) -> None:
        linear_probabilities(build, density, values.exact)
        linear_probabilities(build, mass, values.intervals)
        linear_truncation(build, log_sf, values.truncated)

    return add


def _log_linear(values: MemberValues, latent: Latent) -> Adding:
    log_cdf, log_pdf = values.exact_logs()
    ends, entry = values.interval_log_cdf(), log_minus_log(*values.entry_logs())

    def add(build: Build) -> None:
        log_linear_exact(build, log_cdf, log_pdf, values.exact)
        log_linear_intervals(build, ends, values.intervals)
        log_linear_truncation(build, entry, values.truncated)

    return add


def _log_linear_density(values: MemberValues, latent: Latent) -> Adding | None:
    masses = values.masses()
    if masses is None:
        return None
    return lambda build: log_linear_density(build, masses, torch.arange(masses.observed.shape[1]))


_POOLS: dict[str, Callable[[MemberValues, Latent], Adding | None]] = {
    "transformation": _transformation,
    "linear": _linear,
    "log-linear": _log_linear,
    "log-linear-density": _log_linear_density,
}
CLOSED_FORM = tuple(_POOLS)


def likelihood_terms(values: MemberValues, method: str, latent: Latent) -> Adding | None:
    """Return what adds the terms of a pool's log-likelihood to a ``Build``; None without a closed form.

    Parameters
    ----------
    values : MemberValues
    method : str
        The pool.
    latent : Latent
        F_Z of the transformation pool.
    """
    return _POOLS[method](values, latent)
