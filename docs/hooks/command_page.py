"""The page of the command line, made from the commands themselves."""

from __future__ import annotations

import click

from deeptram.cli.main import app


def markdown() -> str:
    """Return every command with its help, arguments, options and defaults, in Markdown."""
    context = click.Context(app, info_name="deeptram")
    lines = ["## Every command", "", _help(app), ""]
    for path, command, inner in _commands(app, context):
        lines += [f"### {path}", "", _help(command), ""]
        lines += ["```text", inner.get_usage().removeprefix("Usage: "), "```", ""]
        rows = [record for option in command.params if (record := option.get_help_record(inner))]
        if rows:
            lines += ["| option | |", "|---|---|"]
            lines += [f"| `{name.replace('|', chr(92) + '|')}` | {_cell(text)} |" for name, text in rows]
            lines.append("")
    return "\n".join(lines)


def _commands(group: click.Group, context: click.Context) -> list[tuple[str, click.Command, click.Context]]:
    found = []
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if command is None or command.hidden:
            continue
        inner = click.Context(command, info_name=name, parent=context)
        if isinstance(command, click.Group):
            found += _commands(command, inner)
        else:
            found.append((inner.command_path, command, inner))
    return found


def _help(command: click.Command) -> str:
    """Return the help of a command; what click keeps as it is becomes a block."""
    paragraphs = []
    for paragraph in (command.help or "").replace("\f", "").split("\n\n"):
        if paragraph.startswith("\b"):
            paragraphs.append("```text\n" + paragraph.removeprefix("\b").strip("\n") + "\n```")
        else:
            paragraphs.append(" ".join(paragraph.split()))
    return "\n\n".join(paragraphs)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")
