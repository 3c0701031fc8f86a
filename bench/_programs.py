"""Several programs that ask one cluster at the same time.

One of them would show how fast a program in Python asks, and not how fast the cluster answers. `python -m
bench._programs CLUSTER.TOML` is one of them: it reads what to ask, as `query 2.0 256`, for so many seconds and with so
many at a time, and writes the rate.
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType

import uvloop

from amcast.net.client.async_client import AsyncClient, connect
from amcast.net.config import load_config

from ._asking import Ask, load

_WAIT_S = 60.0
_ROOT = Path(__file__).parent.parent


def asks_of(client: AsyncClient) -> dict[str, Ask]:
    return {
        "call": lambda: client.call("g1", b"x"),
        "query": lambda: client.query("g1", b"x"),
        "local": lambda: client.query("g1", b"x", consistency="local"),
    }


class Programs:
    def __init__(self, config: Path, count: int) -> None:
        self._config = config
        self._count = count
        self._running: list[asyncio.subprocess.Process] = []
        self._ends = AsyncExitStack()

    async def __aenter__(self) -> Programs:
        pipe = asyncio.subprocess.PIPE
        for _ in range(self._count):
            words = (sys.executable, "-m", "bench._programs", str(self._config))
            program = await asyncio.create_subprocess_exec(*words, stdin=pipe, stdout=pipe, cwd=_ROOT)
            self._ends.push_async_callback(_end, program)
            self._running.append(program)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._ends.aclose()

    async def rate(self, name: str, seconds: float, outstanding: int) -> float:
        """Of all of them together; the outstanding ones are shared out."""
        each = max(1, outstanding // self._count)
        return sum(await asyncio.gather(*(_ask(program, f"{name} {seconds} {each}") for program in self._running)))


async def _ask(program: asyncio.subprocess.Process, what: str) -> float:
    assert program.stdin is not None
    assert program.stdout is not None
    program.stdin.write(f"{what}\n".encode())
    return float(await program.stdout.readline())


async def _end(program: asyncio.subprocess.Process) -> None:
    assert program.stdin is not None
    program.stdin.close()
    await program.wait()


async def _main(config: Path) -> None:
    loop = asyncio.get_running_loop()
    async with connect(load_config(config), wait=_WAIT_S) as client:
        asks = asks_of(client)
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            name, seconds, outstanding = line.split()
            print((await load(asks[name], float(seconds), int(outstanding))).rate, flush=True)


if __name__ == "__main__":
    uvloop.run(_main(Path(sys.argv[1])))
