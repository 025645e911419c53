"""All factories: shapes, parameters counted by hand, initial weights, stacking, names."""

from __future__ import annotations

import functools
import json
import pickle

import numpy as np
import pytest
import torch
from torch import nn

from deeptram import networks
from deeptram.errors import FileFormatError, InvalidInputError, InvalidTypeError, UnsupportedError
from deeptram.networks import CNN, MLP, NetworkFactory, paper_melanoma, paper_mnist, paper_utkface
from deeptram.networks.factories import ACTIVATIONS

FACTORIES = {
    "mlp": (MLP(hidden=(5, 4), dropout=0.2), (3,)),
    "mlp-image": (MLP(hidden=(5,)), (1, 4, 4)),
    "mlp-linear": (MLP(hidden=()), (3,)),
    "cnn": (CNN(channels=(2, 3), dense=(5,), dropout=0.2), (1, 8, 8)),
    "cnn-valid": (CNN(channels=(2, 3), convolutions=2, padding="valid", dense=(), pool=1), (4, 9, 11)),
    "paper_mnist": (paper_mnist, (1, 28, 28)),
    "paper_melanoma": (paper_melanoma, (3, 16, 16)),
    "paper_utkface": (paper_utkface, (3, 16, 24)),
}
every = pytest.mark.parametrize(("net", "in_shape"), FACTORIES.values(), ids=FACTORIES.keys())


def count(network: nn.Module) -> int:
    return sum(parameter.numel() for parameter in network.parameters())


def layers(network: nn.Module) -> str:
    """The layers in words, convolutions and dense layers with their width."""
    words = []
    for layer in network.modules():
        if isinstance(layer, nn.Conv2d):
            words.append(f"conv{layer.out_channels}")
        elif isinstance(layer, nn.Linear):
            words.append(f"dense{layer.out_features}")
        elif isinstance(layer, nn.MaxPool2d):
            words.append("pool")
        elif isinstance(layer, nn.Dropout):
            assert layer.p == 0.3
            words.append("drop")
        elif isinstance(layer, nn.ReLU):
            words.append("relu")
    return " ".join(words)


@every
def test_output_shape_and_fresh_modules(net, in_shape):
    first, second = net(in_shape, 3), net(in_shape, 3)
    assert first(torch.rand(7, *in_shape)).shape == (7, 3)
    assert isinstance(net, NetworkFactory)
    assert not {id(p) for p in first.parameters()} & {id(p) for p in second.parameters()}


@every
def test_seed_decides_the_weights(net, in_shape):
    torch.manual_seed(1)
    first = net(in_shape, 2)
    torch.manual_seed(1)
    second = net(in_shape, 2)
    other = net(in_shape, 2)
    for a, b in zip(first.parameters(), second.parameters(), strict=True):
        assert torch.equal(a, b)
    assert not torch.equal(next(first.parameters()), next(other.parameters()))


@every
def test_glorot_weights_zero_biases_no_output_bias(net, in_shape):
    network = net(in_shape, 2)
    weighted = [m for m in network.modules() if isinstance(m, nn.Conv2d | nn.Linear)]
    assert weighted[-1].bias is None
    for layer in weighted:
        area = layer.weight[0, 0].numel() if layer.weight.ndim == 4 else 1
        fans = area * (layer.weight.shape[0] + layer.weight.shape[1])
        bound = (6 / fans) ** 0.5
        assert layer.weight.abs().max() <= bound
        if layer.weight.numel() >= 1000:  # uniform: sd = bound / sqrt(3), and the range is filled
            assert layer.weight.std().item() == pytest.approx(bound / 3**0.5, rel=0.05)
            assert layer.weight.abs().max() > 0.99 * bound
        if layer.bias is not None:
            assert torch.count_nonzero(layer.bias) == 0


