"""The load process for NATS JetStream: `python -m bench.cluster._load_nats`. Speaks just what it needs of NATS."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections import deque

from ._jobs import Job, Outcome, outcome, own_meter, serve

_SUBJECT = "bench.messages"
_PAYLOAD = bytes(64)
_CONNECT = b'CONNECT {"verbose":false,"pedantic":false,"lang":"python","version":"0","protocol":1}\r\n'
_MESSAGE = re.compile(rb"MSG .* (\d+)\r\n")


class Session(asyncio.Protocol):
    """One connection. Acknowledgements of one publisher come in the order in which it published."""

    def __init__(self, loop: ClosedLoop, number: int) -> None:
        self._loop = loop
        self._inbox = f"_INBOX.{number}".encode()
        self._publish = b"PUB %s %s %d\r\n%s\r\n" % (_SUBJECT.encode(), self._inbox, len(_PAYLOAD), _PAYLOAD)
        self._sent: deque[int] = deque()
        self._data = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]
        self._write(_CONNECT + b"SUB %s 1\r\n" % self._inbox)

    def send(self, count: int) -> None:
        count = self._loop.take(count)
        if count:
            self._sent.extend([time.perf_counter_ns()] * count)
            self._write(self._publish * count)

    def _write(self, data: bytes) -> None:
        assert self._transport is not None
        self._transport.write(data)

    def data_received(self, data: bytes) -> None:
        data = self._data + data
        at = acknowledged = 0
        while (end := data.find(b"\r\n", at)) >= 0:
            line = data[at : end + 2]
            if (message := _MESSAGE.fullmatch(line)) is not None:
                stop = end + 2 + int(message[1]) + 2
                if stop > len(data):
                    break
                assert b'"error"' not in data[end:stop], data[end:stop]
                acknowledged += 1
                at = stop
                continue
            if line.startswith(b"PING"):
                self._write(b"PONG\r\n")
            assert not line.startswith(b"-ERR"), line
            at = end + 2
        self._data = data[at:]
        if acknowledged:
            now = time.perf_counter_ns()
            self._loop.finish([now - self._sent.popleft() for _ in range(acknowledged)])
            self.send(acknowledged)


class ClosedLoop:
    def __init__(self, messages: int) -> None:
        self._left = messages
        self._messages = messages
        self.latencies_ns: list[int] = []
        self.finished = asyncio.Event()

    def take(self, count: int) -> int:
        count = min(count, self._left)
        self._left -= count
        return count

    def finish(self, latencies_ns: list[int]) -> None:
        self.latencies_ns += latencies_ns
        if len(self.latencies_ns) == self._messages:
            self.finished.set()


async def run_job(job: Job) -> Outcome:
    closed_loop = ClosedLoop(job.messages)
    host, port = job.where[0].split(":")
    sessions: list[Session] = []
    loop = asyncio.get_running_loop()
    for number in range(job.shape.sessions):
        _, session = await loop.create_connection(lambda number=number: Session(closed_loop, number), host, int(port))
        sessions.append(session)
    meter = own_meter(job)
    meter.mark(0)
    begun = time.perf_counter()
    for session in sessions:
        session.send(job.shape.outstanding)
    await closed_loop.finished.wait()
    seconds = time.perf_counter() - begun
    meter.mark(job.messages)
    for session in sessions:
        assert session._transport is not None
        session._transport.close()
    return outcome(closed_loop.latencies_ns, seconds, meter)


async def create_stream(address: str, replicas: int) -> str | None:
    """Creates the stream and returns the name of the server that leads it; None if the servers are not ready yet."""
    host, port = address.split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        config = {"name": "bench", "subjects": [_SUBJECT], "num_replicas": replicas, "storage": "memory"}
        body = json.dumps({**config, "retention": "limits", "max_msgs": 1_000_000, "discard": "old"}).encode()
        request = b"PUB $JS.API.STREAM.CREATE.bench _INBOX.create %d\r\n%s\r\n" % (len(body), body)
        writer.write(_CONNECT + b"SUB _INBOX.create 1\r\n" + request)
        while line := await reader.readline():
            if (message := _MESSAGE.fullmatch(line)) is not None:
                answer = json.loads(await reader.readexactly(int(message[1])))
                return answer.get("cluster", {}).get("leader")
        return None
    finally:
        writer.close()


if __name__ == "__main__":
    serve(run_job)
