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
MNIST = "conv32 pool conv64 conv64 pool dense100"
MELANOMA = "conv16 drop conv16 drop pool conv32 pool drop conv32 drop pool dense256 drop dense64 drop"
UTKFACE = (
    "conv16 drop conv16 drop pool conv32 drop conv32 drop pool conv32 drop conv32 drop pool "
    "dense500 drop dense50 drop"
)


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
    return _build("paper_mnist", MNIST, in_shape, out_features, smallest=14, padding="valid")


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
    return _build("paper_melanoma", MELANOMA, in_shape, out_features, smallest=8)


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
    return _build("paper_utkface", UTKFACE, in_shape, out_features, smallest=8)


def _build(
    name: str,
    plan: str,
    in_shape: tuple[int, ...],
    out_features: int,
    *,
    smallest: int,
    padding: str = "same",
) -> nn.Module:
    """Return the network whose layers are named one after the other; dense layers begin with a flattening."""
    width, *sides = check_shape(in_shape, out_features, image=True, network=name)
    layers: list[nn.Module] = []
    flat = False
    for word in plan.split():
        units = int("0" + word.lstrip("abcdefghijklmnopqrstuvwxyz"))
        if word.startswith("conv"):
            layers += [conv(width, units, padding=padding), nn.ReLU()]
            sides = [side - 2 if padding == "valid" else side for side in sides]
            width = units
        elif word.startswith("dense"):
            if not flat:
                check_room((sides[0], sides[1]), in_shape, name, smallest)
                layers.append(nn.Flatten())
                width, flat = width * sides[0] * sides[1], True
            layers += [linear(width, units), nn.ReLU()]
            width = units
        elif word == "pool":
            layers.append(nn.MaxPool2d(2))
            sides = [side // 2 for side in sides]
        else:
            layers.append(nn.Dropout(DROPOUT))
    layers.append(linear(width, out_features, bias=False))
    network = nn.Sequential(*layers)
    glorot_(network)
    return network


for _network in (paper_mnist, paper_melanoma, paper_utkface):
    register(_network.__name__, _network)
