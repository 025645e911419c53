"""Models of any library side by side: distributions out of fold, scores, seconds, and pools of them all."""

from __future__ import annotations

import itertools
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import joblib
import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from sklearn.model_selection import StratifiedKFold

from deeptram._html import HeadedTable
from deeptram._progress import progress
from deeptram._rows import count_rows, take_rows
from deeptram._threads import one_thread
from deeptram._validation import (
    as_list,
    check_same_labels,
    check_same_length,
    first_rows,
    n_rows,
    random_generator,
)
from deeptram.ensemble.adapters import adapter_of, indicators
from deeptram.ensemble.checkpoint import FoldStore, Seconds
from deeptram.errors import DeeptramError, InvalidInputError, OrderWarning, UnsupportedError
from deeptram.estimators.base import BaseTram
from deeptram.evaluation.bootstrap import Mean, Statistic, bootstrap, check_strata
from deeptram.evaluation.evaluate import defined_metrics, metrics_for, named_metrics, summarise
from deeptram.evaluation.measures import Metric
from deeptram.pooling import get_rule
from deeptram.pooling.comparison import PoolTask, folds_of
from deeptram.predictive import DiscretePredictive, Predictive, join_rows
from deeptram.predictive.kinds import DISCRETE
from deeptram.responses import DiscreteResponse, Surv

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Rows = npt.NDArray[np.int64]
Fold = tuple[Rows, Rows]

CENSORED_METRICS = ("ibs", "concordance", "nll")  # curves that end before the last event have infinite nll
LEVEL = 0.95
N_BOOT = 1000
SMALLEST_POOL = 2
POOL = "pool: "  # how the names of pools begin


