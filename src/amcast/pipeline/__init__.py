"""Spark over recorded runs: a session, runs ready to read, checks of what they promise, traces to measure with.

It knows the tables of a run (`trace`) and how they are judged (`check`), and nothing of the protocols.
"""

from .checks import RunReport
from .ingest import Quarantined, Runs, check_runs, read_runs, violations
from .session import session, spark_session, stop_session
from .tracegen import TraceSpec, generate_trace

__all__ = [
    "Quarantined",
    "RunReport",
    "Runs",
    "TraceSpec",
    "check_runs",
    "generate_trace",
    "read_runs",
    "session",
    "spark_session",
    "stop_session",
    "violations",
]
