"""Predictive: constructors with hostile input, every method of every kind with hostile arguments."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.stats
import torch
from sklearn.linear_model import LogisticRegression

import deeptram as dt
from deeptram.predictive import Predictive
from fuzz.driver import Call, target
from fuzz.hostile import Draw
from fuzz.predictions import KINDS, METHODS, fitted, members, outcome, prediction

AREA = "predictive"


@target("Predictive.from_proba", AREA)
def _(draw: Draw) -> Call:
    k = int(draw.one([2, 3, 5]))
    return Call(Predictive.from_proba, (draw.array(draw.proba(draw.n(), k)), draw.levels(k)))


@target("Predictive.from_cdf", AREA)
def _(draw: Draw) -> Call:
    k = int(draw.one([2, 3, 5]))
    cdf = np.minimum(np.cumsum(draw.proba(draw.n(), k), axis=1), 1.0)
    return Call(Predictive.from_cdf, (draw.array(cdf), draw.levels(k)))


@target("Predictive.from_trafo", AREA)
def _(draw: Draw) -> Call:
    k = int(draw.one([2, 3, 5]))
    h = np.sort(draw.normals(draw.n(), k - 1), axis=1)
    return Call(Predictive.from_trafo, (draw.array(h), draw.levels(k), draw.latent()))


@target("Predictive.from_samples", AREA)
def _(draw: Draw) -> Call:
    return Call(Predictive.from_samples, (draw.array(draw.normals(draw.n(), int(draw.one([1, 2, 9])))),))


@target("Predictive.from_quantiles", AREA)
def _(draw: Draw) -> Call:
    q = np.sort(draw.rng.random(int(draw.one([2, 3, 9]))))
    values = np.sort(draw.normals(draw.n(), len(q)), axis=1)
    return Call(Predictive.from_quantiles, (draw.array(q), draw.array(values)))


if hasattr(Predictive, "from_survival"):

    @target("Predictive.from_survival", AREA)
    def _(draw: Draw) -> Call:
        times = np.cumsum(np.abs(draw.normals(int(draw.one([1, 2, 5])))) + 0.01)
        survival = np.sort(draw.rng.random((draw.n(), len(times))), axis=1)[:, ::-1]
        return Call(Predictive.from_survival, (draw.array(times), draw.array(survival)))


@target("Predictive.from_scipy", AREA)
def _(draw: Draw) -> Call:
    families = ["norm", "expon", "poisson", "cauchy", "uniform", "gamma", "binom", "geom", "t", "weibull_min"]
    family = getattr(scipy.stats, draw.one(families))
    values = [draw.array(np.abs(draw.normals(draw.n()))) for _ in range(int(draw.rng.integers(0, 4)))]
    if draw.chance(0.1):
        return Call(
            Predictive.from_scipy,
            (draw.one([draw.hostile(), scipy.stats.norm, scipy.stats.multivariate_normal([0, 0])]),),
        )
    try:
        with np.errstate(all="ignore"):
            frozen = family(*values)
            frozen.cdf(0.0)
    except Exception:  # noqa: BLE001 - SciPy refuses the parameters before deeptram sees them
        frozen = scipy.stats.norm(0.5)
    return Call(Predictive.from_scipy, (frozen,))


@target("Predictive.from_torch", AREA)
def _(draw: Draw) -> Call:
    if draw.chance(0.1):
        return Call(Predictive.from_torch, (draw.hostile(),))
    names = ["Normal", "Exponential", "Poisson", "Bernoulli", "Categorical", "Gamma", "Geometric", "StudentT"]
    family = getattr(torch.distributions, draw.one(names))
    n_values = 2 if family in (torch.distributions.Normal, torch.distributions.Gamma) else 1
    values = [
        torch.as_tensor(np.abs(draw.normals(*draw.one([(), (3,), (2, 3), (0,)])))) for _ in range(n_values)
    ]
    if draw.chance(0.2):
        values = [v.to(draw.one([torch.float32, torch.float16])) for v in values]
    try:
        distribution = family(*values, validate_args=draw.one([None, False]))
    except (ValueError, RuntimeError, TypeError, IndexError):
        distribution = torch.distributions.Normal(torch.zeros(2), 1.0)
    return Call(Predictive.from_torch, (distribution,))


@target("Predictive.from_sklearn", AREA, 0.3)
def _(draw: Draw) -> Call:
    model = LogisticRegression().fit([[0.0], [1.0], [2.0]], [0, 1, 2])
    X = draw.rng.normal(size=(draw.n(), 1))
    return Call(Predictive.from_sklearn, (draw.maybe(model), X))


def predictions_of(draw: Draw, kind: str) -> Predictive:
    """Return a prediction: any kind, pooled, of some rows, or of none."""
    if draw.chance(0.1):
        some = members(draw, kind, draw.one([1, 2, 3]))
        pred: Predictive = dt.pool(
            some, method=draw.one(METHODS[:3]), latent=draw.one([None, "logistic", "normal"])
        )
    elif kind == "discrete" and draw.chance(0.2):
        pred = fitted(draw.one([5, 6])).predict_distribution(draw.rng.normal(size=(draw.n(), 2)))
    else:
        pred = prediction(draw, kind)
    if draw.chance(0.1):
        pred = pred[draw.one([[0], slice(0), slice(None, None, -1)])]
    return pred


def value_at(draw: Draw, pred: Predictive) -> Any:
    """Return an argument y: a scalar, one value per row, or something hostile."""
    if pred.levels is None and draw.chance(0.3):
        return draw.maybe(
            draw.one([0, 0.0, 1, 1.5, -1.0, 3, 1e6, -1e6, 1e300, float("inf"), float("-inf"), 1e-300])
        )
    if pred.levels is not None and draw.chance(0.3):
        return draw.maybe(draw.one(pred.levels))
    return outcome(draw, pred)


def grid_of(draw: Draw, pred: Predictive) -> Any:
    if pred.levels is not None:
        return draw.array(np.array(pred.levels))
    return draw.array(np.sort(np.abs(np.round(draw.normals(int(draw.one([1, 4]))) * 3))))


PROBABILITY = {"low": 0.0, "high": 1.0 + 1e-12}
AT = {
    "cdf": PROBABILITY,
    "sf": PROBABILITY,
    "survivor": PROBABILITY,
    "pmf": PROBABILITY,
    "pdf": {"low": 0.0, "infinite": True},  # infinite at an atom and at a pole
    "log_prob": {"infinite": True},
    "trafo": {"infinite": True},
    "hazard": {"low": 0.0, "infinite": True},
    "cumhazard": {"low": 0.0, "infinite": True},
    "crps": {"low": 0.0, "infinite": True},
}
WITHOUT = {"mean": {"infinite": True}, "median": {"infinite": True}, "mode": {"infinite": True}}
GRIDS = {
    "cdf_grid": PROBABILITY,
    "sf_grid": PROBABILITY,
    "pmf_grid": PROBABILITY,
    "pdf_grid": {"low": 0.0, "infinite": True},
    "trafo_grid": {"infinite": True},
}


def at_target(kind: str, name: str, limits: dict[str, Any]) -> None:
    @target(f"{kind}.{name}", AREA, 0.6)
    def _(draw: Draw) -> Call:
        pred = predictions_of(draw, kind)
        return Call(getattr(pred, name), (value_at(draw, pred),), **limits)


def without_target(kind: str, name: str, limits: dict[str, Any]) -> None:
    @target(f"{kind}.{name}", AREA, 0.15)
    def _(draw: Draw) -> Call:
        return Call(getattr(predictions_of(draw, kind), name), **limits)


def grid_target(kind: str, name: str, limits: dict[str, Any]) -> None:
    @target(f"{kind}.{name}", AREA, 0.3)
    def _(draw: Draw) -> Call:
        pred = predictions_of(draw, kind)
        if not hasattr(pred, name):  # not every kind has every grid
            return Call(pred.cdf_grid, (grid_of(draw, pred),), **PROBABILITY)
        return Call(getattr(pred, name), (grid_of(draw, pred),), **limits)


def other_targets(kind: str) -> None:
    @target(f"{kind}.quantile", AREA, 0.6)
    def _(draw: Draw) -> Call:
        q = draw.one([0.5, 0.0, 1.0, 1e-300, draw.array(draw.rng.random(int(draw.one([0, 1, 3]))))])
        return Call(predictions_of(draw, kind).quantile, (draw.maybe(q),), infinite=True)

    @target(f"{kind}.interval", AREA, 0.3)
    def _(draw: Draw) -> Call:
        return Call(predictions_of(draw, kind).interval, (draw.option(0.5, 0.95, 0.999),), infinite=True)

    @target(f"{kind}.sample", AREA, 0.6)
    def _(draw: Draw) -> Call:
        pred = predictions_of(draw, kind)
        return Call(pred.sample, (draw.option(1, 0, 5, np.int64(2)), draw.random_state()), infinite=True)

    @target(f"{kind}[rows]", AREA, 0.6)
    def _(draw: Draw) -> Call:
        pred = predictions_of(draw, kind)
        return Call(pred.__getitem__, (draw.rows(len(pred)),), raises=(IndexError,))

    @target(f"{kind}.rmst", AREA, 0.3)
    def _(draw: Draw) -> Call:
        pred = predictions_of(draw, kind)
        if not hasattr(pred, "rmst"):
            return Call(len, (pred,))
        return Call(pred.rmst, (draw.option(1.0, 2.5, 1e3),))


for _kind in KINDS:
    for _name, _limits in AT.items():
        at_target(_kind, _name, _limits)
    for _name, _limits in WITHOUT.items():
        without_target(_kind, _name, _limits)
    for _name, _limits in GRIDS.items():
        grid_target(_kind, _name, _limits)
    other_targets(_kind)
