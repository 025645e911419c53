"""Models as JSON-able values and arrays, and back.

A network is stored as the *name* of its factory and plain settings. Names are
those registered in ``deeptram.networks``; any other factory is stored under its
module and name, and whoever loads the model hands it over as
``load(path, networks={name: factory})``. No name is ever imported.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import reprlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from deeptram import bases
from deeptram import latent as latents
from deeptram import networks as factories
from deeptram._files import versions
from deeptram._schema import LARGEST
from deeptram.bases import Basis
from deeptram.errors import FileFormatError, UnsupportedError
from deeptram.estimators.base import BaseTram
from deeptram.estimators.deep import FitSummary, keep_fit
from deeptram.estimators.exact import label_covariance, store_coefficients
from deeptram.estimators.presets import (
    BoxCox,
    Colr,
    Cotram,
    Coxph,
    Lehmann,
    Lm,
    Logit,
    Polr,
    Survreg,
    Tram,
)
from deeptram.estimators.saved_format import MODEL, TINY
from deeptram.fitting.deep.task import DeepFit
from deeptram.fitting.deep.training import Training
from deeptram.latent import Latent
from deeptram.model import Design, FittedModel, Outcome, StructuredModel
from deeptram.model.deep import DeepModel
from deeptram.model.design import Spec
from deeptram.model.persistence import (
    JSON_NAME,
    TENSOR_NAME,
    Tensors,
    check_arrays,
    check_values,
    plain,
    unplain,
    write_folder,
)
from deeptram.model.terms import CI, CS, LS, SI, Scale, Term, Varying
from deeptram.networks import Budget
from deeptram.optimise.newton import Certificate

Array = NDArray[np.float64]
Networks = Mapping[str, Callable[..., Any]]
_KINDS: dict[str, Any] = {kind.__name__: kind for kind in (SI, CI, CS, LS, Scale, Varying)}
CLASSES: dict[str, type[BaseTram]] = {
    kind.__name__: kind for kind in (Tram, Polr, Logit, Colr, BoxCox, Coxph, Lehmann, Lm, Survreg, Cotram)
}
HISTORY = ["epoch", "train_loss", "validation_loss", "learning_rate", "seconds"]
LARGEST_SHIFT = 1e15  # beyond it h has no digits left after the decimal point


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
        special["latent"] = latents.saved_name(arguments["latent"])
    if isinstance(arguments.get("basis"), Basis):
        special["basis"] = bases.to_dict(arguments["basis"])
    if arguments.get("levels") is not None:
        special["levels"] = plain(list(arguments["levels"]))
    rest = {key: plain(value) for key, value in arguments.items() if key not in special}
    return {"class": name, "parameters": {**rest, **special}}


def parameters_from_record(record: Mapping[str, Any], networks: Networks) -> BaseTram:
    """Return the unfitted model of a checked record."""
    given = dict(record["parameters"])
    terms, training = given.pop("terms"), given.pop("training")
    arguments = {key: unplain(value) for key, value in given.items()}
    if isinstance(given.get("basis"), dict):
        arguments["basis"] = bases.from_dict(given["basis"])
    arguments["terms"] = terms_from_record(terms, networks)
    arguments["training"] = None if training is None else Training.from_dict(unplain(training))
    return CLASSES[record["class"]](**arguments)


def _training_to_record(training: Any) -> Any:
    return plain(training.to_dict()) if isinstance(training, Training) else None


def _seed_or_none(random_state: Any) -> int | None:
    return int(random_state) if isinstance(random_state, (int, np.integer)) else None


def save_model(estimator: BaseTram, path: str | os.PathLike[str], *, overwrite: bool = False) -> Path:
    """Save a fitted model as a folder; see ``BaseTram.save``.

    Parameters
    ----------
    estimator : Tram or one of its presets
    path : path
    overwrite : bool
    """
    record, tensors = model_to_record(estimator)
    content = {"kind": "model", "versions": versions(), "model": record}
    return write_folder(path, content, tensors, overwrite=overwrite)


# -- terms and networks -----------------------------------------------------------------------------


def terms_to_record(terms: Any) -> Any:
    """Return the ``terms`` argument of a model as JSON-able values.

    Examples
    --------
    >>> terms_to_record([LS("age"), CS(factories.paper_mnist, "image")])[1]["net"]
    {'name': 'paper_mnist', 'config': {}}
    """
    if terms is None:
        return None
    listed = [terms] if isinstance(terms, Term) else list(terms)
    return [_term_to_record(term) for term in listed]


def terms_from_record(record: Any, networks: Networks) -> list[Term] | None:
    """Rebuild terms; ``networks`` gives factories by the name under which they were saved."""
    return None if record is None else [_term_from_record(entry, networks) for entry in record]


def network_to_record(factory: Any) -> dict[str, Any]:
    """Return a factory as a name and settings.

    Examples
    --------
    >>> network_to_record(functools.partial(print, "x"))
    Traceback (most recent call last):
    ...
    deeptram.errors.UnsupportedError: a functools.partial of a network can be saved with keywords ...
    """
    if factories.is_registered(factory):
        return factories.to_dict(factory)
    settings: dict[str, Any] = {}
    if isinstance(factory, functools.partial):
        if factory.args:
            raise UnsupportedError(
                "a functools.partial of a network can be saved with keywords only, got positional arguments; "
                "write functools.partial(net, hidden=8)"
            )
        factory, settings = factory.func, dict(factory.keywords)
    return {"name": network_name(factory), "config": plain(settings) if settings else {}, "own": True}


def network_name(factory: Any) -> str:
    """Return the name under which a factory that is not registered is saved.

    Examples
    --------
    >>> network_name(functools.reduce)
    '_functools.reduce'
    """
    named = factory if hasattr(factory, "__qualname__") else type(factory)
    return f"{named.__module__}.{named.__qualname__}"


def _network_from_record(record: Any, networks: Networks) -> Callable[..., Any]:
    name = record["name"]
    if name in networks:
        factory, settings = networks[name], unplain(record["config"])
        return functools.partial(factory, **settings) if settings else factory
    if record.get("own"):
        raise FileFormatError(
            f"this model was saved with the network {name!r}, which deeptram does not know, got "
            f"networks for {', '.join(networks) or 'none'}; load it with networks={{{name!r}: your_factory}}"
        )
    return factories.from_dict(record)


def _term_to_record(term: Any) -> dict[str, Any]:
    kind = type(term).__name__
    if isinstance(term, SI):
        return {"term": kind, "strata": term.strata}
    if isinstance(term, (CI, CS)):
        record: dict[str, Any] = {
            "term": kind,
            "net": network_to_record(term.net),
            "columns": list(term.columns),
        }
        if isinstance(term, CS):
            record |= {"center": term.center, "orthogonalize": term.orthogonalize}
        return record
    columns = term.columns
    return {"term": kind, "columns": list(columns) if isinstance(columns, tuple) else columns}


def _term_from_record(record: Any, networks: Networks) -> Term:
    given = {name: value for name, value in record.items() if name not in ("term", "net", "columns")}
    arguments = [record["columns"]] if "columns" in record else []
    if "net" in record:
        arguments = [_network_from_record(record["net"], networks), *record["columns"]]
    term: Term = _KINDS[record["term"]](*arguments, **given)
    return term


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
        "outcome": {key: plain(value) for key, value in estimator.outcome_.to_dict().items()},
        "latent": latents.saved_name(estimator.latent_),
        "design": estimator.design_.to_dict(),
        "n_obs": int(estimator.n_obs_),
        "n_events": getattr(estimator, "n_events_", None),
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

    Raises
    ------
    FileFormatError
        If the record does not fit its declared form, or the arrays do not fit the record.
    """
    with rebuilding():
        MODEL(record, f"{JSON_NAME}: model")
        estimator = parameters_from_record(record, networks)
        state = record["fitted"]
        estimator.spec_ = Spec.of(estimator.terms)
        estimator.outcome_ = Outcome.from_dict(unplain(state["outcome"]))
        estimator.latent_ = latents.get(state["latent"])
        estimator.design_ = Design.from_dict(state["design"])
        estimator.n_obs_ = state["n_obs"]
        for name, value in (
            ("n_features_in_", state["n_features_in"]),
            ("n_events_", state.get("n_events")),
            ("data_hash_", state["data_hash"]),
        ):
            if value is not None:
                setattr(estimator, name, value)
        if state["feature_names_in"] is not None:
            estimator.feature_names_in_ = np.array(state["feature_names_in"], dtype=object)
        if estimator.outcome_.response is not None:
            estimator.classes_ = estimator.outcome_.response.classes
        (_restore_deep if estimator.spec_.is_deep else _restore_exact)(estimator, state, tensors)
    return estimator


