"""Members and pool on the scale of h: how far they disagree, and whether pooling keeps structure (Fig. 4)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from deeptram._validation import as_float, as_list, check_choice
from deeptram.ensemble.epistemic import SCALES, epistemic_band, quantiles
from deeptram.errors import InvalidInputError, InvalidTypeError
from deeptram.latent import Latent
from deeptram.plots import style
from deeptram.plots.display import Display, table_with
from deeptram.plots.grid import chosen_rows, common_grid, common_scale, named_groups, trafo_values
from deeptram.pooling import StructureCheck
from deeptram.pooling.pool import normalised_weights, pool

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FEW = 12  # whole numbers that are drawn as levels are
NEEDED = ("row", "at", "estimate", "lower", "upper")


def epistemic(
    members: Any,
    *,
    scale: str = "cdf",
    at: Any = None,
    rows: Any = None,
    weights: npt.ArrayLike | None = None,
    width: float = 2.0,
    latent: str | Latent | None = None,
    x: Any = None,
    x_label: str = "",
    names: Sequence[str] | None = None,
) -> EpistemicDisplay:
    r"""Show the transformation ensemble with bands of epistemic uncertainty.

    =============  =======================================================================
    ``"trafo"``    :math:`\bar h(y) \pm 2\,\mathrm{sd}(h_m(y))`
    ``"cdf"``      :math:`F_Z(\bar h(y) \pm 2\,\mathrm{sd}(h_m(y)))` (Fig. 4C)
    ``"quantile"`` :math:`\bar q(\alpha) \pm 2\,\mathrm{sd}(q_m(\alpha))` over x (Fig. 4B)
    =============  =======================================================================

    Parameters
    ----------
    members : sequence of M Predictive; or DataFrame
        The members; or bands already computed by ``Ensemble.epistemic``, with columns
        ``row, at, estimate, lower, upper``.
    scale : {"trafo", "cdf", "quantile"}
    at : array-like, optional
        Values of y ("trafo", "cdf"; default: where the probability is) or
        probabilities ("quantile"; default the median).
    rows : optional
        Which rows; the first five by default, all for "quantile".
    weights : array-like, shape (M,), optional
    width : float
        Half-width of the band in standard deviations.
    latent : str or Latent, optional
        F_Z; the members' own, else logistic.
    x : array-like, shape (n,), optional
        Position of each row on the x-axis, for "quantile".
    x_label : str
        What the x-axis shows: the outcome, or for "quantile" what x is.
    names : sequence of str, optional
        What the rows shown are called in the legend.

    Returns
    -------
    Display
        ``frame()`` has the columns ``row, at, estimate, sd, lower, upper`` (and ``x``);
        ``members`` holds the members' own values.

    Examples
    --------
    >>> import scipy.stats
    >>> from deeptram.predictive import Predictive
    >>> pair = [Predictive.from_scipy(scipy.stats.norm([m], 1.0)) for m in (0.0, 2.0)]
    >>> epistemic(pair, scale="quantile", latent="normal").frame().round(3)
       row   at  estimate     sd  lower  upper    x
    0    0  0.5       1.0  1.414 -1.828  3.828  0.0
    """
    if isinstance(members, pd.DataFrame):
        table_with(NEEDED, members, "bands", "pass the members themselves, or a table with these columns")
        table, each, label = members.copy(), None, "" if latent is None else str(latent)
    else:
        table, each, label = _tables(members, scale, at, rows, weights, width, latent)
    if scale == "quantile":
        table["x"] = _positions(x, table["row"])
        if each is not None:
            each["x"] = _positions(x, each["row"])
    if names is not None:
        shown = list(table["row"].unique())
        if len(names) != len(shown):
            raise InvalidInputError(
                f"names must name every row shown, got {len(names)} for {len(shown)} rows; pass one name each"
            )
        table["name"] = table["row"].map(dict(zip(shown, names, strict=True)))
    return EpistemicDisplay(table, scale, each, label, x_label, width)


@dataclass(frozen=True, eq=False)
class EpistemicDisplay(Display):
    """The pool as a line, the band around it, and the members dashed.

    Parameters
    ----------
    table : DataFrame
        Columns ``row, at, estimate, sd, lower, upper``, for quantiles also ``x``.
    scale : str
    members : DataFrame, optional
        Columns ``row, at, member, value``.
    latent : str
        Name of F_Z.
    x_label : str
    width : float
        Half-width of the band in standard deviations.
    """

    scale: str = "cdf"
    members: pd.DataFrame | None = None
    latent: str = ""
    x_label: str = ""
    width: float = 2.0

    def _draw(self, ax: Axes) -> None:
        over, line = ("x", "at") if self.scale == "quantile" else ("at", "row")
        groups = list(self.table.groupby(line, sort=False))
        shown = list(self.table[over].unique())
        steps = over == "at" and self.table[over].dtype.kind in "iu"  # counts jump
        numbers = self.table[over].dtype.kind in "iuf" and not (steps and len(shown) <= FEW)
        levels = None if numbers else shown
        names = [self._name(key, part) for key, part in groups]
        shades = list(style.colors([f"row {key}" for key, _ in groups]).values())
        shades = shades if len(names) > 1 else [style.POOL_COLORS["transformation"]]
        for k, (key, part) in enumerate(groups):
            if self.members is not None:
                each = self.members[self.members[line] == key]
                place = style.beside(each[over], levels, k, len(groups))
                self._draw_members(ax, each.assign(place=place), levels is None, steps, first=k == 0)
            part = part.sort_values(over) if levels is None else part
            place = style.beside(part[over], levels, k, len(groups))
            label = names[k] if len(names) > 1 else "transformation pool"
            style.draw_band(ax, place, part, "estimate", shades[k], label, lines=levels is None, steps=steps)
        if levels is not None:
            ax.set_xticks(range(len(levels)), [str(level) for level in levels])
        self._draw_labels(ax, list(self.table[line].unique()))
        band = f"± {self.width:g} sd of the members"
        ax.fill_between([], [], [], color=style.BAND_COLOR, linewidth=0, label=band)
        style.legend_beside(ax)

    def _name(self, key: Any, part: pd.DataFrame) -> str:
        if self.scale == "quantile":
            return f"{key:g}-quantile"
        return str(part["name"].iloc[0]) if "name" in part else f"row {key}"

    def _draw_members(self, ax: Axes, each: pd.DataFrame, lines: bool, steps: bool, first: bool) -> None:
        """Draw thin dashed lines, or dots beside the pool's."""
        look: dict[str, Any] = {
            "color": style.MEMBER_COLOR,
            "zorder": 2,
            "label": "members" if first else None,
        }
        if not lines:
            ax.plot(each["place"] + 0.06, each["value"], "o", markersize=2.8, **look)
            return
        drawn_as: Any = {"linewidth": 0.8, "drawstyle": "steps-post" if steps else "default"}
        for _, curve in each.sort_values("place").groupby("member", sort=False):
            ax.plot(curve["place"], curve["value"], "--", **look, **drawn_as)
            look["label"] = None

    def _draw_labels(self, ax: Axes, keys: list[Any]) -> None:
        if self.scale == "quantile":
            one = "median of Y" if keys[0] == 0.5 else f"{keys[0]:g}-quantile of Y"
            ax.set(xlabel=self.x_label or "x", ylabel=one if len(keys) == 1 else "quantile of Y")
            return
        trafo = style.TRAFO_LABELS.get(self.latent, "h(y)")
        ax.set(xlabel=self.x_label or style.OUTCOME, ylabel="P(Y ≤ y)" if self.scale == "cdf" else trafo)
        if self.scale == "cdf":
            ax.set_ylim(-0.02, 1.02)


