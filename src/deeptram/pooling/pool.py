"""One call for every pool, ``pool(members, method=..., weights=...)``: its edge, and the rules by name.

Members are a list of distributions, or one array of CDFs, shape (M, n, K), pooled block by block.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from deeptram._registry import Registry
from deeptram._validation import (
    as_float,
    check_choice,
    first_rows,
)
from deeptram.errors import FileFormatError, InvalidInputError, InvalidTypeError
from deeptram.latent import Latent
from deeptram.pooling.array_pool import ArrayPool, CdfStack
from deeptram.pooling.beta_linear import BetaLinear
from deeptram.pooling.linear import LinearRule, LogLinearDensityRule, LogLinearRule
from deeptram.pooling.pooled import PooledCount, PooledDiscrete, PooledLine, pooled_curves
from deeptram.pooling.quantile import QuantileRule
from deeptram.pooling.rule import PoolInfo, Recipe, Rule, TrafoRule, common_latent
from deeptram.pooling.transformation import TransformationRule
from deeptram.pooling.trimmed import MedianRule, TrimmedMean
from deeptram.predictive.base import Predictive
from deeptram.predictive.discrete import DiscretePredictive
from deeptram.predictive.survival import SurvivalPredictive

_BUILT_IN: dict[str, Rule] = {
    rule.name: rule
    for rule in (
        LinearRule(),
        LogLinearRule(),
        LogLinearDensityRule(),
        TransformationRule(),
        QuantileRule(),
        MedianRule(),
        TrimmedMean(),
        BetaLinear(),
    )
}
METHODS = tuple(_BUILT_IN)
WEIGHT_TOLERANCE = 1e-8


def _same_rule(known: Rule, rule: Any) -> bool:
    """Whether two rules differ in their parameters at most, which are saved."""
    return type(known) is type(rule) and _fixed(known) == _fixed(rule)


def _fixed(rule: Rule) -> dict[str, Any]:
    return {name: value for name, value in vars(rule).items() if name not in rule.parameters}


_REGISTRY: Registry[Rule] = Registry("pool", "deeptram.pooling.register_rule(rule)", _same_rule)
for _rule in _BUILT_IN.values():
    _REGISTRY.add(_rule.name, _rule)


def check_weights(weights: npt.ArrayLike | None, n_members: int) -> npt.NDArray[np.float64]:
    r"""Return member weights :math:`w_m \ge 0`, :math:`\sum_m w_m = 1` (within 1e-8), shape ``(M,)``.

    ``None`` means equal weights :math:`1/M`. Nothing is rescaled silently.

    Examples
    --------
    >>> check_weights(None, 4)
    array([0.25, 0.25, 0.25, 0.25])
    """
    if weights is None:
        return np.full(n_members, 1.0 / n_members)
    array = as_float(weights, "weights")
    if array.shape != (n_members,):
        raise InvalidInputError(
            f"weights must hold one number per member, shape ({n_members},), got shape {array.shape}; "
            "give one weight to each member, or None for equal weights"
        )
    if not np.isfinite(array).all():
        raise InvalidInputError(
            f"weights must be finite, got {array.tolist()}; replace NaN and infinite ones"
        )
    if (array < 0).any():
        raise InvalidInputError(
            f"weights must not be negative, got {array.min():g} for member {int(np.argmin(array))}; "
            "use 0 to leave a member out"
        )
    total = math.fsum(array)
    if abs(total - 1.0) > WEIGHT_TOLERANCE:
        raise InvalidInputError(f"weights must sum to one, got {total:.10g}; divide them by their sum")
    return array


def register_rule(rule: Rule) -> Rule:
    """Make a rule of one's own known by its name, to ``dt.pool`` and to saved ensembles.

    Call it in the program that loads the ensemble, too. Returns the rule.

    Parameters
    ----------
    rule : Rule
        With a name that no other rule has. Its parameters (``Rule.parameters``) are saved with the name.

    Examples
    --------
    >>> import torch, deeptram as dt
    >>> from deeptram.pooling import CdfRule, register_rule
    >>> class Earliest(CdfRule):
    ...     name = "earliest"  # the largest F of all members: what the most pessimistic one says
    ...     def log_cdf(self, at):
    ...         return torch.stack(at.log_cdf()).amax(dim=0)
    ...     def log_sf(self, at):
    ...         return torch.stack(at.log_sf()).amin(dim=0)
    >>> members = [dt.Predictive.from_proba([[0.2, 0.8]]), dt.Predictive.from_proba([[0.6, 0.4]])]
    >>> dt.pool(members, method=Earliest()).pmf()
    array([[0.6, 0.4]])
    """
    _check_rule(rule)
    return _REGISTRY.add(rule.name, rule)


def get_rule(method: str | Rule, argument: str = "method") -> Rule:
    """Return the rule of a pool, given by its name or as an object.

    Examples
    --------
    >>> get_rule("linear").name
    'linear'
    """
    if isinstance(method, str):
        return _REGISTRY.find(check_choice(method, _REGISTRY.names(), argument))
    _check_rule(method, argument)
    return method


def is_built_in(rule: Rule) -> bool:
    """Whether this is one of the four rules by name, of which more is known (guarantees, exact tuning).

    Examples
    --------
    >>> is_built_in(LinearRule())
    True
    """
    own = _BUILT_IN.get(rule.name)
    return own is not None and type(own) is type(rule)


def saved_rule(method: str | Rule) -> dict[str, Any]:
    """Return a rule as its name and its parameters, to be written into a file; unregistered ones are refused.

    Examples
    --------
    >>> saved_rule("linear")
    {'name': 'linear', 'parameters': []}
    """
    rule = get_rule(method)
    return {"name": _REGISTRY.name_of(rule), "parameters": rule.values()}


def rule_from_file(saved: Mapping[str, Any]) -> str | Rule:
    """Return the rule that ``saved_rule`` wrote: its name, or an object where it has parameters.

    Examples
    --------
    >>> rule_from_file({"name": "majority", "parameters": []})
    Traceback (most recent call last):
    ...
    deeptram.errors.FileFormatError: a saved pool must be one of beta-linear, ...
    """
    rule = _REGISTRY.load(saved["name"])
    given = saved["parameters"]
    if len(given) != len(rule.parameters):
        raise FileFormatError(
            f"a saved {rule.name} pool must have the parameters {list(rule.parameters)}, got {given}; "
            "save the ensemble again"
        )
    return type(rule)(*given) if given else rule.name


def _check_rule(rule: Any, argument: str = "rule") -> None:
    if not isinstance(rule, Rule):
        raise InvalidTypeError(
            f"{argument} must be the name of a pool or a rule, got {type(rule).__name__}; use one of "
            f"{', '.join(map(repr, _REGISTRY.names()))}, a QuasiArithmetic, or a CdfRule or DensityRule of "
            "your own"
        )
    if rule.name in _BUILT_IN and not is_built_in(rule):
        raise InvalidInputError(
            f"a rule of your own must have a name of its own, got {rule.name!r}, which is taken; "
            "choose another"
        )


def is_array(members: Any) -> bool:
    """Whether members came as one array of CDFs rather than as a sequence of distributions.

    Examples
    --------
    >>> is_array(np.zeros((2, 3, 4))), is_array([])
    (True, False)
    """
    return isinstance(members, (np.ndarray, Tensor))


def check_members(members: Any) -> list[Predictive]:
    """Return the members as a list of distributions of one kind, length and set of levels.

    Examples
    --------
    >>> check_members([])
    Traceback (most recent call last):
    ...
    deeptram.errors.InvalidInputError: members must hold at least one Predictive, got none; ...
    """
    if isinstance(members, Predictive):
        raise InvalidTypeError(
            "members must be a sequence of Predictive, got a single one; put it into a list: [pred]"
        )
    if not hasattr(members, "__iter__"):
        raise InvalidTypeError(
            f"members must be a sequence of Predictive or an array (members, rows, levels) of CDFs, got "
            f"{type(members).__name__}; build each with Predictive.from_proba, from_cdf, ..."
        )
    checked = list(members)
    if not checked:
        raise InvalidInputError(
            "members must hold at least one Predictive, got none; pass the members to be pooled"
        )
    for m, member in enumerate(checked):
        if not isinstance(member, Predictive):
            raise InvalidTypeError(
                f"members must be Predictive objects, got {type(member).__name__} at position {m}; "
                "build it with Predictive.from_proba, from_cdf, from_scipy, ..."
            )
    _check_alike(checked)
    return checked


def _check_alike(members: Sequence[Predictive]) -> None:
    first = members[0]
    for m, member in enumerate(members[1:], start=1):
        if member.kind != first.kind:
            raise InvalidInputError(
                f"members must be of one kind, got {first.kind} for member 0 and {member.kind} for "
                f"member {m}; pool distributions of the same outcome"
            )
        if len(member) != len(first):
            raise InvalidInputError(
                f"members must have the same number of rows, got {len(first)} for member 0 and "
                f"{len(member)} for member {m}; predict the same rows with every member"
            )
        if member.levels != first.levels:
            raise InvalidInputError(
                f"members must have the same levels in the same order, got {_shown(first.levels)} for "
                f"member 0 and {_shown(member.levels)} for member {m}; "
                f"{_remedy(m, member.levels or (), first.levels or ())}"
            )


def as_members(members: Any) -> list[Predictive]:
    """Return checked members, whether they came as a sequence or as an array of CDFs.

    Examples
    --------
    >>> len(as_members(np.array([[[0.2, 1.0]], [[0.4, 1.0]]])))
    2
    """
    if is_array(members):
        return [*CdfStack.check(members).members()]
    return check_members(members)


def normalised_weights(
    weights: npt.ArrayLike | None, n_members: int, n_rows: int | None = None
) -> npt.NDArray[np.float64]:
    """Return checked weights, divided by their sum so that rounding within 1e-8 does not matter.

    Parameters
    ----------
    weights : array-like, shape (M,) or (n, M), optional
    n_members : int
    n_rows : int, optional
        Where rows may have weights of their own.

    Examples
    --------
    >>> normalised_weights([0.25, 0.75], 2)
    array([0.25, 0.75])
    """
    if n_rows is None or not _is_table(weights):
        checked = check_weights(weights, n_members)
        return np.asarray(checked / checked.sum())
    given = as_float(weights, "weights")
    if given.shape != (n_rows, n_members):
        raise InvalidInputError(
            f"weights of every row must have shape ({n_rows}, {n_members}), got {given.shape}; "
            "pass one row of weights for each prediction"
        )
    total = given.sum(axis=1, keepdims=True)
    wrong = ~((given >= 0).all(axis=1) & (np.abs(total[:, 0] - 1) <= 1e-8))
    if wrong.any():
        raise InvalidInputError(
            f"weights must not be negative and sum to 1, got others in {first_rows(wrong)}; "
            "divide each row by its sum"
        )
    return np.asarray(given / total)


def _is_table(weights: Any) -> bool:
    """Whether weights have two axes; what is no array has none."""
    try:
        return np.ndim(weights) == 2
    except ValueError:  # lists of unequal length
        return False


def _remedy(m: int, own: Sequence[Any], first: Sequence[Any]) -> str:
    """Return what to do about levels that are not the same."""
    for k, levels, other in ((m, own, first), (0, first, own)):
        missing = [level for level in other if level not in levels]
        if missing and len(missing) == len(other) - len(levels):
            return (
                f"member {k} has no {missing[0]!r}, perhaps as its training rows had none: train it on rows "
                "of all classes, or insert a column of zeros, from_proba(..., levels=...), and pool with "
                "method='linear' (for the others a zero is final)"
            )
    return "name the levels of both alike" if set(own) != set(first) else "reorder the columns of one of them"


def _shown(levels: tuple[Any, ...] | None) -> str:
    shown = ", ".join(map(repr, (levels or ())[:4]))
    return f"[{shown}{', ...' if levels and len(levels) > 4 else ''}]"


def meaningful(members: Sequence[Predictive]) -> list[str]:
    """Return the names of the pools; of classes without an order those that do not look at one.

    Examples
    --------
    >>> len(meaningful([Predictive.from_proba([[0.2, 0.3, 0.5]])])) == len(METHODS)
    True
    """
    free = members[0].is_nominal
    return [name for name in METHODS if get_rule(name).order_free or not free]


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
    ``"transformation"``      :math:`F_Z(\sum_m w_m F_Z^{-1}(F_m))` (Def. 5); of classes without an order
                              (``ordered`` False) the mean of their logits, "log-linear-density"
    ``QuasiArithmetic``       :math:`g^{-1}(\sum_m w_m g(F_m))` (eq. 1)
    a rule of one's own       a ``CdfRule`` or ``DensityRule`` (``deeptram.pooling.rule``)
    ========================  ==========================================================================

    Members with h (transformation models) are pooled on h, all others through log F and log(1 - F), so no
    finite h saturates. The result is again a full ``Predictive`` and keeps the recipe as ``pool_info``.

    Certainty (F = 0 or 1) is allowed. Linear: nothing special. Log-linear: F = 0 prevails. Transformation and
    quasi-arithmetic: a certain member prevails over the others, contradicting ones are weighed against
    each other and cancel when equal (``deeptram.pooling.points``). Log-linear-density: what one member
    excludes is excluded; if nothing remains, what the least weight excludes remains. There is never a NaN.

    Parameters
    ----------
    members : sequence of Predictive, or array of shape (M, n, K)
        Distributions of the same n rows and the same outcome; an array holds the members' CDFs at the K
        levels ``0..K-1``, each row ending in 1. It is copied, so that what happens to it later does not
        change the pool; an array that is read-only (``cdfs.flags.writeable = False``) is not.
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
    if stack is not None:
        stack = stack.take_members(mean > 0)
        kept: list[Predictive] = list(stack.members())
    else:
        kept = [member for member, weight in zip(checked, mean, strict=True) if weight > 0]
    rule = asked.prepared(kept, latent)
    scale = rule.latent if isinstance(rule, TrafoRule) else None
    name = rule.latent.name if isinstance(rule, TransformationRule) else None
    info = PoolInfo(rule.name, tuple(mean.tolist()), name, tuple(rule.values()), w.ndim > 1)
    positive = torch.as_tensor(
        w[..., mean > 0], dtype=_dtype(kept[0]) if stack is None else stack.values.dtype
    )
    positive = positive if w.ndim == 1 else positive.T.unsqueeze(2)
    recipe = Recipe(rule, kept, positive, info, common_latent(kept) if scale is None else scale)
    if stack is not None:
        return ArrayPool(stack, recipe)
    closed = rule.closed_form(recipe)
    return _pooled(recipe) if closed is None else closed


def _dtype(member: Any) -> torch.dtype:
    if isinstance(member, DiscretePredictive):
        return torch.float64 if member.gives_numpy else member.log_cdf_t().dtype
    own: torch.dtype = member.dtype
    return own


_FORMS: dict[str, Callable[[Recipe], Predictive]] = {
    "discrete": PooledDiscrete,
    "count": PooledCount,
    "continuous": PooledLine,
}


def _pooled(recipe: Recipe) -> Predictive:
    """Return the pool in the kind of its members."""
    if all(isinstance(member, SurvivalPredictive) for member in recipe.members):
        return pooled_curves(recipe)
    return _FORMS[recipe.members[0].kind](recipe)
