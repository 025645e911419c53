"""Callbacks, optimisers, schedules, averages, smoothing, mixup, class weights: together and alone the same."""

from __future__ import annotations

import csv
import importlib.util
import math

import numpy as np
import pandas as pd
import pytest
import torch

import deeptram as dt
from deeptram.errors import (
    InvalidInputError,
    InvalidTypeError,
    MissingDependencyError,
    UnknownNameError,
    UnsupportedError,
)
from deeptram.fitting.deep.gradient import fit_deep, make_optimizer
from deeptram.fitting.deep.hooks import CSVLog, EarlyStopping, EpochState, OneCycle, TensorBoard, WarmUp
from deeptram.fitting.deep.stacked import fit_stacked
from deeptram.fitting.deep.task import Setup
from deeptram.fitting.deep.training import Training
from deeptram.model.terms import CI, CS, LS
from deeptram.networks import MLP

SEEDS = [3, 4]
TERMS = [CS(MLP((4,), dropout=0.1), "b", "c"), LS("a")]


def sgd(groups):
    return torch.optim.SGD(groups, momentum=0.9)


def slow_structure(groups):
    for group in groups:
        group["lr"] *= 0.1 if group["name"] == "structured" else 1.0
    return torch.optim.AdamW(groups)


SETTINGS = {
    "sgd": {"optimizer": sgd},
    "per-group": {"optimizer": slow_structure, "schedule": "cosine"},
    "warm-up": {"schedule": WarmUp(0.2)},
    "one-cycle": {"schedule": OneCycle()},
    "average": {"average": 0.9},
    "label smoothing": {"label_smoothing": 0.1},
    "mixup": {"mixup": 0.4},
    "class weights": {"class_weight": "balanced"},
    "everything": {"optimizer": sgd, "schedule": OneCycle(), "average": 0.9, "mixup": 0.2, "clip_norm": 1.0},
}


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_members_are_the_same_together_and_alone(settings, make_task, simulated):
    task = make_task(TERMS, "ordinal", simulated.X, simulated.y["ordinal"], validation=0.2, **settings)
    plain = make_task(TERMS, "ordinal", simulated.X, simulated.y["ordinal"], validation=0.2)
    together = fit_stacked(task, SEEDS)
    for seed, one in zip(SEEDS, together, strict=True):
        alone = fit_deep(task, seed)
        pd.testing.assert_frame_equal(
            alone.history.drop(columns="seconds"), one.history.drop(columns="seconds"), atol=1e-5
        )
        for name, value in alone.model.state_dict().items():
            torch.testing.assert_close(one.model.state_dict()[name], value, atol=1e-4, rtol=1e-3)
        usual = fit_deep(plain, seed).model.state_dict()
        same = [torch.equal(value, usual[name]) for name, value in alone.model.named_parameters()]
        assert not any(same)


def test_members_that_stop_leave_the_others_as_they_were(make_task, simulated):
    def stop(state):
        return state.seed == SEEDS[0] and state.epoch == 1

    kind = {"optimizer": sgd, "average": 0.5, "mixup": 0.3, "epochs": 3}
    data = ("ordinal", simulated.X, simulated.y["ordinal"])
    both = fit_stacked(make_task(TERMS, *data, callbacks=stop, **kind), SEEDS)
    assert [fit.n_epochs for fit in both] == [1, 3]
    other = fit_deep(make_task(TERMS, *data, **kind), SEEDS[1])
    for name, value in other.model.state_dict().items():
        torch.testing.assert_close(both[1].model.state_dict()[name], value, atol=1e-4, rtol=1e-3)


@pytest.mark.parametrize("fit", [lambda task: [fit_deep(task, 3)], lambda task: fit_stacked(task, SEEDS)])
def test_callbacks_hear_every_epoch_and_see_predictions(tmp_path, fit, make_task, simulated):
    heard = []

    def listen(state):
        y, pred = state.predict()
        heard.append((state, float(dt.scores.nll(y, pred)), state.score(dt.metrics.accuracy)))

    log = CSVLog(tmp_path / "new" / "log.csv")
    task = make_task(
        [CI(MLP((4,)), "b", "c")],
        "ordinal",
        simulated.X,
        simulated.y["ordinal"],
        validation=0.3,
        callbacks=[listen, log],
        average=0.8,
    )
    fits = fit(task)
    assert len(heard) == 3 * len(fits)
    for state, nll, accuracy in heard:
        assert isinstance(state, EpochState)
        assert nll == pytest.approx(state.validation_loss, rel=1e-4)
        assert 0 <= accuracy <= 1
    rows = list(csv.DictReader(log.path.read_text().splitlines()))
    assert len(rows) == len(heard)
    assert {int(row["seed"]) for row in rows} == {one.seed for one in fits}
    assert float(rows[0]["train_loss"]) == fits[0].history["train_loss"][0]


