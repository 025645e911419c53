"""A bar on stderr for work that takes long."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


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
    """Show how many of ``total`` steps are done, on terminals only unless ``shown`` says so.

    Examples
    --------
    >>> with progress("pools", 2, shown=False) as steps:
    ...     steps.done()
    """
    if not (sys.stderr.isatty() if shown is None else shown):
        yield Steps(None, label, total)
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=sys.stderr.isatty()) as bar:
        yield Steps(bar, label, total)
