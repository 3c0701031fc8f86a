"""Recorded runs on Spark: reading them, checking what they claim, measuring, reporting; and generated traces.

It knows the tables of a run (`trace`) and how they are judged (`check`), and nothing of the protocols.
"""

from . import _required  # noqa: F401, before all that imports Spark
from .checks import RunReport
from .importing import import_on_spark
from .ingest import Quarantined, Runs, check_runs, read_runs, violations
from .spark import running_spark, spark_session, stop_spark
from .tracegen import TraceSpec, generate_trace

__all__ = [
    "Quarantined",
    "RunReport",
    "Runs",
    "TraceSpec",
    "check_runs",
    "generate_trace",
    "import_on_spark",
    "read_runs",
    "running_spark",
    "spark_session",
    "stop_spark",
    "violations",
]
