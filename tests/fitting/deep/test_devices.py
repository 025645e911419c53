"""Training elsewhere than on the CPU: on a device that computes and refuses tensors that were left behind."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import deeptram as dt
from deep_models import FAST, MODELS, table
from deeptram.errors import UnsupportedError
from deeptram.fitting.deep import task as task_module
from deeptram.fitting.deep.training import autocast_dtype, resolve_device
from deeptram.model import deep, parts
from fake_device import NAME, Elsewhere, fake_device


@pytest.fixture
def elsewhere(monkeypatch):
    """Let models be trained on the device that is none."""
    monkeypatch.setattr(task_module, "resolve_device", lambda name: torch.device(NAME))
    monkeypatch.setattr(parts, "WITHOUT_FLOAT64", {NAME})
    with fake_device():
        yield


TERMS = {
    "CI-LS": [dt.CI(dt.networks.MLP((6,), dropout=0.2), "b", "c"), dt.LS("a")],
    "CS-LS": [dt.CS(dt.networks.MLP((6, 6), residual=True), "b", center=True), dt.LS("a")],
}
CASES = [
    ("Polr", "CI-LS", "stacked", {"average": 0.9, "clip_norm": 1.0}),
    ("Polr", "CS-LS", "sequential", {"mixup": 0.3, "class_weight": "balanced", "label_smoothing": 0.1}),
    ("Coxph", "CI-LS", "sequential", {"schedule": "plateau", "patience": 2}),
    ("Coxph", "CS-LS", "stacked", {"optimizer": "adamw", "average": "swa", "average_from": 0.3}),
    ("Lm", "CS-LS", "stacked", {"adam_start": 100}),
    ("nominal", "CI-LS", "sequential", {}),
]


def fitted(name, terms, strategy, settings, weights=None):
    X, _ = table()
    kind, options, y = MODELS[name]
    model = kind(TERMS[terms], training=FAST.replace(**settings), **options)
    ensemble = dt.Ensemble(model, 2, strategy=strategy, random_state=1, pooling="linear")
    return ensemble.fit(X, y, sample_weight=weights, validation=0.2)


@pytest.mark.parametrize(("name", "terms", "strategy", "settings"), CASES)
def test_training_elsewhere_gives_the_members_of_the_cpu(name, terms, strategy, settings, request):
    weights = np.linspace(0.5, 2, 120)
    here = fitted(name, terms, strategy, settings, weights)
    request.getfixturevalue("elsewhere")
    there = fitted(name, terms, strategy, settings, weights)
    for one, other in zip(here.members_, there.members_, strict=True):
        np.testing.assert_allclose(one.coef_, other.coef_, atol=1e-5)
        np.testing.assert_allclose(
            one.history_[["train_loss", "validation_loss"]],
            other.history_[["train_loss", "validation_loss"]],
            rtol=1e-5,
        )
        assert one.shift_vcov_ is None or np.isfinite(other.shift_vcov_).all(axis=None)


def test_a_tensor_that_is_left_behind_is_found(elsewhere, monkeypatch):
    gather = task_module.gather_rows
    monkeypatch.setattr(task_module, "gather_rows", lambda values, rows: gather(values, rows).cpu())
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        fitted("Polr", "CI-LS", "sequential", {})


def test_the_device_has_no_float64_and_shares_no_random_numbers():
    with fake_device():
        one = torch.ones(2, device=NAME)
        assert isinstance(one, Elsewhere)
        with pytest.raises(TypeError, match="to float64"):
            one.double()
        before = torch.get_rng_state()
        torch.empty(3, device=NAME).uniform_()
        assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(
    ("strategy", "asked"), [("sequential", True), ("stacked", True), ("sequential", False)]
)
def test_networks_are_in_half_precision_on_the_device_and_only_in_training(
    elsewhere, monkeypatch, strategy, asked
):
    seen = []

    class Recorded:
        def __init__(self, device_type, dtype):
            seen.append((device_type, dtype, torch.is_grad_enabled()))

        def __enter__(self):
            return self

        def __exit__(self, *error):
            return None

    monkeypatch.setattr(deep.torch, "autocast", Recorded)
    ensemble = fitted("Polr", "CI-LS", strategy, {"mixed_precision": asked})
    assert {one[:2] for one in seen} == ({(NAME, torch.bfloat16)} if asked else set())
    count = len(seen)
    X, _ = table()
    ensemble.predict_proba(X)
    assert len(seen) == count


def test_which_devices_there_are(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert [resolve_device(name).type for name in ("cuda", "cuda:0", "mps", "cpu")] == [
        "cuda",
        "cuda",
        "mps",
        "cpu",
    ]
    with pytest.raises(
        UnsupportedError, match="device='cuda:1' needs a GPU that torch can use, got 1 of them"
    ):
        resolve_device("cuda:1")
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    with pytest.raises(UnsupportedError, match="device='mps' needs a GPU that torch can use, got 0 of them"):
        resolve_device("mps")
    with pytest.raises(UnsupportedError, match="device must be a CPU, 'cuda' or 'mps', got 'xla'"):
        resolve_device("xla")
    with pytest.raises(UnsupportedError, match="device='mps' has no float64, got dtype='float64'"):
        dt.Training(device="mps", dtype="float64")
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda: True)
    cuda, apple = torch.device("cuda"), torch.device("mps")
    assert autocast_dtype(dt.Training(), cuda) == torch.bfloat16
    assert autocast_dtype(dt.Training(), apple) is None
    assert autocast_dtype(dt.Training(mixed_precision=True), apple) == torch.bfloat16
    assert autocast_dtype(dt.Training(mixed_precision=False), cuda) is None
