"""The terms of h: SI, CI, LS, CS, and the structured Scale and Varying."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from deeptram.errors import InvalidTypeError


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
        object.__setattr__(self, "columns", columns)


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
        object.__setattr__(self, "columns", columns)
        object.__setattr__(self, "center", center)
        object.__setattr__(self, "orthogonalize", orthogonalize)


class Scale(_Columns):
    r"""Scale term: :math:`F_Z(\exp(z'\gamma / 2)\, h(y) - x'\beta)`, R's ``y ~ x | z``.

    Parameters
    ----------
    *columns : str
        A formulaic right-hand side, or plain column names.

    Examples
    --------
    >>> Scale("age").columns
    'age'
    """


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
