"""The paper's experiments: splits, protocol, runner, aggregation."""

from __future__ import annotations

from deeptram.experiments.aggregate import aggregate
from deeptram.experiments.config import MODELS, Protocol, Study, Unit
from deeptram.experiments.paper import DATASETS, PRESETS, PROTOCOLS, make_study
from deeptram.experiments.r_random import RRandom
from deeptram.experiments.runner import RunResult, run_study
from deeptram.experiments.splits import (
    Split,
    grouped_splits,
    paper_splits,
    r_sample,
    seeded_splits,
    splits_frame,
    splits_from_frame,
)
from deeptram.experiments.storage import RunFolder
from deeptram.experiments.tables import Tables

__all__ = [
    "DATASETS",
    "MODELS",
    "PRESETS",
    "PROTOCOLS",
    "Protocol",
    "RRandom",
    "RunFolder",
    "RunResult",
    "Split",
    "Study",
    "Tables",
    "Unit",
    "aggregate",
    "grouped_splits",
    "make_study",
    "paper_splits",
    "r_sample",
    "run_study",
    "seeded_splits",
    "splits_frame",
    "splits_from_frame",
]
