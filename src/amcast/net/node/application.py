"""Applications inside a node: a deterministic state machine whose `apply` is called for each message, in order.

    class Counter(StateMachine):
        def apply(self, message):
            self.count += int(message.payload)
            return str(self.count).encode()
        def snapshot(self): return str(self.count).encode()
        def restore(self, state): self.count = int(state)

An `ExchangingMachine` is for messages to several groups that depend on what the other groups know, such as a transfer
that is made only if there is enough money: see `_exchange.py`.

What a node promises to its application:

- Each position is applied once, in order and without a gap, through any crash. After a restart the machine gets its
  last durable snapshot, and then all messages since. Those are in the node's delivery log, which drops none of them
  before a later snapshot is durable, even if there are more than `keep_messages`.
- What `apply` returns is the result for the client that called (`client.call`). It is computed once, and kept with the
  application's state until the client has it: a client that asks again, or after a fail-over, gets the same bytes.
- A snapshot is written whole and synced under a checksum, after each `limits.snapshot_messages` messages and at an
  orderly stop. A full disk is no reason to stop: the last snapshot stays, and saving is tried again.
- A machine that raises stops its node, with the error and the position. Nothing is applied or acknowledged by that
  node any more, and no snapshot is saved: the machine's state may be anything. A restart goes on at this position.
- A machine whose snapshot is damaged, or that misses messages that no member of its group has any more, takes over the
  state of another member's machine, of any size. If the log begins at 0, it is replayed instead.

In memory mode nothing is saved: a machine that restarts gets the state of another member.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from ...core import AppMessage, GroupId
from ...core.batch import unpack
from ..disk.deliveries import DeliveryLog
from ..wire.control import ReadValue, Refusal, Result
from ..wire.envelope import ENVELOPE, Keyed, Skip, may_hold_envelope, opened
from ._application_state import Kept, join_state, read_snapshot, remove_snapshot, split_state, write_snapshot
from ._exchange import DumpedPair, Exchange
from ._keys import Keys, digest_of
from ._skips import Skips
from .results import RESULT_LIMIT, Results

_CHUNK = 1 << 20

logger = logging.getLogger("amcast.node")


class Machine(ABC):
    """What all applications inside nodes have: derive from `StateMachine` or `ExchangingMachine`."""

    @abstractmethod
    def snapshot(self) -> bytes:
        """The whole state: it is saved now and then, so that the messages before it need not be applied again.

        In protocols that survive liars, replicas that applied the same messages must return the same bytes: f+1 of them
        vouch for a state that another one takes over.
        """

    @abstractmethod
    def restore(self, state: bytes) -> None:
        """Takes over a state that `snapshot` returned, here or at another replica, in place of the one it has."""

    def query(self, payload: bytes) -> bytes | None:
        """Answers a client that only reads, from the state as it is, with at most a megabyte. It must change nothing:
        a query is no message, so other replicas never hear of it.

        What it raises is told to this client alone, and the node goes on.
        """
        raise NotImplementedError(f"{type(self).__name__} answers no queries: it has no method `query(payload)`")

    def opt_apply(self, position: int, message: AppMessage) -> None:
        """Only optimistic protocols call this: the message will probably be delivered at this position."""
        return


class StateMachine(Machine):
    """An application inside a node: make a class of it, with `apply`, `snapshot` and `restore`.

    It is made with the name of its group, as `Bank("g1")`. Each replica of a group has one, and all of them apply the
    same messages in the same order, each once, through any crash. One that raises stops its node.
    """

    @abstractmethod
    def apply(self, message: AppMessage) -> bytes | None:
        """Every replica applies the same messages in the same order. What `apply` does must depend on nothing else.

        Returns the result for the client, of at most a megabyte.
        """


class ExchangingMachine(Machine):
    """For messages that one group can't execute without knowing something of the others.

    Before a message is applied, every group that it goes to calls `read`, in the state in which it will apply the
    message. Then every group calls `apply` with what all of them read. Messages behind it wait.
    """

    @abstractmethod
    def read(self, message: AppMessage) -> bytes | None:
        """What this group tells the others, of at most a megabyte. It changes nothing.

        None: the message needs no exchange, and nobody waits. All groups must agree on that, so it may depend on the
        message alone, not on the state.
        """

    @abstractmethod
    def apply(self, message: AppMessage, reads: Mapping[str, bytes]) -> bytes | None:
        """`reads` has what each group of the message read, this one included, by its name, as in `reads["g2"]`.

        It is empty if `read` returned None. Otherwise as for a `StateMachine`.
        """


class ApplicationError(Exception):
    """What the application raised, and at which position. Its state may be anything now, so its node stops."""

    def __init__(self, position: int, action: str, error: Exception) -> None:
        super().__init__(f"the application failed to {action} at position {position}: {type(error).__name__}: {error}")


class StaleStateError(ApplicationError):
    """The application has executed what its group decided to skip: its state is not the group's."""

    def __init__(self, position: int) -> None:
        Exception.__init__(
            self,
            f"the group decided to skip the message at position {position}, and the application has executed it: start"
            " the node again, and it builds the application's state anew",
        )


