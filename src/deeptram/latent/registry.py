"""The names under which latent distributions are known."""

from __future__ import annotations

from deeptram.errors import UnknownNameError
from deeptram.latent.base import Latent
from deeptram.latent.extreme_value import MaximumExtremeValue, MinimumExtremeValue
from deeptram.latent.logistic import Logistic
from deeptram.latent.normal import Normal

_LATENTS: tuple[Latent, ...] = (Logistic(), Normal(), MinimumExtremeValue(), MaximumExtremeValue())
_BY_NAME: dict[str, Latent] = {name: one for one in _LATENTS for name in (one.name, *one.aliases)}


def get(name: str | Latent) -> Latent:
    """Return the latent distribution of that name (a ``Latent`` is passed through).

    Examples
    --------
    >>> get("cloglog").name
    'minimum-extreme-value'
    """
    if isinstance(name, Latent):
        return name
    found = _BY_NAME.get(name) if isinstance(name, str) else None
    if found is None:
        known = ", ".join(sorted(_BY_NAME))
        raise UnknownNameError(f"latent must be one of {known}; got {name!r}.")
    return found


def names() -> list[str]:
    """Return the canonical names, without aliases."""
    return [one.name for one in _LATENTS]
