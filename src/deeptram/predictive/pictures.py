"""Distributions as a notebook shows them: the first rows as small pictures, with a few numbers each."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from deeptram._html import bars, card, few_digits, grid
from deeptram.errors import DeeptramWarning

if TYPE_CHECKING:
    from deeptram.predictive.base import Predictive

SHOWN = 5
CELLS = 40
ENDS = (0.01, 0.99)
LEVEL = 0.9


def described(pred: Predictive) -> str:
    """Return in a line what a predictive distribution is: its class, rows, levels and scale."""
    parts = [f"n={len(pred)}"]
    if pred.levels is not None:
        parts.append(f"levels={_short(pred.levels)}")
    if pred.latent is not None:
        parts.append(f"latent={pred.latent.name!r}")
    if pred.pool_info is not None:
        parts.append(f"pool={pred.pool_info.method!r}")
    return f"{type(pred).__name__}({', '.join(parts)})"


def picture(pred: Predictive) -> str:
    """Return the first rows as a table with a small picture of each distribution."""
    few = pred[: min(SHOWN, len(pred))]
    with warnings.catch_warnings():  # a picture may reach beyond the data; a number that is asked for says so
        warnings.simplefilter("ignore", DeeptramWarning)
        table = _numbers(few) if few.levels is None else _levels(few, few.levels)
    rest = len(pred) - len(few)
    return card(described(pred), {"further rows": rest} if rest else {}, table)


def _levels(pred: Predictive, levels: Sequence[Any]) -> str:
    rows = []
    for k, probabilities in enumerate(_array(pred.pmf())):
        pairs = zip(levels, probabilities, strict=True)
        label = ", ".join(f"{level} {probability:.3f}" for level, probability in pairs)
        best = int(np.argmax(probabilities))
        shown = bars(probabilities.tolist(), label, min(150, 18 * len(levels)))
        rows.append([k, shown, levels[best], f"{probabilities[best]:.3f}"])
    return grid(["row", _short(levels), "most likely", "its probability"], rows)


def _numbers(pred: Predictive) -> str:
    tail = (1 - LEVEL) / 2
    quantiles = _array(pred.quantile([ENDS[0], tail, 0.5, 1 - tail, ENDS[1]]))
    ends = quantiles[np.isfinite(quantiles)]
    low, high = (ends.min(), ends.max()) if len(ends) else (0.0, 0.0)
    points = np.linspace(low, high if high > low else low + 1.0, CELLS + 1)
    if pred.kind == "count" and high - low < CELLS:
        points = np.arange(low - 1.0, high + 1.0)
    cells = np.diff(_array(pred.cdf_grid(points)), axis=1)
    rows = []
    for k, (mass, (_, lower, median, upper, _)) in enumerate(zip(cells, quantiles, strict=True)):
        interval = f"{few_digits(lower)} to {few_digits(upper)}"
        label = f"median {few_digits(median)}, {100 * LEVEL:g} % between {interval}"
        rows.append([k, bars(np.maximum(mass, 0.0).tolist(), label), few_digits(median), interval])
    return grid(
        ["row", f"{few_digits(low)} … {few_digits(high)}", "median", f"{100 * LEVEL:g} % interval"], rows
    )


def _array(values: Any) -> NDArray[np.float64]:
    detached = values.detach() if hasattr(values, "detach") else values
    return np.asarray(detached, dtype=float)


def _short(levels: Sequence[Any]) -> str:
    named = [str(level) for level in levels]
    return "|".join(named if len(named) <= 7 else [*named[:3], "…", named[-1]])
