r"""A pull of the weights towards given ones, by relative entropy.

.. math:: \min_w \sum_i s_i(w) + \lambda \sum_m w_m \log(w_m / r_m) .

:math:`\lambda` counts in rows: with n rows the data weigh n, the pull :math:`\lambda`. The penalty is convex,
so a convex problem stays one and its optimum is still certified; weights stay positive.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from deeptram.optimise.simplex import Matrix, Vector
from deeptram.pooling.weights.objectives import Objective


@dataclass(frozen=True)
class Pull:
    """A strength in rows, and the weights towards which it pulls."""

    strength: float
    towards: Vector

    def penalty(self, w: Vector) -> float:
        """Return the strength times the relative entropy of positive weights."""
        return self.strength * float(w @ np.log(w / self.towards))


class PulledScore(Objective):
    """Another objective plus a pull; infinite where a weight is zero."""

    def __init__(self, inner: Objective, pull: Pull) -> None:
        self.inner, self.pull = inner, pull
        self.n_rows, self.convex = inner.n_rows, inner.convex

    def evaluate(self, w: Vector) -> tuple[float, Vector, Matrix]:
        """Return the sum of scores plus the pull, with derivatives."""
        value, gradient, hessian = self.inner.evaluate(w)
        if not (w > 0).all():
            return float("inf"), gradient, hessian
        log_ratio = np.log(w / self.pull.towards)
        strength = self.pull.strength
        return (
            value + self.pull.penalty(w),
            gradient + strength * (log_ratio + 1),
            hessian + strength * np.diag(1 / w),
        )

    def shaped(self, a: float, b: float) -> PulledScore:
        """Return the same with other parameters of the pool."""
        inner: Any = self.inner
        return PulledScore(inner.shaped(a, b), self.pull)

    def take(self, keep: Tensor) -> PulledScore:
        """Return the objective of some rows, of which the pull has its share."""
        share = Pull(self.pull.strength * len(keep) / self.n_rows, self.pull.towards)
        return PulledScore(self.inner.take(keep), share)
