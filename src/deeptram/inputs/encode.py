"""Design matrices of linear terms, from columns or from a formula.

``LinearEncoder`` learns from the training rows how X becomes numbers, and does
the same to any further rows. There is never an intercept column: the intercept
of the model is h. Factors have treatment coding, first level as reference;
column names are R's (``tempwarm``, ``tempwarm:contactyes``).
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from deeptram._validation import as_float
from deeptram.errors import InvalidInputError, UnknownNameError
from deeptram.inputs.factors import (
    FactorEncoder,
    check_extent,
    check_numeric,
    learned_factor,
)
from deeptram.inputs.formula import FormulaEncoder
from deeptram.inputs.formula_terms import expressions, read_terms
from deeptram.inputs.table import Table, check_finite_columns, did_not_find, read_table

Floats = npt.NDArray[np.float64]
Spec = str | Sequence[str] | None
NAME = re.compile(r"[^\W\d]\w*")


@dataclasses.dataclass(frozen=True, eq=False)
class LinearEncoder:
    """How X becomes the design matrix of a linear term.

    Made by :meth:`fit`, which takes a formulaic right-hand side, the names of
    columns, or None for all columns.

    Parameters
    ----------
    names : tuple of str
        Names of the p columns of the design matrix.
    required_columns : tuple of str
        Columns of X that are used.
    feature_names : tuple of str
        All tabular columns of the X seen in fitting, in order.
    from_array : bool
        Whether that X was an array, whose columns are known by position.
    factors : tuple of FactorEncoder
        The categorical ones among plain columns.
    formula : FormulaEncoder, optional
        Where the term is a formula.

    Examples
    --------
    >>> X = {"age": [61.0, 50.0, 43.0], "temp": ["warm", "cold", "cold"]}
    >>> encoder = LinearEncoder.fit(X, "age * temp")
    >>> encoder.names
    ('age', 'tempwarm', 'age:tempwarm')
    >>> encoder.transform({"age": [30.0], "temp": ["warm"]})
    array([[30.,  1., 30.]])
    """

    names: tuple[str, ...]
    required_columns: tuple[str, ...]
    feature_names: tuple[str, ...]
    from_array: bool
    factors: tuple[FactorEncoder, ...] = ()
    formula: FormulaEncoder | None = None

    @classmethod
    def fit(cls, X: Any, spec: Spec = None, *, estimator: str = "this estimator") -> LinearEncoder:
        """Learn the encoding from training rows.

        Parameters
        ----------
        X : DataFrame, 2-d array (columns ``x0``, ``x1``, ...) or dict of arrays
        spec : str, sequence of str, or None
            A formula such as ``"temp * contact + bs(age, df=4)"``; plain
            columns; or all columns.
        estimator : str
            Name used in messages.
        """
        return cls.fit_transform(X, spec, estimator=estimator)[0]

    @classmethod
    def fit_transform(
        cls, X: Any, spec: Spec = None, *, estimator: str = "this estimator"
    ) -> tuple[LinearEncoder, Floats]:
        """Return :meth:`fit` and the design matrix of the same rows, encoded once.

        Examples
        --------
        >>> encoder, design = LinearEncoder.fit_transform([[1.0, 2.0], [3.0, 4.0]], "x0:x1")
        >>> design
        array([[ 2.], [12.]])
        """
        table = read_table(X, estimator)
        plain = _plain_columns(spec, table)
        if isinstance(plain, list):
            formula, design = FormulaEncoder.fit_transform(table, plain)
            return cls(formula.names, formula.columns, table.names, table.is_array, formula=formula), design
        block = table.numeric_block(plain)
        if block is not None:
            check_finite_columns(block, plain)
            return cls(plain, plain, table.names, table.is_array), block
        return cls._fit_mixed(table, plain)

    @classmethod
    def _fit_mixed(cls, table: Table, columns: tuple[str, ...]) -> tuple[LinearEncoder, Floats]:
        values = {name: table.column(name) for name in columns}
        factors = [
            learned_factor(table, name, column)
            for name, column in values.items()
            if isinstance(column, pd.Categorical)
        ]
        by_name = {factor.column: factor for factor in factors}
        check_extent(
            table.n_rows,
            sum(len(by_name[c].levels) - 1 if c in by_name else 1 for c in columns),
            "a linear term of factors",
        )
        names = tuple(n for c in columns for n in (by_name[c].names if c in by_name else (c,)))
        encoder = cls(names, columns, table.names, table.is_array, tuple(factors))
        return encoder, encoder._encode(values, table.n_rows)

    def transform(self, X: Any, *, estimator: str = "this estimator") -> Floats:
        """Return the design matrix of any rows, float64 of shape (n, p).

        A float64 array whose columns are all used comes back as it is,
        uncopied; never write into the result.
        """
        table = self._align(read_table(X, estimator), estimator)
        if self.formula is not None:
            return self.formula.transform(table)
        if not self.factors:
            block = table.numeric_block(self.required_columns)
            if block is not None:
                check_finite_columns(block, self.names)
                return block
        return self._encode({name: table.column(name) for name in self.required_columns}, table.n_rows)

    def with_moments(self, moments: Mapping[str, tuple[int, float, float]]) -> LinearEncoder:
        """Return the encoder of rows in pieces; see :meth:`FormulaEncoder.with_moments`."""
        if self.formula is None:
            return self
        return dataclasses.replace(self, formula=self.formula.with_moments(moments))

    def _align(self, table: Table, estimator: str) -> Table:
        """Let columns known by position meet columns known by name."""
        named = set(self.required_columns) <= set(table.names)
        positional = table.is_array or (
            self.from_array and isinstance(table.source, pd.DataFrame) and not named
        )
        if not positional:
            return table
        if len(table.names) != len(self.feature_names):
            raise InvalidInputError(
                f"X has {len(table.names)} features, but {estimator} is expecting {len(self.feature_names)} "
                "features as input."
            )
        return table if table.names == self.feature_names else table.renamed(self.feature_names)

    def _encode(self, values: Mapping[str, Any], rows: int) -> Floats:
        """Fill numbers and indicators of levels into one matrix, column by column."""
        factors = {factor.column: factor for factor in self.factors}
        design = np.zeros((rows, len(self.names)), order="F")
        at = 0
        for name, column in values.items():
            factor = factors.get(name)
            if factor is not None:
                codes = factor.codes_of(column)
                (rows_on,) = np.nonzero(codes)
                design[rows_on, at + codes[rows_on] - 1] = 1.0
                at += len(factor.levels) - 1
                continue
            check_numeric(column, name)
            design[:, at] = as_float(column, f"column {name!r}")
            at += 1
        check_finite_columns(design, self.names)
        return design

    @property
    def terms(self) -> dict[str, list[int]]:
        """Positions of the columns of each term: one for a number, several for a factor or a spline.

        Examples
        --------
        >>> LinearEncoder.fit({"age": [61.0, 50.0, 43.0], "g": ["a", "b", "c"]}, "age + g").terms
        {'age': [0], 'g': [1, 2]}
        """
        if self.formula is not None:
            own = list(self.formula.owners)
        else:
            sizes = {factor.column: len(factor.levels) - 1 for factor in self.factors}
            own = [name for name in self.required_columns for _ in range(sizes.get(name, 1))]
        places: dict[str, list[int]] = {}
        for j, name in enumerate(own):
            places.setdefault(name, []).append(j)
        return {self.names[js[0]] if len(js) == 1 else name: js for name, js in places.items()}

    def to_dict(self) -> dict[str, Any]:
        """Return the encoder as JSON-able values; :meth:`from_dict` rebuilds it without running code.

        Examples
        --------
        >>> state = LinearEncoder.fit([[1.0], [2.0]]).to_dict()
        >>> LinearEncoder.from_dict(state).names
        ('x0',)
        """
        return {
            "names": list(self.names),
            "required_columns": list(self.required_columns),
            "feature_names": list(self.feature_names),
            "from_array": self.from_array,
            "factors": [factor.to_dict() for factor in self.factors],
            "formula": None if self.formula is None else self.formula.to_dict(),
        }

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> LinearEncoder:
        """Rebuild an encoder from :meth:`to_dict`."""
        return cls(
            tuple(state["names"]),
            tuple(state["required_columns"]),
            tuple(state["feature_names"]),
            state["from_array"],
            tuple(FactorEncoder.from_dict(factor) for factor in state["factors"]),
            None if state["formula"] is None else FormulaEncoder.from_dict(state["formula"]),
        )


def used_columns(spec: Spec, names: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the columns that a linear term uses, and those of them that its formula makes factors of.

    Parameters
    ----------
    spec : str, sequence of str, or None
        As for :meth:`LinearEncoder.fit`.
    names : sequence of str
        The columns there are.

    Examples
    --------
    >>> used_columns("log(a) + C(b)", ["a", "b", "c"])
    (('a', 'b'), ('b',))
    """
    plain = _plain_columns(spec, Table(pd.DataFrame(columns=list(names)), tuple(names), 0))
    if not isinstance(plain, list):
        return plain, ()
    pieces = expressions(read_terms(plain, tuple(names), tuple(names))).values()
    used = tuple(dict.fromkeys(name for piece in pieces for name in piece.columns))
    for name in used:
        if name not in names:
            raise UnknownNameError(did_not_find(name, names))
    return used, tuple(name for piece in pieces if piece.factor is not None for name in piece.columns)


def _plain_columns(spec: Spec, table: Table) -> tuple[str, ...] | list[str]:
    """Return the columns that are meant, or the list of items where one of them is a formula."""
    if spec is None:
        if not table.names:
            raise InvalidInputError("X must have at least one tabular column, got none; add columns or terms")
        return table.names
    items = (spec,) if isinstance(spec, str) else tuple(spec)
    if not items or not all(isinstance(item, str) and item.strip() for item in items):
        raise InvalidInputError(
            f"a linear term must name columns or be a formula, got {spec!r}; "
            "write LS('a + b') or LS('a', 'b')"
        )
    known = set(table.entries)
    parts = [
        part.strip()
        for item in items
        for part in ([item] if item in known or "+" not in item else item.split("+"))
    ]
    if all(part in known for part in parts):
        return tuple(dict.fromkeys(parts))
    unknown = next((part for part in parts if part not in known and NAME.fullmatch(part)), None)
    if unknown is not None and all(NAME.fullmatch(part) or part in known for part in parts):
        raise UnknownNameError(did_not_find(unknown, table.names))
    return list(items)
