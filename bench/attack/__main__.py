"""`python -m bench.attack`, or `make attack`."""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import shutil
import signal
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from amcast.protocols import PROTOCOLS

from . import __doc__ as description
from ._attacks import ATTACKS, EVERY_PROTOCOL, FAMILIES
from ._bombardment import Bombardment, bombard
from ._judge import Outcome
from ._round import Settings, attack

_DEFAULT_PROTOCOL = "fastcast"
_FRAMES = 1_000_000


def main() -> int:
    defaults = Settings()
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--attack", action="append", choices=list(ATTACKS), help="may be repeated; default: all")
    parser.add_argument("--family", action="append", choices=FAMILIES, help="may be repeated; default: all")
    parser.add_argument("--protocol", action="append", choices=PROTOCOLS, help="may be repeated")
    parser.add_argument("--seconds", type=float, default=defaults.attack_s, help="of each attack")
    parser.add_argument("--calm", type=float, default=defaults.calm_s, help="seconds of peace before each")
    parser.add_argument("--connections", type=int, default=defaults.connections)
    parser.add_argument("--clients", type=int, default=defaults.clients)
    parser.add_argument("--frames", type=int, default=_FRAMES, help="mutated ones, without a network; 0: none")
    parser.add_argument("--keep", action="store_true", help="keep the folders with logs and traces")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # nodes must not outlive this program
    settings = Settings(options.calm, options.seconds, options.clients, options.connections)
    outcomes: list[Outcome | Bombardment] = []
    if not options.json:
        print(_HEADINGS, flush=True)
    for protocol, names in _rounds(options):
        outcome = _run(protocol, names, settings, options.keep)
        outcomes.append(outcome)
        if not options.json:
            print(_row(outcome), flush=True)
    for protocol, frames in _bombarded(options):
        bombardment = _bombard(protocol, frames)
        outcomes.append(bombardment)
        if not options.json:
            print(_bombardment_row(bombardment), flush=True)
    if options.json:
        print(json.dumps([outcome.to_json() for outcome in outcomes], indent=2))
    else:
        bad = sum(not outcome.is_good for outcome in outcomes)
        print(f"\n{len(outcomes)} rounds, {f'{bad} BAD' if bad else 'all good'}")
    return 0 if all(outcome.is_good for outcome in outcomes) else 1


def _rounds(options: argparse.Namespace) -> list[tuple[str, list[str]]]:
    """Each attack has a cluster of its own; but the lies are told all at once, to a cluster of each protocol."""
    wanted = [
        name
        for name, each in ATTACKS.items()
        if name in (options.attack or ([] if options.family else ATTACKS)) or each.family in (options.family or ())
    ]
    general = [name for name in wanted if ATTACKS[name].family not in EVERY_PROTOCOL]
    special = [name for name in wanted if ATTACKS[name].family in EVERY_PROTOCOL]
    rounds = [(protocol, [name]) for protocol in options.protocol or [_DEFAULT_PROTOCOL] for name in general]
    if special:
        rounds += [(protocol, special) for protocol in options.protocol or PROTOCOLS]
    return rounds


def _bombarded(options: argparse.Namespace) -> list[tuple[str, int]]:
    """With all attacks, or with those of the same family."""
    is_wanted = "frames" in (options.family or ()) or not (options.family or options.attack)
    protocols = options.protocol or PROTOCOLS
    return (
        [(protocol, options.frames // len(protocols)) for protocol in protocols] if is_wanted and options.frames else []
    )


def _bombard(protocol: str, frames: int) -> Bombardment:
    """In a process of its own, whose memory is measured."""
    folder = Path(tempfile.mkdtemp(prefix="amcast-attack-"))
    try:
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
            return pool.submit(bombard, folder / "c", protocol, frames).result()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _run(protocol: str, names: list[str], settings: Settings, keep: bool) -> Outcome:
    folder = Path(tempfile.mkdtemp(prefix="amcast-attack-"))
    begun = time.monotonic()
    try:
        return asyncio.run(attack(folder, protocol, names, settings))
    finally:
        if keep:
            print(f"kept: {folder} ({time.monotonic() - begun:.0f} s)", file=sys.stderr)
        else:
            shutil.rmtree(folder, ignore_errors=True)


_HEADINGS = f"{'attack':20} {'protocol':13} {'calm/s':>7} {'attacked/s':>10} {'kept':>5} {'MB':>5} {'trace':8} verdict"


def _row(outcome: Outcome) -> str:
    what = outcome.attacks[0] if len(outcome.attacks) == 1 else f"{len(outcome.attacks)} together"
    figures = f"{outcome.calm_rate:7.0f} {outcome.attacked_rate:10.0f} {outcome.kept:5.0%}"
    memory = max(outcome.peak_mb.values(), default=0.0)
    done = ", ".join(f"{count:,} {name}" for name, count in sorted(outcome.done.items()))
    lines = [
        f"{what:20} {outcome.protocol:13} {figures} {memory:5.0f} {outcome.verdict:8} "
        f"{'good' if outcome.is_good else 'BAD'}  ({done})"
    ]
    return "\n".join([*lines, *(f"    {complaint}" for complaint in outcome.complaints)])


def _bombardment_row(found: Bombardment) -> str:
    figures = f"{found.memory_mb:5.0f} {'':8} {'good' if found.is_good else 'BAD'}"
    done = f"{found.frames:,} frames, {found.closed:,} closed, {found.seconds:.0f} s"
    return "\n".join(
        [f"{'bombardment':20} {found.protocol:13} {'':24} {figures}  ({done})", *(f"    {p}" for p in found.problems)]
    )


if __name__ == "__main__":
    sys.exit(main())
