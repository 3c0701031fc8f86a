"""Members that lie: each is the real process, with an outbox that does not do as it is told.

A liar says what a member can say, under its own name: links tell who sent a message, and it can sign for itself alone.
What it does is data: a fault names the ways in which it lies, and how often. Two ways are more than others:

- `twins` runs two copies of the process under one name. Each talks with one half of the others, so both believe in what
  they say: whatever a member can say twice is said twice, without anybody having to think of it.
- Liars collude: those of a run split the others into the same two halves, and make the same lie of the same message.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from hashlib import blake2b
from random import Random
from typing import Any

import msgspec
from msgspec import structs

from ..consensus.bft.messages import Checkpoint, HandedState, Propose, digest_of
from ..core import AppMessage, Outbox, Process, ProcessId, Record, TimerKey, Timestamp, Wire, encode

_LATE = "liar.late"
_REPEAT = "liar.repeat"
_REPEAT_US = 5_000
_KEPT = 60  # messages that a liar keeps, to send them again

# What each way of lying is about, by the tags of wire messages. Nothing: about all of them.
LIES: dict[str, tuple[str, ...]] = {
    "silent": (),
    "slow": (),
    "selective": (),
    "replay": (),
    "twins": (),
    "alter": (),
    "equivocate": ("propose", "write", "accept"),
    "forged-value": ("propose",),
    "wrong-digest": ("write", "accept"),
    "forged-relay": ("RELAY", "ACK", "START"),
    "stale-view": ("view-change", "new-view", "write", "accept", "propose"),
    "lying-checkpoint": ("status", "handed-state"),
    "lying-state": ("handed-state", "values", "value"),
    "lying-answer": ("REPLY", "ACK", "read-up-to", "outrun"),
}


class Lying(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a member lies: in these ways, in so many of the messages that they are about."""

    ways: tuple[str, ...]
    often: float
    secret: int  # what all liars of a run share
    fellows: tuple[ProcessId, ...] = ()  # other liars of its group: twins talk with theirs, whatever half they are in


class LyingReplica(Process):
    def __init__(self, build: Callable[[], Process], process: ProcessId, lying: Lying, rng: Random) -> None:
        self._twins = [build() for _ in range(2 if "twins" in lying.ways else 1)]
        self._process = process
        self._lying = lying
        self._out = LyingOutbox(process, lying, rng, self._checkpoint)

    def _checkpoint(self) -> tuple[int, bytes]:
        """Its latest one, to make a false one of."""
        checkpoints = getattr(getattr(self._twins[0], "_log", None), "_checkpoints", None)
        return (0, b"") if checkpoints is None else (checkpoints.state_next, checkpoints.state)

    @property
    def is_leader(self) -> bool:
        return self._twins[0].is_leader

    def recover(self, records: Sequence[Record]) -> None:
        for twin in self._twins:
            twin.recover(records)

    def on_boot(self, out: Outbox) -> None:
        if "replay" in self._lying.ways:
            out.set_timer(_REPEAT, _REPEAT_US)
        for number, twin in enumerate(self._twins):
            self._run(number, out, twin.on_boot)

    def on_multicast(self, message: AppMessage, out: Outbox) -> None:
        self._run(0, out, partial(self._twins[0].on_multicast, message))

    def on_message(self, sender: ProcessId, message: Wire, out: Outbox) -> None:
        for number, twin in enumerate(self._twins):
            if len(self._twins) == 1 or sender in self._lying.fellows or self._out.half(sender) == number:
                self._run(number, out, partial(twin.on_message, sender, message))

    def on_timer(self, key: TimerKey, out: Outbox) -> None:
        if key == _REPEAT:
            out.set_timer(_REPEAT, _REPEAT_US)
            self._out.repeat(out)
        elif key.startswith(_LATE):
            self._out.send_late(key, out)
        else:
            number, _, own = key.partition("/")
            twin = self._twins[int(number)]
            self._run(int(number), out, partial(twin.on_timer, own))

    def on_read(self, read: int, out: Outbox) -> None:
        """Nobody believes what it would answer."""

    def _run(self, number: int, out: Outbox, step: Callable[[Outbox], None]) -> None:
        """A liar may contradict itself: then it does nothing more in this step, and that is no finding."""
        self._out.begin(number, out)
        try:
            step(self._out)
        except (AssertionError, KeyError, msgspec.MsgspecError):
            return


