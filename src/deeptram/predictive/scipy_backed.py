"""Predictives that ask a SciPy distribution."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from scipy import stats
from torch import Tensor

from deeptram._validation import first_rows
from deeptram.errors import InvalidInputError, InvalidTypeError
from deeptram.latent import Latent
from deeptram.predictive.base import Predictive
from deeptram.predictive.count import CountPredictive
from deeptram.predictive.discrete import DiscretePredictive
from deeptram.predictive.line import LinePredictive
from deeptram.predictive.rows import RowMap, row_index

if TYPE_CHECKING:
    from typing_extensions import Self


@dataclasses.dataclass(frozen=True)
class _Methods:
    """The methods of a SciPy distribution under one set of names."""

    discrete: bool
    frozen: Any  # if of the kind whose parameters can be taken by rows
    log_cdf: Callable[..., Any]
    log_sf: Callable[..., Any]
    ppf: Callable[..., Any]
    isf: Callable[..., Any]
    log_density: Callable[..., Any]
    support: Callable[[], Any]
    mean: Callable[[], Any]


def predictive_of_scipy(frozen: Any) -> Predictive:
    """Return the predictive of a frozen or new-style SciPy distribution; see ``foreign.from_scipy``.

    Examples
    --------
    >>> predictive_of_scipy(stats.norm([0.0, 1.0], 1.0)).mean()
    array([0., 1.])
    """
    methods = _methods(frozen)
    try:
        at_zero = np.asarray(_quiet(methods.log_cdf, 0.0), dtype=np.float64)
    except TypeError as error:
        raise InvalidInputError(
            f"the parameters must be numbers, got some SciPy cannot compute with ({error}); correct them"
        ) from error
    shape = at_zero.shape
    if len(shape) > 1:
        raise InvalidInputError(
            f"the parameters must be numbers or vectors of length n, got a batch of shape {shape}; "
            "pass one parameter value per row"
        )
    n = shape[0] if shape else 1
    broken = np.isnan(np.broadcast_to(at_zero, (n,)))
    if broken.any():
        raise InvalidInputError(
            f"every row must be a distribution, got parameters for which SciPy's CDF is NaN in "
            f"{first_rows(broken)}; correct these parameters"
        )
    if not methods.discrete:
        return ScipyLine(methods, RowMap(n))
    if getattr(getattr(frozen, "dist", None), "name", "") == "bernoulli":
        log_pmf = _quiet(methods.log_density, np.array([[0.0], [1.0]])).T
        return DiscretePredictive.from_log_pmf(np.broadcast_to(log_pmf, (n, 2)).copy(), levels=(0, 1))
    negative = np.broadcast_to(methods.support()[0], (n,)) < 0
    if negative.any():
        raise InvalidInputError(
            f"a distribution of counts must start at 0 or above, got negative values possible in "
            f"{first_rows(negative)}; shift it, or use from_proba for a finite set of levels"
        )
    return ScipyCount(methods, RowMap(n))


class _Rows(Predictive):
    """What both kinds share: methods of n SciPy distributions and the rows in use."""

    _row_parts: ClassVar[tuple[str, ...]] = ("_map",)
    latent: Latent | None
    gives_numpy: bool

    def __init__(self, methods: _Methods, rows: RowMap) -> None:
        self.latent = None
        self.gives_numpy = True
        self._methods = methods
        self._map = rows

    def __getitem__(self, rows: Any) -> Self:
        """Return the distributions of some rows, with the parameters of these rows alone."""
        index, frozen = row_index(rows, len(self._map)), self._methods.frozen
        if frozen is None or len(index) == 0:
            return super().__getitem__(rows)

        def taken(parameter: Any) -> Any:
            return np.broadcast_to(parameter, (self._map.n,))[index.numpy()]

        named = {name: taken(value) for name, value in frozen.kwds.items()}
        methods = _methods(frozen.dist(*map(taken, frozen.args), **named))
        return self._with(_methods=methods, _map=RowMap(len(index)))

    def log_cdf_t(self, y: Tensor) -> Tensor:
        """Return log F(y), shape (n, G)."""
        return self._ask(self._methods.log_cdf, y)

    def log_sf_t(self, y: Tensor) -> Tensor:
        """Return log(1 - F(y)), shape (n, G)."""
        return self._ask(self._methods.log_sf, y)

    def quantile_t(self, q: Tensor) -> Tensor:
        """Return quantiles, shape (n, G), for q of shape (G,), (1, G) or (n, G)."""
        return self._ask(self._methods.ppf, torch.atleast_2d(q))

    def mean_t(self) -> Tensor:
        """Return SciPy's mean, shape (n,)."""
        return self._vector(_quiet(self._methods.mean))

    def _ask(self, function: Callable[..., Any], y: Tensor) -> Tensor:
        def evaluate(values: Tensor) -> Any:
            return np.asarray(_quiet(function, values.detach().numpy().T)).T

        return self._map.evaluate(evaluate, y)

    def _vector(self, values: Any) -> Tensor:
        return self._map.pick(torch.as_tensor(np.broadcast_to(values, (self._map.n,)).astype(np.float64)))


