"""``Ensemble.fit``: members trained together, in parallel processes or one after the other, then weights.

The same seed gives the same member under each strategy and with any number of
jobs; they differ in speed only.
"""

from __future__ import annotations

import copy
import dataclasses
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import joblib
import numpy as np
import pandas as pd
from joblib.parallel import get_active_backend
from sklearn.base import clone

from deeptram._rows import take_rows
from deeptram._threads import one_thread, reuse_memory
from deeptram._validation import (
    check_choice,
    check_integer,
)
from deeptram.ensemble.checkpoint import Checkpoint, Configuration
from deeptram.ensemble.members import fit_exact_bags, out_of_fold
from deeptram.ensemble.plans import (
    AUTO,
    Plan,
    check_common_scale,
    check_has_dropout,
    check_kind,
    check_model,
    check_pooling,
    check_recalibrate,
    check_vary,
    number_of_folds,
    plan_members,
)
from deeptram.errors import (
    ConvergenceWarning,
    InvalidInputError,
    NonFiniteLossError,
    UnfinishedTrainingWarning,
    warn,
)
from deeptram.estimators.base import BaseTram
from deeptram.estimators.data_checks import fingerprint
from deeptram.estimators.deep import MemberFit, tell_of_training
from deeptram.fitting.deep.gradient import fit_deep
from deeptram.fitting.deep.hooks import EpochBar
from deeptram.fitting.deep.resume import ResumePoints
from deeptram.fitting.deep.seeds import member_seed, root_seed
from deeptram.fitting.deep.stacked import fit_stacked, stacking_pays
from deeptram.fitting.deep.task import DeepFit, DeepTask
from deeptram.fitting.deep.training import resolve_device
from deeptram.latent.distribution import is_auto
from deeptram.model.terms import Spec
from deeptram.pooling.pool import check_weights

if TYPE_CHECKING:
    from deeptram.ensemble.ensemble import Ensemble

STRATEGIES = ("auto", "stacked", "parallel", "sequential")


Keep = Callable[[int, MemberFit], None]


def fit_members(ensemble: Ensemble, X: Any, y: Any, sample_weight: Any, validation: Any) -> None:
    """Train the members of an ensemble, in place; arguments as in ``Ensemble.fit``."""
    check_settings(ensemble)
    template = check_model(ensemble.model, deep=ensemble.members != "bags")
    if validation is None and template.training is not None:
        validation = getattr(template.training, "validation", None)
    _check_validation(ensemble, validation)
    kind = ensemble.members
    check_kind(kind, ensemble.vary, ensemble.strategy, validation)
    if not Spec.of(template.terms).is_deep:
        fit_exact_bags(ensemble, template, X, y, sample_weight, validation)
        if validation is not None:
            _choose_on(ensemble, (validation[0], validation[1]), template.loss)
        return
    checkpoint = None
    if ensemble.checkpoint is not None:
        configuration = Configuration.of(template, X, y, sample_weight, validation, ensemble.vary, kind)
        checkpoint = Checkpoint(ensemble.checkpoint, configuration, ensemble.random_state)
    root = root_seed(ensemble.random_state) if checkpoint is None else checkpoint.root
    vary = {} if ensemble.vary is None else check_vary(ensemble.vary)
    _settle_latent(template, X, y, sample_weight, validation, root, checkpoint)
    plans = plan_members(template, vary, ensemble.n_members, (X, y, sample_weight), validation, root, kind)
    code = fingerprint(plans[0].task.X, y, plans[0].task.sample_weight)
    for plan in plans:
        plan.template.data_hash_ = code
    finished = {}
    if checkpoint is not None:
        finished = checkpoint.load(plans)
        points = checkpoint.resume_points(ensemble.checkpoint_epochs)
        plans = _resumable(plans, points)
    missing = {number: plan for number, plan in enumerate(plans) if number not in finished}
    asked = ensemble.strategy if kind in ("seeds", "bags") else "sequential"
    ensemble.strategy_ = choose_strategy(asked, plans[0].task, len(missing), ensemble.n_jobs)
    keep = _ignore if checkpoint is None else checkpoint.save
    trained = train_members(missing, ensemble.strategy_, ensemble.n_jobs, keep, finished)
    together = {**finished, **trained.members}
    ensemble._keep([together[number].restore(plans[number].template) for number in sorted(together)])
    if not together or trained.error is not None:
        raise trained.error or InvalidInputError("no member was trained; set n_members to at least 1")
    ensemble.root_seed_, ensemble.member_numbers_ = root, sorted(together)
    if checkpoint is not None and not trained.interrupted:
        points.clear()
    _tell_of_interruption(ensemble, trained)
    tell_of_training(ensemble.members_)
    _choose(ensemble, plans, y, validation, template.loss)


