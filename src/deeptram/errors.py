"""Every error and warning of deeptram, in one hierarchy.

Each error also inherits the built-in it specialises, so ``except ValueError``
keeps working. A message has three parts: what was expected, what came, and
what to do about it.

Examples
--------
>>> from deeptram.errors import InvalidInputError
>>> issubclass(InvalidInputError, ValueError)
True
"""

from __future__ import annotations

import importlib
import inspect
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sklearn.exceptions import NotFittedError as _SklearnNotFittedError


class DeeptramError(Exception):
    """Base of every error raised on purpose by deeptram."""


class InvalidInputError(DeeptramError, ValueError):
    """The data or an argument does not have the form that was asked for."""


class RowIndexError(InvalidInputError, IndexError):
    """A row was asked for that is not there; ends a loop over rows, as ``IndexError`` does."""


class InvalidTypeError(DeeptramError, TypeError):
    """An argument is of a type that cannot be used here."""


class UnknownNameError(InvalidInputError):
    """A name (latent, column, score, level, ...) is not one of those known."""


class UnsupportedError(DeeptramError, ValueError):
    """The request is well formed, but this combination has no meaning or no method."""


class MissingMethodError(UnsupportedError, AttributeError):
    """A method that this kind of outcome does not have; ``hasattr`` is false for it."""


class FittingError(DeeptramError, RuntimeError):
    """A fit could not be carried to its end."""


class NonFiniteLossError(FittingError):
    """The training loss became infinite or NaN; the message names the rows.

    Attributes
    ----------
    best : DeepFit or None
        The fit as it was at its best epoch before, if one was finished.
    """

    best: Any = None


class StructureError(UnsupportedError):
    """A quantity was asked for that the pool has destroyed (e.g. coefficients)."""


class MissingCoefficientsError(StructureError, AttributeError):
    """An ensemble has no coefficients of its own; ``hasattr`` is false for them."""


class FileFormatError(DeeptramError, ValueError):
    """A file is damaged, of another version, or not what its name says."""


class MissingDependencyError(DeeptramError, ImportError):
    """An optional package is needed; the message names the extra to install."""


@contextmanager
def about(where: str) -> Iterator[None]:
    """Put what it is about before the message of an error that is raised inside the block.

    Examples
    --------
    >>> with about("partition 3"):
    ...     raise InvalidInputError("age must be known, got NaN")
    Traceback (most recent call last):
    ...
    deeptram.errors.InvalidInputError: partition 3: age must be known, got NaN
    """
    try:
        yield
    except (InvalidInputError, FileFormatError) as error:
        raise type(error)(f"{where}: {error}") from error


def optional_module(name: str, purpose: str, extra: str) -> Any:
    """Return a module of an optional package, or say which extra brings it.

    Examples
    --------
    >>> optional_module("no_such_package", "reading stars", "stars")
    Traceback (most recent call last):
    ...
    deeptram.errors.MissingDependencyError: reading stars needs no_such_package, which is not installed; ...
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise MissingDependencyError(
            f"{purpose} needs {name.partition('.')[0]}, which is not installed; run "
            f"pip install 'deeptram[{extra}]'"
        ) from error


class DeeptramWarning(UserWarning):
    """Base of every warning of deeptram."""


class ConvergenceWarning(DeeptramWarning):
    """An optimiser stopped before its certificate was met."""


class UnfinishedTrainingWarning(ConvergenceWarning):
    """Networks were trained for too few epochs: their validation loss was still falling at the last one."""


class SeparationWarning(DeeptramWarning):
    """The likelihood increases for ever in some direction: coefficients are infinite."""


class UnboundedLikelihoodWarning(DeeptramWarning):
    """The model fits some outcomes without error: the density there grows without bound."""


class CollinearityWarning(DeeptramWarning):
    """Columns carry no information of their own and were left out (coefficient NaN)."""


class ExtrapolationWarning(DeeptramWarning):
    """An answer rests on the form of the model alone: a spline, or a time, beyond the data."""


class OrderWarning(DeeptramWarning):
    """An ordinal outcome came without an order of its labels; the message names the order used."""


class ManyLevelsWarning(DeeptramWarning):
    """Most values of an outcome that is to be one of some classes are different from all others."""


class TwoValuesWarning(DeeptramWarning):
    """A model of numbers, with a density, got an outcome of two values."""


class MixedColumnWarning(DeeptramWarning):
    """A column has text among numbers; every number became a level."""


class EventsWarning(DeeptramWarning):
    """A survival model got times without events; every row was taken as an event."""


class AlignmentWarning(DeeptramWarning):
    """Rows of two pandas objects have different labels and were taken by position."""


class DroppedPartsWarning(DeeptramWarning):
    """Items of a data set have parts that no network sees."""


class EmptyClassWarning(DeeptramWarning):
    """A declared level has no observation; a model gives it probability zero, a recalibration does not."""


def warn(message: str, category: type[Warning]) -> None:
    """Warn at the line of the user's own code: the one that called the package."""
    frame, level, outside = inspect.currentframe(), 1, 2
    while frame is not None:
        if frame.f_globals.get("__name__", "").partition(".")[0] == "deeptram":
            outside = level + 1
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=outside)


if TYPE_CHECKING:

    class NotFittedError(DeeptramError, _SklearnNotFittedError):
        """A method that needs a fitted model was called before ``fit``."""


def __getattr__(name: str) -> Any:
    """Make ``NotFittedError`` when it is first used: its base is scikit-learn's, which is slow to import."""
    if name != "NotFittedError":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from sklearn.exceptions import NotFittedError as base

    text = "A method that needs a fitted model was called before ``fit``."
    error = type(name, (DeeptramError, base), {"__doc__": text, "__module__": __name__})
    return globals().setdefault(name, error)
