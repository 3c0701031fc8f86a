"""What the data of a cluster depends on: its protocol, the protocol's own options, and who is in which group.

Data that was written under one layout means something else under another one. Of a group that grew from three members
to five, two old members that agreed are no majority any more. So every data folder says under which layout it was
formatted (`node/data_folder.py`), and every process says at HELLO which one it has. Addresses, regions, timeouts and
limits are no part of it: they may change whenever all processes are restarted.
"""

from __future__ import annotations

from typing import Any

import msgspec

from ..protocols import ReplicaConfig
from .config import ClusterConfig, split_name

_LISTED_MAX = 20  # names of members, in a text for people


class DataLayout(msgspec.Struct, frozen=True):
    protocol: str
    members: tuple[int, ...]  # of g1, g2, ...: the members of a group are p0, p1, ...
    epoch_s: int
    options: dict[str, Any]  # the protocol's own


def layout_of(config: ClusterConfig) -> DataLayout:
    made = config.replica_config()
    others = {*ReplicaConfig.__struct_fields__, *made.data_independent}
    own = [name for name in made.__struct_fields__ if name not in others]
    groups = [split_name(entry.id)[0] for entry in config.process]
    return DataLayout(
        config.protocol,
        tuple(groups.count(group) for group in sorted(set(groups))),
        config.epoch_s,
        # As JSON has them, so that what was read from a file equals what was made here: lists, and no tuples.
        {name: msgspec.json.decode(msgspec.json.encode(getattr(made, name))) for name in own},
    )


def difference(one: DataLayout, at_one: str, other: DataLayout, at_other: str) -> str | None:
    """The first thing in which two layouts differ, in words. `at_one` and `at_other` say where each was found."""
    if one.protocol != other.protocol:
        return f"the protocol is {one.protocol} {at_one} and {other.protocol} {at_other}"
    if len(one.members) != len(other.members):
        return f"there are {len(one.members)} groups {at_one} and {len(other.members)} {at_other}"
    for group, (here, there) in enumerate(zip(one.members, other.members, strict=True), start=1):
        if here != there:
            return f"group g{group} has {here} members {at_one} and {there} {at_other}: {_changed(here, there)}"
    if one.epoch_s != other.epoch_s:
        return f"epoch_s is {one.epoch_s} {at_one} and {other.epoch_s} {at_other}"
    for name in sorted({*one.options, *other.options}):
        value, other_value = one.options.get(name), other.options.get(name)
        if value != other_value:
            return f"the option {name} is {value} {at_one} and {other_value} {at_other}"
    return None


def _changed(here: int, there: int) -> str:
    word = "new" if here > there else "missing"
    if abs(here - there) > _LISTED_MAX:  # whoever says HELLO may claim any number
        return f"{abs(here - there)} are {word}"
    names = [f"p{index}" for index in range(min(here, there), max(here, there))]
    listed = names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
    return f"{listed} {'is' if len(names) == 1 else 'are'} {word}"
