"""One run on digits with its report, made once through the command line and shared by all test processes."""

from __future__ import annotations

import fcntl
from pathlib import Path

from click.testing import CliRunner

from deeptram.cli.main import app

SMALL = ["--epochs", "2", "--splits", "1", "--members", "2", "--n-boot", "40"]
LOG = "output.txt"


def digits_report(tmp_path_factory) -> Path:
    """Return the folder of a finished run with its report."""
    base = tmp_path_factory.getbasetemp()
    shared = base if base.name.startswith("pytest-") else base.parent  # below it every process has its own
    folder, log = shared / "digits-report", shared / LOG
    with (shared / "digits-report.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not log.is_file():
            first = _call("reproduce", "digits", "--preset", "quick", "--out", str(folder), *SMALL)
            second = _call("report", str(folder), "--n-boot", "40")
            log.write_text(first + second, encoding="utf-8")
    return folder


def _call(*arguments: str) -> str:
    result = CliRunner().invoke(app, list(arguments))
    assert result.exit_code == 0, (result.output, result.exception)
    return result.stdout
