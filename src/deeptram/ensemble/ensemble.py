"""``Ensemble``: several members of one deep transformation model, pooled."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, clone
from sklearn.utils import Tags, get_tags
from sklearn.utils.validation import check_is_fitted

from deeptram._threads import alone
from deeptram._validation import check_choice, check_same_labels
from deeptram.ensemble.members import Bags, fit_folds, gather_members, knows_its_distribution, predict_all
from deeptram.ensemble.plans import check_fold_tuning, check_model, check_pooling, check_recalibrate
from deeptram.ensemble.pooled_members import PoolChoice, PooledMembers, choose_pool
from deeptram.ensemble.strategies import fit_members
from deeptram.estimators.base import BaseTram
from deeptram.estimators.deep import tell_of_training
from deeptram.evaluation.measures import MetricLike
from deeptram.fitting.deep.seeds import root_seed
from deeptram.pooling import Rule
from deeptram.pooling.correction import correct
from deeptram.pooling.pool import check_weights
from deeptram.pooling.recalibration import Recalibration
from deeptram.pooling.weights import TunedWeights, top_k, tune_weights
from deeptram.predictive import Predictive

Array = NDArray[np.float64]


@dataclass(eq=False, repr=False)
class Ensemble(PooledMembers, BaseEstimator):
    r"""An ensemble of deep transformation models that stays one (Def. 5).

    The members differ in their initial weights and the order of their batches
    only; all see the same training and validation rows. With
    ``pooling="transformation"`` the ensemble is :math:`F_Z(\sum_m w_m h_m)`: again a
    transformation model, whose coefficients are the weighted means of the members' (Prop. 2), and never
    worse in NLL than its members on average (Prop. 3).

    Parameters
    ----------
    model : Tram or one of its presets
        With at least one network (CI, CS, Scale), unless members are ``"bags"``. With ``latent="auto"`` one
        member is trained with each latent distribution first; all members have the best, and
        ``latent_choice_`` the losses.
    n_members : int
        Number of members M.
    pooling : {"transformation", "linear", "log-linear", "log-linear-density", ..., "auto"} or Rule
        ``"auto"``: the transformation pool unless another is better on the validation data by more than
        chance (:meth:`choose_pool`); ``choice_`` says which and why, ``coef_`` are those of the former.
        The transformation pool of a nominal outcome averages its logits: the order of classes is no matter.
    weights : {"equal", "tuned"} or array of shape (M,)
        ``"tuned"``: by the loss the members are trained with, on the validation
        data given to ``fit`` (``tune_weights(X, y, score="nll")`` for another score).
    random_state : int, optional
        Root seed, from which every member has its own.
    n_jobs : int, optional
        Members trained at the same time by ``strategy="parallel"``; None means
        what ``joblib.parallel_config`` says, else all cores.
    strategy : {"auto", "stacked", "parallel", "sequential"}
        In one vectorised pass, in processes of one thread each (joblib; its
        Dask and Ray backends work unchanged), or one after the other. The
        members are the same (stacked ones but for rounding, which grows with the epochs). ``"auto"``
        stacks networks without convolutions, trains others in parallel where there is more than one core,
        and on a GPU one after the other.
    recalibrate : bool or "pool"
        Recalibrate each member on the validation data before pooling
        (``deeptram.pooling.recalibration.Recalibration``), or the transformation pool after weights are
        tuned: pools of calibrated members that disagree are too cautious.
    checkpoint : path, optional
        A folder to which every finished member is written. A fit that was
        killed goes on from there; no finished member is trained again, and members in training go on
        from their last state, to the same end.
    checkpoint_epochs : int
        Epochs from one state of a member in training to the next.
    vary : dict of lists, optional
        Settings in which members differ, arguments of the model, of its ``Training`` or of its networks:
        ``{"learning_rate": [1e-3, 3e-3], "dropout": [0.0, 0.1], "latent": ["logistic", "normal"]}``.
        Members take the values in turn; with folds (``fit(validation=5)``), one value for all folds and
        then the next. ``learning_rate``, ``weight_decay``, ``dropout`` and ``latent`` vary within one
        vectorised pass, members that differ in others (``hidden``, ``order``) have passes of their own.
    members : {"seeds", "bags", "snapshots", "dropout"}
        In what members differ: initial weights and order of rows; rows drawn with replacement as well,
        which gives honest standard errors (:meth:`coef_table`); the ends of M cycles of one training
        (of ``Training.epochs`` in all); draws of the dropout masks of one trained model.

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

    model: Any
    n_members: int = 5
    _: KW_ONLY
    pooling: str | Rule = "transformation"
    weights: Any = "equal"
    random_state: Any = None
    n_jobs: int | None = None
    strategy: str = "auto"
    recalibrate: bool | str = False
    checkpoint: str | os.PathLike[str] | None = None
    vary: Mapping[str, Sequence[Any]] | None = None
    members: str = "seeds"
    checkpoint_epochs: int = 10

    # -- fitting -----------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any, *, sample_weight: Any = None, validation: Any = None) -> Ensemble:
        """Train the members.

        Parameters
        ----------
        X : DataFrame, 2-d array or dict of arrays
        y : array-like or Surv
        sample_weight : array-like, optional, shape (n,)
        validation : float, int or (X, y), optional
            Data (or a share of the rows, the same for all members) on which best
            epochs are chosen, weights are tuned and members are recalibrated. An integer is a number of
            folds: each member leaves out another one in turn, so that all rows are used, and weights
            are tuned and pools chosen out of fold. Default: ``validation`` of the model's ``Training``.

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
        self.recalibrations_, self.correction_ = None, None
        for name in ("rule_", "choice_", "fold_scores_", "fold_weights_"):
            self.__dict__.pop(name, None)
        histories = [
            member.history_.assign(member=m)
            for m, member in enumerate(self.members_)
            if isinstance(getattr(member, "history_", None), pd.DataFrame)
        ]
        if histories:
            self.history_ = pd.concat(histories, ignore_index=True)
        first = self.members_[0] if self.members_ else None
        for name in ("classes_", "n_features_in_", "feature_names_in_", "latent_choice_"):
            if hasattr(first, name):
                setattr(self, name, getattr(first, name))

    def fit_recalibration(self, X: Any, y: Any, *, what: str = "members") -> Ensemble:
        r"""Recalibrate on these data each member, :math:`h_m \mapsto a_m + b_m h_m`, or the pool of them.

        Use data on which the members were not trained. Coefficients are multiplied by the slopes
        :math:`b_m`, so the ensemble stays readable. Members that are calibrated each, but disagree, have a
        pool that is too cautious: recalibrating the transformation pool,
        :math:`\sum w_m h_m \mapsto a + b \sum w_m h_m`, gives all members one a and one b. The correction
        of the pool before (``correction_``) is dropped.

        Parameters
        ----------
        X, y : data
        what : {"members", "pool"}
        """
        check_is_fitted(self, "members_")
        check_same_labels(X=X, y=y)
        check_choice(what, ("members", "pool"), "what")
        predictions = predict_all(self.members_, X)
        if what == "pool":
            check_recalibrate(what, self.method(), self.outcome_kind)
            self.recalibrations_ = [Recalibration().fit(self._pooled(predictions), y)] * len(predictions)
        else:
            self.recalibrations_ = [Recalibration().fit(prediction, y) for prediction in predictions]
        self.correction_ = None
        return self

    def fit_correction(self, X: Any, y: Any, kind: str = "both", score: str = "nll") -> Ensemble:
        """Correct intercept and spread of the pool on the scale of the outcome; see ``deeptram.correct``.

        Use data on which neither members nor weights were fitted. Coefficients stay those of the pool before.

        Parameters
        ----------
        X, y : data
        kind : {"intercept", "spread", "both"}
        score : str

        Examples
        --------
        >>> import deeptram as dt
        >>> x = np.random.default_rng(0).normal(size=(90, 1))
        >>> members = [dt.Lm().fit(x[k:40:2], x[k:40:2, 0] ** 3) for k in (0, 1)]
        >>> ensemble = dt.Ensemble.from_members(members).fit_correction(x[40:], x[40:, 0] ** 3)
        >>> bool(ensemble.correction_.after <= ensemble.correction_.before)
        True
        """
        self.correction_ = correct(self._pooled(self._predicted(X, y)), y, kind, score=score)
        return self

    @property
    def converged_(self) -> bool:
        """Whether the training of every member ended well."""
        return all(getattr(member, "converged_", True) for member in self.members_)

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
        model = clone(checked[0]) if isinstance(checked[0], BaseTram) else None
        check_pooling(pooling, None if model is None else model.outcome)
        given = "equal" if weights is None else check_weights(weights, len(checked))
        ensemble = cls(model, len(checked), pooling=pooling, weights=given)
        ensemble._keep(checked)
        ordered = next((member for member in checked if knows_its_distribution(member)), None)
        if (classes := getattr(ordered, "classes_", None)) is not None:
            ensemble.classes_ = classes
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
        n_members: int = 1,
        weights: Any = None,
        pooling: str | Rule = "transformation",
        random_state: Any = None,
        n_jobs: int | None = None,
    ) -> Ensemble:
        """Make an ensemble of members per cross-validation fold, or of bagged members.

        Each member is trained without one fold; deep models choose their best
        epoch on it. Models without networks can be members, too: they differ in
        their data. All members share levels and support of the outcome.

        With ``weights="tuned"`` the weights of a fold's members, at least two, are tuned
        on that fold, by the loss they are trained with, and the ensemble has the mean over
        folds: member m of fold f has the weight :math:`w_{fm} / K` (Section 6 of the paper).

        Parameters
        ----------
        model : Tram or one of its presets
        X, y : data
        sample_weight : array-like, optional, shape (n,)
            Of rows in training, in the choice of the best epoch and in ``fold_scores_``; weights of members
            are tuned on the rows of a fold as they are.
        cv : int, splitter, list of (train, test) rows or Bags
            Number of folds (shuffled, stratified for classes), a scikit-learn
            splitter, the rows of its folds (``list(GroupKFold(5).split(X, y, groups))``), or
            ``deeptram.Bags(M)`` for bagging.
        n_members : int
            Members per fold (models with networks), which differ by their seeds.
        weights : {"equal", "tuned"} or array-like, optional
            Of all members, fold by fold. Default: equal.
        pooling : str or Rule
            Tuned weights need one without parameters to be tuned along ("beta-linear") or chosen ("auto").
        random_state : int, optional
        n_jobs : int, optional
            Folds fitted at the same time (joblib).

        Returns
        -------
        Ensemble
            With ``fold_scores_``, the mean log-likelihood of each member on its held-out fold, and
            with tuned weights ``fold_weights_``, shape (folds, n_members).

        Examples
        --------
        >>> import deeptram as dt
        >>> data = dt.datasets.simulate("ordinal", n=300, seed=1)
        >>> bagged = dt.Ensemble.from_folds(
        ...     dt.Polr([dt.LS("x_1")]), data.X, data.y, cv=dt.Bags(10), random_state=1
        ... )
        >>> len(bagged.members_)
        10
        """
        template = check_model(model, deep=False)
        check_pooling(pooling, template.outcome)
        root = root_seed(random_state)
        named = check_choice(weights, ("equal", "tuned"), "weights") if isinstance(weights, str) else None
        given, method = weights if named is None else None, pooling if named == "tuned" else None
        if method is not None:
            check_fold_tuning(template, method, n_members)
        folds = fit_folds(template, X, y, cv, sample_weight, root, n_jobs, n_members, method, given)
        if method is not None:
            given = np.concatenate([fold.weights for fold in folds]) / len(folds)
        members = [member for fold in folds for member in fold.members]
        tell_of_training(members)
        ensemble = cls.from_members(members, given, pooling=pooling)
        ensemble.model, ensemble.random_state, ensemble.n_jobs = clone(model), random_state, n_jobs
        ensemble.members = "bags" if isinstance(cv, Bags) else "seeds"
        ensemble.fold_scores_ = np.concatenate([fold.scores for fold in folds])
        if method is not None:
            ensemble.fold_weights_ = np.array([fold.weights for fold in folds])
        ensemble.root_seed_ = root
        return ensemble

    # -- weights ---------------------------------------------------------------------------------------

    def tune_weights(self, X: Any, y: Any, score: MetricLike = "nll") -> TunedWeights:
        """Choose the weights that minimise a score on these data, eq. (6), and use them from now on.

        Use data on which the members were not trained.

        Parameters
        ----------
        X, y : data
        score : str, Score or callable
            As for ``deeptram.tune_weights``: a name, or a score of your own.

        Returns
        -------
        TunedWeights
            With the certificate of the optimum.
        """
        return self._tune(self._predicted(X, y), y, score)

    def _predicted(self, X: Any, y: Any) -> Sequence[Predictive]:
        """Return what the members predict for rows that have these outcomes."""
        check_same_labels(X=X, y=y)
        return self.predict_members(X)

    def _tune(
        self, members: Sequence[Predictive], y: Any, score: MetricLike, copies: int = 1
    ) -> TunedWeights:
        """Use the best weights of these predictions, each of which stands for ``copies`` members in a row."""
        tuned = tune_weights(members, y, method=self.method(), score=score)
        self.weights_, self.tuning_ = np.repeat(tuned.weights / copies, copies), tuned
        self.correction_ = None
        if tuned.rule is not None and tuned.rule.parameters and isinstance(self.pooling, str):
            self.rule_ = tuned.rule  # a pool whose own parameters were tuned along
        return tuned

    def choose_pool(self, X: Any, y: Any, score: str = "nll") -> PoolChoice:
        """Choose the pool (and with ``weights="tuned"`` the weights) on these data, for ``pooling="auto"``.

        Use data on which the members were not trained. All pools are compared out of fold
        (``deeptram.compare_pools``); the transformation pool, which has coefficients, is taken unless others
        are better by more than chance, and so is a correction of its intercept and spread (``correction_``).

        Parameters
        ----------
        X, y : data
        score : {"nll", "rps", "brier", "quadratic", "crps"}

        Returns
        -------
        PoolChoice
            With ``pool``, ``reason`` and the ``table`` of all candidates; also kept as ``choice_``.
        """
        return self._choose(self._predicted(X, y), y, score)

    def _choose(self, members: Sequence[Predictive], y: Any, score: str, copies: int = 1) -> PoolChoice:
        """Use the pool that is best for these predictions, each of which stands for ``copies`` members."""
        found = choose_pool(members, y, self.weights, self.outcome_kind, score)
        self.choice_, self.rule_, weights, self.correction_ = found
        self.weights_ = np.repeat(weights / copies, copies)
        return self.choice_

    def top_k(self, X: Any, y: Any, k: int, score: str | None = None) -> Ensemble:
        """Return the ensemble of the k members with the smallest score on these data, best first.

        Use data on which the members were not trained. Weights that were given or
        tuned stay in proportion. Each member keeps a recalibration of its own; what was fitted to the pool of
        all (a recalibration of the pool, ``correction_``) is kept where only members without weight are left
        out, and else fitted again to the pool of those chosen, on these data and by this score.

        Parameters
        ----------
        X, y : data
        k : int
        score : str, optional
            As for ``deeptram.top_k``. Default: the loss the members were trained with, else NLL.

        Examples
        --------
        >>> import deeptram as dt
        >>> x = np.random.default_rng(0).normal(size=(90, 1))
        >>> members = [dt.Lm().fit(x[k:40:3], x[k:40:3, 0] ** 3) for k in (0, 1, 2)]
        >>> ensemble = dt.Ensemble.from_members(members).fit_correction(x[40:], x[40:, 0] ** 3)
        >>> best = ensemble.top_k(x[40:], x[40:, 0] ** 3, 2)
        >>> best.correction_.kind, best.correction_ == ensemble.correction_
        ('both', False)
        """
        check_is_fitted(self, "members_")
        chosen_by = str(getattr(self.members_[0], "loss", "nll")) if score is None else score
        best = top_k(self._predicted(X, y), y, k, chosen_by)
        chosen = [self.members_[m] for m in best.indices]
        ensemble = Ensemble.from_members(chosen, best.weights(self.weights_), pooling=self.method())
        same_pool = np.isclose(self.weights_[best.indices].sum(), 1.0, rtol=0, atol=1e-8)
        if self.recalibrations_ is not None:
            ensemble.recalibrations_ = [self.recalibrations_[m] for m in best.indices]
            if not same_pool and self._has_one_map:
                ensemble.fit_recalibration(X, y, what="pool")
        if self.correction_ is not None:
            ensemble.correction_ = self.correction_
            if not same_pool:
                ensemble.fit_correction(X, y, self.correction_.kind, chosen_by)
        return ensemble

    @property
    def _has_one_map(self) -> bool:
        """Whether the members have the recalibration of their pool: one map, and not the identity."""
        maps = np.array([[one.intercept_, one.slope_] for one in self.recalibrations_ or ()])
        return bool((maps == maps[:1]).all() and (maps != [[0.0], [1.0]]).any())

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
