"""What FastCast's processes say to each other, and what they write into their groups' logs."""

from __future__ import annotations

import msgspec

from ..core import AppMessage, GroupId, MessageId, Timestamp, Wire

Given = tuple[Timestamp, bytes]  # a timestamp, and the digest of the message that it was given to
Stamp = tuple[MessageId, Timestamp, bytes]


class SendSoft(Wire, frozen=True, tag="SEND-SOFT"):
    group: GroupId
    stamps: tuple[Stamp, ...]

    def about(self) -> tuple[MessageId, ...]:
        return tuple([stamp[0] for stamp in self.stamps])


class SendHard(Wire, frozen=True, tag="SEND-HARD"):
    group: GroupId
    stamps: tuple[Stamp, ...]

    def about(self) -> tuple[MessageId, ...]:
        return tuple([stamp[0] for stamp in self.stamps])


class Synced(Wire, frozen=True, tag="SYNCED"):
    """The log of `group` has the hard timestamps that the receiver's group gave these messages."""

    group: GroupId
    ids: tuple[MessageId, ...]

    def about(self) -> tuple[MessageId, ...]:
        return self.ids


class Reject(Wire, frozen=True, tag="REJECT"):
    """The sender's group keeps no timestamp of this message for the receiver's: that one's log has it, or none will
    ever be given."""

    id: MessageId
    digest: bytes

    def about(self) -> tuple[MessageId, ...]:
        return (self.id,)


class Wanted(Wire, frozen=True, tag="WANTED"):
    """The receiver's group has given these messages timestamps, and the sender's group has not heard of them."""

    group: GroupId
    ids: tuple[MessageId, ...]

    def about(self) -> tuple[MessageId, ...]:
        return self.ids


class SetHard(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="set-hard"):
    message: AppMessage


class SyncSoft(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="sync-soft"):
    """Guesses of another group's leader, as many as came at a time."""

    group: GroupId
    stamps: tuple[Stamp, ...]


class SyncHard(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="sync-hard"):
    """Timestamps that another group's log has decided."""

    group: GroupId
    stamps: tuple[Stamp, ...]


class SyncReject(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="sync-reject"):
    """Another group has said REJECT."""

    group: GroupId
    id: MessageId
    digest: bytes


FastCastMessage = SendSoft | SendHard | Synced | Reject | Wanted
FastCastEntry = SetHard | SyncSoft | SyncHard | SyncReject
