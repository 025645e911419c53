"""The scikit-learn face of a transformation model: inference."""

from __future__ import annotations

import itertools
import warnings
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats
from sklearn.base import clone

from deeptram._validation import check_choice, check_probability_level
from deeptram.bases import Bernstein
from deeptram.errors import DeeptramWarning, InvalidInputError, UnsupportedError
from deeptram.estimators.sklearn_words import require_fit
from deeptram.fitting.exact import ExactFit
from deeptram.fitting.profile import profile_interval
from deeptram.latent import Latent
from deeptram.model import Design, Outcome

Array = NDArray[np.float64]


class InferenceMixin:
    """Coefficients, standard errors, tests and intervals of a fitted model."""

    outcome_: Outcome
    design_: Design
    latent_: Latent
    coef_: pd.Series
    scale_coef_: pd.Series
    vcov_: pd.DataFrame
    fit_: Any
    loss: str

    def summary(self, level: float = 0.95) -> pd.DataFrame:
        r"""Return the coefficient table.

        The sign is that of :math:`F_Z(h(y) - x'\beta)`: a positive coefficient
        means a larger outcome. What a coefficient is called depends on the
        latent distribution and stands in ``table.attrs["effect"]``.

        Parameters
        ----------
        level : float
            Level of the Wald intervals.

        Returns
        -------
        DataFrame
            Columns ``coef, se, z, p, lower, upper, exp_coef``; rows of a scale
            term are named ``scale(column)``. Aliased columns are NaN; separated
            ones are infinite with NaN standard error.
        """
        require_fit(self)
        level = check_probability_level(level)
        coef = self._all_coefficients()
        se = self._standard_errors(coef.index)
        se[~np.isfinite(coef.to_numpy())] = np.nan
        quantile = stats.norm.ppf((1 + level) / 2)
        values = coef.to_numpy()
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            z = values / se
            table = pd.DataFrame(
                {
                    "coef": values,
                    "se": se,
                    "z": z,
                    "p": 2 * stats.norm.sf(np.abs(z)),
                    "lower": values - quantile * se,
                    "upper": values + quantile * se,
                    "exp_coef": np.exp(values),
                },
                index=coef.index,
            )
        table.attrs.update(
            sign="F_Z(h(y) - x'beta): a positive coefficient means a larger outcome",
            effect=self.latent_.effect_name,
            exp_effect=self.latent_.exp_effect_name,
            level=level,
        )
        return table

    def confint(
        self,
        level: float = 0.95,
        *,
        method: str = "wald",
        X: Any = None,
        y: Any = None,
        sample_weight: Any = None,
    ) -> pd.DataFrame:
        """Return confidence intervals of the linear shift as columns ``lower`` and ``upper``.

        Parameters
        ----------
        level : float
            Coverage.
        method : {"wald", "profile"}
            ``"wald"``: estimate plus and minus normal quantiles of standard
            errors. ``"profile"``: the values not rejected by a likelihood-ratio
            test, each found by refitting with the coefficient held fixed; it
            respects the shape of the likelihood and invariance.
        X, y, sample_weight : data, optional
            The training data, for profiles of a model that was loaded.
        """
        require_fit(self)
        check_choice(method, ("wald", "profile"), "method")
        if method == "wald":
            return self.summary(level)[["lower", "upper"]]
        level = check_probability_level(level)
        fit = training_fit(self, X, y, sample_weight, "a profile interval")
        rows = [profile_interval(fit, j, level) for j in range(len(self.design_.names))]
        return pd.DataFrame(rows, index=self.design_.names, columns=["lower", "upper"])

    # -- names ---------------------------------------------------------------------------------

    def _coefficient_names(self) -> list[str]:
        names = self.design_.names
        levels = self.outcome_.levels
        if self.outcome_.kind != "nominal" or levels is None:
            return names
        return [f"{level}:{name}" for level in levels[1:] for name in names]

    def _theta_names(self) -> list[str]:
        """Name the baseline parameters: ``low|mid`` for cutpoints, ``Bs1`` for Bernstein."""
        levels, basis = self.outcome_.levels, self.outcome_.basis
        if self.outcome_.kind == "nominal" and levels is not None:
            return [f"{level}:(Intercept)" for level in levels[1:]]
        if levels is not None:
            base = [f"{a}|{b}" for a, b in itertools.pairwise(levels)]
        elif isinstance(basis, Bernstein):
            base = [f"Bs{k + 1}" for k in range(basis.n_coef)]
        else:
            base = ["(Intercept)", "y" if basis.name == "linear" else "log(y)"][: basis.n_coef]
        blocks = [""]
        if self.design_.strata is not None:
            blocks = [f":{self.design_.strata_column}{level}" for level in self.design_.strata.levels]
        elif self.design_.varying is not None:
            blocks = [":(Intercept)"]
        if self.design_.varying is not None:
            blocks += [f":{name}" for name in self.design_.varying.names]
        return [name + block for block in blocks for name in base]

    def _label_covariance(self, vcov: Array) -> pd.DataFrame:
        scale = [
            f"scale({name})" for name in ([] if self.design_.scale is None else self.design_.scale.names)
        ]
        labels = [*self._theta_names(), *self._coefficient_names(), *scale]
        return pd.DataFrame(vcov, index=labels, columns=labels)

    def _all_coefficients(self) -> pd.Series:
        if len(self.scale_coef_) == 0:
            return self.coef_
        return pd.concat([self.coef_, self.scale_coef_.rename("scale({})".format)])

    def _standard_errors(self, index: pd.Index) -> Array:
        if getattr(self, "vcov_", None) is None:
            return np.full(len(index), np.nan)
        n = len(index)
        if n == 0:
            return np.zeros(0)
        variance = np.diag(self.vcov_.to_numpy())[-n:]
        return np.sqrt(np.where(variance >= 0, variance, np.nan))


def training_fit(model: Any, X: Any, y: Any, sample_weight: Any, what: str) -> ExactFit:
    """Return the exact fit of a model with its training data at hand, refitting it to them where needed.

    Parameters
    ----------
    model : Tram
        Fitted.
    X, y, sample_weight : data or None
        The training data; not needed for a model fitted in this session.
    what : str
        What the fit is needed for, for messages.
    """
    require_fit(model)
    if model.loss != "nll" or model.spec_.is_deep or model.outcome_.kind == "nominal":
        raise UnsupportedError(
            f"{what} needs an ordered outcome and exact maximum likelihood, got loss={model.loss!r}, a "
            f"{model.outcome_.kind} outcome and {'some' if model.spec_.is_deep else 'no'} networks; fit such "
            "a model with loss='nll'."
        )
    if (X is None) != (y is None):
        raise InvalidInputError(f"{what} needs X and y together, got one of them; pass both.")
    fit: ExactFit | None = model.fit_
    if X is None:
        if fit is None or getattr(fit, "problem", None) is None:
            raise UnsupportedError(
                f"{what} needs the training data, which a loaded model does not hold; pass them as X=, y= "
                "(and sample_weight=)."
            )
        return fit
    again = clone(model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeeptramWarning)
        again.fit(X, y, sample_weight=sample_weight)
    if list(again.coef_.index) != list(model.coef_.index) or abs(again.loglik_ - model.loglik_) > 1e-6 * (
        1 + abs(model.loglik_)
    ):
        raise InvalidInputError(
            f"{what} needs the training data, got other data: their log-likelihood is {again.loglik_:.6g} "
            f"where the model has {model.loglik_:.6g}; pass the X, y and sample_weight of fit."
        )
    fitted: ExactFit = again.fit_
    return fitted
