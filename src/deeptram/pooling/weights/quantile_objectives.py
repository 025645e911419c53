r"""Scores of the quantile pool as functions of the weights.

The CRPS is an integral of pinball losses, each convex in a quantile, and the pool's quantiles are linear in
the weights: so the **CRPS is convex in the weights**, and the optimum can be certified. It is computed from
quantiles at levels: those of members given by quantiles, else at 199 levels between 0.0001 and 0.9999.

For the NLL let z solve :math:`\sum_m w_m Q_m(z) = y` and D be the derivative of the left side in z. Then

.. math:: \log f = \log f_Z(z) - \log D, \qquad \partial z / \partial w_m = -Q_m(z) / D .
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from deeptram import latent as latents
from deeptram._rows import take_rows
from deeptram.optimise.simplex import Matrix, Vector
from deeptram.pooling.members import common_latent
from deeptram.pooling.quantile import VincentLine
from deeptram.pooling.rule import PoolInfo, Recipe
from deeptram.pooling.weights.member_values import LineValues
from deeptram.pooling.weights.objectives import Objective
from deeptram.pooling.weights.row_likelihood import RowLikelihood, RowTerms
from deeptram.predictive.line import LinePredictive
from deeptram.predictive.tabulated import QuantilesPredictive

_OUTERMOST, _LEVELS = 9.21, 199  # logit of the last level, and how many there are
_STEP = 1e-4  # in z, for the derivative of D


class QuantileCrps(Objective):
    """The CRPS of quantile pools of members given by quantiles at common levels."""

    convex = True

    def __init__(self, q: Tensor, values: Tensor, y: Tensor) -> None:
        self.q, self.values, self.y = q, values, y
        self.n_rows = len(y)

    @classmethod
    def of(cls, members: Sequence[LinePredictive], y: Any) -> QuantileCrps:
        """Read the members' quantiles."""
        first: Any = members[0]
        at = first.exact_values_t(y).expand(len(first), 1).to(torch.float64)
        tables = [m for m in members if isinstance(m, QuantilesPredictive) and torch.equal(m.q, first.q)]
        if len(tables) == len(members):
            return cls(first.q.to(torch.float64), _stacked([m.values for m in tables]), at)
        q = torch.sigmoid(torch.linspace(-_OUTERMOST, _OUTERMOST, _LEVELS, dtype=torch.float64))
        return cls(q, _stacked([m.quantile_t(q.to(m.dtype).unsqueeze(0)) for m in members]), at)

    def evaluate(self, w: Vector) -> tuple[float, Vector, Matrix]:
        """Return the sum of the CRPS; its Hessian is twice the density times products of distances from y."""
        mean = torch.tensordot(torch.from_numpy(w), self.values, dims=1).requires_grad_()
        pooled = QuantilesPredictive(self.q, mean, numpy=False)
        total = pooled.crps_t(self.y).sum()
        (slope,) = torch.autograd.grad(total, mean)
        gradient = self.values.flatten(1) @ slope.flatten()
        with torch.no_grad():
            level = torch.exp(pooled.log_cdf_t(self.y))
            density = torch.exp(pooled.log_pdf_t(self.y))[:, 0]
            density = torch.where(torch.isfinite(density), density, torch.zeros_like(density))
            each = [QuantilesPredictive(self.q, x, False).quantile_t(level) - self.y for x in self.values]
            distance = torch.cat(each, dim=1)
            distance = torch.where(torch.isfinite(distance), distance, torch.zeros_like(distance))
            hessian = 2 * (distance.T * density) @ distance
        return float(total.detach()), gradient.detach().numpy(), hessian.numpy()

    def take(self, keep: Tensor) -> QuantileCrps:
        """Return the objective of some rows."""
        return QuantileCrps(self.q, self.values[:, keep], self.y[keep])


def _stacked(tables: Sequence[Tensor]) -> Tensor:
    return torch.stack([table.detach().to(torch.float64) for table in tables])


