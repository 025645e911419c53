"""What a network sees: columns of X as tensors, with the encoding kept for new data.

The columns of a term become one tensor or several:

* all tabular columns together are one table ``(b, p)``: numbers as they are,
  factors as indicators (first level left out), two-dimensional entries of a
  dict column by column; every column is centred and scaled by the mean and the
  standard deviation of the training rows;
* each image column is one tensor ``(b, C, H, W)``;
* each ``AsIs`` entry, and each torch data set whose items are no images, is one tensor of its own shape.

With one tensor the factory is called with its shape, ``net((p,), out_features)``
or ``net((C, H, W), out_features)``. With several it is called with a tuple of
shapes, ``net(((C, H, W), (p,)), out_features)``, and the module with as many
tensors, in the order in which the columns were written (the table stands where
its first column stands).
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from deeptram.errors import InvalidInputError
from deeptram.inputs.batches import LazySource, Source, TableSource, image_batches
from deeptram.inputs.encode import LinearEncoder
from deeptram.inputs.entries import AsIs, DatasetRows, PixelScale
from deeptram.inputs.images import SUFFIXES, ImageSource
from deeptram.inputs.table import Table, check_finite_columns, did_not_find, read_table

Floats = npt.NDArray[np.float64]
Shape = tuple[int, ...]

IMAGE_SUFFIXES = (*SUFFIXES, ".gif")
_LOOKED_AT = 5


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

    def used_dtype(self, dtype: torch.dtype) -> torch.dtype:
        """Return in which type the network sees it."""
        return dtype

    def values(self, X: Any) -> Floats:
        """Return the standardised matrix of some rows, shape (n, p)."""
        return (_raw_table(X, self.encoder, self.blocks) - self.mean) / self.sd

    def source(self, X: Any, dtype: torch.dtype, device: torch.device | str) -> Source:
        """Return the rows of new data as a source of batches."""
        return TableSource(self.values(X), dtype, device)

    @property
    def tensor_shapes(self) -> dict[str, Shape]:
        """Name and shape of one row of each tensor that holds a part of the table, not standardised."""
        names = () if self.encoder is None else self.encoder.names
        return {**dict.fromkeys(names, ()), **{name: (width,) for name, width in self.blocks}}

    def tensors(self, X: Any) -> dict[str, torch.Tensor]:
        """Return these tensors for some rows."""
        values = torch.as_tensor(_raw_table(X, self.encoder, self.blocks))
        sizes = [prod(shape) for shape in self.tensor_shapes.values()]
        pieces = zip(self.tensor_shapes.items(), values.split(sizes, dim=1), strict=True)
        return {name: piece if shape else piece[:, 0] for (name, shape), piece in pieces}

    def from_tensors(self, inputs: Mapping[str, torch.Tensor], dtype: torch.dtype) -> torch.Tensor:
        """Return the standardised table of these tensors."""
        values = stacked_columns(inputs, tuple(self.tensor_shapes))
        mean, sd = (torch.as_tensor(one, device=values.device) for one in (self.mean, self.sd))
        return ((values - mean) / sd).to(dtype)

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
class EntryInput:
    """One entry that is no column.

    Parameters
    ----------
    name : str
        Of the entry.
    shape : tuple of int
        Of one row, as seen in fitting.
    """

    name: str
    shape: Shape

    def used_dtype(self, dtype: torch.dtype) -> torch.dtype:
        """Return in which type the network sees it."""
        return dtype

    @property
    def tensor_shapes(self) -> dict[str, Shape]:
        """Name and shape of one row of the tensor that holds the entry."""
        return {self.name: self.shape}


@dataclass(frozen=True)
class ImageInput(EntryInput):
    """One column of images of shape (C, H, W).

    Parameters
    ----------
    scale : PixelScale
        Of the pixels, as seen in fitting.
    """

    scale: PixelScale

    def images(self, X: Any) -> ImageSource:
        """Return the images of new data; another shape or scale is refused."""
        return ImageSource(X[self.name], name=self.name, shape=self.shape, seen=self.scale)

    def source(self, X: Any, dtype: torch.dtype, device: torch.device | str) -> Source:
        """Return the images of new data as a source of batches."""
        return image_batches(self.images(X), dtype, device)

    def tensors(self, X: Any) -> dict[str, torch.Tensor]:
        """Return the images of some rows, ``(n, C, H, W)``."""
        return {self.name: self.images(X).batch()}

    def from_tensors(self, inputs: Mapping[str, torch.Tensor], dtype: torch.dtype) -> torch.Tensor:
        """Return images of any layout and of bytes or numbers as the network takes them."""
        images = inputs[self.name]
        channels, height, width = self.shape
        if images.dtype == torch.uint8:
            images = images.to(dtype) / 255
        if images.ndim == 3 and channels == 1:
            images = images.unsqueeze(1)
        elif tuple(images.shape[1:]) == (height, width, channels) != self.shape:
            images = images.permute(0, 3, 1, 2)
        return images.to(dtype)

    def to_dict(self) -> dict[str, Any]:
        """Return the input as JSON-able values."""
        scale = [self.scale.low, self.scale.high]
        return {"kind": "image", "name": self.name, "shape": list(self.shape), "scale": scale}


@dataclass(frozen=True)
class TensorInput(EntryInput):
    """One entry that the network gets as it is; see ``AsIs``.

    Parameters
    ----------
    integers : bool
        Whether it holds integers, which stay integers.
    """

    integers: bool

    def used_dtype(self, dtype: torch.dtype) -> torch.dtype:
        """Return in which type the network sees it."""
        return torch.int64 if self.integers else dtype

    @classmethod
    def fit(cls, entry: Any, name: str) -> TensorInput:
        """Learn shape and type from training rows."""
        rows = AsIs(entry)
        return cls(name, rows.row_shape, rows[np.zeros(1, dtype=np.int64)].dtype.kind in "bui")

    def source(self, X: Any, dtype: torch.dtype, device: torch.device | str) -> Source:
        """Return the rows of new data as a source of batches; another shape or type is refused."""
        rows = AsIs(X[self.name])
        found = TensorInput.fit(rows, self.name)
        if found != self:
            kinds = {True: "integers", False: "numbers"}
            raise InvalidInputError(
                f"rows of {self.name!r} must be {kinds[self.integers]} of shape {self.shape} as in fit, got "
                f"{kinds[found.integers]} of shape {found.shape}; convert or pad them in the same way"
            )
        return LazySource(rows, self.used_dtype(dtype), device)

    def tensors(self, X: Any) -> dict[str, torch.Tensor]:
        """Return the tensor of some rows."""
        return {self.name: torch.as_tensor(AsIs(X[self.name])[slice(None)])}

    def from_tensors(self, inputs: Mapping[str, torch.Tensor], dtype: torch.dtype) -> torch.Tensor:
        """Return the tensor in the type the network takes."""
        return inputs[self.name].to(self.used_dtype(dtype))

    def to_dict(self) -> dict[str, Any]:
        """Return the input as JSON-able values."""
        return {
            "kind": "tensor",
            "name": self.name,
            "shape": list(self.shape),
            "integers": self.integers,
        }


Part = TableInput | ImageInput | TensorInput


@dataclass(frozen=True, eq=False)
class NetworkInputs:
    """The tensors one network is called with.

    Parameters
    ----------
    parts : tuple of TableInput, ImageInput and TensorInput
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

    parts: tuple[Part, ...]

    @classmethod
    def fit(cls, X: Any, columns: Sequence[str]) -> NetworkInputs:
        """Learn encodings, means and standard deviations from training rows.

        Parameters
        ----------
        X : DataFrame, 2-d array or dict of arrays
        columns : sequence of str
            The columns the network sees; none means all of X.
        """
        table = read_table(X, "the model")
        entries = table.source if isinstance(table.source, Mapping) else {}
        known = [str(name) for name in entries] if entries else list(table.names)
        names = list(columns) or known
        for name in names:
            if name not in known:
                raise _unknown_column(name, known)
        blocks = [name for name in names if name in table.names and _width(entries.get(name)) is not None]
        plain = tuple(name for name in names if name in table.names and name not in blocks)
        for name in plain:
            _check_not_files(table.column(name), name)
        parts: list[Part] = []
        for name in names:
            if name not in table.names:
                parts.append(_fit_entry(entries[name], name))
            elif not any(isinstance(part, TableInput) for part in parts):
                parts.append(_fit_table(table, plain, blocks))
        return cls(tuple(parts))

    @property
    def in_shape(self) -> Shape | tuple[Shape, ...]:
        """What the factory gets as ``in_shape``: one shape, or a tuple of shapes for several tensors."""
        shapes = tuple(part.shape for part in self.parts)
        return shapes[0] if len(shapes) == 1 else shapes

    def zeros(self, n: int, dtype: torch.dtype) -> list[torch.Tensor]:
        """Return n rows of zeros of the shapes and types that the network is called with."""
        return [torch.zeros(n, *part.shape, dtype=part.used_dtype(dtype)) for part in self.parts]

    def sources(
        self, X: Any, dtype: torch.dtype = torch.float32, device: torch.device | str = "cpu"
    ) -> list[Source]:
        """Return the rows of any data as sources of batches, one per tensor.

        Raises
        ------
        InvalidInputError
            If a column is missing, images have another shape than in fitting,
            or their number differs from the rows of the other columns.
        """
        table = read_table(X, "the model")
        for part in self.parts:
            if isinstance(part, EntryInput) and part.name not in _entries(table):
                raise InvalidInputError(did_not_find(part.name, [*map(str, _entries(table)), *table.names]))
        return [
            part.source(X if isinstance(part, EntryInput) else table, dtype, device) for part in self.parts
        ]

    @property
    def tensor_shapes(self) -> dict[str, Shape]:
        """Name and shape of one row of each tensor in the user's units; see :meth:`tensors`."""
        return {name: shape for part in self.parts for name, shape in part.tensor_shapes.items()}

    @property
    def tensor_dtypes(self) -> dict[str, torch.dtype]:
        """The types of images and of entries that are passed as they are; columns are float64."""
        return {
            part.name: part.used_dtype(torch.float32) for part in self.parts if isinstance(part, EntryInput)
        }

    @property
    def modules(self) -> tuple[torch.nn.Module, ...]:
        """Modules that work on the tensors before the network does: none here."""
        return ()

    def tensors(self, X: Any) -> dict[str, torch.Tensor]:
        """Return some rows as tensors in the user's units, by column: what a module in production gets.

        Examples
        --------
        >>> inputs = NetworkInputs.fit({"a": [1.0, 3.0], "b": ["u", "v"]}, ("a", "b"))
        >>> inputs.tensors({"a": [2.0], "b": ["v"]})
        {'a': tensor([2.], dtype=torch.float64), 'bv': tensor([1.], dtype=torch.float64)}
        """
        return {name: tensor for part in self.parts for name, tensor in part.tensors(X).items()}

    def from_tensors(
        self, inputs: Mapping[str, torch.Tensor], dtype: torch.dtype
    ) -> tuple[torch.Tensor, ...]:
        """Return what the network is called with, from tensors in the user's units."""
        return tuple(part.from_tensors(inputs, dtype) for part in self.parts)

    def to_dict(self) -> dict[str, Any]:
        """Return the inputs as JSON-able values."""
        return {"parts": [part.to_dict() for part in self.parts], "backbone": None}

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


