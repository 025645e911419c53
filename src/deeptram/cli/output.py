"""What commands leave behind: files that nothing is lost by, lines for people, JSON for programs."""

from __future__ import annotations

import json
import math
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import pandas as pd

from deeptram.errors import InvalidInputError


def output_folder(path: Path) -> Path:
    """Create the folder for results, unless it is there, and find out whether it can be written."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            return path
    except OSError as error:
        raise InvalidInputError(
            f"{path} must be a folder that can be written, got {type(error).__name__} ({error.strerror}); "
            "choose another --out"
        ) from error


def check_free(paths: Sequence[Path], force: bool) -> None:
    """Refuse to replace files or folders, unless asked to; find out early that they could not be written.

    Parameters
    ----------
    paths : sequence of Path
        What a command is about to write.
    force : bool
    """
    for path in paths:
        if path.exists() and not force:
            raise InvalidInputError(f"--out must not exist yet, got {path}; pass --force, or another path")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=path.parent):
                continue
        except OSError as error:
            raise InvalidInputError(
                f"--out must be where a file can be written, got {path} ({type(error).__name__}); "
                "choose another"
            ) from error


def note(message: str) -> None:
    """Say something on stderr, unless the command was asked to be quiet."""
    context = click.get_current_context(silent=True)
    if context is None or not context.params.get("quiet"):
        click.echo(f"Note: {message}.", err=True)


def emit(record: Mapping[str, Any]) -> None:
    """Print a result as JSON: tables as lists of rows, what is not finite as null.

    Examples
    --------
    >>> emit({"rows": 3, "loss": float("nan")})
    {"rows": 3, "loss": null}
    """
    click.echo(json.dumps(_plain(record), allow_nan=False, ensure_ascii=False))


def _plain(value: Any) -> Any:
    if isinstance(value, pd.DataFrame):
        return _plain(value.to_dict("records"))
    if isinstance(value, Mapping):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if hasattr(value, "tolist"):  # arrays and their scalars
        return _plain(value.tolist())
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    if isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return None if pd.isna(value) else str(value)


@contextmanager
def working(message: str, quiet: bool) -> Iterator[Any]:
    """Show on stderr what is being done, where somebody is watching; yields a function for news.

    Examples
    --------
    >>> with working("reading", quiet=True) as say:
    ...     say("still reading")
    """
    if quiet or not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console

    with Console(stderr=True).status(message) as status:
        yield status.update
