"""The load process for amcast: `python -m bench.cluster._load_amcast`."""

from __future__ import annotations

import gc

from amcast.net.client.load import run_load
from amcast.workload import Micro

from ._jobs import Job, Outcome, own_meter, serve


async def run_job(job: Job) -> Outcome:
    meter = own_meter(job)
    result = await run_load(
        job.where[0] if job.where[0].endswith(".toml") else job.where,
        clients=job.shape.sessions,
        messages=job.messages,
        outstanding=job.shape.outstanding,
        connections=job.connections,
        workload=Micro(job.destinations, job.destinations, job.payload_bytes),
        progress=meter.mark,  # called several times a second, but not while clients connect and close
    )
    if meter.count < 2:
        meter.mark(result.messages)
    latency_us = result.latency_us
    return Outcome(result.messages, result.seconds, latency_us["p50"], latency_us["p99"], *meter.us_a_message())


if __name__ == "__main__":
    gc.set_threshold(50_000, 20, 50)  # as nodes do
    serve(run_job)
