"""gTPC-C: TPC-C with a warehouse in each group, and warehouses that are apart.

A client lives at its home warehouse. Most of what it does is done there. Where a transaction needs another warehouse,
it is the nearest to home with a probability called locality, else the next nearest with the same probability, and so
on; what is left falls to the farthest.

Two mixes. "full" has all five transactions of TPC-C in its shares; a new order takes 2 % of its items from another
warehouse, and 15 % of the payments are made by a customer of another one. "global" has only those new orders and
payments that go to two or three warehouses, in the same proportion to each other: it is the full mix with everything
else left out.

From: "FlexCast: genuine overlay-based atomic multicast" (2023), section 5.3, and the TPC-C standard, revision 5.11.
Customers are named by their numbers, never by their last names.
"""

from __future__ import annotations

from collections import deque
from random import Random
from typing import Literal

from ..core import GroupId, Latency, Topology, UsageError
from .base import Draft, Geography, Seat, Stream, Workload
from .transactions import (
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

Kind = Literal["new order", "payment", "order status", "delivery", "stock level"]
Mix = Literal["full", "global"]

SHARES: dict[Kind, int] = {
    "new order": 45,
    "payment": 43,
    "order status": 4,
    "delivery": 4,
    "stock level": 4,
}  # percent
GLOBAL_KINDS: tuple[Kind, ...] = ("new order", "payment")
ITEMS_MIN, ITEMS_MAX = 5, 15  # of a new order
QUANTITY_MAX = 10  # of each
AMOUNT_MIN, AMOUNT_MAX = 100, 500_000  # of a payment, in cents
CARRIERS = 10
THRESHOLD_MIN, THRESHOLD_MAX = 10, 20  # of a stock level
WAREHOUSES_MAX = 3  # of a transaction in the global mix
UNUSED_SHARE = 0.01  # of the new orders: they name an item that nobody sells
KEYING_S: dict[Kind, float] = {"new order": 18, "payment": 3, "order status": 2, "delivery": 2, "stock level": 2}
THINKING_S: dict[Kind, float] = {"new order": 12, "payment": 12, "order status": 10, "delivery": 5, "stock level": 5}
_THINKING_MAX = 10  # times the mean


def kinds_of(mix: Mix) -> dict[Kind, int]:
    """The transactions of a mix, with their weights."""
    return SHARES if mix == "full" else {kind: SHARES[kind] for kind in GLOBAL_KINDS}


def rank_shares(locality: float, others: int) -> list[float]:
    """How often another warehouse is the nearest to home, the next nearest, and so on."""
    shares = [locality * (1 - locality) ** rank for rank in range(others - 1)]
    return [*shares, 1 - sum(shares)] if others else []


def spread_bits(values: int) -> int:
    """The constant A of TPC-C's non-uniform draws: 8191 for 100,000 items, 1023 for 3,000 customers, and for other
    numbers of values in proportion."""
    per_value = 12 if values >= 10_000 else 2
    return int((1 << max(0, (values // per_value).bit_length() - 1)) - 1)


def non_uniform(rng: Random, values: int) -> int:
    """1 to `values`, some far more often than others (NURand of TPC-C, with C = 0)."""
    low = rng.randrange(spread_bits(values) + 1)
    return (low | rng.randint(1, values)) % values + 1


class Gtpcc(Workload, frozen=True, forbid_unknown_fields=True, tag="gtpcc"):
    mix: Mix = "full"
    locality: float = 0.9
    waits: bool = False  # the users of a closed loop take TPC-C's time to key in a transaction, and to think
    remote_items: float = 0.02  # of a new order
    remote_payments: float = 0.15  # by customers of another warehouse, in the full mix
    districts: int = 10  # of each warehouse
    customers: int = 3_000  # of each district
    items: int = 100_000
    targets: int = 0  # the first so many groups are warehouses; the others only help. 0: all

    def check(self, topology: Topology) -> None:
        for name in ("locality", "remote_items", "remote_payments"):
            if not 0 <= getattr(self, name) <= 1:
                raise UsageError(f"{name} of {getattr(self, name):g} is no probability: use a number from 0 to 1")
        for name in ("districts", "customers", "items"):
            if not 1 <= getattr(self, name) <= 10_000_000:
                raise UsageError(f"{getattr(self, name)} {name} are out of range: use 1 to 10,000,000")
        warehouses = len(self.geography(topology, None).groups)
        if self.mix == "global" and warehouses < 2:
            raise UsageError("transactions of the global mix go to two warehouses or three: use two groups or more")
        if self.mix == "global" and not self.remote_items:
            raise UsageError("new orders without remote items never go to two warehouses: use mix=full")

    def homes(self, groups: int) -> int:
        return self.targets or groups

    def geography(self, topology: Topology, latency: Latency | None) -> Geography:
        return Geography(topology, latency, self.targets)

    def stream(self, geography: Geography, seat: Seat, rng: Random) -> GtpccStream:
        return GtpccStream(self, geography, seat, rng)


class GtpccStream(Stream):
    """The transactions of one client."""

    def __init__(self, workload: Gtpcc, geography: Geography, seat: Seat, rng: Random) -> None:
        self.home = geography.home(seat)
        self.others = geography.by_distance(self.home)
        self._workload = workload
        self._is_global = workload.mix == "global"
        # Streams of their own: which transaction is next must not depend on when somebody asks for it.
        self._kind_rng, self._pause_rng, self._rng = (Random(rng.getrandbits(64)) for _ in range(3))
        weights = kinds_of(workload.mix)
        self._kinds, self._weights = tuple(weights), tuple(weights.values())
        self._coming: deque[Kind] = deque()  # drawn to know how long it takes to key them in
        self._last: Kind | None = None

    def draw(self, count: int) -> list[Draft]:
        transactions = [self.next() for _ in range(count)]
        return [(each.warehouses(), encode_transaction(each)) for each in transactions]

    def pause_us(self) -> int:
        if not self._workload.waits:
            return 0
        kind = self._next_kind()
        self._coming.append(kind)
        seconds = KEYING_S[kind]
        if self._last is not None:
            mean = THINKING_S[self._last]
            seconds += min(self._pause_rng.expovariate(1 / mean), _THINKING_MAX * mean)
        self._last = kind
        return round(1_000_000 * seconds)

    def _next_kind(self) -> Kind:
        return self._kind_rng.choices(self._kinds, self._weights)[0]

    def next(self) -> Transaction:
        kind = self._coming.popleft() if self._coming else self._next_kind()
        match kind:
            case "new order":
                return self._new_order()
            case "payment":
                return self._payment()
            case "order status":
                return OrderStatus(self.home, self._district(), self._customer())
            case "delivery":
                return Delivery(self.home, self._workload.districts, self._rng.randint(1, CARRIERS))
            case "stock level":
                return StockLevel(self.home, self._district(), self._rng.randint(THRESHOLD_MIN, THRESHOLD_MAX))

    def _new_order(self) -> NewOrder:
        rng, items = self._rng, self._workload.items
        suppliers = self._suppliers()
        lines = [OrderLine(non_uniform(rng, items), each, rng.randint(1, QUANTITY_MAX)) for each in suppliers]
        if rng.random() < UNUSED_SHARE:
            lines[-1] = OrderLine(UNUSED_ITEM, lines[-1].supplier, lines[-1].quantity)
        return NewOrder(self.home, self._district(), self._customer(), tuple(lines))

    def _suppliers(self) -> list[GroupId]:
        """The warehouse of each item. In the global mix, orders with too few or too many of them are left out."""
        rng, share, others = self._rng, self._workload.remote_items if self.others else 0.0, self.others
        while True:
            count = rng.randint(ITEMS_MIN, ITEMS_MAX)
            found = [self._other() if others and rng.random() < share else self.home for _ in range(count)]
            if not self._is_global or 2 <= len({self.home, *found}) <= WAREHOUSES_MAX:
                return found

    def _payment(self) -> Payment:
        rng, home, district = self._rng, self.home, self._district()
        is_remote = self._is_global or (bool(self.others) and rng.random() < self._workload.remote_payments)
        customers = (self._other(), self._district()) if is_remote else (home, district)
        return Payment(home, district, *customers, self._customer(), rng.randint(AMOUNT_MIN, AMOUNT_MAX))

    def _other(self) -> GroupId:
        rng, locality = self._rng, self._workload.locality
        for group in self.others[:-1]:
            if rng.random() < locality:
                return group
        return self.others[-1]

    def _district(self) -> int:
        return self._rng.randint(1, self._workload.districts)

    def _customer(self) -> int:
        return non_uniform(self._rng, self._workload.customers)
