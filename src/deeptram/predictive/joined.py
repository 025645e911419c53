"""Distributions of different rows put together: the folds of a cross-validation, or parts of a data set."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from deeptram.errors import InvalidInputError
from deeptram.latent import Latent
from deeptram.predictive.base import Predictive
from deeptram.predictive.count import CountPredictive
from deeptram.predictive.discrete import DiscretePredictive
from deeptram.predictive.line import LinePredictive
from deeptram.predictive.rows import row_index


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
    kinds = {part.kind for part in parts}
    if len(kinds) != 1 or len({part.levels for part in parts}) > 1:
        raise InvalidInputError(
            "distributions of different rows must be of one kind with the same levels, got "
            f"{', '.join(sorted({type(part).__name__ for part in parts}))}; predict them with one model"
        )
    return _FORMS[kinds.pop()](parts, order)


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


def _asked(name: str) -> Any:
    """Return a method that asks every part for its own rows."""

    def ask(joined: Any, *values: Any) -> Tensor:
        return torch.cat(joined.answers(name, *values))[joined.order]

    ask.__doc__ = f"Return ``{name}`` of every row, by the part that holds it."
    return ask


class _Joined:
    """Rows of several predictions, each asked for its own."""

    latent: Latent | None
    _own_latent: Latent

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

    def answers(self, name: str, *values: Any) -> list[Any]:
        """Return what a method of each part gives at its rows of the values, tensors (1, G) or (n, G)."""
        sizes = [len(part) for part in self.parts]
        given = [
            value[self.place].split(sizes)
            if isinstance(value, Tensor) and value.ndim > 1 and len(value) == len(self)
            else [value] * len(sizes)
            for value in values
        ]
        return [getattr(part, name)(*own) for part, *own in zip(self.parts, *given, strict=True)]

    log_cdf_t = _asked("log_cdf_t")
    log_sf_t = _asked("log_sf_t")
    log_interval_t = _asked("log_interval_t")
    quantile_t = _asked("quantile_t")
    mean_t = _asked("mean_t")
    mode_t = _asked("mode_t")
    crps_t = _asked("crps_t")
    rmst_t = _asked("rmst_t")
    _trafo_on = _asked("trafo_t")

    def trafo_t(self, y: Tensor, latent: Latent | None = None) -> Tensor:
        """Return h(y), shape (n, G)."""
        h: Tensor = self._trafo_on(y, latent or self._own_latent)
        return h


class JoinedLine(_Joined, LinePredictive):
    """Rows of several predictions on the line."""

    def __init__(self, parts: Sequence[Any], order: Tensor) -> None:
        super().__init__(parts, order)
        self.lifetimes = all(part.lifetimes for part in parts)
        known = [part.observed for part in parts if part.observed is not None]
        if len(known) == len(parts):
            self.observed = max(low for low, _ in known), min(high for _, high in known)

    log_pdf_t = _asked("log_pdf_t")
    log_entry_t = _asked("log_entry_t")
    log_hazard_t = _asked("log_hazard_t")
    rough_quantile_t = _asked("rough_quantile_t")
    _log_slope_on = _asked("log_slope_t")

    def log_tails_t(self, y: Tensor) -> tuple[Tensor, Tensor]:
        log_cdf, log_sf = (
            torch.cat(tail)[self.order] for tail in zip(*self.answers("log_tails_t", y), strict=True)
        )
        return log_cdf, log_sf

    def log_slope_t(self, y: Tensor, latent: Latent | None = None) -> Tensor:
        log_slope: Tensor = self._log_slope_on(y, latent or self._own_latent)
        return log_slope

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

    log_pmf_t = _asked("log_pmf_t")


_FORMS: dict[str, Callable[[Sequence[Any], Tensor], Predictive]] = {
    "discrete": _joined_levels,
    "continuous": JoinedLine,
    "count": JoinedCount,
}