@contextlib.contextmanager
def rebuilding() -> Iterator[None]:
    """Turn what goes wrong in building from a file into one error about the file.

    Examples
    --------
    >>> with rebuilding():
    ...     Training(epochs=-1)
    Traceback (most recent call last):
    ...
    deeptram.errors.FileFormatError: a saved model must be complete and consistent, got one that ...
    """
    try:
        yield
    except FileFormatError:
        raise
    except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        raise FileFormatError(
            f"a saved model must be complete and consistent, got one that cannot be rebuilt ({error}); "
            "save it again"
        ) from error


def _exact_to_record(estimator: BaseTram, model: FittedModel, state: dict[str, Any]) -> Tensors:
    state["certificate"] = plain(dataclasses.asdict(estimator.certificate_))
    return {
        "theta": model.theta,
        "beta": model.coef,
        "gamma": model.scale_coef,
        "coef": estimator.coef_.to_numpy(dtype=float),
        "vcov": estimator.vcov_.to_numpy(dtype=float),
    }


def _restore_exact(estimator: BaseTram, state: Mapping[str, Any], tensors: Tensors) -> None:
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
        "vcov": (size, size),
    }
    check_arrays({name: (shape, "float64") for name, shape in shapes.items()}, tensors)
    parts = [tensors[name] for name in ("theta", "beta", "gamma")]
    for name, part in zip(shapes, parts, strict=False):
        check_values(name, part)
    if not nominal:
        slopes = parts[0][: design.n_strata] @ outcome.basis.monotone_differences.T
        flat = slopes.shape[1] > 0 and not outcome.is_discrete and (slopes.sum(axis=1) < TINY).any()
        if flat or (slopes < 0).any():
            raise FileFormatError(
                f"{TENSOR_NAME}: theta must increase, got {reprlib.repr(parts[0].tolist())}; save it again"
            )
    model = StructuredModel(outcome, estimator.latent_, design, *parts)
    estimator.model_, estimator.fit_ = model, None
    store_coefficients(estimator, tensors["coef"], model.scale_coef)
    estimator.theta_ = model.theta.ravel()
    estimator.vcov_ = label_covariance(design, outcome, tensors["vcov"])
    estimator.certificate_ = Certificate(**unplain(state["certificate"]))
    estimator.loglik_ = float(unplain(state["loglik"]))
    estimator.n_iter_, estimator.converged_ = state["n_iter"], state["converged"]
    estimator.n_parameters_ = state["n_parameters"]


