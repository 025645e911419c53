"""Training that stopped while the validation loss was still falling: it is said, once, wherever one looks."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import deeptram as dt
from deeptram.errors import UnfinishedTrainingWarning
from deeptram.fitting.deep.gradient import still_falling

EPOCHS = np.arange(1.0, 21.0)
SAID = "had not ended after .* epochs: the validation loss was still falling"


@pytest.mark.parametrize(
    ("losses", "falling"),
    [
        (1 + np.exp(-EPOCHS / 10), True),
        (-5 + np.exp(-EPOCHS / 10), True),  # a density may be large
        (2 - 0.01 * EPOCHS, True),
        (np.array([2.0, 1.5]), True),
        (1 + np.exp(-EPOCHS / 3), False),
        (1 + np.exp(-EPOCHS[::-1] / 10), False),  # over-fitted from the start
        (1 + (EPOCHS - 12) ** 2 / 100, False),  # over-fitted in the end
        (1 + 1e-4 * np.exp(-EPOCHS / 10), False),  # next to nothing to gain
        (1 + np.exp(-EPOCHS) + 1e-3 * np.cos(7 * EPOCHS), False),  # noise
        (np.array([2.0]), False),
    ],
)
def test_the_rule_on_both_sides(losses, falling):
    assert still_falling(losses) is falling


def data():
    rng = np.random.default_rng(5)
    x = rng.normal(size=(300, 2))
    return x, np.sin(2 * x[:, 0]) + x[:, 1] + 0.3 * rng.normal(size=300)


def model(epochs, **settings):
    training = dt.Training(epochs=epochs, learning_rate=0.005, batch_size=64, progress=False, **settings)
    return dt.Lm([dt.CS(dt.networks.MLP((16,)), "x0"), dt.LS("x1")], training=training, random_state=1)


def test_a_brief_fit_says_so_wherever_one_looks(tmp_path):
    X, y = data()
    with pytest.warns(UnfinishedTrainingWarning, match=rf"^training {SAID}; set Training\(epochs=\.\.\.\)"):
        brief = model(6).fit(X, y, validation=0.3)
    assert not brief.converged_
    loaded = dt.load(brief.save(tmp_path / "model"))
    assert not loaded.converged_
    for one in (brief, loaded):
        page = one.report(X, y, n_boot=0).html
        for shown in (repr(one.summary()), one._repr_html_(), page):
            assert "training had not ended after 6 epochs" in shown


def test_a_fit_to_the_end_says_nothing():
    X, y = data()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        long = model(400, patience=20).fit(X, y, validation=0.3)
    assert long.converged_
    assert long.n_iter_ < 400
    assert "had not ended" not in repr(long.summary())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model(6).fit(X, y)  # without validation data nothing is known


@pytest.mark.parametrize("how", ["fit", "folds", "auto"])
def test_an_ensemble_says_it_once(how):
    X, y = data()
    one = dt.Tram(
        model(6).terms, outcome="continuous", latent="normal", basis="linear", training=model(6).training
    )
    one.set_params(latent="auto" if how == "auto" else "normal")

    def fit():
        if how == "folds":
            return dt.Ensemble.from_folds(one, X, y, cv=3, random_state=1)
        return dt.Ensemble(one, 3, random_state=1).fit(X, y, validation=0.3)

    with pytest.warns(UnfinishedTrainingWarning, match=f"training of 3 of 3 members {SAID}") as said:
        whole = fit()
    assert len(said) == 1
    for shown in (repr(whole.summary()), whole._repr_html_()):
        assert "training of 3 of 3 members had not ended" in shown


def test_of_snapshots_the_last_one_counts():
    X, y = data()
    with pytest.warns(UnfinishedTrainingWarning) as said:
        whole = dt.Ensemble(model(6), 2, members="snapshots", random_state=1).fit(X, y, validation=0.3)
    assert "training of 1 of 2 members" in str(said[0].message)
    assert [one.converged_ for one in whole.members_] == [True, False]
