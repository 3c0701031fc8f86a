"""The state of an application as it is kept and handed over: what the node needs for it, and the machine's own bytes.

On disk it is one file, `application.state`, written whole and synced, with a checksum over everything.
"""

from __future__ import annotations

import logging
import struct
from pathlib import Path
from zlib import crc32

import msgspec

from ...core import GroupId
from ..disk.files import sync_folder, write_file
from ..system import system
from ._exchange import DumpedPair

_MAGIC = b"amc-app"
_VERSION = 3
_WITHOUT_KEYS = 2  # an earlier version: what is kept for clients, and the machine's state
_HEADER = struct.Struct("<7sBQQ")  # magic, version, position, size of the state
_CHECKSUM = 4
_LENGTH = 8  # bytes of the number that says how long the node's part is, which comes before the machine's

logger = logging.getLogger("amcast.node")


class Kept(msgspec.Struct, array_like=True, frozen=True):
    """What a node keeps for its application, beside the machine's own state."""

    results: bytes  # for clients that ask again
    keys: bytes = b""  # and answers to requests with a key
    pairs: dict[GroupId, DumpedPair] = {}  # what other groups were told
    skipped: tuple[int, ...] = ()  # positions that were not executed, by a decision of the group


_decoder: msgspec.msgpack.Decoder[Kept] = msgspec.msgpack.Decoder(Kept)


def join_state(kept: Kept, machine_state: bytes) -> bytes:
    encoded = msgspec.msgpack.encode(kept)
    return len(encoded).to_bytes(_LENGTH, "little") + encoded + machine_state


def split_state(state: bytes) -> tuple[Kept, bytes]:
    kept, machine_state = _split(state)
    return _decoder.decode(kept), machine_state


def _split(state: bytes) -> tuple[bytes, bytes]:
    end = _LENGTH + int.from_bytes(state[:_LENGTH], "little")
    return state[_LENGTH:end], state[end:]


def write_snapshot(path: Path, position: int, state: bytes) -> None:
    header = _HEADER.pack(_MAGIC, _VERSION, position, len(state))
    write_file(path, header, crc32(state, crc32(header)).to_bytes(_CHECKSUM, "little"), state)


def read_snapshot(path: Path) -> tuple[int, bytes] | None:
    """Position and state; none if there is no snapshot, or a damaged one."""
    if not system().exists(path):
        return None
    try:
        content = system().read_file(path)
    except OSError as error:
        logger.warning("%s can't be read: the application is rebuilt: %s", path, error)
        return None
    header, state = content[: _HEADER.size], content[_HEADER.size + _CHECKSUM :]
    checksum = int.from_bytes(content[_HEADER.size : _HEADER.size + _CHECKSUM], "little")
    if len(content) < _HEADER.size + _CHECKSUM or crc32(state, crc32(header)) != checksum:
        logger.warning("%s is damaged: the application is rebuilt", path)
        return None
    magic, version, position, _ = _HEADER.unpack(header)
    if (magic, version) == (_MAGIC, _WITHOUT_KEYS):
        results, machine_state = _split(state)
        return position, join_state(Kept(results), machine_state)
    if (magic, version) != (_MAGIC, _VERSION):
        logger.warning("%s is of another version: the application is rebuilt", path)
        return None
    return position, state


def remove_snapshot(path: Path) -> None:
    """For good: it does not come back if the power fails."""
    if system().exists(path):
        system().unlink(path)
        sync_folder(path.parent)
