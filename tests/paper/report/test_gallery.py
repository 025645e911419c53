"""Images with their predicted distributions; pictures without an imaging library."""

from __future__ import annotations

import base64
import dataclasses
import io

import numpy as np
import pytest
from scipy.special import expit

from deeptram.errors import FileFormatError
from deeptram.paper import storage
from deeptram.paper.report.gallery import cdf_band, choose_rows, make_gallery
from deeptram.plots.report.page import png_address, png_bytes
from deeptram.pooling import pool
from deeptram.predictive.discrete import DiscretePredictive


@pytest.mark.parametrize("shape", [(5, 7), (4, 4, 3)])
def test_png_is_read_back_by_another_library(shape, rng):
    image_module = pytest.importorskip("PIL.Image")
    image = rng.integers(0, 256, shape, dtype=np.uint8)
    assert np.array_equal(np.asarray(image_module.open(io.BytesIO(png_bytes(image)))), image)
    content = base64.b64decode(png_address(image).removeprefix("data:image/png;base64,"))
    assert content == png_bytes(image)


def test_band_is_two_standard_deviations_on_the_scale_of_h(rng):
    h = np.sort(rng.normal(size=(5, 3, 2)), axis=-1)
    members = [DiscretePredictive.from_h(one) for one in h]
    lower, upper = cdf_band(members, pool(members, method="transformation"))
    mean, sd = h.mean(axis=0), h.std(axis=0, ddof=1)
    np.testing.assert_allclose(lower[:, :-1], expit(mean - 2 * sd))
    np.testing.assert_allclose(upper[:, :-1], expit(mean + 2 * sd))
    assert (lower[:, -1] == 1).all()


def test_one_member_has_no_band():
    one = DiscretePredictive.from_h(np.array([[0.0, 1.0]]))
    lower, upper = cdf_band([one], pool([one], method="transformation"))
    assert np.array_equal(lower, upper)


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
    gallery = make_gallery(run, view)
    table = view.tables.metrics
    nll = table[
        (table["metric"] == "nll") & (table["method"] == "transformation") & (table["weights"] == "equal")
    ]
    assert gallery.model == nll.loc[nll["estimate"].idxmin(), "model"]
    assert {card.kind for card in gallery.cards} <= {"sure", "unsure", "wrong"}
    for card in gallery.cards:
        assert sum(bar.probability for bar in card.bars) == pytest.approx(1.0)
        assert [bar.level for bar in card.bars if bar.is_truth] == [card.truth]
        assert max(card.bars, key=lambda bar: bar.probability).level == card.guess
        for bar in card.bars:
            assert bar.lower <= bar.cdf + 1e-12
            assert bar.cdf <= bar.upper + 1e-12
            assert len(bar.members) == 2


def test_without_images_there_is_no_gallery(run, view):
    files = {name: digest for name, digest in view.config["files"].items() if name != storage.GALLERY}
    bare = dataclasses.replace(view, config={**view.config, "files": files})
    assert make_gallery(run, bare) is None


@pytest.mark.parametrize(
    "change",
    [
        {"images": np.zeros((2, 3))},
        {"split": np.array(7)},
        {"position": np.array([0.5])},
        {"position": np.full(240, 10**6)},
    ],
)
def test_a_gallery_that_lies_is_refused(run, view, monkeypatch, change):
    read = storage.read_arrays

    def lie(path, *args):
        return {**read(path, *args), **(change if path.name == storage.GALLERY else {})}

    monkeypatch.setattr(storage, "read_arrays", lie)
    with pytest.raises(
        FileFormatError, match=r"gallery\.npz must hold test images and their rows, got something"
    ):
        make_gallery(run, view)
