"""What is in the transactions of TPC-C, as they are multicast. Money is in cents; a group is a warehouse."""

from __future__ import annotations

import msgspec

from ..core import GroupId, encode

UNUSED_ITEM = 0  # nobody sells it: a new order for it is rolled back, in all warehouses alike


class OrderLine(msgspec.Struct, frozen=True, array_like=True, gc=False):
    item: int  # from 1 on
    supplier: GroupId
    quantity: int


class NewOrder(msgspec.Struct, frozen=True, array_like=True, tag=1, gc=False):
    """Goes to the home warehouse, and to all that supply an item."""

    warehouse: GroupId
    district: int
    customer: int
    lines: tuple[OrderLine, ...]

    def warehouses(self) -> tuple[GroupId, ...]:
        return tuple(sorted({self.warehouse, *(line.supplier for line in self.lines)}))


class Payment(msgspec.Struct, frozen=True, array_like=True, tag=2, gc=False):
    """Is paid at a warehouse, by a customer of this or of another one."""

    warehouse: GroupId
    district: int
    customer_warehouse: GroupId
    customer_district: int
    customer: int
    amount: int

    def warehouses(self) -> tuple[GroupId, ...]:
        return tuple(sorted({self.warehouse, self.customer_warehouse}))


class OrderStatus(msgspec.Struct, frozen=True, array_like=True, tag=3, gc=False):
    """Asks for the latest order of a customer."""

    warehouse: GroupId
    district: int
    customer: int

    def warehouses(self) -> tuple[GroupId, ...]:
        return (self.warehouse,)


class Delivery(msgspec.Struct, frozen=True, array_like=True, tag=4, gc=False):
    """Delivers the oldest open order of each of the districts."""

    warehouse: GroupId
    districts: int
    carrier: int

    def warehouses(self) -> tuple[GroupId, ...]:
        return (self.warehouse,)


class StockLevel(msgspec.Struct, frozen=True, array_like=True, tag=5, gc=False):
    """Counts the items of a district's latest orders that run low."""

    warehouse: GroupId
    district: int
    threshold: int

    def warehouses(self) -> tuple[GroupId, ...]:
        return (self.warehouse,)


Transaction = NewOrder | Payment | OrderStatus | Delivery | StockLevel

_decoder: msgspec.msgpack.Decoder[Transaction] = msgspec.msgpack.Decoder(Transaction)


def encode_transaction(transaction: Transaction) -> bytes:
    return encode(transaction)


def decode_transaction(payload: bytes) -> Transaction:
    """Raises a `msgspec.MsgspecError` if it is none."""
    return _decoder.decode(payload)
