"""How the command line ends: one line and exit code 2 for bad input and for what the machine refuses.

A full disk, a limit on the size of files, a folder that cannot be written and a closed pipe are nobody's bug;
Ctrl-C ends with 130, what nobody expected with 1 and a traceback.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NoReturn

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption

from deeptram.errors import DeeptramError

BAD_INPUT = 2
INTERRUPTED = 130

# typer uses the package click or, from some version on, its own copy of it; what it exports leads to both.
_USAGE_ERROR: type[Exception] = typer.BadParameter.__bases__[0].__bases__[0]


class DeeptramGroup(TyperGroup):
    """The commands; errors made on purpose become one line on stderr, without a traceback."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """Run the command line and leave the process with its exit code."""
        passed = {"complete_var": complete_var, "windows_expand_args": windows_expand_args, **extra}
        if not standalone_mode:
            return super().main(args, prog_name, standalone_mode=False, **passed)
        try:
            code = super().main(args, prog_name, standalone_mode=False, **passed)
            _flush()  # what cannot be written shows here, not in a traceback after the end
        except DeeptramError as error:
            _fail(str(error))
        except _USAGE_ERROR as error:
            _fail(_usage_message(error))
        except KeyboardInterrupt:
            code = INTERRUPTED
        except (SystemExit, typer.Abort, Exception) as error:
            reason = _machine_message(error)
            if reason is not None:
                _fail(reason)
            if not isinstance(error, typer.Abort):
                raise
            code = INTERRUPTED
        if code == INTERRUPTED:
            _say("interrupted")
        sys.exit(code if isinstance(code, int) else 0)


class ManyValuesCommand(TyperCommand):
    """A command whose list options take several values at once: ``--members a.csv b.csv``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments after repeating the name of a list option before each of its values."""
        names = {
            name
            for option in self.params
            if isinstance(option, TyperOption) and option.multiple
            for name in option.opts
        }
        return super().parse_args(ctx, repeat_option_names(args, names))


def repeat_option_names(args: Sequence[str], options: set[str]) -> list[str]:
    """Return arguments in which every value of a list option follows the option's name.

    The values of an option end at the next argument that starts with ``-``.

    Examples
    --------
    >>> repeat_option_names(["--members", "a", "b", "--out", "c"], {"--members"})
    ['--members', 'a', '--members', 'b', '--out', 'c']
    """
    repeated: list[str] = []
    option, waiting = "", False
    for position, arg in enumerate(args):
        if arg == "--":
            return [*repeated, *args[position:]]
        if arg.startswith("-") and arg != "-":
            name, equals, _ = arg.partition("=")
            option, waiting = (name, not equals) if name in options else ("", False)
        elif option and not waiting:
            repeated.append(option)
        else:
            waiting = False
        repeated.append(arg)
    return repeated


def is_given(ctx: typer.Context, name: str) -> bool:
    """Whether an option was written on the command line (and is not the default).

    Parameters
    ----------
    ctx : typer.Context
    name : str
        Of the parameter in Python.
    """
    source = ctx.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _usage_message(error: Exception) -> str:
    message = str(getattr(error, "format_message", error.__str__)())
    if not message:
        sys.exit(BAD_INPUT)  # called without arguments: the help has been shown
    context = getattr(error, "ctx", None)
    where = "deeptram" if context is None else str(context.command_path)
    return f"{message.rstrip('.')}; see '{where} --help'"


_REMEDIES = {
    errno.ENOSPC: "make room on the disk and start again",
    errno.EDQUOT: "make room on the disk and start again",
    errno.EFBIG: "raise the limit on the size of files (ulimit -f) and start again",
    errno.EROFS: "choose a folder that can be written",
    errno.EACCES: "choose another place, or ask for the right to use this one",
    errno.EPERM: "choose another place, or ask for the right to use this one",
    errno.EMFILE: "raise the limit on open files (ulimit -n) and start again",
}


def _machine_message(error: BaseException) -> str | None:
    """Return a sentence if an error comes from the machine (disk, pipe, memory), also from a worker's."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, OSError | MemoryError | EOFError):
        ended = isinstance(cause, SystemExit | typer.Abort)  # typer's and rich's answers to a closed pipe
        cause = cause.__cause__ or (cause.__context__ if ended else None)
    if isinstance(cause, BrokenPipeError):
        return "the output must be read to its end, got a closed pipe; write to a file to keep all of it"
    if isinstance(cause, MemoryError):
        return "the computer must have enough memory for this, got too little; use fewer rows or jobs"
    if isinstance(cause, EOFError):
        return "every file must be complete, got one that ends too early; make it again"
    if not isinstance(cause, OSError):
        return None
    reason = cause.strerror or str(cause) or type(cause).__name__
    where = f"{cause.filename}" if cause.filename else "a file"
    remedy = _REMEDIES.get(cause.errno or 0, "check the path and start again")
    return f"{where} must be readable and writable, got {reason[:1].lower()}{reason[1:]}; {remedy}"


def _fail(message: str) -> NoReturn:
    _say(" ".join(message.split()))
    sys.exit(BAD_INPUT)


def _say(line: str) -> None:
    """Write a last line to stderr; leave nothing in stdout that would fail once more after the end."""
    try:
        _flush()
    except OSError:
        with suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    with suppress(OSError):  # stderr may be closed as well; the exit code says it then
        sys.stderr.write(f"deeptram: {line}\n")
        sys.stderr.flush()


def _flush() -> None:
    if sys.stdout is not None:  # it is None where the process was started with a closed one
        sys.stdout.flush()
