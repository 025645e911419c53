"""Saving and loading of single models: every preset, exact and deep, to the last bit."""

from __future__ import annotations

import functools
import json
import os

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.numpy import load_file, save_file
from sklearn.base import clone
from torch import nn

import deeptram as dt
from deep_models import FAST, MODELS, NET, TERMS, make, table
from deeptram._files import file_sha256, versions
from deeptram.errors import (
    DeeptramWarning,
    FileFormatError,
    InvalidInputError,
    NonFiniteLossError,
    UnsupportedError,
)
from deeptram.estimators.persistence import CLASSES, network_name, terms_from_record, terms_to_record
from deeptram.model import persistence

every_model = pytest.mark.parametrize("name", MODELS)


def assert_same(model, again, X, y):
    """Everything a user can see is what it was."""
    assert type(again) is type(model)
    assert repr(again.get_params()) == repr({**model.get_params(), "random_state": again.random_state})
    a, b = model.predict_distribution(X), again.predict_distribution(X)
    np.testing.assert_array_equal(a.log_prob(y), b.log_prob(y))
    np.testing.assert_array_equal(np.asarray(model.predict(X)), np.asarray(again.predict(X)))
    pd.testing.assert_series_equal(model.coef_, again.coef_)
    pd.testing.assert_frame_equal(model.contributions(X), again.contributions(X))
    pd.testing.assert_frame_equal(model.summary(), again.summary())
    assert again.summary().attrs == model.summary().attrs
    for name in ("loglik_", "n_iter_", "converged_", "n_obs_", "n_parameters_"):
        assert getattr(again, name) == getattr(model, name), name
    assert hasattr(again, "theta_") == hasattr(model, "theta_")
    if hasattr(model, "theta_"):
        np.testing.assert_array_equal(model.theta_, again.theta_)
    if hasattr(model, "classes_"):
        assert again.classes_.tolist() == model.classes_.tolist()
        assert again.classes_.dtype == model.classes_.dtype


@every_model
def test_exact_models(name, tmp_path):
    X, _ = table()
    kind, options, y = MODELS[name]
    model = kind([dt.LS("a * b + bs(c, df=4)")] if name != "nominal" else None, **options).fit(X, y)
    again = dt.load(model.save(tmp_path / "model"))
    assert_same(model, again, X, y)
    pd.testing.assert_frame_equal(model.vcov_, again.vcov_)
    assert again.certificate_ == model.certificate_ or np.isnan(model.certificate_.gap)
    resaved = dt.load(again.save(tmp_path / "again"))
    assert_same(model, resaved, X, y)


@every_model
@pytest.mark.parametrize("terms", TERMS)
@pytest.mark.filterwarnings("ignore::deeptram.errors.ExtrapolationWarning")
def test_deep_models(name, terms, tmp_path):
    X, _ = table()
    model, y = make(name, TERMS[terms])
    model.fit(X, y, validation=0.2)
    again = dt.load(model.save(tmp_path / "model"))
    assert_same(model, again, X, y)
    pd.testing.assert_frame_equal(model.history_, again.history_)
    assert (again.best_epoch_, again.seed_) == (model.best_epoch_, model.seed_)
    if model.shift_vcov_ is None:
        assert again.shift_vcov_ is None
    else:
        pd.testing.assert_frame_equal(model.shift_vcov_, again.shift_vcov_)


