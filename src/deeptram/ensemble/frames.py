"""Predictions of a table as a table: the body of streams and of partitioned data frames."""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deeptram.ensemble.coefficients import between_variance
from deeptram.ensemble.ensemble import Ensemble
from deeptram.ensemble.epistemic import quantiles as quantiles_of
from deeptram.ensemble.epistemic import split_uncertainty
from deeptram.ensemble.persistence import load
from deeptram.errors import InvalidInputError, UnknownNameError, UnsupportedError
from deeptram.predictive import DiscretePredictive, Predictive

QUANTILES = (0.025, 0.25, 0.5, 0.75, 0.975)
PREDICTION = "prediction"
_LOADED = 8  # models a process keeps, so that workers read them once and not once per part


def predict_frame(
    model: Any,
    frame: Any,
    *,
    quantiles: Sequence[float] | None = None,
    times: Sequence[float] = (),
    pooling: Any = None,
    members_spread: bool = False,
    uncertainty: bool = False,
    keep: Sequence[str] = (),
) -> pd.DataFrame:
    r"""Return the predictions of a table's rows as a table.

    The same function serves a table in memory, the parts of a stream (``deeptram predict``), and partitioned
    data: Dask's ``map_partitions``, Ray Data's ``map_batches``, Spark's ``mapInPandas``. A row's prediction
    depends on that row only, so the parts of a table give the table of its parts.

    Parameters
    ----------
    model : fitted model, Ensemble, or path of a saved one
        A path is read once per process, so that a task carries a few letters and not the model.
    frame : DataFrame, or dict of columns (images among them)
        No row at all is allowed: the result then has the right columns and types, as Dask's ``meta`` needs.
    quantiles : sequence of float, optional
        Numbers: which quantiles; default 0.025, 0.25, 0.5, 0.75, 0.975.
    times : sequence of float
        Numbers: also P(Y > t) at these values.
    pooling : str or Rule, optional
        Ensembles: another pool than their own.
    members_spread : bool
        Ensembles: also the standard deviation between members of every probability or quantile,
        :math:`\sqrt{M/(M-1) \sum_m w_m (q_m - \bar q)^2}` for equal weights, as in ``Ensemble.epistemic``.
    uncertainty : bool
        Ensembles: also total, aleatoric and epistemic uncertainty (``Ensemble.uncertainty``).
    keep : sequence of str
        Columns of ``frame`` that come first in the result, such as an identifier.

    Returns
    -------
    DataFrame
        Index of ``frame``. Classes: one column per level with its probability, and ``prediction``, the most
        likely one. Numbers: ``q0.5`` and the like, ``P(Y>t)``, and ``prediction``, the median. Then
        ``sd(low)`` or ``sd(q0.5)``, then the uncertainties. ``deeptram pool`` reads it.

    Examples
    --------
    >>> import deeptram as dt
    >>> data = dt.datasets.simulate("continuous", n=100, seed=1)
    >>> model = dt.Lm(dt.LS("x_1")).fit(data.table(), data.y)
    >>> dt.predict_frame(model, data.table()[:2], quantiles=[0.1, 0.9]).columns.tolist()
    ['q0.1', 'q0.9', 'prediction']
    """
    fitted = _loaded(os.fspath(model)) if isinstance(model, str | os.PathLike) else model
    is_table = isinstance(frame, pd.DataFrame)
    n_rows = len(frame) if is_table else len(next(iter(frame.values()), ()))
    for wanted, name in (
        (members_spread, "members_spread"),
        (uncertainty, "uncertainty"),
        (pooling, "pooling"),
    ):
        if wanted and not isinstance(fitted, Ensemble):
            raise InvalidInputError(f"{name} is for ensembles, got a single model; leave it out")
    levels = _checked_quantiles(quantiles)
    if n_rows:
        members = fitted.predict_members(frame) if isinstance(fitted, Ensemble) else []
        pooled = fitted.pool_members(members, pooling) if members else fitted.predict_distribution(frame)
        columns = _columns(pooled, levels, times)
        if members_spread:
            columns |= _spread(members, fitted.weights_, levels or QUANTILES)
        if uncertainty:
            parts = split_uncertainty(members, fitted.weights_)
            columns |= {name: parts[name].to_numpy() for name in parts}
    else:
        columns = _no_rows(fitted, levels, times, members_spread, uncertainty)
    kept = {name: np.asarray(_column(frame, name)) for name in keep}
    if both := [name for name in kept if name in columns]:
        raise InvalidInputError(
            f"kept columns need other names than predictions, got {both[0]!r} for both; rename it there"
        )
    return pd.DataFrame({**kept, **columns}, index=frame.index if is_table else None)


