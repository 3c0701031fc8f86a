"""Ids for clients: every session of a client program gets one, and none is ever given out twice.

A message counts as known if its id was seen before. So if two clients had one id, messages of the second would be
acknowledged and never delivered. Each process gives out ids from a share of its own, block by block, and a file says
which ids are taken: it is durable before the first id of a block is given out. What is left of a block at a stop is
never used.

A disk can be lost, or come back as an old copy that does not know what was taken last. Against that, chance: each start
begins at a random block among the free ones, and goes on from there. With 2^27 blocks, as in a cluster of three, a
process that forgot a thousand blocks hits one of them once in a hundred thousand times.
"""

from __future__ import annotations

import logging
import zlib
from pathlib import Path

import msgspec

from ...core import ProcessId
from ..disk.files import write_file
from ..system import system

_BLOCK = 256
_CHECKSUM = 4  # bytes

_Run = tuple[ProcessId, ProcessId]  # the first id, and the one after the last

_decoder: msgspec.msgpack.Decoder[list[_Run]] = msgspec.msgpack.Decoder(list[_Run])

logger = logging.getLogger("amcast.node")


class ClientIds:
    def __init__(self, folder: Path, share: range) -> None:
        self._path = folder / "client-ids"
        self._share = share
        self._taken = self._read()  # about one run for each start
        self._next = self._stop = 0  # what is left of the block in use

    def next(self) -> ProcessId | None:
        """None if no ids are left, or the disk does not take the file."""
        if self._next == self._stop and not self._take_block():
            return None
        self._next += 1
        return self._next - 1

    def _take_block(self) -> bool:
        first = self._free_block()
        if first is None:
            return False
        stop = first + _BLOCK
        taken = [*self._taken]
        if taken and taken[-1][1] == first:
            taken[-1] = (taken[-1][0], stop)
        else:
            taken.append((first, stop))
        data = msgspec.msgpack.encode(taken)
        try:
            write_file(self._path, zlib.crc32(data).to_bytes(_CHECKSUM, "big"), data)
        except OSError as error:
            logger.warning("no client ids: %s", error)
            return False
        self._taken, self._next, self._stop = taken, first, stop
        return True

    def _free_block(self) -> ProcessId | None:
        """The first id of a free block: after the block in use, or at random."""
        begin, blocks = self._share.start, len(self._share) // _BLOCK
        number = (self._stop - begin) // _BLOCK if self._stop else system().random_bits(64) % max(1, blocks)
        for _ in range(2 * len(self._taken) + 2):  # past each run, from here and once more from the beginning
            if number >= blocks:
                number = 0
            first = begin + number * _BLOCK
            hit = next((stop for start, stop in self._taken if start < first + _BLOCK and first < stop), None)
            if hit is None:
                return first if blocks else None
            number = -(-(hit - begin) // _BLOCK)
        return None

    def _read(self) -> list[_Run]:
        """Empty if there is no file, or none that can be believed: then only chance keeps ids apart."""
        try:
            if not system().exists(self._path):
                return []
            content = system().read_file(self._path)
            checksum, data = content[:_CHECKSUM], content[_CHECKSUM:]
            if checksum == zlib.crc32(data).to_bytes(_CHECKSUM, "big"):
                return _decoder.decode(data)
            problem = "it is damaged"
        except (OSError, msgspec.DecodeError) as error:
            problem = str(error)
        logger.warning("%s: %s: client ids begin at a new random place", self._path, problem)
        return []
