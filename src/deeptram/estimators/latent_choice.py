"""``latent="auto"``: the latent distribution that predicts best rows which its model was not fitted to.

The four distributions have the same number of parameters and differ in their tails. Models with networks are
trained once with each, on the same rows and from the same seed, and the validation loss of their best epochs
decides; the best one is kept as it is. Models without networks are compared by the log-likelihood of
validation data where ``fit`` is given some, else by five-fold cross-validation, and the best is fitted to all
rows.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from sklearn.model_selection import KFold

from deeptram._rows import count_rows, take_rows
from deeptram._validation import check_sample_weight
from deeptram.errors import FittingError, InvalidInputError
from deeptram.fitting.deep.seeds import root_seed
from deeptram.inputs.table import by_name
from deeptram.model.terms import Spec

if TYPE_CHECKING:
    from deeptram.estimators.base import BaseTram

CANDIDATES = ("logistic", "normal", "minimum-extreme-value", "maximum-extreme-value")
_FOLDS = 5


def fit_best_latent(estimator: BaseTram, X: Any, y: Any, sample_weight: Any, validation: Any) -> BaseTram:
    """Return the model fitted with the latent distribution that is best on other rows.

    Parameters
    ----------
    estimator : BaseTram
        With ``latent="auto"``; it is not changed.
    X, y, sample_weight, validation
        As given to ``fit``.

    Returns
    -------
    BaseTram
        With ``latent_choice_``, the mean loss with each latent distribution, smallest first.
    """
    X, y, sample_weight = by_name(X, y, sample_weight)
    names = CANDIDATES[:1] if estimator.outcome_kind == "nominal" else CANDIDATES
    if Spec.of(estimator.terms).is_deep:
        share = getattr(estimator.training, "validation", None) if validation is None else validation
        if share is None:
            raise InvalidInputError(
                "latent='auto' of a model with networks is chosen on validation data, got none; pass "
                "fit(X, y, validation=0.2), or name a latent distribution"
            )
        seed = root_seed(estimator.random_state)
        fits = {name: _fitted(estimator, name, X, y, sample_weight, validation, seed) for name in names}
        losses = {name: model.fit_.validation_loss for name, (model, _) in fits.items()}
        best = min(losses, key=lambda name: losses[name])
        winner, said = fits[best]
        for one in said:
            warnings.warn_explicit(one.message, one.category, one.filename, one.lineno)
    else:
        losses = _held_out_losses(estimator, names, X, y, sample_weight, validation)
        winner = estimator.with_latent(min(losses, key=lambda name: losses[name]))
        winner.fit(X, y, sample_weight=sample_weight)
    winner.latent, winner.random_state = estimator.latent, estimator.random_state
    winner.latent_choice_ = pd.Series(losses, name=winner.loss, dtype=float).sort_values()
    return winner


def _fitted(
    estimator: BaseTram, name: str, X: Any, y: Any, weights: Any, validation: Any, seed: int | None = None
) -> tuple[BaseTram, Any]:
    """Return the model with a latent distribution, fitted, and the warnings on the way."""
    model = estimator.with_latent(name)
    model.random_state = seed
    with warnings.catch_warnings(record=True) as said:
        model.fit(X, y, sample_weight=weights, validation=validation)
    return model, said


def _held_out_losses(
    estimator: BaseTram, names: tuple[str, ...], X: Any, y: Any, sample_weight: Any, validation: Any
) -> dict[str, float]:
    """Return minus the mean log-likelihood of rows left out, by latent distribution."""
    n = count_rows(X)
    weights = check_sample_weight(sample_weight, n)
    if isinstance(validation, (tuple, list)):
        parts = [((X, y, weights), tuple(validation[:2]))]
    else:
        order = KFold(min(_FOLDS, n), shuffle=True, random_state=0).split(np.empty(n))
        parts = [
            (
                (take_rows(X, a), take_rows(y, a, "y"), None if weights is None else weights[a]),
                (take_rows(X, b), take_rows(y, b, "y")),
            )
            for a, b in order
        ]
    losses = dict.fromkeys(names, 0.0)
    for (X_fit, y_fit, w_fit), held in parts:
        for name in names:
            try:
                model, _ = _fitted(estimator, name, X_fit, y_fit, w_fit, None)
                losses[name] -= model.score(*held) / len(parts)
            except FittingError:
                losses[name] = np.inf
    return losses
