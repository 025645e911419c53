"""Batches of network inputs: tensors indexed by row, or arrays read row by row.

A *source* gives the rows of one input tensor. What fits in memory is one
tensor that is indexed by row numbers (several times faster than collating
single rows); memory maps, HDF5 and zarr arrays and files on disk are read batch
by batch. Images are laid out with channels last, which convolutions on CPUs and
GPUs prefer; their shape is ``(b, C, H, W)`` all the same.
"""

from __future__ import annotations

import multiprocessing
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, default_convert

from deeptram._rows import is_memory_map
from deeptram.errors import InvalidInputError
from deeptram.inputs.entries import AsIs
from deeptram.inputs.images import ImageSource

MEMORY_LIMIT = 2 * 1024**3
DEVICE_LIMIT = 1024**3
_VALUES_PER_CHUNK = 2**19
_MIN_CHUNK, _MAX_CHUNK = 64, 8192


class Source(ABC):
    """The rows of one input of a network.

    Implementing one: set ``shape`` (of one row), implement ``__len__`` and
    ``gather``, which takes a vector of row numbers.
    """

    shape: tuple[int, ...]
    in_memory: bool = False
    """Whether all rows are at hand, not read and decoded in batches."""
    row_blocks: Tensor | None = None
    """For each row the number of the file it lies in, where the rows of one are quick to read together."""

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of rows."""

    @abstractmethod
    def gather(self, rows: Tensor) -> Tensor:
        """Return the given rows, shape ``(b, *shape)``, on the device of the model."""

    def on_cpu(self) -> Source:
        """Return the same rows as a source that leaves them in the memory of the CPU."""
        return self

    def span(self, start: int, stop: int) -> Tensor:
        """Return consecutive rows, shape ``(stop - start, *shape)``."""
        return self.gather(torch.arange(start, min(stop, len(self))))


class TableSource(Source):
    """Rows of a matrix in memory.

    Parameters
    ----------
    values : array, shape (n, p)
    dtype, device
        What the network computes with, and where.

    Examples
    --------
    >>> source = TableSource(np.eye(3))
    >>> source.gather(torch.tensor([2, 0]))
    tensor([[0., 0., 1.],
            [1., 0., 0.]])
    """

    in_memory = True

    def __init__(
        self, values: Any, dtype: torch.dtype = torch.float32, device: torch.device | str = "cpu"
    ) -> None:
        self._values = torch.as_tensor(np.asarray(values, dtype=np.float64)).to(dtype).to(device)
        self.shape = tuple(self._values.shape[1:])

    def __len__(self) -> int:
        return len(self._values)

    def gather(self, rows: Tensor) -> Tensor:
        return self._batch(self._values.index_select(0, rows.to(self._values.device)))

    def span(self, start: int, stop: int) -> Tensor:
        return self._batch(self._values[start:stop])

    def _batch(self, values: Tensor) -> Tensor:
        """Return rows that are held in the form in which they are used."""
        return values


class LazySource(Source):
    """Rows read batch by batch from whatever holds them: memory maps, HDF5 and zarr arrays, files on disk.

    Parameters
    ----------
    rows : AsIs or ImageSource
        An entry that a network gets as it is, or images. If the object in it has ``row_blocks``, one
        integer a row, batches are drawn from one block of rows after the other (:func:`shuffled_batches`).
    dtype, device
        What the network computes with (int64 for integers), and where.

    Examples
    --------
    >>> LazySource(AsIs([[3, 1], [1, 5]]), torch.int64).gather(torch.tensor([1]))
    tensor([[1, 5]])
    >>> LazySource(ImageSource(np.zeros((4, 8, 8)))).gather(torch.tensor([0])).shape
    torch.Size([1, 1, 8, 8])
    """

    def __init__(
        self,
        rows: AsIs | ImageSource,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> None:
        self._rows, self._dtype, self._device = rows, dtype, torch.device(device)
        self.shape = rows.shape if isinstance(rows, ImageSource) else rows.row_shape
        blocks = getattr(rows.entry, "row_blocks", None)
        self.row_blocks = None if blocks is None else _check_blocks(blocks, len(rows))

    def __len__(self) -> int:
        return len(self._rows)

    def gather(self, rows: Tensor) -> Tensor:
        batch = torch.from_numpy(self._rows[rows.cpu().numpy()]).to(self._device, self._dtype)
        images = isinstance(self._rows, ImageSource)
        return batch.contiguous(memory_format=torch.channels_last) if images else batch

    def on_cpu(self) -> Source:
        return LazySource(self._rows, self._dtype)


class MemoryImages(TableSource):
    """Images in memory, held as they came (bytes stay bytes) with channels last.

    Parameters
    ----------
    images : ImageSource
        An array that fits in memory; its pixels are checked once, here.
    dtype, device
        What the network computes with, and where.

    Examples
    --------
    >>> pixels = np.full((4, 8, 8), 255, dtype=np.uint8)
    >>> batch = MemoryImages(ImageSource(pixels)).gather(torch.tensor([3, 1]))
    >>> batch.shape, batch.max().item()
    (torch.Size([2, 1, 8, 8]), 1.0)
    """

    def __init__(
        self, images: ImageSource, dtype: torch.dtype = torch.float32, device: torch.device | str = "cpu"
    ) -> None:
        self.shape = images.shape
        self._dtype, self._device = dtype, torch.device(device)
        entry = images.entry
        if isinstance(entry, np.ndarray) and entry.dtype == np.uint8:
            self._values = _as_tensor(_channels_last(entry, images.layout))
        else:
            self._values = images.batch().permute(0, 2, 3, 1).contiguous().to(dtype)
        if self._values.numel() * self._values.element_size() <= DEVICE_LIMIT:
            self._values = self._values.to(self._device)

    def _batch(self, values: Tensor) -> Tensor:
        batch = values.permute(0, 3, 1, 2).to(self._device)
        return batch.to(self._dtype).div_(255) if batch.dtype == torch.uint8 else batch


class Prefetch:
    """Batches of rows that have to be read and decoded, made by worker processes before they are needed.

    Parameters
    ----------
    sources : sequence of Source
        Those in memory are left out.
    batches : sequence of Tensor of int
        In the order in which they will be asked for.
    workers : int
        Number of processes.
    """

    def __init__(self, sources: Sequence[Source], batches: Sequence[Tensor], workers: int) -> None:
        self._numbers = [k for k, source in enumerate(sources) if not source.in_memory]
        self._batches = [batch.reshape(-1) for batch in batches]
        self._next = 0
        loader = DataLoader(
            _Rows([sources[k].on_cpu() for k in self._numbers]),
            batch_sampler=[batch.tolist() for batch in self._batches],
            num_workers=workers,
            multiprocessing_context=_start_method() if workers else None,
            collate_fn=default_convert,  # which leaves tensors as they are
            generator=torch.Generator(),  # so that torch's global one is left alone
        )
        self._batch_iterator = iter(loader) if self._numbers else iter(())

    def take(self, rows: Tensor) -> dict[int, Tensor]:
        """Return the rows of each source that was read ahead, by its number; nothing for rows out of turn."""
        if not self._numbers or self._next >= len(self._batches):
            return {}
        if not torch.equal(rows, self._batches[self._next]):
            return {}
        self._next += 1
        return dict(zip(self._numbers, next(self._batch_iterator), strict=True))


def _start_method() -> str:
    """Return how processes are started: as usual, also within joblib's, whose own way torch cannot use."""
    usual = multiprocessing.get_start_method()
    if usual in ("fork", "spawn", "forkserver"):
        return usual
    return "fork" if sys.platform == "linux" else "spawn"


