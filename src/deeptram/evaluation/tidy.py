"""From replicates to the tidy table: percentile intervals and paired differences."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

Floats = npt.NDArray[np.float64]
Key = tuple[str, str]


def percentile_interval(values: Floats, level: float) -> tuple[float, float]:
    """Return the empirical (1 - level)/2 and (1 + level)/2 quantiles; infinite replicates count as such.

    Quantiles interpolate linearly between order statistics, where a step
    towards an infinite value is infinite. Undefined (NaN) replicates are set
    aside; without any other the limits are NaN.

    Examples
    --------
    >>> percentile_interval(np.array([1.0, 2.0, 3.0, np.inf]), 0.5)
    (1.75, inf)
    """
    ordered = np.sort(values[~np.isnan(values)])
    if not len(ordered):
        return np.nan, np.nan
    return _quantile(ordered, (1 - level) / 2), _quantile(ordered, (1 + level) / 2)


def _quantile(ordered: Floats, q: float) -> float:
    place = q * (len(ordered) - 1)
    low, high = ordered[int(np.floor(place))], ordered[int(np.ceil(place))]
    if low == high or np.isneginf(low):
        return float(low)
    return float(low + (place - np.floor(place)) * (high - low))


def summarise(
    estimates: Mapping[Key, float],
    replicates: Mapping[Key, Floats],
    level: float,
    reference: str | None,
) -> pd.DataFrame:
    """Return one row per name and metric, with intervals, and differences to a reference if asked for.

    Parameters
    ----------
    estimates : mapping (name, metric) -> float
    replicates : mapping (name, metric) -> array of shape (B,)
        Paired: position b is the same bootstrap sample everywhere.
    level : float
    reference : str, optional

    Returns
    -------
    DataFrame
        See ``deeptram.evaluate``; ``attrs["undefined"][name][metric]`` is the
        number of undefined replicates where there are any.
    """
    rows = []
    undefined: dict[str, dict[str, int]] = {}
    for (name, metric), estimate in estimates.items():
        values = replicates[name, metric]
        lower, upper = percentile_interval(values, level)
        row: dict[str, Any] = {
            "name": name,
            "metric": metric,
            "estimate": estimate,
            "lower": lower,
            "upper": upper,
        }
        if reference is not None:
            with np.errstate(invalid="ignore"):  # infinity minus infinity: undefined, hence NaN
                row["difference"] = float(np.subtract(estimate, estimates[reference, metric]))
                differences = values - replicates[reference, metric]
            row["difference_lower"], row["difference_upper"] = percentile_interval(differences, level)
        rows.append(row)
        if np.isnan(values).any():
            undefined.setdefault(name, {})[metric] = int(np.isnan(values).sum())
    frame = pd.DataFrame(rows)
    frame.attrs["undefined"] = undefined
    return frame
