"""Members from cross-validation folds."""

from __future__ import annotations

from typing import Any

import joblib
import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.model_selection import KFold, StratifiedKFold, check_cv

from deeptram._rows import RowNumbers, count_rows, take_rows
from deeptram._validation import check_integer, check_sample_weight
from deeptram.bases import Bernstein
from deeptram.estimators.base import BaseTram
from deeptram.fitting.deep.seeds import member_seed
from deeptram.model.terms import Spec

Array = NDArray[np.float64]


def fit_folds(
    template: BaseTram, X: Any, y: Any, cv: Any, sample_weight: Any, root: int, n_jobs: int | None
) -> tuple[list[BaseTram], Array]:
    """Return one member per fold, trained on the other folds, and its score on its own.

    Parameters
    ----------
    template : BaseTram
        The unfitted model.
    X, y, sample_weight : data
    cv : int or splitter
    root : int
        Seed of the folds and of the members.
    n_jobs : int or None

    Returns
    -------
    members : list of fitted models
    scores : array
        Mean log-likelihoods of the held-out folds.
    """
    weights = check_sample_weight(sample_weight, count_rows(X))
    if weights is not None and not weights.all():  # a weight of zero is no observation at all
        used = np.flatnonzero(weights)
        X, y, weights = take_rows(X, used), take_rows(y, used, "y"), weights[used]
    prepared: BaseTram = clone(template)
    _, matrices, encoded, _ = prepared._prepare(X, y, weights)
    codes = encoded.codes if encoded.codes is not None else np.zeros(len(encoded))
    splitter = _splitter(cv, codes, prepared.outcome_.is_discrete, root)
    common = _with_common_outcome(template, prepared)
    jobs = (
        joblib.delayed(_fit_fold)(
            clone(common).set_params(random_state=member_seed(root, number)),
            X,
            y,
            None if weights is None else weights[np.sort(train)],
            np.sort(train),
            np.sort(test),
        )
        for number, (train, test) in enumerate(splitter.split(matrices.x, codes))
    )
    results = joblib.Parallel(n_jobs=n_jobs)(jobs)
    return [member for member, _ in results], np.array([score for _, score in results])


def _splitter(cv: Any, codes: NDArray[Any], discrete: bool, root: int) -> Any:
    if isinstance(cv, (int, np.integer)) and not isinstance(cv, bool):
        kind = StratifiedKFold if discrete and np.bincount(codes).min() >= cv else KFold
        return kind(check_integer(cv, "cv", 2), shuffle=True, random_state=root % 2**32)
    return check_cv(cv, codes, classifier=discrete)


def _with_common_outcome(template: BaseTram, prepared: BaseTram) -> BaseTram:
    """Return the model with levels and support of all rows, so that all members speak of the same outcome."""
    arguments = template.get_params(deep=False)
    outcome = prepared.outcome_
    known: dict[str, Any] = {}
    if "levels" in arguments and outcome.levels is not None:
        known["levels"] = list(outcome.levels)
    if "support" in arguments and isinstance(outcome.basis, Bernstein):
        known["support"] = outcome.basis.support
    if "log_first" in arguments:
        known["log_first"] = outcome.log_first
    template.set_params(**known)
    return template


def _fit_fold(
    model: BaseTram, X: Any, y: Any, weights: Array | None, train: RowNumbers, test: RowNumbers
) -> tuple[BaseTram, float]:
    held = take_rows(X, test), take_rows(y, test, "y")
    validation = held if Spec.of(model.terms).is_deep else None
    model.fit(take_rows(X, train), take_rows(y, train, "y"), sample_weight=weights, validation=validation)
    return model, model.score(*held)
