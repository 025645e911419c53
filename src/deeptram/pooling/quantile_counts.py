"""The quantile pool of counts.

A count k is read as the interval (k - 1, k], on which F rises in a straight line. The quantile functions of
these continuous distributions are averaged, and the result is rounded up to counts again: equal members give
themselves, quantiles are less than one count away from the mean of the members' quantiles, and the pool is
smooth in the weights.

All of it is piecewise linear in the probability, with corners at the members' values of F. These are put into
one table for each row, so F is exact, in both tails.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from deeptram._numerics import logdiffexp
from deeptram.errors import UnsupportedError
from deeptram.pooling.rule import Recipe, weighted_sum
from deeptram.predictive.count import CountPredictive
from deeptram.predictive.rows import row_chunks

_SHORTEST, _LONGEST = 64, 2**20  # counts of each member in a table
_NEGLIGIBLE = -46.0  # log of the tail that a table may leave out, if no count beyond it is asked for
_KEPT = 2**25  # numbers of a table that is kept for the next question
_CHUNK = 2**22  # numbers of a table that is not

Table = tuple[Tensor, Tensor, Tensor]


class VincentCount(CountPredictive):
    """The quantile pool of members on the counts."""

    def __init__(self, recipe: Recipe) -> None:
        self.recipe, self.pool_info, self.latent = recipe, recipe.info, recipe.latent
        self.dtype, self.gives_numpy = recipe.members[0].dtype, recipe.gives_numpy
        self._table: tuple[float, Table] | None = None

    def __len__(self) -> int:
        return len(self.recipe.members[0])

    def __getitem__(self, rows: Any) -> VincentCount:
        """Return the pool of some rows of every member."""
        return VincentCount(self.recipe.rows(rows))

    def log_cdf_t(self, k: Tensor) -> Tensor:
        """Return log P(Y <= k), shape (n, G)."""
        return self._look_up(k)[0]

    def log_sf_t(self, k: Tensor) -> Tensor:
        """Return log P(Y > k), shape (n, G)."""
        return self._look_up(k)[1]

    def log_pmf_t(self, k: Tensor) -> Tensor:
        """Return log P(Y = k), shape (n, G)."""
        return self.log_interval_t(k - 1, k)

    def quantile_t(self, q: Tensor) -> Tensor:
        """Return the mean of the members' quantiles on the line, rounded up, shape (n, G)."""
        with torch.no_grad():
            q = torch.atleast_2d(q).expand(len(self), -1)
            places = []
            for member in self.recipe.members:
                k = member.quantile_t(q)
                below = torch.exp(member.log_cdf_t((k - 1).clamp(min=0))) * (k >= 1)
                mass = torch.exp(member.log_pmf_t(torch.where(torch.isinf(k), torch.zeros_like(k), k)))
                part = torch.where(mass > 0, (q - below) / mass, torch.ones_like(mass)).clamp(0, 1)
                places.append(k - 1 + part)
            k = torch.ceil(weighted_sum(places, self.recipe.weights)).clamp(min=0)
            return torch.where(torch.isinf(k), k, self._smallest(torch.where(torch.isinf(k), 0 * q, k), q))

    def _refuse_endless(self, first: Tensor) -> None:
        """Do nothing: the tables limit their size."""

    def _look_up(self, k: Tensor) -> tuple[Tensor, Tensor]:
        """Return log F and log(1 - F) at counts, from straight lines between the corners."""
        k = k.expand(len(self), -1)
        if len(self) == 0:
            return k, k
        finite = torch.isfinite(k)
        at = torch.where(finite, k, torch.zeros_like(k))
        largest = float(at.max()) if at.numel() else 0.0
        if self._table is None or self._table[0] < largest:
            pieces = self._pieces(largest)
            if len(pieces) > 1:
                parts = [self[rows]._look_up(k[rows]) for rows in pieces]
                return torch.cat([low for low, _ in parts]), torch.cat([high for _, high in parts])
            self._table = largest, _table(self.recipe, largest)
        place, log_cdf, log_sf = self._table[1]
        right = torch.searchsorted(place.contiguous(), at.contiguous(), right=True).clamp(
            1, place.shape[1] - 1
        )
        start, stop = place.gather(1, right - 1), place.gather(1, right)
        share = ((at - start) / (stop - start)).nan_to_num(nan=0.0).clamp(0, 1)
        share = torch.where(at >= stop, torch.ones_like(share), share)
        values = []
        for table, end in ((log_cdf, 0.0), (log_sf, -torch.inf)):
            mixed = torch.logaddexp(
                torch.log1p(-share) + table.gather(1, right - 1), torch.log(share) + table.gather(1, right)
            )
            values.append(torch.where(finite, mixed.clamp(max=0), torch.full_like(mixed, end)))
        return values[0], values[1]

    def _pieces(self, largest: float) -> list[Tensor]:
        """Return the rows in pieces whose tables fit into memory."""
        width = len(self.recipe.members) * max(_SHORTEST, 4 * int(largest))
        if width * len(self) <= _KEPT:
            return [torch.arange(len(self))]
        return row_chunks(len(self), max(1, _CHUNK // width))


def _table(recipe: Recipe, largest: float) -> Table:
    """Return the places (n, L) of all corners of the pool's F, and log F and log(1 - F) there."""
    length = _SHORTEST
    while length <= _LONGEST:
        table = _corners(recipe, length)
        reach = table[0][:, -1]
        over = (table[2][:, -1] < _NEGLIGIBLE) & (reach >= largest + 1)
        if bool((over | torch.isneginf(table[2][:, -1])).all()):
            return table
        length *= 2
    raise UnsupportedError(
        f"the quantile pool of counts needs tables of more than {_LONGEST} counts here; use the linear pool, "
        "or a continuous distribution"
    )


def _corners(recipe: Recipe, length: int) -> Table:
    k = torch.arange(length, dtype=recipe.members[0].dtype).unsqueeze(0)
    logs = [(m.log_cdf_t(k), m.log_sf_t(k), m.log_pmf_t(k)) for m in recipe.members]
    keys = [log_cdf - log_sf for log_cdf, log_sf, _ in logs]  # logits: they order probabilities in both tails
    last = torch.stack([key[:, -1] for key in keys]).amin(dim=0).unsqueeze(1)
    key, order = torch.cat(keys, dim=1).sort(dim=1)
    log_cdf, log_sf = (torch.cat([one[part] for one in logs], dim=1).gather(1, order) for part in (0, 1))
    places = [_place(own, key, log_cdf, log_sf, *each) for own, each in zip(keys, logs, strict=True)]
    place = weighted_sum(places, recipe.weights)
    # Beyond the end of one member's table nothing is known: these corners stay at the last known one.
    known = (key <= last).sum(dim=1, keepdim=True) - 1
    index = torch.minimum(torch.arange(key.shape[1]).expand_as(key), known)
    place, log_cdf, log_sf = (part.gather(1, index) for part in (place, log_cdf, log_sf))
    start = torch.zeros_like(place[:, :1])
    return (
        torch.cat([start - 1, place], dim=1),
        torch.cat([start - torch.inf, log_cdf], dim=1),
        torch.cat([start, log_sf], dim=1),
    )


def _place(
    own: Tensor,
    key: Tensor,
    log_cdf: Tensor,
    log_sf: Tensor,
    own_cdf: Tensor,
    own_sf: Tensor,
    log_pmf: Tensor,
) -> Tensor:
    """Return where one member reaches given probabilities: k - 1 plus the share of the mass of k below."""
    k = torch.searchsorted(own.contiguous(), key.contiguous()).clamp(max=own.shape[1] - 1)
    mass = log_pmf.gather(1, k)
    before = torch.where(k > 0, own_cdf.gather(1, (k - 1).clamp(min=0)), torch.full_like(mass, -torch.inf))
    after = own_sf.gather(1, k)
    low = torch.exp(_difference(log_cdf, before) - mass)
    high = 1 - torch.exp(_difference(log_sf, after) - mass)
    part = torch.where(key < 0, low, high)
    part = torch.where(torch.isneginf(mass), torch.ones_like(part), part).clamp(0, 1)
    return k.to(part.dtype) - 1 + part


def _difference(larger: Tensor, smaller: Tensor) -> Tensor:
    """Return log(e^larger - e^smaller), minus infinity where rounding has them in the wrong order."""
    nothing = larger <= smaller
    safe = torch.where(nothing, torch.zeros_like(larger), larger)
    value = logdiffexp(safe, torch.where(nothing, torch.full_like(smaller, -1.0), smaller))
    return torch.where(nothing, torch.full_like(value, -torch.inf), value)