def _settle_latent(
    template: BaseTram,
    X: Any,
    y: Any,
    sample_weight: Any,
    validation: Any,
    root: int,
    checkpoint: Checkpoint | None,
) -> None:
    """Let all members have the latent distribution that is best for one of them, in place."""
    if not is_auto(template.latent):
        return

    def compute() -> dict[str, float]:
        pilot: BaseTram = clone(template).set_params(random_state=member_seed(root, 0))
        folds = number_of_folds(validation)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UnfinishedTrainingWarning)  # said once, of the members
            pilot.fit(X, y, sample_weight=sample_weight, validation=1 / folds if folds else validation)
        return dict(pilot.latent_choice_.to_dict())

    losses = compute() if checkpoint is None else checkpoint.remembered("latent", compute)
    template.latent_choice_ = pd.Series(losses, name=template.loss, dtype=float).sort_values()
    template.set_params(latent=template.latent_choice_.index[0])


def _resumable(plans: Sequence[Plan], points: ResumePoints) -> list[Plan]:
    """Return plans whose members write their state in training; those with one task still share it."""
    tasks = {id(plan.task): dataclasses.replace(plan.task, resume=points) for plan in plans}
    return [dataclasses.replace(plan, task=tasks[id(plan.task)]) for plan in plans]


def _choose(ensemble: Ensemble, plans: Sequence[Plan], y: Any, validation: Any, loss: str) -> None:
    """Recalibrate, and choose pool or weights, on rows that members were not trained on."""
    chooses = ensemble.pooling == AUTO or _tunes(ensemble)
    if not (chooses or ensemble.recalibrate):
        return
    task, folds = plans[0].task, number_of_folds(validation)
    if folds and chooses:
        rows = [plan.task.validation_rows for plan in plans if plan.task.validation_rows is not None]
        y_held, kinds = out_of_fold(ensemble.members_, task.X, y, rows)
        choose = ensemble._choose if ensemble.pooling == AUTO else ensemble._tune
        choose(kinds, y_held, loss, copies=folds)
        return
    if task.validation_rows is not None:
        held = task.validation_rows
        validation = (take_rows(task.X, held), take_rows(y, held, "y"))
    _choose_on(ensemble, (validation[0], validation[1]), loss)


def _choose_on(ensemble: Ensemble, held: tuple[Any, Any], loss: str) -> None:
    """Recalibrate, and choose pool or weights, as far as asked for, on these data."""
    if ensemble.recalibrate and ensemble.recalibrate != "pool":
        ensemble.fit_recalibration(*held)
    if ensemble.pooling == AUTO:
        ensemble.choose_pool(*held, loss)
    elif _tunes(ensemble):
        ensemble.tune_weights(*held, loss)
    if ensemble.recalibrate == "pool":
        ensemble.fit_recalibration(*held, what="pool")


def check_settings(ensemble: Ensemble) -> None:
    """Raise unless the arguments of an ensemble are of the kinds they must be."""
    check_integer(ensemble.n_members, "n_members", 1)
    check_integer(ensemble.checkpoint_epochs, "checkpoint_epochs", 1)
    check_choice(ensemble.strategy, STRATEGIES, "strategy")
    kind = getattr(ensemble.model, "outcome", None)
    check_pooling(ensemble.pooling, kind)
    if isinstance(ensemble.weights, str):
        check_choice(ensemble.weights, ("equal", "tuned"), "weights")
    else:
        check_weights(ensemble.weights, ensemble.n_members)
    if ensemble.vary is not None and ensemble.pooling in ("transformation", AUTO):
        check_common_scale(check_vary(ensemble.vary))
    check_recalibrate(ensemble.recalibrate, ensemble.pooling, kind)


def _check_validation(ensemble: Ensemble, validation: Any) -> None:
    """Refuse to tune or recalibrate on the training data."""
    asked = {
        "weights='tuned'": _tunes(ensemble),
        f"recalibrate={ensemble.recalibrate!r}": bool(ensemble.recalibrate),
        f"pooling={AUTO!r}": ensemble.pooling == AUTO,
    }
    for name, wanted in asked.items():
        if name.startswith("recalibrate") and wanted and number_of_folds(validation):
            raise InvalidInputError(
                f"{name} needs data that no member was trained on, got folds of the training data; "
                "pass fit(X, y, validation=0.2)"
            )
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
    partly = sum(member.fit_.interrupted for member in ensemble.members_)
    what = f"{len(ensemble.members_)} of {ensemble.n_members} members were finished and are kept"
    if partly:
        what = f"all {partly} members are kept as they were at their best epoch so far"
    warn(
        f"training of the ensemble was interrupted: {what}; fit again (with checkpoint=, finished "
        "members are not trained again) to have all of them.",
        ConvergenceWarning,
    )