def _deep_to_record(estimator: BaseTram, model: DeepModel, state: dict[str, Any]) -> Tensors:
    state |= {
        "model": model.to_dict(),
        "best_epoch": int(estimator.best_epoch_),
        "seed": int(estimator.seed_),
    }
    tensors = {f"model.{name}": value for name, value in model.arrays().items()}
    tensors["history"] = estimator.history_[HISTORY].to_numpy(dtype=float)
    if estimator.shift_vcov_ is not None:
        tensors["shift_vcov"] = estimator.shift_vcov_.to_numpy(dtype=float)
    return tensors


def _restore_deep(estimator: BaseTram, state: Mapping[str, Any], tensors: Tensors) -> None:
    weights, history, shift_vcov = split_arrays(tensors)
    with Budget(weights):
        model = rebuild(estimator, state["model"], weights)
    fit = DeepFit(
        model,
        history,
        state["best_epoch"],
        float(history["seconds"].sum()),
        state["n_iter"],
        state["seed"],
        interrupted=not state["converged"],
    )
    keep_fit(estimator, fit, FitSummary(float(unplain(state["loglik"])), shift_vcov))


def split_arrays(tensors: Tensors) -> tuple[Tensors, pd.DataFrame, Array | None]:
    """Return the weights, the history and the covariance among the arrays of a model with networks.

    Parameters
    ----------
    tensors : dict of arrays
        ``model.*``, ``history`` and, perhaps, ``shift_vcov``.
    """
    weights = {name[6:]: value for name, value in tensors.items() if name.startswith("model.")}
    rest = {name: value for name, value in tensors.items() if not name.startswith("model.")}
    shapes = {"history": (*rest.get("history", np.zeros(1)).shape[:1], len(HISTORY))}
    if "shift_vcov" in rest:
        shapes["shift_vcov"] = rest["shift_vcov"].shape[:1] * 2
    check_arrays({name: (shape, "float64") for name, shape in shapes.items()}, rest)
    if not ((rest["history"][:, 0] >= 0) & (rest["history"][:, 0] < 2**53)).all():
        raise FileFormatError(f"{TENSOR_NAME}: history must count epochs, got other numbers; save it again")
    return weights, history_frame(rest["history"]), rest.get("shift_vcov")


def rebuild(estimator: BaseTram, state: Mapping[str, Any], weights: Tensors) -> DeepModel:
    """Return the model with networks of a prepared estimator with weights from a file, which are checked.

    Parameters
    ----------
    estimator : BaseTram
        With ``spec_``, ``outcome_``, ``latent_`` and ``design_``.
    state : dict
        ``DeepModel.to_dict()``.
    weights : dict of arrays
        Its parameters and buffers.
    """
    model = DeepModel.from_dict(
        state, estimator.spec_, estimator.outcome_, estimator.latent_, estimator.design_
    )
    own = model.state_dict().items()
    check_arrays({name: (tuple(value.shape), str(value.dtype)[6:]) for name, value in own}, weights)
    parameters = dict(model.named_parameters(remove_duplicate=False))
    for name, value in weights.items():
        check_values(name, value, LARGEST if name in parameters or ".net." not in name else np.inf)
    for name, spread in (("x_sd", weights["x_sd"]), ("z_sd", weights["z_sd"]), ("line", weights["line"][1:])):
        if not (spread >= TINY).all():
            raise FileFormatError(f"{TENSOR_NAME}: {name} must be positive, got {spread.min()}; save again")
    model.load_arrays(weights)
    check_values("the constant of the shift", model.moved_constant(), LARGEST_SHIFT)
    return model


def history_frame(values: Array) -> pd.DataFrame:
    """Return the epochs of a training as a table.

    Examples
    --------
    >>> history_frame(np.ones((1, 5)))["epoch"].tolist()
    [1]
    """
    return pd.DataFrame(values, columns=HISTORY).astype({"epoch": int})


def _names(values: Any) -> list[str] | None:
    return None if values is None else [str(value) for value in values]
