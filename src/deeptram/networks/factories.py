"""What all network factories share: names, shape checks, activations, initial weights.

A *factory* is any callable ``net(in_shape, out_features) -> torch.nn.Module``.
``in_shape`` is the shape of one row, ``(p,)`` for tables and ``(C, H, W)`` for
images; the module maps ``(b, *in_shape)`` to ``(b, out_features)``.

The initial weights are those of the paper's experiments: Glorot-uniform
weights and zero biases, drawn from torch's global generator, so that
``torch.manual_seed`` decides them.

Factories have names, so that a saved model can be rebuilt from JSON. A file only
ever holds a *name* and plain values; loading looks the name up among the factories
registered in the running program and executes nothing from the file.
"""

from __future__ import annotations

import functools
import inspect
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from math import prod
from numbers import Integral
from typing import Any, Protocol, TypeVar, runtime_checkable

import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import debug_unwrap
from torch.utils._python_dispatch import TorchDispatchMode

from deeptram._registry import Registry
from deeptram._validation import as_list, check_choice, check_number, is_number
from deeptram.errors import FileFormatError, InvalidInputError, InvalidTypeError

_FIXED_COST = 1000  # of a tensor, in entries
LARGEST_SIZE = 2**20  # units, channels or pixels of one layer
ACTIVATIONS: dict[str, type[nn.Module]] = {
    "elu": nn.ELU,
    "gelu": nn.GELU,
    "relu": nn.ReLU,
    "silu": nn.SiLU,
    "softplus": nn.Softplus,
    "tanh": nn.Tanh,
}


@runtime_checkable
class NetworkFactory(Protocol):
    """A callable that makes one fresh network per member of an ensemble."""

    def __call__(self, in_shape: tuple[int, ...], out_features: int) -> nn.Module:
        """Return a module mapping ``(b, *in_shape)`` to ``(b, out_features)``."""
        ...


class Configured(ABC):
    """Base of factories that are frozen dataclasses: their fields are what is saved of them."""

    @abstractmethod
    def __call__(self, in_shape: tuple[int, ...], out_features: int) -> nn.Module:
        """Return a fresh network ``(b, *in_shape) -> (b, out_features)``."""

    def to_dict(self) -> dict[str, Any]:
        """Return the configuration as JSON-able values."""
        return {name: list(one) if isinstance(one, tuple) else one for name, one in vars(self).items()}

    @classmethod
    def from_dict(cls: type[_Configured], config: Mapping[str, Any]) -> _Configured:
        """Rebuild the factory from :meth:`to_dict`.

        Examples
        --------
        >>> from deeptram.networks import MLP
        >>> MLP.from_dict(MLP(hidden=(8,)).to_dict()) == MLP(hidden=(8,))
        True
        """
        fields = list(cls.__dataclass_fields__)  # type: ignore[attr-defined]
        unknown = sorted(set(config) - set(fields))
        if unknown:
            raise InvalidInputError(
                f"{cls.__name__} takes {', '.join(fields)}, got {', '.join(unknown)}; remove it"
            )
        return cls(**{name: tuple(one) if isinstance(one, list) else one for name, one in config.items()})


# -- names -----------------------------------------------------------------------------------

Factory = TypeVar("Factory", bound=Callable[..., Any])
_Configured = TypeVar("_Configured", bound=Configured)
_REGISTRY: Registry[Callable[..., Any]] = Registry(
    "network", "deeptram.networks.register(name, factory)", same=lambda one, other: one is other
)


def names() -> tuple[str, ...]:
    """Return the names of all registered factories.

    Examples
    --------
    >>> {"CNN", "MLP", "paper_mnist"} <= set(names())
    True
    """
    return tuple(_REGISTRY.names())


