"""Negative log-likelihood for outcomes on the line: exact, censored, truncated.

Also serves discrete outcomes whose cutpoints depend on covariates (scale and
varying terms), with indicator rows in place of basis rows. Which rows are exact, censored or truncated is
decided by ``deeptram.responses.observations``, as it is for training, recalibration and weights; the sums
below are a kernel of their own because a Newton step needs Jacobians and Hessians in float64, and training
log increments in float32, by batches of several members.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from deeptram.bases import Basis
from deeptram.latent import Latent
from deeptram.optimise.newton import keep_positive
from deeptram.responses import Observations


@dataclass
class Point:
    r"""Where h is evaluated in m rows: :math:`z = e^s (a'\vartheta + o) - x'\beta`, :math:`s = z'\gamma/2`.

    Attributes
    ----------
    a : Tensor, shape (m, d)
        Basis rows (already multiplied with strata or varying columns).
    x : Tensor, shape (m, p)
        Linear shift.
    scale : Tensor or None, shape (m, q)
        Columns of the scale term.
    offset : Tensor or None, shape (m,)
        Known part of h (a fixed slope).
    shift_offset : Tensor or None, shape (m,)
        Known part of the shift (a coefficient held fixed by a profile).
    """

    a: Tensor
    x: Tensor
    scale: Tensor | None = None
    offset: Tensor | None = None
    shift_offset: Tensor | None = None

    def __post_init__(self) -> None:
        """Keep the constant Jacobian in one matrix, column by column: sums over rows are quicker."""
        self.n_theta, self.n_beta = self.a.shape[1], self.x.shape[1]
        columns = torch.empty(self.n_theta + self.n_beta, len(self.a), dtype=torch.float64)
        columns[: self.n_theta] = self.a.T
        torch.neg(self.x.T, out=columns[self.n_theta :])
        self._fixed = columns.T
        self.a = self._fixed[:, : self.n_theta]

    def at(self, parameters: Tensor) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
        """Return z (m,), the Jacobian dz/dparameters (m, d+p+q), exp(s) and h."""
        d, p = self.n_theta, self.n_beta
        known = 0.0 if self.shift_offset is None else self.shift_offset
        if self.scale is None:
            z = self._fixed @ parameters[: d + p] - known
            return (z if self.offset is None else z + self.offset), self._fixed, None, None
        h = self.h(parameters[:d])
        stretch = torch.exp(self.scale @ parameters[d + p :] / 2)
        z = stretch * h - self.x @ parameters[d : d + p] - known
        jacobian = torch.cat(
            [self.a * stretch.unsqueeze(1), -self.x, self.scale * (stretch * h / 2).unsqueeze(1)], dim=1
        )
        return z, jacobian, stretch, h

    def h(self, theta: Tensor) -> Tensor:
        """Return the baseline a'theta + o of each row, shape (m,)."""
        value = self.a @ theta
        return value if self.offset is None else value + self.offset

    def add_curvature(self, hessian: Tensor, slope: Tensor, stretch: Tensor | None, h: Tensor | None) -> None:
        r"""Subtract :math:`\sum_i g_i \nabla^2 z_i` from a Hessian of the negative log-likelihood."""
        if self.scale is None or stretch is None or h is None:
            return
        d, p = self.n_theta, self.n_beta
        mixed = self.a.T @ (self.scale * (slope * stretch / 2).unsqueeze(1))
        hessian[:d, d + p :] -= mixed
        hessian[d + p :, :d] -= mixed.T
        hessian[d + p :, d + p :] -= self.scale.T @ (self.scale * (slope * stretch * h / 4).unsqueeze(1))


@dataclass
class Rows:
    """One kind of contribution: the points it needs, the slope rows, and case weights."""

    index: Tensor
    weights: Tensor | None
    lower: Point | None = None
    upper: Point | None = None
    exact: Point | None = None
    derivative: Tensor | None = None
    derivative_offset: Tensor | None = None
    entry: Point | None = None


