"""A social network on GeoPaxos: `amcast up -p geopaxos --groups 3 --placement affinity --app social.py:Social`.

A user is an object, with the timeline, the followers and those that the user follows. A post goes to the timelines of
all followers, so it names them. Whom to name, a client learns from the network: if it names too few, the post is
refused with the followers as they are, and the client tries again.
"""

from __future__ import annotations

import json
from typing import Any

import amcast
from amcast.apps import ObjectStore, RefusedError, View, answer_of, operation
from amcast.core import AppMessage

SHOWN = 10  # posts on a timeline
TEXT_MAX = 280
FOLLOWERS_MAX = 1_000  # an operation names at most 1,024 objects


class Social(amcast.StateMachine):
    def __init__(self, group: str) -> None:
        self.users = ObjectStore()

    def apply(self, message: AppMessage) -> bytes:
        return self.users.apply(message.payload, execute)

    def query(self, payload: bytes) -> bytes:
        """What a user's timeline shows at this replica. `timeline` below is ordered, and shows the latest."""
        user = self.users.read(payload.decode(errors="replace"))
        return json.dumps([] if user is None else user["timeline"]).encode()

    def snapshot(self) -> bytes:
        return self.users.snapshot()

    def restore(self, state: bytes) -> None:
        self.users.restore(state)


def execute(request: dict[str, Any], users: View) -> Any:
    match request:
        case {"post": str(text), "by": str(author)} if len(text) <= TEXT_MAX:
            return post(users, author, text)
        case {"follow": str(followed), "by": str(follower)} if follower != followed:
            return follow(users, follower, followed)
        case {"unfollow": str(followed), "by": str(follower)}:
            return unfollow(users, follower, followed)
        case {"timeline": str(name)}:
            return user_of(users, name)["timeline"]
        case {"followers": str(name)}:
            return user_of(users, name)["followers"]
    raise RefusedError("there is no such request")


def user_of(users: View, name: str) -> dict[str, Any]:
    new: dict[str, Any] = {"followers": [], "follows": [], "timeline": [], "posts": 0, "sent": 0, "received": 0}
    return dict(users.get(name, new))


def post(users: View, author: str, text: str) -> int:
    """The number of the post among those of its author."""
    user = user_of(users, author)
    user["posts"] += 1
    user["sent"] += len(user["followers"])
    users[author] = user
    for name in user["followers"]:
        follower = user_of(users, name)  # refused if the client did not name it
        follower["timeline"] = [*follower["timeline"], {"by": author, "number": user["posts"], "text": text}][-SHOWN:]
        follower["received"] += 1
        users[name] = follower
    return int(user["posts"])


def follow(users: View, follower: str, followed: str) -> bool:
    """Whether that is new."""
    one, other = user_of(users, follower), user_of(users, followed)
    if followed in one["follows"]:
        return False
    if len(other["followers"]) == FOLLOWERS_MAX:
        raise RefusedError(f"{followed} has as many followers as there may be")
    users[follower] = {**one, "follows": [*one["follows"], followed]}
    users[followed] = {**other, "followers": [*other["followers"], follower]}
    return True


def unfollow(users: View, follower: str, followed: str) -> bool:
    """What the other one posted leaves the timeline as well."""
    one, other = user_of(users, follower), user_of(users, followed)
    if followed not in one["follows"]:
        return False
    timeline = [each for each in one["timeline"] if each["by"] != followed]
    users[follower] = {**one, "follows": [x for x in one["follows"] if x != followed], "timeline": timeline}
    users[followed] = {**other, "followers": [x for x in other["followers"] if x != follower]}
    return True


def problems(users: dict[str, Any]) -> list[str]:
    """What can't be, whatever was done: for tests."""
    found = []
    for name, user in users.items():
        strangers = {each["by"] for each in user["timeline"]} - set(user["follows"])
        if strangers:
            found.append(f"the timeline of {name} shows posts of {sorted(strangers)}, whom {name} does not follow")
        one_sided = [other for other in user["follows"] if name not in users[other]["followers"]]
        if one_sided:
            found.append(f"{name} follows {one_sided}, who do not know it")
        for author in user["follows"]:
            shown = [each["number"] for each in user["timeline"] if each["by"] == author]
            if shown != sorted(set(shown)):
                found.append(f"the posts of {author} are not in their order for {name}: {shown}")
    sent, received = (sum(user[each] for user in users.values()) for each in ("sent", "received"))
    if sent != received:
        found.append(f"{sent} posts were sent to timelines, and {received} arrived")
    return found


# -- for clients


async def ask(client: amcast.AsyncClient, names: list[str], **request: Any) -> Any:
    """Every group executes every operation, and all of them answer the same."""
    results = await client.call(client.groups, operation(names, **request))
    return answer_of(next(iter(results.values())))


async def publish(client: amcast.AsyncClient, author: str, text: str) -> int:
    while True:
        followers = await ask(client, [author], followers=author)
        try:
            return int(await ask(client, [author, *followers], post=text, by=author))
        except RefusedError as error:
            if "does not name it" not in str(error):
                raise  # otherwise somebody has begun to follow the author: name that one too


async def befriend(client: amcast.AsyncClient, follower: str, followed: str) -> bool:
    return bool(await ask(client, [follower, followed], follow=followed, by=follower))


async def timeline(client: amcast.AsyncClient, name: str) -> list[dict[str, Any]]:
    return list(await ask(client, [name], timeline=name))
