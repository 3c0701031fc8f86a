"""`amcast overlay`: which tree of groups is best for a workload?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from ..core import GroupId, UsageError
from ..overlay import Outcome, OverlayTree, Plan, Problem, evaluate, find_tree, make_problem
from ..overlay.demand import Demand, read_demand
from ..overlay.drawing import shown_rate, tree_lines, tree_svg
from ..overlay.model import UNIT, names
from ..overlay.search import Method
from ._output import FAIL, PASS, UNKNOWN, JsonOption, console, errors, line, print_json, table

_EXIT_CODES = {"optimal": PASS, "viable": PASS, "not-viable": FAIL, "overloaded": FAIL, "none-found": UNKNOWN}
_WORDS = {
    "optimal": ("proven optimal", "green"),
    "viable": ("viable", "green"),
    "not-viable": ("no tree is viable, proven", "red"),
    "overloaded": ("not viable", "red"),
    "none-found": ("no viable tree was found", "yellow"),
}


def register(app: typer.Typer) -> None:
    @app.command("overlay")
    def overlay(
        workload: Annotated[
            Path, typer.Option("--workload", "-w", help="Destination sets with rates, or a run.", metavar="FILE|RUN")
        ],
        capacity: Annotated[
            list[str] | None,
            typer.Option(
                "--capacity",
                "-c",
                help="Messages a second that groups sustain: auxiliary=9500, targets=N, g3=N, or N for all."
                " Others are unlimited.",
            ),
        ] = None,
        auxiliary: Annotated[
            int, typer.Option(help="Auxiliary groups that may be used; their ids follow the targets'.", min=0)
        ] = 0,
        mixed: Annotated[
            bool, typer.Option("--mixed", help="Targets may be inner nodes as well as auxiliary groups.")
        ] = False,
        groups: Annotated[
            int | None,
            typer.Option(help="Target groups are g1 to gN; if not given, up to the last one named.", min=1),
        ] = None,
        method: Annotated[
            Method, typer.Option(help="A proof if it takes not long, a proof in any case, or none.")
        ] = "auto",
        parents: Annotated[
            str | None, typer.Option(help="Evaluate this tree instead, such as [5,5,5,5,0].", metavar="LIST")
        ] = None,
        svg: Annotated[Path | None, typer.Option(help="Draw the tree into this new file (SVG).")] = None,
        as_json: JsonOption = False,
    ) -> None:
        """Lay out the tree of groups for the protocol `tree`: lowest heights, and no group above its capacity.

        The sum of heights counts, for each destination set of several groups, the height of its lowest common ancestor;
        leaves have height 1. A group's load is the rate of all sets that it orders or relays.

        With --auxiliary, target groups are leaves and auxiliary groups inner nodes; without, the tree has target groups
        only. Auxiliary groups that are not needed are left out.

        A workload is a CSV file with the columns destinations and rate (g1 g2,1200), a JSON file
        (\\[{"destinations": \\["g1", "g2"], "rate": 1200}, ...]), or a run: rates are then those of its multicasts.

        Exit codes: 0 a viable tree, 1 none is viable (proven), 3 none was found.

        Examples:

        [bold]amcast overlay -w pairs.csv --auxiliary 3 -c auxiliary=9500[/bold]

        [bold]amcast overlay -w runs/wan --capacity 2000 --json[/bold]

        [bold]amcast overlay -w pairs.csv -c 9500 --parents \\[6,6,7,7,0,5,5][/bold]
        """
        if svg is not None and svg.exists():
            raise UsageError(f"{svg} exists: nothing is overwritten, choose another name")
        demand = read_demand(workload)
        given = None if parents is None else _parents(parents)
        problem = _problem(demand, capacity or [], auxiliary, mixed, groups, given)
        if given is None:
            plan = _search(problem, method, as_json)
            tree, outcome = plan.tree, plan.outcome
            document = _document(problem, plan.status, plan.why, tree, outcome)
        else:
            tree = OverlayTree.of_parents((*problem.targets, *problem.auxiliary), given)
            outcome = evaluate(problem, tree)
            status = "viable" if outcome.is_viable else "overloaded"
            document = _document(problem, status, "the tree that was given", tree, outcome)
        if svg is not None and tree is not None and outcome is not None:
            _write(svg, tree_svg(problem, tree, outcome))
            document["svg"] = str(svg)
        if as_json:
            print_json(document)
        else:
            _show(document, problem, tree, outcome)
        raise typer.Exit(_EXIT_CODES[document["status"]])


# -------------------------------------------------------------------------------------------------- input


def _parents(text: str) -> tuple[GroupId, ...]:
    try:
        return msgspec.json.decode(text.removeprefix("parents="), type=tuple[GroupId, ...])
    except msgspec.DecodeError:
        raise UsageError(f"--parents {text}: write one for each group, 0 for the root, such as [5,5,5,5,0]") from None


def _problem(
    demand: Demand,
    capacity: list[str],
    auxiliary: int,
    mixed: bool,
    groups: int | None,
    parents: tuple[GroupId, ...] | None,
) -> Problem:
    targets = demand.groups if groups is None else tuple(range(1, groups + 1))
    if targets is None:
        targets = tuple(range(1, max(group for dst in demand.rates for group in dst) + 1))
    if parents is not None:
        if auxiliary or mixed:
            raise UsageError("--parents has all groups of the tree: leave out --auxiliary and --mixed")
        auxiliary = max(0, len(parents) - len(targets))
    elif mixed and not auxiliary:
        raise UsageError("--mixed goes with --auxiliary: without it, all inner nodes are targets")
    added = range(targets[-1] + 1, targets[-1] + 1 + auxiliary)
    return make_problem(
        demand.rates,
        targets=targets,
        auxiliary=auxiliary,
        capacities=_capacities(capacity, targets, tuple(added)),
        targets_inside=mixed or not auxiliary,
    )


def _capacities(
    given: Iterable[str], targets: tuple[GroupId, ...], auxiliary: tuple[GroupId, ...]
) -> dict[GroupId, float]:
    """What is said of one group counts more than what is said of its kind, and that more than what is said of all."""
    named = {f"g{group}": (group,) for group in (*targets, *auxiliary)}
    chosen = {"": (*targets, *auxiliary), "targets": targets, "auxiliary": auxiliary, **named}
    ranked: dict[int, dict[GroupId, float]] = {0: {}, 1: {}, 2: {}}
    for part in [part.strip() for text in given for part in text.split(",")]:
        who, equals, number = part.rpartition("=")
        try:
            limit = float(number)
        except ValueError:
            raise UsageError(f"--capacity {part}: write auxiliary=9500, targets=N, g3=N, or N for all groups") from None
        if who not in chosen or bool(equals) != bool(who):
            raise UsageError(
                f"--capacity {part}: '{who}' is none of auxiliary, targets, {names((*targets, *auxiliary))}"
            )
        if who == "auxiliary" and not auxiliary:
            raise UsageError("--capacity auxiliary: there are no auxiliary groups; say how many by --auxiliary")
        rank = 0 if not who else 2 if who in named else 1
        ranked[rank] |= dict.fromkeys(chosen[who], limit)
    return ranked[0] | ranked[1] | ranked[2]


def _search(problem: Problem, method: Method, quiet: bool) -> Plan:
    if quiet or not errors.is_terminal:
        return find_tree(problem, method)
    with errors.status("searching ..."):
        return find_tree(problem, method)


def _write(path: Path, content: str) -> None:
    try:
        path.write_text(content)
    except OSError as error:
        raise UsageError(f"can't write {path}: {error.strerror}") from error


# ------------------------------------------------------------------------------------------------- output


def _document(
    problem: Problem, status: str, why: str, tree: OverlayTree | None, outcome: Outcome | None
) -> dict[str, Any]:
    document: dict[str, Any] = {
        "status": status,
        "proven": status in ("optimal", "not-viable"),
        "why": why,
        "heights_min": problem.heights_min,
        "heights_sum": None,
        "option": None,
        "parents": None,
        "targets": [f"g{group}" for group in problem.targets],
        "auxiliary": [],
        "groups": [],
        "destinations": [],
    }
    if tree is not None and outcome is not None:
        document |= {
            "heights_sum": outcome.heights_sum,
            "option": tree.option(),
            "parents": list(tree.parents),
            "auxiliary": [f"g{group}" for group in problem.auxiliary if group in tree.parent],
            "groups": [_group(problem, tree, outcome, group) for group in tree.groups],
            "destinations": [
                {
                    "groups": [f"g{group}" for group in dst],
                    "rate": rate / UNIT,
                    "lca": f"g{tree.lca(dst)}",
                    "height": outcome.heights.get(dst),  # sets of one group do not count
                }
                for dst, rate in problem.rates.items()
            ],
        }
    return document


def _group(problem: Problem, tree: OverlayTree, outcome: Outcome, group: GroupId) -> dict[str, Any]:
    limit = problem.capacities.get(group)
    return {
        "group": f"g{group}",
        "kind": "auxiliary" if group in problem.auxiliary else "target",
        "parent": f"g{tree.parent[group]}" if tree.parent[group] else None,
        "height": tree.height[group],
        "load": outcome.loads[group] / UNIT,
        "capacity": None if limit is None else limit / UNIT,
    }


def _show(document: dict[str, Any], problem: Problem, tree: OverlayTree | None, outcome: Outcome | None) -> None:
    console.print(line(_WORDS[document["status"]], f": {document['why']}"))
    if tree is None or outcome is None:
        return
    console.print()
    shown = table("tree", "kind", "height", "load", "capacity", "used")
    for column in shown.columns[2:]:
        column.justify = "right"
    for group, drawn in tree_lines(tree):
        limit = problem.capacities.get(group)
        load = shown_rate(outcome.loads[group])
        shown.add_row(
            drawn,
            "auxiliary" if group in problem.auxiliary else "target",
            str(tree.height[group]),
            line((load, "red")) if group in outcome.overloaded else load,
            "unlimited" if limit is None else shown_rate(limit),
            "" if not limit else f"{outcome.loads[group] / limit:.0%}",
        )
    console.print(shown)
    console.print()
    _show_sum(document, outcome)
    _show_topology(document, tree)
    if "svg" in document:
        console.print(line(f"drawn into {document['svg']}"), soft_wrap=True)


def _show_sum(document: dict[str, Any], outcome: Outcome) -> None:
    counts = sorted(Counter(outcome.heights.values()).items())
    parts = ", ".join(f"{count:,} of height {height}" for height, count in counts)
    words = f"sum of heights: {outcome.heights_sum:,}" + (f" ({parts})" if parts else "")
    if document["status"] == "viable":
        words += f"; no tree has less than {document['heights_min']:,}"
    console.print(words, highlight=False)


def _show_topology(document: dict[str, Any], tree: OverlayTree) -> None:
    auxiliary = [int(name[1:]) for name in document["auxiliary"]]
    targets = [int(name[1:]) for name in document["targets"]]
    kinds = f"targets {names(targets)}" + (f"; auxiliary {names(auxiliary)}" if auxiliary else "")
    console.print(f"groups: {len(tree.groups)} ({kinds})", highlight=False)
    console.print(line(f"option: -o {tree.option()}"), soft_wrap=True)
