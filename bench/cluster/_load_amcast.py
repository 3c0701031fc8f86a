"""The load process for amcast: `python -m bench.cluster._load_amcast`."""

from __future__ import annotations

import gc
import sys

import msgspec

from amcast.net.client.load import run_load
from amcast.net.run import run_in_loop
from amcast.workload import Micro

from ._jobs import Job, Outcome, own_meter, say

PAYLOAD_BYTES = 64


async def perform(job: Job) -> None:
    meter = own_meter(job)
    result = await run_load(
        job.where,
        clients=job.shape.sessions,
        messages=job.messages,
        outstanding=job.shape.outstanding,
        connections=job.connections,
        workload=Micro(job.destinations, job.destinations, PAYLOAD_BYTES),
        progress=meter.mark,  # several times a second: connecting and closing are outside
    )
    if meter.count < 2:
        meter.mark(result.messages)
    server_us, load_us = meter.us_a_message()
    say(
        Outcome(result.messages, result.seconds, result.latency_us["p50"], result.latency_us["p99"], server_us, load_us)
    )


def main() -> None:
    gc.set_threshold(50_000, 20, 50)  # as nodes do
    for line in sys.stdin.buffer:
        run_in_loop(perform(msgspec.json.decode(line, type=Job)))


if __name__ == "__main__":
    main()
