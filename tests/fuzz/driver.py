"""The driver of the campaign: one seeded call after the other, each judged by the same rules.

A *target* draws the arguments of one public callable and returns a ``Call``. The driver makes
the call and reports a *finding* if it

* ends in anything but an error of deeptram (or a built-in that the target names as documented),
* answers NaN, infinity or a number out of range where the target does not allow it,
* lets a warning through that is not deeptram's,
* changes an argument, or global state (random generators, ``warnings.filters``, NumPy's and torch's settings),
* takes longer than ``SLOWEST`` seconds.

Every call has a seed of its own, so each finding can be replayed alone.
"""

from __future__ import annotations

import dataclasses
import os
import random
import signal
import sys
import threading
import time
import traceback
import warnings
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch
from sklearn.exceptions import DataConversionWarning

from deeptram.errors import DeeptramError, DeeptramWarning
from deeptram.plots import Display
from deeptram.predictive import Predictive
from fuzz.hostile import Draw

SLOWEST = 20.0
ALLOWED_WARNINGS = (DeeptramWarning, DataConversionWarning)
TARGETS: dict[str, Target] = {}
_SOURCES = str(Path(__file__).parents[2] / "src")


@dataclasses.dataclass(frozen=True)
class Call:
    """One call to make, and what its answer may hold."""

    function: Callable[..., Any]
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = dataclasses.field(default_factory=dict)
    nan: bool = False  # NaN is documented here
    infinite: bool = False  # infinity is documented here
    low: float = -np.inf
    high: float = np.inf
    raises: tuple[type[BaseException], ...] = ()  # documented built-ins
    shape: tuple[int, ...] | None = None


@dataclasses.dataclass(frozen=True)
class Target:
    """A public callable with the generator of its calls."""

    name: str
    area: str
    build: Callable[[Draw], Call]
    weight: float


@dataclasses.dataclass(frozen=True)
class Finding:
    """What went wrong: ``key`` tells findings apart, ``text`` shows one in full."""

    target: str
    seed: int
    key: tuple[str, ...]
    text: str


class TooSlowError(BaseException):
    """Raised by the alarm; no ``except Exception`` may swallow it."""


def target(
    name: str, area: str, weight: float = 1.0
) -> Callable[[Callable[[Draw], Call]], Callable[[Draw], Call]]:
    """Register a function ``draw -> Call`` as the target ``name``."""

    def register(build: Callable[[Draw], Call]) -> Callable[[Draw], Call]:
        if name in TARGETS:
            raise KeyError(f"two targets are named {name}")
        TARGETS[name] = Target(name, area, build, weight)
        return build

    return register


def run(name: str, seed: int) -> Finding | None:
    """Make the call of a target with a seed and judge it."""
    chosen = TARGETS[name]
    draw = Draw([zlib.crc32(name.encode()), seed])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            call = chosen.build(draw)
        except DeeptramError:
            return None  # a premise (a prediction, a fitted model) was refused
        except Exception as error:  # noqa: BLE001 - the premise itself is a finding
            key = ("premise", type(error).__name__, _place(error))
            return Finding(name, seed, key, traceback.format_exc(limit=-2))
        caught.clear()
        arguments, state = fingerprint((call.args, call.kwargs)), global_state()
        start, modules = time.perf_counter(), len(sys.modules)
        problem: tuple[tuple[str, ...], str] | None = None
        try:
            with _alarm():
                problem = next(judge(call.function(*call.args, **call.kwargs), call), None)
        except DeeptramError as error:
            problem = None if str(error).strip() else (("silent error", type(error).__name__), repr(error))
        except call.raises:
            problem = None
        except TooSlowError:
            problem = ("slow",), f"no answer within {SLOWEST:g} s"
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            problem = ("exception", type(error).__name__, _place(error)), traceback.format_exc(limit=-2)
        seconds = time.perf_counter() - start
        changed = [key for key, value in global_state().items() if value != state[key]]
        if len(sys.modules) > modules:  # what a library does when it is imported is not ours
            changed = [key for key in changed if key not in ("warnings.filters", "environment")]
    foreign = [w for w in caught if not issubclass(w.category, ALLOWED_WARNINGS)]
    _restore(state)
    if problem is None and foreign:
        w = foreign[0]
        problem = (
            ("warning", w.category.__name__, str(w.message)[:60]),
            f"{w.filename}:{w.lineno}: {w.message}",
        )
    if problem is None and fingerprint((call.args, call.kwargs)) != arguments:
        problem = ("argument changed",), "an argument is not what it was before the call"
    if problem is None and changed:
        problem = ("state changed", *changed), f"global state changed: {', '.join(changed)}"
    if problem is None and seconds > SLOWEST:
        problem = ("slow",), f"took {seconds:.1f} s"
    return None if problem is None else Finding(name, seed, problem[0], problem[1] + _said(call))


