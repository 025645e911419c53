r"""The beta-transformed linear pool (Ranjan and Gneiting 2010; Gneiting and Ranjan 2013).

.. math:: \bar F = B_{a,b}\Big(\sum_m w_m F_m\Big), \qquad
    \bar f = b_{a,b}\Big(\sum_m w_m F_m\Big) \sum_m w_m f_m,

with the CDF B and the density b of a beta distribution: a = b = 1 is the linear pool, a = b > 1 is sharper
than it, as linear pools of calibrated members have to be made. The two parameters are fitted together with
the weights (``dt.tune_weights(..., method="beta-linear")``).
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from scipy import special
from torch import Tensor

from deeptram._arrays import as_numpy
from deeptram._validation import check_number
from deeptram.errors import InvalidInputError
from deeptram.pooling.points import Intervals, Points
from deeptram.pooling.rule import CdfRule

Floats = npt.NDArray[np.float64]
_LEAST, _MOST = 1e-3, 1e3
_UNDERFLOW = 1e-290  # below, the incomplete beta function is taken from its series
_NARROW = np.log(1e-6)  # of a step relative to the CDF, below which its difference has lost too many digits
_LOG_2 = np.log(2.0)


class BetaLinear(CdfRule):
    """The beta-transformed linear pool.

    Parameters
    ----------
    a, b : float
        Between 0.001 and 1000; 1 and 1 are the linear pool.

    Examples
    --------
    >>> import deeptram as dt
    >>> members = [dt.Predictive.from_proba([[0.2, 0.8]]), dt.Predictive.from_proba([[0.6, 0.4]])]
    >>> dt.pool(members, method=dt.BetaLinear(2.0, 2.0)).cdf().round(3)  # 3 x^2 - 2 x^3 at x = 0.4
    array([[0.352, 1.   ]])
    """

    name: ClassVar[str] = "beta-linear"
    differentiable: ClassVar[bool] = True
    parameters: ClassVar[tuple[str, ...]] = ("a", "b")

    def __init__(self, a: float = 1.0, b: float = 1.0) -> None:
        self.a, self.b = check_number(a, "a", 0.0), check_number(b, "b", 0.0)
        if not (_LEAST <= self.a <= _MOST and _LEAST <= self.b <= _MOST):
            raise InvalidInputError(
                f"a and b must lie between {_LEAST:g} and {_MOST:g}, got {a} and {b}; "
                "let dt.tune_weights(..., method='beta-linear') choose them"
            )

    def log_cdf(self, at: Points) -> Tensor:
        """Return the log of the beta CDF at the mean CDF."""
        return log_beta_cdf(*self._tails(at), self.a, self.b)

    def log_sf(self, at: Points) -> Tensor:
        """Return the log of the beta survivor function at the mean CDF."""
        log_cdf, log_sf = self._tails(at)
        return log_beta_cdf(log_sf, log_cdf, self.b, self.a)

    def log_pdf(self, at: Points) -> Tensor:
        """Return the log of the beta density at the mean CDF plus the log of the mean density."""
        log_mean = at.log_mean(at.log_pdf())
        value = log_beta_pdf(*self._tails(at), self.a, self.b) + log_mean
        return torch.where(torch.isneginf(log_mean), log_mean, value)

    def log_mass(self, intervals: Intervals) -> Tensor:
        """Return the log of the step of the beta CDF; of narrow steps, its density times their width."""
        low, high = intervals.ends(lambda at: self._tails(at)[0])
        low_sf, high_sf = intervals.ends(lambda at: self._tails(at)[1])
        log_mass = intervals.log_mean(intervals.log_mass())
        narrow = log_mass < torch.minimum(high, low_sf) + _NARROW
        middle = torch.logaddexp(low, high) - _LOG_2, torch.logaddexp(low_sf, high_sf) - _LOG_2
        thin = log_mass + log_beta_pdf(*middle, self.a, self.b)
        return torch.where(narrow & torch.isfinite(log_mass), thin, super().log_mass(intervals))

    def _tails(self, at: Points) -> tuple[Tensor, Tensor]:
        log_cdf = at.once("linear", lambda: at.log_mean(at.log_cdf()))
        return log_cdf, at.once("linear sf", lambda: at.log_mean(at.log_sf()))


def log_beta_pdf(log_x: Tensor, log_rest: Tensor, a: float, b: float) -> Tensor:
    """Return the log-density of a beta distribution from log x and log(1 - x).

    Examples
    --------
    >>> half = torch.log(torch.tensor(0.5))
    >>> log_beta_pdf(half, half, 2.0, 2.0).exp()
    tensor(1.5000)
    """
    parts = [
        (power - 1) * log if power != 1 else torch.zeros_like(log)
        for power, log in ((a, log_x), (b, log_rest))
    ]
    return parts[0] + parts[1] - float(special.betaln(a, b))


def log_beta_cdf(log_x: Tensor, log_rest: Tensor, a: float, b: float) -> Tensor:
    """Return the log of the CDF of a beta distribution from log x and log(1 - x), also where it underflows.

    Examples
    --------
    >>> log_beta_cdf(torch.tensor(-1000.0), torch.tensor(-0.0), 3.0, 1.0)
    tensor(-3000.)
    """
    if a == b == 1:
        return log_x
    value: Tensor = _LogBetaCdf.apply(log_x, log_rest, a, b)  # type: ignore[no-untyped-call]
    return value


def beta_tail(x: Tensor, mirrored: Tensor, a: float, b: float) -> Tensor:
    """Return the beta CDF with parameters (a, b), or (b, a) where mirrored; ends need no computation.

    Examples
    --------
    >>> beta_tail(torch.tensor([0.5, 0.0]), torch.tensor([True, False]), 2.0, 1.0)
    tensor([0.7500, 0.0000])
    """
    if a == b == 1:
        return x
    points, other = as_numpy(x), as_numpy(mirrored)
    value = points.copy()
    inside = (points > 0) & (points < 1)
    first, second = np.where(other[inside], b, a), np.where(other[inside], a, b)
    value[inside] = special.betainc(first, second, points[inside])
    return torch.from_numpy(value)


class _LogBetaCdf(torch.autograd.Function):
    """SciPy's incomplete beta function on the log scale, with its derivative in log x."""

    @staticmethod
    def forward(ctx: Any, log_x: Tensor, log_rest: Tensor, a: float, b: float) -> Tensor:
        """Return log I_x(a, b)."""
        numbers = (as_numpy(log_x.detach()).astype(float), as_numpy(log_rest.detach()).astype(float))
        value = torch.from_numpy(_log_betainc(*numbers, a, b)).to(log_x.dtype)
        ctx.save_for_backward(log_x, log_rest, value)
        ctx.a, ctx.b = a, b
        return value

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        """Return the derivative, x b(x) / I_x, which is a where x = 0, and none where x = 1."""
        log_x, log_rest, value = ctx.saved_tensors
        slope = torch.exp(log_beta_pdf(log_x, log_rest, ctx.a, ctx.b) + log_x - value)
        slope = torch.where(torch.isneginf(value), torch.full_like(slope, ctx.a), slope)
        # A mean of 1 consists of ones, which no weights move, however steep B is there.
        slope = torch.where(torch.isneginf(log_rest), torch.zeros_like(slope), slope)
        return gradients[0] * slope, None, None, None


def _log_betainc(log_x: Floats, log_rest: Floats, a: float, b: float) -> Floats:
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        x, rest = (np.exp(np.minimum(log, 0)) for log in (log_x, log_rest))  # weights may sum to 1 + 2e-16
        value = special.betainc(a, b, x)
        upper = value > 0.5
        rest_value = special.betainc(b, a, rest, where=upper, out=np.zeros(np.shape(value)))
        result = np.where(upper, np.log1p(-rest_value), np.log(value))
        small = (value < _UNDERFLOW) & (x < 1)
        if small.any():
            series = np.log(special.hyp2f1(a + b, 1.0, a + 1, x[small])) - np.log(a) - special.betaln(a, b)
            result[small] = a * log_x[small] + b * log_rest[small] + series
    return np.asarray(result)
