"""A whole cluster on this machine, in one folder: each node is an operating-system process."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from random import SystemRandom
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from ..core import GroupId, ProcessId, UsageError, grid, latency_preset
from ..description import describe
from ..protocols import protocol
from ..trace import RunInfo
from .client.async_client import AsyncClient, connect
from .client.observer import Observer, observe, seeds_and_credentials
from .client.trunk import Credentials, NotWelcomeError
from .config import ClusterConfig, Limits, ProcessConfig, TlsFiles, format_config, load_config, split_name
from .disk.records import Durability
from .made import absent, open_own, remove_made, write_list
from .node.data_folder import boots_of, format_folder
from .node.store import STORE_APP
from .security.access import add_token, read_token, write_secret
from .security.certs import file_names, set_up
from .security.identity import Identity
from .security.signing import make_key
from .system import system
from .trace.evidence import Expected
from .wire.control import Placement, Status

if TYPE_CHECKING:
    from .trace.collect import CollectReport

CONFIG = "cluster.toml"
OPERATOR_TOKEN = "operator.token"  # with which the tools of a local cluster with tokens connect
TOKENS = "tokens.toml"
TRACE = "trace"
HISTORY = "history"  # what clients wrote down, beside the trace of the nodes
_LOGS, _PIDS, _CLIENT, _AUDIT = "logs", "pids", "client", "audit"
_LAST_BYTES, _WORDS_MAX = 16 << 10, 300
_PORTS = range(15_000, 32_000)
_RESERVED_MAX = 128 if sys.platform == "linux" else 0  # elsewhere, nobody else can listen on a port that is bound
_reserved: deque[socket.socket] = deque()
_APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT
_WRITE = os.O_WRONLY | os.O_TRUNC | os.O_CREAT
_PID_DIGITS = 20
_STOP_S = 10.0
_DAY_S = 86_400

Answer = TypeVar("Answer")


def plan(
    folder: Path,
    protocol_name: str,
    groups: int = 2,
    replicas: int | None = None,
    *,
    network: str = "none",
    durability: Durability = Durability.SYNC,
    trace: bool = False,
    trace_wire: bool = False,
    tls: bool = False,
    tokens: bool = False,
    metrics: bool = False,
    app: str = "",
    options: dict[str, Any] | None = None,
    limits: Limits | None = None,
) -> ClusterConfig:
    """The configuration of a cluster on loopback, on ports that are free now.

    Where messages are operations on objects, the application is a store of objects, unless another one is named.
    """
    spec = protocol(protocol_name)
    if spec.orders_operations and not app:
        app = STORE_APP
    latency = None if network == "none" else latency_preset(network)
    regions = latency.regions if latency is not None else ()
    topology = grid(groups, replicas or spec.replicas, 0, regions, latency.spread if latency is not None else True)
    ports = iter(free_ports(2 * len(topology.processes)))
    entries = tuple(
        ProcessConfig(
            topology.name(process),
            f"127.0.0.1:{next(ports)}",
            topology.region(process),
            next(ports) if metrics else 0,
        )
        for process in topology.processes
    )
    config = ClusterConfig(
        cluster=_cluster_name(folder),
        id=f"{system().random_bits(64):016x}",
        protocol=protocol_name,
        process=entries,
        network=network,
        durability=durability,
        trace=trace,
        trace_wire=trace_wire,
        app=app,
        options=options or {},
        epoch_s=int(time.time()) - _DAY_S,  # clocks start below now, so that one that is behind is not negative
        limits=limits or Limits(),
        tls=TlsFiles("certs") if tls else None,
        tokens=TOKENS if tokens else None,
        folder=str(folder.resolve()),
    )
    config.check(are_keys_made=False)
    return config


def _cluster_name(folder: Path) -> str:
    """That of the folder, as certificates can carry it."""
    return re.sub(r"[^A-Za-z0-9._-]", "-", folder.resolve().name).lstrip("._-")[:64] or "local"


@contextlib.contextmanager
def temporary_cluster(
    protocol_name: str = "fastcast", groups: int = 2, replicas: int | None = None, **settings: Any
) -> Iterator[LocalCluster]:
    """A running cluster on this machine. At the end of the `with` it is stopped, and its folder removed."""
    with tempfile.TemporaryDirectory(prefix="amcast-") as scratch:
        folder = Path(scratch) / "cluster"
        cluster = LocalCluster.create(folder, plan(folder, protocol_name, groups, replicas, **settings))
        try:
            cluster.start()
            asyncio.run(cluster.wait_until_ready())
            yield cluster
        finally:
            cluster.stop()


def free_ports(count: int) -> list[int]:
    """Ports below the range of outgoing connections, any of which might take a port before its node listens on it.

    Another program that looks for ports might do so as well. Therefore this process stays bound to the ports that it
    found last. A server that sets SO_REUSEADDR, as nodes do, can listen on them all the same.
    """
    ports: list[int] = []
    for port in SystemRandom().sample(_PORTS, len(_PORTS)):
        probe = socket.socket()
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            probe.close()
            continue
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        _reserved.append(probe)
        if len(_reserved) > _RESERVED_MAX:
            _reserved.popleft().close()
        ports.append(port)
        if len(ports) == count:
            return ports
    raise UsageError(f"there are not {count} free ports between {_PORTS.start} and {_PORTS.stop}")


def operator_token(config: ClusterConfig) -> str:
    """The one that was made with the cluster; empty if there is none."""
    path = config.path(OPERATOR_TOKEN)
    return read_token(path) if config.tokens is not None and path.exists() else ""


def _data_folders(config: ClusterConfig) -> list[str]:
    return [f"{config.data}/{name}" for name in (*(entry.id for entry in config.process), TRACE, HISTORY, _AUDIT)]


def _places(config: ClusterConfig) -> list[str]:
    """All that a cluster puts into its folder. The folders above these are made with them."""
    names = [entry.id for entry in config.process]
    places = [CONFIG, *_data_folders(config)]
    places += [place for name in names for place in (f"{_LOGS}/{name}.log", f"{_PIDS}/{name}")]
    if config.tls is not None:
        places += [f"{config.tls.folder}/{file}" for file in file_names([*names, _CLIENT])]
    if config.tokens is not None:
        places += [config.tokens, OPERATOR_TOKEN]
    if config.survives_liars:
        places += [f"{config.keys}/{name}.key" for name in names]
    return places


class LocalCluster:
    """The nodes outlive the object, and the program: those of `amcast up` run until `amcast down`."""

    def __init__(self, folder: Path, config: ClusterConfig | None = None) -> None:
        """`config`: of a cluster that somebody else runs, and whose configuration is elsewhere."""
        self.folder = folder.resolve()
        self.config = load_config(folder / CONFIG) if config is None else config
        self.token: str | None = None  # for nodes that ask for one; if it is None, the operator's is used
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        # Groups whose applications wait at a position for the decision to skip it, in processes that are started now.
        self.hold_at: dict[GroupId, int] = {}
        self._found_running: set[str] = set()  # by `start_missing`: somebody else started them
        self._delivered: dict[str, int] = {}  # up to where each process was when it was last asked

    @classmethod
    def create(cls, folder: Path, config: ClusterConfig) -> LocalCluster:
        """Writes the configuration, and certificates if it wants them, and formats the folder of each process."""
        if (folder / CONFIG).exists():
            raise UsageError(f"there is a cluster in {folder} already: `amcast up` starts it, or use another folder")
        try:
            made = absent(folder, _places(config))
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_list(folder, made)
            cls._make(folder, config)
        except BaseException as error:
            with contextlib.suppress(OSError, UsageError):
                remove_made(folder, _places(config), _data_folders(config))
            if isinstance(error, OSError):
                raise UsageError(f"can't make a cluster in {folder}: {error.strerror or error}") from error
            raise
        return cls(folder)

    @staticmethod
    def _make(folder: Path, config: ClusterConfig) -> None:
        if config.tls is not None:
            processes = [Identity("process", entry.id, config.cluster) for entry in config.process]
            set_up(config.path(config.tls.folder), [*processes, Identity("client", _CLIENT, config.cluster)])
        if config.tokens is not None:
            token = add_token(config.path(config.tokens), "operator", ["*"], ["*"], may_operate=True)
            write_secret(folder / OPERATOR_TOKEN, token)
        if config.survives_liars:
            keyed = [msgspec.structs.replace(entry, key=make_key(config, entry.id)) for entry in config.process]
            config = msgspec.structs.replace(config, process=tuple(keyed))
        for entry in config.process:
            format_folder(config, entry.id)
        (folder / CONFIG).write_text(format_config(config), encoding="utf-8")

    @property
    def names(self) -> list[str]:
        return [entry.id for entry in self.config.process]

    def config_file(self, name: str) -> Path:
        """Where the process reads its configuration."""
        return self.folder / CONFIG

    def command(self, name: str) -> list[str]:
        """The program of a node. One with an application in it takes the same two arguments: `pid` looks for them."""
        hold_at = self.hold_at.get(split_name(name)[0])
        more = [] if hold_at is None else [str(hold_at)]
        return [sys.executable, "-m", "amcast.net", str(self.config_file(name)), name, *more]

    def log_file(self, name: str) -> Path:
        return self.folder / _LOGS / f"{name}.log"

    def last_words(self, name: str) -> str:
        """The last line of the log of a process, which says why it ended; empty if there is none on this machine."""
        try:
            with open(open_own(self.folder, f"{_LOGS}/{name}.log", os.O_RDONLY), "rb") as log:
                log.seek(max(0, log.seek(0, os.SEEK_END) - _LAST_BYTES))
                lines = log.read().decode(errors="replace").strip().splitlines()
        except (OSError, UsageError):
            return ""
        return lines[-1][:_WORDS_MAX] if lines else ""

    # -- processes

    def start(self, names: Iterable[str] | None = None) -> None:
        for name in self.names if names is None else names:
            self._start_one(name)

    def running(self) -> list[str]:
        return [name for name in self.names if self.pid(name) is not None]

    def start_missing(self) -> None:
        """Starts the processes that do not run.

        Of a group that is to be held, those that run are started anew. For example, g1.p2 was the last to learn the
        message at which g1.p0 and g1.p1 have ended: if it ran on without a hold, it would end there too.
        """
        self.stop(name for name in self.running() if split_name(name)[0] in self.hold_at)
        self._found_running = set(self.running())
        self.start(name for name in self.names if name not in self._found_running)

    def _start_one(self, name: str) -> None:
        self.config.process_named(name)
        if self.pid(name) is not None:
            raise UsageError(f"{name} is running already")
        try:
            self._run_one(name)
        except OSError as error:
            raise UsageError(f"can't start {name}: {error.filename or self.folder}: {error.strerror}") from error

    def _run_one(self, name: str) -> None:
        with (
            open(open_own(self.folder, f"{_LOGS}/{name}.log", _APPEND), "ab") as log,
            open(open_own(self.folder, f"{_PIDS}/{name}", _WRITE), "w") as pid_file,
        ):
            child = subprocess.Popen(
                self.command(name),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            self._children[name] = child
            pid_file.write(str(child.pid))

    def pid(self, name: str) -> int | None:
        """None if it is not running."""
        child = self._children.get(name)
        if child is not None:
            # A process that is about to end has no command line any more, but still holds the lock of its folder.
            return child.pid if child.poll() is None else None
        try:
            with open(open_own(self.folder, f"{_PIDS}/{name}", os.O_RDONLY)) as pid_file:
                pid = int(pid_file.read(_PID_DIGITS))
            command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except (OSError, ValueError, UsageError):
            return None
        is_ours = name.encode() in command and str(self.config_file(name)).encode() in command
        return pid if is_ours else None

    def signal(self, name: str, number: signal.Signals) -> None:
        pid = self.pid(name)
        if pid is None:
            raise UsageError(f"{name} is not running")
        os.kill(pid, number)

    def kill(self, name: str) -> None:
        """As in a crash: the node can't finish anything."""
        self.signal(name, signal.SIGKILL)
        self._wait(name, time.monotonic() + _STOP_S)

    def stop(self, names: Iterable[str] | None = None) -> None:
        """Asks nodes, or all, to end, and kills those that do not end in time."""
        running = self.running() if names is None else list(names)
        for name in running:
            with contextlib.suppress(UsageError, ProcessLookupError):
                self.signal(name, signal.SIGCONT)
                self.signal(name, signal.SIGTERM)
        deadline = time.monotonic() + _STOP_S
        for name in running:
            if not self._wait(name, deadline):
                self.kill(name)

    def _wait(self, name: str, deadline: float) -> bool:
        child = self._children.get(name)
        if child is not None:
            try:
                child.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                return False
            return True
        while self.pid(name) is not None:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.02)  # it is no child of this process: there is nothing to wait on
        return True

    def remove(self) -> list[str]:
        """Removes what `create` and the processes made, and returns what else is in the folder."""
        return remove_made(self.folder, _places(self.config), _data_folders(self.config))

    # -- what it did

    def run_info(self, complete: bool, sent: Iterable[tuple[ProcessId, GroupId]]) -> RunInfo:
        """The description of this cluster's run, in which each sender multicast to these groups."""
        config = self.config
        topology = config.topology()
        document = msgspec.to_builtins(config)
        del document["folder"], document["name"]
        return describe(
            config.spec(),
            config.replica_config(),
            topology,
            sent,
            run_id=f"{config.protocol}-{config.cluster}",
            complete=complete,
            correct=topology.processes if complete else (),
            has_wire=config.trace_wire,
            driver="cluster",
            configuration=document,
            network=config.network,
        )

    @property
    def trace_folder(self) -> Path:
        if not self.config.trace:
            raise UsageError("this cluster writes no trace: start it with --trace")
        return self.config.path(self.config.data) / TRACE

    @property
    def history_folder(self) -> Path | None:
        """Where clients of this cluster write down what they did with objects. None: they don't."""
        config = self.config
        is_wanted = config.trace and config.spec().orders_operations and config.app == STORE_APP
        return config.path(config.data) / HISTORY if is_wanted else None

    def collect(self, out: Path, complete: bool) -> CollectReport:
        """Makes a run folder of the trace. `complete`: the load has ended by itself, and is delivered."""
        self.trace_folder.mkdir(parents=True, exist_ok=True)  # one that was removed is as good as an empty one
        from .trace.collect import collect  # with numpy, which most commands do not need

        return collect(self.trace_folder, out, partial(self.run_info, complete), self.expected, self.history_folder)

    def expected(self) -> dict[ProcessId, Expected]:
        """What must be in the trace: every boot that a process counted, up to the position that it told last."""
        ids, folder_of = self.config.ids(), self.config.data_folder
        return {ids[name]: Expected(boots_of(folder_of(name)), self._delivered.get(name)) for name in self.names}

    async def is_drained(self) -> bool:
        """Whether every process answers, no message is open, and all members of a group are at the same position."""
        statuses = list((await self.statuses()).values())
        positions: dict[str, set[int]] = {}
        for status in statuses:
            if status is None or status.open_messages:
                return False
            self._delivered[status.name] = status.delivered
            positions.setdefault(status.group, set()).add(status.delivered)
        return all(len(each) == 1 for each in positions.values())

    async def drain(self, timeout: float = 10.0) -> bool:
        """Waits until it is drained twice in a row, since a message may be between two groups. False if time is up."""
        deadline = time.monotonic() + timeout
        drained = 0
        while drained < 2:
            drained = drained + 1 if await self.is_drained() else 0
            if time.monotonic() > deadline:
                return False
            await asyncio.sleep(0.1)
        return True

    # -- asking

    def client(self, **settings: Any) -> AsyncClient:
        return connect(self.config, **{"token": self._token(), "history": self.history_folder, **settings})

    def credentials(self) -> Credentials:
        """With which the tools of this cluster connect."""
        return seeds_and_credentials(self.config, token=self._token())[1]

    def _token(self) -> str:
        return operator_token(self.config) if self.token is None else self.token

    async def statuses(self) -> dict[str, Status | None]:
        """None for a process that does not answer. If this program may not ask, it raises why."""
        return await self._ask_all(lambda observer, process: observer.status(process))

    async def placements(self, object_name: str, moves: int) -> dict[str, Placement | None]:
        """The same, of where an object is; without one, of how placement goes."""
        return await self._ask_all(lambda observer, process: observer.placement(process, object_name, moves))

    async def _ask_all(self, ask: Callable[[Observer, ProcessId], Awaitable[Answer]]) -> dict[str, Answer | None]:
        found: dict[str, Answer | None] = dict.fromkeys(self.names)
        asking = observe(self.config, token=self._token())  # a wrong token or certificate is no sign of a process
        try:
            async with asking as observer:
                ids = self.config.ids()
                answers = await asyncio.gather(
                    *(ask(observer, ids[name]) for name in self.names), return_exceptions=True
                )
        except NotWelcomeError:
            raise
        except UsageError:
            return found
        for name, answer in zip(self.names, answers, strict=True):
            found[name] = None if isinstance(answer, BaseException) else answer
        return found

    async def wait_until_ready(self, timeout: float = 30.0, progress: Callable[[int], None] | None = None) -> None:
        """Waits until every process answers, all links are up and every group has a leader."""
        deadline = time.monotonic() + timeout
        while True:
            statuses = await self.statuses()
            ready = [s for s in statuses.values() if s is not None and all(s.peers.values())]
            if progress is not None:
                progress(len(ready))
            leading = {status.name for status in ready if status.is_leader}
            if len(ready) == len(self.names) and all(status.leader in leading for status in ready):
                return
            self._check_processes()
            if time.monotonic() > deadline:
                silent = [name for name, status in statuses.items() if status is None]
                what = f"no answer from {', '.join(silent)}" if silent else "no leader in some group"
                problems = [f"{s.name}: {s.problem}" for s in statuses.values() if s is not None and s.problem]
                what = "; ".join([what, *problems])
                raise UsageError(f"the cluster is not ready after {timeout:g} s: {what}; see {self.folder / 'logs'}")
            await asyncio.sleep(0.1)

    def _check_processes(self) -> None:
        """Nobody needs to wait for a process that has ended."""
        for name in self._found_running:
            if self.pid(name) is None:
                words = self.last_words(name) or "no word"
                raise UsageError(f"{name} has ended meanwhile: {words}; `amcast up` starts it again")
        for name, child in self._children.items():
            if child.poll() not in (None, 0, -signal.SIGKILL):
                words = self.last_words(name) or "no word"
                raise UsageError(f"{name} ended with code {child.returncode}: {words}")