def test_other_terms_and_inputs(tmp_path):
    X, z = table(200)
    X = X.assign(s=np.where(X["c"] > 0, "p", "q"), f=pd.Categorical(np.where(X["b"] > 0, "m", "n")))
    cases = [
        (dt.BoxCox([dt.SI("s"), dt.LS("a", "f"), dt.Scale("b")]), z),
        (dt.Colr([dt.LS("a"), dt.Varying("b")], order=3), z),
        (
            dt.Colr(
                [dt.CS(NET, "a", "f", center=True, orthogonalize=True), dt.LS("a"), dt.SI("s")], training=FAST
            ),
            z,
        ),
        (
            dt.Polr([dt.CS(NET, "a"), dt.CS(NET, "b"), dt.LS("f")], training=FAST, levels=[3, 1, 2]),
            1 + (z > 0) + (z > 1),
        ),
        (dt.Polr([dt.LS("a")], loss="rps"), (z > 0).astype(int) + (z > 1)),
        (
            dt.Tram(
                outcome="continuous", latent=dt.latent.get("normal"), support=(-9.0, np.inf) and (-9.0, 9.0)
            ),
            z,
        ),
    ]
    for number, (model, y) in enumerate(cases):
        data = X if model.terms is not None else X[["a", "b"]]
        model.fit(data, y)
        again = dt.load(model.save(tmp_path / str(number)))
        np.testing.assert_array_equal(
            model.predict_distribution(data).log_prob(y), again.predict_distribution(data).log_prob(y)
        )


def test_images_and_dtype(tmp_path):
    data = dt.datasets.simulate("ordinal", n=40, seed=1)
    net = dt.networks.CNN(channels=(3,), dense=(4,), dropout=0.1)
    model = dt.Polr([dt.CI(net, "image"), dt.LS("x_1")], training=FAST.replace(dtype="float64"))
    model.fit(data.X, data.y)
    again = dt.load(model.save(tmp_path / "m"))
    np.testing.assert_array_equal(model.predict_proba(data.X), again.predict_proba(data.X))
    assert again.model_.dtype is torch.float64
    with pytest.raises(InvalidInputError, match=r"\(1, 8, 8\) as in fit"):
        again.predict({**data.X, "image": np.zeros((40, 9, 9))})


def test_labels_keep_their_types(tmp_path):
    X, z = table()
    for number, y in enumerate([z > 0, (z > 0).astype(int), np.where(z > 0, "ja", "nein"), (z > 0) * 1.0]):
        model = dt.Logit([dt.LS("a")]).fit(X, y)
        again = dt.load(model.save(tmp_path / str(number)))
        assert again.classes_.dtype == model.classes_.dtype
        np.testing.assert_array_equal(again.predict(X), model.predict(X))


def test_infinite_and_aliased_coefficients(tmp_path):
    X = pd.DataFrame({"a": np.arange(12.0), "b": 2 * np.arange(12.0)})
    with pytest.warns(dt.errors.DeeptramWarning):
        model = dt.Logit().fit(X, np.arange(12) > 5)
    again = dt.load(model.save(tmp_path / "m"))
    pd.testing.assert_series_equal(model.coef_, again.coef_)
    np.testing.assert_array_equal(model.predict_proba(X), again.predict_proba(X))


def test_the_folder_tells_where_it_comes_from(tmp_path):
    X, z = table()
    model = dt.Colr(TERMS["CI-LS"], training=FAST, random_state=3).fit(X, z)
    path = model.save(tmp_path / "m")
    content = persistence.read_content(path)
    assert content["versions"] == versions()
    assert set(versions()) >= {"deeptram", "python", "torch", "numpy", "safetensors"}
    assert content["model"]["fitted"]["fit"]["seed"] == 3
    assert len(content["model"]["fitted"]["data_hash"]) == 64
    assert dt.load(path).data_hash_ == model.data_hash_
    other = dt.Colr(TERMS["CI-LS"], training=FAST, random_state=3).fit(X, z + 1)
    assert other.data_hash_ != model.data_hash_


def test_an_unfitted_model_and_an_existing_path(tmp_path):
    from sklearn.exceptions import NotFittedError

    with pytest.raises(NotFittedError, match="not fitted"):
        dt.Polr().save(tmp_path / "m")
    X, z = table()
    model = dt.Colr([dt.LS("a")]).fit(X, z)
    model.save(tmp_path / "m")
    with pytest.raises(InvalidInputError, match="pass overwrite=True"):
        model.save(tmp_path / "m")
    model.save(tmp_path / "m", overwrite=True)


