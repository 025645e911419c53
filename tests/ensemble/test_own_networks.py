"""Networks of users: any layer is saved, loaded and resumed; sharing, freezing, diverging, identity."""

from __future__ import annotations

import copy
import functools
import shutil
import subprocess
import sys
import textwrap

import numpy as np
import pytest
import torch
from torch import nn

import deeptram as dt
from deep_models import FAST, table
from deeptram._files import json_sha256, write_json
from deeptram.ensemble.checkpoint import identity
from deeptram.errors import ConvergenceWarning, FileFormatError, InvalidInputError
from deeptram.model.persistence import read_folder

X, Z = table(90)
Y = np.digitize(Z, [-1.0, 1.0])
SHORT = FAST.replace(epochs=2, batch_size=32)


def batch_norm(in_shape, out_features):
    return nn.Sequential(nn.Linear(in_shape[0], 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, out_features))


def group_norm(in_shape, out_features):
    return nn.Sequential(nn.Linear(in_shape[0], 8), nn.GroupNorm(2, 8), nn.Linear(8, out_features))


def parametrised(in_shape, out_features):
    spectral = nn.utils.parametrizations.spectral_norm(nn.Linear(8, 8))
    weight = nn.utils.parametrizations.weight_norm(nn.Linear(in_shape[0], 8))
    return nn.Sequential(weight, nn.Tanh(), spectral, nn.Linear(8, out_features))


class Recurrent(nn.Module):
    def __init__(self, in_shape, out_features):
        super().__init__()
        self.cells = nn.LSTM(1, 5, batch_first=True)
        self.last = nn.Linear(5, out_features)

    def forward(self, x):
        return self.last(self.cells(x.unsqueeze(-1))[0][:, -1])


class Tied(nn.Module):
    def __init__(self, in_shape, out_features):
        super().__init__()
        self.first, self.last = nn.Linear(in_shape[0], 40), nn.Linear(40, out_features)
        self.a, self.b = nn.Linear(40, 40), nn.Linear(40, 40)
        self.b.weight = self.a.weight

    def forward(self, x):
        return self.last(torch.tanh(self.b(torch.tanh(self.a(torch.tanh(self.first(x)))))))


class Counting(nn.Module):
    """Integer, boolean and 0-d buffers, one of which changes in training."""

    def __init__(self, in_shape, out_features):
        super().__init__()
        self.layer = nn.Linear(in_shape[0], out_features)
        self.register_buffer("steps", torch.tensor(0))
        self.register_buffer("order", torch.arange(in_shape[0] - 1, -1, -1, dtype=torch.int32))
        self.register_buffer("wanted", torch.tensor(True))
        self.register_buffer("small", torch.tensor([1, 2], dtype=torch.int16))

    def forward(self, x):
        if self.training:
            self.steps += 1
        return self.layer(x[:, self.order])


LAYERS = {one.__name__: one for one in (batch_norm, group_norm, parametrised, Recurrent, Tied, Counting)}


def ensemble(net, n_members=2, terms=None, **arguments):
    model = dt.Polr(terms or [dt.CS(net, "b", "c"), dt.LS("a")], training=SHORT)
    return dt.Ensemble(model, n_members, random_state=1, **arguments)


@pytest.mark.parametrize("strategy", ["sequential", "auto"])
@pytest.mark.parametrize("net", LAYERS.values(), ids=LAYERS)
def test_any_layer_is_saved_loaded_checkpointed_and_resumed(tmp_path, net, strategy):
    fitted = ensemble(net, strategy=strategy, n_jobs=1, checkpoint=tmp_path / "run").fit(X, Y, validation=0.2)
    expected = fitted.predict_proba(X)
    name = f"{net.__module__}.{net.__qualname__}"
    loaded = dt.load(fitted.save(tmp_path / "saved"), networks={name: net})
    np.testing.assert_array_equal(loaded.predict_proba(X), expected)
    for one, other in zip(fitted.members_, loaded.members_, strict=True):
        for key, value in one.model_.state_dict().items():
            again = other.model_.state_dict()[key]
            assert (again.shape, again.dtype) == (value.shape, value.dtype)
            assert torch.equal(again, value), key
    shutil.rmtree(tmp_path / "run" / "member-0001")
    resumed = ensemble(net, strategy=strategy, n_jobs=1, checkpoint=tmp_path / "run")
    np.testing.assert_allclose(
        resumed.fit(X, Y, validation=0.2).predict_proba(X), expected, rtol=0, atol=1e-6
    )


