from __future__ import annotations

import numpy as np
import pytest
import scipy.stats

import deeptram as dt
from deeptram import plots
from deeptram.errors import InvalidInputError, InvalidTypeError, UnsupportedError
from drawing import LEVELS, labels, legend_is_outside


def test_cdf_of_levels_is_the_cdf(pools):
    frame = plots.cdf(pools["linear"], rows=[3, 7]).frame()
    assert list(frame.columns) == ["name", "member", "row", "y", "cdf"]
    assert frame["row"].unique().tolist() == [3, 7]
    np.testing.assert_array_equal(frame["cdf"].to_numpy().reshape(2, 4), pools["linear"].cdf()[[3, 7]])
    assert frame["y"].tolist() == list(LEVELS) * 2


def test_density_of_levels_is_the_pmf(pools):
    frame = plots.density(pools, rows=0).frame()
    for name, pred in pools.items():
        np.testing.assert_allclose(frame.loc[frame["name"] == name, "density"], pred.pmf()[0])


def test_trafo_of_levels_leaves_out_the_last(pools):
    frame = plots.trafo(pools["transformation"], rows=slice(2)).frame()
    np.testing.assert_allclose(frame["trafo"].to_numpy().reshape(2, 3), pools["transformation"].trafo()[:2])
    assert set(frame["y"]) == set(LEVELS[:-1])


def test_line_against_scipy(normals):
    grid = np.linspace(-3, 5, 9)
    law = scipy.stats.norm(3.0, 1.0)
    values = {
        "cdf": (plots.cdf(normals[0], rows=1, grid=grid), law.cdf(grid)),
        "density": (plots.density(normals[0], rows=1, grid=grid), law.pdf(grid)),
        "nll": (plots.density(normals[0], rows=1, grid=grid, negative_log=True), -law.logpdf(grid)),
        "trafo": (plots.trafo(normals[0], rows=1, grid=grid, latent="probit"), grid - 3.0),
    }
    for column, (display, expected) in values.items():
        np.testing.assert_allclose(display.frame()[column], expected, rtol=1e-10, atol=1e-12)


def test_default_grid_covers_the_probability(normals):
    y = plots.cdf(normals, rows=0).frame()["y"]
    law = scipy.stats.norm(1.0, 2.0)  # the widest member
    assert y.min() == pytest.approx(law.ppf(0.001))
    assert y.max() == pytest.approx(law.ppf(0.999))


def test_curves_of_lifetimes_end_soon_after_the_last_one(rng):
    time = rng.exponential(10.0, 200)
    model = dt.Coxph(dt.LS("x")).fit(
        {"x": rng.normal(size=200)}, dt.Surv.right(np.minimum(time, 5), time < 5)
    )
    display = dt.plots.cdf(model, X={"x": [0.0, 1.0]})
    last = time[time < 5].max()
    assert display.frame()["y"].max() == pytest.approx(1.2 * last)
    labels = [text.get_text() for text in display.plot().get_legend().get_texts()]
    assert labels[-1] == "beyond the last\nobserved event"


def test_negative_log_density_has_the_members_average(normals):
    frame = plots.density({"members": normals}, rows=0, negative_log=True, grid=[0.0, 2.0]).frame()
    members = frame[frame["name"] == "members"]["nll"].to_numpy().reshape(3, 2)
    np.testing.assert_allclose(frame[frame["name"] == "members' average"]["nll"], members.mean(axis=0))


def test_counts_are_drawn_at_integers():
    pred = dt.Predictive.from_scipy(scipy.stats.poisson([2.0]))
    frame = plots.density(pred).frame()
    assert frame["y"].tolist() == list(range(len(frame)))
    np.testing.assert_allclose(frame["density"], scipy.stats.poisson(2.0).pmf(frame["y"]))


def test_five_rows_by_default(pools):
    assert plots.cdf(pools["linear"]).frame()["row"].unique().tolist() == [0, 1, 2, 3, 4]
    assert plots.cdf(pools["linear"], rows=np.arange(200) == 9).frame()["row"].unique().tolist() == [9]
    assert plots.cdf(pools["linear"], rows=-1).frame()["row"].unique().tolist() == [199]


def test_tensors_are_welcome():
    import torch

    pred = dt.Predictive.from_torch(torch.distributions.Normal(torch.zeros(2, requires_grad=True), 1.0))
    np.testing.assert_allclose(
        plots.cdf(pred, grid=[0.0, 1.0]).frame()["cdf"], [0.5, 0.8413447] * 2, atol=1e-6
    )


