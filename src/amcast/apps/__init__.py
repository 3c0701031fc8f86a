"""Applications on top of ordered delivery: how to run one optimistically, or on objects, and examples."""

from .dbsm import Certifier, Database, Outcome, Transaction
from .objects import ObjectStore, RefusedError, View, answer_of, operation
from .optimistic import Application, Confirmed, Executor, RolledBack, Tentative

__all__ = [
    "Application",
    "Certifier",
    "Confirmed",
    "Database",
    "Executor",
    "ObjectStore",
    "Outcome",
    "RefusedError",
    "RolledBack",
    "Tentative",
    "Transaction",
    "View",
    "answer_of",
    "operation",
]
