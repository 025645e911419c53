"""Responses, latent distributions, bases, networks, simulated data, loaders, training settings, terms."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

import deeptram as dt
from deeptram import bases, networks, responses
from fuzz.driver import Call, target
from fuzz.hostile import LATENTS, Draw

AREA = "data"
COLUMNS = ("x", "z")


def censored_target(name: str) -> None:
    @target(f"Surv.{name}", AREA)
    def _(draw: Draw) -> Call:
        n = draw.n()
        time = np.abs(draw.normals(n)) + 0.01
        second = draw.rng.random(n) < 0.5 if name != "interval" else time + np.abs(draw.normals(n))
        entry = draw.one([None, draw.array(time / 2)])
        return Call(getattr(dt.Surv, name), (draw.array(time), draw.array(second), entry), infinite=True)


for _name in ("right", "left", "interval"):
    censored_target(_name)


@target("Surv[rows]", AREA)
def _(draw: Draw) -> Call:
    n = draw.n()
    y = dt.Surv.right(np.arange(1.0, n + 1), np.ones(n), draw.one([None, np.zeros(n)]))
    return Call(y.__getitem__, (draw.rows(n),), infinite=True, raises=(IndexError,))


def labels(draw: Draw) -> Any:
    k = int(draw.one([2, 3]))
    values = draw.one(
        [np.arange(k), np.array(["b", "a", "c"][:k]), np.array([0.0, 1.0, 2.0][:k]), np.array([True, False])]
    )
    return draw.array(values[draw.rng.integers(0, len(values), draw.n() + 3)])


@target("DiscreteResponse", AREA)
def _(draw: Draw) -> Call:
    k = int(draw.one([2, 3]))
    return Call(
        responses.DiscreteResponse, (draw.levels(k) if draw.chance(0.5) else draw.option(("a", "b")),)
    )


@target("DiscreteResponse.infer", AREA)
def _(draw: Draw) -> Call:
    kinds = draw.option("binary", "ordinal", "nominal")
    return Call(responses.DiscreteResponse.infer_and_encode, (labels(draw), draw.levels(3), kinds))


@target("encode_continuous", AREA)
def _(draw: Draw) -> Call:
    encode = draw.one([responses.encode_continuous, responses.encode_survival])
    return Call(encode, (draw.array(draw.normals(draw.n())),))


@target("encode_count", AREA)
def _(draw: Draw) -> Call:
    counts = draw.rng.integers(0, 9, draw.n())
    return Call(responses.encode_count, (draw.array(counts), draw.option(True, False)), infinite=True)


def latent_target(name: str) -> None:
    @target(f"latent.{name}", AREA, 0.5)
    def _(draw: Draw) -> Call:
        latent = dt.latent.get(draw.one(LATENTS))
        z = draw.normals(draw.n()) * draw.one([1, 10, 1000])
        if name == "icdf":
            z = draw.rng.random(draw.n())
        probability = {"low": 0.0, "high": 1.0} if name in ("cdf", "sf", "pdf") else {"infinite": True}
        return Call(getattr(latent, name), (latent_argument(draw, z),), **probability)


def latent_argument(draw: Draw, z: Any) -> Any:
    """Return numbers without NaN (which a latent passes on, like every function of a real number)."""
    if draw.chance(draw.malice):
        return draw.one(
            [np.array([]), np.inf, -np.inf, 1e308, 0, True, "a", None, 10**400, [[1.0], [1.0, 2.0]], 1j, {}]
        )
    return draw.wrapped(np.asarray(z))


for _name in ("cdf", "sf", "pdf", "log_cdf", "log_sf", "log_pdf", "icdf", "dlog_pdf", "d2log_pdf"):
    latent_target(_name)


@target("latent.log_interval", AREA)
def _(draw: Draw) -> Call:
    latent = dt.latent.get(draw.one(LATENTS))
    low = draw.normals(draw.n()) * draw.one([1, 100])
    high = low + np.abs(draw.rng.normal(size=low.shape)) * 10.0 ** draw.rng.integers(-8, 3)
    ends = [draw.wrapped(end) if draw.chance(0.7) else draw.array(end) for end in (low, high)]
    if draw.chance(0.2):
        ends[draw.one([0, 1])] = draw.one([-np.inf, np.inf])
    spoiled = any(np.asarray(end, dtype=object).dtype == object for end in ends)
    return Call(latent.log_interval, tuple(ends), infinite=True, nan=spoiled or bool(draw.malice), high=1e-12)


@target("latent.get", AREA, 0.3)
def _(draw: Draw) -> Call:
    return Call(dt.latent.get, (draw.latent(),))


def basis(draw: Draw) -> Any:
    kind = draw.rng.integers(4)
    if kind == 0:
        return bases.Bernstein(int(draw.one([1, 3, 10])), (0.5, draw.one([1.0, 2.0, 1e6])), draw.chance(0.4))
    return [bases.Cutpoints(3), bases.Linear(), bases.LogLinear(draw.one([None, 1.0]))][kind - 1]


@target("bases.evaluate", AREA)
def _(draw: Draw) -> Call:
    chosen = basis(draw)
    y = (
        draw.rng.integers(0, 3, draw.n())
        if isinstance(chosen, bases.Cutpoints)
        else np.abs(draw.normals(draw.n())) + 0.01
    )
    method = draw.one(["evaluate", "derivative", "offset", "offset_derivative"])
    if draw.chance(draw.malice):
        y = latent_argument(draw, y)
    return Call(
        getattr(chosen, method),
        (draw.wrapped(np.asarray(y)) if isinstance(y, np.ndarray) else y,),
        infinite=True,
    )


@target("bases.Bernstein", AREA)
def _(draw: Draw) -> Call:
    support = draw.option((0.0, 1.0), (1.0, 2.0), [1, 5], (2.0, 1.0), (0.0, float("inf")), (1.0,), "ab")
    return Call(bases.Bernstein, (draw.option(1, 6, 20), support, draw.option(True, False)))


@target("bases.Cutpoints", AREA, 0.3)
def _(draw: Draw) -> Call:
    if draw.chance(0.5):
        return Call(bases.LogLinear, (draw.option(None, 1.0, 2.0),))
    return Call(bases.Cutpoints, (draw.option(2, 5),))


@target("bases.from_dict", AREA, 0.3)
def _(draw: Draw) -> Call:
    state: Any = dict(basis(draw).to_dict())
    if draw.chance(0.7):
        state[draw.one([*state, "other"])] = draw.hostile()
    return Call(bases.from_dict, (draw.maybe(state, 0.1),))


@target("bases.increasing", AREA)
def _(draw: Draw) -> Call:
    function = draw.one([bases.theta_from_free, bases.free_from_theta, bases.log_increments])
    free = np.sort(np.cumsum(np.abs(draw.rng.normal(size=draw.n() + 1)) + 0.01))
    return Call(function, (latent_argument(draw, free),))


def shape(draw: Draw) -> Any:
    return draw.option((3,), (1, 8, 8), (8, 8), (3, 32, 32), (1, 28, 28), (0,), (), [3], (2.5,))


@target("networks.MLP", AREA)
def _(draw: Draw) -> Call:
    settings = {
        "hidden": draw.option((4,), (), [3, 2], 5),
        "dropout": draw.option(0.0, 0.5),
        "activation": draw.option("relu", "tanh"),
    }
    return Call(made, (networks.MLP, settings, shape(draw), draw.option(1, 3)))


@target("networks.CNN", AREA)
def _(draw: Draw) -> Call:
    settings = {
        "channels": draw.option((2,), (2, 3)),
        "kernel_size": draw.option(3, 1, 5),
        "convolutions": draw.option(1, 2),
        "padding": draw.option("same", "valid"),
        "pool": draw.option(2, 1),
        "dense": draw.option((4,), ()),
    }
    return Call(made, (networks.CNN, settings, shape(draw), draw.option(1, 3)))


@target("networks.paper", AREA, 0.2)
def _(draw: Draw) -> Call:
    factory = draw.one([networks.paper_mnist, networks.paper_melanoma, networks.paper_utkface])
    return Call(built, (factory, shape(draw), draw.option(1, 3)))


def made(factory: Any, settings: dict[str, Any], in_shape: Any, out: Any) -> None:
    """Configure and build a network."""
    built(factory(**settings), in_shape, out)


def built(factory: Any, in_shape: Any, out: Any) -> None:
    """Build a network in its own stream of torch's generator, as every fit does."""
    with torch.random.fork_rng(devices=[]):
        factory(in_shape, out)


