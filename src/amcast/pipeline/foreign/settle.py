"""The description of an imported run: what the user declared, what follows from the files, and what nobody can know.

What is inferred is said in words. A property that the files could break, but can't prove, is listed as unproven with
the reason, and will not pass: for example, where the processes of a group are those that delivered something, one that
should have delivered and did not is not seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from ...core import UsageError
from ...trace.schema import PROPERTIES, RunInfo, info_problem
from .found import Found
from .numbers import Numbering, group_infos, number_names, people_sort
from .problems import Problem, Problems, quoted
from .sources import Source

_NAMED_MAX = 6

NO_MULTICASTS = "the trace has no multicasts: what was to be delivered, and where, can't be seen"
NO_POSITIONS = "the trace has no positions: the order of its rows was taken, so a gap can't be seen"
NO_SUBJECT = "no wire message says which message it is about"
NO_TIMES = "the deliveries have no times"
INFERRED_GROUPS = (
    "the processes are those that delivered something: one that should have and did not can't be seen;"
    " name all with --group"
)


class Declared(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What the user says of a trace. A file of it looks like run.json, with names in place of numbers."""

    run_id: str | None = None
    protocol: str = "foreign"
    seed: int = 0
    complete: bool = False
    groups: dict[str, list[str | int]] | None = None
    correct: list[str | int] | None = None
    claims: list[str] = []
    missing: list[str] = []


class Settled(msgspec.Struct, frozen=True):
    info: RunInfo
    groups: dict[str, list[str]]
    numbering: Numbering
    words: list[str]


class Imported(msgspec.Struct, frozen=True):
    out: str
    info: RunInfo
    rows: dict[str, int]
    words: list[str]  # what was inferred or left out


def read_declared(path: Path) -> Declared:
    try:
        return msgspec.json.decode(path.read_bytes(), type=Declared)
    except OSError as error:
        raise UsageError(f"{path}: can't be read: {error.strerror or error}") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        known = ", ".join(Declared.__struct_fields__)
        raise UsageError(f"{path}: {str(error).splitlines()[0]}; it may have {known}") from error


def settle(found: Found, declared: Declared, sources: Sequence[Source], out: Path, ignored: set[str]) -> Settled:
    problems = Problems()
    too_many = found.problem()
    if too_many is not None:
        problems.add(Problem(too_many))
        problems.refuse()
    words: list[str] = _ignored_words(sources, ignored)
    groups = _declared_groups(declared, found, problems) if declared.groups is not None else None
    is_inferred = groups is None
    if groups is None:
        groups = _inferred_groups(found, problems)
    if is_inferred and groups:
        words.append(
            f"groups: {_listing([f'{name} ({len(members)})' for name, members in groups.items()])}, from who delivered"
        )
    problems.refuse()
    numbering = number_names(groups, found.others, found.are_numbers)
    correct = _correct(declared, found, numbering, problems, words)
    problems.refuse()
    unproven = _unproven(found, sources, declared, is_inferred) if groups else {}
    if groups and not has_multicasts(sources):
        words.append("multicasts: each message is taken as sent to the groups that delivered it")
    for reason in dict.fromkeys(unproven.values()):
        names = [name for name, why in unproven.items() if why == reason]
        words.append(f"{', '.join(names)} can't pass: {reason}")
    if found.least_pos:
        at = found.least_pos
        words.append(f"positions begin at {at}, not at 0: say --first-position {at} if the system counts from there")
    if groups and not declared.complete:
        words.append(
            "not declared complete, so validity and agreement are unknown; say --complete if the run came to its end"
        )
    info = RunInfo(
        run_id=declared.run_id or out.resolve().name,
        protocol=declared.protocol,
        seed=declared.seed,
        complete=declared.complete,
        groups=group_infos(numbering, groups),
        correct=correct,
        claims=tuple(declared.claims),
        missing=tuple(declared.missing),
        unproven=unproven,
        names=numbering.names_info(),
        extra={"imported": {"files": [Path(source.path).name for source in sources], "words": words}},
    )
    wrong = info_problem(info)
    if wrong is not None:
        problems.add(Problem(wrong))
        problems.refuse()
    return Settled(info, groups, numbering, words)


def _listing(names: Sequence[str]) -> str:
    more = len(names) - _NAMED_MAX
    return ", ".join(names[:_NAMED_MAX]) + (f" and {more} more" if more > 0 else "")


def _ignored_words(sources: Sequence[Source], ignored: set[str]) -> list[str]:
    names = dict.fromkeys([name for source in sources for name in source.ignored] + sorted(ignored))
    return [f"columns that are ignored: {_listing([quoted(name) for name in names])}"] if names else []


