"""Tables on disk or in a pipe, CSV or Parquet, read with plain sentences for what is wrong with them.

Files are untrusted: what a small file may unpack to is bounded before it is unpacked. ``-`` is a pipe: its
content is kept in a temporary file, for a table is looked at before it is read.
"""

from __future__ import annotations

import csv
import gzip
import io
import re
import shutil
import sys
import tempfile
import warnings
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
import pandas as pd

from deeptram._files import replacing
from deeptram._validation import first_rows
from deeptram.cli.options import check_is_file
from deeptram.cli.output import note
from deeptram.errors import FileFormatError, InvalidInputError, InvalidTypeError, optional_module

TEXT = (".csv", ".csv.gz", ".tsv", ".tsv.gz")
PARQUET = (".parquet", ".pq")
ENDINGS = (*TEXT, *PARQUET)
PIPE = Path("-")
ID = "id"
BATCH_ROWS = 2**15
MAX_COLUMNS = 100_000
# Tables of this size are always unpacked; larger ones only from files that are not far smaller.
_FREE_BYTES, _BYTES_PER_BYTE = 2**26, 200
_FREE_CELLS, _CELLS_PER_BYTE = 2**24, 50
_SEPARATORS = {";": "semicolons", "\t": "tabs", "|": "bars"}
_FIELD_WITH_MARK = re.compile(rb"(?:^|[;\t|])\s*-?\d+([.,])\d+\s*(?=$|[;\t|])", re.MULTILINE)
_SIGNATURES = {
    b"PK\x03\x04": "a zip archive or an Excel workbook; save the sheet as CSV",
    b"\xd0\xcf\x11\xe0": "an Excel workbook; save the sheet as CSV",
    b"\x1f\x8b": "a gzip file; rename it to .csv.gz",
    b"%PDF": "a PDF; export the table as CSV",
    b"PAR1": "a Parquet file; rename it to .parquet",
    b"\xff\xfe": "text in UTF-16; save it as UTF-8",
    b"\xfe\xff": "text in UTF-16; save it as UTF-8",
}
_ANY_NUMBER = str.maketrans("iu", "ff")
_PARSING = (ValueError, OSError, EOFError, OverflowError, zlib.error, csv.Error, pd.errors.ParserWarning)


def read_table_file(path: Path, *, text: bool = False) -> pd.DataFrame:
    """Read a table with a header; the column ``id``, if there is one, as text.

    Parameters
    ----------
    path : Path
        Its suffix says what it is: ``.csv``, ``.tsv`` (both also ``.gz``), ``.parquet`` or ``.pq``; ``-`` is
        stdin, with either.
    text : bool
        Leave every column of a CSV file as text.

    Returns
    -------
    DataFrame
        With at least one row; column names are strings.
    """
    with _place(path) as (place, is_parquet):
        table = _read_parquet(place, path) if is_parquet else _read_csv(place, path, text)
    return _with_rows(table, path)


def table_batches(path: Path, rows: int = BATCH_ROWS, text: Sequence[str] = ()) -> Iterator[pd.DataFrame]:
    """Yield a table in parts of so many rows, with the types that the whole table has.

    Parameters
    ----------
    path : Path
        As for :func:`read_table_file`.
    rows : int
        Of a part; the last one may have fewer.
    text : sequence of str
        Columns of a CSV file that stay text, as ``id`` does: 007 is not 7. In Parquet a column has its type.
    """
    with _place(path) as (place, is_parquet):
        parts = (
            _parquet_parts(place, path, rows) if is_parquet else _csv_parts(place, path, rows, [ID, *text])
        )
        yield _with_rows(next(parts, pd.DataFrame()), path)
        for part in parts:
            yield _with_rows(part, path)


@contextmanager
def table_writer(path: Path) -> Iterator[Callable[[pd.DataFrame], None]]:
    """Write a table part by part inside the block; it takes its name when the block has ended well.

    Parameters
    ----------
    path : Path
        Its suffix says what is written, as for :func:`read_table_file`; ``-`` is CSV on stdout.
    """
    if path == PIPE:
        yield _CsvParts(sys.stdout.buffer, ",").write
        return
    with replacing(path) as file:
        if path.name.endswith(PARQUET):
            with closing(_ParquetParts(file)) as parts:
                yield parts.write
            return
        separator = "\t" if ".tsv" in path.suffixes[-2:] else ","
        if path.suffix != ".gz":
            yield _CsvParts(file, separator).write
            return
        with gzip.GzipFile(fileobj=file, mode="wb", mtime=0) as packed:
            yield _CsvParts(packed, separator).write


