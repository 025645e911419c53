"""Layouts, scaling, row access, refusals of image entries, and image files of doubtful origin."""

from __future__ import annotations

import struct
import sys
import zlib

import numpy as np
import pytest
import torch
from PIL import Image

from deeptram._arrays import row_numbers
from deeptram.errors import (
    FileFormatError,
    InvalidInputError,
    InvalidTypeError,
    MissingDependencyError,
    RowIndexError,
    UnknownNameError,
)
from deeptram.inputs.images import FolderImages, ImageSource, decode_image, detect_layout, image_size, listing


@pytest.fixture
def pixels(rng) -> np.ndarray:
    """Six images, channels first, uint8."""
    return rng.integers(0, 256, size=(6, 3, 5, 7), dtype=np.uint8)


class Strict:
    """Rows as HDF5 gives them: only integer arrays that strictly increase, no shape attribute."""

    def __init__(self, array):
        self.array = array
        self.asked: list[int] = []

    def __len__(self):
        return len(self.array)

    def __getitem__(self, rows):
        if not isinstance(rows, np.ndarray) or rows.dtype.kind != "i" or (np.diff(rows) <= 0).any():
            raise TypeError("Indexing elements must be in increasing order")
        self.asked += rows.tolist()
        return self.array[rows]


def test_every_layout_gives_the_same_tensor(pixels):
    expected = pixels.astype(np.float64) / 255
    entries = [pixels, np.moveaxis(pixels, 1, 3), torch.from_numpy(pixels), pixels.tolist(), Strict(pixels)]
    for entry in entries[:3]:
        source = ImageSource(entry)
        assert source.shape == (3, 5, 7)
        assert source.batch([4, 1]).dtype == torch.float32
        np.testing.assert_allclose(source.batch([4, 1]).numpy(), expected[[4, 1]], atol=1e-7)
    np.testing.assert_allclose(ImageSource(entries[4]).batch([4, 1]).numpy(), expected[[4, 1]], atol=1e-7)
    np.testing.assert_array_equal(ImageSource(entries[3]).batch([4, 1]).numpy(), pixels[[4, 1]])


def test_grey_images_get_one_channel(rng):
    grey = rng.integers(0, 256, size=(6, 5, 7), dtype=np.uint8)
    source = ImageSource(grey)
    assert source.shape == (1, 5, 7)
    np.testing.assert_allclose(source.batch().numpy()[:, 0], grey / 255, atol=1e-7)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.int32, np.uint16, bool])
def test_only_uint8_is_scaled(dtype):
    entry = np.ones((2, 5, 7), dtype=dtype)
    assert torch.equal(ImageSource(entry).batch(), torch.ones(2, 1, 5, 7))


@pytest.mark.parametrize(
    ("shape", "layout"),
    [
        ((9, 28, 28), "grey"),
        ((9, 1, 28, 28), "channels_first"),
        ((9, 4, 28, 28), "channels_first"),
        ((9, 28, 28, 1), "channels_last"),
        ((9, 28, 28, 4), "channels_last"),
        ((9, 3, 3, 3), "channels_first"),
        ((9, 4, 4, 1), "channels_first"),
    ],
)
def test_layout_rule(shape, layout):
    assert detect_layout(shape) == layout


def test_layout_can_be_said(pixels):
    tiny = np.zeros((2, 4, 4, 1))
    assert ImageSource(tiny).shape == (4, 4, 1)
    said = ImageSource(tiny, layout="channels_last")
    assert said.shape == (1, 4, 4)
    assert ImageSource(said).shape == (1, 4, 4)
    assert ImageSource(pixels[:, 0], layout="grey").shape == (1, 5, 7)


