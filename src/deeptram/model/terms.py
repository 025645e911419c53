"""The terms of h, SI, CI, LS, CS, Scale and Varying, and the columns they give, kept for new data."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deeptram._threads import alone
from deeptram.errors import InvalidInputError, InvalidTypeError
from deeptram.inputs import FactorEncoder, LinearEncoder, Table, read_table


@dataclass(frozen=True)
class SI:
    r"""Simple intercept, :math:`h(y) = a(y)'\vartheta`.

    Parameters
    ----------
    strata : str, optional
        A column whose levels each get their own baseline, R's ``y | 0 + s ~ x``.

    Examples
    --------
    >>> SI(strata="centre")
    SI(strata='centre')
    """

    strata: str | None = None


@dataclass(frozen=True, init=False)
class CI:
    r"""Complex intercept, :math:`h(y \mid B) = a(y)'\vartheta(B)`.

    The network gives one raw value per baseline parameter; a cumulative
    softplus makes them increasing.

    Parameters
    ----------
    net : callable
        Factory ``net(in_shape, out_features) -> torch.nn.Module``.
    *columns : str
        The columns (or images) the network sees; none means all of ``X``.
        Several columns feed one joint network.

    Examples
    --------
    >>> CI(print, "image").columns
    ('image',)
    """

    net: Callable[..., Any]
    columns: tuple[str, ...]

    def __init__(self, net: Callable[..., Any], *columns: str) -> None:
        object.__setattr__(self, "net", net)
        object.__setattr__(self, "columns", _column_names(type(self).__name__, columns))


@dataclass(frozen=True, init=False)
class _Columns:
    """A structured term: a formula, column names, or ``None`` for all columns."""

    columns: str | tuple[str, ...] | None

    def __init__(self, *columns: object) -> None:
        object.__setattr__(self, "columns", _formula_or_columns(type(self).__name__, columns))


class LS(_Columns):
    r"""Linear shift :math:`-x'\beta`.

    Parameters
    ----------
    *columns : str
        One string is a formulaic right-hand side; several are plain column
        names; none means all columns. No intercept column is ever added.
        A formula may use arithmetic and comparisons of columns, ``log``,
        ``exp``, ``I`` and functions such as ``np.sqrt``; ``bs``, ``cr``,
        ``cs``, ``cc``, ``poly``, ``scale``, ``center``, ``standardize``;
        ``C(x, Sum)`` with ``Treatment``, ``Sum``, ``Helmert``, ``Diff``,
        ``Poly`` or ``contr.*``; names in backticks or ``Q('my column')``.
        Nothing in it is run as code.

    Examples
    --------
    >>> LS("temp * contact + bs(age, df=4)").columns
    'temp * contact + bs(age, df=4)'
    >>> LS("a", "b").columns
    ('a', 'b')
    """


@dataclass(frozen=True, init=False)
class CS:
    r"""Complex shift :math:`-\eta(B)`.

    Parameters
    ----------
    net : callable
        Factory ``net(in_shape, out_features) -> torch.nn.Module``; it is asked
        for one output.
    *columns : str
        The columns (or images) the network sees; none means all of ``X``.
    center : bool
        Subtract the mean of the shift over the training data, so that the
        intercept keeps its meaning.
    orthogonalize : bool
        Remove from the shift what the linear shift's columns can explain on
        the training data, so that LS coefficients stay identified when the
        network sees the same information.

    Examples
    --------
    >>> CS(print, "mri").columns
    ('mri',)
    """

    net: Callable[..., Any]
    columns: tuple[str, ...]
    center: bool
    orthogonalize: bool

    def __init__(
        self, net: Callable[..., Any], *columns: str, center: bool = False, orthogonalize: bool = False
    ) -> None:
        object.__setattr__(self, "net", net)
        object.__setattr__(self, "columns", _column_names(type(self).__name__, columns))
        object.__setattr__(self, "center", center)
        object.__setattr__(self, "orthogonalize", orthogonalize)


@dataclass(frozen=True, init=False)
class Scale(_Columns):
    r"""Scale term: :math:`F_Z(\exp(z'\gamma / 2)\, h(y) - x'\beta)`, R's ``y ~ x | z``.

    With a network, :math:`F_Z(\exp((z'\gamma + s(B)) / 2)\, h(y) - x'\beta - \eta(B))`: a spread that is
    any function of columns or images. A constant in s is one in h, so s is known up to a constant.

    Parameters
    ----------
    *columns : str
        A formulaic right-hand side, or plain column names. A network factory
        ``net(in_shape, out_features) -> torch.nn.Module`` may come first; it is asked for one output, and
        the names are those of the columns (or images) it sees, none means all of ``X``.

    Examples
    --------
    >>> Scale("age").columns
    'age'
    >>> Scale(print, "age").columns
    ('age',)
    """

    net: Any
    columns: Any

    def __init__(self, *columns: object) -> None:
        net, rest = (columns[0], columns[1:]) if columns and callable(columns[0]) else (None, columns)
        object.__setattr__(self, "net", net)
        named = _formula_or_columns if net is None else _column_names
        object.__setattr__(self, "columns", named("Scale", rest))


class Varying(_Columns):
    r"""Response-varying effects, R's ``y | x ~ ...``.

    :math:`h(y \mid x) = a(y)'(\vartheta_0 + \sum_j x_j \vartheta_j)`, increasing
    in y over the observed range of x. A linear shift is the special case in
    which every :math:`a(y)'\vartheta_j` is constant in y.

    Parameters
    ----------
    *columns : str
        A formulaic right-hand side, or plain column names.

    Examples
    --------
    >>> Varying("dose").columns
    'dose'
    """


Term = SI | CI | LS | CS | Scale | Varying
NetworkTerm = CI | CS | Scale


def _column_names(term: str, columns: tuple[Any, ...]) -> tuple[str, ...]:
    """Return the names of columns, given one by one or as one list."""
    if len(columns) == 1 and isinstance(columns[0], list | tuple):
        columns = tuple(columns[0])
    for one in columns:
        if not isinstance(one, str):
            raise InvalidTypeError(
                f"{term} takes the names of columns, got {one!r} among them; write {term}(net, 'a', 'b')"
            )
    return columns


def _formula_or_columns(term: str, given: tuple[object, ...]) -> str | tuple[str, ...] | None:
    """Return one formula string, several column names, or ``None`` for all columns."""
    if len(given) == 1 and isinstance(given[0], list | tuple):
        given = tuple(given[0])
        if len(given) == 1:
            return (str(given[0]),)
    if not given or (len(given) == 1 and given[0] is None):
        return None
    names = tuple(name for name in given if isinstance(name, str))
    if len(names) != len(given):
        raise InvalidTypeError(
            f"{term} takes a formula or column names (strings); got {given!r}: write {term}('age + sex')."
        )
    return names[0] if len(names) == 1 else names


# -- the terms of one model, and their columns -------------------------------------------------------


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
    scales: tuple[Scale, ...] = ()

    @property
    def networks(self) -> tuple[NetworkTerm, ...]:
        """The terms with a network: the complex intercept first, then the complex shifts, then the scales."""
        return (*((self.intercept,) if isinstance(self.intercept, CI) else ()), *self.shifts, *self.scales)

    @property
    def has_scale(self) -> bool:
        """Whether h is multiplied, so that its intercept cannot take up a constant of the shift."""
        return self.scale is not None or bool(self.scales)

    @property
    def is_deep(self) -> bool:
        """Whether a network takes part, so that the exact fit does not apply."""
        return bool(self.networks)

    @classmethod
    def of(cls, terms: Iterable[Term] | Term | None) -> Spec:
        """Sort terms; ``None`` means a linear shift of all columns.

        At most one intercept, one linear shift, one scale and one varying term
        may be given; several complex shifts add up, and so do scales with networks.
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
        return cls(
            intercept=_only(listed, SI | CI, "intercept (SI or CI)") or SI(),
            linear=_only(listed, LS, "LS"),
            shifts=tuple(t for t in listed if isinstance(t, CS)),
            scale=_only([t for t in listed if getattr(t, "net", None) is None], Scale, "Scale"),
            varying=_only(listed, Varying, "Varying"),
            scales=tuple(t for t in listed if isinstance(t, Scale) and t.net is not None),
        )

    @property
    def name(self) -> str:
        """The paper's name of the model, e.g. ``SI-CS-LS`` (Table 1)."""
        parts = ["CI" if isinstance(self.intercept, CI) else "SI"]
        parts += ["CS"] * bool(self.shifts) + ["LS"] * (self.linear is not None)
        return "-".join(parts)