def campaign(
    names: list[str], start: int, calls: int | None, seconds: float
) -> tuple[Counter[str], dict[tuple[str, ...], tuple[Finding, int]]]:
    """Make calls until their number or the time is used up; return calls per target and distinct findings."""
    order = np.random.default_rng(start)
    weights = np.array([TARGETS[name].weight for name in names])
    count: Counter[str] = Counter()
    found: dict[tuple[str, ...], tuple[Finding, int]] = {}
    end = time.monotonic() + seconds
    number = 0
    while time.monotonic() < end and (calls is None or number < calls):
        name = str(order.choice(names, p=weights / weights.sum()))
        finding = run(name, start + number)
        count[name] += 1
        number += 1
        if finding is not None:
            key = (finding.target, *finding.key)
            first, times = found.get(key, (finding, 0))
            found[key] = first, times + 1
    return count, found


# -- judging an answer ----------------------------------------------------------------------------


def judge(answer: Any, call: Call) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield what is wrong with the numbers of an answer."""
    if call.shape is not None and np.shape(answer) != call.shape:
        yield ("shape",), f"expected shape {call.shape}, got {np.shape(answer)}"
    for where, values in numbers(answer):
        if not call.nan and np.isnan(values).any():
            yield ("nan", where), f"NaN in {where or 'the answer'}: {values.ravel()[:6]}"
        if not call.infinite and np.isinf(values).any():
            yield ("infinity", where), f"infinity in {where or 'the answer'}: {values.ravel()[:6]}"
        finite = values[~np.isnan(values)]
        if finite.size and (finite.min() < call.low or finite.max() > call.high):
            got = f"{finite.min()} .. {finite.max()}"
            yield ("range", where), f"{where or 'the answer'} in {got}, not in [{call.low}, {call.high}]"


def numbers(value: Any, where: str = "", depth: int = 0) -> Iterator[tuple[str, Any]]:
    """Yield every array of real numbers inside an answer with the name of its place."""
    if depth > 4 or value is None or isinstance(value, (str, bytes, bool)):
        return
    if isinstance(value, torch.Tensor):
        value = value.detach().cpu().numpy()
    if isinstance(value, Predictive):
        yield from _of_predictive(value)
    elif isinstance(value, Display):
        yield from numbers(value.frame(), where, depth + 1)
    elif isinstance(value, pd.DataFrame):
        for position, column in enumerate(value.columns):
            yield from numbers(value.iloc[:, position], f"{where}.{column}", depth + 1)
    elif isinstance(value, (pd.Series, pd.Index)):
        if pd.api.types.is_float_dtype(value.dtype):
            yield where, value.to_numpy(dtype=np.float64)
    elif isinstance(value, dict):
        for key, entry in value.items():
            yield from numbers(entry, f"{where}[{key}]", depth + 1)
    elif isinstance(value, (list, tuple)):
        for entry in value:
            yield from numbers(entry, where, depth + 1)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield from numbers(getattr(value, field.name), f"{where}.{field.name}", depth + 1)
    elif isinstance(value, (float, np.ndarray, np.number)):
        array = np.asarray(value)
        if array.dtype.kind in "fiu":
            yield where, array.astype(np.float64)


def _of_predictive(pred: Predictive) -> Iterator[tuple[str, Any]]:
    """Yield the CDF of a prediction: between 0 and 1, and never falling."""
    if pred.levels is not None:
        cdf = np.asarray(pred.cdf()[:5] if len(pred) else np.zeros((0, 2)))
    else:
        cdf = (
            np.asarray(pred[:5].cdf_grid([-1e6, -1.0, 0.0, 0.5, 3.0, 1e6])) if len(pred) else np.zeros((0, 2))
        )
    wrong = ((cdf < 0) | (cdf > 1)).any() or (np.diff(cdf, axis=1) < -1e-9).any()
    yield "cdf", np.where(wrong, np.nan, cdf).astype(np.float64)


# -- what must not change ---------------------------------------------------------------------------


def fingerprint(value: Any) -> Any:
    """Return something equal before and after a call that leaves its arguments alone."""
    if isinstance(value, np.ndarray):
        content = repr(value.tolist()) if value.dtype == object else value.tobytes()
        return value.dtype.str, value.shape, content
    if isinstance(value, torch.Tensor):
        return str(value.dtype), tuple(value.shape), value.detach().numpy().tobytes(), value.requires_grad
    if isinstance(value, (pd.DataFrame, pd.Series, pd.Index)):
        columns = [value] if not isinstance(value, pd.DataFrame) else [c for _, c in value.items()]
        return repr(value.axes if hasattr(value, "axes") else value), [
            fingerprint(c.to_numpy()) for c in columns
        ]
    if isinstance(value, dict):
        return [(repr(key), fingerprint(entry)) for key, entry in value.items()]
    if isinstance(value, (list, tuple)):
        return [fingerprint(entry) for entry in value]
    return repr(value) if isinstance(value, (str, int, float, complex, set)) else None


def global_state() -> dict[str, Any]:
    """Return the state that no call may change."""
    legacy = np.random.get_state(legacy=False)  # noqa: NPY002 - the global generator is what is watched
    return {
        "random": random.getstate(),
        "numpy.random": repr(legacy["state"]["key"].tobytes()) + str(legacy["state"]["pos"]),
        "torch.random": torch.random.get_rng_state().numpy().tobytes(),
        "warnings.filters": list(warnings.filters),
        "numpy.errstate": np.geterr(),
        "numpy.printoptions": {k: v for k, v in np.get_printoptions().items() if k != "formatter"},
        "torch": (torch.get_default_dtype(), torch.is_grad_enabled(), torch.get_num_threads()),
        "environment": dict(os.environ),
        "figures": plt.get_fignums(),
    }


def _restore(state: dict[str, Any]) -> None:
    """Put back what one finding would otherwise pass on to all calls after it."""
    np.seterr(**state["numpy.errstate"])
    torch.set_grad_enabled(state["torch"][1])
    if plt.get_fignums() != state["figures"]:
        plt.close("all")


class _alarm:
    """Interrupt a call that takes too long (in the main thread, where signals arrive)."""

    def __enter__(self) -> None:
        self._on = threading.current_thread() is threading.main_thread()
        if self._on:
            self._old = signal.signal(signal.SIGALRM, _ring)
            signal.setitimer(signal.ITIMER_REAL, SLOWEST)

    def __exit__(self, *error: object) -> None:
        if self._on:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, self._old)


def _ring(*_: object) -> None:
    raise TooSlowError


def _place(error: BaseException) -> str:
    """Name the deepest function of deeptram that the exception passed through."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if frame.filename.startswith(_SOURCES)]
    return f"{Path(own[-1].filename).relative_to(_SOURCES)}:{own[-1].name}" if own else "outside"


def _said(call: Call) -> str:
    parts = [_short(a) for a in call.args] + [f"{k}={_short(v)}" for k, v in call.kwargs.items()]
    return f"\n    {getattr(call.function, '__qualname__', call.function)}({', '.join(parts)})"


def _short(value: Any) -> str:
    try:
        text = " ".join(repr(value).split())
    except Exception as error:  # noqa: BLE001 - a hostile object may not even have a repr
        text = f"<no repr: {type(error).__name__}>"
    return text if len(text) < 160 else f"{text[:157]}..."
