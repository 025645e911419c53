"""Plots: the frames behind the figures, and the figures themselves now and then."""

from __future__ import annotations

from typing import Any

import matplotlib.pyplot as plt
import numpy as np

import deeptram as dt
from deeptram import plots
from fuzz.driver import Call, target
from fuzz.hostile import Draw
from fuzz.predictions import fitted, members, outcome, prediction

AREA = "plots"


def shown(draw_it: bool, function: Any, *args: Any, **settings: Any) -> Any:
    """Return a display after drawing it, if asked to."""
    display = function(*args, **settings)
    if draw_it:
        display.plot()
        plt.close("all")
    return display


def drawn(draw: Draw) -> bool:
    return draw.chance(0.05)


def curve_target(name: str) -> None:
    @target(f"plots.{name}", AREA)
    def _(draw: Draw) -> Call:
        pred: Any = prediction(draw)
        if draw.chance(0.2):
            pred = {"a": pred, "b": members(draw)}
        settings = {
            "rows": draw.option(None, 0, [0], slice(None)),
            "grid": draw.option(None, [0.5, 1.0, 2.0], [0, 1]),
        }
        return Call(shown, (drawn(draw), getattr(plots, name), draw.maybe(pred)), settings, infinite=True)


for _name in ("cdf", "density", "trafo"):
    curve_target(_name)


@target("plots.illustration", AREA, 0.5)
def _(draw: Draw) -> Call:
    settings = {"row": draw.option(0, -1), "at": draw.option(None, 1), "latent": draw.latent()}
    return Call(
        shown, (drawn(draw), plots.illustration, draw.maybe(prediction(draw))), settings, infinite=True
    )


@target("plots.calibration", AREA)
def _(draw: Draw) -> Call:
    pred = prediction(draw, "discrete")
    predictions = draw.maybe(draw.one([pred, {"a": pred}, {"a": [pred, pred]}]))
    settings = {"cuts": draw.option("equidistant", 3), "level": draw.option(0.5, 0.95)}
    return Call(shown, (drawn(draw), plots.calibration, outcome(draw, pred), predictions), settings, nan=True)


@target("plots.reliability", AREA, 0.5)
def _(draw: Draw) -> Call:
    pred = prediction(draw)
    settings = {"cuts": draw.option(3, 10, [0.5]), "level": draw.option(0.5, 0.95)}
    return Call(
        shown, (drawn(draw), plots.reliability, outcome(draw, pred), draw.maybe(pred)), settings, nan=True
    )


@target("plots.pit", AREA)
def _(draw: Draw) -> Call:
    pred = prediction(draw)
    predictions = draw.maybe(draw.one([pred, {"a": pred}]))
    settings = {"bins": draw.option(1, 4, 10), "level": draw.option(0.5, 0.95)}
    return Call(shown, (drawn(draw), plots.pit, outcome(draw, pred), predictions), settings)


@target("plots.epistemic", AREA)
def _(draw: Draw) -> Call:
    settings = {
        "scale": draw.option("trafo", "cdf", "quantile"),
        "at": draw.option(None, None, [0.5], 1.0),
        "rows": draw.option(None, [0]),
        "width": draw.option(2.0, 1),
        "latent": draw.latent(),
    }
    return Call(
        shown, (drawn(draw), plots.epistemic, draw.maybe(members(draw))), settings, nan=True, infinite=True
    )


@target("plots.performance", AREA, 0.3)
def _(draw: Draw) -> Call:
    pred = prediction(draw, "discrete", 8)
    y = np.array([draw.one(pred.levels) for _ in range(8)])
    scored = dt.evaluate({"a": pred, "b": [pred, pred]}, y, n_boot=5)
    settings = {
        "metrics": draw.option(None, ["nll"], ["other"]),
        "reference": draw.option(None, "a"),
        "difference": draw.option(True, False),
        "members": draw.option(None, ["b"]),
    }
    return Call(
        shown, (drawn(draw), plots.performance, draw.maybe(scored)), settings, nan=True, infinite=True
    )


@target("plots.coefficients", AREA, 0.5)
def _(draw: Draw) -> Call:
    tables = fitted(int(draw.rng.integers(7))).summary()
    settings = {
        "exp": draw.option(True, False),
        "truth": draw.option(None, {"x0": 1.0}),
        "members": draw.option(None),
    }
    given = draw.one([tables, {"m": tables}, fitted(0), draw.hostile()])
    return Call(shown, (drawn(draw), plots.coefficients, given), settings, nan=True)


@target("plots.weights", AREA, 0.5)
def _(draw: Draw) -> Call:
    weights = draw.array(draw.proba(1, 3)[0])
    return Call(
        shown,
        (drawn(draw), plots.weights, draw.one([weights, {"a": weights}])),
        {"members": draw.option(None, ["a", "b", "c"])},
    )


@target("plots.structure", AREA, 0.5)
def _(draw: Draw) -> Call:
    check: Any = dt.structure_check(members(draw, "discrete"))
    return Call(shown, (drawn(draw), plots.structure, draw.maybe(check)), infinite=True)


@target("plots.history", AREA, 0.5)
def _(draw: Draw) -> Call:
    import pandas as pd

    frame = pd.DataFrame({"epoch": [1, 2], "train_loss": draw.normals(2), "validation_loss": draw.normals(2)})
    return Call(
        shown,
        (drawn(draw), plots.history, draw.maybe(draw.one([frame, [frame], {"a": frame}, frame[:0]]))),
        nan=True,
        infinite=True,
    )