@target("networks.from_dict", AREA, 0.3)
def _(draw: Draw) -> Call:
    state: Any = dict(networks.to_dict(draw.one([networks.MLP((3,)), networks.CNN(), networks.paper_mnist])))
    if draw.chance(0.7):
        state[draw.one([*state, "other"])] = draw.hostile()
    return Call(networks.from_dict, (draw.maybe(state, 0.1),))


@target("networks.register", AREA, 0.2)
def _(draw: Draw) -> Call:
    return Call(draw.one([networks.is_registered, networks.to_dict]), (draw.hostile(),))


@target("datasets.simulate", AREA)
def _(draw: Draw) -> Call:
    settings = {
        "beta": draw.option((1.0, -0.5), (), [1e3], draw.array(draw.normals(2))),
        "image_effect": draw.option(1.0, 0.0, 50.0),
        "image_size": draw.option(5, 8),
        "n_levels": draw.option(2, 5),
        "censoring": draw.option(0.0, 0.3, 0.9),
        "latent": draw.latent(),
        "seed": draw.option(0, 1, 2**40),
    }
    chosen = {key: value for key, value in settings.items() if draw.chance(0.5)}
    outcome = draw.option("binary", "ordinal", "continuous", "survival")
    return Call(
        dt.datasets.simulate, (outcome, draw.option(1, 2, 10)), chosen, infinite=outcome == "survival"
    )


