"""Network factories ``net(in_shape, out_features) -> torch.nn.Module``."""

from __future__ import annotations

from deeptram.networks.cnn import CNN
from deeptram.networks.layers import NetworkFactory, glorot_
from deeptram.networks.mlp import MLP
from deeptram.networks.paper import paper_melanoma, paper_mnist, paper_utkface
from deeptram.networks.registry import from_dict, is_registered, names, register, to_dict

__all__ = [
    "CNN",
    "MLP",
    "NetworkFactory",
    "from_dict",
    "glorot_",
    "is_registered",
    "names",
    "paper_melanoma",
    "paper_mnist",
    "paper_utkface",
    "register",
    "to_dict",
]
