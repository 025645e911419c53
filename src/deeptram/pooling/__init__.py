"""Pools of predictive distributions: rules, pooled distributions, weights, recalibration.

Belongs here: how members combine (one file per rule), what the paper guarantees, how far a pool
leaves the members' structure.
May import: ``evaluation``, ``predictive`` and below; no model.
Start reading at ``pool``, then ``rule``.
"""

from __future__ import annotations

from deeptram.pooling.beta_linear import BetaLinear
from deeptram.pooling.comparison import PoolComparison, compare_pools
from deeptram.pooling.guarantees import Guarantees, Statement, guarantees, worst_case_regret
from deeptram.pooling.normalised import DensityRule
from deeptram.pooling.pool import METHODS, get_rule, pool, register_rule, rule_from_file, saved_rule
from deeptram.pooling.quasi_arithmetic import QuasiArithmetic
from deeptram.pooling.rule import CdfRule, PoolInfo, Rule
from deeptram.pooling.structure import StructureCheck, structure_check
from deeptram.pooling.transformation import TransformationRule
from deeptram.pooling.trimmed import TrimmedMean

__all__ = [
    "METHODS",
    "BetaLinear",
    "CdfRule",
    "DensityRule",
    "Guarantees",
    "PoolComparison",
    "PoolInfo",
    "QuasiArithmetic",
    "Rule",
    "Statement",
    "StructureCheck",
    "compare_pools",
    "TransformationRule",
    "TrimmedMean",
    "get_rule",
    "guarantees",
    "pool",
    "register_rule",
    "rule_from_file",
    "saved_rule",
    "structure_check",
    "worst_case_regret",
]
