"""`amcast send`, `amcast tail` and `amcast skip`: a client of a running cluster."""

from __future__ import annotations

import asyncio
import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer

from ..core import MessageId, UsageError, message_name, message_named
from ._cluster import DEFAULT_DIR, DirOption
from ._credentials import ConfigOption, TokenFileOption, TokenOption, token_for
from ._output import FAIL, JsonOption, console, errors, json_line, line, print_json, visible
from ._parse import check_seconds

if TYPE_CHECKING:
    from ..net.client.async_client import AsyncClient
    from ..net.client.observer import Delivery, Observer

NameOption = Annotated[str, typer.Option("--name", help="The client's name, as in its certificate.")]


def register(app: typer.Typer) -> None:
    @app.command("send")
    def send(
        groups: Annotated[str, typer.Argument(help="The groups to send to: g1, or g1,g2.")],
        payload: Annotated[str | None, typer.Argument(help="What to send; read from stdin if not given.")] = None,
        timeout: Annotated[float, typer.Option(help="Seconds to wait for all groups to deliver it.")] = 10.0,
        config: ConfigOption = None,
        folder: DirOption = DEFAULT_DIR,
        token: TokenOption = "",
        token_file: TokenFileOption = None,
        name: NameOption = "client",
        as_json: JsonOption = False,
    ) -> None:
        """Multicast one message, and wait until every group has delivered it.

        Examples:

        [bold]amcast send g1,g2 'transfer 10 from a to b'[/bold]

        [bold]cat order.json | amcast send g1 --config cluster.toml[/bold]
        """
        check_seconds(timeout)
        data = sys.stdin.buffer.read() if payload is None else payload.encode()
        from ..net.client.async_client import connect
        from ..net.config import load_config

        cluster = load_config(config or folder / "cluster.toml")
        client = connect(cluster, name=name, token=token_for(cluster, token, token_file))
        names = list(dict.fromkeys(name.strip() for name in groups.split(",")))
        asyncio.run(_send(client, names, data, timeout, as_json))

    @app.command("skip")
    def skip(
        group: Annotated[str, typer.Argument(help="The group, as g1.")],
        position: Annotated[int, typer.Argument(help="The position of the message that is not to be executed.", min=0)],
        timeout: Annotated[float, typer.Option(help="Seconds to wait for the decision.")] = 30.0,
        config: ConfigOption = None,
        folder: DirOption = DEFAULT_DIR,
        token: TokenOption = "",
        token_file: TokenFileOption = None,
        name: NameOption = "client",
        as_json: JsonOption = False,
    ) -> None:
        """Have a group not execute a message for which its application raises: all its replicas leave it out.

        An application that raises stops its node, and `amcast status` shows the position. If the application can be
        mended, mend it: it goes on there. Otherwise start the group's nodes with --hold-at, and use this. The decision
        is ordered like a message; replicas that are down now follow it when they are started with --hold-at as well.
        Whoever called for the message is told.

        Examples:

        [bold]amcast up --hold-at g1=7 && amcast skip g1 7[/bold]

        [bold]amcast skip g1 7 --config cluster.toml --token-file operator.token[/bold]
        """
        from ..net.client.async_client import connect
        from ..net.config import load_config

        check_seconds(timeout)
        cluster = load_config(config or folder / "cluster.toml")
        client = connect(cluster, name=name, token=token_for(cluster, token, token_file))
        asyncio.run(_skip(client, group, position, timeout))
        if as_json:
            print_json({"group": group, "skipped": position})
        else:
            console.print(f"{group} skips the message at position {position}", highlight=False)

    @app.command("tail")
    def tail(
        group: Annotated[str, typer.Argument(help="The group to follow, as g1.")],
        position: Annotated[
            int | None, typer.Option("--from", help="Begin at this position; at 0 if not given.", min=0)
        ] = None,
        last: Annotated[int | None, typer.Option("--last", help="Begin so many deliveries back.", min=0)] = None,
        count: Annotated[int | None, typer.Option("--count", "-n", help="End after so many deliveries.", min=1)] = None,
        message: Annotated[
            str | None, typer.Option(help="Show this message alone, by its name, as m12.7; then end.", metavar="NAME")
        ] = None,
        config: ConfigOption = None,
        folder: DirOption = DEFAULT_DIR,
        token: TokenOption = "",
        token_file: TokenFileOption = None,
        name: NameOption = "client",
        as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object for each delivery.")] = False,
    ) -> None:
        """Follow what a group delivers, from any position on, until Ctrl-C.

        --from and --last say where to begin, -n after how many deliveries to end. `--last 0` shows only what comes
        from now on. A line has the position, the message's name, its groups and its payload.

        Examples:

        [bold]amcast tail g1[/bold]

        [bold]amcast tail g2 --from 1000 -n 10 --json[/bold]

        [bold]amcast tail g1 --last 5 -n 5[/bold]   the last five

        [bold]amcast tail g1 --message m16777216.0[/bold]   at which position it is
        """
        from ..net.client.observer import observe
        from ..net.config import load_config

        cluster = load_config(config or folder / "cluster.toml")
        shown = "" if token_file is not None else token_for(cluster, token, None)
        observer = observe(cluster, name=name, token=shown, token_file=token_file)
        if last is not None and position is not None:
            raise UsageError("--from and --last both say where to begin: use one of them")
        if message is not None and count is not None:
            raise UsageError("--message shows one delivery: leave out -n")
        wanted = None if message is None else message_named(message)
        asyncio.run(_tail(observer, group, position or 0, last, 1 if message else count, wanted, as_json))


