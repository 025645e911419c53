"""``Ensemble.fit``: from the data to members, weights and recalibrations."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

from deeptram._rows import take_rows
from deeptram._validation import check_choice, check_integer, check_weights
from deeptram.ensemble.checkpoint import Checkpoint, Configuration
from deeptram.ensemble.members import check_model, check_pooling
from deeptram.ensemble.strategies import STRATEGIES, Trained, choose_strategy, train_members
from deeptram.errors import ConvergenceWarning, InvalidInputError, InvalidTypeError
from deeptram.estimators.data_checks import fingerprint
from deeptram.estimators.deep import deep_task
from deeptram.fitting.deep.seeds import MemberSeeds, member_seed, root_seed

if TYPE_CHECKING:
    from deeptram.ensemble.ensemble import Ensemble


def fit_members(ensemble: Ensemble, X: Any, y: Any, sample_weight: Any, validation: Any) -> None:
    """Train the members of an ensemble, in place; arguments as in ``Ensemble.fit``."""
    check_settings(ensemble)
    template = check_model(ensemble.model)
    if validation is None and template.training is not None:
        validation = getattr(template.training, "validation", None)
    _check_validation(ensemble, validation)
    checkpoint = None
    if ensemble.checkpoint is not None:
        configuration = Configuration.of(template, X, y, sample_weight, validation)
        checkpoint = Checkpoint(ensemble.checkpoint, configuration, ensemble.random_state)
    root = root_seed(ensemble.random_state) if checkpoint is None else checkpoint.root
    checked, matrices, encoded, weights = template.prepare(X, y, sample_weight)
    template.data_hash_ = fingerprint(checked, y, weights)
    task = deep_task(
        template, checked, matrices, encoded, weights, validation, MemberSeeds.of(root).validation
    )
    seeds = {number: member_seed(root, number) for number in range(ensemble.n_members)}
    finished = {} if checkpoint is None else checkpoint.load(seeds, template)
    missing = {number: seed for number, seed in seeds.items() if number not in finished}
    ensemble.strategy_ = choose_strategy(ensemble.strategy, task, len(missing), ensemble.n_jobs)
    keep = _ignore if checkpoint is None else checkpoint.save
    trained = train_members(task, missing, ensemble.strategy_, ensemble.n_jobs, keep)
    together = {**finished, **trained.members}
    ensemble._keep([together[number].restore(template) for number in sorted(together)])
    if not together or trained.error is not None:
        raise trained.error or InvalidInputError("no member was trained; set n_members to at least 1")
    ensemble.root_seed_, ensemble.member_numbers_ = root, sorted(together)
    _tell_of_interruption(ensemble, trained)
    held = task.validation_rows
    if held is not None:
        validation = (take_rows(checked, held), take_rows(y, held, "y"))
    if ensemble.recalibrate:
        ensemble.fit_recalibration(*validation)
    if _tunes(ensemble):
        ensemble.tune_weights(*validation)


def check_settings(ensemble: Ensemble) -> None:
    """Raise unless the arguments of an ensemble are of the kinds they must be."""
    check_integer(ensemble.n_members, "n_members", 1)
    check_choice(ensemble.strategy, STRATEGIES, "strategy")
    check_pooling(ensemble.pooling)
    if isinstance(ensemble.weights, str):
        check_choice(ensemble.weights, ("equal", "tuned"), "weights")
    else:
        check_weights(ensemble.weights, ensemble.n_members)
    if not isinstance(ensemble.recalibrate, (bool, np.bool_)):
        raise InvalidTypeError(f"recalibrate must be True or False, got {ensemble.recalibrate!r}; write True")


def _check_validation(ensemble: Ensemble, validation: Any) -> None:
    """Refuse to tune or recalibrate on the training data."""
    recalibrates = bool(ensemble.recalibrate)
    for name, wanted in (("weights='tuned'", _tunes(ensemble)), ("recalibrate=True", recalibrates)):
        if wanted and validation is None:
            raise InvalidInputError(
                f"{name} needs data that the members were not trained on, got none; pass "
                "fit(X, y, validation=0.2) or fit(X, y, validation=(X_val, y_val))"
            )


def _tunes(ensemble: Ensemble) -> bool:
    return isinstance(ensemble.weights, str) and ensemble.weights == "tuned"


def _tell_of_interruption(ensemble: Ensemble, trained: Trained) -> None:
    if not trained.interrupted:
        return
    if not isinstance(ensemble.weights, str):  # weights of the members that are there
        given = check_weights(ensemble.weights, ensemble.n_members)[ensemble.member_numbers_]
        total = given.sum()
        ensemble.weights_ = given / total if total > 0 else np.full(len(given), 1 / len(given))
    partly = sum(not member.converged_ for member in ensemble.members_)
    what = f"{len(ensemble.members_)} of {ensemble.n_members} members were finished and are kept"
    if partly:
        what = f"all {partly} members are kept as they were at their best epoch so far"
    warnings.warn(
        f"training of the ensemble was interrupted: {what}; fit again (with checkpoint=, finished "
        "members are not trained again) to have all of them.",
        ConvergenceWarning,
        stacklevel=4,
    )


def _ignore(number: int, member: Any) -> None:
    """Keep nothing: there is no checkpoint."""
