"""Faults as data: a plan can be printed, saved, replayed and shrunk.

A random plan stays within what the protocols claim to survive: in each group at most a minority is gone for good or
loses its disk (one of these perhaps twice), and at the end every link works and everyone else is up. In between
anything goes, a group without a majority or with nobody up included: it must stop, and go on when it can.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import ClassVar

import msgspec

from ..core import GroupId, ProcessId, Topology, UsageError, client_name
from .byzantine import LIES, Lying


class Fault(msgspec.Struct, frozen=True, tag_field="what", forbid_unknown_fields=True):
    kind: ClassVar[str]  # what `--faults` calls it
    at_us: int


class Crash(Fault, frozen=True, tag="crash"):
    """Stops a process; it restarts if `down_us` is set.

    With `after_sends` it stops in the middle of a handler, when it has sent so many more messages (of one kind, if
    `of_kind` names it: the most dangerous moment for a process to crash is right after a promise of its has left).
    """

    kind: ClassVar[str] = "crash"
    process: ProcessId
    down_us: int | None = None
    after_sends: int | None = None
    of_kind: str | None = None
    keeps_disk: bool = True


class CrashLeader(Fault, frozen=True, tag="crash-leader"):
    """Stops whoever leads the group at that moment."""

    kind: ClassVar[str] = "crash"
    group: GroupId
    down_us: int
    after_sends: int | None = None


class CrashGroup(Fault, frozen=True, tag="crash-group"):
    """Stops all of a group. Its members restart one by one: the first after `down_us`, the last `spread_us` later."""

    kind: ClassVar[str] = "group-down"
    group: GroupId
    down_us: int
    spread_us: int = 0


class Pause(Fault, frozen=True, tag="pause"):
    """The process does nothing for a while, and does not notice."""

    kind: ClassVar[str] = "pause"
    process: ProcessId
    for_us: int


class PauseLeader(Fault, frozen=True, tag="pause-leader"):
    """Whoever leads the group at that moment does nothing for a while, and still believes that it leads."""

    kind: ClassVar[str] = "pause"
    group: GroupId
    for_us: int


class CutLeader(Fault, frozen=True, tag="cut-leader"):
    """Whoever leads the group at that moment can't reach the others, nor hear them unless `one_way`.

    If `within_group`, only the other members are out of reach: clients go on talking to a leader that lost its group.
    """

    kind: ClassVar[str] = "partition"
    group: GroupId
    for_us: int
    one_way: bool = False
    within_group: bool = False


class Partition(Fault, frozen=True, tag="partition"):
    """Nothing gets from `side` to the rest, nor back unless `one_way`."""

    kind: ClassVar[str] = "partition"
    side: tuple[ProcessId, ...]
    for_us: int
    one_way: bool = False


class Lossy(Fault, frozen=True, tag="loss"):
    kind: ClassVar[str] = "loss"
    probability: float
    for_us: int


class Duplicating(Fault, frozen=True, tag="duplicate"):
    kind: ClassVar[str] = "duplicate"
    probability: float
    for_us: int


class Reordering(Fault, frozen=True, tag="reorder"):
    """Some messages are held up, so that later ones overtake them."""

    kind: ClassVar[str] = "reorder"
    probability: float
    delay_us: int
    for_us: int


class Skew(Fault, frozen=True, tag="skew"):
    kind: ClassVar[str] = "skew"
    process: ProcessId
    offset_us: int
    drift: float


class Liar(Fault, frozen=True, tag="lying-client"):
    """This client lies, from the start to the end. Nothing is promised to it, and everything to the others."""

    kind: ClassVar[str] = "lying-client"
    process: ProcessId


class Traitor(Fault, frozen=True, tag="byzantine"):
    """This member lies, from the start to the end: `byzantine.py` has the ways. Nothing is asked of it."""

    kind: ClassVar[str] = "byzantine"
    process: ProcessId
    lying: Lying


AnyFault = (
    Crash
    | CrashLeader
    | CrashGroup
    | Pause
    | PauseLeader
    | Partition
    | CutLeader
    | Lossy
    | Duplicating
    | Reordering
    | Skew
    | Liar
    | Traitor
)

FUSE_US = 50_000  # a process that was to crash while sending, and sends nothing, crashes after so long anyway

KINDS = (
    "crash",
    "disk-loss",
    "sender-crash",
    "pause",
    "partition",
    "loss",
    "duplicate",
    "reorder",
    "skew",
    "group-down",
    "lying-client",
)
BYZANTINE = Traitor.kind  # only where the protocol survives liars, so it is not one of all


def _minority(size: int) -> int:
    return (size - 1) // 2


class FaultPlan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What goes wrong in a run, and when: data that can be printed, saved, replayed and shrunk."""

    faults: tuple[AnyFault, ...] = ()  # such as `Crash(at_us=1000, process=0)`, all in `amcast.sim.faults`

    def end_us(self) -> int:
        """When the last fault is over."""
        return max(map(_end, self.faults), default=0)

    def check(self, topology: Topology, faulty_max: Callable[[int], int] | None = None) -> None:
        """Refuses what makes no sense, and what the protocol could not survive: `faulty_max` says how many members of
        a group of some size may be gone for good; a minority, if it is not given."""
        faulty_max = faulty_max or _minority
        gone: dict[GroupId, set[ProcessId]] = {}
        for fault in self.faults:
            problem = _problem(fault, topology)
            if problem is not None:
                raise UsageError(f"fault at {fault.at_us} us: {problem}")
            if isinstance(fault, Traitor) or (
                isinstance(fault, Crash) and (fault.down_us is None or not fault.keeps_disk)
            ):
                group = topology.group_of(fault.process)
                if group is not None:
                    gone.setdefault(group, set()).add(fault.process)
                    if len(gone[group]) > faulty_max(len(topology.members(group))):
                        raise UsageError(
                            f"the fault plan leaves group g{group} without a majority for ever: "
                            "let fewer of its processes crash for good or lose their disk"
                        )

    def liars(self) -> set[ProcessId]:
        """Clients that lie."""
        return {f.process for f in self.faults if isinstance(f, Liar)}

    def traitors(self) -> dict[ProcessId, Lying]:
        """Members that lie."""
        return {f.process: f.lying for f in self.faults if isinstance(f, Traitor)}

    def permanently_down(self) -> set[ProcessId]:
        """Processes that crash and do not restart."""
        return {f.process for f in self.faults if isinstance(f, Crash) and f.down_us is None}

    def without(self, index: int) -> FaultPlan:
        """The plan with one fault less, for shrinking."""
        return FaultPlan(self.faults[:index] + self.faults[index + 1 :])

    def describe(self, topology: Topology) -> list[str]:
        """In words, a line for each fault."""
        return [_describe(fault, topology) for fault in self.faults]


