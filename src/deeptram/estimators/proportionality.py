"""Tests of proportional odds or hazards: whether one coefficient serves all outcomes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from deeptram._validation import check_choice
from deeptram.errors import InvalidInputError, UnsupportedError
from deeptram.estimators.base import BaseTram
from deeptram.estimators.inference import training_fit
from deeptram.fitting.exact.fit import ExactFit
from deeptram.fitting.exact.outcome_effects import TRANSFORMS, OutcomeEffects, finite_values


def proportionality_test(
    model: BaseTram,
    X: Any = None,
    y: Any = None,
    *,
    transform: str = "rank",
    test: str = "score",
    sample_weight: Any = None,
) -> pd.DataFrame:
    r"""Test a linear shift against effects that vary with the outcome.

    The model :math:`F_Z(h(y) - x'\beta)` says that a covariate shifts h by the
    same amount at every y: proportional odds with the logistic latent,
    proportional hazards with the minimum extreme value one. The alternative is
    an effect :math:`\beta_j + \delta_j g(y)`; a score test of
    :math:`\delta_j = 0` for each column, for all columns of a factor (or spline)
    together, and overall. For proportional hazards it is the effect on the log
    hazard that is linear in g(t), as in the test by Schoenfeld's residuals.

    Parameters
    ----------
    model : Tram
        A model with an LS term and an ordered outcome of any kind, censored and
        truncated ones included, fitted by exact maximum likelihood.
    X, y, sample_weight : data, optional
        The training data, for a model that was loaded.
    transform : {"rank", "log", "identity"}
        g: the distribution function at average covariates, log y, or y. For
        classes, "rank": the number of the cutpoint.
    test : {"score"}
        A likelihood-ratio test against a ``Varying`` term is refused: constraints
        of monotonicity are active or nearly so in most such fits, and no
        chi-squared distribution is right then.

    Returns
    -------
    DataFrame
        Index: terms of the linear shift, then ``overall``. Columns
        ``statistic, df, p``. Small p: the effect changes with the outcome;
        consider ``Varying`` or strata.

    Notes
    -----
    The statistic uses the observed information and is referred to the
    chi-squared distribution. h is a nuisance: for outcomes on the line it is a
    Bernstein polynomial of degree 8 on the scale of ranks, whatever the basis of
    the model, so that a baseline that is too stiff does not pass for a changing
    effect. ``benchmarks/proportionality.py`` has size and power; with
    ``transform="identity"`` a few very large outcomes decide, and the level is
    less well kept.

    Examples
    --------
    >>> import numpy as np, deeptram as dt
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=(500, 1))
    >>> latent = rng.logistic(size=500) * np.exp(0.8 * x[:, 0])
    >>> model = dt.Polr().fit(x, np.digitize(latent, [-1.0, 0.0, 1.0]))
    >>> bool(dt.proportionality_test(model)["p"]["overall"] < 0.01)
    True
    """
    check_choice(transform, TRANSFORMS, "transform")
    if check_choice(test, ("score", "lr"), "test") == "lr":
        raise UnsupportedError(
            "a likelihood-ratio test of proportionality has no known reference distribution, as constraints "
            "of monotonicity are active; use test='score'."
        )
    fit = training_fit(model, X, y, sample_weight, "the test of proportionality")
    _check_testable(fit, transform)
    usable = np.flatnonzero(~fit.problem.aliased & (fit.infinite == 0))
    if model.design_.linear is None or not len(usable):
        raise InvalidInputError(
            "the test needs a linear shift with a finite coefficient, got none; add an LS term, or columns "
            "that are neither collinear nor separating."
        )
    effects = OutcomeEffects(fit, transform, [int(j) for j in usable])
    place = {int(j): k for k, j in enumerate(usable)}
    terms = model.design_.linear.terms.items()
    groups = {name: [place[j] for j in columns if j in place] for name, columns in terms}
    groups = {name: columns for name, columns in groups.items() if columns}
    groups["overall"] = list(range(len(usable)))
    rows = {}
    for name, columns in groups.items():
        value, df = effects.test(columns)
        rows[name] = {"statistic": value, "df": df, "p": float(stats.chi2.sf(value, df)) if df else np.nan}
    table = pd.DataFrame.from_dict(rows, orient="index").astype({"df": int})
    table.attrs.update(transform=transform, test="score", reference="chi-squared")
    return table


def _check_testable(fit: ExactFit, transform: str) -> None:
    """Refuse models in which no effect can change with the outcome, or g is not defined."""
    data = fit.problem.data
    if data.observations is None and data.basis.n_coef < 2:
        raise UnsupportedError(
            "with a single cutpoint the effect cannot vary with the outcome; there is nothing to test."
        )
    if not np.isfinite(fit.theta).all():
        raise UnsupportedError(
            "the test needs every level to be observed in every stratum; leave empty levels out of `levels`."
        )
    if data.observations is None:
        if transform != "rank":
            raise UnsupportedError(
                f"classes have ranks only, got transform={transform!r}; use transform='rank'."
            )
        return
    values = finite_values(data)
    if len(np.unique(values)) < 2:
        raise UnsupportedError(
            "the test needs outcomes that differ, got a single value; there is nothing to test."
        )
    if transform == "log" and values.min() <= 0:
        raise InvalidInputError(
            f"transform='log' needs positive outcomes, got {values.min():g}; use transform='rank'."
        )
