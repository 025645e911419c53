"""One member trained by gradients."""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from deeptram.errors import (
    InvalidInputError,
    InvalidTypeError,
    NonFiniteLossError,
    UnsupportedError,
)
from deeptram.evaluation import scores
from deeptram.fitting.deep.gradient import fit_deep, make_optimizer
from deeptram.fitting.deep.task import Setup
from deeptram.fitting.deep.training import Training
from deeptram.fitting.exact.columns import StructuredData
from deeptram.fitting.exact.fit import fit_exact
from deeptram.model.terms import CI, CS, LS, SI, Scale, Varying
from deeptram.networks import CNN, MLP
from deeptram.predictive.kinds import build_predictive

KINDS = ["binary", "ordinal", "nominal", "continuous", "count", "survival"]


def predict(fit, task, X=None):
    X = task.X if X is None else X
    outcome = task.outcome
    parameters = fit.model.row_parameters(X, task.design.matrices(X))
    return build_predictive(
        outcome.kind,
        parameters,
        outcome.basis,
        task.latent,
        levels=outcome.levels,
        log_first=outcome.log_first,
    )


# -- the optimum ----------------------------------------------------------------------------------

LINEAR = {
    "ordinal": ("ordinal", [LS("a + g")], {}, "logistic"),
    "ordinal-strata": ("ordinal", [SI(strata="g"), LS("a")], {}, "logistic"),
    "continuous": ("continuous", [LS("a + g")], {"order": 4}, "normal"),
    "continuous-line": ("continuous", [LS("a + g")], {"basis": "linear"}, "normal"),
    "continuous-scale": ("continuous", [LS("a"), Scale("c")], {"basis": "linear"}, "normal"),
    "count": ("count", [LS("a")], {"order": 3}, "logistic"),
    "survival": ("survival", [LS("a + g")], {"basis": "log-linear"}, "cloglog"),
}


@pytest.mark.parametrize("case", LINEAR)
def test_adam_reaches_the_exact_optimum(case, make_task, simulated):
    """A model without networks, trained from nothing by Adam, against the certified optimum."""
    kind, terms, settings, of = LINEAR[case]
    task = make_task(
        terms,
        kind,
        simulated.X,
        simulated.y[kind],
        of=of,
        settings=settings,
        warm_start=False,
        epochs=300,
        batch_size=240,
        learning_rate=0.3,
        schedule="cosine",
    )
    fit = fit_deep(task, 0)
    data = StructuredData(
        latent=task.latent,
        basis=task.outcome.basis,
        x=task.matrices.x,
        observations=task.encoded.observations,
        codes=task.encoded.codes,
        n_classes=0 if task.outcome.levels is None else len(task.outcome.levels),
        strata=task.matrices.strata,
        n_strata=task.design.n_strata,
        scale=task.matrices.scale,
    )
    exact = fit_exact(data)
    optimum = -exact.loglik / len(simulated.X)
    assert optimum - 1e-6 < fit.history.train_loss.iloc[-1] < optimum + 1e-3
    np.testing.assert_allclose(fit.model.coef, exact.beta, atol=0.02)
    if kind == "ordinal":
        np.testing.assert_allclose(fit.model.theta, exact.theta, atol=0.05)
    np.testing.assert_allclose(fit.model.scale_coef, exact.gamma, atol=0.02)


def test_a_linear_network_is_a_linear_shift(make_task, simulated):
    settings = {
        "warm_start": False,
        "epochs": 300,
        "batch_size": 240,
        "learning_rate": 0.1,
        "schedule": "cosine",
    }
    X, y = simulated.X, simulated.y["ordinal"]
    deep = make_task([CS(MLP(hidden=()), "a", "b")], "ordinal", X, y, **settings)
    linear = make_task([LS("a", "b")], "ordinal", X, y)
    data = StructuredData(
        latent=linear.latent,
        basis=linear.outcome.basis,
        x=linear.matrices.x,
        codes=linear.encoded.codes,
        n_classes=4,
    )
    fit, exact = fit_deep(deep, 0), fit_exact(data)
    assert fit.history.train_loss.iloc[-1] < -exact.loglik / len(X) + 1e-3
    shift = fit.model.row_parameters(X, deep.matrices).shift
    expected = linear.matrices.x @ exact.beta
    np.testing.assert_allclose(shift - shift.mean(), expected - expected.mean(), atol=0.05)


