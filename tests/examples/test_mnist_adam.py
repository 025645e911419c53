"""The script about Adam's count of steps runs; here on a few small images."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np

import deeptram as dt

FILE = Path(__file__).parents[2] / "examples" / "mnist_adam.py"


def test_the_same_member_from_two_counts(monkeypatch, capsys):
    spec = importlib.util.spec_from_file_location("mnist_adam", FILE)
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    rows = np.arange(60)
    split = SimpleNamespace(train=rows[:40], validation=rows[40:50], test=rows[50:])
    asked = []
    monkeypatch.setattr(dt.datasets, "load_mnist", lambda folder: asked.append(folder) or small_digits())
    monkeypatch.setattr(script, "paper_splits", lambda name: asked.append(name) or [split])
    monkeypatch.setattr(
        sys, "argv", ["mnist_adam", "--data", "here", "--epochs", "1", "--starts", "0", "2820"]
    )
    script.main()
    assert asked == ["here", "mnist"]
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("count of steps from 0: test NLL ")
    assert second.startswith("count of steps from 2820: test NLL ")
    assert first.split(":")[1] != second.split(":")[1]  # its first steps are longer


def small_digits():
    """Return 60 of scikit-learn's digits as images of 28 x 28 pixels."""
    digits = dt.datasets.load_digits().take(np.arange(60))
    image = np.kron(np.reshape(digits.X["image"], (-1, 8, 8)), np.ones((1, 4, 4)))[:, 2:-2, 2:-2]
    return dt.datasets.Dataset("mnist", {"image": image}, digits.y, digits.levels, {})
