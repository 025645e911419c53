"""Tables on disk, CSV or Parquet, read with plain sentences for what is wrong with them."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from deeptram.errors import FileFormatError, InvalidInputError, MissingDependencyError

CSV = (".csv", ".csv.gz")
PARQUET = (".parquet", ".pq")
ID = "id"


def read_table(path: Path, *, text: bool = False) -> pd.DataFrame:
    """Read a table with a header; the column ``id``, if there is one, as text.

    Parameters
    ----------
    path : Path
        Its suffix says what it is: ``.csv``, ``.csv.gz``, ``.parquet`` or ``.pq``.
    text : bool
        Leave every column of a CSV file as text.

    Returns
    -------
    DataFrame
        With at least one row; column names are strings.
    """
    if not path.is_file():
        what = "a folder" if path.is_dir() else "no such file"
        raise InvalidInputError(f"{path} must be a file, got {what}; check the path")
    if path.name.endswith(CSV):
        table = _read_csv(path, text)
    elif path.name.endswith(PARQUET):
        table = _read_parquet(path)
    else:
        raise InvalidInputError(
            f"{path} must be a table ending in {', '.join((*CSV, *PARQUET))}, got {path.suffix or 'none'!r}; "
            "rename or convert it"
        )
    if not len(table):
        raise FileFormatError(f"{path} must hold at least one row below its header, got none; check the file")
    return table


def write_csv(table: pd.DataFrame, path: Path) -> None:
    """Write a table with every digit, under a temporary name until it is complete."""
    temporary = path.with_name(f".{path.name}.part")
    table.to_csv(temporary, index=False)
    temporary.replace(path)


def write_text(text: str, path: Path) -> None:
    """Write a text file, under a temporary name until it is complete."""
    temporary = path.with_name(f".{path.name}.part")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)


def output_folder(path: Path) -> Path:
    """Create the folder for results, unless it is there."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidInputError(
            f"{path} must be a folder that can be written, got {type(error).__name__}; choose another --out"
        ) from error
    return path


def _read_csv(path: Path, text: bool) -> pd.DataFrame:
    try:
        header = pd.read_csv(path, header=None, nrows=1, dtype=str, keep_default_na=False)
        names = [str(name).strip() for name in header.iloc[0]]
        _check_names(names, path)
        with warnings.catch_warnings():
            # A row longer than the header would lose its end with no more than a warning.
            warnings.simplefilter("error", pd.errors.ParserWarning)
            return pd.read_csv(
                path,
                header=0,
                names=names,
                index_col=False,
                dtype=str if text else {ID: str},
                keep_default_na=not text,
                float_precision="round_trip",
            )
    except pd.errors.EmptyDataError as error:
        raise FileFormatError(f"{path} must be a CSV table, got an empty file; export it again") from error
    except FileFormatError:
        raise
    except (
        ValueError,
        OSError,
        pd.errors.ParserWarning,
    ) as error:  # parser and decoding errors are ValueErrors
        reason = " ".join(str(error).split())
        raise FileFormatError(
            f"{path} must be a CSV table with as many fields in every row as in the header, got {reason}; "
            "export it again"
        ) from error


def _read_parquet(path: Path) -> pd.DataFrame:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise MissingDependencyError(
            f"reading {path.name} needs pyarrow, which is not installed; use "
            "pip install 'deeptram[parquet]', or convert it to CSV"
        ) from error
    try:
        table = parquet.read_table(path).to_pandas()
    except (pyarrow.ArrowException, OSError) as error:
        reason = " ".join(str(error).split())
        raise FileFormatError(f"{path} must be a Parquet table, got {reason}; export it again") from error
    table = table.reset_index(drop=table.index.name != ID)  # pandas' own index is no column, unless it is id
    table.columns = [str(name) for name in table.columns]
    _check_names(list(table.columns), path)
    return table.assign(**{ID: table[ID].astype(str)}) if ID in table else table


def _check_names(names: Sequence[str], path: Path) -> None:
    unnamed = [position for position, name in enumerate(names, start=1) if not name]
    if unnamed:
        raise FileFormatError(
            f"every column of {path} must have a name, got none for column {unnamed[0]}; "
            "write the table without row names (pandas: index=False, R: row.names = FALSE)"
        )
    repeated = [name for name in dict.fromkeys(names) if list(names).count(name) > 1]
    if repeated:
        raise FileFormatError(
            f"the columns of {path} must have different names, got {repeated[0]!r} twice; rename one"
        )
