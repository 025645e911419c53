"""Fitted models as JSON-able values and arrays, and back."""

from __future__ import annotations

import dataclasses
import platform
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from deeptram import latent as latents
from deeptram._version import __version__
from deeptram.bases import Cutpoints
from deeptram.errors import FileFormatError, UnsupportedError
from deeptram.estimators.base import BaseTram
from deeptram.estimators.deep import FitSummary, keep_fit
from deeptram.estimators.presets import BoxCox, Colr, Cotram, Coxph, Lehmann, Lm, Logit, Polr, Survreg
from deeptram.estimators.terms_record import Networks, terms_from_record, terms_to_record
from deeptram.estimators.tram import Tram
from deeptram.fitting.newton import Certificate
from deeptram.fitting.task import DeepFit
from deeptram.fitting.training import Training
from deeptram.latent import Latent
from deeptram.model import DISCRETE, Design, Outcome, StructuredModel
from deeptram.model.deep import DeepModel
from deeptram.model.persistence import Tensors, plain, unplain
from deeptram.networks import is_registered
from deeptram.terms import CI, CS, Spec

Array = NDArray[np.float64]
CLASSES: dict[str, type[BaseTram]] = {
    kind.__name__: kind for kind in (Tram, Polr, Logit, Colr, BoxCox, Coxph, Lehmann, Lm, Survreg, Cotram)
}
HISTORY = ["epoch", "train_loss", "validation_loss", "learning_rate", "seconds"]
LIBRARIES = ("torch", "numpy", "pandas", "scikit-learn", "formulaic", "safetensors")


def versions() -> dict[str, str]:
    """Return the versions of deeptram, Python and the libraries that matter.

    Examples
    --------
    >>> versions()["deeptram"] == __version__
    True
    """
    found = {name: version(name) for name in LIBRARIES}
    return {"deeptram": __version__, "python": platform.python_version(), **found}


# -- arguments ---------------------------------------------------------------------------------------


def parameters_to_record(estimator: BaseTram) -> dict[str, Any]:
    """Return the class and the arguments of a model as JSON-able values.

    Parameters
    ----------
    estimator : Tram or one of its presets

    Examples
    --------
    >>> record = parameters_to_record(Polr(latent="probit"))
    >>> record["class"], record["parameters"]["latent"]
    ('Polr', 'probit')
    """
    name = type(estimator).__name__
    if CLASSES.get(name) is not type(estimator):
        raise UnsupportedError(
            f"only {', '.join(CLASSES)} can be saved, got {name}; use one of them, or set its arguments"
        )
    arguments = estimator.get_params(deep=False)
    special = {
        "terms": terms_to_record(arguments["terms"]),
        "training": _training_to_record(arguments["training"]),
        "random_state": _seed_or_none(arguments["random_state"]),
    }
    if isinstance(arguments.get("latent"), Latent):
        special["latent"] = arguments["latent"].name
    if arguments.get("levels") is not None:
        special["levels"] = plain(list(arguments["levels"]))
    rest = {key: plain(value) for key, value in arguments.items() if key not in special}
    return {"class": name, "parameters": {**rest, **special}}


def parameters_from_record(record: Mapping[str, Any], networks: Networks) -> BaseTram:
    """Return the unfitted model of a record."""
    name = record.get("class")
    if name not in CLASSES:
        raise FileFormatError(
            f"a saved model must be one of {', '.join(CLASSES)}, got {name!r}; "
            "save it again with this version"
        )
    given = dict(record["parameters"])
    terms, training = given.pop("terms"), given.pop("training")
    arguments = {key: unplain(value) for key, value in given.items()}
    arguments["terms"] = terms_from_record(terms, networks)
    arguments["training"] = None if training is None else Training.from_dict(unplain(training))
    return CLASSES[str(name)](**arguments)


def _training_to_record(training: Any) -> Any:
    return plain(training.to_dict()) if isinstance(training, Training) else None


def _seed_or_none(random_state: Any) -> int | None:
    return int(random_state) if isinstance(random_state, (int, np.integer)) else None


# -- fitted state --------------------------------------------------------------------------------------


