"""ByzCast: the tree, with groups of 3f+1 of which f members may lie, and clients that may lie.

Guarantees, for members that tell the truth: integrity, validity (of clients that do), agreement, prefix and acyclic
order; partially genuine: a message to one group concerns nobody else. Survives f liars in each group of 3f+1, all at
once, any number of lying clients, and restarts. 3 delays to one group, and 3 more for each level below the lowest
common ancestor (the lca) of the destinations. A group with a member that is down, slow or silent takes 4 instead of 3.

    client       lca: a Byzantine log              child: a Byzantine log
      |--START---->|  signed                           |   1
      |            |--PROPOSE, WRITE                   |   2 to 3   ordered; a destination delivers
      |            |--RELAY, from each member--------->|   4        to each member
      |            |                                   |   5 to 6   f+1 said the same: ordered, delivered
      |<--REPLY----|<--REPLY---------------------------|            from each member; the client believes f+1

From: Coelho, "On the many faces of atomic multicast" (2019), chapter 3, Algorithm 3. `tree.py` has the tree,
`_byzantine.py` what is done about liars, `consensus/bft` the log of a group.

Where this departs from the paper:
- A group orders each copy that a replica of its parent relays, in the paper, and handles the message when f+1 copies
  are in its log. That does not keep the parent's order: of two messages the second may get its f+1 copies first, in one
  child and not in the other. Here relays are numbered, for each child, by the parent's log. A child orders number k
  once, when f+1 replicas of the parent told its members the same for k, and handles numbers in order.
- Copies count by distinct replicas of the parent. In the paper one liar could send f+1 copies.
- Messages carry their client's signature, which covers the destinations, up to the group where they enter. From there
  on f+1 replicas of each group stand behind them.
- An id enters at one group. In the paper a client can sign two messages with one id and other destinations, which enter
  at two groups: a group below both delivers two contents under one id. `_entry_numbers.py` has the rule and the reason.
- A group decides what all its members wrote, without the third phase: `consensus/bft/choice.py` has the proof.
- Groups keep what they relay until f+1 replicas of the child say that it is ordered there, and say so in their log.
"""

from __future__ import annotations

from dataclasses import replace

from ..consensus import BftMessage, BftRecord
from ..consensus.bft import messages as bft
from . import tree
from ._adapter import StreamAck
from ._byzantine import replicate_among_liars


class ByzCastConfig(tree.TreeConfig, frozen=True, forbid_unknown_fields=True):
    # What all members of a group wrote is decided without the third phase. False: always three, as published, which is
    # faster where one member is farther away than all others.
    two_phases: bool = True


_CHECKPOINT = bft.Checkpoint(3, b"d")
_CHANGE = bft.ViewChange(1, 2, 0, 0, 0, (_CHECKPOINT,), (bft.Voted(3, 1, b"d", ((1, b"d"),), b"d"),), b"p")
_SAMPLES = (
    bft.Propose(1, 2, 3, b"v"),
    bft.Write(1, 2, 3, b"d"),
    bft.Accept(1, 2, 3, b"d", True),
    bft.Status(1, 2, True, 3, (_CHECKPOINT,)),
    bft.AskValues(1, 2, 0),
    bft.Values(1, 2, (b"d",), (b"v",)),
    bft.AskValue(1, 2, b"d"),
    bft.Value(1, 2, b"v"),
    bft.AskState(1, 2),
    bft.HandedState(1, 2, b"s"),
    _CHANGE,
    bft.NewView(1, 2, (_CHANGE,), b"p"),
    bft.AskRejoin(1, 2),
    bft.Outrun(1, 2),
    bft.AskRead(1, 2),
    bft.ReadUpTo(1, 2, 3),
)

SPEC = replace(
    tree.SPEC,
    name="byzcast",
    title="ByzCast",
    paper="Coelho 2019, Algorithm 3",
    survives="f liars of 3f+1 in each group, lying clients, restarts",
    replicas=4,
    delays={"local": 3, "global": 6},
    build=replicate_among_liars(tree.TreeFrame, tree.Relay, tree.TreeState, tree.tree_automaton, numbers_by_entry=True),
    one_message_an_id=True,
    numbers_by_entry=True,
    config=ByzCastConfig,
    messages=tree.TreeFrame | StreamAck | BftMessage,
    samples=(*tree.SPEC.samples, *_SAMPLES),
    records=BftRecord,
    survives_liars=True,
    fuzz_replicas=(4, 7),
)