class Embedder(ABC):
    """A factory whose networks see something else than the inputs: what it makes of them before training."""

    @abstractmethod
    def embedding(self, inputs: NetworkInputs) -> NetworkInputs:
        """Return what the networks see instead."""


def seen_by(net: Any, inputs: NetworkInputs) -> NetworkInputs:
    """Return what the network of a factory sees: the inputs themselves, or their embeddings."""
    return net.embedding(inputs) if isinstance(net, Embedder) else inputs


def stacked_columns(inputs: Mapping[str, torch.Tensor], names: Sequence[str]) -> torch.Tensor:
    """Return columns ``(n,)``, ``(n, 1)`` and blocks ``(n, w)`` side by side, in float64.

    Examples
    --------
    >>> stacked_columns({"a": torch.ones(2), "b": torch.zeros(2, 2)}, ("a", "b")).shape
    torch.Size([2, 3])
    """
    columns = [inputs[name].double() for name in names]
    return torch.cat([one.unsqueeze(1) if one.ndim == 1 else one for one in columns], dim=1)


def _fit_entry(entry: Any, name: str) -> ImageInput | TensorInput:
    """Return how an entry that is no column is read: as it is, or as images."""
    if isinstance(entry, AsIs) or (isinstance(entry, DatasetRows) and entry.ndim != 4):
        return TensorInput.fit(entry, name)
    images = ImageSource(entry, name=name)
    return ImageInput(name, images.shape, PixelScale.of(images))


