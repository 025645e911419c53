"""Shared set-up: one thread per process, explicit seeds, reference numbers, data on disk."""

from __future__ import annotations

import importlib
import os

# Before NumPy or torch is imported: tests run in several processes, each with one thread.
for _variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")
os.environ.setdefault("MPLBACKEND", "Agg")

import gzip
import json
import zlib
from pathlib import Path
from typing import Any

import hypothesis
import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis.internal.conjecture import providers

from deeptram.fitting.deep import seeds

torch.set_num_threads(1)

SEED = 20220525
GOLDEN = Path(__file__).parent / "golden"
NON_FINITE = {"inf": np.inf, "-inf": -np.inf, "nan": np.nan}

# The default suite gives the same answer every time: examples are not made of the constants of whichever modules
# other tests have imported by then. HYPOTHESIS_PROFILE=explore looks for new examples.
PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "default")
if PROFILE == "default":
    providers.is_local_module_file = lambda path: False
hypothesis.settings.register_profile("default", deadline=None, derandomize=True, max_examples=50)
hypothesis.settings.register_profile("explore", deadline=None, max_examples=500, print_blob=True)
hypothesis.settings.load_profile(PROFILE)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test that reads external data, so that ``-m "not data"`` works."""
    for item in items:
        if "data_dir" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.data)


@pytest.fixture(autouse=True)
def _seeds(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give every test the same global torch state, and the same seeds where it does not ask for one.

    A few rows and a seed of chance are a network that does not learn once in some hundred runs.
    """
    torch.manual_seed(SEED)
    drawn = np.random.default_rng([SEED, zlib.crc32(request.node.nodeid.encode())])
    monkeypatch.setattr(seeds, "_drawn_seed", lambda: int(drawn.integers(2**63)))


@pytest.fixture
def rng() -> np.random.Generator:
    """Return a NumPy generator in the same state at the start of every test."""
    return np.random.default_rng(SEED)


class Golden:
    """Reference numbers in ``tests/golden``, read by the file's name.

    ``golden("polr_wine_logistic.json")`` is the parsed JSON, in which the strings "inf", "-inf" and "nan"
    have become floats; ``golden("wine.csv")`` (also ``.csv.gz``) is a DataFrame with every digit kept.
    Sub-folders may be left out as long as the name is unique.
    """

    def path(self, name: str) -> Path:
        """Return the path of a reference file."""
        if (GOLDEN / name).is_file():
            return GOLDEN / name
        found = sorted(GOLDEN.rglob(name))
        if len(found) != 1:
            raise FileNotFoundError(f"expected one file named {name!r} below tests/golden, got {len(found)}")
        return found[0]

    def __call__(self, name: str, **read_csv: Any) -> Any:
        """Return the content of a reference file; ``read_csv`` goes to :func:`pandas.read_csv`."""
        path = self.path(name)
        if path.suffixes[-1] == ".json":
            return _to_float(json.loads(path.read_text(encoding="utf-8")))
        if path.name.endswith(".json.gz"):
            with gzip.open(path, "rt", encoding="utf-8") as file:
                return _to_float(json.load(file))
        return pd.read_csv(path, float_precision="round_trip", **read_csv)


def _to_float(value: Any) -> Any:
    """Replace the strings that stand for non-finite numbers."""
    if isinstance(value, dict):
        return {key: _to_float(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [_to_float(entry) for entry in value]
    return NON_FINITE.get(value, value) if isinstance(value, str) else value


@pytest.fixture(scope="session")
def golden() -> Golden:
    """Return the reader of ``tests/golden``."""
    return Golden()


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """Return the folder named by DEEPTRAM_DATA; without it the test is skipped."""
    folder = os.environ.get("DEEPTRAM_DATA")
    if not folder:
        pytest.skip("DEEPTRAM_DATA is not set: it names the folder with the data sets")
    path = Path(folder)
    if not path.is_dir():
        pytest.fail(f"DEEPTRAM_DATA must name a folder, got {folder!r}")
    return path


@pytest.fixture
def registries(monkeypatch):
    """Registries of latents, bases, networks and pools that forget what a test has added."""
    for module in ("latent.distribution", "bases.basis", "networks.factories", "pooling.pool"):
        registry = importlib.import_module(f"deeptram.{module}")._REGISTRY
        for part in ("_known", "_aliases"):
            monkeypatch.setattr(registry, part, dict(getattr(registry, part)))
