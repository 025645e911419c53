"""Predictive distributions on the counts 0, 1, 2, ..."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import torch
from numpy.typing import ArrayLike
from torch import Tensor

from deeptram._arrays import as_numpy
from deeptram._numerics import log_mass_between
from deeptram._validation import first_rows
from deeptram.errors import UnsupportedError
from deeptram.predictive.base import NumericPredictive
from deeptram.predictive.rows import check_one_per_row, grid_values
from deeptram.responses import Observations, Surv, encode_count

_TINY = 1e-13
_BLOCK = 512
_LONGEST_SUM = 2**20
_LARGEST = 2.0**52
_ZOOM = 512


class CountPredictive(NumericPredictive):
    r"""n distributions on the non-negative integers.

    ``cdf``, ``sf`` and ``trafo`` accept any real y (its integer part counts);
    ``pmf`` and ``log_prob`` want counts. Quantiles, modes and samples are
    whole numbers held as floats, so that infinity can be said.

    Implementing one: set ``latent``, ``dtype`` and ``gives_numpy``, say in ``_row_parts`` what belongs to
    rows, and implement ``log_cdf_t``, ``log_sf_t`` and ``log_pmf_t`` on tensors of counts (or infinity) of
    shape (n, G) or (1, G). Where h is known itself override ``trafo_t``.

    Examples
    --------
    >>> import scipy.stats
    >>> from deeptram.predictive import Predictive
    >>> pred = Predictive.from_scipy(scipy.stats.poisson([1.0, 4.0]))
    >>> pred.pmf(0).round(4), pred.quantile(0.5), pred.crps([1, 1]).round(4)
    (array([0.3679, 0.0183]), array([1., 4.]), array([0.212 , 1.9263]))
    """

    kind = "count"
    offset: int = 0  # h is evaluated at y + offset; Observations are on that scale

    # -- to implement: tensors of counts in, tensors out -----------------------------------------

    @abstractmethod
    def log_pmf_t(self, k: Tensor) -> Tensor:
        """Return log P(Y = k), shape (n, G)."""

    def log_density_t(self, k: Tensor) -> Tensor:
        return self.log_pmf_t(k)

    # -- may be overridden -------------------------------------------------------------------------

    def log_interval_t(self, lower: Tensor, upper: Tensor) -> Tensor:
        """Return log P(lower < Y <= upper), shape (n, G); lower below 0 and upper infinite are open ends."""
        low = self.log_tails_t(lower.clamp(min=0))
        below = (lower < 0).expand_as(low[0])
        nothing = torch.full_like(low[0], -torch.inf)
        low = torch.where(below, nothing, low[0]), torch.where(below, torch.zeros_like(nothing), low[1])
        return log_mass_between(low, self.log_tails_t(upper))

    def quantile_t(self, q: Tensor) -> Tensor:
        """Return the smallest count k with F(k) >= q, shape (n, G), for q of shape (G,), (1, G) or (n, G)."""
        with torch.no_grad():
            q = torch.atleast_2d(q).expand(len(self), -1)
            low, high = torch.full_like(q, -1.0), torch.ones_like(q)
            while not bool((reached := self._reached(high, q) | (high > _LARGEST)).all()):
                low, high = torch.where(reached, low, high), torch.where(reached, high, 4 * high)
            while bool((high - low > 1).any()):
                middle = torch.floor((low + high) / 2)
                there = self._reached(middle.clamp(min=0), q) & (middle >= 0)
                low, high = torch.where(there, low, middle), torch.where(there, middle, high)
            return torch.where(high > _LARGEST, torch.full_like(high, torch.inf), high) + 0.0  # never -0.0

    def mean_t(self) -> Tensor:
        r"""Return :math:`\sum_{k \ge 0} P(Y > k)`, shape (n,)."""
        return self.tail_sums_t(torch.zeros((len(self), 1), dtype=self.dtype), 1)[1]

    def crps_t(self, y: Tensor) -> Tensor:
        r"""Return :math:`\sum_{k \ge 0} (F(k) - 1(y \le k))^2`, shape (n,), for counts y of shape (n, 1)."""
        left, right = self.tail_sums_t(y, 2)
        return left + right

    def tail_sums_t(self, cut: Tensor, power: int) -> tuple[Tensor, Tensor]:
        r"""Return :math:`\sum_{k < c} F(k)^p` and :math:`\sum_{k \ge c} (1 - F(k))^p`, each (n,).

        The terms between the outermost quantiles (tail probability 1e-13) are
        added one by one; beyond them a term is 0 or 1 to that accuracy.
        """
        first = self.quantile_t(torch.tensor([_TINY], dtype=self.dtype))
        self._refuse_endless(first)
        last = self.quantile_t(torch.tensor([1 - _TINY], dtype=self.dtype))
        left, right = (cut - last).clamp(min=0)[:, 0], (first - cut).clamp(min=0)[:, 0]
        widest = int((last - first).max()) if len(self) else 0
        for start in range(0, widest + 1, _BLOCK):
            k = first + torch.arange(start, min(start + _BLOCK, widest + 1), dtype=self.dtype)
            below = k < cut
            log_side = torch.where(below, self.log_cdf_t(k), self.log_sf_t(k))
            value = torch.where(k < last, torch.exp(power * log_side), torch.zeros_like(log_side))
            zero = torch.zeros_like(value)
            left = left + torch.where(below, value, zero).sum(1)
            right = right + torch.where(below, zero, value).sum(1)
        return left, right

    def mode_t(self) -> Tensor:
        """Return the most likely count, shape (n,): all counts, or a grid that is refined."""
        with torch.no_grad():
            low, high = self._range(1e-6)
            reached = self.quantile_t(torch.linspace(0.01, 0.99, 99, dtype=self.dtype))
            reached = torch.where(torch.isinf(reached), low, reached).amax(dim=1, keepdim=True)
            high = torch.where(torch.isinf(high), reached, high)  # a flat tail holds no counts
            while True:
                step = torch.ceil((high - low) / _ZOOM).clamp(min=1)
                k = torch.minimum(low + step * torch.arange(_ZOOM + 1, dtype=self.dtype), high)
                best = k.gather(1, self.log_pmf_t(k).argmax(dim=1, keepdim=True))
                if bool((step == 1).all()):
                    return best[:, 0]
                low = torch.maximum(low, torch.where(step > 1, best - step, best))
                high = torch.minimum(high, torch.where(step > 1, best + step, best))

    def rmst_t(self, tau: Tensor) -> Tensor:
        r"""Return :math:`\int_0^\tau P(Y > t) dt`, a sum, shape (n,), for positive tau of shape (n, 1)."""
        whole = torch.floor(tau)
        below, _ = self.tail_sums_t(whole, 1)
        return whole[:, 0] - below + ((tau - whole) * torch.exp(self.log_sf_t(whole)))[:, 0]

    # -- the public distribution -------------------------------------------------------------------

    @property
    def support(self) -> tuple[float, float]:
        """The counts from 0 on."""
        return 0.0, float("inf")

    def pmf(self, y: Any = None) -> Any:
        """Return P(Y = y), shape (n,); y is a count or one count per row."""
        return self._out(torch.exp(self.log_pmf_t(self._counts(y)))[:, 0])

    def log_prob(self, y: Any) -> Any:
        """Return the log-likelihood of each row, shape (n,).

        Parameters
        ----------
        y : counts, Surv or Observations
            A ``Surv`` is on the scale of the counts, exact values included;
            ``Observations`` are on the scale of h, as ``encode_count`` makes them.
        """
        if isinstance(y, Surv):
            return self._out(self._log_prob_of_intervals(y.observations, 0))
        if isinstance(y, Observations):
            return self._out(self._log_prob_of_intervals(y, self.offset))
        return self._out(self.log_pmf_t(self._counts(y))[:, 0])

    def crps(self, y: Any) -> Any:
        r"""Return :math:`\sum_{k \ge 0} (F(k) - 1(y \le k))^2` of each row."""
        return self._out(self.crps_t(self._counts(y).expand(len(self), 1)))

    def hazard(self, t: Any) -> Any:
        """Return P(Y = t | Y >= t), shape (n,); 1 where P(Y >= t) = 0."""
        k = self._counts(t, "t")
        at_risk = self.any_log_sf_t(k - 1)
        gone = torch.isneginf(at_risk)
        log_hazard = self.log_pmf_t(k) - torch.where(gone, torch.zeros_like(at_risk), at_risk)
        return self._out(torch.exp(torch.where(gone, torch.zeros_like(at_risk), log_hazard))[:, 0])

    def pmf_grid(self, grid: ArrayLike) -> Any:
        """Return P(Y = g) for every count g of a common grid, shape (n, len(grid))."""
        values = grid_values(grid, self.dtype)
        encode_count(as_numpy(values[0]))
        return self._out(torch.exp(self.log_pmf_t(values)))

    # -- helpers -----------------------------------------------------------------------------------

    def _counts(self, y: Any, name: str = "y") -> Tensor:
        values = self._rows(y, name)
        if len(values):
            encode_count(as_numpy(values[:, 0]))
        return values

    def _cdf_t(self, y: Tensor) -> Tensor:
        return torch.where(y < 0, 0.0, torch.exp(self.log_cdf_t(torch.floor(y).clamp(min=0))))

    def any_log_sf_t(self, y: Tensor) -> Tensor:
        return torch.where(y < 0, 0.0, self.log_sf_t(torch.floor(y).clamp(min=0)))

    def _any_trafo_t(self, y: Tensor) -> Tensor:
        return torch.where(y < 0, -torch.inf, self.trafo_t(torch.floor(y).clamp(min=0)))

    def _reached(self, k: Tensor, q: Tensor) -> Tensor:
        # Either tail may decide: F >= q and 1 - F <= 1 - q differ by rounding only.
        return (torch.exp(self.log_cdf_t(k)) >= q) | (torch.exp(self.log_sf_t(k)) <= 1 - q)

    def _refuse_endless(self, first: Tensor) -> None:
        """Refuse sums of more terms than can be added one by one."""
        endless = torch.exp(self.log_sf_t(first + _LONGEST_SUM)) > 2 * _TINY
        if bool(endless.any()):
            raise UnsupportedError(
                f"this sum over counts has more than {_LONGEST_SUM} terms in "
                f"{first_rows(as_numpy(endless[:, 0]))}; use quantiles, or a continuous distribution"
            )

    def _smallest(self, k: Tensor, q: Tensor) -> Tensor:
        """Correct quantiles that are right to rounding by looking at their neighbours."""
        lower = (k - 1).clamp(min=0)
        k = torch.where((k >= 1) & self._reached(lower, q), lower, k)
        return torch.where(self._reached(k, q), k, k + 1) + 0.0  # never -0.0

    def _range(self, tail: float) -> tuple[Tensor, Tensor]:
        levels = torch.tensor([tail, 1 - tail], dtype=self.dtype)
        first, last = self.quantile_t(levels).split(1, dim=1)
        return first, last

    def _log_prob_of_intervals(self, seen: Observations, offset: int) -> Tensor:
        check_one_per_row(len(seen), len(self))
        lower, upper = (
            torch.as_tensor(e, dtype=self.dtype).unsqueeze(1) - offset for e in (seen.lower, seen.upper)
        )
        lower = torch.where(lower == upper, lower - 1, torch.floor(lower))
        single = torch.floor(upper) - lower == 1
        count = torch.where(single, torch.floor(upper), torch.zeros_like(upper)).clamp(min=0)
        wide = self.log_interval_t(lower, torch.floor(upper).clamp(min=0))
        value = torch.where(single, self.log_pmf_t(count), wide)[:, 0]
        if seen.entry is None:
            return value
        entry = torch.as_tensor(seen.entry, dtype=self.dtype).unsqueeze(1) - offset
        return value - self.any_log_sf_t(entry)[:, 0]
