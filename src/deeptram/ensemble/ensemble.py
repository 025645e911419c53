"""``Ensemble``: several members of one deep transformation model, pooled."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, clone
from sklearn.utils import Tags, get_tags
from sklearn.utils.validation import check_is_fitted

from deeptram._threads import alone
from deeptram._validation import check_choice, check_probability_level, check_weights
from deeptram.ensemble.coefficients import (
    METHODS,
    ensemble_table,
    member_table,
    slopes_of,
    why_no_coefficients,
)
from deeptram.ensemble.epistemic import epistemic_band, split_uncertainty
from deeptram.ensemble.members import check_model, check_pooling, fit_folds, gather_members, predict_all
from deeptram.ensemble.strategies import fit_members
from deeptram.errors import MissingCoefficientsError, StructureError
from deeptram.estimators.base import BaseTram
from deeptram.estimators.coefficient_table import CoefficientTable
from deeptram.estimators.prediction import PredictiveMethods
from deeptram.fitting.deep.seeds import root_seed
from deeptram.pooling import Guarantees, Rule, StructureCheck, guarantees, pool, structure_check
from deeptram.pooling.recalibration import Recalibration
from deeptram.pooling.weights import TunedWeights, tune_weights
from deeptram.predictive import Predictive

Array = NDArray[np.float64]


class Ensemble(PredictiveMethods, BaseEstimator):
    r"""An ensemble of deep transformation models that stays one (Def. 5).

    The members differ in their initial weights and the order of their batches
    only; all see the same training and validation rows. With
    ``pooling="transformation"`` the ensemble is :math:`F_Z(\sum_m w_m h_m)`: again a
    transformation model, whose coefficients are the weighted means of the members' (Prop. 2), and never
    worse in NLL than its members on average (Prop. 3).

    Parameters
    ----------
    model : Tram or one of its presets
        With at least one network (CI or CS).
    n_members : int
        Number of members M.
    pooling : {"transformation", "linear", "log-linear", "log-linear-density"} or Rule
    weights : {"equal", "tuned"} or array of shape (M,)
        ``"tuned"``: by the NLL on the validation data given to ``fit``.
    random_state : int, optional
        Root seed, from which every member has its own.
    n_jobs : int, optional
        Members trained at the same time by ``strategy="parallel"``; None means
        what ``joblib.parallel_config`` says, else all cores.
    strategy : {"auto", "stacked", "parallel", "sequential"}
        In one vectorised pass, in processes of one thread each (joblib; its
        Dask and Ray backends work unchanged), or one after the other. The
        members are the same. ``"auto"`` stacks networks without convolutions,
        trains others in parallel where there is more than one core, and on a GPU one after the other.
    recalibrate : bool
        Recalibrate each member on the validation data before pooling
        (``deeptram.pooling.recalibration.Recalibration``).
    checkpoint : path, optional
        A folder to which every finished member is written. A fit that was
        killed goes on from there; no finished member is trained again.

    Attributes
    ----------
    members_ : list of fitted models
    weights_ : array, shape (M,)
    coef_ : Series
        Weighted mean of the members' coefficients.
    history_ : DataFrame
        The members' training histories, with a column ``member``.
    strategy_ : str
        How the members were trained.
    tuning_ : TunedWeights
        With ``weights="tuned"``.

    Examples
    --------
    >>> import deeptram as dt
    >>> data = dt.datasets.simulate("ordinal", n=200, seed=1)
    >>> model = dt.Polr(
    ...     [dt.CS(dt.networks.MLP((8,)), "image"), dt.LS("x_1")],
    ...     training=dt.Training(epochs=5, progress=False),
    ... )
    >>> ensemble = dt.Ensemble(model, n_members=3, random_state=1).fit(data.X, data.y)
    >>> len(ensemble.members_), ensemble.strategy_, list(ensemble.coef_.index)
    (3, 'stacked', ['x_1'])
    >>> members = np.mean([member.score(data.X, data.y) for member in ensemble.members_])
    >>> bool(ensemble.score(data.X, data.y) >= members)
    True
    """

    def __init__(
        self,
        model: Any,
        n_members: int = 5,
        *,
        pooling: str | Rule = "transformation",
        weights: Any = "equal",
        random_state: Any = None,
        n_jobs: int | None = None,
        strategy: str = "auto",
        recalibrate: bool = False,
        checkpoint: str | os.PathLike[str] | None = None,
    ) -> None:
        self.model = model
        self.n_members = n_members
        self.pooling = pooling
        self.weights = weights
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.strategy = strategy
        self.recalibrate = recalibrate
        self.checkpoint = checkpoint

    # -- fitting -----------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any, *, sample_weight: Any = None, validation: Any = None) -> Ensemble:
        """Train the members.

        Parameters
        ----------
        X : DataFrame, 2-d array or dict of arrays
        y : array-like or Surv
        sample_weight : array-like, optional, shape (n,)
        validation : float or (X, y), optional
            Data (or a share of the rows, the same for all members) on which best
            epochs are chosen, weights are tuned and members are recalibrated.
            Default: ``validation`` of the model's ``Training``.

        Returns
        -------
        self

        Notes
        -----
        Ctrl-C ends the training and keeps the finished members, with a
        ``ConvergenceWarning``.
        """
        fit_members(self, X, y, sample_weight, validation)
        return self

    @alone()
    def _keep(self, members: Sequence[Any]) -> None:
        """Store members with equal (or the given) weights."""
        self.members_ = list(members)
        given = None if isinstance(self.weights, str) else np.asarray(self.weights, dtype=float)
        if given is None or len(given) != len(self.members_):
            self.weights_ = np.full(len(self.members_), 1 / max(len(self.members_), 1))
        else:
            self.weights_ = check_weights(given, len(self.members_))
        self.recalibrations_: list[Recalibration] | None = None
        histories = [
            member.history_.assign(member=m)
            for m, member in enumerate(self.members_)
            if isinstance(getattr(member, "history_", None), pd.DataFrame)
        ]
        if histories:
            self.history_ = pd.concat(histories, ignore_index=True)
        first = self.members_[0] if self.members_ else None
        for name in ("classes_", "n_features_in_", "feature_names_in_"):
            if hasattr(first, name):
                setattr(self, name, getattr(first, name))

    def fit_recalibration(self, X: Any, y: Any) -> Ensemble:
        r"""Recalibrate each member on these data, :math:`h_m \mapsto a_m + b_m h_m`, before pooling.

        Use data on which the members were not trained. Coefficients are
        multiplied by the slopes :math:`b_m`, so the ensemble stays readable.
        """
        predictions = predict_all(self.members_, X)
        self.recalibrations_ = [Recalibration().fit(prediction, y) for prediction in predictions]
        return self

    # -- other origins than training ----------------------------------------------------------------

    @classmethod
    def from_members(
        cls, members: Sequence[Any], weights: Any = None, *, pooling: str | Rule = "transformation"
    ) -> Ensemble:
        """Make an ensemble of models that are fitted already.

        Parameters
        ----------
        members : sequence
            Fitted deeptram models, anything with ``predict_distribution`` or
            ``predict_proba`` (and ``classes_``), or paths of saved models.
        weights : array-like, optional
            Default: equal. ``tune_weights(X, y)`` chooses them on new data.
        pooling : str or Rule

        Examples
        --------
        >>> import numpy as np, deeptram as dt
        >>> x, y = np.arange(12.0)[:, None], [0, 1, 0, 1, 0, 0, 1, 0, 1, 1, 1, 1]
        >>> members = [dt.Logit().fit(x[rows], np.array(y)[rows]) for rows in (slice(0, 9), slice(3, 12))]
        >>> dt.Ensemble.from_members(members).coef_.round(2).to_dict()
        {'x0': 0.3}
        """
        checked = gather_members(members)
        check_pooling(pooling)
        model = clone(checked[0]) if isinstance(checked[0], BaseTram) else None
        given = "equal" if weights is None else check_weights(weights, len(checked))
        ensemble = cls(model, len(checked), pooling=pooling, weights=given)
        ensemble._keep(checked)
        return ensemble

    @classmethod
    def from_folds(
        cls,
        model: BaseTram,
        X: Any,
        y: Any,
        *,
        cv: Any = 5,
        sample_weight: Any = None,
        weights: Any = None,
        pooling: str | Rule = "transformation",
        random_state: Any = None,
        n_jobs: int | None = None,
    ) -> Ensemble:
        """Make an ensemble of one member per cross-validation fold.

        Each member is trained without one fold; deep models choose their best
        epoch on it. Models without networks can be members, too: they differ in
        their data. All members share levels and support of the outcome.

        Parameters
        ----------
        model : Tram or one of its presets
        X, y, sample_weight : data
        cv : int or splitter
            Number of folds (shuffled, stratified for classes), or a
            scikit-learn splitter.
        weights : array-like, optional
        pooling : str or Rule
        random_state : int, optional
        n_jobs : int, optional
            Folds fitted at the same time (joblib).

        Returns
        -------
        Ensemble
            With ``fold_scores_``: the mean log-likelihood of each member on its held-out fold.
        """
        template = check_model(model, deep=False)
        check_pooling(pooling)
        root = root_seed(random_state)
        members, scores = fit_folds(template, X, y, cv, sample_weight, root, n_jobs)
        ensemble = cls.from_members(members, weights, pooling=pooling)
        ensemble.model, ensemble.random_state, ensemble.n_jobs = clone(model), random_state, n_jobs
        ensemble.fold_scores_, ensemble.root_seed_ = scores, root
        return ensemble

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
            Another pool than the ensemble's own.
        """
        return self.pool_members(self.predict_members(X), pooling)

    def pool_members(self, members: Sequence[Predictive], pooling: Any = None) -> Predictive:
        """Return the pool of the members' predictive distributions, with the ensemble's weights.

        Parameters
        ----------
        members : sequence of M Predictive
            From :meth:`predict_members`.
        pooling : str or Rule, optional
        """
        method = self.pooling if pooling is None else pooling
        return pool(members, method=method, weights=self.weights_)

    @property
    def outcome_kind(self) -> str | None:
        """The kind of outcome where the members or the model say so."""
        members = getattr(self, "members_", None)
        if members and isinstance(members[0], BaseTram):
            return members[0].outcome_.kind
        model = getattr(self, "model", None)
        return model.outcome if isinstance(model, BaseTram) else None

    def tune_weights(self, X: Any, y: Any, score: str = "nll") -> TunedWeights:
        """Choose the weights that minimise a score on these data, eq. (6), and use them from now on.

        Use data on which the members were not trained.

        Parameters
        ----------
        X, y : data
        score : {"nll", "rps", "brier", "quadratic", "crps"}

        Returns
        -------
        TunedWeights
            With the certificate of the optimum.
        """
        tuned = tune_weights(self.predict_members(X), y, method=self.pooling, score=score)
        self.weights_, self.tuning_ = tuned.weights, tuned
        return tuned

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
        return structure_check(members, self.pool_members(members, pooling), y=y, weights=self.weights_)

    def guarantees(self, X: Any, y: Any) -> Guarantees:
        """Return which of the paper's propositions apply to this pool, and whether each held here."""
        members = self.predict_members(X)
        return guarantees(members, self.pool_members(members), y, self.weights_)

    # -- coefficients and uncertainty -------------------------------------------------------------------

    @property
    def coef_(self) -> pd.Series:
        r"""Coefficients of the ensemble, :math:`\sum_m w_m \beta_m` (Prop. 2).

        Missing, with the reason, where the pool has none.
        """
        values = self.weights_ @ self._coefficients("this ensemble has no coefficients", attribute=True)
        return pd.Series(values, index=self.members_[0].coef_.index, name="coef", dtype=float)

    def coef_table(self, level: float = 0.95, method: str = "total") -> CoefficientTable:
        r"""Return the coefficients with intervals, under a header that says what they are.

        Parameters
        ----------
        level : float
            Coverage.
        method : {"total", "bootstrap", "asymptotic"}
            ``"total"`` has the sampling error within members and the variation
            between them, :math:`\mathrm{se}^2 = \sum_m w_m V_m + B`, and is the interval for
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
        self._coefficients("this ensemble has no coefficient table")
        return ensemble_table(self.members_, self.weights_, self._slopes, level, method)

    def member_coefficients(self) -> pd.DataFrame:
        """Return the coefficients of each member, one line per member."""
        return self._coefficients("the members' coefficients cannot be compared")

    def why_no_coefficients(self) -> str | None:
        """Return why this ensemble has no coefficients, or None if it has."""
        check_is_fitted(self, "members_")
        recalibrated = self.recalibrations_ is not None
        return why_no_coefficients(self.members_, self.pooling, self.weights_, recalibrated)

    def _coefficients(self, lost: str, *, attribute: bool = False) -> pd.DataFrame:
        """Return the members' coefficients, or raise with the reason why the ensemble has none."""
        reason = self.why_no_coefficients()
        if reason is not None:
            raise (MissingCoefficientsError if attribute else StructureError)(f"{lost}: {reason}")
        return member_table(self.members_, self._slopes)

    @property
    def _slopes(self) -> Array:
        return slopes_of(self.recalibrations_, len(self.members_))

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
        h = np.asarray(self.predict_distribution(X).trafo(y))
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

    # -- files -----------------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> Path:
        """Save the fitted ensemble as a folder of JSON and safetensors; ``dt.load(path)`` reads it.

        Parameters
        ----------
        path : path
            The folder to create; it is complete or not there at all.
        overwrite : bool
            Replace an ensemble saved there before.
        """
        from deeptram.ensemble.persistence import save_ensemble

        return save_ensemble(self, path, overwrite=overwrite)

    # -- scikit-learn ----------------------------------------------------------------------------------

    def __sklearn_tags__(self) -> Tags:
        """Tell scikit-learn what the model is: a classifier or a regressor."""
        return super().__sklearn_tags__() if self.model is None else get_tags(self.model)