def test_truth_is_recovered(make_task):
    """beta = 0.8 beside eta(b) = sin(2 b), ordinal outcome."""
    rng = np.random.default_rng(3)
    X = pd.DataFrame(rng.normal(size=(2500, 2)), columns=["a", "b"])
    truth = np.sin(2 * X.b)
    y = np.digitize(0.8 * X.a + truth + rng.logistic(size=2500), [-1.5, 0.0, 1.5])
    task = make_task(
        [SI(), CS(MLP((32,), activation="tanh"), "b"), LS("a")],
        "ordinal",
        X,
        y,
        epochs=40,
        batch_size=250,
        learning_rate=1e-2,
        validation=0.2,
    )
    fit = fit_deep(task, 1)
    assert fit.model.coef[0] == pytest.approx(0.8, abs=0.1)
    eta = fit.model.contributions(X, task.matrices)["CS('b')"]
    assert np.corrcoef(-eta, truth)[0, 1] > 0.95


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("intercept", ["SI", "CI"])
def test_every_outcome_type_learns(kind, intercept, make_task, simulated):
    net = MLP((16,), activation="tanh")
    terms = [CI(net, "b") if intercept == "CI" else CS(net, "b"), LS("a")]
    task = make_task(
        terms,
        kind,
        simulated.X,
        simulated.y[kind],
        settings={"order": 3} if kind in KINDS[3:] else {},
        epochs=15,
    )
    fit = fit_deep(task, 0)
    assert fit.history.train_loss.iloc[-1] < fit.history.train_loss.iloc[0]
    pred = predict(fit, task)
    if not task.outcome.is_discrete:
        score = float(np.mean(scores.nll(simulated.y[kind], pred, reduction="none")))
    else:
        score = float(scores.nll(simulated.y[kind], pred))
    assert score < fit.history.train_loss.iloc[0]
    assert fit.model.coef.shape == ((1, 3) if kind == "nominal" else (1,))


@pytest.mark.parametrize(
    ("kind", "loss"),
    [
        ("ordinal", "rps"),
        ("ordinal", "brier"),
        ("nominal", "brier"),
        ("continuous", "crps"),
        ("count", "crps"),
    ],
)
def test_other_scores_can_be_trained(kind, loss, make_task, simulated):
    y = simulated.y[kind][:80]
    settings = {"order": 3} if kind in ("continuous", "count") else {}
    terms = [CS(MLP((8,)), "b"), LS("a")]
    task = make_task(terms, kind, simulated.X[:80], y, loss=loss, settings=settings, epochs=4, batch_size=40)
    fit = fit_deep(task, 0)
    pred = predict(fit, task)
    final = float(np.mean(scores.get(loss)(y, pred, reduction="none")))
    assert final < fit.history.train_loss.iloc[0]


# -- what comes out -------------------------------------------------------------------------------


def test_history_is_a_table(make_task, simulated):
    task = make_task([CS(MLP((8,)), "b")], "ordinal", simulated.X, simulated.y["ordinal"], validation=0.25)
    fit = fit_deep(task, 0)
    assert list(fit.history) == ["epoch", "train_loss", "validation_loss", "learning_rate", "seconds"]
    assert fit.history.epoch.tolist() == [1, 2, 3]
    assert fit.n_epochs == 3
    assert fit.seconds >= fit.history.seconds.sum() > 0
    assert (fit.history.learning_rate == 1e-2).all()
    assert not fit.interrupted
    assert not fit.model.training


def test_the_best_epoch_is_restored(make_task, simulated):
    X, y = simulated.X, simulated.y["ordinal"]
    validation = (X[:60], y[:60])
    task = make_task(
        [CS(MLP((64,)), "a", "b", "c")],
        "ordinal",
        X[60:],
        y[60:],
        val=validation,
        epochs=30,
        learning_rate=0.05,
    )
    fit = fit_deep(task, 0)
    assert fit.best_epoch == fit.history.validation_loss.argmin() + 1 < 30
    score = float(scores.nll(y[:60], predict(fit, task, X[:60])))
    assert score == pytest.approx(fit.history.validation_loss.min(), abs=1e-5)
    last = fit_deep(_with(task, restore_best=False), 0)
    assert last.best_epoch == 30
    score = float(scores.nll(y[:60], predict(last, task, X[:60])))
    assert score == pytest.approx(last.history.validation_loss.iloc[-1], abs=1e-5)


def test_patience_stops_early(make_task, simulated):
    X, y = simulated.X, simulated.y["ordinal"]
    task = make_task(
        [CS(MLP((64,)), "a", "b", "c")],
        "ordinal",
        X[60:],
        y[60:],
        val=(X[:60], y[:60]),
        epochs=60,
        learning_rate=0.05,
        patience=3,
    )
    fit = fit_deep(task, 0)
    assert fit.n_epochs == fit.best_epoch + 3 < 60
    longer = fit_deep(_with(task, min_epochs=20), 0)
    assert longer.n_epochs >= 20