# ------------------------------------------------------------------------------------------------ groups


def _declared_groups(declared: Declared, found: Found, problems: Problems) -> dict[str, list[str]]:
    assert declared.groups is not None
    if not found.groups_of and found.rows.get("operations"):
        problems.add(Problem("groups are declared, and nothing is delivered: operations alone need no groups"))
    groups = {name: [str(process) for process in members] for name, members in declared.groups.items()}
    home: dict[str, str] = {}
    for group, members in groups.items():
        if not members:
            problems.add(Problem(f"group {group} is declared without a process"))
        for process in members:
            if process in home:
                problems.add(
                    Problem(f"process {process} is declared in {home[process]} and in {group}: groups are disjoint")
                )
            home[process] = group
    for process, named in sorted(found.groups_of.items()):
        if process not in home:
            problems.add(Problem(f"process {process} delivers, and is in none of the declared groups: add it to one"))
        for group in sorted(named - groups.keys()):
            problems.add(Problem(f"process {process} delivers for {group}, which is no declared group"))
    for group in sorted(found.addressed - groups.keys()):
        problems.add(Problem(f"a message is addressed to {group}, which is no declared group"))
    return groups


def _inferred_groups(found: Found, problems: Problems) -> dict[str, list[str]]:
    groups: dict[str, list[str]] = {}
    for process in people_sort(found.groups_of):
        named = sorted(found.groups_of[process]) or [process.rpartition(".")[0]]
        if len(named) > 1:
            what = (
                f"process {process} delivers for {named[0]} and for {named[1]}: say which group it is in with --group"
            )
            problems.add(Problem(what))
        elif not named[0]:
            what = (
                f"nothing says which group process {process} is in: add a column grp, or say --group NAME={process},..."
            )
            problems.add(Problem(what))
        groups.setdefault(named[0], []).append(process)
    for group in people_sort(found.addressed - groups.keys()):
        what = f"a message is addressed to {group}, and no process of it delivers: say --group {group}=ITS,PROCESSES"
        problems.add(Problem(what))
    if not groups and not found.rows.get("operations"):
        problems.add(Problem("nothing is delivered: say which processes there are with --group NAME=PROCESS,..."))
    return {group: groups[group] for group in people_sort(groups)}


def _correct(
    declared: Declared, found: Found, numbering: Numbering, problems: Problems, words: list[str]
) -> tuple[int, ...]:
    members = numbering.members
    if declared.correct is not None:
        for process in map(str, declared.correct):
            if process not in members:
                problems.add(Problem(f"process {process} is declared correct, and is in no group"))
        return tuple(sorted(members[str(process)] for process in declared.correct if str(process) in members))
    down = [process for process in members if process in found.down()]
    if declared.complete and members:
        but = f" but {_listing(down)}, which crashed" if down else ""
        words.append(f"correct: all {len(members)} processes{but}")
    return tuple(sorted(number for process, number in members.items() if process not in down))


# ---------------------------------------------------------------------------------------------- evidence


def _unproven(found: Found, sources: Sequence[Source], declared: Declared, is_inferred: bool) -> dict[str, str]:
    unproven: dict[str, str] = {}
    if is_inferred and declared.complete:
        unproven |= dict.fromkeys(("validity", "agreement", "replicas"), INFERRED_GROUPS)
    if not has_multicasts(sources):
        unproven |= dict.fromkeys(("integrity", "validity", "agreement", "prefix", "acyclic"), NO_MULTICASTS)
    if not _has(sources, "pos"):
        unproven["positions"] = NO_POSITIONS
    if found.rows.get("wire") and not found.is_wire_named:
        about_wire = {each.name for each in PROPERTIES if each.needs_wire}
        unproven |= {claim: NO_SUBJECT for claim in declared.claims if claim in about_wire}
    if "local-order" in declared.claims and not _has(sources, "t_us"):
        unproven["local-order"] = NO_TIMES
    return unproven


def _has(sources: Sequence[Source], column: str) -> bool:
    return all(column in source.columns for source in sources if source.table == "deliveries")


def has_multicasts(sources: Sequence[Source]) -> bool:
    return any(source.table == "multicasts" for source in sources)


def has_positions(sources: Sequence[Source]) -> bool:
    return _has(sources, "pos")


def extended(declared: Declared, **changes: Any) -> Declared:
    """What options say wins over what the file says."""
    return msgspec.structs.replace(declared, **{name: value for name, value in changes.items() if value})