class Host:
    """Feeds a machine from the delivery log, and keeps its snapshots in a folder, if there is one."""

    def __init__(
        self,
        machine: Machine,
        deliveries: DeliveryLog,
        folder: Path | None,
        snapshot_every: int,
        results_bytes: int = 64 << 20,
        exchange: Exchange | None = None,
        group: GroupId = 1,
        needed: int = 1,
    ) -> None:
        """An `ExchangingMachine` needs an exchange, and the group in which it runs. `needed` is how many members must
        vouch for a state."""
        assert isinstance(machine, ExchangingMachine) == (exchange is not None)
        self._machine = machine
        self._deliveries = deliveries
        self._path = None if folder is None else folder / "application.state"
        self._snapshot_every = snapshot_every
        self._saved = 0  # all positions below are in the durable snapshot
        self._is_taken_over = False  # the state is another member's, and not saved yet
        self._failure: ApplicationError | None = None
        self.position = 0  # the next one to apply
        self._problem: str | None = None
        self.results = Results(results_bytes, is_exact=needed > 1)
        self.keys = Keys(results_bytes)
        self.skips = Skips()
        # The messages have one sender. They are told at once, since there may be many in a batch.
        self.on_results: Callable[[Sequence[AppMessage], Sequence[Result]], None] = lambda messages, results: None
        self._group = group
        self.exchange = exchange
        if exchange is not None:
            exchange.on_heard = self._go_on
        self._queue: deque[AppMessage] = deque()  # delivered from `position` on, while the first of them waits
        self._queued_bytes = 0
        # What this group read for the message at a position, and whether there is an exchange for it.
        self._own: tuple[int, ReadValue, bool] = (-1, None, False)
        self._counts_at: dict[int, dict[GroupId, int]] = {}  # exchanges in the states that were dumped, by position
        self.wanted: set[int] = set()  # positions at which the state is to be dumped
        self.on_wanted: Callable[[], None] = lambda: None

    @property
    def problem(self) -> str | None:
        """For people."""
        if self.held_at is not None:
            return f"the application is on hold at position {self.held_at}: `amcast skip` lets it go on"
        return self._problem or (None if self.exchange is None else self.exchange.problem)

    @problem.setter
    def problem(self, problem: str | None) -> None:
        self._problem = problem

    @property
    def held_at(self) -> int | None:
        """The position at which the application waits for the decision to skip it."""
        return self.position if self.skips.holds(self.position) else None

    def recover(self) -> None:
        """Restores the last snapshot. `catch_up` applies what came after it."""
        if self._path is None:
            return
        found = read_snapshot(self._path)
        if found is not None:
            self._restore(*found)
            self._saved = self.position
            self._tell_saved()
        self._deliveries.keep_from = self._saved

    @contextmanager
    def _attempt(self, action: str, position: int) -> Iterator[None]:
        """Once the machine has raised, its state may be anything: it is neither used nor saved any more."""
        if self._failure is not None:
            raise self._failure
        try:
            yield
        except Exception as error:
            self._failure = ApplicationError(position, action, error)
            raise self._failure from error

    # -- applying

    @property
    def is_behind(self) -> bool:
        """The next message to apply is missing in this node's log."""
        return self.position < self._deliveries.next and not self._deliveries.has(self.position)

    def catch_up(self) -> bool:
        """Applies some of what the log has and the machine has not. False if there was none, or it must wait."""
        if self._look_for_skips():
            return True
        if self._queue or self.position >= self._deliveries.next or not self._deliveries.has(self.position):
            return False
        for position, (message, _) in enumerate(self._deliveries.read(self.position, _CHUNK), self.position):
            self.deliver(position, message)
        return True

    def _look_for_skips(self) -> bool:
        """Looks through some of the log for decisions to skip what is not applied yet. Whether there is more to see."""
        at = max(self.skips.looked_until, self.position)
        if not self._deliveries.has(at):
            return False
        for message, _ in self._deliveries.read(at, _CHUNK):
            self.skips.note(at, message)
            at += 1
        self.skips.looked_until = at
        self._go_on()
        return self._deliveries.has(at)

    def deliver(self, position: int, message: AppMessage) -> None:
        """A machine that is behind gets it later, from the log."""
        if message.payload.startswith(ENVELOPE) or self._queue or not self._is_plain:
            self._deliver_carefully(position, message)
        elif position == self.position:
            self._apply(message)

    def deliver_batch(self, first: int, delivered: AppMessage) -> None:
        """The same for a message, or a batch of messages at positions from `first` on."""
        messages = unpack(delivered)
        if first == self.position and self._is_plain and not self._queue and not may_hold_envelope(delivered.payload):
            self._apply_all(messages)
        else:
            for position, message in enumerate(messages, first):
                self.deliver(position, message)

    def _deliver_carefully(self, position: int, message: AppMessage) -> None:
        """It may be a decision, or may have to wait."""
        if position == self.skips.looked_until:
            self.skips.looked_until += 1
            self.skips.note(position, message)
        if not self._queue:
            if position == self.position and not self._try_apply(message):
                self._enqueue(message)
            return
        if position == self.position + len(self._queue) and self._queued_bytes < _CHUNK:
            self._enqueue(message)
        if self.skips.is_decided(self.position):
            self._go_on()

    def querying(self) -> Callable[[bytes], bytes | None]:
        """What answers queries in this turn, and may raise anything. Its answers are not checked yet: one call less for
        each of many queries."""
        if self._failure is not None:
            raise self._failure
        return self._machine.query

    def opt_deliver(self, position: int, message: AppMessage) -> None:
        with self._attempt("apply a message early", position):
            self._machine.opt_apply(position, message)

    @property
    def _is_plain(self) -> bool:
        """Messages without an envelope are applied one after the other, and that is all."""
        return self.exchange is None and not self.skips.is_active and not self.wanted

    def _try_apply(self, delivered: AppMessage) -> bool:
        """False if it waits for what other groups must tell, or for a decision to skip it."""
        is_applied = self._try_execute(delivered)
        if is_applied and self.position in self.wanted:
            self.on_wanted()
        return is_applied

    def _try_execute(self, delivered: AppMessage) -> bool:
        message, key = _opened(delivered)
        if self.skips.holds(self.position):
            return False
        if isinstance(key, Skip):
            self._finish(message, self._reach_decision(key.position))
            return True
        request = None if key is None else _Request(key.name, key.key, digest_of(message))
        known = None if request is None else self.keys.find(*request)
        if self.exchange is None:
            self._execute(message, None, request, known)
            return True
        own, is_exchanged = self._read(message, known)
        if not is_exchanged:
            self._execute(message, {}, request, known)
            return True
        others = [group for group in message.dst if group != self._group]
        heard = self.exchange.hear(others)
        if heard is None:
            return False
        values = {**heard, self._group: own}
        if known is None and any(isinstance(value, Refusal) for value in values.values()):
            known = (Refusal.FORGOTTEN,)  # another group still knows that it was executed
        self._execute(message, _named(values), request, known)
        self.exchange.executed(others)
        return True

    def _reach_decision(self, position: int) -> Result:
        """The message is the decision to skip the one at this position."""
        if position >= self.position:
            return Refusal.TOO_EARLY
        if self.skips.is_skipped(position):
            return b"skipped"
        if self._path is not None:
            remove_snapshot(self._path)
        self._failure = StaleStateError(position)
        raise self._failure

    def _read(self, message: AppMessage, known: tuple[Result] | None) -> tuple[ReadValue, bool]:
        """What this group tells the others, and whether there is an exchange. Once for each position."""
        assert self.exchange is not None and isinstance(self._machine, ExchangingMachine)
        position, own, is_exchanged = self._own
        if position != self.position:
            try:
                with self._attempt("read for a message", self.position):
                    own = checked_result(self._machine.read(message))
                is_exchanged = own is not None
            except ApplicationError:
                if not self.skips.is_decided(self.position):
                    raise
                own, is_exchanged, self._failure = None, True, None  # reading changes nothing, so it goes on
            own = own if known is None or not is_exchanged else Refusal.FORGOTTEN
            self._own = (self.position, own, is_exchanged)
            if is_exchanged:
                self.exchange.tell([group for group in message.dst if group != self._group], own)
        return own, is_exchanged

    def _execute(
        self,
        message: AppMessage,
        reads: Mapping[str, bytes] | None,
        request: _Request | None,
        known: tuple[Result] | None,
    ) -> None:
        if known is not None:
            self._finish(message, known[0])
        elif self.skips.is_decided(self.position):
            self.skips.note_skipped(self.position)
            self._finish(message, Refusal.SKIPPED)
        else:
            self._apply(message, reads, request)

    def _enqueue(self, message: AppMessage) -> None:
        self._queue.append(message)
        self._queued_bytes += len(message.payload)

    def _go_on(self) -> None:
        """Other groups have told something: perhaps the message that waits can be applied, and others behind it."""
        while self._queue and self._try_apply(self._queue[0]):
            self._queued_bytes -= len(self._queue.popleft().payload)

    def _apply(
        self, message: AppMessage, reads: Mapping[str, bytes] | None = None, request: _Request | None = None
    ) -> None:
        if self._failure is not None:
            raise self._failure
        try:
            arguments = (message,) if reads is None else (message, reads)
            result = checked_result(self._machine.apply(*arguments))  # type: ignore[attr-defined]
        except Exception as error:
            self._failure = ApplicationError(self.position, "apply a message", error)
            raise self._failure from error
        if request is not None:
            self.keys.add(*request, result)
        self._finish(message, result)

    def _apply_all(self, messages: Sequence[AppMessage]) -> None:
        """Messages of one sender that wait for nothing. Of each, no more is done here than must be."""
        if self._failure is not None:
            raise self._failure
        apply = self._machine.apply  # type: ignore[attr-defined]
        results: list[Result] = []
        try:
            for message in messages:
                result = apply(message)
                if type(result) is not bytes or len(result) > RESULT_LIMIT:
                    result = checked_result(result)
                results.append(result)
                self.position += 1
        except Exception as error:
            self._failure = ApplicationError(self.position, "apply a message", error)
            raise self._failure from error
        self._keep_results(messages, results)

    def _finish(self, message: AppMessage, result: Result) -> None:
        self.position += 1
        self._keep_results((message,), (result,))

    def _keep_results(self, messages: Sequence[AppMessage], results: Sequence[Result]) -> None:
        self.results.add_all(messages, results)
        self.on_results(messages, results)

    # -- states

    def dump(self) -> tuple[int, bytes]:
        pairs = {}
        if self.exchange is not None:
            pairs = self.exchange.dump()
            if self._path is not None:
                self._counts_at[self.position] = self.exchange.counts()
        return self._dump_with(pairs)

    def dump_shared(self) -> tuple[int, bytes]:
        """The same bytes at all members that are at this position: without what other groups were told, since each
        member forgets that at its own time. Whoever takes over this state can't tell it to them again: others can."""
        return self._dump_with({} if self.exchange is None else self.exchange.dump_counts())

    def _dump_with(self, pairs: dict[GroupId, DumpedPair]) -> tuple[int, bytes]:
        with self._attempt("save its state", self.position):
            state = self._machine.snapshot()
        kept = Kept(self.results.dump(), self.keys.dump(), pairs, self.skips.dump())
        return self.position, join_state(kept, state)

    def take_over(self, position: int, state: bytes) -> None:
        """Another member's state, if it is further."""
        if position > self.position:
            self._restore(position, state)
            self._is_taken_over = True
            self.problem = None
            logger.info("the application goes on at position %s, with the state of another member", position)

    def _restore(self, position: int, state: bytes) -> None:
        with self._attempt("restore a state", position):
            kept, machine_state = split_state(state)
            self._machine.restore(machine_state)
        self.results.load(kept.results)
        self.keys.load(kept.keys)
        self.skips.load(kept.skipped)
        if self.exchange is not None:
            self.exchange.load(kept.pairs)
            self._counts_at[position] = self.exchange.counts()
        self.position = position
        self._queue.clear()
        self._queued_bytes = 0

    @property
    def needs_state(self) -> bool:
        """Nobody keeps what another group told for the next message: the state of another member has its effects."""
        return self.exchange is not None and self.exchange.is_gone

    @property
    def unseen_at(self) -> int | None:
        """While it is on hold: the first position that its log misses. The decision to skip may have been there."""
        at = max(self.skips.looked_until, self.position)
        is_missing = at < self._deliveries.next and not self._deliveries.has(at)
        return at if is_missing and self.held_at is not None else None

    @property
    def is_save_due(self) -> bool:
        is_due = self._is_taken_over or self.position - self._saved >= self._snapshot_every
        has_heard_much = self.exchange is not None and self.exchange.has_heard_much
        return (is_due or (has_heard_much and self.position > self._saved)) and self._path is not None

    def write(self, position: int, state: bytes) -> None:
        """Any thread may call it. When it returns, the snapshot is durable: then `saved_at` is called."""
        assert self._path is not None
        write_snapshot(self._path, position, state)

    def saved_at(self, position: int) -> None:
        self._saved = self._deliveries.keep_from = position
        self._is_taken_over = False
        self.problem = None
        self._tell_saved()

    def _tell_saved(self) -> None:
        """Other groups need not keep what they told before."""
        if self.exchange is not None:
            self.exchange.saved(self._counts_at[self._saved])
            self._counts_at = {at: counts for at, counts in self._counts_at.items() if at >= self._saved}

    def save(self) -> None:
        """At an orderly stop."""
        if self._path is not None and self.position > self._saved:
            position, state = self.dump()
            self.write(position, state)
            self.saved_at(position)


def checked_result(result: Any) -> bytes | None:
    """What an application may answer. Raises if this is something else."""
    if result is None:
        return None
    if not isinstance(result, bytes | bytearray | memoryview):
        raise TypeError(f"a result is bytes or None, not {type(result).__name__}")
    if len(result) > RESULT_LIMIT:
        raise ValueError(f"a result of {len(result)} bytes is over the limit of {RESULT_LIMIT}")
    return bytes(result)


class _Request(NamedTuple):
    """A request with an idempotency key."""

    name: str
    key: str
    digest: bytes


def _opened(message: AppMessage) -> tuple[AppMessage, Keyed | Skip | None]:
    """The message with the payload that its program gave, and what the envelope says, if there is one."""
    found = opened(message.payload)
    if found is None or isinstance(found, Skip):
        return message, found
    given = msgspec.structs.replace(message, payload=found.payload)
    return given, found if isinstance(found, Keyed) else None


def _named(values: Mapping[GroupId, ReadValue]) -> dict[str, bytes]:
    return {f"g{group}": value for group, value in sorted(values.items()) if isinstance(value, bytes)}
