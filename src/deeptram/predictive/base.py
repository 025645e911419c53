"""``Predictive``: one distribution per row, the type everything else speaks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from numpy.typing import ArrayLike
from torch import Tensor

from deeptram import latent as latents
from deeptram._arrays import as_numpy
from deeptram._numerics import log_mass_between
from deeptram._validation import check_probability_level
from deeptram.errors import UnsupportedError
from deeptram.latent import Latent
from deeptram.predictive.pictures import described, picture
from deeptram.predictive.rows import (
    grid_values,
    horizons,
    probabilities,
    row_index,
    row_values,
    uniforms,
)

if TYPE_CHECKING:
    from typing_extensions import Self


class Predictive(ABC):
    """A predictive distribution for each of n rows.

    Everything downstream (pools, weights, scores, metrics, calibration) needs
    nothing but this. It may come from a deeptram model, from a pool, or from
    anybody's software through the ``from_*`` constructors.

    Built from NumPy, its methods return NumPy; built from tensors, they return
    tensors that carry gradients.

    Implementing a predictive distribution:

    - On a finite, ordered set of levels: build a ``DiscretePredictive``.
    - On the real line: inherit from ``LinePredictive`` and implement its three
      log-scale tensor methods.
    - Say in ``_row_parts`` which attributes hold something of every row (tensors, distributions), and in
      ``_shared_parts`` those that may hold one row for all: these are what ``pred[rows]`` selects from.

    Attributes
    ----------
    latent : Latent or None
        The latent distribution on whose scale ``trafo`` is given natively.
    levels : tuple or None
        The ordered outcome levels (discrete outcomes only).
    pool_info : PoolInfo or None
        How a pooled distribution was made (method, weights, latent); None for any other.
    observed : (float, float) or None
        Range of the uncensored outcomes that a model (all members of a pool) was fitted to, as far as known.
    kind : {"discrete", "count", "continuous"}
    lifetimes : bool
        Whether the outcome is a time from zero on. Its quantiles beyond the last observed time are an
        extrapolation: they come with an ``ExtrapolationWarning`` and are drawn dashed.

    Examples
    --------
    >>> pred = Predictive.from_proba([[0.2, 0.5, 0.3], [0.1, 0.1, 0.8]], levels=["low", "mid", "high"])
    >>> len(pred), pred.mode().tolist()
    (2, ['mid', 'high'])
    """

    latent: Latent | None
    levels: tuple[Any, ...] | None
    pool_info: Any = None
    observed: tuple[float, float] | None = None
    lifetimes: bool = False
    gives_numpy: bool
    kind: ClassVar[str]
    _row_parts: ClassVar[tuple[str, ...]] = ()
    _shared_parts: ClassVar[tuple[str, ...]] = ()

    # -- constructors for anybody's models ---------------------------------------------------

    @staticmethod
    def from_cdf(cdf: Any, levels: Sequence[Any] | None = None) -> Predictive:
        """Build from the CDF at the levels, shape (n, K) ending in 1; see ``foreign.from_cdf``."""
        from deeptram.predictive import foreign

        return foreign.from_cdf(cdf, levels)

    @staticmethod
    def from_proba(proba: Any, levels: Sequence[Any] | None = None) -> Predictive:
        """Build from class probabilities, shape (n, K); see ``foreign.from_proba``."""
        from deeptram.predictive import foreign

        return foreign.from_proba(proba, levels)

    @staticmethod
    def from_trafo(
        h: Any, levels: Sequence[Any] | None = None, latent: str | Latent = "logistic"
    ) -> Predictive:
        """Build from transformation values h, shape (n, K - 1); see ``foreign.from_trafo``."""
        from deeptram.predictive import foreign

        return foreign.from_trafo(h, levels, latent)

    @staticmethod
    def from_scipy(frozen: Any) -> Predictive:
        """Build from a frozen SciPy distribution with n-vectors of parameters."""
        from deeptram.predictive import foreign

        return foreign.from_scipy(frozen)

    @staticmethod
    def from_torch(distribution: Any) -> Predictive:
        """Build from a ``torch.distributions`` object with batch shape (n,)."""
        from deeptram.predictive import foreign

        return foreign.from_torch(distribution)

    @staticmethod
    def from_quantiles(q: Any, values: Any) -> Predictive:
        """Build from quantiles: probabilities q (Q,) and values (n, Q)."""
        from deeptram.predictive import foreign

        return foreign.from_quantiles(q, values)

    @staticmethod
    def from_samples(draws: Any) -> Predictive:
        """Build from posterior or forecast draws, shape (n, draws)."""
        from deeptram.predictive import foreign

        return foreign.from_samples(draws)

    @staticmethod
    def from_survival(times: Any, survival: Any) -> Predictive:
        """Build from survival curves of any software: times (T,) and survival (n, T)."""
        from deeptram.predictive import foreign

        return foreign.from_survival(times, survival)

    @staticmethod
    def from_sklearn(model: Any, X: Any, levels: Sequence[Any] | None = None) -> Predictive:
        """Build from a fitted scikit-learn classifier: ``predict_proba(X)``; ``levels``: their order."""
        from deeptram.predictive import foreign

        return foreign.from_sklearn(model, X, levels)

    # -- the distribution ---------------------------------------------------------------------

    def __len__(self) -> int:
        """Return the number of rows n."""
        return len(getattr(self, self._row_parts[0]))

    @property
    @abstractmethod
    def support(self) -> tuple[Any, Any]:
        """Smallest and largest possible outcome over all rows: numbers (perhaps infinite), or levels."""

    def __getitem__(self, rows: Any) -> Self:
        """Return the distributions of some rows (slice, integer array or mask)."""
        index = row_index(rows, len(self))
        parts = {name: part for name in self._row_parts if (part := getattr(self, name)) is not None}
        for name in self._shared_parts:
            part = getattr(self, name)
            if part is not None and len(part) > 1:
                parts[name] = part
        return self._with(**{name: _rows_of(part, index) for name, part in parts.items()})

    @abstractmethod
    def cdf(self, y: Any = None) -> Any:
        """Return P(Y <= y): y a scalar or one value per row gives (n,)."""

    @abstractmethod
    def sf(self, y: Any = None) -> Any:
        """Return P(Y > y), accurate in the upper tail."""

    @abstractmethod
    def log_prob(self, y: Any) -> Any:
        """Return the log-likelihood of each row's outcome (censored y too), shape (n,)."""

    @abstractmethod
    def trafo(self, y: Any = None) -> Any:
        r"""Return :math:`F_Z^{-1}(F(y))` on the scale of ``latent`` (logistic if None)."""

    @abstractmethod
    def quantile(self, q: Any) -> Any:
        """Return quantiles: scalar q gives (n,), a vector of length Q gives (n, Q)."""

    @abstractmethod
    def mean(self) -> Any:
        """Return the expectation of each row."""

    @abstractmethod
    def mode(self) -> Any:
        """Return the most likely value of each row."""

    @abstractmethod
    def crps(self, y: Any) -> Any:
        """Return the continuous ranked probability score of each row (smaller is better)."""

    @abstractmethod
    def cdf_grid(self, grid: ArrayLike) -> Any:
        """Return P(Y <= g) for every g of a common grid, shape (n, len(grid))."""

    @abstractmethod
    def hazard(self, t: Any) -> Any:
        """Return the hazard at t (density over survivor; P(Y = t | Y >= t) if discrete).

        Where nothing is left, P(Y > t) = 0 (discrete: P(Y >= t) = 0), it is infinite (discrete: 1).
        """

    @abstractmethod
    def sample(self, size: int = 1, random_state: Any = None) -> Any:
        """Draw ``size`` outcomes per row, shape (n, size)."""

    def median(self) -> Any:
        """Return the median of each row."""
        return self.quantile(0.5)

    def interval(self, level: float = 0.95) -> tuple[Any, Any]:
        """Return the central prediction interval as (lower, upper), each (n,)."""
        level = check_probability_level(level)
        return self.quantile((1 - level) / 2), self.quantile((1 + level) / 2)

    def survivor(self, t: Any) -> Any:
        """Return P(Y > t); the name survival analysts know ``sf`` by."""
        return self.sf(t)

    @abstractmethod
    def cumhazard(self, t: Any) -> Any:
        """Return the cumulative hazard -log P(Y > t), finite where the survivor underflows."""

    def rmst(self, tau: Any) -> Any:
        r"""Return the restricted mean :math:`\int_0^\tau P(Y > t) dt` (numbers, not levels), shape (n,)."""
        raise UnsupportedError(f"rmst is for times and counts, got the levels {self.levels}; use mean()")

    def pmf(self, y: Any = None) -> Any:
        """Return point probabilities (discrete and count outcomes)."""
        raise UnsupportedError(
            f"pmf is for discrete outcomes and counts, got a {type(self).__name__} on the line; use pdf(y)"
        )

    def pdf(self, y: Any) -> Any:
        """Return the density at y (outcomes on the real line)."""
        raise UnsupportedError(f"pdf is for continuous outcomes, got a {type(self).__name__}; use pmf")

    @property
    def is_nominal(self) -> bool:
        """Whether the outcome has three or more levels without an order."""
        return False

    @property
    def _own_latent(self) -> Latent:
        return self.latent if self.latent is not None else latents.get("logistic")

    def _with(self, **changes: Any) -> Self:
        """Return a copy with other values of some attributes, for instance those of some rows."""
        some = object.__new__(type(self))
        some.__dict__.update(self.__dict__, **changes)
        return some

    # -- shown in a session -------------------------------------------------------------------

    def __repr__(self) -> str:
        """Return class, number of rows, levels and scale in one line."""
        return described(self)

    def _repr_html_(self) -> str:
        """Show the first rows as small distributions in a notebook."""
        return picture(self)

    # -- the edge between NumPy and torch -----------------------------------------------------

    def _out(self, value: Tensor) -> Any:
        """Answer in kind: NumPy when the object was built from NumPy; what it holds itself as a copy."""
        if any(value is getattr(self, name) for name in self._row_parts):
            value = value.clone()
        return as_numpy(value) if self.gives_numpy else value


