r"""Epistemic uncertainty: what the members disagree about (Section 3.1, Fig. 4 B and C), and its share.

On the scale of h the band is :math:`\bar h(y) \pm c\,\mathrm{sd}(h_m(y))`, on that of the CDF
:math:`F_Z(\bar h(y) \pm c\,\mathrm{sd}(h_m(y)))`, for quantiles
:math:`\bar q(\alpha) \pm c\,\mathrm{sd}(q_m(\alpha))`.

The members are read as equally plausible worlds (with their weights), so the
total is that of the mixture :math:`\sum_m w_m F_m`, which is what makes the two parts add up:

* levels: entropy of the mixture = mean entropy of the members (aleatoric) + mutual information between
  outcome and member (epistemic);
* numbers: variance of the mixture = mean variance of the members (aleatoric) + variance of their means
  (epistemic).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from deeptram import latent as latents
from deeptram._arrays import as_numpy
from deeptram._validation import check_choice, is_number
from deeptram.ensemble.coefficients import between_variance
from deeptram.errors import InvalidInputError, UnsupportedError
from deeptram.latent import Latent
from deeptram.pooling.rule import common_latent
from deeptram.predictive import CountPredictive, DiscretePredictive, Predictive

Array = NDArray[np.float64]

SCALES = ("trafo", "cdf", "quantile")
_PANELS, _NODES, _REACH = 30, 8, 30.0
_ROWS_AT_ONCE = 2048
_TINY, _BLOCK, _LONGEST = 1e-13, 1024, 2**20


def epistemic_band(
    members: Sequence[Predictive], pooled: Predictive, weights: Array, scale: str, at: Any, width: float
) -> pd.DataFrame:
    r"""Return estimates with bands of so many standard deviations between members.

    Parameters
    ----------
    members : sequence of M Predictive
    pooled : Predictive
        Their pool, which gives the estimate.
    weights : array, shape (M,)
    scale : {"trafo", "cdf", "quantile"}
    at : array-like, optional
        Outcomes (``"trafo"``, ``"cdf"``) or probabilities (``"quantile"``,
        default the median), common to all rows. For outcomes on levels the
        default is every level but the last.
    width : float
        Half width of the band in standard deviations.

    Returns
    -------
    DataFrame
        One line per row and point: ``row, at, estimate, sd, lower, upper``, all
        on the scale asked for. On that of the CDF, ``sd`` is the standard deviation of
        the members' :math:`F_m`; the limits are those of h, transformed, so they
        stay within 0 and 1.

    Examples
    --------
    >>> a, b = (Predictive.from_trafo([[h]]) for h in (-1.0, 1.0))
    >>> epistemic_band([a, b], a, np.array([0.5, 0.5]), "trafo", None, 2.0)["sd"].round(4).tolist()
    [1.4142]
    """
    check_choice(scale, SCALES, "scale")
    if not (is_number(width) and 0 <= width < np.inf):
        raise InvalidInputError(
            f"width must be a number of standard deviations of at least 0, got {width!r}; the paper uses 2"
        )
    if scale == "quantile":
        return _quantile_band(members, pooled, weights, at, float(width))
    latent = pooled.latent or common_latent(members) or latents.get("logistic")
    points = _points(pooled, at)
    each = np.stack([_trafo(member, points, latent) for member in members])
    estimate = _trafo(pooled, points, latent)
    sd = np.sqrt(between_variance(each, weights))
    with np.errstate(invalid="ignore"):
        half: Array = width * sd
        lower, upper = estimate - half, estimate + half
    certain = np.isinf(estimate)  # nothing to disagree about, or everything: the band is the point itself
    lower, upper = np.where(certain, estimate, lower), np.where(certain, estimate, upper)
    if scale == "cdf":
        estimate, lower, upper = (np.asarray(latent.cdf(values)) for values in (estimate, lower, upper))
        sd = np.sqrt(between_variance(np.asarray(latent.cdf(each)), weights))
    return _frame(points, estimate, sd, lower, upper)


def _quantile_band(
    members: Sequence[Predictive], pooled: Predictive, weights: Array, at: Any, width: float
) -> pd.DataFrame:
    levels = np.atleast_1d(np.asarray(0.5 if at is None else at, dtype=float))
    if not ((levels > 0) & (levels < 1)).all():
        raise InvalidInputError(
            "at must hold probabilities strictly between 0 and 1 for scale='quantile', got "
            f"{levels.tolist()}; for example at=[0.1, 0.5, 0.9]"
        )
    if isinstance(pooled, DiscretePredictive) and np.asarray(pooled.levels).dtype.kind not in "iuf":
        raise UnsupportedError(
            f"quantiles have a standard deviation only for numeric outcomes, got levels "
            f"{list(pooled.levels)[:3]}; use scale='trafo' or 'cdf'"
        )
    each = np.stack([quantiles(member, levels) for member in members])
    estimate = np.asarray(pooled.quantile(levels), dtype=float)
    sd = np.sqrt(between_variance(each, weights))
    return _frame(levels, estimate, sd, estimate - width * sd, estimate + width * sd)


def quantiles(pred: Any, levels: Array) -> Array:
    """Return quantiles of a member, shape (n, Q); of lifetimes without a warning, which the pool gives."""
    if isinstance(pred, DiscretePredictive):
        return np.asarray(pred.quantile(levels), dtype=float)
    values = pred.quantile_t(torch.as_tensor(levels, dtype=pred.dtype))
    return np.asarray(as_numpy(values), dtype=float)


def _points(pooled: Predictive, at: Any) -> NDArray[Any]:
    if at is None:
        if isinstance(pooled, DiscretePredictive):
            return np.asarray(pooled.levels)[:-1]
        raise InvalidInputError(
            "at must say at which outcomes to look, got None for an outcome without levels; "
            "for example at=np.linspace(0, 10, 50)"
        )
    return np.atleast_1d(np.asarray(at))


def _trafo(pred: Predictive, points: NDArray[Any], latent: Latent) -> Array:
    """Return h at common points on the scale of a latent, shape (n, G)."""
    if isinstance(pred, DiscretePredictive):
        h = pred.trafo_t(latent).detach().numpy()
        full = np.concatenate([h, np.full((len(h), 1), np.inf)], axis=1)
        codes = [_code(pred.levels, point) for point in points]
        return np.asarray(full[:, codes])
    grid: Any = pred
    if pred.latent is not None and pred.latent == latent:
        return np.asarray(grid.trafo_grid(points.astype(float)))
    with np.errstate(divide="ignore"):
        tails = (np.log(np.asarray(tail(points.astype(float)))) for tail in (grid.cdf_grid, grid.sf_grid))
        return np.asarray(latent.from_log(*tails))


def _code(levels: tuple[Any, ...], point: Any) -> int:
    value = point.item() if isinstance(point, np.generic) else point
    if value not in levels:
        raise InvalidInputError(
            f"at must hold levels of the outcome, {', '.join(map(repr, levels[:6]))}, got {value!r}; "
            "leave at out for all of them"
        )
    return levels.index(value)


def _frame(points: NDArray[Any], estimate: Array, sd: Array, lower: Array, upper: Array) -> pd.DataFrame:
    n, count = estimate.shape
    return pd.DataFrame(
        {
            "row": np.repeat(np.arange(n), count),
            "at": np.tile(points, n),
            "estimate": estimate.ravel(),
            "sd": sd.ravel(),
            "lower": lower.ravel(),
            "upper": upper.ravel(),
        }
    )


# -- shares of the uncertainty -----------------------------------------------------------------------


def split_uncertainty(members: Sequence[Predictive], weights: Array) -> pd.DataFrame:
    """Return total, aleatoric and epistemic uncertainty of each row.

    Parameters
    ----------
    members : sequence of M Predictive
    weights : array, shape (M,)

    Returns
    -------
    DataFrame
        Columns ``total, aleatoric, epistemic`` with total = aleatoric +
        epistemic; ``attrs["measure"]`` is ``"entropy"`` (in nats) or
        ``"variance"``. A variance may be infinite.

    Examples
    --------
    >>> sure = [Predictive.from_proba([[1.0, 0.0]]), Predictive.from_proba([[0.0, 1.0]])]
    >>> split_uncertainty(sure, np.array([0.5, 0.5])).round(3).to_dict("records")
    [{'total': 0.693, 'aleatoric': 0.0, 'epistemic': 0.693}]
    """
    used = [(member, weight) for member, weight in zip(members, weights, strict=True) if weight > 0]
    shares = np.array([weight for _, weight in used])
    kept = [member for member, _ in used]
    discrete = [member for member in kept if isinstance(member, DiscretePredictive)]
    if discrete:
        total, aleatoric, measure = *_entropies(discrete, shares), "entropy"
        epistemic = np.maximum(total - aleatoric, 0.0)  # never negative but for rounding
    else:
        moments = [mean_and_variance(member) for member in kept]
        means = np.stack([mean for mean, _ in moments])
        aleatoric = shares @ np.stack([variance for _, variance in moments])
        epistemic = shares @ (means - shares @ means) ** 2
        measure = "variance"
    frame = pd.DataFrame({"total": aleatoric + epistemic, "aleatoric": aleatoric, "epistemic": epistemic})
    frame.attrs["measure"] = measure
    return frame


def _entropies(members: Sequence[DiscretePredictive], weights: Array) -> tuple[Array, Array]:
    logs = torch.stack([member.log_pmf_t().detach().to(torch.float64) for member in members])
    shares = torch.as_tensor(weights).reshape(-1, 1, 1)
    mixture = torch.logsumexp(logs + torch.log(shares), dim=0)
    aleatoric = (shares[:, :, 0] * _entropy(logs)).sum(dim=0)
    return _entropy(mixture).numpy(), aleatoric.numpy()


def _entropy(log_p: Tensor) -> Tensor:
    finite = torch.where(torch.isneginf(log_p), torch.zeros_like(log_p), log_p)
    return -(torch.exp(log_p) * finite).sum(dim=-1)


def mean_and_variance(pred: Predictive) -> tuple[Array, Array]:
    r"""Return mean and variance of each row of a distribution of numbers, each (n,).

    On the line by quadrature of :math:`\int Q(u)\,du` and :math:`\int Q(u)^2\,du` in logit(u), with the tails
    continued geometrically; infinite where they do not decay.

    Parameters
    ----------
    pred : Predictive

    Examples
    --------
    >>> import scipy.stats
    >>> mean_and_variance(Predictive.from_scipy(scipy.stats.norm([0.0, 5.0], 2.0)))[1].round(6)
    array([4., 4.])
    """
    if isinstance(pred, CountPredictive):
        return _count_moments(pred)
    parts = [_line_moments(pred[rows]) for rows in _pieces(len(pred))]
    return np.concatenate([mean for mean, _ in parts]), np.concatenate([variance for _, variance in parts])


def _line_moments(pred: Predictive) -> tuple[Array, Array]:
    nodes, weights = np.polynomial.legendre.leggauss(_NODES)
    edges = np.linspace(-_REACH, _REACH, _PANELS + 1)
    half = (edges[1] - edges[0]) / 2
    z = (edges[:-1, None] + half * (nodes + 1)).ravel()
    u = np.where(z < 0, np.exp(z) / (1 + np.exp(z)), 1 / (1 + np.exp(-z)))
    mass = np.exp(-np.abs(z)) / (1 + np.exp(-np.abs(z))) ** 2 * np.tile(weights, _PANELS) * half
    values = quantiles(pred, u)
    centre = quantiles(pred, np.array([0.5]))
    shifted = values - centre
    first = _with_tails((shifted * mass).reshape(len(values), _PANELS, _NODES).sum(axis=2))
    second = _with_tails((shifted**2 * mass).reshape(len(values), _PANELS, _NODES).sum(axis=2))
    with np.errstate(invalid="ignore"):
        variance = np.where(np.isinf(second), np.inf, second - first**2)
    return centre[:, 0] + first, variance


def _with_tails(panels: Array) -> Array:
    """Sum panels and continue both ends as geometric series; infinite where they grow."""
    total = panels.sum(axis=1)
    for last, before in ((panels[:, -1], panels[:, -2]), (panels[:, 0], panels[:, 1])):
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.where(before != 0, last / before, 0.0)
            rest = np.where(np.abs(ratio) < 1, last * ratio / (1 - ratio), np.sign(last) * np.inf)
        total = total + np.where(last == 0, 0.0, rest)
    return np.asarray(total)


def _count_moments(pred: CountPredictive) -> tuple[Array, Array]:
    r"""Return the moments from :math:`E Y = \sum S(k)` and :math:`E Y^2 = \sum (2k + 1) S(k)`."""
    ends = np.asarray(pred.quantile([_TINY, 1 - _TINY]), dtype=float)
    first, last = ends[:, :1], ends[:, 1:]
    if (last - first > _LONGEST).any():
        raise UnsupportedError(
            f"the variance of these counts needs a sum of more than {_LONGEST} terms; "
            "use quantiles, or treat the outcome as continuous"
        )
    mean, square = first[:, 0].copy(), first[:, 0] ** 2
    for start in range(0, int((last - first).max()) + 1, _BLOCK):
        k = first + start + np.arange(_BLOCK)
        survivor = torch.exp(pred.log_sf_t(torch.from_numpy(k).to(pred.dtype))).detach().numpy()
        survivor = np.where(k < last, survivor, 0.0)
        mean = mean + survivor.sum(axis=1)
        square = square + ((2 * k + 1) * survivor).sum(axis=1)
    return mean, square - mean**2


def _pieces(n: int) -> list[slice]:
    return [slice(start, min(start + _ROWS_AT_ONCE, n)) for start in range(0, n, _ROWS_AT_ONCE)]
