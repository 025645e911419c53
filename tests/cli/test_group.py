from __future__ import annotations

import errno
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Annotated

import click
import pytest
from click.testing import CliRunner

import deeptram
from deeptram.cli.main import DeeptramGroup
from deeptram.cli.options import Option, command, repeat_option_names
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
    app = DeeptramGroup(name="toy")

    @command("add", group=app)
    def add(numbers: Annotated[list[int], Option()], times: Annotated[int, Option()] = 1):
        click.echo(times * sum(numbers))

    @app.command()
    @click.argument("kind")
    def fail(kind):
        if kind == "ours":
            raise InvalidInputError("expected\n  this, got that; do it")
        if kind == "interrupt":
            raise KeyboardInterrupt
        if kind == "exit":
            raise click.exceptions.Exit(3)
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


ENDINGS = {
    "full disk": (OSError(errno.ENOSPC, "No space left on device", "run/a.csv"), "run/a.csv must be readable and writable, got no space left on device; make room on the disk"),
    "limit": (OSError(errno.EFBIG, "File too large"), "a file must be readable and writable, got file too large; raise the limit on the size"),
    "read-only": (OSError(errno.EROFS, "Read-only file system", "out"), "out must be .* got read-only file system; choose a folder that can be written"),
    "not allowed": (PermissionError(errno.EACCES, "Permission denied", "out"), "out must be .* got permission denied; choose another place"),
    "memory": (MemoryError(), "the computer must have enough memory for this, got too little"),
    "truncated": (EOFError("Compressed file ended"), "every file must be complete, got one that ends too early"),
    "bare": (OSError("something odd"), "a file must be readable and writable, got something odd; check the path"),
}  # fmt: skip


@pytest.mark.parametrize("kind", ENDINGS)
def test_what_the_machine_refuses_is_one_line_and_code_2(kind):
    error, message = ENDINGS[kind]
    app = DeeptramGroup(name="toy")

    @app.command()
    @click.option("--from-worker", is_flag=True)
    def work(from_worker):
        if from_worker:
            raise RuntimeError("could not send the task") from error
        raise error

    for extra in ([], ["--from-worker"]):
        result = call(app, "work", *extra)
        lines = [line for line in result.stderr.splitlines() if line]
        assert (result.exit_code, result.stdout, len(lines)) == (2, "", 1), result.output
        assert re.match(f"deeptram: {message}", lines[0])


def test_interruptions_say_so(toy):
    assert call(toy, "fail", "interrupt").stderr.strip() == "deeptram: interrupted"


PYTHON = [sys.executable, "-m", "deeptram"]


def begin(*args, **options):
    return subprocess.Popen([*PYTHON, *args], stderr=subprocess.PIPE, **options)


def end(process):
    """Exit code and last words of a process."""
    with process:
        words = process.stderr.read().decode().strip()
    return process.returncode, words


@pytest.mark.skipif(not os.path.exists("/proc/self/maps"), reason="looks into /proc")
def test_closed_pipes_and_early_interruptions_of_a_process():
    piped, early = begin("--help", stdout=subprocess.PIPE), begin("pool", "--help", stdout=subprocess.DEVNULL)
    piped.stdout.close()
    maps, limit = Path(f"/proc/{early.pid}/maps"), time.monotonic() + 60
    while "numpy" not in maps.read_text() and time.monotonic() < limit:
        time.sleep(0.02)
    early.send_signal(signal.SIGINT)
    assert end(early) == (130, "deeptram: interrupted")
    assert end(piped) == (141, "")  # as under head: nobody asked for more, nothing is wrong


@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_full_disk_behind_stdout():
    with open("/dev/full", "w") as full:
        code, words = end(begin("--version", stdout=full))
    assert code == 2
    assert words.startswith("deeptram: a file must be readable and writable, got no space left on device")


@pytest.mark.parametrize(("own", "expected"), [({}, "PASSIVE"), ({"OMP_WAIT_POLICY": "ACTIVE"}, "ACTIVE")])
def test_threads_wait_asleep_unless_the_user_says_otherwise(own, expected):
    code = (
        "import os, sys\n"
        "import deeptram\n"
        "assert 'OMP_WAIT_POLICY' not in os.environ or os.environ['OMP_WAIT_POLICY'] == 'ACTIVE'\n"
        "from deeptram.__main__ import main\n"
        "sys.argv = ['deeptram', '--version']\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "assert 'torch' not in sys.modules\n"  # which reads the policy when it is loaded
        "print(os.environ['OMP_WAIT_POLICY'])\n"
    )
    environment = {key: value for key, value in os.environ.items() if key != "OMP_WAIT_POLICY"} | own
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert done.stdout.split()[-1] == expected, done.stderr
