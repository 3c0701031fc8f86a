"""A program's connections to the processes of a cluster. All its sessions share them.

A session is a sender: it has an id, and messages, an order and retries of its own. What all sessions have for a process
at the end of a turn of the event loop leaves in one write, and their STARTs as one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Protocol

import msgspec

from ...core import (
    AppMessage,
    GroupId,
    MessageId,
    ProcessId,
    Topology,
    UsageError,
    encode,
    latency_preset,
    signed_part,
)
from ...core.ids import SEQ_BITS
from ...protocols import Reply, Start, protocol, start_all
from ..security.access import read_token
from ..security.signing import SIGNED_MAX, ClientKey
from ..security.tls import PeerError
from ..system import Stamp, system
from ..wire.control import (
    DECODE_ERRORS,
    VERSION,
    Answers,
    Attach,
    Busy,
    Detach,
    Hello,
    Layout,
    Refused,
    Renew,
    Renewed,
    Result,
    Results,
    Status,
    StatusQuery,
    Unanswered,
    Welcome,
    layout_decoder,
)
from ..wire.dialer import Channel, OnMessage, RefusedError, dial
from ..wire.framing import frame
from ..wire.send_buffer import Delay, SendBuffer
from ._questions import Questions

_LINK_BYTES = 64 << 20
# Once so many sessions want to send, the turn ends: the cluster gets work while the other sessions hear their replies.
_TURN_SESSIONS = 32
_LOOK_S = 0.005
_FILES_S = 1.0  # between looks at files, at least
_RENEWALS = 4  # of a ticket in its life: the first may find no process that answers
RETRY_S = 0.2
_GOODBYE_S = 0.5


class Credentials(msgspec.Struct, frozen=True):
    """What a client shows at HELLO, and what it knows of the cluster before."""

    name: str = "client"
    token: str = ""
    tls: Any = None  # Keyring
    seal: Any = None  # Seal
    region: str = "local"
    token_file: Path | None = None  # read before each connection, so that another token can be put there
    layout: Layout | None = None  # from a file of the user's own; otherwise a process is asked, and believed

    def token_now(self) -> str:
        return self.token if self.token_file is None else read_token(self.token_file)

    @property
    def has_files(self) -> bool:
        return self.tls is not None or self.token_file is not None

    def stamps(self) -> list[Stamp | None]:
        """Differ when a file has changed."""
        token = [] if self.token_file is None else [system().stamp(self.token_file)]
        return token if self.tls is None else [*token, *self.tls.stamps()]

    def __repr__(self) -> str:
        return f"Credentials({self.name!r})"


class NotWelcomeError(UsageError):
    """A process refuses this client for good: asking again, or another process, does not help."""


class Session(Protocol):
    """What a trunk calls of the sessions that share it."""

    def end_turn(self) -> None: ...
    def on_reply(self, sender: ProcessId, reply: Reply) -> None: ...
    def on_reconnected(self, process: ProcessId) -> None: ...
    def on_turned_away(self, group: GroupId, ids: Sequence[MessageId]) -> None: ...
    def on_results(
        self, sender: ProcessId, group: GroupId, ids: Sequence[MessageId], results: Sequence[Result], problem: str
    ) -> None: ...


class Trunk:
    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials
        self.fears_liars = False  # members of the cluster may lie
        self._layout: Layout | None = None
        if credentials.layout is not None:
            self._use_layout(credentials.layout)
        self._tickets: dict[ProcessId, bytes] = {}  # prove the ids of the sessions; empty where their keys do
        self._key: ClientKey | None = None  # where members may lie: then messages are signed
        self._sessions: dict[ProcessId, Session] = {}
        self._channels: dict[ProcessId, Channel] = {}
        self._moves: dict[ProcessId, asyncio.Task[Channel]] = {}  # to new connections, while the old ones are used
        self._made_with: dict[ProcessId, list[Stamp | None]] = {}  # channels, and the files as they were then
        self._buffers: dict[ProcessId, SendBuffer] = {}
        self.reaches_all = False  # there is a buffer, and so a connection or attempts at one, for every process
        self._tasks: list[asyncio.Task[None]] = []
        self._starts: dict[ProcessId, list[Start]] = {}  # of this turn
        self.questions = Questions(self.send, self._touch_once)
        self._dirty: list[SendBuffer] = []
        self._woken: dict[Session, None] = {}  # sessions that have something to do before the turn ends
        self._is_turn_ending = False
        self._loop = asyncio.get_running_loop()
        self._away: dict[ProcessId, str] = {}  # processes that can't be reached, and why
        self._refusals: dict[ProcessId, str] = {}  # processes that refused the last request, and why
        self._renewal: asyncio.TimerHandle | None = None  # of tickets that end
        self._asked: set[ProcessId] = set()  # who has not answered yet, while it connects

    # -- sessions

    async def enter(self, seeds: Sequence[tuple[str, int]]) -> ProcessId:
        """Asks any process for an id, and for the layout of the cluster."""
        if self.fears_liars:
            return await self._enter_among_liars(seeds)
        welcome = await self._welcome(seeds, "client")
        self._tickets[welcome.client] = welcome.ticket
        if self._renewal is None and welcome.ticket_s:
            self._renew_later(welcome.ticket_s / _RENEWALS)
        self._watch_credentials()
        for channel in self._channels.values():
            channel.say(Attach(welcome.client, welcome.ticket))
        return welcome.client

    async def _enter_among_liars(self, seeds: Sequence[tuple[str, int]]) -> ProcessId:
        """The id comes from a key, and the layout from the user's file. Some process must answer, whichever it is."""
        if not self._channels:
            await self._welcome(seeds, "observer")
        if self._key is None:
            self._key = ClientKey(self.layout.id)
        id_ = self._key.new_id()
        self._tickets[id_] = b""
        self._watch_credentials()
        for process, channel in self._channels.items():
            channel.say(Attach(id_, self._ticket(id_, process, channel.session)))
        return id_

    def _watch_credentials(self) -> None:
        if not self._tasks and self._credentials.has_files:
            self._tasks.append(self._loop.create_task(self._watch_files()))

    def _ticket(self, id_: ProcessId, process: ProcessId, session: bytes) -> bytes:
        """`session`: the number of the connection to this process, if it has one."""
        if self._key is None:
            return self._tickets[id_]
        return self._key.ticket(id_, self.layout.names[process], self._credentials.name, session)

    async def observe(self, seeds: Sequence[tuple[str, int]]) -> None:
        """Asks any process for the layout of the cluster. That takes no id."""
        await self._welcome(seeds, "observer")

    async def _welcome(self, seeds: Sequence[tuple[str, int]], kind: str) -> Welcome:
        """From the first process that takes this client. One that can't take it for now is passed over."""
        problems: list[str] = []
        is_refused = False
        addresses = [*seeds, *(self._layout.addresses.values() if self._layout is not None else ())]
        for address in (known := list(dict.fromkeys(addresses))):
            where = f"{address[0]}:{address[1]}"
            try:
                return await self._welcome_at(address, kind)
            except RefusedError as error:
                if not error.elsewhere and not self.fears_liars:
                    raise NotWelcomeError(f"{where} refuses this client: {error}") from error
                is_refused = True
                problems.append(f"{where}: {error}")
                # Perhaps the caller knows this process only. It tells where the others are.
                known += [each for each in await self._others(address) if each not in known]
            except (OSError, TimeoutError, PeerError, *DECODE_ERRORS) as error:
                problems.append(f"{where}: {str(error) or 'no answer in time'}")
        what = "takes this client" if is_refused else "answers"
        raise UsageError(f"no process of the cluster {what}: " + "; ".join(problems[:3]))

    async def _welcome_at(self, address: tuple[str, int], kind: str) -> Welcome:
        channel = await self._dial(address, None, lambda channel, message: None, kind)
        channel.abort()
        welcome = channel.welcomed.result()
        if self._credentials.layout is None:
            self._use_layout(layout_decoder.decode(welcome.layout))
            if self.fears_liars and kind == "client":
                raise NotWelcomeError(
                    f"{welcome.name} might lie about the others: connect with the cluster.toml, not with addresses"
                )
        return welcome

    def _use_layout(self, layout: Layout) -> None:
        self._layout = layout
        self.topology = Topology(layout.groups, (), layout.regions, self._credentials.region)
        self.message_bytes, self.members = layout.message_bytes, layout.groups
        self.group_names = {f"g{group}": group for group in layout.groups}
        self.destinations = {name: (group,) for name, group in self.group_names.items()}  # of messages to one group
        self.fears_liars = protocol(layout.protocol).survives_liars

    async def _others(self, address: tuple[str, int]) -> list[tuple[str, int]]:
        if self._layout is None:
            with suppress(RefusedError, OSError, TimeoutError, PeerError, *DECODE_ERRORS):
                await self._welcome_at(address, "observer")
        return [] if self._layout is None else list(self._layout.addresses.values())

    def share(self, id_: ProcessId, session: Session) -> None:
        """A session may have several ids."""
        self._sessions[id_] = session

    def give_up(self, id_: ProcessId, settled: int) -> None:
        """Says good-bye for an id whose messages below `settled` were answered. What still comes for it is ignored."""
        self._sessions.pop(id_, None)
        self._tickets.pop(id_, None)
        if self._key is not None:
            self._key.forget_id(id_)
        for channel in self._channels.values():
            channel.say(Detach(id_, settled))

    async def leave(self, session: Session, settled: Mapping[ProcessId, int]) -> None:
        """The session's ids, and what was answered of each. The last session that leaves closes the connections."""
        self._woken.pop(session, None)
        channels = list(self._channels.values())
        for id_, answered in settled.items():
            self.give_up(id_, answered)
        if self._tickets:
            return
        if self._renewal is not None:
            self._renewal.cancel()
            self._renewal = None
        self.questions.close()
        tasks, self._tasks, self._buffers = self._tasks, [], {}
        self.reaches_all = False
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await _close_all(channels)

    def _renew_later(self, after_s: float) -> None:
        self._renewal = self._loop.call_later(after_s, self._renew, after_s)

    def _renew(self, every_s: float) -> None:
        """Whichever process is connected signs a new ticket for each id."""
        channel = next(iter(self._channels.values()), None)
        if channel is not None:
            for id_ in self._tickets:
                channel.say(Renew(id_))
        self._renew_later(every_s)

    @property
    def layout(self) -> Layout:
        assert self._layout is not None, "not connected yet"
        return self._layout

    @property
    def problems(self) -> list[str]:
        """Reasons why a message may get no answer, for people."""
        return [*self._refusals.values(), *self._away.values()]

    # -- connections

    async def connect(self, timeout: float) -> None:
        """Connects to every process that can be reached in this time, though there is nothing to send to it yet.
        Whoever answers has looked at the proofs of all sessions: that takes a while where they have keys."""
        for group in self.topology.groups:
            self.make_ready(group)
        deadline = self._loop.time() + timeout
        while not all(buffer.is_connected for buffer in self._buffers.values()) and self._loop.time() < deadline:
            await asyncio.sleep(_LOOK_S)
        self._asked = set(self._channels)
        for channel in self._channels.values():
            channel.say(StatusQuery())
        while self._asked and self._loop.time() < deadline:
            await asyncio.sleep(_LOOK_S)

    def make_ready(self, group: GroupId) -> None:
        if self._tickets:
            self._buffer_to(self.topology.members(group)[0])

    async def dial(self, process: ProcessId, on_message: OnMessage) -> Channel:
        """A connection for questions, and to follow."""
        return await self._dial(self.layout.addresses[process], self.layout.names[process], on_message, "observer")

    async def _dial(
        self,
        address: tuple[str, int],
        name: str | None,
        on_message: OnMessage,
        kind: str,
        client: ProcessId = 0,
        ticket: Callable[[bytes], bytes] = lambda session: b"",
    ) -> Channel:
        """A client's connection speaks for this id; without one, the process gives it a new id."""
        who = self._credentials
        cluster = self._layout.cluster if self._layout is not None else ""
        if who.tls is not None:
            who.tls.refresh()
        token = who.token_now()

        def hello(session: bytes) -> Hello:
            return Hello(VERSION, cluster, kind, who.name, None, token, client, ticket(session), who.region)

        return await dial(address, hello, who.tls, name, on_message, who.seal)

    async def _keep_up(self, process: ProcessId) -> None:
        """Keeps the connection to one process up for as long as there are sessions."""
        name = self.layout.names[process]
        buffer = self._buffers[process]
        is_first = True
        while True:
            try:
                channel: Channel | None = await self._dial_for_all(process)
                self._away.pop(process, None)
                while channel is not None:
                    try:
                        buffer.attach(channel.transport)
                        if not is_first:
                            for session in dict.fromkeys(self._sessions.values()):
                                session.on_reconnected(process)
                            self.questions.on_reconnected(process)
                        is_first = False
                        await channel.is_lost.wait()
                    finally:
                        buffer.attach(None)
                        channel.close()
                    channel = await self._moved(process)
            except RefusedError as error:
                self._away[process] = f"{name} refuses this client: {error}"
            except (OSError, TimeoutError, UsageError) as error:
                self._away[process] = f"{name}: {str(error) or 'no answer'}"
            finally:
                self._channels.pop(process, None)
                self._made_with.pop(process, None)
            await asyncio.sleep(RETRY_S)

    async def _watch_files(self) -> None:
        """Uses new files soon, so that the old ones can be revoked: moves to new connections, one after the other.

        Many clients may have the same files, and a process that all of them call at once would be slow to greet them.
        So each waits for a while of its own.
        """
        while True:
            await asyncio.sleep(_FILES_S * (1 + system().random_bits(16) / (1 << 16)))
            stamps = self._credentials.stamps()
            for process in [each for each, made in self._made_with.items() if made != stamps]:
                await self._move(process)

    async def _move(self, process: ProcessId) -> None:
        """The process closes the old connection when the new one speaks for its ids. Until then it is used."""
        old = self._channels.get(process)
        if old is not None:
            move = self._moves[process] = self._loop.create_task(self._dial_for_all(process))
            try:
                await move
                if old.transport is not None:
                    old.close()
            except (RefusedError, OSError, TimeoutError, UsageError):
                self._moves.pop(process, None)  # the old one still works, or `_keep_up` sees that it does not

    async def _moved(self, process: ProcessId) -> Channel | None:
        """The connection that follows one that is lost, if there is one, or one is being made."""
        move = self._moves.pop(process, None)
        return None if move is None else await move

    @property
    def uses_new_files(self) -> bool:
        """Whether all connections were made with the files of now: then older credentials may be revoked."""
        stamps = self._credentials.stamps()
        return all(made == stamps for made in self._made_with.values())

    async def _dial_for_all(self, process: ProcessId) -> Channel:
        stamps = self._credentials.stamps()
        first = next(iter(self._tickets))
        address, name = self.layout.addresses[process], self.layout.names[process]
        on_message, ticket = partial(self._on_answer, process), partial(self._ticket, first, process)
        channel = await self._dial(address, name, on_message, "client", first, ticket)
        for id_ in self._tickets:
            if id_ != first:
                channel.say(Attach(id_, self._ticket(id_, process, channel.session)))
        if first not in self._tickets:  # it left while the connection was made
            channel.say(Detach(first))
        else:
            self._tickets[first] = channel.welcomed.result().ticket
        self._channels[process] = channel
        self._made_with[process] = stamps
        return channel

    def _buffer_to(self, process: ProcessId) -> SendBuffer:
        if process not in self._buffers:
            group = self.topology.group_of(process)
            assert group is not None
            # Connects to the whole group at once: when its leader fails, the next one is reached without delay.
            for member in self.topology.members(group):
                self._buffers[member] = SendBuffer(_LINK_BYTES, self._delay_to(member), is_patient=True)
                self._tasks.append(self._loop.create_task(self._keep_up(member)))
            self.reaches_all = len(self._buffers) == len(self.layout.names)
        return self._buffers[process]

    def _delay_to(self, process: ProcessId) -> Delay | None:
        if self.layout.network == "none":
            return None
        latency = latency_preset(self.layout.network)
        mean = latency.mean_us(self._credentials.region, self.layout.regions[process])
        return Delay(mean, latency.sigma, Random(f"{self._credentials.name} {process}"))

    # -- what arrives

    def _on_answer(self, process: ProcessId, channel: Channel, message: Any) -> None:
        match message:
            case Reply():
                if self._refusals:
                    self._refusals.pop(process, None)
                self._on_reply(process, message)
            case Results():
                self._on_results(process, message)
            case Answers():
                self.questions.on_answers(process, message)
            case Unanswered():
                self.questions.on_unanswered(process, message)
            case Busy():
                for id_, ids in _by_sender(message.ids).items():
                    if id_ in self._sessions:
                        self._sessions[id_].on_turned_away(message.group, ids)
            case Renewed():
                if message.client in self._tickets:
                    self._tickets[message.client] = message.ticket
            case Status():
                self._asked.discard(process)
            case Refused():
                name = self.layout.names[process]
                self._refusals[process] = f"{name} refuses this client: {message.reason}"

    def _on_results(self, sender: ProcessId, message: Results) -> None:
        """Each session takes its own at once."""
        group, problem = message.group, message.problem
        if len(self._sessions) == 1:
            (session,) = self._sessions.values()
            session.on_results(sender, group, message.ids, message.results, problem)
            return
        told = dict(zip(message.ids, message.results, strict=False))
        for id_, ids in _by_sender(told).items():
            if id_ in self._sessions:
                self._sessions[id_].on_results(sender, group, ids, [told[each] for each in ids], problem)

    def _on_reply(self, sender: ProcessId, reply: Reply) -> None:
        if len(self._sessions) == 1:
            (only,) = self._sessions.values()
            only.on_reply(sender, reply)
            return
        for id_, ids in _by_sender(reply.ids).items():
            session = self._sessions.get(id_)
            if session is not None:
                session.on_reply(sender, Reply(reply.groups, tuple(ids), reply.leader))
                if len(self._woken) >= _TURN_SESSIONS:
                    self._end_turn()

    # -- what is sent

    def start(self, to: ProcessId, message: Start) -> None:
        starts = self._starts.get(to)
        if starts is None:
            self._starts[to] = [message]
        else:
            starts.append(message)
        if not self._is_turn_ending:
            self._touch()

    def send(self, to: ProcessId, framed: bytes) -> None:
        if not self._tickets:  # the last session has left in this turn: a connection would speak for nobody
            return
        buffer = self._buffers.get(to) or self._buffer_to(to)
        if buffer.add(framed):
            self._dirty.append(buffer)
        if not self._is_turn_ending:
            self._touch()

    def wake(self, session: Session) -> None:
        """Calls the session's `end_turn` at the end of this turn."""
        self._woken[session] = None
        if not self._is_turn_ending:
            self._touch()

    def _touch_once(self) -> None:
        if not self._is_turn_ending:
            self._touch()

    def _touch(self) -> None:
        self._is_turn_ending = True
        self._loop.call_soon(self._end_turn)

    def _end_turn(self) -> None:
        woken, self._woken = self._woken, {}
        for session in woken:
            session.end_turn()
        starts, self._starts = self._starts, {}
        if self._key is not None and starts:
            starts = self._signed(starts, self._key)
        for to, messages in starts.items():
            for start in _merge(messages):
                self.send(to, frame(encode(start)))
        self.questions.send_all()
        self._is_turn_ending = False
        dirty, self._dirty = self._dirty, []
        for buffer in dirty:
            buffer.flush()
        if self._woken:
            self._touch()

    def _signed(self, starts: dict[ProcessId, list[Start]], key: ClientKey) -> dict[ProcessId, list[Start]]:
        """The same messages, with one signature for all. What is sent again is signed again. Ids that have left since
        have nothing to say."""
        unsigned = {each.id: each for some in starts.values() for start in some for each in start.messages}
        messages = [each for each in unsigned.values() if each.sender in self._tickets]
        signed: dict[MessageId, AppMessage] = {}
        for first in range(0, len(messages), SIGNED_MAX):
            some = messages[first : first + SIGNED_MAX]
            proofs = key.sign_all([(each.sender, signed_part(each)) for each in some])
            for each, proof in zip(some, proofs, strict=True):
                signed[each.id] = msgspec.structs.replace(each, proof=proof)
        return {
            to: [Start(tuple([signed[each.id] for each in start.messages if each.id in signed])) for start in some]
            for to, some in starts.items()
        }


async def _close_all(channels: list[Channel]) -> None:
    """Connections that are closing write what is left to write. A process that does not read it gets no more time."""
    with suppress(TimeoutError):
        async with asyncio.timeout(_GOODBYE_S):
            for channel in channels:
                await channel.is_lost.wait()
    for channel in channels:
        channel.abort()


def _by_sender(ids: Iterable[MessageId]) -> dict[ProcessId, list[MessageId]]:
    found: dict[ProcessId, list[MessageId]] = {}
    for id_ in ids:
        sender = id_ >> SEQ_BITS
        if sender in found:
            found[sender].append(id_)
        else:
            found[sender] = [id_]
    return found


def _merge(starts: list[Start]) -> list[Start]:
    """The same messages in as few STARTs as the limit of a frame allows."""
    return starts if len(starts) == 1 else start_all([message for start in starts for message in start.messages])
