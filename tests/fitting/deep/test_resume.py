"""Trainings that were killed in the middle end as if nothing had happened, whatever they carry along."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import deeptram as dt
from deeptram.fitting.deep import loop
from deeptram.fitting.deep.resume import ResumePoints
from deeptram.fitting.deep.seeds import bits_state, set_bits_state

EPOCHS = 9


class Stop:
    """Callback that ends the process, or raises, when a member reaches an epoch."""

    def __init__(self, epoch, how):
        self.epoch, self.how = epoch, how

    def identity_parts(self):
        return ()

    def on_epoch_end(self, state):
        if state.epoch == self.epoch:
            if self.how == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            raise RuntimeError("power cut")


def noisy(images):
    return images + 0.1 * torch.randn_like(images)


def fit(folder=None, stop=None, how="raise", **settings):
    """Train two members on images with everything that draws random numbers or remembers something."""
    rng = np.random.default_rng(0)
    light = rng.uniform(size=90)
    images = (light[:, None, None] * rng.uniform(size=(90, 6, 6))).astype(np.float32)
    y = np.digitize(light + 0.05 * rng.logistic(size=90), [0.3, 0.6])
    strategy = settings.pop("strategy", "sequential")
    training = dt.Training(
        epochs=EPOCHS,
        batch_size=32,
        learning_rate=0.01,
        progress=False,
        callbacks=[Stop(stop, how), *settings.pop("callbacks", [])],
        **settings,
    )
    net = dt.networks.MLP((8,), dropout=0.2)
    model = dt.Polr([dt.CI(net, "image")], training=training)
    ensemble = dt.Ensemble(
        model, 2, strategy=strategy, random_state=5, checkpoint=folder, checkpoint_epochs=3, pooling="linear"
    )
    X = {"image": images}
    return ensemble.fit(X, y, validation=0.2), X


def assert_same(one, other):
    (one, X), (other, _) = one, other
    np.testing.assert_array_equal(one.predict_proba(X), other.predict_proba(X))
    columns = ["member", "epoch", "train_loss", "validation_loss", "learning_rate"]
    assert one.history_[columns].equals(other.history_[columns])
    assert [m.best_epoch_ for m in one.members_] == [m.best_epoch_ for m in other.members_]


SETTINGS = {
    "everything": {"mixup": 0.3, "augment": noisy, "average": 0.9, "schedule": "plateau"},
    "stacked": {"strategy": "stacked", "mixup": 0.3, "average": "swa", "average_from": 0.3},
    "patience": {"strategy": "stacked", "patience": 1, "min_epochs": 3, "optimizer": "adamw"},
    "early stopping": {"callbacks": [dt.hooks.EarlyStopping(dt.metrics.qwk, 2, larger_is_better=True)]},
    "sgd": {"optimizer": lambda groups: torch.optim.SGD(groups, momentum=0.9), "schedule": "cosine"},
}


@pytest.mark.parametrize("name", list(SETTINGS))
def test_a_training_that_crashed_goes_on_to_the_same_end(name, tmp_path):
    whole = fit(**SETTINGS[name])
    stop = int(whole[0].history_.epoch.max()) - 1 if name in ("patience", "early stopping") else 8
    with pytest.raises(RuntimeError, match="power cut"):
        fit(tmp_path / "kept", stop, **SETTINGS[name])
    assert list((tmp_path / "kept").glob("resume-*"))
    resumed, epochs = fit_again(tmp_path / "kept", **SETTINGS[name])
    assert epochs[0] in (4, 7)
    assert_same(resumed, whole)
    assert not list((tmp_path / "kept").glob("resume-*"))


def fit_again(folder, **settings):
    """Fit, and note which epochs were trained."""
    kept, epochs = loop.wants_to_stop, []

    def note(callbacks, state):
        epochs.append(state.epoch)
        return kept(callbacks, state)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "wants_to_stop", note)
        return fit(folder, **settings), epochs


SCRIPT = """
import sys
sys.path.insert(0, {tests!r})
from test_resume import fit
fit({folder!r}, 5, "kill", strategy={strategy!r}, average=0.9)
"""


@pytest.mark.parametrize("strategy", ["sequential", "stacked"])
def test_a_training_that_was_killed_goes_on_to_the_same_end(strategy, tmp_path):
    code = SCRIPT.format(tests=str(Path(__file__).parent), folder=str(tmp_path / "kept"), strategy=strategy)
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    resumed, epochs = fit_again(tmp_path / "kept", strategy=strategy, average=0.9)
    assert epochs[0] == 4  # the state after epoch 3 was there
    assert_same(resumed, fit(strategy=strategy, average=0.9))


def test_a_damaged_state_is_left_and_the_member_trained_from_the_start(tmp_path):
    with pytest.raises(RuntimeError, match="power cut"):
        fit(tmp_path / "kept", 8)
    (state,) = (tmp_path / "kept").glob("resume-*")
    (state / "tensors.safetensors").write_bytes(b"nonsense")
    assert_same(fit(tmp_path / "kept"), fit())


def test_states_of_other_members_or_configurations_are_not_used(tmp_path):
    points = ResumePoints(tmp_path, 2, "one")
    points.save([1, 2], {"epoch": 2, "values": (1.5, float("nan")), "by": {3: torch.arange(2)}})
    assert points.load([1]) is None
    assert ResumePoints(tmp_path, 2, "other").load([1, 2]) is None
    found = points.load([1, 2])
    np.testing.assert_array_equal(found["values"], (1.5, np.nan))
    assert found["by"][3].tolist() == [0, 1]
    assert [points.is_due(epoch) for epoch in (1, 2, 3, 4)] == [False, True, False, True]


@pytest.mark.parametrize("kind", [np.random.SFC64, np.random.PCG64])
def test_streams_of_bits_go_on_where_they_were(kind):
    one, other = kind(1), kind(2)
    one.random_raw(7)
    set_bits_state(other, bits_state(one))
    np.testing.assert_array_equal(one.random_raw(5), other.random_raw(5))
