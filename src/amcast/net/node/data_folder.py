"""A process's data folder: whose it is, and whether it still holds what the process promised.

A folder is formatted once, by `amcast up` or `amcast init`: its file `identity` says of which cluster and process it is
and under which layout its data was written. Formatting, starting and starting again are different things, and none of
them follows from a file being absent. The state of a folder is

    new     the process has promised nothing yet
    used    its record log holds what it promised. If the log is found empty all the same, its records were lost
    lost    its records are gone: the process is silent until its group has taken it back. Its log holds nothing yet

Each loss begins a new incarnation, and each incarnation has a record log in a folder of its own. So whatever a crash
interrupts, records of an earlier incarnation are never taken for those of this one, and nothing has to be deleted.
What was delivered stays right, and stays.
"""

from __future__ import annotations

import os
from contextlib import suppress
from enum import StrEnum
from pathlib import Path

import msgspec
from msgspec.structs import replace

from ...core import UsageError
from ..config import ClusterConfig, split_name
from ..disk.checked import read_checked, write_checked
from ..disk.files import sync_folder
from ..disk.records import Durability
from ..layout import DataLayout, difference, layout_of
from ..system import system
from ..trace.evidence import Boots
from ..wire.control import Life
from ._witnesses import PEERS, write_peers

IDENTITY = "identity"
_LOCK = "lock"
_IDLE_MAX = 1_000
_BEFORE_IDENTITY = "boot"  # a file of versions that did not write down whose a folder is


class State(StrEnum):
    NEW = "new"
    USED = "used"
    LOST = "lost"


class FolderIdentity(msgspec.Struct, frozen=True):
    cluster: str
    cluster_id: str
    process: str
    layout: DataLayout
    state: State
    incarnation: int = 0
    boot: int = 0  # how often the process was started, over all incarnations
    took_part: int = 0  # the last boot that the others let in
    idle: tuple[int, ...] = ()  # boots that ended before that: they did nothing, and have no trace


def format_folder(config: ClusterConfig, name: str, state: State = State.NEW) -> None:
    """Makes the data folder of a process, for its first start."""
    if not config.id:
        drawn = f"{system().random_bits(64):016x}"
        raise UsageError(f'this cluster has no id: add a line such as id = "{drawn}" to {config.file}, on all machines')
    config.process_named(name)
    folder = config.data_folder(name)
    try:
        system().mkdir(folder)
        if system().exists(folder / IDENTITY):
            raise UsageError(f"{folder} is formatted already: {name} can be started")
        left = _content(folder)
        if left:
            raise UsageError(
                f"{folder} is not empty, it holds {left[0]}: move it away, or name another folder as `data`"
            )
        write_peers(folder, {})
        identity = FolderIdentity(config.cluster, config.id, name, layout_of(config), state)
        write_checked(folder / IDENTITY, IDENTITY, identity)  # last: now the folder is formatted
        sync_folder(folder.parent)
    except OSError as error:
        raise UsageError(f"{folder}: can't format it: {error.strerror or error}") from error


def _lock_folder(folder: Path, name: str) -> int:
    lock = system().open(folder / _LOCK, os.O_RDWR | os.O_CREAT)
    if not system().try_lock(lock):
        system().close(lock)
        raise UsageError(f"{name} is running already: another process holds {folder}")
    return lock


def replace_folder(config: ClusterConfig, name: str) -> Path | None:
    """Formats the folder of a process whose disk was lost or is damaged: its group will take it back.

    What is left in the folder is moved aside. Returns where it is, or None if there was nothing.
    """
    group, _ = split_name(config.process_named(name).id)
    if len(config.topology().members(group)) == 1:
        raise UsageError(f"{name} is alone in its group: nobody could hand it its state, so only its own disk can")
    folder = config.data_folder(name)
    try:
        system().mkdir(folder)
        lock = _lock_folder(folder, name)
        try:
            aside = _move_aside(folder)
            format_folder(config, name, State.LOST)
        finally:
            system().close(lock)
    except OSError as error:
        raise UsageError(f"{folder}: can't replace it: {error.strerror or error}") from error
    return aside


def _move_aside(folder: Path) -> Path | None:
    """Into a folder inside, since the data folder itself may be where a disk is mounted."""
    left = _content(folder)
    if system().exists(folder / IDENTITY):
        left.insert(0, IDENTITY)  # first: if a crash interrupts this, the rest is not taken for a whole folder
    if not left:
        return None
    number = 1
    while system().exists(aside := folder / f"{_REPLACED}{number}"):
        number += 1
    system().mkdir(aside)
    for each in left:
        system().rename(folder / each, aside / each)
    sync_folder(aside)
    sync_folder(folder)
    return aside


_REPLACED = "replaced-"


def _content(folder: Path) -> list[str]:
    """What the folder holds, besides what formatting itself makes and what was moved aside."""
    ours = (IDENTITY, PEERS, _LOCK, f"{IDENTITY}.tmp", f"{PEERS}.tmp")
    return [name for name in system().names_in(folder) if name not in ours and not name.startswith(_REPLACED)]


