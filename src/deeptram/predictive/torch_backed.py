"""Predictives that ask a ``torch.distributions`` object, with gradients and accurate in both tails."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch import distributions as td
from torch.nn.functional import logsigmoid

from deeptram import latent as latents
from deeptram._numerics import LOG_2, log1mexp, log1mexp_of_log
from deeptram._validation import first_rows
from deeptram.errors import InvalidInputError, InvalidTypeError, UnsupportedError
from deeptram.latent import Latent
from deeptram.predictive.base import Predictive
from deeptram.predictive.count import CountPredictive
from deeptram.predictive.discrete import DiscretePredictive
from deeptram.predictive.line import LinePredictive
from deeptram.predictive.rows import RowMap

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


_LARGEST_TABLE = 10**7


def predictive_of_torch(distribution: Any) -> Predictive:
    """Return the predictive of a torch distribution; see ``foreign.from_torch``.

    Examples
    --------
    >>> predictive_of_torch(td.Bernoulli(logits=torch.zeros(2, dtype=torch.float64))).pmf(1)
    tensor([0.5000, 0.5000], dtype=torch.float64)
    """
    if not isinstance(distribution, td.Distribution):
        raise InvalidTypeError(
            f"from_torch needs a torch.distributions object, got {type(distribution).__name__}; "
            "build one from the network's output, as in torch.distributions.Normal(loc, scale)"
        )
    if isinstance(distribution, (td.Categorical, td.OneHotCategorical)):
        return DiscretePredictive.from_log_pmf(torch.log_softmax(_batch(distribution.logits, 2), dim=-1))
    if isinstance(distribution, td.Bernoulli):
        h = -_batch(distribution.logits, 1).unsqueeze(1)
        return DiscretePredictive.from_h(h, latent=latents.get("logistic"))
    if len(distribution.batch_shape) > 1 or len(distribution.event_shape) > 0:
        raise InvalidInputError(
            f"the distribution must have batch shape (n,) and scalar events, got batch shape "
            f"{tuple(distribution.batch_shape)} and event shape {tuple(distribution.event_shape)}; "
            "build one scalar distribution per row"
        )
    n = distribution.batch_shape[0] if distribution.batch_shape else 1
    support: Any = distribution.support
    if support.is_discrete:
        return TorchCount(quiet(distribution), RowMap(n))
    return TorchLine(quiet(distribution), RowMap(n))


def _batch(values: Tensor, ndim: int) -> Tensor:
    if values.ndim not in (ndim, ndim - 1):
        raise InvalidInputError(
            f"the distribution must have batch shape (n,), got parameters of shape {tuple(values.shape)}; "
            "build one distribution per row"
        )
    return values if values.ndim == ndim else values.unsqueeze(0)


class _Batch:
    """What both kinds share: a batch of n torch distributions and the rows in use."""

    _row_parts: ClassVar[tuple[str, ...]] = ("_map",)
    latent: Latent | None

    def __init__(self, distribution: Any, rows: RowMap) -> None:
        self.latent, self.gives_numpy = None, False
        self.distribution, self._map = distribution, rows


class TorchLine(_Batch, LinePredictive):
    """n continuous torch distributions.

    Examples
    --------
    >>> pred = predictive_of_torch(td.LogNormal(torch.zeros(1, dtype=torch.float64), 1.0))
    >>> pred.log_prob(-1.0), pred.median()
    (tensor([-inf], dtype=torch.float64), tensor([1.], dtype=torch.float64))
    """

    def __init__(self, distribution: Any, rows: RowMap) -> None:
        super().__init__(distribution, rows)
        probe = _some_value(distribution)
        try:
            tail = log_tails(distribution, probe)[0]
        except NotImplementedError as error:
            raise UnsupportedError(
                f"from_torch needs a distribution with a CDF, got {type(distribution).__name__}, for which "
                "torch has none; use from_scipy with the same distribution of scipy.stats"
            ) from error
        broken = torch.isnan(tail.detach()).reshape(-1)
        if bool(broken.any()):
            raise InvalidInputError(
                "every row must be a distribution, got parameters for which the CDF is NaN in "
                f"{first_rows(broken.numpy())}; correct these parameters"
            )
        self.dtype = tail.dtype

    def log_cdf_t(self, y: Tensor) -> Tensor:
        return self._map.evaluate(lambda v: log_tails(self.distribution, v.T)[0].T, y)

    def log_sf_t(self, y: Tensor) -> Tensor:
        return self._map.evaluate(lambda v: log_tails(self.distribution, v.T)[1].T, y)

    def log_pdf_t(self, y: Tensor) -> Tensor:
        return self._map.evaluate(lambda v: log_density(self.distribution, v.T).T, y)

    def support_t(self) -> tuple[Tensor, Tensor]:
        low, high = bounds(self.distribution, torch.zeros(self._map.n, dtype=self.dtype))
        return self._map.pick(low.detach()).unsqueeze(1), self._map.pick(high.detach()).unsqueeze(1)

    def quantile_t(self, q: Tensor) -> Tensor:
        q = torch.atleast_2d(q).to(self.dtype).expand(len(self), -1)
        target = self._own_latent.icdf_t(q)
        try:
            with torch.no_grad():
                y = self._map.evaluate(lambda v: self.distribution.icdf(v.T).T, q)
                # torch's own inverse loses digits in the tails.
                y = self._polish(y, target)
                lower, upper = self.support_t()
                y = torch.where(torch.isneginf(target), lower, torch.where(torch.isposinf(target), upper, y))
        except NotImplementedError:
            return super().quantile_t(q)
        return self._with_gradient(y, target)

    def mean_t(self) -> Tensor:
        try:
            return self._map.pick(self.distribution.mean.expand(self._map.n))
        except NotImplementedError:
            return super().mean_t()


class TorchCount(_Batch, CountPredictive):
    """n torch distributions on the counts; both tails are summed from their own end.

    Examples
    --------
    >>> pred = predictive_of_torch(td.Poisson(torch.tensor([1.0, 4.0], dtype=torch.float64)))
    >>> pred.quantile(0.5)
    tensor([1., 4.], dtype=torch.float64)
    """

    def __init__(self, distribution: Any, rows: RowMap) -> None:
        super().__init__(distribution, rows)
        self.dtype = distribution.log_prob(torch.zeros(())).dtype
        self._table: tuple[Tensor, Tensor] | None = None

    def log_pmf_t(self, k: Tensor) -> Tensor:
        return self._map.evaluate(lambda v: self._log_prob(v.T).T, k)

    def log_cdf_t(self, k: Tensor) -> Tensor:
        return self._look_up(k, 0)

    def log_sf_t(self, k: Tensor) -> Tensor:
        return self._look_up(k, 1)

    def mean_t(self) -> Tensor:
        return self._map.pick(self.distribution.mean.expand(self._map.n))

    def _refuse_endless(self, first: Tensor) -> None:
        """Do nothing: the tails of torch's count distributions are light, and the tables limit their size."""

    def _log_prob(self, k: Tensor) -> Tensor:
        inside = self.distribution.support.check(k) & torch.isfinite(k)
        value = self.distribution.log_prob(torch.where(inside, k, torch.zeros_like(k)))
        return torch.where(inside, value, torch.full_like(value, -torch.inf))

    def _look_up(self, k: Tensor, which: int) -> Tensor:
        k = k.expand(len(self), -1)
        beyond = torch.isinf(k)
        largest = int(torch.where(beyond, torch.zeros_like(k), k).max()) if k.numel() else 0
        table = self._tables(largest)[which]
        index = torch.where(beyond, torch.zeros_like(k), k).to(torch.int64)
        value = self._map.pick(table).gather(1, index)
        return torch.where(beyond, torch.full_like(value, -torch.inf if which else 0.0), value)

    def _tables(self, largest: int) -> tuple[Tensor, Tensor]:
        """Return log F and log(1 - F) at 0, 1, ..., beyond twice the largest count asked for."""
        if self._table is not None and self._table[0].shape[1] > 2 * largest:
            return self._table
        size = max(2 * largest + 64, 2 * int(self.distribution.mean.detach().max()))
        while True:
            if size * self._map.n > _LARGEST_TABLE:
                raise UnsupportedError(
                    f"sums over counts up to {size} do not fit in memory for {self._map.n} rows; "
                    "use from_scipy with the same distribution of scipy.stats"
                )
            log_pmf = self._log_prob(torch.arange(size, dtype=self.dtype).unsqueeze(1)).T.expand(
                self._map.n, -1
            )
            # Beyond the table the probabilities fall at least as fast as a geometric series.
            log_ratio = torch.nan_to_num(log_pmf[:, -1] - log_pmf[:, -2], nan=-torch.inf)
            log_rest = log_pmf[:, -1] + log_ratio - torch.log(-torch.expm1(log_ratio.clamp(max=-1e-300)))
            if bool(((log_ratio < 0) & (log_rest < -40.0)).all()):
                break
            size *= 2
        log_cdf = torch.logcumsumexp(log_pmf, dim=1)
        upper = torch.cat([log_pmf[:, 1:], log_rest.unsqueeze(1)], dim=1)
        log_sf = torch.logcumsumexp(upper.flip(1), dim=1).flip(1)
        small = log_cdf < log_sf
        half = torch.full_like(log_cdf, -1.0)
        self._table = (
            torch.where(small, log_cdf, torch.log1p(-torch.exp(torch.where(small, half, log_sf)))),
            torch.where(small, torch.log1p(-torch.exp(torch.where(small, log_cdf, half))), log_sf),
        )
        return self._table


def _some_value(distribution: Any) -> Tensor:
    """Return a value inside the support, in the type of the distribution's parameters."""
    parameters = [
        getattr(distribution, name)
        for name in getattr(distribution, "arg_constraints", {})
        if isinstance(getattr(distribution, name, None), Tensor)
    ]
    base = getattr(distribution, "base_dist", None) or getattr(distribution, "component_distribution", None)
    dtype = (
        parameters[0].dtype if parameters else _some_value(base).dtype if base else torch.get_default_dtype()
    )
    n = distribution.batch_shape[0] if distribution.batch_shape else 1
    return torch.zeros(n, dtype=dtype)
