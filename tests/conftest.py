"""What all tests share.

Tests that start Spark share one worker, and so one session: starting a second one costs more than it saves.
"""

from __future__ import annotations

from pathlib import Path

import pytest

HERE = Path(__file__).parent


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite", action="store_true", help="write expected output down as it is now; review the diff")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.relative_to(HERE).parts[0].startswith("pipeline"):
            item.add_marker(pytest.mark.xdist_group("spark"))
