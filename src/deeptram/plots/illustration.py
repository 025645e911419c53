r"""How a transformation model works, for one row: P(Y <= y) = F_Z(h(y)) (Fig. 1 and eq. 4 of the paper)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from deeptram._validation import check_integer, check_number
from deeptram.errors import InvalidInputError
from deeptram.latent import Latent
from deeptram.plots import grid as evaluation
from deeptram.plots.display import Display
from deeptram.plots.style import POOL_COLORS, SHADE_COLOR, TRAFO_LABELS, UNSHADED_COLOR, reference_line
from deeptram.predictive.base import Predictive
from deeptram.predictive.count import CountPredictive

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TAIL = 0.995  # the latent axis shows at least the middle of F_Z up to this probability


def illustration(
    pred: Predictive, *, row: int = 0, at: Any = None, grid: Any = None, latent: str | Latent | None = None
) -> IllustrationDisplay:
    r"""Show the density of Y, the transformation h, and the latent density of one row (Fig. 1).

    The probability of an outcome up to ``at`` is the shaded area above h, and the same
    area under the latent density left of h: :math:`P(Y \le y) = P(Z \le h(y))`.

    Parameters
    ----------
    pred : Predictive
    row : int
    at : value or level, optional
        The outcome whose probability is shaded; by default the median.
    grid : array-like, optional
        Where to evaluate outcomes on the line.
    latent : str or Latent, optional
        Scale of h; by default the distribution's own.

    Returns
    -------
    Display
        ``frame()`` has the columns ``y, density, cdf, h``.

    Examples
    --------
    >>> pred = Predictive.from_proba([[0.2, 0.5, 0.3]], levels=["low", "mid", "high"])
    >>> illustration(pred).frame().round(3)
          y  density  cdf      h
    0   low      0.2  0.2 -1.386
    1   mid      0.5  0.7  0.847
    2  high      0.3  1.0    inf
    """
    groups = evaluation.named_groups({"prediction": pred})
    rows = evaluation.chosen_rows(check_integer(row, "row", -len(pred), len(pred) - 1), len(pred))
    one = groups["prediction"][0][rows]
    points = evaluation.common_grid({"prediction": [one]}, [0], grid)
    scale = evaluation.common_scale(groups, latent)
    h = evaluation.trafo_values(one, points, scale)[0]
    h = np.append(h, np.full(len(points) - len(h), np.inf))  # the last level has all the probability
    table = pd.DataFrame(
        {
            "y": points,
            "density": evaluation.density_values(one, points)[0],
            "cdf": evaluation.cdf_values(one, points)[0],
            "h": h,
        }
    )
    steps = one.levels is not None or isinstance(one, CountPredictive)
    return IllustrationDisplay(table, scale, _place(table, at, levels=one.levels), steps)


@dataclass(frozen=True, eq=False)
class IllustrationDisplay(Display):
    """The distribution of Y above its transformation, the latent distribution beside it.

    Parameters
    ----------
    table : DataFrame
        Columns ``y, density, cdf, h``.
    latent : Latent
    place : int
        Position in the table up to which the probability is shaded.
    steps : bool
        Whether the outcome has levels or counts.
    """

    latent: Latent
    place: int
    steps: bool

    @property
    def size(self) -> tuple[float, float]:
        """Width and height in inches."""
        return 4.6, 4.2

    def _draw(self, ax: Axes) -> None:
        ax.set_axis_off()
        upper = ax.inset_axes((0.36, 0.62, 0.64, 0.38))
        lower = ax.inset_axes((0.36, 0.0, 0.64, 0.58), sharex=upper)
        left = ax.inset_axes((0.0, 0.0, 0.32, 0.58), sharey=lower)
        x = np.arange(len(self.table)) if self.steps else self.table["y"].to_numpy(dtype=np.float64)
        h = self.table["h"].to_numpy(dtype=np.float64)
        ends = self._ends(h)
        self._draw_density(upper, x)
        self._draw_trafo(lower, x, h, ends)
        self._draw_latent(left, h[self.place], ends)

    def _ends(self, h: Any) -> tuple[float, float]:
        finite = h[np.isfinite(h)]
        low, high = (float(self.latent.icdf(np.array(q))) for q in (1 - TAIL, TAIL))
        return min(low, *finite) - 0.4, max(high, *finite) + 0.4

    def _draw_density(self, ax: Axes, x: Any) -> None:
        density = self.table["density"].to_numpy(dtype=np.float64)
        below = np.arange(len(x)) <= self.place
        if self.steps:
            ax.bar(x, density, width=0.5, color=np.where(below, SHADE_COLOR, UNSHADED_COLOR).tolist())
        else:
            ax.plot(x, density, color="black")
            ax.fill_between(x[below], density[below], color=SHADE_COLOR, alpha=0.6, linewidth=0)
        ax.set_ylim(0, 1.12 * float(density.max()))
        ax.set_ylabel("P(Y = y)" if self.steps else "density of Y")
        ax.tick_params(labelbottom=False)
        probability = float(self.table["cdf"].iloc[self.place])
        ax.set_title(f"P(Y ≤ {self._name()}) = {probability:.2f}", loc="left")

    def _draw_trafo(self, ax: Axes, x: Any, h: Any, ends: tuple[float, float]) -> None:
        color = POOL_COLORS["transformation"]
        if self.steps:
            drawn = np.where(np.isfinite(h), h, ends[1])
            ax.step(np.append(x, x[-1] + 1), np.append(drawn, ends[1]), where="post", color=color)
            ax.plot(x[np.isfinite(h)], h[np.isfinite(h)], "o", color=color)
            ax.set_xticks(x, [str(level) for level in self.table["y"]])
            ax.set_xlim(x[0] - 0.5, x[-1] + 0.6)
        else:
            ax.plot(x, h, color=color)
            ax.set_xlim(x[0], x[-1])
        ax.set_ylim(*ends)
        self._draw_path(ax, x[self.place], h[self.place], ends)
        ax.set_xlabel("outcome y")
        ax.tick_params(labelleft=False)
        ax.text(0.04, 0.95, "h(y)", transform=ax.transAxes, va="top", color=color)

    def _draw_path(self, ax: Axes, x: float, h: float, ends: tuple[float, float]) -> None:
        line: dict[str, Any] = reference_line(linewidth=0.9)
        height = h if np.isfinite(h) else ends[1]
        ax.plot([x, x], [height, ends[1]], **line)
        ax.plot([ax.get_xlim()[0], x], [height, height], **line)

    def _draw_latent(self, ax: Axes, h: float, ends: tuple[float, float]) -> None:
        z = np.linspace(*ends, 241)
        density = np.asarray(self.latent.pdf(z))
        below = z <= h
        ax.plot(density, z, color="black")
        ax.fill_betweenx(z[below], density[below], color=SHADE_COLOR, alpha=0.6, linewidth=0)
        if np.isfinite(h):
            ax.plot([0, 1.1 * density.max()], [h, h], **reference_line(linewidth=0.9))
        ax.set_xlim(1.1 * float(density.max()), 0)  # towards h
        ax.set_xlabel(f"density of Z\n({self.latent.name})")
        ax.set_ylabel(f"h(y): {TRAFO_LABELS.get(self.latent.name, 'latent scale')}")

    def _name(self) -> str:
        value = self.table["y"].iloc[self.place]
        return str(value) if self.steps else f"{float(value):.3g}"


def _place(table: pd.DataFrame, at: Any, *, levels: Any) -> int:
    """Return the position of an outcome in the table: of a level itself, on the line of the nearest point."""
    if at is None:
        return int(np.argmax(table["cdf"].to_numpy(dtype=np.float64) >= 0.5))
    if levels is not None:
        if at not in list(levels):
            names = ", ".join(repr(level) for level in levels)
            raise InvalidInputError(f"at must be one of the levels {names}, got {at!r}; choose one of them")
        return list(levels).index(at)
    points = table["y"].to_numpy(dtype=np.float64)
    if not points[0] <= check_number(at, "at") <= points[-1]:
        raise InvalidInputError(
            f"at must be between {points[0]:.4g} and {points[-1]:.4g}, got {at!r}; choose one of these"
        )
    return int(np.argmin(np.abs(points - float(at))))