def check_ending(path: Path, name: str = "--out") -> None:
    """Raise unless the name of a file says what it is, or will be."""
    if path != PIPE and not path.name.endswith(ENDINGS):
        pipe = ", or - for stdout" if name == "--out" else ""
        raise InvalidInputError(
            f"{name} must be a table ending in {', '.join(ENDINGS)}{pipe}, got {path.name}; "
            "rename or convert it"
        )


class _CsvParts:
    """Writes the parts of a table as CSV, with one header."""

    def __init__(self, file: IO[bytes] | gzip.GzipFile, separator: str) -> None:
        self.file, self.separator, self.header = file, separator, True

    def write(self, table: pd.DataFrame) -> None:
        text = table.to_csv(sep=self.separator, index=False, header=self.header, lineterminator="\n")
        self.file.write(text.encode())
        self.header = False


class _ParquetParts:
    """Writes the parts of a table as row groups of a Parquet file."""

    def __init__(self, file: IO[bytes]) -> None:
        self.file = file
        self.writer: Any = None

    def write(self, table: pd.DataFrame) -> None:
        pyarrow = _pyarrow("writing Parquet")
        if self.writer is None:
            self.schema = pyarrow.Schema.from_pandas(table, preserve_index=False)
            self.writer = pyarrow.parquet.ParquetWriter(self.file, self.schema)
        self.writer.write_table(pyarrow.Table.from_pandas(table, self.schema, preserve_index=False))

    def close(self) -> None:
        if self.writer is not None:
            self.writer.close()


@contextmanager
def _place(path: Path) -> Iterator[tuple[Path, bool]]:
    """Yield where a table can be read, and whether it is Parquet (else CSV)."""
    if path != PIPE:
        check_is_file(path)
        check_ending(path, str(path))
        yield path, path.name.endswith(PARQUET)
        return
    with tempfile.NamedTemporaryFile(suffix=".csv") as kept:
        shutil.copyfileobj(sys.stdin.buffer, kept)
        kept.seek(0)
        start = kept.read(4)
        yield Path(kept.name), start == b"PAR1"


def _with_rows(table: pd.DataFrame, path: Path) -> pd.DataFrame:
    if not len(table):
        raise FileFormatError(f"{path} must hold at least one row below its header, got none; check the file")
    return table


# -- rows as lines of their file ----------------------------------------------------------------------


def file_lines(table: pd.DataFrame | pd.Series, path: Path, mask: Any) -> str:
    """Say where rows stand in their file: the lines of text (its header is line 1), the rows of Parquet.

    Examples
    --------
    >>> file_lines(pd.DataFrame({"x": [1, 2]}), Path("a.csv"), [False, True])
    'line 3'
    """
    is_text = not path.name.endswith(PARQUET)
    before = int(table.index[0]) + 2 * is_text  # a part of a table begins further down
    rows = first_rows(np.concatenate([np.zeros(before, dtype=bool), mask]))
    return rows.replace("row", "line") if is_text else f"{rows} (the first is row 0)"


@contextmanager
def naming_lines(path: Path, first: int = 0, **columns: str) -> Iterator[None]:
    """Let errors about rows of a table name its file and their places in it, as :func:`file_lines` does.

    Parameters
    ----------
    path : Path
    first : int
        Rows of the file before those of the block.
    **columns : str
        The columns that messages call by another name, such as y.
    """
    try:
        yield
    except (InvalidInputError, InvalidTypeError) as error:
        said = str(error)
        for word, column in columns.items():
            said = re.sub(rf"^{word} must", f"column {column!r} must", said)
        said = with_lines(said, path, first)
        if said == str(error) and "column" not in said:  # nothing about the table
            raise
        raise type(error)(f"{path}: {said}") from error


def with_lines(said: str, path: Path, first: int = 0) -> str:
    """Return a sentence about rows with their places in a file, as :func:`file_lines` says them.

    Parameters
    ----------
    said : str
    path : Path
    first : int
        Rows of the file before those of the sentence.

    Examples
    --------
    >>> with_lines("got 2 in rows 0, 3, ... (7 in all)", Path("a.csv"))
    'got 2 in lines 2, 5, ... (7 in all)'
    """
    is_text = not path.name.endswith(PARQUET)
    move = first + (2 if is_text else 0)

    def place(found: re.Match[str]) -> str:
        moved = re.sub(r"\d+", lambda number: str(int(number[0]) + move), found["numbers"])
        return f"{'line' if is_text else 'row'}{found['many']} {moved}"

    return re.sub(r"\brow(?P<many>s?) (?P<numbers>\d+(, \d+)*)\b", place, said)


# -- CSV ----------------------------------------------------------------------------------------------


