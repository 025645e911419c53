"""Saved models edited at random, with digests that fit: refused with a ``FileFormatError``, or they work.

``DEEPTRAM_EDITS=20000`` makes the campaign longer, ``DEEPTRAM_SEED`` gives another one.
"""

from __future__ import annotations

import os
import resource

import numpy as np
import pytest

from deeptram.errors import FileFormatError
from deeptram.model.persistence import JSON_NAME, TENSOR_NAME, read_folder
from saved_edits import MEGABYTES, campaign, make_models, trial

EDITS, SEED = int(os.environ.get("DEEPTRAM_EDITS", "250")), int(os.environ.get("DEEPTRAM_SEED", "0"))


@pytest.fixture(scope="module")
def models():
    return make_models()


def test_every_kind_of_model_comes_back(models, tmp_path):
    for name, (model, X, y) in models.items():
        assert trial(model.save(tmp_path / name), X, y) == ("works", ""), name


def test_edited_models_are_refused_or_work(models, tmp_path):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    results = campaign(models, tmp_path, EDITS, SEED)
    failures = [result for result in results if result[2] not in ("refused", "works", "other data")]
    assert failures == []
    assert len(results) == EDITS
    assert {outcome for _, _, outcome, _ in results} >= {"refused", "works"}
    if EDITS <= 1000:
        assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024 < MEGABYTES


def test_flipped_bits_and_cut_files_are_refused(models, tmp_path):
    rng = np.random.default_rng(SEED)
    path = models["shift"][0].save(tmp_path / "m")
    for name in (JSON_NAME, TENSOR_NAME):
        original = (path / name).read_bytes()
        for trial_number in range(max(EDITS // 5, 10)):
            data = bytearray(original)
            position = int(rng.integers(len(data)))
            if trial_number % 2:
                data[position] ^= 1 << int(rng.integers(8))
            else:
                data = data[:position]
            (path / name).write_bytes(bytes(data))
            with pytest.raises(FileFormatError):
                read_folder(path)
        (path / name).write_bytes(original)
    read_folder(path)
