"""A formula and what was learned in encoding it, kept for new data.

formulaic parses the formula and evaluates its pieces; the state it returns
(levels of factors, knots of splines, coefficients of orthogonal polynomials,
means and scales) is kept as plain values and handed back for new rows. Factors
have treatment coding with the first level as reference, as if there were an
intercept, which is then left out: the intercept of the model is h.
"""

from __future__ import annotations

import copy
import dataclasses
import json
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from formulaic import Formula, ModelSpec, SimpleFormula
from formulaic.errors import DataMismatchWarning, FormulaicError
from formulaic.parser.types import Factor, Term

from deeptram.errors import InvalidInputError, UnknownNameError
from deeptram.inputs.column_names import readable_names
from deeptram.inputs.expressions import CONTEXT, factor_column, variables
from deeptram.inputs.factors import (
    FactorEncoder,
    check_finite_columns,
    check_numeric,
    check_several_levels,
    plain_levels,
    unseen_level,
)
from deeptram.inputs.state import from_plain, to_plain
from deeptram.inputs.table import Table, did_not_find

Floats = npt.NDArray[np.float64]
Piece = tuple[str, str]  # expression, and how formulaic evaluates it: "lookup", "python" or "literal"
INTERCEPT: tuple[Piece, ...] = (("1", "literal"),)
METHODS = ("lookup", "python", "literal")


@dataclasses.dataclass(frozen=True, eq=False)
class FormulaEncoder:
    """An encoded formula; made by :meth:`fit_transform`.

    Parameters
    ----------
    text : str
        The formula as written.
    terms : tuple
        Its terms, each a tuple of (expression, evaluation) pairs, without intercept.
    columns : tuple of str
        Columns it needs.
    factors : tuple of FactorEncoder
        Levels of those columns that are categorical.
    transform_state, encoder_state : dict
        What formulaic's stateful transforms and categorical encoders learned.
    raw_names, names : tuple of str
        Columns of the design matrix as formulaic and as R calls them.
    """

    text: str
    terms: tuple[tuple[Piece, ...], ...]
    columns: tuple[str, ...]
    factors: tuple[FactorEncoder, ...]
    transform_state: dict[str, Any]
    encoder_state: dict[str, tuple[str, list[Any] | None]]
    raw_names: tuple[str, ...]
    names: tuple[str, ...]

    @classmethod
    def fit_transform(cls, table: Table, text: str) -> tuple[FormulaEncoder, Floats]:
        """Return the encoder learned from a table, and its design matrix.

        Examples
        --------
        >>> from deeptram.inputs.table import read_table
        >>> table = read_table({"x": [1.0, 2.0], "g": ["u", "v"]})
        >>> encoder, design = FormulaEncoder.fit_transform(table, "x * g")
        >>> encoder.names
        ('x', 'gv', 'x:gv')
        """
        terms = _parse(text, table.names)
        columns = _columns(terms, frozenset(table.names))
        for name in columns:
            if name not in table.entries:
                raise UnknownNameError(did_not_find(name, table.names))
        values = {name: table.column(name) for name in columns}
        factors = tuple(
            FactorEncoder.from_column(column, name)
            for name, column in values.items()
            if isinstance(column, pd.Categorical)
        )
        for factor in factors:
            check_several_levels(factor)
        spec = ModelSpec(_formula(terms), na_action="ignore", output="numpy")
        matrix, fitted = _materialize(spec, _frame(values, factors, table.n_rows), text)
        raw_names = tuple(fitted.column_names)[1:]
        state = {
            expression: (kind.value, _categories(learned))
            for expression, (kind, learned) in fitted.encoder_state.items()
        }
        names = readable_names(fitted.structure[1:], state)
        encoder = cls(text, terms, columns, factors, dict(fitted.transform_state), state, raw_names, names)
        check_finite_columns(matrix[:, 1:], names)
        return encoder, matrix[:, 1:]

    def transform(self, table: Table) -> Floats:
        """Return the design matrix of other rows, shape (n, p)."""
        values = {name: table.column(name) for name in self.columns}
        self._check_levels_of_calls(values)
        design, _ = self._encode(_frame(values, self.factors, table.n_rows))
        check_finite_columns(design, self.names)
        return design

    def _encode(self, frame: pd.DataFrame) -> tuple[Floats, dict[str, Any]]:
        """Return the design matrix of prepared columns, and the state of the transforms afterwards."""
        spec = ModelSpec(
            _formula(self.terms),
            na_action="ignore",
            output="numpy",
            transform_state=copy.deepcopy(self.transform_state),
            encoder_state={
                expression: (Factor.Kind(kind), {} if levels is None else {"categories": list(levels)})
                for expression, (kind, levels) in self.encoder_state.items()
            },
        )
        matrix, used = _materialize(spec, frame, self.text)
        position = {name: j for j, name in enumerate(used.column_names)}
        return matrix[:, [position[name] for name in self.raw_names]], dict(used.transform_state)

    def to_dict(self) -> dict[str, Any]:
        """Return the encoder as JSON-able values."""
        return {
            "formula": self.text,
            "terms": [[list(piece) for piece in term] for term in self.terms],
            "columns": list(self.columns),
            "factors": [factor.to_dict() for factor in self.factors],
            "transform_state": to_plain(self.transform_state),
            "encoder_state": {
                expression: [kind, None if levels is None else plain_levels(expression, tuple(levels))]
                for expression, (kind, levels) in self.encoder_state.items()
            },
            "raw_names": list(self.raw_names),
            "names": list(self.names),
        }

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> FormulaEncoder:
        """Rebuild an encoder; the formula in it is checked as if a user had written it."""
        terms = tuple(tuple((str(text), str(method)) for text, method in term) for term in state["terms"])
        columns = tuple(str(name) for name in state["columns"])
        if any(method not in METHODS for term in terms for _, method in term):
            raise InvalidInputError(
                f"a stored term must be evaluated by one of {METHODS}; save the model again"
            )
        if not set(_columns(terms, frozenset(columns))) <= set(columns):
            raise InvalidInputError("a stored formula must name all columns it uses; save the model again")
        encoder = cls(
            str(state["formula"]),
            terms,
            columns,
            tuple(FactorEncoder.from_dict(factor) for factor in state["factors"]),
            from_plain(state["transform_state"]),
            {
                expression: (str(kind), levels)
                for expression, (kind, levels) in state["encoder_state"].items()
            },
            tuple(str(name) for name in state["raw_names"]),
            tuple(str(name) for name in state["names"]),
        )
        encoder._check_state()
        return encoder

    def _check_state(self) -> None:
        """Raise unless a row without numbers can be encoded, and nothing is learned from it."""
        levels = {factor.column: pd.Categorical(factor.levels[:1], factor.levels) for factor in self.factors}
        for expression, (_, known) in self.encoder_state.items():
            name = factor_column(expression)
            if name is not None and name not in levels and known:
                levels[name] = np.array(known[:1])
        unknown, zero = (
            pd.DataFrame({name: levels.get(name, [number]) for name in self.columns}, index=[0])
            for number in (np.nan, 0)
        )
        try:
            learned = self._encode(unknown)[1]
        except UnknownNameError:  # a computed factor, whose levels no made-up row can have
            return
        except InvalidInputError:  # functions of integers know no NaN
            learned = self._encode(zero)[1]
        states = (json.dumps(to_plain(state), sort_keys=True) for state in (learned, self.transform_state))
        if len(set(states)) > 1:
            raise InvalidInputError(
                f"a stored formula must hold the state of all its transforms, got {self.text!r} without "
                "some; save the model again"
            )

    def _check_levels_of_calls(self, values: Mapping[str, Any]) -> None:
        """Name the unseen level of ``C(column)``; levels of plain factors are checked on their own."""
        for expression, (_, levels) in self.encoder_state.items():
            name = factor_column(expression)
            if name is None or levels is None or isinstance(values[name], pd.Categorical):
                continue
            unseen = ~np.isin(values[name], levels)
            if unseen.any():
                raise unseen_level(name, values[name][np.argmax(unseen)], tuple(levels), unseen)


