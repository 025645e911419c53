"""Heads on a frozen backbone: the backbone sees every row once, members train on what it said.

The embeddings of a data set are computed once, kept in a memory-mapped file, and shared by all
members, validation, predictions and worker processes. They are known by the content
of the rows and of the backbone, so a changed image or weight is embedded anew.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
import tempfile
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from deeptram.errors import FileFormatError, InvalidInputError, InvalidTypeError
from deeptram.inputs.batches import LazySource, Source, TableSource, spans
from deeptram.inputs.entries import AsIs
from deeptram.inputs.network_inputs import Embedder, NetworkInputs, Shape, TensorInput
from deeptram.networks.factories import check_factory, output_of
from deeptram.networks.tables import MLP

_SPREAD_ROWS = 64  # by which rows that are read in batches are known again
_IN_MEMORY = 2**28  # bytes of embeddings
_EMBEDDING = "embedding"


class Frozen(Embedder):
    """Factory of heads on one frozen backbone; made by :func:`frozen`."""

    def __init__(self, backbone: nn.Module, head: Callable[..., nn.Module], folder: str, digest: str) -> None:
        self.backbone, self.head, self.folder, self.digest = backbone, head, folder, digest

    def __call__(self, in_shape: tuple[int, ...], out_features: int) -> nn.Module:
        """Return a fresh head ``(b, *in_shape) -> (b, out_features)`` for embeddings of that shape."""
        return self.head(in_shape, out_features)

    def embedding(self, inputs: NetworkInputs) -> EmbeddedInputs:
        """Return what the head sees of these inputs: their embeddings."""
        with torch.no_grad():
            shape = tuple(self.embed(inputs.zeros(2, torch.float32)).shape[1:])
        return EmbeddedInputs((TensorInput(_EMBEDDING, shape, False),), inputs, self)

    def embed(self, tensors: Sequence[Tensor]) -> Tensor:
        """Return the embeddings of some rows, shape ``(b, ...)``, in evaluation mode."""
        was_training = self.backbone.training
        try:
            output = output_of(self.backbone.eval(), tensors)
        except InvalidInputError:
            raise
        except (RuntimeError, ValueError, TypeError, IndexError) as error:
            shapes = ", ".join(str(tuple(tensor.shape)) for tensor in tensors)
            raise InvalidInputError(
                f"a frozen backbone must accept {len(tensors)} tensor(s) of shape {shapes}, got the error "
                f"{error}; resize the images or wrap the backbone"
            ) from error
        finally:
            self.backbone.train(was_training)
        if not isinstance(output, Tensor) or output.ndim < 2 or len(output) != len(tensors[0]):
            got = tuple(output.shape) if isinstance(output, Tensor) else type(output).__name__
            raise InvalidTypeError(
                f"a frozen backbone must return a tensor with one row per input, got {got}; wrap it in a "
                "module that returns the embedding"
            )
        return output

    def identity_parts(self) -> tuple[Any, ...]:
        """Return what tells one such factory from another: the backbone's weights and the head."""
        return self.digest, self.head

    def __deepcopy__(self, memo: Any) -> Frozen:
        """Return itself: a frozen backbone is shared, not copied."""
        return self

    def __repr__(self) -> str:
        return f"frozen({type(self.backbone).__name__}, {self.head!r})"


def frozen(backbone: nn.Module, head: Callable[..., nn.Module] | None = None) -> Frozen:
    """Return a network factory: a trainable head on a backbone that stays as it is.

    The backbone runs once over the data, in evaluation mode; the members are heads on the cached
    embeddings, trained in one vectorised pass. A model with it is saved without the backbone, whose digest is
    checked in loading: register the factory (``deeptram.networks.register``), or hand it to ``dt.load``.
    Augmentations of images do not reach what is cached.

    Parameters
    ----------
    backbone : Module
        Maps what a term sees to a tensor ``(b, ...)``: a torchvision or timm network without its last
        layer, a sentence encoder in a module of its own.
    head : callable, optional
        Factory ``head(in_shape, out_features)``; default ``MLP(hidden=(64,))``.

    Returns
    -------
    Frozen

    Examples
    --------
    >>> backbone = nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.Tanh())
    >>> net = frozen(backbone, MLP(hidden=(8,)))
    >>> net((16,), 3)(torch.zeros(2, 16)).shape
    torch.Size([2, 3])
    """
    if not isinstance(backbone, nn.Module):
        raise InvalidTypeError(
            f"frozen needs a torch.nn.Module as its backbone, got {type(backbone).__name__}; "
            "build the network first, with its pretrained weights"
        )
    folder = tempfile.mkdtemp(prefix="deeptram-embeddings-")
    head = MLP(hidden=(64,)) if head is None else check_factory(head, "a frozen backbone")
    factory = Frozen(backbone, head, folder, _digest_of(backbone))
    weakref.finalize(factory, _remove, folder, os.getpid())
    return factory


