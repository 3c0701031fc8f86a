"""A bank with a shop on GeoPaxos: `amcast up -p geopaxos --groups 3 --placement affinity --app market.py:Market`.

Accounts and goods are objects: `account:ann`, `goods:apples`. Whoever buys something changes an account, the seller's
and the goods, wherever these belong: all of it is done, or nothing. Money and goods are never made or lost on the way.
"""

from __future__ import annotations

import json
from typing import Any

import amcast
from amcast.apps import ObjectStore, RefusedError, View, answer_of, operation
from amcast.core import AppMessage

LIMIT = 10**15


class Market(amcast.StateMachine):
    def __init__(self, group: str) -> None:
        self.objects = ObjectStore()

    def apply(self, message: AppMessage) -> bytes:
        return self.objects.apply(message.payload, execute)

    def query(self, payload: bytes) -> bytes:
        """An account, or goods, at this replica."""
        return json.dumps(self.objects.read(payload.decode(errors="replace"))).encode()

    def snapshot(self) -> bytes:
        return self.objects.snapshot()

    def restore(self, state: bytes) -> None:
        self.objects.restore(state)


def execute(request: dict[str, Any], objects: View) -> Any:
    match request:
        case {"deposit": int(amount), "to": str(account)} if 0 < amount < LIMIT:
            add(objects, account, amount)
            return change(objects, f"account:{account}", "deposited", amount)
        case {"transfer": int(amount), "from": str(payer), "to": str(payee)} if 0 < amount < LIMIT:
            pay(objects, payer, payee, amount)
            return balance_of(objects, payer)
        case {"restock": str(goods), "count": int(count)} if 0 < count < LIMIT:
            change(objects, f"goods:{goods}", "restocked", count)
            return change(objects, f"goods:{goods}", "left", count)
        case {"buy": str(goods), "count": int(count), "price": int(price), "by": str(buyer), "of": str(seller)} if (
            0 < count < LIMIT and 0 < price < LIMIT
        ):
            return buy(objects, goods, count, price, buyer, seller)
        case {"balance": str(account)}:
            return balance_of(objects, account)
    raise RefusedError("there is no such request")


def change(objects: View, name: str, field: str, by: int) -> int:
    value = dict(objects.get(name, {}))
    value[field] = value.get(field, 0) + by
    objects[name] = value
    return int(value[field])


def balance_of(objects: View, account: str) -> int:
    return int(objects.get(f"account:{account}", {}).get("balance", 0))


def add(objects: View, account: str, amount: int) -> None:
    change(objects, f"account:{account}", "balance", amount)


def pay(objects: View, payer: str, payee: str, amount: int) -> None:
    has = balance_of(objects, payer)
    if has < amount:
        raise RefusedError(f"{payer} has {has}, and would pay {amount}")
    add(objects, payer, -amount)
    add(objects, payee, amount)


def buy(objects: View, goods: str, count: int, price: int, buyer: str, seller: str) -> int:
    """How many the buyer has now. The price is for all of them."""
    left = int(objects.get(f"goods:{goods}", {}).get("left", 0))
    if left < count:
        raise RefusedError(f"there are {left} of {goods} left, and {buyer} wants {count}")
    pay(objects, buyer, seller, price)
    change(objects, f"goods:{goods}", "left", -count)
    change(objects, f"goods:{goods}", "sold", count)
    return change(objects, f"account:{buyer}", f"has {goods}", count)


def problems(objects: dict[str, Any]) -> list[str]:
    """What can't be, whatever was done: for tests."""
    accounts = {name: value for name, value in objects.items() if name.startswith("account:")}
    found = [f"{name} has {each['balance']}" for name, each in accounts.items() if each.get("balance", 0) < 0]
    there, paid_in = (sum(each.get(field, 0) for each in accounts.values()) for field in ("balance", "deposited"))
    if there != paid_in:
        found.append(f"{paid_in} was deposited, and there is {there}")
    for name, each in objects.items():
        if name.startswith("goods:"):
            goods = name.removeprefix("goods:")
            owned = sum(account.get(f"has {goods}", 0) for account in accounts.values())
            if each.get("left", 0) + each.get("sold", 0) != each.get("restocked", 0) or owned != each.get("sold", 0):
                found.append(f"of {goods}: {each}, and {owned} are owned")
    return found


# -- for clients


async def ask(client: amcast.AsyncClient, names: list[str], **request: Any) -> Any:
    """Every group executes every operation, and all of them answer the same."""
    results = await client.call(client.groups, operation(names, **request))
    return answer_of(next(iter(results.values())))


async def deposit(client: amcast.AsyncClient, account: str, amount: int) -> None:
    await ask(client, [f"account:{account}"], deposit=amount, to=account)


async def transfer(client: amcast.AsyncClient, payer: str, payee: str, amount: int) -> int:
    """What the payer has left. Raises `RefusedError` if that is not enough."""
    names = [f"account:{payer}", f"account:{payee}"]
    return int(await ask(client, names, transfer=amount, to=payee, **{"from": payer}))


async def purchase(client: amcast.AsyncClient, buyer: str, seller: str, goods: str, count: int, price: int) -> int:
    names = [f"account:{buyer}", f"account:{seller}", f"goods:{goods}"]
    return int(await ask(client, names, buy=goods, count=count, price=price, by=buyer, of=seller))
