"""The embedded data set: digit images and ten covariates with known effects."""

from __future__ import annotations

import numpy as np
from sklearn.datasets import load_digits as _sklearn_digits

from deeptram.datasets.base import Dataset, categorical
from deeptram.datasets.covariates import PAPER_EFFECTS, simulate_covariates

LEVELS = tuple(range(10))
SD = 1.9


def load_digits(seed: int = 1) -> Dataset:
    """Return scikit-learn's 1,797 digit images with ten simulated covariates.

    The images come from the UCI "Optical Recognition of Handwritten Digits" test set
    (E. Alpaydin and C. Kaynak, CC BY 4.0), bundled with scikit-learn: nothing is
    downloaded. The covariates are drawn from the digit by
    :func:`~deeptram.datasets.covariates.simulate_covariates` with noise standard
    deviation 1.9, for which a proportional-odds model of the ten classes (SI-LS)
    returns about the effects in ``info["beta"]``.

    Parameters
    ----------
    seed
        Seed of the simulated covariates.

    Returns
    -------
    Dataset
        ``X``: ``image`` (1797, 8, 8) float32 in [0, 1], ``x_1`` ... ``x_10`` (1797,);
        ``y``: the digit; ``info["beta"]``: the ten log odds-ratios.

    Examples
    --------
    >>> data = load_digits()
    >>> len(data), data.X["image"].shape, round(data.info["beta"]["x_5"], 3)
    (1797, (1797, 8, 8), 0.405)
    """
    bundled = _sklearn_digits()
    codes = np.asarray(bundled.target, dtype=np.int64)
    images = (bundled.images / 16).astype(np.float32)
    return Dataset(
        name="digits",
        X={"image": images, **simulate_covariates(codes, seed, sd=SD)},
        y=categorical(codes, LEVELS),
        levels=LEVELS,
        info={
            "source": "UCI Optical Recognition of Handwritten Digits (bundled with scikit-learn)",
            "licence": "CC BY 4.0",
            "beta": dict(PAPER_EFFECTS),
            "sd": SD,
            "seed": seed,
        },
    )