# -- networks --------------------------------------------------------------------------------------------


class Own(nn.Module):
    """A user's network."""

    def __init__(self, in_shape, out_features, width=3):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(in_shape[0], width), nn.Tanh(), nn.Linear(width, out_features))

    def forward(self, x):
        return self.layers(x)


@pytest.mark.parametrize("factory", [Own, functools.partial(Own, width=5)], ids=["class", "partial"])
def test_own_networks_are_handed_over_on_loading(factory, tmp_path):
    X, z = table()
    model = dt.Colr([dt.CS(factory, "b"), dt.LS("a")], training=FAST).fit(X, z)
    path = model.save(tmp_path / "m")
    name = network_name(Own)
    with pytest.raises(
        FileFormatError, match=rf"saved with the network '{name}'.*networks=\{{'{name}': your_factory"
    ):
        dt.load(path)
    again = dt.load(path, networks={name: Own})
    np.testing.assert_array_equal(model.predict(X), again.predict(X))
    with pytest.raises(
        FileFormatError,
        match=r"shifts\.0\.net\.layers\.0\.bias must be float32 of shape \(17,\), got .*load it with",
    ):
        dt.load(path, networks={name: _wider})
    with pytest.raises(
        dt.errors.InvalidTypeError, match="networks must be a dict of names and factories, got list"
    ):
        dt.load(path, networks=[Own])


def _wider(in_shape, out_features, width=0):
    return Own(in_shape, out_features, 17)


def test_registered_networks_need_no_handing_over(tmp_path):
    dt.networks.register("own-network-of-this-test", Own)
    X, z = table()
    model = dt.Colr([dt.CS(Own, "b")], training=FAST).fit(X, z)
    np.testing.assert_array_equal(dt.load(model.save(tmp_path / "m")).predict(X), model.predict(X))


def test_positional_partials_are_refused(tmp_path):
    X, z = table()
    model = dt.Colr([dt.CS(functools.partial(_third_last, 4), "b")], training=FAST).fit(X, z)
    with pytest.raises(UnsupportedError, match="keywords only, got positional arguments"):
        model.save(tmp_path / "m")


def _third_last(width, in_shape, out_features):
    return Own(in_shape, out_features, width)


class Unknown(Own):
    """One that no test registers."""


def of_width(width):
    class Net(Own):
        def __init__(self, in_shape, out_features):
            super().__init__(in_shape, out_features, width)

    return Net


def of_width_by_function(width):
    return lambda in_shape, out_features: Own(in_shape, out_features, width)


def two_networks(one, other):
    X, z = table()
    return dt.Colr([dt.CI(one, "b"), dt.CS(other, "c"), dt.LS("a")], training=FAST).fit(X, z)


@pytest.mark.parametrize("make_net", [of_width, of_width_by_function])
def test_two_networks_of_one_name_are_refused(make_net, tmp_path):
    model = two_networks(make_net(3), make_net(4))
    match = (
        rf"got two different ones called '.*{make_net.__name__}\.<locals>.*; register them with dt\.networks"
    )
    for fitted in (model, dt.Ensemble.from_members([model, model])):
        with pytest.raises(UnsupportedError, match=match):
            fitted.save(tmp_path / "m")
    assert not any(tmp_path.iterdir())
    dt.Ensemble(clone(model), 2, random_state=1, checkpoint=tmp_path).fit(*table())  # needs no names


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Unknown, Unknown),
        (functools.partial(Unknown, width=5), functools.partial(Unknown, width=4)),
        (of_width_by_function(3), of_width_by_function(3)),
    ],
    ids=["same", "partials", "equal"],
)
def test_one_network_may_be_used_twice(one, other, tmp_path):
    X, _ = table()
    model = two_networks(one, other)
    base = getattr(one, "func", one)
    again = dt.load(model.save(tmp_path / "m"), networks={network_name(base): base})
    np.testing.assert_array_equal(again.predict(X), model.predict(X))


