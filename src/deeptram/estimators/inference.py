"""The scikit-learn face of a transformation model: inference."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from deeptram._validation import check_choice, check_probability_level
from deeptram.bases import Bernstein
from deeptram.errors import UnsupportedError
from deeptram.estimators.sklearn_words import require_fit
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

    def confint(self, level: float = 0.95, *, method: str = "wald") -> pd.DataFrame:
        """Return confidence intervals of the linear shift as columns ``lower`` and ``upper``.

        Parameters
        ----------
        level : float
            Coverage.
        method : {"wald", "profile"}
            ``"wald"``: estimate plus and minus normal quantiles of standard
            errors. ``"profile"``: the values not rejected by a likelihood-ratio
            test, each found by refitting with the coefficient held fixed; it
            respects the shape of the likelihood and invariance. Needs the model
            as fitted in this session (not one loaded from disk).
        """
        require_fit(self)
        check_choice(method, ("wald", "profile"), "method")
        if method == "wald":
            return self.summary(level)[["lower", "upper"]]
        level = check_probability_level(level)
        if self.loss != "nll" or getattr(self.fit_, "problem", None) is None:
            raise UnsupportedError(
                "profile intervals need a model fitted by exact maximum likelihood in this session (ordered "
                "or continuous outcome, loss='nll'); refit it, or use method='wald'."
            )
        rows = [profile_interval(self.fit_, j, level) for j in range(len(self.design_.names))]
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
