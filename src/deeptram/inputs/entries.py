"""Entries of a dict ``X`` that are no columns: tensors as they are, torch data sets, the scale of images.

Networks see what a table cannot hold: token numbers, sequences, volumes, images with
seven channels, and whatever a ``torch.utils.data.Dataset`` reads and decodes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset

from deeptram._arrays import row_numbers
from deeptram._rows import is_memory_map, take_rows
from deeptram._validation import n_rows
from deeptram.errors import (
    DroppedPartsWarning,
    ExtrapolationWarning,
    InvalidInputError,
    InvalidTypeError,
    warn,
)

if TYPE_CHECKING:
    from deeptram.inputs.images import ImageSource

_ROWS_SEEN = 64  # of images that are read in batches
_FAR_OUT = 0.75  # of that range: standardised images are farther from pixels of 0 to 1, noise is nearer
_OTHER_UNIT = 10.0  # times the range of the training images: outliers are nearer, 255 instead of 1 is not


@dataclass(frozen=True)
class PixelScale:
    """The scale of the pixels a network was trained on, by which images on another one are found.

    Parameters
    ----------
    low, high : float
        Smallest and largest pixel after bytes were divided by 255: 0 and 1 for bytes; of entries
        that are read in batches those of some rows.

    Examples
    --------
    >>> from deeptram.inputs.images import ImageSource
    >>> PixelScale.of(ImageSource(np.zeros((4, 8, 8), dtype=np.uint8)))
    PixelScale(low=0.0, high=1.0)
    """

    low: float
    high: float

    @classmethod
    def of(cls, images: ImageSource) -> PixelScale:
        """Return the scale of training images."""
        if getattr(images.entry, "dtype", None) == np.uint8:
            return cls(0.0, 1.0)
        in_memory = isinstance(images.entry, np.ndarray) and not is_memory_map(images.entry)
        some = np.unique(np.linspace(0, len(images) - 1, _ROWS_SEEN).astype(np.int64))
        pixels = images.batch(None if in_memory else some)
        return cls(float(pixels.min()), float(pixels.max()))

    def check_bytes(self, name: str) -> None:
        """Raise if bytes, which are divided by 255, are on another scale than the training images."""
        if self.high > 2.0 or self.low < -1.0:  # training images in [0, 1] may come as bytes later
            raise InvalidInputError(
                f"images {name!r} must have the scale they were trained on, numbers from {self.low:.4g} to "
                f"{self.high:.4g}, got bytes, which are divided by 255; convert them as for fit"
            )

    def check_range(self, low: float, high: float, name: str, *, told: bool = False) -> bool:
        """Raise if numbers lie so far out of the training range that they have another unit.

        If they lie far out, warn, unless that was ``told`` before; returns whether it is told now.
        """
        width = max(self.high - self.low, 1e-3)
        beyond = max(self.low - low, high - self.high) / width
        small = self.high > 2 * _OTHER_UNIT and low < high <= 1.0 and low >= 0.0
        if not (beyond > _FAR_OUT or small):
            return told
        of_bytes = " (bytes divided by 255)" if (self.low, self.high) == (0.0, 1.0) else ""
        message = (
            f"images {name!r} must have the scale they were trained on, pixels from {self.low:.4g} to "
            f"{self.high:.4g}{of_bytes}, got {low:.4g} to {high:.4g}; use the same unit"
        )
        if beyond > _OTHER_UNIT or small:
            raise InvalidInputError(message)
        if not told:
            warn(f"{message}, and no other standardisation.", ExtrapolationWarning)
        return True


class AsIs:
    """An entry of ``X`` that a network gets as it is: nothing is scaled, encoded or moved.

    For token numbers ``(n, L)``, sequences ``(n, L, d)``, volumes ``(n, C, D, H, W)``,
    images with other than 1, 3 or 4 channels. Integers stay integers (for
    ``nn.Embedding``), other numbers come in the precision of the network.

    Parameters
    ----------
    entry : array, tensor, nested list, or object with ``len()`` and ``__getitem__(integer array) -> array``
        Rows along the first axis; of a torch data set, its items.

    Examples
    --------
    >>> tokens = AsIs([[3, 1, 4], [1, 5, 9]])
    >>> len(tokens), tokens.row_shape, tokens[np.array([1])]
    (2, (3,), array([[1, 5, 9]]))
    """

    def __init__(self, entry: Any) -> None:
        if isinstance(entry, (list, tuple)):
            try:
                entry = np.asarray(entry)
            except ValueError as error:
                raise InvalidInputError(
                    "rows of dt.AsIs must all have the same shape, got a ragged list; pad them"
                ) from error
        if isinstance(entry, Dataset):
            entry = DatasetRows(entry).told("of dt.AsIs")
        self.entry: Any = entry.entry if isinstance(entry, AsIs) else entry
        self._n = n_rows(self.entry)
        if self._n == 0:
            raise InvalidInputError("dt.AsIs must hold at least one row, got none; add rows")
        self.row_shape: tuple[int, ...] = self[np.zeros(1, dtype=np.int64)].shape[1:]
        if not self.row_shape:
            raise InvalidInputError(
                "dt.AsIs needs rows of at least one axis, got one number per row; pass it as a plain column"
            )

    def __len__(self) -> int:
        return self._n

    def __getitem__(self, rows: Any) -> NDArray[Any]:
        """Return some rows as an array of numbers."""
        found = self.entry[row_numbers(rows, self._n)]
        values = found.detach().cpu().numpy() if isinstance(found, torch.Tensor) else np.asarray(found)
        if values.dtype.kind not in "buif":
            raise InvalidTypeError(
                f"dt.AsIs must hold numbers of one shape per row, got {values.dtype}; convert and pad them"
            )
        return values

    def take(self, rows: Any) -> AsIs:
        """Return some rows, as an entry of the same kind."""
        return AsIs(take_rows(self.entry, rows))

    def __repr__(self) -> str:
        return f"AsIs(n={len(self)}, row_shape={self.row_shape})"


class DatasetRows:
    """A map-style ``torch.utils.data.Dataset`` as an entry of ``X``: item i is row i.

    Of items that are tuples ``(input, target)`` the first part counts; the outcome is y (see :meth:`told`).

    Parameters
    ----------
    dataset : torch.utils.data.Dataset
        With ``len()``; items are tensors, arrays or PIL images of one shape.

    Examples
    --------
    >>> rows = DatasetRows(torch.utils.data.TensorDataset(torch.arange(6.0).reshape(3, 2)))
    >>> rows.shape, rows[[2]]
    ((3, 2), array([[4., 5.]], dtype=float32))
    """

    def __init__(self, dataset: Any) -> None:
        if not hasattr(dataset, "__len__") or isinstance(dataset, IterableDataset):
            raise InvalidTypeError(
                "a data set in X must know its length and give item i, got an iterable one; "
                "use a map-style torch.utils.data.Dataset, whose item i is row i"
            )
        self.dataset = dataset
        self.shape: tuple[int, ...] = (len(dataset), *(self._item(0).shape if len(dataset) else ()))

    def told(self, which: str) -> DatasetRows:
        """Return the rows themselves; warn if items have parts that nobody sees.

        Parameters
        ----------
        which : str
            How the data set is called in the message.
        """
        first = self.dataset[0] if len(self) else None
        if isinstance(first, (tuple, list)) and len(first) > 1:
            warn(
                f"items of the data set {which} must be what a network sees of a row, got {len(first)} "
                "parts, of which it sees the first only (outcomes are those of y); pass a data set of inputs "
                "alone.",
                DroppedPartsWarning,
            )
        return self

    @property
    def ndim(self) -> int:
        """Number of axes of all rows together."""
        return len(self.shape)

    def __len__(self) -> int:
        return len(self.dataset)

    def _item(self, row: int) -> NDArray[Any]:
        item = self.dataset[row]
        if isinstance(item, (tuple, list)):
            item = item[0]
        return item.detach().cpu().numpy() if isinstance(item, torch.Tensor) else np.asarray(item)

    def __getitem__(self, rows: Any) -> NDArray[Any]:
        """Return the items of some rows as one array."""
        items = [self._item(int(row)) for row in row_numbers(rows, len(self))]
        shapes = {item.shape for item in items} | {self.shape[1:]}
        if len(shapes) > 1:
            raise InvalidInputError(
                f"items of a data set must have one shape, got {' and '.join(map(str, sorted(shapes)))}; "
                "resize or pad them in its __getitem__"
            )
        return np.stack(items) if items else np.empty((0, *self.shape[1:]))

    def take(self, rows: Any) -> DatasetRows:
        """Return some rows, as an entry of the same kind."""
        return DatasetRows(Subset(self.dataset, row_numbers(rows, len(self)).tolist()))


def readable_entries(X: Any, *, tell: bool = True) -> Any:
    """Return X with its torch data sets and lists of arrays readable row by row; other X as it is.

    Parameters
    ----------
    X : data
    tell : bool
        Warn of items of data sets that have parts which nobody sees.

    Examples
    --------
    >>> readable_entries({"a": [1.0]})
    {'a': [1.0]}
    """
    for value in X.values() if isinstance(X, Mapping) else (X,):
        if isinstance(value, DataLoader):
            raise InvalidTypeError(
                "X must hold the data themselves, got a DataLoader; pass its data set as an entry, "
                "X={'image': loader.dataset}: batches are made by Training(batch_size=...)"
            )
    if isinstance(X, Dataset):
        raise InvalidTypeError(
            f"X must be a table or a dict of named entries, got the data set {type(X).__name__}; "
            "write X={'image': dataset} and pass the outcomes as y"
        )
    if isinstance(X, pd.DataFrame):
        arrays = [name for j, name in enumerate(X.columns) if _holds_arrays(X.iloc[:, j])]
        if arrays:
            raise InvalidTypeError(
                f"columns of a table hold one number or label a row, got arrays in {arrays[0]!r}; pass X as "
                f"a dict of entries, X={{{arrays[0]!r}: np.stack(table[{arrays[0]!r}]), ...}}"
            )
    return {name: _readable(value, name, tell) for name, value in X.items()} if isinstance(X, Mapping) else X


def _readable(value: Any, name: str, tell: bool) -> Any:
    if isinstance(value, Dataset):
        return DatasetRows(value).told(repr(name)) if tell else DatasetRows(value)
    if not _holds_arrays(value):
        return value
    shapes = sorted({np.shape(row) for row in value})
    if len(shapes) > 1:
        raise InvalidInputError(
            f"rows of {name!r} must all have the same shape, got a ragged list with {shapes[0]} and "
            f"{shapes[1]}; resize or pad them"
        )
    return np.stack([np.asarray(row) for row in value])


def _holds_arrays(value: Any) -> bool:
    """Whether a list or a column of objects has an array in each row."""
    listed = isinstance(value, (list, tuple)) or str(getattr(value, "dtype", "")) == "object"
    if not listed or getattr(value, "ndim", 1) != 1 or len(value) == 0:
        return False
    first = value.iloc[0] if isinstance(value, pd.Series) else value[0]
    return isinstance(first, (np.ndarray, torch.Tensor)) and first.ndim > 0
