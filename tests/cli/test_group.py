from __future__ import annotations

import subprocess
import sys

import pytest
import typer
from typer.testing import CliRunner

import deeptram
from deeptram.cli.group import DeeptramGroup, ManyValuesCommand, repeat_option_names
from deeptram.errors import InvalidInputError


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("--m a b --out c", "--m a --m b --out c"),
        ("--m a --m b", "--m a --m b"),
        ("--m=a b", "--m=a --m b"),
        ("--out c --m a b c", "--out c --m a --m b --m c"),
        ("--m a b --n x y --out z", "--m a --m b --n x --n y --out z"),
        ("pos --m a", "pos --m a"),
        ("--m a -- b c", "--m a -- b c"),
        ("--m - b", "--m - --m b"),
        ("--quiet --m a b", "--quiet --m a --m b"),
        ("", ""),
    ],
)
def test_names_of_list_options_are_repeated(given, expected):
    assert repeat_option_names(given.split(), {"--m", "--n"}) == expected.split()


@pytest.fixture
def toy():
    app = typer.Typer(cls=DeeptramGroup, pretty_exceptions_enable=False)

    @app.command(cls=ManyValuesCommand)
    def add(numbers: list[int] = typer.Option(...), times: int = 1) -> None:
        typer.echo(times * sum(numbers))

    @app.command()
    def fail(kind: str) -> None:
        if kind == "ours":
            raise InvalidInputError("expected\n  this, got that; do it")
        if kind == "interrupt":
            raise KeyboardInterrupt
        if kind == "exit":
            raise typer.Exit(3)
        raise ZeroDivisionError("a bug")

    return app


def call(app, *args):
    return CliRunner().invoke(app, list(args))


def test_several_values_after_one_option(toy):
    assert call(toy, "add", "--numbers", "1", "2", "3", "--times", "2").stdout == "12\n"
    assert call(toy, "add", "--times", "2", "--numbers", "1", "2").stdout == "6\n"


def test_our_errors_are_one_line_and_code_2(toy):
    result = call(toy, "fail", "ours")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == "deeptram: expected this, got that; do it\n"


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["add", "--numbers", "x"], "Invalid value for '--numbers'"),
        (["add"], "Missing option '--numbers'"),
        (["add", "--numbers", "1", "--what"], "No such option"),
        (["ad"], "No such command 'ad'"),
        (["fail"], "Missing argument"),
    ],
)
def test_usage_errors_are_one_line_and_code_2(toy, args, message):
    result = call(toy, *args)
    assert result.exit_code == 2
    assert len(result.stderr.splitlines()) == 1
    assert message in result.stderr
    assert "--help'" in result.stderr


def test_other_ends(toy):
    assert call(toy, "fail", "interrupt").exit_code == 130
    assert call(toy, "fail", "exit").exit_code == 3
    unexpected = call(toy, "fail", "bug")
    assert unexpected.exit_code == 1
    assert isinstance(unexpected.exception, ZeroDivisionError)


def test_help_and_version(run):
    assert run("--version").stdout.strip() == f"deeptram {deeptram.__version__}"
    help_page = run("--help")
    assert help_page.exit_code == 0
    assert "pool" in help_page.stdout
    assert run("pool", "--help", fast=False).exit_code == 0


def test_without_arguments_the_help_is_shown(run):
    result = run()
    assert result.exit_code == 2
    assert "Usage" in result.output
    assert "; see" not in result.output


def test_the_module_runs_and_fails_as_a_process(tmp_path):
    command = [
        sys.executable,
        "-m",
        "deeptram",
        "pool",
        "--members",
        str(tmp_path / "none.csv"),
        "--out",
        "x",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.splitlines() == [
        f"deeptram: {tmp_path / 'none.csv'} must be a file, got no such file; check the path"
    ]
