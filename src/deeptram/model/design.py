"""Design matrices of the structured terms, with the encoding kept for new data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deeptram._threads import alone
from deeptram.inputs import LinearEncoder, Table, read_table
from deeptram.model.strata import Strata
from deeptram.model.terms import SI, Spec

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
