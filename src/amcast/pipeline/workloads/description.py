"""Reads the tables of a workload and compares what they have with what their plan states."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from ...core import UsageError
from ...workload.gtpcc import QUANTITY_MAX, UNUSED_SHARE, WAREHOUSES_MAX, kinds_of, rank_shares
from ...workload.transactions import UNUSED_ITEM
from ._chances import Finding, of_one, of_shares, of_total, order_shares
from .gtpcc import KINDS, NEW_ORDER, PAYMENT, Int64s, places_of
from .make import FOLLOWERS, TRANSACTIONS, USERS, Progress, block_file, in_blocks, task_of
from .plan import GtpccTables, SocialTables, read_plan

Counts = dict[str, dict[str, int]]  # what is counted -> each value -> how often it came
_FAR_MOST = 3  # items of an order from other warehouses: so many and more are counted as one


class Description(msgspec.Struct, frozen=True):
    plan: GtpccTables | SocialTables
    rows: dict[str, int]  # of each table
    findings: list[Finding]
    facts: dict[str, Any]  # what is not stated, and follows: such as how many users have followers in two groups

    @property
    def verdict(self) -> str:
        return "fail" if any(each.verdict == "fail" for each in self.findings) else "pass"


def describe_tables(spark: SparkSession, folder: Path, progress: Progress) -> Description:
    plan = read_plan(folder)
    if isinstance(plan, GtpccTables):
        counts = _summed(in_blocks(spark, plan, plan.blocks, folder, _count_transactions, progress))
        return Description(plan, {TRANSACTIONS: sum(counts["kind"].values())}, *_judge_gtpcc(plan, counts))
    counts = _summed(in_blocks(spark, plan, plan.workload.graph().blocks, folder, _count_users, progress))
    rows = {FOLLOWERS: sum(counts["kind"].values()), USERS: sum(counts["groups"].values())}
    return Description(plan, rows, *_judge_social(plan, counts))


def _summed(answers: list[str]) -> Counts:
    found: dict[str, Counter[str]] = {}
    for answer in answers:
        for name, counts in msgspec.json.decode(answer, type=Counts).items():
            found.setdefault(name, Counter()).update(counts)
    return {name: dict(counts) for name, counts in found.items()}


def _counted(**values: np.ndarray[Any, Any]) -> str:
    """As JSON; numbers are texts there."""
    found: Counts = {}
    for name, each in values.items():
        things, counts = np.unique(each, return_counts=True)
        found[name] = {str(thing): int(count) for thing, count in zip(things.tolist(), counts, strict=True)}
    return msgspec.json.encode(found).decode()


def _read(folder: Path, table: str, block: int) -> pa.Table:
    path = block_file(folder, table, block)
    try:
        return pq.read_table(path)
    except (OSError, pa.ArrowException) as error:
        raise UsageError(f"{path} can't be read: {str(error).splitlines()[0]}") from error


def _values(table: pa.Table, name: str) -> Int64s:
    column = table.column(name).combine_chunks()
    if pa.types.is_list(column.type):
        column = column.flatten()
    values: Int64s = np.asarray(column.to_numpy(zero_copy_only=False)).astype(np.int64)
    return values


def _lengths(table: pa.Table, name: str) -> Int64s:
    lengths: Int64s = np.diff(table.column(name).combine_chunks().offsets.to_numpy()).astype(np.int64)
    return lengths


# -- gTPC-C


def _count_transactions(text: str) -> str:
    plan, block, folder = task_of(text)
    assert isinstance(plan, GtpccTables)
    table, places = _read(folder, TRANSACTIONS, block), places_of(plan)
    kind, home = _values(table, "kind"), _values(table, "home")
    counts = _lengths(table, "item")
    row = np.repeat(np.arange(len(kind)), counts)
    supplier, item = _values(table, "supplier"), _values(table, "item")
    is_remote = supplier != home[row]
    orders = kind == NEW_ORDER
    far = np.bincount(row[is_remote], minlength=len(kind))[orders]
    paid, customers = kind == PAYMENT, _values(table, "customer_warehouse")
    paid_far = paid & (customers != home)
    last = (np.cumsum(counts) - 1)[orders]
    return _counted(
        kind=kind,
        order=100 * counts[orders] + np.minimum(far, _FAR_MOST),
        order_rank=places.rank(home[row[is_remote]], supplier[is_remote]),
        payment=paid_far[paid],
        payment_rank=places.rank(home[paid_far], customers[paid_far]),
        quantity=_values(table, "quantity"),
        unused=item[last] == UNUSED_ITEM,
        destinations=_lengths(table, "dst"),
    )


def _judge_gtpcc(plan: GtpccTables, counts: Counts) -> tuple[list[Finding], dict[str, Any]]:
    workload = plan.workload
    others, is_global = places_of(plan).nearest.shape[1], workload.mix == "global"
    weights = kinds_of(workload.mix)
    shares: dict[str, float] = {kind: weight / sum(weights.values()) for kind, weight in weights.items()}
    ranks = {str(rank): share for rank, share in enumerate(rank_shares(workload.locality, others))}
    quantities = {str(number): 1 / QUANTITY_MAX for number in range(1, QUANTITY_MAX + 1)}
    items, far = _order_counts(counts["order"])
    remote = workload.remote_items if others else 0.0
    items_stated, far_stated = _order_stated(order_shares(remote, workload.locality, others, is_global))
    findings = [
        of_shares("transactions", {KINDS[int(kind)]: n for kind, n in counts["kind"].items()}, shares),
        of_shares("items of a new order", items, items_stated),
        of_shares("items from other warehouses", far, far_stated),
        of_shares("quantity of an item", counts["quantity"], quantities),
        _of_true("orders for an unused item", counts["unused"], UNUSED_SHARE),
        _of_true("customers of other warehouses", counts["payment"], _remote_payments(plan, others)),
        of_shares("nearness of a customer's warehouse", counts["payment_rank"], ranks),
    ]
    if not is_global:  # there the orders with many warehouses are left out, and the far ones with them
        findings.append(of_shares("nearness of a supplier", counts["order_rank"], ranks))
    sizes = {str(size): counts["destinations"][size] for size in sorted(counts["destinations"], key=int)}
    if is_global:
        allowed = sum(count for size, count in sizes.items() if 2 <= int(size) <= WAREHOUSES_MAX)
        findings.append(of_one("transactions to two or three warehouses", allowed, sum(sizes.values()), 1.0))
    return findings, {"transactions_by_destinations": sizes}


def _remote_payments(plan: GtpccTables, others: int) -> float:
    if plan.workload.mix == "global":
        return 1.0
    return plan.workload.remote_payments if others else 0.0


def _of_true(name: str, counts: Mapping[str, int], share: float) -> Finding:
    return of_one(name, counts.get("True", 0), sum(counts.values()), share)


def _order_counts(counts: Mapping[str, int]) -> tuple[dict[str, int], dict[str, int]]:
    items, far = Counter[str](), Counter[str]()
    for key, count in counts.items():
        items[str(int(key) // 100)] += count
        far[str(int(key) % 100)] += count
    return dict(items), dict(far)


def _order_stated(shares: Mapping[tuple[int, int], float]) -> tuple[dict[str, float], dict[str, float]]:
    items: dict[str, float] = {}
    far: dict[str, float] = {}
    for (number, remote), share in shares.items():
        items[str(number)] = items.get(str(number), 0.0) + share
        most = str(min(remote, _FAR_MOST))
        far[most] = far.get(most, 0.0) + share
    return items, far


# -- the social network


def _count_users(text: str) -> str:
    plan, block, folder = task_of(text)
    assert isinstance(plan, SocialTables)
    followers, users = _read(folder, FOLLOWERS, block), _read(folder, USERS, block)
    near = np.asarray(followers.column("near").combine_chunks().to_numpy(zero_copy_only=False))
    user = _values(followers, "user") - _values(users, "user")[0]
    return _counted(
        kind=near,
        near=np.bincount(user[near], minlength=users.num_rows),
        groups=_values(users, "groups"),
        grp=_values(users, "grp"),
    )


def _judge_social(plan: SocialTables, counts: Counts) -> tuple[list[Finding], dict[str, Any]]:
    graph = plan.workload.graph()
    shares = {str(number): float(share) for number, share in enumerate(graph.follower_shares(), 1)}
    near = sum(int(number) * count for number, count in counts["near"].items())
    # A user that is drawn from all may be near already, or the user itself: it is not drawn again.
    fresh = 1 - (near + graph.users) / graph.users**2
    far = counts["kind"].get("False", 0)
    findings = [
        of_shares("followers near by", counts["near"], shares),
        of_total("followers anywhere", far, graph.users * graph.far * fresh),
    ]
    sizes = list(counts["grp"].values())
    facts = {
        "users_by_groups_of_followers": {n: counts["groups"][n] for n in sorted(counts["groups"], key=int)},
        "largest_group": max(sizes),
        "smallest_group": min(sizes) if len(sizes) == plan.groups else 0,
    }
    return findings, facts
