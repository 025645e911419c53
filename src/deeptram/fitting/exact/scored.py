"""Minimum-score estimates (RPS, Brier, CRPS) for models without networks."""

from __future__ import annotations

import dataclasses
import warnings
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize

from deeptram.errors import ConvergenceWarning, UnsupportedError
from deeptram.evaluation.scores import core as score_core
from deeptram.fitting.exact.columns import StructuredData
from deeptram.fitting.exact.crps import CrpsObjective
from deeptram.fitting.exact.fit import ExactFit
from deeptram.model import Outcome
from deeptram.optimise.newton import Certificate
from deeptram.predictive.kinds import RowParameters, build_predictive

Array = NDArray[np.float64]

_MAX_ITER = 2000
_RESTARTS = 5
_STATIONARY = 1e-7
_SMALLEST_STEP = 1e-10
_START_STEP = 0.02


def check_loss(loss: str, outcome: Outcome, data: StructuredData) -> None:
    """Refuse a score that is not defined for the outcome or the terms.

    Parameters
    ----------
    loss : {"rps", "brier", "crps"}
        The score.
    outcome, data : Outcome, StructuredData
        What it is to be minimised on.
    """
    if loss in ("rps", "brier") and not outcome.is_discrete:
        raise UnsupportedError(
            f"loss={loss!r} is for classes, got outcome={outcome.kind!r}; use loss='crps'."
        )
    if loss == "crps" and outcome.is_discrete:
        raise UnsupportedError("loss='crps' is for outcomes on the line; use loss='rps' for classes.")
    if data.varying is not None or data.n_strata > 1:
        raise UnsupportedError(
            f"loss={loss!r} is not available with strata or Varying terms; use loss='nll' for them."
        )
    if not outcome.kind.is_count and data.observations is not None and not data.observations.exact.all():
        raise UnsupportedError("loss='crps' needs exact outcomes, got censored ones; use loss='nll'.")


def fit_scored(start: ExactFit, outcome: Outcome, loss: str) -> ExactFit:
    r"""Minimise :math:`\sum_i w_i S(F_i, y_i)` over increasing baselines by L-BFGS.

    Starts from the maximum-likelihood estimate. The baseline is parametrised
    by its first value and non-negative increments (bounds). The problem is not
    convex, so the certificate carries no gap; there is no covariance.

    Parameters
    ----------
    start : ExactFit
        The maximum-likelihood fit of the same model.
    outcome : Outcome
        Kind of outcome and basis.
    loss : {"rps", "brier", "crps"}
        The score.
    """
    check_loss(loss, outcome, start.problem.data)
    if not np.isfinite(start.theta).all():
        raise UnsupportedError(
            f"loss={loss!r} needs every level to be observed; leave empty levels out of `levels`."
        )
    score = _Score(start, outcome, loss)
    point, n_iter, gradient = score.start, 0, np.inf
    for _ in range(_RESTARTS):
        answer = minimize(
            score.value_and_gradient,
            point,
            jac=True,
            method="L-BFGS-B",
            bounds=score.bounds,
            options={"maxiter": _MAX_ITER, "ftol": 1e-15, "gtol": 1e-10, "maxcor": 30},
        )
        point, n_iter = answer.x, n_iter + int(answer.nit)
        gradient = score.projected_gradient(point, answer.jac)
        if gradient <= _STATIONARY or answer.nit == 0:
            break
    converged = gradient <= 100 * _STATIONARY
    if not converged:
        warnings.warn(
            f"the {loss} fit stopped after {n_iter} steps with a relative gradient of {gradient:.1e}; "
            "check the scale of the data.",
            ConvergenceWarning,
            stacklevel=5,
        )
    return score.result(point, n_iter, converged, gradient)


