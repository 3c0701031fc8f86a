"""The page of workloads names every option, as it is usually, and the shares that transactions have."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from amcast.workload import KINDS
from amcast.workload.gtpcc import SHARES

PAGE = (Path(__file__).parents[2] / "docs" / "workloads.md").read_text()


def section(title: str) -> str:
    return PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def listed(title: str) -> dict[str, str]:
    """Option -> its usual value, of the tables in a section."""
    found: dict[str, str] = {}
    for names, usual in re.findall(r"^\| ((?:`\w+`(?:, )?)+) \| ([^|]+) \|", section(title), re.MULTILINE):
        found |= dict(zip(re.findall(r"`(\w+)`", names), usual.strip().split(", "), strict=True))
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_all_options_are_listed_with_their_usual_values(kind: str) -> None:
    wanted = {field.name: field.default for field in msgspec.structs.fields(KINDS[kind])}
    wanted |= {"own_stream": True} if kind == "micro" else {}  # the command line's
    found = listed(kind)
    assert set(found) == set(wanted)
    for name, usual in wanted.items():
        assert found[name] == shown(usual), name


def shown(value: object) -> str:
    if value is None or isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


def test_the_shares_of_transactions_are_listed() -> None:
    assert f"| new order | {SHARES['new order']} % |" in PAGE
    assert f"| payment | {SHARES['payment']} % |" in PAGE
    assert f"| {', '.join(list(SHARES)[2:])} | 4 % each |" in PAGE
