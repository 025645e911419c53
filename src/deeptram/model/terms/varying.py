"""Varying: effects that change with the outcome."""

from __future__ import annotations

from dataclasses import dataclass

from deeptram.model.terms._columns import formula_or_columns


@dataclass(frozen=True, init=False)
class Varying:
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

    columns: str | tuple[str, ...] | None

    def __init__(self, *columns: object) -> None:
        object.__setattr__(self, "columns", formula_or_columns("Varying", columns))
