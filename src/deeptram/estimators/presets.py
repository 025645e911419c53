"""``Tram``, a transformation model of any kind, and models under the names statisticians know them by.

Signs are deeptram's everywhere, F_Z(h(y) - x'beta): R's ``Colr`` and ``Coxph``
print the opposite sign.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from sklearn.utils import Tags

from deeptram import latent as latents
from deeptram._validation import check_choice
from deeptram.bases import Bernstein
from deeptram.estimators.base import BaseTram
from deeptram.estimators.data_checks import explaining
from deeptram.latent import Latent
from deeptram.model import OutcomeSettings
from deeptram.responses import Surv


@explaining
@dataclass(eq=False, repr=False, kw_only=True)
class _Arguments(BaseTram):
    """The arguments of every preset, as scikit-learn wants them: stored under their names, nothing else."""

    terms: Any = field(default=None, kw_only=False)
    loss: str = "nll"
    training: Any = None
    random_state: Any = None


@dataclass(eq=False, repr=False, kw_only=True)
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
        keep the order of ``levels`` (which the default pool does not look at).
    latent : str or Latent
        F_Z: ``"logistic"``, ``"normal"``, ``"minimum-extreme-value"``,
        ``"maximum-extreme-value"`` or an alias. ``"auto"``: the one that predicts rows left out best
        (validation data, or five-fold cross-validation of models without networks);
        ``latent_choice_`` has the losses of all.
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

    terms: Any = field(default=None, kw_only=False)
    outcome: str = field()
    latent: str | Latent = "logistic"
    basis: str | None = None
    order: int = 6
    support: tuple[float, float] | None = None
    log_first: bool | str = "auto"
    levels: Sequence[Any] | None = None
    loss: str = "nll"
    training: Any = None
    random_state: Any = None


@explaining
@dataclass(eq=False, repr=False, kw_only=True)
class _Classes(_Arguments):
    """A model of two or more classes."""

    latent: str | Latent = "logistic"
    levels: Sequence[Any] | None = None


class Polr(_Classes):
    r"""Proportional-odds logistic regression and its relatives for ordered classes.

    :math:`P(Y \le y_k \mid x) = F_Z(\vartheta_k - x'\beta)`. With the logistic
    latent, beta is a log odds-ratio. R: ``tram::Polr``, ``MASS::polr``,
    ``ordinal::clm``.

    Parameters
    ----------
    terms : list of terms, optional
        Default: a linear shift of all columns.
    latent : str or Latent
        ``"logistic"``, ``"probit"``, ``"cloglog"``, ``"loglog"``.
    levels : sequence, optional
        The ordered levels. Without them an ordered categorical, numbers or booleans
        say the order; other labels are sorted, with an ``OrderWarning``.
    loss, training, random_state
        As in ``Tram``.

    Examples
    --------
    >>> import numpy as np, deeptram as dt
    >>> x = np.array([[0.0], [1.0], [2.0], [3.0], [4.0], [5.0]])
    >>> model = dt.Polr(levels=["a", "b", "c"]).fit(x, ["a", "b", "a", "b", "c", "b"])
    >>> model.predict_proba(x[:1]).round(2)
    array([[0.78, 0.21, 0.01]])
    """

    outcome = "ordinal"


class Logit(_Classes):
    r"""Binary regression without penalty, :math:`P(Y = y_1) = F_Z(\vartheta - x'\beta)`.

    beta is the log odds-ratio of the second level; with another ``latent`` this
    is probit, complementary log-log or log-log regression. R: ``stats::glm``
    (the intercept there is -theta).

    Parameters
    ----------
    terms, latent, levels, loss, training, random_state
        As in ``Polr``.

    Examples
    --------
    >>> import numpy as np, deeptram as dt
    >>> model = dt.Logit().fit(np.arange(6.0)[:, None], [0, 1, 0, 1, 1, 0])
    >>> model.coef_.round(3).to_dict()
    {'x0': 0.115}
    """

    outcome = "binary"


@explaining
@dataclass(eq=False, repr=False, kw_only=True)
class _Smooth(_Arguments):
    """A model with a Bernstein baseline for continuous or censored outcomes."""

    order: int = 6
    support: tuple[float, float] | None = None
    log_first: bool | str = "auto"

    def _outcome_settings(self, y: Any) -> OutcomeSettings:
        kind = "survival" if isinstance(y, Surv) else "continuous"
        return dataclasses.replace(super()._outcome_settings(y), kind=kind)


class Colr(_Smooth):
    """Continuous outcome logistic regression: beta is a log odds-ratio at every cutoff.

    R: ``tram::Colr`` (with the opposite sign).

    Parameters
    ----------
    terms, order, support, log_first, loss, training, random_state
        As in ``Tram``; the outcome may be numbers or ``dt.Surv``.

    Examples
    --------
    >>> import deeptram as dt
    >>> dt.Colr(order=3).order
    3
    """

    latent = "logistic"


class BoxCox(_Smooth):
    """Normal linear regression after an unknown, smooth transformation of the outcome.

    R: ``tram::BoxCox``.

    Parameters
    ----------
    terms, order, support, log_first, loss, training, random_state
        As in ``Tram``; the outcome may be numbers or ``dt.Surv``.

    Examples
    --------
    >>> import deeptram as dt
    >>> dt.BoxCox().latent
    'normal'
    """

    latent = "normal"


class Coxph(_Smooth):
    """Proportional hazards with a smooth, parametric baseline.

    A positive coefficient means longer survival: exp(-beta) is the hazard
    ratio. R: ``tram::Coxph`` (with the opposite sign).

    Parameters
    ----------
    terms, order, support, log_first, loss, training, random_state
        As in ``Tram``; the outcome is ``dt.Surv``, or numbers, which all are events
        (an ``EventsWarning`` says so where they may be times).

    Examples
    --------
    >>> import deeptram as dt
    >>> dt.Coxph().latent
    'minimum-extreme-value'
    """

    latent = "minimum-extreme-value"
    expects_events = True


class Lehmann(_Smooth):
    """Proportional reverse-time hazards (Lehmann alternatives).

    R: ``tram::Lehmann``.

    Parameters
    ----------
    terms, order, support, log_first, loss, training, random_state
        As in ``Tram``; the outcome may be numbers or ``dt.Surv``.

    Examples
    --------
    >>> import deeptram as dt
    >>> dt.Lehmann().latent
    'maximum-extreme-value'
    """

    latent = "maximum-extreme-value"


class Lm(_Arguments):
    r"""The normal linear model as a transformation model, :math:`h(y) = \vartheta_0 + \vartheta_1 y`.

    The residual standard deviation is :math:`1/\vartheta_1`, least-squares
    coefficients are :math:`\beta/\vartheta_1`. Takes censored outcomes (tobit).
    R: ``tram::Lm``.

    Parameters
    ----------
    terms, loss, training, random_state
        As in ``Tram``.

    Examples
    --------
    >>> import numpy as np, deeptram as dt
    >>> model = dt.Lm().fit(np.arange(4.0)[:, None], [0.0, 1.1, 1.9, 3.0])
    >>> round(float(model.coef_.iloc[0] / model.theta_[1]), 3)
    0.98
    """

    latent = "normal"
    basis = "linear"


_DISTRIBUTIONS: dict[str, tuple[str, str, float | None]] = {
    "weibull": ("minimum-extreme-value", "log-linear", None),
    "exponential": ("minimum-extreme-value", "log-linear", 1.0),
    "rayleigh": ("minimum-extreme-value", "log-linear", 2.0),
    "loglogistic": ("logistic", "log-linear", None),
    "lognormal": ("normal", "log-linear", None),
    "gaussian": ("normal", "linear", None),
    "logistic": ("logistic", "linear", None),
}


@explaining
@dataclass(eq=False, repr=False, kw_only=True)
class Survreg(_Arguments):
    r"""Parametric survival regression (accelerated failure time models).

    :math:`h(t) = \vartheta_0 + \vartheta_1 \log t`; ``survival::survreg``
    reports scale :math:`1/\vartheta_1` and coefficients :math:`\beta/\vartheta_1`.
    R: ``tram::Survreg``.

    Parameters
    ----------
    terms : list of terms, optional
        Default: a linear shift of all columns.
    dist : str
        ``"weibull"``, ``"exponential"``, ``"rayleigh"``, ``"loglogistic"``,
        ``"lognormal"``, ``"gaussian"`` or ``"logistic"``.
    loss, training, random_state
        As in ``Tram``.

    Examples
    --------
    >>> import deeptram as dt
    >>> time = dt.Surv.right([1.0, 2.0, 4.0, 7.0], [1, 1, 0, 1])
    >>> model = dt.Survreg([dt.SI()], dist="exponential").fit({"x": [0.0] * 4}, time)
    >>> round(float(model.theta_[0]), 4)  # log of events / total time
    -1.5404
    """

    outcome = "survival"

    dist: str = "weibull"

    def _latent(self) -> Latent:
        return latents.get(_DISTRIBUTIONS[check_choice(self.dist, _DISTRIBUTIONS, "dist")][0])

    def _outcome_settings(self, y: Any) -> OutcomeSettings:
        _, basis, slope = _DISTRIBUTIONS[check_choice(self.dist, _DISTRIBUTIONS, "dist")]
        kind = "survival" if isinstance(y, Surv) or basis == "log-linear" else "continuous"
        return OutcomeSettings(kind=kind, basis=basis, fixed_slope=slope)

    def __sklearn_tags__(self) -> Tags:
        """Tell scikit-learn that survival times are positive."""
        tags = super().__sklearn_tags__()
        tags.target_tags.positive_only = True
        return tags


@explaining
@dataclass(eq=False, repr=False, kw_only=True)
class Cotram(_Arguments):
    r"""Count transformation model, :math:`P(Y \le y) = F_Z(h(\lfloor y \rfloor) - x'\beta)`.

    R: ``cotram::cotram``.

    Parameters
    ----------
    terms, latent, order, loss, training, random_state
        As in ``Tram``.
    support : (float, float), optional
        On the scale of y + 1 with ``log_first``, else of y.
    log_first : bool
        h is a Bernstein polynomial in log(y + 1) (default) or in y.

    Examples
    --------
    >>> import deeptram as dt
    >>> dt.Cotram().log_first
    True
    """

    outcome = "count"

    latent: str | Latent = "logistic"
    order: int = 6
    support: tuple[float, float] | None = None
    log_first: bool | str = True


def common_name(model: Any) -> str:
    """Return the name by which statisticians know a fitted model: that of its preset, else of its class.

    Examples
    --------
    >>> import numpy as np
    >>> common_name(Tram(outcome="ordinal").fit(np.arange(6.0)[:, None], [0, 1, 2, 0, 1, 2]))
    'Polr'
    """
    if type(model) is not Tram:
        return type(model).__name__
    kind, latent, smooth = (
        model.outcome_.kind,
        model.latent_.name,
        isinstance(model.outcome_.basis, Bernstein),
    )
    by_latent = {preset.latent: preset for preset in (Colr, BoxCox, Coxph, Lehmann)}
    known: type | None = {"ordinal": Polr, "binary": Logit if latent == "logistic" else None}.get(str(kind))
    if kind.has_density and smooth:
        known = by_latent.get(latent)
    return (Cotram if kind.is_count else known or Tram).__name__