class Silent(Unknown):
    def forward(self, x):
        return 0 * super().forward(x)


def test_another_network_of_the_same_shapes_warns(tmp_path):
    X, z = table()
    name = network_name(Unknown)
    model = dt.Colr([dt.CS(Unknown, "b"), dt.LS("a")], training=FAST).fit(X, z)
    path = model.save(tmp_path / "m")
    with pytest.warns(
        DeeptramWarning, match=rf"network '{name}' must do what it did .* got other code"
    ) as seen:
        again = dt.load(path, networks={name: Silent})
    assert len(seen) == 1
    assert seen[0].filename == __file__
    assert not np.array_equal(again.predict(X), model.predict(X))


@pytest.mark.parametrize("saved", [None, "cpython-27:0"], ids=["before this was saved", "another Python"])
def test_where_nothing_can_be_compared_nothing_is_said(tmp_path, saved):
    X, z = table()
    name = network_name(Unknown)
    path = dt.Colr([dt.CS(Unknown, "b")], training=FAST).fit(X, z).save(tmp_path / "m")
    forge(
        path, lambda model: model.pop("networks") if saved is None else model.update(networks={name: saved})
    )
    dt.load(path, networks={name: Silent})


def test_subclasses_are_refused(tmp_path):
    class Mine(dt.Polr):
        pass

    X, z = table()
    with pytest.raises(UnsupportedError, match="can be saved, got Mine"):
        Mine([dt.LS("a")]).fit(X, z > 0).save(tmp_path / "m")


def test_terms_come_back():
    terms = [dt.SI("s"), dt.LS("a * b"), dt.LS("a", "b"), dt.LS(), dt.Scale("z"), dt.Varying(["v"])]
    terms += [
        dt.CS(NET, "x", center=True),
        dt.Scale(NET, "x", "y"),
        dt.Scale(NET),
        dt.CI(dt.networks.paper_mnist, "image"),
    ]
    assert terms_from_record(json.loads(json.dumps(terms_to_record(terms))), {}) == terms
    assert terms_from_record(terms_to_record(dt.LS("a")), {}) == [dt.LS("a")]
    assert terms_from_record(None, {}) is None


# -- files from elsewhere ----------------------------------------------------------------------------------


def forge(path, change):
    file = path / persistence.JSON_NAME
    content = json.loads(file.read_text(encoding="utf-8"))
    change(content["model"])
    content["sha256"] = persistence._digest(content)
    file.write_text(json.dumps(content), encoding="utf-8")


def saved(tmp_path, terms="CI-LS"):
    X, z = table()
    return dt.Colr(TERMS[terms], training=FAST, random_state=3).fit(X, z).save(tmp_path / "m")