@pytest.mark.parametrize("kind", ["nominal", "continuous", "count", "survival"])
def test_outcomes_come_back_as_they_were_given(kind, make_task, simulated):
    seen = []
    task = make_task(
        [CS(MLP((3,)), "b")],
        kind,
        simulated.X,
        simulated.y[kind],
        epochs=1,
        validation=0.3,
        callbacks=seen.append,
    )
    member = Setup(task).member(1)
    y, pred = Setup(task).validation_predictions(member, {})
    rows = member.validation_rows.numpy()
    if kind == "survival":
        expected = np.asarray(pred.log_prob(simulated.y[kind].take(rows)))
        np.testing.assert_allclose(np.asarray(pred.log_prob(y)), expected)
    else:
        np.testing.assert_array_equal(y, np.asarray(simulated.y[kind])[rows])


def test_early_stopping_by_a_metric(make_task, simulated):
    values = iter([0.5, 0.7, 0.6, 0.6, 0.9])
    rule = EarlyStopping(lambda y, pred: next(values), 2, larger_is_better=True)
    data = ("ordinal", simulated.X, simulated.y["ordinal"])
    task = make_task(TERMS, *data, validation=0.2, epochs=5, callbacks=rule)
    assert fit_deep(task, 3).n_epochs == 4
    with pytest.raises(InvalidInputError, match="a metric of an epoch needs validation data, got none"):
        fit_deep(make_task(TERMS, *data, callbacks=EarlyStopping(dt.metrics.qwk, 2)), 3)
    with pytest.raises(UnknownNameError, match=r"metric must be one of .*, got 'kwq'"):
        EarlyStopping("kwq", 2)


@pytest.mark.parametrize(
    ("metric", "values", "epochs"),
    [
        ("accuracy", [0.5, 0.7, 0.6, 0.6, 0.9], 4),
        (dt.metrics.qwk, [0.1, 0.2, 0.3, 0.4, 0.5], 5),
        ("nll", [2.0, 1.0, 1.5, 1.2, 0.1], 4),
        ("calibration_slope", [3.0, 1.1, 0.8, 1.3, 1.0], 4),
    ],
)
def test_metrics_know_what_is_better(metric, values, epochs, monkeypatch):
    rule, seen = EarlyStopping(metric, 2), iter(values)
    monkeypatch.setattr(EpochState, "score", lambda self, metric: next(seen))
    states = (EpochState(7, k, 5, 0.5, 0.6, 0.001, 0.1, lambda: None) for k in range(1, 6))
    assert next((s.epoch for s in states if rule.on_epoch_end(s)), 5) == epochs


def test_tensorboard(tmp_path, monkeypatch):
    if importlib.util.find_spec("tensorboard") is None:
        with pytest.raises(
            MissingDependencyError, match="TensorBoard needs the package tensorboard, got none"
        ):
            TensorBoard(tmp_path)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    assert TensorBoard(tmp_path).folder == tmp_path


def test_schedules_are_those_of_torch(make_task, simulated):
    parameter = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([parameter], lr=1.0, momentum=0.9)
    steps = 51
    cycle = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, max_lr=1.0, total_steps=steps, cycle_momentum=False
    )
    for step in range(steps):
        done = step / (steps - 1)
        peak = (0.3 * steps - 1) / (steps - 1)  # torch counts the steps of the rise from 1
        rule = OneCycle(share=peak)
        assert rule(done) == pytest.approx(cycle.get_last_lr()[0], abs=1e-9)
        optimizer.step()
        if step < steps - 1:
            cycle.step()
    seen = []

    def notice(done):
        seen.append(done)
        return 1.0

    task = make_task(TERMS, "ordinal", simulated.X, simulated.y["ordinal"], epochs=2, schedule=notice)
    fit_deep(task, 1)
    assert min(seen) == 0
    assert max(seen) < 1
    with pytest.raises(InvalidInputError, match=r"share must lie in \[0, 1\), got 1.0"):
        WarmUp(1.0)


