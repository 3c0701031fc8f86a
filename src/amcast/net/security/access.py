"""Who may do what: tokens with rights for each group, and tickets that prove which id a client was given.

A file of tokens (TOML) holds the SHA-256 of each token: enough to recognise it, and of no use to a thief. No slow hash
is needed, since tokens are 256 random bits and not words that somebody chose.

    [[token]]
    name = "alice"
    sha256 = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
    send = ["g1", "g2"]      # messages may go to these groups; ["*"] is all of them, [] or nothing is none
    follow = ["*"]           # whose deliveries may be read
    operate = true           # optional: may have a group skip a message (`amcast skip`)
    expires = 2027-01-31     # optional: from this day on (UTC) the token is refused
    limits = { sessions = 10, messages_per_second = 1000 }   # optional: where they differ from [limits.client]

Without a file of tokens, whoever may connect may do everything.

A client gets its id from the node where it connects first, with a ticket: an HMAC of id, name and time under the secret
that all nodes share. With the ticket it can use the id at every node, for a day, and get the next ticket; without it
nobody can.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import secrets
import tomllib
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, time
from pathlib import Path
from typing import Any

import msgspec

from ...core import GroupId, UsageError
from ...core.ids import CLIENT_ID_LIMIT, GROUP_ID_LIMIT
from ..config import ClientLimits
from ..system import system
from ._files import SECRET, Draft, read_file, write_all
from .identity import NAME_RULE, is_plain_name

Groups = frozenset[GroupId] | None  # None is every group, even one that is added later

_EVERYTHING = "*"
_HEADER = "[[token]]"
_TOKEN_PREFIX = "amcast_"  # so that scanners for leaked secrets recognise one
_FIELDS = ("name", "sha256", "send", "follow", "operate", "expires", "limits")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_GROUP = re.compile(r"g([1-9][0-9]{0,4})")
TICKET_LIFE_S = 24 * 3_600
_TICKET_PURPOSE = b"amcast ticket 2\0"  # so that nothing else that is signed with the secret can pass for a ticket
_TIME_BYTES = 8
_SECRET_BYTES_MIN = 32


class Rights:
    """The rights of one token. They are checked for every message, so the sets are made once."""

    __slots__ = ("_follow", "_limits", "_send", "expires", "may_operate", "name", "sha256")

    def __init__(
        self,
        name: str,
        send: Groups,
        follow: Groups,
        expires: date | None = None,
        limits: Mapping[str, int] | None = None,
        sha256: bytes = b"",
        may_operate: bool = False,
    ) -> None:
        self.name = name
        self.may_operate = may_operate
        self.expires = expires
        self.sha256 = sha256  # of the token; empty where no token is asked for
        self._limits = dict(limits or {})
        self._send = send
        self._follow = follow

    @classmethod
    def everything(cls) -> Rights:
        return cls("anyone", None, None, may_operate=True)

    @property
    def ends_s(self) -> float:
        """When the token expires, in Unix seconds."""
        return float("inf") if self.expires is None else datetime.combine(self.expires, time(), UTC).timestamp()

    def is_same(self, other: Rights) -> bool:
        return all(getattr(self, field) == getattr(other, field) for field in self.__slots__)

    def may_send(self, dst: tuple[GroupId, ...]) -> bool:
        return self._send is None or self._send.issuperset(dst)

    @property
    def may_send_anything(self) -> bool:
        """To some group at least."""
        return self._send is None or bool(self._send)

    def limits_of(self, defaults: ClientLimits) -> ClientLimits:
        return msgspec.structs.replace(defaults, **self._limits)

    def may_follow(self, group: GroupId) -> bool:
        return self._follow is None or group in self._follow

    @property
    def groups(self) -> tuple[str, str]:
        """Where it may send, and what it may follow, for people."""
        return _group_names(self._send), _group_names(self._follow)

    def __repr__(self) -> str:
        send, follow = self.groups
        return f"Rights({self.name!r}, send={send}, follow={follow})"


class Access:
    def __init__(self, tokens: Sequence[Rights] | None) -> None:
        """None lets everyone in."""
        self._tokens = None if tokens is None else tuple(tokens)

    @classmethod
    def unrestricted(cls) -> Access:
        return cls(None)

    @classmethod
    def load(cls, path: str | Path) -> Access:
        content = read_file(Path(path), "the file of tokens", "make one with `amcast token add`, or configure none")
        return cls.parse(content, str(path))

    @classmethod
    def parse(cls, content: bytes, where: str) -> Access:
        return cls(_parse_tokens(content, where))

    def check(self, token: str, today: date | None = None) -> Rights | None:
        """The rights of the token; None if it is unknown or has expired."""
        if self._tokens is None:
            return Rights.everything()
        shown = _hash(token)
        found: Rights | None = None
        # All are compared, each in constant time, so that the time of the answer does not help to guess a token.
        for rights in self._tokens:
            if hmac.compare_digest(rights.sha256, shown):
                found = rights
        if found is None or found.expires is None:
            return found
        return found if (today or _today()) < found.expires else None

    def now(self, rights: Rights) -> Rights | None:
        """What a token that was accepted under earlier entries may do under these; None if it is revoked."""
        if self._tokens is None:
            return rights
        return next((each for each in self._tokens if each.sha256 == rights.sha256), None)

    @property
    def all(self) -> Sequence[Rights]:
        return self._tokens or ()

    def __repr__(self) -> str:
        return "Access(unrestricted)" if self._tokens is None else f"Access({len(self._tokens)} tokens)"


class Tickets:
    """Signs and checks tickets. A ticket is the time when it ends, and the signature."""

    __slots__ = ("_secret", "life_s")

    def __init__(self, secret: bytes, life_s: int = TICKET_LIFE_S) -> None:
        """With a life of 0, tickets do not end."""
        assert len(secret) >= _SECRET_BYTES_MIN
        self._secret = secret
        self.life_s = life_s

    @classmethod
    def load(cls, path: str | Path) -> Tickets:
        secret = read_file(Path(path), "the cluster's secret", "make it with `amcast certs`, once for all nodes")
        if len(secret) < _SECRET_BYTES_MIN:
            raise UsageError(f"{path} is cut short: copy it again from another node, or make a new one for all nodes")
        return cls(secret)

    def issue(self, client_id: int, name: str) -> bytes:
        assert 0 <= client_id < CLIENT_ID_LIMIT, "ids are given out by nodes"
        ends_s = _now_s() + self.life_s if self.life_s else 0
        return self._sign(client_id, name, ends_s.to_bytes(_TIME_BYTES, "big"))

    def problem_with(self, client_id: int, name: str, ticket: bytes, session: bytes = b"") -> str | None:
        ends = ticket[:_TIME_BYTES]
        is_id = 0 <= client_id < CLIENT_ID_LIMIT  # a client may send anything
        if not is_id or not hmac.compare_digest(self._sign(client_id, name, ends), ticket):
            return "the ticket does not prove this client id"
        if self.life_s and int.from_bytes(ends, "big") <= _now_s():
            return "the ticket for this client id has expired: open the client anew"
        return None

    def _sign(self, client_id: int, name: str, ends: bytes) -> bytes:
        signed = _TICKET_PURPOSE + ends + client_id.to_bytes(8, "big") + _encode(name)
        return ends + hmac.digest(self._secret, signed, "sha256")

    def __repr__(self) -> str:
        return "Tickets()"


def new_token(
    name: str, send: Sequence[str], follow: Sequence[str], expires: date | None = None, may_operate: bool = False
) -> tuple[str, str]:
    """The secret for the client, and the entry for the file of tokens; groups are named g1, g2, ... or *."""
    _check_name(name, "the token")
    for field, groups in (("send", send), ("follow", follow)):
        _parse_groups(list(groups), f"the token {name}: {field}")
    secret = _TOKEN_PREFIX + secrets.token_urlsafe(32)
    lines = [
        _HEADER,
        f'name = "{name}"',
        f'sha256 = "{_hash(secret).hex()}"',
        f"send = [{_quoted(send)}]",
        f"follow = [{_quoted(follow)}]",
    ]
    if may_operate:
        lines.append("operate = true")
    if expires is not None:
        lines.append(f"expires = {expires.isoformat()}")
    return secret, "\n".join(lines) + "\n"


def add_token(
    path: str | Path,
    name: str,
    send: Sequence[str],
    follow: Sequence[str],
    expires: date | None = None,
    may_operate: bool = False,
) -> str:
    """Adds an entry to the file, which is made if it is missing. Returns the secret, which is stored nowhere."""
    secret, entry = new_token(name, send, follow, expires, may_operate)
    target = Path(os.path.realpath(path))  # the file behind a link is replaced, not the link
    is_new = not os.path.lexists(target)
    before = b"" if is_new else read_file(target, "the file of tokens", "name another file")
    if before:
        Access.parse(before, str(path))
        before = before.rstrip(b"\n") + b"\n\n"
    after = before + entry.encode()
    Access.parse(after, f"{path} with the new entry")
    mode = SECRET if is_new else target.stat().st_mode & 0o777
    write_all([Draft(target, after, mode, replace=not is_new)])
    return secret


def revoke_token(path: str | Path, name: str) -> None:
    """Takes the entry out of the file; all other lines stay as they are."""
    target = Path(os.path.realpath(path))
    content = read_file(target, "the file of tokens", "name another file")
    names = [rights.name for rights in Access.parse(content, str(path)).all]
    if name not in names:
        raise UsageError(f"there is no token '{name}' in {path}: it has {', '.join(names) or 'none'}")
    head, *entries = re.split(rb"(?m)^(?=[ \t]*\[\[[ \t]*token[ \t]*\]\])", content)
    after = b"".join([head, *(entry for number, entry in enumerate(entries) if names[number : number + 1] != [name])])
    try:
        left = [rights.name for rights in Access.parse(after, str(path)).all]
    except UsageError:
        left = names
    if left != [each for each in names if each != name]:
        raise UsageError(f"{path} is not written as this program writes it: take the entry of '{name}' out by hand")
    write_all([Draft(target, after, target.stat().st_mode & 0o777, replace=True)])


def read_token(path: str | Path) -> str:
    """The token in a file of its own, as `amcast token add --out` writes it."""
    content = read_file(Path(path), "the file with the token", "name the one that the token was saved in")
    token = content.decode(errors="replace").strip()
    if not token or any(character.isspace() for character in token):
        raise UsageError(f"{path} holds no token: it must hold one, and nothing else")
    return token


def write_secret(path: str | Path, token: str) -> None:
    """A file for `read_token`, closed to other users."""
    write_all([Draft(Path(path), token.encode() + b"\n", SECRET)])


def _parse_tokens(content: bytes, where: str) -> list[Rights]:
    try:
        document = tomllib.loads(content.decode())
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise UsageError(f"{where}: line {line} is not UTF-8 text") from None
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{where} is no TOML: {error}".replace("\n", " ")) from None
    entries = document.pop("token", [])
    if document:
        raise UsageError(f"{where}: unknown field {min(document)!r}: tokens are tables that begin with [[token]]")
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise UsageError(f"{where}: token must be a list of tables: begin each with [[token]]")
    tokens = [_parse_token(entry, f"{where}: token {number}") for number, entry in enumerate(entries, 1)]
    _refuse_twice([rights.name for rights in tokens], where, "name")
    _refuse_twice([rights.sha256 for rights in tokens], where, "sha256")
    return tokens


def _parse_token(entry: dict[str, Any], where: str) -> Rights:
    """Errors name the field and not its value, which may be a token that was pasted into the wrong place."""
    for field in entry:
        if field not in _FIELDS:
            raise UsageError(f"{where}: unknown field {field!r}: there are {', '.join(_FIELDS)}")
    name = _check_name(entry.get("name"), where)
    where = f"{where} ({name})"
    known = entry.get("sha256")
    if not isinstance(known, str) or _SHA256.fullmatch(known.lower()) is None:
        raise UsageError(f"{where}: sha256 must be 64 hexadecimal digits: make entries with `amcast token add`")
    send, follow = (_parse_groups(entry.get(field, []), f"{where}: {field}") for field in ("send", "follow"))
    expires = entry.get("expires")
    if expires is not None and type(expires) is not date:
        raise UsageError(f"{where}: expires must be a date: write 2027-01-31, without quotes or a time")
    limits = _parse_limits(entry.get("limits", {}), f"{where}: limits")
    may_operate = entry.get("operate", False)
    if not isinstance(may_operate, bool):
        raise UsageError(f"{where}: operate must be true or false")
    return Rights(name, send, follow, expires, limits, bytes.fromhex(known), may_operate)


def _parse_limits(limits: object, where: str) -> dict[str, int]:
    if not isinstance(limits, dict):
        raise UsageError(f"{where} must be a table: write {{ sessions = 10 }}")
    for field, value in limits.items():
        if field not in ClientLimits.__struct_fields__:
            raise UsageError(f"{where}: unknown field {field!r}: there are {', '.join(ClientLimits.__struct_fields__)}")
        if type(value) is not int or value < 0:
            raise UsageError(f"{where}: {field} must be a number, 0 or more")
    return limits


def _check_name(name: object, where: str) -> str:
    if not isinstance(name, str) or not is_plain_name(name):
        raise UsageError(f"{where}: name must be {NAME_RULE}")
    return name


def _parse_groups(groups: object, where: str) -> Groups:
    if not isinstance(groups, list):
        raise UsageError(f'{where} must be a list: write ["g1", "g2"] or ["*"]')
    if groups == [_EVERYTHING]:
        return None
    found: list[GroupId] = []
    for number, group in enumerate(groups, 1):
        match = _GROUP.fullmatch(group) if isinstance(group, str) else None
        if match is None or int(match[1]) >= GROUP_ID_LIMIT:
            raise UsageError(f"{where}: entry {number} is no group: write g1, g2 and so on, or * alone for all")
        found.append(int(match[1]))
    return frozenset(found)


def _refuse_twice(values: Sequence[object], where: str, field: str) -> None:
    first: dict[object, int] = {}
    for number, value in enumerate(values, 1):
        if first.setdefault(value, number) != number:
            raise UsageError(f"{where}: tokens {first[value]} and {number} have the same {field}: change or remove one")


def _now_s() -> int:
    return system().wall_us() // 1_000_000


def _today() -> date:
    return datetime.fromtimestamp(_now_s(), UTC).date()


def _group_names(groups: Groups) -> str:
    return _EVERYTHING if groups is None else ",".join(f"g{group}" for group in sorted(groups)) or "none"


def _quoted(groups: Sequence[str]) -> str:
    return ", ".join(f'"{group}"' for group in groups)


def _hash(token: str) -> bytes:
    return hashlib.sha256(_encode(token)).digest()


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")  # never fails, whatever a client sends
