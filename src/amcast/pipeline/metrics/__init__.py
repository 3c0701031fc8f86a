"""What runs were like, as small tables: latency, throughput, cost, mistakes. Whether they were right is for checks."""

from .frames import Frames, frames_of, processes_frame
from .suite import METRICS, Measure, compute, run_summary

__all__ = ["METRICS", "Frames", "Measure", "compute", "frames_of", "processes_frame", "run_summary"]
