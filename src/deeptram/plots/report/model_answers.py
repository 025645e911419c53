"""What a report of a model says first: how good, against the null model, calibrated or not, what matters."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import norm

from deeptram._rows import take_rows
from deeptram.errors import DeeptramError, DeeptramWarning, UnsupportedError
from deeptram.estimators import Tram
from deeptram.evaluation import evaluate
from deeptram.evaluation.metrics import d_calibration
from deeptram.evaluation.metrics.calibration import clopper_pearson
from deeptram.evaluation.scores import nll
from deeptram.inputs import LinearEncoder, Table
from deeptram.model.terms import SI
from deeptram.plots import wording
from deeptram.plots.profiles import columns_read, with_column
from deeptram.plots.report.page import Cell, TextTable, words_of
from deeptram.plots.style import metric_hint, metric_label
from deeptram.plots.wording import gain_words, large_sentence, slope_sentence
from deeptram.predictive.base import Predictive
from deeptram.predictive.discrete import DiscretePredictive
from deeptram.predictive.line import LinePredictive
from deeptram.responses import Surv

Floats = NDArray[np.float64]
TIME_METRICS = ("nll", "concordance", "ibs")
MODEL, NULL = "model", "null model"
SHUFFLES = 3
MOST_ROWS = 2000  # for shuffling columns
COVERAGE = 0.8
_ROUNDING = 1e-9
_DIFFERENCE_ENDS = ["difference_lower", "difference_upper"]
SAID = words_of("deeptram.plots.report")


@dataclass(frozen=True, eq=False)
class Answers:
    """Numbers and sentences about a model's predictions.

    Attributes
    ----------
    scores : DataFrame
        From ``evaluate``, with differences to the null model where there is one.
    importance : DataFrame
        Columns ``column, loss`` (by how much shuffling a column worsens the NLL), largest first.
    head : list of str
        The answer.
    calibration : list of str
        What is known about calibration.
    null : Predictive or None
    null_from_training : bool
        Whether the null model is that of the outcomes the model was fitted to, not of these rows.
    """

    scores: pd.DataFrame
    importance: pd.DataFrame
    head: list[str]
    calibration: list[str]
    null: Predictive | None
    null_from_training: bool


def answers(
    model: Any,
    X: Any,
    y: Any,
    pred: Predictive,
    table: Table,
    *,
    n_boot: int,
    level: float,
    random_state: Any,
) -> Answers:
    """Return what the report begins with.

    Parameters
    ----------
    model : Tram or Ensemble
    X, y : data
    pred : Predictive
        The model's predictions of X.
    table : Table
        The columns of X.
    n_boot : int
    level : float
    random_state : int
        Seed of bootstrap and shuffling.
    """
    null, from_training = null_model(model, y, pred)
    named = {MODEL: pred} | ({} if null is None else {NULL: null})
    reference = None if null is None else NULL
    settings: dict[str, Any] = {"n_boot": n_boot, "level": level, "random_state": random_state}
    try:
        chosen = TIME_METRICS if isinstance(y, Surv) else None
        scores = evaluate(named, y, metrics=chosen, reference=reference, **settings)
    except UnsupportedError:  # interval-censored or truncated times have the NLL only
        scores = evaluate(named, y, reference=reference, **settings)
    scores = _with_width(scores)
    importance = shuffled_losses(model, X, y, pred, table, random_state)
    calibration = calibration_words(scores, y, pred, level)
    head = [quality_sentence(scores, len(pred), null is not None), *calibration]
    matters = importance_sentence(importance)
    head += [matters] if matters else []
    return Answers(scores, importance, head, calibration, null, from_training)


def _with_width(scores: pd.DataFrame) -> pd.DataFrame:
    """Return scores without limits that fall together: all samples agreed, so they say nothing of others."""
    found = scores.copy()
    found.loc[np.isclose(found["lower"], found["upper"], _ROUNDING, _ROUNDING), ["lower", "upper"]] = np.nan
    if "difference" in found:  # predictions that are the same differ by nothing on any rows
        alike = np.isclose(found["difference_lower"], found["difference_upper"], _ROUNDING, _ROUNDING)
        found.loc[alike & (found["difference"] != 0), _DIFFERENCE_ENDS] = np.nan
    return found


def null_model(model: Any, y: Any, pred: Predictive) -> tuple[Predictive | None, bool]:
    """Return the same distribution for all rows, and whether it is that of the outcomes fitted to.

    Where the model does not know these (foreign members, data in parts), it is estimated from the rows it is
    compared on, which favours it; None if they are too few.

    Examples
    --------
    >>> pred = Predictive.from_proba([[0.4, 0.6]] * 4, levels=("no", "yes"))
    >>> null, from_training = null_model(None, ["no", "yes", "yes", "yes"], pred)
    >>> null.pmf()[0], from_training
    (array([0.25, 0.75]), False)
    """
    first = getattr(model, "members_", [model])[0]
    outcome = getattr(first, "outcome_", None)
    marginal = None if outcome is None else outcome.marginal
    if isinstance(pred, DiscretePredictive):
        codes = np.asarray(pred.encode(y)) if marginal is None else marginal.outcomes.codes
        counts = np.bincount(codes, None if marginal is None else marginal.weights, len(pred.levels))
        with np.errstate(divide="ignore"):
            log_shares = np.log(counts / counts.sum())
        same = DiscretePredictive.from_log_pmf(np.tile(log_shares, (len(pred), 1)), levels=pred.levels)
        same.ordered = pred.ordered
        return same, marginal is not None
    if outcome is None:
        return None, False
    bare = Tram(
        [SI()],
        outcome=str(outcome.kind),
        latent=first.latent_,
        order=4,
        log_first=outcome.log_first,
        support=outcome.observed,
    )
    seen, weights = (y, None) if marginal is None else (outcome.decode(marginal.outcomes), marginal.weights)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeeptramWarning)
            bare.fit(np.zeros((len(seen), 1)), seen, sample_weight=weights)
            return bare.predict_distribution(np.zeros((len(pred), 1))), marginal is not None
    except DeeptramError:
        return None, False


def quality_sentence(scores: pd.DataFrame, n: int, has_null: bool) -> str:
    """Return how good the model is, in its first score.

    Examples
    --------
    >>> row = {"name": "model", "metric": "nll", "estimate": 0.5, "lower": 0.4, "upper": 0.6}
    >>> quality_sentence(pd.DataFrame([row]), 120, False)
    'On 120 rows the NLL is 0.5000 (0.4000 to 0.6000).'
    """
    mine = scores[scores["name"] == MODEL]
    first = mine.iloc[0]
    value = wording.estimate(first["estimate"], first["lower"], first["upper"])
    sentence = f"On {n:,} rows the {metric_label(first['metric'])} is {value}"
    if has_null:
        limits = first[["difference", *_DIFFERENCE_ENDS]]
        sentence += f", {gain_words(*limits, other='that of the null model')}, which ignores all covariates"
    others = [
        f"{metric_label(row['metric'])} {wording.estimate(row['estimate'], row['lower'], row['upper'], 3)}"
        f"{_against_null(row) if has_null else ''}"
        for _, row in mine.iloc[1:].iterrows()
        if row["metric"] in ("accuracy", "auc", "qwk", "crps", "concordance")
        and math.isfinite(row["estimate"])
    ]
    return sentence + (f"; {', '.join(others)}." if others else ".")


def _against_null(row: pd.Series) -> str:
    """Return that a score is no better than the null model's, where it is so; nothing where it is better."""
    sign = 1 if metric_hint(row["metric"]).startswith("smaller") else -1
    if not sign * row["difference"] >= 0:
        return ""
    clear = min(sign * row["difference_lower"], sign * row["difference_upper"]) > 0
    null = wording.decimal(row["estimate"] - row["difference"], 3)
    return f", {'worse' if clear else 'not better'} than the null model's {null}"


