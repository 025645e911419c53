"""Fig. 1 of the paper: how transformation models work, for a continuous (A) and an ordinal outcome (B).

The shaded probabilities are equal: that of an outcome up to y, and that of the latent variable up to h(y).
The transformation is estimated: a Bernstein polynomial for waiting times of a geyser-like mixture, four
cutpoints for ratings.

    python examples/figure1.py --out figures
"""

from __future__ import annotations

import argparse
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

import deeptram as dt

LEVELS = ("very low", "low", "medium", "high", "very high")


def continuous(random_state: int = 1) -> dt.Predictive:
    """Return the fitted distribution of a bimodal outcome at x = 1."""
    rng = np.random.default_rng(random_state)
    x = rng.uniform(0, 2, 800)
    short = rng.uniform(size=800) < 0.4
    y = np.where(short, rng.normal(2.0, 0.35, 800), rng.normal(4.4, 0.5, 800)) + 0.3 * x
    model = dt.Colr([dt.LS("x")], order=8).fit(pd.DataFrame({"x": x}), y)
    return model.predict_distribution(pd.DataFrame({"x": [1.0]}))


def ordinal(random_state: int = 1) -> dt.Predictive:
    """Return the fitted distribution of a rating at x = 1."""
    rng = np.random.default_rng(random_state)
    x = rng.normal(size=800)
    codes = ((0.8 * x + rng.logistic(size=800))[:, None] > [-1.8, -0.4, 0.9, 2.2]).sum(axis=1)
    y = pd.Categorical.from_codes(codes, LEVELS, ordered=True)
    return (
        dt.Polr([dt.LS("x")]).fit(pd.DataFrame({"x": x}), y).predict_distribution(pd.DataFrame({"x": [1.0]}))
    )


def draw() -> Figure:
    """Return the figure: the continuous outcome on the left, the ordinal one on the right."""
    with dt.plots.paper_style():
        figure, axes = plt.subplots(1, 2, figsize=(9.6, 4.4), layout="constrained")
    dt.plots.illustration(continuous(), at=3.2).plot(axes[0])
    dt.plots.illustration(ordinal(), at="medium").plot(axes[1])
    for ax, letter in zip(axes, "AB", strict=True):
        ax.set_title(letter, loc="left", fontweight="bold")
    return figure


def main() -> None:
    """Draw the figure into a folder."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("figures"))
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    target = out / "figure1.png"
    draw().savefig(target, dpi=200)
    print(f"figure: {target}")


if __name__ == "__main__":
    main()
