r"""Cut points: the transformation function of a discrete response.

For classes :math:`y_1 < \dots < y_K` the function h of Eq. (4) takes K - 1
values :math:`h(y_k) = \theta_k`, and :math:`h(y_K) = +\infty`.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch

from deeptram._arrays import elementwise
from deeptram._validation import check_integer
from deeptram.bases.basis import Basis, as_floating, register, successive_differences
from deeptram.errors import UnsupportedError


@register
@dataclasses.dataclass(frozen=True)
class Cutpoints(Basis):
    """One coefficient for each class but the last; ``y`` is the class code 0, ..., K - 1.

    Parameters
    ----------
    n_levels : int
        Number of classes K, at least 2.

    Examples
    --------
    >>> Cutpoints(3).evaluate([0, 1, 2])
    array([[1., 0.],
           [0., 1.],
           [0., 0.]])
    """

    n_levels: int
    name: ClassVar[str] = "cutpoints"

    def __post_init__(self) -> None:
        object.__setattr__(self, "n_levels", check_integer(self.n_levels, "n_levels", 2))

    @property
    def n_coef(self) -> int:
        return self.n_levels - 1

    @property
    def support(self) -> tuple[float, float]:
        """First and last class code."""
        return (0.0, float(self.n_levels - 1))

    @property
    def monotone_differences(self) -> npt.NDArray[np.float64]:
        return successive_differences(self.n_coef)

    @elementwise
    def evaluate(self, y: Any) -> Any:
        """Return the indicator of the code; a row of zeros where h is infinite (the last class).

        Parameters
        ----------
        y : class codes, any shape

        Returns
        -------
        array or Tensor, shape (..., K - 1)
        """
        y = as_floating(y)
        codes = torch.arange(self.n_coef, dtype=y.dtype, device=y.device)
        return (y.unsqueeze(-1) == codes).to(y.dtype)

    def derivative(self, y: Any) -> Any:
        """Raise: a discrete response has no density, so h has no slope."""
        raise UnsupportedError(
            "a derivative of h needs a continuous response, got cut points of a discrete one; "
            "use probabilities (pmf) instead of a density"
        )
