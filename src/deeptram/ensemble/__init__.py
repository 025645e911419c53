"""Ensembles of deep transformation models: members, coefficients, epistemic uncertainty, files.

Belongs here: everything about several fitted models at once, ours and others', and ``load``.
May import: ``estimators`` and below.
Start reading at ``ensemble.Ensemble``.
"""

from __future__ import annotations

from deeptram.ensemble.adapters import Adapter, register_adapter
from deeptram.ensemble.ensemble import Ensemble
from deeptram.ensemble.frames import predict_frame
from deeptram.ensemble.leaderboards import Leaderboard, leaderboard
from deeptram.ensemble.members import Bags
from deeptram.ensemble.onnx_graph import export
from deeptram.ensemble.persistence import load

__all__ = [
    "Adapter",
    "Bags",
    "Ensemble",
    "Leaderboard",
    "export",
    "leaderboard",
    "load",
    "predict_frame",
    "register_adapter",
]
