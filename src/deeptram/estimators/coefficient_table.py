"""Tables of coefficients that say what they are."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

if TYPE_CHECKING:
    from deeptram.latent import Latent
    from deeptram.model import Outcome

Array = NDArray[np.float64]

SIGN = "F_Z(h(y) - x'beta): a positive coefficient means a larger outcome"
_WHOLE = {"coef", "se", "lower", "upper"}
_SHOWN_LEVELS = 12
_WIDTH = 120  # characters of a printed line: room for every column
_MEANING = {
    "logistic": "log odds-ratio of a larger outcome, at every cutoff; exp_coef: odds ratio",
    "normal": "difference in standard deviations of the transformed outcome; positive: larger outcome",
    "minimum-extreme-value": "minus the log hazard-ratio; positive: later events (R reports the log "
    "hazard-ratio, -coef)",
    "maximum-extreme-value": "log reverse-time hazard-ratio; positive: larger outcome",
}


class CoefficientTable(pd.DataFrame):
    """A table of coefficients whose print and HTML have a header, from ``attrs["header"]``.

    Pieces of it, without all of ``coef, se, lower, upper``, print like any table.

    Examples
    --------
    >>> table = CoefficientTable({"coef": [1.0], "se": [1.0], "lower": [-1.0], "upper": [3.0]}, index=["a"])
    >>> table.attrs["header"] = ["Polr, n = 10"]
    >>> table
    Polr, n = 10
    <BLANKLINE>
       coef   se  lower  upper
    a   1.0  1.0   -1.0    3.0
    """

    @property
    def _constructor(self) -> type[CoefficientTable]:
        return CoefficientTable

    def _header(self) -> list[str]:
        whole = set(self.columns) >= _WHOLE
        return [str(line) for line in self.attrs.get("header", ())] if whole else []

    def __repr__(self) -> str:
        """Return the header, an empty line and the table with all its columns."""
        header = self._header()
        if not header:
            return str(super().__repr__())
        with pd.option_context("display.max_columns", None, "display.width", _WIDTH, "display.precision", 4):
            return "\n".join([*header, "", super().__repr__()])

    def _repr_html_(self) -> str | None:
        """Return the header as a paragraph before the table."""
        table = super()._repr_html_()
        lines = "<br>".join(html.escape(line) for line in self._header())
        return f"<p>{lines}</p>\n{table}" if lines and table is not None else table


def wald_table(
    index: Sequence[str], coef: Array, se: Array, level: float, latent: Latent
) -> CoefficientTable:
    """Return estimates with standard errors, tests and limits; exponentials where they mean something.

    Parameters
    ----------
    index : sequence of str
        Names of the p coefficients.
    coef, se : array, shape (p,)
    level : float
    latent : Latent
        F_Z; with the normal one exp(coefficient) has no meaning and is left out.
    """
    half = stats.norm.ppf((1 + level) / 2) * se
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        z = coef / se
        columns = {
            "coef": coef,
            "se": se,
            "z": z,
            "p": 2 * stats.norm.sf(np.abs(z)),
            "lower": coef - half,
            "upper": coef + half,
        }
        if latent.name != "normal":
            columns["exp_coef"] = np.exp(coef)
    table = CoefficientTable(columns, index=list(index))
    table.attrs.update(sign=SIGN, effect=latent.effect_name, exp_effect=latent.exp_effect_name, level=level)
    return table


def meaning(outcome: Outcome, latent: Latent) -> str:
    """Return what a coefficient is.

    Parameters
    ----------
    outcome, latent : Outcome, Latent

    Examples
    --------
    >>> from deeptram import latent
    >>> from deeptram.model import Outcome, OutcomeSettings
    >>> meaning(Outcome.fit(OutcomeSettings("binary"), [0, 1])[0], latent.get("logit"))
    'coef: log odds-ratio of 1 against 0; exp_coef: odds ratio'
    """
    levels = outcome.levels
    if levels is not None and outcome.kind == "nominal":
        return f"coef: log odds-ratio of the level in its name against {levels[0]}; exp_coef: odds ratio"
    if levels is not None and len(levels) == 2 and latent.name == "logistic":
        return f"coef: log odds-ratio of {levels[1]} against {levels[0]}; exp_coef: odds ratio"
    ratio = latent.name == "minimum-extreme-value" and levels is None
    return f"coef: {_MEANING.get(latent.name, latent.effect_name)}" + (
        "; hazard_ratio: exp(-coef)" if ratio else ""
    )


def described_outcome(outcome: Outcome) -> str:
    """Return the kind of outcome, and the order of its levels.

    Parameters
    ----------
    outcome : Outcome

    Examples
    --------
    >>> from deeptram.model import Outcome, OutcomeSettings
    >>> settings = OutcomeSettings("ordinal", levels=["low", "mid", "high"])
    >>> described_outcome(Outcome.fit(settings, ["mid", "low"])[0])
    'ordinal outcome, low < mid < high'
    """
    levels: tuple[Any, ...] = outcome.levels or ()
    named = [str(level) for level in levels]
    if len(named) > _SHOWN_LEVELS:
        named = [*named[: _SHOWN_LEVELS - 1], "...", named[-1]]
    if outcome.kind == "nominal":
        return f"nominal outcome, levels {', '.join(named)}"
    if len(levels) == 2:
        return f"{outcome.kind} outcome, {levels[1]} is the larger class (the other: {levels[0]})"
    return f"{outcome.kind} outcome" + (f", {' < '.join(named)}" if named else "")
