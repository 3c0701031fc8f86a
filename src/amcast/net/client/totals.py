"""Asks the warehouses of a cluster that runs TPC-C for their totals, and compares them."""

from __future__ import annotations

import msgspec

from ...apps.tpcc import Totals, disagreements
from .async_client import AsyncClient
from .observer import Where, seeds_and_credentials
from .trunk import Credentials


class TotalsReport(msgspec.Struct, frozen=True):
    totals: dict[str, Totals]
    problems: tuple[str, ...]  # broken invariants


async def read_totals(where: Where, credentials: Credentials | None = None) -> TotalsReport:
    """They fit together if nobody multicasts meanwhile: groups are asked one after the other."""
    seeds, own = seeds_and_credentials(where)
    async with AsyncClient(seeds, credentials or own) as client:
        answers = {group: await client.query(group, b"") for group in sorted(client.groups)}
    totals = {group: msgspec.json.decode(answer or b"", type=Totals) for group, answer in answers.items()}
    return TotalsReport(totals, tuple(disagreements(totals)))
