"""Records a run in memory while it goes on: one call a row, a fraction of a microsecond each.

Rows are packed into one growing buffer a table, laid out as numpy reads them, so that nothing is converted before the
run has ended and the garbage collector has no objects to visit. Rows keep the order in which they were recorded.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import numpy as np

from ..core import GroupId, MessageId, ProcessId
from .operations import OperationRows, Operations
from .packing import DELIVERY, MULTICAST, WIRE, packer
from .run import Answers, Deliveries, Multicasts, Objects, Run, Tables, WireRows, make_run, row_type
from .schema import NULL, Fault, RunInfo

_pack_multicast = packer(MULTICAST)
_pack_delivery = packer(DELIVERY)
_pack_wire = packer(WIRE)
_MULTICAST, _DELIVERY, _WIRE = (row_type(row) for row in (MULTICAST, DELIVERY, WIRE))


class Recorder:
    """Without `records_wire` the wire table stays empty, and what needs it, such as genuineness, can't be checked."""

    def __init__(self, records_wire: bool = True) -> None:
        self.records_wire = records_wire
        self._multicasts = bytearray()
        self._dst_start = array("q", (0,))
        self._dst = array("i")
        self._deliveries = bytearray()
        self._wire = bytearray()
        self._kinds: dict[str, int] = {}
        self._faults: list[Fault] = []
        self._answers = array("q")  # message, time, message, time, ...
        self._operations = OperationRows()
        self._objects = array("q")  # message, object, message, object, ...

    def multicast(
        self, msg: MessageId, sender: ProcessId, seq: int, dst: Sequence[GroupId], t_us: int, nbytes: int
    ) -> None:
        self._multicasts += _pack_multicast(msg, sender, seq, t_us, nbytes)
        self._dst.extend(dst)
        self._dst_start.append(len(self._dst))

    def delivery(
        self,
        process: ProcessId,
        group: GroupId,
        pos: int,
        msg: MessageId,
        kind: int,
        ts: int | None,
        t_us: int,
    ) -> None:
        self._deliveries += _pack_delivery(process, group, pos, msg, kind, NULL if ts is None else ts, t_us)

    def wire(
        self,
        src: ProcessId,
        dst: ProcessId,
        kind: str,
        msg: MessageId | None,
        nbytes: int,
        sent_us: int,
        received_us: int | None,
    ) -> None:
        if not self.records_wire:
            return
        try:
            code = self._kinds[kind]
        except KeyError:
            code = self._kinds[kind] = len(self._kinds)
        self._wire += _pack_wire(
            src,
            dst,
            code,
            NULL if msg is None else msg,
            nbytes,
            sent_us,
            NULL if received_us is None else received_us,
        )

    def fault(self, process: ProcessId, t_us: int, what: str, detail: str) -> None:
        self._faults.append(Fault(process, t_us, what, detail))

    def answer(self, msg: MessageId, t_us: int) -> None:
        """The sender has the replies of all destination groups."""
        self._answers.extend((msg, t_us))

    def operation(
        self,
        client: ProcessId,
        invoked_us: int,
        returned_us: int | None,
        operation: str,
        arguments: str,
        result: str | None,
        objects: Sequence[str],
    ) -> int:
        """What a client did, as the table says: arguments and result are JSON. Returns the number of the row."""
        return self._operations.add(client, invoked_us, returned_us, operation, arguments, result, objects)

    def operation_answered(self, row: int, returned_us: int, result: str | None) -> None:
        """An operation that was recorded when it was called has its answer now."""
        self._operations.answer(row, returned_us, result)

    def touches(self, msg: MessageId, objects: Sequence[int]) -> None:
        """The message reads or writes these objects."""
        for each in objects:
            self._objects.extend((msg, each))

    def tables(self) -> Tables:
        return Tables(*self._all_columns())

    def run(self, info: RunInfo) -> Run:
        """The run as the checks read it, without a file in between."""
        return make_run(info, *self._all_columns())

    def _all_columns(self) -> tuple[Multicasts, Deliveries, WireRows, list[Fault], Answers, Operations, Objects]:
        pairs = np.array(self._answers, np.int64).reshape(-1, 2)
        answers = Answers(pairs[:, 0].copy(), pairs[:, 1].copy())
        pairs = np.array(self._objects, np.int64).reshape(-1, 2)
        objects = Objects(pairs[:, 0].copy(), pairs[:, 1].copy())
        return (
            self._multicast_columns(),
            self._delivery_columns(),
            self._wire_columns(),
            list(self._faults),
            answers,
            self._operations.columns(),
            objects,
        )

    # Columns are copies: a bytearray can't grow while a numpy array is a view of it.

    def _multicast_columns(self) -> Multicasts:
        rows = np.frombuffer(bytes(self._multicasts), _MULTICAST)
        return Multicasts(
            rows["msg"].copy(),
            rows["sender"].copy(),
            rows["seq"].copy(),
            np.array(self._dst_start, np.int64),
            np.array(self._dst, np.int32),
            rows["t_us"].copy(),
            rows["bytes"].copy(),
        )

    def _delivery_columns(self) -> Deliveries:
        rows = np.frombuffer(bytes(self._deliveries), _DELIVERY)
        return Deliveries(*(rows[name].copy() for name, _ in DELIVERY))

    def _wire_columns(self) -> WireRows:
        rows = np.frombuffer(bytes(self._wire), _WIRE)
        return WireRows(
            rows["src"].copy(),
            rows["dst"].copy(),
            rows["kind"].copy(),
            tuple(self._kinds),
            rows["msg"].copy(),
            rows["bytes"].copy(),
            rows["sent_us"].copy(),
            rows["received_us"].copy(),
        )
