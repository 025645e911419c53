"""What members and weights predict, what can be read off them, and which pool ``pooling="auto"`` takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from deeptram._html import card, few_digits
from deeptram._validation import check_choice, check_probability_level
from deeptram.ensemble.coefficients import (
    METHODS,
    ensemble_table,
    member_table,
    slopes_of,
    why_no_coefficients,
)
from deeptram.ensemble.epistemic import epistemic_band, split_uncertainty
from deeptram.ensemble.members import predict_all
from deeptram.ensemble.onnx_graph import PooledModule, module_of
from deeptram.ensemble.plans import AUTO, meant_pool
from deeptram.errors import InvalidInputError, MissingCoefficientsError, StructureError, UnsupportedError
from deeptram.estimators.base import BaseTram
from deeptram.estimators.coefficient_table import (
    CoefficientTable,
    coefficients_html,
    described_outcome,
    described_terms,
    h_in_words,
    said_of_choice,
)
from deeptram.estimators.deep import training_fact
from deeptram.estimators.prediction import PredictiveMethods
from deeptram.pooling import METHODS as POOLS
from deeptram.pooling import (
    Guarantees,
    PoolComparison,
    Rule,
    StructureCheck,
    compare_pools,
    get_rule,
    guarantees,
    pool,
    structure_check,
)
from deeptram.pooling.comparison import FittedPool
from deeptram.pooling.correction import Correction
from deeptram.pooling.recalibration import Recalibration
from deeptram.pooling.weights.log_likelihood import CLOSED_FORM
from deeptram.predictive import Predictive

_FOLDS = 5


@dataclass(frozen=True, eq=False)
class PoolChoice:
    """The pool that was chosen.

    Attributes
    ----------
    pool : str
        Its name.
    reason : str
        Why it was chosen, with the numbers.
    correction : str
        Of intercept and spread after the pool: "none" or its kind.
    table : PoolComparison or None
        All candidates out of fold; None for an ensemble that was loaded.
    """

    pool: str
    reason: str
    table: PoolComparison | None = None
    correction: str = "none"

    def note(self, readable: Any) -> str | None:
        """Return whose coefficients are shown, where another pool predicts than the readable one."""
        corrected = "" if self.correction == "none" else ", corrected on the scale of the outcome,"
        if self.pool == readable:
            return (
                f"coefficients: of the pool before its correction ({self.correction})" if corrected else None
            )
        predicts = f"the {self.pool} pool{corrected} predicts"
        return f"coefficients: of the {readable} pool, with the same weights; {predicts}"


def choose_pool(
    members: Sequence[Predictive], y: Any, weights: Any, kind: str | None, score: str
) -> tuple[PoolChoice, str | Rule, NDArray[np.float64], Correction | None]:
    """Return which pool for these members and why, with its own parameters, its weights and its correction.

    The transformation pool, with equal weights if they do, unless others are better by more than chance:
    of the candidates whose paired 95 % interval to the best holds zero, it is the first in that order.
    It and the pool so found are then compared with corrections of intercept and spread, in the same way.

    Parameters
    ----------
    members : sequence of M Predictive
        Of rows on which the members were not trained.
    y : outcomes
    weights : {"equal", "tuned"}
        ``"tuned"``: equal and tuned ones are compared, the latter for pools with certified weights.
    kind : str or None
        The kind of outcome.
    score : str
    """
    if not isinstance(weights, str):
        raise InvalidInputError(
            f"pooling={AUTO!r} chooses the weights, too, got given ones; use weights='equal' or 'tuned'"
        )
    readable = str(meant_pool("transformation", kind))
    table = compare_pools(
        members,
        y,
        methods=None if members[0].is_nominal else POOLS if weights == "equal" else CLOSED_FORM,
        weights=("equal", "tuned") if weights == "tuned" else ("equal",),
        corrections=[None],
        cv=min(_FOLDS, len(members[0])),
        score=score,
    )
    row = _preferred(table, readable)
    if kind != "nominal":
        table = _with_corrections(table, row, readable, members, y, score)
        row = _preferred(table, readable)
    best, name = table.iloc[0], str(row["pool"])
    found = FittedPool.fit(name, row["weights"], members, y, score)
    if row["correction"] != "none":
        found = found.corrected(row["correction"], members, y, score)
    reason = f"{_named(row)}: {score} {row['score']:.4g} out of fold"
    if row.name != best.name:
        reason += f", within chance of the best ({_named(best)}: {best['score']:.4g}), and readable"
    elif name != readable:
        other = table[table["pool"] == readable].iloc[0]
        reason += (
            f", better than the {readable} pool by {other['difference']:.3g} "
            f"({other['lower']:.3g} to {other['upper']:.3g})"
        )
    else:
        reason += ", the best, and readable"
    rule = found.method if get_rule(name).values() else name
    return PoolChoice(name, reason, table, str(row["correction"])), rule, found.weights, found.correction


def _preferred(table: PoolComparison, readable: str) -> pd.Series:
    """Return the plainest of the candidates as good as the best: readable, as it is, equal weights."""
    as_good = table[~(table["lower"] > 0) & np.isfinite(table["score"])]
    kept = as_good[as_good["pool"] == readable]
    plain = kept.sort_values(
        ["correction", "weights"], kind="stable", key=lambda x: ~x.isin(["none", "equal"])
    )
    return (plain if len(plain) else table).iloc[0]


def _with_corrections(
    table: PoolComparison, row: pd.Series, readable: str, members: Sequence[Predictive], y: Any, score: str
) -> PoolComparison:
    """Return the comparison of the pool so far and the readable one, each with and without a correction.

    All pools stay in the table where nothing is gained by a correction.
    """
    corrected = compare_pools(
        members,
        y,
        methods=list(dict.fromkeys([readable, str(row["pool"])])),
        weights=(row["weights"],),
        corrections=[None, "both"],
        cv=min(_FOLDS, len(members[0])),
        score=score,
        nested=False,
    )
    return table if _preferred(corrected, readable)["correction"] == "none" else corrected


def _named(row: pd.Series) -> str:
    """Return pool, weights and correction of a candidate in words."""
    corrected = "" if row["correction"] == "none" else ", intercept and spread corrected"
    return f"{row['pool']} pool, {row['weights']} weights{corrected}"


# -- which pool --------------------------------------------------------------------------------------


Array = NDArray[np.float64]

_NOT_CHOSEN = "the pool of this %(name)s is not chosen yet; call choose_pool(X, y) with data set aside"


class PooledMembers(PredictiveMethods):
    """Members, their weights and a pool: predictions, coefficients, uncertainty.

    Attributes
    ----------
    members_ : list of fitted models
    weights_ : array, shape (M,)
    recalibrations_ : list of Recalibration, or None
        What is applied to each member's prediction before pooling.
    correction_ : Correction or None
        What is applied to the pool: ``fit_correction``, or chosen by ``pooling="auto"``.
    pooling : str or Rule
    choice_ : PoolChoice
        Of ``pooling="auto"``: the pool that was chosen.
    model : Tram or None
        The model all members are instances of, where they are.
    """

    members_: list[Any]
    weights_: Array
    recalibrations_: list[Recalibration] | None
    correction_: Correction | None = None
    pooling: str | Rule
    choice_: PoolChoice
    rule_: str | Rule
    model: Any

    # -- prediction ------------------------------------------------------------------------------------

    def predict_members(self, X: Any) -> list[Predictive]:
        """Return the predictive distributions of each member (recalibrated, if asked for)."""
        check_is_fitted(self, "members_")
        predictions = predict_all(self.members_, X)
        if self.recalibrations_ is None:
            return predictions
        return [one.apply(pred) for one, pred in zip(self.recalibrations_, predictions, strict=True)]

    def predict_distribution(self, X: Any, pooling: Any = None) -> Predictive:
        r"""Return the pooled predictive distributions.

        For the transformation pool of transformation models (Def. 5) that is the
        model with :math:`\bar h = \sum_m w_m h_m`.

        Parameters
        ----------
        X : data
        pooling : str or Rule, optional
            Another pool than the ensemble's own, without the correction of the latter.
        """
        return self.pool_members(self.predict_members(X), pooling)

    def pool_members(self, members: Sequence[Predictive], pooling: Any = None) -> Predictive:
        """Return the pool of the members' distributions, with the ensemble's weights and correction.

        Parameters
        ----------
        members : sequence of M Predictive
            From :meth:`predict_members`.
        pooling : str or Rule, optional
        """
        pooled = self._pooled(members, pooling)
        if pooling is not None or self.correction_ is None:
            return pooled
        return self.correction_.apply(pooled)

    def _pooled(self, members: Sequence[Predictive], pooling: Any = None) -> Predictive:
        """Return the pool without its correction, of which the paper speaks."""
        return pool(members, method=self.method(pooling), weights=self.weights_)

    def method(self, pooling: Any = None) -> str | Rule:
        """Return the ensemble's pool, or the one given, as it is meant for the outcome."""
        if pooling is None and self._chooses:
            check_is_fitted(self, "choice_", msg=_NOT_CHOSEN)
        own: Any = getattr(self, "rule_", self.pooling)
        return meant_pool(own if pooling is None else pooling, self.outcome_kind)

    @property
    def _chooses(self) -> bool:
        return isinstance(self.pooling, str) and self.pooling == AUTO

    @property
    def _readable(self) -> str | Rule:
        """The pool whose coefficients are shown: of a pool that was chosen, the transformation pool's."""
        return meant_pool("transformation", self.outcome_kind) if self._chooses else self.method()

    @property
    def module_(self) -> PooledModule:
        """The fitted ensemble as one ``torch.nn.Module``, members and pool; see ``Tram.module_``."""
        check_is_fitted(self, "members_")
        if self.correction_ is not None:
            raise UnsupportedError(
                "a module has the pool as it is, got an ensemble with a correction on the scale of the "
                "outcome; set correction_ = None, or use predict_distribution"
            )
        return module_of(self.members_, self.weights_, self.method(), self.recalibrations_)

    @property
    def outcome_kind(self) -> str | None:
        """The kind of outcome where the members or the model say so."""
        members = getattr(self, "members_", None)
        if members and isinstance(members[0], BaseTram):
            return members[0].outcome_.kind
        model = getattr(self, "model", None)
        return model.outcome if isinstance(model, BaseTram) else None

    def structure_check(self, X: Any, y: Any = None, pooling: Any = None) -> StructureCheck:
        """Compare the pool with the mean of its members on the scale of h (Fig. 4A).

        Parameters
        ----------
        X, y : data
            At the outcomes y; without them at all levels, or at 19 quantiles.
        pooling : str or Rule, optional
            Another pool than the ensemble's own, for example ``"linear"``.
        """
        members = self.predict_members(X)
        return structure_check(members, self._pooled(members, pooling), y=y, weights=self.weights_)

    def guarantees(self, X: Any, y: Any) -> Guarantees:
        """Return which of the paper's propositions apply to this pool, and whether each held here."""
        members = self.predict_members(X)
        return guarantees(members, self._pooled(members), y, self.weights_)

    # -- coefficients and uncertainty -------------------------------------------------------------------

    @property
    def coef_(self) -> pd.Series:
        r"""Coefficients of the ensemble, :math:`\sum_m w_m \beta_m` (Prop. 2).

        Missing, with the reason, where the pool has none. With ``pooling="auto"`` those of the
        transformation pool; ``attrs["note"]`` says so where another pool predicts.
        """
        values = self.weights_ @ self._coefficients("this ensemble has no coefficients", attribute=True)
        coef = pd.Series(values, index=self.members_[0].coef_.index, name="coef", dtype=float)
        if self._note is not None:
            coef.attrs["note"] = self._note
        return coef

    @property
    def _note(self) -> str | None:
        return self.choice_.note(self._readable) if self._chooses and hasattr(self, "choice_") else None

    def coef_table(self, level: float = 0.95, method: str = "total") -> CoefficientTable:
        r"""Return the coefficients with intervals, under a header that says what they are.

        Parameters
        ----------
        level : float
            Coverage.
        method : {"total", "bootstrap", "asymptotic"}
            ``"total"`` has the sampling error within members and the variation
            between them, :math:`\mathrm{se}^2 = \sum_m w_m V_m + B`, and is the interval for
            the true effect. It takes the networks of deep members as given and is too narrow for that;
            members that are ``"bags"`` have :math:`\mathrm{se}^2 = B` instead, the bootstrap's.
            ``"bootstrap"`` and ``"asymptotic"`` describe how the
            coefficients vary between members only (by resampling them, or by the
            normal distribution). See ``deeptram.ensemble.coefficients``.

        Returns
        -------
        DataFrame
            Columns ``coef, se, lower, upper, exp_coef, exp_lower, exp_upper`` (no
            exponentials with the normal latent, where they mean nothing;
            ``hazard_ratio`` with its limits for proportional hazards), and for the two methods that
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
        self._coefficients("this ensemble has no coefficient table")
        first = self.members_[0]
        table = ensemble_table(self.members_, self.weights_, self._slopes, level, method, self._bagged)
        if hasattr(first, "latent_choice_"):
            table.attrs["header"].append(said_of_choice(first.latent_choice_))
        if self._note is not None:
            table.attrs["header"].append(self._note)
        return table

    def summary(self, level: float = 0.95) -> CoefficientTable:
        """Return ``coef_table(level)`` with the pool, its weights and the rows in the header.

        Examples
        --------
        >>> import numpy as np, deeptram as dt
        >>> x = np.random.default_rng(0).normal(size=(60, 1))
        >>> folds = dt.Ensemble.from_members([dt.Lm().fit(x[k::2], x[k::2, 0] ** 3) for k in (0, 1)])
        >>> print(folds.summary().attrs["header"][1])
        transformation pool, weights 0.500, 0.500; members fitted to 30 rows
        """
        table = self.coef_table(level)
        first = self.members_[0]
        events = getattr(first, "n_events_", None)
        weights = ", ".join(f"{weight:.3f}" for weight in self.weights_)
        table.attrs["header"].insert(
            1,
            f"{self._readable} pool, weights {weights}; members fitted to {first.n_obs_} rows"
            + ("" if events is None else f", {events} events"),
        )
        return table

    def member_coefficients(self) -> pd.DataFrame:
        """Return the coefficients of each member, one line per member."""
        return self._coefficients("the members' coefficients cannot be compared")

    def why_no_coefficients(self) -> str | None:
        """Return why this ensemble has no coefficients, or None if it has."""
        check_is_fitted(self, "members_")
        recalibrated = self.recalibrations_ is not None
        return why_no_coefficients(self.members_, self._readable, self.weights_, recalibrated)

    def _coefficients(self, lost: str, *, attribute: bool = False) -> pd.DataFrame:
        """Return the members' coefficients, or raise with the reason why the ensemble has none."""
        reason = self.why_no_coefficients()
        if reason is not None:
            raise (MissingCoefficientsError if attribute else StructureError)(f"{lost}: {reason}")
        return member_table(self.members_, self._slopes)

    @property
    def _bagged(self) -> bool:
        return getattr(self, "members", "seeds") == "bags"

    @property
    def _slopes(self) -> Array:
        return slopes_of(self.recalibrations_, len(self.members_))

    def _card(self) -> str | None:
        """Return members, pool, weights and coefficients for a notebook."""
        if not hasattr(self, "members_"):
            return None
        first = self.members_[0]
        pooled = f"{AUTO}: {self.choice_.reason}" if hasattr(self, "choice_") else str(self.pooling)
        facts: dict[str, Any] = {"pool": pooled}
        if isinstance(first, BaseTram):
            title = f"{type(first).__name__}, {described_outcome(first.outcome_)}"
            facts |= {"terms": described_terms(first), "h": h_in_words(first.outcome_), "rows": first.n_obs_}
        else:
            title = ", ".join(sorted({type(member).__name__ for member in self.members_}))
        facts["weights"] = ", ".join(few_digits(weight, 3) for weight in self.weights_)
        facts |= training_fact(self.members_)
        reason = self.why_no_coefficients()
        missing = f"<p>No coefficients: {escape(reason or '')}</p>"
        table = missing if reason else coefficients_html(self.coef_table())
        return card(f"{type(self).__name__} of {len(self.members_)} members: {title}", facts, table)

    def contributions(self, X: Any, y: Any = None) -> pd.DataFrame:
        r"""Return the parts of :math:`\bar h` of each row: the weighted means of the members' parts.

        As for a single model: columns of LS by name with the sign they have in
        h, complex shifts as ``CS(columns)``, and with ``y`` the ``intercept`` at that outcome.
        """
        self._coefficients("this ensemble has no parts that add up")
        shares = self.weights_ * self._slopes
        pairs = zip(self.members_, shares, strict=True)
        parts = sum(member.contributions(X) * share for member, share in pairs if share != 0)
        if y is None:
            return parts
        if self.outcome_kind == "nominal":
            self.members_[0].contributions(X, y)  # says why there is no h
        h = np.asarray(self.predict_distribution(X, self._readable).trafo(y))
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
        pooling : str or Rule, optional
            Another pool than the ensemble's own.

        Returns
        -------
        DataFrame
            One line per row of X and point: ``row, at, estimate, sd, lower, upper``.
        """
        members = self.predict_members(X)
        return epistemic_band(members, self.pool_members(members, pooling), self.weights_, scale, at, width)

    def uncertainty(self, X: Any) -> pd.DataFrame:
        """Return ``total, aleatoric, epistemic`` uncertainty of each row, with total the sum of the others.

        Entropy (in nats) for outcomes on levels, variance for numbers; see
        ``deeptram.ensemble.epistemic``.
        """
        frame = split_uncertainty(self.predict_members(X), self.weights_)
        if isinstance(X, pd.DataFrame):
            frame.index = X.index
        return frame
