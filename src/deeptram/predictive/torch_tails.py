"""Both tails of ``torch.distributions`` on the log scale, accurate where torch's ``cdf`` rounds to 0 or 1."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch import distributions as td
from torch.nn.functional import logsigmoid

from deeptram._numerics import LOG_2, log1mexp, log1mexp_of_log

Tails = tuple[Tensor, Tensor]


def quiet(distribution: Any) -> Any:
    """Return a copy that does not raise at values outside its support, nor do its parts.

    Examples
    --------
    >>> float(quiet(td.Exponential(1.0)).cdf(torch.tensor(0.0)))
    0.0
    """
    result = copy.copy(distribution)
    result._validate_args = False
    for name, part in vars(distribution).items():
        if isinstance(part, td.Distribution):
            setattr(result, name, quiet(part))
    return result


def bounds(distribution: Any, like: Tensor) -> Tails:
    """Return lower and upper end of the support, broadcast against ``like``.

    Examples
    --------
    >>> bounds(td.Exponential(1.0), torch.zeros(1))
    (tensor([0.]), tensor([inf]))
    """
    ends = (
        getattr(distribution.support, "lower_bound", -torch.inf),
        getattr(distribution.support, "upper_bound", torch.inf),
    )
    low, high = (torch.as_tensor(end, dtype=like.dtype).expand(like.shape) for end in ends)
    return low, high


def log_tails(distribution: Any, y: Tensor) -> Tails:
    """Return log F(y) and log(1 - F(y)) for values whose last axis is the batch; any real y.

    Examples
    --------
    >>> log_tails(td.Normal(0.0, 1.0), torch.tensor([40.0], dtype=torch.float64))[1]
    tensor([-804.6084], dtype=torch.float64)
    """
    low, high = bounds(distribution, y)
    below, above = y <= low, y >= high
    log_cdf, log_sf = _rule(distribution)(distribution, _inside(y, below | above, low, high))
    nothing, all_of_it = torch.full_like(log_cdf, -torch.inf), torch.zeros_like(log_cdf)
    log_cdf = torch.where(below, nothing, torch.where(above, all_of_it, log_cdf))
    log_sf = torch.where(below, all_of_it, torch.where(above, nothing, log_sf))
    return log_cdf, log_sf


def log_density(distribution: Any, y: Tensor) -> Tensor:
    """Return log f(y), minus infinity outside the support and at infinity.

    Examples
    --------
    >>> log_density(td.Exponential(1.0), torch.tensor([-1.0, 2.0]))
    tensor([-inf, -2.])
    """
    low, high = bounds(distribution, y)
    outside = ~distribution.support.check(y) | torch.isinf(y)
    safe = _inside(y, outside, low, high)
    if _rule(distribution) is _transformed:
        base, _, x, log_slope = _base_value(distribution, safe)
        value = (logsigmoid(x) + logsigmoid(-x) if base is None else log_density(base, x)) + log_slope
    else:
        value = distribution.log_prob(safe)
    return torch.where(outside, torch.full_like(value, -torch.inf), value)


def _inside(y: Tensor, outside: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """Replace values outside by some value inside the support."""
    left = torch.where(
        torch.isfinite(low), low, torch.where(torch.isfinite(high), high - 2, torch.full_like(y, -1))
    )
    right = torch.where(torch.isfinite(high), high, left + 2)
    return torch.where(outside, (left + right) / 2, y)


def _rule(distribution: Any) -> Callable[[Any, Tensor], Tails]:
    for kind in type(distribution).__mro__:
        if kind in RULES:
            return RULES[kind]
    return _from_cdf


def _from_cdf(d: Any, y: Tensor) -> Tails:
    cdf = d.cdf(y)
    return torch.log(cdf), torch.log1p(-cdf)


def _normal(d: td.Normal, y: Tensor) -> Tails:
    z = (y - d.loc) / d.scale
    return torch.special.log_ndtr(z), torch.special.log_ndtr(-z)


def _laplace(d: td.Laplace, y: Tensor) -> Tails:
    z = (y - d.loc) / d.scale
    near = -z.abs() - LOG_2
    far = torch.log1p(-torch.exp(near))
    return torch.where(z < 0, near, far), torch.where(z < 0, far, near)


def _cauchy(d: td.Cauchy, y: Tensor) -> Tails:
    z = (y - d.loc) / d.scale
    near = torch.log(torch.atan2(torch.ones_like(z), z.abs()) / math.pi)
    far = torch.log1p(-torch.exp(near))
    return torch.where(z < 0, near, far), torch.where(z < 0, far, near)


def _exponential(d: td.Exponential, y: Tensor) -> Tails:
    return log1mexp(d.rate * y), -d.rate * y


def _gumbel(d: td.Gumbel, y: Tensor) -> Tails:
    z = (y - d.loc) / d.scale
    return -torch.exp(-z), log1mexp_of_log(-z)


def _half_normal(d: td.HalfNormal, y: Tensor) -> Tails:
    log_sf = LOG_2 + torch.special.log_ndtr(-y / d.scale)
    return log1mexp(-log_sf), log_sf


def _mixture(d: Any, y: Tensor) -> Tails:
    log_weights = torch.log_softmax(d.mixture_distribution.logits, dim=-1)
    log_cdf, log_sf = log_tails(d.component_distribution, y.unsqueeze(-1))
    return torch.logsumexp(log_weights + log_cdf, dim=-1), torch.logsumexp(log_weights + log_sf, dim=-1)


def _transformed(d: Any, y: Tensor) -> Tails:
    base, sign, x, _ = _base_value(d, y)
    if base is None:
        log_cdf, log_sf = logsigmoid(x), logsigmoid(-x)
    else:
        log_cdf, log_sf = log_tails(base, x)
    up = torch.as_tensor(sign) > 0
    return torch.where(up, log_cdf, log_sf), torch.where(up, log_sf, log_cdf)


def _base_value(d: Any, y: Tensor) -> tuple[Any, Any, Tensor, Tensor]:
    """Return the base distribution, the direction, the base value x of y, and log |dx/dy|.

    The logistic distribution is written in torch as a uniform variable behind
    an inverse sigmoid; there 1 - u is lost for large y. It is returned as the
    base ``None`` (standard logistic) with the value before the sigmoid.
    """
    transforms, base = d.transforms, d.base_dist
    logistic = (
        isinstance(base, td.Uniform)
        and isinstance(transforms[0].inv, td.SigmoidTransform)
        and bool((base.low == 0).all() and (base.high == 1).all())
    )
    sign: Any = 1
    x, log_slope = y, torch.zeros_like(y)
    for step in reversed(transforms[1:] if logistic else transforms):
        image, x = x, step.inv(x)
        sign = sign * step.sign
        log_slope = log_slope - step.log_abs_det_jacobian(x, image)
    return (None if logistic else base), sign, x, log_slope


RULES: dict[type, Callable[[Any, Tensor], Tails]] = {
    td.Normal: _normal,
    td.Laplace: _laplace,
    td.Cauchy: _cauchy,
    td.Exponential: _exponential,
    td.Gumbel: _gumbel,
    td.HalfNormal: _half_normal,
    td.HalfCauchy: _from_cdf,
    td.MixtureSameFamily: _mixture,
    td.TransformedDistribution: _transformed,
}