@pytest.mark.parametrize("function", [plots.cdf, plots.density, plots.trafo], ids=["cdf", "density", "trafo"])
def test_drawing_members_and_pools(function, ordinal, pools, normals, drawn):
    members, _ = ordinal
    ax = drawn(function({"members": members, **pools}, rows=0))
    assert labels(ax) == ["members", *pools]
    assert legend_is_outside(ax)
    assert [tick.get_text() for tick in ax.get_xticklabels()][:3] == list(LEVELS[:3])
    ax = drawn(function({"members": normals, "linear": dt.pool(normals, method="linear")}, rows=[0, 1]))
    assert labels(ax) == ["members", "linear, row 0", "linear, row 1"]
    ax = drawn(function(dt.pool(normals), rows=[0, 1]))
    assert labels(ax) == ["row 0", "row 1"]
    drawn(function(dt.Predictive.from_scipy(scipy.stats.poisson([2.0, 5.0]))))


def test_labels_of_the_axes(pools, normals):
    assert plots.cdf(pools["linear"]).plot().get_ylabel() == "P(Y ≤ y)"
    assert plots.density(pools["linear"]).plot().get_ylabel() == "probability"
    assert plots.density(normals[0]).plot().get_ylabel() == "density"
    assert plots.density(normals[0], negative_log=True).plot().get_ylabel() == "negative log-density"
    assert plots.trafo(pools["linear"]).plot().get_ylabel() == "log odds of Y ≤ y"
    assert plots.trafo(normals[0], latent="cloglog").plot().get_ylabel() == "log cumulative hazard"


def test_a_latent_of_ones_own_has_a_label(normals):
    class Own(type(dt.latent.get("logistic"))):
        name = "own"

    assert plots.trafo(normals[0], latent=Own()).plot().get_ylabel() == "h(y)"
    check = dt.structure_check(normals, latent=Own())
    assert plots.structure(check).plot().get_xlabel() == "mean of members, own scale"


def test_models_are_drawn_by_what_they_predict(rng):
    X = rng.normal(size=(60, 1))
    model = dt.Lm().fit(X, X[:, 0] + rng.normal(size=60))
    for function in (plots.cdf, plots.density, plots.trafo):
        frame = function({"a": model}, X=X, rows=[2]).frame()
        expected = function({"a": model.predict_distribution(X)}, rows=[2]).frame()
        np.testing.assert_array_equal(frame.iloc[:, -1], expected.iloc[:, -1])
    with pytest.raises(InvalidInputError, match=r"the model 'Lm' needs rows to predict, got no X; pass X="):
        plots.cdf(model)


def test_a_single_curve_needs_no_legend(pools):
    assert labels(plots.cdf(pools["linear"], rows=0).plot()) == []


def test_frame_is_a_copy(pools):
    display = plots.cdf(pools["linear"])
    display.frame()["cdf"] = 0.0
    assert display.frame()["cdf"].max() == 1.0


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (
            lambda p, n: plots.cdf(p, rows=200),
            InvalidInputError,
            "rows must be row numbers below 200, got 200",
        ),
        (lambda p, n: plots.cdf(p, rows=[0.5]), InvalidInputError, "rows must be row numbers below 200"),
        (lambda p, n: plots.cdf(p, grid=[1.0, 2.0]), UnsupportedError, "grid is for outcomes on the line"),
        (
            lambda p, n: plots.cdf(n, grid=[1.0]),
            InvalidInputError,
            "grid must hold at least two finite numbers",
        ),
        (lambda p, n: plots.cdf({"a": p, "b": n}), InvalidInputError, "must have the same rows and levels"),
        (
            lambda p, n: plots.cdf({"a": [1, 2]}),
            InvalidTypeError,
            "'a' must be a Predictive or a fitted model",
        ),
        (lambda p, n: plots.cdf({}), InvalidInputError, "at least one Predictive to draw, got none"),
    ],
    ids=["row", "rows", "levels", "grid", "kinds", "type", "nothing"],
)
def test_refusals(call, error, match, pools, normals):
    with pytest.raises(error, match=match):
        call(pools["linear"], normals[0])


def test_a_point_mass_asks_for_a_grid():
    pred = dt.Predictive.from_samples([[1.0, 1.0, 1.0]])
    with pytest.raises(InvalidInputError, match=r"the range to draw cannot be found.*pass grid="):
        plots.cdf(pred)
