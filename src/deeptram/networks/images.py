"""Networks for images: convolutional ones, the paper's (Appendix B), random changes of training images.

All convolutions of the paper's networks are 3 x 3, all pools 2 x 2 with stride 2, all hidden
activations ReLU, the output is linear without bias, weights are Glorot-uniform
and biases zero. ``K`` is the number of classes: a complex intercept has
``out_features = K - 1``, a complex shift 1.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from dataclasses import dataclass, fields
from functools import reduce
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import affine_grid, grid_sample

from deeptram._validation import check_choice, check_integer, check_number
from deeptram.errors import InvalidInputError
from deeptram.networks.factories import (
    Configured,
    activation,
    check_dropout,
    check_positive,
    check_room,
    check_shape,
    check_sizes,
    conv,
    finished,
    linear,
    register,
)

PADDINGS = ("same", "valid")
DROPOUT = 0.3
MNIST = "conv32 pool conv64 conv64 pool dense100"
MELANOMA = "conv16 drop conv16 drop pool conv32 pool drop conv32 drop pool dense256 drop dense64 drop"
UTKFACE = (
    "conv16 drop conv16 drop pool conv32 drop conv32 drop pool conv32 drop conv32 drop pool "
    "dense500 drop dense50 drop"
)
_LARGEST = {"degrees": 180.0, "shift": 1.0, "zoom": 0.9, "flip": 1.0}


@dataclass(frozen=True)
class CNN(Configured):
    """Factory of convolutional networks: blocks of convolutions, then dense layers.

    Each block is ``convolutions`` times (convolution, activation, dropout) and
    one max-pool; the blocks are followed by the dense hidden layers, each with
    activation and dropout, and a linear output.

    Parameters
    ----------
    channels
        Filters of each block.
    convolutions
        Convolutions per block.
    kernel_size
        Side of the filters in pixels.
    padding
        ``"same"`` keeps the image size, ``"valid"`` loses ``kernel_size - 1`` pixels.
    pool
        Side and stride of the max-pool that ends each block; 1 means none.
    dense
        Units of each dense hidden layer.
    dropout
        Dropout rate after each convolution and dense hidden layer, in [0, 1).
    activation
        One of ``"relu"``, ``"tanh"``, ``"gelu"``, ``"silu"``, ``"elu"``, ``"softplus"``.
    output_bias
        Whether the last layer has a bias (no by default, see :class:`MLP`).

    Examples
    --------
    >>> import torch
    >>> net = CNN(channels=(4, 8), dense=(10,))(in_shape=(1, 8, 8), out_features=9)
    >>> net(torch.zeros(5, 1, 8, 8)).shape
    torch.Size([5, 9])
    """

    channels: tuple[int, ...] = (16, 32)
    convolutions: int = 1
    kernel_size: int = 3
    padding: str = "same"
    pool: int = 2
    dense: tuple[int, ...] = (64,)
    dropout: float = 0.0
    activation: str = "relu"
    output_bias: bool = False

    def __post_init__(self) -> None:
        """Check the configuration once."""
        object.__setattr__(self, "channels", check_sizes(self.channels, "channels"))
        object.__setattr__(self, "dense", check_sizes(self.dense, "dense"))
        object.__setattr__(self, "dropout", check_dropout(self.dropout))
        for name in ("convolutions", "kernel_size", "pool"):
            object.__setattr__(self, name, check_positive(getattr(self, name), name))
        check_integer(self.convolutions, "convolutions", 1, 100)
        check_choice(self.padding, PADDINGS, "padding")
        activation(self.activation)

    def __call__(self, in_shape: tuple[int, ...], out_features: int) -> nn.Module:
        """Return a fresh network ``(b, C, H, W) -> (b, out_features)``."""
        words = [f"{f'conv{filters} drop ' * self.convolutions}pool" for filters in self.channels]
        words += [f"dense{units} drop" for units in self.dense]
        settings: dict[str, Any] = {
            "smallest": self.smallest_image(),
            "padding": self.padding,
            "size": self.kernel_size,
        }
        settings |= {"pool": self.pool, "dropout": self.dropout, "bias": self.output_bias}
        return _build("CNN", " ".join(words), in_shape, out_features, hidden=self.activation, **settings)

    def smallest_image(self) -> int:
        """Return the smallest height and width this network can take.

        Examples
        --------
        >>> CNN(channels=(4, 8)).smallest_image()
        4
        """
        side = 1
        for _ in self.channels:
            side *= self.pool
            if self.padding == "valid":
                side += self.convolutions * (self.kernel_size - 1)
        return side


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


def paper_melanoma(
    in_shape: tuple[int, ...], out_features: int, *, image_dropout: float = DROPOUT
) -> nn.Module:
    """Return the melanoma network: same padding, dropout .3 (after convolutions: ``image_dropout``).

    conv16 - drop - conv16 - drop - pool - conv32 - pool - drop - conv32 - drop -
    pool - dense256 - drop - dense64 - drop - out.

    Examples
    --------
    >>> import torch
    >>> paper_melanoma((3, 128, 128), 1)(torch.zeros(1, 3, 128, 128)).shape
    torch.Size([1, 1])
    """
    rate = check_dropout(image_dropout)
    return _build("paper_melanoma", MELANOMA, in_shape, out_features, smallest=8, image_dropout=rate)


def paper_utkface(
    in_shape: tuple[int, ...], out_features: int, *, image_dropout: float = DROPOUT
) -> nn.Module:
    """Return the UTKFace network: same padding, dropout .3 (after convolutions: ``image_dropout``).

    Three blocks (16, 32, 32 filters) of conv - drop - conv - drop - pool, then
    dense500 - drop - dense50 - drop - out.

    Examples
    --------
    >>> import torch
    >>> paper_utkface((3, 32, 32), 6)(torch.zeros(1, 3, 32, 32)).shape
    torch.Size([1, 6])
    """
    rate = check_dropout(image_dropout)
    return _build("paper_utkface", UTKFACE, in_shape, out_features, smallest=8, image_dropout=rate)


def _build(
    name: str,
    plan: str,
    in_shape: tuple[int, ...],
    out_features: int,
    *,
    smallest: int,
    padding: str = "same",
    size: int = 3,
    pool: int = 2,
    dropout: float = DROPOUT,
    image_dropout: float | None = None,
    hidden: str = "relu",
    bias: bool = False,
) -> nn.Module:
    """Return the network whose layers are named one after the other; dense layers begin with a flattening.

    Before that, dropout has the rate ``image_dropout``, if it is given. Two things make it faster and leave
    the function and its gradients as they are: a ReLU right before a pooling is applied to the pooled values
    instead (a fifth faster), and pixels that no output depends on are cut off (:class:`Crop`).
    """

    def side_after(side: int, word: str) -> int:
        if word.startswith("conv"):
            return side - (size - 1) * (padding == "valid")
        return side // pool if word == "pool" else side

    width, height, across = check_shape(in_shape, out_features, image=True, network=name)
    words = f"{plan} flat".replace("dense", "flat dense", 1).split()
    rows, columns = reached = tuple(reduce(side_after, words, side) for side in (height, across))
    check_room(reached, in_shape, name, smallest)
    layers: list[nn.Module] = []
    flat = False
    for word in words:
        units = int("0" + word.lstrip("abcdefghijklmnopqrstuvwxyz"))
        if word.startswith("conv"):
            layers += [conv(width, units, size=size, padding=padding), activation(hidden)]
            width = units
        elif word == "flat" and not flat:
            layers.append(nn.Flatten())
            width, flat = width * rows * columns, True
        elif word.startswith("dense"):
            layers += [linear(width, units), activation(hidden)]
            width = units
        elif word == "pool" and pool > 1:
            layers.insert(len(layers) - isinstance(layers[-1], nn.ReLU), nn.MaxPool2d(pool))
        elif word == "drop":
            rate = dropout if image_dropout is None or flat else image_dropout
            layers += [nn.Dropout(rate)] if rate > 0 else []
    network = finished([*layers, linear(width, out_features, bias=bias)])
    if padding == "same":  # zeros come right after the last pixels, so that all of them matter
        return network
    seen = tuple(
        next(fewer for fewer in range(side + 1) if reduce(side_after, words, fewer) == end)
        for side, end in zip((height, across), reached, strict=True)
    )
    if seen == (height, across):
        return network
    return nn.Sequential(OrderedDict(crop=Crop(*seen), **dict(network.named_children())))


class Crop(nn.Module):
    """The first rows and columns of images: those that a network sees, where its pools leave out the last.

    A pool of two by two halves odd sides downwards. Where convolutions pad with nothing, the pixels that only
    reach what is left out change no output: of 28 x 28 pixels :func:`paper_mnist` sees 26 x 26, and is a
    sixth faster without the others.

    Parameters
    ----------
    rows, columns : int

    Examples
    --------
    >>> Crop(2, 1)(torch.zeros(5, 3, 4, 4)).shape
    torch.Size([5, 3, 2, 1])
    """

    def __init__(self, rows: int, columns: int) -> None:
        super().__init__()
        self.rows, self.columns = rows, columns

    def forward(self, images: Tensor) -> Tensor:
        """Return (b, C, rows, columns) of images (b, C, H, W)."""
        return images[..., : self.rows, : self.columns]

    def extra_repr(self) -> str:
        """Return the sides."""
        return f"{self.rows}, {self.columns}"


register("CNN", CNN)
for _network in (paper_mnist, paper_melanoma, paper_utkface):
    register(_network.__name__, _network)


@dataclass(frozen=True)
class RandomAffine:
    r"""Turn, move, zoom and mirror each image of a batch at random; for ``Training(augment=...)``.

    Pixels of the new image are read from the old one at

    .. math:: A (u, v)' + t, \quad A = s \, R(\alpha) \, \mathrm{diag}(m, 1),

    bilinearly, in coordinates from -1 to 1 over the image; what lies outside is
    the nearest pixel of the border. Draws come from torch's global generator,
    which training seeds for every member.

    Parameters
    ----------
    degrees : float
        Largest angle, uniform on both sides.
    shift : float
        Largest move, as a share of the side of the image.
    zoom : float
        Largest relative change of size.
    flip : float
        Probability of a mirror image (left and right exchanged).

    Examples
    --------
    >>> images = torch.arange(4.0).reshape(1, 1, 2, 2)
    >>> RandomAffine(degrees=0, shift=0, zoom=0, flip=1)(images).flatten().tolist()
    [1.0, 0.0, 3.0, 2.0]
    """

    degrees: float = 0.0
    shift: float = 0.0
    zoom: float = 0.0
    flip: float = 0.0

    def __post_init__(self) -> None:
        """Check every number once."""
        for field in fields(self):
            value = check_number(getattr(self, field.name), field.name, 0.0)
            if value > _LARGEST[field.name]:
                raise InvalidInputError(
                    f"{field.name} of RandomAffine must be between 0 and {_LARGEST[field.name]:g}, "
                    f"got {value:g}; make it smaller"
                )

    def __call__(self, images: Tensor) -> Tensor:
        """Return changed images, (b, C, H, W)."""
        n = len(images)
        draws = torch.rand(5, n, device=images.device, dtype=images.dtype)
        angle, across, down, size = (draws[:4] * 2 - 1).unbind()
        turn = angle * math.radians(self.degrees)
        scale = 1 + size * self.zoom
        mirror = torch.where(draws[4] < self.flip, -1.0, 1.0).to(images.dtype)
        cosine, sine = scale * turn.cos(), scale * turn.sin()
        rows = [cosine * mirror, -sine, across * 2 * self.shift, sine * mirror, cosine, down * 2 * self.shift]
        maps = torch.stack(rows, dim=1).reshape(n, 2, 3)
        grid = affine_grid(maps, list(images.shape), align_corners=False)
        return grid_sample(images, grid, padding_mode="border", align_corners=False)
