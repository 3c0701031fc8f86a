"""Parquet files between this package and Arrow's library: each reads what the other writes, in every form in use."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import cramjam
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from amcast.parquet import _bits, _pages, _thrift
from amcast.parquet.column import DOUBLE, TEXT, Column, Encoding
from amcast.parquet.footer import ParquetError, read_footer
from amcast.parquet.reader import Gathered, read_column
from amcast.parquet.values import MISSING, Floats, Integers, Lists, TextLists, Texts, Values
from amcast.parquet.writer import write_table

NULL = -(1 << 63)
COLUMNS = (
    Column("steady", "int64"),
    Column("any", "int64"),
    Column("gaps", "int64", nullable=True),
    Column("few", "int32"),
    Column("tiny", "int8"),
    Column("word", TEXT),
    Column("lists", "int32", is_list=True),
    Column("names", TEXT, is_list=True),
)
ENCODINGS = {
    "steady": Encoding.DIFFERENCES,
    "any": Encoding.DIFFERENCES,
    "gaps": Encoding.DIFFERENCES,
    "few": Encoding.DICTIONARY,
    "tiny": Encoding.DICTIONARY,
    "lists": Encoding.DICTIONARY,
}
WORDS = ("START", "soft", "žluťoučký", "")


def some_values(rows: int, seed: int = 1) -> list[Values]:
    rng = np.random.default_rng(seed)
    sizes = rng.integers(0, 4, rows)
    start = np.concatenate((np.zeros(1, np.int64), np.cumsum(sizes)))
    return [
        Integers(np.cumsum(rng.integers(0, 300, rows))),
        Integers(rng.integers(-(2**63), 2**63 - 1, rows)),
        Integers(rng.integers(-(2**40), 2**40, rows), rng.random(rows) < 0.8),
        Integers(rng.integers(0, 100, rows).astype(np.int32)),
        Integers(rng.integers(-2, 2, rows).astype(np.int8)),
        Texts(rng.integers(0, len(WORDS), rows).astype(np.int32), WORDS),
        Lists(start, rng.integers(1, 40, int(start[-1])).astype(np.int32)),
        TextLists(start, rng.integers(0, len(WORDS), int(start[-1])).astype(np.int32), WORDS),
    ]


def as_lists(values: list[Values]) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for column, each in zip(COLUMNS, values, strict=True):
        match each:
            case Integers(numbers, present):
                there = np.ones(len(numbers), np.bool_) if present is None else present
                pairs = zip(numbers.tolist(), there.tolist(), strict=True)
                found[column.name] = [number if is_there else None for number, is_there in pairs]
            case Texts(codes, words):
                found[column.name] = [words[code] for code in codes.tolist()]
            case Lists(start, numbers):
                bounds = zip(start[:-1].tolist(), start[1:].tolist(), strict=True)
                found[column.name] = [numbers[low:high].tolist() for low, high in bounds]
            case TextLists(start, codes, words):
                spans = zip(start[:-1].tolist(), start[1:].tolist(), strict=True)
                found[column.name] = [[words[code] for code in codes[low:high].tolist()] for low, high in spans]
    return found


def read_lists(path: Path) -> dict[str, list[Any]]:
    with path.open("rb") as file:
        footer = read_footer(file)
        values: list[Values] = []
        for column in COLUMNS:
            into = Gathered(column, footer.rows, NULL)
            read_column(file, footer, column.name, into)
            if column.is_list:
                values.append(into.text_lists() if column.type == TEXT else into.lists())
            elif column.type == TEXT:
                values.append(into.texts())
            else:
                numbers = into.integers()
                values.append(Integers(numbers, numbers != NULL if column.nullable else None))
            assert bool(into.nulls) == (column.nullable and footer.rows > 0)
    return as_lists(values)


@pytest.mark.parametrize("rows", [0, 1, 2, 7, 1_000, 70_000])
def test_arrow_reads_what_we_write(tmp_path: Path, rows: int) -> None:
    values = some_values(rows)
    write_table(tmp_path / "t.parquet", COLUMNS, values, ENCODINGS, row_group_rows=32_768)
    with pq.ParquetFile(tmp_path / "t.parquet", page_checksum_verification=True) as file:
        found = file.read()
        found.validate(full=True)
        for group in range(file.metadata.num_row_groups):
            described = file.metadata.row_group(group).column(0)
            part = found.column("steady").to_numpy()[group * 32_768 : (group + 1) * 32_768]
            assert (described.statistics.min, described.statistics.max) == (part.min(), part.max())
    assert found.to_pydict() == as_lists(values)


@pytest.mark.parametrize("rows", [1, 2, 1_000, 70_000])
def test_we_read_what_we_write(tmp_path: Path, rows: int) -> None:
    values = some_values(rows, seed=rows)
    if rows < 10:
        gaps = values[2]
        assert isinstance(gaps, Integers)
        values[2] = Integers(gaps.values, np.zeros(rows, np.bool_))
    write_table(tmp_path / "t.parquet", COLUMNS, values, ENCODINGS, row_group_rows=32_768)
    assert read_lists(tmp_path / "t.parquet") == as_lists(values)


@pytest.mark.parametrize("rows", [1, 5, 1_000])
def test_doubles_and_texts_that_are_missing(tmp_path: Path, rows: int) -> None:
    columns = (Column("all", DOUBLE), Column("some", DOUBLE, nullable=True), Column("word", TEXT, nullable=True))
    columns += (Column("none", TEXT, nullable=True),)
    rng = np.random.default_rng(rows)
    numbers, is_there = rng.normal(size=rows), rng.random(rows) < 0.7
    codes = rng.integers(MISSING, len(WORDS), rows).astype(np.int32)
    nothing = Texts(np.full(rows, MISSING, np.int32), ())
    values = [Floats(numbers), Floats(numbers, is_there), Texts(codes, WORDS), nothing]
    write_table(tmp_path / "t.parquet", columns, values, {}, row_group_rows=300)
    found = pq.read_table(tmp_path / "t.parquet")
    found.validate(full=True)
    assert found.to_pydict() == {
        "all": numbers.tolist(),
        "some": [number if there else None for number, there in zip(numbers.tolist(), is_there, strict=True)],
        "word": [None if code == MISSING else WORDS[code] for code in codes.tolist()],
        "none": [None] * rows,
    }
    assert [str(field.type) for field in found.schema] == [str(column) for column in columns]


def test_equal_tables_are_equal_bytes(tmp_path: Path) -> None:
    for name in ("one", "two"):
        write_table(tmp_path / name, COLUMNS, some_values(5_000), ENCODINGS, row_group_rows=1_000)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


PLAIN = {"use_dictionary": False}
DELTA = dict.fromkeys(("steady", "any", "gaps", "few", "tiny"), "DELTA_BINARY_PACKED")
SPLIT = dict.fromkeys(("steady", "any", "gaps", "few"), "BYTE_STREAM_SPLIT")


@pytest.mark.parametrize(
    "options",
    [
        *({"compression": name} for name in ("none", "snappy", "gzip", "brotli", "lz4", "zstd")),
        *({"compression": name, "data_page_version": "2.0"} for name in ("none", "snappy", "zstd")),
        {"version": "1.0"},
        {"row_group_size": 777, "data_page_size": 300},
        {"data_page_size": 300, "data_page_version": "2.0"},
        PLAIN,
        PLAIN | {"column_encoding": DELTA},
        PLAIN | {"column_encoding": DELTA | {"word": "DELTA_LENGTH_BYTE_ARRAY"}},
        PLAIN | {"column_encoding": SPLIT | {"word": "DELTA_BYTE_ARRAY"}},
    ],
    ids=str,
)
def test_we_read_what_arrow_writes(tmp_path: Path, options: dict[str, Any]) -> None:
    wanted = as_lists(some_values(5_000))
    kinds = {"int64": pa.int64(), "int32": pa.int32(), "int8": pa.int8(), TEXT: pa.string()}
    fields = [
        pa.field(column.name, pa.list_(kinds[column.type]) if column.is_list else kinds[column.type])
        for column in COLUMNS
    ]
    pq.write_table(pa.table(wanted, schema=pa.schema(fields)), tmp_path / "t.parquet", **options)
    assert read_lists(tmp_path / "t.parquet") == wanted


def test_runs_of_equal_values_among_others_are_read(tmp_path: Path) -> None:
    """A dictionary's numbers are runs and bit-packed values in turn."""
    rng = Random(5)
    few = [number for _ in range(300) for number in [rng.randrange(40)] * rng.choice((1, 2, 3, 9, 50, 700))]
    table = pa.table({"few": pa.array(few, pa.int32())})
    pq.write_table(table, tmp_path / "t.parquet")
    with (tmp_path / "t.parquet").open("rb") as file:
        footer = read_footer(file)
        into = Gathered(Column("few", "int32"), footer.rows)
        read_column(file, footer, "few", into)
    assert into.integers().tolist() == few


