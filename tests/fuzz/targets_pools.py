"""Pools, weights, guarantees, structure, recalibration."""

from __future__ import annotations

from typing import Any

import numpy as np

import deeptram as dt
from fuzz.driver import Call, target
from fuzz.hostile import LATENTS, Draw
from fuzz.predictions import METHODS, members, outcome, prediction

AREA = "pools"
SCORES = ("nll", "rps", "brier", "quadratic", "crps")


def some_members(draw: Draw) -> Any:
    """Return members as a list, a tuple or an array of CDFs; sometimes one too many, or no members at all."""
    if draw.chance(0.15):
        stack = np.cumsum(np.stack([draw.proba(3, 3) for _ in range(int(draw.one([1, 2, 3])))]), axis=-1)
        stack[..., -1] = 1.0
        return draw.array(np.minimum(stack, 1.0))
    group: Any = members(draw, draw.one(["discrete", "discrete", "line", "count"]))
    if draw.chance(draw.malice):
        wrong = [[], group[0], [*group, None], [*group, prediction(draw)], {"a": group[0]}, draw.hostile()]
        return draw.one(wrong)
    return tuple(group) if draw.chance(0.2) else group


def some_weights(draw: Draw, group: Any) -> Any:
    size = len(group) if isinstance(group, (list, tuple)) else 2
    values = np.ones(max(size, 1)) / max(size, 1) if draw.chance(0.5) else draw.proba(1, max(size, 1))[0]
    return draw.one([None, draw.array(values)])


def truth(draw: Draw, group: Any) -> Any:
    first = group[0] if isinstance(group, (list, tuple)) and group else None
    if isinstance(first, dt.Predictive):
        return outcome(draw, first)
    return draw.array(draw.rng.integers(0, 3, 3))


def method(draw: Draw) -> Any:
    more = ("quantile", "median", dt.TrimmedMean(0.1), dt.BetaLinear(2.0, 0.7))
    return draw.option(*METHODS, dt.QuasiArithmetic(np.sqrt, np.square), *more)


@target("pool", AREA)
def _(draw: Draw) -> Call:
    group = some_members(draw)
    settings = {"method": method(draw), "weights": some_weights(draw, group), "latent": draw.latent()}
    return Call(dt.pool, (group,), settings)


@target("pool then ask", AREA)
def _(draw: Draw) -> Call:
    group = members(draw)
    weights = draw.proba(1, len(group))[0]
    pooled = dt.pool(
        group,
        method=draw.one(METHODS[:4]),
        weights=weights / weights.sum(),
        latent=draw.one([None, *LATENTS]),
    )
    name = draw.one(["cdf", "sf", "log_prob", "crps", "trafo", "hazard", "cumhazard"])
    limits = {"low": 0.0, "high": 1 + 1e-12} if name in ("cdf", "sf") else {"infinite": True}
    return Call(getattr(pooled, name), (outcome(draw, pooled),), **limits)


@target("QuasiArithmetic", AREA, 0.3)
def _(draw: Draw) -> Call:
    pairs = [(np.sqrt, np.square), (np.log, np.exp), (np.sin, np.cos), (np.zeros_like, np.ones_like)]
    g, inverse = draw.one(pairs)
    return Call(dt.QuasiArithmetic, (draw.maybe(g), draw.maybe(inverse)))


@target("TrimmedMean", AREA, 0.2)
def _(draw: Draw) -> Call:
    return Call(dt.TrimmedMean, (draw.maybe(draw.one([0.0, 0.2, 0.5, 0.7, -1.0])),))


@target("BetaLinear", AREA, 0.2)
def _(draw: Draw) -> Call:
    return Call(dt.BetaLinear, (draw.maybe(draw.one([1.0, 0.0, 1e9])), draw.maybe(2.0)))


@target("correct then Correction.apply", AREA, 0.5)
def _(draw: Draw) -> Call:
    pred = prediction(draw)
    settings = {"kind": draw.option("intercept", "spread", "both"), "score": draw.option("nll", "crps")}
    return Call(_corrected, (pred, outcome(draw, pred)), settings)


def _corrected(pred: Any, y: Any, **settings: Any) -> Any:
    return dt.correct(pred, y, **settings).apply(pred)


def tuning(draw: Draw) -> dict[str, Any]:
    return {"method": method(draw), "score": draw.option(*SCORES), "latent": draw.latent()}


@target("tune_weights", AREA)
def _(draw: Draw) -> Call:
    group = some_members(draw)
    return Call(tune, (dt.tune_weights, group, truth(draw, group)), tuning(draw), infinite=True)


