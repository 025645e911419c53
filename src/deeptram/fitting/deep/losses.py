"""Training losses: the scores of ``deeptram.evaluation.scores``, by row and on working parameters.

Classes use the tensor-level scores themselves; outcomes on the line basis rows
that are computed once before training. All losses accept leading axes: parameters
``(M, b, ...)`` of M members give ``(M, b)`` losses.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import logsigmoid

from deeptram.bases import Basis
from deeptram.errors import InvalidInputError, UnsupportedError
from deeptram.evaluation.scores import core
from deeptram.latent import Latent, Logistic
from deeptram.model.outcome import Encoded, Outcome
from deeptram.model.parts import Working, class_distribution, class_transformation, plain_line
from deeptram.predictive.kinds import RowParameters
from deeptram.responses import Observations, Surv

Array = NDArray[np.float64]


KINDS = ("exact", "interval", "left", "right", "unknown")
_NOISE = 1e-14


@dataclass
class Target:
    """What the loss needs to know about some rows' outcomes.

    Attributes
    ----------
    tensors : dict of Tensor
        Each with one entry per row.
    kinds : tuple of str
        Which kinds of observation occur in the whole data set.
    """

    tensors: dict[str, Tensor]
    kinds: tuple[str, ...] = field(default=())

    def take(self, rows: Tensor) -> Target:
        """Return some rows; ``rows`` may have leading axes (members)."""
        return Target({name: gather_rows(values, rows) for name, values in self.tensors.items()}, self.kinds)


def gather_rows(values: Tensor, rows: Tensor) -> Tensor:
    """Return rows of a tensor for row numbers of any shape.

    Examples
    --------
    >>> gather_rows(torch.arange(6).reshape(3, 2), torch.tensor([[2], [0]])).shape
    torch.Size([2, 1, 2])
    """
    picked = values.index_select(0, rows.reshape(-1).to(values.device))
    return picked if rows.ndim == 1 else picked.reshape(*rows.shape, *values.shape[1:])


class RowLoss(ABC):
    """A loss of each row."""

    @abstractmethod
    def target(self, encoded: Encoded, dtype: torch.dtype, device: torch.device | str = "cpu") -> Target:
        """Return outcomes in the form the loss needs, computed once."""

    @abstractmethod
    def rows(self, working: Working, target: Target) -> Tensor:
        """Return one loss per row, shape (..., b)."""


class MemberLosses(RowLoss):
    """Losses of M members that differ in their latent distributions, of parameters with a first axis M.

    Parameters
    ----------
    each : sequence of M RowLoss
        The same object where members agree.
    """

    def __init__(self, each: Sequence[RowLoss]) -> None:
        self._first = each[0]
        groups = {id(loss): loss for loss in each}
        self._groups = [(loss, [m for m, one in enumerate(each) if one is loss]) for loss in groups.values()]
        order = [m for _, members in self._groups for m in members]
        self._back = [order.index(m) for m in range(len(order))]

    def target(self, encoded: Encoded, dtype: torch.dtype, device: torch.device | str = "cpu") -> Target:
        return self._first.target(encoded, dtype, device)

    def rows(self, working: Working, target: Target) -> Tensor:
        if len(self._groups) == 1:
            return self._first.rows(working, target)
        pieces = [
            loss.rows(
                working.of_members(members),
                Target({name: values[members] for name, values in target.tensors.items()}, target.kinds),
            )
            for loss, members in self._groups
        ]
        return torch.cat(pieces)[self._back]


class LineLoss(RowLoss):
    r"""The log-score of exact, censored and truncated outcomes on the line.

    Densities and interval probabilities come from the increments of the baseline,

    .. math:: h'(y) = \sum_j b_j(y) (\theta_{j+1} - \theta_j), \qquad b_j \ge 0,

    on the log scale, so that nothing cancels in float32.

    Parameters
    ----------
    basis : Basis
    latent : Latent
    line : (float, float)
        Location and scale of the working scale of a straight-line basis.
    """

    def __init__(self, basis: Basis, latent: Latent, line: tuple[float, float] | None = None) -> None:
        self._basis, self._latent = basis, latent
        self._map = np.eye(basis.n_coef)
        if line is not None:
            location, scale = line
            self._map = np.array([[1.0, -location / scale], [0.0, 1 / scale]])
        self._has_offset = len(basis.monotone_differences) == 0
        self._to_increments = np.linalg.pinv(basis.monotone_differences)

    def target(self, encoded: Encoded, dtype: torch.dtype, device: torch.device | str = "cpu") -> Target:
        if encoded.observations is None:
            raise InvalidInputError("this loss needs outcomes on the line, got classes; use another outcome")
        seen = encoded.observations.within(self._basis.domain)
        cases = seen.cases
        code = np.select([cases.exact, cases.interval, cases.left, cases.right], [0, 1, 2, 3], 4)
        arrays = self._arrays(seen, code)
        kinds = tuple(KINDS[c] for c in np.unique(code))
        tensors = {name: torch.as_tensor(values).to(device, dtype) for name, values in arrays.items()}
        if len(kinds) > 1:
            tensors["kind"] = torch.as_tensor(code, device=device)
        return Target(tensors, kinds)

    def _arrays(self, seen: Observations, code: Array) -> dict[str, Array]:
        basis, arrays = self._basis, {}
        uses_upper, uses_lower, wide = code <= 2, (code == 1) | (code == 3), code <= 1
        arrays.update(self._points("upper", seen.upper, uses_upper))
        arrays.update(self._points("lower", seen.lower, uses_lower))
        if wide.any():
            exact, interval = code == 0, code == 1
            width = np.zeros((len(code), basis.n_coef))
            width[exact] = basis.derivative(seen.upper[exact])
            width[interval] = basis.evaluate(seen.upper[interval]) - basis.evaluate(seen.lower[interval])
            rows = width @ self._map @ self._to_increments
            if self._has_offset:
                known = np.zeros(len(code))
                known[exact] = basis.offset_derivative(seen.upper[exact])
                known[interval] = basis.offset(seen.upper[interval]) - basis.offset(seen.lower[interval])
                rows = known[:, None]
            rows[~wide] = 1.0
            # b_j >= 0; what is left of it after cancellation is zero
            rows = np.where(rows > _NOISE * rows.max(axis=1, keepdims=True), rows, 0.0)
            with np.errstate(divide="ignore"):
                arrays["log_increment"] = np.log(rows)
        truncated = seen.truncated
        if seen.entry is not None and truncated.any():
            arrays.update(self._points("entry", seen.entry, truncated))
            arrays["truncated"] = truncated.astype(np.float64)
        return arrays

    def _points(self, name: str, y: Array, used: NDArray[np.bool_]) -> dict[str, Array]:
        """Return basis rows (and offsets) at y, zero where not used; nothing if none is used."""
        if not used.any():
            return {}
        rows = np.zeros((len(y), self._basis.n_coef))
        rows[used] = self._basis.evaluate(y[used]) @ self._map
        if not self._has_offset:
            return {name: rows}
        offset = np.zeros(len(y))
        offset[used] = self._basis.offset(y[used])
        return {name: rows, f"{name}_offset": offset}

    def rows(self, working: Working, target: Target) -> Tensor:
        theta = working.theta
        points: dict[str, Tensor] = {
            name: self._z(name, theta, working, target)
            for name in ("upper", "lower", "entry")
            if name in target.tensors
        }
        log_increment = self._log_increment(working, target)
        value: Tensor | None = None
        for kind in target.kinds:
            if len(target.kinds) == 1:
                value = self._kind(kind, points, log_increment, working)
                break
            chosen = target.tensors["kind"] == KINDS.index(kind)
            inner = {name: torch.where(chosen, z, torch.zeros_like(z)) for name, z in points.items()}
            width = log_increment
            if kind == "interval" and log_increment is not None:
                # an interval of width one, harmless to every latent distribution, where there is none
                inner["upper"] = torch.where(chosen, points["upper"], torch.ones_like(points["upper"]))
                width = torch.where(chosen, log_increment, torch.zeros_like(log_increment))
            part = self._kind(kind, inner, width, working)
            value = torch.where(chosen, part, torch.zeros_like(part) if value is None else value)
        if value is None:
            raise InvalidInputError("the loss needs at least one row, got none; pass data that is not empty")
        if "entry" in points:
            on = target.tensors["truncated"] > 0
            z = torch.where(on, points["entry"], torch.zeros_like(points["entry"]))
            tail = self._latent.log_sf_t(z)
            value = value - torch.where(on, tail, torch.zeros_like(tail))
        return -value

    def _z(self, name: str, theta: Tensor, working: Working, target: Target) -> Tensor:
        h = (target.tensors[name] * theta).sum(dim=-1)
        offset = target.tensors.get(f"{name}_offset")
        if offset is not None:
            h = h + offset
        if working.log_scale is not None:
            h = h * torch.exp(working.log_scale)
        return h if working.shift is None else h - working.shift

    def _log_increment(self, working: Working, target: Target) -> Tensor | None:
        """Return log h'(y), or log of the difference of h over an interval, shape (..., b)."""
        rows = target.tensors.get("log_increment")
        if rows is None:
            return None
        log_increment = (
            rows[..., 0] if self._has_offset else torch.logsumexp(rows + working.log_increments, dim=-1)
        )
        return log_increment if working.log_scale is None else log_increment + working.log_scale

    def _kind(
        self, kind: str, z: dict[str, Tensor], log_increment: Tensor | None, working: Working
    ) -> Tensor:
        if kind == "exact" and log_increment is not None:
            return self._latent.log_pdf_t(z["upper"]) + log_increment
        if kind == "interval" and log_increment is not None:
            return self._latent.log_interval_t(z["lower"], z["upper"], log_increment)
        if kind == "left":
            return self._latent.log_cdf_t(z["upper"])
        if kind == "right":
            return self._latent.log_sf_t(z["lower"])
        size = working.free[..., 0] if working.shift is None else working.shift
        return torch.zeros_like(size)


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
        self._name, self._outcome, self._latent = score, outcome, latent
        self._levels = outcome.levels or ()

    def target(self, encoded: Encoded, dtype: torch.dtype, device: torch.device | str = "cpu") -> Target:
        if encoded.codes is None:
            raise InvalidInputError(
                "this loss needs class labels, got an outcome on the line; use loss='nll'"
            )
        return Target({"codes": torch.as_tensor(encoded.codes, device=device)})

    def rows(self, working: Working, target: Target) -> Tensor:
        codes = target.tensors["codes"]
        h, gaps = class_transformation(working, self._outcome)
        classes = class_distribution(_expand(h, codes), gaps, self._outcome, self._latent)
        return core.get(self._name)(classes, codes)