def _problem(fault: AnyFault, topology: Topology) -> str | None:
    if fault.at_us < 0 or getattr(fault, "for_us", 1) < 1 or (getattr(fault, "down_us", 1) or 1) < 1:
        return "times are microseconds from the start of the run, and a fault lasts for at least one"
    if not 0 <= getattr(fault, "probability", 0.0) <= 1:
        return "a probability is between 0 and 1"
    match fault:
        case CrashLeader() | CrashGroup() | PauseLeader() | CutLeader() if not topology.has_group(fault.group):
            return f"there is no group g{fault.group}"
        case CrashGroup() if fault.spread_us < 0:
            return "the last member can't restart before the first one: spread_us is 0 or more"
        case Crash() if topology.group_of(fault.process) is None and fault.down_us is not None:
            name = client_name(fault.process)
            return f"client {name} can't restart: it would use its message ids again; leave out down_us"
        case Partition() if not fault.side:
            return "a partition needs at least one process on its side"
        case Reordering() if fault.delay_us < 0:
            return "messages can't be held up for a negative time"
        case Skew() if not -0.5 <= fault.drift <= 0.5:
            return "a clock drifts by at most a half (0.5), fast or slow"
        case Liar() if topology.group_of(fault.process) is not None:
            return f"{topology.name(fault.process)} is no client: a member that lies is a fault 'byzantine'"
        case Traitor() if topology.group_of(fault.process) is None:
            return f"{client_name(fault.process)} is no member: a client that lies is a fault 'lying-client'"
        case Traitor() if unknown := [way for way in fault.lying.ways if way not in LIES]:
            return f"there is no way of lying '{unknown[0]}': use some of {', '.join(LIES)}"
        case _:
            pass
    touched = fault.side if isinstance(fault, Partition) else (getattr(fault, "process", topology.processes[0]),)
    strangers = [p for p in touched if p not in topology.processes and p not in topology.clients]
    return f"there is no process {strangers[0]} in this topology" if strangers else None


