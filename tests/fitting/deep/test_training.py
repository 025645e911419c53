from __future__ import annotations

import dataclasses
import json

import pytest
import torch

from deeptram.errors import DeeptramError, InvalidInputError, UnsupportedError
from deeptram.fitting.deep.hooks import EpochBar
from deeptram.fitting.deep.training import Training, autocast_dtype, resolve_device


def test_settings_are_frozen_and_comparable():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Training().epochs = 3
    assert Training(epochs=3) == Training(epochs=3) != Training(epochs=4)
    assert Training().replace(epochs=7, dtype="float64").torch_dtype is torch.float64


def test_json_round_trip_leaves_the_function_out():
    training = Training(epochs=7, validation=0.2, schedule="cosine", clip_norm=1.0, augment=torch.flip)
    state = json.loads(json.dumps(training.to_dict()))
    assert "augment" not in state
    assert Training.from_dict(state) == training.replace(augment=None)


def test_unknown_setting_is_named():
    with pytest.raises(InvalidInputError, match="Training has no setting epoch; it has epochs, batch_size"):
        Training.from_dict({"epoch": 3})


@pytest.mark.parametrize(
    ("setting", "match"),
    [
        ({"epochs": 0}, "epochs must be an integer of at least 1, got 0"),
        ({"epochs": 2.5}, "epochs must be an integer of at least 1, got 2.5"),
        ({"batch_size": -1}, "batch_size must be an integer of at least 1, got -1"),
        ({"min_epochs": -1}, "min_epochs must be an integer of at least 0, got -1"),
        ({"patience": 0}, "patience must be an integer of at least 1, got 0"),
        ({"learning_rate": 0.0}, "learning_rate must be a positive number, got 0.0"),
        ({"learning_rate": float("nan")}, "learning_rate must be a finite number of at least 0, got nan"),
        ({"weight_decay": -0.1}, "weight_decay must be a finite number of at least 0, got -0.1"),
        ({"clip_norm": 0}, "clip_norm must be a positive number, got 0"),
        (
            {"validation": 1.0},
            r"validation must be a share strictly between 0 and 1, got 1.0; pass data as fit",
        ),
        ({"validation": True}, "validation must be a share strictly between 0 and 1, got True"),
        ({"dtype": "float16"}, "dtype must be one of 'float32', 'float64', got 'float16'; did you mean"),
        ({"optimizer": "sgd"}, "optimizer must be one of 'adam', 'adamw', got 'sgd'"),
        (
            {"optimizer": torch.optim.SGD, "adam_start": 2820},
            "adam_start must be left out with an optimizer of your own, got 2820; leave it out, or use",
        ),
        (
            {"optimizer": torch.optim.SGD, "adam_epsilon": 1e-7},
            "adam_epsilon must be left out with an optimizer of your own, got 1e-07; leave it out, or use",
        ),
        (
            {"schedule": "cosin"},
            "schedule must be one of 'cosine', 'plateau', 'warm-up', got 'cosin'; did you mean 'cosine'",
        ),
        ({"warm_start": "auto"}, "warm_start must be True or False, got 'auto'"),
        ({"mixed_precision": "yes"}, "mixed_precision must be True, False, 'auto' or 'native', got 'yes'"),
        ({"progress": 2}, "progress must be True, False or 'auto', got 2"),
        ({"augment": "flip"}, "augment must be a function of image batches, got str; pass augment"),
        ({"device": 0}, "device must be a name such as 'auto', 'cpu' or 'cuda', got 0; pass its name"),
    ],
)
def test_each_wrong_setting_has_its_sentence(setting, match):
    with pytest.raises(DeeptramError, match=match):
        Training(**setting)


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
def test_gpu_where_there_is_none():
    with pytest.raises(
        UnsupportedError, match=r"device='cuda' needs a GPU that torch can use, got 0 of them"
    ):
        resolve_device("cuda")
    assert resolve_device("auto") == torch.device("cpu")


def test_unknown_device():
    with pytest.raises(
        InvalidInputError, match=r"device must be 'auto', 'cpu', 'mps', 'cuda' or .*, got 'tpu9'; correct"
    ):
        resolve_device("tpu9")


def test_devices_that_are_not_there():
    with pytest.raises(UnsupportedError, match="device='mps' needs a GPU that torch can use, got 0 of them"):
        resolve_device("mps")


def test_mixed_precision_on_cpus_has_to_be_asked_for():
    cpu = torch.device("cpu")
    assert autocast_dtype(Training(mixed_precision="auto"), cpu) is None
    assert autocast_dtype(Training(mixed_precision=True), cpu) == torch.bfloat16
    assert autocast_dtype(Training(mixed_precision=True, dtype="float64"), cpu) is None


@pytest.mark.parametrize("there", [("amx_tile",), ("avx512_bf16",), ("amx_tile", "avx512_bf16"), ()])
def test_native_mixed_precision_is_that_of_the_processor(there, monkeypatch):
    for name in ("amx_tile", "avx512_bf16"):
        assert callable(getattr(torch.cpu, f"_is_{name}_supported"))  # else it would never be found
        monkeypatch.setattr(torch.cpu, f"_is_{name}_supported", lambda found=name in there: found)
    cpu = torch.device("cpu")
    native = Training(mixed_precision="native")
    assert autocast_dtype(native, cpu) == (torch.bfloat16 if there else None)
    assert autocast_dtype(native.replace(dtype="float64"), cpu) is None
    assert autocast_dtype(native, torch.device("mps")) is None
    assert autocast_dtype(Training(), cpu) is None


def test_progress_bar_shows_losses_on_stderr(capsys):
    with EpochBar(Training(epochs=2, progress=True), "training") as bar:
        bar.update(1, 0.5, 0.625)
        bar.update(2, 0.25, float("nan"))
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "training" in captured.err
    assert "0.25" in captured.err


def test_no_progress_bar_where_nobody_watches(capsys):
    with EpochBar(Training(epochs=2, progress="auto"), "training") as bar:
        bar.update(1, 0.5, 0.625)
    assert capsys.readouterr().err == ""
