"""Which pool, which weights, which correction: candidates side by side, out of fold."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from scipy import stats
from sklearn.model_selection import check_cv

from deeptram._html import HeadedTable
from deeptram._progress import progress
from deeptram._rows import take_rows
from deeptram._validation import as_list, check_choice, check_integer, check_same_length, random_generator
from deeptram.errors import DeeptramError, InvalidInputError, InvalidTypeError
from deeptram.evaluation.scores import get as get_score
from deeptram.pooling.correction import KINDS, correct
from deeptram.pooling.pool import METHODS, as_members, get_rule, pool
from deeptram.pooling.recalibration import Recalibration
from deeptram.pooling.rule import Rule
from deeptram.pooling.weights import TunedWeights, tune_weights
from deeptram.pooling.weights.log_likelihood import CLOSED_FORM
from deeptram.predictive.base import Predictive

Rows = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

WEIGHTS = ("equal", "tuned")
CORRECTIONS = (*KINDS, "recalibration")
LEVEL = 0.95
_FEW_ROWS = 4000  # on which weights are tuned where derivatives are differences of scores


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
        own = {member.latent.name for member in members if member.latent is not None}
        latent = "logistic" if len(own) > 1 else None
        if weights == "equal":
            return cls(method, np.full(len(members), 1 / len(members)), latent=latent)
        n = len(members[0])
        if get_rule(method).name not in CLOSED_FORM and n > _FEW_ROWS:
            some = np.arange(0, n, -(-n // _FEW_ROWS))
            members, y = [member[some] for member in members], take_rows(y, some, "y")
        tuned = tune_weights(members, y, method=method, score=score, latent=latent)
        return cls(tuned.rule or method, tuned.weights, tuning=tuned, latent=latent)

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
) -> PoolComparison:
    r"""Compare pools, weights and corrections on data that the members were not fitted to.

    Cross-fitted: weights and corrections are found on all folds but one and scored on that one, so no row
    helps to choose what it is scored with.

    The best of many looks better than it is. The price of choosing is told in the header: every fold is
    scored with the candidate that is chosen without it (``attrs["nested"]``), minus the score of the best
    row. The choice is cross-fitted, too: for a fold f the candidates are compared on every other fold g with
    weights and corrections from the rows outside both, so nothing about f enters it. That takes
    :math:`k (k - 1) / 2` further fits of what is fitted, and at least three folds (else it is NaN).

    Weights of pools whose scores have no closed form in them are tuned on at most 4,000 rows of a fold.

    Parameters
    ----------
    members : sequence of Predictive, or array of shape (M, n, K)
        As for ``deeptram.pool``: predictions of rows on which the members were **not** trained.
    y : array-like of n outcomes, or Surv
    methods : sequence of str or Rule, optional
        Pools; by default all that there are. Those that have no meaning for the outcome are left out, with
        the reason in ``attrs["left_out"]``.
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

    Returns
    -------
    DataFrame
        Best first: ``pool, weights, correction, score`` (mean out of fold), ``difference`` to the best row
        with its interval ``lower, upper`` (95 %, normal, from the paired differences of the rows).

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
    rules, ways, changes = _asked(methods, weights, corrections)
    folds = folds_of(cv, n, y, generator)
    candidates = [_Candidate(r, w, c) for r in rules for w in ways for c in changes]
    rows = np.full((len(candidates), n), np.nan)
    left_out: dict[str, DeeptramError] = {}
    pairs = [*itertools.combinations(range(len(folds)), 2)] if nested and len(folds) > 2 else []
    with progress("comparing pools", len(candidates) * (len(folds) + len(pairs))) as steps:
        for fold in folds:
            for place, found in enumerate(_scores(candidates, checked, y, fold, score)):
                steps.done()
                if isinstance(found, DeeptramError):
                    left_out.setdefault(candidates[place].label, found)
                else:
                    rows[place, fold[1]] = found
        kept = [place for place, one in enumerate(candidates) if one.label not in left_out]
        if not kept:
            raise next(iter(left_out.values()))
        candidates, rows = [candidates[place] for place in kept], rows[kept]
        elsewhere = np.zeros((len(folds), len(candidates)))
        for pair in pairs:
            _add_pair(elsewhere, rows, pair, candidates, checked, y, folds, score)
            for _ in candidates:
                steps.done()
    table = _table([one.names for one in candidates], rows)
    best = ", ".join([*table.loc[0, ["pool", "weights"]], f"correction {table.loc[0, 'correction']}"])
    chosen = [rows[np.argmin(sums), held] for sums, (_, held) in zip(elsewhere, folds, strict=True)]
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


def folds_of(cv: Any, n: int, y: Any, generator: np.random.Generator) -> list[tuple[Rows, Rows]]:
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
    rules = list(METHODS) if methods is None else _several(methods, "methods", "pools")
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


@dataclass(frozen=True, eq=False)
class _Candidate:
    """A pool, the way to its weights, and a correction."""

    rule: Any
    way: str
    change: Any

    @property
    def names(self) -> tuple[str, str, str]:
        """Pool, weights and correction as they stand in the table."""
        return get_rule(self.rule).name, self.way, _name(self.change)

    @property
    def label(self) -> str:
        """The same in a line."""
        return ", ".join(self.names)

    @property
    def is_fitted(self) -> bool:
        """Whether something of it is found on data."""
        return self.way != "equal" or self.change is not None


def _scores(
    candidates: Sequence[_Candidate],
    members: Sequence[Predictive],
    y: Any,
    fold: tuple[Rows, Rows],
    score: str,
) -> Iterator[Floats | DeeptramError]:
    """Yield each candidate's scores of the rows held out, fitted to the others; or why there are none."""
    (known, new), evaluate = ([[m[part] for m in members] for part in fold]), get_score(score)
    known_y, new_y = (take_rows(y, part, "y") for part in fold)
    plain: dict[tuple[int, str], FittedPool | DeeptramError] = {}
    for one in candidates:
        key = id(one.rule), one.way
        try:
            if key not in plain:
                plain[key] = _tried(FittedPool.fit, one.rule, one.way, known, known_y, score)
            fitted = plain[key]
            if isinstance(fitted, DeeptramError):
                yield fitted
                continue
            pooled = fitted.corrected(one.change, known, known_y, score).apply(new)
            yield np.asarray(evaluate(new_y, pooled, reduction="none"), dtype=np.float64)
        except DeeptramError as error:
            yield error


def _tried(function: Callable[..., FittedPool], *given: Any) -> FittedPool | DeeptramError:
    try:
        return function(*given)
    except DeeptramError as error:
        return error


def _add_pair(
    elsewhere: Floats,
    rows: Floats,
    pair: tuple[int, int],
    candidates: Sequence[_Candidate],
    members: Sequence[Predictive],
    y: Any,
    folds: Sequence[tuple[Rows, Rows]],
    score: str,
) -> None:
    """Add to each of two folds what the candidates, fitted to the rows outside both, score on the other."""
    (first, held), (second, also) = (folds[number] for number in pair)
    both = np.concatenate([held, also])
    fitted = [place for place, one in enumerate(candidates) if one.is_fitted]
    scores = rows[:, both].copy()  # what is not fitted has the same scores whatever the rows
    some = [candidates[place] for place in fitted]
    fold = np.intersect1d(first, second), both
    for place, found in zip(fitted, _scores(some, members, y, fold, score), strict=True):
        scores[place] = np.inf if isinstance(found, DeeptramError) else found
    elsewhere[pair[0]] += scores[:, len(held) :].sum(axis=1)
    elsewhere[pair[1]] += scores[:, : len(held)].sum(axis=1)


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
    return table


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
