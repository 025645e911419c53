"""Images with their predicted distributions."""

from __future__ import annotations

import re

import numpy as np
import pytest
from matplotlib.figure import Figure
from scipy.special import expit

from deeptram.errors import FileFormatError
from deeptram.model.persistence import FinishedWork
from deeptram.paper import storage
from deeptram.paper.gallery import choose_rows, gallery_panels, prediction_tables
from deeptram.paper.members import GALLERY
from deeptram.plots.report.page import inline_svg
from deeptram.predictive.discrete import DiscretePredictive


def test_band_is_two_standard_deviations_on_the_scale_of_h(rng):
    h = np.sort(rng.normal(size=(5, 3, 2)), axis=-1)
    members = [DiscretePredictive.from_h(one) for one in h]
    tables = prediction_tables(members, ["a", "b", "c"], np.array([0, 1, 2]))
    mean, sd = h.mean(axis=0), h.std(axis=0, ddof=1)
    for i, table in enumerate(tables):
        np.testing.assert_allclose(table["lower"], [*expit(mean - 2 * sd)[i], 1.0])
        np.testing.assert_allclose(table["upper"], [*expit(mean + 2 * sd)[i], 1.0])
        np.testing.assert_allclose(table["cdf"], [*expit(mean)[i], 1.0])
        np.testing.assert_allclose(table["member_2"], members[1].pmf()[i])
        assert table["observed"].tolist() == [k == i for k in range(3)]


def test_one_member_has_no_band():
    (table,) = prediction_tables(
        [DiscretePredictive.from_h(np.array([[0.0, 1.0]]))], list("abc"), np.array([0])
    )
    assert table["lower"].tolist() == table["upper"].tolist() == table["cdf"].tolist()


def test_rows_are_chosen_once_and_by_kind(rng):
    probability = rng.dirichlet(np.ones(4), size=60)
    y = rng.integers(0, 4, 60)
    chosen = choose_rows(probability, y)
    rows = [row for rows in chosen.values() for row in rows]
    assert len(rows) == len(set(rows)) == 18
    guess = probability.argmax(axis=1)
    assert all(guess[row] == y[row] for row in chosen["sure"])
    assert all(guess[row] != y[row] for row in chosen["wrong"])
    assert {int(y[row]) for row in chosen["sure"][:4]} == {0, 1, 2, 3}  # different classes first
    worst = probability[chosen["wrong"], y[chosen["wrong"]]]
    assert (np.diff(worst) >= 0).all()


def test_gallery_is_of_the_best_ensemble(run, view):
    of, grids = gallery_panels(run, view)
    table = view.tables.metrics
    nll = table[
        (table["metric"] == "nll") & (table["method"] == "transformation") & (table["weights"] == "equal")
    ]
    assert of.model == nll.loc[nll["estimate"].idxmin(), "model"]
    assert {name for name, _ in grids} <= {"sure", "unsure", "wrong"}
    for panel in (one for grid in grids.values() for one in grid.panels):
        card = panel.table
        assert card["probability"].sum() == pytest.approx(1.0)
        number = int(re.match(r"Image (\d+): ", panel.title)[1])
        assert card.loc[card["observed"], "level"].tolist() == [of.levels[of.outcomes[number - 1]]]
        top = card.loc[card["probability"].idxmax()]
        share = f"{100 * top['probability']:.0f}"
        truth = card.loc[card["observed"], "level"].item()
        assert panel.title.endswith(f": observed {truth}, predicted {top['level']} ({share} %)")
        assert (card["lower"] <= card["cdf"] + 1e-12).all()
        assert (card["cdf"] <= card["upper"] + 1e-12).all()
        assert [name for name in card if name.startswith("member_")] == ["member_1", "member_2"]


def test_a_card_shows_the_pixels_and_the_probabilities(run, view):
    of, grids = gallery_panels(run, view)
    panel = next(iter(grids.values())).panels[0]
    ax = Figure().subplots()
    panel.draw(ax)
    picture, bars = ax.child_axes
    number = int(re.match(r"Image (\d+): ", panel.title)[1])
    np.testing.assert_array_equal(picture.images[0].get_array(), of.images[number - 1])
    drawn = [bar.get_height() for bar in bars.containers[1]]
    np.testing.assert_allclose(drawn, panel.table["probability"])
    svg = inline_svg(ax.figure, "card", "a card")
    assert 'href="data:image/png;base64,' in svg
    assert f"P(Y = {panel.table['level'][0]}) = " in svg


def test_without_images_there_is_no_gallery(run, view, monkeypatch):
    kept = FinishedWork.load

    def bare(self, name, *args):
        record, arrays = kept(self, name, *args)
        return record, {key: arrays[key] for key in arrays if key not in GALLERY}

    monkeypatch.setattr(FinishedWork, "load", bare)
    assert gallery_panels(run, view) is None


@pytest.mark.parametrize(
    "change",
    [
        {"images": np.zeros((2, 3), np.uint8)},
        {"images": np.zeros((240, 8, 8), np.int16)},
        {"split": np.array([7])},
        {"position": np.array([5])},
        {"position": np.full(240, 10**6)},
    ],
)
def test_a_gallery_that_lies_is_refused(run, view, monkeypatch, change):
    kept = FinishedWork.load

    def lie(self, name, *args):
        record, arrays = kept(self, name, *args)
        return record, {**arrays, **(change if name == storage.DATA else {})}

    monkeypatch.setattr(FinishedWork, "load", lie)
    with pytest.raises(FileFormatError, match="data must hold test images and their rows, got something"):
        gallery_panels(run, view)
