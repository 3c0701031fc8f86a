"""Accounts in shards: `amcast up --app bank.py:Bank`. Each group keeps some accounts, and replicates them.

A request is JSON: {"add": {"account": amount, ...}}. A transfer is one request to the groups of both accounts: each
group changes the accounts that it keeps, and all agree on the order of transfers.
"""

from __future__ import annotations

import json

import amcast
from amcast.core import AppMessage


def home(account: str, groups: list[str]) -> str:
    """The group that keeps an account."""
    return groups[sum(account.encode()) % len(groups)]


class Bank(amcast.StateMachine):
    def __init__(self, group: str) -> None:
        self.group = group
        self.balances: dict[str, int] = {}

    def apply(self, position: int, message: AppMessage) -> bytes:
        """Returns the balances of the accounts that the request names and this group keeps."""
        request = json.loads(message.payload)
        mine = {account: each for account, each in request["add"].items() if each["home"] == self.group}
        for account, each in mine.items():
            self.balances[account] = self.balances.get(account, 0) + each["amount"]
        return json.dumps({account: self.balances[account] for account in mine}).encode()

    def snapshot(self) -> bytes:
        return json.dumps(self.balances).encode()

    def restore(self, state: bytes) -> None:
        self.balances = json.loads(state)


async def add(client: amcast.AsyncClient, amounts: dict[str, int]) -> dict[str, int]:
    """Adds to some accounts at once, and returns their balances after it: a transfer adds -10 here and 10 there."""
    homes = {account: home(account, client.groups) for account in amounts}
    request = {"add": {account: {"home": homes[account], "amount": amount} for account, amount in amounts.items()}}
    results = await client.call(set(homes.values()), json.dumps(request).encode())
    return {account: each for result in results.values() for account, each in json.loads(result or b"{}").items()}
