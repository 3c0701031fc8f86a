"""FlexCast as published: Batista, Coelho, Alchieri, Dotti, Pedone (2023), Algorithms 2 and 3, section 4.3."""

from __future__ import annotations

from ..core import AppMessage, GroupId
from ..protocols import GroupOutbox
from ..protocols._history import History, HistoryItem, Name, is_flush
from ..protocols.flexcast import Ack, FlexCastAutomaton, Notice, Pending
from ._erratum import Directed, Erratum

_PAPER = "Batista et al. 2023"
_NEVER = 1 << 30


class EarlyAckLost(FlexCastAutomaton):
    def _on_ack(self, source: GroupId, body: Ack) -> None:
        pending = self._pending.get(body.name)
        if pending is not None and pending.message is not None:
            super()._on_ack(source, body)


class WaitsForHigher(FlexCastAutomaton):
    def _must_wait_for(self, notified: GroupId) -> bool:
        return True


class ServesOneNotif(FlexCastAutomaton):
    def _serve_notifs(self, delivered: Name, out: GroupOutbox) -> None:
        for waiting in self._waiting:
            if delivered in waiting.open:
                waiting.open.remove(delivered)
                if not waiting.open:
                    self._waiting.remove(waiting)
                    self._answer(waiting.source, waiting.notif, out)
                return


class ReplacedHistory(History):
    """Knows which messages there are, and of their order only what the latest update said and was added since."""

    def _clear(self) -> None:
        super()._clear()
        self._edges: set[HistoryItem] = set()

    def replace_dependencies(self) -> None:
        self._edges = set()

    def add(self, item: HistoryItem) -> bool:
        self._edges.add(item)
        return super().add(item)

    def directly_before(self, name: Name) -> list[Name]:
        known = self._items.get(name, [])
        self._items[name] = [item for item in known if item in self._edges]
        found = super().directly_before(name)
        self._items[name] = known
        return found


class ReplacesDependencies(FlexCastAutomaton):
    def __init__(self, group: GroupId, overlay: tuple[GroupId, ...], flush_every: int) -> None:
        super().__init__(group, overlay, flush_every)
        self._replaced = self._history = ReplacedHistory()

    def _learn(self, news: tuple[HistoryItem, ...]) -> None:
        self._replaced.replace_dependencies()
        super()._learn(news)


class AckPerGroup(FlexCastAutomaton):
    def _is_answered(self, notice: Notice, pending: Pending) -> bool:
        return any(notified == notice[1] for _, notified, _ in pending.answers)


class ForgetsFirst(FlexCastAutomaton):
    def _pass_on(self, message: AppMessage, name: Name, out: GroupOutbox) -> None:
        if is_flush(message.id):
            self._collect(message.id)
        super()._pass_on(message, name, out)


def _directed(groups: int, script: str, published: type[FlexCastAutomaton], flush_every: int = _NEVER) -> Directed:
    """Ranks are the groups' numbers."""
    overlay = tuple(range(1, groups + 1))
    return Directed(
        "flexcast",
        groups,
        script,
        lambda group: published(group, overlay, flush_every),
        lambda group: FlexCastAutomaton(group, overlay, flush_every),
    )


_STUCK = frozenset({"validity", "agreement", "liveness"})
_ORDER = frozenset({"prefix", "acyclic"})