def calibration_words(scores: pd.DataFrame, y: Any, pred: Predictive, level: float) -> list[str]:
    """Return whether predictions come true: in the large and in their confidence, or by their intervals."""
    mine = scores[scores["name"] == MODEL].set_index("metric")
    if "calibration_slope" in mine.index:
        limits = ["estimate", "lower", "upper"]
        return [
            slope_sentence("The model", *mine.loc["calibration_slope", limits].astype(float)),
            large_sentence("It", *mine.loc["citl", limits].astype(float)),
        ]
    if isinstance(pred, DiscretePredictive):
        return [_confidence_sentence(y, pred, level)]
    if isinstance(y, Surv):
        return [_d_calibration_sentence(y, pred)]
    return [_coverage_sentence(np.asarray(y, dtype=np.float64), pred, level)]


def _confidence_sentence(y: Any, pred: DiscretePredictive, level: float) -> str:
    right = np.asarray(pred.encode(y)) == np.asarray(pred.pmf()).argmax(axis=1)
    claimed = float(np.asarray(pred.pmf()).max(axis=1).mean())
    lower, upper = (float(end[()]) for end in clopper_pearson(right.sum(), len(right), level))
    words = "as often as it claims, as far as these rows show"
    if not lower <= claimed <= upper:
        words = "more often than it claims: it is under-confident"
        words = "less often than it claims: it is over-confident" if claimed > upper else words
    return (
        f"The level it holds most likely is the right one in {_percent(right.mean())} of the rows "
        f"({_percent(lower)} to {_percent(upper)}), where it claims {_percent(claimed)}: {words}."
    )