@dataclass(frozen=True)
class LineDesign:
    """What h is made of in n rows.

    Attributes
    ----------
    basis : Basis
        Classes are intervals between their cutpoints.
    basis_map : ndarray, shape (d, d)
        From scaled to plain baseline coefficients.
    x : Tensor, shape (n, p)
        Columns of the shift.
    weights : ndarray or None, shape (n,)
        Case weights.
    blocks : Tensor or None, shape (n, blocks)
        Columns that multiply the basis (strata, varying columns).
    scale : Tensor or None, shape (n, q)
        Columns of the scale term.
    shift_offset : Tensor or None, shape (n,)
        Known part of the shift.
    """

    basis: Basis
    basis_map: NDArray[np.float64]
    x: Tensor
    weights: NDArray[np.float64] | None = None
    blocks: Tensor | None = None
    scale: Tensor | None = None
    shift_offset: Tensor | None = None

    def rows(self, seen: Observations) -> list[Rows]:
        """Sort rows by what is known about them and set up their design matrices."""
        parts = []
        for mask, ends in (
            (seen.cases.exact, {"exact": seen.lower}),
            (seen.cases.interval, {"lower": seen.lower, "upper": seen.upper}),
            (seen.cases.right, {"lower": seen.lower}),
            (seen.cases.left, {"upper": seen.upper}),
            (seen.truncated, {"entry": seen.entry}),
        ):
            index = np.flatnonzero(mask)
            if len(index):
                parts.append(self._part(index, {end: y[index] for end, y in ends.items() if y is not None}))
        return parts

    def _part(self, index: NDArray[np.int64], ends: dict[str, NDArray[np.float64]]) -> Rows:
        """Return one part of the likelihood: the rows ``index`` with their evaluation points."""
        chosen = torch.from_numpy(index)
        x, scale, known = self.x, self.scale, self.shift_offset
        if len(index) < len(x):
            x = x[chosen]
            scale = None if scale is None else scale[chosen]
            known = None if known is None else known[chosen]
        part = Rows(chosen, None if self.weights is None else torch.from_numpy(self.weights[index]))
        has_offset = len(self.basis.monotone_differences) == 0
        for end, values in ends.items():
            a = self._modulated(self.basis.evaluate(values), chosen)
            offset = torch.from_numpy(self.basis.offset(values)) if has_offset else None
            setattr(part, end, Point(a, x, scale, offset, known))
        if "exact" in ends:
            slopes = self._modulated(self.basis.derivative(ends["exact"]), chosen)
            part.derivative = slopes.T.contiguous().T  # as the Jacobian in Point
            if has_offset:
                part.derivative_offset = torch.from_numpy(self.basis.offset_derivative(ends["exact"]))
        return part

    def _modulated(self, values: NDArray[np.float64], chosen: Tensor) -> Tensor:
        """Return rows of the basis for scaled coefficients, once per stratum and varying column."""
        a = torch.from_numpy(values)
        if not np.array_equal(self.basis_map, np.eye(len(self.basis_map))):
            a = a @ torch.from_numpy(self.basis_map)
        if self.blocks is None:
            return a
        return torch.einsum("nb,nd->nbd", self.blocks[chosen], a).reshape(len(a), -1)


