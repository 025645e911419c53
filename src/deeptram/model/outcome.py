"""The fitted side of an outcome: its kind, its levels or basis, and how to read y."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deeptram import bases
from deeptram._validation import check_choice, check_integer
from deeptram.bases import Basis, Bernstein, Cutpoints, Linear, LogLinear
from deeptram.errors import InvalidInputError, UnsupportedError
from deeptram.latent import Latent
from deeptram.predictive import Predictive, RowParameters
from deeptram.predictive.kinds import Kind, kind_of
from deeptram.responses import DiscreteResponse, Observations, Surv

BASES = ("bernstein", "linear", "log-linear")
MOST_REPRESENTATIVES = 100  # of each kind of censoring: a null model of few parameters needs no more


@dataclass(frozen=True)
class OutcomeSettings:
    """What the user said about the outcome; the arguments of ``Tram`` that concern y."""

    kind: str
    basis: str | Basis | None = None
    order: int = 6
    support: tuple[float, float] | None = None
    log_first: bool | str = "auto"
    levels: Sequence[Any] | None = None
    fixed_slope: float | None = None


@dataclass(frozen=True)
class Encoded:
    """An outcome read: class codes, or observations on the line."""

    codes: NDArray[np.int64] | None = None
    observations: Observations | None = None

    def __len__(self) -> int:
        """Return the number of rows."""
        if self.codes is not None:
            return len(self.codes)
        return 0 if self.observations is None else len(self.observations)

    def take(self, rows: Any) -> Encoded:
        """Return some of the rows."""
        if self.codes is not None:
            return Encoded(codes=self.codes[rows])
        return Encoded(observations=None if self.observations is None else self.observations.take(rows))


@dataclass(frozen=True)
class Marginal:
    """Few outcomes with weights that stand for many: what a model without covariates is fitted to.

    Attributes
    ----------
    outcomes : Encoded
        Every class that occurs; of observations on the line the middle ones of 100 blocks of equal weight,
        for exact, left, right and interval censored ones each (all of them, where they are fewer).
    weights : ndarray
        How many rows each stands for.

    Examples
    --------
    >>> marginal = Marginal.of(Encoded(codes=np.array([0, 2, 2])), None)
    >>> marginal.outcomes.codes, marginal.weights
    (array([0, 2]), array([1., 2.]))
    """

    outcomes: Encoded
    weights: NDArray[np.float64]

    @classmethod
    def of(cls, encoded: Encoded, weights: NDArray[np.float64] | None) -> Marginal:
        """Summarise the outcomes of a fit with their weights."""
        each = np.ones(len(encoded)) if weights is None else weights
        if encoded.observations is None:
            counts = np.bincount(np.asarray(encoded.codes), weights=each)
            return cls(Encoded(codes=np.flatnonzero(counts)), counts[counts > 0].astype(np.float64))
        rows, shares = _representatives(encoded.observations, each)
        return cls(encoded.take(rows), shares)

    def to_dict(self) -> dict[str, Any]:
        """Return the summary as JSON-able values."""
        codes, seen = self.outcomes.codes, self.outcomes.observations
        ends = {} if seen is None else {"lower": seen.lower, "upper": seen.upper, "entry": seen.entry}
        known = {"codes": codes, **ends, "weights": self.weights}
        return {name: value.tolist() for name, value in known.items() if value is not None}

    @classmethod
    def from_dict(cls, state: dict[str, Any]) -> Marginal:
        """Rebuild a summary from ``to_dict``."""
        known = {name: np.asarray(value) for name, value in state.items()}
        weights, codes = known.pop("weights").astype(np.float64), known.get("codes")
        return cls(Encoded(codes) if codes is not None else Encoded(None, Observations(**known)), weights)


def _representatives(seen: Observations, weights: NDArray[np.float64]) -> tuple[Any, NDArray[np.float64]]:
    """Return rows in the middle of blocks of equal weight of each kind of censoring, and these weights."""
    group = 2 * seen.cases.right + seen.cases.left + 4 * seen.exact
    rows, shares = [], []
    for kind in np.unique(group):
        own = np.flatnonzero((group == kind) & (weights > 0))
        if len(own) > MOST_REPRESENTATIVES:
            own = own[np.lexsort((seen.upper[own], seen.lower[own]))]
            total = np.cumsum(weights[own])
            middle = (np.arange(MOST_REPRESENTATIVES) + 0.5) / MOST_REPRESENTATIVES * total[-1]
            rows.append(own[np.searchsorted(total, middle)])
            shares.append(np.full(MOST_REPRESENTATIVES, total[-1] / MOST_REPRESENTATIVES))
        else:
            rows.append(own)
            shares.append(weights[own])
    return np.concatenate(rows), np.concatenate(shares)


@dataclass(frozen=True)
class Outcome:
    """A fitted outcome.

    Attributes
    ----------
    kind : Kind
        Binary, ordinal, nominal, continuous, count or survival; a name is turned into its kind.
    basis : Basis
        Basis of h: cutpoints for classes (for nominal outcomes only their
        number matters), Bernstein or a line otherwise.
    response : DiscreteResponse or None
        The levels, for classes.
    log_first : bool
        Whether h is a function of log y (of log(y + 1), for counts).
    lifetimes : bool
        Whether y was a censored response (``Surv``) of positive values, or survival times: the sample
        space is [0, inf), whatever the basis.
    observed : (float, float) or None
        Smallest and largest uncensored outcome on the line (finite end, where all rows are censored).
    marginal : Marginal or None
        The outcomes that were fitted to, without their covariates; None of data in parts.

    Examples
    --------
    >>> outcome, encoded = Outcome.fit(OutcomeSettings("ordinal"), ["low", "high", "low"])
    >>> outcome.levels, encoded.codes
    (('high', 'low'), array([1, 0, 1]))
    """

    kind: Kind
    basis: Basis
    response: DiscreteResponse | None = None
    log_first: bool = False
    lifetimes: bool = False
    observed: tuple[float, float] | None = None
    marginal: Marginal | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "kind", kind_of(self.kind))

    @property
    def levels(self) -> tuple[Any, ...] | None:
        """The ordered levels of a discrete outcome."""
        return None if self.response is None else self.response.levels

    @property
    def is_discrete(self) -> bool:
        """Whether the outcome is one of finitely many classes."""
        return self.response is not None

    @classmethod
    def fit(
        cls, settings: OutcomeSettings, y: Any, used: NDArray[np.bool_] | None = None
    ) -> tuple[Outcome, Encoded]:
        """Learn levels or support from y, and return y encoded as well.

        ``used`` marks the rows that count (those of positive weight); levels
        are learned from all rows, the support from these.
        """
        kind = kind_of(settings.kind)
        if y is None:
            raise InvalidInputError(
                "a transformation model requires y to be passed, but the target y is None: call fit(X, y)."
            )
        if isinstance(y, Surv) and not kind.has_density:
            raise InvalidInputError(
                f"a censored response needs outcome='survival' or 'continuous', got outcome={kind!r}; "
                "change it, or pass plain labels or numbers"
            )
        return cls._fit_classes(settings, y) if kind.is_discrete else cls._fit_line(settings, y, used)

    @classmethod
    def _fit_classes(cls, settings: OutcomeSettings, y: Any) -> tuple[Outcome, Encoded]:
        kind, levels = kind_of(settings.kind), settings.levels
        if settings.basis is not None:
            raise UnsupportedError(
                f"outcome={kind!r} has cutpoints, not a basis, got basis={settings.basis!r}; leave it out"
            )
        if levels is not None and (isinstance(levels, str) or not isinstance(levels, Iterable)):
            raise InvalidInputError(
                f"levels must be a sequence of labels, got {levels!r}; pass a list of labels"
            )
        response, codes = DiscreteResponse.infer_and_encode(y, levels, kind)
        return cls(kind, Cutpoints(response.n_levels), response), Encoded(codes=codes)

    @classmethod
    def _fit_line(
        cls, settings: OutcomeSettings, y: Any, used: NDArray[np.bool_] | None
    ) -> tuple[Outcome, Encoded]:
        kind, log_first = kind_of(settings.kind), _log_first(settings)
        observations = kind.observe(y, log_first is True)
        if len(observations) == 0:
            raise InvalidInputError("y must hold at least one row, got 0 sample(s); pass data to fit on")
        counted = observations if used is None or len(used) != len(observations) else observations.take(used)
        lifetimes = (kind.is_time or isinstance(y, Surv)) and _all_positive(observations)
        if log_first == "auto":
            log_first = lifetimes and settings.basis in (None, "bernstein") and _positive_support(settings)
        settings = dataclasses.replace(settings, log_first=log_first)
        basis = _make_basis(settings, counted)
        observed = _observed_range(counted, log_first is True) if kind.has_density else None
        fitted = cls(kind, basis, None, log_first is True, lifetimes, observed)
        return fitted, Encoded(observations=fitted._seen(observations))

    def encode(self, y: Any) -> Encoded:
        """Read outcomes of new data."""
        if self.response is not None:
            return Encoded(codes=self.response.encode(y))
        return Encoded(observations=self._seen(self.kind.observe(y, self.log_first)))

    def decode(self, encoded: Encoded) -> Any:
        """Return outcomes as a user has them: levels, numbers, or a censored response.

        Examples
        --------
        >>> outcome, encoded = Outcome.fit(OutcomeSettings("ordinal"), ["low", "high", "low"])
        >>> outcome.decode(encoded).tolist()
        ['low', 'high', 'low']
        """
        if encoded.codes is not None:
            return np.asarray(self.levels, dtype=object)[encoded.codes]
        seen = encoded.observations
        if seen is None:
            return np.zeros(0)
        if self.kind.is_count:
            return seen.upper - (1.0 if self.log_first else 0.0)
        if seen.exact.all() and seen.entry is None:
            return seen.upper
        return Surv.interval(seen.lower, seen.upper, entry=seen.entry)

    def _seen(self, observations: Observations) -> Observations:
        """Return what was seen of lifetimes: a start or an entry at zero says nothing."""
        return observations.within((0.0, np.inf)) if self.lifetimes else observations

    def coefficient_names(self, columns: Sequence[str]) -> list[str]:
        """Return the names of the coefficients of some columns, for nominal outcomes ``level:column``."""
        if not self.kind.is_nominal or self.levels is None:
            return list(columns)
        return [f"{level}:{name}" for level in self.levels[1:] for name in columns]

    def predictive(self, parameters: RowParameters, latent: str | Latent) -> Predictive:
        """Return the distributions of rows with these parameters."""
        return self.kind.predictive(
            parameters,
            self.basis,
            latent,
            levels=self.levels,
            log_first=self.log_first,
            lifetimes=self.lifetimes,
            observed=self.observed,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the outcome as JSON-able values."""
        return {
            "kind": str(self.kind),
            "basis": bases.to_dict(self.basis),
            "levels": None if self.levels is None else list(self.levels),
            "log_first": self.log_first,
            "lifetimes": self.lifetimes,
            "observed": None if self.observed is None else list(self.observed),
            "marginal": None if self.marginal is None else self.marginal.to_dict(),
        }

    @classmethod
    def from_dict(cls, state: dict[str, Any]) -> Outcome:
        """Rebuild an outcome from ``to_dict``."""
        levels, seen, marginal = state["levels"], state["observed"], state["marginal"]
        return cls(
            kind=kind_of(state["kind"]),
            basis=bases.from_dict(state["basis"]),
            response=None if levels is None else DiscreteResponse(tuple(levels)),
            log_first=state["log_first"],
            lifetimes=state["lifetimes"],
            observed=None if seen is None else (seen[0], seen[1]),
            marginal=None if marginal is None else Marginal.from_dict(marginal),
        )