def _d_calibration_sentence(y: Surv, pred: Predictive) -> str:
    found = d_calibration(y, pred)
    shown = f"D-calibration, χ² {wording.decimal(found.statistic, 1)}, {wording.p_value(found.p_value)}"
    if found.p_value < 0.05:
        return f"Predicted survival does not fit the observed times ({shown}); see the curves below."
    return f"Predicted survival fits the observed times as far as these rows show ({shown})."


def _coverage_sentence(y: Floats, pred: Predictive, level: float) -> str:
    low, high = (np.asarray(end, dtype=np.float64) for end in pred.interval(COVERAGE))
    inside = (low <= y) & (y <= high)
    lower, upper = (float(end[()]) for end in clopper_pearson(inside.sum(), len(inside), level))
    promised, name = COVERAGE, f"{_percent(COVERAGE)} intervals"
    if not isinstance(pred, LinePredictive):
        below = np.where(low > 0, pred.cdf(np.maximum(low - 1, 0)), 0.0)
        promised = float(np.mean(np.asarray(pred.cdf(high)) - below))
        name += f", which promise {_percent(promised)}, ending at whole numbers,"
    verdict = "predictions are calibrated in width as far as these rows show"
    if lower > promised:
        verdict = "they are too wide"
    if upper < promised:
        verdict = "they are too narrow"
    share = f"{_percent(inside.mean())} ({_percent(lower)} to {_percent(upper)})"
    return f"Of its {name} {share} hold the outcome: {verdict}."


