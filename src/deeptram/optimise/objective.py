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

    def longest_step(self, parameters: Tensor, step: Tensor) -> float:
        """Return a length in (0, 1] up to which a step stays well inside the domain."""


KEPT_FRACTION = 0.05


def keep_positive(current: Tensor, change: Tensor) -> float:
    """Return the length in (0, 1] up to which positive values keep a twentieth of themselves.

    Examples
    --------
    >>> import torch
    >>> keep_positive(torch.tensor([1.0, 2.0]), torch.tensor([-1.9, 5.0]))
    0.5
    """
    if len(current) == 0:
        return 1.0
    fastest = float((-change / current).max())
    return min(1.0, (1 - KEPT_FRACTION) / fastest) if fastest > 0 else 1.0
