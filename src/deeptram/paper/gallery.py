r"""Test images with their predicted distributions and what the members disagree about.

For each image the transformation ensemble's probabilities, those of its members,
and the band :math:`F_Z(\bar h \pm 2\,\mathrm{sd}(h_m))` of its CDF (Fig. 4C of the paper); over all test
rows, how wide that band is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deeptram.ensemble.epistemic import epistemic_band, split_uncertainty
from deeptram.paper.members import FittedMember, load_member, load_parts
from deeptram.paper.storage import RunFolder
from deeptram.paper.views import RunView
from deeptram.plots import wording
from deeptram.plots.display import Panel, PanelGrid
from deeptram.plots.report.page import TextTable
from deeptram.plots.report.whatif import WhatIf, shifted_rows
from deeptram.plots.style import MEMBER_COLOR, POOL_COLORS, REFERENCE_COLOR, say
from deeptram.pooling import pool
from deeptram.predictive.discrete import DiscretePredictive

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Floats = NDArray[np.float64]
PER_KIND = 6
OFFERED = 12  # rows of the what-if view
WIDTH = 2.0  # standard deviations of the band
CARD = (3.4, 1.25)  # inches
KINDS = {"sure": "Surely right", "unsure": "Unsure", "wrong": "Wrong, the worst first"}


@dataclass(frozen=True, eq=False)
class ShownEnsemble:
    """The best ensemble of the split that the stored images are from, and its predictions of them."""

    model: str
    loss: str
    split: int
    images: NDArray[Any]
    outcomes: NDArray[np.int64]
    levels: list[str]
    coefficients: list[pd.DataFrame]
    members: list[DiscretePredictive]


def gallery_panels(
    run: RunFolder, view: RunView
) -> tuple[ShownEnsemble, dict[tuple[str, str], PanelGrid]] | None:
    """Return test images with the predictions of the best ensemble; None without images or ensembles.

    Parameters
    ----------
    run : RunFolder
    view : RunView

    Returns
    -------
    ShownEnsemble, dict
        Whose predictions they are; panels by kind (its name, and in words).
    """
    found = _shown_ensemble(run, view)
    if found is None:
        return None
    pooled = pool(found.members, method="transformation")
    chosen = choose_rows(np.asarray(pooled.pmf()), found.outcomes)
    tables = prediction_tables(found.members, found.levels, found.outcomes)
    grids = {}
    for kind, rows in chosen.items():
        panels = [_card(found.images[i], tables[i], i + 1, column) for column, i in enumerate(rows)]
        if panels:
            grids[kind, KINDS[kind]] = PanelGrid(panels, CARD, legend=False)
    return found, grids


def disagreement_table(run: RunFolder, view: RunView, loss: str) -> TextTable | None:
    r"""Return how far the members are apart on the test part, split by split; None without ensembles.

    Over all rows and thresholds: the standard deviation of :math:`h_m` between members, and how wide the
    band :math:`F_Z(\bar h \pm 2\,\mathrm{sd}(h_m))` is. Over all rows: which share of the entropy of the
    members' mixture is about which of them is right (mutual information).

    Parameters
    ----------
    run : RunFolder
    view : RunView
    loss : str
    """
    rows = []
    for model in view.deep_models(loss):
        for split in view.splits:
            members = [one.predictions["test"] for one in _members(run, view, model, loss, split)]
            if len(members) < 2:
                continue
            equal = np.full(len(members), 1 / len(members))
            pooled = pool(members, method="transformation")
            spread = epistemic_band(members, pooled, equal, "trafo", None, WIDTH)["sd"]
            band = epistemic_band(members, pooled, equal, "cdf", None, WIDTH)
            entropy = split_uncertainty(members, equal).mean()
            numbers = [wording.decimal(spread.quantile(q), 2) for q in (0.5, 0.9)]
            numbers.append(wording.decimal((band["upper"] - band["lower"]).mean(), 3))
            numbers.append(f"{100 * entropy['epistemic'] / entropy['total']:.0f} %")
            rows.append([model, str(split), *numbers])
    header = ["model", "split", "sd of h, median", "90th percentile", "mean width of the band"]
    return TextTable([*header, "share of the entropy"], rows, 2) if rows else None


def prediction_tables(
    members: list[DiscretePredictive], levels: list[str], outcomes: NDArray[np.int64]
) -> list[pd.DataFrame]:
    r"""Return of each row what the transformation ensemble says about every level.

    Parameters
    ----------
    members : list of M DiscretePredictive
        Of n rows, with equal weights.
    levels : list of K str
    outcomes : array of int, shape (n,)

    Returns
    -------
    list of n DataFrame
        Columns level, probability, member_1, ..., cdf, lower, upper (the limits
        :math:`F_Z(\bar h \pm 2\,\mathrm{sd}(h_m))`; one member has no band), observed.
    """
    pooled, n = pool(members, method="transformation"), len(outcomes)
    band = epistemic_band(members, pooled, np.full(len(members), 1 / len(members)), "cdf", None, WIDTH)
    limits = {
        name: band[name].fillna(band["estimate"]).to_numpy().reshape(n, -1) for name in ("lower", "upper")
    }
    whole = {name: np.hstack([values, np.ones((n, 1))]) for name, values in limits.items()}
    each = {f"member_{m}": np.asarray(one.pmf()) for m, one in enumerate(members, start=1)}
    values = {"probability": np.asarray(pooled.pmf()), **each, "cdf": np.asarray(pooled.cdf()), **whole}
    return [
        pd.DataFrame({"level": levels, **{name: one[i] for name, one in values.items()}}).assign(
            observed=np.arange(len(levels)) == outcomes[i]
        )
        for i in range(n)
    ]


def _card(image: NDArray[Any], table: pd.DataFrame, number: int, column: int) -> Panel:
    truth, top = table.loc[table["observed"], "level"].item(), table.loc[table["probability"].idxmax()]
    title = f"Image {number}: observed {truth}, predicted {top['level']} ({100 * top['probability']:.0f} %)"
    return Panel(title, lambda ax: _draw_card(ax, image, table), column=column, table=table)


def _draw_card(ax: Axes, image: NDArray[Any], table: pd.DataFrame) -> None:
    """Draw the picture, and beside it the distribution with its band, its members, and what was observed."""
    ax.set_axis_off()
    picture, bars = ax.inset_axes((0.0, 0.0, 0.28, 1.0)), ax.inset_axes((0.33, 0.0, 0.67, 1.0))
    picture.imshow(image, cmap="gray", interpolation="none")
    picture.set_axis_off()
    place = np.arange(len(table))
    height = np.maximum(table["upper"] - table["lower"], 0.008)
    band = bars.bar(place, height, 1.0, table["lower"], color=POOL_COLORS["quasi-arithmetic"], alpha=0.32)
    drawn = bars.bar(place, table["probability"], 0.64, color=POOL_COLORS["transformation"])
    for row, steps, bar in zip(table.itertuples(), band, drawn, strict=True):
        say(steps, [f"P(Y ≤ {row.level}) = {row.cdf:.3f} ({row.lower:.3f} to {row.upper:.3f})"])
        say(bar, [f"P(Y = {row.level}) = {row.probability:.3f}"])
    for name in table.columns[table.columns.str.startswith("member_")]:
        bars.plot(place, table[name], "o", color=MEMBER_COLOR, markersize=2)
    seen = place[table["observed"]]
    bars.bar(seen, 1.03, 0.9, fill=False, edgecolor=REFERENCE_COLOR, linewidth=1.0)
    bars.set(ylim=(0, 1.05), yticks=[], xlim=(-0.6, len(table) - 0.4))
    bars.set_xticks(place, table["level"], fontsize=7)
    bars.tick_params(length=0)
    bars.spines["left"].set_visible(False)


def gallery_what_if(run: RunFolder, view: RunView) -> tuple[str, WhatIf] | None:
    r"""Return the best ensemble with a linear shift for the what-if view: its name, and what the page embeds.

    The members' h of the gallery's rows are stored; a change :math:`\Delta` of the covariates makes them
    :math:`h - \Delta'\beta`, whatever the image.

    Parameters
    ----------
    run : RunFolder
    view : RunView
    """
    found = _shown_ensemble(run, view, linear=True)
    if found is None:
        return None
    shown = np.arange(min(len(found.outcomes), OFFERED))
    tables = [table.set_index("variable")["estimate"] for table in found.coefficients]
    seen = found.outcomes[shown]
    labels = [f"image {k + 1}, observed {found.levels[code]}" for k, code in enumerate(seen)]
    changes = {variable: f"change of {variable}" for variable in tables[0].index}
    heights = [np.asarray(member.trafo_t())[shown] for member in found.members]
    return found.model, shifted_rows(heights, tables, changes, found.levels, labels)


def _shown_ensemble(run: RunFolder, view: RunView, *, linear: bool = False) -> ShownEnsemble | None:
    """Return the best ensemble, if asked with a linear shift; None without images or ensembles."""
    parts = load_parts(run)
    images, split, rows = parts.images, parts.split, parts.position
    chosen = None if images is None else _best_ensemble(view, split, linear=linear)
    if images is None or chosen is None:
        return None
    levels = [str(level) for level in view.config["levels"]]
    fitted = _members(run, view, *chosen, split)
    members = [one.predictions["test"][rows] for one in fitted]
    outcomes = parts.codes[parts.splits[split - 1].test[rows]]
    return ShownEnsemble(
        *chosen, split, images, outcomes, levels, [one.coefficients for one in fitted], members
    )


def _members(run: RunFolder, view: RunView, model: str, loss: str, split: int) -> list[FittedMember]:
    """Return the finished members of a cell."""
    done = run.finished(view.study, run.data_digests())
    units = [unit for unit in done if (unit.model, unit.loss, unit.split) == (model, loss, split)]
    return [load_member(run, unit, len(view.config["levels"])) for unit in units]


def choose_rows(probability: Floats, y: NDArray[np.int64], per_kind: int = PER_KIND) -> dict[str, list[int]]:
    """Return rows to show: surely right, unsure, and wrong, each image once.

    Parameters
    ----------
    probability : array, shape (n, K)
    y : array of int, shape (n,)
    per_kind : int

    Examples
    --------
    >>> p = np.array([[0.9, 0.1], [0.55, 0.45], [0.8, 0.2]])
    >>> choose_rows(p, np.array([0, 0, 1]), 1)
    {'sure': [0], 'unsure': [1], 'wrong': [2]}
    """
    top, guess = probability.max(axis=1), probability.argmax(axis=1)
    right = np.flatnonzero(guess == y)
    wrong = np.flatnonzero(guess != y)
    wrong = wrong[np.argsort(probability[wrong, y[wrong]], kind="stable")][:per_kind]
    sure = _one_per_class(right[np.argsort(-top[right], kind="stable")], y, per_kind)
    rest = np.setdiff1d(np.arange(len(y)), [*wrong, *sure])
    unsure = rest[np.argsort(top[rest], kind="stable")][:per_kind]
    return {"sure": sure, "unsure": unsure.tolist(), "wrong": wrong.tolist()}


def _one_per_class(rows: NDArray[np.int64], y: NDArray[np.int64], count: int) -> list[int]:
    """Return the first rows, of different classes as far as possible."""
    first: list[int] = []
    seen: set[int] = set()
    for row in rows.tolist():
        if int(y[row]) not in seen:
            seen.add(int(y[row]))
            first.append(row)
    others = [row for row in rows.tolist() if row not in first]
    return (first + others)[:count]


def _best_ensemble(view: RunView, split: int, *, linear: bool = False) -> tuple[str, str] | None:
    """Return model and loss of the ensemble with the smallest NLL, if asked with a linear shift."""
    chosen = view.tables.metrics.query(
        "method == 'transformation' and weights == 'equal' and metric == 'nll'"
    )
    chosen = chosen[(chosen["split"] == split) & (chosen["model"].str.endswith("LS") | (not linear))]
    if chosen.empty:
        return None
    best = chosen.sort_values(["loss", "estimate"], kind="stable").iloc[0]
    return str(best["model"]), str(best["loss"])
