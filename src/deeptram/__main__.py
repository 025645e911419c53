"""``python -m deeptram``: the command line without the installed script."""

from __future__ import annotations

from deeptram.cli.main import app

if __name__ == "__main__":
    app(prog_name="deeptram")
