"""Images as inputs: one view of arrays, memory maps, HDF5 and zarr arrays and files on disk.

The rule for the layout of an entry of ``X`` with n images (C in {1, 3, 4}):

* three axes: grey images ``(n, H, W)``;
* four axes, the second in {1, 3, 4}: channels first, ``(n, C, H, W)``;
* otherwise, the last in {1, 3, 4}: channels last, ``(n, H, W, C)``.

Where both fit (tiny images), channels first wins; wrap the entry in
``ImageSource(entry, layout="channels_last")`` to say otherwise. ``uint8`` pixels
are divided by 255, other numbers are taken as they are. Image files are decoded
when asked for, with every file treated as untrusted.
"""

from __future__ import annotations

import io
import os
import struct
import warnings
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from deeptram._arrays import row_numbers
from deeptram._threads import alone
from deeptram._validation import check_choice, n_rows
from deeptram.errors import FileFormatError, InvalidInputError, InvalidTypeError, optional_module
from deeptram.inputs.entries import PixelScale

CHANNELS = (1, 3, 4)
LAYOUTS = ("grey", "channels_first", "channels_last")


def detect_layout(shape: Sequence[int], *, name: str = "image") -> str:
    """Return ``"grey"``, ``"channels_first"`` or ``"channels_last"`` for the shape of an entry.

    Examples
    --------
    >>> detect_layout((100, 28, 28)), detect_layout((100, 3, 64, 64)), detect_layout((100, 64, 64, 3))
    ('grey', 'channels_first', 'channels_last')
    """
    shape = tuple(shape)
    if len(shape) == 3:
        return "grey"
    if len(shape) == 4 and shape[1] in CHANNELS:
        return "channels_first"
    if len(shape) == 4 and shape[3] in CHANNELS:
        return "channels_last"
    raise InvalidInputError(
        f"images {name!r} must have shape (n, C, H, W), (n, H, W) or (n, H, W, C) with C in {{1, 3, 4}} "
        f"channels, got {shape}; reshape them, or write dt.AsIs(array), which a network gets as it is"
    )


class ImageSource:
    """Batches of images ``(b, C, H, W)`` in float32 from anything indexable.

    Parameters
    ----------
    entry
        An array, memory map, tensor, nested list, or any object with ``len()`` and
        ``__getitem__(integer array) -> array`` along the first axis.
    name
        The column's name, for messages.
    layout
        ``"grey"``, ``"channels_first"``, ``"channels_last"``, or None to detect it.
    shape
        The shape ``(C, H, W)`` the images must have, as seen in ``fit``.
    seen
        The scale of the pixels seen in ``fit``; images on another one are refused.

    Examples
    --------
    >>> source = ImageSource(np.full((4, 8, 8, 3), 255, dtype=np.uint8))
    >>> len(source), source.shape
    (4, (3, 8, 8))
    >>> source.batch([2, 0]).shape, source.batch([2]).max().item()
    (torch.Size([2, 3, 8, 8]), 1.0)
    """

    def __init__(
        self,
        entry: Any,
        *,
        name: str = "image",
        layout: str | None = None,
        shape: Sequence[int] | None = None,
        seen: PixelScale | None = None,
    ) -> None:
        inner: Any = entry
        if isinstance(entry, ImageSource):
            layout, inner = layout or entry.layout, entry.entry
        self.name = name
        self.entry: Any = _indexable(inner, name)
        self._n = n_rows(self.entry)
        self._row_shape = _row_shape(self.entry, name)
        full = (self._n, *self._row_shape)
        self.layout: str = (
            detect_layout(full, name=name) if layout is None else _check_layout(layout, full, name)
        )
        self.shape: tuple[int, int, int] = _image_shape(self._row_shape, self.layout)
        if min(self.shape) < 1:
            raise InvalidInputError(f"images {name!r} must have at least one pixel, got {full}; reshape them")
        if shape is not None and self.shape != tuple(shape):
            raise InvalidInputError(
                f"images {name!r} must have shape (C, H, W) = {tuple(shape)} as in fit, got {self.shape}; "
                "resize or convert them in the same way"
            )
        self._seen, self._told = seen, False
        if seen is not None and getattr(self.entry, "dtype", None) == np.uint8:
            seen.check_bytes(name)

    def __len__(self) -> int:
        return self._n

    def __getitem__(self, rows: Any) -> NDArray[np.float32]:
        """Return a batch as a NumPy array, so that a source is itself a valid entry of ``X``."""
        return self.batch(rows).numpy()

    def __repr__(self) -> str:
        return f"ImageSource({self.name!r}, n={len(self)}, shape={self.shape}, layout={self.layout!r})"

    def batch(self, rows: Any = None) -> Tensor:
        """Return the images of the given rows, ``(b, C, H, W)`` float32; all rows for None.

        Rows may repeat, come in any order, and count from the end when negative.
        Pixels that are NaN or infinite raise an error that names their rows.
        """
        index = row_numbers(rows, len(self), self.name)
        pixels = _read(self.entry, index, self.name)
        if pixels.shape != (len(index), *self._row_shape):
            raise InvalidInputError(
                f"images {self.name!r} must give an array of shape {(len(index), *self._row_shape)} for "
                f"{len(index)} rows, got {pixels.shape}; give all images the same shape"
            )
        return self._to_tensor(pixels, index)

    def _to_tensor(self, pixels: NDArray[Any], index: NDArray[np.int64]) -> Tensor:
        if pixels.dtype.kind not in "buif":
            raise InvalidTypeError(
                f"images {self.name!r} must hold real numbers, got {pixels.dtype}; for image files use "
                "deeptram.inputs.FolderImages"
            )
        if self.layout == "channels_last":
            pixels = np.moveaxis(pixels, 3, 1)
        elif self.layout == "grey":
            pixels = pixels[:, None]
        with np.errstate(over="ignore"):  # values beyond float32 become infinite and are named below
            batch = torch.from_numpy(np.array(pixels, dtype=np.float32, order="C"))
        if pixels.dtype == np.uint8:
            if self._seen is not None:
                self._seen.check_bytes(self.name)
            return batch.div_(255)
        if pixels.dtype.kind == "f" and not torch.isfinite(batch).all():
            bad = index[~torch.isfinite(batch).flatten(1).all(dim=1).numpy()]
            raise InvalidInputError(
                f"images {self.name!r} must have finite pixels, got NaN or infinite ones in {len(bad)} "
                f"image(s), rows {listing(np.unique(bad))}; repair or leave out these rows"
            )
        if self._seen is not None and len(batch):
            ends = float(batch.min()), float(batch.max())
            self._told = self._seen.check_range(*ends, self.name, told=self._told)
        return batch


