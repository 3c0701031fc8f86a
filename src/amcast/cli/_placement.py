"""`amcast placement show` and `status`: to which site objects belong on a cluster, and why."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from ..core import UsageError
from ._cluster import DEFAULT_DIR, DirOption
from ._credentials import ConfigOption, TokenFileOption, TokenOption, local_cluster
from ._output import JsonOption, console, errors, line, print_json, table

if TYPE_CHECKING:  # the commands import it when they need it: other commands start faster
    from ..net.local import LocalCluster
    from ..net.wire.control import Placement
    from ..protocols.geopaxos.placer import ObjectPlacement


def register(app: typer.Typer) -> None:
    placement = typer.Typer(
        help="Where objects are on a cluster that runs geopaxos, and why they moved.\n\n"
        "Examples:\n\n[bold]amcast placement show account:7[/bold]",
        no_args_is_help=True,
    )
    app.add_typer(placement, name="placement")

    @placement.command("show")
    def show(
        key: Annotated[str, typer.Argument(help="The name of the object.")],
        config: ConfigOption = None,
        folder: DirOption = DEFAULT_DIR,
        token: TokenOption = "",
        token_file: TokenFileOption = None,
        as_json: JsonOption = False,
    ) -> None:
        """To which site an object belongs, since when and why, and from where it is used.

        An object that nobody moved has the site that a hash of its name says. The reason is kept of the objects that
        moved last, some thousands of them; recent uses are known where `--placement` is on.

        Examples:

        [bold]amcast placement show account:7[/bold]

        [bold]amcast placement show account:7 -d /tmp/wan --json[/bold]
        """
        if not key:
            raise UsageError("an object has a name: give one")
        cluster = local_cluster(folder, token, token_file, config)
        found = _best(_answers(cluster, key, 0))
        document = _document(cluster, found)
        if as_json:
            print_json(document)
            return
        console.print(line(_told(document)), soft_wrap=True)
        console.print(line(_uses(document)), soft_wrap=True)

    @placement.command("status")
    def status(
        moves: Annotated[int, typer.Option(help="How many of the latest moves to show.", min=0, max=1_000)] = 10,
        config: ConfigOption = None,
        folder: DirOption = DEFAULT_DIR,
        token: TokenOption = "",
        token_file: TokenFileOption = None,
        as_json: JsonOption = False,
    ) -> None:
        """How placement goes at the leader of each site, and the latest moves with their reasons.

        Examples:

        [bold]amcast placement status[/bold]

        [bold]amcast placement status --moves 100 --json[/bold]
        """
        cluster = local_cluster(folder, token, token_file, config)
        answers = _answers(cluster, "", moves)
        leaders = [each for each in answers if each.is_leader]
        longest = max(answers, key=lambda each: len(each.status.latest) if each.status is not None else 0)
        assert longest.status is not None
        latest = [_of_object(cluster, each) for each in reversed(longest.status.latest)]
        sites = [{"site": each.group, "process": each.name, **_placer(each)} for each in leaders]
        if as_json:
            print_json({"sites": sites, "moved": longest.status.moved, "latest": latest})
        else:
            _show_status(sites, longest.status.moved, latest)


def _answers(cluster: LocalCluster, key: str, moves: int) -> list[Placement]:
    answers = [each for each in asyncio.run(cluster.placements(key, moves)).values() if each is not None]
    if not answers:
        raise UsageError("no process of the cluster answers: see `amcast status`")
    known = [each for each in answers if each.problem is None]
    if not known:
        raise UsageError(f"{answers[0].name}: {answers[0].problem}")
    return known


def _best(answers: list[Placement]) -> Placement:
    """The site that the object belongs to knows most of it, and its leader most of all. Others may be behind."""
    return max(answers, key=lambda each: (each.object is not None and each.group == _site(each), each.is_leader))


def _site(answer: Placement) -> str:
    return "" if answer.object is None else f"g{answer.object.site}"


def _document(cluster: LocalCluster, answer: Placement) -> dict[str, Any]:
    assert answer.object is not None
    return {**_of_object(cluster, answer.object), "recent": answer.object.recent, "told_by": answer.name}


def _of_object(cluster: LocalCluster, found: ObjectPlacement) -> dict[str, Any]:
    note = found.note
    since = None if note is None or note.at_us is None else cluster.config.epoch_s + note.at_us / 1e6
    return {
        "object": found.object,
        "site": f"g{found.site}",
        "is_placed": found.is_placed,
        "since": None if since is None else datetime.fromtimestamp(since, UTC).isoformat(timespec="milliseconds"),
        "source": None if note is None else f"g{note.source}",
        "reason": None if note is None else note.reason,
    }


def _told(document: dict[str, Any]) -> str:
    name, site = document["object"], document["site"]
    if document["reason"] is not None:
        when = "" if document["since"] is None else f" at {document['since']}"
        return f"{name} moved from {document['source']} to {site}{when}: {document['reason']}"
    if document["is_placed"]:
        return f"{name} belongs to {site}: it moved there so long ago that the reason is not kept"
    return f"{name} belongs to {site}, as a hash of its name says: nobody moved it"


def _uses(document: dict[str, Any]) -> str:
    recent = document["recent"]
    if not recent:
        return f"{document['told_by']} knows of no operations on it of late"
    counts = ", ".join(f"{count} from {region}" for region, count in sorted(recent.items(), key=lambda x: -x[1]))
    return f"of its last {sum(recent.values())} operations {counts}"


def _placer(answer: Placement) -> dict[str, Any]:
    assert answer.status is not None
    return msgspec.structs.asdict(answer.status.placer)


def _show_status(sites: list[dict[str, Any]], moved: int, latest: list[dict[str, Any]]) -> None:
    made = table("site", "leader", "policy", "objects", "moves", "put off", "refused", "failed")
    for each in sites:
        counts = (f"{each[name]:,}" for name in ("objects", "moves", "put_off", "refused", "failures"))
        made.add_row(each["site"], each["process"], each["policy"] or "none", *counts)
    console.print(made, highlight=False)
    console.print(f"objects that are not where a hash of their names says: {moved:,}", highlight=False)
    for each in latest:
        console.print(line(_told(each)), soft_wrap=True)
    for each in sites:
        if each["failure"]:
            errors.print(line((each["process"], "yellow"), ": the policy raised ", each["failure"]), soft_wrap=True)
        for word in each["latest_refusals"][-3:]:
            errors.print(line((each["process"], "yellow"), ": refused: ", word), soft_wrap=True)