class _Score:
    """The mean score, relative to its start, in (first value, increments, scaled shift, scaled scale)."""

    def __init__(self, start: ExactFit, outcome: Outcome, loss: str) -> None:
        self._fit, self._outcome, self._loss = start, outcome, loss
        problem, data = start.problem, start.problem.data
        self._d, self._p = data.basis.n_coef, int((~problem.aliased).sum())
        self._x = problem.columns.of(data.x)
        self._baseline = problem.back[: self._d, : self._d]
        beyond = self._d + self._p
        scale_back = problem.back[self._d + len(problem.aliased) :, beyond:]
        self._scale = None if data.scale is None else data.scale @ scale_back
        weights = np.ones(len(data.x)) if data.weights is None else data.weights
        self._weights = weights / weights.sum()
        increments = data.basis.monotone_differences @ self._baseline
        first = np.eye(1, self._d)
        # scaled theta = lift @ (first value, increments)
        self._lift = np.linalg.inv(np.vstack([first, increments])) if len(increments) else np.eye(self._d)
        free = np.linalg.solve(self._lift, start.solution[: self._d])
        if self._d > 1:
            free[1:] = np.maximum(free[1:], _START_STEP * max(float(free[1:].mean()), 1e-3))
        self.start = np.concatenate([free, start.solution[self._d :]])
        self.bounds = [(None, None)] + [(_SMALLEST_STEP, None)] * len(increments)
        self.bounds += [(None, None)] * (len(self.start) - len(self.bounds))
        self._crps: CrpsObjective | None = None
        if data.observations is not None:
            steepness = float(np.abs(free[1:].sum())) if self._d > 2 else 20.0
            is_count = outcome.kind.is_count
            self._crps = CrpsObjective(
                data.basis, data.latent, data.observations.upper, steepness, counts=is_count
            )
        self._unit = 1.0
        self._unit = max(self.value_and_gradient(self.start)[0], 1e-300)

    def _rows_of(self, free: Array) -> tuple[Array, Array, Array | None]:
        theta = self._baseline @ self._lift @ free[: self._d]
        shift = self._x @ free[self._d : self._d + self._p]
        log_scale = None if self._scale is None else self._scale @ free[self._d + self._p :] / 2
        return theta, shift, log_scale

    def value_and_gradient(self, free: Array) -> tuple[float, Array]:
        """Return the weighted mean score and its gradient."""
        theta, shift, log_scale = self._rows_of(free)
        evaluate = self._discrete if self._crps is None else self._crps.evaluate
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            rows, d_theta, d_shift, d_scale = evaluate(theta, shift, log_scale, self._weights)
        parts = [self._lift.T @ self._baseline.T @ d_theta, self._x.T @ d_shift]
        if self._scale is not None:
            parts.append(self._scale.T @ d_scale / 2)
        value = float(self._weights @ rows)
        if not np.isfinite(value):
            return 1e100, np.zeros_like(free)
        return value / self._unit, np.concatenate(parts) / self._unit

    def _discrete(
        self, theta: Array, shift: Array, log_scale: Array | None, weights: Array
    ) -> tuple[Array, Array, Array, Array]:
        """Return RPS or Brier score and derivatives by automatic differentiation."""
        data = self._fit.problem.data
        inputs = [torch.from_numpy(part).requires_grad_() for part in (theta, shift)]
        stretch = None if log_scale is None else torch.from_numpy(log_scale).requires_grad_()
        parameters = RowParameters(theta=inputs[0].unsqueeze(0), shift=inputs[1], log_scale=stretch)
        predictive: Any = build_predictive(
            self._outcome.kind, parameters, data.basis, data.latent, levels=self._outcome.levels
        )
        rows = score_core.get(self._loss)(predictive, torch.from_numpy(data.codes))
        wanted = inputs if stretch is None else [*inputs, stretch]
        gradients = torch.autograd.grad(torch.from_numpy(weights) @ rows, wanted)
        d_scale = np.zeros(0) if stretch is None else gradients[2].numpy()
        return rows.detach().numpy(), gradients[0].numpy(), gradients[1].numpy(), d_scale

    def projected_gradient(self, free: Array, gradient: Array) -> float:
        """Return the largest entry of the gradient that no bound explains."""
        lower = np.array([-np.inf if low is None else low for low, _ in self.bounds])
        free_to_fall = (free > lower * (1 + 1e-6)) | (gradient < 0)
        return float(np.abs(gradient[free_to_fall]).max(initial=0.0))

    def result(self, free: Array, n_iter: int, converged: bool, gradient: float) -> ExactFit:
        """Return the estimate in the user's parameters."""
        fit, problem = self._fit, self._fit.problem
        scaled = np.concatenate([self._lift @ free[: self._d], free[self._d :]])
        full = problem.back @ scaled
        if fit.infinite.any():
            # what separates is at infinity for a score as it is for the likelihood
            limit = np.concatenate([fit.theta.ravel(), fit.beta, fit.gamma])
            full = full + np.nan_to_num(limit - problem.back @ fit.solution, nan=0.0)
        p = len(problem.aliased)
        beta, gamma = full[self._d : self._d + p], full[self._d + p :]
        return dataclasses.replace(
            fit,
            theta=full[None, : self._d],
            beta=np.where(problem.aliased, np.nan, beta),
            gamma=np.where(problem.aliased_scale, np.nan, gamma),
            vcov=np.full_like(fit.vcov, np.nan),
            loglik=-float(problem.objective.value(torch.from_numpy(scaled))),
            n_iter=n_iter,
            converged=converged and not fit.infinite.any(),
            certificate=Certificate(float("nan"), gradient, (), (), False),
            solution=scaled,
        )