@dataclass
class QuantileLikelihood(RowLikelihood):
    """The likelihood of the quantile pool of members on the line."""

    members: Sequence[LinePredictive]
    y: Any

    def __post_init__(self) -> None:
        self.values, self.n_rows = LineValues(self.members, self.y), len(self.members[0])

    def terms(self, w: Tensor) -> list[tuple[RowTerms, float]]:
        """Return log-densities, log-probabilities of intervals and log-survivor functions at entry."""
        values = self.values
        parts = (
            (values.exact, self._exact),
            (values.intervals, self._intervals),
            (values.truncated, self._entries),
        )
        return [
            (part(w), sign) for (rows, part), sign in zip(parts, (1.0, 1.0, -1.0), strict=True) if len(rows)
        ]

    def _line(self, rows: Tensor, w: Tensor) -> VincentLine:
        members = self.values.of_rows(rows)
        scale = common_latent(members) or latents.get("logistic")
        # With three axes a weight of zero silences a member, also where it is infinite.
        return VincentLine(Recipe(None, members, w.reshape(-1, 1, 1), PoolInfo("quantile", ()), scale))

    def _exact(self, w: Tensor) -> RowTerms:
        y = self.values.value
        line = self._line(self.values.exact, w)
        z, moved, width = _moved(line, y, w)
        up, down = (torch.exp(-line.log_slope_at(z + side * _STEP)) for side in (1, -1))
        bend = ((up - down) / (2 * _STEP)).nan_to_num(0.0)
        rise = (torch.stack(width) + bend * moved) * torch.exp(line.log_slope_at(z))
        value = line.latent.log_pdf_t(z) + line.log_slope_at(z)
        return value[:, 0], (line.latent.dlog_pdf_t(z) * moved - rise)[..., 0]

    def _intervals(self, w: Tensor) -> RowTerms:
        line = self._line(self.values.intervals, w)
        sides = [_moved(line, y, w)[:2] for y in (self.values.lower, self.values.upper)]
        (low, low_moved), (high, high_moved) = sides
        log_mass: Tensor = line.latent.log_interval(low, high)
        parts = [_rate(line, z, log_mass) * move for z, move in ((high, high_moved), (low, low_moved))]
        return log_mass[:, 0], (parts[0] - parts[1])[..., 0]

    def _entries(self, w: Tensor) -> RowTerms:
        line = self._line(self.values.truncated, w)
        z, moved, _ = _moved(line, self.values.entry, w)
        log_sf = line.latent.log_sf_t(z)
        return log_sf[:, 0], -(_rate(line, z, log_sf) * moved)[..., 0]

    def take(self, keep: Tensor) -> QuantileLikelihood:
        """Return the objective of some rows."""
        rows = keep.numpy()
        return QuantileLikelihood([member[rows] for member in self.members], take_rows(self.y, rows, "y"))


def _moved(line: VincentLine, y: Tensor, w: Tensor) -> tuple[Tensor, Tensor, list[Tensor]]:
    """Return z (m, 1), its derivatives in the weights (M, m, 1), and the members' Q'; none at open ends."""
    z = line.own_trafo_t(y)
    finite = torch.isfinite(z)
    at = torch.where(finite, z, torch.zeros_like(z))
    places = line.inverses(at)
    width = [
        torch.exp(-m.log_slope_t(p, line.latent)) for m, p in zip(line.recipe.members, places, strict=True)
    ]
    slope = torch.exp(line.log_slope_at(at))
    moved = torch.stack([-(place - y) * slope for place in places])
    return z, torch.where(finite, moved, torch.zeros_like(moved)), width


def _rate(line: VincentLine, z: Tensor, log_mass: Tensor) -> Tensor:
    """Return f_Z(z) over a probability; zero at open ends."""
    inner = torch.where(torch.isfinite(z), z, torch.zeros_like(z))
    rate = torch.exp(line.latent.log_pdf_t(inner) - log_mass)
    return torch.where(torch.isfinite(z), rate, torch.zeros_like(rate))
