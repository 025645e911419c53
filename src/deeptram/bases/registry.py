"""All bases by name, and how a stored one is rebuilt."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from deeptram._validation import check_choice
from deeptram.bases.base import Basis
from deeptram.bases.bernstein import Bernstein
from deeptram.bases.cutpoints import Cutpoints
from deeptram.bases.linear import Linear, LogLinear
from deeptram.errors import InvalidInputError

BASES: dict[str, type[Basis]] = {basis.name: basis for basis in (Bernstein, Cutpoints, Linear, LogLinear)}


def from_dict(state: Mapping[str, Any]) -> Basis:
    """Rebuild a basis from ``Basis.to_dict()``; unknown names and fields are refused.

    Examples
    --------
    >>> from deeptram.bases import Bernstein, from_dict
    >>> from_dict(Bernstein(6, support=(0.0, 1.0)).to_dict())
    Bernstein(order=6, support=(0.0, 1.0), log_first=False)
    """
    fields = dict(state) if isinstance(state, Mapping) else {}
    kind = BASES[check_choice(fields.pop("name", None), BASES, "name of the basis")]
    try:
        return kind(**fields)
    except TypeError as error:
        raise InvalidInputError(
            f"the stored {kind.name} basis has fields {sorted(fields)}, which do not fit; "
            "save the model again with this version"
        ) from error