def _part_from_dict(state: Mapping[str, Any]) -> Part:
    if state["kind"] == "image":
        return ImageInput(state["name"], tuple(state["shape"]), PixelScale(*state["scale"]))
    if state["kind"] == "tensor":
        return TensorInput(state["name"], tuple(state["shape"]), state["integers"])
    encoder = state["encoder"]
    return TableInput(
        None if encoder is None else LinearEncoder.from_dict(encoder),
        tuple((str(name), int(width)) for name, width in state["blocks"]),
        np.array(state["mean"], dtype=np.float64),
        np.array(state["sd"], dtype=np.float64),
    )


def _fit_table(table: Table, plain: tuple[str, ...], blocks: Sequence[str]) -> TableInput:
    encoder = LinearEncoder.fit(table, plain, estimator="the model") if plain else None
    widths = tuple((name, int(_width(table.source[name]) or 0)) for name in blocks)
    values = _raw_table(table, encoder, widths)
    sd = values.std(axis=0)
    constant = sd <= 1e-12 * np.abs(values).max(axis=0, initial=0.0)
    return TableInput(encoder, widths, values.mean(axis=0), np.where(constant, 1.0, sd))


def _raw_table(X: Any, encoder: LinearEncoder | None, blocks: tuple[tuple[str, int], ...]) -> Floats:
    """Return plain columns and two-dimensional entries side by side, not standardised."""
    table = read_table(X, "the model")
    parts = [] if encoder is None else [encoder.transform(table, estimator="the model")]
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


def _unknown_column(name: str, known: Sequence[str]) -> InvalidInputError:
    """Return the error for a column that is not there, or for a formula in place of one."""
    parts = [part.strip() for part in re.split(r"[-+*:/^|()]+", name) if part.strip()]
    if len(parts) < 2 or not set(parts) & set(known):
        return InvalidInputError(did_not_find(name, known))
    written = ", ".join(map(repr, parts))
    return InvalidInputError(
        f"a network takes the names of columns, got the formula {name!r}; write (net, {written})"
    )


def _check_not_files(values: Any, name: str) -> None:
    """Raise if a column that a network is to see holds the names of image files."""
    some = [values[row] for row in range(min(len(values), _LOOKED_AT))]
    if some and all(str(value).lower().endswith(IMAGE_SUFFIXES) for value in some):
        raise InvalidInputError(
            f"a network needs pixels, got the names of image files in column {name!r}; pass them as "
            f"X={{{name!r}: deeptram.inputs.FolderImages(paths, size=64)}}, which reads the files in batches"
        )