def set_net(name=None, **config):
    def change(model):
        net = model["parameters"]["terms"][0]["net"]
        net["name"] = name or net["name"]
        net["config"].update(config)

    return change


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda m: m.update({"class": "os.system"}), "must be one of Tram, Polr, .* got 'os.system'"),
        (set_net("os.system"), "got 'os.system', which is not registered here"),
        (
            set_net(hidden=[10**9, 10**9]),
            r"cannot be rebuilt \(hidden must hold positive integers, got \(10{9}",
        ),
        (set_net(hidden=[5000] * 5000), "must be as large as its weights, got settings for a larger one"),
        (set_net(hidden=[1] * 100_000), "must be as large as its weights, got settings for a larger one"),
        (set_net(hidden=[10**6] * 1000), "must be as large as its weights, got settings for a larger one"),
        (set_net(hidden=["__import__('os')"]), r"cannot be rebuilt \(hidden must .*__import__"),
        (set_net(evil=1), r"cannot be rebuilt \(MLP takes hidden, .*, got evil"),
        (
            set_net(hidden=[float(2**52) * 1e90]),
            r"deeptram\.json: model\.parameters\.terms\[0\]\.net\.config\.hidden\[0\] must be a number",
        ),
        (
            lambda m: m["parameters"]["terms"][0].update(net="x"),
            r"terms\[0\]\.net must be an object with name",
        ),
        (lambda m: m["parameters"]["terms"][0].update(term="Evil"), "must be one of SI, CI, .* got 'Evil'"),
        (
            lambda m: m["parameters"].update(terms={}),
            r"parameters\.terms must be a list of 0 to 1000 entries, got {}",
        ),
        (lambda m: m["parameters"].update(training={"shell": "rm"}), "cannot be rebuilt .*no setting shell"),
        (lambda m: m["parameters"].update(nonsense=1), r"parameters\.nonsense must be absent, got 1"),
        (
            lambda m: m["parameters"].update(latent="evil"),
            r"a saved latent must be one of logistic, .* got 'evil', .* deeptram\.latent\.register",
        ),
        (lambda m: m["fitted"].pop("outcome"), r"model\.fitted\.outcome must be there, got None"),
        (lambda m: m["fitted"]["outcome"].update(kind="ordinal"), "must be one of outcomes with bernstein"),
        (lambda m: m["fitted"]["outcome"].update(levels=[None]), r"levels\[0\] must be a label, got None"),
        (lambda m: m["fitted"]["outcome"].update(levels=["a", "a"]), "must be a list without repetition"),
        (
            lambda m: m["fitted"]["outcome"]["basis"].update(order=10**400),
            r"basis\.order must be a number from -1e\+100 to 1e\+100, got 1000",
        ),
        (lambda m: m["fitted"]["outcome"]["basis"].update(order=10**6), "cannot be rebuilt .*order must"),
        (lambda m: m["fitted"]["outcome"]["basis"].update(support=[1, 0]), "cannot be rebuilt .*support"),
        (
            lambda m: m["fitted"].update(latent="evil"),
            r"fitted\.latent: a saved latent must be one of logistic, .* got 'evil'",
        ),
        (lambda m: m.pop("fitted"), r"deeptram\.json: model\.fitted must be there"),
        (
            lambda m: m["fitted"]["design"].update(strata={"column": "s", "levels": ["p"], "unobserved": []}),
            r"design\.strata must be of the term SI \(None\), got 's'",
        ),
        (lambda m: m["fitted"]["design"].update(linear=None), "must be there exactly when a term LS is"),
        (
            lambda m: m["fitted"]["design"]["linear"].update(names=["z"]),
            r"what columns and levels give \(\['a'\]\)",
        ),
        (
            lambda m: m["fitted"]["design"]["linear"].update(required_columns=["z"], names=["z"]),
            r"required_columns must be among feature_names, got \['z'\]",
        ),
        (
            lambda m: m["fitted"]["fit"]["model"]["inputs"][0]["parts"][0]["sd"].pop(),
            r"parts\[0\]\.sd must be as many as",
        ),
        (
            lambda m: m["fitted"]["fit"]["model"].update(inputs=[]),
            r"inputs must be a list of 1 to 1000 entries, got \[\]",
        ),
        (lambda m: m["fitted"].update(data_hash="\ud800"), "data_hash must be a text"),
        (lambda m: m["fitted"]["fit"].update(interrupted=1), "interrupted must be true or false, got 1"),
    ],
)
def test_forged_models_are_refused(tmp_path, change, match):
    path = saved(tmp_path)
    forge(path, change)
    with pytest.raises(FileFormatError, match=match):
        dt.load(path)


