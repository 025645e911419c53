"""Fit an ordinal model on data that ships with scikit-learn, print its summary, save a figure.

python examples/demo_ordinal.py --out demo-output
"""

from __future__ import annotations

import argparse
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from sklearn.datasets import load_diabetes

import deeptram as dt


def main() -> None:
    """Run the demonstration."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("demo-output"))
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)

    data = load_diabetes(as_frame=True, scaled=False)
    X = data.data[["age", "bmi", "bp", "s5"]].rename(columns={"s5": "log_triglycerides"})
    y = pd.qcut(data.target, 4, labels=["low", "medium", "high", "severe"])
    model = dt.Polr([dt.LS("age + bmi + bp + log_triglycerides")]).fit(X, y)

    print("Disease progression of 442 diabetes patients after one year, in four ordered classes")
    print(f"proportional odds, log-likelihood {model.loglik_:.3f}, {model.n_iter_} Newton steps, ", end="")
    print(f"certified to {model.certificate_.gap:.0e} of the optimum\n")
    print(model.summary().round(4).to_string())
    print("\na positive coefficient means a worse outcome; exp_coef is an odds ratio\n")
    print("is one odds ratio enough for all thresholds?")
    print(dt.proportionality_test(model).round(4).to_string())

    bmi = np.linspace(X["bmi"].min(), X["bmi"].max(), 200)
    grid = pd.DataFrame({**{name: X[name].mean() for name in X}, "bmi": bmi})
    cdf = model.predict_distribution(grid).cdf()
    figure, axes = plt.subplots(figsize=(7, 4.2), layout="constrained")
    shades = plt.get_cmap("cividis")(np.linspace(0.95, 0.15, cdf.shape[1]))
    below = np.zeros(len(bmi))
    for k, level in enumerate(model.classes_):
        axes.fill_between(bmi, below, cdf[:, k], color=shades[k], label=str(level), linewidth=0)
        below = cdf[:, k]
    axes.set(xlabel="body mass index", ylabel="P(class)", xlim=(bmi[0], bmi[-1]), ylim=(0, 1))
    axes.set_title("Fitted distribution of disease progression, other covariates at their means", fontsize=10)
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles[::-1], labels[::-1], loc="outside right center", frameon=False)
    target = out / "ordinal_distribution.png"
    figure.savefig(target, dpi=150)
    print(f"\nfigure: {target}")


if __name__ == "__main__":
    main()
