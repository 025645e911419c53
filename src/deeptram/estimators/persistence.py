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
from deeptram._schema import plain, unplain
from deeptram.bases import Basis
from deeptram.errors import FileFormatError, UnsupportedError
from deeptram.estimators import presets
from deeptram.estimators.base import BaseTram
from deeptram.estimators.deep import MemberFit
from deeptram.estimators.exact import ExactState
from deeptram.estimators.saved_format import CLASS_NAMES, MODEL, NETWORK_SCALE
from deeptram.fitting.deep.training import Training
from deeptram.latent import Latent
from deeptram.model import Design, Outcome
from deeptram.model.persistence import (
    JSON_NAME,
    Tensors,
    write_folder,
)
from deeptram.model.terms import CI, CS, LS, SI, Scale, Spec, Term, Varying

Array = NDArray[np.float64]
Networks = Mapping[str, Callable[..., Any]]
_KINDS: dict[str, Any] = {kind.__name__: kind for kind in (SI, CI, CS, LS, Scale, Varying)}
_KINDS[NETWORK_SCALE] = Scale
_IF_KNOWN = ("n_events", "n_features_in", "data_hash")  # what not every fit leaves behind
CLASSES: dict[str, type[BaseTram]] = {name: getattr(presets, name) for name in CLASS_NAMES}


# -- arguments ---------------------------------------------------------------------------------------


def parameters_to_record(estimator: BaseTram) -> dict[str, Any]:
    """Return the class and the arguments of a model as JSON-able values.

    Parameters
    ----------
    estimator : Tram or one of its presets

    Examples
    --------
    >>> record = parameters_to_record(presets.Polr(latent="probit"))
    >>> record["class"], record["parameters"]["latent"]
    ('Polr', 'probit')
    """
    name = type(estimator).__name__
    if CLASSES.get(name) is not type(estimator):
        raise UnsupportedError(
            f"only {', '.join(CLASSES)} can be saved, got {name}; use one of them, or set its arguments"
        )
    arguments = estimator.get_params(deep=False)
    training, seed = arguments["training"], arguments["random_state"]
    special = {
        "terms": terms_to_record(arguments["terms"]),
        "training": plain(training.to_dict()) if isinstance(training, Training) else None,
        "random_state": int(seed) if isinstance(seed, (int, np.integer)) else None,
    }
    if isinstance(arguments.get("latent"), Latent):
        special["latent"] = latents.saved_name(arguments["latent"])
    if isinstance(arguments.get("basis"), Basis):
        special["basis"] = bases.to_dict(arguments["basis"])
    if arguments.get("levels") is not None:
        special["levels"] = plain(list(arguments["levels"]))
    rest = {
        key: plain(value.tolist() if isinstance(value, np.ndarray) else value)
        for key, value in arguments.items()
        if key not in special
    }
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
    record = {one.name: getattr(term, one.name) for one in dataclasses.fields(term)}
    name = type(term).__name__
    if record.get("net") is None:
        record.pop("net", None)
    else:
        name = NETWORK_SCALE if isinstance(term, Scale) else name
        record["net"] = network_to_record(term.net)
    if isinstance(record.get("columns"), tuple):
        record["columns"] = list(term.columns)
    return {"term": name, **record}


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
    record, names = parameters_to_record(estimator), getattr(estimator, "feature_names_in_", None)
    record["fitted"] = {
        "outcome": {key: plain(value) for key, value in estimator.outcome_.to_dict().items()},
        "latent": latents.saved_name(estimator.latent_),
        "design": estimator.design_.to_dict(),
        "n_obs": int(estimator.n_obs_),
        **{name: getattr(estimator, f"{name}_", None) for name in _IF_KNOWN},
        "feature_names_in": None if names is None else [str(name) for name in names],
    }
    if hasattr(estimator, "latent_choice_"):
        record["fitted"]["latent_choice"] = plain(estimator.latent_choice_.to_dict())
    fit = MemberFit.of_fit(estimator.fit_) if estimator.spec_.is_deep else ExactState.of(estimator)
    record["fitted"]["fit"], tensors = fit.to_record()
    return record, tensors


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
        for name in _IF_KNOWN:
            if state[name] is not None:
                setattr(estimator, f"{name}_", state[name])
        if state["feature_names_in"] is not None:
            estimator.feature_names_in_ = np.array(state["feature_names_in"], dtype=object)
        if "latent_choice" in state:
            losses = unplain(state["latent_choice"])
            estimator.latent_choice_ = pd.Series(losses, name=estimator.loss, dtype=float).sort_values()
        if estimator.outcome_.response is not None:
            estimator.classes_ = estimator.outcome_.response.classes
        kind: type[MemberFit | ExactState] = MemberFit if estimator.spec_.is_deep else ExactState
        kind.from_record(state["fit"], tensors).restore_checked(estimator)
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
