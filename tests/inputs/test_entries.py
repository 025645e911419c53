"""Entries of X that are no columns: as they are, torch data sets, lists of arrays, names of files, pixel scales."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

import deeptram as dt
from deeptram.errors import DroppedPartsWarning, ExtrapolationWarning, InvalidInputError, InvalidTypeError
from deeptram.inputs.entries import DatasetRows, readable_entries

N = 24
RNG = np.random.default_rng(0)
IMAGES = RNG.random((N, 6, 6)).astype(np.float32)
TOKENS = RNG.integers(0, 20, size=(N, 5))
Y = np.arange(N) % 3
ONE = dt.Training(epochs=1, batch_size=8, progress=False)
CNN = dt.networks.CNN((2,), dense=(4,))


class Embedded(nn.Module):
    def __init__(self, in_shape, out_features):
        super().__init__()
        self.table, self.last = nn.Embedding(20, 3), nn.Linear(3, out_features)

    def forward(self, tokens):
        return self.last(self.table(tokens).mean(dim=1))


class Volumes(nn.Module):
    def __init__(self, in_shape, out_features):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv3d(in_shape[0], 2, 2), nn.Flatten(), nn.LazyLinear(out_features))

    def forward(self, x):
        return self.layers(x)


def mean_of_channels(in_shape, out_features):
    return nn.Sequential(nn.Conv2d(in_shape[0], 4, 3), nn.Flatten(), nn.LazyLinear(out_features))


class Pictures(Dataset):
    def __init__(self, images=IMAGES):
        self.images = images

    def __len__(self):
        return len(self.images)

    def __getitem__(self, row):
        return torch.as_tensor(self.images[row])[None]


class Endless(IterableDataset):
    def __iter__(self):
        return iter(IMAGES)


def fit(X, net=CNN, columns=("image",)):
    return dt.Polr([dt.CS(net, *columns)], training=ONE, random_state=1).fit(X, Y)


@pytest.mark.parametrize(
    ("entry", "net"),
    [
        (TOKENS, Embedded),
        (RNG.normal(size=(N, 2, 3, 3, 3)), Volumes),
        (RNG.normal(size=(N, 7, 6, 6)), mean_of_channels),
    ],
    ids=["tokens", "volumes", "channels"],
)
def test_entries_as_they_are(tmp_path, entry, net):
    model = fit({"image": dt.AsIs(entry)}, net)
    expected = model.predict_proba({"image": dt.AsIs(entry)})
    np.testing.assert_array_equal(model.predict_proba({"image": torch.as_tensor(entry)}), expected)
    name = f"{net.__module__}.{net.__qualname__}"
    loaded = dt.load(model.save(tmp_path / "m"), networks={name: net})
    np.testing.assert_array_equal(loaded.predict_proba({"image": dt.AsIs(entry)}), expected)
    whole = dt.Ensemble(model, 2, random_state=1).fit({"image": dt.AsIs(entry)}, Y, validation=0.25)
    folds = dt.Ensemble.from_folds(model, {"image": dt.AsIs(entry)}, Y, cv=2)
    for one in (whole, folds):
        assert one.predict_proba({"image": dt.AsIs(entry)}).shape == (N, 3)


def test_entries_as_they_are_must_stay_so():
    model = fit({"image": dt.AsIs(TOKENS)}, Embedded)
    with pytest.raises(
        InvalidInputError, match=r"must be integers of shape \(5,\) as in fit, got integers of"
    ):
        model.predict({"image": dt.AsIs(TOKENS[:, :4])})
    with pytest.raises(InvalidInputError, match=r"got numbers of shape \(5,\); convert or pad"):
        model.predict({"image": dt.AsIs(TOKENS.astype(float))})
    with pytest.raises(
        InvalidInputError, match=r"scalar types.*; pass token numbers as X=.*dt.AsIs\(tokens\)"
    ):
        fit({"image": TOKENS}, Embedded)
    for entry, kind, message in [
        ([[1], [2, 3]], InvalidInputError, "rows of dt.AsIs must all have the same shape, got a ragged list"),
        ([], InvalidInputError, "dt.AsIs must hold at least one row, got none"),
        ([1.0, 2.0], InvalidInputError, "rows of at least one axis, got one number per row"),
        (np.array([["a"], ["b"]]), InvalidTypeError, "dt.AsIs must hold numbers of one shape per row"),
    ]:
        with pytest.raises(kind, match=message):
            dt.AsIs(entry)
    assert repr(dt.AsIs(TOKENS)) == f"AsIs(n={N}, row_shape=(5,))"


@pytest.mark.parametrize("wrong", [20, -1])
@pytest.mark.parametrize("strategy", ["stacked", "parallel", "sequential"])
def test_numbers_beyond_an_embedding_are_told(strategy, wrong):
    tokens = TOKENS.copy()
    tokens[3, 2] = wrong
    good, bad = {"image": dt.AsIs(TOKENS)}, {"image": dt.AsIs(tokens)}
    message = f"an embedding of 20 rows must get numbers from 0 to 19, got {wrong}; make it larger"
    terms = [dt.CS(Embedded, "image"), dt.Scale(Embedded, "image")]
    ensemble = dt.Ensemble(dt.Colr(terms, training=ONE), 2, strategy=strategy, random_state=1)
    with pytest.raises(InvalidInputError, match=message):
        ensemble.fit(bad, Y + np.linspace(0, 1, N))
    model = ensemble.fit(good, Y + np.linspace(0, 1, N)).members_[0]
    for read in (
        lambda: ensemble.predict(bad),
        lambda: model.contributions(bad),
        lambda: model.module_(model.module_.inputs(bad, Y)),
        lambda: fit(bad, dt.networks.frozen(nn.EmbeddingBag(20, 3))),
    ):
        with pytest.raises(InvalidInputError, match=message):
            read()


def test_a_data_set_is_an_entry():
    plain = fit({"image": IMAGES})
    model = fit({"image": Pictures()})
    np.testing.assert_array_equal(
        model.predict_proba({"image": Pictures()}), plain.predict_proba({"image": IMAGES})
    )
    folds = dt.Ensemble.from_folds(model, {"image": Pictures()}, Y, cv=2, random_state=1)
    assert folds.predict_proba({"image": IMAGES}).shape == (N, 3)
    texts = TensorDataset(torch.as_tensor(TOKENS))
    for entry in (texts, dt.AsIs(texts)):
        assert fit({"image": entry}, Embedded).model_.inputs[0].in_shape == (5,)


@pytest.mark.filterwarnings("ignore:training ended with a network that gives the same")  # of few rows
def test_further_parts_of_the_items_of_a_data_set_are_told_once_at_fit():
    pairs = TensorDataset(torch.as_tensor(IMAGES)[:, None], torch.as_tensor(Y))
    message = (
        "items of the data set 'image' must be what a network sees of a row, got 2 parts, of which it sees "
        "the first only .outcomes are those of y.; pass a data set of inputs alone"
    )
    with pytest.warns(DroppedPartsWarning, match=message) as told:
        model = fit({"image": pairs})
    np.testing.assert_array_equal(
        model.predict_proba({"image": pairs}), fit({"image": IMAGES}).predict_proba({"image": IMAGES})
    )
    assert sum(one.category is DroppedPartsWarning for one in told) == 1
    held = {"image": pairs}, Y
    for make in (
        lambda: dt.Ensemble.from_folds(model, {"image": pairs}, Y, cv=2, random_state=1),
        lambda: dt.Ensemble(model, 2, random_state=1).fit({"image": pairs}, Y, validation=held),
        lambda: fit({"image": dt.AsIs(TensorDataset(torch.as_tensor(TOKENS), torch.as_tensor(Y)))}, Embedded),
    ):
        with pytest.warns(DroppedPartsWarning) as told:
            make()
        assert sum(one.category is DroppedPartsWarning for one in told) == 1


def test_what_is_no_entry_is_told():
    loader = DataLoader(Pictures(), 4)
    ragged = [np.zeros((6, 6 + row % 2)) for row in range(N)]
    objects = np.empty(N, dtype=object)
    objects[:] = ragged
    files = [f"images/{row}.PNG" for row in range(N)]
    for X, kind, message in [
        ({"image": loader}, InvalidTypeError, "got a DataLoader; pass its data set as an entry"),
        (loader, InvalidTypeError, "got a DataLoader"),
        (Pictures(), InvalidTypeError, "got the data set Pictures; write X={'image': dataset}"),
        ({"image": Endless()}, InvalidTypeError, "got an iterable one; use a map-style"),
        (
            {"image": Pictures(ragged)},
            InvalidInputError,
            "items of a data set must have one shape, got .* and",
        ),
        (
            {"image": ragged},
            InvalidInputError,
            r"got a ragged list with \(6, 6\) and \(6, 7\); resize or pad",
        ),
        ({"image": objects}, InvalidInputError, "got a ragged list"),
        (pd.DataFrame({"image": list(IMAGES)}), InvalidTypeError, "got arrays in 'image'; pass X as a dict"),
        (pd.DataFrame({"image": files}), InvalidInputError, "got the names of image files in column 'image'"),
        ({"image": files}, InvalidInputError, "pass them as X=.'image': deeptram.inputs.FolderImages"),
        ({"img": IMAGES}, InvalidInputError, "column 'image' is needed but missing from X.*mean 'img'"),
    ]:
        with pytest.raises(kind, match=message):
            fit(X)


def test_lists_of_arrays_are_stacked():
    np.testing.assert_array_equal(readable_entries({"image": list(IMAGES)})["image"], IMAGES)
    plain = fit({"image": IMAGES}).predict_proba({"image": IMAGES})
    np.testing.assert_array_equal(fit({"image": list(IMAGES)}).predict_proba({"image": list(IMAGES)}), plain)


def test_rows_of_data_sets():
    rows = DatasetRows(Pictures())
    assert rows[[2, 0]].shape == (2, 1, 6, 6)
    np.testing.assert_array_equal(rows.take([3, 1])[[1]][0, 0], IMAGES[1])


# -- the scale of pixels -------------------------------------------------------------------------------


def bytes_of(images):
    return (images * 255).astype(np.uint8)


@pytest.mark.parametrize(
    ("trained", "given", "match"),
    [
        (IMAGES, IMAGES, None),
        (IMAGES, bytes_of(IMAGES), None),
        (bytes_of(IMAGES), IMAGES, None),
        (IMAGES * 255, IMAGES[:1] * 255, None),
        ((IMAGES - 0.5) / 0.2, (IMAGES[:2] - 0.5) / 0.15, None),
        (
            bytes_of(IMAGES),
            bytes_of(IMAGES).astype(float),
            "pixels from 0 to 1 .* got 0 to 254; use the same",
        ),
        (bytes_of(IMAGES), bytes_of(IMAGES).astype(int), "got 0 to 254"),
        (IMAGES, IMAGES * 255, "got .* to 25"),
        (IMAGES * 255, bytes_of(IMAGES), "numbers from .* got bytes, which are divided by 255"),
        (IMAGES * 255, IMAGES, "pixels from .* to 25.* got .* to 0.99"),
        ((IMAGES - 0.5) / 0.2, bytes_of(IMAGES), "got bytes"),
        ((IMAGES - 0.5) / 0.2, IMAGES * 255, "got .* to 25"),
    ],
)
def test_another_scale_of_pixels_is_refused(tmp_path, trained, given, match):
    model = fit({"image": trained})
    for one in (model, dt.load(model.save(tmp_path / "m"))):
        if match is None:
            assert one.predict_proba({"image": given}).shape == (len(given), 3)
        else:
            with pytest.raises(InvalidInputError, match=match):
                one.predict_proba({"image": given})
            with pytest.raises(InvalidInputError, match=match):
                one.predict_proba({"image": Indexed(given)})


@pytest.mark.parametrize("trained", [IMAGES, bytes_of(IMAGES)])
def test_images_that_were_standardised_after_fit_are_named_once(trained):
    model = fit({"image": trained})
    with pytest.warns(
        ExtrapolationWarning, match=r"pixels from .*, got -2.* to 2.*; use the same unit"
    ) as said:
        model.predict_proba({"image": (IMAGES - 0.5) / 0.2})
    assert len(said) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.predict_proba({"image": IMAGES + 0.3})  # brighter, not on another scale


class Indexed:
    """Images that can only be indexed: their type is known when they are read."""

    def __init__(self, images):
        self.images = images

    def __len__(self):
        return len(self.images)

    def __getitem__(self, rows):
        return self.images[rows]
