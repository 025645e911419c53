"""The data set container, lazy rows, simulated covariates, embedded digits, and the cache's file handling."""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_digits as sklearn_digits
from statsmodels.miscmodels.ordinal_model import OrderedModel

from deeptram._rows import RowView
from deeptram.datasets import PAPER_EFFECTS, Dataset, load_digits, simulate_covariates
from deeptram.datasets.base import categorical, standardise
from deeptram.errors import InvalidInputError, UnsupportedError
from deeptram.inputs.images import ImageSource


@pytest.fixture
def data() -> Dataset:
    images = np.arange(5 * 4 * 4, dtype=np.uint8).reshape(5, 4, 4)
    x = {"image": images, "x": np.arange(5.0), "id": np.array(list("abcde"))}
    return Dataset(
        "toy", x, categorical(list("uvuvw"), ("w", "v", "u")), ("w", "v", "u"), {"rows": {"t": np.arange(5)}}
    )


def test_codes_follow_the_levels(data):
    assert data.codes.tolist() == [2, 1, 2, 1, 0]
    assert data.codes.dtype == np.int64
    assert data.y.cat.ordered
    assert "n=5" in repr(data)


def test_take_keeps_everything_together(data):
    part = data.take([4, 0]).take([1, 0, 1])
    assert part.X["id"].tolist() == ["a", "e", "a"]
    assert part.codes.tolist() == [2, 0, 2]
    assert part.y.index.tolist() == [0, 1, 2]
    assert part.info["rows"]["t"].tolist() == [0, 4, 0]
    np.testing.assert_array_equal(part.X["image"][[0, 1]], data.X["image"][[0, 4]])
    assert len(data) == 5
    assert data.take(np.array([True, False, False, True, False])).X["x"].tolist() == [0.0, 3.0]


def test_rows_are_lazy_and_flat(data):
    view = data.take([3, 1, 0]).take([2, 0]).X["image"]
    assert isinstance(view, RowView)
    assert view.entry is data.X["image"]
    assert view.rows.tolist() == [0, 3]
    assert view.shape == (2, 4, 4)
    source = ImageSource(view)
    np.testing.assert_allclose(
        source.batch([1, 0, 1]).numpy()[:, 0], data.X["image"][[3, 0, 3]] / 255, atol=1e-7
    )
    assert pickle.loads(pickle.dumps(view))[[0]].tolist() == view[[0]].tolist()
    assert "shape=(2, 4, 4)" in repr(view)


def test_table_leaves_the_images_out(data):
    assert data.table().columns.tolist() == ["x", "id"]


def test_a_number_has_no_codes():
    with pytest.raises(
        UnsupportedError, match="only discrete responses have class codes, got the data set 'c'"
    ):
        _ = Dataset("c", {}, np.zeros(2), None, {}).codes


def test_standardise_uses_n_minus_one(rng):
    values = rng.normal(3, 2, 50)
    z, mean, sd = standardise(values)
    assert z.std(ddof=1) == pytest.approx(1, abs=1e-14)
    np.testing.assert_allclose(z * sd + mean, values)


def test_covariates_follow_the_scheme():
    codes = np.repeat(np.arange(7), 20_000)
    x = pd.DataFrame(simulate_covariates(codes, seed=2))
    assert list(x) == list(PAPER_EFFECTS) == [f"x_{j}" for j in range(1, 11)]
    assert np.abs(x.mean()).max() < 1e-12
    slopes = x.apply(lambda column: np.polyfit(codes, column, 1)[0])
    np.testing.assert_allclose(slopes, list(PAPER_EFFECTS.values()), atol=0.01)
    residual = x - np.outer(codes - 3, list(PAPER_EFFECTS.values()))
    np.testing.assert_allclose(residual.std(), 1.55, rtol=0.01)
    assert np.abs(np.corrcoef(residual.T) - np.eye(10)).max() < 0.01  # independent given the class
    assert PAPER_EFFECTS["x_2"] == -PAPER_EFFECTS["x_3"] == pytest.approx(np.log(1.2))
    assert PAPER_EFFECTS["x_5"] == -PAPER_EFFECTS["x_6"] == pytest.approx(np.log(1.5))


def test_covariates_depend_on_the_seed_only():
    codes = np.arange(10)
    first, again = simulate_covariates(codes, seed=5), simulate_covariates(codes, seed=5)
    assert all(np.array_equal(first[name], again[name]) for name in first)
    assert not np.array_equal(first["x_1"], simulate_covariates(codes, seed=6)["x_1"])
    with pytest.raises(InvalidInputError, match="sd must be positive, got 0"):
        simulate_covariates(codes, seed=1, sd=0)


def test_digits_are_scikit_learns():
    data = load_digits()
    bundled = sklearn_digits()
    np.testing.assert_allclose(data.X["image"] * 16, bundled.images)
    assert data.codes.tolist() == bundled.target.tolist()
    assert data.X["image"].dtype == np.float32
    assert data.levels == tuple(range(10))


def test_proportional_odds_model_of_digits_returns_the_effects():
    """The independent fit is statsmodels'; standard errors are about 0.022."""
    data = load_digits()
    fit = OrderedModel(data.codes, data.table(), distr="logit").fit(method="bfgs", disp=False)
    truth = pd.Series(data.info["beta"])
    assert np.abs(fit.params[truth.index] - truth).max() < 0.06


@pytest.mark.slow
def test_noise_of_digits_is_the_right_one():
    """With many rows and ten equally frequent classes the effects come out within 2 %."""
    codes = np.arange(100_000) % 10
    x = pd.DataFrame(simulate_covariates(codes, seed=3, sd=1.9))[["x_2", "x_3", "x_5", "x_6"]]
    fit = OrderedModel(codes, x, distr="logit").fit(method="bfgs", disp=False)
    np.testing.assert_allclose(fit.params[x.columns], [PAPER_EFFECTS[name] for name in x], rtol=0.03)
