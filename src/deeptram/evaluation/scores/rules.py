"""Proper scoring rules (Table D.1 of the paper) with checked input: truth first, smaller is better.

The log-score (Good 1952), the quadratic scores of class probabilities (Brier 1950), and the scores of the
whole distribution function (Epstein 1969); then entropy, divergence and minimax-optimal pool of each. The
formulas for distributions on levels are those of ``deeptram.evaluation.scores.core``.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from deeptram import latent as latents
from deeptram._arrays import as_tensor
from deeptram._validation import check_choice
from deeptram.errors import InvalidInputError, UnsupportedError
from deeptram.evaluation.checks import check_discrete, check_predictive, check_rows, codes_of, reduce_rows
from deeptram.evaluation.measures import FunctionScore, Score, register
from deeptram.evaluation.scores import core
from deeptram.latent import Latent

OUTCOMES = ("binary", "nominal", "ordinal")


def nll(y: Any, pred: Any, *, reduction: str = "mean") -> Any:
    r"""Return the negative log-likelihood, the training loss and the evaluation score alike.

    .. math::
        \mathrm{NLL}(f, y) = -\log f(y), \qquad
        \mathrm{NLL}(f, (l, u]) = -\log(F(u) - F(l)),

    with f the probability (discrete outcomes, counts) or density (continuous
    outcomes), and the second form for censored outcomes. Strictly proper and
    local. An outcome to which the prediction gives probability zero costs
    infinity; it is neither clipped nor left out. Its minimax-optimal pool is
    the normalised log-linear one, for two levels the transformation pool with
    logistic latent (Cor. 1).

    Parameters
    ----------
    y : array-like of n outcomes, or ``Surv``
        Labels among ``pred.levels``, numbers, or a censored response.
    pred : Predictive
        One distribution for each of the n outcomes.
    reduction : {"mean", "none"}
        The mean over rows, or all n scores.

    Returns
    -------
    float or array or Tensor
        A tensor with its graph if ``pred`` was made from tensors, else NumPy.

    References
    ----------
    .. [1] Good, I. J. (1952). Rational decisions. JRSS B 14(1), 107-114.

    Examples
    --------
    >>> import numpy as np
    >>> from deeptram.predictive.discrete import DiscretePredictive
    >>> pred = DiscretePredictive.from_log_pmf(np.log([[0.2, 0.8], [0.5, 0.5]]))
    >>> nll([1, 0], pred)
    0.458
    >>> nll([1, 0], pred, reduction="none")
    array([0.223, 0.693])
    """
    pred = check_predictive(pred)
    check_rows(y, pred)
    return reduce_rows(-pred.log_prob(y), reduction, numpy=pred.gives_numpy)


def brier(y: Any, pred: Any, *, reduction: str = "mean") -> Any:
    r"""Return the Brier score, between 0 and 1.

    .. math::
        \mathrm{BS}(f, y) = \tfrac12 \sum_{k=1}^{K} (f(y_k) - 1(y = y_k))^2

    For two levels this is :math:`(y - p)^2` with y coded 0/1 and p the
    probability of the second, the definition of Table D.1, and the same as
    ``rps``. For more levels it ignores their order; multiply by two for the
    convention without the factor one half (scikit-learn's for several
    classes). For the Brier score of one dichotomised event use
    ``deeptram.evaluation.metrics.at_cutoff`` first. Strictly proper.

    ``pred`` must be on levels; arguments and result are otherwise as for ``nll``.

    References
    ----------
    .. [1] Brier, G. W. (1950). Verification of forecasts expressed in terms of
       probability. Monthly Weather Review 78(1), 1-3.

    Examples
    --------
    >>> import numpy as np
    >>> from deeptram.predictive.discrete import DiscretePredictive
    >>> brier([1, 0], DiscretePredictive.from_log_pmf(np.log([[0.2, 0.8], [0.5, 0.5]])), reduction="none")
    array([0.04, 0.25])
    """
    return _of_codes("brier", y, pred, reduction)


def quadratic(y: Any, pred: Any, *, reduction: str = "mean") -> Any:
    r"""Return Brier's quadratic score for nominal outcomes, between -1 and 1.

    .. math::
        \mathrm{QS}(f, y) = \sum_{k=1}^{K} f(y_k)^2 - 2 f(y)

    as in Table D.1; it is :math:`\sum_k (f(y_k) - 1(y = y_k))^2 - 1`, that is
    twice the ``brier`` score minus one. Strictly proper.

    ``pred`` must be on levels; arguments and result are otherwise as for ``nll``.

    Examples
    --------
    >>> import numpy as np
    >>> from deeptram.predictive.discrete import DiscretePredictive
    >>> quadratic([2], DiscretePredictive.from_log_pmf(np.log([[0.2, 0.5, 0.3]])))
    -0.22
    """
    return _of_codes("quadratic", y, pred, reduction)


def rps(y: Any, pred: Any, *, reduction: str = "mean") -> Any:
    r"""Return the ranked probability score of an ordinal outcome, eq. (3).

    .. math::
        \mathrm{RPS}(F, y) = \frac{1}{K-1}\sum_{k=1}^{K-1} (F(y_k) - 1(y \le y_k))^2

    with F the predicted CDF on levels :math:`y_1 < \dots < y_K`. Between 0 and
    1, strictly proper, and not local: a near miss costs less than a far one.
    For two levels it is the Brier score.

    **Convention**: the sum is divided by K - 1, as in the paper. Several
    packages (for example scoringrules and properscoring) do not divide; their
    numbers are K - 1 times larger, as is ``crps`` here.

    ``pred`` must be on levels; arguments and result are otherwise as for ``nll``.

    References
    ----------
    .. [1] Epstein, E. S. (1969). A scoring system for probability forecasts of
       ranked categories. Journal of Applied Meteorology 8(6), 985-987.

    Examples
    --------
    >>> import numpy as np
    >>> from deeptram.predictive.discrete import DiscretePredictive
    >>> pred = DiscretePredictive.from_log_pmf(np.log([[0.2, 0.5, 0.3]] * 3), levels=("a", "b", "c"))
    >>> rps(["a", "b", "c"], pred, reduction="none")
    array([0.365, 0.065, 0.265])
    """
    return _of_codes("rps", y, pred, reduction)


def crps(y: Any, pred: Any, *, reduction: str = "mean") -> Any:
    r"""Return the continuous ranked probability score.

    .. math::
        \mathrm{CRPS}(F, y) = \int (F(t) - 1(y \le t))^2 \, dt

    in the units of y. For counts the integral is a sum over 0, 1, 2, ...; for
    other discrete outcomes the levels count as one unit apart, which gives
    K - 1 times the ``rps``. Strictly proper where the mean exists.

    Outcomes must be exact (for censored ones use ``nll``); arguments and result
    are otherwise as for ``nll``.

    References
    ----------
    .. [1] Gneiting, T. and Raftery, A. E. (2007). Strictly proper scoring rules,
       prediction, and estimation. JASA 102(477), 359-378.

    Examples
    --------
    >>> import numpy as np
    >>> from deeptram.predictive.discrete import DiscretePredictive
    >>> crps(["b"], DiscretePredictive.from_log_pmf(np.log([[0.2, 0.5, 0.3]]), levels=("a", "b", "c")))
    0.13
    """
    pred = check_predictive(pred)
    check_rows(y, pred)
    return reduce_rows(pred.crps(y), reduction, numpy=pred.gives_numpy)


def _of_codes(name: str, y: Any, pred: Any, reduction: str) -> Any:
    pred = check_discrete(pred, name)
    return reduce_rows(core.get(name)(pred, codes_of(y, pred)), reduction, numpy=pred.gives_numpy)


register(FunctionScore(nll))
register(FunctionScore(brier))
register(FunctionScore(quadratic))
register(FunctionScore(rps, needs_order=True))
register(FunctionScore(crps, needs_order=True))


def entropy(name: str, pred: Any) -> Any:
    r"""Return the entropy :math:`E_p\, s(p, Y)` of each row's distribution, shape (n,).

    The printed table has the wrong sign for the quadratic score.

    ===========  ==============================================
    nll          :math:`-\sum_k f_k \log f_k`
    rps          :math:`\frac{1}{K-1}\sum_{k<K} F_k (1 - F_k)`
    crps         :math:`\sum_{k<K} F_k (1 - F_k)`
    brier        :math:`\frac12 \sum_k f_k (1 - f_k)`
    quadratic    :math:`-\sum_k f_k^2`
    ===========  ==============================================

    Parameters
    ----------
    name : str
        One of ``nll, rps, crps, brier, quadratic``.
    pred : Predictive on levels
        n distributions.

    Returns
    -------
    array or Tensor, shape (n,)
        In the kind ``pred`` was made from. Zero probabilities contribute zero.

    Examples
    --------
    >>> import numpy as np
    >>> from deeptram.predictive.discrete import DiscretePredictive
    >>> entropy("brier", DiscretePredictive.from_log_pmf(np.log([[0.2, 0.8]])))
    array([0.16])
    """
    formula = core.formulas(name).entropy
    pred = check_discrete(pred, f"the entropy of {name}")
    return reduce_rows(formula(pred), "none", numpy=pred.gives_numpy)


def divergence(name: str, p: Any, q: Any) -> Any:
    r"""Return the divergence :math:`E_p\, s(q, Y) - E_p\, s(p, Y)` of each row, shape (n,).

    It is what forecasting q costs on average when p is true: never negative,
    and zero exactly for q = p.

    ===========  ==================================================
    nll          :math:`\sum_k p_k \log(p_k / q_k)` (Kullback-Leibler)
    rps          :math:`\frac{1}{K-1}\sum_{k<K} (F_k - G_k)^2`
    crps         :math:`\sum_{k<K} (F_k - G_k)^2`
    brier        :math:`\frac12 \sum_k (p_k - q_k)^2`
    quadratic    :math:`\sum_k (p_k - q_k)^2`
    ===========  ==================================================

    Parameters
    ----------
    name : str
        One of ``nll, rps, crps, brier, quadratic``.
    p, q : Predictive on levels
        The true and the predicted distributions, n rows each, same levels.

    Returns
    -------
    array or Tensor, shape (n,)
        In the kind ``p`` was made from; infinite for ``nll`` where q rules out what p allows.

    Examples
    --------
    >>> import numpy as np
    >>> from deeptram.predictive.discrete import DiscretePredictive
    >>> p = DiscretePredictive.from_log_pmf(np.log([[0.2, 0.8]]))
    >>> q = DiscretePredictive.from_log_pmf(np.log([[0.5, 0.5]]))
    >>> divergence("rps", p, q), divergence("nll", p, q)
    (array([0.09]), array([0.193]))
    """
    formula = core.formulas(name).divergence
    what = f"the divergence of {name}"
    p, q = check_discrete(p, what, "p"), check_discrete(q, what, "q")
    if len(p) != len(q) or tuple(p.levels) != tuple(q.levels):
        raise InvalidInputError(
            f"p and q must have the same rows and levels, got {len(p)} rows on {list(p.levels)} and "
            f"{len(q)} rows on {list(q.levels)}; predict the same outcomes with both"
        )
    return reduce_rows(formula(p, q), "none", numpy=p.gives_numpy)


def minimax_pool(name: str, outcome: str | None = None) -> str:
    r"""Return the pooling method that minimises the worst-case regret in this score.

    That is the pool p which attains
    :math:`\min_p \max_y \{ s(p, y) - \sum_m w_m s(p_m, y) \}` (Theorem 4.1 of
    Neyman and Roughgarden 2021; Cors. 1 and 2, last column of Table D.1).

    - ``"nll"``: ``"log-linear-density"``, the normalised weighted geometric mean
      of the probabilities, whatever the number of levels. For a binary outcome
      it coincides with the ``"transformation"`` pool on the logistic scale
      (Cor. 1), which is the name returned with ``outcome="binary"``.
    - all other scores: ``"linear"`` (for RPS and CRPS Cor. 2).

    Parameters
    ----------
    name : str
        One of ``nll, rps, crps, brier, quadratic``.
    outcome : {None, "binary", "nominal", "ordinal"}
        The kind of outcome, where the answer depends on it.

    Returns
    -------
    str
        A ``method`` of ``deeptram.pool``.

    Examples
    --------
    >>> minimax_pool("rps"), minimax_pool("nll"), minimax_pool("nll", "binary")
    ('linear', 'log-linear-density', 'transformation')
    """
    core.formulas(name)
    if outcome is not None:
        check_choice(outcome, OUTCOMES, "outcome")
    if name != "nll":
        return "linear"
    return "transformation" if outcome == "binary" else "log-linear-density"


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

        It is zero at p = 0 and the mean of Z at p = 1.

        Parameters
        ----------
        p : array-like
            Probabilities of the first level.
        """
        z, probability = (as_tensor(part, torch.float64) for part in (self.latent.icdf(p), p))
        inner = z * probability - self.latent.cdf_integral(z)
        zero = torch.zeros_like(inner)
        mean = self.latent.sf_integral(zero) - self.latent.cdf_integral(zero)
        return torch.where(probability == 0, zero, torch.where(probability == 1, mean, inner)).numpy()

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
