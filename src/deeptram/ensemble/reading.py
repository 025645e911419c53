"""What can be read off a fitted ensemble: coefficients, contributions, epistemic uncertainty."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from deeptram._validation import check_choice, check_probability_level
from deeptram.ensemble.coefficients import METHODS, coefficient_table
from deeptram.ensemble.epistemic import epistemic_band
from deeptram.ensemble.structure import why_no_coefficients
from deeptram.ensemble.uncertainty import split_uncertainty
from deeptram.errors import MissingCoefficientsError, StructureError
from deeptram.estimators.base import BaseTram
from deeptram.estimators.coefficient_table import SIGN, CoefficientTable, described_outcome, meaning
from deeptram.pooling.recalibration import Recalibration
from deeptram.predictive import Predictive

Array = NDArray[np.float64]


class ReadingMixin:
    """Coefficients and their intervals, parts of h, and what the members disagree about."""

    pooling: Any
    members_: list[Any]
    weights_: Array
    recalibrations_: list[Recalibration] | None

    if TYPE_CHECKING:  # from PredictionMixin

        def predict_members(self, X: Any) -> list[Predictive]: ...

        def _pool(self, members: Any, pooling: Any = None) -> Predictive: ...

    @property
    def coef_(self) -> pd.Series:
        r"""Coefficients of the ensemble, :math:`\sum_m w_m \beta_m` (Prop. 2).

        Missing, with the reason, where the pool has none.
        """
        reason = self._lost()
        if reason is not None:
            raise MissingCoefficientsError(f"this ensemble has no coefficients: {reason}")
        values = self.weights_ @ self._member_coefficients().to_numpy()
        return pd.Series(values, index=self.members_[0].coef_.index, name="coef", dtype=float)

    def coef_table(self, level: float = 0.95, method: str = "total") -> CoefficientTable:
        r"""Return the coefficients with intervals, under a header that says what they are.

        Parameters
        ----------
        level : float
            Coverage.
        method : {"total", "bootstrap", "asymptotic"}
            ``"total"`` has the sampling error within members and the variation
            between them, :math:`\mathrm{se}^2 = \sum_m w_m V_m + B \sum_m w_m^2`, and is the interval for
            the true effect. ``"bootstrap"`` and ``"asymptotic"`` describe how the
            coefficients vary between members only (by resampling them, or by the
            normal distribution). See ``deeptram.ensemble.coefficients``.

        Returns
        -------
        DataFrame
            Columns ``coef, se, lower, upper, exp_coef, exp_lower, exp_upper`` (no
            exponentials with the normal latent, where they mean nothing;
            ``hazard_ratio`` for proportional hazards), and for the two methods that
            speak of seeds only a column ``variation`` that says so.
            What coefficients and their exponentials are called is in
            ``attrs["effect"]`` and ``attrs["exp_effect"]`` (log odds-ratio and odds
            ratio for the logistic latent), the sign convention in ``attrs["sign"]``.

        Raises
        ------
        StructureError
            If the pool has no coefficients; the message says why.
        """
        check_choice(method, METHODS, "method")
        level = check_probability_level(level)
        reason = self._lost()
        if reason is not None:
            raise StructureError(f"this ensemble has no coefficient table: {reason}")
        coefficients = self._member_coefficients()
        within = [self._variance_within(m) for m in range(len(self.members_))]
        table = coefficient_table(coefficients.to_numpy(), self.weights_, within, level, method)
        first: BaseTram = self.members_[0]
        latent, outcome = first.latent_, first.outcome_
        if latent.name == "normal":
            table = table[["coef", "se", "lower", "upper"]]
        elif latent.name == "minimum-extreme-value" and not outcome.is_discrete:
            with np.errstate(over="ignore"):
                table["hazard_ratio"] = np.exp(-table["coef"].to_numpy())
        if method != "total":
            table["variation"] = "seeds only"
        table = CoefficientTable(table)
        table.index = pd.Index(first.coef_.index, name=latent.effect_name)
        said = "sampling and seeds" if method == "total" else f"seeds only, not sampling ({method})"
        table.attrs.update(
            sign=SIGN,
            effect=latent.effect_name,
            exp_effect=latent.exp_effect_name,
            level=level,
            method=method,
            header=[
                f"Ensemble of {len(self.members_)} {type(first).__name__}: {described_outcome(outcome)}",
                meaning(outcome, latent),
                f"se, lower, upper ({100 * level:g} %): {said}",
            ],
        )
        return table

    def member_coefficients(self) -> pd.DataFrame:
        """Return the coefficients of each member, one line per member."""
        reason = self._lost()
        if reason is not None:
            raise StructureError(f"the members' coefficients cannot be compared: {reason}")
        return self._member_coefficients()

    def contributions(self, X: Any, y: Any = None) -> pd.DataFrame:
        r"""Return the parts of :math:`\bar h` of each row: the weighted means of the members' parts.

        As for a single model: columns of LS by name with the sign they have in
        h, complex shifts as ``CS(columns)``, and with ``y`` the ``intercept`` at that outcome.
        """
        reason = self._lost()
        if reason is not None:
            raise StructureError(f"this ensemble has no parts that add up: {reason}")
        frames = [member.contributions(X) * self._slope(m) for m, member in enumerate(self.members_)]
        parts = sum(weight * frame for weight, frame in zip(self.weights_, frames, strict=True) if weight > 0)
        if y is None:
            return parts
        if self.members_[0].outcome_.kind == "nominal":
            self.members_[0].contributions(X, y)  # says why there is no h
        h = np.asarray(self._pool(self.predict_members(X)).trafo(y))
        shifts = parts.drop(columns="log scale", errors="ignore")
        parts.insert(0, "intercept", h - shifts.sum(axis=1).to_numpy())
        return parts

    def epistemic(
        self, X: Any, scale: str = "trafo", at: Any = None, width: float = 2.0, pooling: Any = None
    ) -> pd.DataFrame:
        r"""Return the pooled prediction with bands of what the members disagree about (Fig. 4 B, C).

        Parameters
        ----------
        X : data
        scale : {"trafo", "cdf", "quantile"}
            :math:`\bar h \pm c\,\mathrm{sd}(h_m)`, :math:`F_Z(\bar h \pm c\,\mathrm{sd}(h_m))`, or
            :math:`\bar q(\alpha) \pm c\,\mathrm{sd}(q_m(\alpha))`.
        at : array-like, optional
            Outcomes, or for ``"quantile"`` probabilities (default 0.5). Not
            needed for outcomes on levels.
        width : float
            c, in standard deviations.
        pooling : str or QuasiArithmetic, optional
            Another pool than the ensemble's own.

        Returns
        -------
        DataFrame
            One line per row of X and point: ``row, at, estimate, sd, lower, upper``.
        """
        members = self.predict_members(X)
        return epistemic_band(members, self._pool(members, pooling), self.weights_, scale, at, width)

    def uncertainty(self, X: Any) -> pd.DataFrame:
        """Return ``total, aleatoric, epistemic`` uncertainty of each row, with total the sum of the others.

        Entropy (in nats) for outcomes on levels, variance for numbers; see
        ``deeptram.ensemble.uncertainty``.
        """
        frame = split_uncertainty(self.predict_members(X), self.weights_)
        if isinstance(X, pd.DataFrame):
            frame.index = X.index
        return frame

    # -- helpers ---------------------------------------------------------------------------------

    def _lost(self) -> str | None:
        check_is_fitted(self, "members_")
        return why_no_coefficients(
            self.members_, self.pooling, self.weights_, self.recalibrations_ is not None
        )

    def _slope(self, number: int) -> float:
        """Return the factor by which recalibration multiplies a member's h."""
        return 1.0 if self.recalibrations_ is None else float(self.recalibrations_[number].slope_[0])

    def _member_coefficients(self) -> pd.DataFrame:
        rows = [member.coef_ * self._slope(m) for m, member in enumerate(self.members_)]
        return pd.DataFrame([row.to_numpy() for row in rows], columns=list(rows[0].index))

    def _variance_within(self, number: int) -> Array | None:
        member: BaseTram = self.members_[number]
        covariance = getattr(member, "shift_vcov_", None)
        if covariance is None and getattr(member, "vcov_", None) is not None:
            names = list(member.coef_.index)
            covariance = member.vcov_.loc[names, names]
        if covariance is None:
            return np.zeros(0) if len(member.coef_) == 0 else None
        return np.asarray(np.diag(covariance.to_numpy())) * self._slope(number) ** 2
