"""How much faster members train on cached embeddings than through a frozen backbone.

``python benchmarks/frozen_backbone.py``: five members with the same head on the same backbone, 20 epochs on
1,000 images; once with the backbone inside the network, once by ``dt.networks.frozen``. Two backbones, a tiny
one (24,000 weights) and a small one (a ResNet-18 has thirty times its 370,000). Ratios of one run, after a
first fit on a few rows that loads torch's optimisers.
"""

from __future__ import annotations

import itertools
import time
from typing import Any

import numpy as np
import torch
from torch import nn

import deeptram as dt


def backbone(*widths: int) -> nn.Module:
    """Return a convolutional network with as many outputs as its last layer has filters, as if pretrained."""
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for before, after in itertools.pairwise((3, *widths)):
        layers += [nn.Conv2d(before, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten()).requires_grad_(False).eval()


def main() -> None:
    """Train both ways and print seconds and scores."""
    rng = np.random.default_rng(0)
    images = rng.random((1000, 3, 32, 32)).astype(np.float32)
    y = np.digitize(images.mean(axis=(1, 2, 3)) * 200 + rng.normal(size=1000), [99.0, 100.0, 101.0])
    head = dt.networks.MLP(hidden=(32,))
    training = dt.Training(epochs=20, batch_size=64, progress=False)
    few = dt.Logit([dt.CS(head, "image")], training=training.replace(epochs=1))
    dt.Ensemble(few, 2).fit({"image": images[:50]}, y[:50] > 1)
    for widths in ((16, 32, 64), (64, 128, 256)):
        compare(widths, head, training, images, y)


def compare(widths: tuple[int, ...], head: Any, training: dt.Training, images: Any, y: Any) -> None:
    """Train members on one backbone both ways and print seconds and scores."""
    shared, seconds = backbone(*widths), {}

    def through(in_shape: tuple[int, ...], out_features: int) -> nn.Module:
        return nn.Sequential(shared, head((widths[-1],), out_features))

    print(f"backbone of {sum(one.numel() for one in shared.parameters())} weights")
    for name, net in {"frozen": dt.networks.frozen(shared, head), "through": through}.items():
        model = dt.Polr([dt.CS(net, "image")], training=training)
        started = time.perf_counter()
        fitted = dt.Ensemble(model, 5, random_state=1, strategy="auto" if name == "frozen" else "sequential")
        fitted.fit({"image": images}, y)
        seconds[name] = time.perf_counter() - started
        print(f"{name}: {seconds[name]:.2f} s, log-likelihood {fitted.score({'image': images}, y):.4f}")
    print(f"ratio {seconds['through'] / seconds['frozen']:.1f}")


if __name__ == "__main__":
    main()
