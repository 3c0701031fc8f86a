"""Workloads of any size, as tables that Spark's tasks write and read: gTPC-C's transactions, a social network's users.

A table is drawn in blocks, each with random numbers of its own and in a file of its own. So it does not depend on how
many tasks there were, and memory is bounded by the blocks that are drawn at a time.
"""

from ._chances import Finding
from .description import Description, describe_tables
from .make import make_gtpcc, make_social
from .plan import GtpccTables, SocialTables, Tables, read_plan

__all__ = [
    "Description",
    "Finding",
    "GtpccTables",
    "SocialTables",
    "Tables",
    "describe_tables",
    "make_gtpcc",
    "make_social",
    "read_plan",
]
