"""One call for every pool: ``pool(members, method=..., weights=...)``."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy.typing as npt
import torch

from deeptram import latent as latents
from deeptram._validation import check_choice
from deeptram.latent import Latent
from deeptram.pooling.array_pool import ArrayPool
from deeptram.pooling.discrete_pool import DiscretePool
from deeptram.pooling.info import PoolInfo
from deeptram.pooling.line_pool import pool_line
from deeptram.pooling.linear import LinearDiscretePool
from deeptram.pooling.log_linear import LogLinearDiscretePool
from deeptram.pooling.log_linear_density import LogLinearDensityDiscretePool
from deeptram.pooling.members import (
    CdfStack,
    Weights,
    check_members,
    common_latent,
    is_array,
    normalised_weights,
    pooling_latent,
)
from deeptram.pooling.quasi_arithmetic import QuasiArithmetic, QuasiArithmeticDiscretePool
from deeptram.pooling.transformation import TransformationDiscretePool
from deeptram.predictive.base import Predictive
from deeptram.predictive.discrete import DiscretePredictive

_DISCRETE: dict[str, type[DiscretePool]] = {
    "linear": LinearDiscretePool,
    "log-linear": LogLinearDiscretePool,
    "log-linear-density": LogLinearDensityDiscretePool,
    "transformation": TransformationDiscretePool,
}
METHODS = tuple(_DISCRETE)


def pool(
    members: Any,
    *,
    method: str | QuasiArithmetic = "transformation",
    weights: npt.ArrayLike | None = None,
    latent: str | Latent | None = None,
) -> Predictive:
    r"""Combine the predictive distributions of M members into one (Defs. 1, 2 and 5).

    ========================  ==========================================================================
    ``"linear"``              :math:`\sum_m w_m F_m`, a mixture (Def. 1)
    ``"log-linear"``          :math:`\exp(\sum_m w_m \log F_m)`, CDFs, not renormalised (Def. 2)
    ``"log-linear-density"``  :math:`c \exp(\sum_m w_m \log f_m)`, normalised (Prop. 4)
    ``"transformation"``      :math:`F_Z(\sum_m w_m F_Z^{-1}(F_m))` (Def. 5)
    ``QuasiArithmetic``       :math:`g^{-1}(\sum_m w_m g(F_m))` (eq. 1)
    ========================  ==========================================================================

    Members with h (transformation models) are pooled on h, all others through log F and log(1 - F), so no
    finite h saturates. The result is again a full ``Predictive`` and keeps the recipe as ``pool_info``.

    Certainty (F = 0 or 1) is allowed. Linear: nothing special. Log-linear: F = 0 prevails. Transformation and
    quasi-arithmetic: a certain member prevails over the others, contradicting ones are weighed against
    each other and cancel when equal (``deeptram.pooling.combine``). Log-linear-density: what one member
    excludes is excluded; if nothing remains, what the least weight excludes remains. There is never a NaN.

    Parameters
    ----------
    members : sequence of Predictive, or array of shape (M, n, K)
        Distributions of the same n rows and the same outcome; an array holds the members' CDFs at the K
        levels ``0..K-1``, each row ending in 1. The array is not copied.
    method : str or QuasiArithmetic
    weights : array-like, shape (M,), optional
        Non-negative, sum one (within 1e-8); equal by default. A member of weight zero is left out.
    latent : str or Latent, optional
        Scale of the transformation pool: one of ``deeptram.latent.names()``. Default: the members' own,
        else logistic.

    Returns
    -------
    Predictive
        n pooled distributions; NumPy-valued if the members are.

    Examples
    --------
    >>> import deeptram as dt
    >>> a = dt.Predictive.from_proba([[0.2, 0.5, 0.3]], levels=["low", "mid", "high"])
    >>> b = dt.Predictive.from_proba([[0.6, 0.3, 0.1]], levels=["low", "mid", "high"])
    >>> dt.pool([a, b]).pmf().round(3)
    array([[0.38 , 0.441, 0.179]])
    >>> dt.pool([a, b], method="linear", weights=[0.75, 0.25]).cdf()
    array([[0.3 , 0.75, 1.  ]])
    """
    if not isinstance(method, QuasiArithmetic):
        check_choice(method, METHODS, "method")
    stack = CdfStack.check(members) if is_array(members) else None
    checked: list[Predictive] = list(stack.members()) if stack is not None else check_members(members)
    w = normalised_weights(weights, len(checked))
    kept = [member for member, weight in zip(checked, w, strict=True) if weight > 0]
    info = _info(method, w, checked, latent)
    if stack is not None:
        return _pool_array(stack.take_members(w > 0), w[w > 0], method, info)
    if isinstance(kept[0], DiscretePredictive):
        discrete = [member for member in kept if isinstance(member, DiscretePredictive)]
        return _pool_discrete(discrete, w[w > 0], method, info)
    return pool_line(kept, w[w > 0], method, info)


def _info(
    method: str | QuasiArithmetic, w: Weights, members: Sequence[Predictive], latent: str | Latent | None
) -> PoolInfo:
    if method == "transformation":
        kept = [member for member, weight in zip(members, w, strict=True) if weight > 0]
        return PoolInfo("transformation", tuple(w.tolist()), pooling_latent(kept, latent).name)
    name = method if isinstance(method, str) else "quasi-arithmetic"
    return PoolInfo(name, tuple(w.tolist()), None)


def _scale(members: Sequence[Predictive], info: PoolInfo) -> Latent | None:
    return common_latent(members) if info.latent is None else latents.get(info.latent)


def _pool_discrete(
    members: Sequence[DiscretePredictive], w: Weights, method: str | QuasiArithmetic, info: PoolInfo
) -> DiscretePool:
    dtype = members[0].log_cdf_t().dtype if not members[0].gives_numpy else torch.float64
    weights = torch.as_tensor(w, dtype=dtype)
    scale = _scale(members, info)
    if isinstance(method, QuasiArithmetic):
        return QuasiArithmeticDiscretePool(members, weights, scale, info, method)
    return _DISCRETE[method](members, weights, scale, info)


def _pool_array(stack: CdfStack, w: Weights, method: str | QuasiArithmetic, info: PoolInfo) -> ArrayPool:
    weights = torch.as_tensor(w, dtype=stack.values.dtype)
    build = partial(_pool_discrete, w=w, method=method, info=info)
    return ArrayPool(stack, weights, _scale(stack.members(), info), info, build)
