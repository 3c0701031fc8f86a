"""Converts the numpy columns of a run (`run.py`) to columns of Parquet files and back; a missing value is `NULL`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

import numpy as np
import numpy.typing as npt

from ..parquet.reader import Gathered
from ..parquet.values import INTEGERS, Integers, Lists, Texts, Values
from .operations import Operations
from .run import Answers, Deliveries, Multicasts, Objects, WireRows
from .schema import ANSWERS, DELIVERIES, FAULTS, MULTICASTS, NULL, OBJECTS, OPERATIONS, WIRE, Fault, Schema


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


def answer_values(rows: Answers) -> list[Values]:
    return _values(ANSWERS, _fields(rows))


def operation_values(rows: Operations) -> list[Values]:
    return _values(OPERATIONS, _fields(rows))


def object_values(rows: Objects) -> list[Values]:
    return _values(OBJECTS, _fields(rows))


def _fields(rows: Multicasts | Deliveries | WireRows | Answers | Operations | Objects) -> dict[str, Any]:
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
        assert exact is found or (exact == found).all(), f"a value of {column.name} does not fit into {column.type}"
        present = exact != NULL if column.nullable else None
        values.append(Integers(exact, None if present is None or present.all() else present))
    return values


def multicasts_of(columns: Mapping[str, Gathered]) -> Multicasts:
    lists = columns["dst"].lists()
    numbers = {name: column.integers() for name, column in columns.items() if name != "dst"}
    return Multicasts(**numbers, dst_start=lists.start, dst=lists.values)


def deliveries_of(columns: Mapping[str, Gathered]) -> Deliveries:
    return Deliveries(**{name: column.integers() for name, column in columns.items()})


def wire_of(columns: Mapping[str, Gathered]) -> WireRows:
    kind = columns["kind"].texts()
    numbers = {name: column.integers() for name, column in columns.items() if name != "kind"}
    return WireRows(**numbers, kind=kind.codes, kinds=kind.words)


def faults_of(columns: Mapping[str, Gathered]) -> list[Fault]:
    process, t_us = (columns[name].integers().tolist() for name in ("process", "t_us"))
    what, detail = (_spelt(columns[name].texts()) for name in ("what", "detail"))
    return [Fault(*row) for row in zip(process, t_us, what, detail, strict=True)]


def answers_of(columns: Mapping[str, Gathered]) -> Answers:
    return Answers(**{name: column.integers() for name, column in columns.items()})


def operations_of(columns: Mapping[str, Gathered]) -> Operations:
    client, invoked_us, returned_us = (columns[name].integers() for name in ("client", "invoked_us", "returned_us"))
    operation, arguments, result = (columns[name].texts() for name in ("operation", "arguments", "result"))
    objects = columns["objects"].text_lists()
    return Operations(client, invoked_us, returned_us, operation, arguments, result, objects)


def objects_of(columns: Mapping[str, Gathered]) -> Objects:
    return Objects(**{name: column.integers() for name, column in columns.items()})


def _spelt(texts: Texts) -> list[str]:
    return [texts.words[code] for code in texts.codes.tolist()]
