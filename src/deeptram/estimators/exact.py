"""Models without networks as estimators: the exact optimum of their loss, and its covariance."""

from __future__ import annotations

import dataclasses
import itertools
import reprlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from deeptram._schema import plain, unplain
from deeptram._threads import alone
from deeptram.errors import FileFormatError, InvalidInputError, InvalidTypeError, UnsupportedError
from deeptram.evaluation.scores import core as score_core
from deeptram.fitting.exact.columns import StructuredData, standardize
from deeptram.fitting.exact.diagnosis import Labels
from deeptram.fitting.exact.fit import Estimate, centre_scale, fit_exact, uncentre_scale
from deeptram.fitting.exact.nominal import fit_nominal
from deeptram.fitting.exact.scored import check_loss, fit_scored
from deeptram.latent import Latent
from deeptram.model import Design, Encoded, Matrices, Outcome, StructuredModel
from deeptram.model.persistence import TENSOR_NAME, Tensors, check_arrays, check_values
from deeptram.optimise.newton import Certificate
from deeptram.predictive import DiscretePredictive, LinePredictive
from deeptram.predictive.kinds import RowParameters, build_predictive

if TYPE_CHECKING:
    from deeptram.estimators.base import BaseTram
    from deeptram.estimators.partitioned import EncodedPieces

Array = NDArray[np.float64]

TINY = 1e-100  # the least spread of what is scaled, and the least rise of h


def fit_without_networks(
    estimator: BaseTram,
    matrices: Matrices,
    encoded: Encoded,
    weights: Array | None,
    pieces: EncodedPieces | None = None,
) -> None:
    """Fit a prepared estimator to the optimum of its loss and store what was learned in it.

    Parameters
    ----------
    estimator : BaseTram
        With ``spec_``, ``outcome_``, ``design_`` and ``latent_`` set.
    matrices, encoded, weights
        The training rows, encoded.
    pieces : EncodedPieces, optional
        All rows, where the others are a pilot of them.
    """
    if estimator.outcome_.kind.is_nominal:
        estimator.fit_ = _fit_nominal(estimator, matrices, encoded, weights)
        _store(estimator, estimator.fit_.theta, estimator.fit_.vcov)
        return
    scale, centre = centre_scale(matrices.scale, weights, estimator.outcome_.basis)
    centred = dataclasses.replace(matrices, scale=scale)
    data = StructuredData.of(
        estimator.outcome_, estimator.latent_, centred, encoded, weights, estimator.design_.n_strata
    )
    if estimator.loss != "nll":
        check_loss(estimator.loss, estimator.outcome_, data)
    rows = None if pieces is None else dataclasses.replace(pieces, centre=centre)
    fit = fit_exact(data, pieces=rows, labels=_labels(estimator.design_))
    estimator.fit_ = fit if estimator.loss == "nll" else fit_scored(fit, estimator.outcome_, estimator.loss)
    theta, vcov = uncentre_scale(estimator.fit_, centre)
    _store(estimator, theta, vcov)
    if estimator.loss in ("rps", "brier") and scale is None:
        parameters = estimator.model_.row_parameters(None, matrices)
        kept = ~fit.problem.aliased & (fit.infinite == 0)
        known = estimator.outcome_, estimator.latent_, parameters, matrices, encoded, weights, estimator.loss
        vcov[theta.size :, theta.size :] = shift_covariance(FittedRows(*known), 1, kept)
        estimator.vcov_ = label_covariance(estimator.design_, estimator.outcome_, vcov)


def _labels(design: Design) -> Labels:
    """Return the names that messages use."""
    return Labels(
        linear=design.names,
        varying=design.names_of("varying"),
        scale=design.names_of("scale"),
        strata=() if design.strata is None else [repr(level) for level in design.strata.levels],
    )


def _fit_nominal(
    estimator: BaseTram, matrices: Matrices, encoded: Encoded, weights: Array | None
) -> Estimate:
    if estimator.loss != "nll":
        raise UnsupportedError(
            f"loss={estimator.loss!r} is not available for a nominal outcome without networks; "
            "use loss='nll'."
        )
    if any(part is not None for part in (matrices.strata, matrices.scale, matrices.varying)):
        raise UnsupportedError(
            "strata, Scale and Varying need an ordered outcome; a nominal outcome takes LS, CI and CS terms."
        )
    if encoded.codes is None or estimator.outcome_.levels is None:
        raise InvalidInputError("a nominal outcome needs class labels; pass them as y.")
    return fit_nominal(
        encoded.codes,
        len(estimator.outcome_.levels),
        matrices.x,
        weights,
        estimator.design_.names,
        levels=estimator.outcome_.levels,
    )


