"""Metrics as pictures, each as SVG and PNG; they are drawn from tables, and know nothing of Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from ._latency import latency_cdf
from ._style import Picture
from ._time import latency, throughput
from ._wire import wire_kinds

__all__ = ["Picture", "all_figures"]


def all_figures(
    tables: Mapping[str, pa.Table], faults: Mapping[str, list[dict[str, Any]]], runs: Sequence[str]
) -> list[Picture]:
    """What there is to draw, in the order of a page. `faults`: of each run, what and at_us from its first multicast."""
    drawn = (
        latency_cdf(tables["latency_cdf"], runs),
        throughput(tables["throughput_over_time"], faults, runs),
        latency(tables["latency_over_time"], faults, runs),
        wire_kinds(tables["wire_cost"], runs),
    )
    return [figure for figure in drawn if figure is not None]