def _with(task, **changes):
    from dataclasses import replace

    return replace(task, training=task.training.replace(**changes))


def test_schedules(make_task, simulated):
    task = make_task(
        [CS(MLP((4,)), "b")], "ordinal", simulated.X, simulated.y["ordinal"], epochs=4, schedule="cosine"
    )
    rates = fit_deep(task, 0).history.learning_rate.to_numpy()
    np.testing.assert_allclose(rates, 1e-2 * 0.5 * (1 + np.cos(np.pi * np.arange(4) / 4)))
    X, y = simulated.X, simulated.y["ordinal"]
    task = make_task(
        [CS(MLP((64,)), "a", "b", "c")],
        "ordinal",
        X[60:],
        y[60:],
        val=(X[:60], y[:60]),
        epochs=25,
        learning_rate=0.05,
        schedule="plateau",
    )
    fit = fit_deep(task, 0)
    rates = fit.history.learning_rate.to_numpy()
    assert rates[0] == 0.05
    assert rates[-1] < 0.05
    assert set(np.round(np.log2(rates / 0.05), 9)) <= set(-np.arange(10.0))


def test_weights_mean_repetition(make_task, simulated):
    X, y = simulated.X[:100], simulated.y["ordinal"][:100]
    weight = np.where(np.arange(100) < 50, 2.0, 1.0)
    rows = np.repeat(np.arange(100), weight.astype(int))
    settings = {
        "epochs": 200,
        "learning_rate": 0.05,
        "batch_size": 200,
        "warm_start": False,
        "schedule": "cosine",
    }
    weighted = fit_deep(make_task([LS("a", "b")], "ordinal", X, y, weight=weight, **settings), 0)
    repeated = fit_deep(make_task([LS("a", "b")], "ordinal", X.iloc[rows], y[rows], **settings), 0)
    np.testing.assert_allclose(weighted.model.coef, repeated.model.coef, atol=1e-3)
    assert weighted.history.train_loss.iloc[-1] == pytest.approx(
        repeated.history.train_loss.iloc[-1], abs=1e-4
    )


def test_rows_of_weight_zero_are_not_used(make_task, simulated):
    X, y = simulated.X[:100].copy(), simulated.y["continuous"][:100].copy()
    weight = np.ones(100)
    weight[:3] = 0.0
    y[:3] = 1e9
    terms = [CS(MLP((4,)), "b"), LS("a")]
    settings = {"support": (float(y[3:].min()), float(y[3:].max()))}
    fit = fit_deep(make_task(terms, "continuous", X, y, weight=weight, settings=settings), 0)
    assert np.isfinite(fit.history.train_loss).all()
    assert fit.history.train_loss.iloc[-1] < 10


def test_clipping_and_weight_decay(make_task, simulated):
    X, y = simulated.X, simulated.y["ordinal"]
    terms = [CS(MLP((16,)), "b"), LS("a")]
    settings = {"epochs": 10, "optimizer": "adamw", "learning_rate": 0.05}
    plain = fit_deep(make_task(terms, "ordinal", X, y, **settings), 0)
    decayed = fit_deep(make_task(terms, "ordinal", X, y, weight_decay=1.0, **settings), 0)

    def size(fit):
        return sum(float(p.detach().square().sum()) for _, p in fit.model.network_parameters())

    assert size(decayed) < 0.8 * size(plain)
    groups = make_optimizer(plain.model.named_parameters(), Training(weight_decay=0.5)).param_groups
    assert [group["weight_decay"] for group in groups] == [0.5, 0.0]
    assert [parameter.shape for parameter in groups[1]["params"]] == [(1,), (1, 3)]
    clipped = fit_deep(make_task(terms, "ordinal", X, y, clip_norm=1e-3, **settings), 0)
    assert not np.allclose(clipped.model.coef, plain.model.coef)