def _check_layout(layout: str, shape: tuple[int, ...], name: str) -> str:
    check_choice(layout, LAYOUTS, "layout")
    axis = {"grey": None, "channels_first": 1, "channels_last": 3}[layout]
    if len(shape) != (3 if axis is None else 4) or (axis is not None and shape[axis] not in CHANNELS):
        raise InvalidInputError(
            f"images {name!r} must fit the layout {layout!r} (1, 3 or 4 channels), got {shape}; reshape them"
        )
    return layout


def _image_shape(row: tuple[int, ...], layout: str) -> tuple[int, int, int]:
    if layout == "grey":
        return 1, row[0], row[1]
    return (row[0], row[1], row[2]) if layout == "channels_first" else (row[2], row[0], row[1])


def _indexable(entry: Any, name: str) -> Any:
    """Return arrays as NumPy arrays, and other indexable objects as they are."""
    if isinstance(entry, Tensor):
        return entry.detach().cpu().numpy()
    if isinstance(entry, np.ndarray):
        return entry
    if isinstance(entry, (list, tuple)):
        try:
            return np.asarray(entry)
        except ValueError as error:
            raise InvalidInputError(
                f"images {name!r} must all have the same shape, got a ragged list; resize them"
            ) from error
    if not hasattr(entry, "__getitem__") or not (hasattr(entry, "__len__") or hasattr(entry, "shape")):
        raise InvalidTypeError(
            f"images {name!r} must be an array or have len() and __getitem__(integer array), "
            f"got {type(entry).__name__}; convert it"
        )
    return entry


def _row_shape(entry: Any, name: str) -> tuple[int, ...]:
    if n_rows(entry) == 0:
        raise InvalidInputError(f"images {name!r} must have at least one row, got none; add rows")
    if hasattr(entry, "shape"):
        return tuple(int(size) for size in entry.shape[1:])
    return tuple(np.asarray(entry[np.zeros(1, dtype=np.int64)]).shape[1:])


