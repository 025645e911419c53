"""Pools of members on the line and of counts: which class for which method."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from deeptram import latent as latents
from deeptram.errors import UnsupportedError
from deeptram.pooling.counts import (
    CountPool,
    LinearCountPool,
    LogLinearCountPool,
    LogLinearDensityCountPool,
    QuasiArithmeticCountPool,
    TransformationCountPool,
)
from deeptram.pooling.info import PoolInfo
from deeptram.pooling.line_base import LinePool
from deeptram.pooling.linear import LinearPool
from deeptram.pooling.log_linear import LogLinearPool
from deeptram.pooling.log_linear_line import LogLinearDensityPool
from deeptram.pooling.members import Weights, common_latent
from deeptram.pooling.quasi_arithmetic import QuasiArithmetic
from deeptram.pooling.quasi_arithmetic_line import QuasiArithmeticPool
from deeptram.pooling.transformation import TransformationPool, averaged, can_average
from deeptram.predictive.base import Predictive
from deeptram.predictive.count import CountPredictive
from deeptram.predictive.line import LinePredictive
from deeptram.predictive.tabulated import SurvivalPredictive
from deeptram.predictive.transformation import TrafoPredictive, TransformationCount, TransformationPredictive

_COUNT: dict[str, type[CountPool]] = {
    "linear": LinearCountPool,
    "log-linear": LogLinearCountPool,
    "log-linear-density": LogLinearDensityCountPool,
    "transformation": TransformationCountPool,
}
_LINE: dict[str, type[LinePool]] = {
    "linear": LinearPool,
    "log-linear": LogLinearPool,
    "log-linear-density": LogLinearDensityPool,
}


def pool_line(
    members: Sequence[Predictive], w: Weights, method: str | QuasiArithmetic, info: PoolInfo
) -> Predictive:
    """Return the pool of members on the line or of counts, all of positive weight.

    The transformation pool of models with the same basis and latent is again such a model (Prop. 2) and
    keeps its class.

    Parameters
    ----------
    members : sequence of LinePredictive or of CountPredictive
    w : array, shape (M,)
    method : str or QuasiArithmetic
    info : PoolInfo
    """
    if isinstance(members[0], CountPredictive):
        return _pool_counts([m for m in members if isinstance(m, CountPredictive)], w, method, info)
    return _pool_line([m for m in members if isinstance(m, LinePredictive)], w, method, info)


def _pool_line(
    members: Sequence[LinePredictive], w: Weights, method: str | QuasiArithmetic, info: PoolInfo
) -> Predictive:
    if all(isinstance(member, SurvivalPredictive) for member in members):
        return _pool_curves([m for m in members if isinstance(m, SurvivalPredictive)], w, method, info)
    return _pool_functions(members, w, method, info)


def _pool_curves(
    members: Sequence[SurvivalPredictive], w: Weights, method: str | QuasiArithmetic, info: PoolInfo
) -> SurvivalPredictive:
    """Return the pooled survival curves: all pools of CDFs work time by time."""
    if method == "log-linear-density":
        raise UnsupportedError(
            "the log-linear-density pool needs densities, got survival curves, which have none; "
            "use the linear or the transformation pool"
        )
    times = torch.cat([member.times for member in members]).unique()
    survivor = torch.exp(_pool_functions(members, w, method, info).log_sf_t(times.unsqueeze(0)))
    survivor = survivor.clamp(0.0, 1.0).cummin(dim=1).values
    pooled = SurvivalPredictive(times, survivor, all(member.gives_numpy for member in members))
    pooled.pool_info = info
    return pooled


def _pool_functions(
    members: Sequence[LinePredictive], w: Weights, method: str | QuasiArithmetic, info: PoolInfo
) -> LinePredictive:
    weights = torch.as_tensor(w, dtype=members[0].dtype)
    if info.latent is not None:
        latent = latents.get(info.latent)
        if can_average(members, latent):
            models = [member for member in members if isinstance(member, TransformationPredictive)]
            return averaged(models, weights, info)
        return TransformationPool(members, weights, latent, info)
    scale = common_latent(members)
    if isinstance(method, QuasiArithmetic):
        return QuasiArithmeticPool(members, weights, scale, info, method)
    return _LINE[method](members, weights, scale, info)


def _pool_counts(
    members: Sequence[CountPredictive], w: Weights, method: str | QuasiArithmetic, info: PoolInfo
) -> Predictive:
    weights = torch.as_tensor(w, dtype=members[0].dtype)
    if info.latent is not None:
        latent = latents.get(info.latent)
        models = [member for member in members if isinstance(member, TransformationCount)]
        offsets = {model.offset for model in models}
        if len(models) == len(members) and len(offsets) == 1:
            line = _pool_line([model.line for model in models], w, method, info)
            if isinstance(line, TrafoPredictive):
                pooled = TransformationCount(line, offsets.pop())
                pooled.pool_info = info
                return pooled
        return TransformationCountPool(members, weights, latent, info)
    scale = common_latent(members)
    if isinstance(method, QuasiArithmetic):
        return QuasiArithmeticCountPool(members, weights, scale, info, method)
    return _COUNT[method](members, weights, scale, info)
