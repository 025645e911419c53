"""A training in the middle, on disk: what a killed training needs to end as if nothing had happened.

Everything that an epoch hands to the next is written: weights, the optimiser's moments, averages of weights,
the records of the epochs so far, and where every stream of random numbers is. It is a folder of JSON and
safetensors like a saved model; nothing in it is executed.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from deeptram._files import json_sha256
from deeptram._schema import plain, unplain
from deeptram.errors import FileFormatError
from deeptram.model.persistence import FinishedWork, Tensors

_TENSOR = "tensor of the file"


@dataclass(frozen=True)
class ResumePoints:
    """Where trainings of one configuration write their state, and how often.

    Attributes
    ----------
    folder : Path
    every : int
        Epochs from one state to the next.
    code : str
        Of the configuration: a state of another one is not used.

    Examples
    --------
    >>> import tempfile
    >>> points = ResumePoints(Path(tempfile.mkdtemp()), 5, "abc")
    >>> points.save([1], {"epoch": 5, "weights": {"w": torch.ones(2)}, "best": float("inf")})
    >>> points.load([1])
    {'epoch': 5, 'weights': {'w': tensor([1., 1.])}, 'best': inf}
    >>> points.load([2]) is None
    True
    """

    folder: Path
    every: int
    code: str

    def _name(self, seeds: Sequence[int]) -> str:
        return f"resume-{json_sha256([self.code, list(seeds)])[:16]}"

    def is_due(self, epoch: int) -> bool:
        """Return whether the state after an epoch is to be written."""
        return epoch % self.every == 0

    def save(self, seeds: Sequence[int], state: Mapping[str, Any]) -> None:
        """Write the state of a training of members with these seeds, in place of the one before."""
        tensors: Tensors = {}
        record = plain(_without_tensors(state, tensors))
        FinishedWork(self.folder).save(self._name(seeds), self.code, record, tensors)

    def load(self, seeds: Sequence[int]) -> dict[str, Any] | None:
        """Return the last state that was written, or None; a damaged one does not count."""
        try:
            record, tensors = FinishedWork(self.folder).load(self._name(seeds), self.code)
            state: dict[str, Any] = _with_tensors(unplain(record), tensors)
        except (OSError, FileFormatError, KeyError):
            return None
        return state

    def clear(self) -> None:
        """Remove all states: the members are finished."""
        for place in self.folder.glob("resume-*"):
            shutil.rmtree(place, ignore_errors=True)


def _without_tensors(value: Any, tensors: Tensors) -> Any:
    """Return nested values whose tensors are replaced by their numbers in ``tensors``."""
    if isinstance(value, Tensor):
        tensors[str(len(tensors))] = value.detach().cpu().contiguous().numpy()
        return {_TENSOR: len(tensors) - 1}
    if isinstance(value, Mapping):
        return {key: _without_tensors(one, tensors) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_without_tensors(one, tensors) for one in value)
    return value


def _with_tensors(value: Any, tensors: Tensors) -> Any:
    if isinstance(value, dict):
        if set(value) == {_TENSOR}:
            return torch.from_numpy(np.array(tensors[str(value[_TENSOR])]))
        return {key: _with_tensors(one, tensors) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_with_tensors(one, tensors) for one in value)
    return value
