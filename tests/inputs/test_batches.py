"""Batches of network inputs, from memory and from disk."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from deeptram._rows import is_memory_map
from deeptram.errors import InvalidInputError
from deeptram.inputs.batches import (
    LazySource,
    MemoryImages,
    TableSource,
    check_augmented,
    image_batches,
    shuffled_batches,
    spans,
)
from deeptram.inputs.images import ImageSource

LAYOUTS = {"grey": (7, 6, 5), "channels_first": (7, 3, 6, 5), "channels_last": (7, 6, 5, 3)}


class OnDisk:
    """An array that only gives sorted, unique rows, as HDF5 does; notes what was asked for."""

    def __init__(self, array):
        self._array, self.shape, self.asked = array, array.shape, []

    def __len__(self):
        return len(self._array)

    def __getitem__(self, rows):
        rows = np.asarray(rows)
        assert (np.diff(rows) > 0).all()
        self.asked.append(len(rows))
        return self._array[rows]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", [np.uint8, np.float32, np.float64])
@pytest.mark.parametrize("kind", [MemoryImages, LazySource])
def test_images_are_the_same_from_everywhere(layout, dtype, kind, rng):
    pixels = rng.integers(0, 256, size=LAYOUTS[layout]).astype(dtype)
    images = ImageSource(pixels)
    expected = images.batch([5, 0, 5])
    source = kind(images)
    batch = source.gather(torch.tensor([5, 0, 5]))
    torch.testing.assert_close(batch, expected)
    torch.testing.assert_close(source.span(2, 4), images.batch([2, 3]))
    assert batch.is_contiguous(memory_format=torch.channels_last)
    assert (len(source), source.shape) == (7, images.shape)


def test_inputs_are_not_written_to(rng):
    pixels = rng.integers(0, 256, size=(7, 3, 6, 5), dtype=np.uint8)
    before = pixels.copy()
    source = MemoryImages(ImageSource(pixels))
    source.gather(torch.arange(7)).add_(1.0)
    source.span(0, 7).add_(1.0)
    np.testing.assert_array_equal(pixels, before)


def test_bytes_stay_bytes_in_memory(rng):
    pixels = rng.integers(0, 256, size=(7, 6, 5, 3), dtype=np.uint8)
    source = image_batches(ImageSource(pixels))
    assert isinstance(source, MemoryImages)
    assert source._values.dtype == torch.uint8
    assert source._values.data_ptr() == pixels.ctypes.data


def test_read_only_arrays_are_fine(rng):
    pixels = rng.integers(0, 256, size=(7, 6, 5, 3), dtype=np.uint8)
    pixels.flags.writeable = False
    torch.testing.assert_close(image_batches(ImageSource(pixels)).span(0, 7), ImageSource(pixels).batch())


def test_what_does_not_fit_is_read_batch_by_batch(rng, tmp_path):
    pixels = rng.random((7, 6, 5)).astype(np.float32)
    np.save(tmp_path / "images.npy", pixels)
    mapped = np.load(tmp_path / "images.npy", mmap_mode="r")
    assert is_memory_map(mapped)
    assert is_memory_map(mapped[1:])
    assert not is_memory_map(pixels[1:])
    disk = OnDisk(pixels)
    sources = [
        image_batches(ImageSource(mapped)),
        image_batches(ImageSource(disk)),
        image_batches(ImageSource(pixels), memory_limit=100),
    ]
    for source in sources:
        assert isinstance(source, LazySource)
        torch.testing.assert_close(
            source.gather(torch.tensor([3, 1, 3])), ImageSource(pixels).batch([3, 1, 3])
        )
    assert disk.asked == [2]


def test_precision_is_as_asked(rng):
    images = ImageSource(rng.random((4, 6, 5)))
    for kind in (MemoryImages, LazySource):
        assert kind(images, torch.float64).gather(torch.tensor([0])).dtype == torch.float64
    assert TableSource(np.eye(2), torch.float64).span(0, 1).dtype == torch.float64


def test_table_rows(rng):
    values = rng.normal(size=(5, 3))
    source = TableSource(values)
    np.testing.assert_allclose(
        source.gather(torch.tensor([4, 4, 1])).numpy(), values[[4, 4, 1]].astype(np.float32)
    )
    assert (len(source), source.shape) == (5, (3,))


def test_an_epoch_visits_every_row_once_in_each_members_own_order():
    rows = torch.stack([torch.arange(100, 123), torch.arange(200, 223)])
    generators = [torch.Generator().manual_seed(seed) for seed in (1, 2)]
    batches = shuffled_batches(rows, 5, generators)
    assert [batch.shape for batch in batches] == [(2, 5)] * 4 + [(2, 3)]
    seen = torch.cat(batches, dim=1)
    assert torch.equal(seen.sort(dim=1).values, rows)
    assert not torch.equal(seen[0] - 100, seen[1] - 200)
    alone = shuffled_batches(rows[1:], 5, [torch.Generator().manual_seed(2)])
    assert torch.equal(torch.cat(alone, dim=1)[0], seen[1])


@pytest.mark.parametrize(
    ("n", "size", "sizes"), [(6, 3, [3, 3]), (7, 3, [3, 4]), (2, 5, [2]), (1, 1, [1]), (3, 1, [1, 2])]
)
def test_no_batch_of_a_single_row(n, size, sizes):
    batches = shuffled_batches(torch.arange(n).expand(1, n), size, [torch.Generator()])
    assert [batch.shape[1] for batch in batches] == sizes


def test_pieces_cover_all_rows():
    pieces = list(spans(20_001, [TableSource(np.zeros((1, 400)))]))
    assert pieces[0][0] == 0
    assert pieces[-1][1] == 20_001
    assert all(a[1] == b[0] for a, b in itertools.pairwise(pieces))
    assert max(stop - start for start, stop in pieces) <= 2**19 // 400 + 1


@pytest.mark.parametrize(
    ("after", "got"), [(torch.zeros(2, 1, 4, 8), r"shape \(2, 1, 4, 8\)"), ("image", "str")]
)
def test_augmented_batches_keep_their_shape(after, got):
    with pytest.raises(
        InvalidInputError, match=rf"augment must return a tensor of the shape it was given, .*, got {got}"
    ):
        check_augmented(torch.zeros(2, 1, 8, 8), after)