class OrderedLogitLoss(ClassLoss):
    r"""The log-score of ordered classes with a logistic latent variable, at the observed class only.

    With cumulative-softplus cutpoints :math:`1 - e^{-(\theta_k - \theta_{k-1})} = \sigma(\varphi_k)`, so
    for an inner class

    .. math:: \log P(Y = k) = \log\sigma(\theta_k - s) + \log\sigma(s - \theta_{k-1}) + \log\sigma(\varphi_k),

    the first term only for the first and the second only for the last class:
    three log-sigmoids, no difference of distribution functions. Values are
    those of ``deeptram.evaluation.scores.nll``; models with a Scale term use that.
    """

    def __init__(self, score: str, outcome: Outcome, latent: Latent) -> None:
        super().__init__(score, outcome, latent)
        last = len(self._levels) - 1
        codes = torch.arange(last + 1)
        free = torch.where((codes > 0) & (codes < last), codes + 2 * last + 1, last)
        self._places = torch.stack([codes, codes + last, free], dim=1)

    def rows(self, working: Working, target: Target) -> Tensor:
        if working.log_scale is not None:
            return super().rows(working, target)
        codes, theta = target.tensors["codes"], working.theta
        h = _expand(theta if working.shift is None else theta - working.shift.unsqueeze(-1), codes)
        none = torch.full_like(h[..., :1], torch.inf)  # whose log-sigmoid is zero
        table = torch.cat([h, none, -h, _expand(working.free, codes)], dim=-1)
        places = gather_rows(self._places.to(codes.device), codes)
        return -logsigmoid(table.gather(-1, places)).sum(dim=-1)


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
        if encoded.observations is None:
            raise InvalidInputError("this loss needs outcomes on the line, got classes; use loss='rps'")
        y = self._outcome.decode(encoded)
        if isinstance(y, Surv):
            raise UnsupportedError(
                "loss='crps' needs exact outcomes, got censored or truncated ones; use loss='nll', "
                "which knows them"
            )
        return Target({"y": torch.as_tensor(y).to(device, dtype)})

    def rows(self, working: Working, target: Target) -> Tensor:
        y = target.tensors["y"]
        theta = working.theta
        if self._line is not None:
            theta = plain_line(theta, *self._line)
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
    outcome.kind.check_loss(name)
    if outcome.is_discrete:
        fast = name == "nll" and isinstance(latent, Logistic) and not outcome.kind.is_nominal
        return (OrderedLogitLoss if fast else ClassLoss)(name, outcome, latent)
    return PredictiveLoss(outcome, latent, line) if name == "crps" else LineLoss(outcome.basis, latent, line)


def _expand(values: Tensor, rows: Any) -> Tensor:
    """Let one row of parameters stand for all rows of a batch."""
    return values if values.shape[-2] == rows.shape[-1] else values.expand(*rows.shape, values.shape[-1])
