"""Which of the paper's propositions hold for a pool, checked on data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from torch import Tensor

from deeptram._arrays import as_numpy
from deeptram.errors import InvalidInputError, InvalidTypeError, UnsupportedError
from deeptram.evaluation import scores
from deeptram.pooling.pool import as_members, normalised_weights, pool
from deeptram.pooling.rule import PoolInfo
from deeptram.pooling.structure import structure_check
from deeptram.predictive.base import Predictive
from deeptram.predictive.discrete import DiscretePredictive
from deeptram.predictive.line import LinePredictive
from deeptram.predictive.survival import SurvivalPredictive
from deeptram.responses.observations import Observations, Surv

Floats = npt.NDArray[np.float64]
_ROUNDING = 1e-9
_QUADRATURE = 1e-7  # of a CRPS that is an integral
_PROPOSITION = {"transformation": "Prop. 3", "log-linear-density": "Prop. 4", "log-linear": "Prop. 5"}
_VERDICTS = {
    (True, True): "held in every row",
    (True, False): "VIOLATED in some row",
    (False, True): "not guaranteed, true here",
    (False, False): "not guaranteed, false in some row",
}
_COLUMNS = ["statement", "claim", "score", "applies", "pool", "bound", "held", "worst_row", "note"]
_MEAN = "score of the pool <= weighted mean of the members' scores"


@dataclass(frozen=True)
class Statement:
    """One proposition on these data.

    Attributes
    ----------
    statement, claim, score : str
    applies : bool
        Whether the proposition covers this pool, score and outcome.
    pool, bound : float
        The two sides of the inequality ``pool <= bound``, as means over rows.
    held : bool
        Whether it held in every row, up to rounding; shown also where it is not guaranteed.
    worst_row : float
        The largest value of ``pool - bound`` in any row.
    note : str
        Why it does not apply, or how to read the numbers.
    """

    statement: str
    claim: str
    score: str
    applies: bool
    pool: float
    bound: float
    held: bool
    worst_row: float
    note: str


@dataclass(frozen=True)
class Guarantees:
    """What is guaranteed for a pool, and what came out on the data given.

    Attributes
    ----------
    method : str
    statements : tuple of Statement
    """

    method: str
    statements: tuple[Statement, ...]

    @property
    def held(self) -> bool:
        """Whether every statement that applies held."""
        return all(one.held for one in self.statements if one.applies)

    def frame(self) -> pd.DataFrame:
        """Return one line per statement and score; ``held`` says so where a statement does not apply."""
        rows = [[getattr(one, column) for column in _COLUMNS] for one in self.statements]
        table = pd.DataFrame(rows, columns=_COLUMNS)
        table["held"] = table["held"].astype(object).where(table["applies"], "does not apply")
        return table

    def __str__(self) -> str:
        """Write one line per statement."""
        lines = [f"Guarantees of the {self.method} pool"]
        for one in self.statements:
            sign = "<=" if one.pool <= one.bound + _ROUNDING else "> "
            verdict = _VERDICTS[one.applies, one.held]
            label = f"{one.statement} ({one.score})"
            note = f" [{one.note}]" if one.note else ""
            lines.append(f"  {label:<18} {one.pool: .6f} {sign} {one.bound: .6f}  {verdict}{note}")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """Return the table for notebooks."""
        html: str = self.frame().to_html(index=False, float_format="{:.6f}".format, na_rep="")
        return f"<p>Guarantees of the {self.method} pool</p>{html}"


def guarantees(members: Any, pooled: Predictive, y: Any, weights: npt.ArrayLike | None = None) -> Guarantees:
    r"""Say which propositions cover a pool, with both sides of each inequality on data.

    =======  =========================================================  ======================================
    Prop. 1  convex score of the linear pool <= members' weighted mean  linear; NLL, RPS, Brier, CRPS
    Prop. 2  the pool stays in the members' model class                 transformation
    Prop. 3  NLL of the pool <= members' weighted mean                  transformation
    Prop. 4  the same                                                   log-linear-density, exact outcomes
    Prop. 5  the same                                                   log-linear (CDFs)
    Cor. 1   smallest worst-case regret in NLL                          transformation, logistic, binary
    Cor. 2   smallest worst-case regret in RPS                          linear, levels
    Jensen   CRPS of the pool <= members' weighted mean                 quantile, on the line
    =======  =========================================================  ======================================

    The last one is not in the paper: the CRPS is an integral of pinball losses, which are convex in the
    quantiles that this pool averages.

    The inequalities hold row by row, so ``held`` asks every row. There is **no** such guarantee for RPS
    and Brier score of any but the linear pool; those lines are listed with ``applies = False``. Nor is
    there one under left truncation, for censored outcomes under the log-linear-density pool, for the CRPS of
    survival curves that end at different times, or for a pool that was corrected afterwards.

    The regret of a row is :math:`\max_y \{s(\bar F, y) - \sum_m w_m s(F_m, y)\}`; its bound in the table
    is that of the minimax-optimal pool (``deeptram.evaluation.scores.minimax_pool``).

    Parameters
    ----------
    members : sequence of Predictive, or array of shape (M, n, K)
    pooled : Predictive
        Made from these members by ``deeptram.pool``.
    y : array-like of n outcomes, or Surv
    weights : array-like, shape (M,), optional
        Default: those of the pool.

    Examples
    --------
    >>> import deeptram as dt
    >>> members = [dt.Predictive.from_proba([[0.1, 0.9]]), dt.Predictive.from_proba([[0.5, 0.5]])]
    >>> result = dt.guarantees(members, dt.pool(members), [1])
    >>> result.held
    True
    >>> print(result)  # doctest: +ELLIPSIS
    Guarantees of the transformation pool
      Prop. 3 (nll)       0.287682 <=  0.399254  held in every row
      ...
    """
    checked = as_members(members)
    if not isinstance(pooled, Predictive):
        raise InvalidTypeError(
            f"pooled must be a Predictive, got {type(pooled).__name__}; make it with dt.pool"
        )
    info = pooled.pool_info
    if info is not None and info.by_row:
        raise UnsupportedError(
            "the propositions are about one set of weights, got a pool whose rows have weights of their own; "
            "ask for rows with equal weights"
        )
    w = _weights(weights, info, len(checked))
    task = _Task(checked, pooled, y, w, info)
    return Guarantees("unknown" if info is None else info.method, tuple(task.statements()))


class _Task:
    """The members, the pool and the data of one question."""

    def __init__(
        self, members: list[Predictive], pooled: Predictive, y: Any, w: Floats, info: PoolInfo | None
    ) -> None:
        self.members, self.pooled, self.y, self.w = members, pooled, y, w
        self.method = "" if info is None else info.method
        self.latent = None if info is None else info.latent
        self.corrected = info is not None and info.corrected
        seen = y.observations if isinstance(y, Surv) else y
        known = isinstance(seen, Observations)
        self.censored = known and not bool(seen.exact.all())
        self.truncated = known and seen.entry is not None and bool(np.isfinite(seen.entry).any())

    def statements(self) -> list[Statement]:
        """Return all statements, those that do not apply included."""
        found = []
        names = ["nll", "rps", "brier"] if isinstance(self.pooled, DiscretePredictive) else ["nll", "crps"]
        if self.censored:
            names = ["nll"]
        for name in names:
            found.append(self._better_than_average(name))
        found.append(self._closure())
        if isinstance(self.pooled, DiscretePredictive):
            found.extend([self._minimax("Cor. 1", "nll"), self._minimax("Cor. 2", "rps")])
        return found

    def _better_than_average(self, name: str) -> Statement:
        score = scores.get(name)
        own = np.asarray(score(self.y, self.pooled, reduction="none"), dtype=np.float64)
        mean = np.zeros_like(own)
        for member, weight in zip(self.members, self.w, strict=True):
            if weight > 0:
                mean = mean + weight * np.asarray(score(self.y, member, reduction="none"), dtype=np.float64)
        statement = "Prop. 1" if self.method == "linear" else _PROPOSITION.get(self.method, "none")
        note = self._why_not(name)
        if note and self.method != "linear" and name != "nll":
            statement = "none"
        if not note and self.method == "quantile":
            statement = "Jensen"
        return _compare(statement, _MEAN, name, not note, own, mean, note)

    def _why_not(self, name: str) -> str:
        if not self.method:
            return "the pool does not say how it was made"
        if self.corrected:
            return "no proposition covers a pool that was corrected afterwards"
        if self.method == "quasi-arithmetic":
            return "no proposition covers the general quasi-arithmetic pool"
        if self.method == "quantile" and name == "crps" and isinstance(self.pooled, LinePredictive):
            return ""  # pinball losses are convex in the quantiles, which are averaged
        if self.method not in ("linear", *_PROPOSITION):
            return f"no proposition covers the {self.method} pool"
        if self.method != "linear" and name != "nll":
            return f"only the linear pool has a guarantee in {name}"
        if self.truncated:
            return "no proposition covers left truncation"
        if name == "crps" and self._end_at_different_times():
            return "the CRPS of survival curves that end at different times are not comparable"
        if self.method == "log-linear-density" and self.censored:
            return "Prop. 4 covers exact outcomes only"
        return ""

    def _end_at_different_times(self) -> bool:
        ends = {float(m.times[-1]) for m in self.members if isinstance(m, SurvivalPredictive)}
        return len(ends) > 1

    def _closure(self) -> Statement:
        latent = self.latent or (None if self.pooled.latent is None else self.pooled.latent.name)
        check = structure_check(self.members, self.pooled, weights=self.w, latent=latent)
        applies = self.method == "transformation" and not self.corrected
        note = "largest deviation from the members' mean on the F_Z^-1 scale"
        scale = max(1.0, float(np.abs(check.mean_trafo[np.isfinite(check.mean_trafo)]).max(initial=0.0)))
        return Statement(
            "Prop. 2",
            "the pool is F_Z of the mean transformation",
            "structure",
            applies,
            check.deviation,
            0.0,
            bool(check.deviation <= 1e-8 * scale),
            check.deviation,
            note if applies else f"{note}; only the transformation pool is closed",
        )

    def _minimax(self, statement: str, name: str) -> Statement:
        members = [member for member in self.members if isinstance(member, DiscretePredictive)]
        binary = len(members[0].levels) == 2
        best = pool(members, method=scores.minimax_pool(name), weights=self.w)
        own = worst_case_regret(members, _discrete(self.pooled), self.w, name)
        bound = worst_case_regret(members, _discrete(best), self.w, name)
        note = "no proposition covers a pool that was corrected afterwards" if self.corrected else ""
        covered = self.method == "transformation" and self.latent == "logistic" and binary
        if statement == "Cor. 1" and self.method == "log-linear-density":
            statement = "Table D.1"
        elif statement == "Cor. 1" and not covered:
            note = "Cor. 1 is about the transformation pool of binary outcomes on the logistic scale"
        if statement == "Cor. 2" and self.method != "linear":
            note = "Cor. 2 is about the linear pool"
        claim = f"worst-case regret of the pool <= that of the {best.pool_info.method} pool, the minimum"
        return _compare(statement, claim, f"regret {name}", not note, own, bound, note)


def _compare(
    statement: str, claim: str, score: str, applies: bool, own: Floats, bound: Floats, note: str
) -> Statement:
    tolerance = _QUADRATURE if score == "crps" else _ROUNDING
    with np.errstate(invalid="ignore"):
        # Of an infinite density and of a density of zero there is no mean score.
        excess = np.where((own == bound) | np.isnan(bound), 0.0, own - bound)
        held = bool((excess <= tolerance * (1 + np.abs(np.where(np.isfinite(bound), bound, 0.0)))).all())
    return Statement(
        statement,
        claim,
        score,
        applies,
        float(own.mean()),
        float(bound.mean()),
        held,
        float(excess.max()),
        note,
    )


def _discrete(pred: Predictive) -> DiscretePredictive:
    if isinstance(pred, DiscretePredictive):
        return pred
    raise InvalidInputError(
        f"pooled must be a distribution on levels like the members, got {type(pred).__name__}; "
        "pass the pool of these members"
    )


def _weights(weights: npt.ArrayLike | None, info: PoolInfo | None, n_members: int) -> Floats:
    if weights is None and info is not None:
        weights = info.weights
    w = normalised_weights(weights, n_members)
    if info is not None and (
        len(info.weights) != n_members or np.abs(w - np.array(info.weights)).max() > 1e-6
    ):
        raise InvalidInputError(
            f"weights must be those the pool was made with, {np.round(info.weights, 6).tolist()}, got "
            f"{np.round(w, 6).tolist()}; pass the same members and weights, or leave weights out"
        )
    return w


# -- regret -----------------------------------------------------------------------------------------------


def _of_every_level(pred: DiscretePredictive, score: str) -> Tensor:
    """Return the scores of all possible outcomes, shape (n, K)."""
    of_codes = scores.core.get(score)
    codes = torch.arange(len(pred.levels)).unsqueeze(1).expand(-1, len(pred))
    return torch.stack([of_codes(pred, one) for one in codes], dim=1)


def worst_case_regret(
    members: Sequence[DiscretePredictive], pooled: DiscretePredictive, weights: Floats, score: str
) -> Floats:
    r"""Return the worst-case regret of each row, the quantity of Cors. 1 and 2, shape (n,).

    .. math:: r_i = \max_y \Big\{ s(\bar F_i, y) - \sum_m w_m s(F_{mi}, y) \Big\} .

    Where pool and members both exclude an outcome (two infinite scores) there is nothing to regret.

    Examples
    --------
    >>> import deeptram as dt
    >>> members = [dt.Predictive.from_proba([[0.1, 0.9]]), dt.Predictive.from_proba([[0.5, 0.5]])]
    >>> worst_case_regret(members, dt.pool(members), np.array([0.5, 0.5]), "nll").round(4)
    array([-0.1116])
    """
    own = _of_every_level(pooled, score)
    mean = sum(w * _of_every_level(m, score) for m, w in zip(members, weights, strict=True) if w > 0)
    difference = torch.where(torch.isinf(own) & torch.isinf(torch.as_tensor(mean)), 0.0, own - mean)
    values: Floats = as_numpy(difference.amax(dim=1).to(torch.float64))
    return values
