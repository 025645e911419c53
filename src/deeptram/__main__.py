"""The start of the command line: ``deeptram`` and ``python -m deeptram``."""

from __future__ import annotations

from deeptram._workers import interrupts_end_the_process


def main() -> None:
    """Load the command line and run the command asked for."""
    with interrupts_end_the_process():
        from deeptram.cli.main import app
    app(prog_name="deeptram")


if __name__ == "__main__":
    main()
