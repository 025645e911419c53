"""Pages of help and completion."""

from __future__ import annotations

import os
import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

from deeptram.cli.main import COMMANDS, app
from deeptram.cli.options import AlignedHelp, one_of


def completed(words: str, folder=None) -> list[str]:
    """What the shell is offered for the last of the words."""
    parts = words.split(" ")
    environment = {
        "_DEEPTRAM_COMPLETE": "bash_complete",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(parts) - 1),
    }
    result = CliRunner().invoke(app, [], prog_name="deeptram", env=environment)
    return [line.partition(",")[2] for line in result.stdout.splitlines()]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("deeptram pre", ["predict"]),
        ("deeptram pool --meth", ["--method"]),
        ("deeptram pool --method lin", ["linear"]),
        ("deeptram pool --input sa", ["samples"]),
        ("deeptram fit --type o", ["ordinal"]),
        ("deeptram completion z", ["zsh"]),
    ],
)
def test_commands_options_and_values_are_completed(words, expected):
    assert completed(words) == expected


def test_further_values_of_a_list_option_are_completed(tmp_path, monkeypatch):
    """click itself offers files for the first value only."""
    result = CliRunner().invoke(
        app,
        [],
        prog_name="deeptram",
        env={
            "_DEEPTRAM_COMPLETE": "bash_complete",
            "COMP_WORDS": "deeptram pool --members a.csv b",
            "COMP_CWORD": "4",
        },
    )
    assert result.stdout.splitlines() == ["file,b"]


def test_completion_of_commands_loads_nothing_heavy():
    code = "import sys\nfrom deeptram.__main__ import main\ntry:\n    main()\nfinally:\n    print('torch' in sys.modules)"
    environment = {
        **os.environ,
        "_DEEPTRAM_COMPLETE": "bash_complete",
        "COMP_WORDS": "deeptram ",
        "COMP_CWORD": "1",
    }
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
    )
    lines = done.stdout.splitlines()
    assert [line.partition(",")[2] for line in lines[:-1]] == list(COMMANDS)
    assert lines[-1] == "False"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_a_shell(shell, run):
    result = run("completion", shell)
    assert result.exit_code == 0
    assert f"_DEEPTRAM_COMPLETE={shell}_complete" in result.stdout


def test_an_unknown_shell(refused):
    assert "SHELL must be one of 'bash', 'zsh', 'fish', got 'tcsh'" in refused("completion", "tcsh")


@pytest.mark.parametrize("width", [60, 80, 110])
def test_words_and_brackets_stay_whole(width):
    formatter = AlignedHelp(width=width)
    text = "equal, or tuned on --tune-members and --tune-truth, which are further tables of the same kind.  [default: equal]"
    formatter.write_dl(
        [("--weights TEXT", text), ("--a-very-long-name-that-takes-its-own-line TEXT", "Short.")]
    )
    page = formatter.getvalue()
    lines = page.splitlines()
    assert max(map(len, lines)) <= width
    for whole in ("--tune-members", "--tune-truth", "[default: equal]"):
        assert any(whole in line for line in lines)
    assert page.endswith("Short.\n")
    starts = {len(line) - len(line.lstrip()) for line in lines[1:] if not line.startswith("--")}
    assert len(starts) == 1


@pytest.mark.parametrize("name", COMMANDS)
def test_no_page_breaks_an_option_in_two(name, run):
    command = app.get_command(click.Context(app), name)
    page = run(name, "--help", fast=False).stdout
    assert not [line for line in page.splitlines() if line.rstrip().endswith("-") and line.strip() != "-"]
    for option in getattr(command, "params", []):
        assert option.opts[0] in page or option.name.upper() in page


def test_words_that_begin_alike():
    assert one_of(["a", "ab", "b"])(None, None, "a") == ["a", "ab"]


@pytest.mark.parametrize("command", ["fit", "pool"])
def test_every_latent_distribution_is_in_the_help(command):
    page = " ".join(CliRunner().invoke(app, [command, "--help"]).stdout.split())
    assert "maximum-extreme-value (loglog, gumbel)" in page
    assert ("), auto." in page) == (command == "fit")
