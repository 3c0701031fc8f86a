"""The exception for users: its text says what was wrong, where, and what to do about it."""

from __future__ import annotations


class UsageError(Exception):
    """Bad input of any kind. The command line prints its one line and exits with code 2."""


class QueryError(UsageError):
    """What a group's application raised when it was asked. Nothing has changed by it."""


class RetryableError(Exception):
    """The cluster could not do it in time. It may still do it, and to ask again later makes sense."""