def test_a_batch_in_pieces_is_the_same_step(make_task, simulated):
    X, y, weight = simulated.X, simulated.y["ordinal"], np.linspace(0.5, 1.5, 240)
    terms = [CS(MLP((16,)), "b"), LS("a")]
    settings = {"epochs": 4, "batch_size": 100, "dtype": "float64", "weight": weight, "clip_norm": 0.1}
    sizes = []
    network = MLP((16,))

    def watched(in_shape, out_features):
        net = network(in_shape, out_features)
        net.register_forward_hook(lambda _, inputs, __: sizes.append(len(inputs[0])))
        return net

    whole = fit_deep(make_task(terms, "ordinal", X, y, **settings), 0)
    pieces = fit_deep(make_task([CS(watched, "b"), LS("a")], "ordinal", X, y, **settings, micro_batch=30), 0)
    np.testing.assert_allclose(pieces.history.train_loss, whole.history.train_loss, rtol=1e-12)
    np.testing.assert_allclose(pieces.model.coef, whole.model.coef, rtol=1e-10)
    steps = [30, 30, 30, 10] * 2 + [30, 10]  # 240 rows in batches of 100, 100 and 40
    assert any(sizes[start : start + 10] == steps for start in range(len(sizes)))


def test_networks_may_see_several_inputs(make_task, rng):
    """An image and two columns feed one joint network."""
    images = rng.random((60, 8, 8))
    X = {"image": images, "age": rng.normal(50, 10, 60), "sex": rng.choice(["f", "m"], 60)}
    y = np.digitize(images.mean(axis=(1, 2)) * 20 + rng.normal(size=60), [9.5, 10.5])
    seen = []

    class Joint(nn.Module):
        def __init__(self, in_shape, out_features):
            super().__init__()
            seen.append(in_shape)
            (c, h, w), (p,) = in_shape
            self.image, self.table = nn.Linear(c * h * w, 4), nn.Linear(p, 4)
            self.out = nn.Linear(8, out_features)

        def forward(self, image, table):
            return self.out(torch.cat([self.image(image.flatten(1)), self.table(table)], dim=1).relu())

    task = make_task([CI(Joint, "image", "age", "sex")], "ordinal", X, y)
    fit = fit_deep(task, 0)
    assert seen[0] == ((1, 8, 8), (2,))
    assert fit.model.row_parameters(X, task.matrices).theta.shape == (60, 2)


def test_augmentation_happens_in_training_only(make_task, rng):
    X = {"image": rng.random((64, 8, 8))}
    y = np.arange(64) % 2
    calls = []

    def augment(images):
        calls.append(images.shape)
        return images + 0.1 * torch.randn_like(images)

    task = make_task(
        [CS(CNN((4,), dense=(4,)), "image")], "binary", X, y, validation=0.25, batch_size=16, augment=augment
    )
    first, second = fit_deep(task, 0), fit_deep(task, 0)
    assert set(calls) == {(16, 1, 8, 8)}
    assert len(calls) == 2 * 3 * 3
    assert first.history.train_loss.equals(second.history.train_loss)


def test_augmentation_of_the_wrong_shape(make_task, rng):
    def crop(images):
        return images[..., :4]

    task = make_task(
        [CS(CNN((4,), dense=(4,)), "image")],
        "binary",
        {"image": rng.random((8, 8, 8))},
        np.arange(8) % 2,
        augment=crop,
    )
    with pytest.raises(
        InvalidInputError, match=r"augment must return a tensor of the shape it was given, \(8, 1, 8, 8\)"
    ):
        fit_deep(task, 0)


def test_a_batch_of_one_class_is_fine(make_task, simulated):
    y = np.zeros(40, dtype=int)
    y[:2] = 1
    task = make_task([CS(MLP((4,)), "b"), LS("a")], "binary", simulated.X[:40], y, batch_size=4)
    assert np.isfinite(fit_deep(task, 0).history.train_loss).all()


def test_batch_normalisation_never_sees_a_single_row(make_task, simulated):
    def net(in_shape, out_features):
        return nn.Sequential(nn.Linear(in_shape[0], 4), nn.BatchNorm1d(4), nn.Linear(4, out_features))

    task = make_task([CS(net, "b")], "ordinal", simulated.X[:65], simulated.y["ordinal"][:65], batch_size=32)
    assert np.isfinite(fit_deep(task, 0).history.train_loss).all()


# -- centred and orthogonal shifts ----------------------------------------------------------------


