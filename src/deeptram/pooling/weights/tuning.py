"""Weights that minimise a score on data set aside for it, eq. (6), or over cross-validation folds."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch

from deeptram._html import card, few_digits, grid, share
from deeptram._threads import one_thread
from deeptram._validation import check_integer, check_number, check_probability_level, random_generator
from deeptram.errors import ConvergenceWarning, InvalidInputError, UnsupportedError, warn
from deeptram.evaluation.measures import MetricLike
from deeptram.latent import Latent
from deeptram.optimise.simplex import SimplexSolution, Vector, minimize
from deeptram.pooling.beta_linear import BetaLinear
from deeptram.pooling.rule import Rule
from deeptram.pooling.weights.objectives import Objective, Pull, PulledScore, ShapedScore, solve
from deeptram.pooling.weights.problem import Encodable, EncodedMembers, Problem, problem

_SETTLED = 1e-9  # of the gap where some derivatives are differences
_NOTICEABLE = 1e-4  # of the gap from which on a search that did not settle is worth a warning


@dataclass(frozen=True)
class TunedWeights:
    """The result of weight tuning.

    Attributes
    ----------
    weights : array, shape (M,)
        In the order of the members; non-negative, sum one.
    value : float
        Mean score of the pool with these weights on the tuning data, as ``deeptram.scores`` gives it.
    gap : float
        Certified bound on ``value`` minus the smallest value that any weights can reach; NaN where the
        problem is not convex, so that nothing can be certified, and where members of which some have
        steps leave an error that is not known. Where the search used a quadrature of the score, twice what
        it was off at ``weights`` is included.
    n_iter : int
        Newton steps.
    converged : bool
        Whether the first-order conditions hold to the tolerance.
    fold_weights : array, shape (folds, M), optional
        The weights of each fold (``tune_weights_cv`` only).
    rule : Rule
        The pool, with the parameters that were tuned along (``"beta-linear"``): pass it on as in
        ``dt.pool(members, method=tuned.rule, weights=tuned.weights)``.
    """

    weights: Vector
    value: float
    gap: float
    n_iter: int
    converged: bool
    fold_weights: Vector | None = None
    rule: Rule | None = None
    task: Problem | None = field(default=None, repr=False, compare=False)

    def interval(
        self, level: float = 0.95, n_boot: int = 200, random_state: Any = 0
    ) -> tuple[Vector, Vector]:
        """Return a bootstrap interval of each weight as (lower, upper), each (M,).

        Rows are drawn with replacement and the weights tuned again; the limits are quantiles of these.

        Parameters
        ----------
        level : float
        n_boot : int
            Number of bootstrap samples.
        random_state : int or numpy.random.Generator
            The same seed gives the same interval.

        Examples
        --------
        >>> import numpy as np, deeptram as dt
        >>> rng = np.random.default_rng(1)
        >>> y = rng.integers(0, 2, 300)
        >>> p = np.where(y == 1, 0.3, 0.7) + rng.uniform(-0.25, 0.25, (2, 300))
        >>> tuned = dt.tune_weights(np.stack([p, np.ones_like(p)], axis=-1), y)
        >>> lower, upper = tuned.interval(n_boot=50)
        >>> bool((lower <= tuned.weights).all() and (tuned.weights <= upper).all())
        True
        """
        level, n_boot = check_probability_level(level), check_integer(n_boot, "n_boot", 2)
        if self.task is None:
            raise UnsupportedError(
                "a bootstrap of weights needs the rows they were tuned on, got weights from folds or chunks; "
                "use tune_weights"
            )
        draws = bootstrap_weights(self.task, self.weights, n_boot, random_generator(random_state))
        lower, upper = np.quantile(draws, [(1 - level) / 2, (1 + level) / 2], axis=0)
        return lower, upper

    def _repr_html_(self) -> str:
        """Show the weights as bars in a notebook, with score and certificate."""
        certified = "not certified (not convex)" if np.isnan(self.gap) else f"at most {self.gap:.1e}"
        facts = {
            "mean score": few_digits(self.value, 6),
            "above the best possible": certified,
            "converged": f"{'yes' if self.converged else 'no'}, {self.n_iter} steps",
        }
        rows = [
            [m, share(weight, f"weight {weight:.3f}"), f"{weight:.3f}"]
            for m, weight in sorted(enumerate(self.weights.tolist()), key=lambda pair: -pair[1])
        ]
        return card("Tuned weights", facts, grid(["member", "", "weight"], rows))


def tune_weights(
    members: Any,
    y: Any,
    *,
    method: str | Rule = "transformation",
    score: MetricLike = "nll",
    latent: str | Latent | None = None,
    pull: float = 0.0,
) -> TunedWeights:
    r"""Return the weights of a pool that minimise its mean score on (members, y), eq. (6).

    .. math::
        \min_{w \ge 0,\ \sum_m w_m = 1} \frac1n \sum_{i=1}^n s(\mathrm{pool}_w(F_{1i}, \dots, F_{Mi}), y_i).

    Use predictions for data on which the members were **not** trained.

    With the NLL the problem is convex for the linear, both log-linear and the transformation pool (for
    ``"log-linear-density"`` with exact outcomes and one sample space); with RPS, CRPS, Brier and quadratic
    score it is a convex quadratic programme for the linear pool. Then ``gap`` certifies the global optimum.
    Elsewhere (also under left truncation) ``gap`` is NaN, and the best stationary point from equal weights
    and every single member is returned.

    Of the other pools, the CRPS of ``"quantile"`` is convex in the weights, too; of draws it has corners,
    at which ``gap`` stays above the tolerance (``converged`` is False, the bound holds). Trimmed means are
    linear in them piece by piece, and the median is constant almost everywhere: there the best of equal
    weights and single members is returned.
    With ``"beta-linear"`` its parameters are fitted, too (``rule``), from the best linear pool on, than which
    the result is never worse; a ``BetaLinear`` object keeps its own.

    Parameters
    ----------
    members : sequence of Predictive, or array of shape (M, n, K)
        As for ``deeptram.pool``; the levels of an array are ``0..K-1``.
    y : array-like of n outcomes, or Surv
    method : str or Rule
    score : str, Score or callable
        ``"nll"``, ``"crps"``, for members on levels ``"rps"``, ``"brier"``, ``"quadratic"``; any other name
        of ``deeptram.scores``, a ``Score`` or a function ``(y, pred)`` of your own (smaller is better), with
        derivatives by differences.
    latent : str or Latent, optional
        Scale of the transformation pool; default as for ``deeptram.pool``.
    pull : float
        Strength, in rows, of a pull towards equal weights: the mean score plus
        :math:`\frac{\lambda}{n} \sum_m w_m \log(M w_m)` is minimised. Certified as before; ``value`` is the
        score alone, and no weight is exactly zero.

    Returns
    -------
    TunedWeights

    Notes
    -----
    Per-row terms are linear in w, so gradient and Hessian are exact and cost O(n M^2); a handful of Newton
    steps on the face of the simplex suffice. A member that gives an observed outcome probability zero gets
    weight zero in the log-linear and transformation pools.

    Examples
    --------
    >>> import numpy as np, deeptram as dt
    >>> rng = np.random.default_rng(1)
    >>> y = rng.integers(0, 2, 200)
    >>> good = np.where(y == 1, 0.3, 0.7) + rng.uniform(-0.2, 0.2, 200)
    >>> cdfs = np.stack([np.stack([p, np.ones(200)], axis=1) for p in (good, rng.uniform(0.1, 0.9, 200))])
    >>> tuned = dt.tune_weights(cdfs, y)
    >>> tuned.weights, tuned.gap < 1e-9
    (array([1., 0.]), True)
    """
    task = problem(members, y, method, score, latent)
    strength = check_number(pull, "pull", 0.0)
    if strength > 0:
        task = replace(task, pull=Pull(strength, np.full(task.n_members, 1 / task.n_members)))
    return tune(task)


def tune_weights_cv(
    members: Any,
    y: Any,
    *,
    folds: int = 5,
    method: str | Rule = "transformation",
    score: MetricLike = "nll",
    latent: str | Latent | None = None,
    random_state: Any = None,
) -> TunedWeights:
    r"""Return the mean over folds of the weights tuned on all rows but those of the fold.

    The paper's outlook suggests this where little data is available. The mean of points of the simplex
    lies on it, so the result is a set of weights; it is not the optimum for all rows.

    Parameters
    ----------
    members, y, method, score, latent
        As for ``tune_weights``.
    folds : int
        Number of folds, at least 2; rows are assigned at random, in parts of equal size.
    random_state : int or numpy.random.Generator, optional
        Decides which rows are in which fold.

    Returns
    -------
    TunedWeights
        ``value`` is the cross-validated mean score: every row scored with the weights of the folds it is
        not in. ``gap`` is the largest of the folds, ``n_iter`` their sum, ``converged`` whether all did;
        ``fold_weights`` has shape (folds, M).

    Examples
    --------
    >>> import numpy as np, deeptram as dt
    >>> rng = np.random.default_rng(1)
    >>> y = rng.integers(0, 2, 200)
    >>> p = np.where(y == 1, 0.3, 0.7) + rng.uniform(-0.25, 0.25, (2, 200))
    >>> tuned = dt.tune_weights_cv(np.stack([p, np.ones_like(p)], axis=-1), y, folds=4, random_state=0)
    >>> tuned.fold_weights.shape, bool(np.allclose(tuned.weights, tuned.fold_weights.mean(axis=0)))
    ((4, 2), True)
    """
    task = problem(members, y, method, score, latent)
    n = len(task.members[0])
    folds = check_integer(folds, "folds", 2)
    if folds > n:
        raise InvalidInputError(
            f"folds must not exceed the number of rows, got {folds} folds for {n} rows; use fewer folds"
        )
    order = random_generator(random_state).permutation(n)
    results, total, parts = [], 0.0, RowTuning(task)
    for held_out in np.array_split(order, folds):
        tuned = parts.tune(np.setdiff1d(np.arange(n), held_out))
        total += len(held_out) * task.take(held_out).mean_score(tuned.weights, tuned.rule)
        results.append(tuned)
    weights = np.stack([result.weights for result in results])
    return TunedWeights(
        weights.mean(axis=0),
        total / n,
        float(np.max([result.gap for result in results])),
        sum(result.n_iter for result in results),
        all(result.converged for result in results),
        weights,
        _mean_rule([result.rule for result in results]),
    )


def _mean_rule(rules: list[Rule | None]) -> Rule | None:
    """Return the rule of all folds; parameters that were fitted in each are averaged on the log scale."""
    if not isinstance(rules[0], BetaLinear):
        return rules[0]
    return BetaLinear(*np.exp(np.mean([np.log(one.values()) for one in rules if one is not None], axis=0)))


def bootstrap_weights(task: Problem, weights: Vector, n_boot: int, rng: np.random.Generator) -> Vector:
    """Return the weights of bootstrap samples of the rows, shape (n_boot, M)."""
    parts, n = RowTuning(task), task.n_rows
    start = np.append(weights, np.log(task.rule.values())) if task.tunes_shape else weights
    return np.stack([parts.found(np.sort(rng.integers(0, n, n)), start)[0].weights for _ in range(n_boot)])


class RowTuning:
    """A problem whose members are read once, to be solved for one selection of its rows after the other."""

    def __init__(self, task: Problem) -> None:
        self.task = task
        self._last: Vector | None = None

    @cached_property
    def _shared(self) -> Objective | None:
        return _undivided(self.task.encode())

    def _objective(self, rows: Any) -> Objective | None:
        """Return the objective of some rows; few of many are read anew."""
        if 2 * len(rows) < self.task.n_rows:
            return _undivided(self.task.take(rows).encode())
        return None if self._shared is None else self._shared.take(torch.as_tensor(rows))

    def tune(self, rows: Any) -> TunedWeights:
        """Return the best weights for some rows, some perhaps several times, with their score."""
        tuned, exact = self.found(rows)
        return tuned if exact else _judged(self.task.take(rows), tuned)

    def found(self, rows: Any, start: Vector | None = None) -> tuple[TunedWeights, bool]:
        """Return the best weights for some rows, and whether their value is the score itself.

        Parameters
        ----------
        rows : array of int
            Some perhaps several times.
        start : array, optional
            Where to start, by default from what was found before: weights, where the problem is convex; with
            log a and log b, of the beta-transformed pool.
        """
        start, m = self._last if start is None else start, self.task.n_members
        with one_thread():
            part = self._objective(rows)
            if part is None:
                return tune(self.task.take(rows)), True
            if self.task.tunes_shape:
                if start is None:
                    start = _untransformed(solve(part, m, np.full(m, 1 / m))).weights
                shaped = _search_shape(part, start)
                self._last = shaped.weights
                return _with_shape(part, shaped), part.exact
            found = solve(part, m, start if part.convex else None)
        if not np.isfinite(found.value):
            return _hopeless(self.task), True
        self._last, value = found.weights, _score_alone(part, found.value, found.weights)
        gap = found.gap if part.convex else float("nan")
        rule = self.task.rule
        return TunedWeights(found.weights, value, gap, found.n_iter, found.converged, rule=rule), part.exact


def _undivided(encoded: EncodedMembers) -> Objective | None:
    """Return the objective; None where members drop out of it, or not, by which rows there are."""
    return encoded.objective if bool((encoded.held & ~encoded.decisive).all()) else None


def tune(task: Problem) -> TunedWeights:
    """Solve a checked problem."""
    with one_thread():
        if task.tunes_shape:
            return _tune_with_shape(task)
        return replace(tune_encoded(task), rule=task.rule, task=task)


def _tune_with_shape(task: Problem) -> TunedWeights:
    """Find weights and parameters of the beta-transformed pool, from the linear pool on, a = b = 1."""
    objective, m = task.encode().objective, task.n_members
    linear = solve(objective, m, np.full(m, 1 / m))
    solution = _search_shape(objective, np.append(linear.weights, [0.0, 0.0]))
    found, start = _with_shape(objective, solution), _with_shape(objective, _untransformed(linear))
    if not objective.exact:
        found, start = _judged(task, found), _judged(task, start)
    if task.pull is None and not found.value <= start.value:
        found, solution = replace(start, converged=False), replace(solution, converged=False, gap=np.inf)
    if not solution.converged and not solution.gap <= _NOTICEABLE * max(1.0, abs(solution.value)):
        warn(
            "weights and parameters of the beta-linear pool have not converged (converged is False): it is "
            f"no worse than the linear pool, but after {solution.n_iter} steps better ones may still exist; "
            "use more rows or fewer members, or pass a BetaLinear object, whose parameters stay",
            ConvergenceWarning,
        )
    return replace(found, task=replace(task, rule=found.rule or task.rule))


def _untransformed(linear: SimplexSolution) -> SimplexSolution:
    """Return the linear pool as a beta-transformed one, log a = log b = 0."""
    return replace(linear, weights=np.append(linear.weights, [0.0, 0.0]))


def _judged(task: Encodable, tuned: TunedWeights) -> TunedWeights:
    """Return the same with the score of the pool itself; the gap has to cover what a quadrature was off."""
    value = task.mean_score(tuned.weights, tuned.rule)
    return replace(tuned, value=value, gap=tuned.gap + 2 * abs(value - tuned.value))


def _search_shape(objective: Objective, start: Vector) -> SimplexSolution:
    """Return the weights of the beta-transformed pool with log a and log b, from a start on."""
    shaped = ShapedScore(objective)
    return minimize(shaped.mean, start, tol=_SETTLED, free=2, value_at=shaped.mean_value)


def _with_shape(objective: Objective, found: SimplexSolution) -> TunedWeights:
    """Read weights, log a and log b."""
    weights, rule = found.weights[:-2], BetaLinear(*np.exp(found.weights[-2:]))
    value = _score_alone(objective, found.value, weights)
    return TunedWeights(weights, value, float("nan"), found.n_iter, found.converged, rule=rule)


def _score_alone(objective: Objective, value: float, weights: Vector) -> float:
    """Return the mean score without what a pull adds to it."""
    if not isinstance(objective, PulledScore):
        return value
    return value - objective.pull.penalty(weights) / objective.n_rows


def tune_encoded(task: Encodable) -> TunedWeights:
    """Find the weights of a problem in memory or in chunks."""
    encoded = task.encode()
    solution, held = _solve(encoded)
    if solution is None:
        return _hopeless(task)
    bound = solution.value - solution.gap
    steps = solution.n_iter
    # A certain member whose weight fell to zero decides nothing any more: tune what is left without it.
    while bool((encoded.decisive & ~_support(solution, held)).any()):
        encoded = task.encode(_support(solution, held))
        again, held = _solve(encoded)
        if again is None:
            return _hopeless(task)
        solution, steps = again, steps + again.n_iter
    gap = max(solution.value - bound, solution.gap) if encoded.objective.convex else float("nan")
    weights = np.zeros(task.n_members)
    weights[held.numpy()] = solution.weights
    value = _score_alone(encoded.objective, solution.value, solution.weights)
    tuned = TunedWeights(weights, value, gap, steps, solution.converged)
    return tuned if encoded.objective.exact else _judged(task, tuned)


def _solve(encoded: EncodedMembers) -> tuple[SimplexSolution | None, torch.Tensor]:
    held, objective = encoded.held, encoded.objective
    if not bool(held.any()):
        return None, held
    near = objective.pull.towards if isinstance(objective, PulledScore) else None
    solution = solve(objective, int(held.sum()), near)
    return (solution if np.isfinite(solution.value) else None), held


def _support(solution: SimplexSolution, held: torch.Tensor) -> torch.Tensor:
    support = torch.zeros_like(held)
    support[torch.nonzero(held)[:, 0][torch.as_tensor(solution.weights > 0)]] = True
    return support


def _hopeless(task: Encodable) -> TunedWeights:
    warn(
        f"every weighting of the {task.n_members} members gives some outcome probability zero, so the score "
        "is infinite whatever the weights; equal weights are returned: use the linear pool, or another score",
        ConvergenceWarning,
    )
    equal = np.full(task.n_members, 1.0 / task.n_members)
    return TunedWeights(equal, float("inf"), float("nan"), 0, False)
