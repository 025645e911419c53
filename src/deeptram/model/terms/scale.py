"""Scale: covariates that widen or narrow the distribution."""

from __future__ import annotations

from dataclasses import dataclass

from deeptram.model.terms._columns import formula_or_columns


@dataclass(frozen=True, init=False)
class Scale:
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

    columns: str | tuple[str, ...] | None

    def __init__(self, *columns: object) -> None:
        object.__setattr__(self, "columns", formula_or_columns("Scale", columns))
