"""The simulated disk: what a kill keeps, what a power loss may lose, and what it never does."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from amcast.net.disk.files import write_file
from amcast.net.system import system, use
from amcast.netsim.disk import Disk, File
from amcast.netsim.machine import Killed, Machine, World
from amcast.netsim.system import SimulatedSystem

FOLDER = Path("/data")
PATH = FOLDER / "file"


@pytest.fixture
def machine() -> Machine:
    machine = World(1, Path("/trace")).add_machine("m", 0)
    machine.disk.mkdir(FOLDER)
    machine.disk.sync_all()
    return machine


def run(machine: Machine, work: Callable[[], object]) -> None:
    """Runs `work` as a program of the machine, to its end."""
    world = machine.world
    program = machine.start("test")
    world.current = program
    with use(SimulatedSystem(world)):
        work()
    program.exit()


def written(data: bytes, *, sync: bool, sync_folder: bool) -> Callable[[], None]:
    def work() -> None:
        fd = system().open(PATH, os.O_WRONLY | os.O_CREAT)
        system().pwrite(fd, data, 0)
        if sync:
            system().fdatasync(fd)
        if sync_folder:
            system().sync_folder(FOLDER)

    return work


def outcomes(*, sync: bool, sync_folder: bool) -> set[bytes | None]:
    """What is found after a power loss, in many tries."""
    found: set[bytes | None] = set()
    for seed in range(60):
        machine = World(seed, Path("/trace")).add_machine("m", 0)
        machine.disk.mkdir(FOLDER)
        machine.disk.sync_all()
        run(machine, written(b"a" * 600, sync=sync, sync_folder=sync_folder))
        machine.lose_power()
        file = machine.disk.entry(PATH)
        found.add(bytes(file.data) if isinstance(file, File) else None)
    return found


def test_a_kill_loses_nothing(machine: Machine) -> None:
    run(machine, written(b"abc", sync=False, sync_folder=False))
    assert machine.disk.file(PATH).data == b"abc"


def test_a_synced_file_with_a_synced_name_survives_a_power_loss() -> None:
    assert outcomes(sync=True, sync_folder=True) == {b"a" * 600}


def test_a_name_that_was_not_synced_may_be_lost_as_a_whole() -> None:
    assert outcomes(sync=True, sync_folder=False) == {None, b"a" * 600}


def test_data_that_was_not_synced_may_be_there_or_not_sector_by_sector() -> None:
    found = outcomes(sync=False, sync_folder=True)
    sectors = (b"a" * 512, bytes(512)), (b"a" * 88, bytes(88))
    assert found == {b""} | {one + other for one in sectors[0] for other in sectors[1]}


def test_a_sector_never_has_a_later_write_without_an_earlier_one() -> None:
    """A program writes a header and then a body beside it: a disk can't have the body and half of the header."""
    for seed in range(100):
        file = File()
        file.write(0, b"head")
        file.write(4, b"body")
        file.lose_power(Random(seed))
        assert file.data.rstrip(b"\0") in (b"", b"head", b"headbody")


def test_a_failed_sync_is_not_made_good_by_the_next_one(machine: Machine) -> None:
    def work() -> None:
        fd = system().open(PATH, os.O_WRONLY | os.O_CREAT)
        system().sync_folder(FOLDER)
        system().pwrite(fd, b"abc", 0)
        machine.disk.failing_syncs = 1
        with pytest.raises(OSError, match="Input/output error"):
            system().fdatasync(fd)
        system().fdatasync(fd)

    run(machine, work)
    assert machine.disk.file(PATH).data == b"abc"
    machine.lose_power()
    assert machine.disk.file(PATH).data == b""


def test_a_rename_happens_at_once_and_after_a_power_loss_wholly_or_not_at_all() -> None:
    found = set()
    for seed in range(60):
        machine = World(seed, Path("/trace")).add_machine("m", 0)
        machine.disk.mkdir(FOLDER)
        machine.disk.sync_all()

        def work() -> None:
            write_file(PATH, b"old")
            fd = system().open(FOLDER / "draft", os.O_WRONLY | os.O_CREAT)
            system().pwrite(fd, b"new", 0)
            system().fdatasync(fd)
            system().rename(FOLDER / "draft", PATH)
            assert system().read_file(PATH) == b"new"
            assert system().names_in(FOLDER) == ["file"]

        run(machine, work)
        machine.lose_power()
        names = sorted(machine.disk.folder(FOLDER).names)
        found.add((tuple(names), bytes(machine.disk.file(PATH).data)))
    assert found == {(("file",), b"old"), (("draft", "file"), b"old"), (("file",), b"new")}


def test_a_full_disk_takes_what_overwrites_and_nothing_that_grows(machine: Machine) -> None:
    def work() -> None:
        fd = system().open(PATH, os.O_WRONLY | os.O_CREAT)
        system().pwrite(fd, b"abc", 0)
        machine.disk.room = 1
        system().pwrite(fd, b"xyz", 0)
        system().pwrite(fd, b"!", 3)
        with pytest.raises(OSError, match="No space") as failed:
            system().pwrite(fd, b"?", 4)
        assert failed.value.errno == errno.ENOSPC
        with pytest.raises(OSError, match="No space"):
            system().open(FOLDER / "another", os.O_CREAT)

    run(machine, work)
    assert machine.disk.file(PATH).data == b"xyz!"


def test_a_lock_dies_with_its_program(machine: Machine) -> None:
    def lock() -> bool:
        return system().try_lock(system().open(PATH, os.O_RDWR | os.O_CREAT))

    first, second = machine.start("first"), machine.start("second")
    with use(SimulatedSystem(machine.world)):
        machine.world.current = first
        assert lock()
        machine.world.current = second
        assert not lock()
        first.kill()
        machine.world.current = second
        assert lock()


def test_a_program_is_killed_between_two_system_calls(machine: Machine) -> None:
    def work() -> None:
        with pytest.raises(Killed):
            write_file(PATH, b"abc")

    program = machine.start("test")
    program.calls_left = 3  # open, pwrite, fdatasync; not close, nor rename
    machine.world.current = program
    with use(SimulatedSystem(machine.world)):
        work()
    assert sorted(machine.disk.folder(FOLDER).names) == ["file.tmp"]


def test_a_backup_is_what_was_there_then_and_is_durable(machine: Machine) -> None:
    run(machine, written(b"old", sync=False, sync_folder=False))
    backup = machine.disk.copy_of(FOLDER)
    run(machine, written(b"new", sync=True, sync_folder=True))
    machine.disk.replace(FOLDER, backup)
    machine.lose_power()
    assert machine.disk.file(PATH).data == b"old"
    machine.disk.replace(FOLDER, None)
    assert machine.disk.entry(FOLDER) is None


def test_the_trace_survives_a_power_loss() -> None:
    disk = Disk(Random(1), FOLDER)
    disk.mkdir(FOLDER)
    disk.create(PATH).write(0, b"rows")
    disk.room = 0
    disk.take_room(10, PATH)
    disk.lose_power()
    assert disk.file(PATH).data == b"rows"