@every
def test_members_can_be_stacked_and_differ_in_dropout(net, in_shape):
    members = [net(in_shape, 2).train() for _ in range(3)]
    parameters, buffers = torch.func.stack_module_state(members)
    base = net(in_shape, 2).train().to("meta")

    def forward(p, b, x):
        return torch.func.functional_call(base, (p, b), (x,))

    x = torch.rand(4, *in_shape)
    stacked = torch.vmap(forward, in_dims=(0, 0, None), randomness="different")(parameters, buffers, x)
    assert stacked.shape == (3, 4, 2)
    same = {k: v[:1].expand_as(v) for k, v in parameters.items()}
    draws = torch.vmap(forward, in_dims=(0, 0, None), randomness="different")(same, buffers, x)
    has_dropout = any(isinstance(m, nn.Dropout) for m in members[0].modules())
    assert torch.allclose(draws[0], draws[1], atol=1e-6) is not has_dropout
    base.eval()
    stacked = torch.vmap(forward, in_dims=(0, 0, None), randomness="different")(parameters, buffers, x)
    for k, member in enumerate(members):
        torch.testing.assert_close(stacked[k], member.eval()(x), atol=1e-5, rtol=1e-5)


@every
def test_gradients_reach_every_parameter(net, in_shape):
    network = net(in_shape, 2).eval().double()
    network(torch.rand(16, *in_shape, dtype=torch.float64)).square().sum().backward()
    assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in network.parameters())


@every
def test_factory_survives_pickle_and_json(net, in_shape):
    assert pickle.loads(pickle.dumps(net)) == net
    assert networks.from_dict(json.loads(json.dumps(networks.to_dict(net)))) == net


def test_paper_mnist_layers_and_parameters():
    network = paper_mnist((1, 28, 28), 9)
    assert layers(network) == "conv32 pool relu conv64 relu conv64 pool relu dense100 relu dense9"
    # 28 -> conv 26 -> pool 13 -> conv 11 -> conv 9 -> pool 4
    by_hand = 32 * (9 + 1) + 64 * (32 * 9 + 1) + 64 * (64 * 9 + 1) + (64 * 4 * 4 + 1) * 100 + 100 * 9
    assert count(network) == by_hand == 159_144


def test_paper_melanoma_layers_and_parameters():
    network = paper_melanoma((3, 128, 128), 1)
    assert layers(network) == (
        "conv16 relu drop conv16 relu drop pool conv32 pool relu drop conv32 relu drop pool "
        "dense256 relu drop dense64 relu drop dense1"
    )
    convolutions = 16 * (27 + 1) + 16 * (144 + 1) + 32 * (144 + 1) + 32 * (288 + 1)
    assert count(network) == convolutions + (32 * 16 * 16 + 1) * 256 + 257 * 64 + 64 == 2_130_576


def test_paper_utkface_layers_and_parameters():
    network = paper_utkface((3, 128, 128), 6)
    block = "conv{0} relu drop conv{0} relu drop pool "
    dense = "dense500 relu drop dense50 relu drop dense6"
    assert layers(network) == block.format(16) + block.format(32) * 2 + dense
    convolutions = 16 * 28 + 16 * 145 + 32 * 145 + 32 * 289 + 32 * 289 + 32 * 289
    assert count(network) == convolutions + (32 * 16 * 16 + 1) * 500 + 501 * 50 + 50 * 6 == 4_157_002


@pytest.mark.parametrize(("net", "in_shape"), [(paper_mnist, (1, 28, 28)), (CNN(), (3, 32, 32))])
def test_pooling_before_relu_is_pooling_after_it(net, in_shape):
    """Values and gradients, as layer after layer of the paper would have them."""
    made = net(in_shape, 3)
    order = list(made)
    for k in range(1, len(order)):
        if isinstance(order[k - 1], nn.MaxPool2d) and isinstance(order[k], nn.ReLU):
            order[k - 1], order[k] = order[k], order[k - 1]
    written = nn.Sequential(*order)
    assert layers(written) != layers(made)
    images = torch.rand(6, *in_shape)
    found = []
    for network in (made, written):
        value = network(images)
        found.append([value, *torch.autograd.grad(value.square().sum(), list(made.parameters()))])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0)


