"""Converts the numpy columns of a run (`run.py`) to columns of Parquet files and back; a missing value is `NULL`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from ..parquet.values import INTEGERS, Integers, Lists, Texts, Values
from .run import Deliveries, Fault, Multicasts, WireRows
from .schema import DELIVERIES, FAULTS, MULTICASTS, NULL, TABLES, WIRE, Schema

_Rows = TypeVar("_Rows", Multicasts, Deliveries, WireRows)


def multicast_values(rows: Multicasts) -> list[Values]:
    return _values(MULTICASTS, {**_fields(rows), "dst": Lists(rows.dst_start, rows.dst)})


def delivery_values(rows: Deliveries) -> list[Values]:
    return _values(DELIVERIES, _fields(rows))


def wire_values(rows: WireRows) -> list[Values]:
    return _values(WIRE, {**_fields(rows), "kind": Texts(rows.kind.astype(np.int32, copy=False), rows.kinds)})


def fault_values(faults: Sequence[Fault]) -> list[Values]:
    numbers = {name: np.array([getattr(fault, name) for fault in faults], np.int64) for name in ("process", "t_us")}
    texts = {name: _texts([getattr(fault, name) for fault in faults]) for name in ("what", "detail")}
    return _values(FAULTS, {**numbers, **texts})


def _fields(rows: Multicasts | Deliveries | WireRows) -> dict[str, Any]:
    return {field.name: getattr(rows, field.name) for field in fields(rows)}


def _texts(texts: Sequence[str]) -> Texts:
    code_of: dict[str, int] = {}
    codes = [code_of.setdefault(text, len(code_of)) for text in texts]
    return Texts(np.array(codes, np.int32), tuple(code_of))


def _values(schema: Schema, columns: Mapping[str, npt.NDArray[Any] | Values]) -> list[Values]:
    """In the order of the schema, with exactly its types."""
    values: list[Values] = []
    for column in schema.columns:
        found = columns[column.name]
        if not isinstance(found, np.ndarray):
            values.append(found)
            continue
        exact = found.astype(INTEGERS[column.type], copy=False)
        assert np.array_equal(exact, found), f"a value of {column.name} does not fit into {column.type}"
        present = exact != NULL if column.nullable else None
        values.append(Integers(exact, None if present is None or present.all() else present))
    return values


def multicasts_of(columns: Mapping[str, Values]) -> Multicasts:
    lists = columns["dst"]
    assert isinstance(lists, Lists)
    numbers = {name: _numbers(columns[name], MULTICASTS, name) for name in MULTICASTS.names if name != "dst"}
    return Multicasts(**numbers, dst_start=lists.start, dst=lists.values)


def deliveries_of(columns: Mapping[str, Values]) -> Deliveries:
    return Deliveries(**{name: _numbers(columns[name], DELIVERIES, name) for name in DELIVERIES.names})


def wire_of(columns: Mapping[str, Values]) -> WireRows:
    texts = columns["kind"]
    assert isinstance(texts, Texts)
    numbers = {name: _numbers(columns[name], WIRE, name) for name in WIRE.names if name != "kind"}
    return WireRows(**numbers, kind=texts.codes, kinds=texts.words)


def faults_of(columns: Mapping[str, Values]) -> list[Fault]:
    process, t_us = (_numbers(columns[name], FAULTS, name).tolist() for name in ("process", "t_us"))
    what, detail = (_spelt(columns[name]) for name in ("what", "detail"))
    return [Fault(*row) for row in zip(process, t_us, what, detail, strict=True)]


def _numbers(values: Values, schema: Schema, name: str) -> npt.NDArray[Any]:
    assert isinstance(values, Integers)
    (column,) = (column for column in schema.columns if column.name == name)
    return values.filled(NULL if column.nullable else 0).astype(INTEGERS[column.type], copy=False)


def _spelt(values: Values) -> list[str]:
    assert isinstance(values, Texts)
    return [values.words[code] for code in values.codes.tolist()]


def empty_columns(name: str) -> dict[str, Values]:
    """Of a table without rows."""
    return {column.name: _empty(column.type, column.is_list) for column in TABLES[name].columns}


def _empty(kind: str, is_list: bool) -> Values:
    if kind not in INTEGERS:
        return Texts(np.zeros(0, np.int32), ())
    none = np.zeros(0, INTEGERS[kind])
    return Lists(np.zeros(1, np.int64), none) if is_list else Integers(none)


def joined(parts: Sequence[Mapping[str, Values]]) -> dict[str, Values]:
    """The columns of several files as one table."""
    if len(parts) == 1:
        return dict(parts[0])
    return {name: _joined([part[name] for part in parts]) for name in parts[0]}


def _joined(parts: Sequence[Any]) -> Values:
    match parts[0]:
        case Integers():
            present = None
            if any(part.present is not None for part in parts):
                present = np.concatenate(
                    [np.ones(len(part), np.bool_) if part.present is None else part.present for part in parts]
                )
            return Integers(np.concatenate([part.values for part in parts]), present)
        case Lists():
            sizes = np.concatenate([np.diff(part.start) for part in parts])
            start = np.concatenate(([0], np.cumsum(sizes, dtype=np.int64)))
            return Lists(start, np.concatenate([part.values for part in parts]))
        case Texts():
            code_of: dict[str, int] = {}
            codes = []
            for part in parts:
                number = np.array([code_of.setdefault(word, len(code_of)) for word in part.words], np.int32)
                codes.append(number[part.codes] if len(part) else part.codes)
            return Texts(np.concatenate(codes), tuple(code_of))
        case _:
            raise TypeError(type(parts[0]))
