"""Ensembles of models that are fitted already, or of one model per cross-validation fold."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from sklearn.base import clone

from deeptram._validation import check_weights
from deeptram.ensemble.folds import fit_folds
from deeptram.ensemble.foreign import check_member
from deeptram.errors import InvalidInputError, InvalidTypeError, UnsupportedError
from deeptram.estimators.base import BaseTram
from deeptram.fitting.deep.seeds import root_seed
from deeptram.model.terms import Spec
from deeptram.pooling import Rule, get_rule


class OriginsMixin:
    """Other ways to make an ensemble than to train its members."""

    @classmethod
    def from_members(
        cls, members: Sequence[Any], weights: Any = None, *, pooling: str | Rule = "transformation"
    ) -> Any:
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
        if isinstance(members, (str, bytes)) or not hasattr(members, "__iter__"):
            raise InvalidTypeError(
                f"members must be a sequence of fitted models, got {type(members).__name__}; "
                "put them into a list"
            )
        loaded = [_load(member) if isinstance(member, (str, os.PathLike)) else member for member in members]
        if not loaded:
            raise InvalidInputError("members must hold at least one fitted model, got none; pass some")
        checked = [check_member(member, number) for number, member in enumerate(loaded)]
        check_pooling(pooling)
        model = clone(checked[0]) if isinstance(checked[0], BaseTram) else None
        given = "equal" if weights is None else check_weights(weights, len(checked))
        ensemble: Any = cls(model, len(checked), pooling=pooling, weights=given)  # type: ignore[call-arg]
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
    ) -> Any:
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


def check_model(model: Any, *, deep: bool = True) -> BaseTram:
    """Return a fresh copy of the model that members are to be made of.

    Parameters
    ----------
    model : Tram or one of its presets
    deep : bool
        Whether it needs networks.
    """
    if not isinstance(model, BaseTram):
        raise InvalidTypeError(
            f"model must be a dt.Tram or one of its presets, got {type(model).__name__}; "
            "for fitted models of any kind use Ensemble.from_members([...])"
        )
    template: BaseTram = clone(model)
    if deep and not Spec.of(template.terms).is_deep:
        raise UnsupportedError(
            "members of an ensemble differ in their networks' initial weights, got a model without networks, "
            "whose exact fit is the same for every member; use Ensemble.from_folds(model, X, y, cv=5), or "
            "Ensemble.from_members([...]) with models fitted to bootstrap samples"
        )
    return template


def check_pooling(pooling: Any) -> None:
    """Raise unless this is the name of a pool, or a rule (``QuasiArithmetic`` or one of your own).

    Examples
    --------
    >>> check_pooling("linear")
    """
    get_rule(pooling, "pooling")


def _load(path: str | os.PathLike[str]) -> Any:
    from deeptram.ensemble.persistence import load

    return load(path)
