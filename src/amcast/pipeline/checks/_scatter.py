"""A batch of operations as numbers: what a proof needs of reads and writes of registers, and which objects need more.

Nearly all values are integers or plain words, whose JSON has one spelling: they are taken as they stand. The others are
parsed, one by one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ...check.linear.judge import READS, WRITES, Judged, count_answers, spelt_argument, spelt_result
from ...check.linear.versions import NEVER
from ...trace import NULL
from ...trace.operations import NOTHING, TIME_LIMIT, check_operations
from ..operations import operations_in
from ._texts import UInt64s, hash_texts, mix

_SPELT = r'(-?[1-9][0-9]{0,17}|0|null|"[ !#-\[\]-~]*")'
WRITE, INITIAL, HARD = 1, 2, 4  # flags

PLAIN = np.dtype([("object", "<u8"), ("version", "<u8"), ("invoked", "<i8"), ("returned", "<i8"), ("flags", "<u1")])
Rows = npt.NDArray[np.void]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Scattered:
    rows: Rows  # of PLAIN; of an object that is no register, or more than that, it says only so
    edges: UInt64s  # pairs of objects that are in one transaction
    counts: Judged


class Batch:
    """Some rows of the table, without nulls where there must be none."""

    def __init__(self, table: pa.Table, key: int, where: str) -> None:
        self._table = table
        self._key = key
        self._operation, self._arguments, self._result = (
            _array(table, name) for name in ("operation", "arguments", "result")
        )
        lists = table.column("objects").combine_chunks()
        self._sizes = lists.value_lengths().to_numpy(zero_copy_only=False)
        self._invoked, self._returned = (_numbers(table, name) for name in ("invoked_us", "returned_us"))
        self._is_answered: Bools = self._returned != NULL
        self._has_result = ~_flags(pc.is_null(self._result))
        self._is_read, self._is_write = (
            _flags(pc.is_in(self._operation, pa.array(names))) for names in (READS, WRITES)
        )
        self._is_quick = self._quick()
        self._check(where)
        self.objects = hash_texts(_plain(lists.flatten()), key)
        self.first = self.objects[np.cumsum(self._sizes) - self._sizes]

    def _quick(self) -> Bools:
        """Rows that mean something, and whose values are spelt as all others are."""
        is_written = _flags(pc.match_substring_regex(self._arguments, rf"^\[{_SPELT}\]$"))
        is_told = ~self._has_result | _flags(pc.match_substring_regex(self._result, f"^{_SPELT}$"))
        fits = np.where(self._is_write, is_written, _flags(pc.equal(self._arguments, "[]")) & is_told)
        in_time = (np.abs(self._invoked) < TIME_LIMIT) & (
            ~self._is_answered | ((self._returned >= self._invoked) & (self._returned < TIME_LIMIT))
        )
        quick: Bools = (self._is_read | self._is_write) & fits & in_time & (self._sizes == 1)
        return quick

    def _check(self, where: str) -> None:
        slow = np.flatnonzero(~self._is_quick)
        if len(slow):
            check_operations(operations_in(self._table.take(pa.array(slow))), where)

    def scattered(self) -> Scattered:
        plain = self._is_write | (self._is_read & self._is_answered & self._has_result)
        hard = self.objects[np.repeat(~(self._is_read | self._is_write), self._sizes)]
        rows = np.zeros(int(np.count_nonzero(plain)) + len(hard), PLAIN)
        mine = rows[: len(rows) - len(hard)]
        values = self._values(plain)
        mine["object"] = self.first[plain]
        mine["version"] = mix(self.first[plain] ^ hash_texts(values, self._key), self._key)
        mine["invoked"] = self._invoked[plain]
        mine["returned"] = np.where(self._is_answered, self._returned, NEVER)[plain]
        mine["flags"] = WRITE * self._is_write[plain] | INITIAL * _flags(pc.equal(values, NOTHING))
        rows["object"][len(mine) :] = hard
        rows["flags"][len(mine) :] = HARD
        return Scattered(rows, self._edges(), self._counts())

    def _values(self, plain: Bools) -> pa.Array:
        """What each of these rows wrote or read."""
        written = pc.utf8_slice_codeunits(self._arguments, 1, -1)
        texts = pc.if_else(pa.array(self._is_write), written, self._result)
        slow = plain & ~self._is_quick
        if slow.any():
            rows = np.flatnonzero(slow)
            spelt = [
                spelt_argument(self._arguments[row].as_py())
                if self._is_write[row]
                else spelt_result(self._result[row].as_py())
                for row in rows.tolist()
            ]
            texts = pc.replace_with_mask(texts, pa.array(slow), pa.array(spelt, texts.type))
        return texts.filter(pa.array(plain))

    def _edges(self) -> UInt64s:
        several = np.repeat(self._sizes > 1, self._sizes)
        return np.column_stack((np.repeat(self.first, self._sizes)[several], self.objects[several])).ravel()

    def _counts(self) -> Judged:
        encoded = self._operation.dictionary_encode()
        names, codes = encoded.dictionary.to_pylist(), encoded.indices.to_numpy(zero_copy_only=False)
        telling, silent = count_answers(names, codes, self._is_answered, self._has_result)
        return Judged(rows=len(self._table), telling=telling, silent=silent)


def _array(table: pa.Table, name: str) -> pa.Array:
    return _plain(table.column(name).combine_chunks())


def _plain(texts: pa.Array) -> pa.Array:
    return texts.cast(pa.string()) if pa.types.is_dictionary(texts.type) else texts


def _numbers(table: pa.Table, name: str) -> npt.NDArray[np.int64]:
    column = table.column(name)
    return np.asarray((column.fill_null(NULL) if column.null_count else column).to_numpy())


def _flags(found: Any) -> Bools:
    """Null is false."""
    return np.asarray(pc.fill_null(found, False).to_numpy(zero_copy_only=False), np.bool_)
