"""The latent distribution F_Z of a transformation model, eq. (4) of the paper."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from deeptram._arrays import elementwise
from deeptram._numerics import log_mass_between
from deeptram._registry import Registry
from deeptram.errors import InvalidInputError, InvalidTypeError

FAR = 100.0  # beyond this all probabilities are 0 or 1
_PANELS, _NODES = 100, 20
_NARROW = 3e-3  # where the error of the expansion, width^4, meets that of the difference, eps / width
# log F and log(1 - F) at both ends of all that counts
_BOTH_TAILS = torch.tensor([[-60.0, -1e-17], [-1e-26, -39.0]], dtype=torch.float64)


class Latent(ABC):
    r"""A parameter-free, log-concave distribution function :math:`F_Z` on the real line.

    A transformation model is :math:`F(y\mid D) = F_Z(h(y\mid D))`. The choice of
    :math:`F_Z` decides how a linear shift is read (see ``effect_name``).

    All methods take arrays or tensors (float32 or float64), work elementwise,
    and answer in kind. Log-scale methods keep full relative accuracy where the
    probability itself under- or overflows.

    Implementing a latent distribution:

    - Inherit from ``Latent`` and set ``name``, ``effect_name``, ``exp_effect_name``,
      and ``is_symmetric`` where F(-z) = 1 - F(z).
    - Implement ``log_cdf_t``, ``log_sf_t``, ``log_pdf_t``, ``from_log_t`` and the
      first two derivatives of log f on tensors.
    - Where they have a formula: ``icdf_t``, ``log_interval_t`` (finite ends), ``standard_crps_t``,
      ``squared_cdf_integral`` and ``squared_sf_integral``.
    - Pass an object of it wherever a latent is asked for; ``register`` it for
      models that are to be saved and loaded.

    Examples
    --------
    >>> import deeptram.latent as latent
    >>> logistic = latent.get("logistic")
    >>> logistic.cdf([0.0, 2.0])
    array([0.5       , 0.88079708])
    >>> logistic.log_interval(700.0, 701.0)
    np.float64(-700.4586751453871)
    """

    name: ClassVar[str]
    aliases: ClassVar[tuple[str, ...]] = ()
    effect_name: ClassVar[str] = "shift of h"
    exp_effect_name: ClassVar[str] = "exp(shift)"
    effect_meaning: ClassVar[str] = ""  # how to read a coefficient; the effect's name where empty
    relative_slope: ClassVar[float] = 1.0  # effects on this scale in units of logits, roughly
    is_symmetric: ClassVar[bool] = False

    def __repr__(self) -> str:
        """Return the call that gives this object."""
        return f"latent.get({self.name!r})"

    def __eq__(self, other: object) -> bool:
        """Return whether the other is of the same type, with the same parameters if it has any."""
        return type(self) is type(other) and vars(self) == vars(other)

    def __hash__(self) -> int:
        """Hash by type, in line with equality."""
        return hash(type(self))

    @elementwise
    def cdf(self, z: Any) -> Any:
        r"""Distribution function :math:`F_Z(z)`."""
        return _exp_of(self.log_cdf_t, z)

    @elementwise
    def sf(self, z: Any) -> Any:
        r"""Survivor function :math:`1 - F_Z(z)`, accurate in the upper tail."""
        return _exp_of(self.log_sf_t, z)

    @elementwise
    def pdf(self, z: Any) -> Any:
        r"""Density :math:`f_Z(z)`."""
        return _exp_of(self.log_pdf_t, z)

    @elementwise
    def log_cdf(self, z: Any) -> Any:
        r"""Return :math:`\log F_Z(z)`."""
        return self.log_cdf_t(z)

    @elementwise
    def log_sf(self, z: Any) -> Any:
        r"""Return :math:`\log(1 - F_Z(z))`."""
        return self.log_sf_t(z)

    @elementwise
    def log_pdf(self, z: Any) -> Any:
        r"""Return :math:`\log f_Z(z)`, a concave function of z."""
        return self.log_pdf_t(z)

    @elementwise
    def icdf(self, p: Any) -> Any:
        r"""Quantile function :math:`F_Z^{-1}(p)`; 0 and 1 give minus and plus infinity."""
        if bool(((p < 0) | (p > 1)).any()):
            raise InvalidInputError("p must lie between 0 and 1, got a number outside; pass probabilities")
        return self.icdf_t(p)

    @elementwise
    def from_log(self, log_cdf: Any, log_sf: Any) -> Any:
        r"""Return :math:`z = F_Z^{-1}(F)` from :math:`\log F` and :math:`\log(1 - F)`.

        Uses whichever of the two is accurate, so a foreign CDF of
        :math:`1 - 10^{-30}` given by its survivor function is not lost.
        """
        return self.from_log_t(log_cdf, log_sf)

    @elementwise
    def dlog_pdf(self, z: Any) -> Any:
        r"""First derivative :math:`f_Z'(z) / f_Z(z)` of the log-density."""
        return self.dlog_pdf_t(z)

    @elementwise
    def d2log_pdf(self, z: Any) -> Any:
        r"""Second derivative of the log-density (never positive)."""
        return self.d2log_pdf_t(z)

    @elementwise
    def log_interval(self, lo: Any, hi: Any, log_increment: Any = None) -> Any:
        r"""Return :math:`\log(F_Z(hi) - F_Z(lo))` for ``lo < hi``.

        Finite and differentiable wherever the exact value can be represented;
        ``lo = -inf`` and ``hi = inf`` are allowed.

        Parameters
        ----------
        lo, hi : array-like or Tensor
            End points, same shape (or broadcastable).
        log_increment : array-like or Tensor, optional
            :math:`\log(hi - lo)` where it is known better than the difference
            of the rounded end points (monotone parametrisations carry it).
        """
        try:
            lo, hi = torch.broadcast_tensors(lo, hi)
        except RuntimeError as error:
            raise InvalidInputError(
                f"lo and hi must have one shape, got {tuple(lo.shape)} and {tuple(hi.shape)}; pass pairs"
            ) from error
        below, above = torch.isneginf(lo), torch.isposinf(hi)
        open_end = below | above
        safe_lo = torch.where(open_end, torch.zeros_like(lo), lo)
        safe_hi = torch.where(open_end, torch.ones_like(hi), hi)
        gap = safe_hi - safe_lo
        known = (
            torch.log(gap)
            if log_increment is None
            else torch.where(open_end, torch.zeros_like(lo), log_increment)
        )
        value = self.log_interval_t(safe_lo, safe_hi, known)
        left = self.log_cdf_t(torch.where(below & ~above, hi, torch.zeros_like(hi)))
        right = self.log_sf_t(torch.where(above & ~below, lo, torch.zeros_like(lo)))
        value = torch.where(below, left, torch.where(above, right, value))
        return torch.where(below & above, torch.zeros_like(value), value)

    # -- value, first and second derivative together: what exact fitting needs ------------

    def log_pdf_derivatives(self, z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return log f(z) with its first and second derivative."""
        return self.log_pdf_t(z), self.dlog_pdf_t(z), self.d2log_pdf_t(z)

    def log_cdf_derivatives(self, z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return log F(z) with its first and second derivative."""
        value = self.log_cdf_t(z)
        first = torch.exp(self.log_pdf_t(z) - value)
        return value, first, first * (self.dlog_pdf_t(z) - first)

    def log_sf_derivatives(self, z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return log(1 - F(z)) with its first and second derivative."""
        value = self.log_sf_t(z)
        hazard = torch.exp(self.log_pdf_t(z) - value)
        return value, -hazard, -hazard * (self.dlog_pdf_t(z) + hazard)

    def log_cdf_total(self, z: Tensor, weights: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """Return the weighted sum of log F(z), with its slope and (non-negative) curvature at each row."""
        value, slope, second = self.log_cdf_derivatives(z)
        curvature = -second.clamp(max=0)  # log F is concave: anything else is rounding
        if weights is None:
            return value.sum(), slope, curvature
        return weights @ value, slope * weights, curvature * weights

    def log_interval_derivatives(
        self, lo: Tensor, hi: Tensor, log_increment: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
        r"""Return l = log(F(hi) - F(lo)) and its derivatives in a cancellation-free form.

        The Hessian in (lo, hi) is written as
        :math:`-w_{lo} e_1 e_1' - w_{hi} e_2 e_2' - q (e_2 - e_1)(e_2 - e_1)'`,
        in which nothing large cancels for narrow intervals and a shift common
        to both ends drops out of the q-part. ``log_increment`` is log(hi - lo), where it is known better.

        Returns
        -------
        tuple of Tensor
            ``(value, d_lo, d_hi, w_lo, w_hi, q)``.
        """
        value = self.log_interval_t(lo, hi, torch.log(hi - lo) if log_increment is None else log_increment)
        r_lo = torch.exp(self.log_pdf_t(lo) - value)
        r_hi = torch.exp(self.log_pdf_t(hi) - value)
        w_hi = r_hi * (r_hi - r_lo - self.dlog_pdf_t(hi))
        w_lo = r_lo * (r_lo - r_hi + self.dlog_pdf_t(lo))
        return value, -r_lo, r_hi, w_lo, w_hi, r_lo * r_hi

    # -- what the CRPS needs -----------------------------------------------------------------

    def probabilities(self, z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return F(z), 1 - F(z) and f(z), each to full relative precision but for values below 1e-43."""
        return torch.exp(self.log_cdf_t(z)), torch.exp(self.log_sf_t(z)), torch.exp(self.log_pdf_t(z))

    def squared_cdf_integral(self, z: Tensor) -> Tensor:
        r"""Return :math:`\int_{-\infty}^z F_Z(v)^2 dv`; by quadrature where no formula is known."""
        return self._lower_integral(z, 2)

    def squared_sf_integral(self, z: Tensor) -> Tensor:
        r"""Return :math:`\int_z^\infty (1 - F_Z(v))^2 dv`; by quadrature where no formula is known."""
        return self.squared_cdf_integral(-z) if self.is_symmetric else self._upper_integral(z, 2)

    def cdf_integral(self, z: Tensor) -> Tensor:
        r"""Return :math:`\int_{-\infty}^z F_Z(v) dv`, by quadrature."""
        return self._lower_integral(z, 1)

    def sf_integral(self, z: Tensor) -> Tensor:
        r"""Return :math:`\int_z^\infty (1 - F_Z(v)) dv`, by quadrature."""
        return self._upper_integral(z, 1)

    def _lower_integral(self, z: Tensor, power: int) -> Tensor:
        lowest, highest = self.from_log_t(*_BOTH_TAILS)
        return _integral_of_power(self.log_cdf_t, power, float(lowest), float(highest), z)

    def _upper_integral(self, z: Tensor, power: int) -> Tensor:
        lowest, highest = self.from_log_t(*_BOTH_TAILS)
        return _integral_of_power(lambda v: self.log_sf_t(-v), power, -float(highest), -float(lowest), -z)

    def standard_crps_t(self, z: Tensor) -> Tensor | None:
        r"""Return :math:`\int_{-\infty}^z F_Z^2 + \int_z^\infty (1 - F_Z)^2`, or None without a formula."""
        return None

    # -- may be overridden, on tensors ------------------------------------------------------

    def icdf_t(self, p: Tensor) -> Tensor:
        """Return the quantile of p."""
        return self.from_log_t(torch.log(p), torch.log1p(-p))

    def log_pdf_from_log_t(self, log_cdf: Tensor, log_sf: Tensor) -> Tensor:
        """Return log f_Z at the z of which log F and log(1 - F) are given."""
        return self.log_pdf_t(self.from_log_t(log_cdf, log_sf))

    def log_interval_t(self, lo: Tensor, hi: Tensor, log_increment: Tensor) -> Tensor:
        """Return log(F_Z(hi) - F_Z(lo)) of finite ends with the log of their increment.

        By default from whichever tail is accurate; of narrow intervals from the density at their middle.
        """
        middle, width = (lo + hi) / 2, torch.exp(log_increment)
        narrow = width * (1 + self.dlog_pdf_t(middle).abs()) < _NARROW
        inside = torch.where(narrow, middle, torch.zeros_like(middle))
        curvature = self.dlog_pdf_t(inside) ** 2 + self.d2log_pdf_t(inside)  # f'' / f
        square = torch.where(narrow, width, torch.zeros_like(width)) ** 2
        thin = self.log_pdf_t(inside) + log_increment + torch.log1p(curvature * square / 24)
        low = torch.where(narrow, torch.full_like(lo, -1.0), lo)
        high = torch.where(narrow, torch.ones_like(hi), hi)
        ends = ((self.log_cdf_t(end), self.log_sf_t(end)) for end in (low, high))
        return torch.where(narrow, thin, log_mass_between(*ends))

    # -- to implement, on tensors ----------------------------------------------------------

    @abstractmethod
    def log_cdf_t(self, z: Tensor) -> Tensor:
        """Return log F_Z(z)."""

    @abstractmethod
    def log_sf_t(self, z: Tensor) -> Tensor:
        """Return log(1 - F_Z(z))."""

    @abstractmethod
    def log_pdf_t(self, z: Tensor) -> Tensor:
        """Return log f_Z(z)."""

    @abstractmethod
    def from_log_t(self, log_cdf: Tensor, log_sf: Tensor) -> Tensor:
        """Return z from log F and log(1 - F), each read where it is accurate."""

    @abstractmethod
    def dlog_pdf_t(self, z: Tensor) -> Tensor:
        """Return the derivative of log f_Z."""

    @abstractmethod
    def d2log_pdf_t(self, z: Tensor) -> Tensor:
        """Return the second derivative of log f_Z."""


_REGISTRY: Registry[Latent] = Registry("latent", "deeptram.latent.register(latent)")


def _exp_of(log_of: Callable[[Tensor], Tensor], z: Tensor) -> Tensor:
    """Return the exponential of log_of(z): where it is zero, so is its gradient (not 0 times infinity)."""
    value = log_of(z)
    if not value.requires_grad:
        return torch.exp(value)
    gone = torch.exp(value.detach()) == 0
    inner = log_of(torch.where(gone, torch.zeros_like(z), z))
    return torch.where(gone, torch.zeros_like(z), torch.exp(inner))


def register(latent: Latent) -> Latent:
    """Make a latent distribution known by its name and aliases, so that models with it can be saved.

    Call it in the program that loads the model, too. Returns the object.

    Examples
    --------
    >>> register(get("logistic")).name
    'logistic'
    """
    if not isinstance(latent, Latent):
        raise InvalidTypeError(
            f"register takes an object of a subclass of Latent, got {latent!r}; pass one, not its name"
        )
    return _REGISTRY.add(latent.name, latent, latent.aliases)


def get(name: str | Latent) -> Latent:
    """Return the latent distribution of that name (a ``Latent`` is passed through).

    Examples
    --------
    >>> get("cloglog").name
    'minimum-extreme-value'
    """
    return name if isinstance(name, Latent) else _REGISTRY.find(name)


def is_auto(latent: Any) -> bool:
    """Return whether the latent distribution is to be chosen.

    Examples
    --------
    >>> is_auto("auto"), is_auto("logistic")
    (True, False)
    """
    return isinstance(latent, str) and latent == "auto"


def names() -> list[str]:
    """Return the registered names, without aliases."""
    return _REGISTRY.names()


def saved_name(latent: Latent) -> str:
    """Return the name to be written into a file; a latent that nobody could load is refused.

    Examples
    --------
    >>> saved_name(get("probit"))
    'normal'
    """
    return _REGISTRY.name_of(latent)


def from_file(name: Any) -> Latent:
    """Return the latent distribution of a name that was read from a file.

    Examples
    --------
    >>> from_file("cauchy")
    Traceback (most recent call last):
    ...
    deeptram.errors.FileFormatError: a saved latent must be one of logistic, ...
    """
    return _REGISTRY.load(name)


def _integral_of_power(
    log_cdf: Callable[[Tensor], Tensor], power: int, lowest: float, highest: float, z: Tensor
) -> Tensor:
    """Integrate a power of a distribution function from minus infinity to z, by Gauss-Legendre panels.

    ``lowest`` and ``highest`` are where it is 0 and 1, up to rounding.
    """
    nodes, weights = (torch.from_numpy(part) for part in np.polynomial.legendre.leggauss(_NODES))
    edges = torch.linspace(lowest, highest, _PANELS + 1, dtype=torch.float64)

    def panel(left: Tensor, right: Tensor) -> Tensor:
        half = (right - left) / 2
        inner = (left + half).unsqueeze(-1) + half.unsqueeze(-1) * nodes
        return half * (torch.exp(power * log_cdf(inner)) @ weights)

    whole = torch.cat([torch.zeros(1, dtype=torch.float64), panel(edges[:-1], edges[1:]).cumsum(0)])
    inside = z.clamp(lowest, highest)
    own = (torch.searchsorted(edges, inside, right=True) - 1).clamp(0, _PANELS - 1)
    return whole[own] + panel(edges[own], inside) + (z - highest).clamp(min=0)
