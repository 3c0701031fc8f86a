"""The answer of a check: pass, fail or unknown for each property, and evidence that people can follow.

The in-memory checker, the checker on Spark and the watch of a growing run all answer in these words.

Unknown is a verdict of its own. A run that was cut short, for example, can't prove agreement: a delivery that is
missing now might still have come. And a run of which some process left no trace proves nothing at all, since the rows
that nobody has might break any property. What it does show may still be a violation.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Literal

import msgspec

from ..core import MessageId, ProcessId
from ..trace import schema

Verdict = Literal["pass", "fail", "unknown"]

PROPERTIES = tuple(each.name for each in schema.PROPERTIES)
ALWAYS_CHECKED = tuple(each.name for each in schema.PROPERTIES if each.is_always_judged)
CHECKED_IF_CLAIMED = tuple(each.name for each in schema.PROPERTIES if not each.is_always_judged)
ABOUT_THE_WIRE = tuple(each.name for each in schema.PROPERTIES if each.needs_wire)
ABOUT_OPERATIONS = tuple(each.name for each in schema.PROPERTIES if each.about_operations)
CONFLICT_ORDER = "conflict-order"
TOTAL_ORDER = ("prefix", "acyclic")  # not judged where only conflicting messages are ordered


def always_checked(claims: Collection[str]) -> tuple[str, ...]:
    """What is judged of a run with these claims, besides the claims."""
    return tuple(name for name in ALWAYS_CHECKED if CONFLICT_ORDER not in claims or name not in TOTAL_ORDER)


VIOLATIONS_PER_PROPERTY = 5  # one broken row can break thousands of others: the first few tell the story

# Why a verdict is unknown.
CUT_SHORT = "the run did not come to its end: what is missing might still have come"
NO_STAMPS = "they are claimed, but no delivery has one"
NO_WIRE = "the wire was not recorded: nobody can say who spoke to whom"
NO_SENDERS = "the trace does not say who multicast each message: a sender that crashed owes nothing"
NO_NUMBERS = "the trace does not say who multicast each message, and as which of its own"
NOT_KNOWN = "this checker knows no such property"
NO_GROUPS = "the run has no groups: there is nothing but operations"
_MISSING_NAMED = 3


class OperationSeen(msgspec.Struct, frozen=True):
    """What a client did, as a diagram shows it."""

    client: ProcessId
    name: str  # of the client
    invoked_us: int
    returned_us: int | None
    what: str
    is_bad: bool  # its answer can't be explained


class Violation(msgspec.Struct, frozen=True, omit_defaults=True):
    """Evidence that a property does not hold.

    For `prefix` and `acyclic` the lists are a cycle: processes[i] delivered messages[i] before messages[i + 1] (or
    without it), and the last process delivered the last message before the first. For `linearizability` there are
    operations, and `processes` are their clients.
    """

    property: str
    messages: list[MessageId]
    processes: list[ProcessId]
    explanation: str
    operations: list[OperationSeen] = []


def worst(verdicts: Collection[Verdict]) -> Verdict:
    """Several verdicts as one: fail if any is fail, else unknown if any is unknown."""
    if "fail" in verdicts:
        return "fail"
    return "unknown" if "unknown" in verdicts else "pass"


class Report(msgspec.Struct, frozen=True):
    """The answer of a check."""

    properties: dict[str, Verdict]
    violations: list[Violation]  # the first few of each property
    reasons: dict[str, str]  # why a verdict is unknown

    @property
    def verdict(self) -> Verdict:
        """Of all properties together."""
        return worst(self.properties.values())

    def to_json(self) -> dict[str, Any]:
        """As `amcast check --json` prints it."""
        return {
            "verdict": self.verdict,
            "properties": dict(self.properties),
            "violations": msgspec.to_builtins(self.violations),
            "reasons": dict(self.reasons),
        }


def not_recorded(missing: Sequence[str]) -> str | None:
    """The reason why nothing can pass, if evidence is missing."""
    if not missing:
        return None
    more = len(missing) - _MISSING_NAMED
    return "; ".join(["evidence is missing: " + missing[0], *missing[1:_MISSING_NAMED]]) + (
        f"; and {more} more" if more > 0 else ""
    )


class Findings:
    """The verdicts so far, while checks are at work. A property that failed stays failed.

    `missing` is what was not recorded of the run: if there is any, no property passes. `unproven` are properties that
    the tables of the run can't prove, with the reasons: those don't pass either. A watch that was stopped goes on with
    the verdicts, reasons and counts that it had.
    """

    def __init__(
        self,
        missing: Sequence[str] = (),
        verdicts: dict[str, Verdict] | None = None,
        reasons: dict[str, str] | None = None,
        counts: dict[str, int] | None = None,
        unproven: Mapping[str, str] | None = None,
    ) -> None:
        self._unproven = unproven or {}
        self.not_recorded = not_recorded(missing)
        self.verdicts = {} if verdicts is None else verdicts
        self.reasons = {} if reasons is None else reasons
        self.counts = {} if counts is None else counts  # violations of each property, also those beyond the first few
        self.violations: list[Violation] = []

    def begin(self, name: str) -> None:
        """From here on the property holds unless something is found against it."""
        if self.not_recorded is not None:
            self.unknown(name, self.not_recorded)
        elif name in self._unproven:
            self.unknown(name, self._unproven[name])
        elif self.verdicts.get(name) != "fail":
            self.verdicts[name] = "pass"
            self.reasons.pop(name, None)

    def unknown(self, name: str, reason: str) -> None:
        if self.verdicts.get(name) != "fail":
            self.verdicts[name] = "unknown"
            self.reasons[name] = reason

    def is_full(self, name: str) -> bool:
        """There is enough evidence: more would be dropped."""
        return self.counts.get(name, 0) >= VIOLATIONS_PER_PROPERTY

    def fail(
        self,
        name: str,
        messages: Iterable[MessageId],
        processes: Iterable[ProcessId],
        explanation: str,
        operations: Sequence[OperationSeen] = (),
    ) -> None:
        self.verdicts[name] = "fail"
        self.reasons.pop(name, None)
        if not self.is_full(name):
            # numpy's integers can't be written as JSON: they become Python's here.
            numbers = [int(m) for m in messages], [int(p) for p in processes]
            self.violations.append(Violation(name, *numbers, explanation, list(operations)))
        self.counts[name] = self.counts.get(name, 0) + 1

    def fail_by_absence(
        self,
        name: str,
        messages: Iterable[MessageId],
        processes: Iterable[ProcessId],
        explanation: str,
        operations: Sequence[OperationSeen] = (),
    ) -> None:
        """As `fail`, where the evidence is that some row is not there. If rows are missing it may be one of them."""
        reason = self.not_recorded or self._unproven.get(name)
        if reason is not None:
            self.unknown(name, reason)
        else:
            self.fail(name, messages, processes, explanation, operations)

    def refuse_strange(self, claims: Iterable[str]) -> None:
        """A claim that no checker has a definition of is unknown."""
        for claim in claims:
            if claim not in PROPERTIES:
                self.unknown(claim, NOT_KNOWN)

    def report(self) -> Report:
        """Violations are in the order of the properties."""
        by_property = sorted(self.violations, key=lambda found: list(self.verdicts).index(found.property))
        return Report(self.verdicts, by_property, self.reasons)


def listing(names: list[str], limit: int = 4) -> str:
    """`a`, `a and b`, `a, b and 3 others`."""
    if len(names) > limit:
        names = [*names[: limit - 1], f"{len(names) - limit + 1} others"]
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