@alone()
def _store(estimator: BaseTram, theta: Array, vcov: Array) -> None:
    """Keep the estimates: public ones as they are, finite ones for prediction."""
    fit = estimator.fit_
    ExactState(
        theta=theta,
        beta=np.nan_to_num(fit.beta, nan=0.0),
        gamma=np.nan_to_num(fit.gamma, nan=0.0),
        coef=np.where(fit.infinite != 0, np.copysign(np.inf, fit.infinite), fit.beta).T.ravel(),
        scale_coef=fit.gamma,
        vcov=vcov,
        **{name: getattr(fit, name) for name in _SCALARS},
    ).keep(estimator)


# -- how well the linear shift is determined, given all else ------------------------------------------


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


@dataclass(frozen=True, eq=False)
class FittedRows:
    """Training rows, and the parameters that a fitted model gives them.

    Attributes
    ----------
    outcome, latent : Outcome, Latent
    parameters : RowParameters
        Of the fitted model, as float64 arrays.
    matrices, encoded, weights
        The rows.
    loss : {"nll", "rps", "brier"}
        What the model minimises.
    """

    outcome: Outcome
    latent: Latent
    parameters: RowParameters
    matrices: Matrices
    encoded: Encoded
    weights: Array | None = None
    loss: str = "nll"

    def take(self, rows: Any) -> FittedRows:
        """Return some of the rows."""
        parts = {name: getattr(self, name).take(rows) for name in ("parameters", "matrices", "encoded")}
        return dataclasses.replace(
            self, **parts, weights=None if self.weights is None else self.weights[rows]
        )


def shift_covariance(fitted: FittedRows, n_strata: int | None, kept: NDArray[np.bool_]) -> Array:
    r"""Return the covariance of the linear shift given the networks, shape (p, p); NaN where aliased.

    With the networks held as they are, the model is :math:`F_Z(a(y)'(\vartheta_i + \delta) - \eta_i -
    x_i'\beta)`. Its NLL is convex in :math:`(\delta, \beta)`; with its Hessian I at :math:`\delta = 0`, the
    observed information, the covariance of :math:`\hat\beta` within a member is

    .. math:: (I_{\beta\beta} - I_{\beta\delta} I_{\delta\delta}^{+} I_{\delta\beta})^{-1}.

    The constants :math:`\delta` stand for the intercept, which was estimated too: one for each parameter of a
    simple intercept, a single one for a complex intercept. The minimiser of another score
    :math:`\sum_i \rho_i` (RPS, Brier) has the sandwich covariance :math:`H^{-1} J H^{-1}`,
    :math:`H = \sum_i \nabla^2 \rho_i`, :math:`J = \sum_i \nabla\rho_i \nabla\rho_i'`.

    Parameters
    ----------
    fitted : FittedRows
    n_strata : int or None
        Number of baselines of a simple intercept; None for a complex one.
    kept : array of bool, shape (p,)
        Columns with information of their own.

    Returns
    -------
    array
        For nominal outcomes (p (K - 1), p (K - 1)), level by level as in
        ``coef_``. All NaN where the likelihood has no curvature that can be
        computed (a network that leaves an outcome no room at all).
    """
    d, nominal = fitted.outcome.basis.n_coef, fitted.outcome.kind.is_nominal
    per_column = d if nominal else 1
    constants = (n_strata or 1) * d if n_strata is not None or nominal else 1
    used = np.tile(kept, per_column)
    covariance = np.full((len(used), len(used)), np.nan)
    if not used.any():
        return covariance
    # Columns of unit size keep the solution accurate; a moved centre is absorbed by the intercept.
    centre = fitted.parameters.log_scale is None or n_strata is None
    mean, sd, _ = standardize(fitted.matrices.x, fitted.weights, centre=centre)
    x = ((fitted.matrices.x - mean) / sd)[:, kept]
    size = constants + x.shape[1] * per_column
    hessian, spread = np.zeros((size, size)), np.zeros((size, size))
    for rows in _pieces(len(fitted.encoded)):
        part = _Rows(fitted.take(rows), x[rows], constants)
        hessian += part.hessian(size)
        if fitted.loss != "nll":
            spread += part.squared_gradients(size)
    if not (np.isfinite(hessian).all() and np.isfinite(spread).all()):
        return covariance
    cross, inner = hessian[constants:, :constants], np.linalg.pinv(hessian[:constants, :constants])
    schur = hessian[constants:, constants:] - cross @ inner @ cross.T
    schur = (schur + schur.T) / 2
    if np.linalg.eigvalsh(schur).min() <= _SINGULAR * np.diag(hessian).max():
        return covariance
    inverse = np.linalg.inv(schur)
    if fitted.loss != "nll":
        half = np.hstack([-inverse @ cross @ inner, inverse])  # the lines of beta in the inverse of H
        inverse = half @ spread @ half.T
    scale = np.tile(sd[kept], per_column)
    covariance[np.ix_(used, used)] = inverse / np.outer(scale, scale)
    return covariance


