"""The program of one attacker: an order on its standard input, what it did on its standard output, both as JSON."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import sys
from pathlib import Path

import msgspec

from bench.attack._attacks import ATTACKS
from bench.attack._tools import Field, Order

_NICENESS = 5  # attackers have machines of their own: here they must not take the processor from those they attack
_GRACE_S = 5.0
READY = b"ready\n"


async def _attack(field: Field) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(field.order.seconds + _GRACE_S):
            await ATTACKS[field.order.attack].run(field)


def main() -> None:
    os.nice(_NICENESS)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    order = msgspec.json.decode(sys.stdin.buffer.read(), type=Order)
    with Path(order.ids).open("a") as ids:
        sys.stdout.buffer.write(READY)
        sys.stdout.buffer.flush()
        field = Field(order, ids)
        asyncio.run(_attack(field))
    sys.stdout.buffer.write(msgspec.json.encode(field.done))


if __name__ == "__main__":
    main()
