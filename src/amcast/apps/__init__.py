"""Applications on top of ordered delivery: how to run one optimistically, and examples."""

from .dbsm import Certifier, Database, Outcome, Transaction
from .optimistic import Application, Confirmed, Executor, RolledBack, Tentative

__all__ = [
    "Application",
    "Certifier",
    "Confirmed",
    "Database",
    "Executor",
    "Outcome",
    "RolledBack",
    "Tentative",
    "Transaction",
]
