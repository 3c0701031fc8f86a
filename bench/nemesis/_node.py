"""A node with an application whose states can be compared: `python _node.py CLUSTER.TOML PROCESS`.

The application's state is a position and a digest of all messages below it. It writes each of its states down, in a
file outside of the data folder, so that nothing that happens to the disk hides what the application went through.
"""

from __future__ import annotations

import os
import sys
import time
from hashlib import blake2b
from pathlib import Path
from random import Random
from struct import Struct

from amcast.apps.store import Store, only_reads
from amcast.core import AppMessage, UsageError
from amcast.net.config import load_config
from amcast.net.node.application import StateMachine
from amcast.net.run import run_node
from amcast.net.system import System, use
from bench.nemesis._liar import Switch, lying_file, make_liar

SLOW_SYNC_S = 0.2  # at most
_STATE = Struct(">QQ")  # a position, and the digest of all messages below it
_MESSAGE = Struct(">QQQ")

State = tuple[int, int]
EMPTY: State = (0, 0)


def after(state: State, id_: int, payload: bytes) -> State:
    """The state of an application that applies this message next."""
    position, digest = state
    data = _MESSAGE.pack(digest, position, id_) + payload
    return position + 1, int.from_bytes(blake2b(data, digest_size=8).digest(), "big")


def states_file(folder: Path, name: str) -> Path:
    return folder / "applications" / name


def read_states(path: Path) -> list[State]:
    """All states that the application was in, over all boots. Each was one write, so kill -9 can't tear it."""
    return list(_STATE.iter_unpack(path.read_bytes())) if path.exists() else []


def slow_file(folder: Path, name: str) -> Path:
    """While it exists, the disk of this process is slow."""
    return folder / "slow" / name


class Digest(StateMachine):
    def __init__(self, path: Path) -> None:
        path.parent.mkdir(exist_ok=True)
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._state = EMPTY

    def apply(self, message: AppMessage) -> bytes | None:
        self._go_to(after(self._state, message.id, message.payload))
        return None

    def snapshot(self) -> bytes:
        return _STATE.pack(*self._state)

    def restore(self, state: bytes) -> None:
        position, digest = _STATE.unpack(state)
        self._go_to((position, digest))

    def _go_to(self, state: State) -> None:
        self._state = state
        os.write(self._file, _STATE.pack(*state))


class DigestAndStore(Digest):
    """Where messages are operations on objects: it executes them too, and answers clients."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._store = Store()

    def apply(self, message: AppMessage) -> bytes:
        super().apply(message)
        return self._store.execute(message.payload)

    def query(self, payload: bytes) -> bytes:
        assert only_reads(payload)
        return self._store.execute(payload)

    def snapshot(self) -> bytes:
        return super().snapshot() + self._store.dump()

    def restore(self, state: bytes) -> None:
        super().restore(state[: _STATE.size])
        self._store.load(state[_STATE.size :])


class SlowDisk(System):
    """Each sync takes another time: now this member of a group is behind the others, now that one."""

    def __init__(self, flag: Path) -> None:
        self._flag = flag
        self._rng = Random(flag.name)

    def fdatasync(self, fd: int) -> None:
        if self._flag.exists():
            time.sleep(self._rng.uniform(0, SLOW_SYNC_S))
        super().fdatasync(fd)


def main(path: Path, name: str) -> int:
    try:
        config = load_config(path)
        if config.survives_liars:
            make_liar(config.protocol, Switch(lying_file(path.parent, name)))
        with use(SlowDisk(slow_file(path.parent, name))):
            machine = DigestAndStore if config.spec().orders_operations else Digest
            run_node(config, name, machine(states_file(path.parent, name)))
    except UsageError as error:
        sys.stderr.write(f"amcast: {error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2]))