def _read_csv(place: Path, path: Path, text: bool) -> pd.DataFrame:
    with _parsing(path, place):
        source = _unzipped(place, path) if place.suffix == ".gz" else place
        layout = _layout(source, path)
        types = str if text else {ID: str} if ID in layout["names"] else None
        table: pd.DataFrame = pd.read_csv(source, dtype=types, keep_default_na=not text, **layout)
        return table


def _csv_parts(place: Path, path: Path, rows: int, text: Sequence[str]) -> Iterator[pd.DataFrame]:
    """Yield parts after a first pass that finds the columns which are text somewhere in the table."""
    source: Any = gzip.open(place) if place.suffix == ".gz" else place.open("rb")  # noqa: SIM115
    with source:
        with _parsing(path):
            layout = _layout(source, path)
        texts: dict[str, Any] = {name: str for name in text if name in layout["names"]}
        kinds: dict[str, set[str]] = {name: set() for name in layout["names"]}
        for number, part in enumerate(_chunks(source, place, path, rows, texts, layout)):
            if number == 0 and len(part) < rows:  # all of it: its types are those of the table
                yield part
                return
            for name in kinds:
                kinds[name].add(part[name].dtype.kind.translate(_ANY_NUMBER))
        mixed = [name for name, found in kinds.items() if "O" in found or len(found) > 1]
        yield from _chunks(source, place, path, rows, texts | dict.fromkeys(mixed, str), layout)


def _chunks(
    source: Any, place: Path, path: Path, rows: int, types: dict[str, Any], layout: dict[str, Any]
) -> Iterator[pd.DataFrame]:
    """Yield parts, each parsed as a table of its own: pandas' chunks let rows pass that are too long."""
    source.seek(0)
    text = io.TextIOWrapper(source, encoding="utf-8-sig", newline="")
    options = {**layout, "header": None, "dtype": types}
    try:
        with _parsing(path):
            next(
                filter(None, csv.reader(text, delimiter=layout["sep"]))
            )  # the header, of several lines or one
            block = _lines(text, rows)
        if not block:
            yield pd.DataFrame(columns=layout["names"])
        while block:
            with _parsing(path, place):
                part = pd.read_csv(io.StringIO(block), **options)
            yield part
            with _parsing(path):
                block = _lines(text, rows)
    finally:
        text.detach()


def _lines(text: Iterator[str], rows: int) -> str:
    """Return the next lines that are not blank; none ends inside quotes."""
    lines: list[str] = []
    quotes = 0
    for line in text:
        if quotes % 2 or line.strip():
            lines.append(line)
            quotes += line.count('"')
        if len(lines) >= rows and quotes % 2 == 0:
            break
    return "".join(lines)


@contextmanager
def _parsing(path: Path, place: Path | None = None) -> Iterator[None]:
    """Say what is wrong with a CSV file where the parser stumbles, and in which line."""
    try:
        with warnings.catch_warnings():
            # A row longer than the header would lose its end with no more than a warning.
            warnings.simplefilter("error", pd.errors.ParserWarning)
            yield
    except FileFormatError:
        raise
    except UnicodeDecodeError as error:
        raise FileFormatError(
            f"{path} must be text in UTF-8, got the byte {hex(error.object[error.start])} instead; save "
            "it as UTF-8 (in spreadsheets: CSV UTF-8)"
        ) from error
    except _PARSING as error:  # parser errors are ValueErrors
        reason = (place and _long_row(place)) or " ".join(str(error).split())
        raise FileFormatError(
            f"{path} must be a CSV table with as many fields in every row as in the header, got {reason}; "
            "export it again"
        ) from error


def _long_row(place: Path) -> str | None:
    """Return which line has more fields than the header, if that can be told."""
    try:
        with gzip.open(place) if place.suffix == ".gz" else place.open("rb") as file:
            separator = _separator(file.readline(), place, quiet=True)
            file.seek(0)
            lines = csv.reader(io.TextIOWrapper(file, encoding="utf-8-sig", newline=""), delimiter=separator)
            known = len(next(filter(None, lines)))
            long = next(fields for fields in lines if len(fields) > known)
            return f"{len(long)} fields in line {lines.line_num} where the header has {known}"
    except (*_PARSING, StopIteration):
        return None


def _unzipped(place: Path, path: Path) -> io.BytesIO:
    """Return what a gzip file holds, unless it grows out of all proportion."""
    content = io.BytesIO()
    with place.open("rb") as raw, gzip.GzipFile(fileobj=raw) as file:
        while block := file.read(2**20):
            content.write(block)
            if content.tell() > max(_FREE_BYTES, _BYTES_PER_BYTE * raw.tell()):
                raise FileFormatError(
                    f"{path} must unpack to a table of a believable size, got more than {_BYTES_PER_BYTE} "
                    "bytes for each of its own; unpack it first if it is meant to be so"
                )
    content.seek(0)
    return content


