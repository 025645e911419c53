"""Scores by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from deeptram._validation import check_choice
from deeptram.evaluation.scores.log_score import nll
from deeptram.evaluation.scores.probability import brier, quadratic
from deeptram.evaluation.scores.ranked_probability import crps, rps

Score: TypeAlias = Callable[..., Any]

_SCORES: dict[str, Score] = {"nll": nll, "rps": rps, "brier": brier, "quadratic": quadratic, "crps": crps}


def get(name: str) -> Score:
    """Return the score of that name, a function ``(y, pred, *, reduction="mean")``.

    Its tensor-level core for discrete outcomes is ``deeptram.evaluation.scores.core.get(name)``.

    Examples
    --------
    >>> get("rps").__name__
    'rps'
    """
    return _SCORES[check_choice(name, _SCORES, "score")]


def names() -> list[str]:
    """Return the names of all scores.

    Examples
    --------
    >>> names()
    ['nll', 'rps', 'brier', 'quadratic', 'crps']
    """
    return list(_SCORES)
