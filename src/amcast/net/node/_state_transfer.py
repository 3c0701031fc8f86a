"""An application that needs messages which this node no longer has gets the state of another replica instead."""

from __future__ import annotations

import asyncio
import logging
import ssl
from typing import Any

from ...core import ProcessId
from ..security.tls import PeerError
from ..wire.control import VERSION, AppState, AppStateQuery, Hello
from ..wire.dialer import Channel, RefusedError, dial
from .application import Host
from .node import Node

_LOOK_S = 0.2
_TIMEOUT_S = 60.0

logger = logging.getLogger("amcast.node")


async def keep_up(host: Host, node: Node, tls: ssl.SSLContext | None) -> None:
    """Looks now and then whether the application is behind, and asks the other members of the group in turn."""
    others = [process for process in node.topology.members(node.group) if process != node.id]
    while True:
        await asyncio.sleep(_LOOK_S)
        for peer in others if host.is_behind else ():
            try:
                host.take_over(await _ask(node, peer, tls))
            except (OSError, TimeoutError, RefusedError, PeerError) as error:
                logger.info("no application state from %s: %s", node.topology.name(peer), error)
            if not host.is_behind:
                break


async def _ask(node: Node, peer: ProcessId, tls: ssl.SSLContext | None) -> AppState:
    answer: asyncio.Future[AppState] = asyncio.get_running_loop().create_future()

    def on_message(channel: Channel, message: Any) -> None:
        if isinstance(message, AppState) and not answer.done():
            answer.set_result(message)

    hello = Hello(VERSION, node.config.cluster, "reader", node.name, node.boot)
    channel = await dial(node.config.addresses()[peer], hello, tls, node.topology.name(peer), on_message)
    try:
        channel.say(AppStateQuery())
        async with asyncio.timeout(_TIMEOUT_S):
            return await answer
    finally:
        channel.transport.abort()
