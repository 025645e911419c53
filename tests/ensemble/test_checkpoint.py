"""Checkpoints: nothing finished is trained again, nothing unfinished is trusted, SIGKILL at any moment."""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from torch import nn

import deeptram as dt
from deep_models import FAST, NET, TERMS, table
from deeptram._files import json_sha256
from deeptram.ensemble import strategies
from deeptram.ensemble.checkpoint import Checkpoint, Configuration, identity
from deeptram.errors import ConvergenceWarning, FileFormatError, InvalidInputError
from deeptram.model.persistence import read_folder, write_folder

MODEL = dt.Colr(TERMS["SI-CS-LS"], training=FAST, support=(-8, 8))


@pytest.fixture
def trained(monkeypatch):
    """Return the list of seeds for which a member was really trained."""
    seeds, original = [], strategies.fit_deep

    def fit(task, seed):
        seeds.append(seed)
        return original(task, seed)

    monkeypatch.setattr(strategies, "fit_deep", fit)
    return seeds


def fit(folder, n_members=3, model=MODEL, random_state=1, strategy="sequential", validation=0.2, **changes):
    X, z = table()
    ensemble = dt.Ensemble(model, n_members, random_state=random_state, strategy=strategy, checkpoint=folder)
    arguments = {"X": X, "y": z, "validation": validation, **changes}
    return ensemble.fit(**arguments)


def test_a_second_fit_trains_nothing(tmp_path, trained):
    X, _ = table()
    first = fit(tmp_path / "run")
    assert len(trained) == 3
    again = fit(tmp_path / "run")
    assert len(trained) == 3
    np.testing.assert_array_equal(first.predict(X), again.predict(X))
    np.testing.assert_array_equal(
        first.coef_table(method="total").to_numpy(), again.coef_table(method="total").to_numpy()
    )
    more = fit(tmp_path / "run", n_members=5)
    assert len(trained) == 5
    np.testing.assert_array_equal(more.members_[2].predict(X), first.members_[2].predict(X))
    plain = dt.Ensemble(MODEL, 5, random_state=1).fit(*table(), validation=0.2)
    np.testing.assert_allclose(plain.predict(X), more.predict(X), atol=1e-5)


def test_members_trained_together_are_saved_too(tmp_path, trained):
    fit(tmp_path, strategy="stacked")
    fit(tmp_path)
    assert trained == []


def test_without_random_state_the_seed_of_the_folder_counts(tmp_path, trained):
    X, _ = table()
    first = fit(tmp_path, random_state=None)
    again = fit(tmp_path, random_state=None)
    assert len(trained) == 3
    np.testing.assert_array_equal(first.predict(X), again.predict(X))


def test_interrupted_members_are_not_saved(tmp_path, monkeypatch, trained):
    def stop(task, seed):
        if len(trained) == 2:
            raise KeyboardInterrupt
        return original(task, seed)

    original = strategies.fit_deep
    monkeypatch.setattr(strategies, "fit_deep", stop)
    with pytest.warns(ConvergenceWarning, match="2 of 3 members"):
        fit(tmp_path)
    monkeypatch.setattr(strategies, "fit_deep", original)
    assert len(fit(tmp_path).members_) == 3
    assert len(trained) == 3


@pytest.mark.parametrize("harm", ["no json", "no tensors", "cut tensors", "changed json", "leftover"])
def test_what_is_not_complete_is_trained_again(tmp_path, trained, harm):
    fit(tmp_path)
    member = tmp_path / "member-0001"
    if harm == "no json":
        (member / "deeptram.json").unlink()
    elif harm == "no tensors":
        (member / "tensors.safetensors").unlink()
    elif harm == "cut tensors":
        file = member / "tensors.safetensors"
        file.write_bytes(file.read_bytes()[:-10])
    elif harm == "changed json":
        file = member / "deeptram.json"
        file.write_text(file.read_text().replace('"best_epoch": ', '"best_epoch": 1'))
    else:
        (tmp_path / ".member-0002.123-abc.tmp").mkdir()
    fit(tmp_path)
    assert len(trained) == (3 if harm == "leftover" else 4)
    assert not list(tmp_path.glob(".member*"))


