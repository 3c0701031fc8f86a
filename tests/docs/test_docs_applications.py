"""The page about applications: its state machine and its call run as they are written there."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import amcast
from amcast.net.local import temporary_cluster

PAGE = Path(__file__).parents[2] / "docs" / "applications.md"


def test_the_state_machine_of_the_page_is_called(tmp_path: Path) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    machine, call, keyed, limited, read = blocks
    (tmp_path / "counters.py").write_text(machine + limited + read)
    names: dict[str, Any] = {}
    exec(compile(machine + call + keyed + read, "applications.md", "exec"), names)
    app = f"{tmp_path / 'counters.py'}:Readable"
    with temporary_cluster("fastcast", groups=2, replicas=1, app=app) as cluster:
        assert asyncio.run(names["count"](cluster.config)) == {"g1": b"1", "g2": b"1"}
        assert asyncio.run(names["count"](cluster.config)) == {"g1": b"2", "g2": b"2"}
        assert asyncio.run(names["look"](cluster.config)) == (b"2", b"2")
        assert asyncio.run(names["pay"](cluster.config)) == {"g1": b"3", "g2": b"3"}
        assert asyncio.run(names["pay"](cluster.config)) == {"g1": b"3", "g2": b"3"}, "the same key: the same answer"
    app = f"{tmp_path / 'counters.py'}:Limited"
    with temporary_cluster("skeen", groups=2, replicas=1, app=app) as cluster:
        asyncio.run(fill_one_group(cluster.config))


async def fill_one_group(config: Any) -> None:
    async with amcast.connect(config) as client:
        for _ in range(12):
            await client.call("g2", b"")
        assert await client.call({"g1", "g2"}, b"") == {"g1": b"0", "g2": b"10"}, "g1 knows that g2 is full"


def test_the_state_of_the_page_is_saved_and_restored() -> None:
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(blocks[0], "applications.md", "exec"), names)
    machine, copy = names["Counters"]("g1"), names["Counters"]("g1")
    machine.counts = {"apples": 3, "two words": 1}
    copy.restore(machine.snapshot())
    assert copy.counts == machine.counts