@settings(deadline=None)
@given(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=300), st.integers(0, 60))
@example([-(2**63), 2**63 - 1, -(2**63), 0], 0)
def test_any_differences_survive(values: list[int], shift: int) -> None:
    numbers = np.array(values, np.int64) >> shift
    found, end = _bits.unpack_differences(packed := _bits.pack_differences(numbers), len(values))
    assert found.tolist() == numbers.tolist()
    assert end == len(packed)


@settings(deadline=None)
@given(st.lists(st.integers(0, 2**16 - 1), max_size=200), st.sampled_from((1, 8, 16)))
def test_any_numbers_survive(values: list[int], width: int) -> None:
    numbers = (np.array(values, np.int64) % (1 << width)).astype(np.bool_ if width == 1 else f"<u{width // 8}")
    found = _bits.unpack_mixed(_bits.pack_mixed(numbers, width), width, len(values))
    assert found.tolist() == numbers.astype(np.int64).tolist()


@pytest.mark.parametrize("width", range(33))
def test_values_of_every_width_are_unpacked(width: int) -> None:
    rng = Random(width)
    values = [rng.randrange(1 << width) for _ in range(40)]
    bits = "".join(format(value, f"0{width}b")[::-1] if width else "" for value in values)
    packed = bytes(int(bits[at : at + 8][::-1], 2) for at in range(0, len(bits), 8))
    assert _bits.unpack_mixed(bytes([5 << 1 | 1]) + packed, width, 40).tolist() == values


