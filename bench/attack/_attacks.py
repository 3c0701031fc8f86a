"""The list of attacks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from . import _connections, _exhaustion, _floods, _frames, _lies, _readers
from ._tools import Field


class Attack(NamedTuple):
    family: str
    run: Callable[[Field], Awaitable[None]]
    times: int = 1  # how much longer than others it takes


ATTACKS: dict[str, Attack] = {
    "mute-connections": Attack("connections", _connections.mute_connections, times=3),
    "half-handshakes": Attack("connections", _connections.half_handshakes, times=3),
    "slow-handshakes": Attack("connections", _connections.slow_handshakes),
    "slow-hello": Attack("connections", _connections.slow_hello),
    "half-frames": Attack("connections", _connections.half_frames),
    "coming-and-going": Attack("connections", _connections.coming_and_going),
    "nested-hello": Attack("frames", _frames.nested_hello),
    "nested-requests": Attack("frames", _frames.nested_requests),
    "mutated-hello": Attack("frames", _frames.mutated_hello),
    "mutated-requests": Attack("frames", _frames.mutated_requests),
    "flood-leaders": Attack("floods", _floods.flood_leaders),
    "flood-followers": Attack("floods", _floods.flood_followers),
    "never-settle": Attack("floods", _floods.never_settle),
    "mute-followers": Attack("readers", _readers.mute_followers),
    "mute-askers": Attack("readers", _readers.mute_askers),
    "mute-senders": Attack("readers", _readers.mute_senders),
    "sessions": Attack("exhaustion", _exhaustion.sessions),
    "held-sessions": Attack("exhaustion", _exhaustion.held_sessions),
    "held-observers": Attack("exhaustion", _exhaustion.held_observers),
    "ids": Attack("exhaustion", _exhaustion.ids),
    "lies-about-settled": Attack("lies", _lies.lies_about_settled),
    "lies-about-ids": Attack("lies", _lies.lies_about_ids),
    "lies-about-contents": Attack("lies", _lies.lies_about_contents),
    "lies-about-batches": Attack("lies", _lies.lies_about_batches),
    "lies-by-omission": Attack("lies", _lies.lies_by_omission),
    "lies-about-numbers": Attack("lies", _lies.lies_about_numbers),
}

FAMILIES = tuple(dict.fromkeys(attack.family for attack in ATTACKS.values()))
EVERY_PROTOCOL = ("lies",)  # families that depend on the protocol
