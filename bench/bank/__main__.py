"""`python -m bench.bank`, or `make bank`."""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from amcast.core import UsageError
from amcast.protocols import protocol

from . import FAULTS, Result, run
from . import __doc__ as description

_SHOWN = 50


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # nodes must not outlive this program
    results = []
    try:
        for name in options.protocols:
            results.append(_run(name, options))
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return 130
    except UsageError as error:  # such as a protocol that knows no replicas
        print(f"bank: {error}", file=sys.stderr)
        return 2
    if options.json:
        print(json.dumps([result.to_json() for result in results], indent=2))
    return 0 if all(result.is_good for result in results) else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench.bank", description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--protocols", type=_protocols, default="fastcast,multipaxos,flexcast", metavar="NAME,NAME")
    parser.add_argument("--faults", type=_faults, default=FAULTS, metavar="NAME,NAME", help=", ".join(FAULTS))
    parser.add_argument("--rounds", type=_positive, default=20)
    parser.add_argument("--groups", type=int, choices=range(2, 10), default=3, metavar="2-9", help="of three replicas")
    parser.add_argument("--clients", type=_positive, default=12)
    parser.add_argument("--seed", type=int, default=1, help="of the faults and of what clients do")
    parser.add_argument("--keep", action="store_true", help="keep the folder with data and logs")
    parser.add_argument("--json", action="store_true")
    return parser


def _protocols(text: str) -> list[str]:
    try:
        return [protocol(name).name for name in text.split(",")]
    except UsageError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _faults(text: str) -> tuple[str, ...]:
    names = tuple(text.split(","))
    if unknown := [name for name in names if name not in FAULTS]:
        raise argparse.ArgumentTypeError(f"there is no fault '{unknown[0]}'; there are {', '.join(FAULTS)}")
    return names


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is no number of at least 1")
    return int(text)


def _run(name: str, options: argparse.Namespace) -> Result:
    folder = Path(tempfile.mkdtemp(prefix="amcast-bank-"))
    begun = time.monotonic()
    print(f"{name}, seed {options.seed}", file=sys.stderr, flush=True)
    try:
        result = asyncio.run(
            run(
                folder / "cluster",
                name,
                options.rounds,
                options.seed,
                groups=options.groups,
                clients=options.clients,
                faults=options.faults,
            )
        )
    finally:
        if options.keep:
            print(f"kept: {folder}", file=sys.stderr)
        else:
            shutil.rmtree(folder, ignore_errors=True)
    if not options.json:
        _show(result, time.monotonic() - begun)
    return result


def _show(result: Result, took_s: float) -> None:
    faults = ", ".join(f"{name} {number}" for name, number in sorted(result.faults.items()))
    clients = ", ".join(f"{name} {number:,}" for name, number in sorted(result.on_the_way.items()))
    print(f"{result.protocol}: {'good' if result.is_good else 'BAD'}, {took_s:.0f} s")
    print(f"  {result.groups} groups of 3, {result.clients} clients, {result.rounds} rounds: {faults}")
    print(f"  {result.done:,} transfers done, {result.refused:,} refused; {clients}")
    print(f"  {result.totals:,} totals and {result.queries:,} balances read")
    lines = [f"problem: {each}" for each in result.problems] + result.violations
    for line in lines[:_SHOWN]:
        print(f"  {line}")
    if len(lines) > _SHOWN:
        print(f"  and {len(lines) - _SHOWN:,} more")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
