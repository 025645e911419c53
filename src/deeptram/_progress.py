"""A bar on stderr for work that takes long: of rich on terminals, a line of text in notebooks."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


def is_watched() -> bool:
    """Whether somebody can see a bar: stderr is a terminal, or belongs to a notebook."""
    return sys.stderr.isatty() or in_notebook()


def in_notebook() -> bool:
    """Whether this process is the kernel of a notebook."""
    return "ipykernel" in sys.modules and not sys.stderr.isatty()


class LineBar:
    """A line that rewrites itself, for notebooks: rich's ``Progress`` as far as it is used, without widgets.

    Examples
    --------
    >>> bar = LineBar()
    >>> bar.text("member 1", 3, 10, "train 0.5")
    'member 1 [######              ] 3/10  train 0.5'
    """

    def __init__(self) -> None:
        self._label, self._total, self._done, self._width = "", 0, 0, 0

    def __enter__(self) -> LineBar:
        return self

    def __exit__(self, *error: object) -> None:
        sys.stderr.write("\n")
        sys.stderr.flush()

    def add_task(self, label: str, total: int, **_: Any) -> int:
        """Start to count."""
        self._label, self._total, self._done = label, total, 0
        return 0

    def update(
        self,
        _task: Any,
        *,
        advance: int = 0,
        completed: int | None = None,
        description: str | None = None,
        losses: str = "",
    ) -> None:
        """Count, and write the line again."""
        self._done = self._done + advance if completed is None else completed
        self._label = description or self._label
        line = self.text(self._label, self._done, self._total, losses)
        sys.stderr.write("\r" + line.ljust(self._width))
        sys.stderr.flush()
        self._width = len(line)

    @staticmethod
    def text(label: str, done: int, total: int, losses: str) -> str:
        """Return the line."""
        filled = "#" * (20 * done // max(total, 1))
        return f"{label} [{filled:20}] {done}/{total}  {losses}".rstrip()


def new_bar(*further_columns: Any) -> Any:
    """Return a bar to enter: rich's, or in notebooks a ``LineBar``.

    Parameters
    ----------
    *further_columns : columns of ``rich.progress``
    """
    if in_notebook():
        return LineBar()
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        *further_columns,
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=sys.stderr.isatty(),
    )


class Steps:
    """Counts steps that are done, and shows them where there is a bar."""

    def __init__(self, bar: Any, label: str, total: int) -> None:
        self._bar = bar
        self._task = None if bar is None else bar.add_task(label, total=total)

    def done(self, next_one: str = "") -> None:
        """Count one step; ``next_one`` says what comes now."""
        if self._bar is not None:
            self._bar.update(self._task, advance=1, **({"description": next_one} if next_one else {}))


@contextmanager
def progress(label: str, total: int, *, shown: bool | None = None) -> Iterator[Steps]:
    """Show how many of ``total`` steps are done; by default on terminals and in notebooks.

    Examples
    --------
    >>> with progress("pools", 2, shown=False) as steps:
    ...     steps.done()
    """
    if not (is_watched() if shown is None else shown):
        yield Steps(None, label, total)
        return
    with new_bar() as bar:
        yield Steps(bar, label, total)