def test_what_is_no_schedule_optimiser_or_callback(make_task, simulated):
    for wrong in (
        lambda optimizer: torch.optim.lr_scheduler.StepLR(optimizer, 1),
        torch.optim.lr_scheduler.CosineAnnealingLR,
        lambda: 1.0,
        lambda done: None,
    ):
        with pytest.raises(InvalidInputError, match="schedule must be a function of the share of the train"):
            Training(schedule=wrong)
    with pytest.raises(InvalidTypeError, match="a callback must be a function of an EpochState"):
        Training(callbacks=CSVLog)
    own = make_task(
        [CS(MLP((4,)), "a")],
        "ordinal",
        simulated.X,
        simulated.y["ordinal"],
        warm_start=False,
        optimizer=lambda groups: torch.optim.LBFGS([p for group in groups for p in group["params"]]),
    )
    with pytest.raises(UnsupportedError, match="optimizer must take a step from one gradient, got LBFGS"):
        fit_deep(own, 1)


def test_the_named_warm_up_is_its_function_and_can_be_saved(make_task, simulated):
    settings = {"epochs": 20, "batch_size": 64, "learning_rate": 0.01}
    named, own = (
        fit_deep(
            make_task(TERMS, "ordinal", simulated.X, simulated.y["ordinal"], **settings, schedule=one), 1
        )
        for one in ("warm-up", WarmUp())
    )
    pd.testing.assert_frame_equal(named.history.drop(columns="seconds"), own.history.drop(columns="seconds"))
    assert named.history["learning_rate"].iloc[0] < named.history["learning_rate"].iloc[1]
    assert Training.from_dict(Training(schedule="warm-up").to_dict()).step_schedule == WarmUp()


def test_an_average_is_the_one_by_hand(make_task, simulated):
    task = make_task(
        TERMS, "ordinal", simulated.X, simulated.y["ordinal"], average=0.5, epochs=1, batch_size=999
    )
    plain = make_task(TERMS, "ordinal", simulated.X, simulated.y["ordinal"], epochs=1, batch_size=999)
    start = {name: value.clone() for name, value in Setup(task).member(1).model.named_parameters()}
    end = dict(fit_deep(plain, 1).model.named_parameters())
    decay = 2 / 11
    for name, value in fit_deep(task, 1).model.named_parameters():
        torch.testing.assert_close(value, decay * start[name] + (1 - decay) * end[name])


def test_smoothed_labels_by_hand(make_task, simulated):
    for kind in ("ordinal", "nominal"):
        task = make_task(TERMS, kind, simulated.X, simulated.y[kind], label_smoothing=0.2)
        setup = Setup(task)
        member = setup.member(1)
        rows = torch.arange(10)
        with torch.no_grad():
            working = member.model.eval().working(member.model(setup.data.batch(rows)))
            got = setup.step_loss.rows(working, setup.data.target.take(rows))
        prediction = task.outcome.predictive(
            member.model.row_parameters(simulated.X, task.matrices).numpy(), task.latent
        )
        log_p = np.log(np.asarray(prediction.pmf())[:10])
        codes = task.encoded.codes[:10]
        expected = -0.8 * log_p[np.arange(10), codes] - 0.2 * log_p.mean(axis=1)
        np.testing.assert_allclose(got, expected, rtol=1e-4)
    with pytest.raises(
        UnsupportedError, match="label_smoothing is for classes and loss='nll', got outcome='cont"
    ):
        fit_deep(
            make_task(TERMS, "continuous", simulated.X, simulated.y["continuous"], label_smoothing=0.1), 1
        )


def test_class_weights_are_weights_of_rows(make_task, simulated):
    y = simulated.y["ordinal"]
    counts = np.bincount(y)
    factors = len(y) / (len(counts) * counts)
    by_level = dict(enumerate(factors))
    held = {"validation": 0.3, "patience": 2, "epochs": 5}  # weights decide which epoch is kept, too
    for wanted, settings in (("balanced", {"warm_start": False}), ("balanced", held), (by_level, held)):
        task = make_task(TERMS, "ordinal", simulated.X, y, class_weight=wanted, **settings)
        other = make_task(TERMS, "ordinal", simulated.X, y, weight=factors[y], **settings)
        one, two = fit_deep(task, 1), fit_deep(other, 1)
        for own, expected in zip(one.model.network_parameters(), two.model.network_parameters(), strict=True):
            torch.testing.assert_close(own[1], expected[1], atol=1e-5, rtol=1e-4)
        assert one.best_epoch == two.best_epoch
        np.testing.assert_allclose(one.history["validation_loss"], two.history["validation_loss"], rtol=1e-5)
    with pytest.raises(
        InvalidInputError, match="class_weight must name levels of the outcome, 0, 1, 2, 3, got 7"
    ):
        fit_deep(make_task(TERMS, "ordinal", simulated.X, y, class_weight={7: 1.0}), 1)
    with pytest.raises(UnsupportedError, match="class_weight is for classes, got outcome='continuous'"):
        fit_deep(
            make_task(TERMS, "continuous", simulated.X, simulated.y["continuous"], class_weight="balanced"), 1
        )


