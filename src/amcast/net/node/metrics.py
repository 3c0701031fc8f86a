"""A page for Prometheus: the node's figures as text, over plain HTTP on a port of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

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


async def serve_metrics(host: str, port: int, metrics: Callable[[], Metrics]) -> asyncio.Server:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                request = await reader.readuntil(b"\r\n\r\n")
                path = request.split(b" ", 2)[1] if request.startswith(b"GET ") else b""
                writer.write(_response(path, metrics))
                await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, IndexError):
            pass  # the caller did not speak HTTP, or left
        finally:
            writer.close()

    return await asyncio.start_server(answer, host, port, limit=_REQUEST_LIMIT)


def _response(path: bytes, metrics: Callable[[], Metrics]) -> bytes:
    found = path == b"/metrics"
    body = (format_metrics(metrics()) if found else "look at /metrics\n").encode()
    status = "200 OK" if found else "404 Not Found"
    kind = "text/plain; version=0.0.4; charset=utf-8"
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    return head.encode() + body
