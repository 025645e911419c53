"""Models as JSON-able values and arrays, and back.

A network is stored as the *name* of its factory and plain settings. Names are
those registered in ``deeptram.networks``; any other factory is stored under its
module and name, and whoever loads the model hands it over as
``load(path, networks={name: factory})``. No name is ever imported. What such a factory does is
stored as a hash, so that another one under its name is noticed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from deeptram import networks as factories
from deeptram._files import versions
from deeptram._schema import plain, unplain
from deeptram.errors import DeeptramWarning, FileFormatError, UnsupportedError, warn
from deeptram.estimators import presets
from deeptram.estimators.base import BaseTram
from deeptram.estimators.deep import MemberFit
from deeptram.estimators.exact import ExactState
from deeptram.estimators.identity import identity
from deeptram.estimators.saved_format import CLASS_NAMES, MODEL, NETWORK_SCALE, PARAMETERS, STATE
from deeptram.model.persistence import JSON_NAME, Tensors, write_folder
from deeptram.model.terms import CI, CS, LS, SI, Scale, Spec, Term, Varying

Array = NDArray[np.float64]
Networks = Mapping[str, Callable[..., Any]]
_KINDS: dict[str, Any] = {kind.__name__: kind for kind in (SI, CI, CS, LS, Scale, Varying)}
_KINDS[NETWORK_SCALE] = Scale
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
    saved = {**arguments, "terms": terms_to_record(arguments["terms"])}
    return {"class": name, "parameters": PARAMETERS.write(saved)}


def parameters_from_record(record: Mapping[str, Any], networks: Networks) -> BaseTram:
    """Return the unfitted model of a checked record."""
    arguments = PARAMETERS.read(record["parameters"])
    arguments["terms"] = terms_from_record(arguments["terms"], networks)
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
    if isinstance(factory, functools.partial) and factory.args:
        raise UnsupportedError(
            "a functools.partial of a network can be saved with keywords only, got positional arguments; "
            "write functools.partial(net, hidden=8)"
        )
    factory, settings = _unwrapped(factory)
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


def own_networks(terms: Any) -> dict[str, str]:
    """Return hashes of what the factories that are not registered do, by the names they are saved under.

    Raises
    ------
    UnsupportedError
        If two that differ have the same name.

    Examples
    --------
    >>> list(own_networks([CS(functools.reduce, "a"), CS(factories.MLP(), "b"), LS("c")]))
    ['_functools.reduce']
    """
    found: dict[str, str] = {}
    for term in Spec.of(terms).networks:
        if not factories.is_registered(term.net):
            factory, _ = _unwrapped(term.net)
            name, code = network_name(factory), _code(factory)
            if found.setdefault(name, code) != code:
                raise UnsupportedError(
                    "networks of one model must be saved under names of their own, got two different ones "
                    f"called {name!r}; register them with dt.networks.register, or use named functions"
                )
    return found


def _unwrapped(factory: Any) -> tuple[Any, dict[str, Any]]:
    """Return a factory and the settings that a ``functools.partial`` gives it."""
    return (factory.func, factory.keywords) if isinstance(factory, functools.partial) else (factory, {})


def _code(factory: Any) -> str:
    """Return what a factory does; the same code is other bytes in another version of Python."""
    return f"{sys.implementation.cache_tag}:{identity(factory, places=False)}"


def _warn_of_other_code(saved: Mapping[str, str], networks: Networks) -> None:
    for name, code in saved.items():
        given = _code(networks[name]) if name in networks else code
        if given != code and given.partition(":")[0] == code.partition(":")[0]:
            warn(
                f"the network {name!r} must do what it did when the model was saved, got other code or other "
                "values in it; hand over the one of that time, or predictions may be others",
                DeeptramWarning,
            )


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
    fit = MemberFit.of_fit(estimator.fit_) if estimator.spec_.is_deep else ExactState.of(estimator)
    fitted, tensors = fit.to_record()
    record = {**parameters_to_record(estimator), "fitted": {**STATE.write(estimator), "fit": fitted}}
    own = own_networks(estimator.terms)
    return ({**record, "networks": own} if own else record), tensors


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

    Warns
    -----
    DeeptramWarning
        If a network does something else than the one that was saved.
    """
    with rebuilding():
        MODEL(record, f"{JSON_NAME}: model")
        estimator = parameters_from_record(record, networks)
        estimator.spec_ = Spec.of(estimator.terms)
        STATE.restore(record["fitted"], estimator)
        if hasattr(estimator, "latent_choice_"):
            estimator.latent_choice_.name = estimator.loss
        if estimator.outcome_.response is not None:
            estimator.classes_ = estimator.outcome_.response.classes
        kind: type[MemberFit | ExactState] = MemberFit if estimator.spec_.is_deep else ExactState
        kind.from_record(record["fitted"]["fit"], tensors).restore_checked(estimator)
    _warn_of_other_code(record.get("networks", {}), networks)
    return estimator


@contextlib.contextmanager
def rebuilding() -> Iterator[None]:
    """Turn what goes wrong in building from a file into one error about the file.

    Examples
    --------
    >>> with rebuilding():
    ...     {}["not in the file"]
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
