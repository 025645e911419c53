"""How all figures look: colours, markers, labels. Nothing global is changed."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from deeptram.evaluation import metrics

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

# Okabe and Ito's palette, which stays distinguishable with every common colour vision deficiency.
_POOLS = {
    "linear": ("#D55E00", "o"),
    "log-linear": ("#009E73", "s"),
    "log-linear-density": ("#CC79A7", "v"),
    "transformation": ("#0072B2", "D"),
    "quasi-arithmetic": ("#E69F00", "^"),
    "quantile": ("#56B4E9", "P"),
    "median": ("#8B5A2B", "X"),
    "trimmed-mean": ("#999933", "*"),
    "beta-linear": ("#882255", "h"),
}
POOL_COLORS = {name: color for name, (color, _) in _POOLS.items()}
# Colours of what is no pool; none of them looks like that of one.
OTHER_COLORS = ("#000000", "#332288", "#EE3377", "#661100", "#777777", "#9933FF", "#334400", "#AA4499")
OTHER_MARKERS = ("o", "s", "D", "^", "v", "P", "X", "*")
MEMBER_SHADES = ("#0B3C5D", "#328CC1", "#D9B310", "#7A9E7E", "#B85042", "#8E6C8A", "#5C5C5C", "#A3B1BF")
MEMBER_COLOR = "#9A9A9A"
REFERENCE_COLOR = "#666666"
GUIDE_COLOR = "#EBEBEB"
BAND_COLOR = "#E6E6E6"
COUNT_COLOR = "#BDBDBD"
PLAIN_COLOR = "#5B7FA3"
SHADE_COLOR, UNSHADED_COLOR = "#56B4E9", "#DDDDDD"
AVERAGE_COLOR = "#000000"
SINGLE_COLOR = "#555555"
PUBLISHED_COLOR = "#B8860B"
TRUTH_COLOR = "#CC3311"
AVERAGE = "average"
AVERAGES = (AVERAGE, "members", "members' average")
DASHED = (0, (4, 3))
OUTCOME = "outcome y"  # on axes of outcomes
WORDS = "words:"  # begins the identifier of artists that carry the words of their marks

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

METHOD_LABELS = {
    "single": "single model",
    "average": "members' average",
    "linear": "linear ensemble",
    "log-linear": "log-linear ensemble",
    "transformation": "transformation ensemble",
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
    "concordance": "concordance index",
    "ibs": "integrated Brier score",
    "brier_survival": "Brier score (censored)",
    "auc_survival": "AUC at times",
    "d_calibration": "D-calibration χ²",
    "coverage": "coverage",
    "pinball": "pinball loss",
    "interval_score": "interval score",
    "wis": "weighted interval score",
}
_METRICS = {name: metrics.get(name) for name in metrics.names()}
SMALLER_IS_BETTER = tuple(name for name, one in _METRICS.items() if one.sign < 0)
IDEAL = {name: one.ideal for name, one in _METRICS.items() if one.ideal is not None}


@dataclass(frozen=True)
class Look:
    """Colour, marker (in matplotlib's words) and name of what is compared in a figure."""

    color: str
    marker: str
    label: str


@dataclass(frozen=True)
class Mark:
    """A small mark beside the estimates; without a colour it has that of its group."""

    marker: str
    size: float
    alpha: float
    zorder: int
    color: str | None = None
    hollow: bool = False
    label: str | None = None

    def matplotlib(self, color: str | None) -> dict[str, Any]:
        """Return the options of ``Axes.plot``; ``color`` is that of the group."""
        shown = self.color or color
        face = {"markerfacecolor": "none", "markeredgewidth": 1.2} if self.hollow else {}
        options: dict[str, Any] = {"color": shown, "markersize": self.size, "alpha": self.alpha}
        return {**options, "zorder": self.zorder, "label": self.label, **face}


MARKS = {
    "split": Mark(".", 2.6, 0.4, 2),
    "member": Mark("o", 2.6, 0.6, 2, MEMBER_COLOR, label="single members"),
    "published": Mark("D", 7.0, 1.0, 5, PUBLISHED_COLOR, hollow=True, label="published"),
    "truth": Mark("|", 7.0, 1.0, 5, TRUTH_COLOR, label="truth"),
}


@contextmanager
def paper_style(changes: Mapping[str, Any] | None = None) -> Iterator[None]:
    """Draw with the fonts and lines of deeptram's figures; the settings before hold again afterwards.

    Parameters
    ----------
    changes : mapping, optional
        Further settings of matplotlib.

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

    others = matplotlib.rcsetup.cycler(color=OTHER_COLORS)  # so that no curve looks like a pool by chance
    settings: Any = {**RC, "axes.prop_cycle": others, **(changes or {})}
    with matplotlib.rc_context(settings):
        yield


def pool_of(name: str) -> str | None:
    """Return the pool that a name speaks of ("linear, tuned" is the linear pool), or None.

    Examples
    --------
    >>> pool_of("log-linear, tuned"), pool_of("CI-LS: linear"), pool_of("CI-LS")
    ('log-linear', 'linear', None)
    """
    found = [pool for pool in POOL_COLORS if _method(name).startswith(pool)]
    return max(found, key=len) if found else None


def _method(name: str) -> str:
    """Return the last part of a name such as "CI-LS: linear", which says how it was made."""
    return name.rpartition(": ")[2].lower()


def looks(names: Sequence[str], *, labelled: bool = False) -> dict[str, Look]:
    """Return colour, marker and label of each name, so that no figure depends on colour alone.

    Pools and averages of members have their own, the others one each.

    Parameters
    ----------
    names : sequence of str
    labelled : bool
        Whether names stand where they are drawn (on lines, above panels): then colours are for pools, and
        everything else is grey.

    Examples
    --------
    >>> looks(["transformation"])
    {'transformation': Look(color='#0072B2', marker='D', label='transformation')}
    >>> [look.color for look in looks(["SI", "SI-LS"], labelled=True).values()]
    ['#555555', '#555555']
    """
    fixed = {name: (AVERAGE_COLOR, "o") for name in names if _method(name) in AVERAGES}
    fixed |= {name: _POOLS[pool] for name in names if (pool := pool_of(name)) is not None}
    others = [name for name in dict.fromkeys(names) if name not in fixed]
    used = {color for color, _ in fixed.values()}
    free: Sequence[str] = [color for color in OTHER_COLORS if color not in used]
    free = free if len(others) <= len(free) else sequence_colors(len(others))  # no colour twice
    free = [SINGLE_COLOR] * len(others) if labelled else free
    own = {name: (free[k], OTHER_MARKERS[k % len(OTHER_MARKERS)]) for k, name in enumerate(others)}
    return {name: Look(*(fixed | own)[name], name) for name in names}


def colors(names: Sequence[str]) -> dict[str, str]:
    """Return the colour of each name.

    Examples
    --------
    >>> colors(["average", "CI: transformation", "SI-LS"])
    {'average': '#000000', 'CI: transformation': '#0072B2', 'SI-LS': '#332288'}
    """
    return {name: look.color for name, look in looks(names).items()}


def method_looks() -> dict[str, Look]:
    """Return the looks of the paper's methods: a single model, the members' average, the three ensembles.

    Examples
    --------
    >>> method_looks()["single"]
    Look(color='#555555', marker='o', label='single model')
    """
    known = {"single": (SINGLE_COLOR, "o"), AVERAGE: (AVERAGE_COLOR, "o"), **_POOLS}
    return {method: Look(*known[method], label) for method, label in METHOD_LABELS.items()}


def mark_label(kind: str, look: Look | None) -> str | None:
    """Return what a small mark is called in a legend: true values as their group says, if it does.

    Examples
    --------
    >>> mark_label("published", None), mark_label("truth", Look("red", "|", "simulated effect"))
    ('published', 'simulated effect')
    """
    return look.label if kind == "truth" and look is not None else MARKS[kind].label


def reference_line(**changes: Any) -> dict[str, Any]:
    """Return how a line to compare with looks: thin, grey and dashed.

    Examples
    --------
    >>> reference_line()["color"]
    '#666666'
    """
    return {"color": REFERENCE_COLOR, "linewidth": 0.8, "linestyle": DASHED, **changes}


def say(artist: Artist, words: Sequence[str]) -> None:
    """Give each mark of an artist the words that a page shows for it.

    Parameters
    ----------
    artist : Artist
    words : sequence of str
        One for each mark, in the order of drawing.

    Examples
    --------
    >>> from matplotlib.lines import Line2D
    >>> line = Line2D([0.0], [1.0])
    >>> say(line, ["one"])
    >>> line.get_gid()
    'words:["one"]'
    """
    artist.set_gid(WORDS + json.dumps([str(one) for one in words]))


def draw_band(
    ax: Axes,
    place: Any,
    part: pd.DataFrame,
    value: str,
    color: str,
    label: str,
    *,
    lines: bool,
    steps: bool = False,
) -> None:
    """Draw a line with its band, or dots with bars; without limits, neither band nor bars.

    Parameters
    ----------
    ax : Axes
    place : array-like
        Where each row of the table stands on the x-axis.
    part : DataFrame
        Columns ``lower``, ``upper`` and ``value``.
    value : str
        The column of the line.
    color, label : str
    lines : bool
        Whether values between the places mean something.
    steps : bool
        Whether lines jump, as distribution functions of counts do.
    """
    lower, upper = (part[name].to_numpy(dtype=float) for name in ("lower", "upper"))
    if np.isfinite(lower).all() and lines:
        jumps: Any = {"step": "post" if steps else None}
        ax.fill_between(place, lower, upper, color=color, alpha=0.22, linewidth=0, **jumps)
    elif np.isfinite(lower).all():
        ax.vlines(place, lower, upper, color=color, linewidth=1.5)
    drawn: Any = {"drawstyle": "steps-post" if steps else "default", "zorder": 3}
    ax.plot(place, part[value], "-" if lines else "o", color=color, label=label, **drawn)


def beside(values: Iterable[Any], levels: list[Any] | None, k: int = 0, n: int = 1) -> Any:
    """Return where values stand on the x-axis: numbers at themselves, levels at 0, 1, ...

    Parameters
    ----------
    values : iterable
    levels : list, optional
        In the order they are drawn; None for numbers.
    k, n : int
        Of n groups that share the levels, the k-th stands a little beside them.

    Examples
    --------
    >>> beside(["b", "a"], ["a", "b"], 1, 3).tolist(), beside([0.5, 2.0], None).tolist()
    ([1.0, 0.0], [0.5, 2.0])
    """
    if levels is None:
        return np.asarray(list(values), dtype=np.float64)
    shift = 0.3 * (k / (n - 1) - 0.5) if n > 1 else 0.0
    return np.array([levels.index(value) for value in values]) + shift


def sequence_colors(n: int) -> list[str]:
    """Return n colours from dark to light for things in an order (rows, thresholds).

    Examples
    --------
    >>> sequence_colors(3)
    ['#440154', '#31668e', '#2fb47c']
    """
    import matplotlib
    from matplotlib.colors import to_hex

    return [to_hex(shade) for shade in matplotlib.colormaps["viridis"](np.linspace(0.0, 0.65, max(n, 2))[:n])]


def log_axis(ax: Axes, which: Literal["x", "y"]) -> None:
    """Make the x- or y-axis logarithmic, with plain numbers beside it, at least a few of them.

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> ax = Figure().subplots()
    >>> _ = ax.plot([1.0, 2.0], [0.5, 3.0])
    >>> log_axis(ax, "y")
    >>> ax.get_yscale()
    'log'
    """
    from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter, StrMethodFormatter

    axis = ax.xaxis if which == "x" else ax.yaxis
    (ax.set_xscale if which == "x" else ax.set_yscale)("log")
    low, high = axis.get_view_interval()
    subs = (1.0, 1.5, 2.0, 3.0, 5.0, 7.0) if high < 12 * low else (1.0, 2.0, 5.0)
    few = LogLocator(subs=subs if high < 1000 * low else (1.0,))
    axis.set_major_locator(few if high > 3 * low else MaxNLocator(5))
    axis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axis.set_minor_formatter(NullFormatter())
    ax.tick_params(axis=which, which="minor", length=0)


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
    return metrics.get(metric).hint if metric in metrics.names() else ""
