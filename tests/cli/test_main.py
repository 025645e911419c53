"""The command line loads a command when it is asked for, and nothing heavy before."""

from __future__ import annotations

import subprocess
import sys

import click
import pytest

from deeptram.cli.main import COMMANDS, app

HEAVY = ("torch", "sklearn", "scipy", "pandas", "numpy", "matplotlib", "rich", "joblib")


@pytest.mark.parametrize("args", [["--help"], ["--version"], ["--nonsense"], []], ids=str)
def test_help_loads_nothing_heavy(args):
    code = f"""
import sys
from deeptram.__main__ import main
sys.argv = ["deeptram", *{args}]
try:
    main()
finally:
    print("loaded:", *[name for name in {HEAVY} if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.splitlines()[-1] == "loaded:", done.stderr


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_a_line_in_the_help_and_a_page_of_its_own(run, name):
    assert COMMANDS[name][1] in run("--help").stdout
    command = app.get_command(click.Context(app), name)
    assert command.name == name
    page = run(name, "--help", fast=False)
    assert page.exit_code == 0
    assert page.stdout.startswith(f"Usage: deeptram {name}")


def test_unknown_commands_are_refused(refused):
    assert refused("poool").startswith("deeptram: No such command 'poool'")