class DataFolder:
    """A formatted folder, locked for this boot of its process. The boot is counted first of all."""

    def __init__(self, path: Path, lock: int, identity: FolderIdentity, durability: Durability) -> None:
        self.path = path
        self._lock = lock
        self._changing = system().lock()  # the disk's thread marks the folder as used
        self._nonce = system().random_bits(62)
        is_memory = durability is Durability.MEMORY
        # In memory mode whatever a boot promises is forgotten when it ends. So the next one must know that it is lost.
        is_first = identity.state is State.NEW
        self.is_new = is_first
        self._took_part_before = identity.took_part
        self._identity = replace(
            identity,
            boot=identity.boot + 1,
            idle=_idle_after(identity),
            incarnation=identity.incarnation + (is_memory and not is_first),
            state=State.LOST if is_memory else identity.state,
        )
        self._write()

    @classmethod
    def open(cls, config: ClusterConfig, name: str) -> DataFolder:
        """Refuses a folder of another cluster or process, or of another layout, and one that is not formatted."""
        config.process_named(name)
        path = config.data_folder(name)
        _refuse_unformatted(path, name)
        lock = _lock_folder(path, name)
        try:
            with suppress(PermissionError):  # of another user, who gave it to this one
                system().chmod(path, 0o700)  # earlier versions left it open to all
            identity = _fitting_identity(path, config, name)
            return cls(path, lock, identity, config.durability)
        except BaseException:
            system().close(lock)
            raise

    def close(self) -> None:
        system().close(self._lock)

    @property
    def state(self) -> State:
        return self._identity.state

    @property
    def incarnation(self) -> int:
        return self._identity.incarnation

    @property
    def boot(self) -> int:
        return self._identity.boot

    @property
    def idle(self) -> tuple[int, ...]:
        """Earlier boots that ended before the process took part in anything."""
        return self._identity.idle

    @property
    def record_folder(self) -> Path:
        return self.path / f"log-{self.incarnation}"

    def life(self, records: int) -> Life:
        return Life(self.incarnation, self.boot, self._nonce, records)

    def mark_used(self, incarnation: int) -> None:
        """The record log of this incarnation is about to hold something that counts. From the disk's thread."""
        with self._changing:
            if self.incarnation == incarnation and self.state is not State.USED:
                self._identity = replace(self._identity, state=State.USED)
                self._write()

    def mark_started(self) -> None:
        """From now on this boot leaves a trace."""
        with self._changing:
            self._identity = replace(self._identity, took_part=self.boot)
            self._write()

    def begin_incarnation(self, known: Life | None) -> None:
        """The records are lost: from now on this process is another one, which nobody has heard anything of yet.

        `known` is what others remember of it, if they found out. Then the folder may be an old copy, which was made
        after the last boot that took part by its word. Of the boots since then it knows nothing: one that had done
        nothing when the copy was made may have gone on. If the process found out by itself, nobody has heard of this
        boot yet, and it keeps its number: each number that is skipped looks like a boot whose trace is missing.
        """
        with self._changing:
            own = self._identity
            self._identity = replace(own, state=State.LOST, incarnation=own.incarnation + 1)
            if known is not None:
                self._identity = replace(
                    self._identity,
                    incarnation=max(own.incarnation, known.incarnation) + 1,
                    boot=max(own.boot, known.boot + 1),
                    idle=tuple(boot for boot in own.idle if boot < self._took_part_before),
                )
            self.is_new = False
            self._write()

    def _write(self) -> None:
        write_checked(self.path / IDENTITY, IDENTITY, self._identity)


def _idle_after(identity: FolderIdentity) -> tuple[int, ...]:
    is_idle = identity.boot > 0 and identity.took_part != identity.boot
    return (*identity.idle[-_IDLE_MAX:], identity.boot) if is_idle else identity.idle


def boots_of(folder: Path) -> Boots | None:
    """How often the process of this folder was started. None if the folder does not say so."""
    try:
        identity = read_checked(folder / IDENTITY, IDENTITY, FolderIdentity)
    except (OSError, UsageError):
        return None
    idle = identity.idle if identity.took_part == identity.boot else (*identity.idle, identity.boot)
    return Boots(identity.boot, frozenset(idle) - {0})


def _refuse_unformatted(path: Path, name: str) -> None:
    if system().exists(path / IDENTITY):
        return
    if system().exists(path / _BEFORE_IDENTITY):
        raise UsageError(
            f"{path}: is a folder of an earlier version of amcast, which did not write down whose it is: go on with"
            " that version, or make a new cluster in another folder"
        )
    raise UsageError(
        f"{path}: is not formatted: run `amcast init` if the cluster is new, or `amcast replace` if {name} was in it"
    )


def check_folder(config: ClusterConfig, name: str) -> None:
    """Raises why a process can't be started on its folder. Nothing is locked or changed."""
    path = config.data_folder(name)
    _refuse_unformatted(path, name)
    _fitting_identity(path, config, name)


def _fitting_identity(path: Path, config: ClusterConfig, name: str) -> FolderIdentity:
    identity = read_checked(path / IDENTITY, IDENTITY, FolderIdentity)
    _refuse_other(path, identity, config, name)
    if config.durability is Durability.MEMORY and identity.state is State.USED:
        raise UsageError(f"{path}: holds a durable log, which memory mode would contradict: choose another folder")
    return identity


def _refuse_other(path: Path, identity: FolderIdentity, config: ClusterConfig, name: str) -> None:
    if identity.cluster != config.cluster:
        raise UsageError(f"{path}: is a folder of cluster '{identity.cluster}', and this is '{config.cluster}'")
    if identity.cluster_id != config.id:
        raise UsageError(
            f"{path}: is a folder of another cluster that is called '{config.cluster}' too: its id is"
            f" {identity.cluster_id}, and that of this one {config.id or 'missing'}"
        )
    if identity.process != name:
        raise UsageError(f"{path}: is the folder of {identity.process}, and this is {name}")
    problem = difference(layout_of(config), "in cluster.toml", identity.layout, "in this folder")
    if problem is not None:
        raise UsageError(f"{path}: {problem}: the data of a cluster belongs to its layout, so put the old one back")
