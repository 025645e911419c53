"""CSV tables of data sets, checked for the columns that are needed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from deeptram.errors import FileFormatError
from deeptram.inputs.images import listing


def read_table(path: Path, columns: Sequence[str]) -> pd.DataFrame:
    """Return the needed columns of a CSV file, with plain sentences for damaged ones."""
    try:
        table = pd.read_csv(path, low_memory=False)
    except (OSError, ValueError, OverflowError) as error:  # parser and decoding errors are ValueErrors
        raise FileFormatError(
            f"{path} must be a CSV table, got {type(error).__name__} ({error}); download it again"
        ) from error
    missing = [column for column in columns if column not in table.columns]
    if missing:
        raise FileFormatError(
            f"{path} must have the columns {', '.join(columns)}, got none named {', '.join(missing)}; "
            "download the original table"
        )
    return table[list(columns)]


def check_numbers(table: pd.DataFrame, column: str, path: Path) -> None:
    """Raise unless a column holds finite numbers, missing ones aside, at least two of them different."""
    values = table[column].dropna()
    if values.dtype.kind not in "iuf" or values.nunique() < 2 or values.isin([np.inf, -np.inf]).any():
        raise FileFormatError(
            f"{column} in {path} must hold numbers, at least two different ones, got "
            f"{listing(values.unique())}; download it again"
        )


def check_unique(table: pd.DataFrame, column: str, path: Path) -> None:
    """Raise if a column that names rows is missing somewhere or has repetitions."""
    bad = table[column][table[column].duplicated() | table[column].isna()]
    if len(bad):
        raise FileFormatError(
            f"{column} in {path} must name each row once, got {len(bad)} repeated or missing: "
            f"{listing(bad)}; download it again"
        )