def shuffled_losses(
    model: Any, X: Any, y: Any, pred: Predictive, table: Table, random_state: Any
) -> pd.DataFrame:
    """Return by how much the NLL grows when a column is shuffled, for all columns that the model reads.

    With 95 % limits, normal, from the differences of the rows; none where these are all the same. Columns
    that say the same hide each other: what one loses, the other still has.
    """
    rng = np.random.default_rng(random_state)
    n = len(pred)
    rows = np.sort(rng.choice(n, MOST_ROWS, replace=False)) if n > MOST_ROWS else np.arange(n)
    some, outcomes = (X, y) if len(rows) == n else (take_rows(X, rows), take_rows(y, rows))
    base = np.asarray(nll(outcomes, pred[rows], reduction="none"), dtype=np.float64)
    read = columns_read(model)
    entries = [name for name in table.entries if name in read or name not in table.names]
    found = []
    for name in entries if read else table.names:
        losses = []
        for _ in range(SHUFFLES):
            changed = _shuffled(some, table, name, rng.permutation(len(rows)), rows)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeeptramWarning)
                losses.append(nll(outcomes, model.predict_distribution(changed), reduction="none"))
        grown = np.mean(losses, axis=0) - base
        loss, half = float(grown.mean()), 0.0
        if np.isfinite(grown).all():  # an outcome that has no probability leaves no doubt
            spread = float(grown.std())
            half = float(norm.ppf(0.975)) * spread / np.sqrt(len(rows)) if spread > _ROUNDING else math.nan
        found.append({"column": name, "loss": loss, "lower": loss - half, "upper": loss + half})
    importance = pd.DataFrame(found, columns=["column", "loss", "lower", "upper"])
    return importance.sort_values("loss", ascending=False, ignore_index=True)


def _shuffled(X: Any, table: Table, name: str, order: NDArray[np.int64], rows: NDArray[np.int64]) -> Any:
    if name not in table.names:  # images
        return {**X, name: take_rows(X[name], order)}
    column = table.column(name)
    return with_column(X, table, name, [column[row] for row in rows[order]])


def importance_sentence(importance: pd.DataFrame) -> str:
    """Return what matters, in numbers.

    Examples
    --------
    >>> table = {"column": ["age", "sex"], "loss": [0.2, 0.003], "lower": [0.1, -0.01], "upper": [0.3, 0.016]}
    >>> importance_sentence(pd.DataFrame(table)).split("; ")
    ['What matters: age (shuffled among rows it raises the NLL by 0.2000)',
     'what sex adds is too little for these rows to show.']
    """
    if importance.empty:
        return ""
    shown = importance["lower"] > 0
    if not shown.any():
        return (
            "These rows do not show that any covariate matters: what shuffling one of them adds to the NLL "
            "is too little to tell from chance."
        )
    first, *rest = importance[shown].head(3).to_dict("records")
    told = [f"{first['column']} (shuffled among rows it raises the NLL by {wording.decimal(first['loss'])})"]
    told += [f"{row['column']} ({wording.decimal(row['loss'])})" for row in rest]
    unseen = list(importance.loc[~shown, "column"])[:5]
    verb = "adds" if len(unseen) == 1 else "add"
    ending = f"; what {wording.joined(unseen)} {verb} is too little for these rows to show" if unseen else ""
    return f"What matters: {wording.joined(told)}{ending}."


def scores_table(found: Answers, n_boot: int, level: float) -> TextTable:
    """Return the scores beside those of the null model."""
    caption = SAID.scores(f"{100 * level:g}", n_boot, found.null is not None, found.null_from_training)
    rows: list[list[str | Cell]] = []
    for metric, part in found.scores.groupby("metric", sort=False):
        values = part[["estimate", "lower", "upper"]].to_numpy(dtype=float).tolist()
        if found.null is not None:
            ends = ["difference", *_DIFFERENCE_ENDS]
            values.append(part[ends].iloc[0].astype(float).tolist())
        name = f"{metric_label(str(metric))} ({metric_hint(str(metric))})"
        rows.append([name, *(Cell.of(*one) for one in values)])
    header = ["score", "model", *(["null model", "difference"] if found.null is not None else [])]
    return TextTable(header, rows, 1, caption, "Scores")


def importance_table(importance: pd.DataFrame) -> TextTable | None:
    """Return what shuffling a column costs; None where no column is read."""
    if importance.empty:
        return None
    rows: list[list[str | Cell]] = [
        [str(row["column"]), Cell.of(row["loss"], row["lower"], row["upper"])]
        for row in importance.to_dict("records")
    ]
    return TextTable(["column", "NLL lost (95 % interval)"], rows, 1, SAID.importance(), "Importance")