def test_a_forged_formula_runs_no_code(tmp_path, monkeypatch):
    X, z = table()
    path = dt.Colr([dt.LS("a + bs(b, df=4)")]).fit(X, z).save(tmp_path / "m")
    called = []
    monkeypatch.setattr(os, "system", called.append)

    def change(model):
        terms = model["fitted"]["design"]["linear"]["formula"]["terms"]
        terms[1] = [["__import__('os').system('x')", "python"]]

    forge(path, change)
    with pytest.raises(FileFormatError, match="formulas may"):
        dt.load(path).predict(X)
    assert called == []


def set_tensor(path, name, value):
    """Change a tensor and let all digests fit again."""
    file = path / persistence.TENSOR_NAME
    tensors = load_file(file)
    tensors[name] = np.asarray(value, dtype=getattr(value, "dtype", tensors[name].dtype))
    save_file(tensors, file)
    content = json.loads((path / persistence.JSON_NAME).read_text(encoding="utf-8"))
    shapes = {key: list(array.shape) for key, array in tensors.items()}
    content["tensors"] = {"bytes": file.stat().st_size, "sha256": file_sha256(file), "shapes": shapes}
    content["sha256"] = persistence._digest(content)
    (path / persistence.JSON_NAME).write_text(json.dumps(content), encoding="utf-8")


@pytest.mark.parametrize(
    ("name", "value", "match"),
    [
        ("model.beta", [np.nan], "beta must hold numbers from -1e.100 to 1e.100, got others; fit it again"),
        (
            "model.intercept.net.0.bias",
            np.zeros(6, dtype=np.int64),
            "must be float32 of shape .6,., got int64",
        ),
        ("model.x_sd", [0.0], "x_sd must be positive, got 0.0"),
        ("model.x_mean", [1e30], "the constant of the shift must hold numbers from -1e.15 to 1e.15"),
        ("history", np.full((1, 5), np.nan), "history must count epochs, got other numbers"),
        ("history", np.zeros((0, 10**9)), "history must be float64 of shape .0, 5., got float64 of shape"),
    ],
)
def test_forged_weights_are_refused(tmp_path, name, value, match):
    path = saved(tmp_path)
    set_tensor(path, name, value)
    with pytest.raises(FileFormatError, match=rf"tensors\.safetensors: .*{match}"):
        dt.load(path)


@pytest.mark.parametrize("theta", [np.arange(7.0)[None, ::-1], np.full((1, 7), 1e-320)], ids=["down", "flat"])
def test_a_baseline_that_does_not_increase_is_refused(tmp_path, theta):
    X, z = table()
    path = dt.Colr([dt.LS("a")]).fit(X, z).save(tmp_path / "m")
    set_tensor(path, "theta", theta.copy())
    with pytest.raises(FileFormatError, match=r"theta must increase, got \[\["):
        dt.load(path)


def test_a_varying_effect_whose_baseline_decreases_at_zero_is_saved(tmp_path):
    rng = np.random.default_rng(1)
    X = pd.DataFrame({"age": rng.uniform(40, 80, 300)})
    y = X["age"] + rng.normal(size=300) * (100 - X["age"])
    model = dt.Lm([dt.Varying("age")]).fit(X, y)
    assert model.theta_[1] < 0  # the slope of h at age zero
    again = dt.load(model.save(tmp_path / "m"))
    np.testing.assert_array_equal(model.loglik(X, y), again.loglik(X, y))


class AllKindsOfState(nn.Module):
    """Parameters and buffers of every kind a network can have."""

    def __init__(self, in_shape, out_features):
        super().__init__()
        self.first = nn.utils.parametrizations.weight_norm(nn.Linear(in_shape[0], 4))
        self.batch, self.group = nn.BatchNorm1d(4), nn.GroupNorm(2, 4)
        self.recurrent = nn.LSTM(4, 4, batch_first=True)
        self.one, self.two = nn.Linear(4, 4), nn.Linear(4, 4)
        self.two.weight = self.one.weight
        self.last = nn.Linear(4, out_features)
        self.register_buffer("order", torch.tensor([1, 0, 3, 2]))
        self.register_buffer("mask", torch.tensor([0.0, -torch.inf, 0.0, 0.0]))
        self.register_buffer("used", torch.tensor(True))

    def forward(self, x):
        x = self.group(self.batch(self.first(x)))
        x = self.recurrent(x[:, None])[0][:, 0][:, self.order] * torch.softmax(self.mask, 0)
        return self.last(self.two(torch.tanh(self.one(x))))