def quantile_column(q: float) -> str:
    """Return the name of the column of a quantile.

    Examples
    --------
    >>> quantile_column(0.05)
    'q0.05'
    """
    return f"q{float(q)!r}"


def _columns(pred: Predictive, quantiles: Sequence[float] | None, times: Sequence[float]) -> dict[str, Any]:
    if isinstance(pred, DiscretePredictive):
        _refuse_for_classes(quantiles, times)
        probabilities = np.asarray(pred.pmf())
        columns = {str(level): probabilities[:, k] for k, level in enumerate(pred.levels)}
        return {**columns, PREDICTION: pred.mode()}
    levels = quantiles or QUANTILES
    asked = levels if 0.5 in levels else (*levels, 0.5)  # the median is the prediction
    values = np.asarray(pred.quantile(list(asked)))
    columns = {quantile_column(q): values[:, k] for k, q in enumerate(levels)}
    columns |= {f"P(Y>{t:g})": np.asarray(pred.sf(t)) for t in times}
    return {**columns, PREDICTION: values[:, asked.index(0.5)]}


def _spread(
    members: Sequence[Predictive], weights: NDArray[np.float64], levels: Sequence[float]
) -> dict[str, Any]:
    first = members[0]
    if isinstance(first, DiscretePredictive):
        names: list[str] = [str(level) for level in first.levels]
        each = np.stack([np.asarray(member.pmf()) for member in members])
    else:
        names = [quantile_column(q) for q in levels]
        each = np.stack([quantiles_of(member, np.asarray(levels)) for member in members])
    sd = np.sqrt(between_variance(each, weights))
    return {f"sd({name})": sd[:, k] for k, name in enumerate(names)}


def _no_rows(
    fitted: Any,
    quantiles: Sequence[float] | None,
    times: Sequence[float],
    members_spread: bool,
    uncertainty: bool,
) -> dict[str, Any]:
    """Return the columns that rows would have had."""
    empty, levels = np.empty(0), getattr(fitted, "classes_", None)
    if levels is not None:
        _refuse_for_classes(quantiles, times)
        names, prediction = [str(level) for level in levels], np.asarray(levels)[:0]
    else:
        names, prediction = [quantile_column(q) for q in quantiles or QUANTILES], empty
    columns: dict[str, Any] = dict.fromkeys([*names, *(f"P(Y>{t:g})" for t in times)], empty)
    columns[PREDICTION] = prediction
    columns |= dict.fromkeys([f"sd({name})" for name in names] if members_spread else [], empty)
    return columns | dict.fromkeys(["total", "aleatoric", "epistemic"] if uncertainty else [], empty)


def _refuse_for_classes(quantiles: Sequence[float] | None, times: Sequence[float]) -> None:
    for name, given in (("quantiles", quantiles), ("times", times)):
        if given:
            raise UnsupportedError(f"{name} are for numbers, got a model of classes; leave them out")


def _checked_quantiles(quantiles: Sequence[float] | None) -> tuple[float, ...] | None:
    levels = None if quantiles is None else tuple(map(float, quantiles))
    if levels is not None and not all(0 < q < 1 for q in levels):
        raise InvalidInputError(
            f"quantiles must be strictly between 0 and 1, got {', '.join(map(str, levels))}; correct them"
        )
    return levels


def _column(frame: Any, name: str) -> Any:
    names = list(frame.columns if isinstance(frame, pd.DataFrame) else frame)
    if name not in names:
        raise UnknownNameError(f"keep must name columns of the table, got {name!r}; it has {names[:10]}")
    return frame[name]


@functools.lru_cache(_LOADED)
def _loaded(path: str) -> Any:
    return load(Path(path))
