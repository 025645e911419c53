"""LS: the linear shift, whose coefficients are read."""

from __future__ import annotations

from dataclasses import dataclass

from deeptram.terms._columns import formula_or_columns


@dataclass(frozen=True, init=False)
class LS:
    r"""Linear shift :math:`-x'\beta` (Section 2.3 of the paper).

    Parameters
    ----------
    *columns : str
        One string is a formulaic right-hand side; several are plain column
        names; none means all columns. No intercept column is ever added.

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
