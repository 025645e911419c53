"""The terms of a model by their part in h, and the columns they give, with the encoding kept for new data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deeptram._threads import alone
from deeptram._validation import check_no_missing, first_rows
from deeptram.errors import InvalidInputError, InvalidTypeError, UnknownNameError
from deeptram.inputs import LinearEncoder, Table, read_table
from deeptram.model.terms import CI, CS, LS, SI, Scale, Term, Varying

SHOWN_LEVELS = 10


@dataclass(frozen=True)
class Spec:
    """The terms of one model, sorted by their part in h.

    ``h(y | D) = exp(scale / 2) * a(y)'theta(D) - linear - complex``.

    Examples
    --------
    >>> spec = Spec.of([LS("age + sex")])
    >>> spec.intercept, spec.is_deep
    (SI(strata=None), False)
    """

    intercept: SI | CI
    linear: LS | None = None
    shifts: tuple[CS, ...] = ()
    scale: Scale | None = None
    varying: Varying | None = None

    @property
    def networks(self) -> tuple[CI | CS, ...]:
        """The terms with a network: the complex intercept first, then the complex shifts."""
        return (*((self.intercept,) if isinstance(self.intercept, CI) else ()), *self.shifts)

    @property
    def is_deep(self) -> bool:
        """Whether a network takes part, so that the exact fit does not apply."""
        return bool(self.networks)

    @classmethod
    def of(cls, terms: Iterable[Term] | Term | None) -> Spec:
        """Sort terms; ``None`` means a linear shift of all columns.

        At most one intercept, one linear shift, one scale and one varying term
        may be given; several complex shifts add up.
        """
        if terms is None:
            return cls(intercept=SI(), linear=LS())
        if not isinstance(terms, Term | Iterable):
            raise InvalidTypeError(
                f"terms must be a list of SI, CI, LS, CS, Scale and Varying; got {terms!r}: "
                "for example terms=[dt.SI(), dt.LS('age + sex')]."
            )
        listed = [terms] if isinstance(terms, Term) else list(terms)
        for term in listed:
            if not isinstance(term, Term):
                raise InvalidTypeError(
                    f"terms must be SI, CI, LS, CS, Scale or Varying; got {type(term).__name__}: "
                    "for example terms=[dt.SI(), dt.LS('age + sex')]."
                )
        intercepts = [t for t in listed if isinstance(t, SI | CI)]
        linear = [t for t in listed if isinstance(t, LS)]
        scales = [t for t in listed if isinstance(t, Scale)]
        varying = [t for t in listed if isinstance(t, Varying)]
        for name, found in (
            ("intercept (SI or CI)", intercepts),
            ("LS", linear),
            ("Scale", scales),
            ("Varying", varying),
        ):
            if len(found) > 1:
                raise InvalidInputError(
                    f"at most one {name} term is allowed; got {len(found)}: put all columns into one term."
                )
        return cls(
            intercept=intercepts[0] if intercepts else SI(),
            linear=linear[0] if linear else None,
            shifts=tuple(t for t in listed if isinstance(t, CS)),
            scale=scales[0] if scales else None,
            varying=varying[0] if varying else None,
        )

    @property
    def name(self) -> str:
        """The paper's name of the model, e.g. ``SI-CS-LS`` (Table 1)."""
        parts = ["CI" if isinstance(self.intercept, CI) else "SI"]
        parts += ["CS"] * bool(self.shifts) + ["LS"] * (self.linear is not None)
        return "-".join(parts)


@dataclass(frozen=True)
class Strata:
    """The levels of a stratifying column that have their own baseline.

    Parameters
    ----------
    column : str
        Name of the column.
    levels : tuple
        Its levels in the training data, in order; one is enough.

    Examples
    --------
    >>> strata, codes = Strata.fit("centre", np.array(["b", "a", "b"]))
    >>> strata.levels, codes
    (('a', 'b'), array([1, 0, 1]))
    """

    column: str
    levels: tuple[Any, ...]

    @classmethod
    def fit(cls, column: str, values: Any) -> tuple[Strata, NDArray[np.int64]]:
        """Learn the levels that occur, and return the stratum of each row.

        Parameters
        ----------
        column : str
        values : array or Categorical, shape (n,)
        """
        check_no_missing(np.asarray(pd.isna(values)), f"strata column {column!r}")
        if isinstance(values, pd.Categorical):
            used = values.remove_unused_categories()
            strata = cls(column, tuple(_plain(level) for level in used.categories))
            return strata, used.codes.astype(np.int64)
        values = np.asarray(values)
        if values.dtype.kind == "f" and (values != np.floor(values)).any():
            raise InvalidInputError(
                f"strata column {column!r} must hold categories, got real numbers such as "
                f"{values[values != np.floor(values)][0]:g}; use the column in LS, or cut it into groups."
            )
        levels, codes = np.unique(values, return_inverse=True)
        return cls(column, tuple(_plain(level) for level in levels)), codes.astype(np.int64).ravel()

    @property
    def n_levels(self) -> int:
        """Number of strata."""
        return len(self.levels)

    def encode(self, values: Any) -> NDArray[np.int64]:
        """Return the stratum of each row of new data; a level without baseline is refused by name.

        Parameters
        ----------
        values : array or Categorical, shape (n,)

        Examples
        --------
        >>> Strata("centre", ("a", "b")).encode(np.array(["b"]))
        array([1])
        """
        check_no_missing(np.asarray(pd.isna(values)), f"strata column {self.column!r}")
        codes, uniques = pd.factorize(values if isinstance(values, pd.Categorical) else np.asarray(values))
        position = {level: code for code, level in enumerate(self.levels)}
        known = np.array([position.get(_plain(value), -1) for value in uniques], dtype=np.int64)
        found: NDArray[np.int64] = known[codes]
        if (found < 0).any():
            value = _plain(uniques[codes[np.argmax(found < 0)]])
            shown = ", ".join(repr(level) for level in self.levels[:SHOWN_LEVELS])
            more = f", ... ({len(self.levels)} in all)" if len(self.levels) > SHOWN_LEVELS else ""
            raise UnknownNameError(
                f"strata column {self.column!r} must hold levels with a fitted baseline ({shown}{more}), got "
                f"{value!r} in {first_rows(found < 0)}; refit with rows of this level, or correct them."
            )
        return found


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


