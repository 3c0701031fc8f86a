"""The load process for etcd: `python -m bench.cluster._load_etcd`. Puts over gRPC, a connection for each session.

Python's gRPC library would cost more CPU time than the servers. So this speaks just the part of HTTP/2 that a put
needs: a request is a frame of headers and one of data; an answer with data is a success, one without is a failure.
"""

from __future__ import annotations

import asyncio
import time

from ._jobs import Job, Outcome, outcome, own_meter, serve

_KEY, _VALUE = b"bench", bytes(64)
_DATA, _HEADERS, _RESET, _SETTINGS, _PING, _GOAWAY, _WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
_ACK = _END_STREAM = 1
_END_HEADERS = 4
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


def _frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def _text(data: bytes) -> bytes:
    assert len(data) < 127, "longer texts are encoded otherwise"
    return bytes([len(data)]) + data


# PutRequest: field 1 is the key, field 2 the value. In front: a byte that says "not compressed", and the length.
_PUT = b"\x0a" + _text(_KEY) + b"\x12" + _text(_VALUE)
_BODY = b"\0" + len(_PUT).to_bytes(4, "big") + _PUT
# POST, http, then path, authority, content-type and te. HPACK gives these four indexes, which later requests use.
_FIRST_HEADERS = (
    b"\x83\x86"
    + (b"\x44" + _text(b"/etcdserverpb.KV/Put"))
    + (b"\x41" + _text(b"etcd"))
    + (b"\x5f" + _text(b"application/grpc"))
    + (b"\x40" + _text(b"te") + _text(b"trailers"))
)
_NEXT_HEADERS = bytes([0x83, 0x86, 0x80 | 65, 0x80 | 64, 0x80 | 63, 0x80 | 62])


class ClosedLoop:
    def __init__(self, messages: int) -> None:
        self.left = messages
        self._messages = messages
        self.latencies_ns: list[int] = []
        self.finished: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def finish(self, latency_ns: int) -> None:
        self.latencies_ns.append(latency_ns)
        if len(self.latencies_ns) == self._messages:
            self.finished.set_result(None)

    def fail(self, why: str) -> None:
        if not self.finished.done():
            self.finished.set_exception(RuntimeError(f"etcd: {why}"))


class Session(asyncio.Protocol):
    def __init__(self, loop: ClosedLoop) -> None:
        self._loop = loop
        self._stream = -1
        self._sent: dict[int, int] = {}  # stream: when
        self._answered: set[int] = set()  # streams on which data came
        self._data = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]
        self._write(_PREFACE + _frame(_SETTINGS, 0, 0))

    def close(self) -> None:
        assert self._transport is not None
        self._transport.close()

    def send(self) -> None:
        if not self._loop.left:
            return
        self._loop.left -= 1
        headers = _FIRST_HEADERS if self._stream < 0 else _NEXT_HEADERS
        self._stream += 2
        self._sent[self._stream] = time.perf_counter_ns()
        self._write(
            _frame(_HEADERS, _END_HEADERS, self._stream, headers) + _frame(_DATA, _END_STREAM, self._stream, _BODY)
        )

    def _write(self, data: bytes) -> None:
        assert self._transport is not None
        self._transport.write(data)

    def data_received(self, data: bytes) -> None:
        data = self._data + data
        at = consumed = 0
        while len(data) - at >= 9:
            stop = at + 9 + int.from_bytes(data[at : at + 3], "big")
            if stop > len(data):
                break
            kind, flags, stream = data[at + 3], data[at + 4], int.from_bytes(data[at + 5 : at + 9], "big")
            if kind == _DATA:
                consumed += stop - at - 9
            self._on_frame(kind, flags, stream, data[at + 9 : stop])
            at = stop
        self._data = data[at:]
        if consumed:
            self._write(_frame(_WINDOW_UPDATE, 0, 0, consumed.to_bytes(4, "big")))

    def _on_frame(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if kind == _DATA:
            self._answered.add(stream)
        elif kind in (_SETTINGS, _PING) and not flags & _ACK:
            self._write(_frame(kind, _ACK, 0, payload if kind == _PING else b""))
        elif kind in (_RESET, _GOAWAY):
            self._loop.fail(f"frame of kind {kind}: {payload!r}")
        elif kind == _HEADERS and flags & _END_STREAM:
            if stream not in self._answered:
                self._loop.fail(f"a put failed: {payload!r}")
                return
            self._answered.discard(stream)
            self._loop.finish(time.perf_counter_ns() - self._sent.pop(stream))
            self.send()


async def run_job(job: Job) -> Outcome:
    closed_loop = ClosedLoop(job.messages)
    host, port = job.where[0].split(":")
    loop = asyncio.get_running_loop()
    sessions = [
        (await loop.create_connection(lambda: Session(closed_loop), host, int(port)))[1]
        for _ in range(job.shape.sessions)
    ]
    meter = own_meter(job)
    meter.mark(0)
    begun = time.perf_counter()
    for session in sessions:
        for _ in range(job.shape.outstanding):
            session.send()
    await closed_loop.finished
    seconds = time.perf_counter() - begun
    meter.mark(job.messages)
    for session in sessions:
        session.close()
    return outcome(closed_loop.latencies_ns, seconds, meter)


if __name__ == "__main__":
    serve(run_job)