def test_running_averages_and_steps_are_those_of_training():
    fitted = ensemble(Counting, strategy="sequential").fit(X, Y)
    steps = [int(member.model_.shifts[0].net.steps) for member in fitted.members_]
    assert steps == [2 * 3, 2 * 3]  # epochs times batches of 32
    average = ensemble(batch_norm).fit(X, Y).members_[0].model_.shifts[0].net[1]
    assert int(average.num_batches_tracked) == 2 * 3
    assert not torch.equal(average.running_mean, torch.zeros(8))


def test_tied_weights_are_stored_once(tmp_path):
    fitted = ensemble(Tied).fit(X, Y)
    size = (fitted.save(tmp_path / "saved") / "tensors.safetensors").stat().st_size
    assert 2 * 40 * 40 * 4 < size < 3 * 40 * 40 * 4


# -- sharing ---------------------------------------------------------------------------------------------


class Headed(nn.Module):
    def __init__(self, backbone, out_features):
        super().__init__()
        self.backbone, self.head = backbone, nn.Linear(64, out_features)

    def forward(self, x):
        return self.head(torch.relu(self.backbone(x)))


def backbone():
    torch.manual_seed(5)
    return nn.Sequential(nn.Linear(2, 64), nn.Dropout(0.5), nn.BatchNorm1d(64), nn.Linear(64, 64))


@pytest.mark.parametrize("strategy", ["sequential", "stacked"])
def test_shared_trainable_parameters_are_refused_with_the_remedy(strategy):
    shared = backbone()

    def net(in_shape, out_features):
        return Headed(shared, out_features)

    message = (
        r"fresh network each time, got two that share the trainable parameters backbone.0.weight, "
        r"backbone.0.bias, .*; let it copy the shared part, copy.deepcopy\(backbone\), or freeze it"
    )
    with pytest.raises(InvalidInputError, match=message):
        ensemble(net, strategy=strategy).fit(X, Y)
    with pytest.raises(InvalidInputError, match="fresh network"):
        dt.Polr([dt.CI(net, "b", "c")], training=SHORT).fit(X, Y)

    def copied(in_shape, out_features):
        return Headed(copy.deepcopy(shared), out_features)

    ensemble(copied, strategy="sequential").fit(X, Y)


def test_a_frozen_backbone_may_be_shared_is_never_changed_and_stored_once(tmp_path):
    shared = backbone().requires_grad_(False)
    before = copy.deepcopy(shared.state_dict())

    def net(in_shape, out_features):
        return Headed(shared, out_features)

    fitted = ensemble(net, n_members=3, strategy="sequential").fit(X, Y)
    assert isinstance(shared[1], nn.Dropout)
    for name, value in shared.state_dict().items():
        assert torch.equal(value, before[name]), name
    parts = [member.model_.shifts[0].net for member in fitted.members_]
    assert all(part.backbone is shared for part in parts)
    assert not torch.equal(parts[0].head.weight, parts[1].head.weight)
    saved = fitted.save(tmp_path / "saved")
    large = 64 * 64 * 4
    assert large < (saved / "tensors.safetensors").stat().st_size < 2 * large
    content, tensors = read_folder(saved)
    assert content["tensors"]["same"]["1/model.shifts.0.net.backbone.3.weight"].startswith("0/")
    content["tensors"]["same"]["0/model.beta"] = "nowhere"
    forged = tmp_path / "forged"
    shutil.copytree(saved, forged)
    record = {key: value for key, value in content.items() if key != "sha256"}
    write_json(forged / "deeptram.json", {**record, "sha256": json_sha256(record)})
    with pytest.raises(FileFormatError, match="speaks of tensors that are not there"):
        read_folder(forged)
    assert tensors["2/model.shifts.0.net.backbone.3.weight"].shape == (64, 64)
    own = f"{net.__module__}.{net.__qualname__}"
    loaded = dt.load(saved, networks={own: net})
    np.testing.assert_array_equal(loaded.predict_proba(X), fitted.predict_proba(X))


def test_networks_that_cannot_be_trained_are_refused():
    def frozen(in_shape, out_features):
        return nn.Linear(in_shape[0], out_features).requires_grad_(False)

    class Detached(nn.Linear):
        def forward(self, x):
            return super().forward(x).detach()

    def detached(in_shape, out_features):
        return Detached(in_shape[0], out_features)

    for net, message in [
        (frozen, r"network of CS\('b', 'c'\) must have parameters to train, got none .*; add a trainable"),
        (
            detached,
            r"output of the network of CS\('b', 'c'\) must depend on its parameters .*; remove detach",
        ),
    ]:
        with pytest.raises(InvalidInputError, match=message):
            ensemble(net).fit(X, Y)


# -- after predictions -----------------------------------------------------------------------------------


