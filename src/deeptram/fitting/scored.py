"""Minimum-score estimates (RPS, Brier, CRPS) for models without networks."""

from __future__ import annotations

import dataclasses
import warnings

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize
from torch import Tensor

from deeptram.errors import ConvergenceWarning, UnsupportedError
from deeptram.fitting.exact import ExactFit
from deeptram.fitting.newton import Certificate
from deeptram.model import Outcome
from deeptram.predictive import DiscretePredictive
from deeptram.predictive.parameters import RowParameters, build_predictive
from deeptram.scores import core as score_core

Array = NDArray[np.float64]

_MAX_ITER = 2000


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
    data = start.problem.data
    if data.varying is not None or data.n_strata > 1:
        raise UnsupportedError(
            f"loss={loss!r} is not available with strata or Varying terms; use loss='nll' for them."
        )
    if loss in ("rps", "brier") and not outcome.is_discrete:
        raise UnsupportedError(
            f"loss={loss!r} is for classes, got outcome={outcome.kind!r}; use loss='crps'."
        )
    if loss == "crps" and outcome.is_discrete:
        raise UnsupportedError("loss='crps' is for outcomes on the line; use loss='rps' for classes.")
    if not np.isfinite(start.theta).all():
        raise UnsupportedError(
            f"loss={loss!r} needs every level to be observed; leave empty levels out of `levels`."
        )
    problem = _ScoreProblem(start, outcome, loss)
    answer = minimize(
        problem.value_and_gradient,
        problem.start,
        jac=True,
        method="L-BFGS-B",
        bounds=problem.bounds,
        options={"maxiter": _MAX_ITER, "ftol": 1e-15, "gtol": 1e-9},
    )
    stalled = b"" if isinstance(answer.message, str) else answer.message
    converged = bool(answer.success) or b"ABNORMAL" in stalled or "ABNORMAL" in str(answer.message)
    if not converged:
        warnings.warn(
            f"the {loss} fit stopped after {answer.nit} iterations ({answer.message}); "
            "check the scale of the data.",
            ConvergenceWarning,
            stacklevel=4,
        )
    theta, beta, gamma = problem.unpack(torch.from_numpy(answer.x))
    loglik = problem.loglik(theta, beta, gamma)
    full_beta = np.full(len(start.beta), np.nan)
    full_beta[problem.kept] = beta.numpy()
    return dataclasses.replace(
        start,
        theta=theta.numpy()[None, :],
        beta=full_beta,
        gamma=gamma.numpy(),
        vcov=np.full_like(start.vcov, np.nan),
        loglik=loglik,
        n_iter=int(answer.nit),
        converged=converged,
        infinite=np.zeros_like(start.infinite),
        certificate=Certificate(float("nan"), float(np.abs(answer.jac).max(initial=0.0)), (), (), False),
    )


class _ScoreProblem:
    """The mean score as a function of (first baseline value, increments, scaled beta, gamma)."""

    def __init__(self, start: ExactFit, outcome: Outcome, loss: str) -> None:
        data = start.problem.data
        self.outcome, self.loss, self.latent = outcome, loss, data.latent
        self.kept = np.flatnonzero(~start.problem.aliased)
        self.sd = torch.from_numpy(start.problem.x_sd[self.kept])
        self.x = torch.from_numpy(np.ascontiguousarray(data.x[:, self.kept])) / self.sd
        self.scale = None if data.scale is None else torch.from_numpy(data.scale)
        weights = np.ones(len(data.x)) if data.weights is None else data.weights
        self.weights = torch.from_numpy(weights / weights.sum())
        self.total = float(weights.sum())
        self.codes = None if data.codes is None else torch.from_numpy(data.codes)
        self.observations = data.observations
        increments = data.basis.monotone_differences
        self.d = data.basis.n_coef
        # theta = lift @ (first, increments): the inverse of (first value, C theta)
        first = np.zeros((1, self.d))
        first[0, 0] = 1.0
        self.lift = torch.from_numpy(np.linalg.inv(np.vstack([first, increments])))
        free = np.linalg.solve(self.lift.numpy(), start.theta[0])
        bounded = len(increments)
        free[1:] = np.maximum(free[1:], 1e-8)
        self.start = np.concatenate([free, start.beta[self.kept] * self.sd.numpy(), start.gamma])
        open_end = (None, None)
        self.bounds = [open_end] + [(1e-12, None)] * bounded
        self.bounds += [open_end] * (len(self.start) - len(self.bounds))

    def unpack(self, free: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return theta, beta (of kept columns, plain scale) and gamma."""
        p = len(self.kept)
        return self.lift @ free[: self.d], free[self.d : self.d + p] / self.sd, free[self.d + p :]

    def _predictive(self, theta: Tensor, beta: Tensor, gamma: Tensor) -> object:
        log_scale = None if self.scale is None else self.scale @ gamma / 2
        parameters = RowParameters(
            theta=theta.unsqueeze(0), shift=self.x @ (beta * self.sd), log_scale=log_scale
        )
        return build_predictive(
            self.outcome.kind,
            parameters,
            self.outcome.basis,
            self.latent,
            levels=self.outcome.levels,
            log_first=self.outcome.log_first,
        )

    def value_and_gradient(self, free: Array) -> tuple[float, Array]:
        """Return the weighted mean score and its gradient."""
        point = torch.from_numpy(free).requires_grad_()
        rows = self._rows(*self.unpack(point))
        value = self.weights @ rows
        (gradient,) = torch.autograd.grad(value, point)
        return float(value.detach()), gradient.numpy()

    def _rows(self, theta: Tensor, beta: Tensor, gamma: Tensor) -> Tensor:
        predictive = self._predictive(theta, beta, gamma)
        if self.codes is not None and isinstance(predictive, DiscretePredictive):
            return score_core.get(self.loss)(predictive, self.codes)
        if self.observations is None:
            raise UnsupportedError("the data hold neither classes nor observations.")
        if not self.observations.exact.all() and self.outcome.kind != "count":
            raise UnsupportedError("loss='crps' needs exact outcomes, got censored ones; use loss='nll'.")
        moved = self.outcome.kind == "count" and self.outcome.log_first
        values = self.observations.upper - (1.0 if moved else 0.0)
        return predictive.crps(torch.from_numpy(values))  # type: ignore[attr-defined,no-any-return]

    def loglik(self, theta: Tensor, beta: Tensor, gamma: Tensor) -> float:
        """Return the log-likelihood of the training data."""
        predictive = self._predictive(theta, beta, gamma)
        if self.codes is not None and isinstance(predictive, DiscretePredictive):
            rows = predictive.log_prob_of_codes_t(self.codes)
        else:
            rows = predictive.log_prob(self.observations)  # type: ignore[attr-defined]
        return float(self.weights @ rows) * self.total
