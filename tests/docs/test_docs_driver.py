"""The driver in the driver's manual works: its blocks run one after the other, and assert what the text says."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

from amcast.core import Outbox, Process

MANUAL = Path(__file__).parents[2] / "docs" / "driver.md"


def test_the_driver_of_the_manual_works() -> None:
    names: dict[str, Any] = {"__name__": "__main__"}
    blocks = re.findall(r"^```python\n(.*?)^```$", MANUAL.read_text(), re.MULTILINE | re.DOTALL)
    for number, block in enumerate(blocks):
        exec(compile(block, f"driver.md, block {number}", "exec"), names)
    assert [driver.boots for driver in names["drivers"].values()] == [2, 2, 1, 1]
    assert names["drivers"][2].disk, "what was voted for is on the disk"


def test_the_manual_speaks_of_the_whole_interface() -> None:
    text = MANUAL.read_text()
    for interface in (Outbox, Process):
        for name, _ in inspect.getmembers(interface):
            assert name.startswith("_") or f"`{name}" in text, f"the manual does not speak of {name}"
