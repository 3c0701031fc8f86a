"""The load process for etcd: `python -m bench.cluster._load_etcd`. Puts over gRPC, a connection for each session."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Coroutine
from typing import Any

import grpc.aio
import msgspec

from ._jobs import Job, Outcome, outcome, own_meter, say

_METHOD = "/etcdserverpb.KV/Put"
_KEY, _VALUE = b"bench", bytes(64)
# PutRequest: field 1 is the key, field 2 the value, both of bytes shorter than 128.
_REQUEST = b"\x0a" + bytes([len(_KEY)]) + _KEY + b"\x12" + bytes([len(_VALUE)]) + _VALUE


async def run_job(job: Job) -> Outcome:
    latencies_ns: list[int] = []
    left = job.messages

    async def session(put: Callable[[bytes], Coroutine[Any, Any, bytes]]) -> None:
        nonlocal left
        while left:
            left -= 1
            sent = time.perf_counter_ns()
            await put(_REQUEST)
            latencies_ns.append(time.perf_counter_ns() - sent)

    options = [("grpc.use_local_subchannel_pool", 1)]  # or all channels would share one connection
    channels = [grpc.aio.insecure_channel(job.where[0], options=options) for _ in range(job.shape.sessions)]
    for channel in channels:
        await channel.channel_ready()
    meter = own_meter(job)
    meter.mark(0)
    begun = time.perf_counter()
    async with asyncio.TaskGroup() as tasks:
        for channel in channels:
            put = channel.unary_unary(_METHOD)
            for _ in range(job.shape.outstanding):
                tasks.create_task(session(put))
    seconds = time.perf_counter() - begun
    meter.mark(job.messages)
    for channel in channels:
        await channel.close()
    return outcome(latencies_ns, seconds, meter)


def main() -> None:
    for line in sys.stdin.buffer:
        say(asyncio.run(run_job(msgspec.json.decode(line, type=Job))))


if __name__ == "__main__":
    main()