class _Rows:
    """The loss of some rows as a function of (delta, beta)."""

    def __init__(self, fitted: FittedRows, x: Array, constants: int) -> None:
        own = fitted.parameters
        self.fitted, self.constants, self.x = fitted, constants, _tensor(x)
        self.theta = _tensor(own.theta)
        self.shift = _tensor(np.zeros(len(x)) if own.shift is None else own.shift)
        gaps = own.log_increments if constants == 1 else None
        optional = own.log_scale, gaps, fitted.weights, fitted.matrices.strata
        known = [None if one is None else _tensor(one) for one in optional]
        self.log_scale, self.log_increments, self.weights, self.strata = known

    def losses(self, point: Tensor) -> Tensor:
        """Return the loss of each row, (n,), at a point, (size,), or each at its own, (n, size)."""
        outcome, d = self.fitted.outcome, self.fitted.outcome.basis.n_coef
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
        if outcome.kind.is_nominal:
            slopes = beta.reshape(*beta.shape[:-1], d, -1)
            theta = theta + (torch.einsum("nj,nkj->nk", self.x, slopes) if each else self.x @ slopes.T)
        else:
            shift = shift + ((self.x * beta).sum(dim=1) if each else self.x @ beta)
        parameters = RowParameters(theta, shift, self.log_scale, self.log_increments)
        return row_loss(outcome, self.fitted.latent, parameters, self.fitted.encoded, self.fitted.loss)

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
        points = torch.zeros(len(self.x), size, dtype=torch.float64, requires_grad=True)
        (gradients,) = torch.autograd.grad(self.losses(points).sum(), points)
        weighted = gradients if self.weights is None else gradients * self.weights.unsqueeze(1)
        return (gradients.T @ weighted).numpy()


def _pieces(n: int) -> Iterator[slice]:
    for start in range(0, n, _ROWS_AT_ONCE):
        yield slice(start, min(start + _ROWS_AT_ONCE, n))


def _tensor(values: NDArray[Any]) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(values))


# -- the fitted state ---------------------------------------------------------------------------------

_ARRAYS = ("theta", "beta", "gamma", "coef", "scale_coef", "vcov")
_SCALARS = ("loglik", "n_iter", "converged", "n_parameters", "certificate")