class ScipyLine(_Rows, LinePredictive):
    """n continuous SciPy distributions.

    Examples
    --------
    >>> predictive_of_scipy(stats.expon(scale=[1.0, 2.0])).hazard(5.0)
    array([1. , 0.5])
    """

    def log_pdf_t(self, y: Tensor) -> Tensor:
        finite = torch.isfinite(y)
        value = self._ask(self._methods.log_density, torch.where(finite, y, torch.zeros_like(y)))
        return torch.where(finite, value, torch.full_like(value, -torch.inf))

    def rough_quantile_t(self, q: Tensor) -> Tensor:
        return self.quantile_t(q)

    def own_inverse_t(self, z: Tensor) -> Tensor:
        tails = [torch.exp(log) for log in (self._own_latent.log_cdf_t(z), self._own_latent.log_sf_t(z))]
        asked = zip((self._methods.ppf, self._methods.isf), tails, strict=True)
        low, high = (self._ask(function, tail) for function, tail in asked)
        return torch.where(z < 0, low, high)

    def support_t(self) -> tuple[Tensor, Tensor]:
        low, high = self._methods.support()
        return self._vector(low).unsqueeze(1), self._vector(high).unsqueeze(1)


class ScipyCount(_Rows, CountPredictive):
    """n SciPy distributions on the counts.

    Examples
    --------
    >>> predictive_of_scipy(stats.geom([0.5, 0.25])).mean()
    array([2., 4.])
    """

    def log_pmf_t(self, k: Tensor) -> Tensor:
        return self._ask(self._methods.log_density, k)

    def quantile_t(self, q: Tensor) -> Tensor:
        # SciPy's answer for q = 0 is one below the support, and off by one where q = F(k) was rounded.
        q = torch.atleast_2d(q).expand(len(self), -1)
        return self._smallest(super().quantile_t(q).clamp(min=0), q)


def _methods(frozen: Any) -> _Methods:
    kind = getattr(frozen, "dist", None)
    if isinstance(kind, (stats.rv_continuous, stats.rv_discrete)):
        discrete, names = isinstance(kind, stats.rv_discrete), ("logsf", "ppf", "isf")
    elif callable(getattr(frozen, "logccdf", None)):  # the distribution objects of SciPy 1.15 and later
        discrete = bool(np.isposinf(_quiet(frozen.logpdf, frozen.median())).all())
        names = ("logccdf", "icdf", "iccdf")
    else:
        raise InvalidTypeError(
            f"from_scipy needs a frozen SciPy distribution, got {type(frozen).__name__}; "
            "call the distribution with its parameters first, as in scipy.stats.norm(loc, scale)"
        )
    every = ("logcdf", *names, "logpmf" if discrete else "logpdf", "support", "mean")
    sliceable = None if kind is None else frozen
    return _Methods(discrete, sliceable, *(getattr(frozen, name) for name in every))


def _quiet(function: Callable[..., Any], *values: Any) -> Any:
    with np.errstate(all="ignore"):
        return function(*values)