def _read(entry: Any, index: NDArray[np.int64], name: str) -> NDArray[Any]:
    """Index along the first axis; foreign objects are asked for sorted, unique rows as HDF5 needs."""
    if isinstance(entry, np.ndarray):
        return entry[index]
    if len(index) == 0:
        return np.asarray(entry[np.zeros(1, dtype=np.int64)])[:0]
    unique, inverse = np.unique(index, return_inverse=True)
    pixels = entry[unique]
    pixels = pixels.detach().cpu().numpy() if isinstance(pixels, Tensor) else np.asarray(pixels)
    if len(unique) != len(pixels):
        raise InvalidInputError(
            f"images {name!r} must return one image per row, got {len(pixels)} for {len(unique)} rows; "
            "correct its __getitem__"
        )
    return pixels if len(unique) == len(index) and np.array_equal(unique, index) else pixels[inverse]


def listing(values: Any, limit: int = 5) -> str:
    """Return the first few values as text for a message.

    Examples
    --------
    >>> listing(range(9), limit=3)
    '0, 1, 2, ...'
    """
    shown = ", ".join(str(value) for value in list(values)[:limit])
    return shown if len(values) <= limit else f"{shown}, ..."


MAX_PIXELS = 80_000_000
MAX_SIDE = 65_535  # of a JPEG file; resizing a longer line of pixels takes many times its memory
MAX_FILE_BYTES = 256 * 2**20
FORMATS = ("JPEG", "PNG", "BMP", "TIFF", "WEBP")
SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".tif", ".tiff", ".webp")
# Pillow's modes with 8 bits a channel; it would clip 16-bit ones silently.
MODES = ("1", "L", "LA", "La", "P", "PA", "RGB", "RGBA", "RGBa", "RGBX", "CMYK", "YCbCr", "LAB", "HSV")
# What Pillow raises on damaged files.
BROKEN = (
    OSError,
    ValueError,
    SyntaxError,
    EOFError,
    LookupError,
    TypeError,
    ArithmeticError,
    MemoryError,
    AttributeError,
    struct.error,
    zlib.error,
)


class ImageFiles(ABC):
    """Image files decoded when asked for, in one size; an entry of ``X`` that needs no memory.

    Implementing one: call ``__init__``, and let ``_files`` give the files of some rows.
    """

    def __init__(self, n: int, size: int | tuple[int, int], mode: str, max_pixels: int) -> None:
        self.size = image_size(size)
        self.mode = _check_mode(mode)
        self.max_pixels = max_pixels
        self.shape: tuple[int, ...] = (n, *self.size, *((3,) if mode == "RGB" else ()))
        self.dtype = np.dtype(np.uint8)

    @abstractmethod
    def _files(self, index: NDArray[np.int64]) -> Iterator[tuple[int, str, Path | bytes]]:
        """Yield position in ``index``, name and file (or its content) of the given rows, in any order."""

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Any) -> NDArray[np.uint8]:
        """Decode the images of the given rows into one uint8 array."""
        index = row_numbers(rows, len(self), "image")
        batch = np.empty((len(index), *self.shape[1:]), dtype=np.uint8)
        for position, name, file in self._files(index):
            batch[position] = decode_image(
                file, self.size, mode=self.mode, max_pixels=self.max_pixels, name=name
            )
        return batch


class FolderImages(ImageFiles):
    """Image files decoded when asked for; an entry of ``X`` that needs no memory.

    Parameters
    ----------
    paths
        One path per row.
    size
        Side in pixels, or ``(height, width)``; each image is resized to it (aspect
        ratio not kept, bilinear with antialiasing).
    mode
        ``"RGB"`` gives ``(b, H, W, 3)``, ``"L"`` (grey) gives ``(b, H, W)``, both uint8.
    max_pixels
        Larger images are refused before they are decoded.

    Examples
    --------
    >>> import tempfile
    >>> from PIL import Image
    >>> folder = tempfile.TemporaryDirectory()
    >>> Image.new("RGB", (20, 10), (255, 0, 0)).save(f"{folder.name}/a.png")
    >>> images = FolderImages.from_folder(folder.name, ["a.png", "a.png"], size=8)
    >>> images.shape, images[[1]][0, 0, 0].tolist()
    ((2, 8, 8, 3), [255, 0, 0])
    >>> folder.cleanup()
    """

    def __init__(
        self,
        paths: Sequence[str | os.PathLike[str]],
        size: int | tuple[int, int],
        *,
        mode: str = "RGB",
        max_pixels: int = MAX_PIXELS,
    ) -> None:
        self.paths = tuple(Path(path) for path in paths)
        super().__init__(len(self.paths), size, mode, max_pixels)
        missing = [str(path) for path in self.paths if not path.is_file()]
        if missing:
            shown = listing(missing)
            raise InvalidInputError(
                f"all {len(self.paths)} image files must exist, got {len(missing)} missing: {shown}; "
                "complete the folder"
            )

    @classmethod
    def from_folder(
        cls,
        folder: str | os.PathLike[str],
        names: Sequence[str],
        size: int | tuple[int, int],
        *,
        mode: str = "RGB",
        max_pixels: int = MAX_PIXELS,
    ) -> FolderImages:
        """Return the images with the given names below ``folder``; names may not lead out of it."""
        root = Path(folder)
        outside = [str(name) for name in names if Path(name).is_absolute() or ".." in Path(name).parts]
        if outside:
            raise InvalidInputError(
                f"image names must stay inside the folder {root}, got {listing(outside)}; "
                "use names relative to the folder"
            )
        return cls([root / name for name in names], size, mode=mode, max_pixels=max_pixels)

    def _files(self, index: NDArray[np.int64]) -> Iterator[tuple[int, str, Path]]:
        return ((position, str(self.paths[row]), self.paths[row]) for position, row in enumerate(index))

    def __repr__(self) -> str:
        return f"FolderImages(n={len(self)}, size={self.size}, mode={self.mode!r})"


