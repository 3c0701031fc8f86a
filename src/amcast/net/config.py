"""`cluster.toml`: which processes there are, where they listen, and how they run. Every node reads the same file."""

from __future__ import annotations

import json
import re
import tomllib
from collections import Counter
from collections.abc import Iterator
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from ..consensus import PaxosConfig
from ..core import BATCH_LIMIT, GroupId, Latency, ProcessId, Topology, UsageError, latency_preset
from ..core.ids import CLIENT_ID_LIMIT, PROCESS_ID_LIMIT
from ..core.message import PAYLOAD_LIMIT
from ..protocols import ClientConfig, ProtocolSpec, ReplicaConfig, protocol
from .disk.records import SEGMENT_BYTES, Durability

PROCESSES_MAX = 1_024

_PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")  # as certificates can carry it
_KEY = re.compile(r"[0-9a-f]{64}")
_NAME = re.compile(r"g([1-9][0-9]{0,4})\.p([0-9]{1,3})")

# docs/configuration.md is made of the structs below: of their docstrings, and of the comments that follow or precede a
# field. A type says which unit a number has, and which numbers are refused.
Count = Annotated[int, Meta(ge=1)]
CountOrNone = Annotated[int, Meta(ge=0)]
Bytes = Annotated[int, Meta(ge=1)]
PayloadBytes = Annotated[int, Meta(ge=1, le=PAYLOAD_LIMIT)]
Milliseconds = Annotated[int, Meta(ge=1)]
BytesOrAll = Annotated[int, Meta(ge=0)]
SecondsOrAll = Annotated[int, Meta(ge=0)]
Port = Annotated[int, Meta(ge=0, le=65_535)]


class ProcessConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One process: an entry for each. Its group and its place in it are in its id: `g2.p0` is the first of group g2."""

    # As g1.p0: groups from g1 on, members from p0 on, without gaps. Each group has an odd number of members, or 3f+1 if
    # the protocol survives f that lie.
    id: str
    address: str  # as host:port: where it listens, and where all others reach it
    region: str = "local"  # where it is, for the delays that `network` adds between regions
    # The port of the page for Prometheus; 0: none. It is at the host of `address` on loopback and with TLS, where a
    # client's certificate is asked for; otherwise at 127.0.0.1.
    metrics: Port = 0
    clock_offset_us: int = 0  # added to the clock that the protocol reads: emulates clocks that disagree
    key: str = ""  # if the protocol survives liars: the public key of what it signs, as `amcast keys` prints it


class TlsFiles(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A folder as `amcast certs` makes it; each process finds its own key there by its name."""

    folder: str  # relative to this file


class ClientLimits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Of one client at one node, however many connections it has. An entry in the file of tokens may say otherwise.

    A client is known by its token; without tokens, by its certificate; without those as well, by its address.
    """

    sessions: Count = 2_048  # senders that are connected at a time
    followers: Count = 32  # connections that follow deliveries
    open_messages: Count = 50_000  # as in `[limits]`: above, this client hears BUSY, and others do not
    open_bytes: Bytes = 64 << 20  # the same, in bytes
    messages_per_second: CountOrNone = 0  # above, nothing is read from the client for a while; 0: as many as it can


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What one node holds at most. What is above a limit is refused or made to wait by itself."""

    message_bytes: PayloadBytes = PAYLOAD_LIMIT  # of one payload: above, the connection is closed
    open_messages: Count = 100_000  # taken from clients and not replied to yet: above, clients hear BUSY
    open_bytes: Bytes = 128 << 20  # the same, in bytes
    forwarded_messages: Count = 1_000  # passed on to a leader and not delivered yet: above, clients hear BUSY
    forwarded_bytes: Bytes = 4 << 20  # the same, in bytes
    # As `forwarded_messages`, in protocols whose clients send each message to all its groups. Too little, and each
    # group may wait for messages that another one has no room for.
    ingress_messages: Count = 100_000
    ingress_bytes: Bytes = 128 << 20  # the same, in bytes
    queries: Count = 10_000  # of clients, that wait for an answer: above, clients hear BUSY
    queries_bytes: Bytes = 32 << 20  # the same, in bytes
    link_bytes: Bytes = 8 << 20  # waiting for one peer: above, messages to it are dropped, and sent again later
    client_bytes: Bytes = 1 << 20  # waiting for one client: above, nothing is read from it until it has read
    clients_bytes: Bytes = 64 << 20  # waiting for all clients: above, those that read least are cut off
    slow_ms: Milliseconds = 10_000  # a client that lets so much time pass, while too much waits for it, is cut off
    clients: Count = 4_096  # sessions of all clients
    followers: Count = 128  # connections that follow deliveries
    connections: Count = 2_048  # accepted and open, of everybody
    connections_per_address: Count = 1_024  # of one address; an IPv6 network of 64 bits counts as one
    strangers: Count = 256  # connections that have not said HELLO yet
    hello_ms: Milliseconds = 5_000  # for a TLS handshake, and again for HELLO
    snapshot_messages: Count = 100_000  # applied between two snapshots of an application
    results_bytes: Bytes = 64 << 20  # answers of an application that are kept for clients that ask again
    reads_bytes: Bytes = 16 << 20  # what applications told each other: above, it is kept as briefly as it can be
    segment_bytes: Bytes = SEGMENT_BYTES  # of a file of a log: a full one is followed by another
    undurable_bytes: Bytes = 64 << 20  # waiting for the disk: above, a node reads nothing that would add to it
    trace_bytes: BytesOrAll = 1_000_000_000  # of the trace of one process: above, the oldest goes; 0: all is kept
    trace_age_s: SecondsOrAll = 7 * 86_400  # what was traced before goes; 0: it is kept, whatever its age
    client: ClientLimits = ClientLimits()  # see below


class ClusterConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """At the top of the file, before the first line in brackets."""

    cluster: str  # the cluster's name; with TLS, certificates carry it
    id: str = ""  # drawn at random when the cluster is made: tells it from others of the same name
    protocol: str  # see `amcast protocols`
    process: tuple[ProcessConfig, ...]  # `[[process]]`, see below
    network: str = "none"  # delays added in the links: none, or a network of `amcast sim`, such as wan
    # When a record counts: `sync`, when it is on the disk; `async`, when the kernel has it, which a power failure may
    # lose; `memory`, at once, and the replicas in memory are all there is.
    durability: Durability = Durability.SYNC
    data: str = "data"  # a folder, relative to this file; each process has its own in it
    trace: bool = False  # record what is multicast and delivered, for `amcast check`; it grows with every message
    trace_wire: bool = False  # also record wire messages
    keep_messages: CountOrNone = 10_000_000  # delivered messages kept for clients that follow
    # When clocks start at 0, in Unix seconds. Some protocols order by time, and their timestamps hold four years.
    epoch_s: int = 1_767_225_600
    app: str = ""  # the application inside each process, as module:Factory or path/file.py:Factory
    options: dict[str, Any] = {}  # the protocol's own, see below
    limits: Limits = Limits()  # see below
    tls: TlsFiles | None = None  # see below; without it, nodes listen on loopback alone
    # A folder, relative to this file, if the protocol survives liars: g1.p0 signs with the private key in g1.p0.key
    # there, and no other machine needs that file.
    keys: str = "keys"
    tokens: str | None = None  # a file as `amcast token add` makes it; without one, clients may do everything
    insecure: bool = False  # lets nodes listen on other addresses than loopback without TLS
    folder: str = "."  # in which the file is; like its name, not written in it
    name: str | None = None

    # -- what follows from it

    def spec(self) -> ProtocolSpec:
        return protocol(self.protocol)

    @property
    def survives_liars(self) -> bool:
        try:
            return self.spec().survives_liars
        except UsageError:  # there is no such protocol
            return False

    @property
    def file(self) -> Path | None:
        return None if self.name is None else self.path(self.name)

    def path(self, name: str) -> Path:
        return Path(self.folder) / name

    def data_folder(self, name: str) -> Path:
        return self.path(self.data) / name

    def process_named(self, name: str) -> ProcessConfig:
        for entry in self.process:
            if entry.id == name:
                return entry
        known = ", ".join(entry.id for entry in self.process)
        raise UsageError(f"there is no process '{name}' in this cluster: it has {known}")

    def process_id(self, name: str) -> ProcessId:
        return self.ids()[self.process_named(name).id]

    def ids(self) -> dict[str, ProcessId]:
        """Numbered densely by group and index, whatever the order in the file."""
        return {entry.id: number for number, entry in enumerate(sorted(self.process, key=lambda e: split_name(e.id)))}

    def client_ids(self, process: ProcessId) -> range:
        """The client ids that this process may give out: all above the ids of processes, divided evenly."""
        each = (CLIENT_ID_LIMIT - PROCESS_ID_LIMIT) // len(self.process)
        first = PROCESS_ID_LIMIT + process * each
        return range(first, first + each)

    def topology(self) -> Topology:
        ids = self.ids()
        members: dict[GroupId, list[ProcessId]] = {}
        regions: dict[ProcessId, str] = {}
        for entry in sorted(self.process, key=lambda e: split_name(e.id)):
            members.setdefault(split_name(entry.id)[0], []).append(ids[entry.id])
            regions[ids[entry.id]] = entry.region
        return Topology(members, (), regions)

    def addresses(self) -> dict[ProcessId, tuple[str, int]]:
        ids = self.ids()
        return {ids[entry.id]: split_address(entry.address) for entry in self.process}

    def latency(self) -> Latency | None:
        return None if self.network == "none" else latency_preset(self.network)

    def replica_config(self) -> ReplicaConfig:
        return replica_config(self.protocol, self.network, self.options)

    # -- checks

    def check(self, are_keys_made: bool = True) -> None:
        """Raises the first problem."""
        for problem in self.problems(are_keys_made):
            raise UsageError(problem)

    def problems(self, are_keys_made: bool = True) -> Iterator[str]:
        """All that is wrong with it by itself; `config_check.py` also looks at the files that it names."""
        for part in (self.spec, self.latency, self.replica_config):
            try:
                part()
            except UsageError as error:
                yield str(error)
                if part == self.spec:  # what follows asks it
                    break
        yield from self._problems_of_processes()
        if self.survives_liars and are_keys_made:
            yield from self._problems_of_keys()
        if self.tls is None and self.tokens is not None:
            yield "tokens are of no use without TLS: whoever listens can read them; add [tls]"
        if self.tls is not None and _PLAIN_NAME.fullmatch(self.cluster) is None:
            yield (
                f"with TLS, certificates carry the cluster's name, and '{self.cluster}' does not fit: use letters,"
                " digits, '.', '_' and '-', at most 64"
            )

    def _problems_of_processes(self) -> Iterator[str]:
        if len(self.process) > PROCESSES_MAX:
            yield f"{len(self.process)} processes are too many: the limit is {PROCESSES_MAX}"
            return
        names, addresses = Counter(each.id for each in self.process), Counter(each.address for each in self.process)
        for name, times in names.items():
            if times > 1:
                yield f"process {name} is named twice: give each process an id of its own"
        for address, times in addresses.items():
            if times > 1:
                yield f"two processes have the address {address}: each needs a port of its own"
        are_names = True
        for entry in self.process:
            for split, text in ((split_name, entry.id), (split_address, entry.address)):
                try:
                    split(text)
                except UsageError as error:
                    yield str(error)
                    are_names = are_names and split is not split_name
        if are_names:
            yield from self._problems_of_groups()

    def is_exposed(self, name: str) -> bool:
        """Whether a process listens where strangers may reach it, and asks nobody who they are."""
        return self.tls is None and not is_loopback(split_address(self.process_named(name).address)[0])

    def check_exposure(self, name: str) -> None:
        """Before a process listens."""
        if self.is_exposed(name) and not self.insecure:
            address = self.process_named(name).address
            raise UsageError(
                f"{name} would listen on {address} without TLS, and whoever reaches it may do everything: add [tls], or"
                " use --insecure (or insecure = true in cluster.toml) if the network is closed"
            )

    def _problems_of_groups(self) -> Iterator[str]:
        members: dict[GroupId, set[int]] = {}
        for entry in self.process:
            group, index = split_name(entry.id)
            members.setdefault(group, set()).add(index)
        for group in range(1, max(members, default=0) + 1):
            if group not in members:
                yield f"group g{group} has no members: number groups from g1 on, without gaps"
        for group, indices in sorted(members.items()):
            if sorted(indices) != list(range(len(indices))):
                yield f"the members of g{group} are not p0 to p{len(indices) - 1}: number them without gaps"
            yield from self._problems_of_size(group, len(indices))
        if not members:
            yield "there is no process in this cluster: add [[process]] entries"

    def _problems_of_size(self, group: GroupId, size: int) -> Iterator[str]:
        try:
            problem = self.spec().problem_with_size(size)
        except UsageError:  # it is told already
            return
        if problem is not None:
            yield f"group g{group} has {size} members: such groups {problem}"

    def _problems_of_keys(self) -> Iterator[str]:
        for entry in self.process:
            if _KEY.fullmatch(entry.key) is None:
                why = "has no signing key" if not entry.key else "has a signing key that is none"
                yield f"{entry.id} {why}: put the line there that `amcast keys {entry.id}` prints on its machine"


