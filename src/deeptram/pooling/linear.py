r"""The linear pool, Def. 1: a mixture of the members.

.. math:: \bar F^c = \sum_m w_m F_m, \qquad \bar f^c = \sum_m w_m f_m.

Tails and probabilities are each summed on the log scale, so neither is a difference.
"""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from deeptram.pooling.rule import CdfRule, Intervals, Points


class LinearRule(CdfRule):
    r"""The linear pool (Def. 1).

    Examples
    --------
    >>> import deeptram as dt, scipy.stats
    >>> members = [dt.Predictive.from_proba([[0.2, 0.8]]), dt.Predictive.from_proba([[0.6, 0.4]])]
    >>> dt.pool(members, method="linear").pmf()
    array([[0.4, 0.6]])
    >>> members = [dt.Predictive.from_scipy(scipy.stats.norm(mu, 1.0)) for mu in (-1.0, 3.0)]
    >>> mixture = dt.pool(members, method="linear")
    >>> mixture.mean(), mixture.median().round(6)
    (array([1.]), array([1.]))
    """

    name: ClassVar[str] = "linear"
    mixture: ClassVar[bool] = True

    def log_cdf(self, at: Points) -> Tensor:
        """Return the log of the mean CDF."""
        return at.log_mean(at.log_cdf())

    def log_sf(self, at: Points) -> Tensor:
        """Return the log of the mean survivor function."""
        return at.log_mean(at.log_sf())

    def log_pdf(self, at: Points) -> Tensor:
        """Return the log of the mean density."""
        return at.log_mean(at.log_pdf())

    def log_mass(self, intervals: Intervals) -> Tensor:
        """Return the log of the mean probability of an interval."""
        return intervals.log_mean(intervals.log_mass())