@pytest.mark.parametrize("kind", ["ordinal", "nominal", "continuous"])
@pytest.mark.parametrize("intercept", ["SI", "CI"])
def test_centring_and_orthogonalising_change_the_reading_only(kind, intercept, make_task, simulated):
    X, y = simulated.X, simulated.y[kind]
    weight = np.linspace(0.5, 1.5, len(X))
    net = MLP((8,), output_bias=True)
    start = [CI(MLP((4,)), "c")] if intercept == "CI" else []

    def fitted(**options):
        terms = [*start, CS(net, "a", "b", **options), CS(net, "c", **options), LS("a + g")]
        task = make_task(terms, kind, X, y, weight=weight, dtype="float64")
        return task, fit_deep(task, 4)

    _, plain = fitted()
    for options in ({"center": True}, {"orthogonalize": True}, {"center": True, "orthogonalize": True}):
        task, fit = fitted(**options)
        if kind == "continuous":
            h, h0 = (predict(f, task).trafo(y) for f in (fit, plain))
        else:
            h, h0 = (predict(f, task).cdf() for f in (fit, plain))
        np.testing.assert_allclose(h, h0, atol=1e-10)
        parts = fit.model.contributions(X, task.matrices)
        for name in ("CS('a', 'b')", "CS('c')"):
            eta = parts[name].reshape(len(X), -1)
            if "center" in options:
                np.testing.assert_allclose(np.average(eta, axis=0, weights=weight), 0.0, atol=1e-10)
            if "orthogonalize" in options:
                columns = task.matrices.x - np.average(task.matrices.x, axis=0, weights=weight)
                np.testing.assert_allclose((columns * weight[:, None]).T @ eta, 0.0, atol=1e-8)
        if "orthogonalize" in options:
            assert not np.allclose(fit.model.coef, plain.model.coef)


def test_stored_state_applies_to_new_data(make_task, simulated):
    terms = [CS(MLP((8,)), "a", "b", center=True, orthogonalize=True), LS("a")]
    task = make_task(terms, "ordinal", simulated.X, simulated.y["ordinal"])
    fit = fit_deep(task, 4)
    some = simulated.X[10:20]
    here = fit.model.contributions(simulated.X, task.matrices)
    there = fit.model.contributions(some, task.design.matrices(some))
    for name, values in there.items():
        np.testing.assert_allclose(values, here[name][10:20], atol=1e-6)
    parameters = fit.model.row_parameters(some, task.design.matrices(some))
    np.testing.assert_allclose(parameters.shift, -(there["a"] + there["CS('a', 'b')"]), atol=1e-6)


def test_orthogonalising_needs_a_linear_shift(make_task, simulated):
    task = make_task([CS(MLP((4,)), "b", orthogonalize=True)], "ordinal", simulated.X, simulated.y["ordinal"])
    with pytest.raises(
        InvalidInputError, match=r"orthogonalize=True in CS\('b'\) needs an LS term whose columns"
    ):
        fit_deep(task, 0)


# -- seeds ----------------------------------------------------------------------------------------


def test_the_same_seed_gives_the_same_member(make_task, simulated):
    terms = [CS(MLP((8,), dropout=0.3), "b"), LS("a")]
    task = make_task(terms, "ordinal", simulated.X, simulated.y["ordinal"], validation=0.2)
    torch.manual_seed(1)
    first = fit_deep(task, 3)
    torch.manual_seed(2)
    before = torch.get_rng_state()
    second, other = fit_deep(task, 3), fit_deep(task, 4)
    assert torch.equal(before, torch.get_rng_state())
    for name, value in first.model.state_dict().items():
        assert torch.equal(value, second.model.state_dict()[name])
    assert not np.allclose(first.model.coef, other.model.coef)


def test_each_kind_of_randomness_has_a_stream(make_task, simulated):
    terms = [CS(MLP((8,)), "b"), LS("a")]
    setup = Setup(make_task(terms, "ordinal", simulated.X, simulated.y["ordinal"], validation=0.2))
    first, again, other = setup.member(3), setup.member(3), setup.member(4)
    for (name, a), (_, b), (_, c) in zip(
        *(member.model.network_parameters() for member in (first, again, other)), strict=True
    ):
        assert torch.equal(a, b)
        assert "bias" in name or not torch.equal(a, c)
    assert torch.equal(first.validation_rows, again.validation_rows)
    assert not torch.equal(first.validation_rows, other.validation_rows)


SCRIPT = """
import json
import numpy as np, pandas as pd
from deeptram import latent
from deeptram.fitting.deep.gradient import DeepTask, fit_deep
from deeptram.fitting.deep.training import Training
from deeptram.model import Design, Outcome, OutcomeSettings
from deeptram.networks import MLP
from deeptram.model.terms import Spec
from deeptram.model.terms import CS, LS
rng = np.random.default_rng(0)
X = pd.DataFrame(rng.normal(size=(100, 2)), columns=["a", "b"])
y = (X.a + X.b + rng.logistic(size=100) > 0).astype(int)
spec = Spec.of([CS(MLP((8,), dropout=0.2), "b"), LS("a")])
outcome, encoded = Outcome.fit(OutcomeSettings("binary"), y)
design, matrices = Design.fit(spec, X)
training = Training(epochs=3, batch_size=32, validation=0.2, progress=False)
task = DeepTask(spec, design, outcome, latent.get("logistic"), "nll", matrices, encoded, X, training=training)
fit = fit_deep(task, 12)
print(json.dumps(fit.model.row_parameters(X, matrices).shift.tolist()))
"""


