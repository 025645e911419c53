"""The hash of data changes with every value, and with nothing else."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch

import deeptram as dt
from deeptram.estimators import data_checks as module
from deeptram.estimators.data_checks import fingerprint
from deeptram.inputs.images import ImageSource


def variants():
    x = np.arange(6.0)
    y = np.where(x == 3, 9.0, x)
    images = np.arange(96, dtype=np.float32).reshape(6, 4, 4)
    other = images.copy()
    other[5, 3, 3] += 1
    surv = [dt.Surv.right(x + 1, x > t) for t in (2, 3)]
    return {
        "array": (x, y),
        "list": (x.tolist(), y.tolist()),
        "frame": (pd.DataFrame({"a": x}), pd.DataFrame({"a": y})),
        "names": (pd.DataFrame({"a": x}), pd.DataFrame({"b": x})),
        "dict": ({"a": x, "i": images}, {"a": x, "i": other}),
        "categories": (pd.Series(["u", "v"], dtype="category"), pd.Series(["u", "u"], dtype="category")),
        "text": (["u", "v"], ["u", "w"]),
        "objects": (np.array(["u", 1], dtype=object), np.array(["u", 2], dtype=object)),
        "ragged": ([[1], [2, 3]], [[1], [2, 4]]),
        "censored": tuple(surv),
        "tensor": (torch.from_numpy(x), torch.from_numpy(y)),
        "images": (ImageSource(images), ImageSource(other)),
        "none": (None, x),
        "shape": (x, x.reshape(2, 3)),
        "empty": (np.zeros(0), np.zeros((0, 1))),
    }


@pytest.mark.parametrize("name", variants())
def test_different_data_have_different_hashes(name):
    one, other = variants()[name]
    same, _ = variants()[name]
    assert fingerprint(one) == fingerprint(same)
    assert fingerprint(one) != fingerprint(other)
    assert fingerprint(one, one) != fingerprint(one)


def test_large_arrays_are_sampled(monkeypatch):
    monkeypatch.setattr(module, "LARGEST", 100)
    x = np.arange(1000.0)
    y = x.copy()
    y[-1] = 0
    assert fingerprint(x) != fingerprint(y)
    assert fingerprint(x) == fingerprint(x.copy())
    assert fingerprint(x) != fingerprint(x[:-1])
