"""How likely what was drawn is, if it was drawn as stated: chi-square tests, and exact ones of single shares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import comb
from typing import Literal

import msgspec
import numpy as np
import numpy.typing as npt
from scipy import stats

from ...workload.gtpcc import ITEMS_MAX, ITEMS_MIN, WAREHOUSES_MAX, rank_shares

Floats = npt.NDArray[np.float64]

SIGNIFICANCE = 1e-6  # a true generator fails one of a million tests
_EXPECTED_MIN = 5.0  # in a cell of a chi-square test: rarer ones are taken together


class Finding(msgspec.Struct, frozen=True):
    """One frequency: what was stated, what was found, and how likely it is to be off by as much."""

    name: str
    verdict: Literal["pass", "fail"]
    stated: str
    found: str
    drawn: int  # by how many it is judged
    p_value: float


def of_shares(name: str, counts: Mapping[str, int], shares: Mapping[str, float]) -> Finding:
    """Chi-square: how often each of several things came. What was not to come at all must not."""
    total = sum(counts.values())
    impossible = sum(count for thing, count in counts.items() if not shares.get(thing))
    likely = {thing: share for thing, share in shares.items() if share}
    observed = np.array([counts.get(thing, 0) for thing in likely], np.float64)
    expected = np.array(list(likely.values())) * total
    value = 0.0 if impossible else _chi_square(observed, expected)
    shown = {thing: count / total for thing, count in counts.items()} if total else {}
    return _finding(name, _in_percent(shares), _in_percent(shown), total, value)


def of_one(name: str, count: int, total: int, share: float) -> Finding:
    """Exact: how often a thing came that comes with this probability."""
    value = float(stats.binomtest(count, total, share).pvalue) if total else 1.0
    found = f"{100 * count / total:.4g} %" if total else "-"
    return _finding(name, f"{100 * share:.4g} %", found, total, value)


def of_total(name: str, count: int, mean: float) -> Finding:
    """Whether a sum of many Poisson draws is near its mean."""
    value = min(1.0, 2 * min(stats.poisson.cdf(count, mean), stats.poisson.sf(count - 1, mean)))
    return _finding(name, f"{mean:,.0f}", f"{count:,}", count, float(value))


def _finding(name: str, stated: str, found: str, drawn: int, value: float) -> Finding:
    return Finding(name, "fail" if value < SIGNIFICANCE else "pass", stated, found, drawn, value)


def _in_percent(shares: Mapping[str, float]) -> str:
    shown = [f"{thing} {100 * share:.3g}" for thing, share in list(shares.items())[:6] if share]
    return ", ".join(shown) + (", ... %" if len(shares) > 6 else " %")


def _chi_square(observed: Floats, expected: Floats) -> float:
    order = np.argsort(expected)
    observed, expected = observed[order], expected[order]
    few = int(np.searchsorted(np.cumsum(expected), _EXPECTED_MIN)) + 1 if expected[0] < _EXPECTED_MIN else 1
    observed = np.concatenate(([observed[:few].sum()], observed[few:]))
    expected = np.concatenate(([expected[:few].sum()], expected[few:]))
    if len(expected) < 2:
        return 1.0
    value: float = stats.chi2.sf(((observed - expected) ** 2 / expected).sum(), len(expected) - 1)
    return float(value)


def order_shares(remote: float, locality: float, others: int, is_global: bool) -> dict[tuple[int, int], float]:
    """How likely a new order has so many items, so many of them from other warehouses.

    In the global mix only orders count that go to two or three warehouses.
    """
    ranks = rank_shares(locality, others)
    found = {}
    for items in range(ITEMS_MIN, ITEMS_MAX + 1):
        for far in range(items + 1):
            share = comb(items, far) * remote**far * (1 - remote) ** (items - far)
            found[items, far] = share * (_few_warehouses(far, ranks) if is_global else 1.0)
    total = sum(found.values())
    return {key: share / total for key, share in found.items()}


def _few_warehouses(far: int, ranks: Sequence[float]) -> float:
    """How likely so many items are from one other warehouse or from two."""
    assert WAREHOUSES_MAX == 3
    if not far:
        return 0.0
    one = sum(share**far for share in ranks)
    pairs = [(a, b) for at, a in enumerate(ranks) for b in ranks[at + 1 :]]
    return one + sum((a + b) ** far - a**far - b**far for a, b in pairs)
