"""From the parameters of each row to its distribution: where every model ends."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from deeptram import latent as latents
from deeptram._arrays import as_numpy, as_tensor
from deeptram._validation import check_choice
from deeptram.bases import Basis
from deeptram.errors import InvalidTypeError
from deeptram.latent import Latent
from deeptram.predictive.base import Predictive
from deeptram.predictive.discrete import DiscretePredictive
from deeptram.predictive.transformation import TransformationCount, TransformationPredictive

OUTCOMES = ("binary", "ordinal", "nominal", "continuous", "count", "survival")


@dataclasses.dataclass(frozen=True, eq=False)
class RowParameters:
    r"""What a transformation model says about each row: :math:`F_Z(e^{s} a(y)'\theta - \mathrm{shift})`.

    Parameters
    ----------
    theta : array or Tensor, shape (n, d) or (1, d)
        Baseline coefficients; one row stands for all. For a nominal outcome
        the K - 1 logits log P(Y = k) / P(Y = first level).
    shift : array or Tensor, shape (n,), optional
        x'beta + eta(B), subtracted from h.
    log_scale : array or Tensor, shape (n,), optional
        s = z'gamma / 2.
    log_increments : array or Tensor, shape (n, m) or (1, m), optional
        Logs of the differences of successive theta, where they are known
        better than from the rounded theta.

    Examples
    --------
    >>> import numpy as np
    >>> RowParameters(np.zeros((1, 2)), np.zeros(5)).n_rows
    5
    """

    theta: Any
    shift: Any = None
    log_scale: Any = None
    log_increments: Any = None

    @property
    def n_rows(self) -> int:
        """Number of rows n."""
        given = [x for x in (self.theta, self.shift, self.log_scale) if x is not None]
        return max(int(x.shape[0]) for x in given)

    def numpy(self) -> RowParameters:
        """Return the same parameters as float64 arrays, so that predictions are NumPy."""
        parts = (self.theta, self.shift, self.log_scale, self.log_increments)
        return RowParameters(
            *(None if part is None else as_numpy(as_tensor(part, torch.float64)) for part in parts)
        )


def build_predictive(
    outcome: str,
    params: RowParameters,
    basis: Basis | None,
    latent: str | Latent,
    levels: Sequence[Any] | None = None,
    log_first: bool = False,
    lifetimes: bool = False,
    observed: tuple[float, float] | None = None,
) -> Predictive:
    r"""Return the predictive distributions of given row parameters, eq. (4).

    Parameters
    ----------
    outcome : {"binary", "ordinal", "nominal", "continuous", "count", "survival"}
    params : RowParameters
        NumPy parameters give a predictive that answers in NumPy, tensors one
        that answers in tensors and carries gradients.
    basis : Basis or None
        Not needed for binary, ordinal and nominal outcomes.
    latent : str or Latent
        F_Z; not used for a nominal outcome.
    levels : sequence, optional
        The K levels in order (discrete outcomes; default 0, ..., K - 1). The
        order of a nominal outcome is that of ``levels``.
    log_first : bool
        Counts only: h is a function of log(y + 1).
    lifetimes, observed
        As in ``TransformationPredictive`` (continuous and survival outcomes).

    Examples
    --------
    >>> import numpy as np
    >>> params = RowParameters(np.array([[-1.0, 1.0]]), shift=np.array([0.0, 2.0]))
    >>> pred = build_predictive("ordinal", params, None, "logistic", levels=("a", "b", "c"))
    >>> pred.cdf().round(3)
    array([[0.269, 0.731, 1.   ],
           [0.047, 0.269, 1.   ]])
    """
    check_choice(outcome, OUTCOMES, "outcome")
    if outcome == "nominal":
        return _nominal(params, levels)
    if outcome in ("binary", "ordinal"):
        return _ordinal(params, latents.get(latent), levels)
    if basis is None:
        raise InvalidTypeError(f"a {outcome} outcome needs a basis, got None; pass one of deeptram.bases")
    given = (params.theta, params.shift, params.log_scale)
    if outcome == "count":
        return TransformationCount(TransformationPredictive(basis, latent, *given), offset=int(log_first))
    return TransformationPredictive(basis, latent, *given, lifetimes=lifetimes, observed=observed)


def _ordinal(params: RowParameters, latent: Latent, levels: Sequence[Any] | None) -> DiscretePredictive:
    given = (params.theta, params.shift, params.log_scale, params.log_increments)
    shift, log_scale, gaps = (None if x is None else as_tensor(x) for x in given[1:])
    numpy = not any(isinstance(x, Tensor) for x in given)
    h = as_tensor(params.theta)
    h = h if log_scale is None else torch.exp(log_scale).unsqueeze(1) * h
    h = h if shift is None else h - shift.unsqueeze(1)
    if gaps is not None:
        gaps = (gaps if log_scale is None else gaps + log_scale.unsqueeze(1)).expand(h.shape[0], -1)
    names = tuple(range(h.shape[1] + 1)) if levels is None else tuple(levels)
    return DiscretePredictive(levels=names, latent=latent, numpy=numpy, h=h, log_increments=gaps)


def _nominal(params: RowParameters, levels: Sequence[Any] | None) -> DiscretePredictive:
    logits = as_tensor(params.theta)
    log_pmf = torch.log_softmax(torch.cat([torch.zeros_like(logits[:, :1]), logits], dim=1), dim=1)
    pred = DiscretePredictive.from_log_pmf(
        log_pmf if isinstance(params.theta, Tensor) else as_numpy(log_pmf),
        levels=None if levels is None else tuple(levels),
        latent=latents.get("logistic"),
    )
    pred.ordered = False
    return pred
