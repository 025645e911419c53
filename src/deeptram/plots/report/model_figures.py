"""The figures in the report of a model: coefficients, effects, calibration, predictions, survival."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from deeptram.errors import DeeptramError
from deeptram.inputs import Table
from deeptram.plots.calibration import calibration, pit
from deeptram.plots.display import Display, Panel, PanelGrid, without_legend
from deeptram.plots.forest import coefficients
from deeptram.plots.profiles import profiles
from deeptram.plots.report.model_answers import SAID, Answers
from deeptram.plots.report.page import PageFigure, page_figure
from deeptram.plots.style import COUNT_COLOR, PLAIN_COLOR, say
from deeptram.plots.survival import survival
from deeptram.predictive.base import Predictive
from deeptram.predictive.discrete import DiscretePredictive
from deeptram.predictive.line import LinePredictive
from deeptram.responses import Surv

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_COLUMNS = 12  # covariates that have a curve of their own
ONE_WIDTH = 4.2  # inches of a figure alone; a phone shows it almost in full size


@dataclass(frozen=True, eq=False)
class ModelFigures:
    """Draws a model's predictions of some rows.

    Parameters
    ----------
    model : Tram or Ensemble
    X, y : data
    pred : Predictive
        Its predictions.
    level : float
        Coverage of intervals.
    coefficients : DataFrame or None
        Its coefficients with intervals, where it has any.
    """

    model: Any
    X: Any
    y: Any
    pred: Predictive
    level: float
    coefficients: pd.DataFrame | None

    def all(self, found: Answers, table: Table) -> Iterator[PageFigure]:
        """Yield every figure that there is something to show for."""
        yield from self._coefficient_figure()
        yield from self._profile_figure(found, table)
        yield from self._calibration_figures()
        times = isinstance(self.pred, LinePredictive) and self.pred.lifetimes
        words = SAID.distribution(isinstance(self.pred, DiscretePredictive), times)
        yield _one(_Distribution(self._distribution_table()), "distribution", words)
        if times:
            yield from self._survival_figure()

    def _coefficient_figure(self) -> Iterator[PageFigure]:
        table = self.coefficients
        if table is None or not np.isfinite(table[["lower", "upper"]].to_numpy(dtype=float)).any():
            return
        caption = SAID.coefficients(f"{100 * self.level:g}")
        yield _one(coefficients(table), "coefficients", caption, legend=False)

    def _profile_figure(self, found: Answers, table: Table) -> Iterator[PageFigure]:
        names = [name for name in found.importance["column"] if name in table.names][:MOST_COLUMNS]
        if not names:
            return
        display = profiles(self.model, self.X, names, level=self.level)
        relative = not hasattr(self.model, "predict_members") and display.frame()["lower"].notna().any()
        said = SAID.effects(relative)
        yield page_figure(PanelGrid(display.panels(), (3.3, 2.6)), "effects", said, about="Effect")

    def _calibration_figures(self) -> Iterator[PageFigure]:
        if not isinstance(self.pred, DiscretePredictive):
            yield _one(pit(self.y, {"model": self.pred}, level=self.level), "calibration", SAID.pit())
            return
        caption = SAID.calibration(len(self.pred.levels), self.pred.ordered)
        if self.pred.ordered or len(self.pred.levels) == 2:
            display: Display = calibration(self.y, {"model": self.pred}, cuts=10, level=self.level)
            yield _one(display, "calibration", caption)
            return
        panels = [
            Panel(str(level), self._one_against_rest(k).plot) for k, level in enumerate(self.pred.levels)
        ]
        yield page_figure(PanelGrid(panels, (3.3, 3.2)), "calibration", caption)

    def _one_against_rest(self, k: int) -> Display:
        share = np.asarray(self.pred.pmf())[:, k]
        event = np.asarray(self.pred.encode(self.y)) == k  # type: ignore[attr-defined]
        binary = Predictive.from_proba(np.column_stack([1 - share, share]), levels=(False, True))
        name = str(self.pred.levels[k])  # type: ignore[index]
        return calibration(event, {"model": binary}, cuts=10, level=self.level, event=repr(name))

    def _survival_figure(self) -> Iterator[PageFigure]:
        seen, groups = isinstance(self.y, Surv), 3 if len(self.pred) >= 60 else 1
        try:
            display = survival({"predicted": self.pred}, self.y, groups=groups)
        except DeeptramError:  # interval-censored or truncated: nothing to compare with, but a curve
            display, seen = survival({"predicted": self.pred}), False
        yield _one(display, "survival", SAID.survival(seen, groups))

    def _distribution_table(self) -> pd.DataFrame:
        if isinstance(self.pred, DiscretePredictive):
            codes = np.asarray(self.pred.encode(self.y))
            return pd.DataFrame(
                {
                    "place": [str(level) for level in self.pred.levels],
                    "predicted": np.asarray(self.pred.pmf()).mean(axis=0),
                    "observed": np.bincount(codes, minlength=len(self.pred.levels)) / len(codes),
                }
            )
        seen = self.y.observations if isinstance(self.y, Surv) else None
        outcomes = np.asarray(self.y, dtype=float) if seen is None else seen.lower[seen.exact]
        medians = np.minimum(np.asarray(self.pred.median()), getattr(self.pred, "last_time", np.inf))
        medians = medians[np.isfinite(medians)]
        edges = np.histogram_bin_edges(np.concatenate([outcomes, medians]), bins=24)
        both = [np.histogram(values, edges)[0] for values in (medians, outcomes)]
        return pd.DataFrame(
            {"place": edges[:-1], "end": edges[1:], "predicted": both[0], "observed": both[1]}
        )


@dataclass(frozen=True, eq=False)
class _Distribution(Display):
    """Bars of predictions, and outcomes as marks (levels) or steps (numbers)."""

    @property
    def size(self) -> tuple[float, float]:
        """Width and height in inches."""
        return 4.2, 2.6

    def _draw(self, ax: Axes) -> None:
        t = self.table
        if "end" in t:
            bars: Any = {"align": "edge", "color": COUNT_COLOR, "label": "predicted medians"}
            ax.bar(t["place"], t["predicted"], t["end"] - t["place"], **bars)
            line: Any = {"baseline": None, "color": PLAIN_COLOR, "linewidth": 1.4, "label": "observed"}
            ax.stairs(t["observed"], [*t["place"], t["end"].iloc[-1]], **line)
            ax.set(xlabel="outcome", ylabel="rows")
            return
        places = range(len(t))
        look: Any = {"color": COUNT_COLOR, "width": 0.7, "label": "mean predicted probability"}
        for bar, value in zip(ax.bar(places, t["predicted"], **look), t["predicted"], strict=True):
            say(bar, [f"predicted {100 * value:.1f} %"])
        (marks,) = ax.plot(places, t["observed"], "D", color=PLAIN_COLOR, label="observed frequency")
        say(marks, [f"observed {100 * value:.1f} %" for value in t["observed"]])
        ax.set_xticks(list(places), list(t["place"]))
        ax.set(xlabel="level", ylabel="share of rows", ylim=(0, None))


def _one(display: Display, name: str, caption: str, *, legend: bool = True) -> PageFigure:
    """Return a display as a figure of one panel, its legend on the page."""

    def draw(ax: Axes) -> None:
        display.plot(ax)
        without_legend(ax)

    width, height = display.size
    grid = PanelGrid([Panel("", draw)], (min(width, ONE_WIDTH), height), legend=legend)
    return page_figure(grid, name, caption)