def _rows_of(part: Any, index: Tensor) -> Any:
    """Return some rows; of tensors whole ones are copied at once, which indexing does not do."""
    return part.index_select(0, index) if isinstance(part, Tensor) else part[index]


class NumericPredictive(Predictive):
    """n distributions of numbers: what the line and the counts have in common.

    Tensors in, tensors out: values y have the shape (n, G) or, for a common grid, (1, G).
    """

    levels = None
    dtype: torch.dtype = torch.float64

    # -- to implement -------------------------------------------------------------------------

    @abstractmethod
    def log_cdf_t(self, y: Tensor) -> Tensor:
        """Return log F(y), shape (n, G)."""

    @abstractmethod
    def log_sf_t(self, y: Tensor) -> Tensor:
        """Return log(1 - F(y)), shape (n, G)."""

    @abstractmethod
    def log_density_t(self, y: Tensor) -> Tensor:
        """Return the log-density on the line, the log-probability of counts, shape (n, G)."""

    @abstractmethod
    def quantile_t(self, q: Tensor) -> Tensor:
        """Return quantiles, shape (n, G), of probabilities q of shape (G,), (1, G) or (n, G)."""

    @abstractmethod
    def mean_t(self) -> Tensor:
        """Return expectations, shape (n,)."""

    @abstractmethod
    def mode_t(self) -> Tensor:
        """Return the most likely values, shape (n,)."""

    @abstractmethod
    def crps_t(self, y: Tensor) -> Tensor:
        """Return the CRPS, shape (n,), for outcomes y of shape (n, 1)."""

    @abstractmethod
    def rmst_t(self, tau: Tensor) -> Tensor:
        """Return restricted means, shape (n,), for positive tau of shape (n, 1)."""

    # -- may be overridden --------------------------------------------------------------------

    def log_tails_t(self, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return log F(y) and log(1 - F(y)) together."""
        return self.log_cdf_t(y), self.log_sf_t(y)

    def smooth_tails_t(self, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return the log-tails that go with the density; of a step function, those of a smooth estimate."""
        return self.log_tails_t(y)

    def trafo_t(self, y: Tensor, latent: Latent | None = None) -> Tensor:
        r"""Return :math:`h(y) = F_Z^{-1}(F(y))` on the scale of ``latent`` (default: the native one)."""
        latent = self._own_latent if latent is None else latent
        return latent.from_log_t(*self.smooth_tails_t(y))

    def log_interval_t(self, lower: Tensor, upper: Tensor) -> Tensor:
        """Return log(F(upper) - F(lower)) from whichever tail is accurate, shape (n, G)."""
        return log_mass_between(self.smooth_tails_t(lower), self.smooth_tails_t(upper))

    # -- the public distribution --------------------------------------------------------------

    def cdf(self, y: Any = None) -> Any:
        """Return P(Y <= y), shape (n,); y is a number or one value per row."""
        return self._out(self._cdf_t(self._rows(y))[:, 0])

    def sf(self, y: Any = None) -> Any:
        """Return P(Y > y), accurate in the upper tail, shape (n,)."""
        return self._out(self.sf_t(self._rows(y))[:, 0])

    def trafo(self, y: Any = None) -> Any:
        r"""Return :math:`F_Z^{-1}(F(y))` on the scale of ``latent`` (logistic if None), shape (n,)."""
        return self._out(self._any_trafo_t(self._rows(y))[:, 0])

    def cumhazard(self, t: Any) -> Any:
        """Return the cumulative hazard -log P(Y > t), shape (n,)."""
        return self._out(-self.any_log_sf_t(self._rows(t, "t"))[:, 0])

    def mean(self) -> Any:
        """Return the expectation of each row; infinite where the tail is too heavy for one."""
        return self._out(self.mean_t())

    def mode(self) -> Any:
        """Return the most likely value of each row."""
        return self._out(self.mode_t())

    def rmst(self, tau: Any) -> Any:
        r"""Return the restricted mean survival time :math:`\int_0^\tau P(Y > t) dt`, shape (n,).

        Parameters
        ----------
        tau : float or array-like, shape (n,)
            Positive, finite horizon.

        Examples
        --------
        >>> import scipy.stats
        >>> Predictive.from_scipy(scipy.stats.expon(scale=2.0)).rmst(3.0).round(4)  # 2 (1 - e^-1.5)
        array([1.5537])
        """
        return self._out(self.rmst_t(horizons(tau, len(self), self.dtype)))

    def quantile(self, q: Any) -> Any:
        """Return quantiles: scalar q gives (n,), a vector of length Q gives (n, Q)."""
        probability = probabilities(q, self.dtype)
        value = self.quantile_t(probability.reshape(1, -1))
        return self._out(value if probability.ndim else value[:, 0])

    def sample(self, size: int = 1, random_state: Any = None) -> Any:
        """Draw ``size`` outcomes per row by inversion, shape (n, size)."""
        return self._out(self.quantile_t(uniforms((len(self), size), random_state, self.dtype)))

    def cdf_grid(self, grid: ArrayLike) -> Any:
        """Return P(Y <= g) for every g of a common grid, shape (n, len(grid))."""
        return self._out(self._cdf_t(grid_values(grid, self.dtype)))

    def sf_grid(self, grid: ArrayLike) -> Any:
        """Return P(Y > g) for every g of a common grid, shape (n, len(grid))."""
        return self._out(self.sf_t(grid_values(grid, self.dtype)))

    def trafo_grid(self, grid: ArrayLike) -> Any:
        """Return the transformation at every g of a common grid, shape (n, len(grid))."""
        return self._out(self._any_trafo_t(grid_values(grid, self.dtype)))

    # -- the same at any real y, which counts round down --------------------------------------

    def _rows(self, y: Any, name: str = "y") -> Tensor:
        return row_values(y, len(self), self.dtype, name)

    def _cdf_t(self, y: Tensor) -> Tensor:
        return torch.exp(self.log_cdf_t(y))

    def sf_t(self, y: Tensor) -> Tensor:
        """Return P(Y > y) at any real y; what the object holds is not copied."""
        return torch.exp(self.any_log_sf_t(y))

    def any_log_sf_t(self, y: Tensor) -> Tensor:
        """Return log P(Y > y) at any real y."""
        return self.log_sf_t(y)

    def _any_trafo_t(self, y: Tensor) -> Tensor:
        return self.trafo_t(y)
