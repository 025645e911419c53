"""A progress bar with losses, where somebody is watching."""

from __future__ import annotations

import math
import sys
from types import TracebackType
from typing import Any

from deeptram.fitting.training import Training


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
                transient=True,
            )

    def __enter__(self) -> EpochBar:
        if self._bar is not None:
            self._bar.__enter__()
            self._task = self._bar.add_task(self._label, total=self._epochs, losses="")
        return self

    def update(self, epoch: int, train_loss: float, validation_loss: float) -> None:
        """Show the losses after an epoch."""
        if self._bar is not None:
            losses = f"train {train_loss:.4g}"
            losses += "" if math.isnan(validation_loss) else f"  validation {validation_loss:.4g}"
            self._bar.update(self._task, completed=epoch, losses=losses)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.__exit__(kind, error, trace)
