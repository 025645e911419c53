"""Bands of epistemic uncertainty of chosen rows, with the members' own values."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from deeptram._validation import as_float, as_list, check_choice
from deeptram.ensemble.epistemic import SCALES, epistemic_band, quantiles
from deeptram.latent import Latent
from deeptram.plots.grid import chosen_rows, common_grid, common_scale, named_groups, trafo_values
from deeptram.pooling.members import normalised_weights
from deeptram.pooling.pool import pool


def epistemic_tables(
    members: Any,
    *,
    scale: str,
    at: Any = None,
    rows: Any = None,
    weights: npt.ArrayLike | None = None,
    width: float = 2.0,
    latent: str | Latent | None = None,
) -> tuple[pd.DataFrame, pd.DataFrame, str]:
    """Return the bands, the members' values, and the name of F_Z; arguments as for ``plots.epistemic``.

    Examples
    --------
    >>> from deeptram.predictive import Predictive
    >>> pair = [Predictive.from_trafo([[-1.0]]), Predictive.from_trafo([[1.0]])]
    >>> bands, _, _ = epistemic_tables(pair, scale="trafo")
    >>> bands.round(3)
       row  at  estimate     sd  lower  upper
    0    0   0       0.0  1.414 -2.828  2.828
    """
    check_choice(scale, SCALES, "scale")
    groups = named_groups({"members": as_list(members, "members", "Predictives")})
    law = common_scale(groups, latent)
    first = groups["members"][0]
    shown = chosen_rows(slice(None) if rows is None and scale == "quantile" else rows, len(first))
    kept = [member[shown] for member in groups["members"]]
    w = normalised_weights(weights, len(kept))
    if scale == "quantile":
        points = np.atleast_1d(as_float(0.5 if at is None else at, "at"))
    else:
        points = common_grid(groups, shown, at)
        points = points if first.levels is None else points[:-1]
    bands = epistemic_band(kept, pool(kept, weights=w, latent=law), w, scale, points, width)
    bands["row"] = np.repeat(shown, len(points))
    if scale == "quantile":
        values = [quantiles(member, points) for member in kept]
    else:
        values = [trafo_values(member, points, law) for member in kept]
        values = [np.asarray(law.cdf(h)) for h in values] if scale == "cdf" else values
    keys = bands[["row", "at"]]
    each = [keys.assign(member=m, value=value.ravel()) for m, value in enumerate(values)]
    return bands, pd.concat(each, ignore_index=True), law.name
