"""What happens to machines, disks, programs and connections of a simulated cluster, as data.

A random plan stays within what a cluster claims to survive: over the whole run, at most a minority of each group loses
its disk, and whoever must recognise an older copy of a disk is there. At the end all links and disks work, and every
node is up.
"""

from __future__ import annotations

from random import Random
from typing import ClassVar, Literal

import msgspec

from ..core import UsageError
from ..net.disk.records import Durability


class NodeFault(msgspec.Struct, frozen=True, tag_field="what", forbid_unknown_fields=True):
    kind: ClassVar[str]  # what `--faults` calls it
    at_us: int


class _Strike(NodeFault, frozen=True):
    """Ends a process's program, or the whole machine; after `down_us` the process is started again.

    With `calls`, it does not strike at once, but in the middle of the program's work: when it has made so many more
    calls to its operating system.
    """

    process: str
    down_us: int
    calls: int | None = None


class Kill(_Strike, frozen=True, tag="kill"):
    kind: ClassVar[str] = "kill"


class PowerLoss(_Strike, frozen=True, tag="power-loss"):
    kind: ClassVar[str] = "power-loss"


class EmptyDisk(_Strike, frozen=True, tag="empty-disk"):
    """The process's folder is gone."""

    kind: ClassVar[str] = "disk-loss"


class OldDisk(_Strike, frozen=True, tag="old-disk"):
    """The process's folder is restored from a copy that was taken at `copied_us`."""

    kind: ClassVar[str] = "old-disk"
    copied_us: int = 0


class FlippedBits(_Strike, frozen=True, tag="flipped-bits"):
    """Some bits of the process's logs change while it is down. If it finds out, its folder is replaced by an empty one.

    `where` is between 0 and 1, and says which file and byte.
    """

    kind: ClassVar[str] = "flipped-bits"
    where: float = 0.0


class Terminate(NodeFault, frozen=True, tag="terminate"):
    """SIGTERM: the process stops in good order, or is killed if it takes longer than `patience_us`."""

    kind: ClassVar[str] = "terminate"
    process: str
    down_us: int
    patience_us: int | None = None


class PauseNode(NodeFault, frozen=True, tag="pause"):
    """SIGSTOP, and SIGCONT later."""

    kind: ClassVar[str] = "pause"
    process: str
    for_us: int


class StepClock(NodeFault, frozen=True, tag="clock"):
    kind: ClassVar[str] = "clock"
    process: str
    by_us: int
    drift: float


class BreakConnections(NodeFault, frozen=True, tag="break"):
    """Connections of a machine break, in the middle of a frame perhaps."""

    kind: ClassVar[str] = "break"
    process: str
    odds: float


class CutOff(NodeFault, frozen=True, tag="partition"):
    """Nothing gets from the machines of `side` to the others, nor back unless `one_way`. Clients, such as c0, may be on
    it as well.

    `breaks`: connections may have been given up when the link works again; otherwise all that was sent arrives late.
    """

    kind: ClassVar[str] = "partition"
    side: tuple[str, ...]
    for_us: int
    one_way: bool = False
    breaks: bool = False


class FullDisk(NodeFault, frozen=True, tag="full-disk"):
    """There is room for so many more bytes."""

    kind: ClassVar[str] = "full-disk"
    process: str
    room: int
    for_us: int


class SlowDisk(NodeFault, frozen=True, tag="slow-disk"):
    kind: ClassVar[str] = "slow-disk"
    process: str
    sync_us: int
    for_us: int


class FailedSync(NodeFault, frozen=True, tag="failed-sync"):
    """The next sync fails, and what it should have made durable never is. The node must stop; it is started again."""

    kind: ClassVar[str] = "failed-sync"
    process: str


class SecondStart(NodeFault, frozen=True, tag="second-start"):
    """Somebody starts a process that is running: the second one must give up, and do no harm."""

    kind: ClassVar[str] = "second-start"
    process: str