def _log_first(settings: OutcomeSettings) -> bool | str:
    """Return whether h is a function of log y: as said, or as the basis that was given has it."""
    value = settings.log_first
    if isinstance(settings.basis, Basis):
        return settings.basis.domain[0] == 0.0
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    if isinstance(value, str) and value == "auto":
        return value
    raise InvalidInputError(
        f"log_first must be True, False or 'auto', got {value!r}; 'auto' takes logarithms of positive dt.Surv"
    )


def _all_positive(observations: Observations) -> bool:
    """Whether no row can be zero or negative; an open start says nothing."""
    lower, upper = observations.lower, observations.upper
    return bool((upper > 0).all() and ((lower >= 0) | np.isneginf(lower)).all())


def _positive_support(settings: OutcomeSettings) -> bool:
    """Whether a support was left to the data, or may be that of a function of log y."""
    try:
        return settings.support is None or bool(np.min(np.asarray(settings.support, dtype=float)) > 0)
    except (TypeError, ValueError):  # the basis says what is wrong with it
        return True


def _make_basis(settings: OutcomeSettings, observations: Observations) -> Basis:
    if isinstance(settings.basis, Basis):
        if settings.log_first:
            _check_positive(observations)
        _check_several_values(observations, settings.basis.n_coef < 2)
        return settings.basis
    name = check_choice(settings.basis or "bernstein", BASES, "basis")
    if name == "log-linear" or settings.log_first:
        _check_positive(observations)
    fixed = name == "log-linear" and settings.fixed_slope is not None
    _check_several_values(observations, fixed)
    if name == "linear":
        return Linear()
    if name == "log-linear":
        return LogLinear(settings.fixed_slope)
    order = check_integer(settings.order, "order", 1)
    support = _default_support(observations, settings) if settings.support is None else settings.support
    return Bernstein(order, support, settings.log_first is True)


