"""What a member can say: whatever decodes and could not come from a member that tells the truth goes no further.

Decoding checks types. Values are checked here, once, before any part of the log sees a message: numbers are no smaller
or larger than numbers get, a digest has the length of one, and no message makes others keep more than its kind needs.
So a liar can say wrong things, and they can't grow, overflow or fail to encode.
"""

from __future__ import annotations

from ...core import Wire
from ..multipaxos.config import PaxosConfig
from .members import Members
from .messages import (
    DIGEST_BYTES,
    NO_DIGEST,
    Accept,
    AskRead,
    AskRejoin,
    AskState,
    AskValue,
    AskValues,
    Checkpoint,
    Digest,
    HandedState,
    NewView,
    Outrun,
    Propose,
    ReadUpTo,
    Status,
    Value,
    Values,
    ViewChange,
    Voted,
    Write,
)

_LIMIT = 1 << 62  # of views, instances, incarnations and reads: none of them gets there in an age of the earth
_PROOF_BYTES = 1 << 10
_VALUE_SLACK = 4 << 20  # a single entry may be larger than `value_bytes`: a value by so much at the most


class Proper:
    def __init__(self, members: Members, config: PaxosConfig, ahead: int) -> None:
        self._members = members
        self._ahead = ahead
        self._told_max = 32 * (config.snapshot_every + ahead) + config.lag_max  # words in a VIEW-CHANGE
        self.value_bytes = config.value_bytes + _VALUE_SLACK  # the largest value
        self._values_bytes = config.learn_bytes + self.value_bytes

    def allows(self, message: Wire) -> bool:
        match message:
            case Write() | Accept():  # most messages are votes: the shortest way for them
                view, instance = message.view, message.instance
                return 0 <= view < _LIMIT and 0 <= instance < _LIMIT and len(message.digest) == DIGEST_BYTES
            case Propose():
                return _are_numbers(message.view, message.instance)  # one that is too large is held against its leader
            case Status():
                return _are_numbers(message.view, message.next) and _are_checkpoints(message.checkpoints)
            case AskValues():
                return _are_numbers(message.first, message.giver)
            case Values():
                return self._allows_values(message)
            case AskValue():
                return _are_numbers(message.instance) and _is_digest(message.digest)
            case Value():
                return _are_numbers(message.instance) and len(message.value) <= self.value_bytes
            case AskState() | HandedState():
                return _are_numbers(message.next)
            case ViewChange():
                return self._allows_change(message)
            case NewView():
                return self._allows_new_view(message)
            case AskRejoin():
                return _are_numbers(message.incarnation)
            case Outrun():
                return _are_numbers(message.known)
            case AskRead():
                return _are_numbers(message.read)
            case ReadUpTo():
                return _are_numbers(message.read, message.next)
        return False

    def _allows_values(self, message: Values) -> bool:
        digests, values = message.digests, message.values
        if not _are_numbers(message.first) or not len(values) <= len(digests) <= self._ahead:
            return False
        return all(map(_is_digest, digests)) and sum(map(len, values)) <= self._values_bytes

    def _allows_change(self, change: ViewChange) -> bool:
        if not _are_numbers(change.view, change.process, change.incarnation, change.low):
            return False
        words = len(change.checkpoints) + len(change.votes) + sum([len(voted.written) for voted in change.votes])
        if words > self._told_max or len(change.proof) > _PROOF_BYTES:
            return False
        return _are_checkpoints(change.checkpoints) and all(map(_is_voted, change.votes))

    def _allows_new_view(self, message: NewView) -> bool:
        if len(message.changes) > len(self._members.all) or len(message.proof) > _PROOF_BYTES:
            return False
        return _are_numbers(message.view) and all(map(self._allows_change, message.changes))


def _are_numbers(*numbers: int) -> bool:
    return min(numbers) >= 0 and max(numbers) < _LIMIT


def _is_digest(digest: Digest) -> bool:
    return len(digest) == DIGEST_BYTES


def _is_digest_or_none(digest: Digest) -> bool:
    return digest == NO_DIGEST or len(digest) == DIGEST_BYTES


def _are_checkpoints(checkpoints: tuple[Checkpoint, ...]) -> bool:
    return all(_are_numbers(each.next) and _is_digest(each.digest) for each in checkpoints)


def _is_voted(voted: Voted) -> bool:
    if not 0 <= voted.instance < _LIMIT or not -1 <= voted.prepared_view < _LIMIT:
        return False
    if not _is_digest_or_none(voted.prepared) or not _is_digest_or_none(voted.decided):
        return False
    return all(0 <= view < _LIMIT and _is_digest(digest) for view, digest in voted.written)
