r"""Weights of parts: by group of rows, by the time at which a forecast is made, of the best members alone.

The first two give an array (n, M) that ``dt.pool`` takes as weights.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from deeptram._validation import as_float, check_integer, check_number, check_same_length
from deeptram.errors import InvalidInputError, UnsupportedError
from deeptram.evaluation.measures import MetricLike, get_score
from deeptram.latent import Latent
from deeptram.optimise.simplex import Vector
from deeptram.pooling.pool import as_members, check_weights
from deeptram.pooling.rule import Rule
from deeptram.pooling.weights.objectives import Pull
from deeptram.pooling.weights.problem import problem
from deeptram.pooling.weights.tuning import TunedWeights, tune
from deeptram.predictive.base import Predictive

_OPEN = 0.1  # share of equal weights in what groups are pulled to: no member is excluded by the others


@dataclass(frozen=True)
class GroupWeights:
    """Weights of each group, pulled towards those of all rows.

    Attributes
    ----------
    overall : TunedWeights
        Of all rows together; new groups get these.
    table : DataFrame
        One line per group: its number of rows, the weights ``0..M-1``, the mean score ``value`` and ``gap``.
    """

    overall: TunedWeights
    table: pd.DataFrame

    def rows(self, groups: Any) -> Vector:
        """Return the weights of rows from their groups, shape (n, M); those of all rows for unknown groups.

        Parameters
        ----------
        groups : array-like, shape (n,)
        """
        members = range(len(self.overall.weights))
        found = self.table[list(members)].reindex(pd.Index(np.asarray(groups))).to_numpy(dtype=np.float64)
        unknown = np.isnan(found).any(axis=1)
        found[unknown] = self.overall.weights
        return np.asarray(found)


def tune_weights_by_group(
    members: Any,
    y: Any,
    groups: Any,
    *,
    method: str | Rule = "transformation",
    score: MetricLike = "nll",
    latent: str | Latent | None = None,
    pull: float = 20.0,
) -> GroupWeights:
    r"""Tune weights for each group of rows, shrunk towards those of all rows.

    In group g the sum of scores plus :math:`\lambda \sum_m w_m \log(w_m / r_m)` is minimised, r being the
    weights of all rows (mixed with a tenth of equal weights, so that no member is excluded). Parameters of
    the pool (``"beta-linear"``) are those of all rows: ``dt.pool(members, method=found.overall.rule, ...)``.

    Parameters
    ----------
    members, y, method, score, latent
        As for ``tune_weights``.
    groups : array-like, shape (n,)
        Labels: a target, a region, a forecast horizon.
    pull : float
        :math:`\lambda`, positive.

    Returns
    -------
    GroupWeights

    Examples
    --------
    >>> import numpy as np, deeptram as dt
    >>> rng = np.random.default_rng(0)
    >>> y, site = rng.integers(0, 2, 400), np.repeat(["a", "b"], 200)
    >>> good = np.where(y == 1, 0.3, 0.7)
    >>> p = np.stack([np.where(site == "a", good, 0.5), np.where(site == "b", good, 0.5)])
    >>> p = np.clip(p + rng.uniform(-0.1, 0.1, p.shape), 0.05, 0.95)
    >>> cdfs = np.stack([p, np.ones_like(p)], axis=-1)
    >>> found = dt.weights.tune_weights_by_group(cdfs, y, site)
    >>> found.table[[0, 1]].round(2)
         0    1
    a  1.0  0.0
    b  0.0  1.0
    >>> dt.pool(cdfs, weights=found.rows(site)).cdf().shape
    (400, 2)
    """
    strength = check_number(pull, "pull", 0.0)
    if strength == 0:
        raise InvalidInputError(
            "pull must be positive, got 0, with which small groups would have weights of their own alone; "
            "use for example pull=1"
        )
    task = problem(members, y, method, score, latent)
    labels = np.asarray(groups)
    check_same_length(members=task.members[0], groups=labels)
    overall = tune(task)
    task = replace(task, rule=overall.rule or task.rule, tunes_shape=False)
    towards = (1 - _OPEN) * overall.weights + _OPEN / task.n_members
    lines = {}
    for label in pd.unique(labels):
        rows = np.flatnonzero(labels == label)
        own = tune(replace(task.take(rows), pull=Pull(strength, towards)))
        lines[label] = [len(rows), *own.weights, own.value, own.gap]
    columns = ["n", *range(task.n_members), "value", "gap"]
    return GroupWeights(overall, pd.DataFrame.from_dict(lines, orient="index", columns=columns))


@dataclass(frozen=True)
class RollingWeights:
    """Weights that are tuned again at every origin, on what was known by then.

    Attributes
    ----------
    rows : array, shape (n, M)
        The weights of each row, for ``dt.pool``.
    table : DataFrame
        One line per origin: how many rows were known, and the weights ``0..M-1`` from it on.
    """

    rows: Vector
    table: pd.DataFrame

    @property
    def latest(self) -> Vector:
        """The weights of the last origin."""
        return np.asarray(self.table.iloc[-1, 1:], dtype=np.float64)


def rolling_weights(
    members: Any,
    y: Any,
    time: npt.ArrayLike,
    *,
    method: str | Rule = "transformation",
    score: MetricLike = "nll",
    latent: str | Latent | None = None,
    lag: Any = None,
    window: Any = None,
    least: int = 20,
    pull: float = 10.0,
) -> RollingWeights:
    """Tune weights by rolling origin: those of a row use only rows whose outcomes were known before it.

    Parameters
    ----------
    members, y, method, score, latent
        As for ``tune_weights``; all forecasts, past ones too.
    time : array-like, shape (n,)
        When each forecast was made: numbers or dates.
    lag : number or timedelta, optional
        How long after its time an outcome is known; rows with ``time < origin - lag`` are used. Default: at
        once, so that all rows of earlier times are used. For forecasts several weeks ahead, that many weeks.
    window : number or timedelta, optional
        How far back to look; default: as far as there are rows.
    least : int
        Origins with fewer known rows have equal weights.
    pull : float
        Towards equal weights, in rows, as for ``tune_weights``.

    Returns
    -------
    RollingWeights

    Examples
    --------
    >>> import numpy as np, scipy.stats, deeptram as dt
    >>> rng = np.random.default_rng(0)
    >>> week = np.repeat(np.arange(20), 10)
    >>> y = rng.normal(size=200)
    >>> members = [dt.Predictive.from_scipy(scipy.stats.norm(np.zeros(200) + m, 1.0)) for m in (0.0, 2.0)]
    >>> found = dt.weights.rolling_weights(members, y, week, pull=1.0)
    >>> found.rows[[0, -1]].round(2)
    array([[0.5 , 0.5 ],
           [0.98, 0.02]])
    """
    task = problem(members, y, method, score, latent)
    if task.tunes_shape:
        raise UnsupportedError(
            "rolling weights are those of one pool, got 'beta-linear', whose parameters would change with "
            "the origin; pass an object with given ones, dt.BetaLinear(a, b)"
        )
    times = np.asarray(time)
    check_same_length(members=task.members[0], time=times)
    least, strength = check_integer(least, "least", 1), check_number(pull, "pull", 0.0)
    equal = np.full(task.n_members, 1 / task.n_members)
    if strength > 0:
        task = replace(task, pull=Pull(strength, equal))
    rows, lines = np.empty((task.n_rows, task.n_members)), {}
    for origin in np.unique(times):
        limit = origin if lag is None else origin - lag
        known = times < limit
        if window is not None:
            known &= times >= origin - window
        weights = equal
        if known.sum() >= least:
            weights = tune(task.take(np.flatnonzero(known))).weights
        rows[times == origin] = weights
        lines[origin] = [int(known.sum()), *weights]
    table = pd.DataFrame.from_dict(lines, orient="index", columns=["known", *range(task.n_members)])
    return RollingWeights(rows, table)


@dataclass(frozen=True)
class TopMembers:
    """The k best members, best first.

    Attributes
    ----------
    indices : array of int, shape (k,)
        Their positions among all members.
    scores : array, shape (k,)
        Their mean scores.
    members : list of Predictive
        The members themselves, in that order.

    Examples
    --------
    >>> best = TopMembers(np.array([2, 0]), np.array([0.1, 0.3]), [])
    >>> best.weights([0.2, 0.5, 0.3])
    array([0.6, 0.4])
    """

    indices: npt.NDArray[np.int64]
    scores: npt.NDArray[np.float64]
    members: list[Predictive]

    def __len__(self) -> int:
        return len(self.indices)

    def weights(self, weights: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """Return the weights of these members, in their order and rescaled to sum one.

        Parameters
        ----------
        weights : array-like, shape (M,)
            One weight for each of all M members, in the original order.
        """
        every = as_float(weights, "weights")
        if every.ndim != 1 or len(every) <= max(self.indices):
            raise InvalidInputError(
                f"weights must hold one number for each of all members, got shape {every.shape} for a choice "
                f"of members {list(self.indices)}; pass the weights of all"
            )
        chosen = check_weights(every, len(every))[self.indices]
        if chosen.sum() <= 0:
            raise InvalidInputError(
                f"the chosen members must not all have weight zero, got weights {every.tolist()}; "
                "choose more members"
            )
        return np.asarray(chosen / chosen.sum())


def top_k(members: Any, y: Any, k: int, score: MetricLike = "nll") -> TopMembers:
    """Return the k members with the smallest mean score, best first.

    A member with an infinite score (an outcome of probability zero) is the last; a score of NaN is refused.

    Parameters
    ----------
    members : sequence of Predictive, or array of shape (M, n, K)
    y : array-like of n outcomes, or Surv
        Validation outcomes.
    k : int
        Between 1 and M.
    score : str, Score or callable

    Returns
    -------
    TopMembers
        With ``indices``, ``scores``, ``members``, and ``weights(w)``, which brings weights of all members
        into this order.

    Examples
    --------
    >>> import numpy as np, deeptram as dt
    >>> cdfs = np.array([[[0.5, 1.0]], [[0.1, 1.0]], [[0.8, 1.0]]])
    >>> best = dt.top_k(cdfs, [0], 2)
    >>> best.indices, dt.pool(best.members, weights=best.weights([0.25, 0.5, 0.25]), method="linear").cdf()
    (array([2, 0]), array([[0.65, 1.  ]]))
    """
    checked = as_members(members)
    k = check_integer(k, "k", 1)
    if k > len(checked):
        raise InvalidInputError(
            f"k must not exceed the number of members, got {k} for {len(checked)} members; use a smaller k"
        )
    evaluate = get_score(score)
    values = np.array([float(evaluate(y, member)) for member in checked])
    unknown = np.flatnonzero(np.isnan(values)).tolist()
    if unknown:
        raise InvalidInputError(
            f"every member must have a score, finite or infinite, got NaN for members {unknown}; choose by "
            "another score, or leave these members out"
        )
    indices = np.argsort(values, kind="stable")[:k]
    return TopMembers(indices, values[indices], [checked[i] for i in indices])
