"""Distributions on the line whose transformation h is known itself, not only through F."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

import torch
from torch import Tensor

from deeptram.latent import Latent
from deeptram.predictive.line import LinePredictive


class TrafoPredictive(LinePredictive):
    r"""n distributions :math:`F(y) = F_Z(h(y))` with h at hand, eq. (4).

    Everything is computed from h on the log scale, so nothing is lost where F
    rounds to 0 or 1: h = 700 is as good as h = 1.

    Implementing one: set ``latent``, ``dtype`` and ``gives_numpy``; implement
    ``__len__``, ``__getitem__``, ``own_trafo_t`` and ``own_log_slope_t``.

    Examples
    --------
    >>> import numpy as np
    >>> from deeptram.bases import Linear
    >>> from deeptram.predictive import TransformationPredictive
    >>> pred = TransformationPredictive(Linear(), "logistic", theta=np.array([[0.0, 1.0]]))
    >>> isinstance(pred, TrafoPredictive), pred.log_prob(-700.0)
    (True, array([-700.]))
    """

    has_trafo: ClassVar[bool] = True
    latent: Latent

    @abstractmethod
    def own_trafo_t(self, y: Tensor) -> Tensor:
        """Return h(y), shape (n, G); minus or plus infinity where F is 0 or 1."""

    @abstractmethod
    def own_log_slope_t(self, y: Tensor) -> Tensor:
        """Return log h'(y), shape (n, G); minus infinity where h is flat."""

    def log_increment_t(self, lower: Tensor, upper: Tensor) -> Tensor:
        """Return log(h(upper) - h(lower)) for finite h, shape (n, G)."""
        return torch.log(self.own_trafo_t(upper) - self.own_trafo_t(lower))

    def log_cdf_t(self, y: Tensor) -> Tensor:
        return self.latent.log_cdf_t(self.own_trafo_t(y))

    def log_sf_t(self, y: Tensor) -> Tensor:
        return self.latent.log_sf_t(self.own_trafo_t(y))

    def log_tails_t(self, y: Tensor) -> tuple[Tensor, Tensor]:
        h = self.own_trafo_t(y)
        return self.latent.log_cdf_t(h), self.latent.log_sf_t(h)

    def log_pdf_t(self, y: Tensor) -> Tensor:
        return self.latent.log_pdf_t(self.own_trafo_t(y)) + self.own_log_slope_t(y)

    def log_hazard_t(self, y: Tensor) -> Tensor:
        h = self.own_trafo_t(y)
        # log f_Z - log S_Z cancels for large h, where the latent hazard has a form of its own.
        _, slope, _ = self.latent.log_sf_derivatives(h)
        low = self.latent.log_pdf_t(h) - self.latent.log_sf_t(h)
        value = torch.where(h > 0, torch.log(-slope), low) + self.own_log_slope_t(y)
        return torch.where(torch.isposinf(h), torch.full_like(value, torch.inf), value)

    def trafo_t(self, y: Tensor, latent: Latent | None = None) -> Tensor:
        if latent is None or latent == self.latent:
            return self.own_trafo_t(y)
        return super().trafo_t(y, latent)

    def log_slope_t(self, y: Tensor, latent: Latent | None = None) -> Tensor:
        if latent is None or latent == self.latent:
            return self.own_log_slope_t(y)
        return super().log_slope_t(y, latent)

    def log_interval_t(self, lower: Tensor, upper: Tensor) -> Tensor:
        low, high = self.own_trafo_t(lower), self.own_trafo_t(upper)
        value: Tensor = self.latent.log_interval(low, high, self.log_increment_t(lower, upper))
        return value