def test_another_configuration_is_refused(tmp_path):
    X, z = table()
    fit(tmp_path)
    for changes, what in [
        ({"random_state": 2}, "random_state"),
        ({"model": dt.Colr(TERMS["CI-LS"], training=FAST, support=(-8, 8))}, "model"),
        (
            {"model": dt.Colr(MODEL.terms, training=FAST.replace(epochs=4), support=(-8, 8))},
            "training",
        ),
        ({"y": z + 1}, "data"),
        ({"X": X.assign(b=X["c"])}, "data"),
        ({"sample_weight": np.full(len(X), 2.0)}, "data"),
        ({"validation": 0.3}, "validation"),
        ({"validation": (X, z)}, "validation"),
    ]:
        with pytest.raises(InvalidInputError, match=rf"got another {what}; use another folder, or delete it"):
            fit(tmp_path, **changes)
    shown = dt.Colr(TERMS["SI-CS-LS"], training=FAST.replace(progress="auto", device="cpu"), support=(-8, 8))
    fit(tmp_path, model=shown)  # how it looks and where it runs is no other configuration


def test_a_folder_of_something_else_is_refused(tmp_path):
    (tmp_path / "thesis.tex").write_text("precious")
    with pytest.raises(InvalidInputError, match="checkpoint must be a new or empty folder"):
        fit(tmp_path)
    assert (tmp_path / "thesis.tex").read_text() == "precious"


@pytest.mark.parametrize(
    "change",
    [
        lambda c, t: c["record"].update(best_epoch=10**400),
        lambda c, t: c["record"]["model"].update(dtype="float64"),
        lambda c, t: c["record"].update(seed=7),
        lambda c, t: c.pop("code"),
        lambda c, t: c.update(code="of another work"),
        lambda c, t: c.update(record=[]),
        lambda c, t: t.update({"model.beta": t["model.beta"] * np.float32(np.nan)}),
        lambda c, t: t.update({"model.beta": np.zeros(1, dtype=np.int64)}),
        lambda c, t: t.pop("history"),
        lambda c, t: t.update({"shift_vcov": np.zeros((9, 9))}),
    ],
)
def test_members_that_lie_are_trained_again(tmp_path, trained, change):
    fit(tmp_path, n_members=2)
    member = tmp_path / "member-0001"
    content, tensors = read_folder(member)
    change(content, tensors)
    kept = {name: value for name, value in content.items() if name not in ("schema", "tensors", "sha256")}
    write_folder(member, kept, tensors, overwrite=True)
    fit(tmp_path, n_members=2)
    assert len(trained) == 3
    fit(tmp_path, n_members=2)
    assert len(trained) == 3


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("{", "delete the folder"),
        (
            '{"schema": 1, "root_seed": 1e999, "configuration": {}}',
            r"root_seed must be an integer .*, got inf",
        ),
        ('{"schema": 1, "root_seed": 1, "configuration": [[1, 2]]}', "configuration must be an object, got"),
        ("1" * 5000, "delete the folder"),
        ("[" * 5000, "delete the folder"),
    ],
)
def test_a_damaged_index_is_told(tmp_path, text, match):
    fit(tmp_path, n_members=1)
    (tmp_path / "checkpoint.json").write_text(text)
    with pytest.raises(
        FileFormatError, match=rf"checkpoint\.json in .* got one that cannot be read.*{match}"
    ):
        fit(tmp_path, n_members=1)


def test_the_configuration_does_not_depend_on_the_order_of_calls(tmp_path):
    X, z = table()
    one, two = (Configuration.of(MODEL, X, z, None, 0.2) for _ in range(2))
    assert one == two
    assert one.member_hash(1) != one.member_hash(2)
    Checkpoint(tmp_path / "a" / "b", one, 3)
    index = json.loads((tmp_path / "a" / "b" / "checkpoint.json").read_text())
    assert index["root_seed"] == 3


