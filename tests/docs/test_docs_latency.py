"""docs/latency.md: its example runs, its words are those of the code, and it is linked."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from amcast.trace.latency import AT

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "latency.md"


def test_the_example_runs() -> None:
    (block,) = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(block, "docs/latency.md", "exec"), names)
    assert names["delays"].keys() == AT.keys()


def test_the_drawing_has_the_figures_of_the_example() -> None:
    text = PAGE.read_text()
    (asserted,) = re.findall(r"assert delays == \{(.*)\}", text)
    for at, delays in re.findall(r'"(\w+)": (\d)', asserted):
        assert f"{AT[at]}: {delays}" in text


def test_the_words_are_those_of_the_code() -> None:
    text = PAGE.read_text()
    for at, words in AT.items():
        assert f"| **{words}** |" in text
        assert f"`{at}`" in text


def test_it_is_linked() -> None:
    for name in ("README.md", "ARCHITECTURE.md"):
        assert "](docs/latency.md)" in (ROOT / name).read_text(), name
