"""Models: every preset fitted to hostile data, then asked everything; ensembles; comparisons."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

import deeptram as dt
from fuzz.driver import Call, target
from fuzz.hostile import LATENTS, Draw
from fuzz.predictions import fitted

AREA = "models"
COUNT, LINE, LEVELS, BINARY, TIMES = "count", "line", "levels", "binary", "times"
PRESETS = {
    "Polr": (dt.Polr, LEVELS),
    "Logit": (dt.Logit, BINARY),
    "Colr": (dt.Colr, LINE),
    "BoxCox": (dt.BoxCox, LINE),
    "Coxph": (dt.Coxph, TIMES),
    "Lehmann": (dt.Lehmann, TIMES),
    "Lm": (dt.Lm, LINE),
    "Survreg": (dt.Survreg, TIMES),
    "Cotram": (dt.Cotram, COUNT),
}


def response(draw: Draw, kind: str, n: int) -> Any:
    """Return outcomes of a kind: ties, one class, all censored, huge scales are all in order."""
    if kind == LEVELS:
        values: Any = draw.rng.integers(0, draw.one([2, 3, 5]), n)
        return draw.array(np.array(["a", "b", "c", "d", "e"])[values] if draw.chance(0.1) else values)
    if kind == BINARY:
        return draw.array(draw.one([draw.rng.random(n) < 0.5, draw.rng.integers(0, 2, n)]))
    if kind == COUNT:
        return draw.array(draw.rng.integers(0, draw.one([2, 9, 10**6]), n))
    if kind == LINE:
        return draw.array(draw.normals(n))
    time = np.exp(np.clip(draw.normals(n), -15, 15))
    if draw.chance(0.2):
        return draw.array(time)
    return dt.Surv.right(time, draw.rng.random(n) < draw.one([0.0, 0.5, 1.0]), draw.one([None, time / 2]))


def table(draw: Draw, n: int, hostile: bool = True) -> Any:
    """Return a table with columns x, z and sometimes g (text), or an array."""
    x, z = draw.normals(n), draw.normals(n)
    if draw.chance(0.1):
        z = x * draw.one([1.0, 2.0, 1 + 1e-12])
    if draw.chance(0.3):
        plain = np.column_stack([x, z])
        return draw.array(plain) if hostile else plain
    frame = pd.DataFrame({"x": x, "z": z})
    if draw.chance(0.3):
        frame["g"] = np.array(["u", "v", "w"])[draw.rng.integers(0, 3, n)]
    if hostile and draw.chance(draw.malice):
        column = draw.one(list(frame.columns))
        changed = frame[column].astype(object).tolist()
        changed[int(draw.rng.integers(n))] = draw.hostile_item()
        frame[column] = pd.Series(changed, dtype=object)
    if draw.chance(0.2):
        return {name: frame[name].to_numpy() for name in frame}
    return frame


def settings_of(draw: Draw, name: str) -> dict[str, Any]:
    """Return some constructor arguments."""
    settings: dict[str, Any] = {}
    if name == "Survreg":
        settings["dist"] = draw.option("weibull", "exponential", "rayleigh", "loglogistic", "lognormal")
    if name in ("Polr", "Logit", "Cotram"):
        settings["latent"] = draw.option(*LATENTS)
    if name in ("Colr", "BoxCox", "Coxph", "Lehmann", "Cotram"):
        settings["order"] = draw.option(1, 3, 6)
        settings["support"] = draw.option(None, (0.1, 5.0), (1, 0), (0.0, float("inf")))
        settings["log_first"] = draw.option(True, False)
    if name in ("Polr", "Logit"):
        settings["levels"] = draw.option(None, [0, 1, 2], ["a", "b"], [1, 0], (True, False))
    settings["terms"] = draw.option(
        None, None, [dt.LS("x")], [dt.SI()], [dt.LS("x"), dt.LS("z")], [dt.LS("x * z")], dt.LS("x")
    )
    settings["loss"] = draw.option("nll", "nll", "nll", "rps", "crps", "brier")
    settings["random_state"] = draw.random_state()
    return {key: value for key, value in settings.items() if draw.chance(0.25)}


def ask(kind: Any, settings: dict[str, Any], X: Any, y: Any, weights: Any, question: str, extra: Any) -> Any:
    """Fit a model and ask it one question."""
    model = kind(**settings)
    model.fit(X, y, sample_weight=weights)
    if question == "fit":
        return model.loglik_
    if question == "summary":
        return str(model.summary(level=extra))
    if question == "confint":
        return str(model.confint(level=extra))
    if question == "profile":
        return str(model.confint(level=0.9, method="profile"))
    if question == "proportionality":
        return str(dt.proportionality_test(model))
    if question == "quantile":
        return model.predict_quantile(X, extra)
    if question == "score":
        return model.score(X, y)
    return getattr(model, question)(X)


QUESTIONS = ("fit", "fit", "summary", "confint", "profile", "proportionality", "quantile", "score", "predict")
QUESTIONS += ("predict_distribution", "predict_distribution", "contributions")


def preset_target(name: str) -> None:
    kind, outcome = PRESETS[name]

    @target(name, AREA)
    def _(draw: Draw) -> Call:
        n = int(draw.one([2, 3, 4, 6, 10, 30]))
        y = (
            response(draw, outcome, n)
            if draw.chance(0.9)
            else response(draw, draw.one([LINE, LEVELS, COUNT]), n)
        )
        weights = draw.one([None, None, None, draw.array(draw.rng.random(n))])
        question = draw.one(QUESTIONS)
        args = (kind, settings_of(draw, name), table(draw, n), y, weights, question, draw.option(0.5, 0.95))
        # A coefficient of a dropped column is NaN, an unreached quantile infinite, as documented.
        return Call(
            ask, args, infinite=question in ("quantile", "predict", "score"), nan=question == "contributions"
        )


for _name in PRESETS:
    preset_target(_name)


@target("Tram", AREA)
def _(draw: Draw) -> Call:
    kinds = {
        "ordinal": LEVELS,
        "binary": BINARY,
        "nominal": LEVELS,
        "continuous": LINE,
        "count": COUNT,
        "survival": TIMES,
    }
    outcome = draw.one(list(kinds))
    n = int(draw.one([3, 6, 10, 30]))
    settings = {"outcome": draw.maybe(outcome, draw.malice / 4)}
    extra = {
        "latent": draw.option(*LATENTS),
        "basis": draw.option(None, "bernstein", "linear", "log-linear"),
        "order": draw.option(1, 3),
        "log_first": draw.option(True, False),
        "terms": draw.option(
            None, [dt.LS("x")], [dt.SI(strata="g")], [dt.LS("x"), dt.Scale("z")], [dt.Varying("x")]
        ),
    }
    settings |= {key: value for key, value in extra.items() if draw.chance(0.3)}
    question = draw.one(["fit", "predict_distribution", "summary"])
    return Call(
        ask, (dt.Tram, settings, table(draw, n), response(draw, kinds[outcome], n), None, question, 0.95)
    )


def asked(model: Any, question: str, *args: Any) -> Any:
    """Ask a fitted model."""
    return getattr(model, question)(*args)


@target("fitted model", AREA, 3.0)
def _(draw: Draw) -> Call:
    model = fitted(int(draw.rng.integers(7)))
    n = draw.n()
    X = draw.array(draw.normals(n, 2))
    question = draw.one(
        [
            "predict",
            "predict_distribution",
            "predict_quantile",
            "predict_survival",
            "contributions",
            "summary",
            "confint",
            "loglik",
        ]
    )
    extra: tuple[Any, ...] = (X,)
    if question == "predict_quantile":
        extra = (X, draw.option(0.5, [0.1, 0.9], 0.0, 1.0))
    elif question == "predict_survival":
        extra = (X, draw.option([0.5, 1.0], 1.0, [0.0]))
    elif question in ("summary", "confint"):
        extra = (draw.option(0.5, 0.95),)
    elif question == "loglik":
        extra = (X, response(draw, draw.one([LINE, COUNT, LEVELS, BINARY]), n))
    return Call(asked, (model, question, *extra), infinite=True)


@target("compare", AREA, 0.5)
def _(draw: Draw) -> Call:
    models = [draw.maybe(fitted(int(draw.rng.integers(7)))) for _ in range(int(draw.one([0, 1, 2, 3])))]
    return Call(dt.compare, tuple(models), nan=True)


def ensemble(settings: dict[str, Any], fit: dict[str, Any], X: Any, y: Any, question: str) -> Any:
    """Train a small ensemble and ask it something."""
    made = dt.Ensemble(**settings).fit(X, y, **fit)
    if question == "coef_table":
        return str(made.coef_table())
    if question == "epistemic":
        return made.epistemic(X, scale="cdf", at=None)
    return getattr(made, question)(X)


@target("Ensemble", AREA, 0.15)
def _(draw: Draw) -> Call:
    n = int(draw.one([6, 20]))
    training = dt.Training(epochs=1, batch_size=8, progress=False)
    net = dt.networks.MLP((3,))
    terms = draw.one([[dt.CS(net, "x")], [dt.CS(net, "x"), dt.LS("z")], [dt.CI(net, "x"), dt.LS("z")]])
    name, kind = draw.one([("Polr", LEVELS), ("Colr", LINE), ("Coxph", TIMES)])
    model = PRESETS[name][0](terms, training=training, random_state=0)
    settings = {
        "model": draw.maybe(model, 0.05),
        "n_members": draw.option(1, 2),
        "pooling": draw.option("transformation", "linear", "log-linear"),
        "weights": draw.option("equal", [1.0]),
        "random_state": draw.random_state(),
        "strategy": draw.option("auto", "sequential", "stacked"),
    }
    fit = {"validation": draw.option(None, 0.3, (table(draw, n), response(draw, kind, n)))}
    question = draw.one(["predict_distribution", "predict", "epistemic", "coef_table"])
    return Call(
        ensemble,
        (settings, fit if draw.chance(0.5) else {}, table(draw, n), response(draw, kind, n), question),
        infinite=True,
    )


@target("Ensemble.from_members", AREA, 0.5)
def _(draw: Draw) -> Call:
    group = draw.one(
        [
            [fitted(5)] * 2,
            [fitted(5), fitted(6)],
            [],
            [fitted(0), draw.hostile()],
            draw.hostile(),
            [fitted(3)],
        ]
    )
    weights = draw.option(None, [0.5, 0.5], [1.0])
    return Call(from_members, (group, weights, draw.array(draw.normals(3, 2))), infinite=True)


def from_members(group: Any, weights: Any, X: Any) -> Any:
    """Pool fitted models."""
    return dt.Ensemble.from_members(group, weights=weights).predict_distribution(X)


@target("leaderboard", AREA, 0.3)
def _(draw: Draw) -> Call:
    name = draw.one(list(PRESETS))
    build, kind = PRESETS[name]
    n = draw.one([4, 20, 40])
    settings = {
        "cv": draw.option(2, 2, 3),
        "metrics": draw.option(None, "nll", ["nll"]),
        "pool": draw.option(True, False, ["linear"]),
        "random_state": draw.random_state(),
    }
    models = {name: build(), "other": draw.one([dt.Lm(), build(), 3])}
    return Call(
        dt.leaderboard, (models, table(draw, n), response(draw, kind, n)), settings, nan=True, infinite=True
    )