def test_rows_in_any_order_repeated_negative_mask_slice(pixels):
    for entry in (pixels, Strict(pixels)):
        source = ImageSource(entry)
        everything = source.batch()
        for rows in ([3, 3, -1, 0], np.array([5, 2], dtype=np.uint8), torch.tensor([1, 0]), 2):
            index = np.atleast_1d(np.asarray(rows, dtype=np.int64))
            assert torch.equal(source.batch(rows), everything[index])
        mask = np.array([True, False, False, True, False, True])
        assert torch.equal(source.batch(mask), everything[mask])
        assert torch.equal(source.batch(slice(1, 4)), everything[1:4])
        assert source.batch([]).shape == (0, 3, 5, 7)
        np.testing.assert_array_equal(source[[2, 1]], everything[[2, 1]].numpy())


def test_only_the_asked_rows_are_read(pixels):
    entry = Strict(pixels)
    source = ImageSource(entry)
    entry.asked.clear()
    source.batch([4, 2, 4])
    assert entry.asked == [2, 4]


def test_a_shape_may_stand_for_the_length(pixels):
    class Zarr:
        shape = pixels.shape

        def __getitem__(self, rows):
            return pixels[rows]

    assert torch.equal(ImageSource(Zarr()).batch([5, 1]), ImageSource(pixels).batch([5, 1]))
    assert len(ImageSource(Zarr())) == 6


def test_memory_map_is_read_lazily_and_never_written(pixels, tmp_path):
    np.save(tmp_path / "x.npy", pixels)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    source = ImageSource(mapped)
    assert source.entry is mapped
    batch = source.batch([0, 1])
    batch.zero_()
    np.testing.assert_array_equal(np.load(tmp_path / "x.npy"), pixels)
    floats = np.ones((2, 1, 3, 3), dtype=np.float32)
    ImageSource(floats).batch().zero_()
    assert floats.all()


def test_non_finite_pixels_name_their_rows():
    images = np.zeros((9, 1, 4, 5))
    images[7, 0, 1, 1] = np.nan
    images[2, 0, 0, 0] = np.inf
    source = ImageSource(images, name="scan")
    assert source.batch([0, 1, 8]).shape == (3, 1, 4, 5)
    with pytest.raises(
        InvalidInputError, match=r"'scan' must have finite .* 2 image\(s\), rows 2, 7; repair"
    ):
        source.batch([8, 7, 2])
    images[4] = 1e300
    with pytest.raises(InvalidInputError, match="rows 4"):
        source.batch([4])


@pytest.mark.parametrize(
    ("make", "error", "match"),
    [
        (
            lambda: ImageSource(np.zeros((4, 2, 5, 5))),
            InvalidInputError,
            r"C in \{1, 3, 4\} channels, got \(4, 2",
        ),
        (lambda: ImageSource(np.zeros((4, 5))), InvalidInputError, r"must have shape .*, got \(4, 5\)"),
        (lambda: ImageSource(np.zeros((0, 5, 5))), InvalidInputError, "at least one row, got none"),
        (lambda: ImageSource(np.zeros((2, 0, 5))), InvalidInputError, r"one pixel, got \(2, 0, 5\)"),
        (lambda: ImageSource([[[1]], [[1, 2]]]), InvalidInputError, "same shape, got a ragged list"),
        (
            lambda: ImageSource(3.0),
            InvalidTypeError,
            r"__getitem__\(integer array\), got float",
        ),
        (lambda: ImageSource(np.full((2, 5, 5), "a")).batch(), InvalidTypeError, "real numbers, got <U1"),
        (
            lambda: ImageSource(np.zeros((2, 5, 5)), layout="hwc"),
            UnknownNameError,
            "one of 'grey', .*, got 'hwc'",
        ),
        (
            lambda: ImageSource(np.zeros((2, 5, 5, 2)), layout="channels_last"),
            InvalidInputError,
            "must fit the layout 'channels_last'",
        ),
        (
            lambda: ImageSource(np.zeros((2, 1, 5, 5)), shape=(3, 5, 5)),
            InvalidInputError,
            r"\(3, 5, 5\) as in fit, got \(1, 5, 5\)",
        ),
        (lambda: ImageSource(np.zeros((2, 5, 5))).batch([2]), InvalidInputError, r"lie in 0\.\.1, got 2"),
        (lambda: ImageSource(np.zeros((2, 5, 5))).batch([-3]), InvalidInputError, r"lie in 0\.\.1, got -3"),
        (
            lambda: ImageSource(np.zeros((2, 5, 5))).batch([0.5]),
            RowIndexError,
            "vector of integers or 2 booleans, got float64",
        ),
        (lambda: image_size(0), InvalidInputError, r"number of pixels or \(height, width\), got 0"),
        (lambda: image_size((1, 2, 3)), InvalidInputError, r"got \(1, 2, 3\)"),
        (
            lambda: FolderImages([], 8, mode="CMYK"),
            UnknownNameError,
            "mode must be one of 'RGB', 'L', got 'CMYK'",
        ),
    ],
)
def test_refusals(make, error, match):
    with pytest.raises(error, match=match):
        make()


