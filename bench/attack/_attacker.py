"""The program of one attacker: an order on its standard input, what it did on its standard output, both as JSON."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import signal
import sys
from collections import Counter
from pathlib import Path

import msgspec

from bench.attack._attacks import ATTACKS
from bench.attack._tools import Field, Order

READY = b"ready\n"
_NICENESS = 15  # attackers have machines of their own: here they must not take the processor from those they attack
_GRACE_S = 5.0


async def _attack(order: Order, ids: Path) -> Counter[str]:
    """All that it was told to do, at once."""
    # asyncio complains of connections that a node cut off in the middle of a handshake: here that is no news.
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
    with ids.open("a") as file:
        fields = {name: Field(order, name, file) for name in order.attacks}
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(order.seconds + _GRACE_S):
                await asyncio.gather(*(ATTACKS[name].run(field) for name, field in fields.items()))
    return sum((field.done for field in fields.values()), Counter())


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # who started it ends it
    os.nice(_NICENESS)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    order = msgspec.json.decode(sys.stdin.buffer.read(), type=Order)
    sys.stdout.buffer.write(READY)
    sys.stdout.buffer.flush()
    done = asyncio.run(_attack(order, Path(order.ids)))
    sys.stdout.buffer.write(msgspec.json.encode(done))


if __name__ == "__main__":
    main()