def _ignore(number: int, member: Any) -> None:
    """Keep nothing: there is no checkpoint."""


@dataclass(frozen=True)
class Trained:
    """What training several members gave.

    Attributes
    ----------
    members : dict of int to MemberFit
        By their number; those that were finished.
    interrupted : bool
        Whether Ctrl-C ended it early.
    error : NonFiniteLossError or None
        Of the first member whose loss was not finite.
    """

    members: Mapping[int, MemberFit]
    interrupted: bool = False
    error: NonFiniteLossError | None = None


def choose_strategy(strategy: str, task: DeepTask, n_members: int, n_jobs: int | None) -> str:
    """Return the strategy that ``"auto"`` stands for.

    Stacked for networks without convolutions that torch can vectorise; else
    parallel where there is more than one core (or a cluster) and no GPU; else
    sequential.

    Parameters
    ----------
    strategy : str
        Any other than ``"auto"`` is returned as it is.
    task : DeepTask
    n_members : int
        Members still to be trained.
    n_jobs : int or None
    """
    if strategy != "auto":
        return strategy
    if n_members < 2:
        return "sequential"
    on_cluster = _is_cluster()
    if not on_cluster and stacking_pays(task):
        return "stacked"
    if on_cluster or (resolve_device(task.training.device).type == "cpu" and workers(n_jobs, n_members) > 1):
        return "parallel"
    return "sequential"


def train_members(
    plans: Mapping[int, Plan],
    strategy: str,
    n_jobs: int | None,
    keep: Keep,
    finished: Mapping[int, MemberFit] | None = None,
) -> Trained:
    """Train members and hand over each as soon as it is finished.

    Parameters
    ----------
    plans : dict of int to Plan
        By the members' numbers.
    strategy : {"stacked", "parallel", "sequential"}
    n_jobs : int or None
    keep : callable
        ``keep(number, member)``, called once per finished member.
    finished : dict of int to MemberFit, optional
        Members that are there already, where others begin where they ended (snapshots).

    Returns
    -------
    Trained

    Raises
    ------
    KeyboardInterrupt
        If interrupted before any member was finished.
    """
    if not plans:
        return Trained({})
    if strategy == "sequential":
        return _sequential(plans, keep, finished or {})
    return (_stacked if strategy == "stacked" else _parallel)(plans, n_jobs, keep)


def workers(n_jobs: int | None, n_members: int) -> int:
    """Return how many members are trained at the same time under ``"parallel"``.

    Parameters
    ----------
    n_jobs : int or None
        As in joblib; None means what ``joblib.parallel_config`` says, else all cores.
    n_members : int

    Examples
    --------
    >>> workers(1, 5)
    1
    """
    return max(1, min(n_members, int(joblib.effective_n_jobs(_jobs(n_jobs, n_members)))))


def _jobs(n_jobs: int | None, n_members: int) -> int | None:
    """Return joblib's ``n_jobs``; None leaves it to ``joblib.parallel_config``."""
    if n_jobs is not None:
        return n_jobs
    backend, configured = get_active_backend()
    if configured is not None or _is_cluster() or backend.nesting_level:
        return None
    return max(1, min(n_members, int(joblib.cpu_count())))


def _is_cluster() -> bool:
    """Whether joblib was told to use something else than this machine's processes or threads."""
    backend, _ = get_active_backend()
    local = ("LokyBackend", "MultiprocessingBackend", "ThreadingBackend", "SequentialBackend")
    return type(backend).__name__ not in local


# -- the strategies ----------------------------------------------------------------------------------


def _sequential(plans: Mapping[int, Plan], keep: Keep, finished: Mapping[int, MemberFit]) -> Trained:
    done: dict[int, MemberFit] = {}
    fit: DeepFit | None = None
    try:
        for number, plan in plans.items():
            if fit is None or plan.kind != "dropout":
                fit = fit_deep(_continued(plan, {**finished, **done}.get(number - 1)), plan.seed)
            if fit.interrupted:
                raise KeyboardInterrupt
            if plan.kind == "snapshots" and number < max(plans):  # the next one goes on with it
                fit = dataclasses.replace(fit, unfinished=False)
            done[number] = MemberFit.of(plan.task, _with_masks(fit, plan) if plan.kind == "dropout" else fit)
            keep(number, done[number])
    except KeyboardInterrupt:
        if not done:
            raise
        return Trained(done, interrupted=True)
    except NonFiniteLossError as error:
        return Trained(done, error=_of_member(error, number))
    return Trained(done)