@pytest.mark.parametrize(
    ("net", "in_shape", "seen"),
    [
        (paper_mnist, (1, 28, 28), (26, 26)),
        (paper_mnist, (2, 30, 27), (30, 26)),
        (CNN(channels=(4,), padding="valid", pool=3), (1, 13, 9), (11, 8)),
        (CNN(channels=(4, 4), padding="valid"), (1, 12, 10), (10, 10)),
    ],
)
def test_pixels_that_no_output_depends_on_are_cut_off(net, in_shape, seen):
    """Values and gradients stay, the last pixel within matters, and a model saved before loads."""
    made = net(in_shape, 3)
    whole = nn.Sequential(*(layer for name, layer in made.named_children() if name != "crop"))
    assert list(made.state_dict()) == list(whole.state_dict())
    assert tuple(made.crop.parameters()) == ()
    assert (made.crop.rows, made.crop.columns) == seen
    images = torch.randn(6, *in_shape, requires_grad=True)
    found = []
    for network in (made, whole):
        value = network(images)
        found.append([value, *torch.autograd.grad(value.square().sum(), [images, *made.parameters()])])
    assert float(found[0][0].detach().std()) > 0.01
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)
    slopes = found[1][1].abs().sum(dim=(0, 1))
    assert slopes[: seen[0], : seen[1]][-1].any()
    assert slopes[: seen[0], : seen[1]][:, -1].any()


@pytest.mark.parametrize(
    ("net", "in_shape"), [(paper_mnist, (1, 26, 26)), (paper_utkface, (3, 33, 35)), (CNN(), (1, 29, 29))]
)
def test_pixels_that_matter_stay(net, in_shape):
    network = net(in_shape, 3)
    assert "crop" not in dict(network.named_children())
    images = torch.randn(8, *in_shape, requires_grad=True)
    slopes = torch.autograd.grad(network(images).square().sum(), images)[0].abs().sum(dim=(0, 1))
    assert slopes[-1].any()
    assert slopes[:, -1].any()


def test_convolution_and_pool_against_scipy(rng):
    from scipy.signal import correlate2d

    image = rng.normal(size=(1, 1, 9, 9))
    network = CNN(channels=(1,), padding="same", dense=())((1, 9, 9), 1).double()
    kernel = network[0].weight.detach().numpy()[0, 0]
    hidden = np.maximum(correlate2d(image[0, 0], kernel, mode="same"), 0)[:8, :8]
    pooled = hidden.reshape(4, 2, 4, 2).max(axis=(1, 3)).ravel()
    expected = network[-1].weight.detach().numpy()[0] @ pooled
    assert network(torch.from_numpy(image)).item() == pytest.approx(expected, rel=1e-12)


def test_mlp_against_plain_algebra(rng):
    network = MLP(hidden=(4, 3), activation="tanh", output_bias=True)((2,), 1).double()
    weights = [p.detach().numpy() for p in network.parameters()]
    x = rng.normal(size=(5, 2))
    hidden = x
    for w, b in zip(weights[0:4:2], weights[1:4:2], strict=True):
        hidden = np.tanh(hidden @ w.T + b)
    expected = hidden @ weights[4].T + weights[5]
    np.testing.assert_allclose(network(torch.from_numpy(x)).detach().numpy(), expected, rtol=1e-12)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_every_activation(name):
    assert torch.isfinite(MLP(hidden=(3,), activation=name)((2,), 1)(torch.rand(4, 2))).all()


@pytest.mark.parametrize("config", [{}, {"channels": (4,), "padding": "valid", "convolutions": 2, "pool": 3}])
def test_smallest_image_is_the_smallest(config):
    net = CNN(**config)
    side = net.smallest_image()
    assert net((1, side, side), 1)(torch.zeros(1, 1, side, side)).shape == (1, 1)
    with pytest.raises(InvalidInputError, match=f"at least {side} x {side} pixels, got {side - 1} x {side}"):
        net((1, side - 1, side), 1)


@pytest.mark.parametrize(("net", "side"), [(paper_mnist, 14), (paper_melanoma, 8), (paper_utkface, 8)])
def test_paper_networks_refuse_small_images(net, side):
    assert net((1, side, side), 1)(torch.zeros(1, 1, side, side)).shape == (1, 1)
    message = f"{net.__name__} needs images of at least {side} x {side} pixels, got {side} x {side - 1}"
    with pytest.raises(InvalidInputError, match=message):
        net((1, side, side - 1), 1)


