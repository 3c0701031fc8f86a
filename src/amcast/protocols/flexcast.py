"""FlexCast: genuine atomic multicast on an overlay, without timestamps.

Guarantees: uniform integrity, validity, agreement, prefix and acyclic order; minimality: a group takes part only if it
is a destination of some message of the run (flushes, which go to all groups, left aside). Survives f crashes in each
group of 2f+1, and restarts with one process a group. With one process a group, 1 delay at the lowest destination (the
lca), i at the i-th; notifications add.

Groups have ranks, and send only to groups of higher rank: a complete directed acyclic graph. The lca of a message
orders it at once, for all. Everyone tells histories along (who delivered what in which order), and a group delivers a
message when it has heard from all that may know what comes before it, and has delivered that.

    client        A           B           C        m to {A, B, C}; m' to {A, B} was earlier
      |--START--->|           |           |   1    A delivers m
      |           |--MSG----->|---------->|   2    B delivers m
      |           |           |--ACK----->|   3    B's history: what B delivered before m. C delivers m

    client        A           B           C        n to {A, C}, and A knows of a message to B
      |--START--->|           |           |   1    A delivers n
      |           |--MSG----------------->|   2    A names B: C must wait for B
      |           |--NOTIF--->|           |   2    B may have ordered something before that message
      |           |           |--ACK----->|   3    C delivers n

From: Batista, Coelho, Alchieri, Dotti, Pedone, "FlexCast: genuine overlay-based atomic multicast" (2023).

Where this departs from the paper (`amcast errata` replays what the published algorithm does instead):
- **An ACK answers one notification, not all of its sender's.** A notification is (notifier, notified, how much of its
  history the notifier had told by then); ACKs name the notification they answer, and all must be answered. Published,
  an ACK counts for its group, and the second notification of a group is never waited for.
- ACKs that come before their message are kept; a group waits for notified groups of lower rank only; a delivery serves
  all notifications that waited for it; histories are joined, where line 3 of Algorithm 3 replaces the dependencies.
- A group that is notified of a message again, when its history has not changed, does not notify others again:
  published, the number of notifications doubles with every rank between.
- **Garbage collection.** A flush message goes to all groups, as in the paper, and is ordered like any other. A group
  whose history has grown by `flush_every` items asks the group of rank 0 for one, as a client would. On delivering
  it, and after telling its history to those above, a group forgets what comes before. The flush itself stays: it stands
  for all that it follows. It is no reason to notify anyone of messages after it, since all groups told what they knew
  when they acknowledged it; a notification of a message that does not follow it is passed on to every group between
  that was ever part of the history.
  A flush must go to all, and from the bottom: a group that was left out could not carry on what it was never told.
- No delivery has a timestamp.
- **Clients are not believed.** One may give the same id to messages that enter at different lcas. So groups call a
  message by its lca and that one's delivery number, and a client's `settled` mark decides on nothing but whether its
  own lca takes a message. Two messages with one id are two messages: each is delivered by all its destinations. What
  enters at one lca has no id twice.
"""

from __future__ import annotations

from collections import deque
from random import Random
from typing import Any

import msgspec

from ..core import (
    AppMessage,
    GroupId,
    MessageId,
    ProcessId,
    SeenMessages,
    SeenOfSender,
    Topology,
    UsageError,
)
from ._adapter import Frame, StreamAck, replicate
from ._automaton import GroupAutomaton, GroupOutbox
from ._client import IngressGroups
from ._history import History, HistoryItem, HistoryState, Name, flush_id, flush_number, is_flush, name_of, place_of
from ._replica import ReplicaConfig
from ._spec import ORDER, SAMPLE, Build, ProtocolSpec

# Notifier, notified, and the notifier's position in its history when it told the notified one.
Notice = tuple[GroupId, GroupId, int]


class FlexCastConfig(ReplicaConfig, frozen=True, forbid_unknown_fields=True):
    overlay: tuple[GroupId, ...] = ()  # all groups, lowest rank first; none: in the order of their ids
    flush_every: int = 500  # items added to a group's history until it asks for a flush


