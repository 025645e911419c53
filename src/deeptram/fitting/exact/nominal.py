"""Nominal outcomes exactly: the multinomial logit, its likelihood and its fit."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from deeptram.errors import (
    CollinearityWarning,
    ConvergenceWarning,
    InvalidInputError,
    SeparationWarning,
    warn,
)
from deeptram.fitting.exact.columns import aliased_columns, check_size, rounding_of, standardize
from deeptram.fitting.exact.diagnosis import left_out, separated, stopped_early
from deeptram.fitting.exact.fit import Estimate
from deeptram.fitting.exact.separation import CERTAIN, RecessionCone
from deeptram.optimise.newton import NewtonResult, has_lost_information, minimize


class MultinomialLikelihood:
    r"""NLL of :math:`P(Y = y_k) \propto \exp(\alpha_k + x'\beta_k)`, first level the reference.

    Convex. Parameters are ordered by class: ``(alpha_2, beta_2, ..., alpha_K, beta_K)``.

    Parameters
    ----------
    codes : ndarray of int, shape (n,)
        Class of each row.
    n_classes : int
        K.
    x : Tensor, shape (n, p)
        Columns (without intercept).
    weights : Tensor or None, shape (n,)
        Case weights.
    """

    is_convex = True

    def __init__(self, codes: NDArray[np.int64], n_classes: int, x: Tensor, weights: Tensor | None) -> None:
        self._x = torch.cat([torch.ones(len(x), 1, dtype=torch.float64), x], dim=1)
        self._w = torch.ones(len(x), dtype=torch.float64) if weights is None else weights
        self._codes = torch.from_numpy(codes)
        self._k = n_classes
        self.n_parameters = (n_classes - 1) * self._x.shape[1]
        self._truth = torch.zeros(len(x), n_classes - 1, dtype=torch.float64)
        later = self._codes > 0
        self._truth[later, self._codes[later] - 1] = 1.0

    def _log_probabilities(self, parameters: Tensor) -> Tensor:
        logits = self._x @ parameters.reshape(self._k - 1, -1).T
        return torch.log_softmax(torch.cat([torch.zeros_like(logits[:, :1]), logits], dim=1), dim=1)

    def rows(self, parameters: Tensor) -> Tensor:
        """Return the log-likelihood of each row, unweighted."""
        return self._of_truth(self._log_probabilities(parameters))

    def _of_truth(self, log_p: Tensor) -> Tensor:
        return log_p.gather(1, self._codes.unsqueeze(1)).squeeze(1)

    def value(self, parameters: Tensor) -> float:
        """Return the negative log-likelihood."""
        return -float(self._w @ self.rows(parameters))

    def evaluate(self, parameters: Tensor) -> tuple[float, Tensor, Tensor]:
        """Return the negative log-likelihood with gradient and Hessian."""
        log_p = self._log_probabilities(parameters)
        value = -float(self._w @ self._of_truth(log_p))
        p = torch.exp(log_p[:, 1:])
        gradient = ((p - self._truth) * self._w.unsqueeze(1)).T @ self._x
        size = self._x.shape[1]
        hessian = torch.zeros(self.n_parameters, self.n_parameters, dtype=torch.float64)
        for j in range(self._k - 1):
            for k in range(j, self._k - 1):
                weight = self._w * p[:, j] * ((1.0 if j == k else 0.0) - p[:, k])
                block = self._x.T @ (self._x * weight.unsqueeze(1))
                hessian[j * size : (j + 1) * size, k * size : (k + 1) * size] = block
                hessian[k * size : (k + 1) * size, j * size : (j + 1) * size] = block.T
        return value, gradient.ravel(), hessian

    def longest_step(self, parameters: Tensor, step: Tensor) -> float:
        """Return 1: every parameter value is allowed."""
        return 1.0

    def margin(self, parameters: Tensor) -> float:
        """Return by how much the truth's logit exceeds every other, at least."""
        log_p = self._log_probabilities(parameters)
        others = log_p.scatter(1, self._codes.unsqueeze(1), -torch.inf)
        return float((self._of_truth(log_p) - others.amax(dim=1)).min())

    def recession_rows(self) -> Tensor:
        """Return rows (truth's logit minus every other) whose growth raises the likelihood."""
        size, rows = self._x.shape[1], []
        for other in range(self._k):
            row = torch.zeros(len(self._x), self._k, size, dtype=torch.float64)
            row[torch.arange(len(self._x)), self._codes] += self._x
            row[:, other] -= self._x
            rows.append(row[self._codes != other][:, 1:].reshape(-1, self.n_parameters))
        return torch.cat(rows)


# -- the likelihood ----------------------------------------------------------------------------------


Array = NDArray[np.float64]


