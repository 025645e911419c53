"""One call for every pool: ``pool(members, method=..., weights=...)``."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt
import torch

from deeptram.errors import UnsupportedError
from deeptram.latent import Latent
from deeptram.pooling.array_pool import ArrayPool
from deeptram.pooling.members import (
    CdfStack,
    check_members,
    common_latent,
    is_array,
    normalised_weights,
)
from deeptram.pooling.normalised import NormalisedCount, NormalisedDiscrete, NormalisedLine
from deeptram.pooling.pooled import PooledCount, PooledCurves, PooledDiscrete, pooled_line
from deeptram.pooling.rule import DensityRule, PoolInfo, Recipe, Rule, TrafoRule
from deeptram.pooling.rules import get_rule
from deeptram.predictive.base import Predictive
from deeptram.predictive.count import CountPredictive
from deeptram.predictive.discrete import DiscretePredictive
from deeptram.predictive.survival import SurvivalPredictive


def pool(
    members: Any,
    *,
    method: str | Rule = "transformation",
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
    a rule of one's own       a ``CdfRule`` or ``DensityRule`` (``deeptram.pooling.rule``)
    ========================  ==========================================================================

    Members with h (transformation models) are pooled on h, all others through log F and log(1 - F), so no
    finite h saturates. The result is again a full ``Predictive`` and keeps the recipe as ``pool_info``.

    Certainty (F = 0 or 1) is allowed. Linear: nothing special. Log-linear: F = 0 prevails. Transformation and
    quasi-arithmetic: a certain member prevails over the others, contradicting ones are weighed against
    each other and cancel when equal (``deeptram.pooling.rule``). Log-linear-density: what one member
    excludes is excluded; if nothing remains, what the least weight excludes remains. There is never a NaN.

    Parameters
    ----------
    members : sequence of Predictive, or array of shape (M, n, K)
        Distributions of the same n rows and the same outcome; an array holds the members' CDFs at the K
        levels ``0..K-1``, each row ending in 1. The array is not copied.
    method : str or Rule
        A name, a ``QuasiArithmetic`` or a rule of one's own.
    weights : array-like, shape (M,) or (n, M), optional
        Non-negative, sum one (within 1e-8); equal by default. A member of weight zero is left out. With
        shape (n, M) every row has weights of its own (``dt.weights``: by group, by rolling origin).
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
    asked = get_rule(method)
    stack = CdfStack.check(members) if is_array(members) else None
    checked: list[Predictive] = list(stack.members()) if stack is not None else check_members(members)
    w = normalised_weights(weights, len(checked), len(checked[0]))
    mean = w if w.ndim == 1 else w.mean(axis=0)
    kept = [member for member, weight in zip(checked, mean, strict=True) if weight > 0]
    rule = asked.prepared(kept, latent)
    scale = rule.latent if isinstance(rule, TrafoRule) else None
    name = None if scale is None else scale.name
    info = PoolInfo(rule.name, tuple(mean.tolist()), name, tuple(rule.values()), w.ndim > 1)
    positive = torch.as_tensor(
        w[..., mean > 0], dtype=_dtype(kept[0]) if stack is None else stack.values.dtype
    )
    positive = positive if w.ndim == 1 else positive.T.unsqueeze(2)
    recipe = Recipe(rule, kept, positive, info, common_latent(kept) if scale is None else scale)
    if stack is not None:
        return ArrayPool(stack.take_members(mean > 0), recipe, _on_levels(rule))
    closed = rule.closed_form(recipe)
    return _pooled(recipe) if closed is None else closed


def _dtype(member: Any) -> torch.dtype:
    if isinstance(member, DiscretePredictive):
        return torch.float64 if member.gives_numpy else member.log_cdf_t().dtype
    own: torch.dtype = member.dtype
    return own


def _on_levels(rule: Rule) -> type[PooledDiscrete]:
    return NormalisedDiscrete if isinstance(rule, DensityRule) else PooledDiscrete


def _pooled(recipe: Recipe) -> Predictive:
    """Return the pool in the kind of its members."""
    dense = isinstance(recipe.rule, DensityRule)
    if isinstance(recipe.members[0], DiscretePredictive):
        return _on_levels(recipe.rule)(recipe)
    if isinstance(recipe.members[0], CountPredictive):
        return NormalisedCount(recipe) if dense else PooledCount(recipe)
    curves = all(isinstance(member, SurvivalPredictive) for member in recipe.members)
    if curves and dense:
        raise UnsupportedError(
            f"the {recipe.rule.name} pool needs densities, got survival curves, which have none; "
            "use the linear or the transformation pool"
        )
    return PooledCurves(recipe) if curves else NormalisedLine(recipe) if dense else pooled_line(recipe)
