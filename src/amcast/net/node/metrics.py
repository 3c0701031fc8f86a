"""A page for Prometheus: the node's figures as text, over HTTP on a port of its own.

On loopback it is plain HTTP. On other addresses of a cluster with TLS, the caller needs a client's certificate. Without
TLS there is no page but on loopback, wherever the node listens.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import NamedTuple, cast

from ..config import is_loopback
from ..security.keyring import Keyring
from ..security.tls import PeerError
from ..system import system
from ..wire.acceptor import Acceptor, Caller

# Name -> kind, help, value; or a value for each cause.
Metrics = Mapping[str, tuple[str, str, float | Mapping[str, float]]]

_REQUEST_LIMIT = 8 << 10
_TIMEOUT_S = 5.0
_CALLERS_MAX = 16


def format_metrics(metrics: Metrics) -> str:
    lines: list[str] = []
    for name, (kind, text, value) in metrics.items():
        lines += [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]
        if isinstance(value, Mapping):
            lines += [f'{name}{{cause="{cause}"}} {each:g}' for cause, each in value.items()]
        else:
            lines.append(f"{name} {value:g}")
    return "\n".join(lines) + "\n"


class Place(NamedTuple):
    host: str
    port: int
    tls: Keyring | None


def metrics_place(host: str, port: int, tls: Keyring | None) -> Place:
    """Where figures are served by a node that listens at this host."""
    if is_loopback(host):
        return Place(host, port, None)
    return Place("127.0.0.1", port, None) if tls is None else Place(host, port, tls)


class MetricsPort:
    """Answers whoever asks. Few may ask at a time: nobody else's connections must lack descriptors for it."""

    def __init__(self, place: Place, metrics: Callable[[], Metrics]) -> None:
        self.metrics = metrics
        self.tls = place.tls
        self.callers: set[MetricsCaller] = set()
        tls = None if place.tls is None else place.tls.server
        self._acceptor = Acceptor(system().listen(place.host, place.port), self, tls, _TIMEOUT_S)

    def admit(self, host: str) -> MetricsCaller | None:
        if len(self.callers) >= _CALLERS_MAX:
            return None
        caller = MetricsCaller(self)
        self.callers.add(caller)
        return caller

    def on_exhausted(self, error: OSError) -> None:
        """They wait."""

    async def close(self) -> None:
        await self._acceptor.close()
        for caller in list(self.callers):
            caller.cut()


class MetricsCaller(asyncio.Protocol, Caller):
    """One request, and one answer."""

    def __init__(self, port: MetricsPort) -> None:
        self._port = port
        self._request = b""
        self._timeout = asyncio.get_running_loop().call_later(_TIMEOUT_S, self.cut)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        try:
            if self._port.tls is not None:
                self._port.tls.expect(transport.get_extra_info("ssl_object"), "client")
        except PeerError:  # it is not of this cluster, or is revoked
            self.cut()

    def data_received(self, data: bytes) -> None:
        assert self._transport is not None
        self._request += data
        if b"\r\n\r\n" in self._request:
            parts = self._request.split(b" ", 2)
            path = parts[1] if len(parts) == 3 and parts[0] == b"GET" else b""
            self._transport.write(_response(path, self._port.metrics))
            self._transport.close()
        elif len(self._request) > _REQUEST_LIMIT:
            self.cut()

    def never_made(self, error: OSError) -> None:
        self.connection_lost(error)

    def connection_lost(self, exc: Exception | None) -> None:
        self._timeout.cancel()
        self._transport = None
        self._port.callers.discard(self)


def _response(path: bytes, metrics: Callable[[], Metrics]) -> bytes:
    found = path == b"/metrics"
    body = (format_metrics(metrics()) if found else "look at /metrics\n").encode()
    status = "200 OK" if found else "404 Not Found"
    kind = "text/plain; version=0.0.4; charset=utf-8"
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    return head.encode() + body
