"""Saving and loading of ensembles."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression

import deeptram as dt
from deep_models import FAST, MODELS, NET, TERMS, make, table
from deeptram.errors import FileFormatError, UnsupportedError
from deeptram.model import persistence


@pytest.mark.parametrize("name", MODELS)
def test_every_outcome(name, tmp_path):
    X, _ = table()
    model, y = make(name, TERMS["SI-CS-LS"])
    pooling = "log-linear-density" if name == "nominal" else "transformation"
    ensemble = dt.Ensemble(model, 2, pooling=pooling, weights=[0.3, 0.7], random_state=5).fit(X, y)
    again = dt.load(ensemble.save(tmp_path / "e"))
    a, b = ensemble.predict_distribution(X), again.predict_distribution(X)
    np.testing.assert_allclose(a.log_prob(y), b.log_prob(y), rtol=0, atol=1e-12)
    np.testing.assert_array_equal(np.asarray(ensemble.predict(X)), np.asarray(again.predict(X)))
    for method in ("bootstrap", "total"):
        pd.testing.assert_frame_equal(ensemble.coef_table(method=method), again.coef_table(method=method))
    pd.testing.assert_frame_equal(ensemble.history_, again.history_)
    assert again.members_[0].design_ is again.members_[1].design_
    assert again.root_seed_ == 5
    assert again.strategy_ == "stacked"
    assert repr(again.model.get_params()) == repr(ensemble.model.get_params())


def test_tuned_and_recalibrated(tmp_path):
    X, z = table(200)
    model = dt.Polr(TERMS["SI-CS-LS"], training=FAST)
    y = np.digitize(z, [-1, 0, 1])
    ensemble = dt.Ensemble(model, 3, weights="tuned", recalibrate=True, random_state=1)
    ensemble.fit(X, y, validation=0.3)
    again = dt.load(ensemble.save(tmp_path / "e"))
    forged = persistence.read_content(tmp_path / "e")
    forged["ensemble"]["recalibrations"][1]["intercept"] = [3.0, 2.0, 1.0]
    forged["sha256"] = persistence._digest(forged)
    (tmp_path / "e" / persistence.JSON_NAME).write_text(json.dumps(forged), encoding="utf-8")
    with pytest.raises(
        FileFormatError, match=r"recalibrations\[1\] must be one slope and increasing intercepts"
    ):
        dt.load(tmp_path / "e")
    np.testing.assert_array_equal(again.weights_, ensemble.weights_)
    assert again.weights == "tuned"
    np.testing.assert_array_equal(again.predict_proba(X), ensemble.predict_proba(X))
    pd.testing.assert_series_equal(again.coef_, ensemble.coef_)


def test_ensembles_of_exact_models_and_of_saved_members(tmp_path):
    X, z = table()
    folds = dt.Ensemble.from_folds(dt.Colr([dt.LS("a")]), X, z, cv=3, random_state=1)
    again = dt.load(folds.save(tmp_path / "folds"))
    np.testing.assert_array_equal(again.predict(X), folds.predict(X))
    paths = [member.save(tmp_path / f"m{m}") for m, member in enumerate(folds.members_)]
    from_paths = dt.Ensemble.from_members([str(paths[0]), *paths[1:]])
    np.testing.assert_array_equal(from_paths.predict(X), folds.predict(X))


def test_own_networks(tmp_path):
    X, z = table()

    def net(in_shape, out_features):
        return NET(in_shape, out_features)

    model = dt.Colr([dt.CS(net, "b"), dt.LS("a")], training=FAST)
    ensemble = dt.Ensemble(model, 2, random_state=1).fit(X, z)
    path = ensemble.save(tmp_path / "e")
    name = f"{__name__}.test_own_networks.<locals>.net"
    with pytest.raises(FileFormatError, match="load it with networks="):
        dt.load(path)
    again = dt.load(path, networks={name: net})
    np.testing.assert_array_equal(again.predict(X), ensemble.predict(X))


def test_what_cannot_be_saved(tmp_path):
    X, z = table()
    foreign = dt.Ensemble.from_members([LogisticRegression().fit(X, z > 0)])
    with pytest.raises(UnsupportedError, match="got LogisticRegression as member 0; save it with its own"):
        foreign.save(tmp_path / "e")
    harmonic = dt.QuasiArithmetic(np.reciprocal, np.reciprocal)
    own = dt.Ensemble.from_members([dt.Logit([dt.LS("a")]).fit(X, z > 0)], pooling=harmonic)
    with pytest.raises(UnsupportedError, match="a pool must have a name to be saved, got QuasiArithmetic"):
        own.save(tmp_path / "e")
    assert list(tmp_path.iterdir()) == []


RECALIBRATION = {"intercept": [0.0], "slope": [1.0], "latent": "logistic", "converged": True}


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda e: e["members"].pop(), r"tensors\.safetensors: 1/history must be none, got float64"),
        (lambda e: e.pop("members"), r"deeptram\.json: ensemble\.members must be there"),
        (lambda e: e["settings"].pop("strategy"), r"ensemble\.settings\.strategy must be there"),
        (lambda e: e["settings"].update(n_members=10**9), "n_members must be an integer from 1 to 1e.06"),
        (lambda e: e["members"][0].update({"class": "Evil"}), r"members\[0\]\.class must be one of Tram"),
        (
            lambda e: e["members"][1]["fitted"]["outcome"].update(kind="count", observed=None),
            "being a count must be as in the first",
        ),
        (lambda e: e.update(recalibrations=[]), r"recalibrations must be one for each member \(2\), got 0"),
        (
            lambda e: e.update(
                recalibrations=2 * [{**RECALIBRATION, "slope": [1.0, 2.0], "intercept": [0.0, 0.0]}]
            ),
            r"recalibrations\[0\]\.intercept must be one for each cutpoint \(1\), got 2",
        ),
        (
            lambda e: e.update(recalibrations=2 * [{**RECALIBRATION, "slope": [-1.0]}]),
            r"slope\[0\] must be a number from 0",
        ),
    ],
)
def test_forged_ensembles(tmp_path, change, match):
    X, z = table()
    ensemble = dt.Ensemble(dt.Colr(TERMS["CI"], training=FAST), 2, random_state=1).fit(X, z)
    path = ensemble.save(tmp_path / "e")
    file = path / persistence.JSON_NAME
    content = json.loads(file.read_text(encoding="utf-8"))
    change(content["ensemble"])
    content["sha256"] = persistence._digest(content)
    file.write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(FileFormatError, match=match):
        dt.load(path)


def test_tuned_parameters_of_a_pool_are_used_and_saved(tmp_path):
    X, z = table()
    models = [dt.Colr([dt.LS("a")]).fit(X[part], z[part]) for part in (slice(0, 40), slice(20, None))]
    ensemble = dt.Ensemble.from_members(models, pooling="beta-linear")
    tuned = ensemble.tune_weights(X, z)
    info = ensemble.predict_distribution(X).pool_info
    assert info.parameters == tuple(tuned.rule.values())
    again = dt.load(ensemble.save(tmp_path / "e"))
    assert again.method().values() == tuned.rule.values()
    np.testing.assert_allclose(again.score(X, z), ensemble.score(X, z), rtol=1e-12)
    assert -ensemble.score(X, z) == pytest.approx(tuned.value)
