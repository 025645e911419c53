"""``Tram``: a transformation model of any kind, as a scikit-learn estimator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from deeptram.estimators.base import BaseTram
from deeptram.latent import Latent


class Tram(BaseTram):
    r"""A transformation model :math:`F(y \mid x) = F_Z(h(y) - x'\beta - \eta(B))`.

    Without networks the fit is the exact maximum-likelihood optimum. A
    positive coefficient means a larger outcome, for every outcome type.

    Parameters
    ----------
    terms : list of terms, optional
        Any of ``SI, CI, LS, CS, Scale, Varying``; ``None`` means a linear shift
        of all columns.
    outcome : {"binary", "ordinal", "nominal", "continuous", "count", "survival"}
        Kind of outcome. A nominal outcome is a multinomial logit whose levels
        keep the order of ``levels`` (it matters for pooling only).
    latent : str or Latent
        F_Z: ``"logistic"``, ``"normal"``, ``"minimum-extreme-value"``,
        ``"maximum-extreme-value"`` or an alias.
    basis : {"bernstein", "linear", "log-linear"}, optional
        Basis of h for outcomes on the line; default Bernstein.
    order : int
        Degree of the Bernstein polynomial.
    support : (float, float), optional
        Where the Bernstein basis lives; h continues linearly outside. Default:
        the range of the observed, uncensored response. For counts with
        ``log_first`` it is on the scale of y + 1.
    log_first : bool or "auto"
        Bernstein in log y (log(y + 1) for counts). ``"auto"``: true for ``dt.Surv`` responses whose values
        are all positive (and whose ``support``, if given, is), so that S(0) = 1, else false. R's models are
        ``log_first=False``. A positive ``dt.Surv`` has the sample space [0, inf) also then: the mass that
        h puts below zero lies immediately after zero (see ``TransformationPredictive``).
    levels : sequence, optional
        Ordered levels of a discrete outcome; default the categories of a pandas
        categorical or a polars ``Enum``, or the sorted values (three and more labels
        without an order for an ordinal outcome: with an ``OrderWarning``).
    loss : {"nll", "rps", "brier", "crps"}
        What is minimised.
    training : Training, optional
        Gradient training of models with networks.
    random_state : int, optional
        Seed of initialisation and shuffling (models with networks).

    Attributes
    ----------
    coef_ : Series
        Linear shift by encoded column name; NaN if aliased, infinite if separated.
    theta_ : ndarray
        Baseline parameters, stratum by stratum.
    loglik_ : float
        Log-likelihood of the training data, summed.
    vcov_ : DataFrame
        Inverse observed information of (theta, coef, scale).
    n_iter_, converged_, certificate_
        How the optimum was reached and what vouches for it.
    classes_ : ndarray
        Levels (discrete outcomes).

    Examples
    --------
    >>> import numpy as np, deeptram as dt
    >>> x = np.linspace(-2, 2, 40)[:, None]
    >>> y = np.sin(7 * x[:, 0]) + x[:, 0]
    >>> model = dt.Tram(outcome="continuous", latent="normal", basis="linear").fit(x, y)
    >>> model.converged_
    True
    """

    def __init__(
        self,
        terms: Any = None,
        *,
        outcome: str,
        latent: str | Latent = "logistic",
        basis: str | None = None,
        order: int = 6,
        support: tuple[float, float] | None = None,
        log_first: bool | str = "auto",
        levels: Sequence[Any] | None = None,
        loss: str = "nll",
        training: Any = None,
        random_state: Any = None,
    ) -> None:
        self.terms = terms
        self.outcome = outcome
        self.latent = latent
        self.basis = basis
        self.order = order
        self.support = support
        self.log_first = log_first
        self.levels = levels
        self.loss = loss
        self.training = training
        self.random_state = random_state
