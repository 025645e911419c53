"""Likelihood-ratio tests between nested models."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from scipy import stats
from sklearn.utils.validation import check_is_fitted

from deeptram.errors import InvalidInputError, UnsupportedError
from deeptram.estimators.base import BaseTram


def compare(*models: BaseTram) -> pd.DataFrame:
    r"""Compare nested models by likelihood-ratio tests, the smallest first.

    The statistic :math:`2(\ell_1 - \ell_0)` is referred to a chi-squared
    distribution with the difference in free parameters as degrees of freedom.

    Parameters
    ----------
    *models : Tram
        Two or more models fitted by maximum likelihood to the same rows.

    Returns
    -------
    DataFrame
        One row per model in order of size: ``model, n_parameters, loglik, aic,
        bic, statistic, df, p`` (the last three against the row above).

    Notes
    -----
    Nesting itself is the caller's claim; what can be checked (same number of
    rows, same outcome, larger model not worse) is checked.

    Examples
    --------
    >>> import numpy as np, deeptram as dt
    >>> rng = np.random.default_rng(1)
    >>> x = rng.normal(size=(200, 2))
    >>> y = np.digitize(x[:, 0] + rng.logistic(size=200), [-1, 1])
    >>> m0 = dt.Polr([dt.SI()]).fit(x, y)
    >>> m1 = dt.Polr([dt.LS("x0")]).fit(x, y)
    >>> bool(dt.compare(m0, m1)["p"].iloc[1] < 0.001)
    True
    """
    if len(models) < 2:
        raise InvalidInputError(
            f"compare needs at least two models, got {len(models)}; pass compare(m0, m1)."
        )
    for model in models:
        check_is_fitted(model, "model_")
        if model.loss != "nll" or model.spec_.is_deep:
            raise UnsupportedError(
                "compare needs models fitted by exact maximum likelihood (loss='nll', no networks); "
                f"got {type(model).__name__} with loss={model.loss!r}."
            )
    ordered = sorted(models, key=_size)
    first = ordered[0]
    for model in ordered[1:]:
        if model.n_obs_ != first.n_obs_ or model.outcome_.kind != first.outcome_.kind:
            raise InvalidInputError(
                f"models must be fitted to the same outcomes, got {first.n_obs_} rows of a "
                f"{first.outcome_.kind} outcome and {model.n_obs_} rows of a {model.outcome_.kind} one; "
                "refit them on the same data."
            )
    rows: list[dict[str, Any]] = []
    for below, model in zip([None, *ordered[:-1]], ordered, strict=True):
        statistic = df = p = np.nan
        if below is not None:
            df = float(model.n_parameters_ - below.n_parameters_)
            statistic = 2 * (model.loglik_ - below.loglik_)
            if df == 0:
                raise InvalidInputError(
                    f"nested models differ in their number of parameters, got {model.n_parameters_} "
                    "for both; compare them by AIC instead."
                )
            if statistic < -1e-6 * (1 + abs(model.loglik_)):
                raise InvalidInputError(
                    f"the larger model has the smaller log-likelihood ({model.loglik_:.4f} against "
                    f"{below.loglik_:.4f}), so the models are not nested; compare them by AIC instead."
                )
            statistic = max(statistic, 0.0)
            p = float(stats.chi2.sf(statistic, df))
        rows.append(
            {
                "model": _label(model),
                "n_parameters": model.n_parameters_,
                "loglik": model.loglik_,
                "aic": 2 * model.n_parameters_ - 2 * model.loglik_,
                "bic": np.log(model.n_obs_) * model.n_parameters_ - 2 * model.loglik_,
                "statistic": statistic,
                "df": df,
                "p": p,
            }
        )
    return pd.DataFrame(rows)


def _size(model: BaseTram) -> int:
    return int(model.n_parameters_)


def _label(model: BaseTram) -> str:
    return f"{type(model).__name__}({model.spec_.name}: {', '.join(model.design_.names) or '1'})"
