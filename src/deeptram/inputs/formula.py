"""A formula and what was learned in encoding it, kept for new data.

The pieces of a formula are read and computed in
:mod:`deeptram.inputs.expressions`; formulaic multiplies their columns and keeps
the matrix of full rank. Factors have treatment coding with the first level as
reference, as if there were an intercept, which is then left out: the intercept
of the model is h.
"""

from __future__ import annotations

import copy
import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from formulaic import ModelSpec, SimpleFormula
from formulaic.errors import FormulaicError
from formulaic.materializers.types import FactorValues
from formulaic.parser.types import Factor, Term
from formulaic.transforms.contrasts import CustomContrasts, SASContrasts, TreatmentContrasts

from deeptram._schema import plain, unplain
from deeptram._validation import as_float
from deeptram.errors import DeeptramError, ExtrapolationWarning, InvalidInputError, UnknownNameError, warn
from deeptram.inputs.expressions import FactorCall, Scope, argument_of, read_expression
from deeptram.inputs.factors import (
    FactorEncoder,
    check_extent,
    check_numeric,
    check_several_levels,
    learned_factor,
    level_name,
)
from deeptram.inputs.formula_terms import (
    INTERCEPT,
    Piece,
    Terms,
    checked_terms,
    expressions,
    first_line,
    read_terms,
)
from deeptram.inputs.table import Table, check_finite_columns, did_not_find, shortened
from deeptram.inputs.transforms import BOUNDS, state_is_sound