def test_another_process_gives_the_same_member(capsys):
    exec(SCRIPT, {})
    here = json.loads(capsys.readouterr().out)
    source = str(Path(__file__).parents[3] / "src")
    command = [sys.executable, "-c", f"import sys; sys.path.insert(0, {source!r})\n{SCRIPT}"]
    there = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    np.testing.assert_allclose(here, there, atol=1e-5)


# -- what goes wrong ------------------------------------------------------------------------------


class Fuse(nn.Module):
    """A linear network that does something else in its n-th training pass."""

    def __init__(self, in_shape, out_features, passes, action):
        super().__init__()
        self.layer, self.left, self.action = nn.Linear(in_shape[0], out_features), passes, action

    def forward(self, x):
        if self.training:
            self.left -= 1
            if self.left == 0:
                return self.action(self.layer(x), x)
        return self.layer(x)


def fuse(passes, action):
    def net(in_shape, out_features):
        return Fuse(in_shape, out_features, passes, action)

    return net


def spoil(output, x):
    return torch.where(x[:, :1] > 1.0, torch.nan, output)


def interrupt(output, x):
    raise KeyboardInterrupt


def test_a_non_finite_loss_names_the_rows_and_keeps_the_best_state(make_task, simulated):
    X = simulated.X[:64].copy()
    X["b"] = 0.0
    X.loc[[5, 17], "b"] = 3.0
    y = simulated.y["ordinal"][:64]
    task = make_task([CS(fuse(6, spoil), "b"), LS("a")], "ordinal", X, y, batch_size=32, epochs=9)
    with pytest.raises(
        NonFiniteLossError,
        match=r"loss must stay finite, got nan in epoch 3 at rows? \d+(, \d+)? of X; check these rows, lower",
    ) as caught:
        fit_deep(task, 0)
    named = {
        int(row) for row in str(caught.value).split("at row")[1].split("of X")[0].strip("s ").split(", ")
    }
    assert named <= {5, 17}
    assert caught.value.best.n_epochs == 2
    assert np.isfinite(caught.value.best.model.coef).all()


def test_a_non_finite_loss_in_the_first_epoch_has_no_best_state(make_task, simulated):
    task = make_task([CS(fuse(1, spoil), "b")], "ordinal", simulated.X, simulated.y["ordinal"])
    with pytest.raises(NonFiniteLossError, match="in epoch 1 at row") as caught:
        fit_deep(task, 0)
    assert caught.value.best is None


def test_an_interruption_keeps_the_best_state(make_task, simulated):
    task = make_task(
        [CS(fuse(10, interrupt), "b"), LS("a")],
        "ordinal",
        simulated.X,
        simulated.y["ordinal"],
        validation=0.2,
        epochs=9,
    )
    fit = fit_deep(task, 0)
    assert fit.interrupted
    assert (fit.n_epochs, fit.best_epoch) == (3, 3)


def test_an_interruption_in_the_first_epoch_goes_through(make_task, simulated):
    task = make_task([CS(fuse(2, interrupt), "b")], "ordinal", simulated.X, simulated.y["ordinal"])
    with pytest.raises(KeyboardInterrupt):
        fit_deep(task, 0)


def test_collinear_columns_are_left_out(make_task, simulated):
    X = simulated.X.assign(twice=2 * simulated.X.a)
    task = make_task([CS(MLP((4,)), "b"), LS("a", "twice")], "ordinal", X, simulated.y["ordinal"])
    fit = fit_deep(task, 0)
    assert np.isfinite(fit.model.coef[0])
    assert np.isnan(fit.model.coef[1])
    assert np.isfinite(fit.model.row_parameters(X, task.matrices).shift).all()


def tall(in_shape, out_features):
    return nn.Linear(in_shape[0], 10)


def flat(in_shape, out_features):
    return nn.Sequential(nn.Linear(in_shape[0], 1), nn.Flatten(0))


def misfit(in_shape, out_features):
    return nn.Linear(in_shape[0] + 1, out_features)


def text(in_shape, out_features):
    return "network"


def one_argument(in_shape):
    return nn.Linear(in_shape[0], 1)


class OneArgument(nn.Linear):
    def __init__(self, in_shape):
        super().__init__(in_shape[0], 1)


