"""Models with networks as estimators: from data to a training task, and from its result back."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from deeptram._schema import LARGEST, plain, unplain
from deeptram._threads import alone
from deeptram._validation import (
    check_same_labels,
    check_same_length,
    check_sample_weight,
)
from deeptram.errors import (
    CollinearityWarning,
    ConvergenceWarning,
    FileFormatError,
    InvalidTypeError,
    NonFiniteLossError,
    UnfinishedTrainingWarning,
    about,
    warn,
)
from deeptram.estimators.data_checks import fingerprint
from deeptram.estimators.exact import TINY, FittedRows, row_loglik, shift_covariance
from deeptram.fitting.deep.gradient import fit_deep
from deeptram.fitting.deep.hooks import HISTORY
from deeptram.fitting.deep.seeds import MemberSeeds, held_out_rows, root_seed
from deeptram.fitting.deep.task import DeepFit, DeepTask, TrainingRecord
from deeptram.fitting.deep.training import Training
from deeptram.fitting.exact.diagnosis import left_out
from deeptram.model import Encoded, Matrices
from deeptram.model.deep import DeepModel
from deeptram.model.persistence import TENSOR_NAME, Tensors, check_arrays, check_values
from deeptram.model.terms import CI, CS, SI, Design, Spec
from deeptram.networks import Budget

if TYPE_CHECKING:
    from deeptram.estimators.base import BaseTram

Array = NDArray[np.float64]
Rows = NDArray[np.int64]

# What an exact fit leaves behind and a fit with networks does not have.
LARGEST_SHIFT = 1e15  # beyond it h has no digits left after the decimal point
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
            keep_fit(estimator, summarised(task, error.best))
        raise
    keep_fit(estimator, summarised(task, fit))
    tell_of_training([estimator])
    if fit.interrupted:
        warn(
            f"training was interrupted after {fit.n_epochs} of {task.training.epochs} epochs; the state of "
            f"epoch {fit.best_epoch} is kept: fit again to train to the end.",
            ConvergenceWarning,
        )


_OF_SILENCE = (
    "{} ended with a network that gives the same for every row, as if it were not there: a long step can "
    "turn all units of a layer off for good; set schedule='warm-up', lower learning_rate, or check that its "
    "inputs differ from row to row (converged_ is False)."
)


def said_of_networks(spec: Spec, design: Design) -> list[str]:
    """Return that columns of LS are also seen by a network that may take their effect; nothing if none is.

    Examples
    --------
    >>> from deeptram.model.terms import CS, LS
    >>> spec = Spec.of([LS("a", "b"), CS(print, "b", "c")])
    >>> design, _ = Design.fit(spec, pd.DataFrame({"a": [0.0, 1], "b": [1.0, 0], "c": [2.0, 3]}))
    >>> print(*said_of_networks(spec, design))
    b: also in a network, which may take its effect; dt.CS(..., orthogonalize=True) leaves it what is linear
    """
    takers = [t for t in spec.networks if isinstance(t, CI) or (isinstance(t, CS) and not t.orthogonalize)]
    linear = () if design.linear is None else design.linear.required_columns
    both = [name for name in linear if any(not term.columns or name in term.columns for term in takers)]
    if not both:
        return []
    remedy = "; dt.CS(..., orthogonalize=True) leaves it what is linear" if spec.shifts else ""
    return [f"{', '.join(both)}: also in a network, which may take its effect{remedy}"]


def training_messages(members: Sequence[Any]) -> dict[type[Warning], str]:
    """Return what is to be said of the training of models with networks, by the warning that says it.

    Parameters
    ----------
    members : sequence of fitted models
        One, or the members of an ensemble; those without networks have nothing to say.
    """
    fits = [member.fit_ for member in members if isinstance(getattr(member, "fit_", None), DeepFit)]
    found: dict[type[Warning], str] = {}
    diverged = [fit for fit in fits if fit.diverged]
    if diverged:
        worst = max(diverged, key=lambda fit: fit.validation_loss - fit.null_loss)
        found[ConvergenceWarning] = (
            f"{_whose(diverged, members)} ended worse than a model without any columns: validation loss "
            f"{worst.validation_loss:.4g}, which has {worst.null_loss:.4g}; lower learning_rate, set "
            "clip_norm, or train longer (converged_ is False)."
        )
    silent = [fit for fit in fits if fit.silent]
    if silent:
        found[ConvergenceWarning] = " ".join([*found.values(), _OF_SILENCE.format(_whose(silent, members))])
    short = [fit for fit in fits if fit.unfinished and not fit.diverged]
    if short:
        found[UnfinishedTrainingWarning] = (
            f"{_whose(short, members)} had not ended after {max(fit.n_epochs for fit in short)} epochs: the "
            "validation loss was still falling; set Training(epochs=...) larger, and patience=10 or so to "
            "stop when it no longer falls (converged_ is False)."
        )
    return found


def _whose(fits: Sequence[DeepFit], members: Sequence[Any]) -> str:
    return "training" if len(members) == 1 else f"training of {len(fits)} of {len(members)} members"


def training_fact(members: Sequence[Any]) -> dict[str, str]:
    """Return the same for a notebook, as one named fact; empty where there is nothing to say."""
    said = training_messages(members).values()
    return {"training": " ".join(said)} if said else {}


def tell_of_training(members: Sequence[Any]) -> None:
    """Warn of training that ended badly or too early, once for all members."""
    for category, message in training_messages(members).items():
        warn(message, category)


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
        warn(left_out(columns), CollinearityWarning)
    return task


def _encode_validation(estimator: BaseTram, validation: Any) -> tuple[Matrices, Encoded, Any, Array | None]:
    """Read validation data with the encodings of the training data."""
    if not isinstance(validation, (tuple, list)) or len(validation) not in (2, 3):
        raise InvalidTypeError(
            f"validation must be a share between 0 and 1 or a pair (X_val, y_val), got "
            f"{type(validation).__name__}; write validation=0.2 or validation=(X_val, y_val)"
        )
    X, y, weights = (*validation, None)[:3]
    with about("validation data"):
        X = estimator.check_X(X, estimator.spec_, reset=False)
        matrices = estimator.design_.matrices(X, estimator=type(estimator).__name__)
        encoded = estimator.outcome_.encode(y)
    check_same_length(X_val=matrices.x, y_val=encoded)
    check_same_labels(X_val=X, y_val=y, weights=weights)
    return matrices, encoded, X, check_sample_weight(weights, len(encoded))


def summarised(task: DeepTask, fit: DeepFit) -> DeepFit:
    """Return a trained member with what its training data say about it: likelihood and covariance."""
    model = fit.model
    parameters = model.row_parameters(task.X, task.matrices).numpy()
    with torch.no_grad():
        rows = row_loglik(task.outcome, task.latent, parameters, task.encoded).numpy()
    weights = np.ones(len(rows)) if task.sample_weight is None else task.sample_weight
    used = weights > 0
    fit = dataclasses.replace(fit, loglik=float(weights[used] @ rows[used]))
    if task.loss == "crps" or task.matrices.x.shape[1] == 0:
        return fit
    trained = weights.copy()
    if task.train_rows is not None:
        trained *= np.bincount(task.train_rows, minlength=len(weights))
    elif task.validation_rows is not None:
        trained[task.validation_rows] = 0.0
    known = task.outcome, task.latent, parameters, task.matrices, task.encoded, trained, task.loss
    strata = task.design.n_strata if isinstance(task.spec.intercept, SI) else None
    seen = FittedRows(*known).take(np.flatnonzero(trained))
    return dataclasses.replace(fit, shift_vcov=shift_covariance(seen, strata, model.x_kept.cpu().numpy()))


@alone()
def keep_fit(estimator: BaseTram, fit: DeepFit) -> None:
    """Store a trained member in a prepared estimator, in place."""
    for name in _EXACT_ONLY:
        if hasattr(estimator, name):
            delattr(estimator, name)
    model = fit.model
    estimator.model_, estimator.fit_ = model, fit
    estimator.keep_coefficients(model.coef, model.scale_coef)
    if isinstance(estimator.spec_.intercept, SI):
        estimator.theta_ = model.theta.ravel()
    estimator.shift_vcov_ = None
    if fit.shift_vcov is not None:
        names = list(estimator.coef_.index)
        estimator.shift_vcov_ = pd.DataFrame(fit.shift_vcov, index=names, columns=names)
    estimator.history_, estimator.loglik_ = fit.history, fit.loglik
    estimator.n_iter_, estimator.best_epoch_ = fit.n_epochs, fit.best_epoch
    estimator.converged_ = not (fit.interrupted or fit.diverged or fit.unfinished or fit.silent)
    estimator.seed_ = fit.seed
    estimator.n_parameters_ = sum(parameter.numel() for parameter in model.parameters())


@dataclass(frozen=True, eq=False, kw_only=True)
class MemberFit(TrainingRecord):
    """A trained model as plain values: what crosses processes, and what files hold of models and members.

    Attributes
    ----------
    model : dict
        ``DeepModel.to_dict()``.
    weights : dict of arrays
        Parameters and buffers.
    """

    model: Mapping[str, Any]
    weights: Tensors

    @classmethod
    def of(cls, task: DeepTask, fit: DeepFit) -> MemberFit:
        """Return a member that was trained just now, with what the training data say about it."""
        return cls.of_fit(summarised(task, fit))

    @classmethod
    def of_fit(cls, fit: DeepFit) -> MemberFit:
        """Return the plain values of a trained model."""
        return cls(model=fit.model.to_dict(), weights=fit.model.arrays(), **fit.facts)

    def restore(self, template: BaseTram) -> BaseTram:
        """Return the member as a fitted estimator, a copy of the prepared one that all members come from."""
        member: BaseTram = copy.copy(template)
        member.random_state = self.seed
        model = self._empty_model(member)
        model.load_arrays(self.weights)
        keep_fit(member, DeepFit(model=model, **self.facts))
        return member

    def restore_checked(self, estimator: BaseTram) -> None:
        """Make a prepared estimator a fitted one, in place, with weights from a file, which are checked."""
        with Budget(self.weights):
            model = self._empty_model(estimator)
        _check_numbers(model, self.weights)
        model.load_arrays(self.weights)
        check_values("the constant of the shift", model.moved_constant(), LARGEST_SHIFT)
        keep_fit(estimator, DeepFit(model=model, **self.facts))

    def _empty_model(self, prepared: BaseTram) -> DeepModel:
        parts = prepared.spec_, prepared.outcome_, prepared.latent_, prepared.design_
        return DeepModel.from_dict(self.model, *parts)

    def to_record(self) -> tuple[dict[str, Any], Tensors]:
        """Return JSON-able values and arrays."""
        facts = self.facts
        history, shift_vcov = facts.pop("history"), facts.pop("shift_vcov")
        tensors = {f"model.{name}": value for name, value in self.weights.items()}
        tensors["history"] = history[HISTORY].to_numpy(dtype=float)
        if shift_vcov is not None:
            tensors["shift_vcov"] = shift_vcov
        return {"model": dict(self.model), **{name: plain(value) for name, value in facts.items()}}, tensors

    @classmethod
    def from_record(cls, record: Mapping[str, Any], tensors: Tensors) -> MemberFit:
        """Read a member back from :meth:`to_record`; arrays that do not fit are a ``FileFormatError``."""
        weights = {name[6:]: value for name, value in tensors.items() if name.startswith("model.")}
        rest = {name: value for name, value in tensors.items() if not name.startswith("model.")}
        shapes = {"history": (*rest.get("history", np.zeros(1)).shape[:1], len(HISTORY))}
        if "shift_vcov" in rest:
            shapes["shift_vcov"] = rest["shift_vcov"].shape[:1] * 2
        check_arrays({name: (shape, "float64") for name, shape in shapes.items()}, rest)
        history = history_from_array(rest["history"])
        facts = {name: value if name == "model" else unplain(value) for name, value in record.items()}
        return cls(weights=weights, history=history, shift_vcov=rest.get("shift_vcov"), **facts)


def history_from_array(values: Array) -> pd.DataFrame:
    """Return the table of a training's epochs from a file's array, one row per epoch."""
    epochs = values[:, 0]
    if not ((epochs >= 0) & (epochs < 2**53)).all():
        raise FileFormatError(f"{TENSOR_NAME}: history must count epochs, got other numbers; save it again")
    return pd.DataFrame(values, columns=HISTORY).astype({"epoch": int})


def _check_numbers(model: DeepModel, weights: Tensors) -> None:
    """Raise unless weights from a file are those of a model: of its shapes, and numbers it can work with."""
    own = model.state_dict().items()
    check_arrays({name: (tuple(value.shape), str(value.dtype)[6:]) for name, value in own}, weights)
    parameters = dict(model.named_parameters(remove_duplicate=False))
    for name, value in weights.items():
        check_values(name, value, LARGEST if name in parameters or ".net." not in name else np.inf)
    for name, spread in (("x_sd", weights["x_sd"]), ("z_sd", weights["z_sd"]), ("line", weights["line"][1:])):
        if not (spread >= TINY).all():
            raise FileFormatError(f"{TENSOR_NAME}: {name} must be positive, got {spread.min()}; save again")
