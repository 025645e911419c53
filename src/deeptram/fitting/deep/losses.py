"""Training losses: the scores of ``deeptram.evaluation.scores``, by row and on working parameters.

Classes use the tensor-level scores themselves; for outcomes on the line see
``deeptram.fitting.deep.line_loss``. All losses accept leading axes: parameters
``(M, b, ...)`` of M members give ``(M, b)`` losses.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from deeptram.errors import InvalidInputError, UnsupportedError
from deeptram.evaluation.scores import core
from deeptram.fitting.deep.line_loss import LineLoss
from deeptram.fitting.deep.row_loss import RowLoss, Target
from deeptram.latent import Latent
from deeptram.model.outcome import Encoded, Outcome
from deeptram.model.parts import Working
from deeptram.predictive.discrete import DiscretePredictive
from deeptram.predictive.kinds import RowParameters


class ClassLoss(RowLoss):
    """Any score of ordered or unordered classes.

    Parameters
    ----------
    score : str
        ``"nll"``, ``"rps"`` or ``"brier"``.
    outcome : Outcome
    latent : Latent
    """

    def __init__(self, score: str, outcome: Outcome, latent: Latent) -> None:
        self._score, self._latent = core.get(score), latent
        self._levels = outcome.levels or ()
        self._nominal = outcome.kind == "nominal"

    def target(self, encoded: Encoded, dtype: torch.dtype, device: torch.device | str = "cpu") -> Target:
        if encoded.codes is None:
            raise InvalidInputError(
                "this loss needs class labels, got an outcome on the line; use loss='nll'"
            )
        return Target({"codes": torch.as_tensor(encoded.codes, device=device)})

    def rows(self, working: Working, target: Target) -> Tensor:
        return self._score(self._predictive(working, target.tensors["codes"]), target.tensors["codes"])

    def _predictive(self, working: Working, codes: Tensor) -> DiscretePredictive:
        if self._nominal:
            logits = torch.cat([torch.zeros_like(working.free[..., :1]), working.free], dim=-1)
            log_pmf = torch.log_softmax(logits, dim=-1)
            return DiscretePredictive.from_log_pmf(_expand(log_pmf, codes), levels=self._levels)
        theta, gaps = working.theta, working.log_increments
        if working.log_scale is not None:
            log_scale = working.log_scale.unsqueeze(-1)
            theta, gaps = theta * torch.exp(log_scale), gaps + log_scale
        h = theta if working.shift is None else theta - working.shift.unsqueeze(-1)
        return DiscretePredictive.from_h(_expand(h, codes), gaps, levels=self._levels, latent=self._latent)


class OrderedLogitLoss(ClassLoss):
    r"""The log-score of ordered classes with a logistic latent variable, at the observed class only.

    With cumulative-softplus cutpoints :math:`1 - e^{-(\theta_k - \theta_{k-1})} = \sigma(\varphi_k)`, so
    for an inner class

    .. math:: \log P(Y = k) = \log\sigma(\theta_k - s) + \log\sigma(s - \theta_{k-1}) + \log\sigma(\varphi_k),

    the first term only for the first and the second only for the last class:
    three log-sigmoids, no difference of distribution functions. Values are
    those of ``deeptram.evaluation.scores.nll``; models with a Scale term use that.
    """

    def target(self, encoded: Encoded, dtype: torch.dtype, device: torch.device | str = "cpu") -> Target:
        target = super().target(encoded, dtype, device)
        codes, last = target.tensors["codes"], len(self._levels) - 1
        upper, lower = codes.clamp(max=last - 1), (codes - 1).clamp(min=0)
        # columns: theta_k, theta_{k-1}, free_k, looked up in (theta, free)
        target.tensors["place"] = torch.stack([upper, lower, last + upper], dim=1)
        inner = (codes > 0) & (codes < last)
        target.tensors["counts"] = torch.stack([codes < last, codes > 0, inner], dim=1).to(dtype)
        return target

    def rows(self, working: Working, target: Target) -> Tensor:
        if working.log_scale is not None:
            return super().rows(working, target)
        place, counts = target.tensors["place"], target.tensors["counts"]
        table = torch.cat([working.theta, working.free], dim=-1)
        picked = _expand(table, place[..., 0]).gather(-1, place)
        sign = torch.tensor([1.0, -1.0, 1.0], dtype=picked.dtype, device=picked.device)
        if working.shift is not None:
            moved = torch.tensor([1.0, 1.0, 0.0], dtype=picked.dtype, device=picked.device)
            picked = picked - working.shift.unsqueeze(-1) * moved
        return -(logsigmoid(picked * sign) * counts).sum(dim=-1)


class PredictiveLoss(RowLoss):
    """The CRPS of exact outcomes on the line, from the predictive distribution itself.

    Parameters
    ----------
    outcome : Outcome
    latent : Latent
    line : (float, float)
        Location and scale of the working scale of a straight-line basis.
    """

    def __init__(self, outcome: Outcome, latent: Latent, line: tuple[float, float] | None = None) -> None:
        self._outcome, self._latent = outcome, latent
        self._line = line

    def target(self, encoded: Encoded, dtype: torch.dtype, device: torch.device | str = "cpu") -> Target:
        seen = encoded.observations
        if seen is None:
            raise InvalidInputError("this loss needs outcomes on the line, got classes; use loss='rps'")
        if self._outcome.kind == "count":
            y = seen.upper - (1.0 if self._outcome.log_first else 0.0)
        elif seen.exact.all() and seen.entry is None:
            y = seen.upper
        else:
            raise UnsupportedError(
                "loss='crps' needs exact outcomes, got censored or truncated ones; use loss='nll', "
                "which knows them"
            )
        return Target({"y": torch.as_tensor(y).to(device, dtype)})

    def rows(self, working: Working, target: Target) -> Tensor:
        y = target.tensors["y"]
        theta = working.theta
        if self._line is not None:
            location, scale = self._line
            slope = theta[..., 1] / scale
            theta = torch.stack([theta[..., 0] - location * slope, slope], dim=-1)
        shift = torch.zeros_like(y) if working.shift is None else working.shift
        parameters = RowParameters(
            theta=_expand(theta, y).reshape(-1, theta.shape[-1]),
            shift=shift.reshape(-1),
            log_scale=None if working.log_scale is None else working.log_scale.reshape(-1),
        )
        pred = self._outcome.predictive(parameters, self._latent)
        score: Tensor = pred.crps(y.reshape(-1))
        return score.reshape(y.shape)


def make_loss(
    name: str, outcome: Outcome, latent: Latent, line: tuple[float, float] | None = None
) -> RowLoss:
    """Return the training loss of that name, or say why it is not defined for the outcome.

    Parameters
    ----------
    name : {"nll", "rps", "brier", "crps"}
    outcome : Outcome
    latent : Latent
    line : (float, float), optional
        Location and scale of the working scale of a straight-line basis.

    Examples
    --------
    >>> from deeptram import latent
    >>> from deeptram.model import OutcomeSettings
    >>> outcome, _ = Outcome.fit(OutcomeSettings("continuous"), [1.0, 2.0])
    >>> type(make_loss("nll", outcome, latent.get("normal"))).__name__
    'LineLoss'
    """
    if outcome.is_discrete and name == "crps":
        raise UnsupportedError(
            f"loss='crps' is for outcomes on the line, got outcome={outcome.kind!r}; use loss='rps'"
        )
    if outcome.kind == "nominal" and name == "rps":
        raise UnsupportedError("loss='rps' needs ordered classes, got outcome='nominal'; use loss='brier'")
    if outcome.is_discrete:
        fast = name == "nll" and latent.name == "logistic" and outcome.kind != "nominal"
        return (OrderedLogitLoss if fast else ClassLoss)(name, outcome, latent)
    if name in ("rps", "brier"):
        raise UnsupportedError(f"loss={name!r} is for classes, got outcome={outcome.kind!r}; use loss='crps'")
    return PredictiveLoss(outcome, latent, line) if name == "crps" else LineLoss(outcome.basis, latent, line)


def _expand(values: Tensor, rows: Any) -> Tensor:
    """Let one row of parameters stand for all rows of a batch."""
    return values if values.shape[-2] == rows.shape[-1] else values.expand(*rows.shape, values.shape[-1])