def fit_nominal(
    codes: NDArray[np.int64],
    n_classes: int,
    x: Array,
    weights: Array | None,
    names: Sequence[str] = (),
    *,
    levels: Sequence[object] = (),
    quiet: bool = False,
) -> Estimate:
    r"""Maximise :math:`\sum_i w_i \log P(Y = y_i)` with :math:`\log(P_k / P_1) = \alpha_k + x'\beta_k`.

    Parameters
    ----------
    codes, n_classes : ndarray of int (n,), int
        Outcome; levels without observations get probability zero.
    x : ndarray, shape (n, p)
        Columns.
    weights : ndarray or None
        Case weights.
    names : sequence of str
        Column names for messages.
    levels : sequence
        Names of the levels for messages.
    quiet : bool
        Whether to leave out the warnings.
    """
    names = list(names) or [f"column {j}" for j in range(x.shape[1])]
    levels = list(levels) or list(range(n_classes))
    if not (codes == 0).any():
        raise InvalidInputError(
            f"the first level ({levels[0]!r}) is the reference of a nominal outcome and must be observed; "
            "leave it out of `levels` or reorder them."
        )
    check_size(*x.shape)
    present = np.flatnonzero(np.bincount(codes, minlength=n_classes))
    position = np.zeros(n_classes, dtype=np.int64)
    position[present] = np.arange(len(present))
    mean, sd, scaled = standardize(x, weights, centre=True)
    aliased = aliased_columns(scaled, rounding_of(mean, sd))
    kept = np.flatnonzero(~aliased)
    if aliased.any() and not quiet:
        columns = ", ".join(np.array(names)[aliased])
        warn(left_out(columns), CollinearityWarning)
    objective = MultinomialLikelihood(
        position[codes],
        len(present),
        torch.from_numpy(np.ascontiguousarray(scaled[:, kept])),
        None if weights is None else torch.from_numpy(weights),
    )
    unit = float(len(x) if weights is None else weights.sum())
    result = minimize(
        objective,
        np.zeros(objective.n_parameters),
        unit=unit,
        is_separating=lambda point: objective.margin(torch.from_numpy(point)) > 0,
    )
    # back to plain columns: alpha = alpha_s - (mean / sd)'beta_s, beta = beta_s / sd
    size, free = len(kept) + 1, len(present) - 1
    block = np.eye(size)
    block[0, 1:] = -mean[kept] / sd[kept]
    block[1:, 1:] = np.diag(1 / sd[kept])
    infinite, displacement = _separated(objective, result, free, size)
    plain = block @ (result.parameters + displacement).reshape(free, size).T
    theta_all = np.full(n_classes, -np.inf)
    theta_all[present] = np.concatenate([[0.0], plain[0]])
    beta_all = np.full((x.shape[1], n_classes), np.nan)
    beta_all[:, np.setdiff1d(np.arange(n_classes), present)] = 0.0
    beta_all[np.ix_(kept, present)] = np.hstack([np.zeros((len(kept), 1)), plain[1:]])
    signs = np.zeros((x.shape[1], n_classes))
    signs[np.ix_(kept, present[1:])] = infinite
    if signs.any() and not quiet:
        labels = [f"{level}:{name}" for level in levels for name in names]
        warn(separated(labels, signs.T.ravel()), SeparationWarning)
    elif not result.converged and not quiet:
        warn(stopped_early(result), ConvergenceWarning)
    return Estimate(
        theta=theta_all[None, 1:],
        beta=beta_all[:, 1:],
        gamma=np.zeros(0),
        vcov=_covariance(result.hessian, block, free, present, kept, n_classes, x.shape[1]),
        loglik=-min(result.value, objective.value(torch.from_numpy(result.parameters + displacement))),
        n_iter=result.n_iter,
        converged=result.converged and not signs.any(),
        certificate=result.certificate,
        infinite=signs[:, 1:],
        n_parameters=objective.n_parameters,
    )


def _covariance(
    hessian: Array,
    block: Array,
    free: int,
    present: NDArray[np.int64],
    kept: NDArray[np.int64],
    n_classes: int,
    p: int,
) -> Array:
    """Return the covariance ordered (alphas, betas class by class), NaN where there is no parameter."""
    back = np.kron(np.eye(free), block)
    plain = back @ np.linalg.pinv(hessian, hermitian=True) @ back.T
    size = block.shape[0]
    total = (n_classes - 1) * (p + 1)
    full = np.full((total, total), np.nan)
    places = []
    for j in range(free):
        level = int(present[1 + j]) - 1
        places.append(level)
        places += [(n_classes - 1) + level * p + int(column) for column in kept]
    if len(places) == free * size:
        full[np.ix_(places, places)] = plain
    return full


def _separated(
    objective: MultinomialLikelihood, result: NewtonResult, free: int, size: int
) -> tuple[Array, Array]:
    """Return the signs of infinite slopes, shape (p, classes - 1), and the step towards them."""
    none = np.zeros((size - 1, free)), np.zeros(free * size)
    lost = size > 1 and has_lost_information(result.start_hessian, result.hessian)
    if size == 1 or (result.converged and not lost):
        return none
    slopes = np.arange(free * size).reshape(free, size)[:, 1:].ravel()
    margin = objective.margin(torch.from_numpy(result.parameters))
    if margin > 0:
        signs = np.sign(result.parameters[slopes]).reshape(free, size - 1).T
        return signs, result.parameters * max(CERTAIN / margin - 1, 0.0)
    growing = objective.recession_rows().numpy()
    nothing = np.zeros((0, growing.shape[1]))
    cone = RecessionCone(growing, nothing, nothing)
    if cone.growth_direction() is None:
        return none
    signs, displacement = cone.infinite_part(np.eye(free * size)[slopes], result.parameters[slopes])
    return signs.reshape(free, size - 1).T, displacement
