"""What a network sees: columns of X as tensors, with the encoding kept for new data.

The columns of a term become one tensor or several:

* all tabular columns together are one table ``(b, p)``: numbers as they are,
  factors as indicators (first level left out), two-dimensional entries of a
  dict column by column; every column is centred and scaled by the mean and the
  standard deviation of the training rows;
* each image column is one tensor ``(b, C, H, W)``.

With one tensor the factory is called with its shape, ``net((p,), out_features)``
or ``net((C, H, W), out_features)``. With several it is called with a tuple of
shapes, ``net(((C, H, W), (p,)), out_features)``, and the module with as many
tensors, in the order in which the columns were written (the table stands where
its first column stands).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from deeptram.errors import InvalidInputError
from deeptram.inputs.batches import Source, TableSource, image_batches
from deeptram.inputs.encode import LinearEncoder
from deeptram.inputs.images import ImageSource
from deeptram.inputs.table import Table, check_finite_columns, did_not_find, read_table

Floats = npt.NDArray[np.float64]
Shape = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class TableInput:
    """Tabular columns as one standardised matrix.

    Parameters
    ----------
    encoder : LinearEncoder or None
        How plain columns become numbers.
    blocks : tuple of (str, int)
        Two-dimensional entries of a dict and their widths.
    mean, sd : array, shape (p,)
        Of the training rows; the standard deviation of a constant column is 1.
    """

    encoder: LinearEncoder | None
    blocks: tuple[tuple[str, int], ...]
    mean: Floats
    sd: Floats

    @property
    def shape(self) -> Shape:
        """Shape of one row, ``(p,)``."""
        return (len(self.mean),)

    def values(self, X: Any, estimator: str = "the model") -> Floats:
        """Return the standardised matrix of some rows, shape (n, p)."""
        return (_raw_table(X, self.encoder, self.blocks, estimator) - self.mean) / self.sd

    def source(self, X: Any, dtype: torch.dtype, device: torch.device | str, estimator: str) -> Source:
        """Return the rows of new data as a source of batches."""
        return TableSource(self.values(X, estimator), dtype, device)

    def to_dict(self) -> dict[str, Any]:
        """Return the input as JSON-able values."""
        return {
            "kind": "table",
            "encoder": None if self.encoder is None else self.encoder.to_dict(),
            "blocks": [[name, width] for name, width in self.blocks],
            "mean": self.mean.tolist(),
            "sd": self.sd.tolist(),
        }


@dataclass(frozen=True)
class ImageInput:
    """One column of images.

    Parameters
    ----------
    name : str
        The column.
    shape : tuple of int
        (C, H, W), as seen in fitting.
    """

    name: str
    shape: Shape

    def source(self, X: Any, dtype: torch.dtype, device: torch.device | str, estimator: str) -> Source:
        """Return the images of new data as a source of batches; another shape than in fitting is refused."""
        return image_batches(ImageSource(X[self.name], name=self.name, shape=self.shape), dtype, device)

    def to_dict(self) -> dict[str, Any]:
        """Return the input as JSON-able values."""
        return {"kind": "image", "name": self.name, "shape": list(self.shape)}


@dataclass(frozen=True, eq=False)
class NetworkInputs:
    """The tensors one network is called with.

    Parameters
    ----------
    parts : tuple of TableInput and ImageInput
        In the order of the network's arguments.

    Examples
    --------
    >>> X = {"mri": np.zeros((4, 8, 8)), "age": [61.0, 50.0, 43.0, 30.0], "sex": ["f", "m", "m", "f"]}
    >>> NetworkInputs.fit(X, ("age", "sex")).in_shape
    (2,)
    >>> NetworkInputs.fit(X, ("mri",)).in_shape
    (1, 8, 8)
    >>> NetworkInputs.fit(X, ()).in_shape
    ((1, 8, 8), (2,))
    """

    parts: tuple[TableInput | ImageInput, ...]

    @classmethod
    def fit(cls, X: Any, columns: Sequence[str], *, estimator: str = "the model") -> NetworkInputs:
        """Learn encodings, means and standard deviations from training rows.

        Parameters
        ----------
        X : DataFrame, 2-d array or dict of arrays
        columns : sequence of str
            The columns the network sees; none means all of X.
        estimator : str
            Name used in messages.
        """
        table = read_table(X, estimator)
        entries = table.source if isinstance(table.source, Mapping) else {}
        known = [str(name) for name in entries] if entries else list(table.names)
        names = list(columns) or known
        for name in names:
            if name not in known:
                raise InvalidInputError(did_not_find(name, known))
        blocks = [name for name in names if name in table.names and _width(entries.get(name)) is not None]
        plain = tuple(name for name in names if name in table.names and name not in blocks)
        parts: list[TableInput | ImageInput] = []
        for name in names:
            if name not in table.names:
                images = ImageSource(entries[name], name=name)
                parts.append(ImageInput(name, images.shape))
            elif not any(isinstance(part, TableInput) for part in parts):
                parts.append(_fit_table(table, plain, blocks, estimator))
        return cls(tuple(parts))

    @property
    def in_shape(self) -> Shape | tuple[Shape, ...]:
        """What the factory gets as ``in_shape``: one shape, or a tuple of shapes for several tensors."""
        shapes = tuple(part.shape for part in self.parts)
        return shapes[0] if len(shapes) == 1 else shapes

    @property
    def shapes(self) -> tuple[Shape, ...]:
        """The shape of one row of each tensor."""
        return tuple(part.shape for part in self.parts)

    @property
    def has_images(self) -> bool:
        """Whether an image is among the inputs."""
        return any(isinstance(part, ImageInput) for part in self.parts)

    def sources(
        self,
        X: Any,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
        *,
        estimator: str = "the model",
    ) -> list[Source]:
        """Return the rows of any data as sources of batches, one per tensor.

        Raises
        ------
        InvalidInputError
            If a column is missing, images have another shape than in fitting,
            or their number differs from the rows of the other columns.
        """
        table = read_table(X, estimator)
        for part in self.parts:
            if isinstance(part, ImageInput) and part.name not in _entries(table):
                raise InvalidInputError(did_not_find(part.name, [*map(str, _entries(table)), *table.names]))
        return [
            part.source(X if isinstance(part, ImageInput) else table, dtype, device, estimator)
            for part in self.parts
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return the inputs as JSON-able values."""
        return {"parts": [part.to_dict() for part in self.parts]}

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> NetworkInputs:
        """Rebuild the inputs from :meth:`to_dict`.

        Examples
        --------
        >>> inputs = NetworkInputs.fit({"a": [1.0, 2.0]}, ("a",))
        >>> NetworkInputs.from_dict(inputs.to_dict()).in_shape
        (1,)
        """
        return cls(tuple(_part_from_dict(part) for part in state["parts"]))