def decode_image(
    source: str | os.PathLike[str] | bytes,
    size: int | tuple[int, int],
    *,
    mode: str = "RGB",
    max_pixels: int = MAX_PIXELS,
    name: str | None = None,
) -> NDArray[np.uint8]:
    """Decode one image file (or its bytes) and resize it.

    The file is untrusted: only plain formats are tried, and size in bytes, pixels
    and the longer side are checked before anything is allocated.

    Parameters
    ----------
    source
        Path or content of a JPEG, PNG, BMP, TIFF or WebP file with 8 bits a channel.
    size
        Side in pixels, or ``(height, width)``.
    mode
        ``"RGB"`` or ``"L"``.
    max_pixels
        Larger images are refused.
    name
        What to call the image in messages; the path by default.

    Returns
    -------
    Array ``(H, W, 3)`` or ``(H, W)``, uint8.
    """
    pillow = optional_module("PIL.Image", "decoding image files (Pillow)", "images")
    height, width = image_size(size)
    _check_mode(mode)
    name = name or (f"of {len(source)} bytes" if isinstance(source, bytes) else os.fspath(source))
    try:
        n_bytes = len(source) if isinstance(source, bytes) else os.stat(source).st_size
        if n_bytes > MAX_FILE_BYTES:
            raise OSError(f"{n_bytes} bytes, at most {MAX_FILE_BYTES} are read")
        with alone(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Pillow's notes on odd metadata; the size is checked below
            with pillow.open(
                io.BytesIO(source) if isinstance(source, bytes) else source, formats=FORMATS
            ) as image:
                kind, n_pixels, side = image.mode, image.width * image.height, max(image.size)
                if n_pixels <= max_pixels and side <= MAX_SIDE and kind in MODES:
                    image.draft(mode, (2 * width, 2 * height))  # JPEG: decode at a lower resolution
                    resized = image.convert(mode).resize((width, height), pillow.Resampling.BILINEAR)
                    return np.array(resized, dtype=np.uint8)
    except (*BROKEN, pillow.DecompressionBombError) as error:
        raise FileFormatError(
            f"image {name} must be readable, got {type(error).__name__} ({error}); replace it or leave it out"
        ) from error
    if n_pixels > max_pixels:
        raise FileFormatError(
            f"image {name} must have at most {max_pixels} pixels, got {n_pixels}; save it smaller"
        )
    if side > MAX_SIDE:
        raise FileFormatError(
            f"image {name} must be at most {MAX_SIDE} pixels wide and high, got {side}; crop it"
        )
    raise FileFormatError(
        f"image {name} must have 8 bits a channel, got Pillow's mode {kind!r}; convert it first"
    )


def image_size(size: int | tuple[int, int]) -> tuple[int, int]:
    """Return ``(height, width)`` for a side or a pair.

    Examples
    --------
    >>> image_size(32), image_size((24, 32))
    ((32, 32), (24, 32))
    """
    pair = (size, size) if isinstance(size, (int, np.integer)) else tuple(size)
    if len(pair) != 2 or any(not isinstance(side, (int, np.integer)) or side < 1 for side in pair):
        raise InvalidInputError(
            f"size must be a number of pixels or (height, width), got {size!r}; use positive integers"
        )
    return int(pair[0]), int(pair[1])


def _check_mode(mode: str) -> str:
    return check_choice(mode, ("RGB", "L"), "mode")
