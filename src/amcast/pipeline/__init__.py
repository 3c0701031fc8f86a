"""Spark over recorded runs: a session, runs ready to read, checks of what they promise, traces to measure with.

It knows the tables of a run and nothing else of the project.
"""

from .checks import PROPERTIES, RunReport, Violation
from .ingest import Quarantined, Runs, check_runs, read_runs, violations
from .session import session, spark_session, stop_session
from .tracegen import TraceSpec, generate_trace

__all__ = [
    "PROPERTIES",
    "Quarantined",
    "RunReport",
    "Runs",
    "TraceSpec",
    "Violation",
    "check_runs",
    "generate_trace",
    "read_runs",
    "session",
    "spark_session",
    "stop_session",
    "violations",
]
