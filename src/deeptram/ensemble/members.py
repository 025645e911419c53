"""What a member may be, a fitted model of any kind, and members that differ in their data."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import TYPE_CHECKING, Any

import joblib
import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.model_selection import KFold, StratifiedKFold, check_cv
from sklearn.utils.validation import check_is_fitted

from deeptram._arrays import row_numbers
from deeptram._rows import RowNumbers, count_rows, take_rows
from deeptram._validation import check_integer, check_sample_weight
from deeptram.bases import Bernstein
from deeptram.ensemble.plans import check_model, meant_pool
from deeptram.errors import InvalidInputError, InvalidTypeError, UnfinishedTrainingWarning, UnsupportedError
from deeptram.estimators.base import BaseTram
from deeptram.fitting.deep.seeds import member_seed, root_seed
from deeptram.inputs.entries import readable_entries
from deeptram.model.deep import row_parameters_of
from deeptram.model.terms import Spec
from deeptram.pooling import Rule
from deeptram.pooling.pool import check_weights
from deeptram.pooling.weights import tune_weights
from deeptram.predictive import Predictive
from deeptram.predictive.joined import join_rows

if TYPE_CHECKING:
    from deeptram.ensemble.ensemble import Ensemble

Array = NDArray[np.float64]


# -- fitted models of any kind -----------------------------------------------------------------------


def gather_members(members: Any) -> list[Any]:
    """Return fitted models of any kind; paths of saved ones are loaded.

    Parameters
    ----------
    members : sequence
        Fitted deeptram models, anything with ``predict_distribution`` or
        ``predict_proba`` (and ``classes_``), or paths of saved models.
    """
    from deeptram.ensemble.persistence import load  # which needs Ensemble

    if isinstance(members, (str, bytes)) or not hasattr(members, "__iter__"):
        raise InvalidTypeError(
            f"members must be a sequence of fitted models, got {type(members).__name__}; put them into a list"
        )
    loaded = [load(member) if isinstance(member, (str, os.PathLike)) else member for member in members]
    if not loaded:
        raise InvalidInputError("members must hold at least one fitted model, got none; pass some")
    return [_check_member(member, number) for number, member in enumerate(loaded)]


def _check_member(member: Any, number: int) -> Any:
    """Return a member if it can predict distributions, else say what is missing."""
    if isinstance(member, BaseTram):
        check_is_fitted(member, "model_")
        return member
    if not any(callable(getattr(member, name, None)) for name in ("predict_distribution", "predict_proba")):
        raise InvalidTypeError(
            "members must be fitted models with predict_distribution or predict_proba, or paths of saved "
            f"ones, got {type(member).__name__} at position {number}; wrap it in a class with "
            "predict_distribution(X)"
        )
    return member


def knows_its_distribution(member: Any) -> bool:
    """Whether a member has ``predict_distribution``, which knows the order of its levels."""
    return callable(getattr(member, "predict_distribution", None))


def predict_one(member: Any, X: Any, levels: Sequence[Any] | None = None) -> Predictive:
    """Return the predictive distributions of one member.

    Parameters
    ----------
    member : object
        With ``predict_distribution``, or ``predict_proba`` and ``classes_``.
    X : data
    levels : sequence, optional
        The order of the levels for a classifier that has the same ones; it sorts them itself.
    """
    if knows_its_distribution(member):
        predictive = member.predict_distribution(X)
        if not isinstance(predictive, Predictive):
            raise InvalidTypeError(
                f"predict_distribution of {type(member).__name__} must return a Predictive, got "
                f"{type(predictive).__name__}; build it with Predictive.from_proba, from_cdf, ..."
            )
        return predictive
    same = levels is not None and set(levels) == set(getattr(member, "classes_", ()))
    return Predictive.from_sklearn(member, X, levels if same else None)


def predict_all(members: Sequence[Any], X: Any) -> list[Predictive]:
    """Return the predictive distributions of all members; deep ones read the inputs once.

    Parameters
    ----------
    members : sequence of M fitted models
    X : data
    """
    if len(members) == 0:
        raise InvalidInputError("an ensemble needs at least one member, got none; fit it first")
    first = members[0]
    alike = all(isinstance(member, BaseTram) and member.design_ is first.design_ for member in members)
    if not (alike and all(member.spec_.is_deep for member in members)):
        found = {m: predict_one(one, X) for m, one in enumerate(members) if knows_its_distribution(one)}
        order = next((pred.levels for pred in found.values()), None)
        return [found[m] if m in found else predict_one(one, X, order) for m, one in enumerate(members)]
    X = first.check_X(X, first.spec_, reset=False)
    matrices = first.design_.matrices(X, estimator=type(first).__name__)
    parameters = row_parameters_of([member.model_ for member in members], X, matrices)
    return [
        member.outcome_.predictive(each.numpy(), member.latent_)
        for member, each in zip(members, parameters, strict=True)
    ]


def out_of_fold(
    members: Sequence[BaseTram], X: Any, y: Any, rows: Sequence[RowNumbers]
) -> tuple[Any, list[Predictive]]:
    """Return outcomes, and predictions of members that were not trained on them.

    Parameters
    ----------
    members : sequence of J K fitted models
        K folds of each of J kinds, one kind after the other.
    X, y : data
        The training data.
    rows : sequence of J K arrays of int
        Those that each member was not trained on.

    Returns
    -------
    y : the outcomes in the order of the folds
    predictions : list of J Predictive
    """
    folds = next((k for k in range(1, len(rows)) if np.array_equal(rows[k], rows[0])), len(rows))
    if len(members) % folds or len(members) == folds:
        raise InvalidInputError(
            f"weights and pools are chosen out of fold among kinds of {folds} members each (one per fold), "
            f"got {len(members)} members; set n_members to {2 * folds}, {3 * folds} or the like"
        )
    each = [predict_all([members[number]], take_rows(X, rows[number]))[0] for number in range(len(members))]
    kinds = [join_rows(each[start : start + folds]) for start in range(0, len(members), folds)]
    order = np.concatenate([rows[k] for k in range(folds)])
    return take_rows(y, order, "y"), kinds


# -- members that differ in their data ---------------------------------------------------------------


@dataclass(frozen=True)
class Bags:
    """Bootstrap samples as folds: each member sees n rows drawn with replacement, and not those left over.

    For :meth:`deeptram.Ensemble.from_folds`, whose ``random_state`` decides the draws.

    Parameters
    ----------
    n_members : int

    Examples
    --------
    >>> bags = Bags(2).split_rows(5, 1)
    >>> [(drawn.tolist(), left.tolist()) for drawn, left in bags]
    [([0, 2, 2, 3, 4], [1]), ([0, 1, 1, 4, 4], [2, 3])]
    """

    n_members: int = 10

    def __post_init__(self) -> None:
        """Check the number once."""
        check_integer(self.n_members, "n_members", 1)

    def split_rows(self, n: int, seed: int) -> list[tuple[RowNumbers, RowNumbers]]:
        """Return the rows drawn and the rows left over, for each member."""
        check_integer(n, "the number of rows", 2)
        generator = np.random.default_rng(seed)
        found: list[tuple[RowNumbers, RowNumbers]] = []
        while len(found) < self.n_members:
            drawn = np.sort(generator.integers(n, size=n))
            left = np.setdiff1d(np.arange(n), drawn)
            if len(left) and len(left) < n - 1:  # a sample of one distinct row, or of all, is drawn again
                found.append((drawn, left))
        return found


@dataclass(frozen=True, eq=False)
class Fold:
    """The members trained without one fold: their scores on it, and their weights tuned on it."""

    members: list[BaseTram]
    scores: Array
    weights: Array


def fit_folds(
    template: BaseTram,
    X: Any,
    y: Any,
    cv: Any,
    sample_weight: Any,
    root: int,
    n_jobs: int | None,
    n_members: int = 1,
    pooling: str | Rule | None = None,
    given: Any = None,
) -> list[Fold]:
    """Return the members of each fold, trained on the other folds.

    Parameters
    ----------
    template : BaseTram
        The unfitted model.
    X, y, sample_weight : data
    cv : int, splitter, list of pairs or Bags
    root : int
        Seed of the folds and of the members.
    n_jobs : int or None
    n_members : int
        Members per fold.
    pooling : str, Rule or None
        The pool whose weights are tuned on each fold; None for equal weights.
    given : array-like, optional
        Weights of all members, fold by fold, to be checked before training.
    """
    check_integer(n_members, "n_members", 1)
    if n_members > 1:
        check_model(template)
    X = readable_entries(X)
    weights = check_sample_weight(sample_weight, count_rows(X))
    cv = _checked_cv(cv, count_rows(X))
    if weights is not None and not weights.all():  # a weight of zero is no observation at all
        used = np.flatnonzero(weights)
        cv = _among(cv, used) if isinstance(cv, list) else cv
        X, y, weights = take_rows(X, used), take_rows(y, used, "y"), weights[used]
    prepared: BaseTram = clone(template)
    _, matrices, encoded, _ = prepared.prepare(X, y, weights)
    codes = encoded.codes if encoded.codes is not None else np.zeros(len(encoded))
    if isinstance(cv, Bags):
        folds = cv.split_rows(len(encoded), root)
    else:
        folds = _folds(cv, matrices.x, codes, prepared.outcome_.is_discrete, root)
    if given is not None:
        check_weights(given, len(folds) * n_members)
    common = _with_common_outcome(template, prepared)
    jobs = (
        joblib.delayed(_fit_fold)(
            [
                clone(common).set_params(random_state=member_seed(root, number * n_members + m))
                for m in range(n_members)
            ],
            X,
            y,
            weights,
            train,
            test,
            pooling,
        )
        for number, (train, test) in enumerate(folds)
    )
    return list(joblib.Parallel(n_jobs=n_jobs)(jobs))


def fit_exact_bags(
    ensemble: Ensemble, template: BaseTram, X: Any, y: Any, sample_weight: Any, validation: Any
) -> None:
    """Fit a model without networks to bootstrap samples of all rows, each to its optimum, in place.

    Parameters
    ----------
    ensemble : Ensemble
        With ``members="bags"``.
    template : BaseTram
        The unfitted model.
    X, y, sample_weight : data
    validation : (X, y) or None
        Data on which weights are chosen afterwards.
    """
    if ensemble.vary or ensemble.checkpoint is not None or isinstance(validation, Real):
        raise UnsupportedError(
            "bags of a model without networks are exact fits to samples of all rows, got vary, checkpoint or "
            "a share of validation rows; leave it out, or pass validation=(X_val, y_val) to choose weights"
        )
    root = root_seed(ensemble.random_state)
    folds = fit_folds(template, X, y, Bags(ensemble.n_members), sample_weight, root, ensemble.n_jobs)
    ensemble._keep([fold.members[0] for fold in folds])
    ensemble.root_seed_, ensemble.member_numbers_ = root, list(range(len(folds)))
    ensemble.strategy_ = "sequential" if ensemble.n_jobs in (None, 1) else "parallel"


def _checked_cv(cv: Any, n: int) -> Any:
    """Return a number of folds, a splitter or bags as they are, and other folds as a list of their rows."""
    if cv is None or isinstance(cv, Bags):
        return cv
    if isinstance(cv, (int, np.integer)) and not isinstance(cv, bool):
        return check_integer(cv, "cv", 2)
    expected = "cv must be a number of folds, a scikit-learn splitter, a list of (train, test) or dt.Bags(M)"
    if isinstance(cv, type):
        raise InvalidTypeError(
            f"{expected}, got the class {cv.__name__}; make an object of it, as in {cv.__name__}(5)"
        )
    if isinstance(cv, (str, bytes, Mapping)) or not (hasattr(cv, "split") or hasattr(cv, "__iter__")):
        raise InvalidTypeError(f"{expected}, got {cv!r}; write cv=5")
    if hasattr(cv, "split"):
        return cv
    pairs = list(cv)
    if not all(isinstance(pair, (tuple, list)) and len(pair) == 2 for pair in pairs):
        raise InvalidInputError(f"{expected}, got other entries in a {type(cv).__name__}; pass pairs of rows")
    return [(row_numbers(train, n, "cv"), row_numbers(test, n, "cv")) for train, test in pairs]


def _among(folds: list[tuple[RowNumbers, RowNumbers]], used: RowNumbers) -> list[tuple[RowNumbers, ...]]:
    """Return the places of the rows of folds among those that are used; others are left out."""
    return [tuple(np.searchsorted(used, rows[np.isin(rows, used)]) for rows in fold) for fold in folds]


def _folds(
    cv: Any, x: Array, codes: NDArray[Any], discrete: bool, root: int
) -> list[tuple[RowNumbers, RowNumbers]]:
    """Return the rows of each fold, those trained on and those held out."""
    n = len(codes)
    if isinstance(cv, int):
        if cv > n:
            raise InvalidInputError(
                f"cv must not exceed the number of rows, got {cv} folds for {n} rows; use fewer folds"
            )
        kind = StratifiedKFold if discrete and np.bincount(codes).min() >= cv else KFold
        cv = kind(cv, shuffle=True, random_state=root % 2**32)
    try:
        found = cv if isinstance(cv, list) else list(check_cv(cv, codes, classifier=discrete).split(x, codes))
    except (TypeError, ValueError) as error:
        reason = " ".join(str(error).split()).rstrip(".")
        raise InvalidInputError(
            f"cv must divide {n} rows into folds by itself, got {type(cv).__name__}, which says: {reason}; "
            "pass its folds instead, as in cv=list(GroupKFold(5).split(X, y, groups))"
        ) from error
    numbers = [[np.sort(row_numbers(rows, n, "cv")) for rows in fold] for fold in found]
    folds = [(train, test) for train, test in numbers]
    if not folds or any(len(train) == 0 or len(test) == 0 for train, test in folds):
        raise InvalidInputError(
            f"cv must give folds with rows to train on and rows held out, got {len(folds)} folds, not all "
            "with both; pass cv=5 or the like"
        )
    return folds


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
    models: list[BaseTram],
    X: Any,
    y: Any,
    weights: Array | None,
    train: RowNumbers,
    test: RowNumbers,
    pooling: str | Rule | None,
) -> Fold:
    """Train the members of a fold on its rows, and judge them on those held out, all with their weights."""
    own, left = (None, None) if weights is None else (weights[train], weights[test])
    X_train, y_train = take_rows(X, train), take_rows(y, train, "y")
    X_held, y_held = take_rows(X, test), take_rows(y, test, "y")
    validation = (X_held, y_held, left) if Spec.of(models[0].terms).is_deep else None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnfinishedTrainingWarning)  # said once, of the members of all folds
        for model in models:
            model.fit(X_train, y_train, sample_weight=own, validation=validation)
    scores = np.array([model.score(X_held, y_held, left) for model in models])
    if pooling is None:
        return Fold(models, scores, np.full(len(models), 1 / len(models)))
    method = meant_pool(pooling, models[0].outcome_kind)
    tuned = tune_weights(predict_all(models, X_held), y_held, method=method, score=models[0].loss)
    return Fold(models, scores, tuned.weights)
