"""Which pool, which weights, which correction: candidates side by side, out of fold."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from scipy import stats
from sklearn.model_selection import check_cv

from deeptram._html import HeadedTable
from deeptram._progress import Steps
from deeptram._progress import progress as shown_progress
from deeptram._rows import take_rows
from deeptram._validation import (
    as_list,
    check_choice,
    check_flag,
    check_integer,
    check_same_length,
    first_rows,
    random_generator,
)
from deeptram.errors import DeeptramError, InvalidInputError, InvalidTypeError
from deeptram.evaluation.scores import get as get_score
from deeptram.pooling.correction import KINDS, CorrectedScore, correct
from deeptram.pooling.pool import as_members, get_rule, meaningful, pool
from deeptram.pooling.recalibration import Recalibration
from deeptram.pooling.rule import Rule
from deeptram.pooling.weights import TunedWeights
from deeptram.pooling.weights.log_likelihood import CLOSED_FORM
from deeptram.pooling.weights.problem import problem
from deeptram.pooling.weights.tuning import RowTuning, tune
from deeptram.predictive.base import Predictive

Rows = npt.NDArray[np.int64]
Fold = tuple[Rows, Rows]
Floats = npt.NDArray[np.float64]

WEIGHTS = ("equal", "tuned")
CORRECTIONS = (*KINDS, "recalibration")
LEVEL = 0.95
_FEW_ROWS = 4000  # on which weights are tuned where that is costly


class PoolComparison(HeadedTable):
    """The table of :func:`compare_pools`, best candidate first.

    ``attrs["nested"]`` is the score of the choice itself, ``attrs["left_out"]`` says which candidates have no
    meaning for these members and why.
    """

    whole: ClassVar[frozenset[str]] = frozenset({"pool", "weights", "correction", "score", "difference"})
    decimals: ClassVar[int | None] = 4


@dataclass(frozen=True, eq=False)
class FittedPool:
    """A pool with its weights and its correction, ready for new rows of the same members.

    Attributes
    ----------
    method : str or Rule
    weights : array, shape (M,)
    correction : object with ``apply(pred)``, or None
    tuning : TunedWeights or None
        The certificate of tuned weights.
    latent : str or None
        The scale of the transformation pool where members have different ones: logistic.
    """

    method: str | Rule
    weights: Floats
    correction: Any = None
    tuning: TunedWeights | None = None
    latent: str | None = None

    @classmethod
    def fit(
        cls, method: str | Rule, weights: str, members: Sequence[Predictive], y: Any, score: str
    ) -> FittedPool:
        """Return the pool with equal weights, or with those that are best on these rows."""
        return PoolTask(method, members, y, score).fitted(weights)

    def corrected(self, correction: Any, members: Sequence[Predictive], y: Any, score: str) -> FittedPool:
        """Return the same pool with a correction (None for none) that is fitted to these rows."""
        if correction is None:
            return self
        return replace(self, correction=fit_correction(correction, self.apply(members), y, score))

    def apply(self, members: Sequence[Predictive]) -> Predictive:
        """Return the pool of these members."""
        pooled = pool(members, method=self.method, weights=self.weights, latent=self.latent)
        return pooled if self.correction is None else self.correction.apply(pooled)


def fit_correction(correction: Any, pred: Predictive, y: Any, score: str) -> Any:
    """Return a correction that is fitted to these rows: by its name, or a copy of an object.

    Examples
    --------
    >>> pred = Predictive.from_proba([[0.5, 0.5]] * 4)
    >>> fit_correction("spread", pred, [0, 1, 1, 0], "nll").spread
    1.0
    """
    if correction == "recalibration":
        return Recalibration().fit(pred, y)
    if isinstance(correction, str):
        return correct(pred, y, correction, score=score)
    return copy.deepcopy(correction).fit(pred, y)


def compare_pools(
    members: Any,
    y: Any,
    *,
    methods: Any = None,
    weights: Sequence[str] = WEIGHTS,
    corrections: Sequence[Any] = (None, "spread"),
    cv: Any = 5,
    score: str = "nll",
    random_state: Any = 0,
    nested: bool = True,
    progress: bool | str = "auto",
) -> PoolComparison:
    r"""Compare pools, weights and corrections on data that the members were not fitted to.

    Cross-fitted: weights and corrections are found on all folds but one and scored on that one, so no row
    helps to choose what it is scored with.

    The best of many looks better than it is. The price of choosing is told in the header: every fold is
    scored with the candidate that is chosen without it (``attrs["nested"]``), minus the score of the best
    row. The choice is cross-fitted, too: for a fold f the candidates are compared on every other fold g with
    weights and corrections from the rows outside both, so nothing about f enters it. That takes
    :math:`k (k - 1) / 2` further fits of what is fitted, and at least three folds (else it is NaN).

    Weights of pools whose scores have no closed form in them, or are integrals over a continuous outcome
    (``"log-linear-density"``), are tuned on at most 4,000 rows of a fold.

    Parameters
    ----------
    members : sequence of Predictive, or array of shape (M, n, K)
        As for ``deeptram.pool``: predictions of rows on which the members were **not** trained.
    y : array-like of n outcomes, or Surv
    methods : sequence of str or Rule, optional
        Pools; by default all that there are (of classes without an order those that do not look at one).
        Those that have no meaning for the outcome are left out, with the reason in ``attrs["left_out"]``.
    weights : sequence of {"equal", "tuned"}
    corrections : sequence
        None, ``"spread"``, ``"intercept"`` or ``"both"`` (on the scale of the outcome, ``deeptram.correct``),
        ``"recalibration"`` (on that of h), or objects with ``fit(pred, y)`` and ``apply(pred)``.
    cv : int or splitter
        Number of folds (shuffled), or a scikit-learn splitter.
    score : {"nll", "rps", "brier", "quadratic", "crps"}
        By which weights are tuned and candidates compared; smaller is better.
    random_state : int, numpy Generator or None
        Decides on the folds.
    nested : bool
        Whether the price of choosing is found; without it ``attrs["nested"]`` is NaN.
    progress : bool or "auto"
        Whether a bar on stderr shows how far it is; ``"auto"``: on terminals and in notebooks.

    Returns
    -------
    DataFrame
        Best first: ``pool, weights, correction, score`` (mean out of fold), ``difference`` to the best row
        with its interval ``lower, upper`` (95 %, normal, from the paired differences of the rows). Where
        some score is infinite a column ``note`` says in which rows: outcomes without probability, as weights
        of 0 may leave them on rows that they were not tuned on. Such a candidate is never chosen.

    Examples
    --------
    >>> import deeptram as dt
    >>> rng = np.random.default_rng(1)
    >>> x = rng.normal(size=400)
    >>> y = np.digitize(x + rng.logistic(size=400), [-1.0, 1.0])
    >>> cut = np.array([-1.0, 1.0])
    >>> members = [dt.Predictive.from_trafo(cut - slope * x[:, None]) for slope in (0.5, 1.0, 3.0)]
    >>> table = dt.compare_pools(members, y, methods=["linear", "transformation"], corrections=[None])
    >>> table[["pool", "weights", "score"]].round(3)
                 pool weights  score
    0          linear   tuned  0.999
    1  transformation   tuned  1.001
    2          linear   equal  1.010
    3  transformation   equal  1.017
    """
    checked = as_members(members)
    n = check_same_length(members=checked[0], y=y)
    generator = random_generator(random_state)
    rules, ways, changes = _asked(meaningful(checked) if methods is None else methods, weights, corrections)
    folds = folds_of(cv, n, y, generator)
    pairs = [*itertools.combinations(range(len(folds)), 2)] if nested and len(folds) > 2 else []
    tried: list[_Candidate] = []
    total = len(rules) * len(ways) * (len(folds) + len(pairs))
    shown = None if check_flag(progress, "progress", also=("auto",)) == "auto" else bool(progress)
    with shown_progress("comparing pools", total, shown=shown) as steps:
        for rule in rules:
            one = PoolTask(rule, checked, y, score)
            for way in ways:
                tried += _judged(one, way, changes, folds, pairs, steps)
    left_out: dict[str, DeeptramError] = {one.label: one.error for one in tried if one.error is not None}
    candidates = [one for one in tried if one.error is None]
    if not candidates:
        raise next(iter(left_out.values()))
    rows, elsewhere = np.stack([one.rows for one in candidates]), [one.elsewhere for one in candidates]
    table = _table([one.names for one in candidates], rows)
    best = ", ".join([*table.loc[0, ["pool", "weights"]], f"correction {table.loc[0, 'correction']}"])
    chosen = [
        rows[np.argmin(sums), held] for sums, (_, held) in zip(np.transpose(elsewhere), folds, strict=True)
    ]
    value = float(np.concatenate(chosen).mean()) if pairs else float("nan")
    table.attrs.update(
        nested=value,
        left_out={label: str(error) for label, error in left_out.items()},
        header=[
            f"Pools of {len(checked)} members: {score} of {n} rows out of fold ({len(folds)} folds)",
            f"best: {best}, score {table.loc[0, 'score']:.4f}",
            *_price(value - table.loc[0, "score"]),
            f"difference, lower, upper: to the best row, paired, {100 * LEVEL:g} % limits",
            *_reasons(left_out),
        ],
    )
    return table


def folds_of(cv: Any, n: int, y: Any, generator: np.random.Generator) -> list[Fold]:
    """Return the rows to fit to and to hold out of every fold; each row is held out once.

    Parameters
    ----------
    cv : int or splitter
        Number of folds (shuffled by the generator), or a scikit-learn splitter.
    n : int
        Number of rows.
    y : outcomes
        For splitters that look at them.
    generator : Generator

    Examples
    --------
    >>> [held.tolist() for _, held in folds_of(2, 4, None, np.random.default_rng(0))]
    [[0, 2], [1, 3]]
    """
    if isinstance(cv, (int, np.integer)) and not isinstance(cv, bool):
        count = check_integer(cv, "cv", 2)
        if count > n:
            raise InvalidInputError(
                f"cv must not exceed the number of rows, got {cv} folds for {n} rows; use fewer folds"
            )
        held_out = np.array_split(generator.permutation(n), count)
        return [(np.setdiff1d(np.arange(n), held), np.sort(held)) for held in held_out]
    try:
        folds = [(train, held) for train, held in check_cv(cv).split(np.zeros((n, 1)), y)]
        held = np.sort(np.concatenate([held for _, held in folds]))
    except (TypeError, ValueError) as error:
        raise InvalidInputError(
            f"cv must be a number of folds or a scikit-learn splitter, got {cv!r} ({error}); use cv=5"
        ) from error
    if not np.array_equal(held, np.arange(n)):
        raise InvalidInputError(
            f"cv must hold out every row once, got {len(held)} rows held out, {len(np.unique(held))} of them "
            f"different, of {n}; use KFold or the like"
        )
    return folds


def _asked(methods: Any, weights: Any, corrections: Any) -> tuple[list[Any], list[str], list[Any]]:
    """Check what is to be compared."""
    rules = _several(methods, "methods", "pools")
    ways = _several(weights, "weights", "'equal' and 'tuned'")
    changes = _several(corrections, "corrections", "None and names")
    for rule in rules:
        get_rule(rule, "methods")
    for way in ways:
        check_choice(way, WEIGHTS, "weights")
    for change in changes:
        _check_correction(change)
    return rules, ways, changes


def _check_correction(correction: Any) -> None:
    if isinstance(correction, str):
        check_choice(correction, CORRECTIONS, "corrections")
    elif correction is not None and not all(
        callable(getattr(correction, name, None)) for name in ("fit", "apply")
    ):
        raise InvalidTypeError(
            f"corrections must be None, {', '.join(map(repr, CORRECTIONS))} or objects with fit and apply, "
            f"got {type(correction).__name__}; use for example deeptram.calibration.Temperature()"
        )


def _several(given: Any, name: str, entries: str) -> list[Any]:
    found = [given] if given is None or isinstance(given, (str, Rule)) else as_list(given, name, entries)
    if not found:
        raise InvalidInputError(f"{name} must hold something to compare, got nothing; leave the argument out")
    return found


def _name(correction: Any) -> str:
    if correction is None:
        return "none"
    return correction if isinstance(correction, str) else type(correction).__name__


@dataclass(eq=False)
class _Candidate:
    """A pool, the way to its weights and a correction, by their names, with what they score out of fold.

    ``rows`` are the scores of all rows, ``elsewhere`` for every fold the sum of the scores of the others from
    fits that knew neither; ``error`` says why there are none.
    """

    names: tuple[str, str, str]
    rows: Floats
    elsewhere: Floats
    error: DeeptramError | None = None

    @property
    def label(self) -> str:
        """The names in a line."""
        return ", ".join(self.names)


def _judged(
    one: PoolTask, way: str, changes: Sequence[Any], folds: Sequence[Fold], pairs: Sequence[Any], steps: Steps
) -> list[_Candidate]:
    """Return one way to weights with every correction, fitted to each fold's rows, and outside each pair."""
    n, name = len(one.members[0]), get_rule(one.rule).name
    tried = [
        _Candidate((name, way, _name(change)), np.full(n, np.nan), np.zeros(len(folds))) for change in changes
    ]
    for known, held in folds:
        for candidate, found in zip(tried, one.scores(way, changes, known, held), strict=True):
            if isinstance(found, DeeptramError):
                candidate.error = candidate.error or found
            else:
                candidate.rows[held] = found
        steps.done(f"{name}, {way}")
    kept = [(c, change) for c, change in zip(tried, changes, strict=True) if c.error is None]
    for f, g in pairs if kept else []:
        (first, held), (second, also) = folds[f], folds[g]
        new = np.concatenate([held, also])
        scores = one.scores(way, [change for _, change in kept], np.intersect1d(first, second), new)
        for (candidate, _), found in zip(kept, scores, strict=True):
            of_rows = np.full(len(new), np.inf) if isinstance(found, DeeptramError) else found
            candidate.elsewhere[f] += of_rows[len(held) :].sum()
            candidate.elsewhere[g] += of_rows[: len(held)].sum()
        steps.done(f"{name}, {way}")
    return tried