class LyingOutbox(Outbox):
    """Performs what its process does, with lies."""

    def __init__(
        self, process: ProcessId, lying: Lying, rng: Random, checkpoint: Callable[[], tuple[int, bytes]]
    ) -> None:
        self._process = process
        self._lying = lying
        self._rng = rng
        self._checkpoint = checkpoint
        self._out: Outbox
        self._number = 0
        self._late: dict[TimerKey, tuple[ProcessId, Wire]] = {}
        self._kept: list[Wire] = []
        self._second: dict[bytes, bytes] = {}  # the digest of a value that it proposed, of what it told the other half
        self._heard: set[ProcessId] = set()
        self._is_silent = False
        self._left = 0  # messages until it changes its mind about keeping silent

    def begin(self, number: int, out: Outbox) -> None:
        self._number = number
        self._out = out

    # -- what a liar says

    def send(self, to: ProcessId, message: Wire) -> None:
        self.send_all((to,), message)

    def send_all(self, to: Sequence[ProcessId], message: Wire) -> None:
        self._heard.update(to)
        if "replay" in self._lying.ways:
            self._kept.append(message)
            del self._kept[:-_KEPT]
        for receiver in to:
            self._send_one(receiver, message)

    def _send_one(self, to: ProcessId, message: Wire) -> None:
        lying, rng = self._lying, self._rng
        if "twins" in lying.ways and to not in lying.fellows and self.half(to) != self._number:
            return
        kind = str(message.__struct_config__.tag)
        for way in lying.ways:
            about = LIES[way]
            if (about and kind not in about) or rng.random() >= lying.often:
                continue
            match way:
                case "silent":
                    if self._keeps_silent():
                        return
                case "selective":
                    if self.half(to):
                        return
                case "slow":
                    self._send_late(to, message)
                    return
                case "twins" | "replay":
                    pass
                case "equivocate":
                    message = self._second_word(message) if self.half(to) else message
                case "lying-checkpoint":
                    message = self._with_false_state(message)
                case "forged-value":
                    message = structs.replace(message, value=self._forged(message))
                case _:
                    message = self._altered(message)
        self._out.send(to, message)

    def _keeps_silent(self) -> bool:
        """For long, and not for ever: the others must not get used to it."""
        self._left -= 1
        if self._left < 0:
            self._is_silent = not self._is_silent
            self._left = self._rng.randrange(400)
        return self._is_silent

    def half(self, receiver: ProcessId) -> int:
        """Which half of the others this one is in: the same for all liars of a run."""
        return blake2b(b"%d/%d" % (self._lying.secret, receiver)).digest()[0] & 1

    def _second_word(self, message: Any) -> Any:
        """Another value for one half of the members, and the votes that go with it."""
        if isinstance(message, Propose):
            value = _altered_value(message.value, Random(message.instance))
            self._second[digest_of(message.value)] = digest_of(value)
            return structs.replace(message, value=value)
        return structs.replace(message, digest=self._second.get(message.digest, message.digest))

    def _send_late(self, to: ProcessId, message: Wire) -> None:
        key = f"{_LATE}.{len(self._late)}.{self._rng.getrandbits(32)}"
        self._late[key] = (to, message)
        self._out.set_timer(key, self._rng.randrange(1, 60_000))

    def send_late(self, key: TimerKey, out: Outbox) -> None:
        if key in self._late:
            out.send(*self._late.pop(key))

    def repeat(self, out: Outbox) -> None:
        """Something that it said before, to anybody."""
        if self._kept and self._heard:
            for _ in range(self._rng.randrange(4)):
                out.send(self._rng.choice(sorted(self._heard)), self._rng.choice(self._kept))

    def _with_false_state(self, message: Any) -> Any:
        """It says that its state is another, and hands that over to whoever asks."""
        next_, state = self._checkpoint()
        false = _false_state(state)
        if isinstance(message, HandedState):
            return structs.replace(message, state=false)
        said = [Checkpoint(each.next, digest_of(false)) if each.next == next_ else each for each in message.checkpoints]
        return structs.replace(message, checkpoints=tuple(said))

    def _forged(self, message: Any) -> bytes:
        return _forged_value(message.value, Random(message.instance ^ self._lying.secret))

    def _altered(self, message: Any) -> Any:
        """The same lie of the same message, whichever liar tells it; signed, where a signature is due."""
        rng = Random(blake2b(b"%d/" % self._lying.secret + encode(message), digest_size=8).digest())
        lie = alter(message, rng)
        if hasattr(lie, "signed"):
            if hasattr(lie, "process"):
                lie = structs.replace(lie, process=self._process)
            lie = structs.replace(lie, proof=self._out.sign(lie.signed()))
        return lie

    # -- what it does like any other

    @property
    def now_us(self) -> int:
        return self._out.now_us

    @property
    def persists_at_once(self) -> bool:
        return self._out.persists_at_once

    def sign(self, data: bytes, sender: ProcessId | None = None) -> bytes:
        return self._out.sign(data, sender)

    def verify(self, process: ProcessId, data: bytes, proof: bytes) -> bool:
        return self._out.verify(process, data, proof)

    def announce(self, message: AppMessage) -> None:
        self._out.announce(message)

    def deliver(self, position: int, message: AppMessage, final_ts: Timestamp | None) -> None:
        """What a liar delivers says nothing."""

    def opt_deliver(self, position: int, message: AppMessage) -> None:
        """What a liar delivers says nothing."""

    def restored(self, position: int) -> None:
        """What a liar delivers says nothing."""

    def set_timer(self, key: TimerKey, after_us: int) -> None:
        self._out.set_timer(f"{self._number}/{key}", after_us)

    def cancel_timer(self, key: TimerKey) -> None:
        self._out.cancel_timer(f"{self._number}/{key}")

    def persist(self, record: Record) -> None:
        self._out.persist(record)

    def snapshot(self, record: Record) -> None:
        self._out.snapshot(record)