def test_objects_count_by_what_they_hold():
    one, same, other = (identity(np.random.default_rng(seed)) for seed in (1, 1, 2))
    assert one == same != other
    short, long = (identity(lambda x, n=n: x[:n]) for n in (3, 4))
    assert short != long
    assert identity(threading.Lock()) == identity(threading.Lock())  # nothing tells them apart


def test_own_networks_can_be_checkpointed(tmp_path, trained):
    def net(in_shape, out_features):
        return NET(in_shape, out_features)

    model = dt.Colr([dt.CS(net, "b"), dt.LS("a")], training=FAST, support=(-8, 8))
    fit(tmp_path, model=model)
    fit(tmp_path, model=model)
    assert len(trained) == 3


LAYERS = """
from torch import nn

def act(x):
    return {factor} * x.tanh()

class Block(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.layer = nn.Linear(n, n)

    def forward(self, x):
        return act(self.layer(x))
"""


def test_code_in_another_file_of_the_user_counts(tmp_path, monkeypatch, trained):
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def run(factor):
        (tmp_path / "layers_of_user.py").write_text(LAYERS.format(factor=factor))
        monkeypatch.delitem(sys.modules, "layers_of_user", raising=False)
        layers = importlib.import_module("layers_of_user")
        monkeypatch.setitem(globals(), "layers", layers)
        model = dt.Colr([dt.CS(with_block, "b"), dt.LS("a")], training=FAST, support=(-8, 8))
        return fit(tmp_path / "run", model=model)

    run(1.0)
    run(1.0)
    assert len(trained) == 3
    with pytest.raises(InvalidInputError, match="got another model"):
        run(2.0)


def with_block(in_shape, out_features):
    return nn.Sequential(layers.Block(in_shape[0]), nn.Linear(in_shape[0], out_features))  # noqa: F821


def test_identities_are_those_of_older_checkpoints():
    def plain(x, factor=2):
        return [x, factor, "text"]

    parts = ["function", [plain_code(plain), ["2"], "None", [], []]]
    assert identity(plain) == json_sha256(parts)


def plain_code(function):
    code = function.__code__
    return [code.co_code.hex(), list(code.co_names), [repr(one) for one in code.co_consts]]


SCRIPT = """
import sys
import deeptram as dt
from deep_models import NET, table
from deeptram.ensemble import strategies

original = strategies.fit_deep
def fit(task, seed):
    print("training", seed, flush=True)
    return original(task, seed)
strategies.fit_deep = fit

X, z = table()
training = dt.Training(epochs=int(sys.argv[2]), batch_size=64, progress=False)
model = dt.Colr([dt.CS(NET, "b", "c"), dt.LS("a")], training=training, support=(-8, 8))
ensemble = dt.Ensemble(model, 4, random_state=1, strategy="sequential", checkpoint=sys.argv[1])
ensemble.fit(X, z, validation=0.2)
print("score", repr(ensemble.score(X, z)), flush=True)
"""


def test_killed_in_the_middle_it_goes_on_where_it_was(tmp_path):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    folder = tmp_path / "run"
    command = [sys.executable, "-c", SCRIPT, str(folder), "120"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        seen = []
        for line in process.stdout:
            seen.append(line.split()[1])
            if len(seen) == 3:  # two members are finished, the third has begun
                process.send_signal(signal.SIGKILL)
                break
        process.wait()
    finished = sorted(path.parent.name for path in Path(folder).glob("member-*/deeptram.json"))
    assert finished == ["member-0000", "member-0001"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    lines = [line.split() for line in done.stdout.splitlines()]
    again = [line[1] for line in lines if line[0] == "training"]
    assert len(again) == 2
    assert again[0] == seen[2]
    assert not set(again) & set(seen[:2])
    X, z = table()
    training = dt.Training(epochs=120, batch_size=64, progress=False)
    model = dt.Colr([dt.CS(NET, "b", "c"), dt.LS("a")], training=training, support=(-8, 8))
    whole = dt.Ensemble(model, 4, random_state=1, strategy="sequential").fit(X, z, validation=0.2)
    assert float(lines[-1][1]) == pytest.approx(whole.score(X, z), abs=1e-6)
