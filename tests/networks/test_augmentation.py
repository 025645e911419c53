"""Random changes of images: against rotations and moves by SciPy."""

import numpy as np
import pytest
import torch
from scipy import ndimage

from deeptram.errors import InvalidInputError
from deeptram.networks import RandomAffine


def blob():
    """A smooth image that is nothing like its mirror image."""
    y, x = np.mgrid[0:32, 0:32]
    return np.exp(-((x - 12) ** 2 + (y - 18) ** 2) / 20) + 0.5 * np.exp(-((x - 20) ** 2 + (y - 12) ** 2) / 12)


def drawn(monkeypatch, values):
    monkeypatch.setattr(
        torch, "rand", lambda *shape, **kw: torch.tensor(values, dtype=torch.float64)[:, None].expand(*shape)
    )
    return torch.from_numpy(blob())[None, None]


def test_turns_as_scipy_does(monkeypatch):
    image = drawn(monkeypatch, [1.0, 0.5, 0.5, 0.5, 0.9])
    ours = RandomAffine(degrees=20)(image)[0, 0].numpy()
    theirs = ndimage.rotate(blob(), 20, reshape=False, order=1, mode="nearest")
    opposite = ndimage.rotate(blob(), -20, reshape=False, order=1, mode="nearest")
    assert min(np.abs(ours - theirs).max(), np.abs(ours - opposite).max()) < 1e-6


def test_moves_by_a_share_of_the_side(monkeypatch):
    image = drawn(monkeypatch, [0.5, 1.0, 0.5, 0.5, 0.9])
    ours = RandomAffine(shift=0.125)(image)[0, 0].numpy()
    np.testing.assert_allclose(ours[:, :-4], blob()[:, 4:], atol=1e-12)


def test_changes_the_size_about_the_centre(monkeypatch):
    image = drawn(monkeypatch, [0.5, 0.5, 0.5, 1.0, 0.9])
    ours = RandomAffine(zoom=0.2)(image)[0, 0].numpy()
    centre = 15.5
    theirs = ndimage.affine_transform(blob(), np.eye(2) * 1.2, centre - 1.2 * centre, order=1, mode="nearest")
    np.testing.assert_allclose(ours, theirs, atol=1e-12)


def test_every_image_has_its_own_draw_and_seeds_decide():
    images = torch.from_numpy(blob())[None, None].repeat(4, 1, 1, 1).float()
    change = RandomAffine(degrees=15, shift=0.1, zoom=0.1, flip=0.5)
    torch.manual_seed(1)
    first = change(images)
    torch.manual_seed(1)
    assert torch.equal(first, change(images))
    assert not torch.allclose(first[0], first[1])
    assert torch.equal(images[0], images[3])  # inputs stay


@pytest.mark.parametrize("name", ["degrees", "shift", "zoom", "flip"])
def test_refuses_too_much(name):
    with pytest.raises(InvalidInputError, match=f"{name} of RandomAffine must be between 0 and"):
        RandomAffine(**{name: 1000.0})
