"""The binary layout of rows before they become columns: names and types, which `packer` writes and numpy reads.

A file of one process's deliveries names the process once, in front; its rows are `PROCESS_DELIVERY`, without the name.
Nodes pack rows, and never load numpy: numpy's types are made of these by `trace.run.row_type`.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct

Row = tuple[tuple[str, str], ...]  # names, and numpy's names of the types

MULTICAST: Row = (("msg", "<i8"), ("sender", "<i8"), ("seq", "<i8"), ("t_us", "<i8"), ("bytes", "<i4"))
PROCESS_DELIVERY: Row = (("pos", "<i8"), ("msg", "<i8"), ("kind", "<i1"), ("ts", "<i8"), ("t_us", "<i8"))
DELIVERY: Row = (("process", "<i4"), ("grp", "<i4"), *PROCESS_DELIVERY)
WIRE: Row = (
    ("src", "<i8"),
    ("dst", "<i8"),
    ("kind", "<i4"),
    ("msg", "<i8"),
    ("bytes", "<i4"),
    ("sent_us", "<i8"),
    ("received_us", "<i8"),
)

_CODES = {"<i1": "b", "<i4": "i", "<i8": "q"}


def packer(row: Row) -> Callable[..., bytes]:
    """A function that packs one row, its fields in order. Neither "<" nor numpy pads: both have the same bytes."""
    return Struct("<" + "".join(_CODES[kind] for _, kind in row)).pack
