"""Members trained together are the members trained alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from deeptram import latent
from deeptram.errors import NonFiniteLossError, UnsupportedError
from deeptram.fitting.deep.gradient import fit_deep
from deeptram.fitting.deep.stacked import StackedEngine, fit_stacked, stacking_pays
from deeptram.fitting.deep.task import Setup
from deeptram.model.terms import CI, CS, LS, SI, Scale
from deeptram.networks import CNN, MLP

SEEDS = [11, 12, 13]


def assert_same(task, seeds=SEEDS, atol=1e-5):
    together = fit_stacked(task, seeds)
    alone = [fit_deep(task, seed) for seed in seeds]
    for one, other in zip(together, alone, strict=True):
        a = one.model.row_parameters(task.X, task.matrices)
        b = other.model.row_parameters(task.X, task.matrices)
        for part in ("theta", "shift", "log_scale"):
            if getattr(a, part) is not None:
                np.testing.assert_allclose(getattr(a, part), getattr(b, part), atol=atol, rtol=atol)
        np.testing.assert_allclose(one.model.coef, other.model.coef, atol=atol)
        columns = ["epoch", "train_loss", "validation_loss", "learning_rate"]
        np.testing.assert_allclose(one.history[columns], other.history[columns], atol=atol, rtol=atol)
        assert (one.best_epoch, one.n_epochs, one.seed) == (other.best_epoch, other.n_epochs, other.seed)
    return together


KINDS = ["binary", "ordinal", "nominal", "continuous", "count", "survival"]


@pytest.mark.parametrize("kind", KINDS)
def test_every_outcome_type(kind, make_task, simulated):
    terms = [CI(MLP((8,)), "b"), LS("a"), CS(MLP((4,)), "c")]
    task = make_task(terms, kind, simulated.X, simulated.y[kind], validation=0.2)
    fits = assert_same(task)
    assert not np.allclose(fits[0].model.coef, fits[1].model.coef)


@pytest.mark.parametrize("latents", [("normal", "logistic"), ("logistic", "normal")], ids="-".join)
def test_ordered_classes_with_latents_of_their_own(latents, make_task, simulated):
    terms = [CI(MLP((8,)), "b"), LS("a")]
    one = make_task(terms, "ordinal", simulated.X, simulated.y["ordinal"], validation=0.2)
    tasks = [replace(one, latent=latent.get(name)) for name in latents]
    for own, together in zip(tasks, fit_stacked(tasks, SEEDS[:2]), strict=True):
        alone = fit_deep(own, together.seed)
        np.testing.assert_allclose(together.model.coef, alone.model.coef, atol=1e-5)
        np.testing.assert_allclose(together.history.train_loss, alone.history.train_loss, rtol=1e-5)


def test_float64_is_tighter(make_task, simulated):
    task = make_task(
        [CI(MLP((16, 16)), "b", "c"), LS("a")],
        "ordinal",
        simulated.X,
        simulated.y["ordinal"],
        validation=0.2,
        dtype="float64",
        epochs=10,
    )
    assert_same(task, atol=1e-12)


@pytest.mark.parametrize(
    "settings",
    [
        {"clip_norm": 0.05},
        {"optimizer": "adamw", "weight_decay": 0.1},
        {"weight_decay": 0.01},
        {"schedule": "cosine"},
        {"validation": None},
        {"warm_start": False},
        {"batch_size": 1000},
        {"batch_size": 60, "micro_batch": 25, "clip_norm": 0.05},
    ],
    ids=str,
)
def test_settings(settings, make_task, simulated):
    terms = [SI(strata="g"), CS(MLP((8,), dropout=0.25), "b"), LS("a"), Scale("c")]
    X, y = simulated.X, simulated.y["ordinal"]
    assert_same(make_task(terms, "ordinal", X, y, **{"validation": 0.2, **settings}))


def test_weights_and_common_validation_rows(make_task, simulated):
    X, y = simulated.X, simulated.y["ordinal"]
    weight = np.linspace(0.0, 2.0, 180)
    terms = [CS(MLP((8,)), "b"), LS("a")]
    assert_same(make_task(terms, "ordinal", X[60:], y[60:], weight=weight, val=(X[:60], y[:60])))


def test_weights_and_a_validation_share(make_task, simulated):
    X, y = simulated.X, simulated.y["continuous"]
    weight = np.linspace(0.0, 2.0, 240)
    terms = [CS(MLP((8,)), "b"), LS("a")]
    assert_same(make_task(terms, "continuous", X, y, weight=weight, validation=0.3))


def test_crps(make_task, simulated):
    terms = [CS(MLP((4,)), "b"), LS("a")]
    task = make_task(
        terms, "continuous", simulated.X[:60], simulated.y["continuous"][:60], loss="crps", epochs=1
    )
    assert_same(task, seeds=[1, 2], atol=1e-4)


@pytest.mark.parametrize("restore_best", [True, False])
def test_patience_and_plateau_are_each_members_own(restore_best, make_task, simulated):
    X, y = simulated.X, simulated.y["ordinal"]
    task = make_task(
        [CS(MLP((32,)), "a", "b", "c"), LS("a")],
        "ordinal",
        X[80:],
        y[80:],
        val=(X[:80], y[:80]),
        epochs=40,
        learning_rate=0.03,
        patience=7,
        schedule="plateau",
        restore_best=restore_best,
        dtype="float64",
    )
    fits = assert_same(task, seeds=[1, 2, 3, 4], atol=1e-8)
    assert len({fit.n_epochs for fit in fits}) > 1
    assert any(fit.history.learning_rate.nunique() > 1 for fit in fits)
    if not restore_best:
        assert all(fit.best_epoch == fit.n_epochs for fit in fits)


def test_images_with_augmentation(make_task, rng):
    images = rng.integers(0, 256, size=(48, 8, 8), dtype=np.uint8)
    X = {"image": images, "a": rng.normal(size=48)}
    y = np.digitize(images.mean(axis=(1, 2)) + 4 * rng.normal(size=48), [124, 132])

    def noise(batch):
        return batch + 0.05 * torch.randn_like(batch)

    net = CNN((3, 4), dense=(5,), dropout=0.1)
    task = make_task(
        [CI(net, "image"), LS("a")], "ordinal", X, y, batch_size=16, augment=noise, validation=0.25
    )
    assert_same(task)


def test_channelwise_dropout(make_task, rng):
    def net(in_shape, out_features):
        return nn.Sequential(
            nn.Conv2d(in_shape[0], 4, 3), nn.Dropout2d(0.3), nn.Flatten(), nn.LazyLinear(out_features)
        )

    def built(in_shape, out_features):
        network = net(in_shape, out_features)
        network(torch.zeros(1, *in_shape))
        return network

    X = {"image": rng.random((32, 8, 8))}
    assert_same(make_task([CS(built, "image")], "binary", X, np.arange(32) % 2, batch_size=16))


def nested(in_shape, out_features):
    head = nn.Sequential(nn.Linear(in_shape[0], 6), nn.Dropout(0.2), nn.LeakyReLU())
    return nn.Sequential(head, nn.Identity(), nn.Linear(6, out_features, bias=False))


class Residual(nn.Module):
    """Not a sequence of known layers, so it runs under vmap."""

    def __init__(self, in_shape, out_features):
        super().__init__()
        self.first, self.drop = nn.Linear(in_shape[0], in_shape[0]), nn.Dropout(0.2)
        self.last = nn.Linear(in_shape[0], out_features)

    def forward(self, x):
        return self.last(x + self.drop(self.first(x).tanh()))


class Tied(nn.Module):
    """One matrix under two names."""

    def __init__(self, in_shape, out_features):
        super().__init__()
        self.first, self.second = nn.Linear(in_shape[0], in_shape[0]), nn.Linear(in_shape[0], in_shape[0])
        self.second.weight = self.first.weight
        self.last = nn.Linear(in_shape[0], out_features)

    def forward(self, x):
        return self.last(self.second(self.first(x).tanh()).tanh())


def begins_with_relu(in_shape, out_features):
    return nn.Sequential(nn.ReLU(), nn.Linear(in_shape[0], 4), nn.ReLU(), nn.Linear(4, out_features))


@pytest.mark.parametrize(
    ("net", "batched"),
    [
        (nested, True),
        (begins_with_relu, True),
        (MLP((4,), dropout=0.1), True),
        (Residual, False),
        (Tied, False),
    ],
)
@pytest.mark.parametrize("kind", ["ordinal", "nominal"])
def test_both_forward_passes(net, batched, kind, make_task, simulated):
    structured = [LS("a + g")] if kind == "nominal" else [LS("a + g"), Scale("c"), Scale(net, "b")]
    start = [CI(net, "b", "c")] if kind == "nominal" else [SI(strata="g")]
    task = make_task(
        [*start, CS(net, "a", "b"), *structured], kind, simulated.X, simulated.y[kind], validation=0.2
    )
    setup = Setup(task)
    engine = StackedEngine(setup, [setup.member(seed) for seed in SEEDS])
    assert (engine._forward is not None) == batched
    assert_same(task)


def test_the_two_forward_passes_agree(make_task, simulated):
    terms = [CI(nested, "b"), CS(MLP((4,)), "c"), LS("a")]
    setup = Setup(make_task(terms, "ordinal", simulated.X, simulated.y["ordinal"], dtype="float64"))
    engine = StackedEngine(setup, [setup.member(seed) for seed in SEEDS])
    rows = torch.arange(30).reshape(3, 10)
    batch, masks = setup.data.batch(rows), engine._draw_masks(10)
    batched = engine._vectorised(batch, masks)
    engine._forward = None
    vectorised = engine._vectorised(batch, masks)
    for name, values in vectorised.items():
        torch.testing.assert_close(batched[name], values, rtol=1e-12, atol=1e-12)


def test_one_member_is_allowed(make_task, simulated):
    task = make_task([CS(MLP((4,)), "b")], "binary", simulated.X, simulated.y["binary"])
    assert_same(task, seeds=[5])


def test_the_global_generator_and_threads_are_left_alone(make_task, simulated):
    task = make_task([CS(MLP((4,), dropout=0.2), "b")], "binary", simulated.X, simulated.y["binary"])
    before, threads = torch.get_rng_state(), torch.get_num_threads()
    fit_stacked(task, SEEDS)
    assert torch.equal(before, torch.get_rng_state())
    assert torch.get_num_threads() == threads


def test_shifts_are_identified_for_each_member(make_task, simulated):
    terms = [CS(MLP((8,)), "a", "b", center=True, orthogonalize=True), LS("a")]
    task = make_task(terms, "ordinal", simulated.X, simulated.y["ordinal"])
    for fit in assert_same(task):
        eta = fit.model.contributions(task.X, task.matrices)["CS('a', 'b')"]
        assert abs(eta.mean()) < 1e-8
        assert abs(np.corrcoef(eta, simulated.X.a)[0, 1]) < 1e-8


# -- what goes wrong ------------------------------------------------------------------------------


class OwnRandomness(nn.Module):
    def __init__(self, in_shape, out_features):
        super().__init__()
        self.layer = nn.Linear(in_shape[0], out_features)

    def forward(self, x):
        return nn.functional.dropout(self.layer(x), 0.1, self.training)


def normalised(in_shape, out_features):
    return nn.Sequential(nn.Linear(in_shape[0], 4), nn.BatchNorm1d(4), nn.Linear(4, out_features))


class Branching(nn.Module):
    def __init__(self, in_shape, out_features):
        super().__init__()
        self.layer = nn.Linear(in_shape[0], out_features)

    def forward(self, x):
        return self.layer(x) if x.sum() > 0 else -self.layer(x)


@pytest.mark.parametrize(
    ("net", "match"),
    [
        (
            OwnRandomness,
            "cannot be trained in one vectorised pass, got a layer that draws random numbers by itself",
        ),
        (normalised, "cannot be trained in one vectorised pass, got BatchNorm1d, whose running averages"),
        (
            Branching,
            "cannot be trained in one vectorised pass, got .*; use strategy='parallel' or 'sequential'",
        ),
    ],
)
def test_networks_that_cannot_be_stacked(net, match, make_task, simulated):
    task = make_task([CS(net, "b")], "ordinal", simulated.X, simulated.y["ordinal"])
    with pytest.raises(UnsupportedError, match=match):
        fit_stacked(task, SEEDS)
    assert not stacking_pays(task)
    fit_deep(task, 0)


def test_networks_that_can(make_task, simulated):
    task = make_task([CS(MLP((4,), dropout=0.1), "b")], "ordinal", simulated.X, simulated.y["ordinal"])
    assert stacking_pays(task)


class Fuse(nn.Module):
    """Counts passes outside of the traced tensors; does something else in the n-th training pass."""

    left = 0

    def __init__(self, in_shape, out_features, action):
        super().__init__()
        self.layer, self.action = nn.Linear(in_shape[0], out_features), action

    def forward(self, x):
        if self.training:
            Fuse.left -= 1
            if Fuse.left == 0:
                return self.action(self.layer(x), x)
        return self.layer(x)


def spoil(output, x):
    return torch.where(x[:, :1] > 1.0, torch.nan, output)


def interrupt(output, x):
    raise KeyboardInterrupt


def fuse(action, passes):
    Fuse.left = passes

    def net(in_shape, out_features):
        return Fuse(in_shape, out_features, action)

    return net


def test_a_non_finite_loss_names_member_and_rows(make_task, simulated):
    X = simulated.X.copy()
    X["b"] = np.where(np.arange(240) == 7, 9.0, 0.0)
    # the first pass on each batch size records the dropout masks
    task = make_task([CS(fuse(spoil, 7), "b"), LS("a")], "ordinal", X, simulated.y["ordinal"], batch_size=240)
    task = replace(task, training=task.training.replace(epochs=9))
    with pytest.raises(
        NonFiniteLossError,
        match="the training loss of member 0 must stay finite, got nan in epoch 6 at row 7 of X",
    ) as caught:
        fit_stacked(task, SEEDS)
    assert caught.value.best.n_epochs == 5
    assert caught.value.best.seed == SEEDS[0]


def test_an_interruption_keeps_the_best_states(make_task, simulated):
    net = fuse(interrupt, 7)
    task = make_task([CS(net, "b")], "ordinal", simulated.X, simulated.y["ordinal"], batch_size=240, epochs=9)
    fits = fit_stacked(task, SEEDS)
    assert all(fit.interrupted and fit.n_epochs == 5 for fit in fits)


def test_members_may_share_rows_held_out_of_x(make_task, simulated):
    rows = np.arange(0, 240, 4)
    task = make_task(
        [CS(MLP((8,)), "b"), LS("a")], "ordinal", simulated.X, simulated.y["ordinal"], patience=2
    )
    task = replace(task, validation_rows=rows)
    setup = Setup(task)
    member = setup.member(0)
    assert member.validation_rows.tolist() == rows.tolist()
    assert not set(member.train_rows.tolist()) & set(rows.tolist())
    assert len(member.train_rows) == 180
    for fit in assert_same(task):
        assert fit.history.validation_loss.notna().all()


def test_members_whose_networks_differ_in_shape_cannot_share_a_pass(make_task, simulated):
    def task(net, **training):
        return make_task([CI(net, "b")], "continuous", simulated.X, simulated.y["continuous"], **training)

    first = task(MLP((4,)), validation=0.2)
    held = replace(first, validation_rows=np.arange(9))
    decayed = {"optimizer": lambda groups: torch.optim.SGD(groups, lr=1e-3)}
    for others, message in [
        ([first, task(MLP((5,)), validation=0.2)], "networks that differ in their sizes"),
        ([first, task(MLP((4, 4)), validation=0.2)], "networks that differ in their layers"),
        ([first, held], "members with different numbers of rows"),
        (
            [task(MLP((4,)), weight_decay=decay, **decayed) for decay in (0.0, 0.1)],
            "weight decays of each member with an optimiser of your own",
        ),
    ]:
        with pytest.raises(UnsupportedError, match=message):
            fit_stacked(others, SEEDS[:2])
