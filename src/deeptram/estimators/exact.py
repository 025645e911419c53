"""Models without networks as estimators: the exact optimum of their loss, and its covariance."""

from __future__ import annotations

import dataclasses
import itertools
import reprlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deeptram._schema import plain, unplain
from deeptram._threads import alone
from deeptram.errors import FileFormatError, InvalidInputError, UnsupportedError
from deeptram.estimators.information import shift_covariance
from deeptram.fitting.exact.columns import StructuredData
from deeptram.fitting.exact.diagnosis import Labels
from deeptram.fitting.exact.fit import Estimate, centre_scale, fit_exact, uncentre_scale
from deeptram.fitting.exact.nominal import fit_nominal
from deeptram.fitting.exact.scored import check_loss, fit_scored
from deeptram.model import Design, Encoded, Matrices, Outcome, StructuredModel
from deeptram.model.persistence import TENSOR_NAME, Tensors, check_arrays, check_values
from deeptram.optimise.newton import Certificate

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
        vcov[theta.size :, theta.size :] = shift_covariance(
            estimator.outcome_,
            estimator.latent_,
            parameters,
            matrices,
            encoded,
            weights,
            1,
            kept,
            estimator.loss,
        )
        estimator.vcov_ = label_covariance(estimator.design_, estimator.outcome_, vcov)


def _labels(design: Design) -> Labels:
    """Return the names that messages use."""
    return Labels(
        linear=design.names,
        varying=() if design.varying is None else design.varying.names,
        scale=() if design.scale is None else design.scale.names,
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
        varying, scales = (0 if one is None else len(one.names) for one in (design.varying, design.scale))
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
        if not nominal:
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
    if design.varying is not None:
        blocks += [f":{name}" for name in design.varying.names]
    return [name + block for block in blocks for name in base]


def label_covariance(design: Design, outcome: Outcome, vcov: Array) -> pd.DataFrame:
    """Return the covariance of (theta, shift, scale) with their names."""
    scale = [f"scale({name})" for name in ([] if design.scale is None else design.scale.names)]
    labels = [*_theta_names(design, outcome), *outcome.coefficient_names(design.names), *scale]
    return pd.DataFrame(vcov, index=labels, columns=labels)
