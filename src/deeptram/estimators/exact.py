"""Models without networks as estimators: the exact optimum of their loss, and its covariance."""

from __future__ import annotations

import dataclasses
import itertools
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deeptram._threads import alone
from deeptram.errors import InvalidInputError, UnsupportedError
from deeptram.estimators.information import shift_covariance
from deeptram.fitting.exact.columns import StructuredData
from deeptram.fitting.exact.diagnosis import Labels
from deeptram.fitting.exact.fit import centre_scale, fit_exact, uncentre_scale
from deeptram.fitting.exact.nominal import fit_nominal
from deeptram.fitting.exact.scored import check_loss, fit_scored
from deeptram.model import Design, Encoded, Matrices, Outcome, StructuredModel

if TYPE_CHECKING:
    from deeptram.estimators.base import BaseTram
    from deeptram.estimators.partitioned import EncodedPieces

Array = NDArray[np.float64]


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
        _fit_nominal(estimator, matrices, encoded, weights)
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
    _store(estimator, theta, estimator.fit_.beta, estimator.fit_.gamma)
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


def _fit_nominal(estimator: BaseTram, matrices: Matrices, encoded: Encoded, weights: Array | None) -> None:
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
    estimator.fit_ = fit_nominal(
        encoded.codes,
        len(estimator.outcome_.levels),
        matrices.x,
        weights,
        estimator.design_.names,
        levels=estimator.outcome_.levels,
    )
    _store(estimator, estimator.fit_.theta, estimator.fit_.beta, np.zeros(0))
    estimator.vcov_ = label_covariance(estimator.design_, estimator.outcome_, estimator.fit_.vcov)


@alone()
def _store(estimator: BaseTram, theta: Array, beta: Array, gamma: Array) -> None:
    """Keep the estimates: public ones as they are, finite ones for prediction."""
    fit = estimator.fit_
    public = np.where(fit.infinite != 0, np.copysign(np.inf, fit.infinite), beta)
    store_coefficients(estimator, public, gamma)
    estimator.theta_ = theta.ravel()
    estimator.loglik_, estimator.n_parameters_ = fit.loglik, fit.n_parameters
    estimator.n_iter_, estimator.converged_ = fit.n_iter, fit.converged
    estimator.certificate_ = fit.certificate
    shift, stretch = np.nan_to_num(beta, nan=0.0), np.nan_to_num(gamma, nan=0.0)
    outcome, latent, design = estimator.outcome_, estimator.latent_, estimator.design_
    estimator.model_ = StructuredModel(outcome, latent, design, theta, shift, stretch)


# -- names ------------------------------------------------------------------------------------------


def coefficient_names(design: Design, outcome: Outcome) -> list[str]:
    """Return the names of the linear shift, for nominal outcomes ``level:column``."""
    names = design.names
    levels = outcome.levels
    if not outcome.kind.is_nominal or levels is None:
        return names
    return [f"{level}:{name}" for level in levels[1:] for name in names]


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
    labels = [*_theta_names(design, outcome), *coefficient_names(design, outcome), *scale]
    return pd.DataFrame(vcov, index=labels, columns=labels)


def store_coefficients(estimator: BaseTram, shift: Array, scale: Array) -> None:
    """Set ``coef_`` and ``scale_coef_`` of an estimator that has its design.

    Parameters
    ----------
    estimator : BaseTram
    shift : array, shape (p,), for nominal outcomes (p, K - 1)
    scale : array, shape (q,)
    """
    design = estimator.design_
    names = coefficient_names(design, estimator.outcome_)
    stretched = [] if design.scale is None else list(design.scale.names)
    estimator.coef_ = pd.Series(shift.T.ravel(), index=names, name="coef", dtype=float)
    estimator.scale_coef_ = pd.Series(scale, index=stretched, dtype=float)