ERRATA = (
    Erratum(
        name="flexcast-early-ack",
        protocol="flexcast",
        paper=f"{_PAPER}, Algorithm 2, line 9",
        published="An ACK is noted with its message in the queue of the message's lca.",
        problem="The message takes another road than the ACK and may come later. Then there is nothing to note the ACK"
        " with, it is lost, and the message waits for it for ever.",
        mend="Keep ACKs, and the notified groups that they name, by message id until the message is there.",
        breaks=_STUCK,
        schedule=_directed(
            3,
            """
            m1 to g1 g2 g3
            g1 -> g2
            g2 -> g3
            g1 -> g3
            """,
            EarlyAckLost,
        ),
    ),
    Erratum(
        name="flexcast-waits-for-higher",
        protocol="flexcast",
        paper=f"{_PAPER}, Algorithm 3, lines 40 and 56",
        published="A destination waits for an ACK of every group in the message's notification list.",
        problem="The list also holds groups that rank above the destination. They send nothing down, so it waits for"
        " ever: here g2 for g3.",
        mend="Wait only for notified groups of lower rank.",
        breaks=_STUCK,
        schedule=_directed(
            4,
            """
            m1 to g1 g3
            m2 to g1 g2 g4
            rest
            """,
            WaitsForHigher,
        ),
    ),
    Erratum(
        name="flexcast-one-notif",
        protocol="flexcast",
        paper=f"{_PAPER}, Algorithm 3, lines 27-31",
        published="After a delivery, if there is a pending notification that waits for it, that one is served.",
        problem="Two notifications may wait for the same delivery: the other one is never served. Here g3 is notified"
        " of m2 and m3 while m1 is open; g4 waits for the answer about m3 for ever.",
        mend="Serve every pending notification that waits for nothing else.",
        breaks=_STUCK,
        schedule=_directed(
            4,
            """
            m1 to g1 g2 g3
            m2 to g1 g4
            m3 to g1 g4
            g1 -> g3
            g1 -> g3
            g1 -> g3
            rest
            """,
            ServesOneNotif,
        ),
    ),
    Erratum(
        name="flexcast-replaced-dependencies",
        protocol="flexcast",
        paper=f"{_PAPER}, Algorithm 3, line 3",
        published="On an update, the dependencies of the history become its messages joined with the dependencies that"
        " were received: its own are not on the right-hand side.",
        problem="Read as it stands (messages are no dependencies), what was known before is lost. g3 knows that m1"
        " comes before m3, then hears of m4, and delivers m3 first.",
        mend="Join the history's own dependencies with those received.",
        breaks=_ORDER,
        schedule=_directed(
            3,
            """
            m1 to g1 g3
            m2 to g1 g2
            g1 -> g2
            m3 to g2 g3
            m4 to g2 g3
            g2 -> g3
            g2 -> g3
            g1 -> g3
            """,
            ReplacesDependencies,
        ),
    ),
    Erratum(
        name="flexcast-ack-per-group",
        protocol="flexcast",
        paper=f"{_PAPER}, Algorithm 2, line 9; Algorithm 3, lines 50 and 56",
        published="ACKs are recorded by the group that they come from, and the list of notified groups is a set"
        " of groups.",
        problem="A group can be notified twice of one message, by groups that know different things. g1 notifies g3 of"
        " m4 when g3 knows nothing of m2; g2, which delivered m2 before m4, notifies g3 again and tells g4 to wait for"
        " g3. But g4 has an ACK of g3 already, and delivers m4. Then g3 delivers m3 before m2, and g4 delivers m3:"
        " m2 < m4 < m3 < m2.",
        mend="The list holds notifications: notifier, notified, and what the notifier had told. Each ACK says which one"
        " it answers, and a destination waits until all are answered.",
        breaks=_ORDER,
        schedule=_directed(
            4,
            """
            m2 to g2 g3
            m1 to g1 g3
            m4 to g1 g2 g4
            g1 -> g3
            g1 -> g3
            g1 -> g2
            g1 -> g4
            g3 -> g4
            g2 -> g4
            m3 to g3 g4
            g2 -> g3
            rest
            """,
            AckPerGroup,
        ),
    ),
    Erratum(
        name="flexcast-flush-forgets-first",
        protocol="flexcast",
        paper=f"{_PAPER}, section 4.3",
        published="A group that delivers a flush message may forget all messages that precede it.",
        problem="The paper does not say when. A group that forgets at once acknowledges the flush with a history that"
        " is empty, and the groups above never learn what it ordered before.",
        mend="Acknowledge the flush first, with the whole history; then forget what precedes it, and keep the flush.",
        breaks=_ORDER,
        schedule=_directed(
            6,
            """
            m1 to g2 g6
            m2 to g2
            g2 -> g1
            m3 to g2 g3 g4
            m4 to g4 g5
            g2 -> g3
            m5 to g3 g5 g6
            m6 to g4 g6
            rest
            """,
            ForgetsFirst,
            flush_every=2,
        ),
    ),
)
