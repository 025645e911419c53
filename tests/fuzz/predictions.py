"""Valid predictions of every kind, many of them extreme, with outcomes that belong to them."""

from __future__ import annotations

import functools
import warnings
from typing import Any

import numpy as np
import scipy.stats
import torch

import deeptram as dt
from deeptram.predictive import Predictive
from fuzz.hostile import LATENTS, Draw

KINDS = ("discrete", "line", "count")
METHODS = (
    "linear",
    "log-linear",
    "transformation",
    "log-linear-density",
    "quantile",
    "median",
    "beta-linear",
)


def prediction(draw: Draw, kind: str | None = None, n: int | None = None, k: int | None = None) -> Predictive:
    """Return a valid prediction; its distributions may have atoms, heavy tails or bounded support."""
    kind = draw.one(KINDS) if kind is None else kind
    n = draw.n() if n is None else n
    if kind == "discrete":
        return _discrete(draw, n, int(draw.one([2, 2, 3, 5])) if k is None else k)
    return _line(draw, n) if kind == "line" else _count(draw, n)


def members(draw: Draw, kind: str | None = None, n: int | None = None) -> list[Predictive]:
    """Return one to four predictions of the same rows and levels."""
    kind = draw.one(KINDS) if kind is None else kind
    n = draw.n() if n is None else n
    k = int(draw.one([2, 3, 5]))
    return [prediction(draw, kind, n, k) for _ in range(int(draw.one([1, 2, 2, 3, 4])))]


def outcome(draw: Draw, pred: Predictive) -> Any:
    """Return one outcome per row: possible, unlikely or impossible ones, or something hostile."""
    n = len(pred)
    if pred.levels is not None:
        return draw.array(np.array([draw.one(pred.levels) for _ in range(n)], dtype=type_of(pred.levels)))
    if draw.chance(0.15):
        values = np.asarray(pred.sample(1, 0))[:, 0] if n else np.zeros(0)
    elif isinstance(pred, dt.predictive.CountPredictive):
        values = draw.rng.integers(0, draw.one([3, 10, 100, 1000, 10**5]), n).astype(float)
    else:
        values = draw.normals(n)
    values = np.where(np.isfinite(values), values, 1.0)
    if draw.chance(0.15) and (values > 0).all():
        return dt.Surv.right(values, draw.rng.random(n) < 0.5)
    if draw.chance(0.05):
        width = np.abs(draw.normals(n))
        return dt.Surv.interval(np.where(draw.rng.random(n) < 0.3, -np.inf, values - width), values + width)
    return draw.array(values)


def type_of(levels: tuple[Any, ...]) -> Any:
    return None if len({type(level) for level in levels}) == 1 else object


def _discrete(draw: Draw, n: int, k: int) -> Predictive:
    levels = draw.one([None, None, [f"level {i}" for i in range(k)], [i + 0.5 for i in range(k)]])
    way = draw.rng.integers(4)
    if way == 0:
        h = np.sort(draw.normals(n, k - 1) * draw.one([1, 1, 50, 500]), axis=1)
        if draw.chance(0.2):
            h[:, 0] = -np.inf
        if draw.chance(0.2):
            h[:, -1] = np.inf
        return Predictive.from_trafo(h, levels, latent=draw.one(LATENTS))
    proba = draw.proba(n, k)
    if way == 1:
        cdf = np.minimum(np.cumsum(proba, axis=1), 1.0)
        cdf[:, -1] = 1.0
        return Predictive.from_cdf(cdf, levels)
    if way == 2:
        return Predictive.from_proba(torch.tensor(proba), levels)
    return Predictive.from_proba(proba, levels)


def _line(draw: Draw, n: int) -> Predictive:
    way = draw.rng.integers(6)
    location = draw.normals(n)
    scale = np.exp(np.clip(draw.normals(n), -20, 20))
    if way <= 1:
        family = draw.one(
            [
                scipy.stats.norm(location, scale),
                scipy.stats.cauchy(location, scale),
                scipy.stats.uniform(location, scale),
                scipy.stats.expon(scale=scale),
                scipy.stats.t(np.full(n, 1.5), location, scale),
                scipy.stats.lognorm(np.minimum(scale, 5.0)),
                scipy.stats.beta(np.full(n, 0.5), np.minimum(scale, 50.0)),
                scipy.stats.pareto(np.clip(scale, 0.3, 50.0)),
                scipy.stats.weibull_min(np.clip(scale, 0.3, 20.0)),
                scipy.stats.gamma(np.clip(scale, 0.1, 50.0)),
            ]
        )
        return Predictive.from_scipy(family)
    if way == 2:
        scale_t = torch.tensor(scale)
        return Predictive.from_torch(
            draw.one(
                [
                    torch.distributions.Normal(torch.tensor(location), scale_t),
                    torch.distributions.Exponential(scale_t),
                    torch.distributions.LogNormal(torch.zeros(n, dtype=torch.float64), scale_t.clamp(max=3)),
                    torch.distributions.Laplace(torch.tensor(location), scale_t),
                    torch.distributions.Cauchy(torch.tensor(location), scale_t),
                    torch.distributions.Uniform(torch.tensor(location), torch.tensor(location + scale)),
                ]
            )
        )
    if way == 3:
        draws = draw.normals(n, int(draw.one([1, 2, 5, 30])))
        return Predictive.from_samples(draws)
    if way == 4:
        q = np.sort(draw.rng.choice(np.arange(1, 100), size=int(draw.one([2, 3, 9])), replace=False)) / 100
        values = np.sort(draw.rng.normal(size=(n, len(q))), axis=1) * 10.0 ** int(draw.rng.integers(-3, 4))
        return Predictive.from_quantiles(q, values)
    return fitted(int(draw.rng.integers(4))).predict_distribution(draw.rng.normal(size=(n, 2)))


def _count(draw: Draw, n: int) -> Predictive:
    way = draw.rng.integers(4)
    rate = np.exp(np.clip(np.abs(draw.normals(n)), 0, draw.one([3, 3, 3, 5, 11])))
    if way == 0:
        return Predictive.from_scipy(scipy.stats.poisson(rate))
    if way == 1:
        share = np.clip(draw.rng.random(n), 1e-3, 1.0)
        return Predictive.from_scipy(
            draw.one([scipy.stats.geom(share, loc=-1), scipy.stats.nbinom(2.5, share)])
        )
    if way == 2:
        return Predictive.from_torch(torch.distributions.Poisson(torch.tensor(rate)))
    return fitted(4).predict_distribution(draw.rng.normal(size=(n, 2)))


@functools.cache
def fitted(number: int) -> Any:
    """Return one of a few small fitted models: four on the line, one of counts, one of levels."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(40, 2))
    y = np.exp(X[:, 0] * 0.5 + rng.normal(size=40) * 0.5)
    seen = dt.Surv.right(y, rng.random(40) < 0.7)
    models = (
        (dt.Colr(order=4), y),
        (dt.Coxph(order=4), seen),
        (dt.Survreg(), seen),
        (dt.Lm(), y),
        (dt.Cotram(order=4), np.floor(3 * y)),
        (dt.Polr(), np.digitize(y, [0.7, 1.4])),
        (dt.Logit(), y > 1),
    )
    model, response = models[number]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(X, response)
