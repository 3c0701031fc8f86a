"""Credentials that change while a node runs: files are read again, and whom they no longer allow is cut off.

Files are looked at a few times a second. They are read once two looks in a row see the same: whoever replaces a key and
its certificate needs a moment for both. What can't be read changes nothing, and is told once.
"""

from __future__ import annotations

import asyncio
import logging
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from ..security.access import Access
from ..security.keyring import Keyring
from ..system import system
from ._refusals import Cause

if TYPE_CHECKING:
    from .connection import Connection
    from .server import NodeServer

LOOK_S = 0.25
WARN_S = 30 * 86_400  # before this node's certificate ends

logger = logging.getLogger("amcast.node")


class CredentialWatch:
    def __init__(self, server: NodeServer) -> None:
        self._server = server
        self._security = server.security
        self._read = self._seen = self._security.stamps()
        self._problems: list[str] = []  # with files that were refused
        self._warned_on = 0  # the day

    async def run(self) -> None:
        while True:
            self._warn()
            await asyncio.sleep(LOOK_S)
            self._look()
            self._cut_off_expired()

    def _look(self) -> None:
        stamps = self._security.stamps()
        if stamps == self._seen != self._read:
            self.reload()
        self._seen = stamps

    def reload(self) -> None:
        """Now, whether files have changed or not."""
        self._read = self._seen = self._security.stamps()
        access, tls = self._security.access, self._security.tls
        before = None if tls is None else (tls.trust[:2], tls.certificate)
        problems = self._security.reload()
        for problem in problems:
            if problem not in self._problems:
                logger.error("%s; what was there before stays", problem)
                self._server.audit.note("credentials refused", reason=problem)
        self._problems = problems
        changes = _changes_of_tokens(access, self._security.access)
        if tls is not None and (tls.trust[:2], tls.certificate) != before:
            changes.append(_changes_of_certificates(tls))
        if tls is not None and before is not None and tls.certificate != before[1]:
            self._server.move_links()
        if changes:
            logger.info("credentials were read again: %s", "; ".join(changes))
            self._server.audit.note("credentials changed", reason="; ".join(changes))
            self._cut_off_revoked()

    # -- whom the credentials of now don't allow

    def _cut_off_revoked(self) -> None:
        for connection in list(self._server.connections):
            rights, tls = connection.rights, self._security.tls
            if tls is not None and connection.is_welcome:
                problem = tls.problem_with(connection.ssl_object)
                if problem is not None:
                    self._cut_off(connection, problem)
                    continue
            now = None if rights is None else self._security.access.now(rights)
            if rights is not None and now is None:
                self._cut_off(connection, "the token is revoked")
            elif rights is not None and now is not None and not now.is_same(rights):
                self._cut_off(connection, "the rights of the token have changed: connect again")
        self._server.recheck_links()

    def _cut_off_expired(self) -> None:
        now_s = system().wall_us() / 1e6
        for connection in [each for each in self._server.connections if each.ends_s <= now_s]:
            self._cut_off(connection, "the certificate or the token has expired")

    def _cut_off(self, connection: Connection, reason: str) -> None:
        """It may come back with other credentials. If it has none, it hears at its next HELLO that it is for good."""
        connection.refuse(reason, elsewhere=True, cause=Cause.CREDENTIALS)

    # -- for people

    def warnings(self) -> list[str]:
        stale = [f"{problem}; what was there before stays" for problem in self._problems]
        tls = self._security.tls
        if tls is None or tls.ends_s - system().wall_us() / 1e6 > WARN_S:
            return stale
        ends = datetime.fromtimestamp(tls.ends_s, UTC)
        return [*stale, f"the certificate ends on {ends:%Y-%m-%d %H:%M} UTC: issue it anew"]

    def _warn(self) -> None:
        """Once a day."""
        today = system().wall_us() // 86_400_000_000
        if today != self._warned_on:
            self._warned_on = today
            for warning in self.warnings():
                logger.warning("%s", warning)


def _changes_of_tokens(before: Access, after: Access) -> list[str]:
    old, new = ({rights.name: rights for rights in access.all} for access in (before, after))
    added = [f"token {name} is new" for name in new if name not in old]
    gone = [f"token {name} is revoked" for name in old if name not in new]
    changed = [f"token {name} has changed" for name in new if name in old and not new[name].is_same(old[name])]
    return [*added, *gone, *changed]


def _changes_of_certificates(tls: Keyring) -> str:
    ends = datetime.fromtimestamp(tls.ends_s, UTC)
    authorities, revoked = len(tls.trust.authorities), len(tls.trust.revoked)
    return f"CAs trusted: {authorities}, certificates revoked: {revoked}, this node's ends on {ends:%Y-%m-%d}"
