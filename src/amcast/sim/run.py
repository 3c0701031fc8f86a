"""Runs a scenario: builds the machines, lets time pass until everything is delivered, and gives back what happened."""

from __future__ import annotations

import gc
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import msgspec

from ..core import AppMessage, GroupId, MessageId, Process, ProcessId, Wire, app_message, sender_of
from ..description import describe
from ..protocols import ProtocolSpec, Reply
from ..trace import Recorder, Run, RunInfo
from ..workload import LoadClient, LyingClient, Seat, Stream, stream_random
from .application import ApplicationReport
from .byzantine import LyingReplica
from .engine import EventLoop
from .injection import Injector
from .machine import Machine, takes_anything
from .network import Network
from .scenario import Scenario
from .watch import Watch

_LIES = 60  # of each client that lies
_GRACE_US = 300_000  # a run with faults goes on for so long after all is delivered: late messages must do no harm


@dataclass(frozen=True)
class BrokenInvariant:
    """A process contradicted itself: an assertion, or anything else, failed in its handler."""

    process: ProcessId
    t_us: int
    what: str


@dataclass(frozen=True)
class SimResult:
    """What a simulated run did."""

    scenario: Scenario
    info: RunInfo
    recorder: Recorder
    complete: bool
    broken: BrokenInvariant | None
    stuck: tuple[MessageId, ...]  # messages that somebody still had to deliver when patience ran out
    messages: int
    deliveries: int
    wire_messages: int
    faults: int
    events: int
    end_us: int
    application: ApplicationReport | None = None  # None: nothing was executed

    def run(self) -> Run:
        """The trace, for `amcast.check.check_run`."""
        return self.recorder.run(self.info)


class WatchedClient(LoadClient):
    """Tells the watch which messages are answered. It has no clock of its own: one that is skewed would lie."""

    watch: Watch

    def on_reply(self, sender: ProcessId, reply: Reply) -> list[AppMessage]:
        completed = super().on_reply(sender, reply)
        self.watch.saw_answers(completed, sender)
        return completed