def _continued(plan: Plan, before: MemberFit | None) -> DeepTask:
    """Return the task of a member; a snapshot begins where the one before ended."""
    if plan.kind != "snapshots" or before is None:
        return plan.task
    return dataclasses.replace(plan.task, start=before.weights)


def _with_masks(fit: DeepFit, plan: Plan) -> DeepFit:
    """Return a trained model with dropout masks of a member's own."""
    check_has_dropout(fit.model)
    model = copy.deepcopy(fit.model)
    model.fix_masks(plan.masks)
    return dataclasses.replace(fit, model=model)


def _stacked(plans: Mapping[int, Plan], n_jobs: int | None, keep: Keep) -> Trained:
    done: dict[int, MemberFit] = {}
    for group in sorted({plan.group for plan in plans.values()}):
        own = {number: plan for number, plan in plans.items() if plan.group == group}
        try:
            fits = fit_stacked([plan.task for plan in own.values()], [plan.seed for plan in own.values()])
        except NonFiniteLossError as error:
            return Trained(done, error=error)
        new = {
            number: MemberFit.of(plan.task, fit)
            for (number, plan), fit in zip(own.items(), fits, strict=True)
        }
        done |= new
        if any(member.interrupted for member in new.values()):
            return Trained(done, interrupted=True)
        for number, member in new.items():  # those cut short are not what their configuration says
            keep(number, member)
    return Trained(done)


def _parallel(plans: Mapping[int, Plan], n_jobs: int | None, keep: Keep) -> Trained:
    done: dict[int, MemberFit] = {}
    errors: dict[int, NonFiniteLossError] = {}
    results = _results(plans, n_jobs)
    training = next(iter(plans.values())).task.training.replace(epochs=len(plans))
    try:
        with EpochBar(training, f"training {len(plans)} members") as bar:
            for number, member in results:
                if isinstance(member, str):
                    errors[number] = _of_member(NonFiniteLossError(member), number)
                    continue
                if member.interrupted:
                    raise KeyboardInterrupt
                done[number] = member
                keep(number, member)
                last = member.history.iloc[-1]
                bar.update(len(done), float(last["train_loss"]), float(last["validation_loss"]))
    except KeyboardInterrupt:
        if not done:
            raise
        return Trained(done, interrupted=True)
    return Trained(done, error=errors[min(errors)] if errors else None)


def _results(plans: Mapping[int, Plan], n_jobs: int | None) -> Iterator[tuple[int, MemberFit | str]]:
    """Yield members as they are finished, where the backend of joblib can do so."""
    backend, _ = get_active_backend()
    streams = bool(getattr(backend, "supports_return_generator", False))
    parallel = joblib.Parallel(
        n_jobs=_jobs(n_jobs, len(plans)), return_as="generator_unordered" if streams else "list"
    )
    tasks = {id(plan.task): plan.task for plan in plans.values()}  # members with one task share it
    placed = {key: _placed(task, backend) for key, task in tasks.items()}
    yield from parallel(
        joblib.delayed(train_one)(placed[id(plan.task)], number, plan.seed) for number, plan in plans.items()
    )


def _placed(task: DeepTask, backend: Any) -> Any:
    """Return a task without a progress bar; on Dask, a future of it that is on all workers already.

    joblib would give it to one of them, from which the others fetch it while that one trains: they begin a
    second or two later.
    """
    quiet = dataclasses.replace(task, training=task.training.replace(progress=False))
    client = getattr(backend, "client", None)
    return quiet if client is None else client.scatter(quiet, broadcast=True, hash=False)


def train_one(task: DeepTask, number: int, seed: int) -> tuple[int, MemberFit | str]:
    """Train one member on one thread; runs in a worker process or thread.

    Parameters
    ----------
    task : DeepTask
        Its large arrays arrive as memory maps of one file.
    number, seed : int

    Returns
    -------
    number : int
    member : MemberFit, or str
        The message, if the loss was not finite.
    """
    reuse_memory()
    with one_thread():
        try:
            fit = fit_deep(task, seed)
        except NonFiniteLossError as error:
            return number, str(error)
    return number, MemberFit.of(task, fit)


# -- messages ----------------------------------------------------------------------------------------


def _of_member(error: NonFiniteLossError, number: int) -> NonFiniteLossError:
    named = NonFiniteLossError(f"member {number}: {error}")
    named.best = error.best
    return named
