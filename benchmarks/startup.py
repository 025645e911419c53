"""How long ``deeptram --help`` takes, against a bare click application with the same commands.

Both run as processes of their own, in turn, so that a busy machine slows both:

    python benchmarks/startup.py

Wanted: under 0.5 s, and at most 2.5 times the bare application.
"""

import argparse
import statistics
import subprocess
import sys
import time

BARE = """
import click

@click.group()
def app():
    "A bare application."

for name in ("demo", "fit", "predict", "pool", "reproduce", "report", "data"):
    app.command(name)(lambda: None)
app(["--help"])
"""
COMMANDS = {
    "bare click": [sys.executable, "-c", BARE],
    "deeptram --help": [sys.executable, "-m", "deeptram", "--help"],
}


def seconds(command: list[str]) -> float:
    """Return how long a process takes from its start to its end."""
    started = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - started


def main() -> None:
    """Time both in turn and print medians and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=15)
    repeats = parser.parse_args().repeats
    for command in COMMANDS.values():
        seconds(command)  # byte code and disk caches
    times = {name: [] for name in COMMANDS}
    for _ in range(repeats):
        for name, command in COMMANDS.items():
            times[name].append(seconds(command))
    medians = {name: statistics.median(values) for name, values in times.items()}
    for name, median in medians.items():
        print(f"{name:16} {median:.3f} s")
    bare, ours = medians.values()
    print(f"ratio            {ours / bare:.2f}")


if __name__ == "__main__":
    main()
