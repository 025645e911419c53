r"""Split-conformal prediction: what a distribution says, corrected by rows that it has not seen.

The conformity of an outcome is how central it is in its own predictive distribution,
:math:`t = \min\{P(Y \le y), P(Y \ge y)\}` (distributional conformal prediction), or :math:`P(Y \le y)` for
one-sided bounds. A new outcome is as likely to be at any rank among n exchangeable calibration rows, so
what lies above the k-th smallest conformity, :math:`k = \lfloor (n+1)(1-\mathrm{level}) \rfloor`, holds it
with probability at least ``level``, whatever the model; given the calibration rows, the coverage has the
distribution Beta(n + 1 - k, k) where there are no ties.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from deeptram._html import card, grid
from deeptram._validation import (
    check_no_missing,
    check_probability_level,
    check_same_length,
    check_vector,
    first_rows,
    random_generator,
)
from deeptram.errors import InvalidInputError, InvalidTypeError, UnsupportedError
from deeptram.evaluation.censoring import censoring_weights
from deeptram.evaluation.checks import check_predictive
from deeptram.evaluation.conformal_tails import reader
from deeptram.predictive.base import Predictive
from deeptram.predictive.mapped import mapped
from deeptram.predictive.pit_map import PitMap
from deeptram.responses.discrete import DiscreteResponse


class LevelSets:
    """A set of levels for each of n rows: a sequence of tuples, and a mask of shape (n, K).

    ``sets[i]`` is the tuple of levels of row i, ``np.asarray(sets)`` the mask.

    Parameters
    ----------
    levels : tuple
        The K levels in order.
    mask : array of bool, shape (n, K)

    Examples
    --------
    >>> sets = LevelSets(("low", "mid", "high"), np.array([[True, True, False], [False, False, True]]))
    >>> sets[0], sets.sizes, sets.contains(["mid", "low"])
    (('low', 'mid'), array([2, 1]), array([ True, False]))
    """

    def __init__(self, levels: tuple[Any, ...], mask: npt.NDArray[np.bool_]) -> None:
        self.levels, self.mask = levels, mask

    def __len__(self) -> int:
        return len(self.mask)

    def __getitem__(self, row: int) -> tuple[Any, ...]:
        """Return the levels in the set of a row."""
        return tuple(level for level, inside in zip(self.levels, self.mask[row], strict=True) if inside)

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return (self[row] for row in range(len(self)))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        return np.array(self.mask, dtype=dtype)

    def __repr__(self) -> str:
        shown = [", ".join(map(str, one)) for one in (self[row] for row in range(min(len(self), 5)))]
        more = ", ..." if len(self) > len(shown) else ""
        return f"LevelSets({', '.join(f'{{{one}}}' for one in shown)}{more}; n = {len(self)})"

    @property
    def sizes(self) -> npt.NDArray[np.int64]:
        """The number of levels in each set, shape (n,)."""
        return np.asarray(self.mask.sum(axis=1), dtype=np.int64)

    def contains(self, y: Any) -> npt.NDArray[np.bool_]:
        """Return which outcomes lie in their sets, shape (n,)."""
        check_same_length(sets=self, y=y)
        codes = np.asarray(DiscreteResponse(self.levels).encode(y))
        return np.asarray(self.mask[np.arange(len(self)), codes])

    def frame(self) -> pd.DataFrame:
        """Return the mask as a table with one column per level."""
        return pd.DataFrame(self.mask, columns=list(self.levels))


Floats = npt.NDArray[np.float64]
Rows = npt.NDArray[np.int64]

_ROUNDING = 1e-9  # (n + 1)(1 - level) is a whole number for n = 9, level = 0.9


def conformal(pred: Any, y: Any, *, groups: Any = None, random_state: Any = 0) -> Conformal:
    r"""Calibrate predictive distributions of any model on rows that it was not fitted to.

    Parameters
    ----------
    pred : Predictive
        Distributions of the n calibration rows.
    y : array-like of n outcomes, or Surv
        Exact or right-censored. Censored rows are made up for by weighting the events (IPCW): the censoring
        must not depend on the outcome nor, within a group, on the covariates.
    groups : array-like, shape (n,), optional
        Calibrate each group by itself (Mondrian), so that coverage holds within every one.
    random_state : int, numpy Generator or None
        Levels and counts: where in the jump of the distribution function the outcome is put by
        ``transform``. Intervals, sets and bounds have nothing random.

    Returns
    -------
    Conformal
        With ``interval``, ``sets``, ``lower_bound`` and ``transform`` for new rows.

    Notes
    -----
    With exact outcomes the coverage is guaranteed for every n. With censored ones it is asymptotic: the
    distribution of the censoring times is estimated.

    References
    ----------
    .. [1] Chernozhukov, V., Wuethrich, K. and Zhu, Y. (2021). Distributional conformal prediction.
       PNAS 118(48).
    .. [2] Vovk, V., Petej, I., Nouretdinov, I., Manokhin, V. and Gammerman, A. (2020). Computationally
       efficient versions of conformal predictive distributions. Neurocomputing 397, 292-308.
    .. [3] Candes, E., Lei, L. and Ren, Z. (2023). Conformalized survival analysis. JRSS B 85(1), 24-45.

    Examples
    --------
    >>> import scipy.stats, deeptram as dt
    >>> rng = np.random.default_rng(1)
    >>> y = rng.normal(size=400)
    >>> overconfident = dt.Predictive.from_scipy(scipy.stats.norm(np.zeros(400), 0.5))
    >>> calibrated = dt.conformal(overconfident[:200], y[:200])
    >>> lower, upper = calibrated.interval(overconfident[200:], 0.9)
    >>> float(np.mean((lower <= y[200:]) & (y[200:] <= upper)))  # without calibration: 0.59
    0.905
    """
    read = reader(pred, y)
    codes, labels = _encode_groups(groups, len(pred))
    tails, seen = read.tails(y), read.observe(y)
    pit = tails.pit(random_generator(random_state).random(len(pred)))
    parts = {}
    for code, label in enumerate(labels):
        rows = np.flatnonzero(codes == code)
        weights = np.ones(len(rows)) if seen is None else censoring_weights(seen.take(rows))
        parts[label] = _Part.of(weights, tails.smaller[rows], tails.up_to[rows], pit[0][rows], pit[1][rows])
    return Conformal(parts, pred, groups is not None)


class Conformal:
    """Distributions calibrated by :func:`conformal`.

    Its methods take the predictive distributions of new rows, by the same model, and, where the
    calibration was by group, the group of every row.
    """

    def __init__(self, parts: dict[Any, _Part], pred: Predictive, by_group: bool) -> None:
        self._parts, self._by_group = parts, by_group
        self._levels, self._kind = pred.levels, _kind(pred)

    @property
    def n(self) -> int:
        """The number of calibration rows."""
        return sum(part.n for part in self._parts.values())

    @property
    def groups(self) -> list[Any]:
        """The groups of the calibration; empty if there were none."""
        return list(self._parts) if self._by_group else []

    def __repr__(self) -> str:
        groups = f", {len(self._parts)} groups" if self._by_group else ""
        return f"Conformal({self._kind}, n = {self.n}{groups})"

    def _repr_html_(self) -> str:
        """Show in a notebook what was calibrated, and with how many rows."""
        rows = [[name, part.n] for name, part in self._parts.items()] if self._by_group else []
        table = grid(["group", "calibration rows"], rows) if rows else ""
        return card("Conformal prediction", {"outcome": self._kind, "calibration rows": self.n}, table)

    def interval(self, pred: Any, level: float = 0.9, *, groups: Any = None) -> tuple[Any, Any]:
        r"""Return the central interval [lower, upper] of each row, which holds the outcome with P >= level.

        .. math:: [F^{-1}(\tau),\ F^{-1}(1 - \tau)]

        with the same :math:`\tau` for all rows (of a group): the distribution decides the shape, the
        calibration rows how far out to go. Both ends belong to the interval, also for levels and counts.

        Parameters
        ----------
        pred : Predictive
            Distributions of new rows.
        level : float
            Coverage wanted.
        groups : array-like, optional
            The group of each row, if the calibration was by group.

        Returns
        -------
        lower, upper : arrays, shape (n,)
            Numbers, or levels.
        """
        self._need_order("interval")
        tail = self._thresholds(pred, groups, level, "central")
        read = reader(pred)
        return read.lower(tail), read.upper(tail)

    def sets(self, pred: Any, level: float = 0.9, *, groups: Any = None) -> LevelSets:
        """Return the set of levels of each row, which holds the outcome with P >= level.

        Ordered levels: the levels from ``lower`` to ``upper`` of :meth:`interval`, never empty. A nominal
        outcome: the classes of at least a certain probability.

        Parameters
        ----------
        pred, level, groups
            As for :meth:`interval`.

        Returns
        -------
        LevelSets
            A sequence of tuples of levels, with ``mask`` (n, K), ``sizes`` and ``contains(y)``.

        Examples
        --------
        >>> import deeptram as dt
        >>> rng = np.random.default_rng(0)
        >>> proba = rng.dirichlet([4, 2, 1], size=200)
        >>> y = np.array([rng.choice(3, p=row) for row in proba])
        >>> pred = dt.Predictive.from_proba(proba, levels=[0, 1, 2])
        >>> dt.conformal(pred[:100], y[:100]).sets(pred[100:], 0.8)
        LevelSets({0, 1}, {0, 1}, {0}, {1}, {0}, ...; n = 100)
        """
        if self._levels is None:
            raise UnsupportedError(
                f"sets are for outcomes on levels, got a {self._kind} outcome; use interval(pred, level)"
            )
        tail = self._thresholds(pred, groups, level, "central")
        return LevelSets(self._levels, reader(pred).inside(tail))

    def lower_bound(self, pred: Any, level: float = 0.9, *, groups: Any = None) -> Any:
        r"""Return a bound of each row that the outcome reaches with P >= level, for example a survival time.

        .. math:: F^{-1}(\tau)

        with :math:`\tau` the largest conformity for which the calibration rows, events weighted for
        censoring, put no more than 1 - level below it.

        Parameters
        ----------
        pred, level, groups
            As for :meth:`interval`.

        Returns
        -------
        array, shape (n,)
        """
        self._need_order("lower_bound")
        return reader(pred).lower(self._thresholds(pred, groups, level, "up_to"))

    def transform(self, pred: Any, *, groups: Any = None) -> Predictive:
        r"""Return the conformal predictive distributions: a monotone map G of the PIT, G(F(y)).

        G is the distribution function of the calibration rows' PIT with n + 1 in the denominator,

        .. math:: G(u_{(j)}) = j / (n + 1), \qquad
                  \operatorname{logit} G(u) = a_k + b_k \operatorname{logit} u \quad\text{in between},

        exact at about :math:`n^{1/3}` quantiles and, towards both ends, at ranks j = 1, 3, 9, ... from either
        side: few, so that there is a smooth density to be scored and pooled, and where a wrong model needs
        them, in the tails. Beyond the smallest and the largest PIT the line is continued from its neighbours,
        to probabilities of about :math:`n^{-3}`; further out the tail of the model is multiplied.

        Parameters
        ----------
        pred, groups
            As for :meth:`interval`.

        Returns
        -------
        Predictive
            Of the kind of ``pred``. What ``pred`` holds impossible stays so.

        Notes
        -----
        For exact outcomes, exchangeable with the calibration rows, :math:`P(F(Y) \le u_{(j)}) = j / (n + 1)`
        at the ranks j above, whatever the model. Between two of them the probability is between theirs, so
        the central interval of ``level`` covers about ``level`` as long as
        :math:`(n + 1)(1 - \mathrm{level})/2 \ge 1`. This is an average over rows and calibrations and says
        nothing of a single row; :meth:`interval` and :meth:`sets` never fall short of their level. Levels and
        counts have it for a point of the jump of F drawn at random: good where jumps are small, approximate
        for few levels. Further out, and beyond the last event of censored rows, the line is an
        extrapolation, and with censored rows all of it is asymptotic.

        Examples
        --------
        >>> import scipy.stats, deeptram as dt
        >>> rng = np.random.default_rng(1)
        >>> y = rng.normal(size=1000)
        >>> pred = dt.Predictive.from_scipy(scipy.stats.norm(np.zeros(1000), 0.5))
        >>> better = dt.conformal(pred[:500], y[:500]).transform(pred[500:])
        >>> truth = dt.Predictive.from_scipy(scipy.stats.norm(np.zeros(500), 1.0))
        >>> [round(dt.scores.crps(y[500:], one), 3) for one in (pred[500:], better, truth)]
        [0.656, 0.601, 0.598]
        """
        self._need_order("transform")
        codes = self._codes(pred, groups)
        maps = [part.pit_map for part in self._parts.values()]
        return mapped(pred, maps[0] if len(maps) == 1 else PitMap.by_row(maps, codes))

    def _need_order(self, method: str) -> None:
        if self._kind == "nominal":
            raise UnsupportedError(
                f"{method} needs ordered outcomes, got nominal ones; use sets(pred, level)"
            )

    def _thresholds(self, pred: Any, groups: Any, level: float, conformity: str) -> Floats:
        """Return the conformity that the outcome of each row needs, shape (n,)."""
        level = check_probability_level(level)
        codes = self._codes(pred, groups)
        values = np.full(len(self._parts), np.nan)
        for code, part in enumerate(self._parts.values()):
            if (codes == code).any():
                values[code] = part.threshold(conformity, level)
        return values[codes]

    def _codes(self, pred: Any, groups: Any) -> Rows:
        check_predictive(pred)
        if _kind(pred) != self._kind or pred.levels != self._levels:
            raise InvalidInputError(
                f"pred must be of the kind of the calibration ({self._described(self._kind, self._levels)}), "
                f"got {self._described(_kind(pred), pred.levels)}; predict with the same model"
            )
        if not self._by_group:
            if groups is not None:
                raise InvalidInputError(
                    "groups were not part of the calibration, got groups=...; "
                    "calibrate with conformal(pred, y, groups=...)"
                )
            return np.zeros(len(pred), dtype=np.int64)
        if groups is None:
            raise InvalidInputError(
                "the calibration was by group, got no groups; pass the group of every row, groups=..."
            )
        labels = _labels(groups, len(pred))
        codes = np.asarray(pd.Index(list(self._parts)).get_indexer(labels), dtype=np.int64)
        if (codes < 0).any():
            known = ", ".join(map(repr, list(self._parts)[:5])) + ", ..." * (len(self._parts) > 5)
            raise InvalidInputError(
                f"groups must have been seen in the calibration ({known}), got "
                f"{labels[np.argmax(codes < 0)]!r} in {first_rows(codes < 0)}; calibrate with rows of that "
                "group, or leave these rows out"
            )
        return codes

    @staticmethod
    def _described(kind: str, levels: Any) -> str:
        return kind if levels is None else f"{kind}, levels {list(levels)[:5]}"


@dataclass(frozen=True, eq=False)
class _Part:
    """What is known from the calibration rows of one group.

    The events' ``central`` and ``up_to`` conformities and PIT (with one minus it), each in increasing order
    with the events' weights; ``beyond`` is the weight of what happens after the last event.
    """

    n: int
    beyond: float
    central: tuple[Floats, Floats]
    up_to: tuple[Floats, Floats]
    pit: tuple[Floats, Floats, Floats]

    @classmethod
    def of(cls, weights: Floats, central: Floats, up_to: Floats, u: Floats, c: Floats) -> _Part:
        event = weights > 0
        if not event.any():
            raise InvalidInputError(
                f"calibration needs observed events, got {len(event)} censored rows only; "
                "pass rows with events (in every group)"
            )
        own = weights[event]
        by_pit = np.lexsort((-c[event], u[event]))
        pit = (u[event][by_pit], c[event][by_pit], own[by_pit])
        beyond = max(len(event) - float(own.sum()), 0.0)
        return cls(len(event), beyond, _ordered(central[event], own), _ordered(up_to[event], own), pit)

    def threshold(self, conformity: str, level: float) -> float:
        """Return the conformity that an outcome needs; what happens late lies above every lower bound."""
        values, weights = getattr(self, conformity)
        beyond = self.beyond if conformity == "central" else 0.0
        allowed = (self.n + 1) * (1 - level) * (1 + _ROUNDING)
        count = int(np.searchsorted(beyond + np.cumsum(weights), allowed, side="right"))
        if count:
            return float(values[count - 1])
        needed = int(np.ceil(1 / (1 - level) * (1 - _ROUNDING))) - 1
        if self.n < needed:
            raise InvalidInputError(
                f"level {level:g} needs at least {needed} calibration rows (in every group), got {self.n}; "
                "use a smaller level, or more rows"
            )
        raise InvalidInputError(
            f"level {level:g} needs outcomes observed further, got a share of {beyond / self.n:.3g} beyond "
            "the last event; use lower_bound, or a smaller level"
        )

    @property
    def pit_map(self) -> PitMap:
        """The map G, continued beyond the outer knots until n + 1 squared times less is left."""
        u, c, weights = self.pit
        p = np.cumsum(weights) / (self.n + 1)
        wanted = np.searchsorted(p, _shares(self.n) * (1 - _ROUNDING))
        places = np.unique(np.append(wanted[wanted < len(p)], len(p) - 1))
        with np.errstate(divide="ignore"):  # what the model held impossible has infinite log-odds
            odds = np.log(u[places]) - np.log(c[places])
        return PitMap.through(odds, np.log(p[places]) - np.log1p(-p[places]), 2 * np.log(self.n + 1))


def _shares(n: int) -> Floats:
    r"""Return the probabilities at which G is exact: those of quantiles, and towards both ends geometric.

    About :math:`n^{1/3}` parts (a multiple of four, so that quartiles are among them), of which the first and
    the last are cut at ranks that grow from 1 by factors of at most 3.
    """
    parts = 4 * int(np.ceil(n ** (1 / 3) / 4))
    inner = np.arange(1, parts) / parts
    tail = np.geomspace(1 / (n + 1), inner[0], max(int(np.ceil(np.log((n + 1) / parts) / np.log(3))), 0) + 1)
    tail = np.minimum(tail, inner[0])
    return np.unique(np.concatenate([tail, inner, 1 - tail]))


def _ordered(values: Floats, weights: Floats) -> tuple[Floats, Floats]:
    order = np.argsort(values, kind="stable")
    return values[order], weights[order]


def _kind(pred: Predictive) -> str:
    if pred.kind != "discrete":
        return pred.kind
    return "nominal" if pred.is_nominal else "ordinal"


def _labels(groups: Any, n: int) -> npt.NDArray[Any]:
    labels = np.asarray(check_vector(groups, "groups"), dtype=object)
    check_same_length(pred=range(n), groups=labels)
    check_no_missing(pd.isna(labels), "groups")
    return labels


def _encode_groups(groups: Any, n: int) -> tuple[Rows, list[Any]]:
    if groups is None:
        return np.zeros(n, dtype=np.int64), [None]
    if isinstance(groups, str):
        raise InvalidTypeError(f"groups must hold one label per row, got {groups!r}; pass the column itself")
    codes, labels = pd.factorize(_labels(groups, n))
    return np.asarray(codes, dtype=np.int64), list(labels)