@dataclass(frozen=True, eq=False, kw_only=True)
class ExactState:
    """What an exact fit leaves in an estimator, and in files; ``MemberFit`` is that of models with networks.

    Attributes
    ----------
    theta, beta, gamma : ndarray
        Baselines, shift and scale as they predict: finite.
    coef, scale_coef : ndarray
        Shift and scale as they are shown: infinite where separated, NaN where aliased.
    vcov : ndarray
        Covariance of (theta, shift, scale).
    loglik, n_iter, converged, n_parameters, certificate
        Of the fit.
    """

    theta: Array
    beta: Array
    gamma: Array
    coef: Array
    scale_coef: Array
    vcov: Array
    loglik: float
    n_iter: int
    converged: bool
    n_parameters: int
    certificate: Certificate

    @classmethod
    def of(cls, estimator: BaseTram) -> ExactState:
        """Return the state of a fitted estimator."""
        model = estimator.model_
        return cls(
            theta=model.theta,
            beta=model.coef,
            gamma=model.scale_coef,
            coef=estimator.coef_.to_numpy(dtype=float),
            scale_coef=estimator.scale_coef_.to_numpy(dtype=float),
            vcov=estimator.vcov_.to_numpy(dtype=float),
            **{name: getattr(estimator, f"{name}_") for name in _SCALARS},
        )

    def keep(self, estimator: BaseTram) -> None:
        """Store the state in a prepared estimator, in place."""
        outcome, latent, design = estimator.outcome_, estimator.latent_, estimator.design_
        estimator.model_ = StructuredModel(outcome, latent, design, self.theta, self.beta, self.gamma)
        estimator.keep_coefficients(self.coef, self.scale_coef)
        estimator.theta_ = self.theta.ravel()
        estimator.vcov_ = label_covariance(design, outcome, self.vcov)
        for name in _SCALARS:
            setattr(estimator, f"{name}_", getattr(self, name))

    def to_record(self) -> tuple[dict[str, Any], Tensors]:
        """Return JSON-able values and arrays."""
        known = {name: getattr(self, name) for name in _SCALARS}
        known["certificate"] = dataclasses.asdict(self.certificate)
        return plain(known), {name: getattr(self, name) for name in _ARRAYS}

    @classmethod
    def from_record(cls, record: Mapping[str, Any], tensors: Tensors) -> ExactState:
        """Read a state back from :meth:`to_record`."""
        known: dict[str, Any] = {**unplain(record), **tensors}
        return cls(**{**known, "certificate": Certificate(**known["certificate"])})

    def restore_checked(self, estimator: BaseTram) -> None:
        """Make a prepared estimator a fitted one, in place, with a state from a file, which is checked."""
        outcome, design = estimator.outcome_, estimator.design_
        d, p = outcome.basis.n_coef, len(design.names)
        varying, scales = (len(design.names_of(term)) for term in ("varying", "scale"))
        nominal = outcome.kind.is_nominal
        size = (design.n_strata + varying) * d + p * (d if nominal else 1) + scales
        shapes: dict[str, tuple[int, ...]] = {
            "theta": (design.n_strata + varying, d),
            "beta": (p, d) if nominal else (p,),
            "gamma": (scales,),
            "coef": (p * d if nominal else p,),
            "scale_coef": (scales,),
            "vcov": (size, size),
        }
        arrays = {name: getattr(self, name) for name in _ARRAYS}
        check_arrays({name: (shape, "float64") for name, shape in shapes.items()}, arrays)
        for name in ("theta", "beta", "gamma"):
            check_values(name, arrays[name])
        if not nominal and not varying:  # h varies with x: at x = 0, maybe out of range, it need not increase
            slopes = self.theta[: design.n_strata] @ outcome.basis.monotone_differences.T
            flat = slopes.shape[1] > 0 and not outcome.is_discrete and (slopes.sum(axis=1) < TINY).any()
            if flat or (slopes < 0).any():
                raise FileFormatError(
                    f"{TENSOR_NAME}: theta must increase, got {reprlib.repr(self.theta.tolist())}; "
                    "save it again"
                )
        self.keep(estimator)
        estimator.fit_ = None


# -- names ------------------------------------------------------------------------------------------


def _theta_names(design: Design, outcome: Outcome) -> list[str]:
    """Name the baseline parameters: ``low|mid`` for cutpoints, ``Bs1`` for Bernstein."""
    levels, basis = outcome.levels, outcome.basis
    if outcome.kind.is_nominal and levels is not None:
        return [f"{level}:(Intercept)" for level in levels[1:]]
    cuts = None if levels is None else [f"{a}|{b}" for a, b in itertools.pairwise(levels)]
    base = basis.coef_names if cuts is None else cuts
    blocks = [""]
    if design.strata is not None:
        blocks = [f":{design.strata_column}{level}" for level in design.strata.levels]
    elif design.varying is not None:
        blocks = [":(Intercept)"]
    blocks += [f":{name}" for name in design.names_of("varying")]
    return [name + block for block in blocks for name in base]


def label_covariance(design: Design, outcome: Outcome, vcov: Array) -> pd.DataFrame:
    """Return the covariance of (theta, shift, scale) with their names."""
    scale = [f"scale({name})" for name in design.names_of("scale")]
    labels = [*_theta_names(design, outcome), *outcome.coefficient_names(design.names), *scale]
    return pd.DataFrame(vcov, index=labels, columns=labels)
