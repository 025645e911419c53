"""How the command line ends: exit code 2 and one line for bad input, 1 for what nobody expected."""

from __future__ import annotations

import sys
from collections.abc import Sequence
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
        except DeeptramError as error:
            _fail(str(error))
        except _USAGE_ERROR as error:
            _fail(_usage_message(error))
        except typer.Abort:
            sys.exit(INTERRUPTED)
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


def _usage_message(error: Exception) -> str:
    message = str(getattr(error, "format_message", error.__str__)())
    if not message:
        sys.exit(BAD_INPUT)  # called without arguments: the help has been shown
    context = getattr(error, "ctx", None)
    where = "deeptram" if context is None else str(context.command_path)
    return f"{message.rstrip('.')}; see '{where} --help'"


def _fail(message: str) -> NoReturn:
    sys.stderr.write(f"deeptram: {' '.join(message.split())}\n")
    sys.exit(BAD_INPUT)