class Msg(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="msg"):
    """From the lca to all other destinations."""

    message: AppMessage
    name: Name
    notices: tuple[Notice, ...]
    news: tuple[HistoryItem, ...]

    @property
    def id(self) -> MessageId:
        return self.message.id


class Ack(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="ack"):
    """To the destinations above: what the sending group knew when it delivered the message, or was notified of it."""

    name: Name
    id: MessageId
    answers: tuple[GroupId, int] | None  # the notifier, and its position; None: the sender is a destination
    notices: tuple[Notice, ...]
    news: tuple[HistoryItem, ...]


class Notif(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="notif"):
    """To a group between that is no destination: tell the destinations above you what you know."""

    name: Name
    id: MessageId
    dst: tuple[GroupId, ...]
    position: int
    news: tuple[HistoryItem, ...]


class FlushRequest(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="flush"):
    """To the group of rank 0: please multicast this flush, unless you have."""

    id: MessageId


FlexCastBody = Msg | Ack | Notif | FlushRequest


class FlexCastFrame(Frame[FlexCastBody], frozen=True, tag="MSG"):
    def about(self) -> tuple[MessageId, ...]:
        return tuple([body.id for body in self.bodies if not is_flush(body.id)])


class Pending(msgspec.Struct, array_like=True):
    """A message that this group has heard of as a destination, and not delivered yet."""

    message: AppMessage | None = None  # None: an ACK came first
    acked: list[GroupId] = []  # destinations that have delivered it
    notices: list[Notice] = []  # to wait for
    answers: list[Notice] = []


class WaitingNotif(msgspec.Struct, array_like=True):
    """A notification that is answered when all that was open here has been delivered."""

    source: GroupId
    notif: Notif
    open: list[Name]


class FlexCastState(msgspec.Struct, array_like=True):
    seen: dict[ProcessId, SeenOfSender]
    history: HistoryState
    delivered: int
    flushed: int
    grown: int
    asked: int
    told: dict[GroupId, int]
    open: list[Name]
    pending: dict[Name, Pending]
    latest: dict[GroupId, int]
    queues: dict[GroupId, list[Name]]
    waiting: list[WaitingNotif]
    notified: dict[Name, dict[GroupId, int]]