def model_to_record(estimator: BaseTram) -> tuple[dict[str, Any], Tensors]:
    """Return a fitted model as JSON-able values and arrays.

    Parameters
    ----------
    estimator : Tram or one of its presets
        Fitted.
    """
    check_is_fitted(estimator, "model_")
    record = parameters_to_record(estimator)
    model = estimator.model_
    record["fitted"] = {
        "outcome": plain_dict(estimator.outcome_.to_dict()),
        "latent": estimator.latent_.name,
        "design": estimator.design_.to_dict(),
        "n_obs": int(estimator.n_obs_),
        "n_features_in": getattr(estimator, "n_features_in_", None),
        "feature_names_in": _names(getattr(estimator, "feature_names_in_", None)),
        "loglik": plain(float(estimator.loglik_)),
        "n_iter": int(estimator.n_iter_),
        "converged": bool(estimator.converged_),
        "n_parameters": int(estimator.n_parameters_),
        "data_hash": getattr(estimator, "data_hash_", None),
    }
    if isinstance(model, DeepModel):
        return record, _deep_to_record(estimator, model, record["fitted"])
    return record, _exact_to_record(estimator, model, record["fitted"])


def model_from_record(record: Mapping[str, Any], tensors: Tensors, networks: Networks) -> BaseTram:
    """Return the fitted model of a record.

    Parameters
    ----------
    record, tensors
        From :func:`model_to_record`.
    networks : dict
        Factories by the name under which they were saved.
    """
    try:
        estimator = parameters_from_record(record, networks)
        state = record["fitted"]
        estimator.spec_ = Spec.of(estimator.terms)
        estimator.outcome_ = Outcome.from_dict(plain_dict(state["outcome"], back=True))
        _check_outcome(estimator.outcome_)
        estimator.latent_ = latents.get(state["latent"])
        estimator.design_ = Design.from_dict(state["design"])
        estimator.n_obs_ = int(state["n_obs"])
        for name, value in (("n_features_in_", state["n_features_in"]), ("data_hash_", state["data_hash"])):
            if value is not None:
                setattr(estimator, name, value)
        if state["feature_names_in"] is not None:
            estimator.feature_names_in_ = np.array(state["feature_names_in"], dtype=object)
        if estimator.outcome_.response is not None:
            estimator.classes_ = estimator.outcome_.response.classes
        (_restore_deep if estimator.spec_.is_deep else _restore_exact)(estimator, state, tensors)
    except FileFormatError:
        raise
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, RuntimeError) as error:
        raise FileFormatError(
            f"a saved model must be complete and consistent, got one that cannot be rebuilt ({error}); "
            "save it again"
        ) from error
    return estimator


def _check_outcome(outcome: Outcome) -> None:
    """Raise unless the parts of an outcome belong together."""
    classes = 0 if outcome.levels is None else len(outcome.levels)
    cuts = outcome.basis.n_coef + 1 if isinstance(outcome.basis, Cutpoints) else 0
    if (outcome.kind in DISCRETE) != (classes > 0) or classes != cuts:
        raise FileFormatError(
            f"a saved {outcome.kind} outcome must have levels and a basis that fit it, got {classes} levels "
            f"and a {type(outcome.basis).__name__}; save the model again"
        )


def _exact_to_record(estimator: BaseTram, model: StructuredModel, state: dict[str, Any]) -> Tensors:
    state["certificate"] = plain(dataclasses.asdict(estimator.certificate_))
    return {
        "theta": model.theta,
        "beta": model.beta,
        "gamma": model.gamma,
        "coef": estimator.coef_.to_numpy(dtype=float),
        "vcov": estimator.vcov_.to_numpy(dtype=float),
    }


def _restore_exact(estimator: BaseTram, state: Mapping[str, Any], tensors: Tensors) -> None:
    model = StructuredModel(
        estimator.outcome_,
        estimator.latent_,
        estimator.design_,
        tensors["theta"],
        tensors["beta"],
        tensors["gamma"],
    )
    scale = estimator.design_.scale
    estimator.model_, estimator.fit_ = model, None
    estimator.coef_ = pd.Series(
        tensors["coef"], index=estimator._coefficient_names(), name="coef", dtype=float
    )
    estimator.scale_coef_ = pd.Series(
        model.gamma, index=[] if scale is None else list(scale.names), dtype=float
    )
    estimator.theta_ = model.theta.ravel()
    estimator.vcov_ = estimator._label_covariance(tensors["vcov"])
    estimator.certificate_ = Certificate(**unplain(state["certificate"]))
    estimator.loglik_ = float(unplain(state["loglik"]))
    estimator.n_iter_, estimator.converged_ = int(state["n_iter"]), bool(state["converged"])
    estimator.n_parameters_ = int(state["n_parameters"])