class Caching(nn.Module):
    """Keeps a tensor made in its first forward pass, as positional encodings do."""

    def __init__(self, in_shape, out_features):
        super().__init__()
        self.layer = nn.Conv2d(1, out_features, 3)
        self.window = None

    def forward(self, x):
        if self.window is None or self.window.shape[-1] != x.shape[-1]:
            self.window = torch.hann_window(x.shape[-1], dtype=x.dtype)
        return self.layer(x * self.window).mean(dim=(2, 3))


@pytest.mark.parametrize("call", ["predict", "predict_proba", "predict_distribution", "contributions"])
def test_gradients_and_training_after_predictions(call):
    images = {"image": np.random.default_rng(0).normal(size=(30, 6, 6)).astype(np.float32)}
    model = dt.Polr([dt.CS(Caching, "image")], training=SHORT, random_state=1).fit(images, Y[:30])
    getattr(model, call)(images)
    network = model.model_.shifts[0].net
    inputs = torch.zeros(2, 1, 6, 6, requires_grad=True)
    network(inputs).sum().backward()
    assert inputs.grad is not None
    assert not any(tensor.is_inference() for tensor in [*network.parameters(), network.window])


# -- divergence ------------------------------------------------------------------------------------------


def test_a_diverged_fit_warns_and_is_not_converged(tmp_path):
    wild = SHORT.replace(learning_rate=30.0, epochs=3, restore_best=False)
    net = dt.networks.MLP((8,))
    model = dt.Polr([dt.CI(net, "b", "c")], training=wild, random_state=1)
    message = "training ended worse than a model without any columns: validation loss .*; lower learning_rate"
    with pytest.warns(ConvergenceWarning, match=message):
        model.fit(X, Y, validation=0.3)
    assert not model.converged_
    assert model.fit_.validation_loss > model.fit_.null_loss
    assert not dt.load(model.save(tmp_path / "m")).converged_
    whole = dt.Ensemble(dt.Polr([dt.CI(net, "b", "c")], training=wild), 2, random_state=1)
    with pytest.warns(ConvergenceWarning, match="training of . of 2 members ended worse"):
        whole.fit(X, Y, validation=0.3)
    assert not all(member.converged_ for member in whole.members_)


def switched_off(in_shape, out_features):
    """A network whose hidden units are off for every row, as a long first step may leave them."""
    net = torch.nn.Sequential(
        torch.nn.Linear(in_shape[0], 6), torch.nn.ReLU(), torch.nn.Linear(6, out_features)
    )
    torch.nn.init.constant_(net[0].bias, -1e3)
    return net


@pytest.mark.parametrize("term", [dt.CS, dt.CI, dt.Scale])
def test_a_network_that_is_off_for_all_rows_is_named(tmp_path, term):
    others = [dt.CS(dt.networks.MLP((4,)), "c")] if term is dt.Scale else []
    model = dt.Polr if term is not dt.Scale else dt.BoxCox
    values = Y if term is not dt.Scale else Z
    silent = model([*others, term(switched_off, "b")], training=SHORT, random_state=1)
    with pytest.warns(ConvergenceWarning, match="^training ended with a network that gives the same for e"):
        silent.fit(X, values)
    assert silent.fit_.silent
    assert not silent.converged_
    again = dt.load(silent.save(tmp_path / "m"), networks={f"{__name__}.switched_off": switched_off})
    assert again.fit_.silent
    assert not again.converged_


def test_silent_members_are_counted_and_others_are_not():
    drawn = iter([*range(100)])

    def now_and_then(in_shape, out_features):
        return (switched_off if next(drawn) % 2 else dt.networks.MLP((6,)))(in_shape, out_features)

    model = dt.Polr([dt.CS(now_and_then, "b")], training=SHORT)
    whole = dt.Ensemble(model, 4, random_state=1, strategy="sequential")
    with pytest.warns(ConvergenceWarning, match="training of 2 of 4 members ended with a network"):
        whole.fit(X, Y)
    assert sorted(member.fit_.silent for member in whole.members_) == [False, False, True, True]
    assert not whole.converged_


@pytest.mark.parametrize("kind", ["ordinal", "nominal", "continuous", "lm"])
def test_the_null_model_is_the_marginal_distribution(kind):
    rows = np.arange(90) % 3 == 0
    values = Z if kind in ("continuous", "lm") else Y
    terms = [dt.CS(dt.networks.MLP((4,)), "b")]
    model = dt.Lm(terms) if kind == "lm" else dt.Tram(terms, outcome=kind, order=3)
    wild = SHORT.replace(learning_rate=50.0, restore_best=False, progress=False, clip_norm=None)
    model.set_params(training=wild, random_state=2)
    with pytest.warns(ConvergenceWarning):
        model.fit(X[~rows], values[~rows], validation=(X[rows], values[rows]))
    constant = X.assign(zero=0.0)
    plain = dt.Lm([dt.LS("zero")]) if kind == "lm" else dt.Tram([dt.LS("zero")], outcome=kind, order=3)
    plain.set_params(
        **({} if kind in ("ordinal", "nominal", "lm") else {"support": model.outcome_.basis.support})
    )
    with pytest.warns(dt.errors.CollinearityWarning):
        plain.fit(constant[~rows], values[~rows])
    expected = -plain.score(constant[rows], values[rows])
    assert model.fit_.null_loss == pytest.approx(expected, rel=1e-3)


