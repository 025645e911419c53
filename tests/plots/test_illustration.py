"""The picture of the model: density of Y, transformation, latent density, and the probability they share."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats

import deeptram as dt
from drawing import LEVELS


def test_on_the_line_the_table_is_the_distribution():
    pred = dt.Predictive.from_scipy(scipy.stats.norm([1.0, 5.0], 2.0))
    grid = np.linspace(-5, 15, 41)
    table = dt.plots.illustration(pred, row=1, grid=grid, latent="normal").frame()
    np.testing.assert_allclose(table["h"], (grid - 5) / 2, atol=1e-9)
    np.testing.assert_allclose(table["density"], scipy.stats.norm(5, 2).pdf(grid), rtol=1e-9)
    np.testing.assert_allclose(table["cdf"], scipy.stats.norm(5, 2).cdf(grid), rtol=1e-9)


def test_the_shaded_areas_are_the_same_probability(drawn, normals):
    display = dt.plots.illustration(normals[1], at=2.0, latent="logistic")
    upper, lower, left = drawn(display).child_axes
    shaded = display.frame().iloc[display.place]
    areas = [upper.collections[0].get_paths()[0], left.collections[0].get_paths()[0]]
    sizes = [_area(path.vertices) for path in areas]
    assert sizes[0] == pytest.approx(shaded["cdf"], abs=0.01)
    assert sizes[1] == pytest.approx(shaded["cdf"], abs=0.01)
    assert f"{shaded['cdf']:.2f}" in upper.get_title(loc="left")
    assert lower.get_xlabel() == "outcome y"


def test_levels_are_bars_and_steps(drawn, ordinal):
    members, _ = ordinal
    display = dt.plots.illustration(members[0], row=3, at="mid")
    upper, lower, _ = drawn(display).child_axes
    heights = [bar.get_height() for bar in upper.patches]
    np.testing.assert_allclose(heights, members[0].pmf()[3], rtol=1e-12)
    assert [tick.get_text() for tick in lower.get_xticklabels()] == list(LEVELS)
    assert np.isposinf(display.frame()["h"].iloc[-1])
    assert display.place == 1


def test_by_default_the_median_is_shaded(ordinal):
    members, _ = ordinal
    display = dt.plots.illustration(members[2])
    cdf = display.frame()["cdf"]
    assert cdf[display.place] >= 0.5
    assert display.place == 0 or cdf[display.place - 1] < 0.5


def test_the_last_level_has_no_finite_place(drawn, ordinal):
    members, _ = ordinal
    display = dt.plots.illustration(members[0], at=LEVELS[-1])
    assert "= 1.00" in drawn(display).child_axes[0].get_title(loc="left")


def test_what_is_refused(ordinal, normals):
    members, _ = ordinal
    with pytest.raises(dt.errors.InvalidInputError, match=r"at must be one of the levels 'low'.*got 'none'"):
        dt.plots.illustration(members[0], at="none")
    with pytest.raises(dt.errors.InvalidInputError, match=r"at must be between .* got 99"):
        dt.plots.illustration(normals[0], at=99)
    with pytest.raises(dt.errors.InvalidInputError, match="row must be an integer of at most 1, got 7"):
        dt.plots.illustration(normals[0], row=7)


def _area(corners):
    x, y = np.asarray(corners).T
    return abs(np.dot(x, np.roll(y, 1)) - np.dot(y, np.roll(x, 1))) / 2