def _parse(text: str, names: tuple[str, ...]) -> tuple[tuple[Piece, ...], ...]:
    try:
        parsed = Formula.from_spec(text, context={"__formulaic_variables_available__": list(names)})
    except FormulaicError as error:
        raise InvalidInputError(
            f"formula {text!r} must be a formulaic right-hand side such as 'a * b + bs(c, df=4)', "
            f"got a syntax error ({_first_line(error)}); correct it"
        ) from error
    if not isinstance(parsed, SimpleFormula):
        raise InvalidInputError(
            f"formula {text!r} must be a right-hand side such as 'a + b', got several parts; "
            "leave out '~' and '|' (strata, scale and varying effects have terms of their own)"
        )
    terms = tuple(tuple((str(f.expr), str(f.eval_method.value)) for f in term.factors) for term in parsed)
    return tuple(term for term in terms if term != INTERCEPT)


def _columns(terms: tuple[tuple[Piece, ...], ...], known: frozenset[str]) -> tuple[str, ...]:
    found: dict[str, None] = {}
    for term in terms:
        for expression, method in term:
            if method == "lookup":
                found[expression] = None
            elif method == "python":
                found.update(dict.fromkeys(variables(expression, known)))
    return tuple(found)


def _formula(terms: tuple[tuple[Piece, ...], ...]) -> SimpleFormula:
    pieces = (INTERCEPT, *terms)
    return SimpleFormula(
        [Term([Factor(text, eval_method=method) for text, method in term]) for term in pieces],
        _ordering="none",
    )


def _frame(values: Mapping[str, Any], factors: tuple[FactorEncoder, ...], rows: int) -> pd.DataFrame:
    """Return the columns as formulaic shall see them: factors with all levels, numbers checked."""
    levels = {factor.column: factor for factor in factors}
    columns: dict[str, Any] = {}
    for name, column in values.items():
        if name in levels:
            factor = levels[name]
            columns[name] = pd.Categorical.from_codes(factor.codes_of(column), categories=list(factor.levels))
        else:
            check_numeric(column, name)
            check_finite_columns(np.asarray(column, dtype=np.float64)[:, None], (name,))
            columns[name] = column
    return pd.DataFrame(columns, index=range(rows))


def _materialize(spec: ModelSpec, frame: pd.DataFrame, text: str) -> tuple[Floats, ModelSpec]:
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("error", DataMismatchWarning)
            matrix = spec.get_model_matrix(frame, context=CONTEXT)
    except DataMismatchWarning as error:
        raise UnknownNameError(
            f"a factor of the formula {text!r} must hold known levels, got others ({error}); "
            "drop these rows or fit with these levels"
        ) from error
    except (FormulaicError, ValueError, TypeError) as error:
        raise InvalidInputError(
            f"formula {text!r} must be computable from the columns of X, got {_first_line(error)}; "
            "correct the formula or the data"
        ) from error
    return np.asarray(matrix, dtype=np.float64), matrix.model_spec


def _categories(learned: Mapping[str, Any]) -> list[Any] | None:
    categories = learned.get("categories")
    return None if categories is None else [c.item() if isinstance(c, np.generic) else c for c in categories]


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0].strip().rstrip(".") if lines else type(error).__name__
