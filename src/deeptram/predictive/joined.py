"""Distributions of different rows put together: the folds of a cross-validation, or parts of a data set."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from deeptram import latent as latents
from deeptram.errors import InvalidInputError
from deeptram.latent import Latent
from deeptram.predictive.base import Predictive
from deeptram.predictive.count import CountPredictive
from deeptram.predictive.discrete import DiscretePredictive
from deeptram.predictive.line import LinePredictive
from deeptram.predictive.rows import row_index

Read = Callable[..., Tensor]


def join_rows(parts: Sequence[Predictive], rows: Sequence[npt.ArrayLike] | None = None) -> Predictive:
    """Return the distributions of all rows of several predictions of the same outcome.

    Parameters
    ----------
    parts : sequence of Predictive
        Of one kind, with the same levels.
    rows : sequence of integer arrays, optional
        Which rows of the result each part holds; by default one part after the other.

    Examples
    --------
    >>> from deeptram.predictive import Predictive
    >>> parts = [Predictive.from_proba([[0.1, 0.9]]), Predictive.from_proba([[0.4, 0.6], [0.7, 0.3]])]
    >>> join_rows(parts, [[1], [0, 2]]).pmf()[:, 0]
    array([0.4, 0.1, 0.7])
    """
    order = _order(parts, rows)
    kinds = [kind for kind in (DiscretePredictive, LinePredictive, CountPredictive) if _all(parts, kind)]
    if not kinds or len({part.levels for part in parts}) > 1:
        raise InvalidInputError(
            "distributions of different rows must be of one kind with the same levels, got "
            f"{', '.join(sorted({type(part).__name__ for part in parts}))}; predict them with one model"
        )
    if kinds[0] is DiscretePredictive:
        return _joined_levels(parts, order)
    return (JoinedLine if kinds[0] is LinePredictive else JoinedCount)(parts, order)


def _all(parts: Sequence[Predictive], kind: type) -> bool:
    return len(parts) > 0 and all(isinstance(part, kind) for part in parts)


def _order(parts: Sequence[Predictive], rows: Sequence[npt.ArrayLike] | None) -> Tensor:
    """Return for each row of the result its place among the rows of all parts, shape (n,)."""
    n = sum(len(part) for part in parts)
    places = (
        np.arange(n) if rows is None else np.concatenate([np.asarray(one, dtype=np.int64) for one in rows])
    )
    order = np.argsort(places)
    if not np.array_equal(places[order], np.arange(n)):
        raise InvalidInputError(
            f"rows must name every row from 0 to {n - 1} once, got others; number them anew"
        )
    return torch.from_numpy(order)


def _joined_levels(parts: Sequence[Any], order: Tensor) -> DiscretePredictive:
    each = [[part.log_cdf_t(), part.log_sf_t(), part.log_pmf_t()] for part in parts]
    logs = [torch.cat(same)[order] for same in zip(*each, strict=True)]
    joined = DiscretePredictive.from_logs(*logs, levels=parts[0].levels, latent=_latent(parts))
    joined.gives_numpy = all(part.gives_numpy for part in parts)
    joined.ordered = all(part.ordered for part in parts)
    return joined


def _latent(parts: Sequence[Predictive]) -> Latent | None:
    first = parts[0].latent
    return first if all(part.latent == first for part in parts) else None


class _Joined:
    """Rows of several predictions, each asked for its own."""

    def __init__(self, parts: Sequence[Any], order: Tensor) -> None:
        self.parts, self.order = parts, order
        self.place = torch.argsort(order)
        self.latent, self.gives_numpy = _latent(parts), all(part.gives_numpy for part in parts)
        self.dtype = parts[0].dtype

    def __len__(self) -> int:
        return len(self.order)

    def __getitem__(self, rows: Any) -> Any:
        """Return the distributions of some rows."""
        wanted = self.order[row_index(rows, len(self))]
        ends = torch.tensor([0, *np.cumsum([len(part) for part in self.parts])])
        parts, places = [], []
        for part, start, end in zip(self.parts, ends[:-1], ends[1:], strict=True):
            own = torch.nonzero((wanted >= start) & (wanted < end))[:, 0]
            if len(own):
                parts.append(part[(wanted[own] - start).numpy()])
                places.append(own)
        if not parts:
            return type(self)([self.parts[0][[]]], wanted)
        return type(self)(parts, torch.argsort(torch.cat(places)))

    def _ask(self, read: Callable[[Any], Read], *values: Tensor) -> Tensor:
        """Return what a method of each part gives at its rows of the values, (1, G) or (n, G) each."""
        sizes = [len(part) for part in self.parts]
        given = [
            [value] * len(sizes)
            if value.shape[0] != len(self) or value.ndim < 2
            else value[self.place].split(sizes)
            for value in values
        ]
        answers = [read(part)(*own) for part, *own in zip(self.parts, *given, strict=True)]
        return torch.cat(answers)[self.order]

    def log_cdf_t(self, y: Tensor) -> Tensor:
        """Return log F(y), shape (n, G)."""
        return self._ask(lambda part: part.log_cdf_t, y)

    def log_sf_t(self, y: Tensor) -> Tensor:
        """Return log(1 - F(y)), shape (n, G)."""
        return self._ask(lambda part: part.log_sf_t, y)

    def trafo_t(self, y: Tensor, latent: Latent | None = None) -> Tensor:
        """Return h(y), shape (n, G)."""
        scale = latent or self.latent or latents.get("logistic")
        return self._ask(lambda part: lambda own: part.trafo_t(own, scale), y)

    def log_interval_t(self, lower: Tensor, upper: Tensor) -> Tensor:
        """Return log(F(upper) - F(lower)), shape (n, G)."""
        return self._ask(lambda part: part.log_interval_t, lower, upper)

    def quantile_t(self, q: Tensor) -> Tensor:
        """Return quantiles, shape (n, G)."""
        return self._ask(lambda part: part.quantile_t, torch.atleast_2d(q))

    def mean_t(self) -> Tensor:
        """Return means, shape (n,)."""
        return self._ask(lambda part: part.mean_t)

    def mode_t(self) -> Tensor:
        """Return modes, shape (n,)."""
        return self._ask(lambda part: part.mode_t)

    def crps_t(self, y: Tensor) -> Tensor:
        """Return the CRPS, shape (n,)."""
        return self._ask(lambda part: part.crps_t, y.expand(len(self), -1))

    def rmst_t(self, tau: Tensor) -> Tensor:
        """Return restricted means, shape (n,)."""
        return self._ask(lambda part: part.rmst_t, tau)


class JoinedLine(_Joined, LinePredictive):
    """Rows of several predictions on the line."""

    def __init__(self, parts: Sequence[Any], order: Tensor) -> None:
        super().__init__(parts, order)
        self.lifetimes = all(part.lifetimes for part in parts)
        known = [part.observed for part in parts if part.observed is not None]
        if len(known) == len(parts):
            self.observed = max(low for low, _ in known), min(high for _, high in known)

    def log_tails_t(self, y: Tensor) -> tuple[Tensor, Tensor]:
        both = self._ask(lambda part: lambda own: torch.stack(part.log_tails_t(own), dim=1), y)
        return both[:, 0], both[:, 1]

    def log_pdf_t(self, y: Tensor) -> Tensor:
        return self._ask(lambda part: part.log_pdf_t, y)

    def log_slope_t(self, y: Tensor, latent: Latent | None = None) -> Tensor:
        scale = latent or self._own_latent
        return self._ask(lambda part: lambda own: part.log_slope_t(own, scale), y)

    def log_entry_t(self, entry: Tensor) -> Tensor:
        return self._ask(lambda part: part.log_entry_t, entry)

    def log_hazard_t(self, y: Tensor) -> Tensor:
        return self._ask(lambda part: part.log_hazard_t, y)

    def rough_quantile_t(self, q: Tensor) -> Tensor:
        return self._ask(lambda part: part.rough_quantile_t, torch.atleast_2d(q))

    def support_t(self) -> tuple[Tensor, Tensor]:
        ends = [[end.expand(len(part), 1) for end in part.support_t()] for part in self.parts]
        lower, upper = (torch.cat(side)[self.order] for side in zip(*ends, strict=True))
        return lower, upper

    def knots_t(self) -> Tensor | None:
        each = [(part, part.knots_t()) for part in self.parts]
        widest = max((knots.shape[1] for _, knots in each if knots is not None), default=0)
        if widest == 0:
            return None
        filled = []
        for part, knots in each:
            own = part.rough_quantile_t(torch.tensor([0.5], dtype=self.dtype)) if knots is None else knots
            own = own.expand(len(part), -1)
            filled.append(torch.cat([own, own[:, -1:].expand(-1, widest - own.shape[1])], dim=1))
        return torch.cat(filled)[self.order]


class JoinedCount(_Joined, CountPredictive):
    """Rows of several predictions on the counts."""

    def log_pmf_t(self, k: Tensor) -> Tensor:
        return self._ask(lambda part: part.log_pmf_t, k)
