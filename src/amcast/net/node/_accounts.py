"""What each client has of a node: a client may use many connections, sessions and ids, and its limits hold for all.

A rate is kept as the time at which all that was taken would have been allowed, one thing after another. It may lie some
time behind now, so that a client that was quiet may take much at once; never ahead.
"""

from __future__ import annotations

from ..config import ClientLimits

_IDLE_MAX = 10_000  # accounts that are kept though nobody is connected, since they know what was taken
_BURST_US = 1_000_000
_ID_US = 100_000  # a new id may be had so often; before, as many at once as there may be sessions


class Account:
    __slots__ = (
        "_ids_at_us",
        "_messages_at_us",
        "connections",
        "followers",
        "limits",
        "name",
        "open_bytes",
        "open_messages",
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
        self._ids_at_us = -(1 << 62)
        self._messages_at_us = -(1 << 62)

    def lacks_room(self, size: int) -> bool:
        """For one more message. If none is open, it may have any size: otherwise it could never be sent."""
        if not self.open_messages:
            return False
        return self.open_messages >= self.limits.open_messages or self.open_bytes + size > self.limits.open_bytes

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

    def close(self, account: Account) -> None:
        account.connections -= 1