def _layout(source: Any, path: Path) -> dict[str, Any]:
    """Return how a table is laid out, as options of pandas: separator, decimal mark, names."""
    file = source.open("rb") if isinstance(source, Path) else source
    try:
        start = file.read(2**16)
        line = start if b"\n" in start else start + file.readline(2**24)
        _check_is_csv(line, path)
        separator = _separator(line.partition(b"\n")[0], path)
        file.seek(0)
        names = _header(file, separator)
        file.seek(0)
    finally:
        if file is not source:
            file.close()
    if not names:
        raise FileFormatError(f"{path} must be a CSV table, got an empty file; export it again")
    _check_names(names, path)
    comma = separator != "," and set(_FIELD_WITH_MARK.findall(start)) == {b","}
    if comma:
        note(f"{path} has commas in its decimal numbers; they are read as points")
    return {
        "sep": separator,
        "decimal": "," if comma else ".",
        "header": 0,
        "names": names,
        "index_col": False,
        "float_precision": "round_trip",
        "low_memory": False,
    }


def _header(file: Any, separator: str) -> list[str]:
    """Return the fields of the first line that is not empty (pandas takes seconds for thousands of them)."""
    text = io.TextIOWrapper(file, encoding="utf-8-sig", newline="")
    try:
        return [name.strip() for name in next(filter(None, csv.reader(text, delimiter=separator)), [])]
    finally:
        text.detach()


def _check_is_csv(start: bytes, path: Path) -> None:
    """Raise if a file does not begin as a table does, before a parser makes sense of it."""
    for signature, what in _SIGNATURES.items():
        if start.startswith(signature):
            raise FileFormatError(f"{path} must be a CSV table, got {what}")
    if b"\x00" in start:
        raise FileFormatError(f"{path} must be a CSV table, got a binary file; export the table as CSV")


def _separator(line: bytes, path: Path, *, quiet: bool = False) -> str:
    """Return what stands between the fields of the header: what a suffix says, else the most frequent."""
    for separator, name in _SEPARATORS.items():
        if line.count(separator.encode()) > line.count(b","):
            if not quiet and not (separator == "\t" and ".tsv" in path.suffixes):
                note(f"{path} has {name} between its fields; it is read as it is")
            return separator
    return ","


# -- Parquet ------------------------------------------------------------------------------------------


def _pyarrow(what: str) -> Any:
    optional_module("pyarrow.parquet", what, "parquet")
    return optional_module("pyarrow", what, "parquet")


@contextmanager
def _parquet_file(place: Path, path: Path) -> Iterator[Any]:
    parquet = _pyarrow(f"reading {path.name}").parquet
    try:
        with parquet.ParquetFile(place, thrift_container_size_limit=2**20, pre_buffer=False) as file:
            yield file
    except (FileFormatError, GeneratorExit):
        raise
    except Exception as error:  # damaged files raise one of many kinds
        reason = " ".join(str(error).split())
        raise FileFormatError(
            f"{path} must be a Parquet table, got {reason or type(error).__name__}; export it again"
        ) from error


def _read_parquet(place: Path, path: Path) -> pd.DataFrame:
    with _parquet_file(place, path) as file:
        cells = file.metadata.num_rows * file.metadata.num_columns
        if cells > max(_FREE_CELLS, _CELLS_PER_BYTE * place.stat().st_size):
            raise FileFormatError(
                f"{path} must unpack to a table of a believable size, got {cells} cells in a file of "
                f"{place.stat().st_size} bytes; convert it to CSV if it is meant to be so"
            )
        return _as_pandas(file.read(use_threads=False), path)


def _parquet_parts(place: Path, path: Path, rows: int) -> Iterator[pd.DataFrame]:
    pyarrow = _pyarrow(f"reading {path.name}")
    with _parquet_file(place, path) as file:
        for batch in file.iter_batches(batch_size=rows, use_threads=False):
            yield _as_pandas(pyarrow.Table.from_batches([batch]), path, text_id=False)


def _as_pandas(found: Any, path: Path, text_id: bool = True) -> pd.DataFrame:
    table: pd.DataFrame = found.to_pandas()
    table = table.reset_index(drop=table.index.name != ID)  # pandas' own index is no column, unless it is id
    table.columns = [str(name) for name in table.columns]
    _check_names(list(table.columns), path)
    return table.assign(**{ID: table[ID].astype(str)}) if text_id and ID in table else table


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