def _end(fault: AnyFault) -> int:
    if isinstance(fault, Crash | CrashLeader):
        waits = 0 if fault.after_sends is None else FUSE_US
        return fault.at_us + waits + (fault.down_us or 0)
    if isinstance(fault, CrashGroup):
        return fault.at_us + fault.down_us + fault.spread_us
    return fault.at_us if isinstance(fault, Skew | Liar | Traitor) else fault.at_us + fault.for_us


def _describe(fault: AnyFault, topology: Topology) -> str:
    name = topology.name
    text = ""
    match fault:
        case Crash():
            text = f"{name(fault.process)} crashes"
            if fault.after_sends is not None:
                text += f" after {fault.after_sends} more sends{f' of {fault.of_kind}' if fault.of_kind else ''}"
            if fault.down_us is None:
                text += " for good"
            else:
                text += f", restarts {'' if fault.keeps_disk else 'WITHOUT ITS DISK '}{fault.down_us} us later"
        case CrashLeader():
            text = f"the leader of g{fault.group} crashes, restarts {fault.down_us} us later"
        case CrashGroup():
            spread = f", one by one within {fault.spread_us} us" if fault.spread_us else ""
            text = f"all of g{fault.group} crashes, restarts {fault.down_us} us later{spread}"
        case Pause():
            text = f"{name(fault.process)} pauses for {fault.for_us} us"
        case PauseLeader():
            text = f"the leader of g{fault.group} pauses for {fault.for_us} us"
        case CutLeader():
            arrow = "can't send to" if fault.one_way else "is cut off from"
            others = "its group" if fault.within_group else "the others"
            text = f"the leader of g{fault.group} {arrow} {others} for {fault.for_us} us"
        case Partition():
            arrow = "can't send to" if fault.one_way else "is cut off from"
            text = f"{{{', '.join(map(name, fault.side))}}} {arrow} the others for {fault.for_us} us"
        case Lossy():
            text = f"links lose {fault.probability:.0%} for {fault.for_us} us"
        case Duplicating():
            text = f"links duplicate {fault.probability:.0%} for {fault.for_us} us"
        case Reordering():
            text = f"links hold {fault.probability:.0%} up by up to {fault.delay_us} us for {fault.for_us} us"
        case Skew():
            text = f"{name(fault.process)}'s clock is off by {fault.offset_us} us, drifts {fault.drift:+.1%}"
        case Liar():
            text = f"{name(fault.process)} lies"
        case Traitor():
            ways, often = ", ".join(fault.lying.ways), fault.lying.often
            text = f"{name(fault.process)} lies ({ways}) in {often:.0%} of what that is about"
    return f"t={fault.at_us} us: {text}"


def parse_kinds(text: str) -> tuple[str, ...]:
    """`none`, or names with commas between. `all` stands for all but liars among members, as in `all,byzantine`."""
    if text == "none":
        return ()
    kinds: list[str] = []
    for kind in [part.strip() for part in text.split(",") if part.strip()]:
        if kind not in ("all", BYZANTINE, *KINDS):
            known = ", ".join((*KINDS, BYZANTINE))
            raise UsageError(f"there is no fault '{kind}': use all, none, or some of {known}")
        kinds += [each for each in (KINDS if kind == "all" else (kind,)) if each not in kinds]
    return tuple(kinds)