Array = NDArray[np.float64]


@dataclass(frozen=True)
class Matrices:
    """The structured terms' columns for some rows.

    Attributes
    ----------
    x : ndarray, shape (n, p)
        Linear shift.
    scale, varying : ndarray or None, shapes (n, q) and (n, J)
        Scale and varying columns.
    strata : ndarray of int or None, shape (n,)
        Stratum of each row.
    """

    x: Array
    scale: Array | None = None
    varying: Array | None = None
    strata: NDArray[np.int64] | None = None

    def take(self, rows: Any) -> Matrices:
        """Return some of the rows."""
        parts = (self.x, self.scale, self.varying, self.strata)
        return Matrices(*(None if part is None else part[rows] for part in parts))  # type: ignore[arg-type]


@dataclass(frozen=True)
class Design:
    """How columns of X become the structured terms; learned once, used for new data.

    Attributes
    ----------
    linear, scale, varying : LinearEncoder or None
        Encoders of the three terms.
    strata_column : str or None
        The column that chooses the baseline.
    strata : Strata or None
        Its levels.
    """

    linear: LinearEncoder | None = None
    scale: LinearEncoder | None = None
    varying: LinearEncoder | None = None
    strata_column: str | None = None
    strata: Strata | None = None

    @classmethod
    def fit(cls, spec: Spec, X: Any, *, estimator: str = "the model") -> tuple[Design, Matrices]:
        """Learn levels and encodings from X, and return X encoded as well."""
        table = read_table(X, estimator)
        encoders: dict[str, LinearEncoder | None] = {}
        encoded: dict[str, Array | None] = {}
        for name, term in (("linear", spec.linear), ("scale", spec.scale), ("varying", spec.varying)):
            encoders[name], encoded[name] = (
                (None, None)
                if term is None
                else LinearEncoder.fit_transform(table, term.columns, estimator=estimator)
            )
        strata_column = spec.intercept.strata if isinstance(spec.intercept, SI) else None
        strata = codes = None
        if strata_column is not None:
            strata, codes = Strata.fit(strata_column, table.column(strata_column))
        design = cls(**encoders, strata_column=strata_column, strata=strata)
        x = encoded["linear"]
        x = np.zeros((table.n_rows, 0)) if x is None else x
        return design, Matrices(x, encoded["scale"], encoded["varying"], codes)

    @alone()
    def matrices(self, X: Any, *, estimator: str = "the model") -> Matrices:
        """Encode new data with the encoding of the training data."""
        table = read_table(X, estimator)
        encoded = [
            None if one is None else one.transform(table, estimator=estimator)
            for one in (self.linear, self.scale, self.varying)
        ]
        x = np.zeros((table.n_rows, 0)) if encoded[0] is None else encoded[0]
        return Matrices(x, encoded[1], encoded[2], self._strata_codes(table))

    def with_moments(self, moments: Mapping[str, tuple[int, float, float]]) -> Design:
        """Return the design of rows in pieces, of which this one saw levels and extremes only.

        Parameters
        ----------
        moments : mapping of str to (n, mean, sum of squares about it)
            Of all rows, by numeric column.
        """
        linear, scale, varying = (
            None if one is None else one.with_moments(moments)
            for one in (self.linear, self.scale, self.varying)
        )
        return replace(self, linear=linear, scale=scale, varying=varying)

    def _strata_codes(self, table: Table) -> NDArray[np.int64] | None:
        if self.strata is None or self.strata_column is None:
            return None
        return self.strata.encode(table.column(self.strata_column))

    @property
    def names(self) -> list[str]:
        """Encoded column names of the linear shift."""
        return [] if self.linear is None else list(self.linear.names)

    @property
    def n_strata(self) -> int:
        """Number of baselines."""
        return 1 if self.strata is None else self.strata.n_levels

    def to_dict(self) -> dict[str, Any]:
        """Return the design as JSON-able values."""
        encoders = {"linear": self.linear, "scale": self.scale, "varying": self.varying}
        return {
            **{name: None if one is None else one.to_dict() for name, one in encoders.items()},
            "strata_column": self.strata_column,
            "strata": None if self.strata is None else list(self.strata.levels),
        }

    @classmethod
    def from_dict(cls, state: dict[str, Any]) -> Design:
        """Rebuild a design from ``to_dict``."""
        encoders = {
            name: None if state[name] is None else LinearEncoder.from_dict(state[name])
            for name in ("linear", "scale", "varying")
        }
        levels = state["strata"]
        return cls(
            **encoders,
            strata_column=state["strata_column"],
            strata=None if levels is None else Strata(state["strata_column"], tuple(levels)),
        )
