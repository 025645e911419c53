"""The kinds of outcome: how y is read, and which distribution the parameters of each row give.

A kind is an object that equals its name, so ``kind == "ordinal"`` holds; what depends on the kind is asked
of it. A new kind is one more class here.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from deeptram import latent as latents
from deeptram._arrays import as_numpy, as_tensor
from deeptram._validation import check_choice
from deeptram.bases import Basis
from deeptram.errors import InvalidTypeError, UnsupportedError
from deeptram.latent import Latent
from deeptram.predictive.base import Predictive
from deeptram.predictive.discrete import DiscretePredictive
from deeptram.predictive.transformation import TransformationCount, TransformationPredictive
from deeptram.responses import Observations, encode_continuous, encode_count, encode_survival


@dataclasses.dataclass(frozen=True, eq=False)
class RowParameters:
    r"""What a transformation model says about each row: :math:`F_Z(e^{s} a(y)'\theta - \mathrm{shift})`.

    Parameters
    ----------
    theta : array or Tensor, shape (n, d) or (1, d)
        Baseline coefficients; one row stands for all. For a nominal outcome
        the K - 1 logits log P(Y = k) / P(Y = first level).
    shift : array or Tensor, shape (n,), optional
        x'beta + eta(B), subtracted from h.
    log_scale : array or Tensor, shape (n,), optional
        s = z'gamma / 2.
    log_increments : array or Tensor, shape (n, m) or (1, m), optional
        Logs of the differences of successive theta, where they are known
        better than from the rounded theta.

    Examples
    --------
    >>> import numpy as np
    >>> RowParameters(np.zeros((1, 2)), np.zeros(5)).n_rows
    5
    """

    theta: Any
    shift: Any = None
    log_scale: Any = None
    log_increments: Any = None

    @property
    def n_rows(self) -> int:
        """Number of rows n."""
        given = [x for x in (self.theta, self.shift, self.log_scale) if x is not None]
        return max(int(x.shape[0]) for x in given)

    def numpy(self) -> RowParameters:
        """Return the same parameters as float64 arrays, so that predictions are NumPy."""
        return self._each(lambda part: as_numpy(as_tensor(part, torch.float64)))

    def take(self, rows: Any) -> RowParameters:
        """Return those of some rows; one row that stands for all stays."""
        n = self.n_rows
        return self._each(lambda part: part[rows] if len(part) == n else part)

    def _each(self, function: Callable[[Any], Any]) -> RowParameters:
        parts = (self.theta, self.shift, self.log_scale, self.log_increments)
        return RowParameters(*(None if part is None else function(part) for part in parts))


class Kind(str, ABC):
    """A kind of outcome: what y may be, and what follows from it.

    Attributes
    ----------
    is_discrete : bool
        Whether y is one of finitely many classes.
    is_nominal : bool
        Whether these classes have no order: K - 1 logits take the place of increasing cutpoints.
    is_count : bool
        Whether y is a number 0, 1, 2, ...
    has_density : bool
        Whether y lies on the line.
    is_time : bool
        Whether y is a time from zero on.
    losses : tuple of str
        Scores that a model of this kind can be trained with.

    Examples
    --------
    >>> kind_of("nominal").is_nominal, kind_of("nominal") == "nominal"
    (True, True)
    """

    is_discrete: ClassVar[bool] = False
    is_nominal: ClassVar[bool] = False
    is_count: ClassVar[bool] = False
    has_density: ClassVar[bool] = False
    is_time: ClassVar[bool] = False
    losses: ClassVar[tuple[str, ...]] = ("nll", "crps")
    _advice: ClassVar[str] = "loss={loss!r} is for classes, got outcome={kind!r}; use loss='crps'"

    def observe(self, y: Any, log_first: bool = False) -> Observations:
        """Return y as observations on the line; h is a function of log y (of counts: log(y + 1)) if said."""
        raise UnsupportedError(f"an outcome={str(self)!r} is read by its levels; use DiscreteResponse")

    def check_loss(self, loss: str) -> None:
        """Raise unless a model of this kind can be trained with a score.

        Examples
        --------
        >>> kind_of("ordinal").check_loss("rps")
        """
        if loss not in self.losses:
            raise UnsupportedError(self._advice.format(loss=loss, kind=str(self)))

    @abstractmethod
    def predictive(self, params: RowParameters, basis: Any, latent: str | Latent, **known: Any) -> Predictive:
        """Return the distributions of given row parameters; see :func:`build_predictive`."""

    def _line(
        self, params: RowParameters, basis: Basis | None, latent: str | Latent, **known: Any
    ) -> TransformationPredictive:
        if basis is None:
            raise InvalidTypeError(f"a {self} outcome needs a basis, got None; pass one of deeptram.bases")
        return TransformationPredictive(basis, latent, params.theta, params.shift, params.log_scale, **known)


class _Ordered(Kind):
    """Binary and ordinal outcomes: cutpoints."""

    is_discrete = True
    losses = ("nll", "rps", "brier")
    _advice = "loss={loss!r} is for outcomes on the line, got outcome={kind!r}; use loss='rps'"

    def predictive(self, params: RowParameters, basis: Any, latent: str | Latent, **known: Any) -> Predictive:
        given = (params.theta, params.shift, params.log_scale, params.log_increments)
        shift, log_scale, increments = (None if x is None else as_tensor(x) for x in given[1:])
        numpy = not any(isinstance(x, Tensor) for x in given)
        h = as_tensor(params.theta)
        h = h if log_scale is None else torch.exp(log_scale).unsqueeze(1) * h
        h = h if shift is None else h - shift.unsqueeze(1)
        if increments is not None:
            increments = increments if log_scale is None else increments + log_scale.unsqueeze(1)
            increments = increments.expand(h.shape[0], -1)
        scale, levels = latents.get(latent), known.get("levels")
        return DiscretePredictive(levels=levels, latent=scale, numpy=numpy, h=h, log_increments=increments)


class _Nominal(Kind):
    """Classes without an order: K - 1 logits against the first level."""

    is_discrete = is_nominal = True
    losses = ("nll", "brier")
    _advice = "loss={loss!r} needs an ordered outcome, got outcome={kind!r}; use loss='brier'"

    def predictive(self, params: RowParameters, basis: Any, latent: str | Latent, **known: Any) -> Predictive:
        logits = as_tensor(params.theta)
        log_pmf = torch.log_softmax(torch.cat([torch.zeros_like(logits[:, :1]), logits], dim=1), dim=1)
        pred = DiscretePredictive.from_log_pmf(
            log_pmf if isinstance(params.theta, Tensor) else as_numpy(log_pmf),
            levels=known.get("levels"),
            latent=latents.get("logistic"),
        )
        pred.ordered = False
        return pred


class _Continuous(Kind):
    """Numbers on the line, exact or censored."""

    has_density = True

    def observe(self, y: Any, log_first: bool = False) -> Observations:
        return encode_continuous(y)

    def predictive(self, params: RowParameters, basis: Any, latent: str | Latent, **known: Any) -> Predictive:
        about = {name: known[name] for name in ("lifetimes", "observed") if name in known}
        return self._line(params, basis, latent, **about)


class _Survival(_Continuous):
    """Times from zero on, exact or censored."""

    is_time = True

    def observe(self, y: Any, log_first: bool = False) -> Observations:
        return encode_survival(y)


class _Count(Kind):
    """Numbers 0, 1, 2, ...: h is evaluated at them."""

    is_count = True

    def observe(self, y: Any, log_first: bool = False) -> Observations:
        return encode_count(y, log_first)

    def predictive(self, params: RowParameters, basis: Any, latent: str | Latent, **known: Any) -> Predictive:
        return TransformationCount(self._line(params, basis, latent), int(known.get("log_first", False)))


_KINDS: tuple[Kind, ...] = (
    _Ordered("binary"),
    _Ordered("ordinal"),
    _Nominal("nominal"),
    _Continuous("continuous"),
    _Count("count"),
    _Survival("survival"),
)
OUTCOMES = tuple(str(kind) for kind in _KINDS)
DISCRETE = tuple(str(kind) for kind in _KINDS if kind.is_discrete)


def kind_of(name: str) -> Kind:
    """Return the kind of that name.

    Examples
    --------
    >>> kind_of("count").losses
    ('nll', 'crps')
    """
    return _KINDS[OUTCOMES.index(check_choice(name, OUTCOMES, "outcome"))]


def build_predictive(
    outcome: str,
    params: RowParameters,
    basis: Basis | None,
    latent: str | Latent,
    levels: Sequence[Any] | None = None,
    log_first: bool = False,
    lifetimes: bool = False,
    observed: tuple[float, float] | None = None,
) -> Predictive:
    r"""Return the predictive distributions of given row parameters, eq. (4).

    Parameters
    ----------
    outcome : {"binary", "ordinal", "nominal", "continuous", "count", "survival"}
    params : RowParameters
        NumPy parameters give a predictive that answers in NumPy, tensors one
        that answers in tensors and carries gradients.
    basis : Basis or None
        Not needed for binary, ordinal and nominal outcomes.
    latent : str or Latent
        F_Z; not used for a nominal outcome.
    levels : sequence, optional
        The K levels in order (discrete outcomes; default 0, ..., K - 1). The
        order of a nominal outcome is that of ``levels``.
    log_first : bool
        Counts only: h is a function of log(y + 1).
    lifetimes, observed
        As in ``TransformationPredictive`` (continuous and survival outcomes).

    Examples
    --------
    >>> import numpy as np
    >>> params = RowParameters(np.array([[-1.0, 1.0]]), shift=np.array([0.0, 2.0]))
    >>> pred = build_predictive("ordinal", params, None, "logistic", levels=("a", "b", "c"))
    >>> pred.cdf().round(3)
    array([[0.269, 0.731, 1.   ],
           [0.047, 0.269, 1.   ]])
    """
    known = {"levels": levels, "log_first": log_first, "lifetimes": lifetimes, "observed": observed}
    return kind_of(outcome).predictive(params, basis, latent, **known)