@pytest.mark.parametrize(
    ("terms", "error", "match"),
    [
        (
            [CS(tall, "b")],
            InvalidInputError,
            r"CS\('b'\) must return 1 value\(s\) per row, shape \(2, 1\) for 2 rows, got \(2, 10\); use out",
        ),
        ([CI(tall, "b")], InvalidInputError, r"network of CI\('b'\) must return 3 value\(s\) per row"),
        (
            [CS(flat, "b")],
            InvalidInputError,
            r"must return 1 value\(s\) per row, shape \(2, 1\) for 2 rows, got \(2,\)",
        ),
        (
            [CS(misfit, "b")],
            InvalidInputError,
            r"network of CS\('b'\) must accept 1 tensor\(s\) of shape \(2, 1\), got the error",
        ),
        ([CS(text, "b")], InvalidTypeError, r"factory of CS\('b'\) must return a torch.nn.Module, got str"),
        (
            [CS(nn.Linear(1, 1), "b")],
            InvalidTypeError,
            r"CS\('b'\) needs a factory net\(in_shape, out_features\), got the module Linear",
        ),
        (
            [CS("MLP", "b")],
            InvalidTypeError,
            r"CS\('b'\) needs a factory net\(in_shape, out_features\), got str; for example",
        ),
        (
            [CS(one_argument, "b")],
            InvalidTypeError,
            r"CS\('b'\) needs a factory net\(in_shape, out_features\), got one_argument\(in_shape\); let it",
        ),
        (
            [CI(OneArgument, "b")],
            InvalidTypeError,
            r"CI\('b'\) needs a factory net\(in_shape, out_features\), got OneArgument\(in_shape\); let it",
        ),
        (
            [CS(MLP((4,)), "b"), Varying("a")],
            UnsupportedError,
            "Varying cannot be combined with networks, got both; use dt.CI",
        ),
        (
            [CS(MLP((4,)), "b", center=True), Scale("a")],
            UnsupportedError,
            r"center=True in CS\('b'\) cannot be combined with Scale",
        ),
        (
            [CS(MLP((4,)), "b", center=True), Scale(MLP((4,)), "a")],
            UnsupportedError,
            r"center=True in CS\('b'\) cannot be combined with Scale",
        ),
        ([Scale(text, "b")], InvalidTypeError, r"factory of Scale\('b'\) must return a torch.nn.Module"),
        ([CS(MLP((4,)), "bb")], InvalidInputError, "column 'bb' is needed but missing from X"),
    ],
)
def test_wrong_networks_and_terms(terms, error, match, make_task, simulated):
    task = make_task(terms, "ordinal", simulated.X, simulated.y["ordinal"])
    with pytest.raises(error, match=match):
        fit_deep(task, 0)


@pytest.mark.parametrize("term", [Scale("a"), Scale(MLP((4,)), "a"), SI(strata="g")])
def test_nominal_outcomes_have_no_order_to_scale(term, make_task, simulated):
    task = make_task([term, CS(MLP((4,)), "b")], "nominal", simulated.X, simulated.y["nominal"])
    with pytest.raises(
        UnsupportedError, match="strata and Scale need an ordered outcome, got outcome='nominal'"
    ):
        fit_deep(task, 0)


def test_patience_needs_something_to_watch(make_task, simulated):
    task = make_task([CS(MLP((4,)), "b")], "ordinal", simulated.X, simulated.y["ordinal"], patience=2)
    with pytest.raises(
        InvalidInputError, match="patience=2 needs validation data to watch, got none; pass Training"
    ):
        fit_deep(task, 0)


def test_a_validation_share_must_leave_rows(make_task, simulated):
    task = make_task([CS(MLP((4,)), "b")], "binary", simulated.X[:2], [0, 1], validation=0.9)
    with pytest.raises(
        InvalidInputError, match=r"validation=0.9 must leave rows to train on, got 2 row\(s\)"
    ):
        fit_deep(task, 0)


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
def test_a_gpu_where_there_is_none(make_task, simulated):
    task = make_task([CS(MLP((4,)), "b")], "ordinal", simulated.X, simulated.y["ordinal"], device="cuda")
    with pytest.raises(UnsupportedError, match="device='cuda' needs a GPU that torch can use"):
        fit_deep(task, 0)


def test_nan_pixels_are_named(make_task, rng):
    images = rng.random((20, 8, 8))
    images[[3, 11], 0, 0] = np.nan
    task = make_task([CS(CNN((2,), dense=(2,)), "image")], "binary", {"image": images}, np.arange(20) % 2)
    with pytest.raises(
        InvalidInputError, match=r"images 'image' must have finite pixels, got NaN .* rows 3, 11"
    ):
        fit_deep(task, 0)


