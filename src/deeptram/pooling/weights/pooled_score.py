"""The score of a pool as a plain function of the weights."""

from __future__ import annotations

from typing import Any

import numpy as np

from deeptram._rows import take_rows
from deeptram.evaluation.scores import get as get_score
from deeptram.latent import Latent
from deeptram.optimise.simplex import Vector
from deeptram.pooling.pool import pool
from deeptram.pooling.rule import Rule
from deeptram.predictive.base import Predictive


class PooledScore:
    """Pool the members with the weights given and sum the scores of the rows asked for."""

    def __init__(
        self,
        members: list[Predictive],
        y: Any,
        method: str | Rule,
        score: str,
        latent: Latent | None,
    ) -> None:
        self.members, self.y, self.method, self.latent = members, y, method, latent
        self.score = get_score(score)

    def __call__(self, w: Vector, rows: Any = None) -> float:
        """Return the sum of scores over rows (all by default)."""
        members, y = self.members, self.y
        if rows is not None:
            members, y = [member[rows] for member in members], take_rows(y, rows, "y")
        pooled = pool(members, method=self.method, weights=w, latent=self.latent)
        return float(np.asarray(self.score(y, pooled)) * len(pooled))
