"""Calls against multicasts, on a real cluster of processes: `python -m bench.calls`.

    python -m bench.calls [--protocol fastcast] [--durability sync] [--rounds 31] [--quick] [--json]

Both hand the same payload to the same group of three with the same application, in turn, in one run, so that whatever
else the machine does hits both alike. Ratios are medians of the ratios of the rounds. A group orders and executes both
in the same way; a call also waits for what `apply` returned, which comes with the reply. So a call should cost hardly
more, with any number of them at a time.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from amcast.net.client.async_client import AsyncClient
from amcast.net.disk.records import Durability

from ._asking import Ask, Load, durabilities, exit_code_of, load, parser_of, with_client
from ._figures import Figure

_RATE_MIN = 0.9  # times the rate of multicasts
_PAYLOAD = b"x" * 100


@dataclass(frozen=True)
class Sizes:
    rounds: int = 31  # short and many: whatever else the machine does comes and goes
    seconds: float = 0.4  # of each, in a round
    outstanding: tuple[int, ...] = (1, 64, 512)


QUICK = Sizes(rounds=1, seconds=0.2, outstanding=(1, 16))

Rounds = dict[int, list[dict[str, Load]]]  # by how many were outstanding


async def measure(client: AsyncClient, sizes: Sizes) -> Rounds:
    asks: dict[str, Ask] = {
        "multicast": lambda: client.multicast("g1", _PAYLOAD),
        "call": lambda: client.call("g1", _PAYLOAD),
    }
    found: Rounds = {count: [] for count in sizes.outstanding}
    for ask in asks.values():  # warms up
        await load(ask, sizes.seconds / 3, sizes.outstanding[-1])
    for number in range(sizes.rounds):
        order = list(asks) if number % 2 else list(reversed(asks))  # whoever comes second has a longer log behind it
        for count, rounds in found.items():
            rounds.append({name: await load(asks[name], sizes.seconds, count) for name in order})
    return found


def figures_of(found: Rounds, title: str) -> list[Figure]:
    figures = []
    for count, rounds in found.items():
        rates = median([each["call"].rate / each["multicast"].rate for each in rounds])
        times = median([each["call"].p50_us / each["multicast"].p50_us for each in rounds])
        called, sent = ([each[name] for each in rounds] for name in ("call", "multicast"))
        rate = f"{median(each.rate for each in called):,.0f} against {median(each.rate for each in sent):,.0f} a second"
        p50 = f"{median(each.p50_us for each in called):,.0f} against {median(each.p50_us for each in sent):,.0f} us"
        figures.append(Figure(f"{title}: rate of calls, {count} outstanding", rates, "x", rate, _RATE_MIN))
        figures.append(Figure(f"{title}: p50 of calls, {count} outstanding", times, "x", p50))
    return figures


def run(protocol: str, durability: Durability, sizes: Sizes) -> list[Figure]:
    found = with_client(protocol, durability, lambda client, _: measure(client, sizes))
    return figures_of(found, f"{protocol}, {durability}")


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser_of("calls", "Measures calls against multicasts.", Sizes().rounds).parse_args(arguments)
    sizes = QUICK if options.quick else Sizes(rounds=options.rounds)
    figures = [each for durability in durabilities(options) for each in run(options.protocol, durability, sizes)]
    return exit_code_of(figures, options)


if __name__ == "__main__":
    sys.exit(main())