class Simulation:
    """One run, step by step; `simulate` does all at once.

    `spec` replaces the scenario's protocol by a variant that is in no registry, such as one broken on purpose.
    """

    def __init__(self, scenario: Scenario, spec: ProtocolSpec | None = None) -> None:
        scenario.check()
        self._scenario = scenario
        self._spec = (spec or scenario.spec()).configured(scenario.replica_config())
        self._topology = scenario.topology()
        self._geography = scenario.workload.geography(self._topology, scenario.network)
        self._members = frozenset(self._topology.processes)
        self.loop = EventLoop()
        self._recorder = Recorder(scenario.records_wire)
        self.watch = Watch(scenario, self.loop, self._recorder)
        self._network = Network(scenario.network, self._topology, scenario.fifo, self._rng("network"))
        self._broken: BrokenInvariant | None = None
        self._drained = False
        self._members_sending = len(self._topology.processes) if scenario.member_messages else 0
        self._poll_us = max(500, scenario.network.rtt_max_us() // 2)
        self._nodes = self._build_nodes()
        self._injector = Injector(self._topology, self.loop, self._network, self._nodes, self._recorder)

    def _rng(self, *names: object) -> Random:
        """A stream of random numbers for each purpose: one that draws more numbers leaves the others as they were."""
        return Random("/".join(map(str, (self._scenario.seed, *names))))

    def _build_nodes(self) -> dict[ProcessId, Machine]:
        codec = self._spec.codec()
        nodes: dict[ProcessId, Machine] = {}
        for process in (*self._topology.processes, *self._topology.clients):
            nodes[process] = Machine(
                process,
                self.loop,
                self._network,
                codec,
                self.watch,
                self._builder(process),
                self._rng("node", process),
                self._scenario.cpu if process in self._topology.processes else type(self._scenario.cpu)(),
                self._scenario.sync_us,
                self._scenario.batch > 1,
                self._takes if process in self._topology.processes else takes_anything,
            )
        for node in nodes.values():
            node.peers = nodes
            node.liars = frozenset(self._scenario.plan.traitors())
        return nodes

    def _takes(self, sender: ProcessId, message: Wire) -> bool:
        return sender in self._members or self._spec.problem_with(sender, message, self._topology) is None

    def _builder(self, process: ProcessId) -> Any:
        scenario, topology, spec = self._scenario, self._topology, self._spec
        replica_config = scenario.replica_config()
        if process in scenario.plan.liars():
            interval_us = max(1, scenario.interval_us // 2)

            def build_liar(starts: int) -> Process:
                rng = self._rng("liar", process)
                return LyingClient(process, topology, spec, interval_us, _LIES, scenario.batch, rng)

            return build_liar
        if topology.group_of(process) is None:
            number = topology.clients.index(process)
            load = scenario.loads()[number]

            def build_client(starts: int) -> Process:
                rng, own = self._rng("client", process, starts), stream_random(scenario.seed, number, starts)
                stream = self._stream(process, number, own if scenario.workload.has_own_stream else rng)
                config = scenario.client_config()
                client = WatchedClient(process, topology, spec, config, stream, load, rng, replica_config)
                client.watch = self.watch
                return client

            return build_client

        lying = scenario.plan.traitors().get(process)

        def build(starts: int) -> Process:
            rng = self._rng("process", process, starts)
            if lying is None:
                return spec.build(process, topology, replica_config, rng)
            build_one = partial(spec.build, process, topology, replica_config, rng)
            return LyingReplica(build_one, process, lying, self._rng("traitor", process, starts))

        return build

    def _stream(self, process: ProcessId, number: int, rng: Random) -> Stream:
        """The same for every protocol: the number of a client does not depend on the size of groups."""
        seat = Seat(number, len(self._topology.clients), self._topology.region(process))
        return self._scenario.workload.stream(self._geography, seat, rng)

    # -- the run

    def run(self) -> SimResult:
        """From the start to the end."""
        self.start()
        self.settle()
        self._record_in_flight()
        return self.result()

    def start(self) -> None:
        """Boots all machines, and plans the faults. No time has passed yet."""
        for fault in self._scenario.plan.faults:
            self.loop.at(fault.at_us, self._injector.inject, fault)
        for node in self._nodes.values():
            self.loop.at(0, node.start)
        if self._scenario.reads_us:
            for process in self._topology.processes:
                self._read_later(process, self._rng("reader", process))
        if self._scenario.member_messages:
            for number, process in enumerate(self._topology.processes):
                rng = self._rng("member", process)
                self._next_by_member(process, 0, 0, rng, self._stream(process, number, rng))

    def _read_later(self, process: ProcessId, rng: Random) -> None:
        wait = 1 + int(rng.expovariate(1 / self._scenario.reads_us))
        self.loop.at(self.loop.now + wait, self._read, process, rng)

    def _read(self, process: ProcessId, rng: Random) -> None:
        self._nodes[process].read_now()
        if not self._is_delivered():
            self._read_later(process, rng)

    def _is_delivered(self) -> bool:
        return self.loop.now >= self._scenario.plan.end_us() and not self.watch.owed and self._clients_are_done()

    def _reads_are_done(self) -> bool:
        """Those of members that are down are over."""
        return not any(reads and self._nodes[p].is_up for p, reads in self.watch.reads.items())

    def _next_by_member(self, process: ProcessId, sent: int, seq: int, rng: Random, stream: Stream) -> None:
        wait = int(rng.expovariate(1 / self._scenario.interval_us))
        self.loop.at(self.loop.now + wait, self._multicast_by_member, process, sent, seq, rng, stream)

    def _multicast_by_member(self, process: ProcessId, sent: int, seq: int, rng: Random, stream: Stream) -> None:
        dst, payload = stream.draw(1)[0]
        message = app_message(process, self._spec.next_number(seq, dst, self._topology), dst, payload)
        self._nodes[process].multicast_now(message)
        if sent + 1 < self._scenario.member_messages:
            self._next_by_member(process, sent + 1, message.seq + 1, rng, stream)
        else:
            self._members_sending -= 1

    def settle(self) -> bool:
        """Lets time pass until everything is delivered, or nothing moves any more. True if all is delivered."""
        self._drained = False
        self.loop.at(self.loop.now + self._poll_us, self._poll)
        thresholds = gc.get_threshold()
        gc.set_threshold(50_000, 20, 50)  # a run makes many small objects and hardly a cycle: look for them less often
        try:
            self.loop.run()
        except Exception as error:
            self._broken = self._diagnose(error)
        finally:
            gc.set_threshold(*thresholds)
        return self._drained and self._broken is None

    def process(self, id_: ProcessId) -> Process:
        """The process object itself, for tests and benchmarks that look inside."""
        return self._nodes[id_].process

    def multicast(self, client: ProcessId, dst: tuple[GroupId, ...], payload: bytes) -> MessageId:
        """A client multicasts one message now, besides whatever its load makes it do."""
        node = self._nodes[client]
        assert isinstance(node.process, LoadClient)
        message = node.process.new_message(dst, payload)
        self.loop.at(self.loop.now, node.multicast_now, message)
        return message.id

    def multicast_by_member(self, member: ProcessId, message: AppMessage) -> None:
        """A member of a group multicasts one message now, whose sender it is."""
        self._nodes[member].multicast_now(message)

    def hand_over(self, message: AppMessage, wire: Wire, to: Sequence[ProcessId]) -> None:
        """A client multicasts a message now, and what it sends reaches these members at once."""
        self.watch.saw_multicast(message.sender, message)
        for process in to:
            node = self._nodes[process]
            self.loop.at(self.loop.now, node.process.on_message, message.sender, wire, node)

    def _poll(self) -> None:
        """Ends the run when everything is delivered and all clients know it, or when nothing has moved for too long."""
        now, plan_end = self.loop.now, self._scenario.plan.end_us()
        if self._is_delivered() and self._reads_are_done():
            self._drained = True
            if not self._scenario.plan.faults:
                self.loop.stop()
                return
            self.loop.at(now + _GRACE_US, self._finish)
            return
        if now - max(plan_end, self.watch.progress_us) > self._scenario.patience_us and not self._is_load_to_come():
            self.loop.stop()
            return
        self.loop.at(now + self._poll_us, self._poll)

    def _finish(self) -> None:
        if self.watch.owed:  # a message of a crashed sender turned up late: wait for it
            self._drained = False
            self._poll()
        else:
            self.loop.stop()

    def _is_load_to_come(self) -> bool:
        nodes = [self._nodes[client] for client in self._topology.clients]
        return any(node.is_up and isinstance(node.process, LoadClient) and node.process.waits_to_send for node in nodes)

    def _clients_are_done(self) -> bool:
        if self._members_sending:
            return False
        for client in self._topology.clients:
            node = self._nodes[client]
            if node.is_up and isinstance(node.process, LoadClient) and not node.process.is_done:
                return False
        return True

    def _diagnose(self, error: Exception) -> BrokenInvariant:
        """A handler that raises is a finding of this run; the fuzzer goes on with other runs."""
        frame = traceback.extract_tb(error.__traceback__)[-1]
        owners = [f.f_locals.get("self") for f, _ in traceback.walk_tb(error.__traceback__)]
        process = next((owner.id for owner in owners if isinstance(owner, Machine)), -1)
        name = "" if isinstance(error, AssertionError) else f"{type(error).__name__}: "
        what = f"{name}{str(error) or frame.line} (in {frame.name}, {Path(frame.filename).name}:{frame.lineno})"
        return BrokenInvariant(process, self.loop.now, what)

    def _record_in_flight(self) -> None:
        """Records messages that had not arrived when the run ended: they belong to the wire table as well."""
        arrive = {node.arrive: node.id for node in self._nodes.values()}
        for action, args in self.loop.pending():
            if action in arrive:
                sender, data, kind, about, sent = args[0]
                self.watch.saw_wire(sender, arrive[action], kind, about, len(data), sent, None)

    # -- the result

    def result(self) -> SimResult:
        """What happened so far."""
        scenario, watch = self._scenario, self.watch
        complete = self._drained and self._broken is None and not watch.owed
        info = describe(
            self._spec,
            scenario.replica_config(),
            self._topology,
            ((sender_of(message), group) for message, dst in watch.sent.items() for group in dst),
            run_id=scenario.run_id(),
            seed=scenario.seed,
            complete=complete,
            correct=(p for p in watch.correct if self._nodes[p].is_up),
            has_wire=scenario.records_wire,
            driver="sim",
            scenario=msgspec.to_builtins(scenario),
            clients=list(self._topology.clients),
        )
        return SimResult(
            scenario,
            info,
            self._recorder,
            complete,
            self._broken,
            () if complete else watch.stuck(),
            len(watch.sent),
            watch.deliveries,
            sum(node.sent for node in self._nodes.values()),
            self._injector.count,
            self.loop.events,
            self.loop.now,
            None if watch.execution is None else watch.execution.report(complete),
        )


def simulate(scenario: Scenario, spec: ProtocolSpec | None = None) -> SimResult:
    """Runs a scenario to its end. The same scenario gives the same bytes."""
    return Simulation(scenario, spec).run()
