"""What hangs in the training loop: callbacks after every epoch, a bar, and schedules of the learning rate.

A callback is a function of an ``EpochState``, or an object with ``on_epoch_end(state)``; returning True ends
the training of that member. One with ``state_dict()`` and ``load_state_dict(state)`` remembers what it saw
where a training was killed and goes on. A schedule is a function from the share of the training that is done
to a factor of the learning rate.
"""

from __future__ import annotations

import csv
import importlib.util
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from deeptram._progress import is_watched, new_bar
from deeptram._validation import check_integer, check_number
from deeptram.errors import InvalidInputError, InvalidTypeError, MissingDependencyError
from deeptram.evaluation import metrics as _registered  # noqa: F401 (names of metrics)
from deeptram.evaluation.measures import MetricLike
from deeptram.evaluation.measures import get as get_metric
from deeptram.evaluation.measures import names as metric_names
from deeptram.predictive import Predictive

if TYPE_CHECKING:
    from deeptram.fitting.deep.training import Training

HISTORY = ["epoch", "train_loss", "validation_loss", "learning_rate", "seconds"]  # of a training, by epoch


@dataclass(frozen=True, eq=False)
class EpochState:
    """What is known about a member after an epoch.

    Attributes
    ----------
    seed : int
        The member's seed: members that are trained together are told apart by it.
    epoch, epochs : int
        The epoch that ended, counted from 1, and how many there are at most.
    train_loss, validation_loss : float
        NaN without validation data.
    learning_rate, seconds : float
        At the end of the epoch, and of the whole epoch.
    """

    seed: int
    epoch: int
    epochs: int
    train_loss: float
    validation_loss: float
    learning_rate: float
    seconds: float
    predict: Callable[[], tuple[Any, Predictive]] = field(repr=False)
    """Returns the outcomes of the validation rows and the member's predictions of them."""

    def score(self, metric: MetricLike) -> float:
        """Return any metric of the member on the validation rows, by its name or as ``metric(y, pred)``.

        For example ``state.score("qwk")``.
        """
        return float(get_metric(metric)(*self.predict()))


class CSVLog:
    """Callback that writes a line for every epoch of every member.

    Parameters
    ----------
    path : path
        New lines are added to an existing file.

    Examples
    --------
    >>> import tempfile
    >>> log = CSVLog(Path(tempfile.mkdtemp()) / "log.csv")
    >>> log.on_epoch_end(EpochState(7, 1, 10, 0.5, 0.6, 0.001, 0.1, lambda: None))
    >>> log.path.read_text().splitlines()
    ['seed,epoch,train_loss,validation_loss,learning_rate,seconds', '7,1,0.5,0.6,0.001,0.1']
    """

    def __init__(self, path: Any) -> None:
        self.path = Path(path)

    def identity_parts(self) -> tuple[Any, ...]:
        """Return what changes the members: nothing."""
        return ()

    def on_epoch_end(self, state: EpochState) -> None:
        """Write the line of an epoch."""
        new = not self.path.is_file()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            if new:
                writer.writerow(["seed", *HISTORY])
            writer.writerow([state.seed, *(getattr(state, name) for name in HISTORY)])


class TensorBoard:
    """Callback that writes the losses of every member for TensorBoard (which has to be installed).

    Parameters
    ----------
    folder : path
        Each member has a folder of its own below.
    """

    def __init__(self, folder: Any) -> None:
        if importlib.util.find_spec("tensorboard") is None:
            raise MissingDependencyError(
                "TensorBoard needs the package tensorboard, got none; pip install tensorboard, or use CSVLog"
            )
        self.folder = Path(folder)

    def identity_parts(self) -> tuple[Any, ...]:
        """Return what changes the members: nothing."""
        return ()

    def on_epoch_end(self, state: EpochState) -> None:
        """Write the numbers of an epoch."""
        from torch.utils.tensorboard import SummaryWriter

        with SummaryWriter(str(self.folder / f"member-{state.seed}")) as writer:
            for name in HISTORY[1:]:
                value = getattr(state, name)
                if not math.isnan(value):
                    writer.add_scalar(name, value, state.epoch)


