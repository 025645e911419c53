"""Training of members: together, in parallel processes, or one after the other, and what it gives.

The same seed gives the same member under each strategy and with any number of
jobs; they differ in speed only.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import joblib
import numpy as np
import pandas as pd
from joblib.parallel import get_active_backend
from numpy.typing import NDArray

from deeptram._schema import fields, flag, integer, number
from deeptram._threads import one_thread
from deeptram.errors import NonFiniteLossError
from deeptram.estimators.base import BaseTram
from deeptram.estimators.deep import FitSummary, keep_fit, summarise_fit
from deeptram.estimators.persistence import HISTORY, arrays_of, rebuild, split_arrays
from deeptram.estimators.saved_format import NETWORKS, SEED, measured
from deeptram.fitting.deep.gradient import fit_deep
from deeptram.fitting.deep.loop import EpochBar
from deeptram.fitting.deep.seeds import seeded
from deeptram.fitting.deep.stacked import fit_stacked, why_not_stacked
from deeptram.fitting.deep.task import DeepFit, DeepTask
from deeptram.fitting.deep.training import resolve_device
from deeptram.inputs.network_inputs import NetworkInputs
from deeptram.model.parts import build_network, has_convolutions
from deeptram.model.persistence import JSON_NAME, Tensors, plain, unplain
from deeptram.model.terms import CI, CS

Array = NDArray[np.float64]

STRATEGIES = ("auto", "stacked", "parallel", "sequential")


@dataclass(frozen=True, eq=False)
class MemberFit:
    """What training a member gave.

    Attributes
    ----------
    seed : int
        The member's seed.
    model : dict
        ``DeepModel.to_dict()``.
    weights : dict of arrays
        Parameters and buffers.
    history : DataFrame
    best_epoch, n_epochs : int
    seconds : float
    interrupted : bool
        Whether training was ended early by Ctrl-C.
    loglik : float
    shift_vcov : ndarray or None
    """

    seed: int
    model: Mapping[str, Any]
    weights: Tensors
    history: pd.DataFrame
    best_epoch: int
    n_epochs: int
    seconds: float
    interrupted: bool
    loglik: float
    shift_vcov: Array | None

    @classmethod
    def of(cls, task: DeepTask, fit: DeepFit) -> MemberFit:
        """Return a trained member as plain values, with what the training data say about it."""
        summary = summarise_fit(task, fit.model)
        return cls(
            fit.seed,
            fit.model.to_dict(),
            arrays_of(fit.model),
            fit.history,
            fit.best_epoch,
            fit.n_epochs,
            fit.seconds,
            fit.interrupted,
            summary.loglik,
            summary.shift_vcov,
        )

    def restore(self, template: BaseTram) -> BaseTram:
        """Return the member as a fitted estimator.

        Parameters
        ----------
        template : BaseTram
            The prepared estimator all members come from.
        """
        member: BaseTram = copy.copy(template)
        member.random_state = self.seed
        fit = DeepFit(
            rebuild(member, self.model, self.weights),
            self.history,
            self.best_epoch,
            self.seconds,
            self.n_epochs,
            self.seed,
            interrupted=self.interrupted,
        )
        keep_fit(member, fit, FitSummary(self.loglik, self.shift_vcov))
        return member

    def to_record(self) -> tuple[dict[str, Any], Tensors]:
        """Return JSON-able values and arrays."""
        record = {
            "seed": self.seed,
            "model": dict(self.model),
            "best_epoch": self.best_epoch,
            "n_epochs": self.n_epochs,
            "seconds": self.seconds,
            "interrupted": self.interrupted,
            "loglik": plain(self.loglik),
        }
        tensors = {f"model.{name}": value for name, value in self.weights.items()}
        tensors["history"] = self.history[HISTORY].to_numpy(dtype=float)
        if self.shift_vcov is not None:
            tensors["shift_vcov"] = self.shift_vcov
        return record, tensors

    @classmethod
    def from_record(cls, record: Any, tensors: Tensors) -> MemberFit:
        """Read a member back from :meth:`to_record`; what does not fit is a ``FileFormatError``."""
        _MEMBER(record, f"{JSON_NAME}: member")
        weights, history, shift_vcov = split_arrays(tensors)
        given = {**record, "loglik": float(unplain(record["loglik"]))}
        return cls(weights=weights, history=history, shift_vcov=shift_vcov, **given)


_MEMBER = fields(
    {
        "seed": SEED,
        "model": NETWORKS,
        **dict.fromkeys(("best_epoch", "n_epochs"), integer()),
        "seconds": number(0),
        "interrupted": flag,
        "loglik": measured,
    }
)


Keep = Callable[[int, MemberFit], None]


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
    if not on_cluster and not _convolves(task) and why_not_stacked(task) is None:
        return "stacked"
    if on_cluster or (resolve_device(task.training.device).type == "cpu" and workers(n_jobs, n_members) > 1):
        return "parallel"
    return "sequential"


def train_members(
    task: DeepTask, seeds: Mapping[int, int], strategy: str, n_jobs: int | None, keep: Keep
) -> Trained:
    """Train members and hand over each as soon as it is finished.

    Parameters
    ----------
    task : DeepTask
    seeds : dict of int to int
        The members' numbers and seeds.
    strategy : {"stacked", "parallel", "sequential"}
    n_jobs : int or None
    keep : callable
        ``keep(number, member)``, called once per finished member.

    Returns
    -------
    Trained

    Raises
    ------
    KeyboardInterrupt
        If interrupted before any member was finished.
    """
    if not seeds:
        return Trained({})
    return _STRATEGIES[strategy](task, seeds, n_jobs, keep)


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


def _convolves(task: DeepTask) -> bool:
    """Whether a network of the task has convolutions: looks at a fresh one of each."""
    terms: list[CI | CS] = [*task.spec.shifts]
    if isinstance(task.spec.intercept, CI):
        terms.append(task.spec.intercept)
    with seeded(0):
        networks = [
            build_network(
                term,
                NetworkInputs.fit(task.X, term.columns),
                task.outcome.basis.n_coef if isinstance(term, CI) or task.outcome.kind == "nominal" else 1,
                task.training.torch_dtype,
            )
            for term in terms
        ]
    return any(map(has_convolutions, networks))


# -- the strategies ----------------------------------------------------------------------------------


def _sequential(task: DeepTask, seeds: Mapping[int, int], n_jobs: int | None, keep: Keep) -> Trained:
    done: dict[int, MemberFit] = {}
    try:
        for number, seed in seeds.items():
            fit = fit_deep(task, seed)
            if fit.interrupted:
                raise KeyboardInterrupt
            done[number] = MemberFit.of(task, fit)
            keep(number, done[number])
    except KeyboardInterrupt:
        if not done:
            raise
        return Trained(done, interrupted=True)
    except NonFiniteLossError as error:
        return Trained(done, error=_of_member(error, number))
    return Trained(done)


def _stacked(task: DeepTask, seeds: Mapping[int, int], n_jobs: int | None, keep: Keep) -> Trained:
    try:
        fits = fit_stacked(task, list(seeds.values()))
    except NonFiniteLossError as error:
        return Trained({}, error=error)
    done = {number: MemberFit.of(task, fit) for number, fit in zip(seeds, fits, strict=True)}
    interrupted = any(member.interrupted for member in done.values())
    if not interrupted:  # members that were cut short are not what their configuration says
        for number, member in done.items():
            keep(number, member)
    return Trained(done, interrupted)


def _parallel(task: DeepTask, seeds: Mapping[int, int], n_jobs: int | None, keep: Keep) -> Trained:
    quiet = dataclasses.replace(task, training=task.training.replace(progress=False))
    done: dict[int, MemberFit] = {}
    errors: dict[int, NonFiniteLossError] = {}
    results = _results(quiet, seeds, n_jobs)
    bar_settings = task.training.replace(epochs=len(seeds))
    try:
        with EpochBar(bar_settings, f"training {len(seeds)} members") as bar:
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


def _results(
    task: DeepTask, seeds: Mapping[int, int], n_jobs: int | None
) -> Iterator[tuple[int, MemberFit | str]]:
    """Yield members as they are finished, where the backend of joblib can do so."""
    backend, _ = get_active_backend()
    streams = bool(getattr(backend, "supports_return_generator", False))
    parallel = joblib.Parallel(
        n_jobs=_jobs(n_jobs, len(seeds)), return_as="generator_unordered" if streams else "list"
    )
    yield from parallel(joblib.delayed(train_one)(task, number, seed) for number, seed in seeds.items())


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
    with one_thread():
        try:
            fit = fit_deep(task, seed)
        except NonFiniteLossError as error:
            return number, str(error)
    return number, MemberFit.of(task, fit)


_STRATEGIES: dict[str, Callable[[DeepTask, Mapping[int, int], int | None, Keep], Trained]] = {
    "sequential": _sequential,
    "stacked": _stacked,
    "parallel": _parallel,
}


# -- messages ----------------------------------------------------------------------------------------


def _of_member(error: NonFiniteLossError, number: int) -> NonFiniteLossError:
    named = NonFiniteLossError(f"member {number}: {error}")
    named.best = error.best
    return named
