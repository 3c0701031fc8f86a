"""Published algorithms fail as told, the mended ones do not, and the page about them is up to date."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from amcast.core import UsageError
from amcast.errata import ERRATA, Directed, Erratum, erratum, make_document, replay
from amcast.errata import flexcast as published
from amcast.protocols import protocol
from amcast.protocols.flexcast import FlexCastAutomaton, build_with
from amcast.sim import simulate
from amcast.sim.fuzz import fuzz_scenario, violations_of

DOCS = Path(__file__).parents[2] / "docs"
SEEDS = 3_000


@pytest.mark.parametrize("each", ERRATA, ids=lambda each: each.name)
def test_the_published_algorithm_fails_and_the_mended_one_does_not(each: Erratum) -> None:
    made, _ = replay(each)
    assert made.holds
    assert {violation.property for violation in made.violations} <= each.breaks
    assert not made.mended


@pytest.mark.parametrize("each", [e for e in ERRATA if isinstance(e.schedule, Directed)], ids=lambda each: each.name)
def test_every_step_of_a_directed_schedule_is_needed(each: Erratum) -> None:
    """Without any one of its multicasts, the published algorithm does nothing wrong."""
    schedule = each.schedule
    assert isinstance(schedule, Directed)
    steps = schedule.describe()
    for at, step in enumerate(steps):
        if " to " in step:
            shorter = replace(schedule, script="\n".join(steps[:at] + steps[at + 1 :]))
            try:
                _, violations = shorter.play(published=True)
            except UsageError:
                continue  # a later step has nothing to hand over
            assert not {violation.property for violation in violations} & each.breaks, step


@pytest.mark.parametrize(
    "automaton",
    [
        published.EarlyAckLost,
        published.WaitsForHigher,
        published.ServesOneNotif,
        published.ReplacesDependencies,
    ],
)
def test_the_fuzzer_finds_flaws_of_flexcast_that_are_not_rare(automaton: type[FlexCastAutomaton]) -> None:
    """The cycle of three and the hasty flush are rarer: they have their directed schedules."""
    spec = replace(protocol("flexcast"), build=build_with(automaton))
    for seed in range(SEEDS):
        made = fuzz_scenario("flexcast", seed, ("pause", "partition"), groups=4)
        if violations_of(simulate(made, spec)):
            assert not violations_of(simulate(made))
            return
    pytest.fail(f"{automaton.__name__} survives {SEEDS} seeds")


def test_names_are_unique_and_begin_with_their_protocol() -> None:
    names = [each.name for each in ERRATA]
    assert len(set(names)) == len(names)
    assert all(each.name.startswith(f"{each.protocol}-") for each in ERRATA)
    assert erratum(names[0]) is ERRATA[0]
    with pytest.raises(UsageError, match="there is no erratum 'nope'"):
        erratum("nope")


def test_the_page_is_up_to_date(request: pytest.FixtureRequest) -> None:
    files = make_document(ERRATA)
    for name, content in files.items():
        path = DOCS / name
        if request.config.getoption("--rewrite"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
        assert path.read_text() == content, f"docs/{name} is out of date: pytest tests/errata --rewrite"
    assert {path.stem for path in (DOCS / "errata").iterdir()} == {Path(name).stem for name in files} - {"errata"}