Array = NDArray[np.float64]
ENCODED = ("linear", "scale", "varying")  # the terms that have columns of their own


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
    strata : FactorEncoder or None
        The column that chooses the baseline, and its levels.
    """

    linear: LinearEncoder | None = None
    scale: LinearEncoder | None = None
    varying: LinearEncoder | None = None
    strata: FactorEncoder | None = None

    @classmethod
    def fit(cls, spec: Spec, X: Any, *, estimator: str = "the model") -> tuple[Design, Matrices]:
        """Learn levels and encodings from X, and return X encoded as well."""
        table, encoders, encoded = read_table(X, estimator), {}, {}
        for name in ENCODED:
            term = getattr(spec, name)
            if term is not None:
                found = LinearEncoder.fit_transform(table, term.columns, estimator=estimator)
                encoders[name], encoded[name] = found
        column = spec.intercept.strata if isinstance(spec.intercept, SI) else None
        design = cls(**encoders, strata=None if column is None else _strata(column, table))
        return design, design._matrices(table, encoded)

    @alone()
    def matrices(self, X: Any, *, estimator: str = "the model") -> Matrices:
        """Encode new data with the encoding of the training data."""
        table = read_table(X, estimator)
        encoded = {name: one.transform(table, estimator=estimator) for name, one in self.encoders.items()}
        return self._matrices(table, encoded)

    def _matrices(self, table: Table, encoded: Mapping[str, Array]) -> Matrices:
        x = encoded.get("linear", np.zeros((table.n_rows, 0)))
        strata = None if self.strata is None else self.strata.codes(table)
        return Matrices(x, encoded.get("scale"), encoded.get("varying"), strata)

    def with_moments(self, moments: Mapping[str, tuple[int, float, float]]) -> Design:
        """Return the design of rows in pieces, of which this one saw levels and extremes only.

        Parameters
        ----------
        moments : mapping of str to (n, mean, sum of squares about it)
            Of all rows, by numeric column.
        """
        changed: dict[str, Any] = {name: one.with_moments(moments) for name, one in self.encoders.items()}
        return replace(self, **changed)

    @property
    def encoders(self) -> dict[str, LinearEncoder]:
        """The encoders of the terms that there are, by name."""
        return {name: one for name in ENCODED if (one := getattr(self, name)) is not None}

    @property
    def strata_column(self) -> str | None:
        """The column that chooses the baseline."""
        return None if self.strata is None else self.strata.column

    @property
    def names(self) -> list[str]:
        """Encoded column names of the linear shift."""
        return self.names_of("linear")

    def names_of(self, term: str) -> list[str]:
        """Return the encoded column names of a term (linear, scale, varying); none where it is not there."""
        encoder: LinearEncoder | None = getattr(self, term)
        return [] if encoder is None else list(encoder.names)

    def shift_parts(self, x: Array, coef: Array) -> dict[str, Array]:
        """Return each column's part of h, -x_j beta_j (n,), or of the logits, x_j beta_j' (n, K - 1)."""
        if coef.ndim > 1:
            return {name: x[:, [j]] * coef[j] for j, name in enumerate(self.names)}
        return {name: -x[:, j] * coef[j] for j, name in enumerate(self.names)}

    @property
    def n_strata(self) -> int:
        """Number of baselines."""
        return 1 if self.strata is None else len(self.strata.levels)

    def to_dict(self) -> dict[str, Any]:
        """Return the design as JSON-able values."""
        parts = {name: getattr(self, name) for name in (*ENCODED, "strata")}
        return {name: None if one is None else one.to_dict() for name, one in parts.items()}

    @classmethod
    def from_dict(cls, state: dict[str, Any]) -> Design:
        """Rebuild a design from ``to_dict``."""
        kinds: dict[str, Any] = {**dict.fromkeys(ENCODED, LinearEncoder), "strata": FactorEncoder}
        known = {name: kind for name, kind in kinds.items() if state[name] is not None}
        return cls(**{name: kind.from_dict(state[name]) for name, kind in known.items()})


def _only(terms: Iterable[Term], kind: Any, name: str) -> Any:
    """Return the one term of a kind, None if there is none."""
    found = [term for term in terms if isinstance(term, kind)]
    if len(found) > 1:
        raise InvalidInputError(
            f"at most one {name} term is allowed; got {len(found)}: put all columns into one term."
        )
    return found[0] if found else None


def _strata(column: str, table: Table) -> FactorEncoder:
    """Return the levels of a stratifying column that occur; each has a baseline of its own."""
    values = table.column(column)
    if isinstance(values, pd.Categorical):
        values = values.remove_unused_categories()
    elif values.dtype.kind == "f" and (odd := values[np.isfinite(values) & (values % 1 != 0)]).size:
        raise InvalidInputError(
            f"strata column {column!r} must hold categories, got real numbers such as {odd[0]:g}; use the "
            "column in LS, or cut it into groups."
        )
    return FactorEncoder.from_column(values, column)
