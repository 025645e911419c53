"""Scores, their theory, metrics, evaluate."""

from __future__ import annotations

from typing import Any

import numpy as np

import deeptram as dt
from deeptram.evaluation import metrics, scores
from fuzz.driver import Call, target
from fuzz.hostile import Draw
from fuzz.predictions import members, outcome, prediction
from fuzz.targets_pools import SCORES

AREA = "scores"


def pair(draw: Draw, kind: str | None = None) -> tuple[Any, Any]:
    pred = prediction(draw, kind)
    return outcome(draw, pred), draw.maybe(pred, draw.malice / 4)


def mostly_discrete(draw: Draw) -> tuple[Any, Any]:
    return pair(draw, "discrete" if draw.chance(0.9) else None)


def score_target(name: str) -> None:
    @target(f"scores.{name}", AREA)
    def _(draw: Draw) -> Call:
        y, pred = pair(draw, "discrete" if draw.chance(0.5) else None)
        low = -np.inf if name in ("nll", "quadratic") else 0.0
        settings = {"reduction": draw.option("mean", "none")}
        return Call(getattr(scores, name), (y, pred), settings, infinite=name in ("nll", "crps"), low=low)


for _name in SCORES:
    score_target(_name)


@target("scores.entropy", AREA)
def _(draw: Draw) -> Call:
    return Call(scores.entropy, (draw.option(*SCORES), pair(draw)[1]), infinite=True)


@target("scores.divergence", AREA)
def _(draw: Draw) -> Call:
    group = members(draw)
    return Call(
        scores.divergence, (draw.option(*SCORES), group[0], draw.maybe(group[-1])), infinite=True, low=-1e-9
    )


@target("scores.minimax_pool", AREA, 0.2)
def _(draw: Draw) -> Call:
    return Call(scores.minimax_pool, (draw.option(*SCORES), draw.option(None, "ordinal", "continuous")))


@target("scores.get", AREA, 0.2)
def _(draw: Draw) -> Call:
    return Call(draw.one([scores.get, metrics.get]), (draw.option(*SCORES),))


FORECASTS = {
    "pinball": lambda draw: {"q": draw.option(0.5, 0.1, 0.99)},
    "interval_score": lambda draw: {"level": draw.option(0.5, 0.95)},
    "wis": lambda draw: {"levels": draw.option([0.5, 0.9], [0.95], ())},
}


def forecast_target(name: str) -> None:
    @target(f"scores.{name}", AREA)
    def _(draw: Draw) -> Call:
        return Call(getattr(scores, name), pair(draw), FORECASTS[name](draw), low=0.0, infinite=True)


for _name in FORECASTS:
    forecast_target(_name)


@target("metrics.accuracy", AREA)
def _(draw: Draw) -> Call:
    return Call(metrics.accuracy, mostly_discrete(draw), low=0.0, high=1.0)


@target("metrics.qwk", AREA)
def _(draw: Draw) -> Call:
    return Call(metrics.qwk, mostly_discrete(draw), low=-1.0, high=1.0, nan=True)  # NaN without variation


@target("metrics.auc", AREA)
def _(draw: Draw) -> Call:
    settings = {
        "cutoff": draw.option(0, 0, 1),
        "kind": draw.option("roc", "index"),
        "fold": draw.option(True, False),
    }
    return Call(
        metrics.auc, mostly_discrete(draw), settings, low=0.0, high=1.0, nan=True
    )  # NaN with one class


@target("metrics.at_cutoff", AREA, 0.5)
def _(draw: Draw) -> Call:
    return Call(metrics.at_cutoff, (*mostly_discrete(draw), draw.option(0, 1)))


def calibration_target(name: str) -> None:
    @target(f"metrics.{name}", AREA)
    def _(draw: Draw) -> Call:
        settings = {"per_threshold": draw.option(True, False)}
        return Call(getattr(metrics, name), mostly_discrete(draw), settings, nan=True)  # documented


for _name in ("citl", "calibration_slope"):
    calibration_target(_name)


@target("metrics.calibration_table", AREA)
def _(draw: Draw) -> Call:
    return Call(metrics.calibration_table, mostly_discrete(draw), {"level": draw.option(0.5, 0.95)}, nan=True)


@target("metrics.calibration_curve", AREA)
def _(draw: Draw) -> Call:
    settings = {
        "cuts": draw.option("equidistant", 4, [0.2, 0.5], "quantiles"),
        "quantiles": draw.option(None, None, [0.25, 0.5]),
        "level": draw.option(0.5, 0.95),
        "per_threshold": draw.option(True, False),
    }
    return Call(metrics.calibration_curve, mostly_discrete(draw), settings, nan=True)  # empty bins


