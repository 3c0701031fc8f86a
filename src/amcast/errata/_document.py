"""docs/errata.md and its diagrams, made from the errata themselves, so that they are never out of date."""

from __future__ import annotations

from dataclasses import replace

import msgspec

from ..check import Violation, check_run, space_time_svg
from ..trace import Run
from ._erratum import Erratum, Replay, replay

_HEAD = """# Errata of published algorithms

The published algorithms have flaws that random simulation finds in seconds. Each is kept as a small subclass of the
mended protocol, in `amcast.errata`, together with an execution that shows it. `amcast errata` replays all of them, and
`amcast errata NAME` one: the algorithm as published, the schedule, the violation, the mend. Where a schedule is a
script, `m1 to g1 g3` multicasts m1, `g1 -> g3` lets the next message from g1 to g3 arrive, and `rest` lets everything
arrive that waits. In FlexCast's scripts ranks are the groups' numbers.

This page is made from the errata: `pytest tests/errata --rewrite` writes it again.
"""


def make_document(errata: tuple[Erratum, ...]) -> dict[str, str]:
    """File names in docs/, and what they hold."""
    files: dict[str, str] = {}
    sections = [_HEAD]
    for each in errata:
        made, run = replay(each)
        picture = _diagram(run, made)
        if picture is not None:
            files[f"errata/{each.name}.svg"] = picture
        sections.append(_section(made, picture is not None))
    files["errata.md"] = "\n".join(sections)
    return files


def _section(made: Replay, has_diagram: bool) -> str:
    lines = [
        f"## `{made.name}`",
        "",
        f"{made.paper}.",
        "",
        f"**Published.** {made.published}",
        "",
        f"**What comes of it.** {made.problem}",
        "",
        f"**Mend.** {made.mend}",
        "",
        "```",
        *made.schedule,
        "```",
        "",
        f"Violates {made.violations[0].property}: {made.violations[0].explanation}.",
        "",
    ]
    if has_diagram:
        lines += [f"![{made.name}](errata/{made.name}.svg)", ""]
    return "\n".join(lines)


def _diagram(run: Run, made: Replay) -> str | None:
    violation = made.violations[0]
    if violation.property == "liveness":
        # The run is stuck, so what is missing will never come: judged as a complete run, it shows who misses it.
        run = replace(run, info=msgspec.structs.replace(run.info, complete=True))
        violation = check_run(run).violations[0]
    return space_time_svg(run, violation) if _can_be_drawn(violation) else None


def _can_be_drawn(violation: Violation) -> bool:
    return bool(violation.messages and violation.processes)
