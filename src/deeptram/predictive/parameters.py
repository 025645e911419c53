"""Row parameters: where every model, exact or deep, ends and its distribution begins."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from deeptram._arrays import as_numpy, as_tensor
from deeptram.bases import Basis
from deeptram.latent import Latent
from deeptram.predictive.base import Predictive
from deeptram.predictive.discrete import DiscretePredictive
from deeptram.predictive.transformation import TransformationPredictive


@dataclass(frozen=True)
class RowParameters:
    r"""The parameters of n distributions :math:`F_Z(e^{s_i} a(y)'\theta_i - \mathrm{shift}_i)`, eq. (4).

    Attributes
    ----------
    theta : array or Tensor, shape (n, d) or (1, d)
        Baseline coefficients; for nominal outcomes the logits of levels 2..K
        against the first.
    shift : array or Tensor, shape (n,)
        x'beta + eta(B), subtracted.
    log_scale : array or Tensor or None, shape (n,)
        s = z'gamma / 2.
    log_increments : array or Tensor or None, shape (n, m) or (1, m)
        Logs of the increments of theta where the parametrisation knows them.

    Examples
    --------
    >>> RowParameters(theta=np.zeros((1, 2)), shift=np.zeros(3)).n_rows
    3
    """

    theta: Any
    shift: Any
    log_scale: Any = None
    log_increments: Any = None

    @property
    def n_rows(self) -> int:
        """Number of rows n."""
        return len(self.shift)

    def numpy(self) -> RowParameters:
        """Return the same parameters as float64 arrays."""
        parts = (self.theta, self.shift, self.log_scale, self.log_increments)
        return RowParameters(*(_as_float64(part) for part in parts))


def build_predictive(
    outcome: str,
    parameters: RowParameters,
    basis: Basis,
    latent: Latent,
    *,
    levels: tuple[Any, ...] | None = None,
    log_first: bool = False,
) -> Predictive:
    """Return the predictive distribution that row parameters describe.

    Parameters
    ----------
    outcome : {"binary", "ordinal", "nominal", "continuous", "count", "survival"}
    parameters : RowParameters
    basis : Basis
    latent : Latent
    levels : tuple, optional
        Levels of a discrete outcome.
    log_first : bool
        For counts: h is evaluated at y + 1.

    Examples
    --------
    >>> from deeptram import latent
    >>> from deeptram.bases import Cutpoints
    >>> rows = RowParameters(theta=np.array([[-1.0, 1.0]]), shift=np.array([0.0, 1.0]))
    >>> build_predictive("ordinal", rows, Cutpoints(3), latent.get("logistic")).pmf().round(3)
    array([[0.269, 0.462, 0.269],
           [0.119, 0.381, 0.5  ]])
    """
    if outcome == "nominal":
        return _nominal(parameters, latent, levels)
    if outcome in ("binary", "ordinal"):
        return _cutpoints(parameters, latent, levels)
    line = TransformationPredictive(basis, latent, parameters.theta, parameters.shift, parameters.log_scale)
    if outcome == "count":
        from deeptram.predictive.count import CountPredictive

        return CountPredictive(line, log_first=log_first)
    return line


def _nominal(parameters: RowParameters, latent: Latent, levels: tuple[Any, ...] | None) -> DiscretePredictive:
    logits = as_tensor(parameters.theta)
    logits = logits.expand(parameters.n_rows, -1)
    log_pmf = torch.log_softmax(torch.cat([torch.zeros_like(logits[:, :1]), logits], dim=1), dim=1)
    given = log_pmf if isinstance(parameters.theta, Tensor) else as_numpy(log_pmf)
    return DiscretePredictive.from_log_pmf(given, levels=levels, latent=latent)


def _cutpoints(parameters: RowParameters, latent: Latent, levels: tuple[Any, ...] | None) -> DiscretePredictive:
    theta, shift = as_tensor(parameters.theta), as_tensor(parameters.shift)
    known = parameters.log_increments
    if known is None:
        lower, upper = theta[:, :-1], theta[:, 1:]
        same_end = torch.isinf(lower) & (lower == upper)
        log_gaps = torch.log(torch.where(same_end, torch.zeros_like(lower), upper - lower))
    else:
        log_gaps = as_tensor(known)
    if parameters.log_scale is not None:
        log_scale = as_tensor(parameters.log_scale).unsqueeze(1)
        theta, log_gaps = theta * torch.exp(log_scale), log_gaps + log_scale
    h = theta - shift.unsqueeze(1)
    log_gaps = log_gaps.expand(len(shift), -1)
    if isinstance(parameters.shift, Tensor):
        return DiscretePredictive.from_h(h, log_gaps, levels=levels, latent=latent)
    return DiscretePredictive.from_h(as_numpy(h), as_numpy(log_gaps), levels=levels, latent=latent)


def _as_float64(part: Any) -> Any:
    if part is None:
        return None
    return np.asarray(as_numpy(part) if isinstance(part, Tensor) else part, dtype=np.float64)
