"""The page about GeoPaxos: the policy that is written there moves objects."""

from __future__ import annotations

from typing import Any

from amcast.core import encode
from amcast.protocols.geopaxos import GeoPaxos, Operation, register_policy
from amcast.protocols.geopaxos.execution import initial_site
from amcast.sim import scenario
from amcast.sim.run import Simulation
from tests.docs.docs_pages import ROOT, blocks

INVOICE, LETTER = (
    next(f"{kind}:{n}" for n in range(100) if initial_site(f"{kind}:{n}", (1, 2)) == 2)
    for kind in ("invoice", "letter")
)


def test_the_policy_of_the_page_runs() -> None:
    names: dict[str, Any] = {}
    page = ROOT / "docs" / "geopaxos.md"
    policy = next(block.text for block in blocks(page, "python") if "PlacementPolicy" in block.text)
    exec(compile(policy, page.name, "exec", dont_inherit=True), names)
    register_policy("office", names["Office"])
    made = scenario("geopaxos", groups=2, clients=1, messages=0, options={"placement": "office"})
    simulation = Simulation(made)
    simulation.start()
    for name in (INVOICE, LETTER):
        simulation.multicast(made.topology().clients[0], made.topology().groups, encode(Operation((name,))))
    simulation.loop.run(until=1_000_000)
    replica = simulation.process(0)
    assert isinstance(replica, GeoPaxos)
    found = replica.placement_of(INVOICE)
    assert (found.site, replica.placement_of(LETTER).site) == (1, 2)
    assert found.note is not None
    assert found.note.reason == "the office is in local"
