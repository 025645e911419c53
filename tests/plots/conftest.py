"""Members, pools and a way to look at what was drawn."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import scipy.stats
from matplotlib import pyplot as plt

import deeptram as dt
from drawing import LEVELS


@pytest.fixture(autouse=True)
def _close_figures():
    yield
    plt.close("all")


@pytest.fixture(scope="session")
def ordinal():
    """Four members' predictions of 200 ordered outcomes, and the outcomes."""
    rng = np.random.default_rng(11)
    cut = np.array([-1.2, 0.4, 1.6])
    x = rng.normal(size=200)
    y = np.array(LEVELS)[((x + rng.logistic(size=200))[:, None] > cut).sum(axis=1)]
    members = [
        dt.Predictive.from_trafo(
            cut - (slope * x + rng.normal(0, 0.5, 200))[:, None], levels=LEVELS, latent="logistic"
        )
        for slope in (0.5, 0.9, 1.2, 1.6)
    ]
    return members, y


@pytest.fixture(scope="session")
def pools(ordinal):
    """The three pools of the paper."""
    members, _ = ordinal
    return {name: dt.pool(members, method=name) for name in ("linear", "log-linear", "transformation")}


@pytest.fixture(scope="session")
def normals():
    """Three members on the line: normal distributions of two rows."""
    return [
        dt.Predictive.from_scipy(scipy.stats.norm([m, 3 + m], s))
        for m, s in ((0.0, 1.0), (1.0, 2.0), (0.5, 1.5))
    ]


@pytest.fixture
def drawn(tmp_path):
    """Draw a display three ways (own figure, given axes, file); return the axes of the own figure."""

    def draw(display):
        path = display.save(tmp_path / "figure.png", dpi=60)
        assert Path(path).read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
        image = plt.imread(path)
        assert 50 < image.shape[0] < 2000
        assert image[..., :3].std() > 0.01  # not a white page
        _, given = plt.subplots()
        assert display.plot(given) is given
        ax = display.plot()
        ax.figure.draw_without_rendering()
        return ax

    return draw
