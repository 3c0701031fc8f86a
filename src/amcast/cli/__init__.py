"""The command line. Exit codes: 0 pass, 1 fail, 2 usage, 3 unknown."""

import sys

_STOPPED = 130  # as `_output.STOPPED`, which takes a while to load

__all__ = ["main"]


def main() -> None:
    """Runs the command line. Ctrl-C gives no traceback, also while modules are being loaded: that takes a while."""
    try:
        from ._app import main as run

        run()
    except KeyboardInterrupt:
        sys.stderr.write("error: stopped\n")
        sys.exit(_STOPPED)
