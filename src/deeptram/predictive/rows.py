"""Arguments that belong to rows: which rows, which values at each, which probabilities."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from deeptram._arrays import as_numpy, as_tensor, row_numbers
from deeptram._validation import check_integer, first_rows, random_generator
from deeptram.errors import InvalidInputError, InvalidTypeError

_MOST_DRAWS = 2**33  # 64 GiB of float64


def row_index(rows: Any, n: int) -> Tensor:
    """Return the row numbers that a slice, integer, integer array or mask selects among n, shape (m,).

    Examples
    --------
    >>> row_index(slice(1, None), 3)
    tensor([1, 2])
    >>> row_index(-1, 3)
    tensor([2])
    """
    return torch.from_numpy(row_numbers(slice(None) if rows is Ellipsis else rows, n, "prediction"))


def check_one_per_row(n: int, rows: int) -> None:
    """Raise unless there are as many outcomes as rows.

    Examples
    --------
    >>> check_one_per_row(2, 3)
    Traceback (most recent call last):
    ...
    deeptram.errors.InvalidInputError: y must have one value per row, got 2 for 3 rows; pass the outcomes ...
    """
    if n != rows:
        raise InvalidInputError(
            f"y must have one value per row, got {n} for {rows} rows; "
            "pass the outcomes that belong to these predictions"
        )


def row_values(y: Any, n: int, dtype: torch.dtype, name: str = "y") -> Tensor:
    """Return a scalar as (1, 1) or one value per row as (n, 1); other shapes and NaN are refused.

    Examples
    --------
    >>> row_values([1, 2], 2, torch.float64)
    tensor([[1.],
            [2.]], dtype=torch.float64)
    """
    if y is None:
        raise InvalidInputError(
            f"{name} must be a number or one value per row for an outcome without levels, got None; "
            f"pass {name}, or use cdf_grid(grid)"
        )
    values = _numbers(y, name, dtype)
    if values.ndim == 0:
        values = values.reshape(1)
    elif values.shape != (n,):
        raise InvalidInputError(
            f"{name} must be a number or one value per row, shape ({n},), got shape {tuple(values.shape)}; "
            "for a common grid use cdf_grid(grid)"
        )
    missing = torch.isnan(values)
    if bool(missing.any()):
        raise InvalidInputError(
            f"{name} must not be missing, got NaN in {first_rows(as_numpy(missing))}; "
            "drop or fill these rows first"
        )
    return values.unsqueeze(1)


def horizons(tau: Any, n: int, dtype: torch.dtype) -> Tensor:
    """Return one positive, finite horizon per row, shape (n, 1).

    Examples
    --------
    >>> horizons(2.0, 2, torch.float64).ravel()
    tensor([2., 2.], dtype=torch.float64)
    """
    values = row_values(tau, n, dtype, "tau").expand(n, 1)
    wrong = ~((values > 0) & torch.isfinite(values))
    if bool(wrong.any()):
        raise InvalidInputError(
            f"tau must be a positive, finite time, got {float(values[wrong][0]):g}; "
            "use for example the last observed time"
        )
    return values


def grid_values(grid: Any, dtype: torch.dtype) -> Tensor:
    """Return a common grid as (1, G).

    Examples
    --------
    >>> grid_values([0, 1, 2], torch.float64).shape
    torch.Size([1, 3])
    """
    values = _numbers(grid, "grid", dtype)
    if values.ndim != 1 or bool(torch.isnan(values).any()):
        raise InvalidInputError(
            f"grid must be a vector of numbers without NaN, got shape {tuple(values.shape)}; "
            "pass the values at which all rows are evaluated"
        )
    return values.unsqueeze(0)


def probabilities(q: Any, dtype: torch.dtype = torch.float64) -> Tensor:
    """Return probabilities as a tensor with no axis or one; anything outside [0, 1] is refused.

    Examples
    --------
    >>> probabilities(0.5)
    tensor(0.5000, dtype=torch.float64)
    """
    values = _numbers(q, "q", dtype)
    if values.ndim > 1 or not bool(((values >= 0) & (values <= 1)).all()):
        raise InvalidInputError(
            f"q must be a number or a vector of numbers between 0 and 1, got {q!r}; pass probabilities"
        )
    return values


def uniforms(shape: tuple[int, Any], random_state: Any, dtype: torch.dtype) -> Tensor:
    """Return uniform numbers in the open interval (0, 1) from a seed, NumPy generator or torch generator.

    Examples
    --------
    >>> bool((uniforms((2, 3), 0, torch.float64) == uniforms((2, 3), 0, torch.float64)).all())
    True
    """
    n = shape[0]
    size = check_integer(shape[1], "size", 0, _MOST_DRAWS // max(shape[0], 1))
    generator = numbers_from(random_state)
    if isinstance(generator, torch.Generator):
        uniform = torch.rand((n, size), generator=generator, dtype=torch.float64)
    else:
        uniform = torch.from_numpy(generator.random((n, size)))
    # Zero has probability 2^-53; half of that is the middle of its cell.
    return torch.where(uniform == 0, torch.full_like(uniform, 2.0**-54), uniform).to(dtype)


def numbers_from(random_state: Any) -> torch.Generator | np.random.Generator:
    """Return the generator that a seed stands for; NumPy and torch generators stay as they are.

    Examples
    --------
    >>> float(numbers_from(0).random()) == float(np.random.default_rng(0).random())
    True
    """
    return random_state if isinstance(random_state, torch.Generator) else random_generator(random_state)


def row_chunks(n: int, size: int = 2048) -> list[Tensor]:
    """Return the row numbers in pieces small enough for many values at each row.

    Examples
    --------
    >>> [len(rows) for rows in row_chunks(5000)]
    [2048, 2048, 904]
    """
    return [torch.arange(start, min(start + size, n)) for start in range(0, max(n, 1), max(size, 1))]


class RowMap:
    """Which rows of a foreign batch of n distributions a predictive stands for.

    Batched distributions of SciPy and torch cannot be sliced by rows. This
    spreads values over all rows of the batch and collects the answers; rows
    asked for twice (bootstrap) get columns of their own.

    Examples
    --------
    >>> batch = torch.tensor([10.0, 20.0, 30.0])
    >>> rows = RowMap(3)[torch.tensor([2, 2, 0])]
    >>> rows.evaluate(lambda y: y + batch.unsqueeze(1), torch.tensor([[1.0], [2.0], [3.0]])).ravel()
    tensor([31., 32., 13.])
    """

    def __init__(self, n: int, rows: Tensor | None = None) -> None:
        self.n = n
        self.rows = rows
        self._copy = None if rows is None else _occurrence(rows)

    def __len__(self) -> int:
        return self.n if self.rows is None else len(self.rows)

    def __getitem__(self, index: Tensor) -> RowMap:
        """Return the map of some of these rows."""
        return RowMap(self.n, index if self.rows is None else self.rows[index])

    def pick(self, values: Tensor) -> Tensor:
        """Return the entries of these rows from one value per row of the batch."""
        return values if self.rows is None else values[self.rows]

    def evaluate(self, function: Any, y: Tensor) -> Tensor:
        """Return ``function`` (of values (n, C), one batch row each) at y (m, G) or (1, G), shape (m, G)."""
        if self.rows is None:
            return _tensor(function(y.expand(self.n, -1)))
        if y.shape[0] == 1:
            return _tensor(function(y.expand(self.n, -1)))[self.rows]
        if len(self.rows) == 0:
            return y.clone()
        copies, width = int(self._copies.max()) + 1, y.shape[1]
        spread = y[0, 0].expand(self.n, copies, width).clone()
        spread[self.rows, self._copies] = y
        answer = _tensor(function(spread.reshape(self.n, copies * width)))
        return answer.reshape(self.n, copies, width)[self.rows, self._copies]

    @property
    def _copies(self) -> Tensor:
        return torch.zeros(self.n, dtype=torch.int64) if self._copy is None else self._copy


def _occurrence(rows: Tensor) -> Tensor:
    """Return for each entry how many equal ones stand before it."""
    order = torch.argsort(rows, stable=True)
    ordered = rows[order]
    start = torch.searchsorted(ordered, ordered)
    result = torch.empty_like(rows)
    result[order] = torch.arange(len(rows)) - start
    return result


def _tensor(value: Any) -> Tensor:
    return value if isinstance(value, Tensor) else torch.as_tensor(np.asarray(value, dtype=np.float64))


def refuse_complex(values: Any) -> None:
    """Refuse complex numbers, of which a cast would keep the real part.

    Examples
    --------
    >>> refuse_complex(1j)
    Traceback (most recent call last):
    ...
    TypeError: complex numbers
    """
    if values.is_complex() if isinstance(values, Tensor) else np.asarray(values).dtype.kind == "c":
        raise TypeError("complex numbers")


def _numbers(values: Any, name: str, dtype: torch.dtype) -> Tensor:
    try:
        refuse_complex(values)
        return as_tensor(values, dtype)
    except (TypeError, ValueError) as error:
        raise InvalidTypeError(
            f"{name} must hold numbers that a float can hold, got {type(values).__name__}; "
            "convert it to a numeric array first"
        ) from error
