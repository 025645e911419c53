"""Predictives that ask a ``torch.distributions`` object, with gradients."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch import distributions as td

from deeptram import latent as latents
from deeptram._validation import first_rows
from deeptram.errors import InvalidInputError, InvalidTypeError, UnsupportedError
from deeptram.predictive.base import Predictive
from deeptram.predictive.count import CountPredictive
from deeptram.predictive.discrete import DiscretePredictive
from deeptram.predictive.line import LinePredictive
from deeptram.predictive.rows import RowMap, row_index
from deeptram.predictive.torch_tails import bounds, log_density, log_tails, quiet

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


class TorchLine(LinePredictive):
    """n continuous torch distributions.

    Examples
    --------
    >>> pred = predictive_of_torch(td.LogNormal(torch.zeros(1, dtype=torch.float64), 1.0))
    >>> pred.log_prob(-1.0), pred.median()
    (tensor([-inf], dtype=torch.float64), tensor([1.], dtype=torch.float64))
    """

    def __init__(self, distribution: Any, rows: RowMap) -> None:
        self.latent = None
        self.gives_numpy = False
        self.distribution = distribution
        self._map = rows
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

    def __len__(self) -> int:
        """Return the number of rows n."""
        return len(self._map)

    def __getitem__(self, rows: Any) -> TorchLine:
        """Return the distributions of some rows."""
        some = object.__new__(TorchLine)
        some.__dict__.update(self.__dict__)
        some._map = self._map.take(row_index(rows, len(self)))
        return some

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


class TorchCount(CountPredictive):
    """n torch distributions on the counts; both tails are summed from their own end.

    Examples
    --------
    >>> pred = predictive_of_torch(td.Poisson(torch.tensor([1.0, 4.0], dtype=torch.float64)))
    >>> pred.quantile(0.5)
    tensor([1., 4.], dtype=torch.float64)
    """

    def __init__(self, distribution: Any, rows: RowMap) -> None:
        self.latent = None
        self.gives_numpy = False
        self.distribution = distribution
        self._map = rows
        self.dtype = distribution.log_prob(torch.zeros(())).dtype
        self._table: tuple[Tensor, Tensor] | None = None

    def __len__(self) -> int:
        """Return the number of rows n."""
        return len(self._map)

    def __getitem__(self, rows: Any) -> TorchCount:
        """Return the distributions of some rows."""
        some = object.__new__(TorchCount)
        some.__dict__.update(self.__dict__)
        some._map = self._map.take(row_index(rows, len(self)))
        return some

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
