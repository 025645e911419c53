"""LS: the linear shift, whose coefficients are read."""

from __future__ import annotations

from dataclasses import dataclass

from deeptram.model.terms._columns import formula_or_columns


@dataclass(frozen=True, init=False)
class LS:
    r"""Linear shift :math:`-x'\beta` (Section 2.3 of the paper).

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

    columns: str | tuple[str, ...] | None

    def __init__(self, *columns: object) -> None:
        object.__setattr__(self, "columns", formula_or_columns("LS", columns))
