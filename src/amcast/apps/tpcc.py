"""TPC-C in shards: each group is a warehouse, keeps its rows, and executes its part of every transaction.

A new order is entered at the customer's warehouse, and each supplier takes the items off its stock. A payment is booked
where it is made, and at the customer's warehouse. Which part is whose, and whether a new order is rolled back, follows
from the transaction alone: no group has to hear what another one read.

Rows appear when they are first used, as they were made from a seed (`_made`): no order has been placed before. `totals`
adds up a warehouse and says which invariants of its own are broken; `disagreements` compares the totals of all
warehouses, which must fit together once all of them have executed the same transactions. Money is in cents.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from random import Random

import msgspec

from ..core import GroupId, encode
from ..workload.transactions import (
    UNUSED_ITEM,
    Delivery,
    NewOrder,
    OrderLine,
    OrderStatus,
    Payment,
    StockLevel,
    Transaction,
    decode_transaction,
)

_SEED = 1
_DISTRICTS_MAX = 1_000
_RECENT_ORDERS = 20  # that a stock level looks at
_REFILL, _RESERVE = 91, 10  # stock is refilled when fewer than the reserve would be left


class District(msgspec.Struct, array_like=True):
    ytd: int = 0  # paid here, this year to date
    next_order: int = 1


class Customer(msgspec.Struct, array_like=True):
    balance: int = 0
    ytd_payment: int = 0
    payments: int = 0
    deliveries: int = 0
    last_order: int = 0  # 0: none


class Stock(msgspec.Struct, array_like=True):
    quantity: int
    ytd: int = 0
    orders: int = 0
    remote: int = 0  # orders of other warehouses


class Order(msgspec.Struct, array_like=True):
    customer: int
    lines: tuple[OrderLine, ...]
    amounts: tuple[int, ...]  # of the lines
    carrier: int = 0  # 0: not delivered yet


class Paid(msgspec.Struct, frozen=True, array_like=True):
    """A row of the history."""

    district: int
    customer_warehouse: GroupId
    customer_district: int
    customer: int
    amount: int


class State(msgspec.Struct, array_like=True):
    """All rows of a warehouse."""

    ytd: int = 0
    districts: dict[int, District] = {}
    customers: dict[tuple[int, int], Customer] = {}  # district, number
    stock: dict[int, Stock] = {}
    orders: dict[tuple[int, int], Order] = {}  # district, number
    open_orders: dict[int, list[int]] = {}  # district -> numbers, the oldest first
    history: list[Paid] = []


class Supply(msgspec.Struct, frozen=True):
    """What a supplier gave: as the orders say, or as its stock says. They must say the same."""

    lines: int = 0
    quantity: int = 0
    checksum: int = 0  # the sum of item numbers, each as often as it was given

    def plus(self, item: int, quantity: int, lines: int = 1) -> Supply:
        return Supply(self.lines + lines, self.quantity + quantity, self.checksum + item * quantity)


class Totals(msgspec.Struct, frozen=True, kw_only=True):
    """A warehouse, added up."""

    orders: int
    open_orders: int
    payments: int
    ytd: int
    ordered: dict[str, Supply]  # supplier -> what the orders placed here took from it
    supplied: Supply  # what went off the stock here
    paid_by: dict[str, int]  # a customer's warehouse -> what its customers paid here
    paid_by_customers: int  # of this warehouse, anywhere
    problems: tuple[str, ...]  # broken invariants of this warehouse


@lru_cache(maxsize=100_000)
def _made(what: str, low: int, high: int) -> int:
    """A number of the population, the same in all groups."""
    return Random(f"{_SEED}/{what}").randint(low, high)


def price_of(item: int) -> int:
    return _made(f"price {item}", 100, 10_000)


def tax_of(warehouse: GroupId, district: int = 0) -> int:
    """In hundredths of a percent; district 0 is the warehouse itself."""
    return _made(f"tax {warehouse} {district}", 0, 2_000)


def discount_of(warehouse: GroupId, district: int, customer: int) -> int:
    """In hundredths of a percent."""
    return _made(f"discount {warehouse} {district} {customer}", 0, 5_000)


class Warehouse:
    """The state of one replica of a group."""

    def __init__(self, group: GroupId) -> None:
        self._group = group
        self._rows = State()

    def execute(self, payload: bytes, dst: Sequence[GroupId]) -> bytes:
        """What the client is answered, as JSON. What makes no sense is refused by all groups alike."""
        try:
            transaction = decode_transaction(payload)
            _check(transaction, dst)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ValueError) as error:
            return msgspec.json.encode({"refused": str(error)})
        return msgspec.json.encode(self._execute(transaction))

    def _execute(self, transaction: Transaction) -> dict[str, int | bool]:
        match transaction:
            case NewOrder():
                return self._new_order(transaction)
            case Payment():
                return self._payment(transaction)
            case OrderStatus():
                return self._order_status(transaction)
            case Delivery():
                return self._delivery(transaction)
            case StockLevel():
                return self._stock_level(transaction)

    def _new_order(self, order: NewOrder) -> dict[str, int | bool]:
        if any(line.item == UNUSED_ITEM for line in order.lines):
            return {"rolled_back": True}
        for line in order.lines:
            if line.supplier == self._group:
                self._supply(line, order.warehouse != self._group)
        return self._enter(order) if order.warehouse == self._group else {"supplied": True}

    def _supply(self, line: OrderLine, is_remote: bool) -> None:
        stock = self._rows.stock.get(line.item)
        if stock is None:
            first = _made(f"stock {self._group} {line.item}", 10, 100)
            stock = self._rows.stock[line.item] = Stock(first)
        stock.quantity -= line.quantity
        if stock.quantity < _RESERVE:
            stock.quantity += _REFILL
        stock.ytd += line.quantity
        stock.orders += 1
        stock.remote += is_remote

    def _enter(self, order: NewOrder) -> dict[str, int | bool]:
        rows, district = self._rows, self._district(order.district)
        number, district.next_order = district.next_order, district.next_order + 1
        amounts = tuple(line.quantity * price_of(line.item) for line in order.lines)
        rows.orders[order.district, number] = Order(order.customer, order.lines, amounts)
        rows.open_orders.setdefault(order.district, []).append(number)
        self._customer(order.district, order.customer).last_order = number
        rate = 10_000 + tax_of(self._group) + tax_of(self._group, order.district)
        discount = 10_000 - discount_of(self._group, order.district, order.customer)
        return {"order": number, "total": sum(amounts) * rate * discount // 10**8}

    def _payment(self, paid: Payment) -> dict[str, int | bool]:
        rows = self._rows
        if paid.warehouse == self._group:
            rows.ytd += paid.amount
            self._district(paid.district).ytd += paid.amount
            where = (paid.customer_warehouse, paid.customer_district, paid.customer)
            rows.history.append(Paid(paid.district, *where, paid.amount))
        if paid.customer_warehouse != self._group:
            return {"paid": paid.amount}
        customer = self._customer(paid.customer_district, paid.customer)
        customer.balance -= paid.amount
        customer.ytd_payment += paid.amount
        customer.payments += 1
        return {"balance": customer.balance}

    def _order_status(self, asked: OrderStatus) -> dict[str, int | bool]:
        customer = self._rows.customers.get((asked.district, asked.customer), Customer())
        order = self._rows.orders.get((asked.district, customer.last_order))
        carrier = 0 if order is None else order.carrier
        return {"balance": customer.balance, "order": customer.last_order, "carrier": carrier}

    def _delivery(self, delivery: Delivery) -> dict[str, int | bool]:
        delivered = 0
        for district in range(1, delivery.districts + 1):
            waiting = self._rows.open_orders.get(district)
            if not waiting:
                continue
            order = self._rows.orders[district, waiting.pop(0)]
            order.carrier = delivery.carrier
            customer = self._customer(district, order.customer)
            customer.balance += sum(order.amounts)
            customer.deliveries += 1
            delivered += 1
        return {"delivered": delivered}

    def _stock_level(self, asked: StockLevel) -> dict[str, int | bool]:
        rows, last = self._rows, self._rows.districts.get(asked.district, District()).next_order
        recent = [rows.orders[asked.district, each] for each in range(max(1, last - _RECENT_ORDERS), last)]
        items = {line.item for order in recent for line in order.lines if line.supplier == self._group}
        return {"low": sum(rows.stock[item].quantity < asked.threshold for item in items)}

    def _district(self, number: int) -> District:
        return self._rows.districts.setdefault(number, District())

    def _customer(self, district: int, number: int) -> Customer:
        return self._rows.customers.setdefault((district, number), Customer())

    # -- the state as a whole

    def dump(self) -> bytes:
        return encode(self._rows)

    def load(self, state: bytes) -> None:
        self._rows = msgspec.msgpack.decode(state, type=State)

    def totals(self) -> Totals:
        rows = self._rows
        ordered: dict[str, Supply] = {}
        for order in rows.orders.values():
            for line in order.lines:
                name = f"g{line.supplier}"
                ordered[name] = ordered.get(name, Supply()).plus(line.item, line.quantity)
        supplied = Supply()
        for item, stock in rows.stock.items():
            supplied = supplied.plus(item, stock.ytd, stock.orders)
        paid_by: dict[str, int] = {}
        for paid in rows.history:
            name = f"g{paid.customer_warehouse}"
            paid_by[name] = paid_by.get(name, 0) + paid.amount
        return Totals(
            orders=len(rows.orders),
            open_orders=sum(map(len, rows.open_orders.values())),
            payments=len(rows.history),
            ytd=rows.ytd,
            ordered=ordered,
            supplied=supplied,
            paid_by=paid_by,
            paid_by_customers=sum(customer.ytd_payment for customer in rows.customers.values()),
            problems=tuple(_problems(rows)),
        )


def _check(transaction: Transaction, dst: Sequence[GroupId]) -> None:
    """Raises ValueError for what no client of the workload sends."""
    if tuple(sorted(dst)) != transaction.warehouses():
        raise ValueError("a transaction goes to the warehouses that it names, and to no others")
    match transaction:
        case NewOrder(lines=lines):
            numbers = [number for line in lines for number in (line.item + 1, line.quantity)]
        case Payment():
            numbers = [transaction.amount, transaction.customer_district, transaction.customer]
        case Delivery():
            numbers = [_DISTRICTS_MAX + 1 - transaction.districts]
        case _:
            numbers = []
    if min(numbers, default=1) < 1:
        raise ValueError("a number is out of range")


def _problems(rows: State) -> Iterable[str]:
    """Broken invariants: rows of one warehouse that contradict each other."""
    by_district = sum(district.ytd for district in rows.districts.values())
    if not rows.ytd == by_district == sum(paid.amount for paid in rows.history):
        yield f"{rows.ytd} was paid at the warehouse, {by_district} in its districts, or the history has another sum"
    numbers: dict[int, list[int]] = {}
    for district, number in rows.orders:
        numbers.setdefault(district, []).append(number)
    for at, district_row in sorted(rows.districts.items()):
        if sorted(numbers.get(at, [])) != list(range(1, district_row.next_order)):
            yield f"district {at} has gaps in its orders, or its next order is not {district_row.next_order}"
        waiting = rows.open_orders.get(at, [])
        if waiting != list(range(district_row.next_order - len(waiting), district_row.next_order)):
            yield f"district {at} does not deliver its orders in their order"
    owed: dict[tuple[int, int], int] = {}
    for (at, number), order in rows.orders.items():
        if (order.carrier == 0) != (number in rows.open_orders.get(at, [])):
            yield f"order {number} of district {at} is delivered and open, or neither"
        if order.carrier:
            owed[at, order.customer] = owed.get((at, order.customer), 0) + sum(order.amounts)
    for key, customer in sorted(rows.customers.items()):
        if customer.balance != owed.get(key, 0) - customer.ytd_payment:
            yield f"customer {key[1]} of district {key[0]} has a balance that orders and payments do not explain"


def disagreements(totals: Mapping[str, Totals]) -> list[str]:
    """What is wrong with warehouses that have executed the same transactions: in one, or between two of them."""
    found = [f"{name}: {problem}" for name, each in totals.items() for problem in each.problems]
    for name, each in totals.items():
        taken = Supply()
        for other in totals.values():
            part = other.ordered.get(name, Supply())
            taken = Supply(taken.lines + part.lines, taken.quantity + part.quantity, taken.checksum + part.checksum)
        if taken != each.supplied:
            found.append(f"{name} supplied {each.supplied.quantity} pieces, and orders took {taken.quantity} or others")
        paid = sum(other.paid_by.get(name, 0) for other in totals.values())
        if paid != each.paid_by_customers:
            found.append(f"customers of {name} have paid {each.paid_by_customers}, and warehouses were paid {paid}")
    return found
