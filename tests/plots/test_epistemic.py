from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import scipy.stats

import deeptram as dt
from deeptram import plots
from deeptram.ensemble.epistemic import epistemic_band
from deeptram.errors import InvalidInputError, UnknownNameError, UnsupportedError
from drawing import LEVELS, labels


def test_cdf_band_of_normal_members_by_hand(normals):
    grid = np.array([-1.0, 0.0, 2.0])
    frame = plots.epistemic(normals, scale="cdf", rows=0, at=grid, latent="normal").frame()
    h = np.array([(grid - m) / s for m, s in ((0.0, 1.0), (1.0, 2.0), (0.5, 1.5))])
    sd = h.std(axis=0, ddof=1)
    of_cdf = scipy.stats.norm.cdf(h).std(axis=0, ddof=1)
    np.testing.assert_allclose(frame["sd"], of_cdf, atol=1e-12)
    np.testing.assert_allclose(frame["estimate"], scipy.stats.norm.cdf(h.mean(axis=0)))
    np.testing.assert_allclose(frame["lower"], scipy.stats.norm.cdf(h.mean(axis=0) - 2 * sd))
    np.testing.assert_allclose(frame["upper"], scipy.stats.norm.cdf(h.mean(axis=0) + 2 * sd))


def test_quantile_band_of_normal_members_by_hand(normals):
    frame = plots.epistemic(normals, scale="quantile", latent="normal", x=[10.0, 20.0], width=1.0).frame()
    # h is linear for each member: the pool is normal with slope mean(1/s) and intercept mean(-m/s)
    m, s = np.array([0.0, 1.0, 0.5]), np.array([1.0, 2.0, 1.5])
    for row, shift in enumerate((0.0, 3.0)):
        median = ((m + shift) / s).mean() / (1 / s).mean()
        assert frame["estimate"][row] == pytest.approx(median)
        assert frame["upper"][row] == pytest.approx(median + m.std(ddof=1))
    assert frame["x"].tolist() == [10.0, 20.0]


def test_estimate_is_the_transformation_pool(ordinal):
    members, _ = ordinal
    w = [0.1, 0.2, 0.3, 0.4]
    frame = plots.epistemic(members, scale="cdf", rows=[5], weights=w).frame()
    np.testing.assert_allclose(frame["estimate"], dt.pool(members, weights=w).cdf()[5, :3], rtol=1e-12)
    assert frame["at"].tolist() == list(LEVELS[:3])


@pytest.mark.parametrize("scale", ["trafo", "cdf", "quantile"])
def test_drawing(scale, normals, drawn):
    display = plots.epistemic(normals, scale=scale, latent="normal")
    ax = drawn(display)
    assert labels(ax)[0] == "members"
    assert set(display.members["member"]) == {0, 1, 2}
    assert (
        ax.get_ylabel()
        == {"trafo": "probit of P(Y ≤ y)", "cdf": "P(Y ≤ y)", "quantile": "median of Y"}[scale]
    )


def test_drawing_levels_and_names(ordinal, drawn):
    members, _ = ordinal
    ax = drawn(plots.epistemic(members, rows=[0, 4], names=["young", "old"]))
    assert labels(ax) == ["members", "young", "old", "± 2 sd of the members"]
    assert [tick.get_text() for tick in ax.get_xticklabels()] == list(LEVELS[:3])


def test_the_outcome_can_be_named(ordinal, normals):
    assert plots.epistemic(ordinal[0], rows=0).plot().get_xlabel() == "outcome y"
    assert plots.epistemic(ordinal[0], rows=0, x_label="severity").plot().get_xlabel() == "severity"
    assert plots.epistemic(normals, scale="quantile").plot().get_xlabel() == "x"


def test_several_quantiles(normals, drawn):
    ax = drawn(plots.epistemic(normals, scale="quantile", at=[0.1, 0.9]))
    assert labels(ax) == ["members", "0.1-quantile", "0.9-quantile", "± 2 sd of the members"]


def test_bands_of_an_ensemble(ordinal, drawn):
    members, _ = ordinal
    frame = epistemic_band(members, dt.pool(members), np.full(4, 0.25), "cdf", None, 2.0)
    again = plots.epistemic(frame[frame["row"] < 1], scale="cdf")
    frame = plots.epistemic(members, scale="cdf", rows=0).frame()
    pd.testing.assert_frame_equal(again.frame(), frame)
    assert labels(drawn(again)) == ["transformation pool", "± 2 sd of the members"]


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"scale": "density"}, UnknownNameError, "scale must be one of 'trafo', 'cdf', 'quantile'"),
        ({"scale": "quantile", "x": [1.0]}, InvalidInputError, "x must have one number for each row"),
        ({"names": ["a"]}, InvalidInputError, "names must name every row shown, got 1 for 2 rows"),
    ],
    ids=["scale", "x", "names"],
)
def test_refusals(options, error, match, normals):
    with pytest.raises(error, match=match):
        plots.epistemic(normals, **options)


def test_quantiles_of_levels_are_refused(ordinal):
    with pytest.raises(
        UnsupportedError, match="quantiles have a standard deviation only for numeric outcomes"
    ):
        plots.epistemic(ordinal[0], scale="quantile")


def test_foreign_bands_need_their_columns():
    with pytest.raises(InvalidInputError, match="got none named row, at, lower, upper"):
        plots.epistemic(pd.DataFrame({"estimate": [1.0]}))


def test_few_integers_are_levels_and_many_jump(drawn):
    members = [dt.Predictive.from_trafo([[-1.0, 0.0, 2.0]]), dt.Predictive.from_trafo([[-0.5, 0.5, 1.0]])]
    ax = drawn(plots.epistemic(plots.epistemic(members).frame()))
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["0", "1", "2"]
    assert {line.get_linestyle() for line in ax.lines} == {"None"}
    counts = [dt.Predictive.from_scipy(scipy.stats.poisson([mean])) for mean in (20.0, 25.0)]
    bands = plots.epistemic(counts).frame().astype({"at": int})
    ax = drawn(plots.epistemic(bands))
    assert {line.get_drawstyle() for line in ax.lines} == {"steps-post"}
