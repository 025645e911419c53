"""Figures look as they did: compared with small pictures that were looked at.

``DEEPTRAM_BASELINES=write`` draws the pictures anew; look at them before they are committed.
"""

from __future__ import annotations

import os
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
import scipy.stats
from matplotlib import pyplot as plt

import deeptram as dt
from deeptram import plots

FOLDER = Path(__file__).parent / "baseline"
DPI = 40
BLOCK = 8  # pixels: letters of other versions of fonts and of matplotlib differ within it
TOLERANCE = 0.06  # of the mean brightness of a block
SHARE = 0.02  # of the blocks may differ by more


def figures(ordinal, pools, normals):
    members, y = ordinal
    table = pd.DataFrame(
        {"coef": [0.5, -0.3], "lower": [0.2, -0.6], "upper": [0.8, 0.0]}, index=["age", "dose"]
    )
    losses = {"train_loss": [3.0, 1.0, 0.4], "validation_loss": [3.2, 1.4, 1.5]}
    tables = dt.evaluate({"members": members, **pools}, y, metrics=["nll"], n_boot=50, reference="members")
    times = dt.Predictive.from_scipy(scipy.stats.expon(scale=np.linspace(1, 3, 40)))
    seen = np.linspace(0.1, 5, 40)
    return {
        "calibration": plots.calibration(y, pools, cuts=5),
        "cdf": plots.cdf({"members": members, **pools}, rows=0),
        "coefficients": plots.coefficients({"a": table, "b": table + 0.1}, truth={"age": 0.6, "dose": -0.4}),
        "density": plots.density({"members": normals, "pool": dt.pool(normals, method="linear")}, rows=1),
        "epistemic": plots.epistemic(members, rows=[0, 1]),
        "gains": plots.gains({"ensemble": tables}),
        "history": plots.history(pd.DataFrame({"epoch": [1, 2, 3], **losses})),
        "pit": plots.pit(y, pools),
        "survival": plots.survival(times, dt.Surv.right(seen, np.arange(40) % 4 > 0), groups=2),
    }


NAMES = ("calibration", "cdf", "coefficients", "density", "epistemic", "gains", "history", "pit", "survival")


def blocks(image):
    """The mean brightness of squares of pixels, which is what an eye compares."""
    grey = image[..., :3].mean(axis=2)
    height, width = (size // BLOCK * BLOCK for size in grey.shape)
    return grey[:height, :width].reshape(height // BLOCK, BLOCK, width // BLOCK, BLOCK).mean(axis=(1, 3))


@pytest.fixture(scope="module")
def drawn_figures(ordinal, pools, normals):
    return figures(ordinal, pools, normals)


@pytest.mark.skipif(
    mpl.__version_info__[:2] < (3, 11),
    reason="the pictures are those of matplotlib 3.11; versions before place letters and axes a few pixels off",
)
@pytest.mark.parametrize("name", NAMES)
def test_figures_look_as_they_did(name, drawn_figures, tmp_path):
    baseline = FOLDER / f"{name}.png"
    path = drawn_figures[name].save(tmp_path / f"{name}.png", dpi=DPI)
    if os.environ.get("DEEPTRAM_BASELINES") == "write":
        baseline.write_bytes(path.read_bytes())
    now, before = (blocks(plt.imread(one)) for one in (path, baseline))
    assert now.shape == before.shape
    assert (np.abs(now - before) > TOLERANCE).mean() <= SHARE


def test_another_figure_is_noticed(drawn_figures):
    one, two = (plt.imread(FOLDER / f"{name}.png") for name in ("epistemic", "history"))
    height, width = np.minimum(one.shape[:2], two.shape[:2])
    difference = np.abs(blocks(one[:height, :width]) - blocks(two[:height, :width]))
    assert (difference > TOLERANCE).mean() > SHARE
