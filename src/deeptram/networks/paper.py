"""The three image networks of the paper's experiments (Appendix B).

All convolutions are 3 x 3, all pools 2 x 2 with stride 2, all hidden
activations ReLU, the output is linear without bias, weights are Glorot-uniform
and biases zero. ``K`` is the number of classes: a complex intercept has
``out_features = K - 1``, a complex shift 1.
"""

from __future__ import annotations

from torch import nn

from deeptram.networks.factories import check_room, check_shape, conv, glorot_, linear, register

DROPOUT = 0.3


def paper_mnist(in_shape: tuple[int, ...], out_features: int) -> nn.Module:
    """Return the MNIST network: valid padding, no dropout.

    conv32 - pool - conv64 - conv64 - pool - dense100 - out.

    Examples
    --------
    >>> import torch
    >>> net = paper_mnist((1, 28, 28), 9)
    >>> net(torch.zeros(2, 1, 28, 28)).shape, sum(p.numel() for p in net.parameters())
    (torch.Size([2, 9]), 159144)
    """
    channels, height, width = check_shape(in_shape, out_features, image=True, network="paper_mnist")
    spatial = _mnist_side(height), _mnist_side(width)
    check_room(spatial, (channels, height, width), "paper_mnist", 14)
    network = nn.Sequential(
        *_conv(channels, 32, padding="valid"),
        nn.MaxPool2d(2),
        *_conv(32, 64, padding="valid"),
        *_conv(64, 64, padding="valid"),
        nn.MaxPool2d(2),
        nn.Flatten(),
        *_dense(64 * spatial[0] * spatial[1], 100),
        linear(100, out_features, bias=False),
    )
    glorot_(network)
    return network


def paper_melanoma(in_shape: tuple[int, ...], out_features: int) -> nn.Module:
    """Return the melanoma network: same padding, dropout .3.

    conv16 - drop - conv16 - drop - pool - conv32 - pool - drop - conv32 - drop -
    pool - dense256 - drop - dense64 - drop - out.

    Examples
    --------
    >>> import torch
    >>> paper_melanoma((3, 128, 128), 1)(torch.zeros(1, 3, 128, 128)).shape
    torch.Size([1, 1])
    """
    channels, height, width = check_shape(in_shape, out_features, image=True, network="paper_melanoma")
    spatial = height // 8, width // 8
    check_room(spatial, (channels, height, width), "paper_melanoma", 8)
    network = nn.Sequential(
        *_conv(channels, 16),
        nn.Dropout(DROPOUT),
        *_conv(16, 16),
        nn.Dropout(DROPOUT),
        nn.MaxPool2d(2),
        *_conv(16, 32),
        nn.MaxPool2d(2),
        nn.Dropout(DROPOUT),
        *_conv(32, 32),
        nn.Dropout(DROPOUT),
        nn.MaxPool2d(2),
        nn.Flatten(),
        *_dense(32 * spatial[0] * spatial[1], 256),
        nn.Dropout(DROPOUT),
        *_dense(256, 64),
        nn.Dropout(DROPOUT),
        linear(64, out_features, bias=False),
    )
    glorot_(network)
    return network


def paper_utkface(in_shape: tuple[int, ...], out_features: int) -> nn.Module:
    """Return the UTKFace network: same padding, dropout .3.

    Three blocks (16, 32, 32 filters) of conv - drop - conv - drop - pool, then
    dense500 - drop - dense50 - drop - out.

    Examples
    --------
    >>> import torch
    >>> paper_utkface((3, 32, 32), 6)(torch.zeros(1, 3, 32, 32)).shape
    torch.Size([1, 6])
    """
    channels, height, width = check_shape(in_shape, out_features, image=True, network="paper_utkface")
    spatial = height // 8, width // 8
    check_room(spatial, (channels, height, width), "paper_utkface", 8)
    network = nn.Sequential(
        *_utkface_block(channels, 16),
        *_utkface_block(16, 32),
        *_utkface_block(32, 32),
        nn.Flatten(),
        *_dense(32 * spatial[0] * spatial[1], 500),
        nn.Dropout(DROPOUT),
        *_dense(500, 50),
        nn.Dropout(DROPOUT),
        linear(50, out_features, bias=False),
    )
    glorot_(network)
    return network


def _conv(inputs: int, filters: int, padding: str = "same") -> list[nn.Module]:
    return [conv(inputs, filters, padding=padding), nn.ReLU()]


def _dense(inputs: int, units: int) -> list[nn.Module]:
    return [linear(inputs, units), nn.ReLU()]


def _utkface_block(inputs: int, filters: int) -> list[nn.Module]:
    first = [*_conv(inputs, filters), nn.Dropout(DROPOUT)]
    return [*first, *_conv(filters, filters), nn.Dropout(DROPOUT), nn.MaxPool2d(2)]


def _mnist_side(side: int) -> int:
    return ((side - 2) // 2 - 4) // 2


for _network in (paper_mnist, paper_melanoma, paper_utkface):
    register(_network.__name__, _network)
