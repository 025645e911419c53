"""Tables on disk, CSV or Parquet, read with plain sentences for what is wrong with them.

Files are untrusted: what a small file may unpack to is bounded before it is unpacked.
"""

from __future__ import annotations

import csv
import gzip
import io
import tempfile
import warnings
import zlib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from deeptram.errors import FileFormatError, InvalidInputError, MissingDependencyError

CSV = (".csv", ".csv.gz")
PARQUET = (".parquet", ".pq")
ID = "id"
MAX_COLUMNS = 100_000
# Tables of this size are always unpacked; larger ones only from files that are not far smaller.
_FREE_BYTES, _BYTES_PER_BYTE = 2**26, 200
_FREE_CELLS, _CELLS_PER_BYTE = 2**24, 50
_SEPARATORS = {";": "semicolons", "\t": "tabs", "|": "bars"}
_SIGNATURES = {
    b"PK\x03\x04": "a zip archive or an Excel workbook; save the sheet as CSV",
    b"\xd0\xcf\x11\xe0": "an Excel workbook; save the sheet as CSV",
    b"\x1f\x8b": "a gzip file; rename it to .csv.gz",
    b"PAR1": "a Parquet file; rename it to .parquet",
    b"\xff\xfe": "text in UTF-16; save it as UTF-8",
    b"\xfe\xff": "text in UTF-16; save it as UTF-8",
}


def read_table_file(path: Path, *, text: bool = False) -> pd.DataFrame:
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


def output_folder(path: Path) -> Path:
    """Create the folder for results, unless it is there, and find out whether it can be written."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            return path
    except OSError as error:
        raise InvalidInputError(
            f"{path} must be a folder that can be written, got {type(error).__name__} ({error.strerror}); "
            "choose another --out"
        ) from error


def _read_csv(path: Path, text: bool) -> pd.DataFrame:
    try:
        source: Any = _unzipped(path) if path.suffix == ".gz" else path
        _check_is_csv(source, path)
        names = _header(source)
        if not names:
            raise FileFormatError(f"{path} must be a CSV table, got an empty file; export it again")
        _check_names(names, path)
        with warnings.catch_warnings():
            # A row longer than the header would lose its end with no more than a warning.
            warnings.simplefilter("error", pd.errors.ParserWarning)
            return pd.read_csv(
                _from_start(source),
                header=0,
                names=names,
                index_col=False,
                dtype=str if text else {ID: str} if ID in names else None,
                keep_default_na=not text,
                float_precision="round_trip",
                low_memory=False,
            )
    except FileFormatError:
        raise
    except (
        ValueError,
        OSError,
        EOFError,
        OverflowError,
        zlib.error,
        csv.Error,
        pd.errors.ParserWarning,
    ) as error:  # parser and decoding errors are ValueErrors
        reason = " ".join(str(error).split())
        raise FileFormatError(
            f"{path} must be a CSV table with as many fields in every row as in the header, got {reason}; "
            "export it again"
        ) from error


def _unzipped(path: Path) -> io.BytesIO:
    """Return what a gzip file holds, unless it grows out of all proportion."""
    content = io.BytesIO()
    with path.open("rb") as raw, gzip.GzipFile(fileobj=raw) as file:
        while block := file.read(2**20):
            content.write(block)
            if content.tell() > max(_FREE_BYTES, _BYTES_PER_BYTE * raw.tell()):
                raise FileFormatError(
                    f"{path} must unpack to a table of a believable size, got more than {_BYTES_PER_BYTE} "
                    "bytes for each of its own; unpack it yourself if it is meant to be so"
                )
    return content


def _from_start(source: Any) -> Any:
    if isinstance(source, io.BytesIO):
        source.seek(0)
    return source


def _header(source: Any) -> list[str]:
    """Return the fields of the first line that is not empty (pandas takes seconds for thousands of them)."""
    opened = io.BytesIO(source.getbuffer()) if isinstance(source, io.BytesIO) else source.open("rb")
    with io.TextIOWrapper(opened, encoding="utf-8-sig", newline="") as file:
        return [name.strip() for name in next(filter(None, csv.reader(file)), [])]


def _check_is_csv(source: Any, path: Path) -> None:
    """Raise if the first line is not one of a table with commas, before a parser makes sense of it."""
    with path.open("rb") if source is path else io.BytesIO(source.getbuffer()) as file:
        line = file.readline(2**24)
    for signature, what in _SIGNATURES.items():
        if line.startswith(signature):
            raise FileFormatError(f"{path} must be a CSV table, got {what}")
    if b"\x00" in line:
        raise FileFormatError(f"{path} must be a CSV table, got a binary file; export the table as CSV")
    if line.count(b",") >= MAX_COLUMNS:
        raise FileFormatError(
            f"{path} must have at most {MAX_COLUMNS} columns, got {line.count(b',') + 1}; leave some out"
        )
    for separator, name in _SEPARATORS.items():
        if line.count(separator.encode()) > line.count(b","):
            raise FileFormatError(
                f"{path} must have commas between its fields, got {name}; export it with commas, and points "
                "in decimal numbers (pandas: to_csv(sep=','), R: write.csv)"
            )


def _read_parquet(path: Path) -> pd.DataFrame:
    try:
        from pyarrow import parquet
    except ImportError as error:
        raise MissingDependencyError(
            f"reading {path.name} needs pyarrow, which is not installed; use "
            "pip install 'deeptram[parquet]', or convert it to CSV"
        ) from error
    try:
        with parquet.ParquetFile(path, thrift_container_size_limit=2**20) as file:
            cells = file.metadata.num_rows * file.metadata.num_columns
            if cells > max(_FREE_CELLS, _CELLS_PER_BYTE * path.stat().st_size):
                raise FileFormatError(
                    f"{path} must unpack to a table of a believable size, got {cells} cells in a file of "
                    f"{path.stat().st_size} bytes; convert it to CSV if it is meant to be so"
                )
            table = file.read(use_threads=False).to_pandas()
    except FileFormatError:
        raise
    except Exception as error:  # damaged files raise one of many kinds
        reason = " ".join(str(error).split())
        raise FileFormatError(
            f"{path} must be a Parquet table, got {reason or type(error).__name__}; export it again"
        ) from error
    table = table.reset_index(drop=table.index.name != ID)  # pandas' own index is no column, unless it is id
    table.columns = [str(name) for name in table.columns]
    _check_names(list(table.columns), path)
    return table.assign(**{ID: table[ID].astype(str)}) if ID in table else table


def _check_names(names: Sequence[str], path: Path) -> None:
    if len(names) > MAX_COLUMNS:
        raise FileFormatError(
            f"{path} must have at most {MAX_COLUMNS} columns, got {len(names)}; leave some out"
        )
    unnamed = [position for position, name in enumerate(names, start=1) if not name]
    if unnamed:
        raise FileFormatError(
            f"every column of {path} must have a name, got none for column {unnamed[0]}; "
            "write the table without row names (pandas: index=False, R: row.names = FALSE)"
        )
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        raise FileFormatError(
            f"the columns of {path} must have different names, got {repeated[0]!r} twice; rename one"
        )