def _check_positive(observations: Observations) -> None:
    finite = np.isfinite(observations.upper)
    if (observations.upper[finite] <= 0).any():
        raise InvalidInputError(
            f"a basis in log y needs positive outcomes, got {observations.upper[finite].min():g}; "
            "use log_first=False with a Bernstein or linear basis"
        )


def _check_several_values(observations: Observations, fixed_slope: bool) -> None:
    """Refuse outcomes that one value explains: every flexible distribution shrinks onto it."""
    lower, upper, exact = observations.lower, observations.upper, observations.exact
    n = len(lower)
    if np.isposinf(upper).all():
        raise _one_value(f"{n} right-censored sample(s) and no event")
    if np.isneginf(lower).all():
        raise _one_value(f"{n} left-censored sample(s) and none that was seen")
    if fixed_slope:
        return
    value = lower[exact].max() if exact.any() else upper.min()
    if ((lower < value) & (value <= upper) | (exact & (lower == value))).all():
        compatible = "only the value" if exact.all() else "outcomes all compatible with the value"
        raise _one_value(f"{compatible} {value:g} in {n} sample(s)")


def _one_value(got: str) -> InvalidInputError:
    return InvalidInputError(
        f"the outcome must take at least two different values to fit a distribution, got {got}; "
        "check y, or add rows that were observed"
    )


def _observed_range(observations: Observations, log_first: bool) -> tuple[float, float]:
    """Return the range of the observed, uncensored response (of all finite ends where none is exact)."""
    lower, upper, exact = observations.lower, observations.upper, observations.exact
    values = lower[exact] if exact.any() else np.concatenate([lower, upper])
    values = values[np.isfinite(values)]
    if log_first:
        values = values[values > 0]
    return float(values.min()), float(values.max())


def _default_support(observations: Observations, settings: OutcomeSettings) -> tuple[float, float]:
    low, high = _observed_range(observations, settings.log_first is True)
    if low == high:
        raise InvalidInputError(
            f"the support of the outcome needs two different observed values, got only {low:g}; "
            "pass support=(lower, upper)"
        )
    return low, high
