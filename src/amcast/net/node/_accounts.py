"""What each client has of a node: a client may use many connections, sessions and ids, and its limits hold for all.

A rate is kept as the time at which all that was taken would have been allowed, one thing after another. It may lie some
time behind now, so that a client that was quiet may take much at once; never ahead.
"""

from __future__ import annotations

from ...core import MessageId
from ..config import ClientLimits

_IDLE_MAX = 10_000  # accounts that are kept though nobody is connected, since they know what was taken
_BURST_US = 1_000_000
_PAUSE_FIRST_US, _PAUSE_MAX_US = 10_000, 640_000
_PATIENCE_US = 2_000_000  # one that has not heard BUSY for so long has learned
_INCOMING_BYTES_MAX, _INCOMING_BYTES_EACH = 64 << 20, 32 << 20
_ID_US = 100_000  # a new id may be had so often; before, as many at once as there may be sessions


class Account:
    __slots__ = (
        "_busy_at_us",
        "_ids_at_us",
        "_messages_at_us",
        "_pause_us",
        "connections",
        "delay_s",
        "followers",
        "incoming_bytes",
        "limits",
        "name",
        "open_bytes",
        "open_messages",
        "probe",
        "probe_s",
        "sessions",
    )

    def __init__(self, name: str, limits: ClientLimits) -> None:
        self.name = name
        self.limits = limits
        self.connections = 0
        self.sessions = 0
        self.followers = 0
        self.open_messages = 0
        self.open_bytes = 0
        self.incoming_bytes = 0  # of buffers for frames of which a part has come
        self.probe: MessageId | None = None  # the message on which its delay is measured, since then
        self.probe_s = 0.0
        self.delay_s: float | None = None  # of the last one
        self._pause_us = _PAUSE_FIRST_US  # the last time that it heard BUSY
        self._busy_at_us = -(1 << 62)
        self._ids_at_us = -(1 << 62)
        self._messages_at_us = -(1 << 62)

    def lacks_room(self, size: int) -> bool:
        """For one more message."""
        return self.open_messages >= self.limits.open_messages or self.open_bytes + size > self.limits.open_bytes

    def pause(self, now_us: int, is_contended: bool) -> int:
        """It hears BUSY. Returns for how many microseconds nothing is read from it: longer and longer, if it goes on
        sending too much and others wait for the node as well."""
        goes_on = is_contended and now_us - self._busy_at_us < _PATIENCE_US
        self._pause_us = min(2 * self._pause_us, _PAUSE_MAX_US) if goes_on else _PAUSE_FIRST_US
        self._busy_at_us = now_us
        return self._pause_us

    def take_id(self, now_us: int) -> bool:
        at = max(self._ids_at_us, now_us - self.limits.sessions * _ID_US) + _ID_US
        if at > now_us:
            return False
        self._ids_at_us = at
        return True

    def take_messages(self, count: int, now_us: int) -> int:
        """These are taken in any case. Returns for how many microseconds no more should be."""
        at = max(self._messages_at_us, now_us - _BURST_US) + count * 1_000_000 // self.limits.messages_per_second
        self._messages_at_us = at
        return max(0, at - now_us)


class Accounts:
    def __init__(self) -> None:
        self._accounts: dict[str, Account] = {}
        self._incoming_bytes = 0

    def open(self, name: str, limits: ClientLimits) -> Account:
        """For a connection of this client, until `close`. What holds is what its token says now."""
        account = self._accounts.get(name)
        if account is None:
            if len(self._accounts) >= _IDLE_MAX:
                self._accounts = {name: each for name, each in self._accounts.items() if each.connections}
            account = self._accounts[name] = Account(name, limits)
        account.limits = limits
        account.connections += 1
        return account

    def hold(self, account: Account, before: int, size: int) -> bool:
        """A connection's buffer grows or shrinks to this size, as a large frame comes in. False: there is no room."""
        more = size - before
        own, all_ = account.incoming_bytes + more, self._incoming_bytes + more
        if more > 0 and (own > _INCOMING_BYTES_EACH or all_ > _INCOMING_BYTES_MAX):
            return False
        account.incoming_bytes, self._incoming_bytes = own, all_
        return True

    def close(self, account: Account) -> None:
        account.connections -= 1