def _part_from_dict(state: Mapping[str, Any]) -> TableInput | ImageInput:
    if state["kind"] == "image":
        return ImageInput(str(state["name"]), tuple(int(size) for size in state["shape"]))
    encoder = state["encoder"]
    return TableInput(
        None if encoder is None else LinearEncoder.from_dict(encoder),
        tuple((str(name), int(width)) for name, width in state["blocks"]),
        np.array(state["mean"], dtype=np.float64),
        np.array(state["sd"], dtype=np.float64),
    )


def _fit_table(table: Table, plain: tuple[str, ...], blocks: Sequence[str], estimator: str) -> TableInput:
    encoder = LinearEncoder.fit(table, plain, estimator=estimator) if plain else None
    widths = tuple((name, int(_width(table.source[name]) or 0)) for name in blocks)
    values = _raw_table(table, encoder, widths, estimator)
    sd = values.std(axis=0)
    constant = sd <= 1e-12 * np.abs(values).max(axis=0, initial=0.0)
    return TableInput(encoder, widths, values.mean(axis=0), np.where(constant, 1.0, sd))


def _raw_table(
    X: Any, encoder: LinearEncoder | None, blocks: tuple[tuple[str, int], ...], estimator: str
) -> Floats:
    """Return plain columns and two-dimensional entries side by side, not standardised."""
    table = read_table(X, estimator)
    parts = [] if encoder is None else [encoder.transform(table, estimator=estimator)]
    for name, width in blocks:
        entries = _entries(table)
        if name not in entries:
            raise InvalidInputError(did_not_find(name, [str(key) for key in entries] or list(table.names)))
        values = _load(entries[name], table.n_rows)
        if values.ndim != 2 or values.shape[1] != width:
            raise InvalidInputError(
                f"{name!r} must have {width} columns as in fit, got shape {values.shape}; "
                "pass the same columns in the same order"
            )
        check_finite_columns(values, tuple(f"{name}[{j}]" for j in range(width)))
        parts.append(values)
    return parts[0] if len(parts) == 1 else np.hstack(parts)


def _entries(table: Table) -> Mapping[Any, Any]:
    return table.source if isinstance(table.source, Mapping) else {}


def _width(entry: Any) -> int | None:
    """Return the number of columns of a two-dimensional entry, else None."""
    shape = getattr(entry, "shape", None)
    if shape is None and isinstance(entry, (list, tuple)) and len(entry) and np.ndim(entry[0]) == 1:
        return len(entry[0])
    return int(shape[1]) if shape is not None and len(shape) == 2 else None


def _load(entry: Any, n: int) -> Floats:
    if hasattr(entry, "detach"):
        entry = entry.detach().cpu()
    if not isinstance(entry, (list, tuple, np.ndarray, torch.Tensor)):
        entry = entry[np.arange(n)]
    return np.asarray(entry, dtype=np.float64)
