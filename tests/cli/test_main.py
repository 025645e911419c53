"""The command line loads a command when it is asked for, and nothing heavy before."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest

import deeptram
from deeptram.cli.main import COMMANDS, app
from deeptram.cli.options import _PYTHON

HEAVY = ("torch", "sklearn", "scipy", "pandas", "numpy", "matplotlib", "rich", "joblib")


def run_and_list_heavy(args):
    """Run the command line by itself; its last line has the heavy packages that it loaded."""
    code = f"""
import sys
from deeptram.__main__ import main
sys.argv = ["deeptram", *{args}]
try:
    main()
finally:
    print("loaded:", *[name for name in {HEAVY} if name in sys.modules])
"""
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("args", [["--help"], ["--version"], ["--nonsense"], []], ids=str)
def test_help_loads_nothing_heavy(args):
    done = run_and_list_heavy(args)
    assert done.stdout.splitlines()[-1] == "loaded:", done.stderr


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_a_line_in_the_help_and_a_page_of_its_own(run, name):
    assert COMMANDS[name][1] in run("--help").stdout
    command = app.get_command(click.Context(app), name)
    assert command.name == name
    page = run(name, "--help", fast=False)
    assert page.exit_code == 0
    assert page.stdout.startswith(f"Usage: deeptram {name}")


@pytest.mark.parametrize("name", [name for name in COMMANDS if name != "demo"])  # demo needs no more
def test_a_command_alone_says_what_is_missing(name):
    done = subprocess.run(
        [sys.executable, "-m", "deeptram", name], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert re.search(r"Missing (option|argument) '\S+'|^Usage: deeptram ", done.stderr), done.stderr
    assert "Traceback" not in done.stderr


def test_data_check_without_a_folder_says_where_to_name_it(refused, monkeypatch):
    monkeypatch.delenv("DEEPTRAM_DATA", raising=False)
    assert refused("data", "check").endswith(
        "data sets need a folder, got none; name it (reproduce: with --data), or set DEEPTRAM_DATA"
    )


@pytest.mark.parametrize(
    "args",
    [
        ["fit", "--data", "nowhere.csv", "--outcome", "y", "--type", "binary", "--out", "m"],
        ["predict", "m", "--data=nowhere.csv", "--out", "p.csv"],
        ["pool", "--members", __file__, "nowhere.csv", "--out", "o"],
    ],
    ids=lambda args: args[0],
)
def test_a_file_that_is_not_there_is_found_before_anything_heavy_is_loaded(args):
    done = run_and_list_heavy(args)
    assert done.returncode == 2
    assert done.stderr == "deeptram: nowhere.csv must be a file, got no such file; check the path\n"
    assert done.stdout.splitlines()[-1] == "loaded:"


def test_sentences_that_are_translated_are_still_said():
    """Every phrase of the library that has options in its place at the command line stands in its source."""
    folder = Path(deeptram.__file__).parent
    files = [path for path in folder.rglob("*.py") if "cli" not in path.relative_to(folder).parts]
    texts = [
        node.value
        for path in files
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    assert [phrase for phrase in _PYTHON if not any(phrase in text for text in texts)] == []


def test_unknown_commands_are_refused(refused):
    assert refused("poool").startswith("deeptram: No such command 'poool'")
