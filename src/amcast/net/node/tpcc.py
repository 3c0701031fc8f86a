"""TPC-C as an application of nodes: `amcast up --app amcast.net.node.tpcc:Tpcc`. The load is `--workload gtpcc`.

A query is answered with the totals of the group's warehouse, as JSON (`apps/tpcc.py`).
"""

from __future__ import annotations

import msgspec

from ...apps.tpcc import Warehouse
from ...core import AppMessage
from .application import StateMachine


class Tpcc(StateMachine):
    def __init__(self, group: str) -> None:
        self._warehouse = Warehouse(int(group[1:]))

    def apply(self, message: AppMessage) -> bytes:
        return self._warehouse.execute(message.payload, message.dst)

    def query(self, payload: bytes) -> bytes:
        return msgspec.json.encode(self._warehouse.totals())

    def snapshot(self) -> bytes:
        return self._warehouse.dump()

    def restore(self, state: bytes) -> None:
        self._warehouse.load(state)