def test_networks_with_all_kinds_of_state(tmp_path):
    X, z = table()
    model = dt.Colr([dt.CS(AllKindsOfState, "b", "c"), dt.LS("a")], training=FAST).fit(X, z)
    networks = {network_name(AllKindsOfState): AllKindsOfState}
    again = dt.load(model.save(tmp_path / "m"), networks=networks)
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    assert int(again.model_.shifts[0].net.batch.num_batches_tracked) > 0
    settings = {"random_state": 1, "strategy": "sequential", "checkpoint": tmp_path / "run"}
    first, second = (dt.Ensemble(clone(model), 2, **settings).fit(X, z) for _ in range(2))
    np.testing.assert_array_equal(first.predict(X), second.predict(X))
    np.testing.assert_array_equal(dt.load(first.save(tmp_path / "e"), networks).predict(X), first.predict(X))


def test_networks_whose_settings_grow_are_stopped(tmp_path):
    X, z = table()
    model = dt.Colr([dt.CS(functools.partial(Own, width=5), "b")], training=FAST).fit(X, z)
    path = model.save(tmp_path / "m")
    forge(path, set_net(width=10**10))
    with pytest.raises(FileFormatError, match="a saved network must be as large as its weights"):
        dt.load(path, networks={network_name(Own): Own})


def test_a_network_that_overflows_is_told(tmp_path):
    path = saved(tmp_path)
    set_tensor(path, "model.intercept.net.0.weight", np.full((6, 2), 3e38, dtype=np.float32))
    match = r"networks must give finite numbers to predict, got others in rows? .*check the scale"
    with pytest.raises(InvalidInputError, match=match):
        dt.load(path).predict(table()[0])


def test_every_class_can_be_saved():
    presets = {name for name in dt.__all__ if isinstance(getattr(dt, name), type)}
    trams = {name for name in presets if issubclass(getattr(dt, name), dt.Tram.__mro__[1])}
    assert set(CLASSES) == trams


def test_another_kind_of_folder(tmp_path):
    path = persistence.write_folder(tmp_path / "x", {"kind": "member"}, {})
    with pytest.raises(
        FileFormatError, match="load reads models and ensembles, got a folder of kind 'member'"
    ):
        dt.load(path)
    with pytest.raises(FileFormatError, match="a saved model is a folder"):
        dt.load(tmp_path / "nowhere")


def test_a_model_that_kept_its_best_epoch_can_be_saved(tmp_path):
    class Exploding(Own):
        calls = 0

        def forward(self, x):
            Exploding.calls += self.training
            return super().forward(x) + (torch.inf if self.training and Exploding.calls > 5 else 0.0)

    X, z = table()
    model = dt.Colr([dt.CS(Exploding, "b")], training=FAST.replace(epochs=9))
    with pytest.raises(NonFiniteLossError):
        model.fit(X, z)
    with pytest.warns(DeeptramWarning, match=r"Exploding' must do what it did when the model was saved"):
        again = dt.load(model.save(tmp_path / "m"), networks={network_name(Exploding): Own})
    np.testing.assert_array_equal(again.predict(X), model.predict(X))


def test_files_can_be_read_by_those_whom_the_umask_lets(tmp_path):
    before = os.umask(0o022)
    try:
        dt.Lm().fit(np.arange(6.0)[:, None], np.arange(6.0) ** 2).save(tmp_path / "m")
    finally:
        os.umask(before)
    assert {file.stat().st_mode & 0o777 for file in (tmp_path / "m").iterdir()} == {0o644}
