"""Pages of help whose lines end where a reader expects, and completion by the shell."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable
from typing import Any

import click
from click.shell_completion import CompletionItem, get_completion_class

SHELLS = ("bash", "zsh", "fish")
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


class AlignedCommand(click.Command):
    """A command whose page of help is written by :class:`AlignedHelp`."""

    context_class = AlignedContext


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


@click.command("completion", cls=AlignedCommand)
@click.argument("shell", shell_complete=one_of(SHELLS))
def completion_command(shell: str) -> None:
    """Print the script that completes commands and options in a shell.

    SHELL is bash, zsh or fish. Put eval "$(deeptram completion bash)" into ~/.bashrc (zsh: ~/.zshrc), or the
    output of deeptram completion fish into ~/.config/fish/completions/deeptram.fish.
    """
    from deeptram._validation import check_choice

    found = get_completion_class(check_choice(shell, SHELLS, "SHELL"))
    if found is not None:
        root = click.get_current_context().find_root()
        click.echo(found(root.command, {}, "deeptram", "_DEEPTRAM_COMPLETE").source())
