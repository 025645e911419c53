"""``Ensemble``: several members of one deep transformation model, pooled."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import Tags, get_tags

from deeptram._rows import take_rows
from deeptram._threads import alone
from deeptram._validation import check_choice, check_integer, check_weights
from deeptram.ensemble.checkpoint import Checkpoint, Configuration
from deeptram.ensemble.foreign import predict_all
from deeptram.ensemble.origins import OriginsMixin, check_model, check_pooling
from deeptram.ensemble.prediction import PredictionMixin
from deeptram.ensemble.reading import ReadingMixin
from deeptram.ensemble.strategies import STRATEGIES, Trained, choose_strategy, train_members
from deeptram.errors import ConvergenceWarning, InvalidInputError, InvalidTypeError
from deeptram.estimators.deep import deep_task
from deeptram.estimators.fingerprint import fingerprint
from deeptram.fitting.deep.seeds import MemberSeeds, member_seed, root_seed
from deeptram.pooling import QuasiArithmetic
from deeptram.pooling.recalibration import Recalibration

Array = NDArray[np.float64]


class Ensemble(OriginsMixin, PredictionMixin, ReadingMixin, BaseEstimator):
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
    pooling : {"transformation", "linear", "log-linear", "log-linear-density"} or QuasiArithmetic
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
        pooling: str | QuasiArithmetic = "transformation",
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
        self._check_settings()
        template = check_model(self.model)
        if validation is None and template.training is not None:
            validation = getattr(template.training, "validation", None)
        self._check_validation(validation)
        checkpoint = None
        if self.checkpoint is not None:
            configuration = Configuration.of(template, X, y, sample_weight, validation)
            checkpoint = Checkpoint(self.checkpoint, configuration, self.random_state)
        root = root_seed(self.random_state) if checkpoint is None else checkpoint.root
        checked, matrices, encoded, weights = template._prepare(X, y, sample_weight)
        template.data_hash_ = fingerprint(checked, y, weights)
        task = deep_task(
            template, checked, matrices, encoded, weights, validation, MemberSeeds.of(root).validation
        )
        seeds = {number: member_seed(root, number) for number in range(self.n_members)}
        finished = {} if checkpoint is None else checkpoint.load(seeds, template)
        missing = {number: seed for number, seed in seeds.items() if number not in finished}
        self.strategy_ = choose_strategy(self.strategy, task, len(missing), self.n_jobs)
        keep = _ignore if checkpoint is None else checkpoint.save
        trained = train_members(task, missing, self.strategy_, self.n_jobs, keep)
        together = {**finished, **trained.members}
        self._keep([together[number].restore(template) for number in sorted(together)])
        if not together or trained.error is not None:
            raise trained.error or InvalidInputError("no member was trained; set n_members to at least 1")
        self.root_seed_, self.member_numbers_ = root, sorted(together)
        self._tell_of_interruption(trained)
        held = task.validation_rows
        if held is not None:
            validation = (take_rows(checked, held), take_rows(y, held, "y"))
        self._use_validation(validation)
        return self

    def _check_settings(self) -> None:
        check_integer(self.n_members, "n_members", 1)
        check_choice(self.strategy, STRATEGIES, "strategy")
        check_pooling(self.pooling)
        if isinstance(self.weights, str):
            check_choice(self.weights, ("equal", "tuned"), "weights")
        else:
            check_weights(self.weights, self.n_members)
        if not isinstance(self.recalibrate, (bool, np.bool_)):
            raise InvalidTypeError(f"recalibrate must be True or False, got {self.recalibrate!r}; write True")

    def _check_validation(self, validation: Any) -> None:
        """Refuse to tune or recalibrate on the training data."""
        for name, wanted in (("weights='tuned'", self._tunes), ("recalibrate=True", bool(self.recalibrate))):
            if wanted and validation is None:
                raise InvalidInputError(
                    f"{name} needs data that the members were not trained on, got none; pass "
                    "fit(X, y, validation=0.2) or fit(X, y, validation=(X_val, y_val))"
                )

    @property
    def _tunes(self) -> bool:
        return isinstance(self.weights, str) and self.weights == "tuned"

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

    def _tell_of_interruption(self, trained: Trained) -> None:
        if not trained.interrupted:
            return
        if not isinstance(self.weights, str):  # weights of the members that are there
            given = check_weights(self.weights, self.n_members)[self.member_numbers_]
            total = given.sum()
            self.weights_ = given / total if total > 0 else np.full(len(given), 1 / len(given))
        partly = sum(not member.converged_ for member in self.members_)
        what = f"{len(self.members_)} of {self.n_members} members were finished and are kept"
        if partly:
            what = f"all {partly} members are kept as they were at their best epoch so far"
        warnings.warn(
            f"training of the ensemble was interrupted: {what}; fit again (with checkpoint=, finished "
            "members are not trained again) to have all of them.",
            ConvergenceWarning,
            stacklevel=3,
        )

    def _use_validation(self, validation: Any) -> None:
        if self.recalibrate:
            self.fit_recalibration(*validation)
        if self._tunes:
            self.tune_weights(*validation)

    def fit_recalibration(self, X: Any, y: Any) -> Ensemble:
        r"""Recalibrate each member on these data, :math:`h_m \mapsto a_m + b_m h_m`, before pooling.

        Use data on which the members were not trained. Coefficients are
        multiplied by the slopes :math:`b_m`, so the ensemble stays readable.
        """
        predictions = predict_all(self.members_, X)
        self.recalibrations_ = [Recalibration().fit(prediction, y) for prediction in predictions]
        return self

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


def _ignore(number: int, member: Any) -> None:
    """Keep nothing: there is no checkpoint."""