class FailingApplication(NodeFault, frozen=True, tag="application"):
    """The application raises the next time that it is told to do this. The node must stop; it is started again."""

    kind: ClassVar[str] = "application"
    process: str
    action: Literal["apply", "snapshot", "restore"]


class PoisonedMessage(NodeFault, frozen=True, tag="poison"):
    """The next message that the applications of a group execute is one that they raise for, whenever they see it.

    All nodes of the group stop. They are started again with the application on hold, and an operator has the group
    skip the message.
    """

    kind: ClassVar[str] = "poison"
    group: int


class OtherLayout(NodeFault, frozen=True, tag="layout"):
    """A process is started again with a `cluster.toml` in which its group has grown: it must refuse its folder."""

    kind: ClassVar[str] = "layout"
    process: str


class GroupDown(NodeFault, frozen=True, tag="group-down"):
    """All members of a group at once."""

    kind: ClassVar[str] = "group-down"
    group: int
    down_us: int
    loses_power: bool = False


class RollingRestart(NodeFault, frozen=True, tag="rolling-restart"):
    """SIGTERM to one member of the group after the other, each started again before the next one stops."""

    kind: ClassVar[str] = "rolling-restart"
    group: int
    down_us: int
    every_us: int


class KillClient(NodeFault, frozen=True, tag="kill-client"):
    """A client's program ends for good, in the middle of its messages. What was acknowledged to it stays so."""

    kind: ClassVar[str] = "client-kill"
    client: int


class StepClientClock(NodeFault, frozen=True, tag="client-clock"):
    """A client's machine has another time from now on: years ahead, or behind."""

    kind: ClassVar[str] = "client-clock"
    client: int
    by_us: int


AnyNodeFault = (
    Kill
    | PowerLoss
    | EmptyDisk
    | OldDisk
    | FlippedBits
    | Terminate
    | PauseNode
    | StepClock
    | BreakConnections
    | CutOff
    | FullDisk
    | SlowDisk
    | FailedSync
    | SecondStart
    | FailingApplication
    | PoisonedMessage
    | OtherLayout
    | GroupDown
    | RollingRestart
    | KillClient
    | StepClientClock
)

STRIKES = (Kill, PowerLoss, EmptyDisk, OldDisk, FlippedBits)
LOSE_DISK = (EmptyDisk, OldDisk, FlippedBits)
_YEAR_US = 365 * 86_400 * 1_000_000
CALLS_US = 300_000  # a strike that waits for system calls comes after so long anyway
_RETRIED_US = 1_000_000  # clients send again what was not answered
_AWAKE_US = 600_000  # in which a leader that was deposed may still believe that it leads
_DEPOSE_EARLY = 4  # in the first part of the window, so that clients still send and ask when the leader wakes up
_BACK_US = 2_000_000  # a process that ended has been started again, and has asked its group what it knows of it

KINDS = (
    "kill",
    "power-loss",
    "terminate",
    "pause",
    "clock",
    "break",
    "partition",
    "full-disk",
    "slow-disk",
    "failed-sync",
    "second-start",
    "group-down",
    "rolling-restart",
    "disk-loss",
    "old-disk",
    "flipped-bits",
    "client-kill",
    "client-clock",
    "application",
    "poison",
    "layout",
)


class NodePlan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    faults: tuple[AnyNodeFault, ...] = ()

    def end_us(self, replicas: int) -> int:
        return max((_end(fault, replicas) for fault in self.faults), default=0)

    def without(self, index: int) -> NodePlan:
        return NodePlan(self.faults[:index] + self.faults[index + 1 :])

    def describe(self) -> list[str]:
        lines = []
        for fault in self.faults:
            fields = [f"{name}={getattr(fault, name)}" for name in fault.__struct_fields__ if name != "at_us"]
            lines.append(f"t={fault.at_us} us: {fault.__struct_config__.tag}, {', '.join(fields)}")
        return lines


