"""Models fitted across the folds of a training part, and the pools its held-out folds choose.

Every deep member is trained without one fold, which chooses its best epoch. The predictions of the folds
together are a prediction of the whole training part, on which weights and pool are chosen: the test rows
are seen by nothing but the scores.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import clone

import deeptram as dt
from deeptram._rows import take_rows
from deeptram.ensemble.adapters import adapter_of
from deeptram.predictive import join_rows

CHOSEN = "chosen pool"
MOST_ROWS = 3000  # of a training part on which peers are fitted several times: some of them take minutes
POOLS = ("linear", "log-linear", "transformation")
Folds = list[tuple[np.ndarray, np.ndarray]]


@dataclass(frozen=True)
class Candidate:
    """One kind of model: the training rows out of fold, and its members on the test rows."""

    name: str
    out_of_fold: dt.Predictive
    members: list[dt.Predictive]


def cross_fitted(name: str, model: dt.Tram, X: Any, y: Any, test: Any, folds: Folds, seed: int) -> Candidate:
    """Fit one member per fold; a model without networks predicts the test rows with a fit to all rows."""
    ensemble = dt.Ensemble.from_folds(model, X, y, cv=folds, random_state=seed)
    parts = [
        member.predict_distribution(take_rows(X, held))
        for member, (_, held) in zip(ensemble.members_, folds, strict=True)
    ]
    deep = any(isinstance(term, dt.CI | dt.CS) for term in model.terms or ())
    members = ensemble.predict_members(test) if deep else [clone(model).fit(X, y).predict_distribution(test)]
    return Candidate(name, join_rows(parts, [held for _, held in folds]), members)


def pool_of(candidates: Sequence[Candidate], pool: str, weights: np.ndarray | None = None) -> dt.Predictive:
    """Return the pool of all members on the test rows; those of one candidate share its weight."""
    weights = np.full(len(candidates), 1 / len(candidates)) if weights is None else weights
    spread = [
        weight / len(one.members)
        for one, weight in zip(candidates, weights, strict=True)
        for _ in one.members
    ]
    members = [member for one in candidates for member in one.members]
    return dt.pool(members, method=pool, weights=spread, latent=_scale(members, pool))


def pools(candidates: Sequence[Candidate], y: Any) -> Iterator[tuple[str, float, dt.Predictive]]:
    """Yield the name, the NLL out of fold and the test prediction of each pool, equal and tuned weights."""
    known = [one.out_of_fold for one in candidates]
    for pool, way in itertools.product(POOLS, ("equal", "tuned")):
        weights, scale = None, _scale(known, pool)
        if way == "tuned":
            weights = dt.tune_weights(known, y, method=pool, latent=scale).weights
        value = float(dt.scores.nll(y, dt.pool(known, method=pool, weights=weights, latent=scale)))
        yield f"{pool}, {way}", value, pool_of(candidates, pool, weights)


def predictions(
    kinds: dict[str, dt.Tram],
    peers: dict[str, list[Any]],
    training: tuple[Any, Any],
    test: Any,
    folds: Folds,
    score: Callable[[Any, dt.Predictive], float],
    seed: int,
) -> Iterator[tuple[str, dt.Predictive, dict[str, Any]]]:
    """Yield the name and the test prediction of every model and pool, and what is known of it out of fold.

    Pools of the candidates whose names begin with CS and with CI have equal weights. Of the settings of a
    peer the one is taken whose score is best on the first fold, or the last one for more than 3,000 rows.
    """
    X, y = training
    found: dict[str, Candidate] = {}
    for name, model in kinds.items():
        one = found[name] = cross_fitted(name, model, X, y, test, folds, seed)
        yield (
            name,
            pool_of([one], "transformation"),
            {"out_of_fold": float(dt.scores.nll(y, one.out_of_fold))},
        )
    for group, pool in itertools.product(("CS", "CI"), POOLS):
        same = [one for name, one in found.items() if name.startswith(group)]
        yield f"{group} ensemble: {pool}", pool_of(same, pool), {}
    of_all = list(pools(list(found.values()), y))
    for name, value, pred in of_all:
        yield f"all: {name}", pred, {"out_of_fold": value}
    name, value, pred = min(of_all, key=lambda one: one[1])
    yield CHOSEN, pred, {"out_of_fold": value, "pool": name}
    for name, settings in peers.items():
        yield name, _chosen_peer(settings, X, y, test, folds[0], score), {}


def _chosen_peer(models: Sequence[Any], X: Any, y: Any, test: Any, fold: Any, score: Any) -> dt.Predictive:
    """Return the prediction of the model that is best on a fold (or the last), fitted to all rows."""
    best = models[-1]
    if len(models) > 1 and len(X) <= MOST_ROWS:
        (X_train, X_held), (y_train, y_held) = (
            tuple(take_rows(data, rows, name) for rows in fold) for data, name in ((X, "X"), (y, "y"))
        )
        values = [score(y_held, _peer(one, X_train, y_train, X_held)) for one in models]
        best = models[int(np.argmin(values))]
    return _peer(best, X, y, test)


def _peer(model: Any, X: Any, y: Any, test: Any) -> dt.Predictive:
    adapter = adapter_of(model)
    levels = None if isinstance(y, dt.Surv) else tuple(range(int(np.max(y)) + 1))
    return adapter.predict(adapter.fit(model, X, y, levels), test)


def _scale(members: Sequence[dt.Predictive], pool: str) -> str | None:
    """Return the common scale of members with different latent distributions."""
    names = {member.latent.name for member in members if member.latent is not None}
    return "logistic" if pool == "transformation" and len(names) > 1 else None
