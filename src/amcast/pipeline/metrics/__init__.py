"""Metrics of runs as small tables: latency, throughput, cost on the wire, wrong guesses. `checks` judges runs."""

from .frames import Frames, frames_of
from .suite import METRICS, Measure, compute

__all__ = ["METRICS", "Frames", "Measure", "compute", "frames_of"]
