"""What a formula may call, with the options of each function and their limits.

Three kinds: functions of whole columns (``log``, ``np.sqrt``), transforms that
learn from the training rows (``bs``, ``poly``, ``scale``; computed by
formulaic), and codings of factors (``Sum``, ``contr.helmert``). Options are
literals, and bounded: a formula may come from a file. What a transform has learned
is stored as JSON: nothing but numbers, strings, lists and dicts, and back without loss.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from formulaic.transforms import (
    basis_spline,
    center,
    contrasts,
    cyclic_cubic_spline,
    natural_cubic_spline,
    poly,
    scale,
)
from formulaic.transforms.patsy_compat import Treatment, standardize

MAX_DF = 1000
MAX_DEGREE = 100
MAX_NUMBER = 10**18
TINY = 1e-100  # the least number by which a column is divided

# Functions of columns and how many arguments they take; a further argument of np.log would be written to.
NUMPY = {
    **dict.fromkeys(["abs", "fabs", "sqrt", "cbrt", "square", "sign", "reciprocal"], 1),
    **dict.fromkeys(["exp", "exp2", "expm1", "log", "log2", "log10", "log1p"], 1),
    **dict.fromkeys(["sin", "cos", "tan", "arcsin", "arccos", "arctan", "deg2rad", "rad2deg"], 1),
    **dict.fromkeys(["sinh", "cosh", "tanh", "arcsinh", "arccosh", "arctanh"], 1),
    **dict.fromkeys(["floor", "ceil", "trunc", "rint", "logical_not", "isfinite", "isnan"], 1),
    **dict.fromkeys(["maximum", "minimum", "power", "mod", "hypot", "arctan2"], 2),
    **dict.fromkeys(["logical_and", "logical_or", "logical_xor"], 2),
    **dict.fromkeys(["where", "clip"], 3),
}


def exp10(x: npt.ArrayLike) -> Any:
    """Ten to the power of x.

    Examples
    --------
    >>> exp10(2.0)
    np.float64(100.0)
    """
    return np.power(10.0, x)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{name: getattr(np, name) for name in ("log", "log2", "log10", "exp", "exp2")},
    "exp10": exp10,
}


@dataclasses.dataclass(frozen=True)
class Transform:
    """A function that learns from the training rows.

    Parameters
    ----------
    function : callable
        Called with the argument, its options by name, and ``_state``.
    options : tuple of str
        Names of the options, in the order in which they may be given.
    learned : frozenset of str
        What the state holds after fitting.
    is_basis : bool
        Whether the result has several columns and depends on the range of the training rows.
    """

    function: Callable[..., Any]
    options: tuple[str, ...]
    learned: frozenset[str]
    is_basis: bool = False


BOUNDS = ("lower_bound", "upper_bound")
_SPLINE = ("df", "knots", *BOUNDS, "constraints", "extrapolation")
_SCALED = frozenset(["center", "scale", "ddof"])
_NATURAL = Transform(
    natural_cubic_spline, _SPLINE, frozenset([*BOUNDS, "knots", "constraints", "cyclic"]), is_basis=True
)
TRANSFORMS = {
    "bs": Transform(
        basis_spline,
        ("df", "knots", "degree", "include_intercept", *BOUNDS, "extrapolation"),
        frozenset([*BOUNDS, "knots"]),
        is_basis=True,
    ),
    "cr": _NATURAL,
    "cs": _NATURAL,
    "cc": dataclasses.replace(_NATURAL, function=cyclic_cubic_spline),
    "poly": Transform(poly, ("degree", "raw"), frozenset([*BOUNDS, "alpha", "norms2"]), is_basis=True),
    "scale": Transform(scale, ("center", "scale", "ddof"), _SCALED),
    "center": Transform(center, (), _SCALED),
    "standardize": Transform(standardize, ("center", "rescale", "ddof"), _SCALED),
}

# Codings of factors: the class and its options.
CONTRASTS: dict[str, tuple[Callable[..., contrasts.Contrasts], tuple[str, ...]]] = {
    "Treatment": (Treatment, ("reference",)),
    "Sum": (contrasts.SumContrasts, ()),
    "Helmert": (contrasts.HelmertContrasts, ("reverse", "scale")),
    "Diff": (contrasts.DiffContrasts, ("backward",)),
    "Poly": (contrasts.PolyContrasts, ("scores",)),
}
CONTRASTS |= {f"contr.{name.lower()}": value for name, value in CONTRASTS.items() if name != "Treatment"}
CONTRASTS |= {
    "contr.treatment": (contrasts.TreatmentContrasts, ("base",)),
    "contr.SAS": (contrasts.SASContrasts, ("base",)),
}
KNOWN = sorted({"C", "I", "Q", *FUNCTIONS, *TRANSFORMS})


def is_literal(value: Any) -> bool:
    """Whether a literal is a finite number, not larger than float64 can count.

    Examples
    --------
    >>> is_literal(2.5), is_literal(True), is_literal(10**30)
    (True, False, False)
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return abs(value) <= MAX_NUMBER if isinstance(value, int) else math.isfinite(value)


