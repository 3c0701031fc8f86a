"""Figures of metrics, each as SVG and PNG. They are drawn from small tables, without Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from ._comparison import Mark, Panel, comparison
from ._latency import latency_cdf
from ._reproduced import Curve, ReproducedPanel, reproduced
from ._style import Picture
from ._time import latency, throughput
from ._wire import wire_kinds

__all__ = ["Curve", "Mark", "Panel", "Picture", "ReproducedPanel", "all_figures", "comparison", "reproduced"]


def all_figures(
    tables: Mapping[str, pa.Table], faults: Mapping[str, list[dict[str, Any]]], runs: Sequence[str]
) -> list[Picture]:
    """The figures that have data, in the order of the report. `faults` of a run: rows with `what` and `at_us`."""
    drawn = (
        latency_cdf(tables["latency_cdf"], runs),
        throughput(tables["throughput_over_time"], faults, runs),
        latency(tables["latency_over_time"], faults, runs),
        wire_kinds(tables["wire_cost"], runs),
    )
    return [figure for figure in drawn if figure is not None]
