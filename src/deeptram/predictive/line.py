"""Predictive distributions on the real line: continuous and survival outcomes."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Any

import torch
from numpy.typing import ArrayLike
from torch import Tensor

from deeptram._arrays import as_numpy
from deeptram._validation import first_rows
from deeptram.errors import ExtrapolationWarning, UnsupportedError, warn
from deeptram.latent import Latent
from deeptram.predictive import functionals
from deeptram.predictive.base import NumericPredictive
from deeptram.predictive.calculus import FAR, coordinate, coordinate_of, solve_increasing
from deeptram.predictive.rows import check_one_per_row, grid_values
from deeptram.responses.observations import Observations, Surv

_POLISHING_STEPS = 2
_FURTHEST = 1e304  # the bracket of the search ends beyond this, and closer to a bound than its inverse


class LinePredictive(NumericPredictive):
    r"""n distributions on the real line, or on a part of it.

    Implementing one:

    - Set ``latent`` (or None) and ``gives_numpy``, and say in ``_row_parts`` what belongs to rows.
    - Implement ``log_cdf_t``, ``log_sf_t`` and ``log_pdf_t`` on tensors y of
      shape (n, G) or, for a common grid, (1, G); each returns (n, G). They
      must accept every real y and both infinities.
    - Override ``support_t`` if the sample space is bounded, ``knots_t`` if the
      density has kinks, and whatever has a closed form.
    - If :math:`h = F_Z^{-1}(F)` is known itself, inherit from
      ``TrafoPredictive`` instead.

    Survival: the survivor function is ``sf``/``survivor``, and the hazard is
    computed on the log scale, so it is finite where the survivor underflows.

    Examples
    --------
    >>> import scipy.stats
    >>> from deeptram.predictive import Predictive
    >>> pred = Predictive.from_scipy(scipy.stats.norm([0.0, 10.0], 2.0))
    >>> pred.cdf(0.0).round(4)
    array([0.5, 0. ])
    >>> pred.quantile([0.5, 0.9]).round(3)
    array([[ 0.   ,  2.563],
           [10.   , 12.563]])
    """

    kind = "continuous"
    _marked: bool = False

    # -- to implement: tensors in, tensors out ------------------------------------------------

    @abstractmethod
    def log_pdf_t(self, y: Tensor) -> Tensor:
        """Return log f(y), shape (n, G); minus infinity outside the sample space."""

    def log_density_t(self, y: Tensor) -> Tensor:
        return self.log_pdf_t(y)

    # -- may be overridden --------------------------------------------------------------------

    def with_density(self) -> LinePredictive:
        """Return the distribution whose density is ``log_pdf_t``: this one, unless its own F has steps."""
        return self

    def support_t(self) -> tuple[Tensor, Tensor]:
        """Return lower and upper end of the sample space, each (1, 1) or (n, 1)."""
        end = torch.full((1, 1), torch.inf, dtype=self.dtype)
        return -end, end

    def certain_t(self) -> tuple[Tensor, Tensor]:
        """Return up to where F is 0 and from where on it is 1, inside the sample space for steps."""
        return self.support_t()

    def knots_t(self) -> Tensor | None:
        """Return points where F is not smooth, (1, m) or (n, m), or None; quadrature is split there."""
        return None

    def jumps_t(self) -> Tensor | None:
        """Return points where F jumps though the density is smooth, (1, m) or (n, m), or None."""
        return None

    def log_slope_t(self, y: Tensor, latent: Latent | None = None) -> Tensor:
        r"""Return :math:`\log h'(y) = \log f(y) - \log f_Z(h(y))` on the scale of ``latent``."""
        latent = self._own_latent if latent is None else latent
        return self.log_pdf_t(y) - latent.log_pdf_from_log_t(*self.smooth_tails_t(y))

    def trafo_and_slope_t(self, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return h(y) and log h'(y) together on the distribution's own scale, each (n, G)."""
        return self.trafo_t(y), self.log_slope_t(y)

    def near_inverse_t(self, z: Tensor) -> tuple[Tensor, Tensor, Tensor] | None:
        """Return bounds of y with h(y) = z and guesses between them, each (n, G), where known; else None."""
        return None

    def log_increment_t(self, lower: Tensor, upper: Tensor) -> Tensor | None:
        """Return log(h(upper) - h(lower)) for finite h, (n, G), where h is known better than F; else None."""
        return None

    def log_entry_t(self, entry: Tensor) -> Tensor:
        """Return log P(Y > entry), what left truncation subtracts, shape (n, G)."""
        return self.log_sf_t(entry)

    def log_hazard_t(self, y: Tensor) -> Tensor:
        """Return log f(y) - log(1 - F(y)), shape (n, G); plus infinity where F(y) = 1."""
        return log_rate(self.log_pdf_t(y), self.log_sf_t(y))

    def quantile_t(self, q: Tensor) -> Tensor:
        """Return quantiles, shape (n, G), of probabilities q of shape (G,), (1, G) or (n, G).

        Solves trafo(y) = F_Z^-1(q) by Newton's method inside a bracket that
        covers all floats; q = 0 and 1 give the ends of the sample space. The
        result carries gradients by the implicit function theorem.
        """
        return self.own_inverse_t(self._own_latent.icdf_t(torch.atleast_2d(q)))

    def inverse_t(self, z: Tensor, latent: Latent) -> Tensor:
        """Return y with h(y) = z on the scale of ``latent``, shape (n, G): quantiles, also far out.

        Parameters
        ----------
        z : Tensor, shape (n, G) or (1, G)
        latent : Latent
        """
        own = self._own_latent
        return self.own_inverse_t(
            z if latent == own else own.from_log_t(latent.log_cdf_t(z), latent.log_sf_t(z))
        )

    def own_inverse_t(self, z: Tensor) -> Tensor:
        """Return y with h(y) = z on the distribution's own scale, shape (n, G)."""
        target = z.expand(len(self), -1)
        inner = torch.isfinite(target)
        goal = torch.where(inner, target, torch.zeros_like(target))
        with torch.no_grad():
            lower, upper = self.support_t()
            y = self._polish(self._solve(goal, 8 * torch.finfo(self.dtype).eps * (1 + goal.abs())), goal)
            # What F jumps over at the start of the sample space is met there; what it never reaches, nowhere.
            y = torch.where(y - lower < 1 / _FURTHEST, lower, y)
            y = torch.where(y > _FURTHEST, upper, torch.where(y < -_FURTHEST, lower, y))
            y = torch.minimum(torch.maximum(y, lower), upper)
            y = torch.where(torch.isneginf(target), lower, torch.where(torch.isposinf(target), upper, y))
        return self._with_gradient(y, goal)

    def upper_quantile_t(self, tail: Tensor) -> Tensor:
        """Return the y with P(Y > y) = tail, shape (n, G), also where 1 - tail rounds to one."""
        with torch.no_grad():
            goal = self._own_latent.from_log_t(torch.log1p(-tail), torch.log(tail)).expand(len(self), -1)
            return self._polish(self._solve(goal, 8 * torch.finfo(self.dtype).eps * (1 + goal.abs())), goal)

    def rough_quantile_t(self, q: Tensor) -> Tensor:
        """Return quantiles to a few digits, shape (n, G), for q inside (0, 1), for use as break points."""
        with torch.no_grad():
            goal = self._own_latent.icdf_t(torch.atleast_2d(q)).expand(len(self), -1)
            lower, upper = self.support_t()
            y = self._solve(goal, torch.full_like(goal, 0.01))
            return torch.where(y > _FURTHEST, upper, torch.where(y < -_FURTHEST, lower, y))

    def mean_t(self) -> Tensor:
        r"""Return :math:`c + \int_c^\infty (1 - F) - \int_{-\infty}^c F`, shape (n,)."""
        return functionals.mean(self)

    def crps_t(self, y: Tensor) -> Tensor:
        r"""Return :math:`\int (F(t) - 1(y \le t))^2 dt`, shape (n,), for y of shape (n, 1)."""
        return functionals.crps(self, y)

    def rmst_t(self, tau: Tensor) -> Tensor:
        r"""Return :math:`\int_0^\tau (1 - F)`, shape (n,), for positive tau of shape (n, 1)."""
        return functionals.restricted_mean(self, tau)

    def mode_t(self) -> Tensor:
        """Return the point of highest density, shape (n,)."""
        return functionals.mode(self)

    # -- the public distribution --------------------------------------------------------------

    @property
    def support(self) -> tuple[float, float]:
        """The smallest interval that holds the sample spaces of all rows; [0, inf) for lifetimes."""
        lower, upper = self.support_t()
        return float(lower.min()), float(upper.max())

    @property
    def last_time(self) -> float:
        """The last observed lifetime, beyond which a model extrapolates; infinite where none is known."""
        return self.observed[1] if self.lifetimes and self.observed is not None else math.inf

    def pdf(self, y: Any) -> Any:
        """Return the density at y, shape (n,)."""
        return self._out(torch.exp(self.log_pdf_t(self._rows(y)))[:, 0])

    def log_prob(self, y: Any) -> Any:
        """Return the log-likelihood of each row's outcome, shape (n,).

        Parameters
        ----------
        y : numbers, Surv or Observations
            Numbers count as exact (log-density). Right, left and interval
            censored rows give the log-probability of what is known; left
            truncation subtracts log P(Y > entry).
        """
        seen = y.observations if isinstance(y, Surv) else y
        if isinstance(seen, Observations):
            return self._out(self.log_prob_of_observations_t(seen))
        return self._out(self.log_pdf_t(self._rows(y))[:, 0])

    def quantile(self, q: Any) -> Any:
        """Return quantiles: scalar q gives (n,), a vector of length Q gives (n, Q).

        A probability that F does not reach (a transformation with a flat tail)
        gives plus or minus infinity. Quantiles of lifetimes beyond the last
        observed one come with an ``ExtrapolationWarning`` (once per object).
        """
        value = super().quantile(q)
        self._mark(value)
        return value

    def hazard(self, t: Any) -> Any:
        """Return the hazard f(t) / P(Y > t), shape (n,); infinite where P(Y > t) = 0."""
        return self._out(torch.exp(self.log_hazard_t(self._rows(t, "t")))[:, 0])

    def mean(self) -> Any:
        """Return the expectation of each row; infinite if one tail is too heavy, refused if both are."""
        value = self.mean_t()
        doubtful = ~torch.isfinite(value.detach())
        if bool(doubtful.any()):
            own = value[doubtful]
            left, right, middle = functionals.parts_of_mean(self[doubtful])
            by_parts = torch.isnan(own) | torch.isinf(left + right)
            own = torch.where(by_parts, middle + right - left, own)
            neither = (torch.isinf(left) & torch.isinf(right)) | torch.isnan(own)
            if bool(neither.any()):
                mask = torch.zeros_like(doubtful).masked_scatter(doubtful, neither)
                raise UnsupportedError(
                    f"a distribution with two heavy tails has no mean, got {first_rows(as_numpy(mask))}; "
                    "use median() or quantile(q)"
                )
            value = value.masked_scatter(doubtful, own)
        return self._out(value)

    def crps(self, y: Any) -> Any:
        r"""Return :math:`\int (F(t) - 1(y \le t))^2 dt` of each row; y must not be censored.

        It is infinite, with an ``ExtrapolationWarning`` that names the cause, where F does not reach 0 or 1
        (h is flat beyond the data), or does so too slowly for the integral.
        """
        at = self.exact_values_t(y).expand(len(self), 1)
        value = self.crps_t(at)
        endless = torch.isinf(value.detach()) & torch.isfinite(at[:, 0])
        if bool(endless.any()):
            self._say_endless(endless)
        return self._out(value)

    def pdf_grid(self, grid: ArrayLike) -> Any:
        """Return the density at every g of a common grid, shape (n, len(grid))."""
        return self._out(torch.exp(self.log_pdf_t(grid_values(grid, self.dtype))))

    def hazard_grid(self, grid: ArrayLike) -> Any:
        """Return the hazard at every g of a common grid, shape (n, len(grid)), infinite like ``hazard``."""
        return self._out(torch.exp(self.log_hazard_t(grid_values(grid, self.dtype))))

    def log_prob_of_observations_t(self, seen: Observations) -> Tensor:
        """Return the log-likelihood contributions of exact, censored and truncated rows, shape (n,)."""
        check_one_per_row(len(seen), len(self))
        lower, upper = (
            torch.as_tensor(end, dtype=self.dtype).unsqueeze(1) for end in (seen.lower, seen.upper)
        )
        exact = torch.from_numpy(seen.exact)
        if bool(exact.all()):
            value = self.log_pdf_t(lower)[:, 0]
        elif not bool(exact.any()):
            value = self.log_interval_t(lower, upper)[:, 0]
        else:
            known, rest = torch.nonzero(exact)[:, 0], torch.nonzero(~exact)[:, 0]
            parts = [self[known].log_pdf_t(lower[known]), self[rest].log_interval_t(lower[rest], upper[rest])]
            value = torch.cat(parts)[torch.argsort(torch.cat([known, rest])), 0]
        if seen.entry is None:
            return value
        entry = torch.as_tensor(seen.entry, dtype=self.dtype).unsqueeze(1)
        return value - self.log_entry_t(entry)[:, 0]

    def exact_values_t(self, y: Any) -> Tensor:
        """Return outcomes that are all known exactly, shape (n, 1) or (1, 1); refuse censored ones."""
        seen = y.observations if isinstance(y, Surv) else y
        if not isinstance(seen, Observations):
            return self._rows(y)
        if not seen.exact.all():
            raise UnsupportedError(
                f"the CRPS needs exact outcomes, got censored ones in {first_rows(~seen.exact)}; "
                "use log_prob, which knows censoring"
            )
        return self._rows(seen.lower)

    # -- helpers ------------------------------------------------------------------------------

    def _mark(self, quantiles: Any) -> None:
        """Warn of quantiles beyond the last observed lifetime, the first time there are any."""
        if self._marked or math.isinf(self.last_time):
            return
        if bool((quantiles > self.last_time).any()):
            self._marked = True
            warn(
                f"some quantiles lie beyond {self.last_time:g}, the last observed (uncensored) time, where "
                "the model extrapolates; ask for smaller q, or for survivor(t) and rmst(t) up to that time",
                ExtrapolationWarning,
            )

    def _say_endless(self, rows: Tensor) -> None:
        """Warn of an infinite CRPS with its cause: mass at infinity, or a heavy tail."""
        furthest = min(_FURTHEST, torch.finfo(self.dtype).max)
        far = torch.tensor([[math.sqrt(furthest), furthest]], dtype=self.dtype)
        some = self[torch.nonzero(rows)[:, 0]]
        tails = torch.exp(torch.stack([some.log_cdf_t(-far), some.log_sf_t(far)]).detach())
        stays = torch.where(tails[..., 1] > 0.5 * tails[..., 0], tails[..., 1], 0.0)
        cause = "the tails of F are too heavy for the integral"
        if bool((stays.amax(dim=0) > 0).all()):
            cause = "F does not reach 0 or 1, as where h is flat beyond the data"
        warn(
            f"the CRPS is infinite in {first_rows(as_numpy(rows))}, because {cause}; score by nll, or by "
            "quantiles (pinball, wis), or use members that do not extrapolate with a flat h",
            ExtrapolationWarning,
        )

    def _solve(self, goal: Tensor, noise: Tensor) -> Tensor:
        """Return y with trafo(y) = goal to within ``noise``, shape (n, G)."""
        lower, upper = self.support_t()

        def residual(u: Tensor) -> tuple[Tensor, Tensor]:
            y, dy, _ = coordinate(u, lower, upper)
            h, log_slope = self.trafo_and_slope_t(y)
            return h - goal, torch.exp(log_slope) * dy

        near = self.near_inverse_t(goal)
        if near is None:
            far = torch.full(goal.shape, FAR, dtype=self.dtype)
            # What F jumps over, or never reaches, needs no search.
            last = torch.where(residual(-far)[0] >= 0, -far, far)
            first = torch.where(residual(far)[0] <= 0, far, -far)
            first, start = torch.minimum(first, last), (first + last) / 2
        else:
            first, start, last = (coordinate_of(y, lower, upper) for y in near)
        return coordinate(solve_increasing(residual, first, last, start, noise), lower, upper)[0]

    def _polish(self, y: Tensor, target: Tensor) -> Tensor:
        """Take Newton steps in y itself where they reduce the residual."""
        h, log_slope = self.trafo_and_slope_t(y)
        for _ in range(_POLISHING_STEPS):
            new = y - (h - target) * torch.exp(-log_slope)
            usable = torch.isfinite(new)
            new_h, new_slope = self.trafo_and_slope_t(torch.where(usable, new, y))
            better = usable & ((new_h - target).abs() < (h - target).abs())
            if not bool(better.any()):
                break
            y, h = torch.where(better, new, y), torch.where(better, new_h, h)
            log_slope = torch.where(better, new_slope, log_slope)
        return y

    def _with_gradient(self, y: Tensor, target: Tensor) -> Tensor:
        """Attach dy = -dh / h'(y), the implicit derivative of the root of h(y) = target."""
        if self.gives_numpy or not torch.is_grad_enabled():
            return y
        lower, upper = self.support_t()
        inner = torch.isfinite(y) & (y > lower) & (y < upper)
        at = torch.where(inner, y, coordinate(torch.zeros_like(y), lower, upper)[0])
        residual = self.trafo_t(at) - target
        # A quantile at which F jumps to 1 does not move with the parameters.
        residual = torch.where(torch.isfinite(residual), residual, torch.zeros_like(residual))
        factor = torch.exp(-self.log_slope_t(at).detach())
        step = (residual - residual.detach()) * torch.where(
            torch.isfinite(factor), factor, torch.zeros_like(factor)
        )
        return torch.where(inner, y - step, y)


def log_rate(log_pdf: Tensor, log_sf: Tensor) -> Tensor:
    """Return log f - log S, plus infinity where nothing survives."""
    gone = torch.isneginf(log_sf)
    return torch.where(
        gone,
        torch.full_like(log_sf, torch.inf),
        log_pdf - torch.where(gone, torch.zeros_like(log_sf), log_sf),
    )