def _whole(low: int, high: int) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


def _numbers(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and len(value) <= MAX_DF and all(map(is_literal, value))


def _flag(value: Any) -> bool:
    return isinstance(value, bool)


def _level(value: Any) -> bool:
    return isinstance(value, (bool, str)) or is_literal(value)


_FLAG = (_flag, "True or False")
_OPTIONS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "df": (lambda v: v is None or _whole(1, MAX_DF)(v), f"a whole number from 1 to {MAX_DF}"),
    "degree": (_whole(0, MAX_DEGREE), f"a whole number from 0 to {MAX_DEGREE}"),
    "knots": (lambda v: v is None or _numbers(v), f"a list of at most {MAX_DF} numbers"),
    "include_intercept": _FLAG,
    "lower_bound": (lambda v: v is None or is_literal(v), "a number"),
    "upper_bound": (lambda v: v is None or is_literal(v), "a number"),
    "constraints": (lambda v: v is None or v == "center", "None or 'center'"),
    "extrapolation": (
        lambda v: v in ("extend", "clip", "zero", "na", "raise"),
        "one of 'extend', 'clip', 'zero', 'na', 'raise'",
    ),
    "raw": _FLAG,
    "center": (lambda v: _flag(v) or is_literal(v), "True, False or a number"),
    "scale": (lambda v: _flag(v) or is_literal(v), "True, False or a number"),
    "rescale": _FLAG,
    "ddof": (_whole(0, MAX_DF), f"a whole number from 0 to {MAX_DF}"),
    "reference": (_level, "a level"),
    "base": (_level, "a level"),
    "reverse": _FLAG,
    "backward": _FLAG,
    "scores": (lambda v: v is None or _numbers(v), f"a list of at most {MAX_DF} numbers"),
    "spans_intercept": _FLAG,
    "levels": (
        lambda v: v is None or (isinstance(v, (list, tuple)) and all(map(_level, v))),
        "a list of numbers or strings",
    ),
}


def option_fault(name: str, value: Any) -> str | None:
    """Return what the option called ``name`` must be, if ``value`` is not that.

    Examples
    --------
    >>> option_fault("df", 4)
    >>> option_fault("df", 10**6)
    'a whole number from 1 to 1000'
    """
    check, expected = _OPTIONS[name]
    return None if check(value) else expected


def basis_width(function: str, options: Mapping[str, Any]) -> int:
    """Return how many columns a transform gives at most.

    Examples
    --------
    >>> basis_width("bs", {"df": 4}), basis_width("poly", {"degree": 2}), basis_width("scale", {})
    (4, 2, 1)
    """
    if function == "poly":
        return int(options.get("degree", 1))
    if not TRANSFORMS[function].is_basis:
        return 1
    extra = options.get("degree", 3) + 1 if function == "bs" else 2
    return int(options.get("df") or len(options.get("knots") or ()) + extra)


def state_is_sound(function: str, options: Mapping[str, Any], state: Any) -> bool:
    """Whether a stored state is what the transform learns: all of it, finite numbers, of the right extent.

    Examples
    --------
    >>> state_is_sound("center", {}, {"center": 1.0, "scale": None, "ddof": 1})
    True
    >>> state_is_sound("center", {}, {})
    False
    """
    learned = TRANSFORMS[function].learned
    if function == "poly" and options.get("raw"):
        learned = frozenset(BOUNDS)
    if not isinstance(state, dict) or set(state) != learned:
        return False
    if not TRANSFORMS[function].is_basis:
        found = {name: _scalar(value) for name, value in state.items()}
        divisor = 1.0 if found["scale"] is None else found["scale"]
        numbers = all(value is None or is_literal(value) for value in found.values())
        return numbers and bool(abs(divisor) >= TINY)
    if not all(is_literal(state[name]) for name in BOUNDS):
        return False
    if function == "poly":
        degree = basis_width(function, options)
        return all(
            isinstance(state[key], dict)
            and set(state[key]) == set(range(n))
            and _numbers([*state[key].values()])
            and (key != "norms2" or min(state[key].values()) >= TINY)
            for key, n in (("alpha", degree), ("norms2", degree + 1))
            if key in learned
        )
    knots = state["knots"]
    size = MAX_DF + 2 * MAX_DEGREE + 2
    if not isinstance(knots, list) or not 2 <= len(knots) <= size or not all(map(is_literal, knots)):
        return False
    constraints = state.get("constraints")
    if constraints is not None and not (
        isinstance(constraints, np.ndarray)
        and constraints.ndim == 2
        and constraints.dtype.kind in "iuf"
        and np.isfinite(constraints).all()
    ):
        return False
    return bool(np.all(np.diff(knots) >= 0)) and state.get("cyclic", False) in (True, False)


def _scalar(value: Any) -> Any:
    return value.item() if isinstance(value, (np.ndarray, np.generic)) and value.ndim == 0 else value