class LineLikelihood:
    r"""NLL from contributions on the line.

    exact: :math:`\log f_Z(z) + s + \log h'(y)`; right censored
    :math:`\log(1 - F_Z(z))`; left censored :math:`\log F_Z(z)`; interval
    :math:`\log(F_Z(z_u) - F_Z(z_l))`; left truncation subtracts
    :math:`\log(1 - F_Z(z_e))`.

    Parameters are ordered ``(theta, beta, gamma)``. Convex in (theta, beta)
    when there is neither a scale term nor truncation.
    """

    def __init__(
        self, parts: list[Rows], latent: Latent, n_theta: int, n_beta: int, n_gamma: int, n_rows: int
    ) -> None:
        self._parts = parts
        self._latent = latent
        self._d = n_theta
        self._p = n_beta
        self._q = n_gamma
        self._n = n_rows
        self.n_parameters = n_theta + n_beta + n_gamma

    @property
    def is_convex(self) -> bool:
        """Whether the NLL is convex, so that a stationary point is the global optimum."""
        return self._q == 0 and all(part.entry is None for part in self._parts)

    def rows(self, parameters: Tensor) -> Tensor:
        """Return the log-likelihood contribution of each row in the caller's order, unweighted."""
        out = torch.zeros(self._n, dtype=torch.float64)
        for part in self._parts:
            out[part.index] += self._part_rows(part, parameters)
        return out

    def _part_rows(self, part: Rows, parameters: Tensor) -> Tensor:
        if part.entry is not None:
            return -self._latent.log_sf_t(part.entry.at(parameters)[0])
        if part.exact is not None and part.derivative is not None:
            z, _, stretch, _ = part.exact.at(parameters)
            slope = self._slope(part, parameters)
            rows = self._latent.log_pdf_t(z) + torch.log(slope)
            return rows if stretch is None else rows + torch.log(stretch)
        if part.lower is not None and part.upper is not None:
            low, high = part.lower.at(parameters)[0], part.upper.at(parameters)[0]
            return self._latent.log_interval_t(low, high, torch.log(high - low))
        if part.upper is not None:
            return self._latent.log_cdf_t(part.upper.at(parameters)[0])
        if part.lower is not None:
            return self._latent.log_sf_t(part.lower.at(parameters)[0])
        return torch.zeros(len(part.index), dtype=torch.float64)

    def _slope(self, part: Rows, parameters: Tensor) -> Tensor:
        if part.derivative is None:
            return torch.ones(len(part.index), dtype=torch.float64)
        slope = part.derivative @ parameters[: self._d]
        return slope if part.derivative_offset is None else slope + part.derivative_offset

    def value(self, parameters: Tensor) -> float:
        """Return the negative log-likelihood; ``inf`` where h does not increase."""
        total = 0.0
        for part in self._parts:
            rows = self._part_rows(part, parameters)
            total -= float(rows.sum() if part.weights is None else part.weights @ rows)
        return total if total == total else float("inf")

    def longest_step(self, parameters: Tensor, step: Tensor) -> float:
        """Return the length up to which no density and no interval's probability vanishes."""
        length, theta, change = 1.0, parameters[: self._d], step[: self._d]
        for part in self._parts:
            if part.lower is not None and part.upper is not None:
                between = part.upper.h(theta) - part.lower.h(theta)
                length = min(length, keep_positive(between, part.upper.a @ change - part.lower.a @ change))
            if part.derivative is not None:
                slope = self._slope(part, parameters)
                length = min(length, keep_positive(slope, part.derivative @ change))
        return length

    def evaluate(self, parameters: Tensor) -> tuple[float, Tensor, Tensor]:
        """Return the negative log-likelihood with gradient and Hessian."""
        size = self.n_parameters
        gradient = torch.zeros(size, dtype=torch.float64)
        hessian = torch.zeros(size, size, dtype=torch.float64)
        total = 0.0
        for part in self._parts:
            total -= self._add(part, parameters, gradient, hessian)
        return (total if total == total else float("inf")), gradient, hessian

    def _add(self, part: Rows, parameters: Tensor, gradient: Tensor, hessian: Tensor) -> float:
        if part.exact is not None:
            return self._add_exact(part, part.exact, parameters, gradient, hessian)
        if part.lower is not None and part.upper is not None:
            return self._add_interval(part, part.lower, part.upper, parameters, gradient, hessian)
        ends = {"entry": part.entry, "upper": part.upper, "lower": part.lower}
        kind, point = next((kind, point) for kind, point in ends.items() if point is not None)
        return self._add_single(point, kind, part, parameters, gradient, hessian)

    def _add_single(
        self, point: Point, kind: str, part: Rows, parameters: Tensor, gradient: Tensor, hessian: Tensor
    ) -> float:
        z, jacobian, stretch, h = point.at(parameters)
        derivatives = self._latent.log_cdf_derivatives if kind == "upper" else self._latent.log_sf_derivatives
        value, first, second = derivatives(z)
        if kind == "entry":
            value, first, second = -value, -first, -second
        value, first, second = _weighted(part.weights, value, first, second)
        gradient -= jacobian.T @ first
        hessian -= jacobian.T @ (jacobian * second.unsqueeze(1))
        point.add_curvature(hessian, first, stretch, h)
        return float(value.sum())

    def _add_exact(
        self, part: Rows, point: Point, parameters: Tensor, gradient: Tensor, hessian: Tensor
    ) -> float:
        z, jacobian, stretch, h = point.at(parameters)
        slope = self._slope(part, parameters)
        if not bool((slope > 0).all()):
            return float("-inf")
        value, first, second = self._latent.log_pdf_derivatives(z)
        value = value + torch.log(slope)
        if stretch is not None:
            value = value + torch.log(stretch)
        value, first, second = _weighted(part.weights, value, first, second)
        gradient -= jacobian.T @ first
        hessian -= jacobian.T @ (jacobian * second.unsqueeze(1))
        if part.derivative is not None:
            relative = part.derivative / slope.unsqueeze(1)
            weighted = relative if part.weights is None else relative * part.weights.unsqueeze(1)
            gradient[: self._d] -= weighted.sum(dim=0)
            hessian[: self._d, : self._d] += relative.T @ weighted
        if point.scale is not None:
            half = point.scale / 2
            gradient[self._d + self._p :] -= (
                half.sum(dim=0) if part.weights is None else half.T @ part.weights
            )
        point.add_curvature(hessian, first, stretch, h)
        return float(value.sum())

    def _add_interval(
        self, part: Rows, lower: Point, upper: Point, parameters: Tensor, gradient: Tensor, hessian: Tensor
    ) -> float:
        low, jac_low, stretch, h_low = lower.at(parameters)
        high, jac_high, _, h_high = upper.at(parameters)
        if not bool((high > low).all()):
            return float("-inf")
        value, d_low, d_high, w_low, w_high, q = _weighted(
            part.weights, *self._latent.log_interval_derivatives(low, high)
        )
        gradient -= jac_low.T @ d_low + jac_high.T @ d_high
        hessian += jac_low.T @ (jac_low * w_low.unsqueeze(1)) + jac_high.T @ (jac_high * w_high.unsqueeze(1))
        if stretch is None:
            difference = jac_high[:, : self._d] - jac_low[:, : self._d]
            hessian[: self._d, : self._d] += difference.T @ (difference * q.unsqueeze(1))
        else:
            difference = jac_high - jac_low
            hessian += difference.T @ (difference * q.unsqueeze(1))
        lower.add_curvature(hessian, d_low, stretch, h_low)
        upper.add_curvature(hessian, d_high, stretch, h_high)
        return float(value.sum())

    def margin(self, parameters: Tensor) -> float:
        """Return minus infinity: outcomes on the line are not separated by a single direction."""
        return -float("inf")

    def recession_rows(self, parameters: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return growing rows, rows of exact values and their slope rows, at the given scale coefficients."""
        none = torch.zeros(0, self.n_parameters, dtype=torch.float64)
        growing, exact, slopes = [none], [none], [none]
        for part in self._parts:
            for sign, point, into in (
                (-1.0, part.lower, growing),
                (1.0, part.upper, growing),
                (1.0, part.exact, exact),
            ):
                if point is not None:
                    rows = sign * point.at(parameters)[1]
                    rows[:, self._d + self._p :] = 0.0
                    into.append(rows)
            if part.derivative is not None:
                pad = torch.zeros(len(part.derivative), self._p + self._q, dtype=torch.float64)
                slopes.append(torch.cat([part.derivative, pad], dim=1))
        return torch.cat(growing), torch.cat(exact), torch.cat(slopes)


def _weighted(weights: Tensor | None, *rows: Tensor) -> tuple[Tensor, ...]:
    return rows if weights is None else tuple(row * weights for row in rows)
