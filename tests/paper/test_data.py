from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from deeptram import datasets
from deeptram.errors import InvalidInputError
from deeptram.paper import make_study, paper_splits
from deeptram.paper.members import data_digests, gallery, has_images, load_study_data, make_splits


@pytest.fixture(scope="module")
def digits():
    study = make_study("digits", "quick")
    return study, load_study_data(study)


def test_splits_are_stratified_and_disjoint(digits):
    study, data = digits
    splits = make_splits(study, data)
    assert len(splits) == 6
    for split in splits:
        rows = np.concatenate(list(split.parts()))
        assert np.array_equal(np.sort(rows), np.arange(len(data)))
        shares = np.bincount(data.codes[split.test]) / np.bincount(data.codes)
        assert shares.min() > 0.17
        assert shares.max() < 0.23


def test_the_seed_decides_about_splits_and_covariates(digits):
    study, data = digits
    other = dataclasses.replace(study, seed=1)
    assert make_splits(study, data) != make_splits(other, data)
    assert not np.array_equal(load_study_data(other).X["x_1"], data.X["x_1"])


def test_authors_splits_need_all_rows(digits):
    data = digits[1]
    with pytest.raises(InvalidInputError, match="the authors' splits of mnist are for 60000 rows, got 1797"):
        make_splits(make_study("mnist"), data)


def test_digests_follow_the_data(digits):
    study, data = digits
    before = data_digests(study, data)
    assert data_digests(study, load_study_data(study)) == before
    other = datasets.load_digits(seed=9)
    assert data_digests(study, other)["table"] != before["table"]
    assert data_digests(study, other)["image"] == before["image"]
    images = np.array(data.X["image"])
    images[-1, -1, -1] += 0.5
    changed = dataclasses.replace(data, X={**data.X, "image": images})
    assert data_digests(study, changed)["table"] == before["table"]
    assert data_digests(study, changed)["image"] != before["image"]
    table = dataclasses.replace(data, X={k: v for k, v in data.X.items() if k != "image"})
    assert data_digests(study, table)["image"] is None


def test_gallery_shows_test_images(digits):
    study, data = digits
    splits = make_splits(study, data)
    shown = gallery(data, splits, dataclasses.replace(study, splits=(2, 3)))
    assert shown["split"].tolist() == [2]
    rows = splits[1].test[shown["position"]]
    assert np.array_equal(shown["images"], np.round(255 * data.X["image"][rows]).astype(np.uint8))
    assert len(set(shown["position"])) == len(shown["position"]) == 240


def test_large_images_become_small(digits):
    study, data = digits
    big = np.zeros((len(data), 200, 150, 3), dtype=np.uint8)
    shown = gallery(dataclasses.replace(data, X={"image": big}), make_splits(study, data), study)
    assert max(shown["images"].shape[1:3]) <= 64


def test_only_the_melanoma_table_may_lack_images(tmp_path):
    assert has_images("digits", None)
    assert not has_images("melanoma", tmp_path)
    (tmp_path / "jpeg").mkdir()
    assert has_images("melanoma", tmp_path)


def test_melanoma_uses_the_authors_splits(data_dir):
    study = make_study("melanoma", models=["SI"])
    data = load_study_data(study, data_dir)
    assert make_splits(study, data) == paper_splits("melanoma")


def test_lesions_are_not_divided(data_dir):
    study = make_study("ham10000", models=["SI"])
    data = load_study_data(study, data_dir)
    lesions = data.X["lesion_id"]
    for split in make_splits(study, data)[:2]:
        parts = [set(lesions[rows]) for rows in split.parts()]
        assert not parts[0] & parts[1]
        assert not parts[0] & parts[2]
        assert not parts[1] & parts[2]
