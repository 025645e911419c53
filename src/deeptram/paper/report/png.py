"""Small images as PNG in a data address, without any imaging library."""

from __future__ import annotations

import base64
import struct
import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray


def png_bytes(image: NDArray[np.uint8]) -> bytes:
    """Return an image (H, W) or (H, W, 3) as a PNG file.

    Examples
    --------
    >>> png_bytes(np.zeros((2, 3), dtype=np.uint8))[1:4]
    b'PNG'
    """
    pixels: NDArray[Any] = np.ascontiguousarray(image, dtype=np.uint8)
    height, width = pixels.shape[:2]
    colour = 2 if pixels.ndim == 3 else 0
    rows = b"".join(b"\x00" + row.tobytes() for row in pixels)
    header = struct.pack(">IIBBBBB", width, height, 8, colour, 0, 0, 0)
    body = _chunk(b"IHDR", header) + _chunk(b"IDAT", zlib.compress(rows, 9)) + _chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + body


def png_address(image: NDArray[np.uint8]) -> str:
    """Return an image as the address of an ``<img>``.

    Examples
    --------
    >>> png_address(np.zeros((2, 2, 3), dtype=np.uint8))[:22]
    'data:image/png;base64,'
    """
    return "data:image/png;base64," + base64.b64encode(png_bytes(image)).decode("ascii")


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
