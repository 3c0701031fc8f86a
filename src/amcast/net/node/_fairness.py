"""Fair shares of a node that has more to do than it can do in time.

A message waits behind all that was admitted before it, whoever sent that. So when messages wait for long, and several
clients send, each of them has less room for messages that are open: a client that floods the node hears BUSY, while one
that has a few messages on their way goes on as before. A client that is alone is never limited by this.

How long messages wait is measured on one message of each client at a time, from when it is admitted until it is
answered or delivered. The client that waits least says how long the queue is: others may wait for reasons of their own,
and a client that lies (its message is never delivered) must not slow anybody down.
"""

from __future__ import annotations

from ._accounts import Account

_UPDATE_S = 0.05
_ACTIVE_S = 1.0  # a client that has sent nothing for so long does not count
_PROBE_MAX_S = 5.0  # a message that takes longer was lost, or is a lie
_DELAY_OK_S = 0.03  # no shorter delay is ever too long
_DELAY_FACTOR = 2.0  # nor one that is no longer than so many times the usual one
_USUAL_GROWS = 1.001  # with each update: the usual delay may become longer when the network does
_SHRINK, _GROW = 0.7, 1.05
_SHARE_FIRST = 1 / 10  # when a second client comes
_SHARE_MIN = 1 / 2_500
MESSAGES_MIN, BYTES_MIN = 20, 256 << 10  # room that everybody has


class Fairness:
    def __init__(self, clients_min: int = 2) -> None:
        self._clients_min = clients_min  # with fewer that send, nobody is limited
        self.share = 1.0  # of its own limits, that each client may use now
        self._is_alone = True
        self._usual_s = float("inf")
        self._active: dict[Account, float] = {}  # when each was last admitted
        self.next_update_s = 0.0

    def admitted(self, account: Account, probe: int, now_s: float) -> None:
        """Messages of this client, among them this one."""
        self._active[account] = now_s
        if account.probe is None:
            account.probe = probe
            account.probe_s = now_s

    def ended(self, account: Account, now_s: float) -> None:
        """The client's probe has been answered, or delivered."""
        account.probe = None
        account.delay_s = delay_s = now_s - account.probe_s
        self._usual_s = min(self._usual_s, delay_s)

    def lacks_room(self, account: Account, messages: int, size: int) -> bool:
        limits, share = account.limits, self.share
        if share == 1.0:
            return False  # its own limits hold, and others see to these
        return account.open_messages + messages > max(MESSAGES_MIN, limits.open_messages * share) or (
            account.open_bytes + size > max(BYTES_MIN, limits.open_bytes * share)
        )

    def _longest_s(self) -> float:
        """No longer should messages wait. What is usual for a client that was always alone says nothing of others."""
        return _DELAY_OK_S if self._clients_min == 1 else max(_DELAY_OK_S, _DELAY_FACTOR * self._usual_s)

    def update(self, now_s: float) -> None:
        """To be called from time to time, from `next_update_s` on."""
        self.next_update_s = now_s + _UPDATE_S
        for account, sent_s in list(self._active.items()):
            if not account.open_messages and now_s - sent_s > _ACTIVE_S:
                del self._active[account]
                account.probe = account.delay_s = None
        delays = [delay for account in self._active if (delay := _delay_of(account, now_s)) is not None]
        delay = min(delays, default=0.0)
        if len(self._active) < self._clients_min:
            self.share = 1.0
        elif self.share == 1.0 and self._is_alone:
            self.share = _SHARE_FIRST
        elif delay > self._longest_s():
            self.share = max(_SHARE_MIN, self.share * _SHRINK)
            return
        else:
            self.share = min(1.0, self.share * _GROW)
        self._is_alone = len(self._active) < self._clients_min
        self._usual_s *= _USUAL_GROWS


def _delay_of(account: Account, now_s: float) -> float | None:
    """None if nothing is known yet."""
    waits_s = 0.0 if account.probe is None else now_s - account.probe_s
    if waits_s > _PROBE_MAX_S:
        account.probe = None
        waits_s = 0.0
    if account.delay_s is None:
        return waits_s or None
    return max(waits_s, account.delay_s)
