"""The command line. Exit codes: 0 pass, 1 fail, 2 usage, 3 unknown."""

from ._app import main

__all__ = ["main"]
