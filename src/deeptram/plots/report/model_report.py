"""The report of a fitted model or ensemble on data: one page, the answer first, with a what-if view."""

from __future__ import annotations

import hashlib
import html
import os
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import clone

from deeptram._files import write_bytes
from deeptram._rows import take_rows
from deeptram._validation import (
    check_integer,
    check_probability_level,
    check_same_labels,
    check_same_length,
)
from deeptram.errors import DeeptramError, DeeptramWarning, InvalidInputError
from deeptram.estimators import proportionality_test
from deeptram.estimators.coefficient_table import described_outcome, described_terms
from deeptram.estimators.deep import training_messages
from deeptram.estimators.presets import common_name
from deeptram.evaluation.scores import nll
from deeptram.inputs import Table, read_table
from deeptram.plots import wording
from deeptram.plots.report.model_answers import (
    MOST_ROWS,
    SAID,
    answers,
    coefficients_in_words,
    importance_table,
    scores_table,
)
from deeptram.plots.report.model_figures import ModelFigures
from deeptram.plots.report.page import Cell, Facts, Page, Section, Sentences, TextTable, Words, made_by
from deeptram.plots.report.whatif import WhatIf, described_fixed, what_if
from deeptram.predictive.base import Predictive
from deeptram.predictive.discrete import DiscretePredictive
from deeptram.responses import Surv

WORST, TYPICAL = 10, 5
MOST_COEFFICIENTS = 40
LEAST_ROWS = 5  # of fewer there are at most 35 different bootstrap samples, too few for limits of 95 %


