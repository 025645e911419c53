"""Tables that are not tables, and tables that are far larger than they look."""

from __future__ import annotations

import gzip
import time
import tracemalloc
import zlib

import numpy as np
import pandas as pd
import pytest

from deeptram.cli.tables import read_table_file
from deeptram.errors import FileFormatError

PARQUET = b"PAR1" + bytes(range(200))
FILES = {
    "excel": (b"PK\x03\x04" + bytes(100), "got a zip archive or an Excel workbook; save the sheet as CSV"),
    "old excel": (b"\xd0\xcf\x11\xe0" + bytes(100), "got an Excel workbook"),
    "gzip": (gzip.compress(b"a,b\n1,2\n"), "got a gzip file; rename it to .csv.gz"),
    "parquet": (PARQUET, "got a Parquet file; rename it to .parquet"),
    "utf-16": ("a,b\n1,2\n".encode("utf-16"), "got text in UTF-16; save it as UTF-8"),
    "binary": (b"\x7fELF\x02\x01\x01" + bytes(100), "must be a CSV table, got a binary file"),
    "png": (b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 4, "must be a CSV table, got a binary file"),
    "late": (b"name,x\n" + b"a,1\n" * 99 + bytes(9), "must be a CSV table, got a binary file"),
    "pdf": (b"%PDF-1.7\n1 0 obj\n", "must be a CSV table, got a PDF"),
    "latin": ("name,ü\n1,2\n".encode("latin-1"), "must be text in UTF-8, got the byte 0xfc"),
    "columns": ("," * 200_000 + "\n", "must have at most 100000 columns, got 200001"),
    "empty": ("\n\n\n", "must be a CSV table, got an empty file"),
    "one field": ('"' + "a" * 200_000 + '",b\n1,2\n', "must be a CSV table .* field larger than"),
}  # fmt: skip


@pytest.mark.parametrize("kind", FILES)
def test_files_that_are_no_csv_tables(kind, tmp_path):
    content, message = FILES[kind]
    path = tmp_path / "t.csv"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(FileFormatError, match=message):
        read_table_file(path)


def test_binary_files_on_the_command_line(refused, tables, tmp_path):
    (tmp_path / "y.csv").write_bytes(b"PK\x03\x04")
    assert "Excel" in refused(
        "pool", "--members", tmp_path / "y.csv", tables.write()[0], "--out", tmp_path / "o"
    )


def test_headers_with_quotes_and_marks_are_read(tmp_path):
    path = tmp_path / "t.csv"
    path.write_bytes('\ufeff"a;b", c ,"d,e"\n1,2,3\n'.encode())
    assert list(read_table_file(path).columns) == ["a;b", "c", "d,e"]
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(path.read_bytes()))
    pd.testing.assert_frame_equal(read_table_file(tmp_path / "t.csv.gz"), read_table_file(path))


@pytest.mark.parametrize("damage", ["cut", "flipped", "plain"])
def test_damaged_gzip_files_are_named(tmp_path, damage):
    content = gzip.compress(b"a,b\n" + b"1.25,2.5\n" * 1000)
    path = tmp_path / "t.csv.gz"
    path.write_bytes(
        {"cut": content[:50], "flipped": content[:30] + b"\xff" * 9 + content[39:], "plain": b"a,b\n1,2\n"}[
            damage
        ]
    )
    with pytest.raises(FileFormatError, match="must be a CSV table"):
        read_table_file(path)


def test_bombs_are_refused_in_bounded_memory(tmp_path):
    pack = zlib.compressobj(6, zlib.DEFLATED, 31)
    block = b"1,1\n" * 2**18
    with (tmp_path / "bomb.csv.gz").open("wb") as file:
        file.write(pack.compress(b"a,b\n"))
        for _ in range(80):
            file.write(pack.compress(block))
        file.write(pack.flush())
    tracemalloc.start()
    with pytest.raises(
        FileFormatError, match="must unpack to a table of a believable size, got more than 200 bytes"
    ):
        read_table_file(tmp_path / "bomb.csv.gz")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 200 * 2**20


def test_many_columns_are_read_in_time(tmp_path):
    """20,000 columns took 13 s, most of it in search of names that are there twice."""
    path = tmp_path / "wide.csv"
    path.write_text(",".join(f"c{k}" for k in range(20_000)) + "\n" + ",".join(["1"] * 20_000) + "\n")
    started = time.process_time()
    assert read_table_file(path).shape == (1, 20_000)
    assert time.process_time() - started < 4


def test_damaged_parquet_files_are_named_or_read(tmp_path):
    rng = np.random.default_rng(5)
    table = pd.DataFrame({"id": [f"r{k}" for k in range(50)], "a": rng.normal(size=50), "b": ["x", "y"] * 25})
    table.to_parquet(tmp_path / "t.parquet")
    whole = (tmp_path / "t.parquet").read_bytes()
    refused = 0
    for k in range(80):
        content = bytearray(whole)
        if k % 4 == 0:
            del content[rng.integers(len(content)) :]
        else:
            for position in rng.integers(len(content), size=rng.integers(1, 6)):
                content[position] = rng.integers(256)
        (tmp_path / "t.parquet").write_bytes(content)
        try:
            read_table_file(tmp_path / "t.parquet")
        except FileFormatError:
            refused += 1
    assert refused > 40


def test_parquet_bombs_are_refused(tmp_path):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    pq.write_table(pa.table({"a": pa.array(np.zeros(20_000_000, dtype=np.int8))}), tmp_path / "bomb.parquet")
    with pytest.raises(
        FileFormatError, match="must unpack to a table of a believable size, got 20000000 cells"
    ):
        read_table_file(tmp_path / "bomb.parquet")
    wide = {f"c{k}": pa.array([1]) for k in range(11)}
    pq.write_table(pa.table(wide), tmp_path / "wide.parquet")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("deeptram.cli.tables.MAX_COLUMNS", 10)
        with pytest.raises(FileFormatError, match="must have at most 10 columns, got 11"):
            read_table_file(tmp_path / "wide.parquet")