@pytest.mark.parametrize("net", [CNN(), paper_mnist, paper_melanoma, paper_utkface])
def test_image_networks_refuse_tables(net):
    with pytest.raises(
        InvalidInputError, match=r"expects images, that is in_shape = \(C, H, W\), got \(5,\)"
    ):
        net((5,), 1)


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: MLP()((0,), 1), r"in_shape to hold positive integers, got \(0,\)"),
        (lambda: MLP()((), 1), r"in_shape to hold positive integers, got \(\)"),
        (lambda: MLP()((2,), 0), "out_features to be a positive integer, got 0"),
        (lambda: MLP()((2,), True), "out_features to be a positive integer, got True"),
        (lambda: MLP(hidden=(4, 0)), r"hidden must hold positive integers, got \(4, 0\)"),
        (lambda: MLP(dropout=1.0), r"dropout must lie in \[0, 1\), got 1.0"),
        (lambda: MLP(activation="step"), "activation must be one of .*, got 'step'"),
        (lambda: CNN(channels=(1.5,)), "channels must hold positive integers"),
        (lambda: CNN(pool=0), "pool must be a positive integer, got 0"),
        (lambda: CNN(padding="half"), "padding must be one of 'same', 'valid', got 'half'"),
        (lambda: MLP.from_dict({"depth": 2}), "MLP takes hidden, .*, got depth"),
        (lambda: CNN.from_dict({"depth": 2}), "CNN takes channels, .*, got depth"),
        (lambda: networks.register("", MLP), "name of a network must be a non-empty string"),
        (lambda: networks.register("MLP", paper_mnist), "must be new, got 'MLP', which is taken"),
        (lambda: networks.register("paper_mnist", paper_utkface), "must be new, got 'paper_mnist'"),
    ],
)
def test_bad_arguments(make, match):
    with pytest.raises(InvalidInputError, match=match):
        make()


def small(in_shape, out_features, width=3):
    return nn.Sequential(nn.Linear(in_shape[0], width), nn.Linear(width, out_features))


def test_own_network_is_saved_by_name_only():
    with pytest.raises(
        UnsupportedError, match=r"without a registered name; call deeptram.networks\.register"
    ):
        networks.to_dict(small)
    networks.register("test-small", small)
    entry = networks.to_dict(functools.partial(small, width=4))
    assert entry == {"name": "test-small", "config": {"width": 4}}
    assert networks.from_dict(entry)((2,), 1)[0].out_features == 4
    assert networks.register("test-small", small) is small
    assert "test-small" in networks.names()
    assert not networks.is_registered(functools.partial(small, width=object()))
    assert not networks.is_registered(functools.partial(small, (2,)))


def test_registry_refuses_what_it_does_not_know():
    with pytest.raises(FileFormatError, match=r"got 'os\.system', which is not registered here"):
        networks.from_dict({"name": "os.system", "config": {}})
    with pytest.raises(FileFormatError, match="needs a 'name' and a 'config'"):
        networks.from_dict({"name": "MLP"})
    with pytest.raises(InvalidTypeError, match="must be callable as net"):
        networks.register("test-number", 3)


def test_without_arguments_it_is_the_network_for_tables_and_with_sizes_the_plain_one():
    assert MLP() == MLP(hidden=(64, 64), dropout=0.1, activation="silu")
    assert MLP(hidden=(64, 64), dropout=0.0) == MLP((64, 64), 0.0, "relu") == MLP((64, 64))
    assert MLP(dropout=0.3) == MLP((64, 64), 0.3, "silu")
    assert MLP(activation="relu", dropout=0.0) == MLP((64, 64))
    kinds = [type(layer).__name__ for layer in MLP()((5,), 2)]
    assert kinds == ["Linear", "SiLU", "Dropout", "Linear", "SiLU", "Dropout", "Linear"]
    assert MLP.from_dict(MLP().to_dict()) == MLP()
