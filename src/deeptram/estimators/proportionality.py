"""Tests of proportional odds or hazards: whether one coefficient serves all outcomes."""

from __future__ import annotations

import dataclasses
import warnings

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from scipy import stats
from sklearn.utils.validation import check_is_fitted

from deeptram._validation import check_choice
from deeptram.errors import CollinearityWarning, InvalidInputError, UnsupportedError
from deeptram.estimators.base import BaseTram
from deeptram.fitting.exact import ExactFit, fit_exact
from deeptram.fitting.problem import Problem, StructuredData

Array = NDArray[np.float64]


def proportionality_test(model: BaseTram, *, test: str = "lr") -> pd.DataFrame:
    r"""Test a linear shift against effects that vary with the outcome.

    The model :math:`F_Z(h(y) - x'\beta)` says that a covariate shifts h by the
    same amount at every y: proportional odds with the logistic latent,
    proportional hazards with the minimum extreme value one. The alternative
    lets the covariate's effect be a function of y (a ``Varying`` term), one
    column at a time and all columns at once.

    Parameters
    ----------
    model : Tram
        A model with an LS term, fitted by exact maximum likelihood in this
        session (its training data are still at hand).
    test : {"lr", "score"}
        ``"lr"`` refits the larger model; ``"score"`` needs the derivatives of
        its likelihood at the fitted model only, and is much faster.

    Returns
    -------
    DataFrame
        Index: columns of the linear shift, then ``overall``. Columns
        ``statistic, df, p``. Small p: the effect changes with the outcome;
        consider ``Varying`` or strata.

    Notes
    -----
    The monotonicity constraint of the alternative is inactive under the null
    hypothesis where the density is positive, so the usual chi-squared
    distribution applies asymptotically.

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
    check_is_fitted(model, "model_")
    check_choice(test, ("lr", "score"), "test")
    fit = model.fit_
    if model.loss != "nll" or getattr(fit, "problem", None) is None:
        raise UnsupportedError(
            "the test needs a model with an ordered outcome fitted by exact maximum likelihood in this "
            "session (loss='nll', no networks); refit it."
        )
    data: StructuredData = fit.problem.data
    if data.x.shape[1] == 0:
        raise InvalidInputError("the model has no linear shift to test; add an LS term.")
    if data.basis.n_coef < 2:
        raise UnsupportedError(
            "with a single cutpoint (or a fixed baseline shape) the effect cannot vary with the outcome; "
            "there is nothing to test."
        )
    if not np.isfinite(fit.theta).all():
        raise UnsupportedError(
            "the test needs every level to be observed in every stratum; leave empty levels out of `levels`."
        )
    usable = np.flatnonzero(~fit.problem.aliased & (fit.infinite == 0))
    names = model.design_.names
    groups = [(names[j], [int(j)]) for j in usable]
    if len(usable) > 1:
        groups.append(("overall", [int(j) for j in usable]))
    else:
        groups = [*groups, *[("overall", columns) for _, columns in groups]]
    statistic = _likelihood_ratio if test == "lr" else _score
    rows = {}
    for name, columns in groups:
        value, df = statistic(fit, data, columns)
        rows[name] = {"statistic": value, "df": df, "p": float(stats.chi2.sf(value, df))}
    return pd.DataFrame.from_dict(rows, orient="index")


def _alternative(data: StructuredData, columns: list[int]) -> StructuredData:
    """Move columns from the linear shift to the varying term."""
    kept = [j for j in range(data.x.shape[1]) if j not in columns]
    varying = data.x[:, columns]
    if data.varying is not None:
        varying = np.hstack([data.varying, varying])
    return dataclasses.replace(data, x=np.ascontiguousarray(data.x[:, kept]), varying=varying)


def _likelihood_ratio(fit: ExactFit, data: StructuredData, columns: list[int]) -> tuple[float, int]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CollinearityWarning)
        larger = fit_exact(_alternative(data, columns))
    return max(2 * (larger.loglik - fit.loglik), 0.0), larger.n_parameters - fit.n_parameters


def _score(fit: ExactFit, data: StructuredData, columns: list[int]) -> tuple[float, int]:
    """Return the score statistic g'H^-1 g of the larger likelihood at the smaller model."""
    if fit.certificate.active:
        raise UnsupportedError(
            "the score test needs a fit without active monotonicity constraints; use test='lr'."
        )
    larger = Problem(_alternative(data, columns))
    moved = np.outer(-fit.beta[columns], larger.constant)
    rest = np.delete(fit.beta, columns)
    blocks = np.vstack([fit.theta, moved])
    kept = ~larger.aliased
    user = np.concatenate([blocks.ravel(), np.where(kept, rest, 0.0), fit.gamma])
    point = np.linalg.lstsq(larger.back, user, rcond=None)[0]
    _, gradient, hessian = larger.objective.evaluate(torch.from_numpy(point))
    g, h = gradient.numpy(), hessian.numpy()
    value = float(g @ np.linalg.solve(h, g))
    return max(value, 0.0), len(point) - fit.n_parameters
