"""Multi-Paxos in motion: interaction scripts in which a reader sees who says what, what is persisted, what is decided.

The steps are those of `paxos_stage.py`. Every script ends with a group that agrees and has nothing more to say.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.consensus.paxos_stage import PaxosStage
from tests.scripts import check_script

SCRIPTS = sorted((Path(__file__).parent / "scripts").glob("*.txt"))


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_a_script_plays_as_written(path: Path, request: pytest.FixtureRequest) -> None:
    stage = PaxosStage()
    check_script(path, stage.play, request)
    assert not stage.wire
    up = [member for member in stage.members if member.is_up]
    assert len(up) > 1
    assert all(member.values == up[0].values for member in up)
    assert [member.log.is_leader for member in up].count(True) == 1


def test_all_scripts_are_there() -> None:
    names = ["catch-up", "cut-off-leader", "duel", "election", "lost-disk", "lost-twice", "snapshot"]
    assert [path.stem for path in SCRIPTS] == names


def test_a_step_that_is_none_is_refused() -> None:
    with pytest.raises(AssertionError, match="'p0 dances' is no step of a script"):
        PaxosStage().play("p0 dances")
