r"""Epistemic uncertainty: what the members disagree about (Section 3.1, Fig. 4 B and C).

On the scale of h the band is :math:`\bar h(y) \pm c\,\mathrm{sd}(h_m(y))`, on that of the CDF
:math:`F_Z(\bar h(y) \pm c\,\mathrm{sd}(h_m(y)))`, for quantiles
:math:`\bar q(\alpha) \pm c\,\mathrm{sd}(q_m(\alpha))`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from deeptram import latent as latents
from deeptram._arrays import as_numpy
from deeptram._validation import check_choice, is_number
from deeptram.ensemble.coefficients import between_variance
from deeptram.errors import InvalidInputError, UnsupportedError
from deeptram.latent import Latent
from deeptram.pooling.members import common_latent
from deeptram.predictive import DiscretePredictive, Predictive

Array = NDArray[np.float64]

SCALES = ("trafo", "cdf", "quantile")


def epistemic_band(
    members: Sequence[Predictive], pooled: Predictive, weights: Array, scale: str, at: Any, width: float
) -> pd.DataFrame:
    r"""Return estimates with bands of so many standard deviations between members.

    Parameters
    ----------
    members : sequence of M Predictive
    pooled : Predictive
        Their pool, which gives the estimate.
    weights : array, shape (M,)
    scale : {"trafo", "cdf", "quantile"}
    at : array-like, optional
        Outcomes (``"trafo"``, ``"cdf"``) or probabilities (``"quantile"``,
        default the median), common to all rows. For outcomes on levels the
        default is every level but the last.
    width : float
        Half width of the band in standard deviations.

    Returns
    -------
    DataFrame
        One line per row and point: ``row, at, estimate, sd, lower, upper``, all
        on the scale asked for. On that of the CDF, ``sd`` is the standard deviation of
        the members' :math:`F_m`; the limits are those of h, transformed, so they
        stay within 0 and 1.

    Examples
    --------
    >>> a, b = (Predictive.from_trafo([[h]]) for h in (-1.0, 1.0))
    >>> epistemic_band([a, b], a, np.array([0.5, 0.5]), "trafo", None, 2.0)["sd"].round(4).tolist()
    [1.4142]
    """
    check_choice(scale, SCALES, "scale")
    if not (is_number(width) and 0 <= width < np.inf):
        raise InvalidInputError(
            f"width must be a number of standard deviations of at least 0, got {width!r}; the paper uses 2"
        )
    if scale == "quantile":
        return _quantile_band(members, pooled, weights, at, float(width))
    latent = pooled.latent or common_latent(members) or latents.get("logistic")
    points = _points(pooled, at)
    each = np.stack([_trafo(member, points, latent) for member in members])
    estimate = _trafo(pooled, points, latent)
    sd = np.sqrt(between_variance(each, weights))
    with np.errstate(invalid="ignore"):
        half: Array = width * sd
        lower, upper = estimate - half, estimate + half
    certain = np.isinf(estimate)  # nothing to disagree about, or everything: the band is the point itself
    lower, upper = np.where(certain, estimate, lower), np.where(certain, estimate, upper)
    if scale == "cdf":
        estimate, lower, upper = (np.asarray(latent.cdf(values)) for values in (estimate, lower, upper))
        sd = np.sqrt(between_variance(np.asarray(latent.cdf(each)), weights))
    return _frame(points, estimate, sd, lower, upper)


def _quantile_band(
    members: Sequence[Predictive], pooled: Predictive, weights: Array, at: Any, width: float
) -> pd.DataFrame:
    levels = np.atleast_1d(np.asarray(0.5 if at is None else at, dtype=float))
    if not ((levels > 0) & (levels < 1)).all():
        raise InvalidInputError(
            "at must hold probabilities strictly between 0 and 1 for scale='quantile', got "
            f"{levels.tolist()}; for example at=[0.1, 0.5, 0.9]"
        )
    if isinstance(pooled, DiscretePredictive) and np.asarray(pooled.levels).dtype.kind not in "iuf":
        raise UnsupportedError(
            f"quantiles have a standard deviation only for numeric outcomes, got levels "
            f"{list(pooled.levels)[:3]}; use scale='trafo' or 'cdf'"
        )
    each = np.stack([quantiles(member, levels) for member in members])
    estimate = np.asarray(pooled.quantile(levels), dtype=float)
    sd = np.sqrt(between_variance(each, weights))
    return _frame(levels, estimate, sd, estimate - width * sd, estimate + width * sd)


def quantiles(pred: Any, levels: Array) -> Array:
    """Return quantiles of a member, shape (n, Q); of lifetimes without a warning, which the pool gives."""
    if isinstance(pred, DiscretePredictive):
        return np.asarray(pred.quantile(levels), dtype=float)
    values = pred.quantile_t(torch.as_tensor(levels, dtype=pred.dtype))
    return np.asarray(as_numpy(values), dtype=float)


def _points(pooled: Predictive, at: Any) -> NDArray[Any]:
    if at is None:
        if isinstance(pooled, DiscretePredictive):
            return np.asarray(pooled.levels)[:-1]
        raise InvalidInputError(
            "at must say at which outcomes to look, got None for an outcome without levels; "
            "for example at=np.linspace(0, 10, 50)"
        )
    return np.atleast_1d(np.asarray(at))


def _trafo(pred: Predictive, points: NDArray[Any], latent: Latent) -> Array:
    """Return h at common points on the scale of a latent, shape (n, G)."""
    if isinstance(pred, DiscretePredictive):
        h = pred.trafo_t(latent).detach().numpy()
        full = np.concatenate([h, np.full((len(h), 1), np.inf)], axis=1)
        codes = [_code(pred.levels, point) for point in points]
        return np.asarray(full[:, codes])
    if pred.latent is not None and pred.latent == latent:
        return np.asarray(_grid_trafo(pred, points))
    columns = [np.asarray(_one_trafo(pred, float(point), latent)) for point in points]
    return np.stack(columns, axis=1)


def _grid_trafo(pred: Any, points: NDArray[Any]) -> Any:
    return pred.trafo_grid(points.astype(float))


def _one_trafo(pred: Predictive, point: float, latent: Latent) -> Any:
    with np.errstate(divide="ignore"):
        return latent.from_log(np.log(np.asarray(pred.cdf(point))), np.log(np.asarray(pred.sf(point))))


def _code(levels: tuple[Any, ...], point: Any) -> int:
    value = point.item() if isinstance(point, np.generic) else point
    if value not in levels:
        raise InvalidInputError(
            f"at must hold levels of the outcome, {', '.join(map(repr, levels[:6]))}, got {value!r}; "
            "leave at out for all of them"
        )
    return levels.index(value)


def _frame(points: NDArray[Any], estimate: Array, sd: Array, lower: Array, upper: Array) -> pd.DataFrame:
    n, count = estimate.shape
    return pd.DataFrame(
        {
            "row": np.repeat(np.arange(n), count),
            "at": np.tile(points, n),
            "estimate": estimate.ravel(),
            "sd": sd.ravel(),
            "lower": lower.ravel(),
            "upper": upper.ravel(),
        }
    )