@dataclass(frozen=True, eq=False)
class Report:
    """A page; in a notebook it shows itself.

    Attributes
    ----------
    html : str
        The whole page.
    path : Path or None
        Where it was written.

    Examples
    --------
    >>> Report("<!DOCTYPE html>").path is None
    True
    """

    html: str = field(repr=False)
    path: Path | None = None

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the page and return its path."""
        write_bytes(Path(path), self.html.encode())
        return Path(path)

    def _repr_html_(self) -> str:
        """Return a frame with the page in it, which keeps its styles and scripts to itself."""
        return (
            f'<iframe srcdoc="{html.escape(self.html)}" title="deeptram report" '
            'style="width: 100%; height: 80vh; border: 0"></iframe>'
        )


def model_report(
    model: Any,
    X: Any,
    y: Any,
    path: str | os.PathLike[str] | None = None,
    *,
    n_boot: int = 1000,
    level: float = 0.95,
    random_state: Any = 0,
    source: str = "",
) -> Report:
    """Return the report of a fitted model or ensemble on data that it was not fitted to.

    Parameters
    ----------
    model : Tram or Ensemble
        Fitted.
    X, y : data
        As for ``fit``; at least 5 rows, for fewer leave nothing to make intervals of.
    path : path-like, optional
        Where to write the page.
    n_boot : int
        Bootstrap samples of the intervals.
    level : float
        Coverage of the intervals.
    random_state : int
        Seed of bootstrap and shuffling.
    source : str
        Where the data come from, for the section on provenance.
    """
    n_boot, level = check_integer(n_boot, "n_boot", 0), check_probability_level(level)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeeptramWarning)  # the page says what it extrapolates
        pred = model.predict_distribution(X)
        check_same_length(X=np.empty(len(pred)), y=y)
        check_same_labels(X=X, y=y)
        if len(pred) < LEAST_ROWS:
            raise InvalidInputError(
                f"a report needs at least {LEAST_ROWS} rows with outcomes to make intervals of, got "
                f"{len(pred)}; pass more rows, or predict these ones"
            )
        page = _Context(model, X, y, pred, n_boot, level, random_state, source).page().html()
    report = Report(page, None if path is None else Path(path))
    if path is not None:
        report.save(path)
    return report


@dataclass(frozen=True, eq=False)
class _Context:
    """A model, the rows it is judged on, and the page about both."""

    model: Any
    X: Any
    y: Any
    pred: Predictive
    n_boot: int
    level: float
    random_state: Any
    source: str

    def page(self) -> Page:
        table = read_table(self.X)
        settings = {"n_boot": self.n_boot, "level": self.level, "random_state": self.random_state}
        found = answers(self.model, self.X, self.y, self.pred, table, **settings)
        score = np.asarray(nll(self.y, self.pred, reduction="none"))
        known = self._coefficient_table()
        drawn = ModelFigures(self.model, self.X, self.y, self.pred, self.level, known)
        figures = {figure.name: figure for figure in drawn.all(found, table)}
        made, coefficients = self._what_if(score), self._coefficients(known)
        reason = getattr(self.model, "why_no_coefficients", lambda: "")()
        notes = [
            f"There is no what-if view: {made.reason}." if made.reason else "",
            f"There are no coefficients: {reason}" if reason and coefficients is None else "",
            *(f"Mind: {said}" for said in training_messages(self._members).values()),
        ]
        answer = [Sentences(found.head, "answer"), scores_table(found, self.n_boot, self.level)]
        answer += [Words(note, "notice") for note in notes if note]
        sign = "" if known is None else wording.sign_words(known.attrs["sign"])
        shifts = [f"{sign[:1].upper()}{sign[1:]}.", *self._about(known), coefficients, self._assumption()]
        effects = [figures.get("effects"), importance_table(found.importance)]
        facts = Facts(self._facts(table))
        return Page(
            f"{self._name} on {len(self.pred):,} rows",
            self._lead(),
            [
                Section("answer", "The answer", answer),
                Section(
                    "what-if",
                    "What if",
                    [Words(SAID.what_if(described_fixed(made), len(self._members)), "soft"), made]
                    if made.spec
                    else [],
                ),
                Section(
                    "coefficients-section",
                    "Coefficients",
                    [*shifts, figures.get("coefficients")] if coefficients else [],
                ),
                Section("effects-section", "Effects", effects),
                Section(
                    "calibration-section",
                    "Calibration",
                    [Sentences(found.calibration), figures["calibration"], figures["distribution"]],
                ),
                Section("survival-section", "Survival", [figures.get("survival")]),
                Section("worst", "Worst rows", self._worst(score)),
                Section("provenance", "Data and provenance", [facts]),
            ],
        )

    # -- words --------------------------------------------------------------------------------------

    @property
    def _members(self) -> list[Any]:
        return list(getattr(self.model, "members_", [self.model]))

    @property
    def _first(self) -> Any:
        return self._members[0]

    @property
    def _name(self) -> str:
        name = common_name(self._first)
        count = len(self._members)
        return f"Ensemble of {count} {name} members" if hasattr(self.model, "members_") else name

    def _lead(self) -> str:
        first = self._first
        kind = described_outcome(first.outcome_) if hasattr(first, "outcome_") else "foreign members"
        pooled = f"; {self.model.pooling} pool" if hasattr(self.model, "members_") else ""
        return f"{kind[0].upper()}{kind[1:]}{pooled}."

    def _coefficient_table(self) -> pd.DataFrame | None:
        try:
            pooled = hasattr(self.model, "members_")
            table = self.model.coef_table(self.level) if pooled else self.model.summary(self.level)
        except DeeptramError:
            return None
        if table.empty or not hasattr(self._first, "design_"):
            return None
        return coefficients_in_words(table.head(MOST_COEFFICIENTS), self._first, self.X)

    def _coefficients(self, known: pd.DataFrame | None) -> TextTable | None:
        """Return the coefficients in numbers and words; None where there are none."""
        if known is None:
            return None
        rows: list[list[str | Cell]] = [
            [name, Cell.of(coef, lower, upper, 3), words]
            for name, coef, lower, upper, words in known.itertuples(name=None)
        ]
        header = ["column", f"coefficient ({100 * self.level:g} % interval)", "in words"]
        return TextTable(header, rows, 1, label="Coefficients", words=("in words",))

    def _about(self, known: pd.DataFrame | None) -> list[Sentences]:
        """Return what Python prints above the coefficients, but for what stands elsewhere on the page."""
        _, *header = [""] if known is None else known.attrs["header"]
        elsewhere = ("n = ", "coef: ", "time_ratio: ", *training_messages(self._members).values())
        said = [line for line in header if not line.startswith(elsewhere)]
        return [Sentences(said)] if said else []

    def _assumption(self) -> str:
        """Return whether effects change with the outcome, by a score test on the training rows if known."""
        spec = getattr(self.model, "spec_", None)
        if spec is None or spec.is_deep or self.model.design_.linear is None:
            return ""
        outcome = self.model.outcome_
        if outcome.kind.is_nominal or len(outcome.levels or ()) == 2:
            return ""
        word = {"minimum-extreme-value": "Proportional hazards", "logistic": "Proportional odds"}
        name = word.get(self.model.latent_.name, "Effects that are the same at every outcome")
        problem = getattr(self.model.fit_, "problem", None)
        known = problem is not None and problem.pieces is None
        rows = "on its training rows" if known else "of the model refitted to these rows"
        try:
            test = proportionality_test(self.model if known else clone(self.model).fit(self.X, self.y))
        except DeeptramError as error:
            return f"{name}: not checked by a score test {rows} ({error})."
        p, each = float(test["p"]["overall"]), test["p"].drop("overall")
        said = (
            f"{name}, checked by a score test {rows}: {wording.p_value(p)} "
            f"overall, least for {each.idxmin()} ({wording.p_value(float(each.min()))})"
        )
        if p >= 0.05:
            return f"{said}; nothing speaks against it here."
        return f"{said}: effects change with the outcome; consider dt.Varying, or strata, for these columns."

    def _worst(self, score: Any) -> list[Words | TextTable]:
        """Return the rows that the model explains worst, with the parts of h where they add up."""
        order = np.argsort(-score, kind="stable")[:WORST]
        try:
            some = take_rows(self.X, np.arange(min(len(score), MOST_ROWS)))
            parts = self.model.contributions(take_rows(self.X, order))
            parts = (parts - self.model.contributions(some).mean()).drop(columns="log scale", errors="ignore")
            linear = self._first.design_.linear
            owner = (
                {} if linear is None else {linear.names[j]: t for t, js in linear.terms.items() for j in js}
            )
            parts = parts.T.groupby(lambda name: owner.get(name, name), sort=False).sum().T
        except (DeeptramError, AttributeError):
            parts = pd.DataFrame(index=range(len(order)))
        rows = [
            [str(self._index[row]), _shown(self.y, row), self._predicted(row), wording.decimal(score[row], 2)]
            for row in order.tolist()
        ]
        for k, row in enumerate(rows if parts.shape[1] else []):
            own = parts.iloc[k].astype(float).sort_values(key=abs, ascending=False)[:4]
            own = own[own.abs() >= 0.005]
            told = [f"{name}\u00a0{wording.decimal(value, 2, sign=True)}" for name, value in own.items()]
            row.append(", ".join(told))
        header = ["row", "observed", "predicted", "NLL", *(["parts of h"] if parts.shape[1] else [])]
        table = TextTable(header, rows, 3, label="Worst rows", words=("parts of h",))
        nominal = isinstance(self.pred, DiscretePredictive) and self.pred.is_nominal
        return [Words(SAID.worst(bool(parts.shape[1]), nominal), "soft"), table]

    def _predicted(self, row: int) -> str:
        """Return the likeliest level or the median of a row; of times, at most the last one seen."""
        one, last = self.pred[[row]], getattr(self.pred, "last_time", np.inf)
        if isinstance(one, DiscretePredictive):
            return wording.short(_plain(one.mode()[0]))
        median = float(np.asarray(one.median())[0])
        return f"> {wording.short(last)}" if median > last else wording.short(median)

    # -- what-if and facts ---------------------------------------------------------------------------------

    @property
    def _index(self) -> Any:
        return self.X.index if isinstance(self.X, pd.DataFrame) else range(len(self.pred))

    def _what_if(self, score: Any) -> WhatIf:
        order = np.argsort(score, kind="stable")
        spread = order[np.linspace(0, len(order) - 1, min(TYPICAL, len(order))).astype(int)]
        middle = order[len(order) // 2 :][:1]  # the page opens with it
        rows = list(dict.fromkeys(np.concatenate([middle, spread[:-1], order[::-1][:TYPICAL]]).tolist()))
        labels = [f"row {self._index[row]}, observed {_shown(self.y, row)}" for row in rows]
        return what_if(self.model, self.X, rows, labels)

    def _held_out(self) -> str:
        """Return which share of the rows chose the best epochs, where the model was told to hold one out."""
        share = getattr(getattr(self._first, "training", None), "validation", None)
        in_folds = hasattr(self.model, "fold_weights_")
        if share is None or in_folds or not self._first.spec_.is_deep:
            return ""
        return f", {100 * share:.3g} % of them to choose the best epochs on (validation)"

    def _facts(self, table: Table) -> list[tuple[str, str]]:
        first = self._first
        names = ", ".join(table.entries[:20]) + (", ..." if len(table.entries) > 20 else "")
        weights = ", ".join(f"{w:.3g}" for w in getattr(self.model, "weights_", ()))
        facts = [
            ("Data", f"{len(self.pred):,} rows; columns {names}{f'; {self.source}' if self.source else ''}"),
            ("Fingerprint", _fingerprint(self.y, table)),
            ("Outcome", _outcome_words(self.y, self.pred)),
            ("Model", ", ".join(filter(None, [self._name, weights and f"weights {weights}"]))),
        ]
        if hasattr(first, "spec_"):
            facts.append(("Terms", described_terms(first)))
        if hasattr(first, "n_obs_"):
            reached = getattr(first, "loglik_", None)
            words = "" if reached is None else f", log-likelihood {wording.decimal(float(reached), 2)}"
            facts.append(("Fitted to", f"{first.n_obs_:,} rows{self._held_out()}{words}"))
        boot = f"{self.n_boot} bootstrap samples, seed {self.random_state}"
        facts.append(("Intervals", f"{100 * self.level:g} %, {boot}"))
        return [*facts, made_by()]


def _shown(y: Any, row: int) -> str:
    """Return one outcome in words; of times, what is known."""
    if isinstance(y, Surv):
        lower, upper = float(y.observations.lower[row]), float(y.observations.upper[row])
        if lower == upper:
            return wording.short(lower)
        if np.isinf(upper):
            return f"> {wording.short(lower)}"
        if np.isinf(lower):
            return f"≤ {wording.short(upper)}"
        return f"{wording.short(lower)} to {wording.short(upper)}"
    return wording.short(_plain(y.iloc[row] if isinstance(y, pd.Series) else y[row]))


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _outcome_words(y: Any, pred: Predictive) -> str:
    if isinstance(pred, DiscretePredictive):
        counts = np.bincount(np.asarray(pred.encode(y)), minlength=len(pred.levels))
        return ", ".join(f"{level}: {count}" for level, count in zip(pred.levels, counts, strict=True))
    if isinstance(y, Surv):
        seen = y.observations
        return f"{int(seen.exact.sum())} events, {int((~seen.exact).sum())} censored"
    values = np.asarray(y, dtype=float)
    ends = [wording.short(float(v)) for v in (values.min(), np.median(values), values.max())]
    return f"from {ends[0]} to {ends[2]}, median {ends[1]}"


def _fingerprint(y: Any, table: Table) -> str:
    """Return a hash of the tabular columns and outcomes, by which the same data are known again."""
    digest = hashlib.sha256()
    for name in table.names:
        column = table.column(name)
        is_text = isinstance(column, pd.Categorical)
        values = np.asarray(column).astype(str) if is_text else np.asarray(column, dtype=float)
        digest.update(name.encode() + values.tobytes())
    if isinstance(y, Surv):
        outcome = np.concatenate([y.observations.lower, y.observations.upper])
    else:
        outcome = np.asarray(y).astype(str)
    digest.update(np.ascontiguousarray(outcome).tobytes())
    return digest.hexdigest()[:16]
