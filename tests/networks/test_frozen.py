"""Heads on a frozen backbone: one pass of the backbone, the same predictions, files, modules, graphs."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
import torch
from torch import nn

import deeptram as dt
from deeptram.ensemble.checkpoint import identity
from deeptram.errors import FileFormatError, InvalidInputError, InvalidTypeError
from deeptram.inputs.network_inputs import NetworkInputs
from deeptram.networks import MLP, frozen

RNG = np.random.default_rng(0)
X = {"image": RNG.integers(0, 256, size=(60, 8, 8)).astype(np.uint8), "x": RNG.normal(size=60)}
Y = np.digitize(X["image"].mean(axis=(1, 2)) + 5 * X["x"], [123.0, 130.0])
SHORT = dt.Training(epochs=3, batch_size=16, learning_rate=0.01, progress=False)


class Backbone(nn.Module):
    """Counts the rows it has seen."""

    def __init__(self, seed=0):
        super().__init__()
        torch.manual_seed(seed)
        self.layers = nn.Sequential(
            nn.Conv2d(1, 4, 3), nn.ReLU(), nn.BatchNorm2d(4), nn.Dropout(0.5), nn.Flatten()
        )
        self.rows = 0

    def forward(self, images):
        self.rows += len(images)
        return self.layers(images).unflatten(1, (4, -1)).mean(dim=-1)


def ensemble(net, n_members=3, **arguments):
    model = dt.Polr([dt.CS(net, "image"), dt.LS("x")], training=SHORT)
    return dt.Ensemble(model, n_members, random_state=1, **arguments)


def test_the_backbone_sees_every_row_once_and_stays_as_it_is():
    backbone = Backbone()
    before = copy.deepcopy(backbone.state_dict())
    net = frozen(backbone, MLP((4,)))
    fitted = ensemble(net).fit(X, Y, validation=0.25)
    looks = backbone.rows - 60
    assert 0 < looks <= 20  # rows of zeros by which its shape is known
    fitted.predict_proba(X)
    assert backbone.rows == 60 + looks
    fitted.predict_proba({"image": X["image"][:7], "x": X["x"][:7]})
    assert backbone.rows == 67 + looks
    for name, value in backbone.state_dict().items():
        assert torch.equal(value, before[name])
    assert backbone.training
    assert fitted.strategy_ == "stacked"
    assert all(parameter.requires_grad for parameter in backbone.parameters())


def test_predictions_are_those_of_head_after_backbone(tmp_path):
    backbone = Backbone()
    net = frozen(backbone, MLP((4,)))
    fitted = ensemble(net, 2).fit(X, Y)
    with torch.no_grad():
        embedding = backbone.eval()(torch.as_tensor(X["image"])[:, None] / 255)
    member = fitted.members_[0]
    shift = member.model_.shifts[0].net(embedding)[:, 0].detach().numpy()
    np.testing.assert_allclose(-member.contributions(X)["CS('image')"], shift, rtol=1e-5, atol=1e-6)
    module = fitted.module_
    np.testing.assert_allclose(module(module.inputs(X)).detach().numpy(), fitted.predict_proba(X), atol=1e-6)
    image = module.inputs(X)["image"].clone().requires_grad_()
    module({**module.inputs(X), "image": image})[:, 0].sum().backward()
    assert image.grad.abs().sum() > 0
    dt.export(fitted, tmp_path / "whole.onnx")


def test_files_need_the_same_backbone(tmp_path):
    net = frozen(Backbone(), MLP((4,)))
    dt.networks.register("frozen-of-the-tests", net)
    fitted = ensemble(net, 2, checkpoint=tmp_path / "run").fit(X, Y)
    saved = fitted.save(tmp_path / "saved")
    assert (saved / "tensors.safetensors").stat().st_size < 20_000
    np.testing.assert_array_equal(dt.load(saved).predict_proba(X), fitted.predict_proba(X))
    again = ensemble(net, 2, checkpoint=tmp_path / "run").fit(X, Y)
    np.testing.assert_array_equal(again.predict_proba(X), fitted.predict_proba(X))
    own = ensemble(frozen(Backbone(), MLP((4,))), 2).fit(X, Y).save(tmp_path / "own")
    name = "deeptram.networks.frozen.Frozen"
    loaded = dt.load(own, networks={name: frozen(Backbone(), MLP((4,)))})
    np.testing.assert_array_equal(loaded.predict_proba(X), fitted.predict_proba(X))
    with pytest.raises(
        FileFormatError, match="needs the frozen backbone it was trained on, got one with other"
    ):
        dt.load(own, networks={name: frozen(Backbone(seed=1), MLP((4,)))})
    with pytest.raises(FileFormatError, match="needs the frozen backbone it was trained on"):
        dt.load(own, networks={name: MLP((4,))})


def test_other_rows_and_other_weights_are_embedded_anew():
    net = frozen(Backbone())
    inputs = net.embedding(NetworkInputs.fit(X, ("image",)))
    everything = torch.arange(60)
    first = inputs.sources(X)[0].gather(everything)
    changed = {**X, "image": X["image"].copy()}
    changed["image"][17] = 0
    second = inputs.sources(changed)[0].gather(everything)
    different = (first != second).any(dim=1)
    assert different.nonzero().ravel().tolist() == [17]
    assert identity(net) == identity(frozen(Backbone()))
    assert identity(net) != identity(frozen(Backbone(seed=1)))
    assert copy.deepcopy(net) is net
    other = pickle.loads(pickle.dumps(net))  # as a worker process gets it
    other.backbone.rows = 0
    torch.testing.assert_close(other.embedding(inputs.inner).sources(X)[0].gather(everything), first)
    assert other.backbone.rows == 2


def test_what_is_no_backbone_is_told():
    class Pair(nn.Module):
        def forward(self, x):
            return x, x

    with pytest.raises(
        InvalidTypeError, match=r"frozen needs a torch.nn.Module as its backbone, got function"
    ):
        frozen(lambda x: x)
    with pytest.raises(
        InvalidTypeError, match="must return a tensor with one row per input, got tuple; wrap it"
    ):
        ensemble(frozen(Pair())).fit(X, Y)
    with pytest.raises(InvalidInputError, match=r"a frozen backbone must accept 1 tensor.* got the error"):
        ensemble(frozen(nn.Linear(3, 2))).fit(X, Y)
    for head, got in (
        (nn.Linear(2, 1), "the module Linear"),
        ("MLP", "str"),
        (lambda shape: None, "<lambda>"),
    ):
        with pytest.raises(
            InvalidTypeError, match=rf"a frozen backbone needs a factory net\(.*\), got {got}"
        ):
            frozen(nn.Flatten(), head)
    assert repr(frozen(nn.Flatten(), MLP((2,)))).startswith("frozen(Flatten, MLP(")
