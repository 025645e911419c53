"""``pooling="auto"``: the pool that validation data choose, and why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deeptram.ensemble.members import AUTO, meant_pool
from deeptram.errors import InvalidInputError
from deeptram.pooling import METHODS, PoolComparison, Rule, compare_pools, get_rule
from deeptram.pooling.comparison import FittedPool
from deeptram.pooling.weights.log_likelihood import CLOSED_FORM
from deeptram.predictive import Predictive

_FOLDS = 5


@dataclass(frozen=True, eq=False)
class PoolChoice:
    """The pool that was chosen.

    Attributes
    ----------
    pool : str
        Its name.
    reason : str
        Why it was chosen, with the numbers.
    table : PoolComparison or None
        All candidates out of fold; None for an ensemble that was loaded.
    """

    pool: str
    reason: str
    table: PoolComparison | None = None

    def note(self, readable: Any) -> str | None:
        """Return whose coefficients are shown, where another pool predicts than the readable one."""
        if self.pool == readable:
            return None
        return f"coefficients: of the {readable} pool, with the same weights; the {self.pool} pool predicts"


def choose_pool(
    members: Sequence[Predictive], y: Any, weights: Any, kind: str | None, score: str
) -> tuple[PoolChoice, str | Rule, NDArray[np.float64]]:
    """Return which pool for these members and why, the pool with its own parameters, and its weights.

    The transformation pool, with equal weights if they do, unless others are better by more than chance:
    of the candidates whose paired 95 % interval to the best holds zero, it is the first in that order.

    Parameters
    ----------
    members : sequence of M Predictive
        Of rows on which the members were not trained.
    y : outcomes
    weights : {"equal", "tuned"}
        ``"tuned"``: equal and tuned ones are compared, the latter for pools with certified weights.
    kind : str or None
        The kind of outcome.
    score : str
    """
    if not isinstance(weights, str):
        raise InvalidInputError(
            f"pooling={AUTO!r} chooses the weights, too, got given ones; use weights='equal' or 'tuned'"
        )
    readable = str(meant_pool("transformation", kind))
    table = compare_pools(
        members,
        y,
        methods=METHODS if weights == "equal" else CLOSED_FORM,
        weights=("equal", "tuned") if weights == "tuned" else ("equal",),
        corrections=[None],
        cv=min(_FOLDS, len(members[0])),
        score=score,
    )
    as_good = table[~(table["lower"] > 0)]
    kept = as_good[as_good["pool"] == readable].sort_values("weights", kind="stable")  # equal before tuned
    row, best = (kept if len(kept) else table).iloc[0], table.iloc[0]
    found = FittedPool.fit(row["pool"], row["weights"], members, y, score)
    reason = f"{row['pool']} pool, {row['weights']} weights: {score} {row['score']:.4g} out of fold"
    if row.name != best.name:
        reason += (
            f", within chance of the best ({best['pool']}, {best['weights']}: {best['score']:.4g}), "
            "and readable"
        )
    elif row["pool"] != readable:
        other = table[table["pool"] == readable].iloc[0]
        reason += (
            f", better than the {readable} pool by {other['difference']:.3g} "
            f"({other['lower']:.3g} to {other['upper']:.3g})"
        )
    else:
        reason += ", the best, and readable"
    name = str(row["pool"])
    rule = found.method if get_rule(name).values() else name
    return PoolChoice(name, reason, table), rule, found.weights