def _positions(x: Any, rows: pd.Series) -> npt.NDArray[np.float64]:
    if x is None:
        return np.asarray(rows, dtype=np.float64)
    values = np.asarray(x, dtype=np.float64)
    if values.ndim != 1 or len(values) <= int(rows.max()):
        raise InvalidInputError(
            f"x must have one number for each row, got shape {values.shape} for rows up to "
            f"{int(rows.max())}; pass the covariate of all rows"
        )
    return np.asarray(values[rows.to_numpy()])


def _tables(
    members: Any, scale: str, at: Any, rows: Any, weights: Any, width: float, latent: str | Latent | None
) -> tuple[pd.DataFrame, pd.DataFrame, str]:
    """Return the bands, the members' values, and the name of F_Z."""
    check_choice(scale, SCALES, "scale")
    groups = named_groups({"members": as_list(members, "members", "Predictives")})
    law, first = common_scale(groups, latent), groups["members"][0]
    shown = chosen_rows(slice(None) if rows is None and scale == "quantile" else rows, len(first))
    kept = [member[shown] for member in groups["members"]]
    w = normalised_weights(weights, len(kept))
    if scale == "quantile":
        points = np.atleast_1d(as_float(0.5 if at is None else at, "at"))
    else:
        points = common_grid(groups, shown, at)
        points = points if first.levels is None else points[:-1]
    bands = epistemic_band(kept, pool(kept, weights=w, latent=law), w, scale, points, width)
    if scale == "quantile":
        values = [quantiles(member, points) for member in kept]
    else:
        values = [trafo_values(member, points, law) for member in kept]
        values = [np.asarray(law.cdf(h)) for h in values] if scale == "cdf" else values
    bands["row"] = np.repeat(shown, len(points))
    each = [bands[["row", "at"]].assign(member=m, value=value.ravel()) for m, value in enumerate(values)]
    return bands, pd.concat(each, ignore_index=True), law.name


LATENT_SCALES = {
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
        dots: dict[str, Any] = {"marker": "o", "linestyle": "none", "markeredgewidth": 0}
        grey: dict[str, Any] = {
            "color": style.MEMBER_COLOR,
            "markersize": 2.4 if few else 1.4,
            "alpha": 0.6 if few else 0.35,
        }
        place = members["trafo_mean"], members["trafo_member"]
        ax.plot(*place, label="members", rasterized=len(members) > 5000, **dots, **grey)
        ends = np.array([pool["trafo_mean"].min(), pool["trafo_mean"].max()])
        ax.plot(ends, ends, label="mean of members", zorder=3, **style.reference_line(linewidth=1.0))
        shown = pool[np.isfinite(pool["trafo_pool"])]
        name = f"{self.method} pool" if self.method != "unknown" else "pool"
        own: dict[str, Any] = {
            "color": style.colors([self.method])[self.method],
            "markersize": 4.0 if few else 2.4,
            "zorder": 4,
        }
        ax.plot(shown["trafo_mean"], shown["trafo_pool"], label=name, **dots, **own)
        scale = LATENT_SCALES.get(self.latent, f"{self.latent} scale")
        ax.set_xlabel(f"mean of members, {scale}")
        ax.set_ylabel(f"members and pool, {scale}")
        style.legend_beside(ax, markerscale=1.6)