async def _send(client: AsyncClient, groups: list[str], payload: bytes, timeout: float, as_json: bool) -> None:
    from ..net.client.async_client import BusyError

    async with client:
        begun = time.perf_counter()
        try:
            id_ = await client.multicast(groups, payload, timeout)
        except (TimeoutError, BusyError) as error:
            errors.print(line(("error:", "red"), f" {error}; it may still be delivered"), soft_wrap=True)
            raise typer.Exit(FAIL) from error
        took_ms = (time.perf_counter() - begun) * 1e3
    if as_json:
        print_json({"message": id_, "name": message_name(id_), "groups": groups, "ms": round(took_ms, 3)})
    else:
        console.print(f"{message_name(id_)} delivered by {','.join(groups)} in {took_ms:.1f} ms", highlight=False)


async def _skip(client: AsyncClient, group: str, position: int, timeout: float) -> None:
    async with client:
        await client.skip(group, position, timeout)


def delivery_line(delivery: Delivery, as_json: bool) -> str:
    message = delivery.message
    dst = [f"g{each}" for each in message.dst]
    if as_json:
        return json_line(
            {
                "position": delivery.position,
                "message": message.id,
                "name": message_name(message.id),
                "groups": dst,
                "ts": delivery.ts,
                "payload": delivery.payload,
            }
        )
    text = visible(delivery.payload.decode(errors="replace"))
    return f"{delivery.position:>8}  {message_name(message.id):<18}  {','.join(dst):<8}  {text}"


async def _tail(
    observer: Observer,
    group: str,
    position: int,
    last: int | None,
    count: int | None,
    wanted: MessageId | None,
    as_json: bool,
) -> None:
    from ..net.client.observer import GoneError

    async with observer:
        seen = 0
        if last is not None:
            position = max(0, await observer.end_of(group) - last)
        try:
            async for delivery in observer.deliveries(group, position):
                if wanted not in (None, delivery.message.id):
                    continue
                sys.stdout.write(delivery_line(delivery, as_json) + "\n")
                sys.stdout.flush()
                seen += 1
                if seen == count:
                    return
        except GoneError as error:
            raise UsageError(f"{error}: use --from {error.first}") from error
