"""Network factories ``net(in_shape, out_features) -> torch.nn.Module``.

Belongs here: networks for the terms CI, CS and Scale, by name. Any such callable is a network; ``register``
gives your own a name, for models that are saved.
May import: ``inputs`` and below.
Start reading at ``factories``.
"""

from __future__ import annotations

from deeptram.networks.factories import (
    Budget,
    Configured,
    NetworkFactory,
    from_dict,
    glorot_,
    is_registered,
    names,
    register,
    to_dict,
)
from deeptram.networks.frozen import Frozen, frozen
from deeptram.networks.images import CNN, RandomAffine, paper_melanoma, paper_mnist, paper_utkface
from deeptram.networks.tables import MLP, embedded_columns

__all__ = [
    "CNN",
    "MLP",
    "Budget",
    "Configured",
    "NetworkFactory",
    "RandomAffine",
    "Frozen",
    "embedded_columns",
    "from_dict",
    "frozen",
    "glorot_",
    "is_registered",
    "names",
    "paper_melanoma",
    "paper_mnist",
    "paper_utkface",
    "register",
    "to_dict",
]
