"""Members drawn by hypothesis."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

import deeptram as dt
from deeptram.bases import Linear
from deeptram.predictive import TransformationPredictive
from deeptram.predictive.discrete import DiscretePredictive

METHODS = ("linear", "log-linear", "log-linear-density", "transformation")


@st.composite
def discrete_ensembles(draw, rows=40, scale=6.0):
    """Return (members, weights, y): ``rows`` random ordinal distributions from each of a few members."""
    latent = draw(st.sampled_from(dt.latent.names()))
    members = draw(st.integers(1, 5))
    levels = draw(st.integers(2, 7))
    spread = draw(st.floats(0.1, scale))
    if latent == "minimum-extreme-value" or latent == "maximum-extreme-value":
        spread = min(spread, 2.0)
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    h = np.sort(rng.normal(scale=spread, size=(members, rows, levels - 1)), axis=2)
    predictions = [DiscretePredictive.from_h(one, latent=latent) for one in h]
    return predictions, draw(weights(members)), rng.integers(0, levels, rows)


@st.composite
def line_ensembles(draw, rows=40, latents=None):
    """Return (members, weights, y): straight-line transformation models, h = a + b y."""
    latent = draw(st.sampled_from(latents or dt.latent.names()))
    members = draw(st.integers(1, 4))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    predictions = [
        TransformationPredictive(
            Linear(),
            latent,
            np.stack([rng.normal(size=rows), np.exp(rng.normal(scale=0.6, size=rows))], axis=1),
            rng.normal(scale=1.5, size=rows),
        )
        for _ in range(members)
    ]
    return predictions, draw(weights(members)), rng.normal(scale=1.5, size=rows)


@st.composite
def weights(draw, members):
    """Return weights on the simplex; zeros and vertices included."""
    raw = np.array(draw(st.lists(st.integers(0, 8), min_size=members, max_size=members)), dtype=float)
    return np.full(members, 1 / members) if raw.sum() == 0 else raw / raw.sum()