class FlexCastAutomaton(GroupAutomaton):
    def __init__(self, group: GroupId, overlay: tuple[GroupId, ...], flush_every: int) -> None:
        self._group = group
        self._rank = {each: rank for rank, each in enumerate(overlay)}
        self._lowest = overlay[0]
        self._above = overlay[self._rank[group] + 1 :]  # the descendants
        self._flush_every = flush_every
        self._seen = SeenMessages()
        self._history = History()
        self._delivered = 0  # the number of this group's latest delivery, flushes included
        self._flushed = 0  # the number of the latest flush that was delivered here
        self._grown = 0  # items that were added since then, not counting flushes
        self._asked = 0  # the number of the latest flush that this group asked for
        self._told: dict[GroupId, int] = {}  # how far each group above knows this one's history
        self._open: dict[Name, None] = {}  # in the history, addressed to this group, not delivered
        self._pending: dict[Name, Pending] = {}
        self._arrived: set[MessageId] = set()  # ids of the pending messages that are here
        self._queues: dict[GroupId, deque[Name]] = {}  # by lca
        self._latest: dict[GroupId, int] = {}  # by lca: the number of its latest message that was delivered here
        self._waiting: list[WaitingNotif] = []
        # message -> group that was notified of it -> position of the history then. Forgetting it is safe: at worst a
        # group is notified again, needlessly.
        self._notified: dict[Name, dict[GroupId, int]] = {}

    # -- what the adapter asks

    def is_ingress(self, message: AppMessage, group: GroupId) -> bool:
        return self._lca(message.dst) == group

    def is_known(self, message: MessageId) -> bool:
        return self._seen.is_known(message)

    def is_pending(self, message: MessageId) -> bool:
        return message in self._arrived

    # -- events (Algorithm 2)

    def on_submit(self, message: AppMessage, out: GroupOutbox) -> None:
        """Lines 1-2: the lca delivers at once."""
        if self._seen.admit_new(message):
            self._deliver(message, name_of(self._group, self._delivered + 1), out)
            self._flush_if_due(out)

    def on_group_message(self, source: GroupId, body: FlexCastBody, out: GroupOutbox) -> None:
        match body:
            case Msg():
                self._learn(body.news)
                self._on_msg(source, body)
                self._reprocess_queues(out)
            case Ack():
                self._learn(body.news)
                self._on_ack(source, body)
                self._reprocess_queues(out)
            case Notif():
                self._learn(body.news)
                self._on_notif(source, body, out)
            case FlushRequest():
                self._flush(body.id, out)
        self._flush_if_due(out)

    def _on_msg(self, source: GroupId, body: Msg) -> None:
        """Lines 3-6."""
        message = body.message
        if not is_flush(message.id):
            self._seen.admit(message)
        pending = self._pending.setdefault(body.name, Pending())
        pending.message = message
        pending.notices.extend(body.notices)
        self._arrived.add(message.id)
        self._queues.setdefault(source, deque()).append(body.name)

    def _on_ack(self, source: GroupId, body: Ack) -> None:
        """Lines 7-11. The message itself may come later: it takes another road."""
        if self._is_delivered(body.name):
            return  # the answer to a notification that was repeated needlessly: see `_notified`
        pending = self._pending.setdefault(body.name, Pending())
        pending.notices.extend(body.notices)
        if body.answers is None:
            pending.acked.append(source)
        else:
            notifier, position = body.answers
            pending.answers.append((notifier, source, position))

    def _on_notif(self, source: GroupId, body: Notif, out: GroupOutbox) -> None:
        """Lines 12-18: what is open here comes first, so that no incomplete dependencies are told."""
        if self._open:
            news: tuple[HistoryItem, ...] = ()  # those of `body` are in the history by now
            waiting = Notif(body.name, body.id, body.dst, body.position, news)
            self._waiting.append(WaitingNotif(source, waiting, list(self._open)))
        else:
            self._answer(source, body, out)

    # -- histories (Algorithm 3, lines 1-19)

    def _learn(self, news: tuple[HistoryItem, ...]) -> None:
        for item in news:
            if self._record(item) and self._group in item.dst and not self._is_delivered(item.name):
                self._open[item.name] = None

    def _record(self, item: HistoryItem) -> bool:
        if not self._history.add(item):
            return False
        self._grown += not is_flush(item.name)
        return True

    def _is_delivered(self, name: Name) -> bool:
        """Whether this group, a destination, has delivered this message. What comes from one lca is delivered in that
        one's order."""
        if is_flush(name):
            return flush_number(name) <= self._flushed
        lca, number = place_of(name)
        return number <= (self._delivered if lca == self._group else self._latest.get(lca, 0))

    def _news_for(self, group: GroupId) -> tuple[HistoryItem, ...]:
        """Lines 11-16: the items of this group's history that it has not told the other one yet."""
        news = self._history.since(self._told.get(group, 0))
        self._told[group] = self._history.position
        return news

    def _has_open_dependency(self, name: Name) -> bool:
        """Line 52. The search ends at messages that were delivered here: nothing open comes before those."""
        if len(self._open) == 1:
            return False  # the message itself
        found = {name}
        stack = [name]
        while stack:
            for before in self._history.directly_before(stack.pop()):
                if before in self._open:
                    return True
                if before not in found and self._group not in self._history.dst(before):
                    found.add(before)
                    stack.append(before)
        return False

    # -- delivery (lines 20-31, 41-58)

    def _reprocess_queues(self, out: GroupOutbox) -> None:
        progress = True
        while progress:
            progress = False
            for queue in self._queues.values():
                while queue and self._can_deliver(queue[0]):
                    name = queue.popleft()
                    message = self._pending.pop(name).message
                    assert message is not None
                    self._arrived.discard(message.id)
                    self._deliver(message, name, out)
                    progress = True

    def _can_deliver(self, name: Name) -> bool:
        return self._is_acknowledged(self._pending[name]) and not self._has_open_dependency(name)

    def _is_acknowledged(self, pending: Pending) -> bool:
        message = pending.message
        assert message is not None
        rank, own = self._rank, self._rank[self._group]
        lca = self._lca(message.dst)
        for group in message.dst:
            if group != lca and rank[group] < own and group not in pending.acked:
                return False
        pending.notices = [
            notice
            for notice in pending.notices
            if self._must_wait_for(notice[1]) and not self._is_answered(notice, pending)
        ]
        return not pending.notices

    def _must_wait_for(self, notified: GroupId) -> bool:
        """Groups of higher rank can't answer this one: they never send down."""
        return self._rank[notified] < self._rank[self._group]

    def _is_answered(self, notice: Notice, pending: Pending) -> bool:
        notifier, notified, position = notice
        return any(
            answer[0] == notifier and answer[1] == notified and answer[2] >= position for answer in pending.answers
        )

    def _deliver(self, message: AppMessage, name: Name, out: GroupOutbox) -> None:
        self._delivered += 1
        self._record(HistoryItem(self._group, self._delivered, name, message.dst))
        self._open.pop(name, None)
        if is_flush(message.id):
            assert flush_number(message.id) == self._flushed + 1, "flushes are delivered in order"
            self._flushed += 1
        else:
            lca, number = place_of(name)
            assert number > self._latest.get(lca, 0), "messages of one lca are delivered in its order"
            self._latest[lca] = number
            out.deliver(message, None)
        self._pass_on(message, name, out)
        self._serve_notifs(name, out)
        if is_flush(message.id):
            self._collect(message.id)

    def _serve_notifs(self, delivered: Name, out: GroupOutbox) -> None:
        """Lines 27-31, for all that waited for this delivery."""
        for waiting in self._waiting:
            if delivered in waiting.open:
                waiting.open.remove(delivered)
        ready = [waiting for waiting in self._waiting if not waiting.open]
        self._waiting = [waiting for waiting in self._waiting if waiting.open]
        for waiting in ready:
            self._answer(waiting.source, waiting.notif, out)

    # -- what leaves (lines 32-40)

    def _pass_on(self, message: AppMessage, name: Name, out: GroupOutbox) -> None:
        notices = self._notify(name, message.id, message.dst, False, out)
        is_lca = self._lca(message.dst) == self._group
        for group in self._above:
            if group in message.dst:
                news = self._news_for(group)
                ack = Ack(name, message.id, None, notices, news)
                out.send(group, Msg(message, name, notices, news) if is_lca else ack)

    def _answer(self, notifier: GroupId, notif: Notif, out: GroupOutbox) -> None:
        # Every group delivers every flush. Unless some group is known to have delivered the message after the latest
        # flush, it may come before that flush, and concern groups of which only forgotten messages spoke.
        is_concurrent = self._flushed > 0 and not self._history.is_delivered_before(flush_id(self._flushed), notif.name)
        notices = self._notify(notif.name, notif.id, notif.dst, is_concurrent, out)
        for group in self._above:
            if group in notif.dst:
                answers = (notifier, notif.position)
                out.send(group, Ack(notif.name, notif.id, answers, notices, self._news_for(group)))

    def _notify(
        self, name: Name, id_: MessageId, dst: tuple[GroupId, ...], also_forgotten: bool, out: GroupOutbox
    ) -> tuple[Notice, ...]:
        """Notifies the groups between here and the destinations that may have ordered something before this message."""
        notices: list[Notice] = []
        highest = max(self._rank[group] for group in dst)
        mentions = self._history.has_mentioned if also_forgotten else self._history.mentions
        for group in self._above:
            if group not in dst and self._rank[group] < highest and mentions(group):
                position = self._notified.get(name, {}).get(group)
                if position != self._history.position:
                    position = self._history.position
                    self._notified.setdefault(name, {})[group] = position
                    out.send(group, Notif(name, id_, dst, position, self._news_for(group)))
                notices.append((self._group, group, position))
        return tuple(notices)

    def _lca(self, dst: tuple[GroupId, ...]) -> GroupId:
        return min(dst, key=self._rank.__getitem__)

    # -- garbage collection

    def _flush_if_due(self, out: GroupOutbox) -> None:
        if self._grown >= self._flush_every and self._asked <= self._flushed:
            self._asked = self._flushed + 1
            flush = flush_id(self._asked)
            if self._group == self._lowest:
                self._flush(flush, out)
            else:
                out.send(self._lowest, FlushRequest(flush))

    def _flush(self, flush: MessageId, out: GroupOutbox) -> None:
        if not self._is_delivered(flush):  # otherwise another group asked first
            self._deliver(AppMessage(flush, tuple(sorted(self._rank)), b""), flush, out)

    def _collect(self, flush: MessageId) -> None:
        self._history.forget_before(flush)
        self._notified = {}
        self._grown = 0

    # -- state

    def dump(self) -> FlexCastState:
        return FlexCastState(
            self._seen.dump(),
            self._history.dump(),
            self._delivered,
            self._flushed,
            self._grown,
            self._asked,
            self._told,
            list(self._open),
            self._pending,
            self._latest,
            {group: list(queue) for group, queue in self._queues.items()},
            self._waiting,
            self._notified,
        )

    def load(self, state: FlexCastState) -> None:
        self._seen.load(state.seen)
        self._history.load(state.history)
        self._delivered = state.delivered
        self._flushed = state.flushed
        self._grown = state.grown
        self._asked = state.asked
        self._told = state.told
        self._open = dict.fromkeys(state.open)
        self._pending = state.pending
        self._arrived = {each.message.id for each in state.pending.values() if each.message is not None}
        self._latest = state.latest
        self._queues = {group: deque(queue) for group, queue in state.queues.items()}
        self._waiting = state.waiting
        self._notified = state.notified


