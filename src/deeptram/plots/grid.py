"""Predictive distributions evaluated on a grid, as tidy tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch

from deeptram import latent as latents
from deeptram._arrays import as_numpy
from deeptram._validation import as_float
from deeptram.errors import InvalidInputError, InvalidTypeError, UnsupportedError
from deeptram.latent import Latent
from deeptram.predictive.base import NumericPredictive, Predictive
from deeptram.predictive.count import CountPredictive
from deeptram.predictive.discrete import DiscretePredictive
from deeptram.predictive.rows import grid_values

Floats = npt.NDArray[np.float64]
Groups = dict[str, list[Predictive]]
GRID_POINTS = 301
OUTER = (0.001, 0.999)
BEYOND = 1.2  # of the last observed lifetime: how far curves go on
SHOWN_ROWS = 5


def named_groups(pred: Any, X: Any = None) -> Groups:
    """Return distributions by name, of models those they predict; a list under a name is a group of members.

    Parameters
    ----------
    pred : Predictive, model or list of these, or dict of name -> these
    X : data, optional
        What models predict from.

    Examples
    --------
    >>> one = Predictive.from_proba([[0.4, 0.6]])
    >>> {name: len(group) for name, group in named_groups({"members": [one, one], "pool": one}).items()}
    {'members': 2, 'pool': 1}
    """
    groups = named_members(pred, X)
    flat = [(name, entry) for name, group in groups.items() for entry in group]
    if not flat:
        raise InvalidInputError("expected at least one Predictive to draw, got none; pass a distribution")
    first_name, first = flat[0]
    for name, entry in flat:
        if entry.kind != first.kind or entry.levels != first.levels or len(entry) != len(first):
            raise InvalidInputError(
                f"distributions in one figure must have the same rows and levels, got {_described(first)} "
                f"for {first_name!r} and {_described(entry)} for {name!r}; draw them separately"
            )
    return groups


def named_members(pred: Any, X: Any = None) -> Groups:
    """Return the same without asking whether all can stand in one figure; not one name is without members.

    Parameters
    ----------
    pred, X
        As for :func:`named_groups`.

    Examples
    --------
    >>> list(named_members([Predictive.from_proba([[0.4, 0.6]])]))
    ['members']
    """
    entries = {
        name: entry if isinstance(entry, (list, tuple)) else [entry] for name, entry in _named(pred).items()
    }
    for name, group in entries.items():
        if not group:
            raise InvalidInputError(
                f"{name!r} must hold at least one Predictive, got an empty list; leave it out"
            )
    return {name: [_predicted(name, one, X) for one in group] for name, group in entries.items()}


def named_predictions(predictions: Any, X: Any = None) -> dict[str, Predictive]:
    """Return distributions by name, of models those they predict.

    Parameters
    ----------
    predictions : Predictive or model, or dict of name -> these
    X : data, optional
        What models predict from.

    Examples
    --------
    >>> list(named_predictions(Predictive.from_proba([[0.4, 0.6]])))
    ['prediction']
    """
    return {name: _predicted(name, one, X) for name, one in _named(predictions).items()}


def _named(entries: Any) -> dict[str, Any]:
    """Return what is to be drawn by name; one alone is called what it is."""
    if isinstance(entries, Mapping):
        return {str(name): entry for name, entry in entries.items()}
    if not isinstance(entries, Predictive):
        return {"members" if isinstance(entries, (list, tuple)) else type(entries).__name__: entries}
    return {"prediction" if entries.pool_info is None else str(entries.pool_info.method): entries}


def _predicted(name: str, one: Any, X: Any) -> Predictive:
    if isinstance(one, Predictive):
        return one
    if not hasattr(one, "predict_distribution"):
        raise InvalidTypeError(
            f"{name!r} must be a Predictive or a fitted model, got {type(one).__name__}; "
            "build it with Predictive.from_proba, from_cdf, from_scipy, ..."
        )
    if X is None:
        raise InvalidInputError(f"the model {name!r} needs rows to predict, got no X; pass X=")
    predicted: Predictive = one.predict_distribution(X)
    return predicted


def chosen_rows(rows: Any, n: int) -> list[int]:
    """Return the rows to draw; by default the first five.

    Examples
    --------
    >>> chosen_rows(None, 100), chosen_rows(-1, 100), chosen_rows([3, 1], 100)
    ([0, 1, 2, 3, 4], [99], [3, 1])
    """
    if rows is None:
        return list(range(min(n, SHOWN_ROWS)))
    index = np.arange(n)[rows] if isinstance(rows, slice) else np.atleast_1d(np.asarray(rows))
    if index.dtype.kind == "b" and index.shape == (n,):
        index = np.flatnonzero(index)
    if index.ndim != 1 or index.dtype.kind not in "iu" or (index >= n).any() or (index < -n).any():
        raise InvalidInputError(
            f"rows must be row numbers below {n}, got {rows!r}; pass an integer, a list of them or a slice"
        )
    return [int(row) % n for row in index]


def common_grid(groups: Groups, rows: Sequence[int], grid: Any) -> Any:
    """Return the points to draw at: the levels, integers, or a fine grid over where the probability is."""
    everything = [entry for group in groups.values() for entry in group]
    first = everything[0]
    if isinstance(first, DiscretePredictive):
        if grid is not None:
            raise UnsupportedError(
                f"grid is for outcomes on the line, got one for the levels {list(first.levels)[:3]}...; "
                "leave it out"
            )
        return list(first.levels)
    if grid is not None:
        points = as_float(grid, "grid")
        if points.ndim != 1 or len(points) < 2 or not np.isfinite(points).all():
            raise InvalidInputError(
                f"grid must hold at least two finite numbers, got {grid!r}; use numpy.linspace"
            )
        return points
    return _default_grid([entry[list(rows)] for entry in everything])


def curve_table(
    groups: Groups,
    rows: Sequence[int],
    points: Any,
    value: str,
    function: Callable[[Predictive, Any], Floats],
) -> pd.DataFrame:
    """Return the table ``name, member, row, y, <value>`` of a function of every distribution.

    Parameters
    ----------
    groups : dict
        As from ``named_groups``.
    rows : sequence of int
    points : sequence of G values of y
    value : str
        Name of the last column.
    function : callable
        ``function(pred, points)`` gives the values, shape (n, G).
    """
    tables = []
    for name, group in groups.items():
        for member, pred in enumerate(group):
            values = function(pred[list(rows)], points)
            tables.append(
                pd.DataFrame(
                    {
                        "name": name,
                        "member": member,
                        "row": np.repeat(list(rows), len(points)),
                        "y": pd.Series(list(points) * len(rows)),
                        value: values.ravel(),
                    }
                )
            )
    return pd.concat(tables, ignore_index=True)


def cdf_values(pred: Predictive, points: Any) -> Floats:
    """Return P(Y <= y) at common points, shape (n, G)."""
    return numpy_of(pred.cdf_grid(points))


def density_values(pred: Predictive, points: Any) -> Floats:
    """Return the density at common points, or the probability of levels and counts, shape (n, G)."""
    return np.exp(log_density_values(pred, points))


def log_density_values(pred: Predictive, points: Any) -> Floats:
    """Return the log of ``density_values``, from the log scale, shape (n, G)."""
    return numpy_of(_with_methods(pred).log_density_t(*_places(pred, points)))


def trafo_values(pred: Predictive, points: Any, latent: Latent) -> Floats:
    """Return F_Z^-1(P(Y <= y)) at common points (levels: all but the last), shape (n, G)."""
    return numpy_of(_with_methods(pred).trafo_t(*_places(pred, points), latent))


def _places(pred: Predictive, points: Any) -> tuple[torch.Tensor, ...]:
    """Return where a distribution is read: levels everywhere at once, numbers on a common grid."""
    return () if pred.levels is not None else (grid_values(points, getattr(pred, "dtype", torch.float64)),)


def _with_methods(pred: Predictive) -> Any:
    if isinstance(pred, (DiscretePredictive, NumericPredictive)):
        return pred
    raise UnsupportedError(f"cannot draw a {type(pred).__name__}; build it with Predictive.from_*")


def common_scale(groups: Groups, latent: str | Latent | None) -> Latent:
    """Return F_Z to draw on: as asked for, else the one that all distributions share, else logistic."""
    if latent is not None:
        return latents.get(latent)
    own = {entry.latent for group in groups.values() for entry in group if entry.latent is not None}
    return own.pop() if len(own) == 1 else latents.get("logistic")


def numpy_of(values: Any) -> Floats:
    """Return what a distribution answered, array or tensor, as float64."""
    return np.asarray(as_numpy(values) if isinstance(values, torch.Tensor) else values, dtype=np.float64)


def _default_grid(preds: Sequence[Any]) -> Floats:
    ends = np.concatenate(
        [numpy_of(pred.quantile_t(torch.tensor(OUTER, dtype=pred.dtype))).ravel() for pred in preds]
    )
    ends = ends[np.isfinite(ends)]
    if len(ends) < 2 or ends.min() == ends.max():
        raise InvalidInputError(
            "the range to draw cannot be found, because the outer quantiles are infinite or equal; pass grid="
        )
    if isinstance(preds[0], CountPredictive):
        return np.arange(ends.min(), ends.max() + 1.0)
    last = max(getattr(pred, "last_time", np.inf) for pred in preds)
    stop = min(ends.max(), BEYOND * last) if BEYOND * last > ends.min() else ends.max()
    return np.linspace(ends.min(), stop, GRID_POINTS)


def _described(pred: Predictive) -> str:
    levels = "" if pred.levels is None else f" on {len(pred.levels)} levels"
    return f"{len(pred)} {pred.kind} rows{levels}"