# -- nominal outcomes ------------------------------------------------------------------------------------


def test_the_default_pool_of_a_nominal_outcome_knows_no_order():
    labels = np.array(["u", "v", "w"])[Y]
    members = [
        dt.Tram([dt.CI(dt.networks.MLP((5,)), "b", "c")], outcome="nominal", training=SHORT, random_state=s)
        for s in (1, 2)
    ]
    whole = dt.Ensemble.from_members([one.fit(X, labels) for one in members])
    probabilities = whole.predict_proba(X)
    geometric = np.exp(np.mean([np.log(one.predict_proba(X)) for one in members], axis=0))
    np.testing.assert_allclose(probabilities, geometric / geometric.sum(axis=1, keepdims=True), atol=1e-12)
    tuned = whole.tune_weights(X, labels)
    shifted = [one.predict_distribution(X) for one in members]
    by_density = dt.tune_weights(shifted, labels, method="log-linear-density")
    np.testing.assert_allclose(tuned.weights, by_density.weights, atol=1e-6)


# -- identity --------------------------------------------------------------------------------------------

SCRIPT = """
import sys
import numpy as np, torch, deeptram as dt
from torch import nn

FACTOR = 0.1

def noise(images):
    return images + {body} * torch.randn_like(images)

def net(in_shape, out_features, width):
    return nn.Sequential(nn.Flatten(), nn.Linear(16, width), nn.Tanh(), nn.Linear(width, out_features))

rng = np.random.default_rng(0)
X, y = {{"image": rng.normal(size=(40, 4, 4))}}, np.arange(40) % 3
training = dt.Training(epochs=1, augment=noise, progress=False)
import functools
model = dt.Polr([dt.CS(functools.partial(net, width={width}), "image")], training=training)
dt.Ensemble(model, 2, random_state=1, strategy="sequential", checkpoint=sys.argv[1]).fit(X, y)
"""


def run(tmp_path, body="FACTOR", width=4, factor=0.1):
    script = tmp_path / "script.py"
    code = textwrap.dedent(SCRIPT).format(body=body, width=width).replace("= 0.1", f"= {factor}")
    script.write_text("# a comment moves the lines\n" * (factor == 0.1) + code)
    command = [sys.executable, str(script), str(tmp_path / "run")]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_a_new_process_resumes_with_augmentation_and_notices_other_code(tmp_path):
    assert run(tmp_path).returncode == 0
    before = (tmp_path / "run" / "member-0001" / "deeptram.json").stat().st_mtime_ns
    shutil.rmtree(tmp_path / "run" / "member-0000")
    second = run(tmp_path)
    assert second.returncode == 0, second.stderr
    assert (tmp_path / "run" / "member-0001" / "deeptram.json").stat().st_mtime_ns == before
    for change, what in [
        ({"body": "0.2"}, "training"),
        ({"factor": 0.3}, "training"),
        ({"width": 5}, "model"),
    ]:
        result = run(tmp_path, **change)
        assert result.returncode == 1
        assert f"got another {what}" in result.stderr


def shift_by(amount):
    return lambda x: x + amount


def by_default(x, amount=1):
    return x + amount


class Shift:
    def __init__(self, amount):
        self.amount = amount

    def __call__(self, x):
        return x + self.amount


def test_identity_is_code_and_arguments():
    namespace_a, namespace_b = {}, {}
    exec("def f(x):\n    return x + 1", namespace_a)
    exec("\n\ndef f(x):\n    return x + 2", namespace_b)
    different = [
        None,
        shift_by(1),
        shift_by(2),
        by_default,
        functools.partial(by_default, amount=2),
        functools.partial(by_default, amount=3),
        Shift(1),
        Shift(2),
        Shift(np.arange(3)),
        Shift(torch.arange(3.0)),
        Shift(1).__call__,
        namespace_a["f"],
        namespace_b["f"],
        nn.Linear,
        dt.networks.MLP((8,)),
        dt.networks.MLP((9,)),
        batch_norm,
        Tied,
        Counting,
    ]
    assert len({identity(one) for one in different}) == len(different)
    same = [shift_by(1), functools.partial(by_default, amount=2), Shift(np.arange(3)), dt.networks.MLP((8,))]
    found = {identity(one) for one in different}
    assert all(identity(one) in found for one in same)
