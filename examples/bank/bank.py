"""Accounts in shards: `amcast up --app bank.py:Bank`. Each group keeps some accounts, and replicates them.

A transfer is one request to the groups of both accounts: each group changes the accounts that it keeps, and all agree
on the order of transfers. A request that makes no sense changes nothing: `apply` must not raise for what clients send,
since it would raise in every replica, and stop them all.
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

    def apply(self, message: AppMessage) -> bytes:
        """Returns the balances of the accounts that the request names and this group keeps."""
        try:
            amounts = json.loads(message.payload)[self.group]
            changed = {str(account): self.balances.get(account, 0) + int(amounts[account]) for account in amounts}
        except (ValueError, TypeError, LookupError):
            return b"{}"
        self.balances |= changed
        return json.dumps(changed).encode()

    def snapshot(self) -> bytes:
        return json.dumps(self.balances).encode()

    def restore(self, state: bytes) -> None:
        self.balances = json.loads(state)


async def add(client: amcast.AsyncClient, amounts: dict[str, int]) -> dict[str, int]:
    """Adds to some accounts at once, and returns their balances after it: a transfer adds -10 here and 10 there."""
    request: dict[str, dict[str, int]] = {}
    for account, amount in amounts.items():
        request.setdefault(home(account, client.groups), {})[account] = amount
    results = await client.call(request, json.dumps(request).encode())
    return {account: each for result in results.values() for account, each in json.loads(result or b"{}").items()}