Floats = npt.NDArray[np.float64]
FOREIGN = (FormulaicError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
PLAIN = FactorCall("", None, None, spans_intercept=True)


@dataclasses.dataclass(frozen=True, eq=False)
class FormulaEncoder:
    """An encoded formula; made by :meth:`fit_transform`.

    Parameters
    ----------
    text : str
        The formula as written.
    terms : tuple
        Its terms, each a tuple of pieces (text, kind), without intercept.
    columns : tuple of str
        Columns it needs.
    factors : dict
        Levels of each categorical column and of each ``C(...)``, by name or text.
    transform_state : dict
        What each transform learned, by its text.
    names : tuple of str
        Columns of the design matrix as R calls them.
    owners : tuple of str
        The term that each column belongs to.
    """

    text: str
    terms: Terms
    columns: tuple[str, ...]
    factors: dict[str, FactorEncoder]
    transform_state: dict[str, dict[str, Any]]
    names: tuple[str, ...]
    owners: tuple[str, ...] = ()

    @classmethod
    def fit_transform(cls, table: Table, items: Sequence[str]) -> tuple[FormulaEncoder, Floats]:
        """Return the encoder learned from a table, and its design matrix.

        Parameters
        ----------
        table : Table
        items : sequence of str
            Parts that are added up: names of columns, or formulas.

        Examples
        --------
        >>> from deeptram.inputs.table import read_table
        >>> table = read_table({"x": [1.0, 2.0], "g": ["u", "v"]})
        >>> encoder, design = FormulaEncoder.fit_transform(table, ["x * g"])
        >>> encoder.names
        ('x', 'gv', 'x:gv')
        """
        terms = read_terms(items, table.entries, table.names)
        columns = _columns(terms)
        for name in columns:
            if name not in table.entries:
                raise UnknownNameError(did_not_find(name, table.names))
        encoder = cls(" + ".join(items), terms, columns, {}, {}, ())
        values = encoder._values(table, is_fitting=True)
        design, names, owners = encoder._encode(values, table.n_rows, is_fitting=True)
        check_finite_columns(design, names)
        return dataclasses.replace(encoder, names=names, owners=owners), design

    def transform(self, table: Table) -> Floats:
        """Return the design matrix of other rows, shape (n, p).

        Where a spline or polynomial is asked for beyond its training range,
        an :class:`~deeptram.errors.ExtrapolationWarning` says so.
        """
        design, *_ = self._encode(self._values(table), table.n_rows)
        check_finite_columns(design, self.names)
        return design

    def _encode(
        self, values: Mapping[str, Any], rows: int, *, is_fitting: bool = False, is_trial: bool = False
    ) -> tuple[Floats, tuple[str, ...], tuple[str, ...]]:
        """Compute each piece once, let formulaic multiply their columns, and name these and their terms."""
        scope = Scope(
            values, self.transform_state if is_fitting else copy.deepcopy(self.transform_state), is_fitting
        )
        pieces = expressions(self.terms)
        widths = {piece: expression.width for piece, expression in pieces.items()}
        widths |= {
            (name, "lookup"): len(factor.levels)
            for name, factor in self.factors.items()
            if (name, "lookup") in pieces
        }
        self._check_width(widths, rows)
        blocks: dict[Piece, _Block] = {}
        try:
            with np.errstate(all="ignore"):
                for piece, expression in pieces.items():
                    value = expression.compute(scope)
                    call = PLAIN if piece[1] == "lookup" and piece[0] in self.factors else expression.factor
                    if call is None:
                        blocks[piece] = _numeric(value, rows, piece[0])
                        continue
                    if call is not PLAIN and is_fitting:
                        self.factors[piece[0]] = FactorEncoder.from_column(value, call.name, call.levels)
                        check_several_levels(self.factors[piece[0]])
                    factor = self.factors[piece[0]]
                    widths[piece] = len(factor.levels)
                    self._check_width(widths, rows)
                    codes = np.zeros(rows, dtype=np.int64) if is_trial else factor.codes_of(value)
                    blocks[piece] = _coded(factor, codes, call, piece[0])
                design = _multiply(self.terms, blocks, rows)
        except DeeptramError:
            raise
        except FOREIGN as error:
            raise InvalidInputError(
                f"formula {shortened(self.text)} must be computable from the columns of X, got "
                f"{first_line(error)}; correct the formula or the data"
            ) from error
        if scope.beyond:
            warn(
                f"rows lie beyond the training range, where curves are extrapolated: expected "
                f"{'; '.join(scope.beyond)}; do not rely on these rows, or fit with data from there",
                ExtrapolationWarning,
            )
        return design

    def _values(self, table: Table, *, is_fitting: bool = False) -> dict[str, Any]:
        """Return the columns as the pieces shall see them: factors with all levels, numbers checked."""
        values: dict[str, Any] = {name: table.column(name) for name in self.columns}
        said = {c for piece in expressions(self.terms).values() if piece.factor for c in piece.columns}
        for name, column in values.items():
            if is_fitting and isinstance(column, pd.Categorical):
                self.factors[name] = learned_factor(table, name, column, is_said=name in said)
            if name in self.factors:
                codes, levels = self.factors[name].codes_of(column), self.factors[name].levels
                values[name] = pd.Categorical.from_codes(codes, categories=list(levels))
                continue
            check_numeric(column, name)
            values[name] = np.asarray(column)
            check_finite_columns(as_float(values[name], f"column {name!r}")[:, None], (name,))
        return values

    def with_moments(self, moments: Mapping[str, tuple[int, float, float]]) -> FormulaEncoder:
        """Return the encoder of rows that come in pieces, of which this one saw levels and extremes only.

        Parameters
        ----------
        moments : mapping of str to (n, mean, sum of squares about it)
            Of all rows, by numeric column.
        """
        state = copy.deepcopy(self.transform_state)
        calls = [call for piece in expressions(self.terms).values() for call in piece.calls.items()]
        for text, (function, options) in calls:
            argument = argument_of(text)
            is_scaling = function in ("center", "scale", "standardize")
            if is_scaling and argument is not None and argument in moments:
                state[text] |= _scaling(options, state[text], *moments[argument])
            elif not _is_said(function, options, argument):
                raise InvalidInputError(
                    f"a formula for partitioned data must be learned in pieces, got {shortened(text)}, which "
                    "needs all rows at once; give knots=[...] (splines), raw=True (poly), or compute the "
                    "column before fitting"
                )
        return dataclasses.replace(self, transform_state=state)

    def _with_owners(self) -> FormulaEncoder:
        """Return a loaded encoder with owners; a row without numbers must give the columns that are named."""
        unknown = {name: np.array([np.nan]) for name in self.columns}
        labels = {name: pd.Categorical.from_codes([0], list(f.levels)) for name, f in self.factors.items()}
        _, names, owners = self._encode(unknown | labels, 1, is_trial=True)
        if names != self.names:
            raise _damaged(
                f"the columns {shortened(', '.join(names))}, not {shortened(', '.join(self.names))}"
            )
        return dataclasses.replace(self, owners=owners)

    def _check_width(self, widths: Mapping[Piece, int], rows: int) -> None:
        columns = sum(math.prod(widths.get(piece, 1) for piece in term) for term in self.terms)
        check_extent(rows, columns, f"formula {shortened(self.text)}")

    def to_dict(self) -> dict[str, Any]:
        """Return the encoder as JSON-able values."""
        return {
            "formula": self.text,
            "terms": [[list(piece) for piece in term] for term in self.terms],
            "columns": list(self.columns),
            "factors": [factor.to_dict() for key, factor in self.factors.items() if key in self.columns],
            "calls": {key: f.to_dict() for key, f in self.factors.items() if key not in self.columns},
            "transform_state": plain(self.transform_state),
            "names": list(self.names),
        }

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> FormulaEncoder:
        """Rebuild an encoder; the formula in it is checked as if a user had written it."""
        try:
            terms = tuple(tuple((str(text), str(kind)) for text, kind in term) for term in state["terms"])
            factors = {str(factor["column"]): FactorEncoder.from_dict(factor) for factor in state["factors"]}
            calls = {str(key): FactorEncoder.from_dict(factor) for key, factor in state["calls"].items()}
            stored = {str(key): value for key, value in unplain(state["transform_state"]).items()}
            columns, names = (tuple(map(str, state[key])) for key in ("columns", "names"))
            text = str(state["formula"])
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise _damaged(f"{type(error).__name__} {first_line(error)}") from error
        checked_terms(terms, text)
        pieces = expressions(terms)
        if set(_columns(terms)) != set(columns):
            raise _damaged("other columns than the formula uses")
        used = {key: call for expression in pieces.values() for key, call in expression.calls.items()}
        learned = {read_expression(key).text: value for key, value in stored.items()}
        if set(learned) != set(used) or not all(state_is_sound(*used[key], learned[key]) for key in used):
            raise _damaged("other knots, coefficients or scales than the formula uses")
        texts = {text for (text, _), expression in pieces.items() if expression.factor is not None}
        if texts != set(calls) or not set(factors) <= set(columns):
            raise _damaged("levels of other factors than the formula uses")
        return cls(text, terms, columns, factors | calls, learned, names)._with_owners()


def _scaling(
    options: Mapping[str, Any], state: Mapping[str, Any], n: int, mean: float, squares: float
) -> dict[str, Any]:
    """Return centre and scale of a column with these moments, where they are not given."""
    learned: dict[str, Any] = {}
    if options.get("center", True) is True:
        learned["center"] = np.float64(mean)
    if state["scale"] is not None and options.get("scale", options.get("rescale", True)) is True:
        centre = learned.get("center", state["center"])
        about = squares + n * (mean - (0.0 if centre is None else float(centre))) ** 2
        learned["scale"] = np.sqrt(about / (n - state["ddof"]))
    return learned


def _is_said(function: str, options: Mapping[str, Any], argument: str | None) -> bool:
    """Whether a spline or polynomial is given by its options, and the range of its column."""
    in_range = argument is not None or all(options.get(bound) is not None for bound in BOUNDS)
    if function == "poly":
        return bool(options.get("raw")) and argument is not None
    return options.get("knots") is not None and options.get("constraints") is None and in_range


@dataclasses.dataclass(frozen=True)
class _Block:
    """The columns of one piece: what formulaic shall multiply, and how each field is called."""

    values: Any
    labels: dict[str, str]


def _columns(terms: Terms) -> tuple[str, ...]:
    used = (name for expression in expressions(terms).values() for name in expression.columns)
    return tuple(dict.fromkeys(used))


def _numeric(value: Any, rows: int, text: str) -> _Block:
    """One column of numbers, or the several of a spline or polynomial (1, 2, ... in formulaic)."""
    if isinstance(value, FactorValues):
        fields = value if isinstance(value, dict) else value.__formulaic_metadata__.column_names
        return _Block(value, {f"[{field}]": f"{text}{field}" for field in fields})
    if isinstance(value, np.ndarray) and value.ndim == 2:
        return _Block(value, {f"[{j}]": f"{text}{j + 1}" for j in range(value.shape[1])})
    array = np.asarray(value)
    if isinstance(value, pd.Categorical) or array.dtype.kind not in "biuf":
        raise InvalidInputError(
            f"the piece {shortened(text)} of a formula must give numbers, got labels; use C(...) for a factor"
        )
    return _Block(np.array(np.broadcast_to(array.astype(np.float64), (rows,))), {"": text})


def _coded(factor: FactorEncoder, codes: npt.NDArray[np.int64], call: FactorCall, text: str) -> _Block:
    """Indicators or contrasts of a factor; formulaic asks for all, or for those beside an intercept."""
    contrasts, levels = call.contrasts, list(factor.levels)
    labels: dict[str, str] = {}

    def encoder(values: Any, reduced_rank: bool, **_: Any) -> FactorValues[Any]:
        if contrasts is None:
            kept = levels[1:] if reduced_rank else levels
            columns = [(codes == j + len(levels) - len(kept)).astype(np.float64) for j in range(len(kept))]
        else:
            matrix = np.asarray(contrasts.get_coding_matrix(levels, reduced_rank), dtype=np.float64)
            kept = list(contrasts.get_coding_column_names(levels, reduced_rank))
            columns = list(matrix[codes].T)
        found = {f"{'r' if reduced_rank else 'f'}{j}": column for j, column in enumerate(columns)}
        for field, name in zip(found, kept, strict=True):
            labels[f"[{field}]"] = _contrast_name(call, text, name, reduced_rank)
        return FactorValues(
            found, kind="categorical", spans_intercept=not reduced_rank and call.spans_intercept
        )

    values = FactorValues(codes, kind="categorical", spans_intercept=call.spans_intercept, encoder=encoder)
    return _Block(values, labels)


def _contrast_name(call: FactorCall, text: str, name: Any, reduced_rank: bool) -> str:
    contrasts = call.contrasts
    custom = isinstance(contrasts, CustomContrasts)
    if contrasts is None or isinstance(contrasts, (TreatmentContrasts, SASContrasts)):
        return f"{text}{level_name(name)}"
    if not reduced_rank and not custom:
        return f"{text}{level_name(name)}"
    if str(name).isdigit():
        return f"{text}{name}"
    return str(contrasts.FACTOR_FORMAT_REDUCED.format(name=text, field=name))


def _multiply(
    terms: Terms, blocks: Mapping[Piece, _Block], rows: int
) -> tuple[Floats, tuple[str, ...], tuple[str, ...]]:
    """Let formulaic put the columns of all terms side by side; it sees place-holders for the pieces."""
    marks = {piece: f"v{i}" for i, piece in enumerate(blocks)}
    formula = SimpleFormula(
        [
            Term(
                Factor(marks.get(piece, piece[0]), eval_method="lookup" if piece in marks else "literal")
                for piece in term
            )
            for term in (INTERCEPT, *terms)
        ],
        _ordering="none",
    )
    context = {marks[piece]: block.values for piece, block in blocks.items()}
    spec = ModelSpec(formula, na_action="ignore", output="numpy")
    result = spec.get_model_matrix(pd.DataFrame(index=range(rows)), context=context)
    labels = {
        f"{marks[p]}{field}": name for p, block in blocks.items() for field, name in block.labels.items()
    }
    names = tuple(
        ":".join(labels[part] for part in raw.split(":")) for raw in tuple(result.model_spec.column_names)[1:]
    )
    texts = [":".join(text for text, kind in term if kind != "literal") for term in terms]
    sizes = [len(row.columns) for row in result.model_spec.structure[1:]]
    owners = tuple(text for text, size in zip(texts, sizes, strict=True) for _ in range(size))
    return np.asarray(result, dtype=np.float64)[:, 1:], names, owners


def _damaged(got: str) -> InvalidInputError:
    return InvalidInputError(
        f"a stored formula must hold what was learned for each of its pieces, got {got}; save the model again"
    )
