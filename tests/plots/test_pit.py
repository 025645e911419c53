from __future__ import annotations

import numpy as np
import pandas as pd
from scipy.stats import binom

import deeptram as dt
from deeptram import plots
from deeptram.evaluation import metrics
from drawing import labels


def test_frame_is_the_histogram_with_a_binomial_band(ordinal, pools):
    _, y = ordinal
    frame = plots.pit(y, pools["linear"], bins=8).frame()
    expected = metrics.pit_histogram(y, pools["linear"], bins=8)
    pd.testing.assert_frame_equal(frame[list(expected.columns)], expected)
    inside = binom.cdf(frame["band_upper"][0] * 25, 200, 1 / 8) - binom.cdf(
        frame["band_lower"][0] * 25 - 1, 200, 1 / 8
    )
    assert 0.95 <= inside < 0.99


def test_calibrated_predictions_stay_in_the_band(rng):
    import scipy.stats

    y = rng.normal(size=2000)
    frame = plots.pit(y, dt.Predictive.from_scipy(scipy.stats.norm(np.zeros(2000), 1.0))).frame()
    inside = frame["density"].between(frame["band_lower"], frame["band_upper"])
    assert inside.mean() >= 0.8


def test_drawing(ordinal, pools, drawn):
    _, y = ordinal
    ax = drawn(plots.pit(y, pools))
    assert [panel.get_title(loc="left") for panel in ax.child_axes] == list(pools)
    assert labels(ax.child_axes[-1]) == ["95 % of bars, if calibrated"]
    ax = drawn(plots.pit(y, pools["linear"]))
    assert ax.get_xlim() == (0, 1)
    assert ax.get_ylim()[0] == 0