def _percent(share: float) -> str:
    return f"{100 * float(share):.0f} %"


def coefficients_in_words(table: pd.DataFrame, model: Any, X: Any) -> pd.DataFrame:
    """Return coefficients for a unit that suits their column, and the sentence that each of them says.

    Parameters
    ----------
    table : DataFrame
        Columns ``coef, lower, upper``.
    model : Tram
        What they are of.
    X : data
        Rows that say how far columns spread.

    Returns
    -------
    DataFrame
        Columns ``coef, lower, upper, words``; a unit other than one is said in the name.
    """
    outcome, nominal = model.outcome_, model.outcome_.kind.is_nominal
    is_binary = len(outcome.levels or ()) == 2
    known = subjects(model.design_.linear, model.design_.matrices(X).x)
    rows: dict[str, list[Any]] = {}
    for name, row in table.iterrows():
        group, _, column = str(name).partition(":") if nominal else ("", "", str(name))
        event = str(outcome.levels[1]) if is_binary else "a larger outcome"
        event = f"{group} against {outcome.levels[0]}" if nominal else event
        subject, unit = known.get(column, ("", 1.0))
        coef, lower, upper = (unit * float(row[key]) for key in ("coef", "lower", "upper"))
        words = "Read it with the curves of its covariates below."
        if subject:
            words = wording.coefficient_words(subject, coef, lower, upper, model.latent_.name, event)
        rows[f"{name} (per {wording.short(unit)})" if unit != 1 else str(name)] = [coef, lower, upper, words]
    found = pd.DataFrame.from_dict(rows, orient="index", columns=["coef", "lower", "upper", "words"])
    found.attrs |= table.attrs
    if is_binary and not nominal:
        found.attrs["sign"] = f"a positive coefficient means a larger probability of {outcome.levels[1]}"
    return found


def subjects(encoder: LinearEncoder | None, x: Floats) -> dict[str, tuple[str, float]]:
    """Return what changes with each column of a design, and by how much: a number, or a level.

    Columns of splines and of interactions mean nothing alone and are left out. Numbers change by one, or by
    the power of ten below their quartile range where one is far from it.

    Examples
    --------
    >>> X = {"age": [51.0, 62.0, 63.0], "dose": [0.01, 0.02, 0.05], "sex": ["f", "m", "m"]}
    >>> encoder = LinearEncoder.fit(X, "age * sex + dose")
    >>> [words for words, unit in subjects(encoder, encoder.transform(X)).values()]
    ['One unit more of age', 'sex = m instead of f', '0.01 more of dose']
    """
    if encoder is None:
        return {}
    owners = encoder.names if encoder.formula is None else encoder.formula.owners
    several = {j for places in encoder.terms.values() if len(places) > 1 for j in places}
    levels = {
        label: f"{factor.column} = {level} instead of {factor.levels[0]}"
        for factor in [*encoder.factors, *(encoder.formula.factors.values() if encoder.formula else ())]
        for label, level in zip(factor.names, factor.levels[1:], strict=True)
    }
    known: dict[str, tuple[str, float]] = {}
    for j, (name, owner) in enumerate(zip(encoder.names, owners, strict=True)):
        if name in levels:
            known[name] = levels[name], 1.0
        elif j not in several and ":" not in owner:
            unit = _unit(x[:, j])
            known[name] = f"{'One unit' if unit == 1 else wording.short(unit)} more of {name}", unit
    return known


def _unit(values: Floats) -> float:
    """Return by how much a column changes in a sentence."""
    spread = float(np.subtract(*np.quantile(values, [0.75, 0.25])))
    return 1.0 if spread == 0 or 0.25 <= spread < 50 else 10.0 ** math.floor(math.log10(spread))
