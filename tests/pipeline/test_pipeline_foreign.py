"""How foreign files are read: quickly or line by line with the same result, and in any parts."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from amcast.pipeline.foreign import Source, find_sources
from amcast.pipeline.foreign.cells import read_cells, read_lines
from amcast.pipeline.foreign.numbers import number_names, people_sort
from amcast.pipeline.foreign.parts import Block, Part, blocks_of, parts_of
from amcast.pipeline.foreign.reading import PartReader
from amcast.pipeline.foreign.sources import LINE_BYTES_MAX
from amcast.pipeline.foreign.values import convert

SOURCE = Source(
    "deliveries.csv",
    "deliveries",
    "csv",
    begins=0,
    line=2,
    size=0,
    columns={"process": "process", "pos": "pos", "msg": "msg", "ts": "ts"},
    header=("process", "pos", "odd", "msg", "ts"),
)

CELLS = st.one_of(
    st.integers(-(2**64), 2**64).map(str),
    st.sampled_from(
        ["", " ", "0", "-0", "+1", "007", "1.0", "1e3", "nan", "NULL", "0x10", "1_000", "\u0661", " 5 ", "\t6"]
    ),
    st.text(st.characters(codec="utf-8", exclude_characters='",\n\r\0'), max_size=8),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.lists(CELLS, min_size=4, max_size=6), max_size=8), st.sampled_from(["\n", "\r\n"]))
def test_the_quick_way_gives_what_the_definition_gives(rows: list[list[str]], end: str) -> None:
    lines = "".join(",".join(row) + end for row in rows).encode()
    quick, slow = read_cells(SOURCE, lines), read_lines(SOURCE, lines)
    assert quick.wrong == slow.wrong
    assert {name: cells.to_pylist() for name, cells in quick.columns.items()} == {
        name: cells.to_pylist() for name, cells in slow.columns.items()
    }
    of_quick, of_slow = convert(SOURCE, quick), convert(SOURCE, slow)
    assert of_quick[1] == of_slow[1]
    assert of_quick[0].equals(of_slow[0])


@settings(deadline=None)
@given(st.integers(-(2**70), 2**70))
def test_an_integer_survives_or_is_refused(number: int) -> None:
    table, wrong = convert(SOURCE, read_cells(SOURCE, f"a,0,,m,{number}\n".encode()))
    if -(2**63) < number < 2**63:
        assert not wrong
        assert table.column("ts").to_pylist() == [number]
    else:
        assert [(row, column) for row, column, _ in wrong] == [(0, "ts")]


@pytest.mark.parametrize(
    ("unit", "text", "t_us"),
    [
        ("us", "9007199254740993", 2**53 + 1),
        ("ms", "1.5", 1_500),
        ("ms", "-0.001", -1),
        ("s", "1763384315.1234567", 1_763_384_315_123_456),
        ("ns", "1999", 1),
        ("iso", "1970-01-01T00:00:01.000001Z", 1_000_001),
        ("iso", "1970-01-01T02:00:00+02:00", 0),
        ("iso", "1970-01-01 00:00:01", 1_000_000),
        ("us", "1.5", None),
        ("us", str(2**63), None),
        ("s", str(2**60), None),
        ("s", "1e3", None),
        ("s", "1,5", None),
        ("ms", "NaN", None),
        ("ns", "1.5", None),
        ("iso", "yesterday", None),
    ],
)
def test_times_are_exact_in_every_unit(tmp_path: Path, unit: str, text: str, t_us: int | None) -> None:
    file = tmp_path / "deliveries.csv"
    file.write_text(f'process,msg,t_us\na,m,"{text}"\n')
    (source,) = find_sources([file], unit=unit)  # type: ignore[arg-type]
    reader = PartReader(parts_of(source, 1 << 20)[0])
    found = [table.column("t_us").to_pylist() for table in reader]
    assert found == ([] if t_us is None else [[t_us]])
    assert [problem.column for problem in reader.problems.kept] == (["t_us"] if t_us is None else [])


@pytest.mark.parametrize("size", [1, 7, 64, 1_000, 1 << 20])
@pytest.mark.parametrize("end", ["", "\n"])
def test_a_line_belongs_to_one_part(tmp_path: Path, size: int, end: str) -> None:
    rng = random.Random(size)
    lines = [f"a,{'x' * rng.randrange(1, 30)}{number}" for number in range(100)]
    file = tmp_path / "deliveries.csv"
    file.write_text("process,msg\n" + "\n".join(lines) + end)
    (source,) = find_sources([file])
    found = []
    for part in parts_of(source, size):
        for block in blocks_of(part):
            assert isinstance(block, Block)
            found += block.lines.decode().splitlines()
    assert found == lines


@pytest.mark.parametrize("length", [LINE_BYTES_MAX - 1, LINE_BYTES_MAX, LINE_BYTES_MAX + 1, 9 << 20])
def test_only_a_line_that_is_too_long_is_refused(tmp_path: Path, length: int) -> None:
    file = tmp_path / "deliveries.csv"
    long = "b," + "y" * (length - 2)
    file.write_text(f"process,msg\na,x\n{long}\na,z\n")
    (source,) = find_sources([file])
    found = list(blocks_of(Part(source, source.begins, source.size)))
    if length <= LINE_BYTES_MAX:
        assert b"".join(block.lines for block in found if isinstance(block, Block)).endswith(b"\na,z\n")
    else:
        assert not isinstance(found[-1], Block)
        assert found[-1].line == 1, "lines count from 0 where the rows begin"


def test_names_are_numbered_as_people_sort_them() -> None:
    assert people_sort(["g10", "g2", "g1", "a", "g02"]) == ["a", "g1", "g02", "g2", "g10"]
    made = number_names({"g10": ["z", "y"], "g2": ["x"]}, ["c2", "c10", "x"], messages_are_numbers=True)
    assert made.groups == {"g2": 1, "g10": 2}
    assert made.members == {"x": 0, "z": 1, "y": 2}
    assert made.clients == {"c2": 3, "c10": 4}


def test_integers_are_kept_only_if_all_are_and_have_one_way_to_be_written() -> None:
    assert number_names({"7": ["5", "3"]}, ["900"], True).members == {"5": 5, "3": 3}
    assert number_names({"7": ["5", "03"]}, ["900"], True).members == {"5": 0, "03": 1}
    assert number_names({"7": ["5", str(2**31)]}, ["900"], True).members == {"5": 0, str(2**31): 1}
    assert number_names({"7": ["5"]}, ["eve"], True).clients == {"eve": 1}
    assert number_names({"7": ["5"]}, ["eve"], True).groups == {"7": 7}


def test_a_number_is_a_number_whatever_blank_is_around_it() -> None:
    table, wrong = convert(SOURCE, read_cells(SOURCE, b" a , 1 ,, m\t,\n"))
    assert not wrong
    assert table.select(["process", "pos", "msg", "ts"]).to_pylist() == [
        {"process": "a", "pos": 1, "msg": "m", "ts": None}
    ]
    assert table.column("pos").type == pa.int64()