@target("tune_weights_cv", AREA)
def _(draw: Draw) -> Call:
    group = some_members(draw)
    settings = {**tuning(draw), "folds": draw.option(2, 3, 5), "random_state": draw.random_state()}
    return Call(tune, (dt.tune_weights_cv, group, truth(draw, group)), settings, infinite=True)


@target("tune_weights_stream", AREA)
def _(draw: Draw) -> Call:
    group = some_members(draw)
    chunks = draw.maybe([(group, truth(draw, group))] * int(draw.one([0, 1, 2])))
    return Call(tune, (dt.weights.tune_weights_stream, chunks), tuning(draw), infinite=True)


def tune(function: Any, *args: Any, **settings: Any) -> Any:
    """Return the weights and the value; the gap is NaN where the problem is not convex, as documented."""
    tuned = function(*args, **settings)
    if not (tuned.weights >= 0).all() or abs(tuned.weights.sum() - 1) > 1e-8:
        return np.nan
    return tuned.weights, tuned.value


@target("TunedWeights.interval", AREA, 0.3)
def _(draw: Draw) -> Call:
    group = members(draw, "discrete", draw.one([3, 8]))
    tuned = dt.tune_weights(group, [draw.one(group[0].levels) for _ in range(len(group[0]))])
    if not hasattr(tuned, "interval"):
        return Call(len, (group,))
    return Call(
        tuned.interval, (draw.option(0.5, 0.95),), {"n_boot": draw.option(1, 5)}, low=0.0, high=1 + 1e-9
    )


@target("top_k", AREA)
def _(draw: Draw) -> Call:
    group = some_members(draw)
    args = (group, truth(draw, group), draw.option(1, 2, np.int64(1)), draw.option(*SCORES))
    return Call(top, args, infinite=True)


def top(*args: Any) -> Any:
    """Return what ``top_k`` says, and the weights of the chosen."""
    chosen = dt.top_k(*args)
    return chosen, chosen.weights(np.full(len(args[0]), 1 / len(args[0])))


@target("guarantees", AREA)
def _(draw: Draw) -> Call:
    group = some_members(draw)
    weights = some_weights(draw, group)
    try:
        pooled = dt.pool(group, method=draw.one(METHODS[:3]))
    except (dt.errors.DeeptramError, RecursionError):
        pooled = draw.hostile()
    return Call(
        dt.guarantees, (group, draw.maybe(pooled), truth(draw, group), weights), nan=True, infinite=True
    )


@target("structure_check", AREA)
def _(draw: Draw) -> Call:
    group = some_members(draw)
    grid = draw.one([None, draw.array(np.array([0.5, 1.0, 2.0]))])
    settings = {"y": truth(draw, group) if draw.chance(0.4) else None, "grid": grid, "method": method(draw)}
    return Call(structure, (group,), {**settings, "latent": draw.latent()}, infinite=True)


def structure(*args: Any, **settings: Any) -> Any:
    """Return the table and the largest deviation."""
    result = dt.structure_check(*args, **settings)
    return result.frame(), result.deviation, str(result)


def recalibrated(kind: Any, settings: dict[str, Any], pred: Any, y: Any) -> Any:
    """Fit and apply a recalibration."""
    return kind(**settings).fit_apply(pred, y)


@target("calibration.Recalibration", AREA)
def _(draw: Draw) -> Call:
    pred = prediction(draw)
    settings = {"slope": draw.option("common", "fixed", "separate", "none"), "latent": draw.latent()}
    return Call(recalibrated, (dt.calibration.Recalibration, settings, draw.maybe(pred), outcome(draw, pred)))


@target("calibration.Temperature", AREA)
def _(draw: Draw) -> Call:
    pred = prediction(draw)
    return Call(
        recalibrated,
        (dt.calibration.Temperature, {"latent": draw.latent()}, draw.maybe(pred), outcome(draw, pred)),
    )


@target("compare_pools", AREA)
def _(draw: Draw) -> Call:
    group = members(draw, n=draw.one([1, 4, 20]))
    settings = {
        "methods": draw.option(None, ["linear", "transformation"], "linear", []),
        "weights": draw.option(("equal", "tuned"), ["equal"], "tuned"),
        "corrections": draw.option([None], [None], [None, "recalibration"]),
        "cv": draw.option(2, 2, 3, 5),
        "score": draw.option("nll", "nll", "rps"),
        "random_state": draw.random_state(),
    }
    return Call(dt.compare_pools, (group, outcome(draw, group[0])), settings, nan=True, infinite=True)
