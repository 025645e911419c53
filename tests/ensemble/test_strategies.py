"""Strategies: the same members whatever the strategy, interruption, choice, memory maps."""

from __future__ import annotations

import dataclasses
import warnings

import joblib
import numpy as np
import pytest
import torch
from torch import nn

import deeptram as dt
from deep_models import FAST, NET, TERMS, table
from deeptram._rows import is_memory_map
from deeptram.ensemble import strategies
from deeptram.ensemble.strategies import choose_strategy, train_members, train_one, workers
from deeptram.errors import CollinearityWarning, ConvergenceWarning, NonFiniteLossError
from deeptram.estimators.deep import MemberFit, deep_task

MODEL = dt.Polr(
    [dt.CS(dt.networks.MLP(hidden=(8,), dropout=0.2), "b", "c"), dt.LS("a")],
    training=FAST.replace(epochs=4, patience=2, min_epochs=2),
)


def data():
    X, z = table()
    return X, np.digitize(z, [-1, 0, 1])


def task_of(model, X, y, validation=None):
    _, matrices, encoded, weights = model.prepare(X, y, None)
    return deep_task(model, X, matrices, encoded, weights, validation, 0)


def weights_of(ensemble):
    return [
        np.concatenate([p.detach().double().numpy().ravel() for p in member.model_.parameters()])
        for member in ensemble.members_
    ]


@pytest.fixture(scope="module")
def by_strategy():
    X, y = data()
    settings = {
        "stacked": {"strategy": "stacked"},
        "sequential": {"strategy": "sequential"},
        "parallel": {"strategy": "parallel", "n_jobs": 2},
        "one job": {"strategy": "parallel", "n_jobs": 1},
        "more members": {"strategy": "sequential", "n_members": 4},
    }
    return {
        name: dt.Ensemble(MODEL, **{"n_members": 3, "random_state": 7, **arguments}).fit(X, y, validation=0.2)
        for name, arguments in settings.items()
    }


@pytest.mark.parametrize("name", ["stacked", "parallel", "one job", "more members"])
def test_the_same_seed_gives_the_same_members(by_strategy, name):
    X, _ = data()
    reference, other = by_strategy["sequential"], by_strategy[name]
    for a, b in zip(weights_of(reference), weights_of(other)[:3], strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)
    for a, b in zip(reference.members_, other.members_, strict=False):
        assert a.seed_ == b.seed_ == b.random_state
        assert a.best_epoch_ == b.best_epoch_
        assert a.loglik_ == pytest.approx(b.loglik_, rel=1e-5)
        np.testing.assert_allclose(a.shift_vcov_, b.shift_vcov_, rtol=1e-4)
        np.testing.assert_allclose(a.predict_proba(X), b.predict_proba(X), atol=1e-5)


def test_members_differ_from_each_other(by_strategy):
    first, second, _ = weights_of(by_strategy["sequential"])
    assert np.abs(first - second).max() > 0.01


def test_the_strategy_is_told(by_strategy):
    assert by_strategy["stacked"].strategy_ == "stacked"
    assert by_strategy["one job"].strategy_ == "parallel"


# -- choice ------------------------------------------------------------------------------------------------


class OwnRandomness(nn.Module):
    """Draws random numbers by itself, which cannot be vectorised."""

    def __init__(self, in_shape, out_features):
        super().__init__()
        self.layer = nn.Linear(in_shape[0], out_features)

    def forward(self, x):
        return self.layer(x + 0.01 * torch.randn_like(x) * self.training)


def test_auto_stacks_tables_and_runs_images_in_parallel(monkeypatch):
    X, y = data()
    tabular = task_of(dt.Polr(TERMS["CI-LS"], training=FAST), X, y)
    own = task_of(dt.Polr([dt.CS(OwnRandomness, "a")], training=FAST), X, y)
    pictures = dt.datasets.simulate("ordinal", n=20, seed=1)
    cnn = dt.networks.CNN(channels=(2,), dense=())
    images = task_of(dt.Polr([dt.CS(cnn, "image"), dt.LS("x_1")], training=FAST), pictures.X, pictures.y)
    monkeypatch.setattr(joblib, "cpu_count", lambda: 4)
    assert choose_strategy("auto", tabular, 5, None) == "stacked"
    assert choose_strategy("auto", images, 5, None) == "parallel"
    assert choose_strategy("auto", images, 5, 1) == "sequential"
    assert choose_strategy("auto", images, 1, None) == "sequential"
    assert choose_strategy("auto", own, 5, 2) == "parallel"
    assert choose_strategy("sequential", tabular, 5, None) == "sequential"
    monkeypatch.setattr(joblib, "cpu_count", lambda: 1)
    assert choose_strategy("auto", images, 5, None) == "sequential"