def _deep_to_record(estimator: BaseTram, model: DeepModel, state: dict[str, Any]) -> Tensors:
    state |= {
        "model": model.to_dict(),
        "best_epoch": int(estimator.best_epoch_),
        "seed": int(estimator.seed_),
    }
    tensors = {f"model.{name}": value for name, value in arrays_of(model).items()}
    tensors["history"] = estimator.history_[HISTORY].to_numpy(dtype=float)
    if estimator.shift_vcov_ is not None:
        tensors["shift_vcov"] = estimator.shift_vcov_.to_numpy(dtype=float)
    return tensors


def _restore_deep(estimator: BaseTram, state: Mapping[str, Any], tensors: Tensors) -> None:
    weights = {
        name.removeprefix("model."): value for name, value in tensors.items() if name.startswith("model.")
    }
    model = rebuild(estimator, state["model"], weights)
    fit = DeepFit(
        model,
        history_frame(tensors["history"]),
        int(state["best_epoch"]),
        float(tensors["history"][:, -1].sum()),
        int(state["n_iter"]),
        int(state["seed"]),
        interrupted=not state["converged"],
    )
    keep_fit(estimator, fit, FitSummary(float(unplain(state["loglik"])), tensors.get("shift_vcov")))


def rebuild(estimator: BaseTram, state: Mapping[str, Any], weights: Tensors) -> DeepModel:
    """Return the model with networks of a prepared estimator with given weights.

    Shapes are compared on a model without memory first, so that a file cannot
    ask for more memory than its tensors take.

    Parameters
    ----------
    estimator : BaseTram
        With ``spec_``, ``outcome_``, ``latent_`` and ``design_``.
    state : dict
        ``DeepModel.to_dict()``.
    weights : dict of arrays
        Its parameters and buffers.
    """
    spec = estimator.spec_
    parts = (spec, estimator.outcome_, estimator.latent_, estimator.design_)
    terms: list[CI | CS] = [*spec.shifts, *([spec.intercept] if isinstance(spec.intercept, CI) else [])]
    if all(is_registered(term.net) for term in terms):  # a user's network may not work without memory
        with torch.device("meta"):
            _check_shapes(DeepModel.from_dict(state, *parts), weights)
    model = DeepModel.from_dict(state, *parts)
    _check_shapes(model, weights)
    model.load_state_dict({name: torch.from_numpy(value) for name, value in weights.items()})
    return model


def _check_shapes(model: DeepModel, weights: Tensors) -> None:
    expected = {name: tuple(value.shape) for name, value in model.state_dict().items()}
    got = {name: tuple(value.shape) for name, value in weights.items()}
    if expected != got:
        names = sorted(name for name in {*expected, *got} if expected.get(name) != got.get(name))
        raise FileFormatError(
            f"saved weights must fit the network, which has {names[0]!r} of shape {expected.get(names[0])}, "
            f"got {got.get(names[0])}; load it with the network it was fitted with"
        )


def arrays_of(model: DeepModel) -> Tensors:
    """Return parameters and buffers of a model as arrays.

    Parameters
    ----------
    model : DeepModel
    """
    return {name: value.detach().cpu().contiguous().numpy() for name, value in model.state_dict().items()}


def history_frame(values: Array) -> pd.DataFrame:
    """Return the epochs of a training as a table.

    Examples
    --------
    >>> history_frame(np.ones((1, 5)))["epoch"].tolist()
    [1]
    """
    return pd.DataFrame(values, columns=HISTORY).astype({"epoch": int})


def plain_dict(state: Mapping[str, Any], *, back: bool = False) -> dict[str, Any]:
    """Return a dict with each value made JSON-able (or read back).

    Examples
    --------
    >>> plain_dict({"levels": ["a", "b"]})
    {'levels': ['a', 'b']}
    """
    return {key: (unplain if back else plain)(value) for key, value in state.items()}


def _names(values: Any) -> list[str] | None:
    return None if values is None else [str(value) for value in values]
