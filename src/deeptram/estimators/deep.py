"""Models with networks as estimators: from data to a training task, and from its result back."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from deeptram._threads import alone
from deeptram._validation import check_same_length, check_sample_weight
from deeptram.errors import (
    CollinearityWarning,
    ConvergenceWarning,
    InvalidInputError,
    InvalidTypeError,
    NonFiniteLossError,
    UnknownNameError,
)
from deeptram.estimators.data_checks import fingerprint
from deeptram.estimators.exact import store_coefficients
from deeptram.estimators.information import row_loglik, shift_covariance
from deeptram.fitting.deep.gradient import fit_deep
from deeptram.fitting.deep.seeds import MemberSeeds, generator, root_seed
from deeptram.fitting.deep.task import DeepFit, DeepTask
from deeptram.fitting.deep.training import Training
from deeptram.fitting.exact.diagnosis import left_out
from deeptram.model import Encoded, Matrices
from deeptram.model.deep import DeepModel
from deeptram.model.terms import SI

if TYPE_CHECKING:
    from deeptram.estimators.base import BaseTram

Array = NDArray[np.float64]
Rows = NDArray[np.int64]

# What an exact fit leaves behind and a fit with networks does not have.
_PARTS = ("theta", "shift", "log_scale", "log_increments")
_EXACT_ONLY = ("vcov_", "theta_", "certificate_")


def fit_with_networks(
    estimator: BaseTram,
    X: Any,
    y: Any,
    matrices: Matrices,
    encoded: Encoded,
    weights: Array | None,
    validation: Any,
) -> None:
    """Train a prepared estimator and store what was learned in it.

    Parameters
    ----------
    estimator : BaseTram
        With ``spec_``, ``outcome_``, ``design_`` and ``latent_`` set.
    X, y
        The training data as given (and checked).
    matrices, encoded, weights
        The same rows, encoded.
    validation : float, (X, y) or None
        Share of rows to hold out, or data, by which the best epoch is chosen.

    Raises
    ------
    NonFiniteLossError
        If the loss is not finite. The estimator then holds the best epoch
        before, if one was finished.
    """
    seed = root_seed(estimator.random_state)
    task = deep_task(estimator, X, matrices, encoded, weights, validation, MemberSeeds.of(seed).validation)
    estimator.data_hash_ = fingerprint(X, y, weights)
    try:
        fit = fit_deep(task, seed)
    except NonFiniteLossError as error:
        if error.best is not None:
            keep_fit(estimator, error.best, summarise_fit(task, error.best.model))
        raise
    keep_fit(estimator, fit, summarise_fit(task, fit.model))
    if fit.diverged:
        warnings.warn(diverged_message([fit]), ConvergenceWarning, stacklevel=3)
    if fit.interrupted:
        warnings.warn(
            f"training was interrupted after {fit.n_epochs} of {task.training.epochs} epochs; the state of "
            f"epoch {fit.best_epoch} is kept: fit again to train to the end.",
            ConvergenceWarning,
            stacklevel=3,
        )


def diverged_message(fits: Sequence[DeepFit], n_members: int = 1) -> str:
    """Return what is said of members that predict worse than a model without any columns."""
    worst = max(fits, key=lambda fit: fit.validation_loss - fit.null_loss)
    who = "training" if n_members == 1 else f"training of {len(fits)} of {n_members} members"
    return (
        f"{who} ended worse than a model without any columns: validation loss {worst.validation_loss:.4g}, "
        f"which has {worst.null_loss:.4g}; lower learning_rate, set clip_norm, or train longer "
        "(converged_ is False)."
    )


def deep_task(
    estimator: BaseTram,
    X: Any,
    matrices: Matrices,
    encoded: Encoded,
    weights: Array | None,
    validation: Any,
    validation_seed: int,
) -> DeepTask:
    """Return what is to be trained.

    Parameters
    ----------
    estimator, X, matrices, encoded, weights, validation
        As for :func:`fit_with_networks`.
    validation_seed : int
        Seed of the rows that are held out, where a share is asked for.
    """
    training = Training() if estimator.training is None else estimator.training
    if not isinstance(training, Training):
        raise InvalidTypeError(
            f"training must be a dt.Training, got {type(training).__name__}; "
            "write training=dt.Training(epochs=50, learning_rate=1e-3)"
        )
    share = training.validation if validation is None else validation
    data = rows = None
    if isinstance(share, Real) and not isinstance(share, bool):
        training = training.replace(validation=float(share))
        used = np.arange(len(encoded)) if weights is None else np.flatnonzero(weights)
        rows = held_out_rows(used, float(share), validation_seed)
    elif share is not None:
        data = _encode_validation(estimator, share)
    task = DeepTask(
        estimator.spec_,
        estimator.design_,
        estimator.outcome_,
        estimator.latent_,
        estimator.loss,
        matrices,
        encoded,
        X,
        weights,
        data,
        training,
        rows,
    )
    aliased = ~task.scaling.x_kept
    if aliased.any():
        columns = ", ".join(np.array(estimator.design_.names)[aliased])
        warnings.warn(left_out(columns), CollinearityWarning, stacklevel=4)
    return task


def held_out_rows(used: Rows, share: float, seed: int) -> Rows:
    """Return a random share of rows, in ascending order.

    Parameters
    ----------
    used : array of int
        Row numbers to choose from.
    share : float
        In (0, 1); at least one row is held out and one is left.
    seed : int

    Examples
    --------
    >>> len(held_out_rows(np.arange(10), 0.2, seed=1))
    2
    """
    count = max(1, round(share * len(used)))
    if count >= len(used):
        raise InvalidInputError(
            f"validation={share:g} must leave rows to train on, got {len(used)} row(s) in all; "
            "use a smaller share or more data"
        )
    order = torch.randperm(len(used), generator=generator(seed)).numpy()
    return np.sort(used[order[:count]])


def _encode_validation(estimator: BaseTram, validation: Any) -> tuple[Matrices, Encoded, Any, Array | None]:
    """Read validation data with the encodings of the training data."""
    if not isinstance(validation, (tuple, list)) or len(validation) not in (2, 3):
        raise InvalidTypeError(
            f"validation must be a share between 0 and 1 or a pair (X_val, y_val), got "
            f"{type(validation).__name__}; write validation=0.2 or validation=(X_val, y_val)"
        )
    X, y, weights = (*validation, None)[:3]
    try:
        X = estimator.check_X(X, estimator.spec_, reset=False)
        matrices = estimator.design_.matrices(X, estimator=type(estimator).__name__)
        encoded = estimator.outcome_.encode(y)
    except UnknownNameError as error:
        raise UnknownNameError(f"validation data: {error}") from error
    except InvalidInputError as error:
        raise InvalidInputError(f"validation data: {error}") from error
    check_same_length(X_val=matrices.x, y_val=encoded)
    return matrices, encoded, X, check_sample_weight(weights, len(encoded))


@dataclass(frozen=True, eq=False)
class FitSummary:
    """What the training data say about a trained model.

    Attributes
    ----------
    loglik : float
        Log-likelihood of all rows passed to ``fit``, summed (weighted).
    shift_vcov : ndarray or None
        Covariance of the linear shift given the networks, from the observed
        information of the rows trained on (the sandwich for RPS and Brier score);
        None without LS or with the CRPS.
    """

    loglik: float
    shift_vcov: Array | None


def summarise_fit(task: DeepTask, model: DeepModel) -> FitSummary:
    """Evaluate a trained model on its training data.

    Parameters
    ----------
    task : DeepTask
        What it was trained on.
    model : DeepModel
    """
    parameters = model.row_parameters(task.X, task.matrices).numpy()
    with torch.no_grad():
        rows = row_loglik(task.outcome, task.latent, parameters, task.encoded).numpy()
    weights = np.ones(len(rows)) if task.sample_weight is None else task.sample_weight
    used = weights > 0
    loglik = float(weights[used] @ rows[used])
    if task.loss == "crps" or task.matrices.x.shape[1] == 0:
        return FitSummary(loglik, None)
    trained = weights.copy()
    if task.validation_rows is not None:
        trained[task.validation_rows] = 0.0
    kept = model.x_kept.cpu().numpy()
    some = np.flatnonzero(trained)
    covariance = shift_covariance(
        task.outcome,
        task.latent,
        _take(parameters, some),
        task.matrices.take(some),
        task.encoded.take(some),
        trained[some],
        task.design.n_strata if isinstance(task.spec.intercept, SI) else None,
        kept,
        task.loss,
    )
    return FitSummary(loglik, covariance)


@alone()
def keep_fit(estimator: BaseTram, fit: DeepFit, summary: FitSummary) -> None:
    """Store a trained member in a prepared estimator, in place.

    Parameters
    ----------
    estimator : BaseTram
    fit : DeepFit
    summary : FitSummary
    """
    for name in _EXACT_ONLY:
        if hasattr(estimator, name):
            delattr(estimator, name)
    model = fit.model
    estimator.model_, estimator.fit_ = model, fit
    store_coefficients(estimator, model.coef, model.scale_coef)
    if isinstance(estimator.spec_.intercept, SI):
        estimator.theta_ = model.theta.ravel()
    estimator.shift_vcov_ = None
    if summary.shift_vcov is not None:
        names = list(estimator.coef_.index)
        estimator.shift_vcov_ = pd.DataFrame(summary.shift_vcov, index=names, columns=names)
    estimator.history_ = fit.history
    estimator.loglik_ = summary.loglik
    estimator.n_iter_, estimator.best_epoch_ = fit.n_epochs, fit.best_epoch
    estimator.converged_ = not (fit.interrupted or fit.diverged)
    estimator.seed_ = fit.seed
    estimator.n_parameters_ = sum(parameter.numel() for parameter in model.parameters())


def _take(parameters: Any, rows: Rows) -> Any:
    """Return the row parameters of some rows; a baseline shared by all stays shared."""
    n = parameters.n_rows
    parts: Mapping[str, Any] = {name: getattr(parameters, name) for name in _PARTS}
    return type(parameters)(
        **{
            name: part if part is None or (len(part) == 1 and n > 1) else part[rows]
            for name, part in parts.items()
        }
    )
