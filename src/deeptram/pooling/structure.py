r"""Does a pool keep the structure of its members? Fig. 4A as a table, a picture and a number.

Members and pool are brought to the scale of :math:`F_Z^{-1}`, on which the members are additive. A pool
that keeps their structure is their mean there; ``deviation`` is how far it is from that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from torch import Tensor

from deeptram import latent as latents
from deeptram._arrays import as_numpy
from deeptram.errors import InvalidInputError
from deeptram.latent import Latent
from deeptram.pooling.points import weighted_mean
from deeptram.pooling.pool import as_members, normalised_weights, pool
from deeptram.pooling.rule import common_latent
from deeptram.predictive.base import Predictive
from deeptram.predictive.count import CountPredictive
from deeptram.predictive.discrete import DiscretePredictive
from deeptram.predictive.line import LinePredictive
from deeptram.predictive.rows import grid_values, row_values
from deeptram.responses.observations import Observations, Surv

Floats = npt.NDArray[np.float64]
_DEFAULT_LEVELS = np.linspace(0.05, 0.95, 19)


@dataclass(frozen=True)
class StructureCheck:
    """Transformation values of members and pool at the same points.

    Attributes
    ----------
    points : array, shape (n, G)
        Where they were compared: values of y, or labels of levels.
    member_trafo : array, shape (M, n, G)
    pool_trafo, mean_trafo : array, shape (n, G)
        The pool, and the weighted mean of the members.
    latent : str
        Name of F_Z.
    method : str
        The pool compared.
    """

    points: npt.NDArray[Any]
    member_trafo: Floats
    pool_trafo: Floats
    mean_trafo: Floats
    latent: str
    method: str

    @property
    def deviations(self) -> Floats:
        """Pool minus mean of the members, shape (n, G); zero where both are infinite alike."""
        same = self.pool_trafo == self.mean_trafo
        with np.errstate(invalid="ignore"):
            difference = self.pool_trafo - self.mean_trafo
        return np.where(same, 0.0, difference)

    @property
    def deviation(self) -> float:
        """The largest absolute deviation on the scale of F_Z^-1."""
        return float(np.abs(self.deviations).max())

    def frame(self) -> pd.DataFrame:
        """Return one line per row, point and member: row, y, member, trafo_member, trafo_mean, trafo_pool."""
        members, n, points = self.member_trafo.shape
        shape = (members, n, points)
        return pd.DataFrame(
            {
                "row": np.broadcast_to(np.arange(n)[None, :, None], shape).ravel(),
                "y": np.broadcast_to(self.points[None], shape).ravel(),
                "member": np.broadcast_to(np.arange(members)[:, None, None], shape).ravel(),
                "trafo_member": self.member_trafo.ravel(),
                "trafo_mean": np.broadcast_to(self.mean_trafo[None], shape).ravel(),
                "trafo_pool": np.broadcast_to(self.pool_trafo[None], shape).ravel(),
            }
        )

    def plot(self, ax: Any = None) -> Any:
        """Draw the pool against the members on the scale of F_Z^-1 (Fig. 4A)."""
        from deeptram.plots import structure

        return structure(self).plot(ax=ax)

    def save(self, path: Any, dpi: float = 200) -> Any:
        """Draw into a file (its suffix is the format) without opening a window, and return its path."""
        from deeptram.plots import structure

        return structure(self).save(path, dpi)

    def __repr__(self) -> str:
        """Say the result in a line."""
        return (
            f"StructureCheck(method={self.method!r}, latent={self.latent!r}, deviation={self.deviation:.4g})"
        )


def structure_check(
    members: Any,
    pooled: Predictive | None = None,
    *,
    y: Any = None,
    grid: npt.ArrayLike | None = None,
    weights: npt.ArrayLike | None = None,
    method: Any = "linear",
    latent: str | Latent | None = None,
) -> StructureCheck:
    r"""Compare a pool with the mean of its members on the scale of :math:`F_Z^{-1}` (Fig. 4A).

    .. math:: \mathrm{deviation} = \max \Big| F_Z^{-1}(\bar F(y_i)) - \sum_m w_m F_Z^{-1}(F_m(y_i)) \Big| .

    Zero for the transformation pool on that scale; for other pools it says how far they leave the model
    class of the members.

    Parameters
    ----------
    members : sequence of Predictive, or array of shape (M, n, K)
    pooled : Predictive, optional
        The pool to examine; by default it is made with ``method`` and ``weights``.
    y : array-like of n outcomes, optional
        Compare at the outcomes, as in Fig. 4A (at both ends of censored ones; not above the last level).
    grid : array-like, optional
        Compare at these values in every row. Without ``y`` and ``grid``: at all levels but the last, or at
        19 quantiles of the pool.
    weights : array-like, shape (M,), optional
        Default: those of ``pooled``, else equal.
    method : str or Rule
    latent : str or Latent, optional
        Default: the members' own, else logistic.

    Examples
    --------
    >>> import deeptram as dt
    >>> members = [dt.Predictive.from_trafo([[-1.0, 1.0]]), dt.Predictive.from_trafo([[0.0, 4.0]])]
    >>> dt.structure_check(members, method="transformation").deviation
    0.0
    >>> round(dt.structure_check(members, method="linear").deviation, 3)
    0.713
    """
    checked = as_members(members)
    info = None if pooled is None else pooled.pool_info
    if weights is None and info is not None:
        weights = info.weights
    w = normalised_weights(weights, len(checked))
    if pooled is None:
        pooled = pool(checked, method=method, weights=w, latent=latent)
        info = pooled.pool_info
    if len(pooled) != len(checked[0]) or pooled.levels != checked[0].levels:
        raise InvalidInputError(
            f"pooled must have the rows and levels of the members, got {len(pooled)} rows for "
            f"{len(checked[0])}; pass the pool of these members"
        )
    scale = latents.get(latent) if latent is not None else common_latent(checked) or latents.get("logistic")
    points, at = _points(pooled, y, grid)
    each = [_trafo(member, at, scale) for member in checked]
    kept = [h for h, weight in zip(each, w, strict=True) if weight > 0]
    mean = weighted_mean(kept, torch.as_tensor(w[w > 0]))
    return StructureCheck(
        points,
        as_numpy(torch.stack(each)),
        as_numpy(_trafo(pooled, at, scale)),
        as_numpy(mean),
        scale.name,
        "unknown" if info is None else info.method,
    )


def _points(pooled: Predictive, y: Any, grid: Any) -> tuple[npt.NDArray[Any], Tensor]:
    """Return the points as labels or values (n, G), and as codes or values on tensors."""
    n = len(pooled)
    if isinstance(pooled, DiscretePredictive):
        inner = len(pooled.levels) - 1
        if y is not None:
            codes = pooled.encode(y).clamp(max=inner - 1).unsqueeze(1)
        elif grid is not None:
            chosen = pooled[np.zeros(len(np.asarray(grid)), dtype=int)].encode(grid)
            codes = chosen.clamp(max=inner - 1).expand(n, -1)
        else:
            codes = torch.arange(inner).expand(n, -1)
        return np.asarray(pooled.levels)[as_numpy(codes)], codes
    values = _values(pooled, y, grid)
    return as_numpy(values), values


def _values(pooled: Any, y: Any, grid: Any) -> Tensor:
    n = len(pooled)
    if grid is not None:
        return grid_values(grid, torch.float64).expand(n, -1)
    if y is None:
        levels = torch.as_tensor(_DEFAULT_LEVELS, dtype=pooled.dtype)
        quantiles: Tensor = pooled.quantile_t(levels)
        return quantiles.detach().to(torch.float64)
    seen: Any = y.observations if isinstance(y, Surv) else y
    if not isinstance(seen, Observations):
        return row_values(y, n, torch.float64).expand(n, 1)
    lower, upper = np.asarray(seen.lower), np.asarray(seen.upper)
    ends = np.stack(
        [np.where(np.isfinite(lower), lower, upper), np.where(np.isfinite(upper), upper, lower)], 1
    )
    return torch.as_tensor(ends)


def _trafo(pred: Predictive, at: Tensor, latent: Latent) -> Tensor:
    if isinstance(pred, DiscretePredictive):
        return pred.trafo_t(latent).detach().to(torch.float64).gather(1, at)
    if isinstance(pred, (LinePredictive, CountPredictive)):
        return pred.trafo_t(at, latent).detach().to(torch.float64)
    raise InvalidInputError(f"cannot evaluate a {type(pred).__name__} here; use Predictive.from_*")
