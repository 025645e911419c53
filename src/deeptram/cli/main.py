"""The command line application: the table of its commands, loaded when they are asked for, and how they end.

One line on stderr and exit code 2 for bad input and for what the machine refuses: a full disk, a limit on the
size of files, a folder that cannot be written and a closed pipe are nobody's bug. Ctrl-C ends with 130, what
nobody expected with 1 and a traceback.
"""

from __future__ import annotations

import errno
import importlib
import itertools
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

import click
from click.shell_completion import CompletionItem

from deeptram._version import __version__
from deeptram._workers import interrupts_end_the_process
from deeptram.cli.options import AlignedContext, check_is_file, in_options, matching, repeat_option_names
from deeptram.errors import DeeptramError

BAD_INPUT = 2
INTERRUPTED = 130
CLOSED_PIPE = 141  # as of any program whose reader (head) has seen enough

COMMANDS = {
    "demo": ("deeptram.cli.demo:demo_command", "Fit ensembles to images of digits with known effects."),
    "fit": ("deeptram.cli.models:fit_command", "Fit a transformation model, or an ensemble, to a table."),
    "predict": ("deeptram.cli.models:predict_command", "Predict the distribution of each row of a table."),
    "pool": ("deeptram.cli.pool:pool_command", "Pool the predictions of several models."),
    "hub": ("deeptram.cli.hub:hub_commands", "Pool and score the submissions of a forecast hub."),
    "reproduce": ("deeptram.cli.studies:reproduce_command", "Rerun one of the paper's studies."),
    "report": ("deeptram.cli.studies:report_command", "Write the report of a run, or of a model on data."),
    "data": ("deeptram.cli.studies:data_commands", "Data sets on this computer."),
    "completion": ("deeptram.cli.options:completion_command", "Complete commands and options in a shell."),
}


# Options of files that are looked for before a command is loaded, which takes seconds.
FILES = {
    "fit": {"--data"},
    "predict": {"--data"},
    "report": {"--data"},
    "pool": {"--members", "--truth", "--tune-members", "--tune-truth"},
}


class DeeptramGroup(click.Group):
    """The commands; errors made on purpose become one line on stderr, without a traceback.

    Parameters
    ----------
    lazy : mapping
        ``"module:command"`` and a line of help by the name of the command. The module is
        loaded when the command, or its help, is asked for.
    **settings
        Of ``click.Group``.
    """

    context_class = AlignedContext

    def __init__(self, lazy: Mapping[str, tuple[str, str]] | None = None, **settings: Any) -> None:
        super().__init__(**settings)
        self.lazy = dict(lazy or {})

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands."""
        return [*self.lazy, *super().list_commands(ctx)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command, loading its module."""
        if cmd_name not in self.lazy:
            return super().get_command(ctx, cmd_name)
        module, _, command = self.lazy[cmd_name][0].partition(":")
        with interrupts_end_the_process():  # loading takes seconds
            found: click.Command = getattr(importlib.import_module(module), command)
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return a command and its arguments; files that are not there are found before it is loaded."""
        if args[0] in self.lazy and not ctx.resilient_parsing and "--help" not in args:
            for path in _paths(args[1:], FILES.get(args[0], set())):
                check_is_file(path)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands, loading none that is lazy."""
        with formatter.section("Commands"):
            formatter.write_dl(self._lines_of_help())

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the commands that begin as what was typed, loading none that is lazy."""
        own_options = click.Command.shell_complete(self, ctx, incomplete)
        return [*matching(self._lines_of_help(), incomplete), *own_options]

    def _lines_of_help(self) -> list[tuple[str, str]]:
        rows = [(name, line) for name, (_, line) in self.lazy.items()]
        return rows + [(name, command.get_short_help_str(100)) for name, command in self.commands.items()]

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        """Run the command line and leave the process with its exit code."""
        if not standalone_mode:
            return super().main(args, prog_name, complete_var, False, **extra)
        try:
            code = super().main(args, prog_name, complete_var, False, **extra)
            _flush()  # what cannot be written shows here, not in a traceback after the end
        except DeeptramError as error:
            _fail(str(error))
        except click.UsageError as error:
            _fail(_usage_message(error))
        except KeyboardInterrupt:
            code = INTERRUPTED
        except (SystemExit, BrokenPipeError):  # click and rich leave where a pipe is closed
            _say("")
            sys.exit(CLOSED_PIPE)
        except (click.Abort, Exception) as error:
            reason = _machine_message(error)
            if reason is not None:
                _fail(reason)
            if not isinstance(error, click.Abort):
                raise
            code = INTERRUPTED
        if code == INTERRUPTED:
            _say("interrupted")
        sys.exit(code if isinstance(code, int) else 0)


def _paths(args: Sequence[str], options: set[str]) -> Iterator[Path]:
    """Yield what follows some options, but for a pipe."""
    words = repeat_option_names(args, options)
    for word, following in itertools.zip_longest(words, words[1:], fillvalue=""):
        name, equals, value = word.partition("=")
        found = value if equals else following
        if name in options and found not in ("", "-"):
            yield Path(found)


def _usage_message(error: click.UsageError) -> str:
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        error.show()
        sys.exit(BAD_INPUT)
    where = "deeptram" if error.ctx is None else error.ctx.command_path
    return f"{error.format_message().rstrip('.')}; see '{where} --help'"


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
        cause = cause.__cause__
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
    _say(in_options(" ".join(message.split())))
    sys.exit(BAD_INPUT)


def _say(line: str) -> None:
    """Write a last line to stderr; leave nothing in stdout that would fail once more after the end."""
    try:
        _flush()
    except OSError:
        with suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    with suppress(OSError):  # stderr may be closed as well; the exit code says it then
        if not line:
            return
        sys.stderr.write(f"deeptram: {line}\n")
        sys.stderr.flush()


def _flush() -> None:
    if sys.stdout is not None:  # it is None where the process was started with a closed one
        sys.stdout.flush()


@click.group(
    name="deeptram",
    cls=DeeptramGroup,
    lazy=COMMANDS,
    no_args_is_help=True,
    context_settings={"show_default": True, "max_content_width": 110},
)
@click.version_option(__version__, message="deeptram %(version)s", help="Show the version.")
def app() -> None:
    """Deep transformation models and interpretable ensembles.

    Exit codes: 0 done, 2 usage, bad input or a full disk, 130 interrupted, 1 unexpected.
    """
