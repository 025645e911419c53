"""Random changes of training images that leave the outcome as it is."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

import torch
from torch import Tensor
from torch.nn.functional import affine_grid, grid_sample

from deeptram._validation import check_number
from deeptram.errors import InvalidInputError

_LARGEST = {"degrees": 180.0, "shift": 1.0, "zoom": 0.9, "flip": 1.0}


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
