"""What a pooled distribution remembers of its making."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class PoolInfo:
    """The recipe of a pool: method, weights and, for the transformation pool, the latent.

    Attributes
    ----------
    method : str
        ``"linear"``, ``"log-linear"``, ``"log-linear-density"``, ``"transformation"`` or
        ``"quasi-arithmetic"``.
    weights : tuple of float
        One weight per member, in the order in which the members were given; zeros included.
    latent : str or None
        Name of F_Z in the transformation pool, None for every other pool.

    Examples
    --------
    >>> PoolInfo("linear", (0.5, 0.5), None).n_members
    2
    """

    method: str
    weights: tuple[float, ...]
    latent: str | None = None

    @property
    def n_members(self) -> int:
        """The number of members, those of weight zero included."""
        return len(self.weights)
