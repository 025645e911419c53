r"""The log-score of outcomes on the line, on basis rows that are computed once before training.

Its values are those of ``deeptram.evaluation.scores.nll``. Densities and interval
probabilities come from the increments of the baseline,

.. math:: h'(y) = \sum_j b_j(y) (\theta_{j+1} - \theta_j), \qquad b_j \ge 0,

on the log scale, so that nothing cancels in float32.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from deeptram.bases import Basis
from deeptram.errors import InvalidInputError
from deeptram.fitting.deep.row_loss import RowLoss, Target
from deeptram.latent import Latent
from deeptram.model.outcome import Encoded
from deeptram.model.parts import Working
from deeptram.responses import Observations

Array = NDArray[np.float64]

KINDS = ("exact", "interval", "left", "right", "unknown")
_NOISE = 1e-14


class LineLoss(RowLoss):
    """The log-score of exact, censored and truncated outcomes on the line.

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