class EarlyStopping:
    """Callback that ends a member whose metric on the validation rows does not improve any more.

    The state of the best validation *loss* is kept; this decides only when to end. For the loss itself
    ``Training(patience=...)`` is simpler.

    Parameters
    ----------
    metric : str or callable
        Its name, or ``metric(y, pred)``: ``"qwk"``, ``dt.metrics.qwk``.
    patience : int
        Epochs without improvement.
    larger_is_better : bool, optional
        By default what is true of the metric; of a function of your own: no.
    """

    def __init__(self, metric: MetricLike, patience: int, *, larger_is_better: bool | None = None) -> None:
        self.metric, self.patience = metric, check_integer(patience, "patience", 1)
        self.larger_is_better, found = larger_is_better, get_metric(metric)
        self._known = found if found in map(get_metric, metric_names()) else None
        self.best: dict[int, tuple[float, int]] = {}

    def identity_parts(self) -> tuple[Any, ...]:
        """Return what changes the members: metric and patience, not what was seen so far."""
        return self.metric, self.patience, self.larger_is_better

    def state_dict(self) -> dict[str, Any]:
        """Return what was seen so far, which a training that goes on after it was killed needs."""
        return {str(seed): list(seen) for seed, seen in self.best.items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from :meth:`state_dict`."""
        self.best |= {int(seed): (best, when) for seed, (best, when) in state.items()}

    def on_epoch_end(self, state: EpochState) -> bool:
        """Return whether the member has not improved for so many epochs."""
        value = state.score(self.metric) * (-1 if self.larger_is_better else 1)
        if self.larger_is_better is None and self._known is not None:
            value = -self._known.utility(value)
        best, when = self.best.get(state.seed, (math.inf, 0))
        if state.epoch == 1 or value < best:
            self.best[state.seed] = (value, state.epoch)
            return False
        return state.epoch - when >= self.patience


def check_callbacks(callbacks: Any) -> tuple[Any, ...]:
    """Return callbacks as a tuple, or say which one is none."""
    listed = tuple(callbacks) if isinstance(callbacks, Sequence) else (callbacks,)
    for one in listed:
        wanted = callable(one) or callable(getattr(one, "on_epoch_end", None))
        if isinstance(one, type) or not wanted:
            raise InvalidTypeError(
                f"a callback must be a function of an EpochState or have on_epoch_end(state), got {one!r}; "
                "for example dt.hooks.CSVLog('log.csv')"
            )
    return listed


def wants_to_stop(callbacks: Sequence[Any], state: EpochState) -> bool:
    """Call all callbacks and return whether one of them ends the training of the member."""
    answers = [(one.on_epoch_end if hasattr(one, "on_epoch_end") else one)(state) for one in callbacks]
    return any(answer is True for answer in answers)


# -- progress ------------------------------------------------------------------------------------------


Listener = Callable[[int, int], None]
_LISTENER: ContextVar[Listener | None] = ContextVar("epoch_listener", default=None)


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Call ``listener(epoch, epochs)`` after every epoch trained inside the block.

    Examples
    --------
    >>> from deeptram import Training
    >>> heard = []
    >>> with listening(lambda epoch, epochs: heard.append((epoch, epochs))):
    ...     EpochBar(Training(epochs=5, progress=False), "member").update(1, 0.5, 0.6)
    >>> heard
    [(1, 5)]
    """
    token = _LISTENER.set(listener)
    try:
        yield
    finally:
        _LISTENER.reset(token)


class EpochBar:
    """Shows epochs and losses on stderr; does nothing when it is not wanted.

    Parameters
    ----------
    training : Training
        Its ``progress`` decides: True, False, or "auto" for terminals and notebooks only.
    label : str
        What is being trained.

    Examples
    --------
    >>> from deeptram import Training
    >>> with EpochBar(Training(progress=False), "member") as bar:
    ...     bar.update(1, 0.5, 0.6)
    """

    def __init__(self, training: Training, label: str) -> None:
        wanted = training.progress is True or (training.progress == "auto" and is_watched())
        self._bar: Any = None
        self._label, self._epochs = label, training.epochs
        if wanted:
            from rich.progress import TextColumn

            self._bar = new_bar(TextColumn("{task.fields[losses]}"))

    def __enter__(self) -> EpochBar:
        if self._bar is not None:
            self._bar.__enter__()
            self._task = self._bar.add_task(self._label, total=self._epochs, losses="")
        return self

    def update(self, epoch: int, train_loss: float, validation_loss: float) -> None:
        """Show the losses after an epoch."""
        listener = _LISTENER.get()
        if listener is not None:
            listener(epoch, self._epochs)
        if self._bar is not None:
            losses = f"train {train_loss:.4g}"
            losses += "" if math.isnan(validation_loss) else f"  validation {validation_loss:.4g}"
            self._bar.update(self._task, completed=epoch, losses=losses)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.__exit__(kind, error, trace)


# -- schedules ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class WarmUp:
    """Learning rate that grows linearly at first and then falls along half a cosine.

    Parameters
    ----------
    share : float
        Of the training in which it grows.
    last : float
        Factor at the end.

    Examples
    --------
    >>> [round(WarmUp(0.1)(done), 3) for done in (0.0, 0.05, 0.1, 0.55, 1.0)]
    [0.0, 0.5, 1.0, 0.5, 0.0]
    """

    share: float = 0.1
    last: float = 0.0

    def __post_init__(self) -> None:
        """Check the share."""
        if not 0 <= check_number(self.share, "share") < 1:
            raise InvalidInputError(f"share must lie in [0, 1), got {self.share!r}; for example 0.1")

    def __call__(self, done: float) -> float:
        """Return the factor when a share of the training is done."""
        if done < self.share:
            return done / self.share
        return _between(1.0, self.last, (done - self.share) / (1 - self.share))


@dataclass(frozen=True)
class OneCycle:
    """Learning rate from a low value to its peak and down to almost nothing, both along half a cosine.

    Smith and Topin (2018), in the form of ``torch.optim.lr_scheduler.OneCycleLR``.

    Parameters
    ----------
    share : float
        Of the training in which it grows.
    divide : float
        The peak is ``learning_rate``, the first value that divided by this.
    last : float
        The last value is the first divided by this.

    Examples
    --------
    >>> [round(OneCycle()(done), 3) for done in (0.0, 0.3, 1.0)]
    [0.04, 1.0, 0.0]
    """

    share: float = 0.3
    divide: float = 25.0
    last: float = 1e4

    def __call__(self, done: float) -> float:
        """Return the factor when a share of the training is done."""
        low = 1 / self.divide
        if done < self.share:
            return _between(low, 1.0, done / self.share)
        return _between(1.0, low / self.last, (done - self.share) / (1 - self.share))


def _between(first: float, last: float, done: float) -> float:
    return last + (first - last) * 0.5 * (1 + math.cos(math.pi * done))
