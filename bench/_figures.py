"""What benchmarks return (`Figure`), and how much work each of them does (`Sizes`)."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

Result = TypeVar("Result")
Progress = Callable[[str], None]


@dataclass(frozen=True)
class Figure:
    """A number that was measured. One without a target is for information only."""

    name: str
    reached: float
    unit: str
    detail: str
    target: float | None = None
    is_limit: bool = False  # the target is the most that is allowed, not the least

    @property
    def ok(self) -> bool | None:
        if self.target is None:
            return None
        return self.reached <= self.target if self.is_limit else self.reached >= self.target

    def to_json(self) -> dict[str, str | float | bool | None]:
        names = ("name", "reached", "target", "unit", "ok", "detail")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True)
class Sizes:
    """How much work a benchmark does. Targets are for these sizes; the small ones (QUICK) only show that it runs."""

    loop_nodes: int = 1_000
    loop_hops: int = 400  # of each pair of nodes
    loop_rounds: int = 5
    run_messages: int = 50_000
    run_rounds: int = 3
    linear_small: int = 5_000
    linear_large: int = 200_000
    linear_pauses: int = 6
    checker_deliveries: int = 1_000_000
    checker_rounds: int = 3
    protocol_messages: int = 10_000
    operations: int = 100_000


QUICK = Sizes(
    loop_nodes=200,
    loop_hops=100,
    loop_rounds=3,
    run_messages=2_000,
    run_rounds=1,
    linear_small=500,
    linear_large=4_000,
    linear_pauses=2,
    checker_deliveries=100_000,
    checker_rounds=2,
    protocol_messages=500,
    operations=2_000,
)


def cpu_seconds(action: Callable[[], Result]) -> tuple[float, Result]:
    """The CPU time of an action, and its result. Earlier garbage is collected first, so that it does not count."""
    gc.collect()
    start = time.process_time()
    result = action()
    return time.process_time() - start, result
