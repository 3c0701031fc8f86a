"""The store of objects (`amcast.apps.store`) as the application of nodes: what a cluster of GeoPaxos runs by default.

    client.call(("g1", "g2"), operation_of([("get", "alice"), ("put", "alice", 70)]))

A query is an operation as well, which must only read: nothing else would reach the other replicas.
"""

from __future__ import annotations

from ...apps.store import Store, only_reads
from ...core import AppMessage, UsageError
from .application import StateMachine

STORE_APP = f"{__name__}:StoreMachine"  # as a configuration names it


class StoreMachine(StateMachine):
    def __init__(self, group: str) -> None:
        self._store = Store()

    def apply(self, message: AppMessage) -> bytes:
        return self._store.execute(message.payload)

    def query(self, payload: bytes) -> bytes:
        if not only_reads(payload):
            raise UsageError("a query only reads: call the operation")
        return self._store.execute(payload)

    def snapshot(self) -> bytes:
        return self._store.dump()

    def restore(self, state: bytes) -> None:
        self._store.load(state)
