"""Image files: decoded when asked for, with every file treated as untrusted."""

from __future__ import annotations

import io
import os
import struct
import warnings
import zlib
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deeptram._arrays import row_numbers
from deeptram._threads import alone
from deeptram._validation import check_choice
from deeptram.errors import FileFormatError, InvalidInputError, MissingDependencyError
from deeptram.inputs.images import listing

MAX_PIXELS = 80_000_000
MAX_SIDE = 65_535  # of a JPEG file; resizing a longer line of pixels takes many times its memory
MAX_FILE_BYTES = 256 * 2**20
FORMATS = ("JPEG", "PNG", "BMP", "TIFF", "WEBP")
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


class FolderImages:
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
        self.size = image_size(size)
        self.mode = _check_mode(mode)
        self.max_pixels = max_pixels
        self.shape: tuple[int, ...] = (len(self.paths), *self.size, *((3,) if mode == "RGB" else ()))
        self.dtype = np.dtype(np.uint8)
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

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, rows: Any) -> NDArray[np.uint8]:
        """Decode the images of the given rows into one uint8 array."""
        index = row_numbers(rows, len(self), "image")
        batch = np.empty((len(index), *self.shape[1:]), dtype=np.uint8)
        for position, row in enumerate(index):
            batch[position] = decode_image(
                self.paths[row], self.size, mode=self.mode, max_pixels=self.max_pixels
            )
        return batch

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
    pillow = _pillow()
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


def _pillow() -> ModuleType:
    try:
        import PIL.Image
    except ImportError as error:
        raise MissingDependencyError(
            "decoding image files needs Pillow, got no such package; run pip install 'deeptram[images]'"
        ) from error
    return PIL.Image


def _check_mode(mode: str) -> str:
    return check_choice(mode, ("RGB", "L"), "mode")
