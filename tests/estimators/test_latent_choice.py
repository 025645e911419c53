"""``latent="auto"``: the distribution the data have, by scikit-learn's own folds, kept through files."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from sklearn.base import clone
from sklearn.model_selection import KFold, cross_val_score

import deeptram as dt
from deep_models import FAST, NET, table
from deeptram.errors import InvalidInputError, UnsupportedError

TRUE = {
    "logistic": stats.logistic,
    "normal": stats.norm,
    "minimum-extreme-value": stats.gumbel_l,
    "maximum-extreme-value": stats.gumbel_r,
}


def sample(name, n=600, seed=0):
    x = np.random.default_rng(seed).normal(size=(n, 1))
    return x, x[:, 0] + TRUE[name].rvs(size=n, random_state=seed + 1)


@pytest.mark.parametrize("name", ["normal", "minimum-extreme-value", "maximum-extreme-value"])
def test_the_distribution_of_the_data_is_found_by_folds_of_scikit_learn(name):
    x, y = sample(name)
    model = dt.Tram(outcome="continuous", basis="linear", latent="auto").fit(x, y)
    assert model.latent_.name == name
    assert model.latent == "auto"
    assert "latent='auto': " + name in repr(model.summary())
    folds = KFold(5, shuffle=True, random_state=0)
    for latent, loss in model.latent_choice_.items():
        same = dt.Tram(outcome="continuous", basis="linear", latent=latent)
        assert loss == pytest.approx(-cross_val_score(same, x, y, cv=folds).mean(), rel=1e-9)
    named = dt.Tram(outcome="continuous", basis="linear", latent=name).fit(x, y)
    pd.testing.assert_series_equal(model.coef_, named.coef_)


def test_validation_data_decide_where_there_are_some(tmp_path):
    x, y = sample("normal", 900)
    model = dt.Tram(outcome="continuous", basis="linear", latent="auto")
    model.fit(x[:500], y[:500], validation=(x[500:], y[500:]))
    named = dt.Tram(outcome="continuous", basis="linear", latent="normal").fit(x[:500], y[:500])
    assert model.latent_choice_["normal"] == pytest.approx(-named.score(x[500:], y[500:]))
    again = dt.load(model.save(tmp_path / "model"))
    pd.testing.assert_series_equal(again.latent_choice_, model.latent_choice_)
    assert again.latent == "auto"
    assert again.summary().equals(model.summary())
    assert clone(again).latent == "auto"


def test_models_with_networks_are_chosen_by_the_validation_loss():
    X, z = table(200)
    model = dt.Tram([dt.CS(NET, "b"), dt.LS("a")], outcome="continuous", latent="auto", training=FAST)
    with pytest.raises(
        InvalidInputError, match="latent='auto' of a model with networks is chosen on validation"
    ):
        model.fit(X, z)
    model.set_params(random_state=3).fit(X, z, validation=0.3)
    for latent, loss in model.latent_choice_.items():
        named = clone(model).set_params(latent=latent).fit(X, z, validation=0.3)
        assert loss == pytest.approx(named.fit_.validation_loss, rel=1e-6)
        if latent == model.latent_.name:
            np.testing.assert_allclose(named.coef_, model.coef_)


def test_all_members_of_an_ensemble_have_the_latent_that_one_chose(tmp_path):
    X, z = table(150)
    model = dt.Tram([dt.CS(NET, "b"), dt.LS("a")], outcome="continuous", latent="auto", training=FAST)
    ensemble = dt.Ensemble(model, 2, random_state=1, checkpoint=tmp_path / "kept").fit(X, z, validation=0.3)
    chosen = ensemble.latent_choice_.index[0]
    assert {member.latent_.name for member in ensemble.members_} == {chosen}
    assert ensemble.model.latent == "auto"
    assert f"latent='auto': {chosen}" in repr(ensemble.coef_table())
    again = dt.load(ensemble.save(tmp_path / "ensemble"))
    pd.testing.assert_series_equal(again.latent_choice_, ensemble.latent_choice_)
    np.testing.assert_array_equal(again.predict_quantile(X, 0.3), ensemble.predict_quantile(X, 0.3))
    resumed = dt.Ensemble(model, 3, random_state=1, checkpoint=tmp_path / "kept").fit(X, z, validation=0.3)
    np.testing.assert_array_equal(resumed.members_[1].coef_, ensemble.members_[1].coef_)


def test_nominal_outcomes_have_one_latent_and_pieces_none_to_choose(tmp_path):
    X, z = table()
    nominal = dt.Tram([dt.LS("a")], outcome="nominal", latent="auto").fit(X, np.digitize(z, [-1, 1]))
    assert nominal.latent_choice_.index.tolist() == ["logistic"]
    X.assign(y=z).to_parquet(tmp_path / "rows.parquet")
    with pytest.raises(UnsupportedError, match="latent='auto' needs all rows at once, got rows in pieces"):
        dt.Tram([dt.LS("a")], outcome="continuous", latent="auto").fit(
            dt.parquet(tmp_path / "rows.parquet"), "y"
        )
