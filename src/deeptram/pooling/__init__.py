"""Pools of predictive distributions: rules, pooled distributions, weights, recalibration.

Here: how members combine (one file per rule), what the paper guarantees, how far a pool leaves the members'
structure. It knows predictive distributions only, no models. Start with ``pool.py``, then ``rule.py``.
"""

from __future__ import annotations

from deeptram.pooling.guarantees import Guarantees, Statement, guarantees, worst_case_regret
from deeptram.pooling.pool import METHODS, get_rule, pool, register_rule
from deeptram.pooling.quasi_arithmetic import QuasiArithmetic
from deeptram.pooling.rule import CdfRule, DensityRule, PoolInfo, Rule
from deeptram.pooling.structure import StructureCheck, structure_check

__all__ = [
    "METHODS",
    "CdfRule",
    "DensityRule",
    "Guarantees",
    "PoolInfo",
    "QuasiArithmetic",
    "Rule",
    "Statement",
    "StructureCheck",
    "get_rule",
    "guarantees",
    "pool",
    "register_rule",
    "structure_check",
    "worst_case_regret",
]