class PlanSize(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How much a random plan does: faults within `window_us`, each lasting up to `last_us`."""

    window_us: int = 250_000
    last_us: int = 60_000
    faults_max: int = 24


def random_plan(
    topology: Topology,
    kinds: tuple[str, ...],
    size: PlanSize,
    rng: Random,
    faulty_max: Callable[[int], int] | None = None,
) -> FaultPlan:
    """Faults of these kinds (see `parse_kinds`) that protocols have to survive, drawn from `rng`. `faulty_max`: how
    many members of a group of some size may be gone or lie; a minority, if it is not given."""
    if not kinds:
        return FaultPlan()
    drawer = _Drawer(topology, size, rng, faulty_max or _minority)
    faults: list[AnyFault] = []
    traitors = drawer.draw_traitors() if BYZANTINE in kinds else []
    of_members = tuple(kind for kind in kinds if kind not in (CrashGroup.kind, Liar.kind, BYZANTINE))
    for _ in range(rng.randint(1, size.faults_max) if of_members else 0):
        faults.extend(drawer.draw(rng.choice(of_members)))
    # From a stream of their own, so that the faults above stay what they were.
    more = Random(rng.getrandbits(64))
    faults += _draw_more(topology, kinds, size, faults, more)
    faults.sort(key=lambda fault: fault.at_us)
    liars = _draw_liars(topology, kinds, more)
    return FaultPlan((*traitors, *liars, *faults[: size.faults_max - len(liars)]))


def _draw_liars(topology: Topology, kinds: tuple[str, ...], rng: Random) -> list[Liar]:
    """In one of three runs; in all of them if nothing else goes wrong. One client at least tells the truth."""
    clients = topology.clients
    if Liar.kind not in kinds or len(clients) < 2 or (len(kinds) > 1 and rng.random() < 0.67):
        return []
    return [Liar(0, client) for client in sorted(rng.sample(clients, rng.randint(1, len(clients) - 1)))]


def _draw_more(
    topology: Topology, kinds: tuple[str, ...], size: PlanSize, faults: list[AnyFault], rng: Random
) -> list[AnyFault]:
    """Faults that strike what is struck already: a disk that is lost again, a group of which nobody is left."""
    more: list[AnyFault] = []
    for fault in faults:
        if isinstance(fault, Crash) and not fault.keeps_disk and fault.down_us is not None and rng.random() < 0.4:
            # Soon after its restart the process is not taken back yet.
            at = fault.at_us + fault.down_us + rng.randrange(1, rng.choice((5_000, size.window_us)))
            if at < size.window_us:
                more.append(Crash(at, fault.process, rng.randrange(1, size.last_us), keeps_disk=False))
    for _ in range(rng.choice((0, 0, 1, 2)) if CrashGroup.kind in kinds else 0):
        at = rng.randrange(size.window_us)
        group = rng.choice(topology.groups)
        down = rng.randrange(1, size.window_us + size.last_us - at)
        spread = rng.randrange(size.last_us) if rng.random() < 0.5 else 0
        more.append(CrashGroup(at, group, down, min(spread, size.window_us + size.last_us - at - down)))
    return more


class _Drawer:
    def __init__(self, topology: Topology, size: PlanSize, rng: Random, faulty_max: Callable[[int], int]) -> None:
        self._topology = topology
        self._size = size
        self._rng = rng
        # How many members of each group may still die or lose their disk for good.
        self._spare = {group: faulty_max(len(topology.members(group))) for group in topology.groups}
        self._doomed: set[ProcessId] = set()
        # Half of the plans strike one group within a short time: faults that meet do the most harm.
        self._groups = topology.groups
        self._window = (0, size.window_us)
        if rng.random() < 0.5:
            self._groups = (rng.choice(topology.groups),)
            start = rng.randrange(size.window_us)
            self._window = (start, min(size.window_us, start + size.last_us))

    def draw_traitors(self) -> list[AnyFault]:
        """As many in each group as it may have, in three of four groups. All liars of a run share a secret."""
        rng, topology = self._rng, self._topology
        secret = rng.getrandbits(32)
        drawn: list[AnyFault] = []
        for group in topology.groups:
            count = self._spare[group] if rng.random() < 0.75 else 0
            members = topology.members(group)
            # Half of the time the first leader is one: leaders can do the most harm.
            first = members[:1] if count and rng.random() < 0.5 else ()
            others = [member for member in members if member not in first]
            liars = (*first, *sorted(rng.sample(others, count - len(first))))
            for process in liars:
                self._doom(process)
                fellows = tuple(each for each in liars if each != process)
                ways = tuple(rng.sample(list(LIES), rng.choice((1, 1, 2, 3)))) if rng.random() < 0.7 else ("twins",)
                drawn.append(Traitor(0, process, Lying(ways, rng.choice((0.1, 0.5, 1.0)), secret, fellows)))
        return drawn

    def draw(self, kind: str) -> list[AnyFault]:
        rng, topology = self._rng, self._topology
        at = rng.randrange(*self._window)
        lasts = rng.randrange(1, self._size.last_us)
        group = rng.choice(self._groups)
        process = rng.choice(topology.members(group))
        match kind:
            case "crash":
                return self._crash(at, lasts, group, process)
            case "disk-loss":
                if self._doom(process):
                    return [Crash(at, process, lasts, keeps_disk=False)]
                return []
            case "sender-crash":
                client = rng.choice(topology.clients) if topology.clients else None
                if client is None or client in self._doomed:
                    return []
                self._doomed.add(client)
                return [Crash(at, client, None, rng.randrange(4))]
            case "pause":
                return [Pause(at, process, lasts) if rng.random() < 0.5 else PauseLeader(at, group, lasts)]
            case "partition":
                if rng.random() < 0.4:
                    return [CutLeader(at, group, lasts, rng.random() < 0.4, rng.random() < 0.5)]
                return [self._partition(at, lasts, group)]
            case "loss":
                return [Lossy(at, rng.choice((0.05, 0.2, 0.5)), lasts)]
            case "duplicate":
                return [Duplicating(at, rng.choice((0.05, 0.3)), lasts)]
            case "reorder":
                return [Reordering(at, rng.choice((0.05, 0.3)), rng.choice((500, 5_000, 30_000)), lasts)]
            case _:
                return [Skew(at, process, rng.randrange(-50_000, 50_000), rng.uniform(-0.1, 0.1))]

    def _doom(self, process: ProcessId) -> bool:
        """Whether the group can lose this member for good. If so, it counts as lost."""
        group = self._topology.group_of(process)
        if group is None or process in self._doomed or not self._spare[group]:
            return False
        self._spare[group] -= 1
        self._doomed.add(process)
        return True

    def _crash(self, at: int, lasts: int, group: GroupId, process: ProcessId) -> list[AnyFault]:
        rng = self._rng
        after = rng.randrange(12) if rng.random() < 0.5 else None
        if rng.random() < 0.4:
            return [CrashLeader(at, group, lasts, after)]
        if rng.random() < 0.2 and self._doom(process):
            return [Crash(at, process, None, after)]
        if process in self._doomed:
            return []
        if rng.random() < 0.5:
            lasts = rng.randrange(1, 500)  # it is back before the others notice
        if rng.random() < 0.5:
            return [Crash(at, process, lasts, rng.randrange(1, 3), rng.choice(("1b", "2a", "2b")))]
        return [Crash(at, process, lasts, after)]

    def _partition(self, at: int, lasts: int, group: GroupId) -> Partition:
        rng = self._rng
        if rng.random() < 0.5:
            members = self._topology.members(group)
            side = rng.sample(members, rng.randint(1, max(1, len(members) - 1)))
        else:
            everyone = self._topology.processes
            side = rng.sample(everyone, rng.randint(1, len(everyone)))
        return Partition(at, tuple(sorted(side)), lasts, rng.random() < 0.4)
