"""Commands made from typed functions, with options that are declared once, pages of help and completion.

A parameter of a command is an option: its name, type and default are those of the parameter, its help stands
beside them. ::

    @command("count")
    def count_command(data: Annotated[Path, Option("A table.")], quiet: Quiet = False) -> None:
        ...
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem, get_completion_class

SHELLS = ("bash", "zsh", "fish")
_ARGUMENTS = "deeptram.arguments"
_NARROWEST = 24  # columns for the text of an option, however long its name is


class AlignedHelp(click.HelpFormatter):
    """Writes lists of options: words with hyphens whole, and what is in brackets in one piece."""

    def write_dl(self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2) -> None:
        """Write names beside their texts."""
        rows = list(rows)
        start = min(max((len(name) for name, _ in rows), default=0), col_max) + col_spacing
        width = max(self.width - self.current_indent - start, _NARROWEST)
        margin = " " * self.current_indent
        for name, text in rows:
            lines = _lines(text, width)
            if len(name) > start - col_spacing:
                self.write(f"{margin}{name}\n")
            else:
                first = lines.pop(0) if lines else ""
                self.write(f"{margin}{name:<{start}}{first}".rstrip() + "\n")
            self.write("".join(f"{margin}{'':<{start}}{line}\n" for line in lines))


def _lines(text: str, width: int) -> list[str]:
    """Break a text into lines; the brackets behind it (default, range) stay together."""
    body, gap, brackets = text.partition("  [")
    lines = textwrap.wrap(body, width, break_on_hyphens=False, break_long_words=False)
    if not gap:
        return lines
    last = f"{lines[-1]}  [{brackets}" if lines else f"[{brackets}"
    return [*lines[:-1], last] if len(last) <= width else [*lines, f"[{brackets}"]


class AlignedContext(click.Context):
    """A context whose pages of help are written by :class:`AlignedHelp`."""

    formatter_class = AlignedHelp


class ManyValuesCommand(click.Command):
    """A command whose list options take several values at once: ``--members a.csv b.csv``."""

    context_class = AlignedContext

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments after repeating the name of a list option before each of its values."""
        ctx.meta[_ARGUMENTS] = list(args)
        return super().parse_args(ctx, repeat_option_names(args, set(self._lists())))

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return options, or further values of the list option that was named last."""
        options = [arg for arg in ctx.meta.get(_ARGUMENTS, []) if arg.startswith("--")]
        last = self._lists().get(options[-1]) if options else None
        if last is None or incomplete.startswith("-"):
            return super().shell_complete(ctx, incomplete)
        return last.shell_complete(ctx, incomplete)

    def _lists(self) -> dict[str, click.Option]:
        found = [option for option in self.params if isinstance(option, click.Option) and option.multiple]
        return {name: option for option in found for name in option.opts}


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


@dataclass(frozen=True)
class Option:
    """What the command line says about a parameter besides its name, type and default.

    Attributes
    ----------
    help : str
    names : tuple of str
        Such as ``"--json"``, where it is not the parameter's own.
    choices : sequence of str
        The only words it takes.
    known : sequence of str
        Words that a shell offers, if there are others.
    least : int, optional
        The smallest number.
    metavar : str, optional
        What stands for the value in the page of help.
    is_argument : bool
        Whether the value stands alone, without a name before it.
    """

    help: str = ""
    names: tuple[str, ...] = ()
    choices: Sequence[str] = ()
    known: Sequence[str] = ()
    least: int | None = None
    metavar: str | None = None
    is_argument: bool = False

    def parameter(self, name: str, hint: Any, default: Any) -> click.Parameter:
        """Return the parameter of that name, type and default."""
        value, several = _value_type(hint)
        settings: dict[str, Any] = {
            "type": click.Path(path_type=Path) if value is Path else value,
            "required": default is inspect.Parameter.empty,
            "callback": self._checked,
            "metavar": self.metavar,
        }
        if self.least is not None:
            settings["type"] = click.IntRange(min=self.least)
            settings["type"].name = "integer"  # not "integer range", which no value is
        if not settings["required"] and default is not None and default is not False:
            settings["default"] = default
        if self.known or self.choices:
            settings["shell_complete"] = one_of(self.known or self.choices)
        if self.is_argument:
            return click.Argument([name], **settings)
        own = f"--{name.replace('_', '-')}" + (f"/--no-{name}" if default is True else "")
        settings |= {"help": self.help, "multiple": several}
        if value is bool:  # click finds the type; told it, versions before 8.3 read every flag as not set
            settings |= {"is_flag": True, "type": None}
        return click.Option([*(self.names or [own]), name], **settings)

    def _checked(self, _ctx: click.Context, parameter: click.Parameter, value: Any) -> Any:
        """Return a value, or several as a list (None if there are none), checked to be a choice."""
        several = list(value) if parameter.multiple else [value]
        if self.choices and several != [None]:
            from deeptram._validation import check_choice

            name = parameter.opts[0].upper() if self.is_argument else parameter.opts[0]
            for one in several:
                check_choice(one, self.choices, name)
        return (several or None) if parameter.multiple else value


def command(
    name: str, about: str | None = None, group: click.Group | None = None
) -> Callable[[Callable[..., None]], click.Command]:
    """Return a decorator that makes a command of a function.

    Parameters
    ----------
    name : str
    about : str, optional
        The page of help, if the docstring is not it.
    group : click.Group, optional
        To which the command belongs.
    """

    def made(function: Callable[..., None]) -> click.Command:
        hints = get_type_hints(function, include_extras=True)
        parameters = [
            hints[one.name].__metadata__[0].parameter(one.name, hints[one.name].__origin__, one.default)
            for one in inspect.signature(function).parameters.values()
        ]
        page = inspect.cleandoc(about or function.__doc__ or "")
        found = ManyValuesCommand(name, callback=function, params=parameters, help=page)
        if group is not None:
            group.add_command(found)
        return found

    return made


def _value_type(hint: Any) -> tuple[Any, bool]:
    """Return the type of a value, and whether there may be several."""
    inside = [one for one in get_args(hint) if one is not NoneType]
    if get_origin(hint) is list:
        return inside[0], True
    return _value_type(inside[0]) if inside else (hint, False)


def latent_option(text: str, *more: str) -> Option:
    """Return the option of a latent distribution, whose page of help has all names it takes.

    Parameters
    ----------
    text : str
        What it is for.
    *more : str
        Further words that it takes.
    """
    from deeptram import latent

    known = [latent.get(name) for name in latent.names()]
    shown = [f"{one.name} ({', '.join(word for word in one.aliases if '_' not in word)})" for one in known]
    words = [word for one in known for word in (one.name, *one.aliases)]
    return Option(f"{text} Names: {', '.join([*shown, *more])}.", choices=(*words, *more))


Force = Annotated[bool, Option("Replace what is there.")]
Json = Annotated[bool, Option("Print the result as JSON.", ("--json",))]
Quiet = Annotated[bool, Option("Print nothing.")]
Silent = Annotated[bool, Option("No progress.", ("--quiet",))]
Level = Annotated[float, Option("Coverage of the intervals.")]
Images = Annotated[Path | None, Option("Folder of image files, for models with images.")]


def is_given(name: str) -> bool:
    """Whether an option of the running command was written on the command line (and is not the default).

    Parameters
    ----------
    name : str
        Of the parameter in Python.
    """
    return click.get_current_context().get_parameter_source(name) is ParameterSource.COMMANDLINE


_PYTHON = {
    "Ensemble(model, 30, members='bags')": "--bags --members 30",
    "set Training(epochs=...) larger, and patience=10 or so": "raise --epochs, and set --patience 10 or so",
    "lower learning_rate, set clip_norm, or train longer": "lower --learning-rate, or raise --epochs",
    "set schedule='warm-up', lower learning_rate": "lower --learning-rate",
    " (converged_ is False)": "",
    "overwrite=True": "--force",
    "pass directory= or set": "name it (reproduce: with --data), or set",
    "; dt.CS(..., orthogonalize=True) leaves it what is linear": "",
}


def in_options(said: str) -> str:
    """Return a sentence of the library with options in the place of its arguments.

    Examples
    --------
    >>> in_options("overwrite=True replaces saved models only")
    '--force replaces saved models only'
    """
    for python, options in _PYTHON.items():
        said = said.replace(python, options)
    return said


def check_is_file(path: Path) -> None:
    """Raise unless a path is that of a file."""
    from deeptram.errors import InvalidInputError

    if not path.is_file():
        what = "a folder" if path.is_dir() else "no such file"
        raise InvalidInputError(f"{path} must be a file, got {what}; check the path")


def refuse_given(names: Iterable[str], sentence: str) -> None:
    """Refuse options that would change nothing: somebody expected them to.

    Parameters
    ----------
    names : iterable of str
        Of the parameters in Python.
    sentence : str
        What follows the name of the option.
    """
    from deeptram.errors import InvalidInputError

    for name in names:
        if is_given(name):
            raise InvalidInputError(f"--{name.replace('_', '-')} {sentence}")


def one_of(values: Iterable[str]) -> Callable[..., list[str]]:
    """Return what completes an option that takes one of several words.

    Examples
    --------
    >>> one_of(["linear", "log-linear", "median"])(None, None, "l")
    ['linear', 'log-linear']
    """
    words = list(values)

    def complete(_ctx: Any, _option: Any, incomplete: str) -> list[str]:
        return [word for word in words if word.startswith(incomplete)]

    return complete


def matching(rows: Iterable[tuple[str, str]], incomplete: str) -> list[CompletionItem]:
    """Return the commands that begin as what was typed, with their line of help."""
    return [CompletionItem(name, help=line) for name, line in rows if name.startswith(incomplete)]


@command("completion")
def completion_command(shell: Annotated[str, Option(choices=SHELLS, is_argument=True)]) -> None:
    """Print the script that completes commands and options in a shell.

    SHELL is bash, zsh or fish. Put eval "$(deeptram completion bash)" into ~/.bashrc (zsh: ~/.zshrc), or the
    output of deeptram completion fish into ~/.config/fish/completions/deeptram.fish.
    """
    found = get_completion_class(shell)
    if found is not None:
        root = click.get_current_context().find_root()
        click.echo(found(root.command, {}, "deeptram", "_DEEPTRAM_COMPLETE").source())
