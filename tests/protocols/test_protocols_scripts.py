"""Interaction scripts: the executions that papers draw, step by step, against group automata.

The steps are those of `amcast.sim.stage`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from amcast.check import check_run
from amcast.core import Topology, message_id
from amcast.protocols import protocol
from amcast.protocols.flexcast import FlexCastAutomaton
from amcast.protocols.tree import Tree, TreeAutomaton, TreeConfig
from amcast.sim import Stage
from tests.scripts import check_script

SCRIPTS = sorted((Path(__file__).parent / "scripts").glob("flexcast-*.txt"))


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_a_figure_of_the_paper(path: Path, request: pytest.FixtureRequest) -> None:
    stage = Stage("flexcast", protocol("flexcast").claims, 3, lambda group: FlexCastAutomaton(group, (1, 2, 3), 1_000))
    check_script(path, stage.play, request)
    assert not stage.waiting()
    assert check_run(stage.run()).verdict == "pass"


def test_byzcast_hands_messages_down_its_tree(request: pytest.FixtureRequest) -> None:
    """With one process a group, as the figure has it: what a group relays is then believed at once."""
    parents = (0, 1, 1, 2, 2, 3, 3)
    topology = Topology({group: (group,) for group in range(1, 8)})
    tree = Tree(TreeConfig(parents=parents), topology)
    stage = Stage("byzcast", protocol("byzcast").claims, 7, lambda group: TreeAutomaton(group, tree))
    check_script(SCRIPTS[0].parent / "byzcast-figure-3.1b.txt", stage.play, request)
    assert stage.delivered[5] == [message_id(0, 1), message_id(0, 2)]
    assert check_run(stage.run()).verdict == "pass"


def test_the_three_figures_are_there() -> None:
    assert [path.stem[-2:] for path in SCRIPTS] == ["3a", "3b", "3c"]
