"""Data with known effects: a table, images and any kind of response; covariates of an observed class."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import log
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deeptram import latent as latents
from deeptram._validation import (
    as_float,
    check_choice,
    check_finite,
    check_integer,
    check_number,
    random_generator,
)
from deeptram.datasets.base import Dataset, categorical
from deeptram.errors import InvalidInputError, InvalidTypeError
from deeptram.responses import Surv, encode_count

LATENTS = {
    "binary": "logistic",
    "ordinal": "logistic",
    "continuous": "normal",
    "survival": "minimum-extreme-value",
}
PIXEL_NOISE = 0.05
PILOT = 20_000
LARGEST = 10**7
LARGEST_PIXELS = 2 * 10**8
LARGEST_EXPONENT = 700.0
# Log odds-ratios of the ten covariates: 0 except for x_2, x_3, x_5, x_6.
PAPER_EFFECTS: Mapping[str, float] = MappingProxyType(
    {f"x_{j}": {2: log(1.2), 3: -log(1.2), 5: log(1.5), 6: -log(1.5)}.get(j, 0.0) for j in range(1, 11)}
)
PAPER_SD = 1.55
LARGEST_CODE = 10**6


def simulate(
    outcome: str = "ordinal",
    n: int = 1000,
    *,
    beta: Sequence[float] = (1.0, -0.5, 0.0),
    image_effect: float = 1.0,
    image_size: int = 8,
    n_levels: int = 5,
    censoring: float = 0.3,
    latent: str | None = None,
    seed: int = 0,
) -> Dataset:
    r"""Return data from a known model :math:`F(y \mid x, B) = F_Z(h(y) - x^\top\beta - \eta(B))`, eq. (4).

    The table holds independent standard normal columns ``x_1``, ``x_2``, ...; each image shows
    one blob at a random place over noise, and :math:`\eta(B)` is ``image_effect`` times the
    blob's standardised brightness, so it has mean zero and a network has to find it. The
    transformation h is

    * ordinal, binary: cutpoints that make the levels equally frequent where the shift is zero;
    * continuous: :math:`h(y) = 2\,\mathrm{arsinh}(y)`;
    * survival: :math:`h(t) = 1.5 \log t` (a Weibull model for the default latent),
      right-censored by independent exponential times.

    Parameters
    ----------
    outcome
        ``"ordinal"``, ``"binary"``, ``"continuous"`` or ``"survival"``.
    n
        Number of rows.
    beta
        Effects of the columns; a positive one means a larger response.
    image_effect
        Standard deviation of :math:`\eta(B)`; 0 makes the images irrelevant.
    image_size
        Height and width of the images in pixels, at least 5.
    n_levels
        Number of levels of an ordinal response.
    censoring
        Share of censored survival times, in [0, 1).
    latent
        Distribution of Z; logistic for levels, normal for continuous and
        minimum extreme value for survival responses by default.
    seed
        Seed of NumPy's generator.

    Returns
    -------
    Dataset
        ``X``: ``image`` (n, S, S) float32, ``x_1``, ... (n,); ``y``: Series of levels, floats, or ``Surv``;
        ``info``: ``beta`` by name, ``theta`` (cutpoints), ``latent``, and per row ``info["rows"]["eta"]``.

    Examples
    --------
    >>> data = simulate("survival", n=200, beta=(0.7,), seed=3)
    >>> data.info["beta"], data.y
    ({'x_1': 0.7}, Surv.right(n=200, exact=..., censored=...))
    """
    check_choice(outcome, tuple(LATENTS), "outcome")
    n, image_size = check_integer(n, "n", 1, LARGEST), check_integer(image_size, "image_size", 5, LARGEST)
    n_levels, seed = check_integer(n_levels, "n_levels", 2, LARGEST), check_integer(seed, "seed", 0)
    if n * image_size**2 > LARGEST_PIXELS:
        raise InvalidInputError(
            f"n images of image_size pixels must not exceed {LARGEST_PIXELS} numbers, got {n} of {image_size}"
        )
    image_effect, censoring = check_number(image_effect, "image_effect", -1e9, 1e9), _check_share(censoring)
    effects = as_float(beta, "beta")
    check_finite(effects, "beta")
    if effects.ndim != 1 or (np.abs(effects) > 1e9).any():
        raise InvalidInputError(f"beta must be a vector of effects within 1e9, one per column, got {beta!r}")
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, len(effects)))
    images, brightness = _blobs(n, image_size, rng)
    eta = image_effect * brightness
    z = latents.get(LATENTS[outcome] if latent is None else latent)
    on_h = np.asarray(z.icdf(rng.random(n))) + x @ effects + eta
    info: dict[str, Any] = {
        "source": "simulated",
        "licence": "none needed",
        "beta": {f"x_{j}": float(effect) for j, effect in enumerate(effects, start=1)},
        "latent": z.name,
        "seed": seed,
        "rows": {"eta": eta},
    }
    y: Any
    levels: tuple[int, ...] | None = None
    if outcome in ("ordinal", "binary"):
        levels = tuple(range(n_levels if outcome == "ordinal" else 2))
        info["theta"] = np.asarray(z.icdf(np.arange(1, len(levels)) / len(levels)))
        y = categorical(np.searchsorted(info["theta"], on_h), levels)
    elif outcome == "continuous":
        _refuse_overflow(np.abs(on_h) / 2)
        y = np.sinh(on_h / 2)
    else:
        _refuse_overflow(np.abs(on_h) / 1.5)
        times = np.exp(on_h / 1.5)
        spread = float(np.sqrt(effects @ effects + image_effect**2))
        scale = _censoring_scale(z, spread, censoring, seed)
        limits = scale * rng.standard_exponential(n)
        y = Surv.right(np.minimum(times, limits), times <= limits)
    columns = {f"x_{j + 1}": np.ascontiguousarray(x[:, j]) for j in range(len(effects))}
    return Dataset(f"simulated-{outcome}", {"image": images, **columns}, y, levels, info)


def _blobs(n: int, size: int, rng: np.random.Generator) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
    """Return images of one blob each, and its brightness as a standardised uniform variable."""
    brightness = rng.uniform(-np.sqrt(3), np.sqrt(3), n)  # mean 0, variance 1
    centre = rng.uniform(1.5, size - 2.5, (n, 2, 1))
    distance = (np.arange(size) - centre) ** 2
    blob = np.exp(-0.5 * (distance[:, 0, :, None] + distance[:, 1, None, :]))
    height = 0.5 + 0.2 * brightness[:, None, None]
    noise = rng.normal(0, PIXEL_NOISE, (n, size, size))
    return (height * blob + noise).astype(np.float32), brightness


def _censoring_scale(z: Any, spread: float, share: float, seed: int) -> float:
    """Return the scale of exponential censoring times that censors the given share on average."""
    if share == 0:
        return np.inf
    rng = np.random.default_rng([seed, 1])  # a stream of its own: independent of the data
    on_h = np.asarray(z.icdf(rng.random(PILOT))) + spread * rng.standard_normal(PILOT)
    with np.errstate(over="ignore"):  # quantiles of what is beyond the floats are too
        ratio = np.exp(on_h / 1.5) / rng.standard_exponential(PILOT)
    return float(np.quantile(ratio, 1 - share))


def _refuse_overflow(exponent: NDArray[np.float64]) -> None:
    if (exponent > LARGEST_EXPONENT).any():
        raise InvalidInputError(
            f"beta and image_effect must leave outcomes that floats can hold, got effects of "
            f"{exponent.max():.3g} on the log scale; choose smaller ones"
        )


def _check_share(censoring: Any) -> float:
    share = check_number(censoring, "censoring")
    if not 0 <= share < 1:
        raise InvalidInputError(f"censoring must be a share in [0, 1), got {censoring}; use 0 for none")
    return share


def simulate_covariates(
    codes: NDArray[np.int64], seed: int, *, sd: float = PAPER_SD, effects: Mapping[str, float] = PAPER_EFFECTS
) -> dict[str, NDArray[np.float64]]:
    r"""Return covariates drawn from the class, by the scheme of the paper's UTKFace study.

    .. math:: x_{ij} = \beta_j k_i + \varepsilon_{ij}, \quad \varepsilon_{ij} \sim N(0, \sigma^2),

    independently over j, then centred. The class is observed, the covariate
    follows: by Bayes' rule neighbouring classes have log odds linear in x with slope
    :math:`\beta_j / \sigma^2`, which a proportional-odds model sums up as roughly
    :math:`\beta_j` for the right :math:`\sigma`. That is 1.55 for the seven age
    groups of UTKFace, and 1.9 for ten equally frequent classes (both checked with
    200,000 rows; the fit returns the effects within 2 %).

    Parameters
    ----------
    codes
        Classes 0, ..., K - 1, shape ``(n,)``.
    seed
        Seed of NumPy's generator.
    sd
        Noise standard deviation :math:`\sigma`.
    effects
        :math:`\beta_j` by column name.

    Returns
    -------
    One float64 array ``(n,)`` per name, with mean zero.

    Examples
    --------
    >>> x = simulate_covariates(np.array([0, 1, 2, 3]), seed=1)
    >>> list(x)[:3], bool(abs(x["x_1"].mean()) < 1e-15)
    (['x_1', 'x_2', 'x_3'], True)
    """
    if check_number(sd, "sd", -1e100, 1e100) <= 0:
        raise InvalidInputError(f"sd must be positive, got {sd}; the paper uses {PAPER_SD}")
    if not isinstance(effects, Mapping):
        raise InvalidTypeError(f"effects must be a dict from names to numbers, got {effects!r}")
    classes = encode_count(codes).upper
    if classes.max() > LARGEST_CODE:
        raise InvalidInputError(f"codes must be classes 0, 1, ..., got {classes.max():g}; number the classes")
    slopes = np.array(
        [check_number(effect, f"effects[{name!r}]", -1e100, 1e100) for name, effect in effects.items()]
    )
    noise = random_generator(seed, "seed").normal(0.0, float(sd), size=(len(classes), len(effects)))
    draws = classes[:, None] * slopes + noise
    centred = draws - draws.mean(axis=0)
    return {name: np.ascontiguousarray(centred[:, j]) for j, name in enumerate(effects)}