def alter(message: Any, rng: Random) -> Any:
    """One field of it is another: a message that a member could have sent, and did not."""
    fields = [name for name in message.__struct_fields__ if name not in ("group", "proof")]
    if not fields:
        return message
    name = rng.choice(fields)
    if name == "value" and rng.random() < 0.7:
        return structs.replace(message, value=_altered_value(message.value, rng))
    return structs.replace(message, **{name: _altered(getattr(message, name), rng)})


def _altered(value: Any, rng: Random) -> Any:
    match value:
        case bool():
            return not value
        case int():
            return rng.choice((value + 1, max(0, value - 1), 0, value + rng.randrange(1_000), (1 << 40) + value))
        case bytes():
            return _altered_bytes(value, rng)
        case list() | tuple():
            return _altered_tuple(tuple(value), rng)
        case msgspec.Struct():
            return alter(value, rng)
        case _:
            return value


def _altered_value(value: bytes, rng: Random) -> bytes:
    """Other entries than the leader was asked to order: fewer, more, in another order, or with other contents."""
    try:
        entries = msgspec.msgpack.decode(value)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return b""
    if not isinstance(entries, list):
        return b""
    changed = _altered_tuple(tuple(entries), rng)
    return encode(list(changed)) if changed else b""


def _forged_value(value: bytes, rng: Random) -> bytes:
    """The same entries, and in one of them a message with other contents or destinations than its client signed."""
    try:
        entries = msgspec.msgpack.decode(value)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return value
    messages = list(_messages_in(entries))
    if not messages:
        return _altered_value(value, rng)
    message = rng.choice(messages)
    if rng.random() < 0.5:
        message[2] = _altered_bytes(message[2], rng)
    else:
        message[1] = sorted(set(message[1]) ^ {rng.randint(1, 4)}) or message[1]
    return encode(entries)


def _false_state(packed: bytes) -> bytes:
    """A state that somebody could have: the latest delivery is missing."""
    if not packed:
        return packed
    log_state = msgspec.msgpack.decode(packed)
    replica_state = msgspec.msgpack.decode(log_state[2])
    adapter_state = msgspec.msgpack.decode(replica_state[0])
    deliveries = adapter_state[1][1]
    del deliveries[-1:]
    replica_state[0] = encode(adapter_state)
    log_state[2] = encode(replica_state)
    return encode(log_state)


def _messages_in(decoded: Any) -> Iterator[list[Any]]:
    """Application messages, as they are in decoded entries: id, destinations, payload and so on."""
    if isinstance(decoded, list):
        if len(decoded) > 3 and [type(each) for each in decoded[:3]] == [int, list, bytes]:
            yield decoded
        for each in decoded:
            yield from _messages_in(each)


def _altered_bytes(value: bytes, rng: Random) -> bytes:
    if not value or rng.random() < 0.2:
        return rng.randbytes(rng.choice((0, 4, 32)))
    at = rng.randrange(len(value))
    return value[:at] + bytes([value[at] ^ 1 << rng.randrange(8)]) + value[at + 1 :]


def _altered_tuple(value: tuple[Any, ...], rng: Random) -> tuple[Any, ...]:
    if not value:
        return value
    at = rng.randrange(len(value))
    match rng.randrange(4):
        case 0:
            return value[:at] + value[at + 1 :]
        case 1:
            return (*value, value[at])
        case 2:
            return tuple(reversed(value))
        case _:
            return (*value[:at], _altered(value[at], rng), *value[at + 1 :])