def _remove(folder: str, pid: int) -> None:
    """Remove the cache, but not from a forked worker that goes first."""
    if os.getpid() == pid:
        shutil.rmtree(folder, ignore_errors=True)


def _digest_of(module: nn.Module) -> str:
    digest = hashlib.sha256(repr(module).encode())
    for name, value in module.state_dict().items():
        digest.update(name.encode())
        digest.update(value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()


@dataclass(frozen=True, eq=False)
class EmbeddedInputs(NetworkInputs):
    """Inputs of a head: the embeddings of the inputs of its backbone.

    Parameters
    ----------
    parts : tuple of one TensorInput
        The embedding.
    inner : NetworkInputs
        What the backbone sees.
    net : Frozen
    """

    inner: NetworkInputs
    net: Frozen

    def sources(
        self, X: Any, dtype: torch.dtype = torch.float32, device: torch.device | str = "cpu"
    ) -> list[Source]:
        """Return the embeddings of any data as a source of batches: from the cache, or computed now."""
        inner = self.inner.sources(X, torch.float32, "cpu")
        path = Path(self.net.folder) / f"{self._key(inner)}.npy"
        if not path.is_file():
            self._write(inner, path)
        if path.stat().st_size <= _IN_MEMORY:
            return [TableSource(np.load(path), dtype, device)]
        return [LazySource(AsIs(np.load(path, mmap_mode="r")), dtype, device)]

    def _key(self, inner: Sequence[Source]) -> str:
        digest = hashlib.sha256(self.net.digest.encode())
        for source in inner:
            digest.update(f"{len(source)}{source.shape};".encode())
            some = np.unique(np.linspace(0, len(source) - 1, _SPREAD_ROWS).astype(np.int64))
            pieces = [source.gather(torch.from_numpy(some))]
            if source.in_memory:
                pieces = [source.span(start, stop) for start, stop in spans(len(source), [source])]
            for piece in pieces:
                digest.update(piece.contiguous().numpy().data)
        return digest.hexdigest()

    def _write(self, inner: Sequence[Source], path: Path) -> None:
        n = len(inner[0])
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f"{secrets.token_hex(8)}.tmp")
        shape = (n, *self.parts[0].shape)
        array = np.lib.format.open_memmap(temporary, mode="w+", dtype=np.float32, shape=shape)
        try:
            with torch.no_grad():
                for start, stop in spans(n, inner):
                    found = self.net.embed([source.span(start, stop) for source in inner])
                    array[start:stop] = found.float().numpy()
            array.flush()
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)

    def to_dict(self) -> dict[str, Any]:
        """Return the inputs as JSON-able values, with the digest of the backbone."""
        return {**self.inner.to_dict(), "backbone": self.net.digest}

    @property
    def tensor_shapes(self) -> dict[str, Shape]:
        """Name and shape of one row of each tensor that the backbone sees."""
        return self.inner.tensor_shapes

    @property
    def tensor_dtypes(self) -> dict[str, torch.dtype]:
        """The types of these tensors."""
        return self.inner.tensor_dtypes

    @property
    def modules(self) -> tuple[nn.Module, ...]:
        """The backbone."""
        return (self.net.backbone,)

    def tensors(self, X: Any) -> dict[str, Tensor]:
        """Return the rows that the backbone sees as tensors, by column."""
        return self.inner.tensors(X)

    def from_tensors(self, inputs: Mapping[str, Tensor], dtype: torch.dtype) -> tuple[Tensor, ...]:
        """Return the embeddings of tensors in the user's units."""
        return (self.net.embed(self.inner.from_tensors(inputs, torch.float32)).to(dtype),)


def check_backbone(inputs: NetworkInputs, digest: str | None) -> None:
    """Raise unless a loaded model has the backbone it was saved with.

    Parameters
    ----------
    inputs : NetworkInputs
    digest : str or None
        Of the backbone at saving.
    """
    found = inputs.net.digest if isinstance(inputs, EmbeddedInputs) else None
    if found != digest:
        raise FileFormatError(
            "a saved head needs the frozen backbone it was trained on, got one with other weights or layers; "
            "load it with networks={name: dt.networks.frozen(backbone, head)} and the same weights"
        )