class _Rows(Dataset[Any]):
    """All rows of some sources; a whole batch is read at once."""

    def __init__(self, sources: list[Source]) -> None:
        self._sources = sources

    def __len__(self) -> int:
        return len(self._sources[0]) if self._sources else 0

    def __getitems__(self, rows: list[int]) -> list[Tensor]:
        return [source.gather(torch.tensor(rows)) for source in self._sources]


def image_batches(
    images: ImageSource,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
    memory_limit: int = MEMORY_LIMIT,
) -> Source:
    """Return a source of images: in memory where the entry is an array that fits, lazy otherwise.

    Examples
    --------
    >>> type(image_batches(ImageSource(np.zeros((4, 8, 8))))).__name__
    'MemoryImages'
    """
    entry = images.entry
    if not isinstance(entry, np.ndarray) or is_memory_map(entry):
        return LazySource(images, dtype, device)
    bytes_per_pixel = 1 if entry.dtype == np.uint8 else torch.finfo(dtype).bits // 8
    kind: type[MemoryImages | LazySource] = (
        MemoryImages if entry.size * bytes_per_pixel <= memory_limit else LazySource
    )
    return kind(images, dtype, device)


def shuffled_batches(
    rows: Tensor, batch_size: int, generators: Sequence[torch.Generator], blocks: Tensor | None = None
) -> list[Tensor]:
    """Return one epoch of batches, each member in an order of its own.

    Parameters
    ----------
    rows : Tensor of int, shape (M, n)
        The training rows of each member.
    batch_size : int
        Rows per batch; a last batch of a single row is joined to the one before
        (normalisation layers cannot use it).
    generators : sequence of M torch.Generator
        Each member's own stream.
    blocks : Tensor of int, optional
        For each row of the data the number of its block (a shard on disk). Blocks then come one after the
        other in a random order, the rows of each in a random order: a batch reads one block, or a few
        where one ends.

    Returns
    -------
    list of Tensor, shapes (M, b)

    Examples
    --------
    >>> rows = torch.arange(7).expand(1, 7)
    >>> [b.shape[1] for b in shuffled_batches(rows, 3, [torch.Generator().manual_seed(0)])]
    [3, 4]
    >>> blocks = torch.tensor([0, 1, 0, 1, 0, 1])
    >>> batches = shuffled_batches(rows[:, :6], 3, [torch.Generator().manual_seed(0)], blocks)
    >>> [len(blocks[batch].unique()) for batch in batches]
    [1, 1]
    """
    n = rows.shape[1]
    order = torch.stack([_order(own, each, blocks) for own, each in zip(rows, generators, strict=True)])
    shuffled = rows.gather(1, order)
    sizes = [batch_size] * (n // batch_size) + ([n % batch_size] if n % batch_size else [])
    if len(sizes) > 1 and sizes[-1] == 1:
        sizes[-2:] = [sizes[-2] + 1]
    return list(shuffled.split(sizes, dim=1))


def _order(rows: Tensor, generator: torch.Generator, blocks: Tensor | None) -> Tensor:
    order = torch.randperm(len(rows), generator=generator)
    if blocks is None:
        return order
    own = blocks[rows[order]]
    turn = torch.randperm(int(blocks.max()) + 1, generator=generator)
    return order[turn[own].argsort(stable=True)]


def spans(n: int, sources: Sequence[Source] = ()) -> Iterator[tuple[int, int]]:
    """Yield consecutive pieces ``(start, stop)`` of n rows that are comfortable to compute at once.

    Examples
    --------
    >>> list(spans(10_000))
    [(0, 8192), (8192, 10000)]
    """
    values = max((int(np.prod(source.shape)) for source in sources), default=1)
    size = max(_MIN_CHUNK, min(_MAX_CHUNK, _VALUES_PER_CHUNK // max(values, 1)))
    for start in range(0, n, size):
        yield start, min(start + size, n)


def check_augmented(before: Tensor, after: Any) -> Tensor:
    """Return an augmented batch if it is a tensor of the same shape.

    Examples
    --------
    >>> check_augmented(torch.zeros(2, 1, 8, 8), torch.ones(2, 1, 8, 8)).shape
    torch.Size([2, 1, 8, 8])
    """
    if isinstance(after, Tensor) and after.shape == before.shape:
        return after.to(before.dtype)
    got = f"shape {tuple(after.shape)}" if isinstance(after, Tensor) else type(after).__name__
    raise InvalidInputError(
        f"augment must return a tensor of the shape it was given, {tuple(before.shape)}, got {got}; "
        "crop and resize to the size of the images"
    )


def _check_blocks(blocks: Any, n: int) -> Tensor:
    found = np.asarray(blocks)
    if found.shape != (n,) or found.dtype.kind not in "iu" or found.min(initial=0) < 0:
        raise InvalidInputError(
            f"row_blocks of an entry must be one integer from 0 on for each of {n} rows, got {found.dtype} "
            f"of shape {found.shape}; number the files or chunks its rows lie in"
        )
    return torch.from_numpy(found.astype(np.int64))


def _channels_last(pixels: np.ndarray[Any, Any], layout: str) -> np.ndarray[Any, Any]:
    if layout == "grey":
        return pixels[..., None]
    return np.ascontiguousarray(np.moveaxis(pixels, 1, 3)) if layout == "channels_first" else pixels


def _as_tensor(array: np.ndarray[Any, Any]) -> Tensor:
    if not array.flags.writeable or any(stride < 0 for stride in array.strides):
        array = array.copy()
    return torch.from_numpy(array)
