"""Where training starts: the scale of the columns, and the exact fit of the model without its networks."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from deeptram.bases import Basis
from deeptram.errors import FittingError, InvalidInputError
from deeptram.fitting.exact.columns import StructuredData, aliased_columns, rounding_of, standardize
from deeptram.fitting.exact.fit import Estimate, fit_exact
from deeptram.fitting.exact.nominal import fit_nominal
from deeptram.fitting.exact.problem import line_scale
from deeptram.latent import Latent
from deeptram.model.deep import DeepModel
from deeptram.model.outcome import Encoded, Outcome
from deeptram.model.parts import ComplexIntercept, as_float64
from deeptram.model.terms import SI, Matrices, Spec

Array = NDArray[np.float64]

# Increments of zero (active constraints) have no finite free number; this is small on the scale of h.
SMALLEST_INCREMENT = 1e-3
_SINGLE_PRECISION = 1e-7


@dataclass(frozen=True, eq=False)
class Scaling:
    """Centres and scales; see ``deeptram.model.parts``.

    Attributes
    ----------
    x_mean, x_sd : ndarray, shape (p,)
        Of the columns of LS; the mean is zero in models with a Scale term,
        whose intercept cannot take up a constant.
    x_kept : ndarray of bool, shape (p,)
        False for columns that are combinations of the ones before.
    z_sd : ndarray, shape (q,)
        Of the columns of Scale.
    line : (float, float) or None
        Location and scale of the outcome (or its logarithm) for straight lines.
    """

    x_mean: Array
    x_sd: Array
    x_kept: NDArray[np.bool_]
    z_sd: Array
    line: tuple[float, float] | None

    @classmethod
    def fit(
        cls,
        spec: Spec,
        outcome: Outcome,
        matrices: Matrices,
        encoded: Encoded,
        weights: Array | None,
        *,
        standardized: bool = True,
    ) -> Scaling:
        """Learn the scale (of LS only where asked), and which columns have information of their own."""
        mean, sd, scaled = standardize(matrices.x, weights, centre=True)
        aliased = aliased_columns(scaled, rounding_of(mean, sd), _SINGLE_PRECISION)
        if spec.has_scale or not standardized:
            mean = np.zeros_like(mean)
        if not standardized:
            sd = np.ones_like(sd)
        z = np.zeros((len(matrices.x), 0)) if matrices.scale is None else matrices.scale
        line = None
        if encoded.observations is not None and outcome.basis.is_line:
            line = line_scale(encoded.observations, outcome.basis, None)
        return cls(mean, sd, ~aliased, standardize(z, weights, centre=False)[1], line)

    def columns(self, spec: Spec, matrices: Matrices) -> dict[str, Any]:
        """Return the structured columns on the working scale, as arrays."""
        columns: dict[str, Any] = {}
        if matrices.x.shape[1]:
            columns["x"] = (matrices.x - self.x_mean) / self.x_sd * self.x_kept
        if matrices.scale is not None and matrices.scale.shape[1]:
            columns["scale"] = matrices.scale / self.z_sd
        if matrices.strata is not None and isinstance(spec.intercept, SI):
            columns["strata"] = matrices.strata
        return columns

    def apply(self, model: DeepModel) -> None:
        """Write the scale into a model, in place."""
        for name in ("x_mean", "x_sd", "x_kept", "z_sd", *(["line"] if self.line is not None else [])):
            getattr(model, name).copy_(torch.as_tensor(getattr(self, name)))


def exact_start(data: StructuredData, kept: NDArray[np.bool_], *, nominal: bool) -> Estimate | None:
    """Return the maximum-likelihood estimate of SI, LS and Scale, all of it finite; None where there is none.

    Coefficients of aliased columns are zero. Separated or otherwise infinite coefficients start at zero, with
    the intercept of the model without columns.

    Parameters
    ----------
    data : StructuredData
        The training rows.
    kept : ndarray of bool, shape (p,)
        Columns that the model uses.
    nominal : bool
        Whether the classes have no order.
    """
    n, p = data.x.shape
    for columns in (data.x * kept, np.zeros((n, 0))):
        fit = _finite_estimate(dataclasses.replace(data, x=columns, varying=None), nominal)
        if fit is not None:
            beta = np.nan_to_num(fit.beta)
            none = np.zeros((p - columns.shape[1], *beta.shape[1:]))
            theta = _finite(fit.theta, data.latent, n, nominal)
            return dataclasses.replace(fit, theta=theta, beta=np.concatenate([beta, none]))
    return None


def _finite_estimate(data: StructuredData, nominal: bool) -> Estimate | None:
    try:
        if nominal and data.codes is not None:
            fit = fit_nominal(data.codes, data.n_classes, data.x, data.weights, quiet=True)
        else:
            fit = fit_exact(data, quiet=True)
    except (FittingError, InvalidInputError, np.linalg.LinAlgError):
        return None
    finite = np.isfinite(np.nan_to_num(fit.beta)).all() and np.isfinite(fit.gamma).all()
    odd = fit.unbounded or fit.infinite.any() or np.isnan(fit.theta).any()
    return fit if finite and not odd else None


def _finite(theta: Array, latent: Latent, n: int, nominal: bool) -> Array:
    """Replace the infinite parameters of empty classes by those of half an observation."""
    rare = 0.5 / (n + 1)
    if nominal:
        return np.where(np.isneginf(theta), np.log(rare), theta)
    finite = np.isfinite(theta)
    some = np.where(finite.any(axis=1, keepdims=True), np.where(finite, theta, np.nan), 0.0)
    low = np.minimum(float(latent.icdf(rare)), np.nanmin(some, axis=1, keepdims=True) - 1.0)
    high = np.maximum(float(latent.icdf(1 - rare)), np.nanmax(some, axis=1, keepdims=True) + 1.0)
    return np.where(finite | np.isnan(theta), theta, np.where(theta < 0, low, high))


def apply_start(model: DeepModel, start: Estimate) -> None:
    """Set the structured parameters of a model to given values, in place.

    For a complex intercept the baseline becomes the constant that is added to
    the network's raw output.

    Parameters
    ----------
    model : DeepModel
        With its working scale set.
    start : Estimate
    """
    kept, sd = model.x_kept.cpu().numpy(), as_float64(model.x_sd)
    beta = start.beta * (kept if start.beta.ndim == 1 else kept[:, None])
    free = free_start(model, start, as_float64(model.x_mean) @ beta)
    with torch.no_grad():
        if isinstance(model.intercept, ComplexIntercept):
            _set(model.intercept.constant, free[0])
        else:
            _set(model.intercept.free, free)
        if model.beta is not None:
            _set(model.beta, beta * (sd if beta.ndim == 1 else sd[:, None]))
        if model.gamma is not None:
            _set(model.gamma, start.gamma * as_float64(model.z_sd))


def free_start(model: DeepModel, start: Estimate, moved: Any = 0.0) -> Array:
    """Return the free numbers of a starting baseline on a model's working scale, (strata, d).

    Parameters
    ----------
    model : DeepModel
    start : Estimate
    moved : array or float
        What centring the columns of LS takes from the baseline.
    """
    theta = start.theta
    if model.is_nominal:
        return np.asarray(theta + moved)
    if model.is_line:
        # h = (theta_0 + m theta_1) + (s theta_1) (y - m) / s
        location, scale = as_float64(model.line)
        theta = np.stack([theta[:, 0] + location * theta[:, 1], scale * theta[:, 1]], axis=1)
    basis = model.outcome.basis
    return free_numbers(basis, theta - moved * basis.constant)


def free_numbers(basis: Basis, theta: Array) -> Array:
    """Return the free numbers of given coefficients; increments below 0.001 are raised to it.

    Examples
    --------
    >>> from deeptram.bases import Cutpoints
    >>> free_numbers(Cutpoints(4), np.array([[-1.0, -1.0, 1.0]])).round(2)
    array([[-1.  , -6.91,  1.85]])
    """
    differences = basis.monotone_differences
    if len(differences) == 0:
        return theta
    increments = theta @ differences.T
    raised = np.maximum(increments, SMALLEST_INCREMENT)
    lifted = np.concatenate([theta[:, :1], raised], axis=1)
    is_slope = differences[0, 0] == 0  # the increment of a straight line is its slope itself
    return np.asarray(basis.free_from_theta(lifted if is_slope else np.cumsum(lifted, axis=1)))


def _set(parameter: torch.Tensor, values: Array) -> None:
    parameter.copy_(torch.as_tensor(values).to(parameter.dtype))
