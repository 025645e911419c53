"""The start of the command line: ``deeptram`` and ``python -m deeptram``."""

from __future__ import annotations

import os
import signal
from types import FrameType


def main() -> None:
    """Load the commands (which takes seconds; Ctrl-C ends that at once) and run the one asked for."""
    signal.signal(signal.SIGINT, _leave)
    from deeptram.cli.main import app

    signal.signal(signal.SIGINT, signal.default_int_handler)
    app(prog_name="deeptram")


def _leave(_signal: int, _frame: FrameType | None) -> None:
    os.write(2, b"deeptram: interrupted\n")
    os._exit(130)


if __name__ == "__main__":
    main()
