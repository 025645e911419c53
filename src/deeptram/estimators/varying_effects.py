"""Effects that change with the outcome, read off a fitted model."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from deeptram._validation import check_float_vector
from deeptram.bases import Bernstein
from deeptram.errors import InvalidInputError, UnsupportedError
from deeptram.model import Outcome

if TYPE_CHECKING:
    from deeptram.estimators.base import BaseTram

Array = NDArray[np.float64]

SIGN = "F_Z(h(y) - x'beta): a positive coefficient means a larger outcome"
_POINTS = 101


def effect_table(model: BaseTram, y: Any, level: float) -> pd.DataFrame:
    """Return the table of ``BaseTram.effect``.

    Parameters
    ----------
    model : BaseTram
        Fitted.
    y : array-like or None
    level : float
    """
    if model.design_.varying is None:
        raise UnsupportedError(
            "effect() shows effects that change with the outcome, got a model without them; add "
            "dt.Varying(...), or read coef_"
        )
    points, rows = _basis_rows(model.outcome_, y)
    half = stats.norm.ppf((1 + level) / 2)
    frames = []
    for j, name in enumerate(model.design_.varying.names):
        value, se = _linear_combination(model, j, rows)
        columns = {"coef": value, "se": se, "lower": value - half * se, "upper": value + half * se}
        frames.append(pd.DataFrame({"column": name, "y": points, **columns}))
    table = pd.concat(frames, ignore_index=True)
    table.attrs.update(sign=SIGN, effect=model.latent_.effect_name, level=level)
    return table


def _basis_rows(outcome: Outcome, y: Any) -> tuple[list[Any], Array]:
    """Return outcomes and the basis at them, shape (m, d)."""
    d = outcome.basis.n_coef
    if outcome.levels is not None:
        chosen = list(outcome.levels[:-1] if y is None else np.atleast_1d(np.asarray(y)).ravel())
        codes = np.asarray(outcome.encode(chosen).codes)
        if (codes == d).any():
            raise InvalidInputError(
                "effects of classes belong to the cutoffs above all levels but the last, got "
                f"{outcome.levels[-1]!r}; leave it out"
            )
        return chosen, np.eye(d)[codes]
    values = _support_points(outcome, _POINTS) if y is None else check_float_vector(np.atleast_1d(y), "y")
    seen = outcome.encode(values).observations
    at = values if seen is None else seen.within(outcome.basis.domain).upper
    return list(values), outcome.basis.evaluate(at)


def _support_points(outcome: Outcome, count: int) -> Array:
    """Return evenly spaced outcomes from one end of the support to the other."""
    basis = outcome.basis
    if not isinstance(basis, Bernstein):
        raise InvalidInputError(
            "effect() needs the outcomes at which effects are wanted, got none, and a straight line "
            "has no support to take them from; pass y"
        )
    points = (np.geomspace if basis.log_first else np.linspace)(*basis.support, count)
    if outcome.kind.is_count:
        return np.asarray(np.unique(points.round()) - int(basis.log_first))
    return np.asarray(points)


def _linear_combination(model: BaseTram, column: int, rows: Array) -> tuple[Array, Array]:
    """Return -a'theta of a varying column for rows a, and standard errors."""
    block, d = model.design_.n_strata + column, rows.shape[1]
    own = slice(block * d, (block + 1) * d)
    variance = np.einsum("ij,jk,ik->i", rows, model.vcov_.to_numpy()[own, own], rows)
    with np.errstate(invalid="ignore"):
        return -rows @ model.model_.theta[block], np.sqrt(np.where(variance >= 0, variance, np.nan))


def varying_rows(model: BaseTram) -> list[tuple[str, float, float]]:
    """Return names, values and standard errors of varying effects for the summary.

    Parameters
    ----------
    model : BaseTram
        Fitted.
    """
    levels, basis, varying = model.outcome_.levels, model.outcome_.basis, model.design_.varying
    if levels is not None:
        rows, labels = np.eye(basis.n_coef), [f"at {a}|{b}" for a, b in itertools.pairwise(levels)]
    elif isinstance(basis, Bernstein):
        points, rows = _basis_rows(model.outcome_, _support_points(model.outcome_, 5)[1:-1])
        labels = [f"at {point:.4g}" for point in points]
    else:
        rows = np.eye(basis.n_coef)
        labels = ["at 0", "per unit of y"] if basis.name == "linear" else ["at 1", "per unit of log(y)"]
        labels = labels[: basis.n_coef]
    found = []
    for j, name in enumerate([] if varying is None else varying.names):
        pairs = zip(labels, *_linear_combination(model, j, rows), strict=True)
        found += [(f"{name} {label}", float(value), float(error)) for label, value, error in pairs]
    return found
