"""Fig. 3 of the paper: five logistic densities under the three pools, and what each outcome would cost.

The log-linear pool is that of densities, normalised. All three pools have a smaller negative log-density than
the members on average, at every y; only the transformation pool is again a logistic distribution.

    python examples/figure3.py --out figures
"""

from __future__ import annotations

import argparse
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import numpy as np
import scipy.stats
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

import deeptram as dt

LOCATIONS = (-2.2, -1.0, 0.0, 0.8, 2.4)
SCALES = (0.7, 0.5, 0.6, 0.9, 0.6)
GRID = np.linspace(-6, 6, 481)


def members() -> list[dt.Predictive]:
    """Return five logistic distributions, of one row each."""
    return [
        dt.Predictive.from_scipy(scipy.stats.logistic([location], scale))
        for location, scale in zip(LOCATIONS, SCALES, strict=True)
    ]


def distributions() -> dict[str, list[dt.Predictive] | dt.Predictive]:
    """Return the members and their three pools, all with equal weights."""
    five = members()
    return {
        "members": five,
        "linear": dt.pool(five, method="linear"),
        "log-linear (densities)": dt.pool(five, method="log-linear-density"),
        "transformation": dt.pool(five, method="transformation", latent="logistic"),
    }


def draw() -> Figure:
    """Return the figure: densities on the left, negative log-densities on the right."""
    shown = distributions()
    with dt.plots.paper_style():
        figure, (left, right) = plt.subplots(1, 2, figsize=(8.4, 3.1), layout="constrained")
    dt.plots.density(shown, grid=GRID).plot(left)
    dt.plots.density(shown, grid=GRID, negative_log=True).plot(right)
    left.get_legend().remove()  # the one on the right is for both
    right.set_ylim(0, 12)
    for ax, letter in ((left, "A"), (right, "B")):
        ax.set_title(letter, loc="left", fontweight="bold")
    return figure


def main() -> None:
    """Draw the figure into a folder."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("figures"))
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    target = out / "figure3.png"
    draw().savefig(target, dpi=200)
    print(f"figure: {target}")


if __name__ == "__main__":
    main()
