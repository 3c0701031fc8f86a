"""TPC-C in shards: its invariants hold in every order that is one, and tell when something was lost."""

from __future__ import annotations

import msgspec
import pytest

from amcast.apps.tpcc import Totals, Warehouse, disagreements, price_of
from amcast.core import app_message, grid
from amcast.net.node.tpcc import Tpcc
from amcast.sim import Simulation, scenario, simulate
from amcast.sim.fuzz import fuzz_scenario, violations_of
from amcast.workload import Gtpcc, Seat, stream_random
from amcast.workload.transactions import (
    UNUSED_ITEM,
    Delivery,
    NewOrder,
    OrderLine,
    OrderStatus,
    Payment,
    StockLevel,
    Transaction,
    encode_transaction,
)

GROUPS = (1, 2, 3)
SMALL = Gtpcc(items=50, customers=20, districts=3)


def execute(warehouse: Warehouse, transaction: Transaction) -> dict[str, object]:
    answer = warehouse.execute(encode_transaction(transaction), transaction.warehouses())
    return dict(msgspec.json.decode(answer))


def drafts(count: int = 400, workload: Gtpcc = SMALL) -> list[tuple[tuple[int, ...], bytes]]:
    """Transactions of three clients, one after the other."""
    geography = workload.geography(grid(3, 1, 3), None)
    streams = [workload.stream(geography, Seat(number), stream_random(1, number)) for number in range(3)]
    return [draft for _ in range(count // 3) for stream in streams for draft in stream.draw(1)]


def totals_after(lost: dict[int, int] | None = None, count: int = 400) -> dict[str, Totals]:
    """Of three warehouses that executed everything, but what was lost: number of a transaction -> group."""
    warehouses = {group: Warehouse(group) for group in GROUPS}
    for number, (dst, payload) in enumerate(drafts(count)):
        for group in dst:
            if (lost or {}).get(number) != group:
                warehouses[group].execute(payload, dst)
    return {f"g{group}": warehouse.totals() for group, warehouse in warehouses.items()}


def test_warehouses_agree_after_the_same_transactions() -> None:
    totals = totals_after()
    assert disagreements(totals) == []
    assert sum(each.orders for each in totals.values()) > 100
    assert any(name != other for name, each in totals.items() for other in each.ordered)
    assert any(name != other for name, each in totals.items() for other in each.paid_by)


def test_a_transaction_that_one_group_missed_is_noticed() -> None:
    """Each transaction to several groups in turn, lost in each of its groups."""
    several = [(number, group) for number, (dst, _) in enumerate(drafts(120)) if len(dst) > 1 for group in dst]
    assert len(several) > 20
    rolled_back = 0
    for number, group in several:
        found = disagreements(totals_after({number: group}, 120))
        rolled_back += not found
    assert rolled_back <= 4  # an order that is rolled back leaves nothing behind


def test_a_new_order_takes_from_the_stock_of_its_suppliers() -> None:
    home, supplier = Warehouse(1), Warehouse(2)
    order = NewOrder(1, 2, 7, (OrderLine(3, 1, 5), OrderLine(4, 2, 6)))
    told = execute(home, order)
    assert told["order"] == 1
    assert 0 < int(str(told["total"])) <= 2 * (5 * price_of(3) + 6 * price_of(4))
    assert execute(supplier, order) == {"supplied": True}
    assert (home.totals().supplied.quantity, supplier.totals().supplied.quantity) == (5, 6)
    assert execute(home, order)["order"] == 2
    assert disagreements({"g1": home.totals(), "g2": supplier.totals()}) == [
        "g2 supplied 6 pieces, and orders took 12 or others"
    ]


def test_an_order_for_an_item_that_nobody_sells_is_rolled_back() -> None:
    home, order = Warehouse(1), NewOrder(1, 1, 1, (OrderLine(9, 1, 1), OrderLine(UNUSED_ITEM, 1, 1)))
    assert execute(home, order) == {"rolled_back": True}
    assert home.totals().orders == 0
    assert home.totals().supplied.lines == 0


def test_orders_are_delivered_and_paid() -> None:
    home = Warehouse(1)
    for item in (1, 2):
        execute(home, NewOrder(1, 1, 5, (OrderLine(item, 1, 1),)))
    assert execute(home, OrderStatus(1, 1, 5)) == {"balance": 0, "order": 2, "carrier": 0}
    assert execute(home, Delivery(1, 3, 8)) == {"delivered": 1}
    assert execute(home, OrderStatus(1, 1, 5)) == {"balance": price_of(1), "order": 2, "carrier": 0}
    assert execute(home, Delivery(1, 3, 9)) == {"delivered": 1}
    assert execute(home, Payment(1, 2, 1, 1, 5, 100)) == {"balance": price_of(1) + price_of(2) - 100}
    assert execute(home, OrderStatus(1, 1, 5))["carrier"] == 9
    assert execute(home, StockLevel(1, 1, 1_000)) == {"low": 2}
    assert home.totals().problems == ()


def test_a_payment_is_booked_at_both_warehouses() -> None:
    home, customers = Warehouse(1), Warehouse(2)
    paid = Payment(1, 4, 2, 3, 9, 1_234)
    assert execute(home, paid) == {"paid": 1_234}
    assert execute(customers, paid) == {"balance": -1_234}
    assert home.totals().paid_by == {"g2": 1_234}
    assert customers.totals().paid_by_customers == 1_234
    assert disagreements({"g1": home.totals(), "g2": customers.totals()}) == []


@pytest.mark.parametrize(
    ("payload", "dst"),
    [
        (b"", (1,)),
        (b"\xc1", (1,)),
        (encode_transaction(Payment(1, 1, 2, 1, 1, 5)), (1,)),  # leaves out the customer's warehouse
        (encode_transaction(Payment(1, 1, 1, 1, 1, -5)), (1,)),
        (encode_transaction(Delivery(1, 10**12, 1)), (1,)),
        (encode_transaction(NewOrder(1, 1, 1, (OrderLine(-3, 1, 1),))), (1,)),
    ],
)
def test_nonsense_is_refused_and_changes_nothing(payload: bytes, dst: tuple[int, ...]) -> None:
    warehouse = Warehouse(1)
    before = warehouse.dump()
    assert "refused" in msgspec.json.decode(warehouse.execute(payload, dst))
    assert warehouse.dump() == before


def test_broken_rows_are_named() -> None:
    warehouse = Warehouse(1)
    for dst, payload in drafts():
        if 1 in dst:
            warehouse.execute(payload, dst)
    assert warehouse.totals().problems == ()
    rows = warehouse._rows
    rows.ytd += 1
    rows.districts[1].next_order += 1
    next(iter(rows.customers.values())).balance += 1
    told = " / ".join(warehouse.totals().problems)
    for what in ("was paid at the warehouse", "district 1 has gaps", "has a balance that orders and payments do not"):
        assert what in told


def test_a_node_saves_and_restores_it() -> None:
    machine, other = Tpcc("g2"), Tpcc("g2")
    for number, (dst, payload) in enumerate(drafts()):
        if 2 in dst:
            machine.apply(app_message(9, number, dst, payload))
    other.restore(machine.snapshot())
    assert other.query(b"") == machine.query(b"")
    assert other.snapshot() == machine.snapshot()


@pytest.mark.parametrize("name", ["fastcast", "flexcast", "multipaxos"])
def test_a_run_with_faults_keeps_the_invariants(name: str) -> None:
    """Crashes, lost messages and states that replicas receive in place of deliveries."""
    for seed in range(3):
        made = fuzz_scenario(name, seed, ("crash", "loss", "partition"), groups=3)
        result = simulate(msgspec.structs.replace(made, workload=SMALL))
        assert result.application is not None
        assert result.application.problems == ()
        assert result.complete


def test_a_run_that_loses_a_transaction_fails() -> None:
    made = scenario("skeen", groups=3, clients=3, messages=60, workload=Gtpcc(mix="global"), seed=1)
    simulation = Simulation(made)
    execution = simulation.watch.execution
    assert execution is not None
    executed, lost = execution.executed, []

    def lose_one(process: int, position: int, message: object) -> None:
        if len(lost) == 0 and position == 5:
            lost.append(message)
        else:
            executed(process, position, message)  # type: ignore[arg-type]

    execution.executed = lose_one  # type: ignore[method-assign]
    result = simulation.run()
    found = violations_of(result)
    assert found
    assert {each.property for each in found} == {"application"}