@pytest.mark.parametrize(
    "claim",
    [
        b"\xff" * 11,  # a number without an end
        b"\x80\x80\x80\x80\x08\x04\x05\x00",  # blocks of a billion
        b"\x80\x01\x00\x05\x00",  # no parts
        b"\x80\x01\x04\xff\xff\xff\x7f\x00",  # more values than the page has
        b"\x80\x01\x04\x05\x00\x00\x41\x41\x41\x41",  # values of 65 bits
        b"\x80\x01\x04\x05\x00\x00\x20\x00\x00\x00\x01",  # bits that are not there
    ],
)
def test_impossible_differences_are_refused(claim: bytes) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        _bits.unpack_differences(claim, 5)


def test_a_run_claims_no_more_than_its_page() -> None:
    """A billion zeros take five bytes: only as many are made as the page has values."""
    assert _bits.unpack_mixed(_thrift.encode_varint(1 << 31) + b"\x00", 1, 3).tolist() == [0, 0, 0]


def test_structs_that_are_nested_without_end_are_refused() -> None:
    with pytest.raises(_thrift.ThriftError, match="nested"):
        _thrift.decode(b"\x1c" * 100_000)


@pytest.mark.parametrize("said", [40, 99_999, 100_001])
@pytest.mark.parametrize(
    ("codec", "compress"),
    [
        (1, cramjam.snappy.compress_raw),
        (2, cramjam.gzip.compress),
        (4, cramjam.brotli.compress),
        (6, cramjam.zstd.compress),
        (7, lambda data: cramjam.lz4.compress_block(data, store_size=False)),
    ],
)
def test_a_page_unpacks_to_what_it_says_or_is_refused(codec: int, compress: Any, said: int) -> None:
    """Compression is undone into the room that the page names, never beyond."""
    body = bytes(compress(bytes(100_000)))
    assert _pages.unpacked(body, codec, 100_000) == bytes(100_000)
    with pytest.raises(ParquetError, match="unpack"):
        _pages.unpacked(body, codec, said)


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (pa.uint32(), "uint32"),
        (pa.float64(), "double"),
        (pa.binary(), "binary"),
        (pa.bool_(), "bool"),
        (pa.list_(pa.string()), "list<element: string>"),
        (pa.struct([("a", pa.int32())]), "struct"),
        (pa.list_(pa.list_(pa.int32())), "struct"),
    ],
    ids=str,
)
def test_other_types_have_names(tmp_path: Path, kind: pa.DataType, name: str) -> None:
    pq.write_table(pa.table({"x": pa.array([None], kind)}), tmp_path / "t.parquet")
    with (tmp_path / "t.parquet").open("rb") as file:
        (column,) = read_footer(file).columns
    assert str(column) == name


def test_a_file_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "t.parquet").write_bytes(b"PAR1" + bytes(100) + b"\xff\xff\xff\x7fPAR1")
    with (tmp_path / "t.parquet").open("rb") as file, pytest.raises(ParquetError, match="longer than the file"):
        read_footer(file)