def _rtt_us(network: str) -> int:
    return 0 if network == "none" else latency_preset(network).rtt_max_us()


def replica_config(protocol_name: str, network: str, options: dict[str, Any]) -> ReplicaConfig:
    """Timeouts for real machines: the scheduler may keep a process waiting for tens of milliseconds."""
    rtt = _rtt_us(network)
    paxos = PaxosConfig(
        tick_us=max(50_000, rtt // 2), election_ticks=10, retransmit_ticks=4, window=32, snapshot_every=20_000
    )
    fields: dict[str, Any] = {"paxos": paxos, "resend_us": max(300_000, 4 * rtt)}
    try:
        return msgspec.convert({**fields, **options}, protocol(protocol_name).config)
    except msgspec.ValidationError as error:
        raise UsageError(f"[options] does not suit {protocol_name}: {error}") from error


def client_config(network: str) -> ClientConfig:
    return ClientConfig(retry_us=max(500_000, 6 * _rtt_us(network)), batch=BATCH_LIMIT)


def split_name(name: str) -> tuple[GroupId, int]:
    match = _NAME.fullmatch(name)
    if match is None:
        raise UsageError(f"'{name}' is no process name: use for example g1.p0")
    return int(match[1]), int(match[2])


def split_address(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65_536:
        raise UsageError(f"'{address}' is no address: use host:port, for example 127.0.0.1:7101")
    return host.strip("[]"), int(port)


def is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:  # a name, of which nobody knows where it leads
        return False


def read_toml(path: Path) -> dict[str, Any]:
    """The fields of a configuration, before anybody looked at them."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"can't read {path}: {error.strerror}; `amcast up` makes one") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8 text") from error
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path}: {error}") from error


def convert_config(fields: dict[str, Any], path: Path) -> ClusterConfig:
    return msgspec.convert({**fields, "folder": str(path.parent.resolve()), "name": path.name}, ClusterConfig)


def load_config(path: Path) -> ClusterConfig:
    fields = read_toml(path)
    try:
        config = convert_config(fields, path)
        config.check()
    except (msgspec.ValidationError, UsageError) as error:
        raise UsageError(f"{path}: {error}") from error
    return config


def format_config(config: ClusterConfig) -> str:
    names = ["cluster", "id", "protocol", "network", "durability", "data", "trace", "trace_wire"]
    lines = [f"{name} = {_toml(getattr(config, name))}" for name in (*names, "keep_messages", "epoch_s")]
    if config.app:
        lines.append(f"app = {_toml(config.app)}")
    if config.survives_liars:
        lines.append(f"keys = {_toml(config.keys)}")
    if config.insecure:
        lines.append("insecure = true")
    if config.tokens is not None:
        lines.append(f"tokens = {_toml(config.tokens)}")
    for title, table in (("options", config.options), ("limits", msgspec.to_builtins(config.limits))):
        lines += ["", f"[{title}]", *(f"{name} = {_toml(value)}" for name, value in table.items())]
    if config.tls is not None:
        lines += ["", "[tls]", f"folder = {_toml(config.tls.folder)}"]
    for entry in config.process:
        fields = msgspec.to_builtins(entry)
        if not entry.key:
            del fields["key"]
        lines += ["", "[[process]]", *(f"{name} = {_toml(value)}" for name, value in fields.items())]
    return "\n".join(lines) + "\n"


def _toml(value: Any) -> str:
    """Strings, numbers, booleans and lists are written as in JSON; tables have an equals sign for JSON's colon."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_toml(name)} = {_toml(each)}" for name, each in value.items()) + "}"
    # TOML has no surrogate pairs, which is what JSON escapes make of an emoji, and forbids DEL.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
