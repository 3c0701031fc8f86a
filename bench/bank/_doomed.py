"""A program that is killed while it transfers money: `_doomed.py BANK.PY CLUSTER.TOML NAME PAYER PAYEE AMOUNT KEY`."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import amcast
from amcast.net.app_loading import find_factory


async def main(bank: str, config: str, name: str, payer: str, payee: str, amount: str, key: str) -> None:
    transfer: Any = find_factory(f"{bank}:transfer", Path())
    async with amcast.connect(config, name=name, wait=60.0) as client:
        print("asks", flush=True)
        await transfer(client, payer, payee, int(amount), key)
        await asyncio.Event().wait()  # for the kill


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
