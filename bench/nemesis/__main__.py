"""`python -m bench.nemesis`, or `make nemesis`."""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import get_args

from amcast.protocols import PROTOCOLS

from . import __doc__ as description
from . import torment
from ._faults import FAULTS
from ._judge import Engine


def main() -> int:
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--protocol", action="append", choices=PROTOCOLS, help="may be repeated; default: all")
    parser.add_argument("--fault", action="append", choices=FAULTS, help="may be repeated; default: all")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--clients", type=int, default=12)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--engine", choices=get_args(Engine), default="memory", help="who judges the trace")
    parser.add_argument("--keep", action="store_true", help="keep the folder with logs and trace")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # nodes and disks must not outlive this program
    return max([_run(protocol, options) for protocol in options.protocol or PROTOCOLS])


def _run(protocol: str, options: argparse.Namespace) -> int:
    folder = Path(tempfile.mkdtemp(prefix="amcast-nemesis-"))
    begun = time.monotonic()
    print(f"{protocol}, seed {options.seed}", flush=True)
    try:
        result = asyncio.run(
            torment(
                folder / "cluster",
                protocol,
                options.rounds,
                options.seed,
                options.clients,
                options.fault or FAULTS,
                options.engine,
            )
        )
    finally:
        if options.keep:
            print(f"kept: {folder}", file=sys.stderr)
        else:
            shutil.rmtree(folder, ignore_errors=True)
    document = result.to_json()
    if options.json:
        print(json.dumps(document, indent=2))
    else:
        for name, value in document.items():
            print(f"{name:14} {value}")
    print(f"{protocol}: {'good' if result.is_good else 'BAD'}, {time.monotonic() - begun:.0f} s\n", flush=True)
    return 0 if result.is_good else 1


if __name__ == "__main__":
    sys.exit(main())
