"""The edge of the pools: which members can be pooled, with which weights and on which scale."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from deeptram import latent as latents
from deeptram._validation import check_weights
from deeptram.errors import InvalidInputError, InvalidTypeError
from deeptram.latent import Latent
from deeptram.pooling.cdf_stack import CdfStack
from deeptram.predictive.base import Predictive
from deeptram.predictive.discrete import DiscretePredictive
from deeptram.predictive.line import LinePredictive

Weights = npt.NDArray[np.float64]


def is_array(members: Any) -> bool:
    """Whether members came as one array of CDFs rather than as a sequence of distributions.

    Examples
    --------
    >>> is_array(np.zeros((2, 3, 4))), is_array([])
    (True, False)
    """
    return isinstance(members, (np.ndarray, Tensor))


def check_members(members: Any) -> list[Predictive]:
    """Return the members as a list of distributions of one kind, length and set of levels.

    Examples
    --------
    >>> check_members([])
    Traceback (most recent call last):
    ...
    deeptram.errors.InvalidInputError: members must hold at least one Predictive, got none; ...
    """
    if isinstance(members, Predictive):
        raise InvalidTypeError(
            "members must be a sequence of Predictive, got a single one; put it into a list: [pred]"
        )
    if not hasattr(members, "__iter__"):
        raise InvalidTypeError(
            f"members must be a sequence of Predictive or an array (members, rows, levels) of CDFs, got "
            f"{type(members).__name__}; build each with Predictive.from_proba, from_cdf, ..."
        )
    checked = list(members)
    if not checked:
        raise InvalidInputError(
            "members must hold at least one Predictive, got none; pass the members to be pooled"
        )
    for m, member in enumerate(checked):
        if not isinstance(member, Predictive):
            raise InvalidTypeError(
                f"members must be Predictive objects, got {type(member).__name__} at position {m}; "
                "build it with Predictive.from_proba, from_cdf, from_scipy, ..."
            )
    _check_alike(checked)
    return checked


def _check_alike(members: Sequence[Predictive]) -> None:
    first = members[0]
    for m, member in enumerate(members[1:], start=1):
        if kind(member) != kind(first):
            raise InvalidInputError(
                f"members must be of one kind, got {kind(first)} for member 0 and {kind(member)} for "
                f"member {m}; pool distributions of the same outcome"
            )
        if len(member) != len(first):
            raise InvalidInputError(
                f"members must have the same number of rows, got {len(first)} for member 0 and "
                f"{len(member)} for member {m}; predict the same rows with every member"
            )
        if member.levels != first.levels:
            raise InvalidInputError(
                f"members must have the same levels in the same order, got {_shown(first.levels)} for "
                f"member 0 and {_shown(member.levels)} for member {m}; reorder the columns of one of them"
            )


def as_members(members: Any) -> list[Predictive]:
    """Return checked members, whether they came as a sequence or as an array of CDFs.

    Examples
    --------
    >>> len(as_members(np.array([[[0.2, 1.0]], [[0.4, 1.0]]])))
    2
    """
    if is_array(members):
        return [*CdfStack.check(members).members()]
    return check_members(members)


def kind(member: Predictive) -> str:
    """Return ``"discrete"``, ``"count"`` or ``"continuous"``.

    Examples
    --------
    >>> kind(DiscretePredictive.from_h(np.zeros((1, 1))))
    'discrete'
    """
    if isinstance(member, DiscretePredictive):
        return "discrete"
    return "continuous" if isinstance(member, LinePredictive) else "count"


def normalised_weights(weights: npt.ArrayLike | None, n_members: int) -> Weights:
    """Return checked weights, divided by their sum so that rounding within 1e-8 does not matter.

    Examples
    --------
    >>> normalised_weights([0.25, 0.75], 2)
    array([0.25, 0.75])
    """
    checked = check_weights(weights, n_members)
    return np.asarray(checked / checked.sum())


def common_latent(members: Sequence[Predictive]) -> Latent | None:
    """Return the latent that all members with one share; None if there is none or they differ.

    Examples
    --------
    >>> one = DiscretePredictive.from_h(np.zeros((1, 1)), latent="normal")
    >>> common_latent([one, one]).name
    'normal'
    """
    own = {member.latent for member in members if member.latent is not None}
    return own.pop() if len(own) == 1 else None


def pooling_latent(members: Sequence[Predictive], latent: str | Latent | None) -> Latent:
    """Return F_Z of a transformation pool: as asked for, else the members' own, else logistic.

    Examples
    --------
    >>> pooling_latent([DiscretePredictive.from_h(np.zeros((1, 1)), latent="normal")], None).name
    'normal'
    """
    if latent is not None:
        return latents.get(latent)
    own = {member.latent.name for member in members if member.latent is not None}
    if len(own) > 1:
        raise InvalidInputError(
            f"members must share one latent distribution for the transformation pool, got "
            f"{', '.join(sorted(own))}; pass latent= to say on which scale to pool"
        )
    return common_latent(members) or latents.get("logistic")


def _shown(levels: tuple[Any, ...] | None) -> str:
    shown = ", ".join(map(repr, (levels or ())[:4]))
    return f"[{shown}{', ...' if levels and len(levels) > 4 else ''}]"
