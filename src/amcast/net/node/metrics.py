"""A page for Prometheus: the node's figures as text, over HTTP on a port of its own.

On loopback it is plain HTTP. On other addresses of a cluster with TLS, the caller needs a client's certificate. Without
TLS there is no page but on loopback, wherever the node listens.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import NamedTuple

from ..config import is_loopback
from ..security.keyring import Keyring
from ..security.tls import PeerError

# Name -> kind, help, value; or a value for each cause.
Metrics = Mapping[str, tuple[str, str, float | Mapping[str, float]]]

_REQUEST_LIMIT = 8 << 10
_TIMEOUT_S = 5


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


async def serve_metrics(place: Place, metrics: Callable[[], Metrics]) -> asyncio.Server:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                if place.tls is not None:
                    place.tls.expect(writer.get_extra_info("ssl_object"), "client")
                request = await reader.readuntil(b"\r\n\r\n")
                path = request.split(b" ", 2)[1] if request.startswith(b"GET ") else b""
                writer.write(_response(path, metrics))
                await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, IndexError, PeerError):
            pass  # the caller did not speak HTTP, or left, or is not of this cluster
        finally:
            writer.close()

    tls = None if place.tls is None else place.tls.server
    return await asyncio.start_server(answer, place.host, place.port, limit=_REQUEST_LIMIT, ssl=tls)


def _response(path: bytes, metrics: Callable[[], Metrics]) -> bytes:
    found = path == b"/metrics"
    body = (format_metrics(metrics()) if found else "look at /metrics\n").encode()
    status = "200 OK" if found else "404 Not Found"
    kind = "text/plain; version=0.0.4; charset=utf-8"
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    return head.encode() + body
