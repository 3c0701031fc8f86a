"""Tables of workloads: drawn as the streams draw, the same for any number of tasks, and judged by what is stated."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from scipy import stats

from amcast.core import UsageError
from amcast.pipeline.workloads import GtpccTables, SocialTables, description, make, make_gtpcc, read_plan
from amcast.pipeline.workloads._chances import SIGNIFICANCE, of_one, of_shares, of_total, order_shares
from amcast.pipeline.workloads.gtpcc import KINDS, BlockDrawing, places_of
from amcast.pipeline.workloads.plan import BLOCK, PLAN_FILE, encode_plan
from amcast.workload import Gtpcc, Seat, Social, stream_random
from amcast.workload.transactions import Delivery, NewOrder, OrderStatus, Payment, StockLevel, Transaction
from tests.cli.cli_harness import Cli

FULL = GtpccTables(workload=Gtpcc(locality=0.7), transactions=20_000, groups=4, network="sites", clients=8)
GLOBAL = msgspec.structs.replace(FULL, workload=Gtpcc(mix="global", locality=0.7))
ORDER = (NewOrder, Payment, OrderStatus, Delivery, StockLevel)


def scalar(plan: GtpccTables, count: int) -> list[Transaction]:
    """As many of each client's stream."""
    topology = plan.topology()
    geography = plan.workload.geography(topology, plan.latency())
    seats = [Seat(at, plan.clients, topology.region(client)) for at, client in enumerate(topology.clients)]
    streams = [plan.workload.stream(geography, seat, stream_random(5, seat.number)) for seat in seats]
    return [stream.next() for stream in streams for _ in range(count // plan.clients)]


def facts_of(plan: GtpccTables, transactions: Iterable[Transaction]) -> dict[str, Counter[int]]:
    places = places_of(plan)
    found: dict[str, Counter[int]] = {name: Counter() for name in ("kind", "items", "far", "rank", "quantity", "dst")}
    for each in transactions:
        found["kind"][ORDER.index(type(each))] += 1
        found["dst"][len(each.warehouses())] += 1
        others = []
        if isinstance(each, NewOrder):
            others = [line.supplier for line in each.lines if line.supplier != each.warehouse]
            found["items"][len(each.lines)] += 1
            found["far"][min(2, len(others))] += 1
            found["quantity"].update(line.quantity for line in each.lines)
        elif isinstance(each, Payment) and each.customer_warehouse != each.warehouse:
            others = [each.customer_warehouse]
        for other in others:
            found["rank"][int(places.rank(np.array([each.warehouse]), np.array([other]))[0])] += 1
    return found


def facts_of_table(plan: GtpccTables) -> dict[str, Counter[int]]:
    places = places_of(plan)
    found: dict[str, Counter[int]] = {name: Counter() for name in ("kind", "items", "far", "rank", "quantity", "dst")}
    for row in BlockDrawing(plan, 0).table().to_pylist():
        found["kind"][row["kind"]] += 1
        found["dst"][len(row["dst"])] += 1
        others = [each for each in (*row["supplier"], row["customer_warehouse"]) if each != row["home"]]
        if row["kind"] == 0:
            found["items"][len(row["item"])] += 1
            found["far"][min(2, len(others))] += 1
            found["quantity"].update(row["quantity"])
        for other in others:
            found["rank"][int(places.rank(np.array([row["home"]]), np.array([other]))[0])] += 1
        wanted = {row["home"], row["customer_warehouse"], *row["supplier"]}
        assert row["dst"] == sorted(wanted)
    return found


@pytest.mark.parametrize("plan", [FULL, GLOBAL], ids=["full", "global"])
def test_tables_and_streams_have_the_same_frequencies(plan: GtpccTables) -> None:
    one, other = facts_of(plan, scalar(plan, 8_000)), facts_of_table(plan)
    for name, counts in one.items():
        values = sorted(value for value in {*counts, *other[name]} if counts[value] + other[name][value] > 20)
        if len(values) > 1:
            table = [[found[value] for value in values] for found in (counts, other[name])]
            assert stats.chi2_contingency(table).pvalue > SIGNIFICANCE, (name, table)
        else:
            assert set(counts) == set(other[name])


def described(plan: Any, folder: Path, count: Callable[[str], str]) -> description.Counts:
    blocks = plan.blocks if isinstance(plan, GtpccTables) else plan.workload.graph().blocks
    tasks = [msgspec.json.encode(make._Task(plan, block, str(folder))).decode() for block in range(blocks)]
    return description._summed([count(task) for task in tasks])


@pytest.mark.parametrize("plan", [FULL, GLOBAL], ids=["full", "global"])
def test_a_table_is_as_stated_and_not_as_something_else(plan: GtpccTables, tmp_path: Path) -> None:
    (tmp_path / make.TRANSACTIONS).mkdir()
    task = msgspec.json.encode(make._Task(plan, 0, str(tmp_path))).decode()
    assert make._write_transactions(task) == "20000"
    counts = described(plan, tmp_path, description._count_transactions)
    findings, facts = description._judge_gtpcc(plan, counts)
    assert {each.verdict for each in findings} == {"pass"}, findings
    assert sum(facts["transactions_by_destinations"].values()) == 20_000
    for change, name in (
        (Gtpcc(locality=0.8, mix=plan.workload.mix), "nearness of a customer's warehouse"),
        (Gtpcc(locality=0.7, remote_items=0.1, mix=plan.workload.mix), "items from other warehouses"),
    ):
        wrong, _ = description._judge_gtpcc(msgspec.structs.replace(plan, workload=change), counts)
        assert name in {each.name for each in wrong if each.verdict == "fail"}


def test_the_shares_of_orders_are_exact() -> None:
    """By counting all orders with few items; and by what is known of all."""
    full = order_shares(0.02, 0.9, 11, is_global=False)
    assert sum(full.values()) == pytest.approx(1)
    assert sum(share for (items, _), share in full.items() if items == 7) == pytest.approx(1 / 11)
    assert sum(far * share for (_, far), share in full.items()) == pytest.approx(0.02 * 10)
    some = order_shares(0.5, 0.5, 3, is_global=True)
    rng = np.random.default_rng(1)
    counts = Counter[tuple[int, int]]()
    for _ in range(12_000):
        items = int(rng.integers(5, 16))
        far = rng.choice(3, rng.binomial(items, 0.5), p=[0.5, 0.25, 0.25])
        if 1 <= len(set(far.tolist())) <= 2:
            counts[items, len(far)] += 1
    found = of_shares(
        "orders", {str(key): count for key, count in counts.items()}, {str(key): share for key, share in some.items()}
    )
    assert found.verdict == "pass"


def test_what_hardly_comes_by_chance_fails() -> None:
    stated = {"a": 0.5, "b": 0.4, "c": 0.1, "d": 0.0}
    assert of_shares("x", {"a": 5_030, "b": 3_980, "c": 990}, stated).verdict == "pass"
    assert of_shares("x", {"a": 5_300, "b": 3_710, "c": 990}, stated).verdict == "fail"
    assert of_shares("x", {"a": 5_030, "b": 3_980, "c": 990, "d": 1}, stated).verdict == "fail"
    assert of_shares("x", {"a": 3, "b": 2}, stated).verdict == "pass"  # too few to say
    assert of_one("x", 1_500, 10_000, 0.15).verdict == "pass"
    assert of_one("x", 1_800, 10_000, 0.15).verdict == "fail"
    assert of_one("x", 9_999, 10_000, 1.0).verdict == "fail"
    assert of_total("x", 10_050, 10_000).verdict == "pass"
    assert of_total("x", 10_800, 10_000).verdict == "fail"


def test_a_graph_in_tables(tmp_path: Path) -> None:
    plan = SocialTables(workload=Social(users=12_000), groups=4)
    graph = plan.workload.graph()
    (tmp_path / make.FOLLOWERS).mkdir()
    for block in range(graph.blocks):
        make._write_followers(msgspec.json.encode(make._Task(plan, block, str(tmp_path))).decode())
    make._write_users(tmp_path, plan)
    counts = described(plan, tmp_path, description._count_users)
    findings, facts = description._judge_social(plan, counts)
    assert {each.verdict for each in findings} == {"pass"}, findings
    assert sum(facts["users_by_groups_of_followers"].values()) == 12_000
    assert facts["smallest_group"] > 2_800
    wrong = msgspec.structs.replace(plan, workload=Social(users=12_000, zipf=1.7))
    assert description._judge_social(wrong, counts)[0][0].verdict == "fail"


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "has no tables of a workload"),
        (b"{", "describes no workload"),
        (b'{"kind": "tpce"}', "describes no workload: Invalid value 'tpce'"),
        (b'{"kind": "gtpcc", "transactions": 0}', "transactions: 0 is out of range"),
        (b'{"kind": "gtpcc", "network": "moon"}', "there is no network 'moon'"),
    ],
)
def test_bad_plans_are_refused(content: bytes | None, says: str, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / PLAN_FILE).write_bytes(content)
    with pytest.raises(UsageError, match=says):
        read_plan(tmp_path)


