"""A device that is none: tensors that compute on the CPU, say that they are elsewhere, and refuse to be mixed.

Inside ``fake_device()`` everything that is made on, or moved to, ``"meta"`` (the one device besides the CPU
that torch knows on every machine) is a tensor of that device for torch's own checks. Its numbers live in an ordinary
tensor, so that results can be compared with those of the CPU. As on a real one, an operation on tensors of two
devices is an error, numbers without a dimension excepted, and so is float64, which Apple's GPUs have not.
"""

from __future__ import annotations

from contextlib import contextmanager, nullcontext

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

NAME = "meta"


class Elsewhere(torch.Tensor):
    """A tensor on the device that is none."""

    @staticmethod
    def __new__(cls, values):
        return torch.Tensor._make_wrapper_subclass(
            cls,
            values.size(),
            strides=values.stride(),
            storage_offset=values.storage_offset(),
            dtype=values.dtype,
            device=NAME,
            requires_grad=False,
        )

    def __init__(self, values):
        self.values = values

    @property
    def data(self):
        return Elsewhere(self.values)

    @data.setter
    def data(self, other):
        self.values = other.values

    def tolist(self):
        return self.values.tolist()

    def __repr__(self):
        return f"Elsewhere({self.values!r})"

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return run(func, args, kwargs or {})


MOVES = {torch.ops.aten._to_copy.default, torch.ops.aten.copy_.default}


def run(func, args, kwargs):
    """Compute on the CPU what was asked for, after the checks of a real device."""
    tensors = []
    tree_map(lambda one: tensors.append(one) if isinstance(one, torch.Tensor) else None, (args, kwargs))
    away = [one for one in tensors if isinstance(one, Elsewhere)]
    here = [one for one in tensors if not isinstance(one, Elsewhere) and one.dim() > 0]
    if away and here and func not in MOVES:
        raise RuntimeError(
            f"Expected all tensors to be on the same device, but found at least two devices, {NAME} and cpu: {func}"
        )
    device = kwargs.get("device")
    wanted = torch.device(device).type == NAME if device is not None else bool(away)
    if func is torch.ops.aten.copy_.default:
        wanted = isinstance(args[0], Elsewhere)
    plain = tree_map(lambda one: one.values if isinstance(one, Elsewhere) else one, (args, kwargs))
    own = {**plain[1], **({"device": torch.device("cpu")} if device is not None else {})}
    draws = bool(away) and torch.Tag.nondeterministic_seeded in func.tags  # from the device's own generator
    with torch.random.fork_rng(devices=[]) if draws else nullcontext():
        result = func(*plain[0], **own)
    if func.name().split(".")[0].endswith("_") and away and isinstance(args[0], Elsewhere):
        return args[0]  # changed in place
    return tree_map(lambda one: _placed(one, wanted), result)


def _placed(one, wanted):
    if not (wanted and isinstance(one, torch.Tensor)):
        return one
    if one.dtype == torch.float64:
        raise TypeError(
            f"Cannot convert a {NAME} Tensor to float64 dtype as the framework doesn't support it"
        )
    return Elsewhere(one)


class _Mode(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return run(func, args, kwargs or {})


def _moving(make):
    """Return a function that makes a tensor on the CPU and then moves it: torch makes it past the mode."""

    def made(data, *args, device=None, **kwargs):
        found = make(data, *args, **kwargs)
        return found if device is None else found.to(device)

    return made


@contextmanager
def fake_device():
    """Let ``"meta"`` be a device that computes."""
    with _Mode(), pytest.MonkeyPatch.context() as patch:
        for name in ("tensor", "as_tensor"):
            patch.setattr(torch, name, _moving(getattr(torch, name)))
        yield NAME