# -- overlays


def ranked_groups(config: FlexCastConfig, topology: Topology) -> tuple[GroupId, ...]:
    overlay = config.overlay or topology.groups
    if tuple(sorted(overlay)) != topology.groups:
        raise UsageError(
            f"overlay {list(overlay)} does not rank the groups: name each of {list(topology.groups)} once, lowest first"
        )
    return overlay


def ingress_at_lca(config: FlexCastConfig) -> IngressGroups:
    """Clients send a message to its lca."""

    def ingress_groups(message: AppMessage, topology: Topology) -> tuple[GroupId, ...]:
        return (min(message.dst, key=ranked_groups(config, topology).index),)

    return ingress_groups


def build_with(automaton: type[FlexCastAutomaton]) -> Build:
    def make(group: GroupId, topology: Topology, config: FlexCastConfig) -> FlexCastAutomaton:
        return automaton(group, ranked_groups(config, topology), config.flush_every)

    return replicate(FlexCastFrame, FlexCastBody, FlexCastState, make)


def _fuzz_options(groups: int, is_adverse: bool, rng: Random) -> dict[str, Any]:
    overlay = rng.sample(range(1, groups + 1), groups)
    return {"overlay": overlay, "flush_every": rng.choice((1, 3, 10, 1_000))}


SPEC = ProtocolSpec(
    name="flexcast",
    title="FlexCast",
    paper="Batista, Coelho, Alchieri, Dotti, Pedone 2023",
    survives="f crashes of 2f+1 in each group; restarts with one process a group",
    replicas=1,
    claims=(*ORDER, "minimality"),
    delays={"local": 1, "global": 2},
    build=build_with(FlexCastAutomaton),
    config=FlexCastConfig,
    messages=FlexCastFrame | StreamAck,
    samples=(
        FlexCastFrame(
            1,
            0,
            (
                Msg(SAMPLE, name_of(1, 1), ((1, 2, 3),), (HistoryItem(1, 1, name_of(1, 1), (1, 2)),)),
                Ack(name_of(1, 1), SAMPLE.id, None, (), ()),
                Ack(name_of(1, 1), SAMPLE.id, (1, 3), ((1, 2, 3),), ()),
                Notif(name_of(1, 1), SAMPLE.id, (1, 2), 3, ()),
                FlushRequest(-1),
            ),
        ),
    ),
    fuzz_options=_fuzz_options,
    ingress_groups=ingress_at_lca(FlexCastConfig()),
    ingress_from=ingress_at_lca,
)