def register(name: str, factory: Factory) -> Factory:
    """Give your own factory a name, so that models using it can be saved and loaded.

    Call it with the same name in the program that loads the model.

    Parameters
    ----------
    name
        The name written into saved models.
    factory
        A class or function ``factory(in_shape, out_features, **keywords)``, or a
        subclass of ``Configured`` whose objects are factories.

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
    if not callable(factory):
        raise InvalidTypeError(
            f"a network factory must be callable as net(in_shape, out_features), got {factory!r}; "
            "pass a class or function"
        )
    _REGISTRY.add(name, factory)
    return factory


def is_registered(factory: object) -> bool:
    """Return whether a model using this factory can be saved.

    Examples
    --------
    >>> from deeptram.networks import MLP
    >>> is_registered(MLP(hidden=(8,))), is_registered(nn.Linear)
    (True, False)
    """
    named, config = _named(factory)
    known = any(named is _REGISTRY.find(name) for name in names())
    return known and config is not None and _is_json(config)


def to_dict(factory: object) -> dict[str, Any]:
    """Return a factory as a name and JSON-able values.

    Examples
    --------
    >>> from deeptram.networks import MLP, paper_mnist
    >>> to_dict(MLP(hidden=(8,)))["config"]["hidden"]
    [8]
    >>> to_dict(paper_mnist)
    {'name': 'paper_mnist', 'config': {}}
    """
    named, config = _named(factory)
    return {"name": _REGISTRY.name_of(named if is_registered(factory) else factory), "config": config}


def from_dict(entry: Mapping[str, Any]) -> Callable[..., Any]:
    """Return the factory described by :func:`to_dict`.

    Examples
    --------
    >>> from_dict({"name": "MLP", "config": {"hidden": [8]}})
    MLP(hidden=(8,), dropout=0.0, activation='relu', output_bias=False, residual=False)
    """
    name, config = (entry.get("name"), entry.get("config")) if isinstance(entry, Mapping) else (None, None)
    if not isinstance(name, str) or not isinstance(config, Mapping):
        raise FileFormatError(f"a saved network needs a 'name' and a 'config', got {entry!r}; save it again")
    found = _REGISTRY.load(name)
    if isinstance(found, type) and issubclass(found, Configured):
        return found.from_dict(config)
    return functools.partial(found, **config) if config else found


def _named(factory: Any) -> tuple[object, dict[str, Any] | None]:
    """Return what carries the name of a factory, and its settings (None where they cannot be saved)."""
    if isinstance(factory, Configured):
        return type(factory), factory.to_dict()
    if isinstance(factory, functools.partial):
        return factory.func, None if factory.args else dict(factory.keywords)
    return factory, {}


def _is_json(values: object) -> bool:
    try:
        json.dumps(values, allow_nan=False)
    except (TypeError, ValueError):
        return False
    return True


# -- calls -----------------------------------------------------------------------------------


def check_factory(factory: Any, label: str) -> Callable[..., Any]:
    """Return a factory, or say why it cannot be called as ``net(in_shape, out_features)``.

    Parameters
    ----------
    factory : object
    label : str
        What needs it.

    Examples
    --------
    >>> check_factory(lambda in_shape: nn.Linear(in_shape[0], 1), "CS('x')")
    Traceback (most recent call last):
    ...
    deeptram.errors.InvalidTypeError: CS('x') needs a factory net(in_shape, out_features), got <lambda>(...
    """
    needed = f"{label} needs a factory net(in_shape, out_features), got"
    if isinstance(factory, nn.Module):
        raise InvalidTypeError(
            f"{needed} the module {type(factory).__name__}; "
            "pass a class, function or functools.partial, so that every member gets a fresh network"
        )
    if not callable(factory):
        raise InvalidTypeError(
            f"{needed} {type(factory).__name__}; for example dt.networks.MLP(hidden=(64, 64))"
        )
    known: Callable[..., Any] = factory
    try:
        signature = inspect.signature(factory)
    except (TypeError, ValueError):  # of something compiled
        return known
    try:
        signature.bind((1,), 1)
    except TypeError as error:
        named = getattr(factory, "func", factory)
        got = f"{getattr(named, '__name__', type(named).__name__)}({', '.join(signature.parameters)})"
        raise InvalidTypeError(
            f"{needed} {got}; let it take both arguments, and its network return out_features values per row"
        ) from error
    return known


def output_of(network: nn.Module, inputs: Sequence[Tensor]) -> Any:
    """Return what a network makes of its inputs; numbers that an embedding does not have are named.

    Examples
    --------
    >>> output_of(nn.Embedding(20, 3), [torch.tensor([4, 20])])
    Traceback (most recent call last):
    ...
    deeptram.errors.InvalidInputError: an embedding of 20 rows must get numbers from 0 to 19, got 20; ...
    """
    try:
        return network(*inputs)
    except (IndexError, RuntimeError):
        kinds = (nn.Embedding, nn.EmbeddingBag)
        embeddings = [layer for layer in network.modules() if isinstance(layer, kinds)]
        if not embeddings:
            raise
        hooks = [layer.register_forward_pre_hook(_check_numbers) for layer in embeddings]
        try:
            network(*inputs)  # once more, to see which numbers it were
        finally:
            for hook in hooks:
                hook.remove()
        raise


def _check_numbers(layer: nn.Module, inputs: tuple[Tensor, ...]) -> None:
    """Raise if an embedding is asked for rows that it does not have; also within ``torch.func.vmap``."""
    numbers, size = debug_unwrap(inputs[0]), int(layer.num_embeddings)  # type: ignore[arg-type]
    wrong = numbers[(numbers < 0) | (numbers >= size)]
    if len(wrong):
        raise InvalidInputError(
            f"an embedding of {size} rows must get numbers from 0 to {size - 1}, got {int(wrong[0])}; make "
            "it larger, or give unknown tokens one number of their own"
        )


class Budget(TorchDispatchMode):
    """Ends the building of a network that asks for much more memory than its saved weights take.

    Parameters
    ----------
    weights : dict of arrays

    Examples
    --------
    >>> import numpy as np
    >>> from deeptram.networks import MLP
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


# -- layers ----------------------------------------------------------------------------------


def activation(name: str) -> nn.Module:
    """Return a fresh activation module by name.

    Examples
    --------
    >>> activation("relu")
    ReLU()
    """
    return ACTIVATIONS[check_choice(name, ACTIVATIONS, "activation")]()


def check_shape(in_shape: Sequence[int], out_features: int, *, image: bool, network: str) -> tuple[int, ...]:
    """Return ``in_shape`` as a tuple of positive integers, or say what is wrong with it."""
    shape = tuple(as_list(in_shape, "in_shape", "positive integers"))
    if any(not _is_positive_integer(size) for size in shape) or not shape:
        raise InvalidInputError(
            f"{network} expects in_shape to hold positive integers, got {shape}; pass (p,) or (C, H, W)"
        )
    if not _is_positive_integer(out_features):
        raise InvalidInputError(
            f"{network} expects out_features to be a positive integer, got {out_features!r}; "
            "pass the number of outputs"
        )
    if image and len(shape) != 3:
        raise InvalidInputError(
            f"{network} expects images, that is in_shape = (C, H, W), got {shape}; "
            "use networks.MLP for tables, or give the term an image column"
        )
    return tuple(int(size) for size in shape)


def check_sizes(values: Sequence[int], what: str) -> tuple[int, ...]:
    """Return ``values`` as a tuple of positive integers, or say which argument is wrong."""
    sizes = tuple(as_list(values, what, "positive integers"))
    if any(not _is_positive_integer(size) for size in sizes):
        raise InvalidInputError(f"{what} must hold positive integers, got {sizes}; correct the sizes")
    return tuple(int(size) for size in sizes)


def check_positive(value: int, what: str) -> int:
    """Return ``value`` if it is a positive integer."""
    if not _is_positive_integer(value):
        raise InvalidInputError(f"{what} must be a positive integer, got {value!r}; use at least 1")
    return int(value)


def check_dropout(rate: float) -> float:
    """Return the dropout rate if it lies in [0, 1)."""
    if not 0 <= check_number(rate, "dropout") < 1:
        raise InvalidInputError(f"dropout must lie in [0, 1), got {rate!r}; use 0 for none")
    return float(rate)


def check_room(spatial: tuple[int, ...], in_shape: tuple[int, ...], network: str, smallest: int) -> None:
    """Raise if the convolutions and pools have left no pixel."""
    if min(spatial) < 1:
        raise InvalidInputError(
            f"{network} needs images of at least {smallest} x {smallest} pixels, "
            f"got {in_shape[1]} x {in_shape[2]}; use larger images or a smaller network"
        )


def glorot_(module: nn.Module) -> None:
    r"""Draw Glorot-uniform weights and set biases to zero, in place.

    Weights are uniform on :math:`\pm\sqrt{6 / (f_{in} + f_{out})}`, where for
    a k x k convolution :math:`f_{in} = k^2 C_{in}` and
    :math:`f_{out} = k^2 C_{out}`.

    Examples
    --------
    >>> layer = nn.Linear(3, 2)
    >>> glorot_(layer)
    >>> layer.bias.tolist(), bool(layer.weight.abs().max() <= (6 / 5) ** 0.5)
    ([0.0, 0.0], True)
    """
    for layer in module.modules():
        if isinstance(layer, (nn.Linear, nn.Conv2d)):
            nn.init.xavier_uniform_(layer.weight)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)


def finished(layers: list[nn.Module]) -> nn.Module:
    """Return layers as one network, its weights drawn."""
    network = nn.Sequential(*layers)
    glorot_(network)
    return network


def linear(in_features: int, out_features: int, *, bias: bool = True) -> nn.Linear:
    """Return a dense layer whose weights are not drawn yet (see :func:`glorot_`)."""
    layer: nn.Linear = torch.nn.utils.skip_init(
        nn.Linear, in_features, out_features, bias=bias, device=torch.get_default_device()
    )
    return layer


def conv(in_channels: int, out_channels: int, *, size: int = 3, padding: str | int = "same") -> nn.Conv2d:
    """Return a convolution whose weights are not drawn yet (see :func:`glorot_`)."""
    layer: nn.Conv2d = torch.nn.utils.skip_init(
        nn.Conv2d,
        in_channels,
        out_channels,
        kernel_size=size,
        padding=padding,
        device=torch.get_default_device(),
    )
    return layer


def _is_positive_integer(value: object) -> bool:
    return isinstance(value, Integral) and is_number(value) and 1 <= int(value) <= LARGEST_SIZE