def test_rows_of_changing_shape_are_refused():
    class Ragged(Strict):
        def __getitem__(self, rows):
            return np.zeros((len(rows), 4 + int(rows[0]), 4))

    with pytest.raises(InvalidInputError, match=r"shape \(1, 4, 4\) for 1 rows, got \(1, 5, 4\)"):
        ImageSource(Ragged(range(3))).batch([1])

    class Short(Strict):
        def __getitem__(self, rows):
            return np.zeros((1, 4, 4))

    with pytest.raises(InvalidInputError, match="got 1 for 2 rows"):
        ImageSource(Short(range(3))).batch([0, 1])


def test_helpers():
    assert listing(range(7)) == "0, 1, 2, 3, 4, ..."
    assert row_numbers(None, 3).tolist() == [0, 1, 2]
    assert repr(ImageSource(np.zeros((2, 5, 5)), name="a")).startswith(
        "ImageSource('a', n=2, shape=(1, 5, 5)"
    )


# --- files -----------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path, rng):
    """Three readable files: a smooth JPEG, a PNG with alpha, a grey PNG."""
    ramp = np.linspace(0, 255, 40).astype(np.uint8)
    colour = np.stack(
        [np.tile(ramp, (30, 1)), np.full((30, 40), 60, np.uint8), np.tile(ramp[:30, None], (1, 40))], 2
    )
    Image.fromarray(colour).save(tmp_path / "a.jpg", quality=95)
    Image.new("RGBA", (9, 6), (10, 20, 30, 0)).save(tmp_path / "b.png")
    Image.new("L", (9, 6), 77).save(tmp_path / "c.png")
    return tmp_path


def test_folder_images_are_an_entry(folder):
    images = FolderImages.from_folder(folder, ["a.jpg", "b.png", "c.png"], size=(6, 8))
    assert images.shape == (3, 6, 8, 3)
    assert images[[2, 1]][:, 3, 3].tolist() == [[77, 77, 77], [10, 20, 30]]
    source = ImageSource(images)
    assert source.shape == (3, 6, 8)
    assert source.batch([1, 1])[1, :, 0, 0].mul(255).tolist() == pytest.approx([10, 20, 30])
    assert "n=3" in repr(images)


def test_resize_is_close_to_block_means(folder):
    small = decode_image(folder / "a.jpg", (6, 8)).astype(float)
    full = np.asarray(Image.open(folder / "a.jpg"), dtype=float)
    means = full.reshape(6, 5, 8, 5, 3).mean(axis=(1, 3))
    assert np.abs(small - means).max() < 8  # the triangle filter is wider than a block


def test_grey_mode(folder):
    images = FolderImages([folder / "c.png"], 4, mode="L")
    assert images.shape == (1, 4, 4)
    assert (images[[0]] == 77).all()
    assert ImageSource(images).shape == (1, 4, 4)


def test_bytes_and_path_agree(folder):
    path = folder / "a.jpg"
    np.testing.assert_array_equal(decode_image(path, 8), decode_image(path.read_bytes(), 8))


