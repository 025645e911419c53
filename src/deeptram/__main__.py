"""The start of the command line: ``deeptram`` and ``python -m deeptram``."""

from __future__ import annotations

import os

from deeptram._workers import interrupts_end_the_process


def main() -> None:
    """Load the command line and run the command asked for.

    Threads of torch wait for each other asleep, unless the user's environment says otherwise. Awake they win
    some microseconds on a quiet machine, but where other work keeps the processors busy every operation on
    several threads waits until the last of them had its turn: a prediction of 200,000 rows took 100 seconds
    instead of 6.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    with interrupts_end_the_process():
        from deeptram.cli.main import app
    app(prog_name="deeptram")


if __name__ == "__main__":
    main()
