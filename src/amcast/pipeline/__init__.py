"""Recorded runs on Spark: reading them, checking what they claim, measuring, reporting; and generated traces.

It knows the tables of a run and nothing else of the project.
"""

from .checks import PROPERTIES, RunReport, Violation
from .ingest import Quarantined, Runs, check_runs, read_runs, violations
from .spark import running_spark, spark_session, stop_spark
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
    "running_spark",
    "spark_session",
    "stop_spark",
    "violations",
]