def test_missing_and_escaping_names(folder):
    with pytest.raises(InvalidInputError, match=r"all 2 image files must exist, got 1 missing: .*z\.png"):
        FolderImages([folder / "a.jpg", folder / "z.png"], 8)
    for name in ("../a.jpg", "/etc/hostname", "x/../../a.jpg"):
        with pytest.raises(InvalidInputError, match="must stay inside the folder"):
            FolderImages.from_folder(folder, [name], 8)


def test_broken_files_are_named(folder):
    whole = (folder / "a.jpg").read_bytes()
    (folder / "cut.jpg").write_bytes(whole[: len(whole) // 2])
    (folder / "text.png").write_text("no image")
    (folder / "empty.png").write_bytes(b"")
    images = FolderImages.from_folder(folder, ["a.jpg", "cut.jpg", "text.png", "empty.png"], 8)
    assert images[[0]].shape == (1, 8, 8, 3)
    for row, name in enumerate(["cut.jpg", "text.png", "empty.png"], start=1):
        with pytest.raises(
            FileFormatError, match=f"{name} must be readable, got .*; replace it or leave it out"
        ):
            images[[0, row]]
    (folder / "a.jpg").unlink()
    with pytest.raises(FileFormatError, match=r"a\.jpg must be readable, got FileNotFoundError"):
        images[[0]]


def png_of_size(width: int, height: int) -> bytes:
    """A PNG that promises far more pixels than its few bytes hold."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    body = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"0" * 1000)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + body


@pytest.mark.parametrize(("side", "match"), [(9500, "must have at most 80000000 pixels"), (50_000, "Bomb")])
def test_decompression_bombs_are_refused(side, match):
    with pytest.raises(FileFormatError, match=match):
        decode_image(png_of_size(side, side), 8, name="bomb.png")


def test_very_long_images_are_refused():
    """80,000,000 x 1 pixels took 1.2 GB to resize."""
    with pytest.raises(
        FileFormatError, match="must be at most 65535 pixels wide and high, got 80000000; crop it"
    ):
        decode_image(png_of_size(80_000_000, 1), 8, name="line.png")


def test_size_limits(folder, monkeypatch):
    with pytest.raises(
        FileFormatError, match=r"a\.jpg must have at most 100 pixels, got 1200; save it smaller"
    ):
        FolderImages([folder / "a.jpg"], 8, max_pixels=100)[[0]]
    monkeypatch.setattr("deeptram.inputs.images.MAX_FILE_BYTES", 10)
    with pytest.raises(FileFormatError, match="bytes, at most 10 are read"):
        decode_image(folder / "a.jpg", 8)


def test_sixteen_bit_images_are_not_clipped_silently(tmp_path):
    Image.fromarray(np.full((4, 4), 40_000, dtype=np.uint16)).save(tmp_path / "deep.png")
    with pytest.raises(
        FileFormatError, match=r"deep\.png must have 8 bits a channel, got Pillow's mode 'I(;16)?'"
    ):
        decode_image(tmp_path / "deep.png", 2)


@pytest.mark.parametrize("suffix", ["jpg", "png"])
def test_damaged_bytes_never_raise_anything_else(folder, rng, suffix):
    whole = np.frombuffer((folder / {"jpg": "a.jpg", "png": "b.png"}[suffix]).read_bytes(), dtype=np.uint8)
    refused = 0
    for _ in range(300):
        damaged = whole.copy()
        places = rng.integers(0, len(whole), size=rng.integers(1, 6))
        damaged[places] = rng.integers(0, 256, size=len(places))
        content = damaged[: rng.integers(1, len(whole) + 1)].tobytes()
        try:
            assert decode_image(content, 8).shape == (8, 8, 3)
        except FileFormatError:
            refused += 1
    assert 0 < refused < 300


def test_pillow_is_named_where_it_is_missing(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    with pytest.raises(MissingDependencyError, match=r"run pip install 'deeptram\[images\]'"):
        decode_image(folder / "a.jpg", 8)
