"""How deeptram's figures look: one colour per pool everywhere, fonts, legends. Nothing global is changed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Okabe and Ito's palette, which stays distinguishable with every common colour vision deficiency.
POOL_COLORS = {
    "linear": "#D55E00",
    "log-linear": "#009E73",
    "log-linear-density": "#CC79A7",
    "transformation": "#0072B2",
    "quasi-arithmetic": "#E69F00",
}
POOL_MARKERS = {
    "linear": "o",
    "log-linear": "s",
    "log-linear-density": "v",
    "transformation": "D",
    "quasi-arithmetic": "^",
}
OTHER_COLORS = ("#000000", "#56B4E9", "#E69F00", "#8B5A2B", "#CC79A7", "#009E73", "#D55E00", "#0072B2")
OTHER_MARKERS = ("o", "s", "D", "^", "v", "P", "X", "*")
MEMBER_COLOR = "#9A9A9A"
REFERENCE_COLOR = "#666666"
AVERAGE_COLOR = "#000000"
AVERAGE = "average"

RC = {
    "font.size": 9.0,
    "axes.labelsize": 9.0,
    "axes.titlesize": 9.5,
    "xtick.labelsize": 8.0,
    "ytick.labelsize": 8.0,
    "legend.fontsize": 8.0,
    "legend.frameon": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.8,
    "axes.grid": False,
    "lines.linewidth": 1.6,
    "lines.markersize": 4.5,
}

TRAFO_LABELS = {
    "logistic": "log odds of Y ≤ y",
    "normal": "probit of P(Y ≤ y)",
    "minimum-extreme-value": "log cumulative hazard",
    "maximum-extreme-value": "−log(−log P(Y ≤ y))",
}

METRIC_LABELS = {
    "nll": "NLL",
    "rps": "RPS",
    "brier": "Brier score",
    "quadratic": "quadratic score",
    "crps": "CRPS",
    "accuracy": "accuracy",
    "qwk": "quadratic weighted κ",
    "auc": "AUC",
    "citl": "calibration in the large",
    "calibration_slope": "calibration slope",
}
SMALLER_IS_BETTER = ("nll", "rps", "brier", "quadratic", "crps")
LARGER_IS_BETTER = ("accuracy", "qwk", "auc")
IDEAL = {"citl": 0.0, "calibration_slope": 1.0}


@contextmanager
def paper_style() -> Iterator[None]:
    """Draw with the fonts and lines of deeptram's figures; the settings before hold again afterwards.

    Examples
    --------
    >>> import matplotlib
    >>> with paper_style():
    ...     matplotlib.rcParams["legend.frameon"]
    False
    >>> matplotlib.rcParams["legend.frameon"]
    True
    """
    import matplotlib

    settings: Any = RC
    with matplotlib.rc_context(settings):
        yield


def pool_of(name: str) -> str | None:
    """Return the pool that a name speaks of ("linear, tuned" is the linear pool), or None.

    Examples
    --------
    >>> pool_of("log-linear, tuned"), pool_of("linear"), pool_of("CI-LS")
    ('log-linear', 'linear', None)
    """
    found = [pool for pool in POOL_COLORS if name.lower().startswith(pool)]
    return max(found, key=len) if found else None


def colors(names: Sequence[str]) -> dict[str, str]:
    """Return a colour for each name: pools and "average" have their own, the others take turns.

    Examples
    --------
    >>> colors(["average", "transformation", "SI-LS"])
    {'average': '#000000', 'transformation': '#0072B2', 'SI-LS': '#56B4E9'}
    """
    fixed = {AVERAGE: AVERAGE_COLOR} if AVERAGE in names else {}
    fixed |= {name: POOL_COLORS[pool] for name in names if (pool := pool_of(name)) is not None}
    free = [color for color in OTHER_COLORS if color not in fixed.values()]
    return _in_turn(names, fixed, free)


def markers(names: Sequence[str]) -> dict[str, str]:
    """Return a marker for each name, so that no figure depends on colour alone.

    Examples
    --------
    >>> markers(["average", "transformation"])
    {'average': 'o', 'transformation': 'D'}
    """
    fixed = {name: POOL_MARKERS[pool] for name in names if (pool := pool_of(name)) is not None}
    return _in_turn(names, fixed, OTHER_MARKERS)


def sequence_colors(n: int) -> list[tuple[float, float, float, float]]:
    """Return n colours from dark to light for things in an order (rows, thresholds).

    Examples
    --------
    >>> len(sequence_colors(3))
    3
    """
    import matplotlib

    shades = matplotlib.colormaps["viridis"](np.linspace(0.0, 0.8, max(n, 2))[:n])
    return [(float(r), float(g), float(b), float(a)) for r, g, b, a in shades]


def legend_beside(ax: Axes, **options: Any) -> None:
    """Put the legend to the right of the axes, where it covers no data; none without labelled artists."""
    handles, labels = ax.get_legend_handles_labels()
    if handles:
        ax.legend(
            handles, labels, loc="center left", bbox_to_anchor=(1.01, 0.5), borderaxespad=0.3, **options
        )


def metric_label(metric: str) -> str:
    """Return what a metric is called on an axis.

    Examples
    --------
    >>> metric_label("nll"), metric_label("my metric")
    ('NLL', 'my metric')
    """
    return METRIC_LABELS.get(metric, metric)


def metric_hint(metric: str) -> str:
    """Say which direction of a metric is good; nothing if that is not known.

    Examples
    --------
    >>> metric_hint("nll"), metric_hint("calibration_slope")
    ('smaller is better', 'ideal: 1')
    """
    if metric in SMALLER_IS_BETTER:
        return "smaller is better"
    if metric in LARGER_IS_BETTER:
        return "larger is better"
    return f"ideal: {IDEAL[metric]:g}" if metric in IDEAL else ""


def _in_turn(names: Sequence[str], fixed: dict[str, str], free: Sequence[str]) -> dict[str, str]:
    others = [name for name in dict.fromkeys(names) if name not in fixed]
    turns = {name: free[k % len(free)] for k, name in enumerate(others)}
    return {name: fixed.get(name, turns.get(name, "")) for name in names}
