"""Event loops in virtual time, threads that wait in it, and connections in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from amcast.net.system import system, use
from amcast.netsim.machine import Program, World
from amcast.netsim.system import SimulatedSystem

Main = Callable[[], Coroutine[Any, Any, None]]


class Stage:
    """Programs on machines of their own, until all events are handled."""

    def __init__(self) -> None:
        self.world = World(1, Path("/trace"))

    def program(self, name: str, main: Main) -> Program:
        machine = self.world.machines.get(name) or self.world.add_machine(name, 0)
        program = machine.start(name)
        program.loop.create_task(main())
        return program

    def at(self, time_us: int, action: Callable[..., None], *args: Any) -> None:
        self.world.scheduler.at(time_us, action, *args)

    def run(self, until_us: int = 10_000_000) -> None:
        self.at(until_us, self.world.end)
        with use(SimulatedSystem(self.world)):
            self.world.scheduler.run()
        for loop in self.world.buried:
            loop.close_tasks()


@pytest.fixture
def stage() -> Stage:
    return Stage()


def test_time_is_virtual_and_sleeps_end_in_order(stage: Stage) -> None:
    woken: list[tuple[str, float]] = []

    async def main() -> None:
        async def sleep(name: str, seconds: float) -> None:
            await asyncio.sleep(seconds)
            woken.append((name, round(asyncio.get_running_loop().time(), 2)))

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(sleep("late", 3.0))
            tasks.create_task(sleep("soon", 1.0))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(2.0):
                await asyncio.Event().wait()
        woken.append(("end", round(asyncio.get_running_loop().time(), 2)))

    stage.program("a", main)
    stage.run()
    assert woken == [("soon", 1.0), ("late", 3.0), ("end", 5.0)]


def test_a_thread_waits_in_virtual_time_while_the_loop_goes_on(stage: Stage) -> None:
    seen: list[str] = []

    async def main() -> None:
        jobs = system().jobs()
        done = system().event()

        def work() -> None:
            seen.append(f"job {jobs.get()}")
            done.wait(1.0)
            seen.append("waited")

        thread = system().start_thread(work, "worker")
        await asyncio.sleep(0.5)
        jobs.put(7)
        await asyncio.sleep(0.5)
        seen.append("the loop goes on")
        thread.join()
        seen.append(f"joined at {system().monotonic_s():.1f}")

    stage.program("a", main)
    stage.run()
    assert seen == ["job 7", "the loop goes on", "waited", "joined at 1.5"]


def test_a_lock_is_held_through_a_wait_by_one_thread_at_a_time(stage: Stage) -> None:
    seen: list[str] = []

    async def main() -> None:
        lock = system().lock()

        def work() -> None:
            with lock:
                seen.append("thread in")
                system().event().wait(1.0)
                seen.append("thread out")

        system().start_thread(work, "worker")
        await asyncio.sleep(0.1)
        with lock:
            seen.append("loop in")

    stage.program("a", main)
    stage.run()
    assert seen == ["thread in", "thread out", "loop in"]


def test_a_killed_program_does_nothing_more_wherever_it_was(stage: Stage) -> None:
    seen: list[str] = []

    async def main() -> None:
        def work() -> None:
            try:
                system().event().wait()
            finally:
                system().mkdir(Path("/thread"))

        system().start_thread(work, "worker")
        try:
            await asyncio.sleep(5.0)
            seen.append("it lives")
        finally:
            system().mkdir(Path("/loop"))

    program = stage.program("a", main)
    stage.at(1_000_000, program.kill)
    stage.run()
    assert not seen
    assert program.machine.disk.entry(Path("/thread")) is None
    assert program.machine.disk.entry(Path("/loop")) is None


def test_a_program_is_killed_while_its_loop_waits_for_a_sync(stage: Stage) -> None:
    seen: list[str] = []

    async def main() -> None:
        system().mkdir(Path("/data"))
        system().sync_folder(Path("/"))
        seen.append("synced")

    program = stage.program("a", main)
    program.machine.sync_us = 1_000_000
    stage.at(100_000, program.machine.lose_power)
    stage.run()
    assert not seen
    assert not program.machine.programs


def test_a_paused_program_goes_on_where_it_was(stage: Stage) -> None:
    seen: list[float] = []

    async def main() -> None:
        await asyncio.sleep(1.0)
        seen.append(round(asyncio.get_running_loop().time(), 2))

    program = stage.program("a", main)
    stage.at(500_000, program.pause)
    stage.at(3_000_000, program.resume)
    stage.run()
    assert seen == [3.0]


def test_an_error_in_the_simulation_itself_is_raised_by_run(stage: Stage) -> None:
    def fail() -> None:
        raise ValueError("a bug")

    async def main() -> None:
        system().event().wait()

    stage.program("a", main)
    stage.at(1_000, fail)
    with pytest.raises(ValueError, match="a bug"):
        stage.run()


# -- connections


class Peer(asyncio.BufferedProtocol):
    """Notes what it hears."""

    def __init__(self) -> None:
        self.heard: list[str] = []
        self.data = b""
        self._buffer = bytearray(1_000)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:
        return memoryview(self._buffer)

    def buffer_updated(self, nbytes: int) -> None:
        self.data += self._buffer[:nbytes]
        self.heard.append("data")

    def pause_writing(self) -> None:
        self.heard.append("pause")

    def resume_writing(self) -> None:
        self.heard.append("resume")

    def connection_lost(self, exc: Exception | None) -> None:
        self.heard.append("lost" if exc is None else "reset")


class Pair:
    """A program that listens, and one that has dialed it after 10 ms."""

    def __init__(self, stage: Stage) -> None:
        self.here, self.there = Peer(), Peer()

        async def listen() -> None:
            (listener,) = system().listen("b", 1)
            asyncio.get_running_loop().add_reader(listener, self._accept, listener)

        async def dial() -> None:
            await asyncio.sleep(0.01)
            await asyncio.get_running_loop().create_connection(lambda: self.here, "b", 1)

        self.listener = stage.program("b", listen)
        self.dialer = stage.program("a", dial)
        self.stage = stage

    def _accept(self, listener: Any) -> None:
        accepted, _ = listener.accept()
        accepted.begin(lambda: self.there, None)

    def at(self, time_us: int, action: Callable[..., Any], *args: Any) -> None:
        """As a callback of the program that dialed."""
        self.stage.at(time_us, self._call, action, args)

    def _call(self, action: Callable[..., Any], args: tuple[Any, ...]) -> None:
        self.dialer.loop.call_soon(action, *args)


@pytest.fixture
def pair(stage: Stage) -> Pair:
    return Pair(stage)


def test_bytes_arrive_whole_and_in_order_whatever_the_pieces(stage: Stage, pair: Pair) -> None:
    stage.world.network.splits = 0.9
    sent = bytes(range(256)) * 4
    for start in range(0, len(sent), 100):
        pair.at(50_000 + start, lambda start=start: pair.here.transport.write(sent[start : start + 100]))
    stage.run()
    assert pair.there.data == sent
    assert pair.there.heard.count("data") > 11


def test_what_was_written_before_a_close_arrives(stage: Stage, pair: Pair) -> None:
    def speak() -> None:
        pair.here.transport.write(b"good-bye")
        pair.here.transport.close()

    pair.at(50_000, speak)
    stage.run(1_000_000)
    assert pair.there.data == b"good-bye"
    assert pair.there.heard[-1] == pair.here.heard[-1] == "lost"


def test_a_writer_is_paused_while_the_other_end_does_not_read(stage: Stage, pair: Pair) -> None:
    stage.world.network.window_bytes = 1_000
    stage.at(40_000, lambda: pair.there.transport.pause_reading())
    pair.at(50_000, lambda: pair.here.transport.set_write_buffer_limits(high=2_000))
    pair.at(50_000, lambda: pair.here.transport.write(bytes(5_000)))
    stage.at(1_000_000, lambda: pair.there.transport.resume_reading())
    sizes: list[int] = []
    stage.at(900_000, lambda: sizes.append(pair.here.transport.get_write_buffer_size()))
    stage.run(2_000_000)
    assert sizes == [4_000]
    assert pair.here.heard[:2] == ["pause", "resume"]
    assert len(pair.there.data) == 5_000


def test_nobody_listens(stage: Stage) -> None:
    problems: list[OSError] = []

    async def main() -> None:
        for host in ("a", "off"):
            try:
                await asyncio.get_running_loop().create_connection(Peer, host, 1)
            except OSError as error:
                problems.append(error)

    stage.program("a", main)
    stage.world.add_machine("off", 0).is_on = False
    stage.run()
    assert [type(error) for error in problems] == [ConnectionRefusedError, OSError]


def test_one_address_is_listened_on_once(stage: Stage, pair: Pair) -> None:
    problems: list[str] = []

    async def main() -> None:
        try:
            system().listen("b", 1)
        except OSError as error:
            problems.append(str(error.strerror))

    stage.at(5_000, lambda: stage.program("b", main) and None)
    stage.run()
    assert problems == ["Address already in use"]


def test_a_kill_is_heard_at_once_and_a_power_loss_much_later(stage: Stage, pair: Pair) -> None:
    heard: list[list[str]] = []
    stage.at(50_000, pair.listener.kill)
    stage.at(60_000, lambda: heard.append([*pair.here.heard]))
    stage.run(1_000_000)
    assert heard == [["reset"]]

    stage = Stage()
    pair = Pair(stage)
    stage.at(50_000, pair.listener.machine.lose_power)
    stage.at(500_000, lambda: heard.append([*pair.here.heard]))
    stage.run(5_000_000)
    assert heard[1:] == [[]]
    assert pair.here.heard == ["reset"]


def test_bytes_wait_while_a_link_is_cut_and_arrive_in_order(stage: Stage, pair: Pair) -> None:
    network = stage.world.network
    links = [("a", "b"), ("b", "a")]
    for number in range(6):
        pair.at(50_000 + 30 * number, lambda number=number: pair.here.transport.write(b"%d" % number))
    stage.at(50_090, network.cut, links)
    cut: list[bytes] = []
    stage.at(900_000, lambda: cut.append(pair.there.data))
    stage.at(1_000_000, network.mend, links, False)
    stage.run(2_000_000)
    assert len(cut[0]) < 6
    assert pair.there.data == b"012345"


def test_a_connection_that_breaks_is_lost_at_both_ends(stage: Stage, pair: Pair) -> None:
    stage.at(50_000, stage.world.network.break_connections, "b", 1.0)
    stage.run(1_000_000)
    assert pair.here.heard == pair.there.heard == ["reset"]
