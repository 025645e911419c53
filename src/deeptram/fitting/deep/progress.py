"""A progress bar with losses, where somebody is watching; and a way to listen to the epochs."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import TracebackType
from typing import Any

from deeptram.fitting.deep.training import Training

Listener = Callable[[int, int], None]
_LISTENER: ContextVar[Listener | None] = ContextVar("epoch_listener", default=None)


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Call ``listener(epoch, epochs)`` after every epoch trained inside the block.

    Examples
    --------
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
        Its ``progress`` decides: True, False, or "auto" for terminals only.
    label : str
        What is being trained.

    Examples
    --------
    >>> with EpochBar(Training(progress=False), "member") as bar:
    ...     bar.update(1, 0.5, 0.6)
    """

    def __init__(self, training: Training, label: str) -> None:
        wanted = training.progress is True or (training.progress == "auto" and sys.stderr.isatty())
        self._bar: Any = None
        self._label, self._epochs = label, training.epochs
        if wanted:
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.fields[losses]}"),
                TimeRemainingColumn(),
                console=Console(stderr=True),
                transient=sys.stderr.isatty(),
            )

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
