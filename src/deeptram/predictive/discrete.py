"""Predictive distributions on a finite ordered set of levels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from deeptram import latent as latents
from deeptram._arrays import as_numpy, as_tensor
from deeptram._numerics import log1mexp
from deeptram.errors import UnsupportedError
from deeptram.latent import Latent
from deeptram.predictive.base import Predictive
from deeptram.predictive.calculus import log_increment
from deeptram.predictive.rows import check_one_per_row, probabilities, uniforms
from deeptram.responses.discrete import DiscreteResponse


class DiscretePredictive(Predictive):
    r"""n distributions on K ordered levels, held on the log scale.

    Natively either transformation values :math:`h_k = F_Z^{-1}(P(Y \le y_k))`
    with the logs of their gaps, or log-CDF, log-survivor and log-probabilities.
    The other form is derived when asked for; nothing passes through a plain
    probability on the way, so h = 700 is as good as h = 1.

    Build it with ``from_h``, ``from_log_pmf`` or ``from_logs`` (which trust
    their input) or, for foreign numbers, ``Predictive.from_*`` (which check it).

    Examples
    --------
    >>> pred = DiscretePredictive.from_h(np.array([[-1.0, 700.0]]), levels=("a", "b", "c"))
    >>> pred.pmf().round(3)
    array([[0.269, 0.731, 0.   ]])
    >>> pred.log_prob(["c"])
    array([-700.])
    """

    levels: tuple[Any, ...]
    kind = "discrete"
    _row_parts: ClassVar[tuple[str, ...]] = (
        "_h",
        "_log_increments",
        "_log_cdf",
        "_log_sf",
        "_log_pmf",
        "_cdf",
    )
    _keeps_derived = True  # whether what is derived is kept for the next question
    ordered = True  # whether the order of the levels means something; not for nominal outcomes

    def __init__(
        self,
        *,
        levels: Sequence[Any] | None = None,
        latent: Latent | None = None,
        numpy: bool = True,
        h: Tensor | None = None,
        log_increments: Tensor | None = None,
        log_cdf: Tensor | None = None,
        log_sf: Tensor | None = None,
        log_pmf: Tensor | None = None,
        cdf: Tensor | None = None,
    ) -> None:
        self.latent, self.gives_numpy = latent, numpy
        self._h, self._log_increments = h, log_increments
        self._log_cdf, self._log_sf, self._log_pmf = log_cdf, log_sf, log_pmf
        self._cdf = cdf
        self.levels = tuple(range(self._any().shape[-1] + (log_pmf is None)) if levels is None else levels)

    @classmethod
    def from_h(
        cls, h: Any, log_increments: Any = None, *, levels: Any = None, latent: str | Latent = "logistic"
    ) -> DiscretePredictive:
        """Build from transformation values (n, K-1) and, where known, the logs of their gaps (n, K-2)."""
        gaps = None if log_increments is None else as_tensor(log_increments)
        scale, numpy = latents.get(latent), not isinstance(h, Tensor)
        return cls(levels=levels, latent=scale, numpy=numpy, h=as_tensor(h), log_increments=gaps)

    @classmethod
    def from_log_pmf(
        cls, log_pmf: Any, *, levels: Any = None, latent: Latent | None = None
    ) -> DiscretePredictive:
        """Build from log-probabilities (n, K) that sum to one; tails are accumulated from their own end."""
        numpy = not isinstance(log_pmf, Tensor)
        log_pmf = as_tensor(log_pmf)
        lower = torch.logcumsumexp(log_pmf, dim=-1)[..., :-1]
        upper = torch.logcumsumexp(log_pmf.flip(-1), dim=-1).flip(-1)[..., 1:]
        # The smaller of the two is accurate; the other is one minus it and never above one.
        small = lower < upper
        some = torch.full_like(lower, -1.0)
        log_cdf = torch.where(small, lower, log1mexp(-torch.where(small, some, upper)))
        log_sf = torch.where(small, log1mexp(-torch.where(small, lower, some)), upper)
        return cls(levels=levels, latent=latent, numpy=numpy, log_cdf=log_cdf, log_sf=log_sf, log_pmf=log_pmf)

    @classmethod
    def from_logs(
        cls, log_cdf: Any, log_sf: Any, log_pmf: Any, *, levels: Any = None, latent: Latent | None = None
    ) -> DiscretePredictive:
        """Build from log F and log(1 - F) at the first K-1 levels and log-probabilities (n, K)."""
        numpy, (cdf, sf, pmf) = not isinstance(log_pmf, Tensor), map(as_tensor, (log_cdf, log_sf, log_pmf))
        return cls(levels=levels, latent=latent, numpy=numpy, log_cdf=cdf, log_sf=sf, log_pmf=pmf)

    @classmethod
    def from_inner_cdf(
        cls, cdf: Any, *, levels: Any = None, latent: Latent | None = None
    ) -> DiscretePredictive:
        """Build from the CDF at the first K-1 levels, shape (n, K-1); logs are taken when asked for."""
        return cls(levels=levels, latent=latent, numpy=not isinstance(cdf, Tensor), cdf=as_tensor(cdf))

    def restated(self, latent: Latent | None = None, **held: Tensor) -> DiscretePredictive:
        """Return other distributions on the same levels, held as the given tensors (see the constructor)."""
        scale = self._own_latent if latent is None and "h" in held else latent or self.latent
        new = DiscretePredictive(levels=self.levels, latent=scale, numpy=self.gives_numpy, **held)
        new.ordered = self.ordered
        return new

    # -- tensors for pools and scores ---------------------------------------------------------

    @property
    def has_trafo(self) -> bool:
        """Whether h is held natively (then pools work on it, not on the CDF)."""
        return self._h is not None

    @property
    def is_nominal(self) -> bool:
        """Whether there are three or more levels without an order."""
        return not self.ordered and len(self.levels) > 2

    def log_cdf_t(self) -> Tensor:
        """Return log P(Y <= y_k), k < K, shape (n, K-1)."""
        return self._derived("_log_cdf", self._derive_log_cdf)

    def log_sf_t(self) -> Tensor:
        """Return log P(Y > y_k), k < K, shape (n, K-1)."""
        return self._derived("_log_sf", self._derive_log_sf)

    def log_pmf_t(self) -> Tensor:
        """Return log P(Y = y_k), shape (n, K)."""
        return self._derived("_log_pmf", self._derive_log_pmf)

    def _derived(self, name: str, derive: Callable[[], Tensor]) -> Tensor:
        """Return what is held under a name, or derive it the first time."""
        held: Tensor | None = getattr(self, name)
        if held is None:
            held = derive()
            if self._keeps_derived:
                setattr(self, name, held)
        return held

    def _derive_log_cdf(self) -> Tensor:
        return self._own_latent.log_cdf_t(self._native()) if self._cdf is None else torch.log(self._cdf)

    def _derive_log_sf(self) -> Tensor:
        return self._own_latent.log_sf_t(self._native()) if self._cdf is None else torch.log1p(-self._cdf)

    def _derive_log_pmf(self) -> Tensor:
        if self._cdf is not None:
            ends = torch.zeros_like(self._cdf[:, :1])
            return torch.log(torch.cat([ends, self._cdf, ends + 1], dim=1).diff(dim=1))
        h = self._native()
        inner = self._own_latent.log_interval(h[..., :-1], h[..., 1:], self._log_increments)
        return torch.cat([self.log_cdf_t()[..., :1], inner, self.log_sf_t()[..., -1:]], dim=-1)

    def log_density_t(self) -> Tensor:
        """Return the log-probabilities, shape (n, K); on the line the same name is that of log f."""
        return self.log_pmf_t()

    def trafo_t(self, latent: Latent | None = None) -> Tensor:
        """Return h on the scale of ``latent`` (default: the native one), shape (n, K-1)."""
        latent = self._own_latent if latent is None else latent
        if self._h is not None and latent == self._own_latent:
            return self._h
        return latent.from_log_t(self.log_cdf_t(), self.log_sf_t())

    def log_increments_t(self, latent: Latent | None = None) -> Tensor:
        """Return log(h_k - h_{k-1}), shape (n, K-2), without cancellation where probabilities are tiny."""
        latent = self._own_latent if latent is None else latent
        native = self._h is not None and latent == self._own_latent
        if native and self._log_increments is not None:
            return self._log_increments
        h = self.trafo_t(latent)
        lower, upper = h[..., :-1], h[..., 1:]
        if native:  # nothing is known better than h itself
            same_end = torch.isinf(lower) & (lower == upper)
            return torch.log(torch.where(same_end, torch.zeros_like(lower), upper - lower))
        return log_increment(lower, upper, lambda: self.log_pmf_t()[..., 1:-1], latent)

    def encode(self, y: Any) -> Tensor:
        """Return the positions 0..K-1 of outcomes among ``levels``; unknown ones are refused."""
        codes = torch.as_tensor(np.asarray(DiscreteResponse(self.levels).encode(y)))
        check_one_per_row(len(codes), len(self))
        return codes

    def log_prob_of_codes_t(self, codes: Tensor) -> Tensor:
        """Return log P(Y = y_code) of each row, shape (n,)."""
        return self.log_pmf_t().gather(-1, codes.unsqueeze(-1)).squeeze(-1)

    # -- the public distribution ----------------------------------------------------------------

    @property
    def support(self) -> tuple[Any, Any]:
        """The first and the last level."""
        return self.levels[0], self.levels[-1]

    def __len__(self) -> int:
        """Return the number of rows n."""
        return int(self._any().shape[0])

    def cdf(self, y: Any = None) -> Any:
        """Return P(Y <= y): (n, K), last column exactly 1, without ``y``; (n,) with it."""
        inner = torch.exp(self.log_cdf_t()) if self._cdf is None else self._cdf
        full = torch.cat([inner, torch.ones_like(inner[:, :1])], dim=1)
        return self._out(full if y is None else self._pick(full, y))

    def sf(self, y: Any = None) -> Any:
        """Return P(Y > y): (n, K), last column exactly 0, without ``y``; (n,) with it."""
        inner = torch.exp(self.log_sf_t())
        full = torch.cat([inner, torch.zeros_like(inner[:, :1])], dim=1)
        return self._out(full if y is None else self._pick(full, y))

    def pmf(self, y: Any = None) -> Any:
        """Return P(Y = y): (n, K) without ``y``; (n,) with it."""
        full = torch.exp(self.log_pmf_t())
        return self._out(full if y is None else self._pick(full, y))

    def log_prob(self, y: Any) -> Any:
        """Return log P(Y = y) of each row's outcome, shape (n,)."""
        return self._out(self.log_prob_of_codes_t(self._codes(y)))

    def trafo(self, y: Any = None) -> Any:
        """Return h: (n, K-1) without ``y``; (n,) with it (infinite at the last level)."""
        h = self.trafo_t()
        if y is None:
            return self._out(h)
        full = torch.cat([h, torch.full_like(h[:, :1], torch.inf)], dim=1)
        return self._out(self._pick(full, y))

    def quantile(self, q: Any) -> Any:
        """Return the smallest level with CDF >= q: labels of shape (n,) or (n, Q)."""
        probability = probabilities(q)
        codes = self._search(probability.reshape(1, -1).expand(len(self), -1))
        return self._labels(codes if probability.ndim else codes[:, 0])

    def mean(self) -> Any:
        """Return the expectation over numeric levels, shape (n,)."""
        values = np.asarray(self.levels)
        if values.dtype.kind not in "biuf":
            raise UnsupportedError(
                f"mean needs numeric levels, got {list(self.levels)[:3]}...; use mode() or median()"
            )
        return self._out(torch.exp(self.log_pmf_t()) @ torch.as_tensor(values).to(self._any().dtype))

    def mode(self) -> Any:
        """Return the most likely level of each row (the first of equals), shape (n,)."""
        return self._labels(self.log_pmf_t().argmax(dim=-1))

    def crps(self, y: Any) -> Any:
        r"""Return :math:`\sum_{k<K} (F_k - 1(y \le y_k))^2`, the RPS without its factor 1/(K-1)."""
        below = torch.arange(len(self.levels) - 1) >= self._codes(y).unsqueeze(-1)
        error = torch.where(below, torch.exp(self.log_sf_t()), torch.exp(self.log_cdf_t()))
        return self._out((error**2).sum(dim=-1))

    def hazard(self, t: Any) -> Any:
        """Return P(Y = t | Y >= t), shape (n,); 1 where P(Y >= t) = 0."""
        codes = self._codes(t)
        start = torch.zeros_like(self._any()[:, :1])
        at_risk = torch.cat([start, self.log_sf_t()], dim=1).gather(1, codes.unsqueeze(1)).squeeze(1)
        gone = torch.isneginf(at_risk)
        safe = torch.where(gone, torch.zeros_like(at_risk), at_risk)
        log_hazard = torch.where(gone, safe, self.log_prob_of_codes_t(codes) - safe)
        return self._out(torch.exp(log_hazard))

    def cumhazard(self, t: Any) -> Any:
        """Return -log P(Y > t), shape (n,); infinite at the last level."""
        inner = self.log_sf_t()
        full = torch.cat([inner, torch.full_like(inner[:, :1], -torch.inf)], dim=1)
        return self._out(-self._pick(full, t))

    def cdf_grid(self, grid: ArrayLike) -> Any:
        """Return P(Y <= g) for every level g in ``grid``, shape (n, len(grid))."""
        codes = np.asarray(DiscreteResponse(self.levels).encode(grid))
        return self.cdf()[:, codes]

    def sample(self, size: int = 1, random_state: Any = None) -> Any:
        """Draw ``size`` levels per row, shape (n, size)."""
        return self._labels(self._search(uniforms((len(self), size), random_state, torch.float64)))

    # -- helpers ----------------------------------------------------------------------------------

    def _native(self) -> Tensor:
        if self._h is None:
            raise UnsupportedError(
                "a discrete distribution needs h, a CDF or log-probabilities, got none; use from_h"
            )
        return self._h

    def _any(self) -> Tensor:
        held = self._log_pmf if self._cdf is None else self._cdf
        return self._native() if held is None else held

    def _codes(self, y: Any) -> Tensor:
        if not isinstance(y, (list, tuple)) and np.ndim(y) == 0:
            code = int(DiscreteResponse(self.levels).encode([y])[0])
            return torch.full((len(self),), code)
        return self.encode(y)

    def _pick(self, full: Tensor, y: Any) -> Tensor:
        return full.gather(1, self._codes(y).unsqueeze(1)).squeeze(1)

    def _labels(self, codes: Tensor) -> Any:
        return DiscreteResponse(self.levels).decode(as_numpy(codes))

    def _search(self, q: Tensor) -> Tensor:
        """Return for probabilities (n, G) how many of the CDF's values lie below them."""
        cdf = torch.exp(self.log_cdf_t()) if self._cdf is None else self._cdf
        return torch.searchsorted(cdf.detach().to(torch.float64).contiguous(), q.contiguous())
