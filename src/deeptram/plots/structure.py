"""Does a pool keep the structure of its members? Fig. 4A."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from deeptram.errors import InvalidTypeError
from deeptram.plots.display import Display
from deeptram.plots.style import MEMBER_COLOR, colors, legend_beside, reference_line
from deeptram.pooling import StructureCheck

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SCALES = {
    "logistic": "logit scale",
    "normal": "probit scale",
    "minimum-extreme-value": "cloglog scale",
    "maximum-extreme-value": "loglog scale",
}


def structure(check: StructureCheck) -> StructureDisplay:
    r"""Show members and pool on the scale of :math:`F_Z^{-1}`, against the mean of the members (Fig. 4A).

    A pool on the diagonal is in the model class of its members; how far it
    leaves the diagonal is how far it leaves their structure. Members scatter around it.

    Parameters
    ----------
    check : StructureCheck
        From ``deeptram.structure_check``.

    Returns
    -------
    Display
        ``frame()`` has the columns ``row, y, member, trafo_member, trafo_mean, trafo_pool``.

    Examples
    --------
    >>> from deeptram.pooling import structure_check
    >>> from deeptram.predictive import Predictive
    >>> members = [Predictive.from_trafo([[-1.0, 1.0]]), Predictive.from_trafo([[0.0, 4.0]])]
    >>> structure(structure_check(members)).frame()[["trafo_mean", "trafo_pool"]].drop_duplicates().round(3)
       trafo_mean  trafo_pool
    0        -0.5      -0.471
    1         2.5       1.787
    """
    if not isinstance(check, StructureCheck):
        raise InvalidTypeError(
            f"check must come from deeptram.structure_check, got {type(check).__name__}; run it first"
        )
    return StructureDisplay(check.frame(), check.method, check.latent, check.deviation)


@dataclass(frozen=True, eq=False)
class StructureDisplay(Display):
    """Transformation values of members (grey) and pool (coloured) against the members' mean.

    Parameters
    ----------
    table : DataFrame
        Columns ``row, y, member, trafo_member, trafo_mean, trafo_pool``.
    method, latent : str
        The pool and F_Z.
    deviation : float
        Largest distance of the pool from the diagonal.
    """

    method: str = "linear"
    latent: str = "logistic"
    deviation: float = np.nan

    @property
    def size(self) -> tuple[float, float]:
        """Width and height in inches: a square and the legend."""
        return 5.0, 3.5

    def _draw(self, ax: Axes) -> None:
        finite = self.table[np.isfinite(self.table["trafo_mean"])]
        pool = finite.drop_duplicates(["row", "y"]).sort_values("trafo_mean")
        members = finite[np.isfinite(finite["trafo_member"])]
        few = len(pool) <= 400
        ax.plot(
            members["trafo_mean"],
            members["trafo_member"],
            "o",
            color=MEMBER_COLOR,
            markersize=2.4 if few else 1.4,
            alpha=0.6 if few else 0.35,
            markeredgewidth=0,
            label="members",
            rasterized=len(members) > 5000,
        )
        ends = np.array([pool["trafo_mean"].min(), pool["trafo_mean"].max()])
        ax.plot(ends, ends, label="mean of members", zorder=3, **reference_line(linewidth=1.0))
        shown = pool[np.isfinite(pool["trafo_pool"])]
        name = f"{self.method} pool" if self.method != "unknown" else "pool"
        ax.plot(
            shown["trafo_mean"],
            shown["trafo_pool"],
            "o",
            color=colors([self.method])[self.method],
            markersize=4.0 if few else 2.4,
            markeredgewidth=0,
            label=name,
            zorder=4,
        )
        scale = SCALES[self.latent]
        ax.set_xlabel(f"mean of members, {scale}")
        ax.set_ylabel(f"members and pool, {scale}")
        legend_beside(ax, markerscale=1.6)
