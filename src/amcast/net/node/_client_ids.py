"""Ids for clients: every session of a client program gets one, and none is ever given out twice.

A message counts as known if its id was seen before. So if two clients had one id, messages of the second would be
acknowledged and never delivered. Each process gives out ids from a share of its own, in rising order, and a file says
up to where: it is made durable before an id of the next block is given out.

A disk can be lost, or come back as an old copy that does not know the newest ids. Against that, chance: without a file
the process begins at a random place in the lower half of its share, an epoch. And each start skips a random number of
ids, so that after an old copy it goes on elsewhere than it did the first time:

    copied at 5000      started at 5000 + 181,204, gave out 300
    copy restored       starts at 5000 + 77,310
"""

from __future__ import annotations

import logging
import zlib
from pathlib import Path

from ...core import ProcessId
from ..disk.files import write_file
from ..system import system

_BLOCK = 256  # ids that one write makes available
_SKIP_MAX = 1 << 18
_STARTS = 1 << 16  # however small the share: so many starts use up half of it, at most

logger = logging.getLogger("amcast.node")


class ClientIds:
    def __init__(self, folder: Path, share: range) -> None:
        self._path = folder / "client-ids"
        self._stop = share.stop
        found = self._read()
        if found is not None and not share.start <= found <= share.stop:
            logger.warning("%s: %s is no client id of this process: beginning at a random one", self._path, found)
            found = None
        if found is None:
            self._next = share.start + _random_below(len(share) // 2)
        else:
            self._next = found + _random_below(min(_SKIP_MAX, len(share) // _STARTS))
        self._reserved = self._next

    def next(self) -> ProcessId | None:
        """None if no ids are left, or the disk does not take the file."""
        if self._next >= self._stop:
            return None
        if self._next == self._reserved and not self._reserve():
            return None
        self._next += 1
        return self._next - 1

    def _reserve(self) -> bool:
        reserved = min(self._reserved + _BLOCK, self._stop)
        text = b"%d" % reserved
        try:
            write_file(self._path, b"%s %08x\n" % (text, zlib.crc32(text)))
        except OSError as error:
            logger.warning("no client ids: %s", error)
            return False
        self._reserved = reserved
        return True

    def _read(self) -> int | None:
        """The first id that was never reserved. None if there is no file, or none that can be believed."""
        try:
            if not system().exists(self._path):
                return None
            text, _, checksum = system().read_file(self._path).rstrip(b"\n").partition(b" ")
            if checksum == b"%08x" % zlib.crc32(text):
                return int(text)
            problem = "it is damaged"
        except (OSError, ValueError) as error:
            problem = str(error)
        logger.warning("%s: %s: beginning at a random client id", self._path, problem)
        return None


def _random_below(limit: int) -> int:
    return system().random_bits(64) % max(1, limit)
