"""Settings of their own for the members of an ensemble: ``Ensemble(vary=...)``."""

from __future__ import annotations

import copy
import functools
from collections.abc import Mapping, Sequence
from typing import Any

from deeptram import latent as latents
from deeptram.errors import InvalidInputError, InvalidTypeError, UnknownNameError
from deeptram.estimators.base import BaseTram
from deeptram.fitting.deep.training import Training
from deeptram.model.terms import CI, CS
from deeptram.networks.factories import Configured

IN_ONE_PASS = ("learning_rate", "weight_decay", "dropout", "latent")


def check_vary(vary: Any) -> dict[str, list[Any]]:
    """Return the values of each setting, or say what is wrong with them.

    Examples
    --------
    >>> check_vary({"learning_rate": (0.001, 0.01)})
    {'learning_rate': [0.001, 0.01]}
    """
    if not isinstance(vary, Mapping):
        raise InvalidTypeError(
            f"vary must be a dict of settings and their values, got {type(vary).__name__}; "
            "write vary={'learning_rate': [1e-3, 3e-3]}"
        )
    checked = {}
    for name, values in vary.items():
        if isinstance(values, (str, bytes)) or not hasattr(values, "__len__") or len(values) == 0:
            raise InvalidInputError(
                f"vary[{name!r}] must be a list of at least one value, got {values!r}; "
                "members take the values in turn"
            )
        checked[str(name)] = list(values)
    return checked


def check_common_scale(vary: Mapping[str, Sequence[Any]]) -> None:
    """Raise if members differ in their latent distribution: the mean of their h has no meaning.

    Examples
    --------
    >>> check_common_scale({"latent": ["logistic", "logit"]})
    """
    different = {latents.get(one).name for one in vary.get("latent", ())}
    if len(different) > 1:
        raise InvalidInputError(
            f"the transformation pool needs members with one latent distribution, got "
            f"{', '.join(sorted(different))} in vary; use pooling='linear'"
        )


def vary_setting(model: BaseTram, name: str, value: Any) -> None:
    """Set an argument of a model, of its ``Training`` or of its networks, in place.

    Examples
    --------
    >>> import deeptram as dt
    >>> model = dt.Colr([dt.CI(dt.networks.MLP(dropout=0.1), "x")])
    >>> vary_setting(model, "dropout", 0.2)
    >>> model.terms[0].net.dropout
    0.2
    """
    if name in model.get_params(deep=False):
        model.set_params(**{name: value})
        return
    if name in Training.__dataclass_fields__:
        training = Training() if model.training is None else model.training
        model.set_params(training=training.replace(**{name: value}))
        return
    changed = [_with_setting(term, name, value) for term in model.terms or []]
    if all(one is None for one in changed):
        raise UnknownNameError(
            f"vary takes arguments of the model, of dt.Training or of its networks, got {name!r}, which "
            f"{type(model).__name__} has not; check the name"
        )
    kept = [term if one is None else one for term, one in zip(model.terms, changed, strict=True)]
    model.set_params(terms=kept)


def _with_setting(term: Any, name: str, value: Any) -> Any:
    """Return a term whose network has another setting; None where it has no such setting."""
    if not isinstance(term, (CI, CS)):
        return None
    net: Any = None
    if isinstance(term.net, Configured) and name in vars(term.net):
        net = type(term.net)(**{**vars(term.net), name: value})
    elif isinstance(term.net, functools.partial) and name in term.net.keywords:
        net = functools.partial(term.net.func, *term.net.args, **{**term.net.keywords, name: value})
    if net is None:
        return None
    changed = copy.copy(term)
    object.__setattr__(changed, "net", net)
    return changed
