"""The plan of a study, and the cells that it is made of."""

from __future__ import annotations

import hashlib
import math
from itertools import product
from pathlib import Path
from typing import Any

import msgspec

from .. import __version__
from ..core import UsageError
from ..protocols import protocol, select
from ..sim import CpuCost, Scenario, scenario
from ..workload import AnyWorkload, Micro, parse_destinations

CELLS_MAX = 100_000
_MESSAGES_MAX = 1_000_000  # of a cell: its trace must fit into the memory of one process
_PROCESSES_MAX = 10_000  # of a cell, with its clients
_FILE_BYTES_MAX = 1 << 20


class Study(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Every combination of the lists is run with every seed."""

    protocols: tuple[str, ...] = ("basecast", "fastcast", "multipaxos")  # ("all",): all that there are
    destinations: tuple[int | str, ...] = (1, 2)  # groups that a message goes to: 2, or "1-3"
    workloads: tuple[AnyWorkload, ...] = ()  # instead of messages of one size to so many groups
    networks: tuple[str, ...] = ("wan",)
    client_regions: tuple[str, ...] = ()  # all clients in this region; none: in all regions, in turn
    clients: tuple[int, ...] = (1, 4, 16)
    outstanding: tuple[int, ...] = (1,)  # messages that each client has in flight
    rates: tuple[float, ...] = ()  # instead: messages a second by all clients together, whatever comes back
    seeds: int = 3
    first_seed: int = 1
    groups: int = 4
    replicas: int | None = None  # None: the protocol's usual number
    messages: int = 100  # by all clients of a cell together
    payload_bytes: int = 64
    cpu_us: float = 0  # to receive or send a message; 0: machines are infinitely fast


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a study."""

    protocol: str
    destinations: str  # groups that a message goes to; of a workload its title
    network: str
    client_region: str | None
    clients: int
    outstanding: int | None  # None: open loop
    rate_per_s: float | None  # None: closed loop
    seed: int
    groups: int
    replicas: int
    messages: int
    payload_bytes: int
    cpu_us: float
    workload: AnyWorkload | None = None  # None: messages of one size to so many groups

    def key(self) -> str:
        """Equal for cells that have equal results."""
        document = msgspec.json.encode((__version__, self), order="deterministic")
        return hashlib.sha256(document).hexdigest()[:24]

    def title(self) -> str:
        load = f"{self.outstanding} outstanding" if self.rate_per_s is None else f"{self.rate_per_s:g} messages/s"
        where = f" in {self.client_region}" if self.client_region is not None else ""
        to = f"{self.destinations} of" if self.workload is None else f"{self.destinations} on"
        return f"{self.protocol}, {to} {self.groups} groups, {self.network}, " + (
            f"{self.clients} clients{where}, {load}, seed {self.seed}"
        )

    def scenario(self) -> Scenario:
        interval_us = 0 if self.rate_per_s is None else max(1, round(self.clients * 1e6 / self.rate_per_s))
        return scenario(
            self.protocol,
            self.network,
            groups=self.groups,
            replicas=self.replicas,
            clients=self.clients,
            client_region=self.client_region,
            messages=self.messages,
            outstanding=self.outstanding or 1,
            interval_us=interval_us,
            workload=self.workload or self._micro(),
            cpu=CpuCost(round(self.cpu_us * 1000), round(self.cpu_us * 1000)),
            seed=self.seed,
        )

    def _micro(self) -> Micro:
        return Micro(*parse_destinations(self.destinations), self.payload_bytes, own_stream=True)


def cells_of(study: Study) -> list[Cell]:
    """In the order of the table. Raises what is wrong with the study, before anything runs."""
    _check(study)
    dimensions: dict[str, list[Any]] = {
        "protocols": [spec.name for name in study.protocols for spec in select(name)],
        "workloads" if study.workloads else "destinations": _loads_of(study),
        "networks": list(study.networks),
        "client_regions": list(study.client_regions) or [None],
        "clients": list(study.clients),
        "rates": [float(rate) for rate in study.rates] or [None],
        "outstanding": [None] if study.rates else list(study.outstanding),
        "seeds": list(range(study.first_seed, study.first_seed + study.seeds)),
    }
    for name, values in dimensions.items():
        _check_values(name, values)
    count = math.prod(len(values) for values in dimensions.values())
    if count > CELLS_MAX:
        raise UsageError(f"this study has {count:,} cells, and {CELLS_MAX:,} are allowed: use fewer values or seeds")
    made = [
        Cell(
            protocol=name,
            destinations=load[0],
            workload=load[1],
            network=network,
            client_region=region,
            clients=clients,
            outstanding=outstanding,
            rate_per_s=rate,
            seed=seed,
            groups=study.groups,
            replicas=study.replicas or protocol(name).replicas,
            messages=study.messages,
            payload_bytes=study.payload_bytes,
            cpu_us=study.cpu_us,
        )
        for name, load, network, region, clients, rate, outstanding, seed in product(*dimensions.values())
    ]
    for cell in made:
        if cell.seed == study.first_seed:  # nothing that can be wrong depends on the seed
            cell.scenario()
    return made


def _loads_of(study: Study) -> list[tuple[str, AnyWorkload | None]]:
    """The destinations, or the workloads in place of them."""
    if not study.workloads:
        return [(str(each), None) for each in study.destinations]
    if study.destinations != Study().destinations or study.payload_bytes != Study().payload_bytes:
        raise UsageError("destinations and payloads are the workload's own: leave them out, or the workloads")
    return [(each.title(), each) for each in study.workloads]


def _check(study: Study) -> None:
    numbers: dict[str, tuple[float, float, float]] = {
        "seeds": (study.seeds, 1, CELLS_MAX),
        "first_seed": (study.first_seed, 0, 1 << 53),
        "groups": (study.groups, 1, 1_000),
        "replicas": (study.replicas or 1, 1, 101),
        "messages": (study.messages, 1, _MESSAGES_MAX),
        "cpu_us": (study.cpu_us, 0, 1e6),
        **{f"clients {number}": (number, 1, _PROCESSES_MAX) for number in study.clients},
        **{f"outstanding {number}": (number, 1, _MESSAGES_MAX) for number in study.outstanding},
        **{f"rates {number:g}": (number, 0.001, 1e9) for number in study.rates},
    }
    for name, (value, low, high) in numbers.items():
        if not low <= value <= high:
            raise UsageError(f"{name}: {value:g} is out of range, which is {low:g} to {high:g}")
    if study.rates and study.outstanding != Study().outstanding:
        raise UsageError("a load is a rate or a number of outstanding messages: give one of the two")
    for name in study.protocols:
        size = (study.replicas or (1 if name == "all" else protocol(name).replicas)) * study.groups
        if size + max(study.clients, default=0) > _PROCESSES_MAX:
            raise UsageError(f"a cell has more than {_PROCESSES_MAX:,} processes and clients: use fewer of them")


def _check_values(name: str, values: list[Any]) -> None:
    if not values:
        raise UsageError(f"{name}: there is no value; name one at least")
    for at, value in enumerate(values):
        if value in values[:at]:
            shown = value[0] if isinstance(value, tuple) else value
            raise UsageError(f"{name}: {shown} is named twice; name each value once")


def read_study(path: Path) -> Study:
    """From a TOML file, whose keys are the fields of `Study`."""
    try:
        with path.open("rb") as file:
            content = file.read(_FILE_BYTES_MAX + 1)
    except OSError as error:
        raise UsageError(f"can't read {path}: {error.strerror}") from error
    if len(content) > _FILE_BYTES_MAX:
        raise UsageError(f"{path} is no plan of a study: it has more than {_FILE_BYTES_MAX:,} bytes")
    try:
        return msgspec.toml.decode(content, type=Study)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        known = ", ".join(Study.__struct_fields__)
        hint = f"; its keys are {known}" if "unknown field" in str(error) else ""
        raise UsageError(f"{path} is no plan of a study: {str(error).splitlines()[0]}{hint}") from error
