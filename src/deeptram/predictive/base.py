"""``Predictive``: one distribution per row, the type everything else speaks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from numpy.typing import ArrayLike
from torch import Tensor

from deeptram._arrays import as_numpy
from deeptram._validation import check_probability_level
from deeptram.errors import UnsupportedError
from deeptram.latent import Latent
from deeptram.predictive.pictures import described, picture


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
    def from_sklearn(model: Any, X: Any) -> Predictive:
        """Build from a fitted scikit-learn classifier: ``predict_proba(X)`` with ``classes_`` as levels."""
        from deeptram.predictive import foreign

        return foreign.from_sklearn(model, X)

    # -- the distribution ---------------------------------------------------------------------

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of rows n."""

    @property
    @abstractmethod
    def support(self) -> tuple[Any, Any]:
        """Smallest and largest possible outcome over all rows: numbers (perhaps infinite), or levels."""

    @abstractmethod
    def __getitem__(self, rows: Any) -> Predictive:
        """Return the distributions of some rows (slice, integer array or mask)."""

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

    def _with(self, **changes: Any) -> Any:
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
        """Answer in kind: NumPy when the object was built from NumPy."""
        return as_numpy(value) if self.gives_numpy else value
