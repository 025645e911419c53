r"""Test images with their predicted distributions and what the members disagree about.

For each image the transformation ensemble's probabilities, those of its members,
and the band :math:`F_Z(\bar h \pm 2\,\mathrm{sd}(h_m))` of its CDF (Fig. 4C of the paper).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deeptram.ensemble.epistemic import epistemic_band
from deeptram.errors import FileFormatError
from deeptram.paper import storage
from deeptram.paper.config import Unit
from deeptram.paper.members import load_coefficients, load_parts, load_predictions
from deeptram.paper.report.results import RunView
from deeptram.paper.storage import RunFolder
from deeptram.plots.report.page import png_address
from deeptram.plots.report.whatif import WhatIf, shifted_rows
from deeptram.pooling import pool
from deeptram.predictive.base import Predictive
from deeptram.predictive.discrete import DiscretePredictive

Floats = NDArray[np.float64]
PER_KIND = 6
OFFERED = 12  # rows of the what-if view
WIDTH = 2.0  # standard deviations of the band


@dataclass(frozen=True)
class Card:
    """One image with its prediction.

    Attributes
    ----------
    image : str
        Address of the picture.
    truth, guess : str
    kind : {"sure", "unsure", "wrong"}
    bars : tuple of Bar
    """

    image: str
    truth: str
    guess: str
    kind: str
    bars: tuple[Bar, ...]


@dataclass(frozen=True)
class Bar:
    """One class of one image: probability, members' probabilities, CDF and its epistemic band."""

    level: str
    probability: float
    members: tuple[float, ...]
    cdf: float
    lower: float
    upper: float
    is_truth: bool


@dataclass(frozen=True)
class Gallery:
    """Cards, and which ensemble they are predictions of."""

    model: str
    loss: str
    split: int
    cards: tuple[Card, ...]


def make_gallery(run: RunFolder, view: RunView) -> Gallery | None:
    """Return test images with the predictions of the best ensemble; None without images or ensembles.

    Parameters
    ----------
    run : RunFolder
    view : RunView
    """
    found = _shown_ensemble(run, view)
    if found is None:
        return None
    cards = _cards(found.images, found.outcomes, found.members, found.levels)
    return Gallery(found.model, found.loss, found.split, tuple(cards))


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
    tables = [load_coefficients(run, unit).set_index("variable")["estimate"] for unit in found.units]
    seen = found.outcomes[shown]
    labels = [f"image {k + 1}, observed {found.levels[code]}" for k, code in enumerate(seen)]
    changes = {variable: f"change of {variable}" for variable in tables[0].index}
    heights = [np.asarray(member.trafo_t())[shown] for member in found.members]
    return found.model, shifted_rows(heights, tables, changes, found.levels, labels)


@dataclass(frozen=True, eq=False)
class _ShownEnsemble:
    """The best ensemble of the split that the stored images are from, and its predictions of them."""

    model: str
    loss: str
    split: int
    images: NDArray[Any]
    outcomes: NDArray[np.int64]
    levels: list[str]
    units: list[Unit]
    members: list[DiscretePredictive]


def _shown_ensemble(run: RunFolder, view: RunView, *, linear: bool = False) -> _ShownEnsemble | None:
    """Return the best ensemble, if asked with a linear shift; None without images or ensembles."""
    if storage.GALLERY not in view.config["files"]:
        return None
    images, split, rows = _stored(run)
    chosen = _best_ensemble(view, split, linear=linear)
    if chosen is None:
        return None
    codes, splits = load_parts(run)
    levels = [str(level) for level in view.config["levels"]]
    done = run.finished(view.study, run.data_digests())
    units = [unit for unit in done if (unit.model, unit.loss, unit.split) == (*chosen, split)]
    known = tuple(range(len(levels)))
    members = [load_predictions(run, unit, known)["test"][rows] for unit in units]
    outcomes = np.asarray(codes[splits[split - 1].test[rows]])
    return _ShownEnsemble(*chosen, split, images, outcomes, levels, units, members)


def cdf_band(members: list[DiscretePredictive], pooled: Predictive) -> tuple[Floats, Floats]:
    r"""Return the limits :math:`F_Z(\bar h \pm 2\,\mathrm{sd}(h_m))` of the CDF, each (n, K).

    One member has no band.

    Parameters
    ----------
    members : list of M DiscretePredictive
        With equal weights.
    pooled : Predictive
        Their transformation pool.

    Examples
    --------
    >>> one = DiscretePredictive.from_h(np.zeros((1, 1)))
    >>> cdf_band([one, one], one)
    (array([[0.5, 1. ]]), array([[0.5, 1. ]]))
    """
    equal = np.full(len(members), 1 / len(members))
    band = epistemic_band(members, pooled, equal, "cdf", None, WIDTH)
    limits = [band[name].fillna(band["estimate"]).to_numpy() for name in ("lower", "upper")]
    ones = np.ones((len(pooled), 1))
    lower, upper = (np.hstack([one.reshape(len(pooled), -1), ones]) for one in limits)
    return lower, upper


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


def _stored(run: RunFolder) -> tuple[NDArray[Any], int, NDArray[np.int64]]:
    """Return the images, the split they are from and their positions in its test part."""
    path, expected = run.file(storage.GALLERY)
    names = ("images", "split", "position")
    arrays = storage.read_arrays(path, expected, names)
    images, split, rows = (arrays[name] for name in names)
    _, splits = load_parts(run)
    right = (
        images.dtype == np.uint8 and images.ndim in (3, 4) and images.shape[3:] in ((), (3,)) and images.size
    )
    right = right and rows.shape == (len(images),) and rows.dtype.kind in "iu" and rows.min() >= 0
    right = right and split.shape == () and split.dtype.kind in "iu" and 1 <= split <= len(splits)
    right = right and rows.max() < len(splits[int(split) - 1].test)
    if not right:
        raise FileFormatError(
            f"{path} must hold test images and their rows, got something else; delete it and run again"
        )
    return images, int(split), rows.astype(np.int64)


def _cards(
    images: NDArray[Any], y: NDArray[np.int64], members: list[DiscretePredictive], names: list[str]
) -> list[Card]:
    pooled = pool(members, method="transformation")
    probability, cdf = np.asarray(pooled.pmf()), np.asarray(pooled.cdf())
    of_members = np.stack([member.pmf() for member in members])
    lower, upper = cdf_band(members, pooled)
    cards = []
    for kind, rows in choose_rows(probability, y).items():
        for i in rows:
            bars = tuple(
                Bar(
                    name,
                    float(probability[i, k]),
                    tuple(float(p) for p in of_members[:, i, k]),
                    float(cdf[i, k]),
                    float(lower[i, k]),
                    float(upper[i, k]),
                    bool(y[i] == k),
                )
                for k, name in enumerate(names)
            )
            guess = names[int(probability[i].argmax())]
            cards.append(Card(png_address(images[i]), names[y[i]], guess, kind, bars))
    return cards


def _best_ensemble(view: RunView, split: int, *, linear: bool = False) -> tuple[str, str] | None:
    """Return model and loss of the ensemble with the smallest NLL, if asked with a linear shift."""
    table = view.tables.metrics
    chosen = table[
        (table["method"] == "transformation")
        & (table["weights"] == "equal")
        & (table["metric"] == "nll")
        & (table["split"] == split)
    ]
    if linear:
        chosen = chosen[chosen["model"].str.endswith("LS")]
    if chosen.empty:
        return None
    best = chosen.sort_values(["loss", "estimate"], kind="stable").iloc[0]
    return str(best["model"]), str(best["loss"])
