"""Files that lie: saved models edited at random with digests that fit, and what loading makes of them.

``python tests/saved_edits.py 20000 [seed]`` runs a longer campaign than the suite does.
"""

from __future__ import annotations

import collections
import copy
import hashlib
import json
import resource
import signal
import sys
import tempfile
import time
import traceback
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from safetensors.numpy import load, save
from torch import nn

import deeptram as dt
from deep_models import table
from deeptram._files import file_sha256
from deeptram.errors import DeeptramError, DeeptramWarning, FileFormatError
from deeptram.model.persistence import JSON_NAME, TENSOR_NAME

SECONDS, MEGABYTES = 2.0, 200.0
DEEP = dt.Training(epochs=1, batch_size=64, progress=False)
MLP, CNN = dt.networks.MLP(hidden=(4,)), dt.networks.CNN(channels=(2,), dense=(3,), dropout=0.1)


class Normalised(nn.Module):
    """A network with buffers of every kind: floats, integers, without dimensions."""

    def __init__(self, in_shape: tuple[int, ...], out_features: int, width: int = 3) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(in_shape[0], width), nn.BatchNorm1d(width), nn.ReLU(), nn.Linear(width, out_features)
        )
        self.register_buffer("rounds", torch.arange(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


NETWORKS = {f"{Normalised.__module__}.Normalised": Normalised}


def rows(n: int = 40) -> tuple[pd.DataFrame, np.ndarray]:
    """Return columns of all kinds and a latent outcome."""
    X, z = table(n)
    return X.assign(s=np.where(X["c"] > 0, "p", "q"), f=pd.Categorical(np.where(X["b"] > 0, "m", "n"))), z


def make_models() -> dict[str, tuple[Any, Any, Any]]:
    """Return name -> (fitted model, its X, its y): at least one of every kind that can be saved."""
    X, z = rows()
    classes, time_ = np.digitize(z, [-1, 1]), np.exp(z / 2)
    label = np.array(["u", "v", "w"])[classes]
    censored = dt.Surv.right(time_, z < 1)
    images = {
        "image": np.random.default_rng(1).random((len(z), 8, 8)).astype(np.float32),
        "a": X["a"].to_numpy(),
    }
    big, z_big = rows(120)
    y_big = np.digitize(z_big, [-1, 1])
    ensemble = dt.Ensemble(
        dt.Polr([dt.CS(MLP, "b", "f"), dt.LS("a")], training=DEEP),
        2,
        weights="tuned",
        recalibrate=True,
        random_state=1,
    )
    models = {
        "ordinal": (dt.Polr([dt.LS("a * f + bs(c, df=4) + C(s) + poly(b, 2)")]), X, classes),
        "binary": (dt.Logit([dt.LS("a", "f")], latent="probit"), X, z > 0),
        "survival": (dt.Coxph([dt.SI("s"), dt.LS("a", "f")], order=4, log_first=True), X, censored),
        "weibull": (dt.Survreg([dt.LS("a + np.log(b ** 2 + 1)")]), X, censored),
        "continuous": (dt.Colr([dt.LS("a"), dt.Scale("b"), dt.Varying("f")], order=3), X, z),
        "linear": (dt.Lm(), X[["a", "b"]].to_numpy(), z),
        "count": (dt.Cotram([dt.LS("a", "b")], order=3), X, np.floor(time_).astype(int)),
        "nominal": (dt.Tram([dt.LS("a")], outcome="nominal"), X, label),
        "deep": (
            dt.Colr([dt.CI(MLP, "b", "c", "f"), dt.LS("a")], order=3, training=DEEP, random_state=1),
            X,
            z,
        ),
        "shift": (
            dt.BoxCox(
                [dt.SI("s"), dt.CS(MLP, "b"), dt.LS("a"), dt.Scale("c"), dt.Scale(MLP, "b")],
                order=3,
                training=DEEP,
            ),
            X,
            z,
        ),
        "image": (
            dt.Polr([dt.CI(CNN, "image"), dt.LS("a")], training=DEEP, levels=["u", "v", "w"]),
            images,
            label,
        ),
        "own": (dt.Polr([dt.CS(Normalised, "a", "b"), dt.LS("c")], training=DEEP), X, classes),
        "ensemble": (ensemble, big, y_big),
        "folds": (dt.Colr([dt.LS("a")], order=3), X, z),
    }
    fitted = {}
    for name, (model, data, y) in models.items():
        if name == "folds":
            model = dt.Ensemble.from_folds(model, data, y, cv=2, weights=[0.25, 0.75], random_state=1)
        else:
            model.fit(data, y, **({"validation": 0.3} if name == "ensemble" else {}))
        fitted[name] = (model, data, y)
    return fitted


# -- edits of JSON --------------------------------------------------------------------------------

_deep: Any = 1
for _ in range(400):
    _deep = [_deep]
JUNK: list[Any] = [
    None,
    True,
    False,
    0,
    1,
    2,
    3,
    -1,
    7,
    10**6,
    10**12,
    2**63,
    -(2**70),
    10**400,
    -(10**400),
    0.0,
    -0.5,
    1.5,
    1e-320,
    1e30,
    1e308,
    -1e308,
    float("nan"),
    float("inf"),
    -float("inf"),
    "",
    "x",
    "a",
    "f",
    "u",
    "1",
    "nan",
    "\x00",
    "é\u202e",
    "\ud800",
    "a" * 100_000,
    "__import__('os').system('x')",
    "`",
    "bs(a, df=1000000)",
    "(a+b)**20",
    [],
    [[]],
    [1],
    ["a"],
    ["a", "a"],
    [0.0, 0.0],
    [1.0, 0.0],
    [1e308, -1e308],
    [5000] * 5000,
    ["a"] * 5000,
    {},
    {"a": 1},
    {"tuple": [0.0, 1.0]},
    {"tuple": [{"float": "nan"}, 1]},
    {"float": "nan"},
    {"float": "inf"},
    {"float": "x"},
    {"dict": {"a": 1}},
    {"array": [1, [2]]},
    {"array": [1, 2]},
    {"items": [[[], 1]]},
    {"items": [[{}, 1]]},
    {"items": [1]},
    {"float": [1]},
    {"array": "x"},
    {"items": 3},
    _deep,
]


def paths(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return where every value inside a JSON document is."""
    found = [at] if at else []
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, entry in inside:
        found += paths(entry, (*at, key))
    return found


def get(document: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        document = document[key]
    return document


def edit_json(document: dict[str, Any], rng: np.random.Generator) -> str:
    """Make one random edit in place; return what it was."""
    spots = [
        p for p in paths(document) if p[0] not in ("sha256", "versions") and p[:2] != ("tensors", "sha256")
    ]
    inner = [p for p in spots if p[0] in ("model", "ensemble")]
    spots = inner if inner and rng.random() < 0.9 else spots
    path = spots[rng.integers(len(spots))]
    parent, key = get(document, path[:-1]), path[-1]
    value = parent[key]
    kind = rng.integers(12)
    if kind == 0:
        del parent[key]
        what = "deleted"
    elif kind <= 5:
        parent[key] = copy.deepcopy(JUNK[rng.integers(len(JUNK))])
        what = f"= {parent[key]!r:.60}"
    elif kind == 6:
        other = spots[rng.integers(len(spots))]
        parent[key] = copy.deepcopy(get(document, other))
        what = f"= copy of {other}"
    elif kind == 7 and isinstance(parent, dict):
        parent[str(JUNK[rng.integers(25, 40)])] = parent.pop(key)
        what = "renamed"
    elif kind == 8 and isinstance(parent, list):
        parent.insert(int(rng.integers(len(parent) + 1)), copy.deepcopy(value))
        what = "repeated"
    else:
        parent[key] = _near(value, rng)
        what = f"{value!r:.60} -> {parent[key]!r:.60}"
    return f"{'.'.join(map(str, path))} {what}"


def _near(value: Any, rng: np.random.Generator) -> Any:
    """Return something like the value."""
    if isinstance(value, bool):
        return [not value, int(value), str(value)][rng.integers(3)]
    if isinstance(value, (int, float)):
        return [value + 1, -value, value * 10, value * 10**30, str(value), [value], float(value), value / 3][
            rng.integers(8)
        ]
    if isinstance(value, str):
        return [value + "x", value.upper(), value[:-1], [value], value * 3, value + "\u0301"][rng.integers(6)]
    if isinstance(value, list):
        order = rng.permutation(len(value))
        return [
            value[::-1],
            [value[i] for i in order],
            value[:-1],
            value * 2,
            value * 300,
            [value],
            value[1:],
            dict(enumerate(map(str, value))),
        ][rng.integers(8)]
    if isinstance(value, dict):
        keys, entries = list(value), [*value.values()]
        return [dict(zip(keys, entries[::-1], strict=True)), {**value, "more": 1}, [value], list(value), {}][
            rng.integers(5)
        ]
    return [0, "", [], {}, 1.0, True][rng.integers(6)]


# -- edits of tensors -----------------------------------------------------------------------------

VALUES = (np.nan, np.inf, -np.inf, 1e300, -1e300, 1e38, 0.0, -1.0, 1e-320, 1e20, 5.0)
TYPES = ("f8", "f4", "f2", "i8", "i4", "u1", "?", "u2", "i2")


def edit_tensors(tensors: dict[str, np.ndarray], rng: np.random.Generator) -> str:
    """Make one random edit in place; return what it was."""
    names = sorted(tensors)
    name = names[rng.integers(len(names))]
    value, kind = tensors[name], rng.integers(11)
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if kind <= 2 and value.size:
            changed = value.copy().ravel()
            changed[rng.integers(value.size) if kind < 2 else slice(None)] = _cast(
                VALUES[rng.integers(len(VALUES))], value
            )
            tensors[name], what = (
                changed.reshape(value.shape),
                f"value {changed.max() if changed.size else None!r:.20}",
            )
        elif kind == 3:
            kind_of = TYPES[rng.integers(len(TYPES))]
            tensors[name], what = value.astype(kind_of), f"as {kind_of}"
        elif kind == 4:
            del tensors[name]
            what = "deleted"
        elif kind == 5:
            tensors[["extra", "weights", "theta", "model.more", "0/x", "9/theta"][rng.integers(6)]] = value
            what = "copied"
        elif kind == 6:
            other = names[rng.integers(len(names))]
            tensors[name], tensors[other] = tensors[other], tensors[name]
            what = f"swapped with {other}"
        elif kind == 7:
            shape = [(-1,), (1, -1), (-1, 1), (*value.shape, 1), (1, *value.shape), value.shape[::-1]][
                rng.integers(6)
            ]
            tensors[name], what = value.reshape(shape), f"reshaped {shape}"
        elif kind == 8:
            tensors[name], what = (
                [value[:0], value[:-1], value[1:], np.concatenate([value, value])][rng.integers(4)]
                if value.ndim
                else value[None],
                "cut",
            )
        elif kind == 9:
            tensors[name], what = (
                [value[::-1], -value, value * 2, np.sort(value)][rng.integers(4)]
                if value.ndim and value.dtype != bool
                else np.zeros_like(value),
                "turned",
            )
        else:
            tensors[name], what = (
                np.zeros([(), (0,), (0, 10**9), (3000, 1000), (1,)][rng.integers(5)], value.dtype),
                "other",
            )
    return f"{name} {what}"


def _cast(number: float, like: np.ndarray) -> Any:
    return np.asarray(number).astype(like.dtype)


# -- one trial ------------------------------------------------------------------------------------


def rewrite(folder: Path, document: dict[str, Any], data: bytes | None) -> None:
    """Write an edited folder with digests that fit."""
    if data is not None:
        (folder / TENSOR_NAME).write_bytes(data)
    rest = {key: value for key, value in document.items() if key != "sha256"}
    document["sha256"] = hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()  # NaN too
    (folder / JSON_NAME).write_text(json.dumps(document), encoding="utf-8")


def check_works(model: Any, X: Any, y: Any) -> str | None:
    """Return what is wrong with the predictions of a model, or None."""
    predictive = model.predict_distribution(X)
    if predictive.levels is not None:
        p = np.asarray(predictive.pmf())
        if not (np.isfinite(p).all() and (p >= 0).all() and np.allclose(p.sum(axis=1), 1)):
            return "probabilities"
    else:
        at = np.linspace(0, 5, 7) if isinstance(y, dt.Surv) else np.unique(y)[::5].astype(float)
        cdf = np.asarray(predictive.cdf_grid(at))
        if not (np.isfinite(cdf).all() and (cdf >= 0).all() and (cdf <= 1).all()):
            return "cdf"
        if not (np.diff(cdf, axis=1) >= -1e-9).all():
            return "order of the cdf"
    if np.isnan(predictive.log_prob(y)).any():
        return "log_prob"
    model.summary() if not isinstance(model, dt.Ensemble) else model.coef_
    repr(model)
    return None


class TooSlow(BaseException):
    pass


def _ring(*_: Any) -> None:
    raise TooSlow


def trial(folder: Path, X: Any, y: Any) -> tuple[str, str]:
    """Load a folder and use it; return the class of the outcome and details."""
    signal.signal(signal.SIGALRM, _ring)
    signal.setitimer(signal.ITIMER_REAL, 10 * SECONDS)
    start = time.process_time()  # a busy machine is not the file's fault
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    loaded = False
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            warnings.simplefilter("ignore", DeeptramWarning)
            warnings.filterwarnings("ignore", "Using padding='same' with even kernel", UserWarning)
            model = dt.load(folder, networks=NETWORKS)
            loaded = True
            wrong = check_works(model, X, y)
        result = ("works", "") if wrong is None else ("INVALID", wrong)
    except FileFormatError as error:
        result = ("refused", str(error))
    except DeeptramError as error:
        result = ("other data" if loaded else "FOREIGN", f"{type(error).__name__}: {error}")
    except TooSlow:
        result = ("SLOW", "stopped")
    except Exception as error:  # noqa: BLE001 - the campaign is about what comes out here
        at = traceback.extract_tb(error.__traceback__)[-1]
        result = (
            "FOREIGN",
            f"{'use' if loaded else 'load'} {type(error).__name__}: {error} at {at.filename}:{at.lineno}",
        )
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    more = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory) / 1024
    seconds = time.process_time() - start
    if seconds > SECONDS:
        return "SLOW", f"{seconds:.1f} s; {result}"
    return ("MEMORY", f"{more:.0f} MB; {result}") if more > MEGABYTES else result


def campaign(
    models: dict[str, tuple[Any, Any, Any]], folder: Path, edits: int, seed: int
) -> list[tuple[str, str, str, str]]:
    """Return (model, edit, outcome, details) of many random edits."""
    rng = np.random.default_rng(seed)
    sources = {}
    for name, (model, _, _) in models.items():
        path = model.save(folder / name, overwrite=True)
        sources[name] = (json.loads((path / JSON_NAME).read_text()), (path / TENSOR_NAME).read_bytes())
    results = []
    names = list(models)
    while len(results) < edits:
        name = names[rng.integers(len(names))]
        document, data = copy.deepcopy(sources[name][0]), None
        edit = []
        if rng.random() < 0.3:
            tensors = load(sources[name][1])
            edit += [edit_tensors(tensors, rng) for _ in range(1 + (rng.random() < 0.2)) if tensors]
            tensors = {key: np.asarray(value, order="C") for key, value in tensors.items()}
            data = save(tensors)
            (folder / name / TENSOR_NAME).write_bytes(data)
            document["tensors"] = {
                "bytes": len(data),
                "sha256": file_sha256(folder / name / TENSOR_NAME),
                "shapes": {key: list(value.shape) for key, value in tensors.items()},
            }
        if not edit or rng.random() < 0.1:
            edit += [edit_json(document, rng) for _ in range(1 + (rng.random() < 0.2))]
        try:
            rewrite(folder / name, document, data or sources[name][1])
        except RecursionError:  # deeper than JSON can be written
            continue
        _, X, y = models[name]
        results.append((name, "; ".join(edit), *trial(folder / name, X, y)))
    return results


def main() -> None:
    """Run a campaign of the length and seed on the command line, and print what is not as it should be."""
    edits, seed = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0
    resource.setrlimit(resource.RLIMIT_AS, (12 * 1024**3, 12 * 1024**3))
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        results = campaign(make_models(), Path(folder), edits, seed)
    for name, edit, outcome, details in results:
        if outcome.isupper() or ("-v" in sys.argv and outcome == "other data"):
            print(f"{outcome} | {name} | {edit[:200]} | {details[:100]} ... {details[-100:]}")
    counts = collections.Counter(outcome for _, _, outcome, _ in results)
    print(dict(counts), f"{len(results)} edits in {time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
