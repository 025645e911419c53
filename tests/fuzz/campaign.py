"""Run the campaign by hand: ``make fuzz SECONDS=600``, or replay one call of it.

python tests/fuzz/campaign.py --seconds 600 [--start 0] [--area scores] [--only nll]
python tests/fuzz/campaign.py --replay "scores.nll" 1234
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import matplotlib as mpl

mpl.use("Agg")

from fuzz import targets  # noqa: F401 - registers them
from fuzz.driver import TARGETS, campaign, run


def main() -> int:
    """Print calls per callable and each distinct finding with its seed; 1 if there is one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--start", type=int, default=0, help="the first seed")
    parser.add_argument("--area", help="only this area")
    parser.add_argument("--only", help="only targets whose name contains this")
    parser.add_argument("--replay", nargs=2, metavar=("TARGET", "SEED"))
    options = parser.parse_args()
    if options.replay:
        finding = run(options.replay[0], int(options.replay[1]))
        print("nothing found" if finding is None else f"{finding.key}\n{finding.text}")
        return finding is not None
    names = [
        name
        for name, one in TARGETS.items()
        if options.area in (None, one.area) and (options.only or "") in name
    ]
    count, found = campaign(names, options.start, None, options.seconds)
    for name, calls in sorted(count.items()):
        print(f"{calls:8d}  {name}")
    print(f"{sum(count.values()):8d}  calls of {len(count)} callables, {len(found)} distinct findings")
    for finding, times in found.values():
        print(
            f'\n{times} x {" ".join(finding.key)}\n  --replay "{finding.target}" {finding.seed}\n{finding.text}'
        )
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