@target("datasets.simulate_covariates", AREA)
def _(draw: Draw) -> Call:
    settings = {"sd": draw.option(1.0, 3.0), "effects": draw.option({"a": 1.0}, {}, {"a": 1.0, "b": 2.0})}
    codes = draw.array(draw.rng.integers(0, 4, draw.n()))
    return Call(dt.datasets.simulate_covariates, (codes, draw.option(0, 3)), settings)


@target("datasets.load", AREA, 0.2)
def _(draw: Draw) -> Call:
    names = ["load_mnist", "load_melanoma", "load_utkface", "load_ham10000", "cache_folder"]
    folder = draw.one(
        ["/nowhere", "", "\0", 5, b"x", 1.5, "/dev/null", ["a"], {}, True, "x" * 5000, "\ud800"]
    )
    return Call(getattr(dt.datasets, draw.one(names)), (folder,))


@target("datasets.load_digits", AREA, 0.02)
def _(draw: Draw) -> Call:
    return Call(dt.datasets.load_digits, (draw.option(0, 1),))


@target("Training", AREA)
def _(draw: Draw) -> Call:
    settings = {
        "epochs": draw.option(1, 10),
        "batch_size": draw.option(1, 256),
        "learning_rate": draw.option(1e-3, 1),
        "weight_decay": draw.option(0.0, 0.1),
        "patience": draw.option(None, 3),
        "validation": draw.option(None, 0.2),
        "warm_start": draw.option(True, False),
        "device": draw.option("auto", "cpu", "cuda:99", "tpu"),
        "dtype": draw.option("float32", "float64"),
        "optimizer": draw.option("adam", "adamw"),
        "schedule": draw.option(None, "cosine", "plateau", "warm-up"),
        "clip_norm": draw.option(None, 1.0),
        "mixed_precision": draw.option("auto", "native", True, False),
        "restore_best": draw.option(True, False),
        "progress": draw.option("auto", False),
        "min_epochs": draw.option(0, 2),
    }
    chosen = {key: value for key, value in settings.items() if draw.chance(0.3)}
    return Call(training, (chosen, draw.maybe(dict(dt.Training().to_dict()), 0.2)), infinite=True)


def training(settings: dict[str, Any], state: Any) -> Any:
    """Make the settings, write them down and read some back."""
    made = dt.Training(**settings)
    if made.augment is None:
        dt.Training.from_dict(made.to_dict())
    dt.Training.from_dict(state)
    return made


@target("terms", AREA)
def _(draw: Draw) -> Call:
    kind = draw.one([dt.LS, dt.CS, dt.CI, dt.SI, dt.Scale, dt.Varying])
    columns = [draw.option(*COLUMNS, "x + z", "") for _ in range(int(draw.one([0, 1, 2])))]
    if kind in (dt.CS, dt.CI):
        columns = [draw.maybe(networks.MLP((2,))), *columns]
    # A term keeps what it was given; it is looked at when a model is fitted.
    return Call(kind, tuple(columns[:1] if kind is dt.SI else columns), nan=True, infinite=True)
