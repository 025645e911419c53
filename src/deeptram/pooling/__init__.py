"""Pools of predictive distributions: linear, log-linear, transformation and quasi-arithmetic."""

from __future__ import annotations

from deeptram.pooling.guarantees import Guarantees, Statement, guarantees
from deeptram.pooling.info import PoolInfo
from deeptram.pooling.pool import METHODS, pool
from deeptram.pooling.quasi_arithmetic import QuasiArithmetic
from deeptram.pooling.regret import worst_case_regret
from deeptram.pooling.structure import StructureCheck, structure_check

__all__ = [
    "METHODS",
    "Guarantees",
    "PoolInfo",
    "QuasiArithmetic",
    "Statement",
    "StructureCheck",
    "guarantees",
    "pool",
    "structure_check",
    "worst_case_regret",
]
