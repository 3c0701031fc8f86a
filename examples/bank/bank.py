"""A bank in shards: `amcast up --app bank.py:Bank`. The account ann@g1 is kept by the group g1, in all its replicas."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import amcast
from amcast.core import AppMessage


class Bank(amcast.ExchangingMachine):
    def __init__(self, group: str) -> None:
        self.group, self.balances = group, dict[str, int]()

    def read(self, message: AppMessage) -> bytes | None:
        """Before a transfer, all its groups hear what the payer has. Other requests need nothing of other groups."""
        payer = parse(message.payload).get("from")
        return str(self.balances.get(payer, 0)).encode() if isinstance(payer, str) else None

    def apply(self, message: AppMessage, reads: Mapping[str, bytes]) -> bytes:
        match parse(message.payload):
            case {"from": str(payer), "to": str(payee), "amount": int(amount)} if 0 < amount < 1e15:
                if {home(payer), home(payee)} != set(reads) or int(reads[home(payer)]) < amount:
                    return b"refused"
                self.add(payer, -amount)
                self.add(payee, amount)
            case {"deposit": str(account), "amount": int(amount)} if 0 < amount < 1e15:
                self.add(account, amount)
            case {"total": True}:
                return str(sum(self.balances.values())).encode()
            case _:
                return b"nonsense"  # apply must not raise for what clients send: it would raise in every replica
        return b"done"

    def add(self, account: str, amount: int) -> None:
        if home(account) == self.group:
            self.balances[account] = self.balances.get(account, 0) + amount

    def query(self, payload: bytes) -> bytes:
        return str(self.balances.get(payload.decode(errors="replace"), 0)).encode()

    def snapshot(self) -> bytes:
        return json.dumps(self.balances).encode()

    def restore(self, state: bytes) -> None:
        self.balances = json.loads(state)


def home(account: str) -> str:
    return account.rpartition("@")[2]


def parse(payload: bytes) -> dict[str, Any]:
    try:
        request = json.loads(payload)
    except (ValueError, RecursionError):
        request = None
    return request if isinstance(request, dict) else {}


async def transfer(client: amcast.AsyncClient, payer: str, payee: str, amount: int, key: str | None = None) -> bool:
    """Whether the payer had enough. A program that is not sure whether it asked before asks again with the same key."""
    request = json.dumps({"from": payer, "to": payee, "amount": amount}).encode()
    results = await client.call({home(payer), home(payee)}, request, key=key)
    return set(results.values()) == {b"done"}


async def deposit(client: amcast.AsyncClient, account: str, amount: int, key: str | None = None) -> None:
    await client.call(home(account), json.dumps({"deposit": account, "amount": amount}).encode(), key=key)


async def balance(client: amcast.AsyncClient, account: str) -> int:
    return int(await client.query(home(account), account.encode()) or 0)


async def total(client: amcast.AsyncClient) -> int:
    """All groups add up at the same place in the order, so money on its way is counted once."""
    return sum(int(result or 0) for result in (await client.call(client.groups, b'{"total": true}')).values())
