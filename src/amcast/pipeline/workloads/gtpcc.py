"""Draws blocks of gTPC-C's transactions with numpy: the shares and ranges are those of `amcast.workload.gtpcc`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...workload import Seat
from ...workload.gtpcc import (
    AMOUNT_MAX,
    AMOUNT_MIN,
    CARRIERS,
    ITEMS_MAX,
    ITEMS_MIN,
    QUANTITY_MAX,
    SHARES,
    THRESHOLD_MAX,
    THRESHOLD_MIN,
    UNUSED_SHARE,
    WAREHOUSES_MAX,
    kinds_of,
    rank_shares,
    spread_bits,
)
from ...workload.transactions import UNUSED_ITEM
from .plan import BLOCK, GtpccTables

Int64s = npt.NDArray[np.int64]

KINDS = tuple(SHARES)  # a kind is the number of its name here
NEW_ORDER, PAYMENT, _, DELIVERY, STOCK_LEVEL = range(len(KINDS))

_LIST = pa.list_(pa.field("element", pa.int32(), nullable=False))
SCHEMA = pa.schema(
    [
        pa.field(name, kind, nullable=False)
        for name, kind in (
            ("number", pa.int64()),
            ("client", pa.int32()),
            ("kind", pa.int8()),
            ("home", pa.int32()),
            ("dst", _LIST),  # warehouses, sorted
            ("district", pa.int32()),
            ("customer", pa.int32()),
            ("customer_warehouse", pa.int32()),  # of a payment; else home
            ("customer_district", pa.int32()),  # of a payment; else the district
            ("amount", pa.int32()),  # of a payment, in cents
            ("detail", pa.int32()),  # the carrier of a delivery, the threshold of a stock level
            ("item", _LIST),  # of a new order, with the two columns that follow
            ("supplier", _LIST),
            ("quantity", _LIST),
        )
    ]
)


@dataclass(frozen=True)
class Places:
    """Where warehouses are, as arrays."""

    home: Int64s  # of each client
    nearest: Int64s  # row: a warehouse by its number; columns: the others, the nearest first

    def rank(self, home: Int64s, other: Int64s) -> Int64s:
        """0 if the other warehouse is the nearest to home, and so on."""
        ranks: Int64s = np.argmax(self.nearest[home] == other[:, None], axis=1)
        return ranks


@lru_cache(maxsize=4)
def places_of(plan: GtpccTables) -> Places:
    topology = plan.topology()
    geography = plan.workload.geography(topology, plan.latency())
    regions = [topology.region(client) for client in topology.clients]
    home = [geography.home(Seat(at, plan.clients, region)) for at, region in enumerate(regions)]
    nearest = np.zeros((max(geography.groups) + 1, len(geography.groups) - 1), np.int64)
    for group in geography.groups:
        nearest[group] = geography.by_distance(group)
    return Places(np.array(home), nearest)


@dataclass(frozen=True)
class _Lines:
    """The items of new orders, one after the other."""

    counts: Int64s  # of each order
    rank: Int64s  # of the supplier; -1: home


class BlockDrawing:
    """One block. `table` has all its columns."""

    def __init__(self, plan: GtpccTables, block: int) -> None:
        self._plan, self._workload = plan, plan.workload
        self._rng = np.random.default_rng([plan.seed, block])
        self._places = places_of(plan)
        self._others = self._places.nearest.shape[1]
        first = block * BLOCK
        self._number = np.arange(first, min(plan.transactions, first + BLOCK))

    def table(self) -> pa.Table:
        plan, rng, size = self._plan, self._rng, len(self._number)
        client = self._number % plan.clients
        home = self._places.home[client]
        weights = kinds_of(self._workload.mix)
        numbers = np.array([KINDS.index(kind) for kind in weights])
        kind = rng.choice(numbers, size, p=np.array(list(weights.values())) / sum(weights.values()))
        district = rng.integers(1, self._workload.districts + 1, size)
        customer = self._non_uniform(self._workload.customers, size)
        warehouse, where = self._customers(home, district, kind == PAYMENT)
        amount = np.where(kind == PAYMENT, rng.integers(AMOUNT_MIN, AMOUNT_MAX + 1, size), 0)
        orders = np.flatnonzero(kind == NEW_ORDER)
        lines = self._lines(len(orders))
        order = np.repeat(orders, lines.counts)  # the row of each line
        supplier = home[order]
        is_remote = lines.rank >= 0
        supplier[is_remote] = self._places.nearest[home[order[is_remote]], lines.rank[is_remote]]
        starts = np.zeros(size + 1, np.int64)
        starts[1:][orders] = lines.counts
        columns = [
            self._number,
            client,
            kind,
            home,
            self._destinations(home, warehouse, order[is_remote], supplier[is_remote]),
            district,
            customer,
            warehouse,
            where,
            amount,
            self._detail(kind),
            *(_lists(np.cumsum(starts), each) for each in (self._items(lines), supplier, self._quantities(len(order)))),
        ]
        arrays = [pa.array(each).cast(field.type) for each, field in zip(columns, SCHEMA, strict=True)]
        return pa.Table.from_arrays(arrays, schema=SCHEMA)

    def _non_uniform(self, values: int, count: int) -> Int64s:
        low = self._rng.integers(0, spread_bits(values) + 1, count)
        drawn: Int64s = (low | self._rng.integers(1, values + 1, count)) % values + 1
        return drawn

    def _ranks(self, count: int) -> Int64s:
        return self._rng.choice(self._others, count, p=rank_shares(self._workload.locality, self._others))

    def _customers(self, home: Int64s, district: Int64s, is_payment: npt.NDArray[np.bool_]) -> tuple[Int64s, Int64s]:
        """The warehouse and the district of the customer."""
        warehouse, where = home.copy(), district.copy()
        if self._others:
            share = 1.0 if self._workload.mix == "global" else self._workload.remote_payments
            remote = np.flatnonzero(is_payment & (self._rng.random(len(home)) < share))
            warehouse[remote] = self._places.nearest[home[remote], self._ranks(len(remote))]
            where[remote] = self._rng.integers(1, self._workload.districts + 1, len(remote))
        return warehouse, where

    def _lines(self, orders: int) -> _Lines:
        if self._workload.mix == "full":
            return self._draw_lines(orders)
        return self._global_lines(orders)

    def _draw_lines(self, orders: int) -> _Lines:
        counts = self._rng.integers(ITEMS_MIN, ITEMS_MAX + 1, orders)
        rank = np.full(counts.sum(), -1)
        if self._others:
            remote = np.flatnonzero(self._rng.random(len(rank)) < self._workload.remote_items)
            rank[remote] = self._ranks(len(remote))
        return _Lines(counts, rank)

    def _global_lines(self, orders: int) -> _Lines:
        """Orders with too few or too many warehouses are left out, until there are enough others."""
        counts, ranks, found = [], [], 0
        while found < orders:
            drawn = self._draw_lines(max(1_000, 4 * (orders - found)))
            order = np.repeat(np.arange(len(drawn.counts)), drawn.counts)
            remote = drawn.rank >= 0
            pairs = _distinct(order[remote] * self._others + drawn.rank[remote])
            others = np.bincount(pairs // self._others, minlength=len(drawn.counts))
            is_taken = (others >= 1) & (others < WAREHOUSES_MAX)
            is_taken[np.flatnonzero(is_taken)[orders - found :]] = False
            counts.append(drawn.counts[is_taken])
            ranks.append(drawn.rank[is_taken[order]])
            found += int(is_taken.sum())
        return _Lines(np.concatenate(counts), np.concatenate(ranks))

    def _items(self, lines: _Lines) -> Int64s:
        items = self._non_uniform(self._workload.items, len(lines.rank))
        last = np.cumsum(lines.counts) - 1
        items[last[self._rng.random(len(last)) < UNUSED_SHARE]] = UNUSED_ITEM
        return items

    def _quantities(self, count: int) -> Int64s:
        return self._rng.integers(1, QUANTITY_MAX + 1, count)

    def _detail(self, kind: Int64s) -> Int64s:
        carrier = self._rng.integers(1, CARRIERS + 1, len(kind))
        threshold = self._rng.integers(THRESHOLD_MIN, THRESHOLD_MAX + 1, len(kind))
        return np.where(kind == DELIVERY, carrier, np.where(kind == STOCK_LEVEL, threshold, 0))

    def _destinations(self, home: Int64s, warehouse: Int64s, order: Int64s, supplier: Int64s) -> pa.Array:
        groups = self._places.nearest.shape[0]
        rows = np.arange(len(home))
        pairs = _distinct(np.concatenate((rows * groups + home, rows * groups + warehouse, order * groups + supplier)))
        starts = np.searchsorted(pairs, np.arange(len(home) + 1) * groups)
        return _lists(starts, pairs % groups)


def _lists(starts: Int64s, values: Int64s) -> pa.Array:
    return pa.ListArray.from_arrays(pa.array(starts, pa.int32()), pa.array(values, pa.int32()), type=_LIST)


def _distinct(values: Int64s) -> Int64s:
    """Sorted. `np.unique` hashes first, which takes longer where nearly all are different."""
    values = np.sort(values)
    return values[np.concatenate(([True], values[1:] != values[:-1]))[: len(values)]]