def test_number_of_workers(monkeypatch):
    monkeypatch.setattr(joblib, "cpu_count", lambda: 8)
    assert workers(2, 5) == 2
    assert workers(None, 5) == 5
    with joblib.parallel_config(n_jobs=2):
        assert workers(None, 5) == 2


# -- processes -----------------------------------------------------------------------------------------------


def test_large_arrays_arrive_as_memory_maps():
    big = np.random.default_rng(0).normal(size=(200, 40, 40))  # 2.5 MB
    (answer,) = joblib.Parallel(n_jobs=2)([joblib.delayed(_kind_of)({"image": big, "small": big[:2, 0, 0]})])
    assert answer == (True, False)


def _kind_of(X):
    return is_memory_map(X["image"]), is_memory_map(X["small"])


def test_memory_maps_give_the_same_member(tmp_path):
    data = dt.datasets.simulate("ordinal", n=60, seed=1)
    path = tmp_path / "images.npy"
    np.save(path, data.X["image"])
    mapped = {**data.X, "image": np.load(path, mmap_mode="r")}
    model = dt.Polr([dt.CS(NET, "image"), dt.LS("x_1")], training=FAST)
    in_memory = train_one(task_of(model, dict(data.X), data.y, 0.2), 0, 5)[1]
    from_disk = train_one(task_of(model, mapped, data.y, 0.2), 0, 5)[1]
    for name, value in in_memory.weights.items():
        np.testing.assert_array_equal(value, from_disk.weights[name])


def test_a_worker_uses_one_thread(monkeypatch):
    X, y = data()
    seen = []
    original = strategies.fit_deep

    def note(task, seed):
        seen.append(torch.get_num_threads())
        return original(task, seed)

    monkeypatch.setattr(strategies, "fit_deep", note)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        train_one(task_of(dt.Polr(TERMS["CI-LS"], training=FAST), X, y), 0, 1)
        assert seen == [1]
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


# -- what goes wrong ------------------------------------------------------------------------------------


def test_warnings_are_given_once():
    X, y = data()
    model = dt.Polr([dt.CS(NET, "b"), dt.LS("a", "d")], training=FAST)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        dt.Ensemble(model, 3, strategy="sequential", random_state=1).fit(X.assign(d=2 * X["a"]), y)
    assert [w.category for w in seen] == [CollinearityWarning]


def interrupt_after(monkeypatch, members):
    """Let Ctrl-C come while the next member is being trained."""
    original, calls = strategies.fit_deep, []

    def fit(task, seed):
        calls.append(seed)
        if len(calls) > members:
            raise KeyboardInterrupt
        return original(task, seed)

    monkeypatch.setattr(strategies, "fit_deep", fit)


@pytest.mark.parametrize("settings", [{"strategy": "sequential"}, {"strategy": "parallel", "n_jobs": 1}])
def test_an_interruption_keeps_finished_members(monkeypatch, settings):
    X, y = data()
    whole = dt.Ensemble(MODEL, 4, random_state=7, strategy="sequential").fit(X, y, validation=0.2)
    interrupt_after(monkeypatch, 2)
    ensemble = dt.Ensemble(MODEL, 4, random_state=7, weights=[0.1, 0.3, 0.4, 0.2], **settings)
    with pytest.warns(ConvergenceWarning, match="2 of 4 members were finished and are kept"):
        ensemble.fit(X, y, validation=0.2)
    assert len(ensemble.members_) == 2
    np.testing.assert_allclose(ensemble.weights_, [0.25, 0.75])
    np.testing.assert_array_equal(weights_of(ensemble)[1], weights_of(whole)[1])
    assert np.isfinite(ensemble.score(X, y))


@pytest.mark.parametrize("strategy", ["sequential", "parallel"])
def test_an_interruption_before_the_first_member_is_passed_on(monkeypatch, strategy):
    X, y = data()
    interrupt_after(monkeypatch, 0)
    with pytest.raises(KeyboardInterrupt):
        dt.Ensemble(MODEL, 3, strategy=strategy, n_jobs=1).fit(X, y, validation=0.2)


