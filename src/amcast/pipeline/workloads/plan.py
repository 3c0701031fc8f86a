"""What tables of a workload are drawn from; `workload.json` in their folder says it."""

from __future__ import annotations

from pathlib import Path

import msgspec

from ...core import Latency, Topology, UsageError, grid, latency_preset
from ...workload import Gtpcc, Social

PLAN_FILE = "workload.json"
BLOCK = 250_000  # transactions that are drawn at a time
TRANSACTIONS_MAX = 10_000_000_000
_CLIENTS_MAX = 1_000_000
_GROUPS_MAX = 1_000
_FILE_BYTES_MAX = 1 << 20


class GtpccTables(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="gtpcc"):
    """Transaction n is of client n modulo `clients`."""

    workload: Gtpcc = Gtpcc()
    transactions: int = 1_000_000
    groups: int = 12
    network: str = "aws"  # how far warehouses are apart
    clients: int = 240
    seed: int = 1

    @property
    def blocks(self) -> int:
        return -(-self.transactions // BLOCK)

    def latency(self) -> Latency:
        return latency_preset(self.network)

    def topology(self) -> Topology:
        where = self.latency()
        homes = self.workload.homes(self.groups)
        return grid(self.groups, 1, self.clients, where.regions, where.spread, None, homes)

    def check(self) -> None:
        ranges = {
            "transactions": (self.transactions, 1, TRANSACTIONS_MAX),
            "groups": (self.groups, 1, _GROUPS_MAX),
            "clients": (self.clients, 1, _CLIENTS_MAX),
            "seed": (self.seed, 0, 1 << 53),
        }
        _check_ranges(ranges)
        self.workload.check(self.topology())


class SocialTables(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="social"
):
    workload: Social = Social()
    groups: int = 16

    def check(self) -> None:
        _check_ranges({"groups": (self.groups, 1, _GROUPS_MAX)})
        self.workload.check(grid(self.groups, 1))


Tables = GtpccTables | SocialTables


def _check_ranges(ranges: dict[str, tuple[int, int, int]]) -> None:
    for name, (value, low, high) in ranges.items():
        if not low <= value <= high:
            raise UsageError(f"{name}: {value:,} is out of range, which is {low:,} to {high:,}")


def encode_plan(plan: Tables) -> bytes:
    return msgspec.json.format(msgspec.json.encode(plan), indent=2) + b"\n"


def read_plan(folder: Path) -> Tables:
    path = folder / PLAN_FILE
    try:
        with path.open("rb") as file:
            content = file.read(_FILE_BYTES_MAX)
    except OSError as error:
        raise UsageError(f"{folder} has no tables of a workload: can't read {path}: {error.strerror}") from error
    try:
        plan: Tables = msgspec.json.decode(content, type=Tables)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"{path} describes no workload: {str(error).splitlines()[0]}") from error
    plan.check()
    return plan
