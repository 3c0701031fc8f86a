"""What clients and groups say to each other in every protocol."""

from __future__ import annotations

from ..core import AppMessage, GroupId, MessageId, ProcessId, Topology, Wire
from ..core.batch import problem_with_batch
from ..core.ids import SEQ_BITS, SEQ_MASK, UNSETTLED_MAX
from ..core.message import PAYLOAD_LIMIT


def problem_with_number(message: AppMessage) -> str | None:
    """Why a message is refused whose sender has too many that it does not call settled; none if it has not."""
    seq = message.id & SEQ_MASK
    if seq - message.settled < UNSETTLED_MAX:
        return None
    return f"message {seq} is too far ahead of {message.settled}, below which all are settled: {UNSETTLED_MAX} or more"


def problem_with_destinations(dst: tuple[GroupId, ...], topology: Topology) -> str | None:
    if not dst or tuple(sorted(set(dst))) != dst:
        return "the destinations of a message are not a sorted list without repetition"
    for group in dst:
        if not topology.has_group(group):
            return f"there is no group g{group} to send to"
    return None


class IngressMessage(Wire, frozen=True):
    """Base of the wire messages that clients send to groups: a group takes no others from them."""

    def problem(self, client: ProcessId, topology: Topology) -> str | None:
        """Why it is refused from this client, none if it is not. All that it says must concern messages of its own."""
        if not all(id_ >> SEQ_BITS == client for id_ in self.about()):
            return "a message carries another sender's id"
        for message in self.handed_over():
            problem = problem_with_number(message) or problem_with_destinations(message.dst, topology)
            if problem is None and message.count != 1:
                problem = problem_with_batch(message, PAYLOAD_LIMIT)
            if problem is not None:
                return problem
        return self.problem_with_fields(client, topology)

    def problem_with_fields(self, client: ProcessId, topology: Topology) -> str | None:
        """The same for the fields that a class adds."""
        return None

    def handed_over(self) -> tuple[AppMessage, ...]:
        """The messages to multicast that it carries. None: it only speaks of some."""
        return ()


class Start(IngressMessage, frozen=True, tag="START"):
    """Please multicast these: from a client, or from a group that doubts whether another one has them."""

    messages: tuple[AppMessage, ...]

    def about(self) -> tuple[MessageId, ...]:
        return tuple([message.id for message in self.messages])

    def handed_over(self) -> tuple[AppMessage, ...]:
        return self.messages


class Reply(Wire, frozen=True, tag="REPLY"):
    """These messages are delivered in these groups."""

    groups: tuple[GroupId, ...]
    ids: tuple[MessageId, ...]
    leader: ProcessId | None = None  # where all members answer: who leads them

    def about(self) -> tuple[MessageId, ...]:
        return self.ids


ClientMessage = Start | Reply
