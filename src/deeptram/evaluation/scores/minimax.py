r"""The score for which a given transformation pool is minimax-optimal (Appendix A of the paper)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from deeptram import latent as latents
from deeptram._arrays import as_tensor
from deeptram.errors import UnsupportedError
from deeptram.evaluation.checks import check_discrete, codes_of
from deeptram.evaluation.measures import Score
from deeptram.latent import Latent


class MinimaxScore(Score):
    r"""The proper score of a binary outcome whose minimax-optimal pool is the transformation pool with F_Z.

    ``minimax_pool`` goes from a score to its pool; this is the way back. A pool that
    averages :math:`g = F_Z^{-1}` belongs to the expected score

    .. math:: G(p) = \int_0^p F_Z^{-1}(u)\,du, \qquad p = P(Y = y_1),

    and G to the score (Savage 1971), up to a function of the outcome alone,

    .. math::
        s(p, y_1) = \int_z^\infty (1 - F_Z(v))\,dv, \qquad s(p, y_2) = \int_{-\infty}^z F_Z(v)\,dv, \qquad
        z = F_Z^{-1}(p).

    With it the transformation pool minimises :math:`\max_y \{ s(p, y) - \sum_m w_m s(p_m, y) \}`
    (Theorem 4.1 of Neyman and Roughgarden 2021). For the logistic latent it is the NLL (Cor. 1).

    Parameters
    ----------
    latent : str or Latent

    Examples
    --------
    >>> import numpy as np, deeptram as dt
    >>> pred = dt.Predictive.from_proba(np.array([[0.2, 0.8]]))
    >>> MinimaxScore("logistic")([1], pred), dt.scores.nll([1], pred)
    (0.223, 0.223)
    >>> MinimaxScore("probit")([1], pred)
    0.112
    """

    def __init__(self, latent: str | Latent = "logistic") -> None:
        self.latent = latents.get(latent)
        self.name = f"minimax score of the {self.latent.name} pool"

    def expected(self, p: Any) -> Any:
        r"""Return :math:`G(p) = \int_0^p F_Z^{-1}(u)\,du`, minus the expected score up to a line.

        Parameters
        ----------
        p : array-like
            Probabilities of the first level.
        """
        z, probability = (as_tensor(part, torch.float64) for part in (self.latent.icdf(p), p))
        inner = z * probability - self.latent.cdf_integral(z)
        return torch.where(probability == 0, torch.zeros_like(inner), inner).numpy()

    def rows(self, y: Any, pred: Any, **options: Any) -> Tensor:
        """Return the score of every row, shape (n,)."""
        pred = check_discrete(pred, self.name)
        if len(pred.levels) != 2:
            raise UnsupportedError(
                f"this score is defined for two levels, got {len(pred.levels)}; use scores.nll, or "
                "metrics.at_cutoff(pred, cutoff) first"
            )
        z = self.latent.from_log_t(pred.log_cdf_t()[:, 0], pred.log_sf_t()[:, 0]).double()
        first = codes_of(y, pred) == 0
        return torch.where(first, self.latent.sf_integral(z), self.latent.cdf_integral(z))