@target("metrics.clopper_pearson", AREA, 0.5)
def _(draw: Draw) -> Call:
    n = draw.rng.integers(0, 9, 4)
    return Call(
        metrics.clopper_pearson,
        (draw.array(n // 2), draw.array(n), draw.option(0.5, 0.95)),
        low=0,
        high=1,
        nan=True,
    )


@target("metrics.pit", AREA)
def _(draw: Draw) -> Call:
    return Call(metrics.pit, pair(draw), {"random_state": draw.random_state()}, low=0.0, high=1.0)


@target("metrics.pit_histogram", AREA)
def _(draw: Draw) -> Call:
    return Call(metrics.pit_histogram, pair(draw), {"bins": draw.option(1, 4, 10)}, low=0.0)


@target("metrics.d_calibration", AREA)
def _(draw: Draw) -> Call:
    return Call(metrics.d_calibration, pair(draw), {"bins": draw.option(2, 4, 10)}, low=0.0)


@target("metrics.coverage", AREA)
def _(draw: Draw) -> Call:
    return Call(metrics.coverage, pair(draw), {"level": draw.option(0.5, 0.95)}, low=0.0, high=1.0)


@target("metrics.kaplan_meier", AREA, 0.5)
def _(draw: Draw) -> Call:
    time = np.ceil(np.abs(draw.normals(9))) + 0.1
    y = dt.Surv.right(time, draw.rng.random(9) < draw.one([0.0, 0.5, 1.0]))
    return Call(metrics.kaplan_meier, (draw.maybe(y), draw.option(0.5, 0.95)), nan=True)  # nobody left


def survival_target(name: str, settings: Any) -> None:
    @target(f"metrics.{name}", AREA)
    def _(draw: Draw) -> Call:
        pred = prediction(draw, "line")
        times = np.abs(draw.normals(len(pred))) + 0.1
        y = dt.Surv.right(times, draw.rng.random(len(pred)) < 0.7)
        return Call(
            getattr(metrics, name), (draw.maybe(y), draw.maybe(pred)), settings(draw), low=0.0, nan=True
        )


SURVIVAL = {
    "concordance": lambda draw: {
        "kind": draw.option("harrell", "uno", "antolini"),
        "tau": draw.option(None, 1.0),
    },
    "brier_survival": lambda draw: {"times": draw.array(np.array([0.2, 0.5]))},
    "ibs": lambda draw: {"times": draw.option(None, [0.2, 0.5])},
    "auc_survival": lambda draw: {"times": draw.array(np.array([0.2, 0.5]))},
}
for _name, _settings in SURVIVAL.items():
    survival_target(_name, _settings)


@target("evaluate", AREA, 1.5)
def _(draw: Draw) -> Call:
    group = members(draw, draw.one(["discrete", "discrete", None]))
    predictions: Any = {f"p{i}": one for i, one in enumerate(group)}
    if draw.chance(0.2):
        predictions["list"] = group
    settings = {
        "metrics": draw.option(None, None, "nll", ["nll", "rps"], ["accuracy", "auc"], ["qwk", "citl"], []),
        "n_boot": draw.option(0, 1, 10, 30),
        "level": draw.option(0.5, 0.95),
        "reference": draw.option(None, None, "p0"),
        "strata": draw.option(None, None, draw.array(draw.rng.integers(0, 2, len(group[0])))),
        "random_state": draw.random_state(),
    }
    y = outcome(draw, group[0])
    # A metric of the user's own may raise what it likes.
    raises = (TypeError, ValueError) if callable(settings["metrics"]) else ()
    args = (draw.maybe(predictions, draw.malice / 4), y)
    return Call(dt.evaluate, args, settings, nan=True, infinite=True, raises=raises)


@target("evaluate_stream", AREA, 0.5)
def _(draw: Draw) -> Call:
    group = members(draw, draw.one(["discrete", None]))
    cut = int(draw.rng.integers(0, len(group[0]) + 1))
    y = outcome(draw, group[0])
    parts = [
        ({"p": group[0][part]}, y[part] if isinstance(y, np.ndarray) else y)
        for part in (slice(cut), slice(cut, None))
    ]
    settings = {
        "metrics": draw.option(None, "nll", ["nll", "rps"], ["accuracy", "qwk"], "auc", []),
        "n_boot": draw.option(0, 1, 10),
        "level": draw.option(0.5, 0.95),
        "reference": draw.option(None, None, "p"),
        "random_state": draw.random_state(),
    }
    raises = (TypeError, ValueError) if callable(settings["metrics"]) else ()
    return Call(
        dt.evaluate_stream,
        (draw.maybe(parts, draw.malice / 4),),
        settings,
        nan=True,
        infinite=True,
        raises=raises,
    )


@target("conformal", AREA, 1.5)
def _(draw: Draw) -> Call:
    pred = prediction(draw, n=draw.one([1, 5, 30, 60]))
    groups = draw.option(None, None, draw.array(draw.rng.integers(0, 2, len(pred))))
    y, given = outcome(draw, pred), draw.maybe(pred, draw.malice / 4)

    def use(given: Any, y: Any, groups: Any, level: Any, method: str, random_state: Any) -> Any:
        """Calibrate, and ask for one of the answers on the same rows; a distribution for its CDF."""
        fitted = dt.conformal(given, y, groups=groups, random_state=random_state)
        if method == "transform":
            return fitted.transform(pred, groups=groups).cdf_grid(pred.levels or [-1.0, 0.0, 2.0])
        found = getattr(fitted, method)(pred, level, groups=groups)
        return found.sizes if method == "sets" else found if pred.levels is None else None

    level, method = draw.option(0.5, 0.8, 0.95), draw.one(["interval", "sets", "lower_bound", "transform"])
    args = (given, y, groups, level, method, draw.random_state())
    low, high = (0.0, 1.0) if method == "transform" else (-np.inf, np.inf)
    return Call(use, args, infinite=method != "transform", low=low, high=high)
