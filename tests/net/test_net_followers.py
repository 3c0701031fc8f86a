"""What a follower is told when the member that it follows can't read its own log."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from amcast.net.disk.records import CorruptLogError
from amcast.net.node._followers import Followers


class Connection:
    takes_output = True

    def __init__(self) -> None:
        self.refused: list[tuple[str, bool]] = []

    def refuse(self, reason: str, elsewhere: bool = False) -> None:
        self.refused.append((reason, elsewhere))


def test_a_damaged_log_sends_followers_to_another_member() -> None:
    """The client goes on there by itself: a refusal for good would end its stream, though others have the messages."""

    def read(position: int, limit: int) -> Any:
        raise CorruptLogError(Path("delivered"), "position 3 is damaged")

    deliveries = SimpleNamespace(next=5, read=read)
    followers: Any = Followers.__new__(Followers)
    followers._node, followers._next = SimpleNamespace(name="g1.p0", deliveries=deliveries), {}
    connection = Connection()
    followers._next[connection] = 3
    assert not followers._serve_one(connection, 3)
    assert connection.refused == [("g1.p0 can't read its log: follow another member", True)]
    assert not followers._next
