r"""How well the linear shift is determined by the data, given what the networks say.

With the networks held as they are, the model is :math:`F_Z(a(y)'(\vartheta_i + \delta) - \eta_i - x_i'\beta)`
with per-row :math:`\vartheta_i` and :math:`\eta_i`. Its negative log-likelihood is convex in
:math:`(\delta, \beta)`; the inverse of its Hessian at :math:`\delta = 0`, the observed information, gives the
covariance of :math:`\hat\beta` within a member. The constants :math:`\delta` stand for the intercept, which
was estimated too, so that the covariance is not that of a model with known intercept: one for each baseline
parameter of a simple intercept, and a single one, common to all of them, for a complex intercept.

A minimiser of another score :math:`\sum_i \rho_i` (RPS, Brier) has the sandwich covariance
:math:`H^{-1} J H^{-1}`, :math:`H = \sum_i \nabla^2 \rho_i`, :math:`J = \sum_i \nabla\rho_i \nabla\rho_i'`.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import clone
from torch import Tensor

from deeptram.errors import DeeptramWarning, InvalidInputError, InvalidTypeError, UnsupportedError
from deeptram.estimators.data_checks import require_fit
from deeptram.evaluation.scores import core as score_core
from deeptram.fitting.exact.columns import standardize
from deeptram.fitting.exact.fit import ExactFit
from deeptram.latent import Latent
from deeptram.model import Encoded, Matrices, Outcome
from deeptram.predictive import DiscretePredictive, LinePredictive
from deeptram.predictive.kinds import RowParameters, build_predictive

Array = NDArray[np.float64]

_ROWS_AT_ONCE = 16_384
_SINGULAR = 1e-13


def row_loglik(outcome: Outcome, latent: Latent, parameters: RowParameters, encoded: Encoded) -> Tensor:
    """Return the log-likelihood of each encoded outcome under given row parameters, shape (n,).

    Parameters
    ----------
    outcome, latent : Outcome, Latent
    parameters : RowParameters
        Tensors carry gradients.
    encoded : Encoded
        The outcomes of the same n rows.

    Examples
    --------
    >>> from deeptram import latent as latents
    >>> from deeptram.model import OutcomeSettings
    >>> outcome, encoded = Outcome.fit(OutcomeSettings("binary"), [0, 1])
    >>> row_loglik(outcome, latents.get("logistic"), RowParameters(np.zeros((1, 1)), np.zeros(2)), encoded)
    tensor([-0.6931, -0.6931], dtype=torch.float64)
    """
    # A count is an interval of the same h on the line.
    kind = "continuous" if outcome.kind.is_count else outcome.kind
    predictive = build_predictive(kind, parameters, outcome.basis, latent, levels=outcome.levels)
    if isinstance(predictive, DiscretePredictive) and encoded.codes is not None:
        return predictive.log_prob_of_codes_t(torch.from_numpy(encoded.codes))
    if isinstance(predictive, LinePredictive) and encoded.observations is not None:
        return predictive.log_prob_of_observations_t(encoded.observations)
    raise InvalidTypeError(
        f"a {outcome.kind} outcome needs outcomes encoded as such, got {encoded!r}; use outcome.encode(y)"
    )


def row_loss(
    outcome: Outcome, latent: Latent, parameters: RowParameters, encoded: Encoded, loss: str
) -> Tensor:
    """Return the loss of each encoded outcome, shape (n,): NLL, or RPS and Brier score of classes.

    Parameters
    ----------
    outcome, latent, parameters, encoded
        As for :func:`row_loglik`.
    loss : {"nll", "rps", "brier"}
    """
    if loss == "nll":
        return -row_loglik(outcome, latent, parameters, encoded)
    predictive = build_predictive(outcome.kind, parameters, outcome.basis, latent, levels=outcome.levels)
    if not isinstance(predictive, DiscretePredictive) or encoded.codes is None:
        raise InvalidTypeError(f"loss={loss!r} needs encoded classes, got {encoded!r}; use loss='nll'")
    return score_core.get(loss)(predictive, torch.from_numpy(encoded.codes))


def shift_covariance(
    outcome: Outcome,
    latent: Latent,
    parameters: RowParameters,
    matrices: Matrices,
    encoded: Encoded,
    weights: Array | None,
    n_strata: int | None,
    kept: NDArray[np.bool_],
    loss: str = "nll",
) -> Array:
    r"""Return the covariance of the linear shift given the networks, shape (p, p); NaN where aliased.

    .. math:: (I_{\beta\beta} - I_{\beta\delta} I_{\delta\delta}^{+} I_{\delta\beta})^{-1}

    or, for another loss than the NLL, the block of :math:`\beta` in the sandwich.

    Parameters
    ----------
    outcome, latent : Outcome, Latent
    parameters : RowParameters
        Of the fitted model, as float64 arrays.
    matrices, encoded, weights
        The training rows.
    n_strata : int or None
        Number of baselines of a simple intercept; None for a complex one.
    kept : array of bool, shape (p,)
        Columns with information of their own.
    loss : {"nll", "rps", "brier"}
        What the model minimises.

    Returns
    -------
    array
        For nominal outcomes (p (K - 1), p (K - 1)), level by level as in
        ``coef_``. All NaN where the likelihood has no curvature that can be
        computed (a network that leaves an outcome no room at all).
    """
    d, nominal = outcome.basis.n_coef, outcome.kind.is_nominal
    per_column = d if nominal else 1
    constants = (n_strata or 1) * d if n_strata is not None or nominal else 1
    used = np.tile(kept, per_column)
    covariance = np.full((len(used), len(used)), np.nan)
    if not used.any():
        return covariance
    # Columns of unit size keep the solution accurate; a moved centre is absorbed by the intercept.
    mean, sd, _ = standardize(matrices.x, weights, centre=matrices.scale is None or n_strata is None)
    x = ((matrices.x - mean) / sd)[:, kept]
    size = constants + x.shape[1] * per_column
    hessian, spread = np.zeros((size, size)), np.zeros((size, size))
    for rows in _pieces(len(encoded)):
        part = _Rows(outcome, latent, parameters, matrices, encoded, weights, constants, x, rows, loss)
        hessian += part.hessian(size)
        if loss != "nll":
            spread += part.squared_gradients(size)
    if not (np.isfinite(hessian).all() and np.isfinite(spread).all()):
        return covariance
    cross, inner = hessian[constants:, :constants], np.linalg.pinv(hessian[:constants, :constants])
    schur = hessian[constants:, constants:] - cross @ inner @ cross.T
    schur = (schur + schur.T) / 2
    if np.linalg.eigvalsh(schur).min() <= _SINGULAR * np.diag(hessian).max():
        return covariance
    inverse = np.linalg.inv(schur)
    if loss != "nll":
        half = np.hstack([-inverse @ cross @ inner, inverse])  # the lines of beta in the inverse of H
        inverse = half @ spread @ half.T
    scale = np.tile(sd[kept], per_column)
    covariance[np.ix_(used, used)] = inverse / np.outer(scale, scale)
    return covariance


class _Rows:
    """The loss of some rows as a function of (delta, beta)."""

    def __init__(
        self,
        outcome: Outcome,
        latent: Latent,
        parameters: RowParameters,
        matrices: Matrices,
        encoded: Encoded,
        weights: Array | None,
        constants: int,
        x: Array,
        rows: slice,
        loss: str,
    ) -> None:
        self.outcome, self.latent, self.constants, self.loss = outcome, latent, constants, loss
        self.encoded = encoded.take(rows)
        own = parameters.take(rows)
        self.theta = _tensor(own.theta)
        self.shift = _tensor(np.zeros(len(self.encoded)) if own.shift is None else own.shift)
        self.log_scale = None if own.log_scale is None else _tensor(own.log_scale)
        gaps = own.log_increments if constants == 1 else None
        self.log_increments = None if gaps is None else _tensor(gaps)
        self.x = _tensor(x[rows])
        self.weights = None if weights is None else _tensor(weights[rows])
        self.strata = None if matrices.strata is None else _tensor(matrices.strata[rows])

    def losses(self, point: Tensor) -> Tensor:
        """Return the loss of each row, (n,), at a point, (size,), or each at its own, (n, size)."""
        d = self.outcome.basis.n_coef
        delta, beta = point[..., : self.constants], point[..., self.constants :]
        theta, shift, each = self.theta, self.shift, point.ndim > 1
        if self.constants == 1 and d > 1:  # a common constant moves no gap
            shift = shift - delta[..., 0]
        else:
            blocks = delta.reshape(*delta.shape[:-1], -1, d)
            if self.strata is None:
                theta = theta + blocks[..., 0, :]
            else:
                theta = theta + (
                    blocks[torch.arange(len(blocks)), self.strata] if each else blocks[self.strata]
                )
        if self.outcome.kind.is_nominal:
            slopes = beta.reshape(*beta.shape[:-1], d, -1)
            theta = theta + (torch.einsum("nj,nkj->nk", self.x, slopes) if each else self.x @ slopes.T)
        else:
            shift = shift + ((self.x * beta).sum(dim=1) if each else self.x @ beta)
        parameters = RowParameters(theta, shift, self.log_scale, self.log_increments)
        return row_loss(self.outcome, self.latent, parameters, self.encoded, self.loss)

    def hessian(self, size: int) -> Array:
        """Return the matrix of second derivatives of the weighted sum at zero, shape (size, size)."""
        point = torch.zeros(size, dtype=torch.float64, requires_grad=True)
        losses = self.losses(point)
        total = losses.sum() if self.weights is None else losses @ self.weights
        (gradient,) = torch.autograd.grad(total, point, create_graph=True)
        lines = [torch.autograd.grad(one, point, retain_graph=True)[0] for one in gradient]
        return torch.stack(lines).numpy()

    def squared_gradients(self, size: int) -> Array:
        """Return the weighted sum over rows of the squares of their gradients at zero, shape (size, size)."""
        points = torch.zeros(len(self.encoded), size, dtype=torch.float64, requires_grad=True)
        (gradients,) = torch.autograd.grad(self.losses(points).sum(), points)
        weighted = gradients if self.weights is None else gradients * self.weights.unsqueeze(1)
        return (gradients.T @ weighted).numpy()


def _pieces(n: int) -> Iterator[slice]:
    for start in range(0, n, _ROWS_AT_ONCE):
        yield slice(start, min(start + _ROWS_AT_ONCE, n))


def _tensor(values: NDArray[Any]) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(values))


# -- exact fits --------------------------------------------------------------------------------------


def training_fit(
    model: Any, X: Any, y: Any, sample_weight: Any, what: str, *, in_memory: bool = True
) -> ExactFit:
    """Return the exact fit of a model with its training data at hand, refitting it to them where needed.

    Parameters
    ----------
    model : Tram
        Fitted.
    X, y, sample_weight : data or None
        The training data; not needed for a model fitted in this session.
    what : str
        What the fit is needed for, for messages.
    in_memory : bool
        Whether sums over rows are not enough.
    """
    require_fit(model)
    if model.loss != "nll" or model.spec_.is_deep or model.outcome_.kind.is_nominal:
        raise UnsupportedError(
            f"{what} needs an ordered outcome and exact maximum likelihood, got loss={model.loss!r}, "
            f"outcome={model.outcome_.kind!r} and {'some' if model.spec_.is_deep else 'no'} networks; fit "
            "such a model with loss='nll'."
        )
    if (X is None) != (y is None):
        raise InvalidInputError(f"{what} needs X and y together, got one of them; pass both.")
    fit: ExactFit | None = model.fit_
    if X is None:
        if fit is None or getattr(fit, "problem", None) is None:
            raise UnsupportedError(
                f"{what} needs the training data, which a loaded model does not hold; pass them as X=, y= "
                "(and sample_weight=)."
            )
        if in_memory and fit.problem.pieces is not None:
            raise UnsupportedError(
                f"{what} needs the training rows in memory, got a model of partitioned data; fit a sample of "
                "them that fits into memory."
            )
        return fit
    again: Any = clone(model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeeptramWarning)
        again.fit(X, y, sample_weight=sample_weight)
    if list(again.coef_.index) != list(model.coef_.index) or abs(again.loglik_ - model.loglik_) > 1e-6 * (
        1 + abs(model.loglik_)
    ):
        raise InvalidInputError(
            f"{what} needs the training data, got other data: their log-likelihood is {again.loglik_:.6g} "
            f"where the model has {model.loglik_:.6g}; pass the X, y and sample_weight of fit."
        )
    fitted: ExactFit = again.fit_
    return fitted
