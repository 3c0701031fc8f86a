"""The table `operations`, from Arrow to the columns that checks read."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from ..parquet.values import MISSING, Int64s, TextLists, Texts
from ..trace import NULL, Operations


def operations_in(table: pa.Table) -> Operations:
    """Of rows that have no nulls but where the schema allows them."""
    return Operations(
        _numbers(table, "client"),
        _numbers(table, "invoked_us"),
        _numbers(table, "returned_us"),
        _texts(table, "operation"),
        _texts(table, "arguments"),
        _texts(table, "result"),
        _lists(table, "objects"),
    )


def _numbers(table: pa.Table, name: str) -> Int64s:
    column = table.column(name)
    return np.asarray((column.fill_null(NULL) if column.null_count else column).to_numpy())


def _texts(table: pa.Table, name: str) -> Texts:
    return Texts(*_encoded(table.column(name).combine_chunks()))


def _lists(table: pa.Table, name: str) -> TextLists:
    lists = table.column(name).combine_chunks()
    sizes = lists.value_lengths().to_numpy(zero_copy_only=False)
    return TextLists(np.concatenate(([0], np.cumsum(sizes, dtype=np.int64))), *_encoded(lists.flatten()))


def _encoded(texts: pa.Array) -> tuple[np.ndarray[tuple[int], np.dtype[np.int32]], tuple[str, ...]]:
    encoded = texts if pa.types.is_dictionary(texts.type) else texts.dictionary_encode()
    codes = encoded.indices.fill_null(MISSING).to_numpy(zero_copy_only=False).astype(np.int32)
    return codes, tuple(encoded.dictionary.to_pylist())
