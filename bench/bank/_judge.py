"""What clients asked and what they were answered, and whether a bank that does everything once can have said so.

All clients live in one program, so events have one order: each beginning and each end of a call has a number of its
own. A transfer takes effect at some time between its beginning and its end, and only if its answer is `done`. That
bounds what an account has at any time, from both sides. Where nothing else is under way, as for an account that only
one client touches or when all clients have ended, the bounds are equal.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable
from itertools import accumulate, count

import msgspec

NEVER = 1 << 62


class Transfer(msgspec.Struct):
    """A deposit has no payer."""

    payer: str
    payee: str
    amount: int
    key: str
    began: int
    ended: int = NEVER
    is_done: bool | None = None  # None: nobody has an answer yet
    repeated: list[bool] = []  # answers to the same request, with the same key


class Query(msgspec.Struct, frozen=True):
    client: str
    account: str
    began: int
    ended: int
    value: int


class Total(msgspec.Struct, frozen=True):
    client: str
    value: int


class History:
    def __init__(self) -> None:
        self.transfers: list[Transfer] = []
        self.queries: list[Query] = []
        self.totals: list[Total] = []
        self._clock = count(1)

    def now(self) -> int:
        return next(self._clock)

    @property
    def deposited(self) -> int:
        return sum(each.amount for each in self.transfers if not each.payer)

    def balances(self) -> dict[str, int]:
        """What each account has in the end, by the answers."""
        found: Counter[str] = Counter()
        for each in self.transfers:
            if each.is_done:
                found[each.payee] += each.amount
                if each.payer:
                    found[each.payer] -= each.amount
        return dict(found)


class _Sums:
    """How much came together before a time."""

    def __init__(self, changes: Iterable[tuple[int, int]]) -> None:
        ordered = sorted(changes)
        self._times = [at for at, _ in ordered]
        self._sums = [0, *accumulate(amount for _, amount in ordered)]

    def before(self, time: int) -> int:
        return self._sums[bisect_left(self._times, time)]


class _Flow:
    """What went into an account, or out of it. A transfer without an answer may have been made."""

    def __init__(self, transfers: list[Transfer]) -> None:
        self._certain = _Sums((each.ended, each.amount) for each in transfers if each.is_done)
        self._possible = _Sums((each.began, each.amount) for each in transfers if each.is_done is not False)

    def least(self, began: int) -> int:
        return self._certain.before(began)

    def most(self, ended: int) -> int:
        return self._possible.before(ended)


class _Account:
    def __init__(self, credits: list[Transfer], debits: list[Transfer]) -> None:
        self._into, self._out_of = _Flow(credits), _Flow(debits)

    def least(self, began: int, ended: int) -> int:
        """At any time between these two."""
        return max(0, self._into.least(began) - self._out_of.most(ended))

    def most(self, began: int, ended: int) -> int:
        return self._into.most(ended) - self._out_of.least(began)


def _accounts(history: History) -> dict[str, _Account]:
    names = {name for each in history.transfers for name in (each.payer, each.payee)}
    names |= {each.account for each in history.queries}
    credits: dict[str, list[Transfer]] = {name: [] for name in names}
    debits: dict[str, list[Transfer]] = {name: [] for name in names}
    for each in history.transfers:
        credits[each.payee].append(each)
        debits[each.payer].append(each)
    return {name: _Account(credits[name], debits[name]) for name in names}


def judge(history: History) -> list[str]:
    """A line for each violation."""
    accounts = _accounts(history)
    found = _judge_totals(history)
    for query in history.queries:
        found += _judge_query(query, accounts[query.account])
    for transfer in history.transfers:
        found += _judge_transfer(transfer, accounts[transfer.payer])
    return found + _judge_order(history)


def _judge_totals(history: History) -> list[str]:
    right = history.deposited
    return [
        f"total: {each.client} read {each.value}, and {right} were deposited"
        for each in history.totals
        if each.value != right
    ]


def _judge_query(query: Query, account: _Account) -> list[str]:
    least, most = account.least(query.began, query.ended), account.most(query.began, query.ended)
    if least <= query.value <= most:
        return []
    right = f"{least}" if least == most else f"between {least} and {most}"
    return [f"balance: {query.client} read {query.value} of {query.account}, which had {right}"]


def _judge_transfer(transfer: Transfer, payer: _Account) -> list[str]:
    what = f"{transfer.amount} from {transfer.payer or 'nobody'} to {transfer.payee} ({transfer.key})"
    if transfer.is_done is None:
        return [f"answer: {what}: none"]
    found = []
    others = [each for each in transfer.repeated if each != transfer.is_done]
    if others:
        found.append(f"answer: {what}: first {_word(transfer.is_done)}, and when asked again {_word(others[0])}")
    if not transfer.payer:
        return found if transfer.is_done else [*found, f"transfer: {what}: a deposit was refused"]
    if transfer.is_done:
        most = payer.most(transfer.began, transfer.ended)
        if most < transfer.amount:
            found.append(f"transfer: {what}: done, and the payer had {most} at most")
    else:
        least = payer.least(transfer.began, transfer.ended)
        if least >= transfer.amount:
            found.append(f"transfer: {what}: refused, and the payer had {least} at least")
    return found


def _word(is_done: bool) -> str:
    return "done" if is_done else "refused"


def _judge_order(history: History) -> list[str]:
    """An account that nobody pays from never has less than anybody has read before."""
    paying = {each.payer for each in history.transfers}
    readings: dict[str, list[Query]] = {}
    for query in history.queries:
        if query.account not in paying:
            readings.setdefault(query.account, []).append(query)
    return [line for each in readings.values() for line in _going_back(each)]


def _going_back(queries: list[Query]) -> list[str]:
    by_end = sorted(queries, key=lambda query: query.ended)
    ends = [query.ended for query in by_end]
    highest = list(accumulate((query.value for query in by_end), max, initial=0))
    found = []
    for query in queries:
        known = highest[bisect_left(ends, query.began)]
        if query.value < known:
            found.append(f"balance: {query.client} read {query.value} of {query.account} after {known} was read")
    return found


class Saved(msgspec.Struct, frozen=True):
    """What a replica saved at its orderly stop."""

    position: int
    balances: dict[str, int]
    keys: bytes  # answers to requests with a key


def judge_replicas(saved: dict[str, Saved | None], balances: dict[str, int]) -> list[str]:
    """Those of a group must be equal, and have the balances that follow from the answers. By names, as g1.p0."""
    found = [f"replica: {name} has saved no state" for name, state in saved.items() if state is None]
    first: dict[str, tuple[str, Saved]] = {}
    for name, state in saved.items():
        if state is None:
            continue
        group = name.split(".")[0]
        other, expected = first.setdefault(group, (name, state))
        if state.position != expected.position:
            found.append(f"replica: {name} is at position {state.position}, {other} at {expected.position}")
        elif state != expected:
            found.append(f"replica: {name} and {other} differ at position {state.position}")
        right = {account: value for account, value in balances.items() if account.endswith(f"@{group}")}
        wrong = sorted(each for each in right.keys() | state.balances if right.get(each) != state.balances.get(each))
        found += [
            f"replica: {name} has {state.balances.get(each)} in {each}, and the answers say {right.get(each)}"
            for each in wrong
        ]
    return found