class Leaderboard(HeadedTable):
    """The table of :func:`leaderboard`: one line per model and metric, the best model first, pools last.

    Printed as a ranking with one line per model.

    Attributes
    ----------
    predictions : dict
        Name -> the distributions of all rows out of fold, for every model that has some, and every pool.
    weights : DataFrame
        The weights of the models in each tuned pool and fold, with their certificate ``gap``.
    """

    whole: ClassVar[frozenset[str]] = frozenset({"name", "metric", "estimate", "lower", "upper", "note"})
    decimals: ClassVar[int | None] = 3
    _metadata: ClassVar[list[str]] = ["predictions", "weights"]

    predictions: dict[str, Predictive]
    weights: pd.DataFrame

    def ranking(self) -> pd.DataFrame:
        """Return one line per model: the first metric, its difference to the best, the others, seconds."""
        order, metrics = list(dict.fromkeys(self["name"])), list(dict.fromkeys(self["metric"]))
        plain = pd.DataFrame(self)
        lines = plain[plain["metric"] == metrics[0]].set_index("name").loc[order]
        wide = lines[["estimate", "difference", "difference_lower", "difference_upper"]]
        wide = wide.set_axis([metrics[0], "difference", "lower", "upper"], axis=1)
        for metric in metrics[1:]:
            wide[metric] = plain[plain["metric"] == metric].set_index("name").loc[order, "estimate"]
        return wide.join(lines[["fit_seconds", "predict_seconds", "note"]])

    def __repr__(self) -> str:
        """Return the header and the ranking."""
        if not self._header():
            return str(super().__repr__())
        shown = HeadedTable(self.ranking())
        shown["note"] = shown["note"].str.slice(0, 60)
        lines = shown.to_string(float_format=f"{{:.{self.decimals}f}}".format)
        return "\n".join([*self._header(), "", lines])

    def _repr_html_(self) -> str | None:
        """Return the header and the ranking."""
        shown = HeadedTable(self.ranking()) if self._header() else pd.DataFrame(self)
        shown.attrs["header"] = self._header()
        return str(shown._repr_html_())

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw all metrics with their intervals; see ``deeptram.plots.performance``."""
        from deeptram.plots import performance

        known = pd.DataFrame(self)
        return performance(known[known["note"].eq("") | known["estimate"].notna()]).plot(ax)


def leaderboard(
    models: Mapping[str, Any],
    X: Any,
    y: Any,
    *,
    cv: Any = 5,
    metrics: Any = None,
    pool: Any = True,
    n_jobs: int | None = None,
    random_state: Any = 0,
    path: Any = None,
) -> Leaderboard:
    """Compare models of any library by cross-validation, each as a predictive distribution.

    Every model is fitted to all folds but one and predicts that one; all are scored on the same rows. Known
    are deeptram's models and ensembles, classifiers with ``predict_proba``, NGBoost, lifelines,
    scikit-survival, regressors with a quantile loss (one fit per level), and classes of statsmodels;
    ``deeptram.ensemble.register_adapter`` adds others.

    Parameters
    ----------
    models : dict
        Name -> unfitted model. statsmodels: the class, or a ``functools.partial`` of it.
    X : DataFrame, 2-d array or dict of arrays
        Text and categories come to models that need numbers as indicators.
    y : array-like or Surv
    cv : int or splitter
        Number of folds (shuffled; stratified for levels), or a scikit-learn splitter.
    metrics : optional
        As for ``deeptram.evaluate``, and its default except for censored times: integrated Brier score,
        concordance and NLL. The first one ranks.
    pool : bool or sequence of str or Rule
        Pools of all models as last rows, with equal and with tuned weights: by default the linear and the
        transformation pool (log-linear-density for nominal outcomes). The weights for a fold are tuned, with
        a certificate, on the predictions of the other folds, so no row chooses what it is scored with.
    n_jobs : int, optional
        Fits at the same time (joblib).
    random_state : int, numpy Generator or None
        Decides on folds and bootstrap samples. Models have their own.
    path : path, optional
        A folder for finished folds: a run that was stopped goes on from there.

    Returns
    -------
    Leaderboard
        A DataFrame with the columns ``name, metric, estimate, lower, upper``, ``difference`` to the model
        that is best by the first metric with its paired interval (``difference_lower, difference_upper``),
        ``fit_seconds`` and ``predict_seconds`` (over all folds), and ``note``: why a model failed, or its
        first warning.
        ``ranking()`` has one line per model, ``plot()`` draws.

    Examples
    --------
    >>> import deeptram as dt
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.linear_model import QuantileRegressor
    >>> X, y = load_diabetes(return_X_y=True, as_frame=True)
    >>> models = {"normal": dt.Lm(), "transformed": dt.BoxCox(), "quantiles": QuantileRegressor(alpha=0)}
    >>> board = dt.leaderboard(models, X[:150], y[:150], cv=2, metrics="crps", pool=False)
    >>> board.ranking()["crps"].round(1).to_dict()
    {'transformed': 29.8, 'normal': 30.0, 'quantiles': 31.3}
    """
    named = _check_models(models)
    asked = CENSORED_METRICS if metrics is None and isinstance(y, Surv) else metrics
    if asked is not None:
        named_metrics(asked)  # before anything is fitted
    n = check_same_length(X=range(count_rows(X)), y=y)
    check_same_labels(X=X, y=y)
    generator = random_generator(random_state)
    levels = _levels(named.values(), y)
    folds = _folds(cv, n, y, levels, generator)
    material = _Material(X, indicators(X), y, levels, folds, FoldStore(path, X, y))
    runs = _run_all(named, material, n_jobs)
    score = _Scoring(y, asked)
    seconds: dict[str, Seconds] = {}
    notes: dict[str, str] = {}
    for name, results in runs.items():
        seconds[name] = (sum(one.seconds[0] for one in results), sum(one.seconds[1] for one in results))
        notes[name] = next((one.note for one in results if one.note), "")
        parts = [one.pred for one in results if one.pred is not None]
        if len(parts) == len(folds):
            notes[name] = score.add(name, parts, folds) or notes[name]
    if not score.predictions and score.refused is not None:
        pred, error = score.refused
        raise UnsupportedError(
            f"metrics must be defined for the outcome, got {', '.join(named_metrics(asked))}: {error}; "
            f"defined for these predictions are {', '.join(defined_metrics(y, pred))}"
        ) from error
    if not score.predictions:
        told = "; ".join(f"{name}: {note}" for name, note in notes.items())
        raise InvalidInputError(f"at least one model must predict distributions, got none that does ({told})")
    weights = _add_pools(score, folds, pool, seconds, notes)
    table = score.table(list(notes), generator)
    for column, values in (("fit_seconds", 0), ("predict_seconds", 1)):
        table[column] = [seconds[name][values] for name in table["name"]]
    table["note"] = [notes[name] for name in table["name"]]
    first, best = table["metric"].iloc[0], table["name"].iloc[0]
    table.attrs["header"] = [
        f"{len(named)} models, {n} rows out of fold ({len(folds)} folds), ordered by {first}",
        f"difference, lower, upper: in {first} to {best}, paired bootstrap, {100 * LEVEL:g} %",
        "seconds: over all folds; weights of pools are tuned on the other folds",
    ]
    table.predictions, table.weights = score.predictions, weights
    return table


# -- fitting -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Run:
    """What became of one model in one fold: distributions (or None), seconds, and a note."""

    pred: Predictive | None
    seconds: Seconds
    note: str = ""


@dataclass(frozen=True, eq=False)
class _Material:
    """What every fit needs: covariates (as they are, as numbers), outcomes, levels, folds and their store."""

    X: Any
    coded: Any
    y: Any
    levels: tuple[Any, ...] | None
    folds: list[Fold]
    store: FoldStore


def _check_models(models: Any) -> dict[str, Any]:
    if not isinstance(models, Mapping) or not models:
        got = "an empty one" if isinstance(models, Mapping) else type(models).__name__
        raise InvalidInputError(
            f"models must be a dict of names and models, got {got}; write for example {{'linear': dt.Lm()}}"
        )
    return {str(name): model for name, model in models.items()}


def _levels(models: Any, y: Any) -> tuple[Any, ...] | None:
    """Return the levels of an outcome that has some, None for numbers and times."""
    if isinstance(y, Surv):
        return None
    own = [one for one in (getattr(m, "model", m) for m in models) if isinstance(one, BaseTram)]
    classes = [one for one in own if one.outcome in DISCRETE]
    given = [levels for one in classes if (levels := one.get_params(deep=False).get("levels")) is not None]
    kind = getattr(y, "dtype", np.asarray(y).dtype)
    labels = not pd.api.types.is_numeric_dtype(kind) or pd.api.types.is_bool_dtype(kind)
    if not (labels or classes or any(_needs_levels(model) for model in models)):
        return None
    ordinal = any(one.outcome == "ordinal" for one in classes)
    with warnings.catch_warnings():
        warnings.simplefilter("default" if ordinal and not given else "ignore", OrderWarning)
        return DiscreteResponse.infer(y, given[0] if given else None, "ordinal").levels


def _needs_levels(model: Any) -> bool:
    try:
        return adapter_of(model).needs_levels(model)
    except UnsupportedError:
        return False


def _folds(
    cv: Any, n: int, y: Any, levels: tuple[Any, ...] | None, generator: np.random.Generator
) -> list[Fold]:
    if levels is None or not isinstance(cv, (int, np.integer)) or isinstance(cv, bool):
        return folds_of(cv, n, y, generator)
    codes = DiscreteResponse(levels).encode(y)
    counts = np.bincount(codes)
    if cv < 2 or counts[counts > 0].min() < cv:
        return folds_of(cv, n, y, generator)
    splitter = StratifiedKFold(int(cv), shuffle=True, random_state=int(generator.integers(2**31)))
    return folds_of(splitter, n, codes, generator)


def _run_all(models: Mapping[str, Any], material: _Material, n_jobs: int | None) -> dict[str, list[_Run]]:
    tasks = [(name, number) for name in models for number in range(len(material.folds))]
    jobs = (joblib.delayed(_run)(name, models[name], number, material) for name, number in tasks)
    runs: dict[str, list[_Run]] = {name: [] for name in models}
    with progress("leaderboard", len(tasks)) as steps:
        results = joblib.Parallel(n_jobs=n_jobs, return_as="generator")(jobs)
        for (name, number), result in zip(tasks, results, strict=True):
            runs[name].append(result)
            steps.done(f"{name}, fold {number + 1}")
    return runs


def _run(name: str, model: Any, number: int, given: _Material) -> _Run:
    """Fit one model to one fold and predict the rest; whatever it raises becomes its note."""
    fold, y, store = given.folds[number], given.y, given.store
    known = store.load(name, model, number, fold[0])
    if known is not None:
        return _Run(*known)
    begun = time.perf_counter()
    try:
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            adapter = adapter_of(model)
            data = given.coded if adapter.numbers and not hasattr(model, "steps") else given.X
            fitted = adapter.fit(model, take_rows(data, fold[0]), take_rows(y, fold[0], "y"), given.levels)
            between = time.perf_counter()
            pred = adapter.predict(fitted, take_rows(data, fold[1]))
        if not isinstance(pred, Predictive) or len(pred) != len(fold[1]):
            raise UnsupportedError(
                f"a prediction must be a Predictive of {len(fold[1])} rows, got {type(pred).__name__}; "
                "correct predict of its adapter"
            )
    except Exception as error:  # noqa: BLE001  a model of any library may raise anything: its row says what
        return _Run(None, (time.perf_counter() - begun, np.nan), f"{type(error).__name__}: {error}")
    seconds = between - begun, time.perf_counter() - between
    note = f"warned: {said[0].message}" if said else ""
    store.save(name, model, number, fold[0], pred, seconds)
    return _Run(pred, seconds, note)


# -- pools -------------------------------------------------------------------------------------------


def _add_pools(
    score: _Scoring,
    folds: Sequence[Fold],
    pool: Any,
    seconds: dict[str, Seconds],
    notes: dict[str, str],
) -> pd.DataFrame:
    """Score the pools of all models out of fold, and return the tuned weights of each fold."""
    names, members = list(score.predictions), list(score.predictions.values())
    if pool is False or len(members) < SMALLEST_POOL:
        return pd.DataFrame()
    nominal = any(isinstance(one, DiscretePredictive) and not one.ordered for one in members)
    usual = ["linear", "log-linear-density" if nominal else "transformation"]
    methods = usual if pool is True else [pool] if isinstance(pool, str) else as_list(pool, "pool", "pools")
    lines: list[dict[str, Any]] = []
    for method, way in itertools.product(methods, ("equal", "tuned")):
        begun = time.perf_counter()
        label = f"{POOL}{get_rule(method, 'pool').name}, {way}"
        task = PoolTask(method, members, score.y, "nll")
        try:
            parts = []
            for number, (train, held) in enumerate(folds):
                found = task.fitted(way, train)
                parts.append(found.apply([one[held] for one in members]))
                if found.tuning is not None:
                    own = dict(zip(names, found.weights, strict=True))
                    lines.append({"pool": label, "fold": number, **own, "gap": found.tuning.gap})
            notes[label] = score.add(label, parts, folds)
            if way == "tuned" and notes[label] and label in score.predictions:
                notes[label] += ": weights tuned on the other folds give these outcomes no probability"
        except DeeptramError as error:
            notes[label] = str(error)
        seconds[label] = (time.perf_counter() - begun, np.nan)
    return pd.DataFrame(lines)


# -- scores ------------------------------------------------------------------------------------------


class _Scoring:
    """Predictions of all rows, and what the bootstrap needs to know of each."""

    def __init__(self, y: Any, metrics: Any) -> None:
        self.y, self._asked = y, metrics
        self.predictions: dict[str, Predictive] = {}
        self.refused: tuple[Predictive, DeeptramError] | None = None
        self._metrics: dict[str, Metric] = {}
        self._plan: dict[tuple[str, str], list[Statistic]] = {}

    def add(self, name: str, parts: Sequence[Predictive], folds: Sequence[Fold]) -> str:
        """Take the predictions of one model; return why it has no scores, or infinite ones, or nothing."""
        try:
            pred = join_rows(parts, [held for _, held in folds])
        except DeeptramError as error:
            return str(error)
        try:
            self._metrics = self._metrics or metrics_for(self._asked, [pred], self.y)
            with torch.no_grad(), one_thread():
                plan = {(name, m): metric.statistics(self.y, pred) for m, metric in self._metrics.items()}
        except DeeptramError as error:
            self.refused = self.refused or (pred, error)
            return str(error)
        self._plan |= plan
        self.predictions[name] = pred
        means = [(m, part) for (_, m), every in plan.items() for part in every if isinstance(part, Mean)]
        return "; ".join(
            f"{m} is infinite in {first_rows(part.infinite)}"
            for m, part in means
            if bool(part.infinite.any())
        )

    def table(self, names: Sequence[str], generator: np.random.Generator) -> Leaderboard:
        """Return the scores of all, models by the first metric, then those without scores, then pools."""
        strata = check_strata(None, n_rows(self.y))
        samples = bootstrap(self._plan, strata, N_BOOT, generator)
        first, metric = next(iter(self._metrics.items()))
        utility = {name: metric.utility(samples[name, first].value) for name in self.predictions}
        models = [name for name in names if not name.startswith(POOL)]
        scored = [name for name in models if name in utility]
        order = sorted(scored, key=lambda name: -np.nan_to_num(utility[name], nan=-np.inf))
        pools = [name for name in names if name.startswith(POOL)]
        listed = [*order, *(name for name in models if name not in utility), *pools]
        known = {(name, m): samples[name, m] for name in listed for m in self._metrics if name in utility}
        found = pd.DataFrame(summarise(known, LEVEL, order[0]))
        lines = pd.MultiIndex.from_product([listed, list(self._metrics)], names=["name", "metric"])
        return Leaderboard(lines.to_frame(index=False).merge(found, on=["name", "metric"], how="left"))
