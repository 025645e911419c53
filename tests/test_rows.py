"""Some rows of anything: frames, arrays, lists, tensors, memory maps, objects that are read when used."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import torch

import deeptram as dt
from deep_models import FAST, NET
from deeptram._rows import RowView, count_rows, take_rows
from deeptram.errors import InvalidTypeError

ROWS = np.array([0, 3, 4])


class OnDisk:
    """Rows on a disk that wants them sorted and once each, as HDF5 does."""

    def __init__(self, values):
        self.values, self.reads = values, 0

    def __len__(self):
        return len(self.values)

    def __getitem__(self, rows):
        rows = np.asarray(rows)
        assert (np.diff(rows) > 0).all(), "rows must be in ascending order"
        self.reads += 1
        return self.values[rows]


@pytest.mark.parametrize(
    "entry",
    [
        np.arange(5.0),
        np.arange(10.0).reshape(5, 2),
        pd.Series(np.arange(5.0), index=list("abcde")),
        pd.Categorical(["u", "v", "u", "v", "v"]),
        torch.arange(5.0),
        [0.0, 1.0, 2.0, 3.0, 4.0],
        ["a", "b", "c", "d", "e"],
        range(5),
    ],
    ids=lambda entry: type(entry).__name__,
)
def test_entries_in_memory(entry):
    taken = take_rows({"x": entry}, ROWS)["x"]
    np.testing.assert_array_equal(np.asarray(taken), np.asarray(entry)[ROWS])
    assert type(taken) is type(entry) or isinstance(taken, np.ndarray)


def test_frames_arrays_and_outcomes():
    X = pd.DataFrame({"a": np.arange(5.0)}, index=list("abcde"))
    assert take_rows(X, ROWS).index.tolist() == ["a", "d", "e"]
    np.testing.assert_array_equal(take_rows(X.to_numpy(), ROWS), X.to_numpy()[ROWS])
    survival = dt.Surv.right(np.arange(1.0, 6.0), [1, 0, 1, 0, 1])
    assert take_rows(survival, ROWS).observations.lower.tolist() == [1.0, 4.0, 5.0]
    labels = pd.Series(pd.Categorical(["u", "v", "u", "v", "v"], categories=["v", "u"], ordered=True))
    assert take_rows(labels, ROWS).cat.categories.tolist() == ["v", "u"]
    assert count_rows(X) == count_rows({"a": X["a"]}) == 5


def test_what_is_on_disk_stays_there(tmp_path):
    images = np.random.default_rng(0).normal(size=(5, 4, 4))
    np.save(tmp_path / "images.npy", images)
    mapped = np.load(tmp_path / "images.npy", mmap_mode="r")
    source = OnDisk(images)
    view = take_rows({"a": mapped, "b": source}, ROWS)
    assert isinstance(view["a"], RowView)
    assert isinstance(view["b"], RowView)
    assert (view["a"].shape, view["a"].dtype, len(view["b"])) == ((3, 4, 4), np.float64, 3)
    assert source.reads == 0
    np.testing.assert_array_equal(view["b"][np.array([1, 2])], images[[3, 4]])
    again = take_rows(view, np.array([2]))
    np.testing.assert_array_equal(again["a"][np.array([0])], images[[4]])


def test_an_ensemble_on_data_that_are_read_when_used():
    data = dt.datasets.simulate("ordinal", n=60, seed=1)
    lazy = {**data.X, "image": OnDisk(data.X["image"])}
    model = dt.Polr([dt.CS(NET, "image"), dt.LS("x_1")], training=FAST)
    settings = {"n_members": 2, "weights": "tuned", "random_state": 1, "strategy": "sequential"}
    from_disk = dt.Ensemble(model, **settings).fit(lazy, data.y, validation=0.3)
    in_memory = dt.Ensemble(model, **settings).fit(dict(data.X), data.y, validation=0.3)
    np.testing.assert_allclose(from_disk.predict_proba(lazy), in_memory.predict_proba(data.X), atol=1e-6)
    np.testing.assert_allclose(from_disk.weights_, in_memory.weights_, atol=1e-3)
    folds = dt.Ensemble.from_folds(model, lazy, data.y, cv=2, random_state=1)
    assert np.isfinite(folds.fold_scores_).all()


def test_mixed_lists_stay_lists():
    assert take_rows([1, "a", 2, "b", 3], ROWS) == [1, "b", 3]
    assert take_rows(("a", "b", "c"), np.array([True, False, True])).tolist() == ["a", "c"]


def test_sparse_data_are_refused():
    with pytest.raises(
        InvalidTypeError, match=r"y must be dense, but sparse data was passed; use y\.toarray"
    ):
        take_rows(scipy.sparse.eye(5, format="csr"), ROWS, "y")
