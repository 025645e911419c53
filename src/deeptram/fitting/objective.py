"""What the second-order solver asks of a negative log-likelihood."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor


class Objective(Protocol):
    """A smooth function of a parameter vector with analytic derivatives.

    Implementing an objective: give the number of parameters, the value (plus
    infinity outside the domain), and value, gradient and Hessian together.
    """

    n_parameters: int

    def value(self, parameters: Tensor) -> float:
        """Return f; ``inf`` where the parameters are outside the domain."""

    def evaluate(self, parameters: Tensor) -> tuple[float, Tensor, Tensor]:
        """Return f, its gradient (d,) and its Hessian (d, d)."""
