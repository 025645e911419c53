"""The rules by name: ours, and those that users register."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from deeptram._registry import Registry
from deeptram._validation import check_choice
from deeptram.errors import FileFormatError, InvalidInputError, InvalidTypeError
from deeptram.pooling.beta_linear import BetaLinear
from deeptram.pooling.linear import LinearRule
from deeptram.pooling.log_linear import LogLinearDensityRule, LogLinearRule
from deeptram.pooling.quantile import QuantileRule
from deeptram.pooling.rule import Rule
from deeptram.pooling.transformation import TransformationRule
from deeptram.pooling.trimmed import MedianRule, TrimmedMean

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


def _same_rule(known: Rule, rule: Any) -> bool:
    """Whether two rules differ in their parameters at most, which are saved."""
    return type(known) is type(rule) and _fixed(known) == _fixed(rule)


def _fixed(rule: Rule) -> dict[str, Any]:
    return {name: value for name, value in vars(rule).items() if name not in rule.parameters}


_REGISTRY: Registry[Rule] = Registry("pool", "deeptram.pooling.register_rule(rule)", _same_rule)
for _rule in _BUILT_IN.values():
    _REGISTRY.add(_rule.name, _rule)


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
