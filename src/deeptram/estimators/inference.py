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
from deeptram.errors import DeeptramWarning, InvalidInputError, MissingMethodError, UnsupportedError
from deeptram.estimators.coefficient_table import (
    CoefficientTable,
    described_outcome,
    meaning,
    wald_table,
)
from deeptram.estimators.sklearn_words import require_fit
from deeptram.estimators.varying_effects import VaryingEffectsMixin
from deeptram.fitting.exact.fit import ExactFit, profile_interval
from deeptram.latent import Latent
from deeptram.model import Design, Outcome
from deeptram.model.terms import Spec

Array = NDArray[np.float64]


class InferenceMixin(VaryingEffectsMixin):
    """Coefficients, standard errors, tests and intervals of a fitted model."""

    outcome_: Outcome
    design_: Design
    latent_: Latent
    coef_: pd.Series
    scale_coef_: pd.Series
    vcov_: pd.DataFrame
    theta_: Array
    loglik_: float
    n_obs_: int
    n_parameters_: int
    spec_: Spec
    model_: Any
    fit_: Any
    loss: str

    # -- information criteria ------------------------------------------------------------------

    @property
    def aic_(self) -> float:
        """Akaike's criterion, -2 log-likelihood + 2 parameters (exact maximum likelihood only)."""
        return -2 * self._maximum("aic_") + 2 * self.n_parameters_

    @property
    def bic_(self) -> float:
        """Schwarz's criterion, -2 log-likelihood + log(n) parameters (exact maximum likelihood only)."""
        return -2 * self._maximum("bic_") + float(np.log(self.n_obs_)) * self.n_parameters_

    def _maximum(self, name: str) -> float:
        require_fit(self)
        if self.loss != "nll" or self.spec_.is_deep:
            raise MissingMethodError(
                f"{name} needs exact maximum likelihood (loss='nll', no networks), got loss={self.loss!r} "
                f"and {'some' if self.spec_.is_deep else 'no'} networks; compare such models on held-out data"
            )
        return float(self.loglik_)

    # -- coefficients ---------------------------------------------------------------------------

    def summary(self, level: float = 0.95) -> CoefficientTable:
        r"""Return the coefficient table, with a header that says what a coefficient is.

        The sign is that of :math:`F_Z(h(y) - x'\beta)`: a positive coefficient
        means a larger outcome.

        Parameters
        ----------
        level : float
            Level of the Wald intervals.

        Returns
        -------
        DataFrame
            Columns ``coef, se, z, p, lower, upper, exp_coef``. With the normal
            latent there is no ``exp_coef``; proportional hazards add
            ``hazard_ratio`` (:math:`e^{-\beta}`), models of log time ``time_ratio`` with its
            limits (:math:`e^{\beta/\vartheta_1}`, by which times are multiplied). Rows
            of a scale term are named ``scale(column)``, those of varying effects
            ``column at y`` (see :meth:`effect`). Aliased columns are NaN; separated
            ones are infinite with NaN standard error. Standard errors of models
            with networks are those given the networks.
        """
        require_fit(self)
        level = check_probability_level(level)
        coef = self._all_coefficients()
        se = self._standard_errors(len(coef))
        se[~np.isfinite(coef.to_numpy())] = np.nan
        names, values = list(coef.index), coef.to_numpy()
        if self.design_.varying is not None:
            moving = self._varying_rows()
            names += [name for name, _, _ in moving]
            values = np.concatenate([values, [value for _, value, _ in moving]])
            se = np.concatenate([se, [error for _, _, error in moving]])
        table = wald_table(names, values, se, level, self.latent_)
        shift = np.arange(len(table)) < len(self.coef_)
        if self.latent_.name == "minimum-extreme-value" and not self.outcome_.is_discrete:
            with np.errstate(over="ignore"):
                table["hazard_ratio"] = np.exp(-table["coef"].where(shift).to_numpy())
        self._add_time_ratios(table, level)
        table.attrs["header"] = self._header(level, table)
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
        cuts = None if levels is None else [f"{a}|{b}" for a, b in itertools.pairwise(levels)]
        base = basis.coef_names if cuts is None else cuts
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

    def _standard_errors(self, n: int) -> Array:
        """Return those of the n coefficients of shift and scale; given the networks where there are some."""
        if getattr(self, "vcov_", None) is not None:
            variance = np.diag(self.vcov_.to_numpy())[len(self.vcov_) - n :]
        else:
            variance = np.full(n, np.nan)
            shift = getattr(self, "shift_vcov_", None)
            if shift is not None:
                variance[: len(shift)] = np.diag(shift.to_numpy())
        with np.errstate(invalid="ignore"):
            return np.sqrt(np.where(variance >= 0, variance, np.nan))

    # -- what the numbers are ---------------------------------------------------------------------

    def _add_time_ratios(self, table: pd.DataFrame, level: float) -> None:
        """Add by what a unit of a column multiplies times, where h is a line in log time."""
        basis = self.outcome_.basis
        plain = self.design_.n_strata == 1 and self.design_.varying is None and self.design_.scale is None
        if basis.name != "log-linear" or not plain or self.spec_.is_deep:
            return
        p = len(self.coef_)
        beta = self.coef_.to_numpy()
        fixed = basis.n_coef == 1
        slope = float(basis.offset_derivative(np.ones(1))[0]) if fixed else float(self.theta_[1])
        covariance = self.vcov_.to_numpy()
        shift = np.arange(basis.n_coef, basis.n_coef + p)
        variance = covariance[shift, shift]
        if not fixed:  # the delta method for beta / slope
            ratio = np.where(np.isfinite(beta), beta, np.nan) / slope
            variance = variance - 2 * ratio * covariance[shift, 1] + ratio**2 * covariance[1, 1]
        with np.errstate(invalid="ignore", over="ignore"):
            half = stats.norm.ppf((1 + level) / 2) * np.sqrt(variance) / slope
            for name, values in (("", 0.0), ("_lower", -half), ("_upper", half)):
                table[f"time_ratio{name}"] = np.exp(beta / slope + values)

    def _header(self, level: float, table: pd.DataFrame) -> list[str]:
        """Return what stands above the coefficients."""
        events = getattr(self, "n_events_", None)
        numbers = [f"n = {self.n_obs_}", *([] if events is None else [f"{events} events"])]
        numbers.append(f"log-likelihood {self.loglik_:.2f}")
        exact = not self.spec_.is_deep
        if exact and self.loss == "nll":
            numbers.append(f"AIC {self.aic_:.2f}")
        lines = [
            f"{type(self).__name__}: {described_outcome(self.outcome_)}",
            ", ".join(numbers),
            meaning(self.outcome_, self.latent_),
        ]
        if "time_ratio" in table:
            lines.append("time_ratio: factor of the times, exp(coef / slope of h in log time)")
        if not exact:
            lines.append("se: of the linear shift given the networks")
        elif self.loss != "nll":
            sandwich = self.loss in ("rps", "brier") and self.design_.scale is None
            lines.append(f"se: {'sandwich' if sandwich else 'not available'} for loss={self.loss!r}")
        return [*lines, f"lower, upper: {100 * level:g} % Wald limits"]


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
            f"{what} needs an ordered outcome and exact maximum likelihood, got loss={model.loss!r}, "
            f"outcome={model.outcome_.kind!r} and {'some' if model.spec_.is_deep else 'no'} networks; fit "
            "such a model with loss='nll'."
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
