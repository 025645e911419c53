"""What commands leave behind: files that nothing is lost by, lines for people, JSON for programs."""

from __future__ import annotations

import json
import math
import sys
import tempfile
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import pandas as pd

from deeptram.cli.options import in_options
from deeptram.errors import InvalidInputError


def output_folder(path: Path) -> Path:
    """Create the folder for results, unless it is there, and find out whether it can be written."""
    _check_writable(path, f"{path} must be a folder that can be written", "choose another --out")
    return path


def check_free(paths: Sequence[Path], force: bool, inputs: Iterable[Path | None] = ()) -> None:
    """Refuse to replace files or folders, unless asked to; find out early that they could not be written.

    Parameters
    ----------
    paths : sequence of Path
        What a command is about to write.
    force : bool
    inputs : iterable of Path
        What it reads: neither this nor a folder that it is in is ever replaced.
    """
    read = [one for one in inputs if one is not None and one.exists()]
    for path in paths:
        for one in read if path.exists() else ():
            if any(path.samefile(place) for place in (one, *one.resolve().parents)):
                raise InvalidInputError(
                    f"--out must not replace what is read, got {path} and {one} to read; choose another path"
                )
        if path.exists() and not force:
            raise InvalidInputError(f"--out must not exist yet, got {path}; pass --force, or another path")
        expected = "--out must be where a file can be written"
        _check_writable(path.parent, expected, f"choose another than {path}")


def _check_writable(folder: Path, expected: str, remedy: str) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return
    except OSError as error:
        got = f"{type(error).__name__} ({error.strerror})"
        raise InvalidInputError(f"{expected}, got {got}; {remedy}") from error


def note(message: str) -> None:
    """Say something on stderr, unless the command was asked to be quiet."""
    context = click.get_current_context(silent=True)
    if context is None or not context.params.get("quiet"):
        click.echo(f"Note: {in_options(message).rstrip('.')}.", err=True)


def counted(number: int, noun: str) -> str:
    """Return how many there are of something.

    Examples
    --------
    >>> counted(1, "row"), counted(1200, "row")
    ('1 row', '1,200 rows')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


@contextmanager
def kept_warnings() -> Iterator[list[str]]:
    """Keep what is warned of in the block, every sentence once; the list is filled when the block has ended.

    Examples
    --------
    >>> with kept_warnings() as notes:
    ...     for _ in range(2):
    ...         warnings.warn("few rows", stacklevel=1)
    >>> notes
    ['few rows']
    """
    notes: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        yield notes
    notes += dict.fromkeys(str(one.message) for one in caught if issubclass(one.category, UserWarning))


def emit(record: Mapping[str, Any]) -> None:
    """Print a result as JSON: tables as lists of rows, what is not finite as null.

    Examples
    --------
    >>> emit({"rows": 3, "loss": float("nan")})
    {"rows": 3, "loss": null}
    """
    click.echo(json.dumps(json_values(record), allow_nan=False, ensure_ascii=False))


def json_values(value: Any) -> Any:
    """Return nested values as JSON has them: tables as lists of rows, what is not finite as None.

    Examples
    --------
    >>> json_values({"gap": float("nan"), "weights": (0.5, 0.5)})
    {'gap': None, 'weights': [0.5, 0.5]}
    """
    if isinstance(value, pd.DataFrame):
        return json_values(value.to_dict("records"))
    if isinstance(value, Mapping):
        return {str(key): json_values(entry) for key, entry in value.items()}
    if hasattr(value, "tolist"):  # arrays and their scalars
        return json_values(value.tolist())
    if isinstance(value, list | tuple):
        return [json_values(entry) for entry in value]
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