class PoolTask:
    """A pool of all rows, to be fitted to some and judged on others: members are read once for all folds.

    Parameters
    ----------
    rule : str or Rule
    members : sequence of Predictive
    y : array-like of n outcomes, or Surv
    score : str

    Examples
    --------
    >>> members = [Predictive.from_proba([[p, 1 - p]] * 4) for p in (0.2, 0.9)]
    >>> PoolTask("linear", members, [0, 1, 1, 1], "nll").fitted("tuned", np.arange(1, 4)).weights
    array([1., 0.])
    """

    def __init__(self, rule: Any, members: Sequence[Predictive], y: Any, score: str) -> None:
        self.rule, self.members, self.y, self.score = rule, members, y, score
        own = {member.latent.name for member in members if member.latent is not None}
        self._latent = "logistic" if len(own) > 1 else None

    @cached_property
    def _equal(self) -> FittedPool:
        m = len(self.members)
        return FittedPool(self.rule, np.full(m, 1 / m), latent=self._latent)

    @cached_property
    def _with_equal(self) -> _Judge:
        return _Judge(self._equal.apply(self.members), self.y, self.score, keep=True)

    @cached_property
    def _parts(self) -> RowTuning:
        return RowTuning(problem(self.members, self.y, self.rule, self.score, self._latent))

    @property
    def _is_costly(self) -> bool:
        """Whether weights are found by differences, or from some thousand numbers for every row."""
        rule = get_rule(self.rule)
        return rule.name not in CLOSED_FORM or (rule.integrated and self.members[0].kind == "continuous")

    def fitted(self, way: str, rows: Rows | None = None) -> FittedPool:
        """Return the pool with equal weights, or with those that are best on some rows (default: all)."""
        if way == "equal":
            return self._equal
        known = np.arange(len(self.members[0])) if rows is None else rows
        if self._is_costly and len(known) > _FEW_ROWS:
            rows = known[:: -(-len(known) // _FEW_ROWS)]
        tuned = tune(self._parts.task) if rows is None else self._parts.tune(rows)
        return FittedPool(tuned.rule or self.rule, tuned.weights, tuning=tuned, latent=self._latent)

    def scores(
        self, way: str, changes: Sequence[Any], known: Rows, new: Rows
    ) -> list[Floats | DeeptramError]:
        """Return the scores of new rows after every correction, all fitted to known ones; or why not."""
        try:
            fitted = self.fitted(way, known)
            judge = self._judge_of(fitted)
        except DeeptramError as error:
            return [error for _ in changes]
        return [_tried(judge.rows, change, known, new) for change in changes]

    def _judge_of(self, fitted: FittedPool) -> _Judge:
        """Return the scores of a pool; those with equal weights are kept, whichever way they were found."""
        values = [get_rule(one.method).values() for one in (fitted, self._equal)]
        if values[0] == values[1] and np.array_equal(fitted.weights, self._equal.weights):
            return self._with_equal
        return _Judge(fitted.apply(self.members), self.y, self.score)


class _Judge:
    """The scores of a pool of all rows, as it is and corrected; ``keep``: many rows will be asked for."""

    def __init__(self, pooled: Predictive, y: Any, score: str, keep: bool = False) -> None:
        self.pooled, self.y, self.score, self._keep = pooled, y, score, keep

    @cached_property
    def _plain(self) -> Floats:
        return self._scores(self.pooled, self.y)

    def _scores(self, pred: Predictive, y: Any) -> Floats:
        return np.asarray(get_score(self.score)(y, pred, reduction="none"), dtype=np.float64)

    @cached_property
    def _corrected(self) -> CorrectedScore:
        return CorrectedScore(self.pooled, self.y, self.score)

    def rows(self, change: Any, known: Rows, new: Rows) -> Floats:
        """Return the scores of new rows after a correction that is fitted to known ones."""
        if isinstance(change, str) and change in KINDS:
            found = self._corrected.part(known).fit(change)
            return self._corrected.part(new).rows(found.intercept, found.spread)
        if change is None and self._keep:
            return self._plain[new]
        pooled = self.pooled[new]
        if change is not None:
            known_y = take_rows(self.y, known, "y")
            pooled = fit_correction(change, self.pooled[known], known_y, self.score).apply(pooled)
        return self._scores(pooled, take_rows(self.y, new, "y"))


def _tried(function: Callable[..., Floats], *given: Any) -> Floats | DeeptramError:
    try:
        return function(*given)
    except DeeptramError as error:
        return error


def _table(names: Sequence[tuple[str, str, str]], rows: Floats) -> PoolComparison:
    """Return the candidates in the order of their mean scores, with differences to the first."""
    means = rows.mean(axis=1)
    order = np.argsort(means, kind="stable")
    with np.errstate(invalid="ignore"):  # an infinite score has no interval
        differences = rows[order] - rows[order[0]]
        half = stats.norm.ppf((1 + LEVEL) / 2) * differences.std(axis=1) / np.sqrt(rows.shape[1])
        centre = means[order] - means[order[0]]
    table = PoolComparison([names[place] for place in order], columns=["pool", "weights", "correction"])
    table["score"], table["difference"] = means[order], centre
    table["lower"], table["upper"] = centre - half, centre + half
    if np.isinf(means).any():
        table["note"] = [_infinite(rows[place]) for place in order]
    return table


def _infinite(scores: Floats) -> str:
    """Return why a candidate is never chosen: outcomes that it gives no probability; nothing for others."""
    rows = np.isinf(scores)
    return f"infinite in {first_rows(rows)}, so not to be chosen" if rows.any() else ""


def _price(value: float) -> list[str]:
    if np.isnan(value):
        return []
    return [f"price of choosing: {value:.4f} (each fold scored with what is chosen without it)"]


def _reasons(left_out: dict[str, DeeptramError]) -> list[str]:
    """Return one line per reason, with the candidates it is about."""
    by_reason: dict[str, list[str]] = {}
    for label, error in left_out.items():
        by_reason.setdefault(str(error), []).append(label)
    return [f"left out: {'; '.join(labels)}: {reason}" for reason, labels in by_reason.items()]
