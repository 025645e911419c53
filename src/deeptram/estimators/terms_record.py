"""Terms and networks of a model as JSON-able values, and back.

A network is stored as the *name* of its factory and plain settings. Names are
those registered in ``deeptram.networks``; any other factory is stored under its
module and name, and whoever loads the model hands it over as
``load(path, networks={name: factory})``. No name is ever imported.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from deeptram import networks as factories
from deeptram.errors import FileFormatError, UnsupportedError
from deeptram.model.persistence import plain, unplain
from deeptram.model.terms import CI, CS, LS, SI, Scale, Term, Varying

Networks = Mapping[str, Callable[..., Any]]
_KINDS: dict[str, Any] = {kind.__name__: kind for kind in (SI, CI, CS, LS, Scale, Varying)}


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