def test_a_plan_can_be_read_again(tmp_path: Path) -> None:
    (tmp_path / PLAN_FILE).write_bytes(encode_plan(GLOBAL))
    assert read_plan(tmp_path) == GLOBAL


@pytest.mark.spark
def test_rows_do_not_depend_on_tasks(spark: SparkSession, tmp_path: Path) -> None:
    plan = msgspec.structs.replace(FULL, transactions=BLOCK + 1_000)
    told: list[int] = []
    make_gtpcc(spark, tmp_path / "w", plan, told.append)
    assert sum(told) == 2
    for block in range(2):
        written = pq.read_table(make.block_file(tmp_path / "w", make.TRANSACTIONS, block))
        assert written.equals(BlockDrawing(plan, block).table())
    assert KINDS[0] == "new order"


@pytest.mark.spark
def test_the_command_makes_and_describes(cli: Cli, tmp_path: Path) -> None:
    folder = tmp_path / "users"
    assert cli("workload", "make", "social", "--out", folder, "-w", "users=3000", "--groups", 3).code == 0
    found = cli("workload", "describe", folder, "--json")
    assert found.code == 0
    assert found.json["verdict"] == "pass"
    assert found.json["rows"]["users"] == 3_000
    assert "followers near by" in cli("workload", "describe", folder).out
    assert "is for gtpcc" in cli.refuses("workload", "make", "social", "--out", tmp_path / "no", "--seed", 4)
    assert "is not empty" in cli.refuses("workload", "make", "social", "--out", folder)
    (folder / make.USERS / "part-000000.parquet").write_bytes(b"")
    assert "part-000000.parquet can't be read" in cli.refuses("workload", "describe", folder)
