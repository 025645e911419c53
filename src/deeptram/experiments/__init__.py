"""The paper's experiments: splits, protocol, runner, aggregation."""

from __future__ import annotations

from deeptram.experiments.r_random import RRandom
from deeptram.experiments.splits import (
    Split,
    grouped_splits,
    paper_splits,
    r_sample,
    seeded_splits,
    splits_frame,
    splits_from_frame,
)

__all__ = [
    "RRandom",
    "Split",
    "grouped_splits",
    "paper_splits",
    "r_sample",
    "seeded_splits",
    "splits_frame",
    "splits_from_frame",
]
