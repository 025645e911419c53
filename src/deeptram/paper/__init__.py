"""The paper's studies: splits, protocol, runner, tables and the report.

Belongs here: what reruns the paper and shows what came out; a run is a folder.
May import: everything but ``cli``.
Start reading at ``runner.run_study``, then ``storage``.
"""

from __future__ import annotations

from deeptram.paper.aggregate import Tables, aggregate
from deeptram.paper.config import MODELS, Protocol, Study, Unit
from deeptram.paper.protocols import DATASETS, PRESETS, PROTOCOLS, make_study
from deeptram.paper.runner import RunResult, run_study
from deeptram.paper.splits import (
    RRandom,
    Split,
    grouped_splits,
    paper_splits,
    r_sample,
    seeded_splits,
    splits_frame,
    splits_from_frame,
)
from deeptram.paper.storage import RunFolder

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