def test_validation_data_of_their_own_weigh_by_class(make_task, simulated):
    X, y = simulated.X, simulated.y["ordinal"]
    factors = np.array([3, 1, 1, 2])
    rows = np.repeat(np.arange(60), factors[y[:60]])  # what the weights stand for
    task = make_task(
        TERMS, "ordinal", X[60:], y[60:], val=(X[:60], y[:60]), class_weight=dict(enumerate(factors))
    )
    other = make_task(
        TERMS, "ordinal", X[60:], y[60:], val=(X.iloc[rows], y[rows]), weight=factors[y[60:]].astype(float)
    )
    losses = [fit_deep(one, 1).history["validation_loss"] for one in (task, other)]
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-5)


def test_validation_rows_have_weights():
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"a": rng.normal(size=60)})
    y = (X["a"] + rng.logistic(size=60) > 0).astype(int)
    held, z = X[:20], y[:20]
    weights = np.where(np.arange(20) < 5, 1.0, 0.0)
    training = Training(epochs=2, progress=False)
    model = dt.Logit([dt.CS(MLP((3,)), "a")], training=training, random_state=1)
    some = model.fit(X[20:], y[20:], validation=(held[:5], z[:5])).history_["validation_loss"]
    same = model.fit(X[20:], y[20:], validation=(held, z, weights)).history_["validation_loss"]
    np.testing.assert_allclose(some, same, rtol=1e-5)
    whole = dt.Ensemble(model, 2, weights="tuned", random_state=1)
    assert len(whole.fit(X[20:], y[20:], validation=(held, z, weights)).members_) == 2


def test_settings_are_checked_and_saved(make_task, simulated):
    for settings, kind, match in [
        ({"callbacks": 3}, InvalidTypeError, "a callback must be a function of an EpochState .* got 3"),
        ({"average": 1.0}, InvalidInputError, r"average must lie in \[0, 1\), got 1.0"),
        ({"label_smoothing": -0.1}, InvalidInputError, "label_smoothing must lie in"),
        ({"mixup": -1.0}, InvalidInputError, "mixup"),
        ({"class_weight": "equal"}, InvalidInputError, "class_weight"),
    ]:
        with pytest.raises(kind, match=match):
            Training(**settings)
    plain = Training(optimizer=sgd, schedule=OneCycle(), average=0.9, callbacks=CSVLog("log.csv"))
    again = Training.from_dict(plain.to_dict())
    assert (again.optimizer, again.schedule, again.average, again.callbacks) == ("adam", None, 0.9, ())
    assert "mixup" not in plain.to_dict()
    with pytest.raises(InvalidTypeError, match=r"returns a torch.optim.Optimizer, got one that returns int"):
        make_optimizer([("beta", torch.nn.Parameter(torch.zeros(1)))], Training(optimizer=lambda groups: 3))
    task = make_task(
        TERMS,
        "ordinal",
        simulated.X,
        simulated.y["ordinal"],
        optimizer=lambda groups: torch.optim.Adadelta(groups),
    )
    with pytest.raises(UnsupportedError, match="Adadelta, which may not treat every number by itself"):
        fit_stacked(task, SEEDS)
    assert math.isfinite(fit_deep(task, 1).history["train_loss"].iloc[-1])


def test_tokens_are_not_mixed():
    X = {"tokens": dt.AsIs(np.arange(40).reshape(20, 2) % 5)}

    class Embedded(torch.nn.Module):
        def __init__(self, in_shape, out_features):
            super().__init__()
            self.table = torch.nn.Embedding(5, out_features)

        def forward(self, tokens):
            return self.table(tokens).mean(dim=1)

    model = dt.Logit([dt.CS(Embedded, "tokens")], training=Training(epochs=1, mixup=0.2, progress=False))
    with pytest.raises(UnsupportedError, match="mixup needs inputs that are numbers, got integers"):
        model.fit(X, np.arange(20) % 2)