def _end(fault: AnyNodeFault, replicas: int) -> int:
    lasts = getattr(fault, "for_us", 0) + getattr(fault, "down_us", 0)
    if isinstance(fault, RollingRestart):
        lasts = replicas * fault.every_us + fault.down_us
    waits = CALLS_US if getattr(fault, "calls", None) is not None else 0
    return fault.at_us + lasts + waits


def parse_node_kinds(text: str) -> tuple[str, ...]:
    """`all`, `none`, or names with commas between."""
    if text in ("all", "none"):
        return KINDS if text == "all" else ()
    kinds = tuple(part.strip() for part in text.split(",") if part.strip())
    for kind in kinds:
        if kind not in KINDS:
            raise UsageError(f"nodes have no fault '{kind}': use all, none, or some of {', '.join(KINDS)}")
    return kinds


class NodePlanSize(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    window_us: int = 2_000_000
    last_us: int = 800_000
    faults_max: int = 6


def random_node_plan(
    groups: int,
    replicas: int,
    durability: Durability,
    kinds: tuple[str, ...],
    size: NodePlanSize,
    rng: Random,
    reader: str,
) -> NodePlan:
    """`reader` is the name of a client that only asks: some partitions have it on the smaller side."""
    if not kinds:
        return NodePlan()
    drawer = _Drawer(groups, replicas, durability, size, rng, reader)
    faults: list[AnyNodeFault] = []
    for _ in range(rng.randint(1, size.faults_max)):
        faults += drawer.draw(rng.choice(kinds))
    old = [fault for fault in faults if isinstance(fault, OldDisk)]
    kept = [fault for fault in faults if not any(_silences_witnesses(fault, each, replicas) for each in old)]
    return NodePlan(tuple(sorted(kept, key=lambda fault: fault.at_us)))


def _silences_witnesses(fault: AnyNodeFault, old: OldDisk, replicas: int) -> bool:
    """Whether a fault takes away those who know how far a disk was, between the copy of it and the copy's return.

    A vote that was heard only by processes that are down is not remembered: no group of three survives that.
    """
    group = old.process.partition(".")[0]
    if isinstance(fault, GroupDown | RollingRestart | PoisonedMessage):
        is_near = f"g{fault.group}" == group
    elif isinstance(fault, CutOff):
        is_near = any(name.partition(".")[0] == group for name in fault.side)
    elif isinstance(fault, Kill | PowerLoss | Terminate | PauseNode | FailedSync | FailingApplication | OtherLayout):
        is_near = fault.process != old.process and fault.process.partition(".")[0] == group
    else:
        return False
    waits = isinstance(fault, FailedSync | FailingApplication | PoisonedMessage)  # nobody knows when it strikes
    is_over = not waits and _end(fault, replicas) + _BACK_US < old.copied_us
    return is_near and not is_over and fault.at_us < _end(old, replicas) + _BACK_US


class _Drawer:
    def __init__(
        self, groups: int, replicas: int, durability: Durability, size: NodePlanSize, rng: Random, reader: str
    ) -> None:
        self._reader = reader
        self._groups = list(range(1, groups + 1))
        self._replicas = replicas
        self._durability = durability
        self._size = size
        self._rng = rng
        # Members of each group that may still lose what is on their disk, and those that have.
        self._spare = dict.fromkeys(self._groups, (replicas - 1) // 2)
        self._lost: set[str] = set()
        self._window = (0, size.window_us)
        if rng.random() < 0.5:  # faults that meet do the most harm
            self._groups = [rng.choice(self._groups)]
            start = rng.randrange(size.window_us)
            self._window = (start, min(size.window_us, start + size.last_us // 2) + 1)

    def _may_lose(self, group: int, process: str) -> bool:
        if process in self._lost:
            return True
        if not self._spare[group]:
            return False
        self._spare[group] -= 1
        self._lost.add(process)
        return True

    def draw(self, kind: str) -> list[AnyNodeFault]:
        rng = self._rng
        at = rng.randrange(*self._window)
        lasts = rng.randrange(1_000, self._size.last_us)
        group = rng.choice(self._groups)
        process = f"g{group}.p{rng.randrange(self._replicas)}"
        calls = rng.choice((None, rng.randrange(8), rng.randrange(60)))
        chance, other = rng.random(), rng.random()
        forgets = self._durability is Durability.MEMORY or (
            self._durability is Durability.ASYNC and kind == "power-loss"
        )
        match kind:
            case "kill" | "power-loss":
                if forgets and not self._may_lose(group, process):
                    return []
                down = lasts if chance < 0.5 else 1 + lasts // 50
                strike = Kill if kind == "kill" else PowerLoss
                return [strike(at, process, down, calls)]
            case "terminate":
                if forgets and not self._may_lose(group, process):
                    return []
                return [Terminate(at, process, lasts, int(other * 20_000) if chance < 0.5 else None)]
            case "pause":
                return [PauseNode(at, process, lasts)]
            case "clock":
                return [StepClock(at, process, int((chance - 0.5) * 2e6), (other - 0.5) / 10)]
            case "break":
                return [BreakConnections(at, process, 0.3 + 0.7 * chance)]
            case "partition":
                own = Random(at)  # so that what is drawn next stays as it was
                if self._replicas >= 3 and own.random() < 0.5:
                    return self._depose(at, lasts, group, own.choice((0, 0, 0, 1, 2)))
                return [self._cut(at, lasts, group, chance, other)]
            case "full-disk":
                return [FullDisk(at, process, int(other * other * 20_000), lasts)]
            case "slow-disk":
                return [SlowDisk(at, process, int(1_000 + chance * 100_000), lasts)]
            case "failed-sync":
                return [] if self._durability is Durability.MEMORY else [FailedSync(at, process)]
            case "second-start":
                return [SecondStart(at, process)]
            case "application":
                if self._durability is Durability.MEMORY and not self._may_lose(group, process):
                    return []
                return [FailingApplication(at, process, rng.choice(("apply", "apply", "snapshot", "restore")))]
            case "poison":
                return [] if self._durability is Durability.MEMORY else [PoisonedMessage(at, group)]
            case "layout":
                if forgets and not self._may_lose(group, process):
                    return []
                return [OtherLayout(at, process)]
            case "group-down":
                if self._durability is Durability.MEMORY:
                    return []
                return [GroupDown(at, group, lasts, self._durability is Durability.SYNC and chance < 0.5)]
            case "rolling-restart":
                if self._durability is Durability.MEMORY:
                    return []
                return [RollingRestart(at, group, 1 + lasts // 10, 50_000 + lasts // 2)]
            case "client-kill":
                return [KillClient(at, int(other * 3))]
            case "client-clock":
                return [StepClientClock(at, int(other * 3), int((chance - 0.25) * 20 * _YEAR_US))]
            case _:
                if self._replicas < 3 or not self._may_lose(group, process):
                    return []
                if kind == "disk-loss":
                    return [EmptyDisk(at, process, lasts, calls)]
                if kind == "old-disk":
                    return [OldDisk(at, process, lasts, calls, int(at * chance))]
                return [FlippedBits(at, process, lasts, None, other)]

    def _cut(self, at: int, lasts: int, group: int, chance: float, other: float) -> CutOff:
        rng = self._rng
        members = [f"g{group}.p{index}" for index in range(self._replicas)]
        side = sorted(rng.sample(members, rng.randint(1, len(members))))
        return CutOff(at, tuple(side), lasts, chance < 0.3, other < 0.5)

    def _depose(self, at: int, lasts: int, group: int, member: int) -> list[AnyNodeFault]:
        """A leader, most likely, sleeps while the others elect another one, and wakes up cut off, with somebody who
        asks it. By then clients have sent again what the sleeper did not answer, and the others have delivered it."""
        process = f"g{group}.p{member}"
        begins, sleeps = at // _DEPOSE_EARLY, _RETRIED_US + lasts
        return [CutOff(begins, (process, self._reader), sleeps + _AWAKE_US), PauseNode(begins, process, sleeps)]
