"""Names of network factories, so that a saved model can be rebuilt from JSON.

A file only ever holds a *name* and plain values; loading looks the name up
among the factories registered in the running program and executes nothing from
the file.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping
from math import prod
from typing import Any

from numpy.typing import NDArray
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from deeptram.errors import FileFormatError, InvalidInputError, InvalidTypeError, UnsupportedError
from deeptram.networks.cnn import CNN
from deeptram.networks.mlp import MLP
from deeptram.networks.paper import paper_melanoma, paper_mnist, paper_utkface

Factory = Callable[..., nn.Module]
_FIXED_COST = 1000  # of a tensor, in entries

_CONFIGURABLE: dict[str, type[MLP] | type[CNN]] = {"MLP": MLP, "CNN": CNN}
_PLAIN: dict[str, Factory] = {
    "paper_mnist": paper_mnist,
    "paper_melanoma": paper_melanoma,
    "paper_utkface": paper_utkface,
}


def names() -> tuple[str, ...]:
    """Return the names of all registered factories.

    Examples
    --------
    >>> {"CNN", "MLP", "paper_mnist"} <= set(names())
    True
    """
    return tuple(sorted([*_CONFIGURABLE, *_PLAIN]))


def register(name: str, factory: Factory) -> Factory:
    """Give your own factory a name, so that models using it can be saved and loaded.

    Call it with the same name in the program that loads the model.

    Parameters
    ----------
    name
        The name written into saved models.
    factory
        A class or function ``factory(in_shape, out_features, **keywords)``.

    Returns
    -------
    The factory itself.

    Examples
    --------
    >>> def tiny(in_shape, out_features):
    ...     return nn.Linear(in_shape[0], out_features)
    >>> register("tiny-example", tiny) is tiny
    True
    >>> from_dict(to_dict(tiny)) is tiny
    True
    """
    if not isinstance(name, str) or not name:
        raise InvalidInputError(f"a network's name must be a non-empty string, got {name!r}; name it")
    if not callable(factory):
        raise InvalidTypeError(
            f"a network factory must be callable as net(in_shape, out_features), got {factory!r}; "
            "pass a class or function"
        )
    if name in _CONFIGURABLE or _PLAIN.get(name, factory) is not factory:
        raise InvalidInputError(
            f"a network's name must be new, got {name!r}, which is taken; avoid {', '.join(names())}"
        )
    _PLAIN[name] = factory
    return factory


def is_registered(factory: object) -> bool:
    """Return whether a model using this factory can be saved.

    Examples
    --------
    >>> is_registered(MLP(hidden=(8,))), is_registered(nn.Linear)
    (True, False)
    """
    if isinstance(factory, functools.partial):
        return not factory.args and _name_of(factory.func) is not None and _is_json(factory.keywords)
    return type(factory) in _CONFIGURABLE.values() or _name_of(factory) is not None


def to_dict(factory: object) -> dict[str, Any]:
    """Return a factory as a name and JSON-able values.

    Examples
    --------
    >>> to_dict(MLP(hidden=(8,)))["config"]["hidden"]
    [8]
    >>> to_dict(paper_mnist)
    {'name': 'paper_mnist', 'config': {}}
    """
    if not is_registered(factory):
        raise UnsupportedError(
            f"a network factory must have a name to be saved, got {factory!r} without a registered name; "
            "call deeptram.networks.register(name, factory) here and in the program that loads it"
        )
    if isinstance(factory, (MLP, CNN)):
        return {"name": type(factory).__name__, "config": factory.to_dict()}
    if isinstance(factory, functools.partial):
        return {"name": _name_of(factory.func), "config": dict(factory.keywords)}
    return {"name": _name_of(factory), "config": {}}


def from_dict(entry: Mapping[str, Any]) -> Factory:
    """Return the factory described by :func:`to_dict`.

    Examples
    --------
    >>> from_dict({"name": "MLP", "config": {"hidden": [8]}})
    MLP(hidden=(8,), dropout=0.0, activation='relu', output_bias=False)
    """
    name, config = (entry.get("name"), entry.get("config")) if isinstance(entry, Mapping) else (None, None)
    if not isinstance(name, str) or not isinstance(config, Mapping):
        raise FileFormatError(f"a saved network needs a 'name' and a 'config', got {entry!r}; save it again")
    if name in _CONFIGURABLE:
        return _CONFIGURABLE[name].from_dict(config)
    if name not in _PLAIN:
        raise FileFormatError(
            f"a saved network must be one of {', '.join(names())}, got {name!r}, which is not registered "
            "here; call deeptram.networks.register(name, factory) before loading"
        )
    return functools.partial(_PLAIN[name], **config) if config else _PLAIN[name]


class Budget(TorchDispatchMode):
    """Ends the building of a network that asks for much more memory than its saved weights take.

    Parameters
    ----------
    weights : dict of arrays

    Examples
    --------
    >>> import numpy as np
    >>> with Budget({"weight": np.zeros((6, 3))}):
    ...     network = MLP(hidden=(10**4, 10**4))((3,), 1)
    Traceback (most recent call last):
    ...
    deeptram.errors.FileFormatError: a saved network must be as large as its weights, got settings for ...
    """

    def __init__(self, weights: Mapping[str, NDArray[Any]]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._left = 10**7 + 20 * sum(value.size + _FIXED_COST for value in weights.values())

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Count the entries of new tensors before they are made."""
        if args and isinstance(args[0], (list, tuple)) and all(isinstance(size, int) for size in args[0]):
            self._left -= prod(args[0]) + _FIXED_COST
        if self._left < 0:
            raise FileFormatError(
                "a saved network must be as large as its weights, got settings for a larger one; "
                "load it with the network it was fitted with"
            )
        return func(*args, **(kwargs or {}))


def _name_of(factory: object) -> str | None:
    return next((name for name, known in _PLAIN.items() if known is factory), None)


def _is_json(values: object) -> bool:
    try:
        json.dumps(values, allow_nan=False)
    except (TypeError, ValueError):
        return False
    return True
