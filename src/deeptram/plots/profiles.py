r"""What a covariate does: predictions while it changes, the others at typical values; varying effects."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from scipy.special import expit, logit
from scipy.stats import norm

from deeptram._rows import take_rows
from deeptram._validation import check_choice, check_probability_level
from deeptram.errors import InvalidInputError
from deeptram.estimators.base import BaseTram
from deeptram.estimators.coefficient_table import coefficient_covariance
from deeptram.inputs import Table, read_table
from deeptram.inputs.network_inputs import TableInput
from deeptram.plots import style
from deeptram.plots.display import Display, Panel, PanelsDisplay, panels_size, table_with
from deeptram.predictive.base import Predictive
from deeptram.predictive.count import CountPredictive
from deeptram.predictive.discrete import DiscretePredictive
from deeptram.predictive.kinds import RowParameters
from deeptram.predictive.line import LinePredictive

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Floats = NDArray[np.float64]
NEEDED_OF_EFFECTS = ("column", "y", "coef", "lower", "upper")
Feature = tuple[str, Callable[[Any], Floats]]
POINTS = 41
FEW = 12  # distinct values of a column that are all shown
FEW_TICKS = 5  # values of a column that are all named below the axis
MOST_LINES = 5
MEMBER_WIDTH = 2.0  # standard deviations of the members
_STEP = 1e-3  # of derivatives, in standard errors


def profiles(
    models: Any, X: Any, columns: Sequence[str] | None = None, *, level: float = 0.95, at: float | None = None
) -> ProfilesDisplay:
    r"""Show predictions over each covariate, the others at their median or most frequent level.

    Binary outcomes: the probability of the larger level. Ordinal: of exceeding levels, of many the five that
    split best. Nominal: of the levels. Counts: of exceeding the typical quartiles. Numbers: the median and
    the limits of an 80 % interval. Times: the survival probability at one time.

    Bands: of a single model, Wald limits of the effect relative to the typical row (of columns in ``Scale``
    by the delta method, probabilities on the scale of their logits); of an ensemble, the pool plus and minus
    two standard deviations of its members. No band where the column enters the model in another way than by
    LS and Scale.

    Parameters
    ----------
    models : Tram or Ensemble, or dict of name -> these
    X : data
        Rows from which ranges and typical values are taken.
    columns : list of str, optional
        Default: all tabular columns that the models read.
    level : float
        Of the Wald limits.
    at : float, optional
        The time of survival probabilities; by default the middle of the predicted medians.

    Returns
    -------
    Display
        ``frame()`` has the columns ``name, column, value, what, estimate, lower, upper``.

    Examples
    --------
    >>> import deeptram as dt
    >>> rng = np.random.default_rng(1)
    >>> X = pd.DataFrame({"x": rng.normal(size=100)})
    >>> model = dt.Logit().fit(X, X["x"] + rng.logistic(size=100) > 0)
    >>> shown = profiles(model, X).frame()
    >>> shown["what"].unique().tolist(), bool((shown["lower"] <= shown["estimate"]).all())
    (['P(True)'], True)
    """
    level = check_probability_level(level)
    named = models if isinstance(models, Mapping) else {type(models).__name__: models}
    table = read_table(X)
    names = _columns(columns, table, named)
    parts = []
    for name, model in named.items():
        row = typical_row(X, table)
        features = features_of(model.predict_distribution(X), at)
        for column in names:
            parts.append(_profile(str(name), model, row, table, column, features, level))
    pooled = all(hasattr(model, "predict_members") for model in named.values())
    band = f"pool ± {MEMBER_WIDTH:g} sd of the members" if pooled else f"{100 * level:g} % band of the effect"
    return ProfilesDisplay(pd.concat(parts, ignore_index=True), band)


def features_of(pred: Predictive, at: float | None = None) -> list[Feature]:
    """Return which numbers of a distribution are followed, with their names.

    Examples
    --------
    >>> import deeptram as dt
    >>> pred = Predictive.from_proba([[0.2, 0.5, 0.3]], levels=["low", "mid", "high"])
    >>> [(name, read(pred).round(3).tolist()) for name, read in features_of(pred)]
    [('P(Y > low)', [0.8]), ('P(Y > mid)', [0.3])]
    """
    if isinstance(pred, DiscretePredictive):
        levels = pred.levels
        if len(levels) == 2 or not pred.ordered:
            followed = range(int(len(levels) == 2), len(levels))
            return [(f"P({levels[k]})", partial(_mass, k=k)) for k in followed]
        above = 1.0 - np.asarray(pred.cdf(), dtype=np.float64)[:, :-1].mean(axis=0)
        spread = np.unique([np.abs(above - share).argmin() for share in np.linspace(0.9, 0.1, MOST_LINES)])
        shown = range(len(above)) if len(above) <= MOST_LINES else spread.tolist()
        return [(f"P(Y > {levels[k]})", partial(_exceedance, k=k)) for k in shown]
    if isinstance(pred, LinePredictive) and pred.lifetimes:
        time = float(np.median(_medians(pred))) if at is None else float(at)
        shown_time = f"{time:.0f}" if abs(time) >= 100 else f"{time:.3g}"
        return [(f"P(time > {shown_time})", partial(_survivor, time=time))]
    if isinstance(pred, CountPredictive):
        typical = np.median(np.asarray(pred.quantile([0.25, 0.5, 0.75]), dtype=np.float64), axis=0)
        return [(f"P(Y > {k:.0f})", partial(_survivor, time=float(k))) for k in np.unique(typical.round())]
    quantiles = ((0.1, "10 % quantile"), (0.5, "median"), (0.9, "90 % quantile"))
    return [(what, partial(_quantile, q=q)) for q, what in quantiles]


def _mass(pred: Any, k: int) -> Floats:
    return np.asarray(pred.pmf(), dtype=np.float64)[:, k]


def _exceedance(pred: Any, k: int) -> Floats:
    return 1.0 - np.asarray(pred.cdf(), dtype=np.float64)[:, k]


def _survivor(pred: Any, time: float) -> Floats:
    return np.asarray(pred.survivor(time), dtype=np.float64)


def _quantile(pred: Any, q: float) -> Floats:
    return np.asarray(pred.quantile(q), dtype=np.float64)


def _medians(pred: LinePredictive) -> Floats:
    """Return the medians of times, at most the last time seen."""
    with torch.no_grad():
        half = pred.rough_quantile_t(torch.tensor([0.5], dtype=pred.dtype))
    return np.asarray(np.minimum(half.numpy().reshape(-1), pred.last_time))


def typical_row(X: Any, table: Table) -> Any:
    """Return one row: medians of numbers, most frequent levels; of images that of the first row.

    Examples
    --------
    >>> X = pd.DataFrame({"a": [1.0, 2.0, 9.0], "b": ["u", "v", "v"]})
    >>> typical_row(X, read_table(X)).to_dict("list")
    {'a': [2.0], 'b': ['v']}
    """
    row = take_rows(X, np.array([0]))
    for name in table.names:
        column = table.column(name)
        if isinstance(column, pd.Categorical):
            value = pd.Series(column).mode().iloc[0]
        else:
            values = np.sort(np.asarray(column))
            value = values[len(values) // 2]  # a value that occurs, so whole numbers stay whole
        row = with_column(row, table, name, [value])
    return row


def with_column(X: Any, table: Table, name: str, values: Sequence[Any]) -> Any:
    """Return X with other values in one column.

    Parameters
    ----------
    X : DataFrame, 2-d array or dict
        Of as many rows as there are values.
    table : Table
        Its columns.
    name : str
    values : sequence

    Examples
    --------
    >>> X = np.zeros((2, 2))
    >>> with_column(X, read_table(X), "x1", [3.0, 4.0])
    array([[0., 3.],
           [0., 4.]])
    """
    column = table.column(name)
    new: Any = values
    if isinstance(column, pd.Categorical):
        new = pd.Categorical(values, categories=column.categories, ordered=column.ordered)
    if isinstance(X, np.ndarray):
        changed = X.copy()
        changed[:, table.names.index(name)] = values
        return changed
    if isinstance(X, Mapping):
        return {**X, name: new if isinstance(new, pd.Categorical) else np.asarray(new)}
    return X.assign(**{name: new})


def column_values(table: Table, name: str) -> list[Any]:
    """Return the values of a column over which a profile goes: its levels, or a grid over its middle part.

    Examples
    --------
    >>> column_values(read_table({"a": [3, 1, 2, 1]}), "a")
    [1, 2, 3]
    """
    column = table.column(name)
    if isinstance(column, pd.Categorical):
        return [level for level in column.categories if (column == level).any()]
    values = np.unique(np.asarray(column))
    if len(values) <= FEW:
        return list(values.tolist())
    low, high = np.quantile(np.asarray(column, dtype=np.float64), [0.01, 0.99])
    return list(np.linspace(low, high, POINTS).tolist())


@dataclass(frozen=True, eq=False)
class ProfilesDisplay(PanelsDisplay):
    """A panel for each covariate; lines with bands, or points with bars for levels.

    Parameters
    ----------
    table : DataFrame
        Columns ``name, column, value, what, estimate, lower, upper``.
    band : str
        What the bands are.
    """

    band: str = "band"

    @property
    def size(self) -> tuple[float, float]:
        """Width and height in inches: room for every panel, and the legend."""
        return panels_size(self.table["column"].nunique(), 1.6, 2.4, 2.5)

    def panels(self) -> list[Panel]:
        """Return a panel for each covariate."""
        names = list(self.table["column"].unique())
        return [Panel("", partial(self._draw_column, column=name)) for name in names]

    def _draw_column(self, ax: Axes, column: str) -> None:
        part = self.table[self.table["column"] == column]
        models, whats = list(self.table["name"].unique()), list(self.table["what"].unique())
        by_model = len(models) > 1
        shades = style.colors(models) if by_model else _shades(whats)
        numeric = all(
            isinstance(value, (int, float)) and not isinstance(value, bool) for value in part["value"]
        )
        levels = list(part["value"].unique())
        for (name, what), curve in part.groupby(["name", "what"], sort=False):
            color = shades[name] if by_model else shades[what]
            label = f"{name}, {what}" if by_model else str(what)
            place = style.beside(curve["value"], None if numeric else levels)
            style.draw_band(ax, place, curve, "estimate", color, label, lines=numeric and len(levels) > 2)
        if numeric and len(levels) <= FEW_TICKS:
            ax.set_xticks(levels, [f"{level:g}" for level in levels])
        if not numeric:
            ax.set_xticks(range(len(levels)), [str(level) for level in levels])
            ax.set_xlim(-0.5, len(levels) - 0.5)
        ax.set(xlabel=column, ylabel=whats[0] if len(whats) == 1 else "prediction")
        ax.set_ylim(*self._ends(whats))
        if np.isfinite(part["lower"].to_numpy(dtype=float)).any():
            ax.fill_between([], [], [], color=style.BAND_COLOR, linewidth=0, label=self.band)

    def _ends(self, whats: list[str]) -> tuple[float, float]:
        """Return the ends of the y-axis, the same for all covariates."""
        if all(what.startswith("P(") for what in whats):
            return -0.03, 1.03
        shown = self.table[["estimate", "lower", "upper"]].to_numpy(dtype=float)
        low, high = float(np.nanmin(shown)), float(np.nanmax(shown))
        return low - 0.05 * (high - low), high + 0.05 * (high - low)


def _shades(whats: list[str]) -> dict[str, str]:
    return dict(
        zip(whats, style.sequence_colors(len(whats)) if len(whats) > 1 else [style.PLAIN_COLOR], strict=True)
    )


def _columns(columns: Sequence[str] | None, table: Table, models: Mapping[Any, Any]) -> list[str]:
    if columns is not None:
        return [check_choice(name, table.names, "columns") for name in columns]
    read = set().union(*(columns_read(model) for model in models.values()))
    names = [name for name in table.names if name in read] or ([] if read else list(table.names))
    if not names:
        raise InvalidInputError(
            "profiles need a tabular column that the models read, got none; pass columns="
        )
    return names


def columns_read(model: Any) -> set[str]:
    """Return the tabular columns that a model or any member reads; none if that is not known.

    Examples
    --------
    >>> import deeptram as dt
    >>> columns_read(dt.Lm().fit([[1.0], [2.0], [4.0]], [1.0, 3.0, 2.0]))
    {'x0'}
    """
    found: set[str] = set()
    for one in getattr(model, "members_", [model]):
        found |= _columns_of(encoders_of(one))
        if hasattr(one, "design_"):
            found |= {one.design_.strata_column} - {None}
    return found


def encoders_of(model: Any) -> list[Any]:
    """Return how a model reads tables: its terms, and what its networks see; nothing of foreign models."""
    design = getattr(model, "design_", None)
    if design is None:
        return []
    parts = [part for inputs in getattr(model.model_, "inputs", ()) for part in inputs.parts]
    own = [one for one in (design.linear, design.scale, design.varying) if one is not None]
    return own + [part.encoder for part in parts if isinstance(part, TableInput)]


def _columns_of(encoders: Sequence[Any]) -> set[str]:
    return {name for encoder in encoders if encoder is not None for name in encoder.required_columns}


def _profile(
    name: str, model: Any, row: Any, table: Table, column: str, features: Sequence[Feature], level: float
) -> pd.DataFrame:
    values = column_values(table, column)
    grid = with_column(take_rows(row, np.zeros(len(values), dtype=int)), table, column, values)
    estimate = [read(model.predict_distribution(grid)) for _, read in features]
    limits = _limits(model, row, grid, column, features, level)
    about = pd.DataFrame({"name": name, "column": column, "value": pd.Series(values, dtype=object)})
    parts = [
        about.assign(what=what, estimate=estimate[k], lower=limits[k][0], upper=limits[k][1])
        for k, (what, _) in enumerate(features)
    ]
    return pd.concat(parts, ignore_index=True)


def _limits(
    model: Any, row: Any, grid: Any, column: str, features: Sequence[Feature], level: float
) -> list[tuple[Any, Any]]:
    """Return the limits of each feature; NaN where there is no band."""
    if hasattr(model, "predict_members"):
        members = model.predict_members(grid)
        each = [np.stack([read(one) for one in members]) for _, read in features]
        middle = [read(model.pool_members(members)) for _, read in features]
        half = [MEMBER_WIDTH * values.std(axis=0, ddof=1) if len(values) > 1 else np.nan for values in each]
        return [(m - h, m + h) for m, h in zip(middle, half, strict=True)]
    away = _distances(model, row, grid, column)
    if away is None:
        return [(np.nan, np.nan)] * len(features)
    own = model.model_.row_parameters(grid, model.design_.matrices(grid)).numpy()

    def moved(shift: Floats, log_scale: Floats) -> list[Floats]:
        scale = None if own.log_scale is None else own.log_scale + log_scale
        rows = RowParameters(own.theta, own.shift + shift, scale, own.log_increments)
        return [read(model.outcome_.predictive(rows, model.latent_)) for _, read in features]

    return away.limits(moved, [what.startswith("P(") for what, _ in features], level)


@dataclass(frozen=True)
class _Distances:
    """How far rows are from a typical one, in the columns of LS and Scale, with the coefficients' covariance.

    ``shift`` (n, p) and ``log_scale`` (n, q) change by themselves times a change of the p + q coefficients.
    """

    shift: Floats
    log_scale: Floats
    covariance: Floats

    def limits(
        self, moved: Callable[[Floats, Floats], list[Floats]], probability: list[bool], level: float
    ) -> list[tuple[Any, Any]]:
        """Return Wald limits of features, which ``moved`` gives for changes of shift and log scale, (n,)."""
        width, none = float(norm.ppf((1 + level) / 2)), np.zeros(len(self.shift))
        if not self.log_scale.any():
            p = self.shift.shape[1]
            variance = np.einsum("ij,jk,ik->i", self.shift, self.covariance[:p, :p], self.shift)
            ends = [moved(side * width * np.sqrt(variance), none) for side in (-1, 1)]
            return [(np.minimum(a, b), np.maximum(a, b)) for a, b in zip(*ends, strict=True)]
        size = _STEP * np.sqrt(np.diag(self.covariance))
        changes = np.concatenate([self.shift, self.log_scale], axis=1) * size
        to = [(logit, expit) if one else (np.asarray, np.asarray) for one in probability]
        slopes = np.zeros((len(to), *changes.shape))
        for k in np.flatnonzero(changes.any(axis=0)):
            way = (changes[:, k], none) if k < self.shift.shape[1] else (none, changes[:, k])
            up, down = moved(*way), moved(*(-one for one in way))
            for f, (scale, _) in enumerate(to):
                slopes[f, :, k] = (scale(up[f]) - scale(down[f])) / (2 * size[k])
        half = width * np.sqrt(np.einsum("fij,jk,fik->fi", slopes, self.covariance, slopes))
        return [
            (inverse(scale(value) - h), inverse(scale(value) + h))
            for (scale, inverse), value, h in zip(to, moved(none, none), half, strict=True)
        ]


def _distances(model: Any, row: Any, grid: Any, column: str) -> _Distances | None:
    """Return the distances of a grid from a typical row; None where the column acts in another way."""
    if not isinstance(model, BaseTram) or model.outcome_.kind.is_nominal:
        return None
    design = model.design_
    structured = (design.linear, design.scale)
    elsewhere = _columns_of([one for one in encoders_of(model) if not any(one is own for own in structured)])
    if column in elsewhere or column == design.strata_column:
        return None
    there, here = design.matrices(grid), design.matrices(row)
    log_scale = np.zeros((len(there.x), len(model.scale_coef_)))
    if there.scale is not None and here.scale is not None:
        log_scale = (there.scale - here.scale) / 2
    covariance = coefficient_covariance(model, scale=bool(log_scale.any()))
    if covariance is None or not np.isfinite(covariance).all():
        return None
    return _Distances(there.x - here.x, log_scale, covariance)


def effect(models: Any, y: Any = None, *, level: float = 0.95) -> EffectDisplay:
    """Show the effects of ``Varying`` columns over the outcome.

    Parameters
    ----------
    models : Tram or DataFrame, or dict of name -> these
        A fitted model with a ``Varying`` term, or what its ``effect()`` returned.
    y : array-like, optional
        Outcomes at which to show them; see ``Tram.effect``.
    level : float
        Level of the pointwise Wald limits.

    Returns
    -------
    Display
        ``frame()`` has the columns ``column, y, coef, se, lower, upper``, of several models also ``name``.

    Examples
    --------
    >>> table = pd.DataFrame({"column": ["a"], "y": [1.0], "coef": [0.5], "lower": [0.0], "upper": [1.0]})
    >>> effect(table).frame().shape
    (1, 5)
    """
    several = isinstance(models, Mapping)
    parts = []
    for name, model in (models if several else {"": models}).items():
        table = model if isinstance(model, pd.DataFrame) else model.effect(y, level)
        table_with(NEEDED_OF_EFFECTS, table, "a table of effects", "pass model.effect()", name)
        parts.append(table.assign(name=str(name)) if several else table.copy())
    labels = {str(part.attrs.get("effect", "effect")) for part in parts}
    label = labels.pop() if len(labels) == 1 else "effect"
    return EffectDisplay(pd.concat(parts, ignore_index=True), label, level)


@dataclass(frozen=True, eq=False)
class EffectDisplay(Display):
    """A line with its band for each column; bars at the cutoffs of classes.

    Parameters
    ----------
    table : DataFrame
        Columns ``column, y, coef, lower, upper``.
    label : str
        What an effect is, for example "log odds-ratio".
    level : float
        Of the limits.
    """

    label: str = "effect"
    level: float = 0.95

    def _draw(self, ax: Axes) -> None:
        table = self.table
        if "name" in table:
            table = table.assign(column=table["name"] + ", " + table["column"].astype(str))
        names = list(table["column"].unique())
        numeric = self.table["y"].dtype.kind in "iuf"
        levels = list(self.table["y"].unique())
        color = style.colors(names)
        ax.axhline(0.0, zorder=1, **style.reference_line())
        for k, name in enumerate(names):
            part = table[table["column"] == name]
            part = part.sort_values("y") if numeric else part
            place = style.beside(part["y"], None if numeric else levels, k, len(names))
            style.draw_band(ax, place, part, "coef", color[name], name, lines=numeric)
        if not numeric:
            ax.set_xticks(range(len(levels)), [f"above {level}" for level in levels])
        ax.set(
            xlabel=style.OUTCOME if numeric else "cutoff", ylabel=f"{self.label}\n(positive: larger outcome)"
        )
        ax.fill_between(
            [], [], [], color=style.BAND_COLOR, linewidth=0, label=f"{100 * self.level:g} % limits"
        )
        style.legend_beside(ax)