def test_images_and_rows_must_match(make_task, rng):
    X = {"image": rng.random((19, 8, 8)), "a": rng.normal(size=20)}
    with pytest.raises(
        InvalidInputError, match="image, a must have the same number of rows, got inconsistent"
    ):
        make_task([CS(CNN((2,), dense=(2,)), "image"), LS("a")], "binary", X, np.arange(20) % 2)
    task = make_task(
        [CS(CNN((2,), dense=(2,)), "image")], "binary", {"image": rng.random((19, 8, 8))}, np.arange(20) % 2
    )
    with pytest.raises(
        InvalidInputError,
        match=r"X, y must have the same number of rows, got inconsistent .* \(X has 19, y has 20\)",
    ):
        fit_deep(task, 0)


def test_wrong_channels_at_prediction(make_task, rng):
    X = {"image": rng.random((20, 3, 8, 8))}
    task = make_task([CS(CNN((2,), dense=(2,)), "image")], "binary", X, np.arange(20) % 2, epochs=1)
    fit = fit_deep(task, 0)
    other = {"image": rng.random((5, 1, 8, 8))}
    message = r"images 'image' must have shape \(C, H, W\) = \(3, 8, 8\) as in fit, got \(1, 8, 8\)"
    with pytest.raises(InvalidInputError, match=message):
        fit.model.row_parameters(other, task.design.matrices(other))


def test_training_emits_no_warning(make_task, simulated):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fit_deep(make_task([CS(MLP((4,)), "b"), LS("a")], "ordinal", simulated.X, simulated.y["ordinal"]), 0)


def adam_by_hand(gradients, rate, start, epsilon, beta1=0.9, beta2=0.999):
    """Kingma and Ba (2015), Algorithm 1, with the count of steps beginning elsewhere."""
    value = first = second = 0.0
    for t, gradient in enumerate(gradients, start=start + 1):
        first = beta1 * first + (1 - beta1) * gradient
        second = beta2 * second + (1 - beta2) * gradient**2
        corrected = first / (1 - beta1**t), second / (1 - beta2**t)
        value -= rate * corrected[0] / (corrected[1] ** 0.5 + epsilon)
    return value


@pytest.mark.parametrize("start", [0, 1, 2820])
@pytest.mark.parametrize("epsilon", [1e-8, 1e-2])
def test_adam_counts_from_where_it_is_told(start, epsilon):
    parameter = nn.Parameter(torch.zeros(1, dtype=torch.float64))
    training = Training(learning_rate=0.1, adam_start=start, adam_epsilon=epsilon)
    optimizer = make_optimizer([("beta", parameter)], training)
    gradients = [1.0, -0.3, 0.7, 2.0]
    for gradient in gradients:
        parameter.grad = torch.full_like(parameter, gradient)
        optimizer.step()
    assert float(parameter.detach()) == pytest.approx(adam_by_hand(gradients, 0.1, start, epsilon), rel=1e-9)


def test_late_start_has_longer_first_steps():
    steps = []
    for start in (0, 10**6):
        parameter = nn.Parameter(torch.zeros(1))
        optimizer = make_optimizer([("beta", parameter)], Training(learning_rate=1.0, adam_start=start))
        parameter.grad = torch.ones(1)
        optimizer.step()
        steps.append(-float(parameter.detach()))
    assert steps[1] / steps[0] == pytest.approx(0.1 / 0.001**0.5, rel=1e-4)  # about 3.2


def test_without_a_warm_start_the_complex_intercept_is_its_network(make_task, simulated):
    X, y = simulated.X, simulated.y["ordinal"]
    cold = fit_deep(make_task([CI(MLP((4,)), "b")], "ordinal", X, y, epochs=3, warm_start=False), 0)
    warm = fit_deep(make_task([CI(MLP((4,)), "b")], "ordinal", X, y, epochs=3), 0)
    assert not cold.model.intercept.constant.detach().any()
    assert warm.model.intercept.constant.detach().any()


def test_raw_columns_describe_the_same_model(make_task, simulated):
    """Standardised or not, training ends at the same coefficients; the paths differ."""
    X, y = simulated.X.assign(a=3 + 2 * simulated.X["a"]), simulated.y["ordinal"]
    fits = [
        fit_deep(
            make_task([SI(), LS("a"), CS(MLP((2,)), "b")], "ordinal", X, y, epochs=300, standardize=how), 0
        )
        for how in (True, False)
    ]
    assert fits[1].model.coef == pytest.approx(fits[0].model.coef, abs=0.02)
    assert not np.array_equal(fits[1].model.coef, fits[0].model.coef)