class Interrupting(nn.Module):
    """A user who presses Ctrl-C in the third epoch."""

    calls = 0

    def __init__(self, in_shape, out_features):
        super().__init__()
        self.layer = nn.Linear(in_shape[0], out_features)

    def forward(self, x):
        Interrupting.calls += self.training
        if self.training and Interrupting.calls == 8:
            raise KeyboardInterrupt
        return self.layer(x)


def test_members_trained_together_are_kept_as_they_were(monkeypatch):
    X, y = data()
    monkeypatch.setattr(Interrupting, "calls", 0)
    model = dt.Polr([dt.CS(Interrupting, "b"), dt.LS("a")], training=FAST.replace(epochs=9))
    with pytest.warns(ConvergenceWarning, match="all 3 members are kept as they were at their best epoch"):
        ensemble = dt.Ensemble(model, 3, strategy="stacked", random_state=1).fit(X, y, validation=0.2)
    assert [member.converged_ for member in ensemble.members_] == [False] * 3
    assert np.isfinite(ensemble.score(X, y))


def test_a_member_cut_short_is_not_a_member(monkeypatch):
    X, y = data()
    monkeypatch.setattr(Interrupting, "calls", 0)
    model = dt.Polr([dt.CS(Interrupting, "b"), dt.LS("a")], training=FAST)
    with pytest.warns(ConvergenceWarning, match="1 of 3 members were finished"):
        ensemble = dt.Ensemble(model, 3, strategy="sequential", random_state=1).fit(X, y, validation=0.2)
    assert len(ensemble.members_) == 1
    assert ensemble.members_[0].converged_


class Exploding(nn.Module):
    """Infinite from some step on."""

    calls = 0

    def __init__(self, in_shape, out_features):
        super().__init__()
        self.layer = nn.Linear(in_shape[0], out_features)

    def forward(self, x):
        Exploding.calls += self.training
        return self.layer(x) + (torch.inf if self.training and Exploding.calls > 9 else 0.0)


@pytest.mark.parametrize("strategy", ["sequential", "parallel"])
def test_a_non_finite_loss_names_the_member_and_keeps_the_others(monkeypatch, strategy):
    X, y = data()
    monkeypatch.setattr(Exploding, "calls", 0)
    model = dt.Polr([dt.CS(Exploding, "b"), dt.LS("a")], training=FAST)
    ensemble = dt.Ensemble(model, 3, strategy=strategy, n_jobs=1, random_state=1)
    with pytest.raises(NonFiniteLossError, match="member 1: the training loss must stay finite"):
        ensemble.fit(X, y)
    assert len(ensemble.members_) == 1
    assert np.isfinite(ensemble.score(X, y))


def test_a_non_finite_loss_of_members_trained_together(monkeypatch):
    X, y = data()
    monkeypatch.setattr(Exploding, "calls", 0)
    model = dt.Polr([dt.CS(Exploding, "b"), dt.LS("a")], training=FAST.replace(epochs=30))
    with pytest.raises(NonFiniteLossError, match="training loss of member 0 must stay finite"):
        dt.Ensemble(model, 3, strategy="stacked", random_state=1).fit(X, y)


def test_nothing_to_train():
    trained = train_members({}, "sequential", None, print)
    assert trained.members == {}


def test_a_member_travels_as_plain_values():
    X, y = data()
    task = task_of(MODEL, X, y, 0.2)
    _, member = train_one(task, 3, 11)
    again = MemberFit.from_record(*member.to_record())
    assert (again.seed, again.best_epoch, again.loglik) == (11, member.best_epoch, member.loglik)
    np.testing.assert_array_equal(again.shift_vcov, member.shift_vcov)


def test_a_task_is_on_all_workers_of_dask_before_the_first_is_busy():
    class Client:
        def scatter(self, what, **options):
            return what, options

    class Backend:
        client = Client()

    training = dt.Training(epochs=1, progress=True)

    @dataclasses.dataclass
    class Task:
        training: dt.Training

    task = Task(training)
    placed, options = strategies._placed(task, Backend())
    assert options == {"broadcast": True, "hash": False}
    assert placed.training == training.replace(progress=False)
    assert strategies._placed(task, object()).training == training.replace(progress=False)
