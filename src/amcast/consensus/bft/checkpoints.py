"""Checkpoints: digests of the state, by which members see that they agree, forget the past, and hand over state.

- A member says its checkpoint once it is on its disk. When n-f members have said the same, it is stable: whatever
  members report after a power failure begins there or later, so what is below may be forgotten.
- A member that lags is given a state. It believes the state if f+1 members said its digest.
- A member whose own digest is not the one that f+1 others said has gone astray, by a fault of its machine or of its
  program. It says so (`astray`), and takes over the state of the others.
"""

from __future__ import annotations

from ...core import ProcessId
from .members import Members
from .messages import NO_DIGEST, Checkpoint, Digest, digest_of

_TOLD = 3  # the latest checkpoints, in every STATUS


class Checkpoints:
    def __init__(self, members: Members) -> None:
        self._members = members
        self.low = 0  # the last stable one
        self._own: dict[int, Digest] = {}  # from `low` on, in order
        self.state_next = 0  # the latest of its own whose state it keeps, for members that lag
        self.state = b""
        self._said: dict[ProcessId, dict[int, Digest]] = {}
        self.astray = 0  # how often this member was not where the others were

    def take(self, next_: int, state: bytes) -> Digest:
        """The member's own state at a checkpoint."""
        digest = digest_of(state)
        self._own[next_] = digest
        self.state_next, self.state = next_, state
        return digest

    def recover(self, low: int, own: tuple[Checkpoint, ...]) -> None:
        self.low = low
        self._own = {checkpoint.next: checkpoint.digest for checkpoint in own}

    def own(self) -> tuple[Checkpoint, ...]:
        return tuple([Checkpoint(next_, digest) for next_, digest in self._own.items()])

    def latest(self) -> tuple[Checkpoint, ...]:
        return self.own()[-_TOLD:]

    def on_said(self, sender: ProcessId, checkpoints: tuple[Checkpoint, ...]) -> None:
        self._said[sender] = {checkpoint.next: checkpoint.digest for checkpoint in checkpoints[-_TOLD:]}

    def settle(self) -> bool:
        """Whether a later checkpoint of its own is stable now."""
        stable = self.low
        for next_, digest in self._own.items():
            if next_ > self.low and 1 + self._others_at(next_, digest) >= self._members.quorum:
                stable = max(stable, next_)
        if stable == self.low:
            return False
        self.low = stable
        self._own = {next_: digest for next_, digest in self._own.items() if next_ >= stable}
        return True

    def _others_at(self, next_: int, digest: Digest) -> int:
        return sum([said.get(next_) == digest for said in self._said.values()])

    def vouched(self) -> Checkpoint | None:
        """The latest checkpoint that f+1 others said."""
        for next_ in sorted({next_ for said in self._said.values() for next_ in said}, reverse=True):
            digest = self.vouched_at(next_)
            if digest != NO_DIGEST:
                return Checkpoint(next_, digest)
        return None

    def vouched_at(self, next_: int) -> Digest:
        """What f+1 others said of this checkpoint."""
        said = [each[next_] for each in self._said.values() if next_ in each]
        return next((digest for digest in said if said.count(digest) >= self._members.some), NO_DIGEST)

    def givers(self, next_: int) -> list[ProcessId]:
        return [process for process, said in self._said.items() if next_ in said]

    def strayed(self) -> Checkpoint | None:
        """A checkpoint of its own at which f+1 others agree on another digest."""
        for next_, digest in self._own.items():
            vouched = self.vouched_at(next_)
            if vouched not in (NO_DIGEST, digest):
                return Checkpoint(next_, vouched)
        return None

    def repair(self, next_: int) -> None:
        """Its own checkpoints from here on are worth nothing."""
        self.astray += 1
        self._own = {at: digest for at, digest in self._own.items() if at < next_}
