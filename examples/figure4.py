"""Fig. 4 of the paper: what a pool does to the structure of its members, and how far the members disagree.

Five members, R's `BoxCox(y ~ x)`, are fitted to five fresh samples of Y = 3 expit(3 x) + noise, x uniform on
(-4, 4), as in the authors' script (whose noise has sd 0.36; the text, and this, have 0.6). A: the linear pool
against the transformation ensemble, the mean of the members, on the probit scale, on which each member is
additive. B: the conditional median of the transformation ensemble with its epistemic uncertainty. C: its
conditional distributions at x = 0 and x = 2.

    python examples/figure4.py --out figures
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

N_MEMBERS = 5
N_ROWS = 150
NOISE = 0.6
RANGE = (-4.0, 4.0)
SHOWN = (0.0, 2.0)


def sample(rng: np.random.Generator, noise: float = NOISE) -> tuple[pd.DataFrame, np.ndarray]:
    """Draw x and Y = 3 expit(3 x) + N(0, noise^2)."""
    x = rng.uniform(*RANGE, N_ROWS)
    return pd.DataFrame({"x": x}), 3 / (1 + np.exp(-3 * x)) + rng.normal(0, noise, N_ROWS)


def fit_members(random_state: int = 1, noise: float = NOISE) -> list[dt.BoxCox]:
    """Fit one transformation model, additive on the probit scale, to each of five fresh samples."""
    rng = np.random.default_rng(random_state)
    return [dt.BoxCox([dt.LS("x")]).fit(*sample(rng, noise)) for _ in range(N_MEMBERS)]


def predict(models: list[dt.BoxCox], x: np.ndarray) -> list[dt.Predictive]:
    """Return each member's predictive distributions at x."""
    return [model.predict_distribution(pd.DataFrame({"x": x})) for model in models]


def draw(random_state: int = 1) -> Figure:
    """Return the figure with its three panels."""
    models = fit_members(random_state)
    seen, y = sample(np.random.default_rng([random_state, 1]))
    with dt.plots.paper_style():
        figure, (a, b, c) = plt.subplots(1, 3, figsize=(11.6, 3.2), layout="constrained")

    at_data = predict(models, seen["x"].to_numpy())
    dt.structure_check(at_data, y=y, method="linear").plot(a)

    x = np.linspace(*RANGE, 101)
    b.plot(seen["x"], y, "o", color="#BBBBBB", markersize=2.2, label="data", zorder=0)
    dt.plots.epistemic(predict(models, x), scale="quantile", x=x).plot(b)

    names = [f"x = {value:g}" for value in SHOWN]
    dt.plots.epistemic(predict(models, np.array(SHOWN)), scale="cdf", names=names).plot(c)
    for ax, letter in zip((a, b, c), "ABC", strict=True):
        ax.set_title(letter, loc="left", fontweight="bold")
    for ax in (a, b):
        ax.legend(loc="upper left", fontsize=8, frameon=False)  # inside: this corner is empty
    return figure


def main() -> None:
    """Draw the figure into a folder."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("figures"))
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    target = out / "figure4.png"
    draw().savefig(target, dpi=200)
    print(f"figure: {target}")


if __name__ == "__main__":
    main()
