"""Looks at a `cluster.toml` and at all that it names, before anything starts: every problem at once, and not the first.

An error keeps a node from starting, or makes it useless. A warning is about what is legal, and probably not meant.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from difflib import get_close_matches
from enum import StrEnum
from functools import cache
from ipaddress import ip_address
from pathlib import Path
from typing import Any, get_args

import msgspec

from ..core import UsageError
from .app_loading import load_policy, make_application
from .config import (
    ClientLimits,
    ClusterConfig,
    Limits,
    ProcessConfig,
    TlsFiles,
    convert_config,
    is_loopback,
    read_toml,
    split_address,
    split_name,
)
from .disk.records import Durability
from .node.data_folder import IDENTITY, check_folder
from .security.access import Access, Rights
from .security.credentials import ProcessCredentials
from .security.signing import key_file, load_signer
from .system import system

_SOON_S = 30 * 86_400  # as `amcast status` warns
_WARNING = "warning"
_ERROR = "error"

Finding = tuple[str, str]  # error or warning; what it is
Check = Callable[[ClusterConfig, tuple[str, ...]], Iterator[Finding]]


class Findings(msgspec.Struct):
    file: str
    errors: list[str] = []
    warnings: list[str] = []
    config: ClusterConfig | None = None  # None if it can't be read at all

    def add(self, found: Iterator[Finding]) -> None:
        try:
            for kind, what in found:
                (self.errors if kind == _ERROR else self.warnings).append(what)
        except (UsageError, OSError) as error:  # that part can't be looked at any further
            self.errors.append(str(error))


def check_config(path: Path, names: tuple[str, ...] = ()) -> Findings:
    """`names`: processes that are to run on this machine, whose certificates and folders must be here."""
    findings = Findings(str(path))
    try:
        fields = read_toml(path)
    except UsageError as error:
        findings.errors.append(str(error).removeprefix(f"{path}: "))
        return findings
    findings.errors += _type_problems(fields, ClusterConfig, "")
    if findings.errors:
        return findings
    try:
        config = findings.config = convert_config(fields, path)
    except msgspec.ValidationError as error:
        findings.errors.append(str(error))
        return findings
    findings.errors += config.problems()
    is_sound = not findings.errors  # some checks ask who is in which group, and where
    ids = [each.id for each in config.process]
    findings.errors += [f"there is no process '{each}' in this cluster" for each in names if each not in ids]
    names = tuple(each for each in names if each in ids)
    for check in (*_OF_FILES, *(_OF_PROCESSES if is_sound else ())):
        findings.add(check(config, names))
    return findings


# -- types


def _type_problems(fields: dict[str, Any], struct: type[msgspec.Struct], where: str) -> Iterator[str]:
    """Each field by itself: msgspec would end at the first one that is wrong."""
    known = {field.name: field for field in msgspec.structs.fields(struct)}
    for name, value in fields.items():
        place = f"{where}{name}"
        if name not in known:
            near = get_close_matches(name, known, n=1)
            yield f"{place}: there is no such setting{f', perhaps you mean {near[0]}' if near else ''}"
            continue
        inner = _struct_in(known[name].type)
        if inner is ProcessConfig and isinstance(value, list) and all(isinstance(each, dict) for each in value):
            for number, each in enumerate(value, start=1):
                yield from _type_problems(each, inner, f"process {number}: ")
        elif inner is ProcessConfig and isinstance(value, dict):
            yield f"{place}: there may be many, so write [[process]] and not [process]"
        elif inner is not None and isinstance(value, dict):
            yield from _type_problems(value, inner, f"{place}.")
        else:
            yield from _value_problem(value, known[name].type, place)
    for field in known.values():
        if field.required and field.name not in fields:
            yield f"{where}{field.name} is missing"


def _struct_in(type_: Any) -> type[msgspec.Struct] | None:
    found = [each for each in (type_, *get_args(type_)) if each in (Limits, ClientLimits, TlsFiles, ProcessConfig)]
    return found[0] if found else None


def _value_problem(value: Any, type_: Any, place: str) -> Iterator[str]:
    try:
        msgspec.convert(value, type_)
    except msgspec.ValidationError as error:
        if isinstance(type_, type) and issubclass(type_, StrEnum):
            yield f"{place}: {value!r} is none of {', '.join(type_)}"
        else:
            yield f"{place}: {str(error)[:1].lower()}{str(error)[1:]}"


# -- files: certificates, tokens, the application


def _check_identity(config: ClusterConfig, names: tuple[str, ...]) -> Iterator[Finding]:
    if not config.id:
        drawn = f"{system().random_bits(64):016x}"
        yield _ERROR, f'the cluster has no id, and `amcast init` asks for one: add a line such as id = "{drawn}"'


def _check_certificates(config: ClusterConfig, names: tuple[str, ...]) -> Iterator[Finding]:
    if config.tls is None:
        return
    folder = config.path(config.tls.folder)
    if not folder.is_dir():
        yield _ERROR, f"tls.folder: there is no folder {folder}: make it with `amcast certs`"
        return
    here = [each.id for each in config.process if (folder / f"{each.id}.crt").exists()]
    missing = [each.id for each in config.process if each.id not in here]
    if not here and not names:
        yield _ERROR, f"{folder} has no certificate of any process: make them with `amcast certs`"
    elif missing and not names:
        yield _WARNING, f"{folder} has no certificate of {', '.join(missing)}: all is well if they run elsewhere"
    for name in names or here:
        yield from _guarded(_check_certificate(config, folder, name))


def _check_certificate(config: ClusterConfig, folder: Path, name: str) -> Iterator[Finding]:
    tls = ProcessCredentials(msgspec.structs.replace(config, tokens=None), name, lambda reason: None).tls
    assert tls is not None
    if tls.identity.name != name:
        yield _ERROR, f"{folder}: the certificate of {name} is that of {tls.identity.name}: issue it anew"
    left_s = tls.ends_s - system().wall_us() / 1e6
    if left_s <= 0:
        yield _ERROR, f"{folder}: the certificate of {name}, or its CA's, has ended: issue it anew"
    elif left_s < _SOON_S:
        yield _WARNING, f"{folder}: the certificate of {name}, or its CA's, ends in {left_s / 86_400:.0f} days"
    if (folder / f"{name}.key").stat().st_mode & 0o077:
        yield _WARNING, f"{folder / name}.key can be read by others than its owner: chmod 600"


def _check_keys(config: ClusterConfig, names: tuple[str, ...]) -> Iterator[Finding]:
    """Of processes that are to run here. What cluster.toml has of them is looked at with the rest of it."""
    if config.survives_liars:
        for name in names:
            yield from _guarded(_check_key(config, name))


def _check_key(config: ClusterConfig, name: str) -> Iterator[Finding]:
    load_signer(config, name)
    path = key_file(config, name)
    if path.stat().st_mode & 0o077:
        yield _WARNING, f"{path} can be read by others than its owner: chmod 600"


def _check_tokens(config: ClusterConfig, names: tuple[str, ...]) -> Iterator[Finding]:
    if config.tokens is None:
        return
    path = config.path(config.tokens)
    tokens = Access.load(path).all
    if not tokens:
        yield _WARNING, f"{path} has no token: no client can do anything; add one with `amcast token add`"
    for rights in tokens:
        yield from _check_token(config, path, rights)


def _check_token(config: ClusterConfig, path: Path, rights: Rights) -> Iterator[Finding]:
    if rights.ends_s <= system().wall_us() / 1e6:
        yield _WARNING, f"{path}: the token of {rights.name} has expired"
    groups = {each.id.partition(".")[0] for each in config.process}
    named = {each for text in rights.groups for each in text.split(",") if each.startswith("g")}
    if strangers := sorted(named - groups):
        yield _WARNING, f"{path}: the token of {rights.name} names {', '.join(strangers)}, which this cluster has not"


def _check_application(config: ClusterConfig, names: tuple[str, ...]) -> Iterator[Finding]:
    if config.app and config.process:
        make_application(config, config.process[0].id)
    load_policy(config)
    yield from ()


def _check_data_folders(config: ClusterConfig, names: tuple[str, ...]) -> Iterator[Finding]:
    for name in names or [each.id for each in config.process]:
        folder = config.data_folder(name)
        if names or (folder / IDENTITY).exists():
            yield from _guarded(_check_data_folder(config, name))
    existing = next(each for each in (config.path(config.data), *config.path(config.data).parents) if each.exists())
    if not existing.is_dir():
        yield _ERROR, f"data: {existing} is no folder"
    elif not os.access(existing, os.W_OK):
        yield _WARNING, f"data: {existing} can't be written to by this user"


def _check_data_folder(config: ClusterConfig, name: str) -> Iterator[Finding]:
    check_folder(config, name)
    yield from ()


def _guarded(found: Iterator[Finding]) -> Iterator[Finding]:
    """What one process's files lack must not keep us from looking at the next one's."""
    try:
        yield from found
    except (UsageError, OSError) as error:
        yield _ERROR, str(error)


# -- processes: where they listen, and who shares a machine


def _check_addresses(config: ClusterConfig, names: tuple[str, ...]) -> Iterator[Finding]:
    addresses_of = cache(system().addresses_of)  # of many processes on one host, which nobody may know now
    owners: dict[tuple[str, int], str] = {}
    reported: set[str] = set()
    for entry in config.process:
        host, port = split_address(entry.address)
        resolved = addresses_of(host)
        if not resolved:
            yield _WARNING, f"{entry.id}: nobody here knows the host {host}"
        elif any(ip_address(each.partition("%")[0]).is_unspecified for each in resolved):
            yield _WARNING, f"{entry.id}: {host} is no address that other machines can reach: name one"
        for what, number in (("address", port), ("page for Prometheus", entry.metrics)):
            for each in sorted(resolved or {host}) if number else ():
                owner = owners.setdefault((each, number), f"the {what} of {entry.id}")
                clash = f"{owner} and the {what} of {entry.id} are both at port {number} of {host}"
                if owner != f"the {what} of {entry.id}" and clash not in reported:
                    reported.add(clash)
                    yield _ERROR, clash


def _check_exposure(config: ClusterConfig, names: tuple[str, ...]) -> Iterator[Finding]:
    exposed = [each.id for each in config.process if config.is_exposed(each.id)]
    if exposed and not config.insecure:
        config.check_exposure(exposed[0])  # says it as the node would
    elif exposed:
        yield _WARNING, f"{', '.join(exposed)} would listen without TLS: whoever reaches them may do everything"
    hidden = [each.id for each in config.process if each.metrics and each.id in exposed]
    if hidden:
        yield _WARNING, f"without TLS, figures of {', '.join(hidden)} for Prometheus are at 127.0.0.1 alone"
    if config.tls is not None and config.tokens is None:
        yield _WARNING, "there are no tokens: every client with a certificate may send to and follow all groups"


def _check_groups(config: ClusterConfig, names: tuple[str, ...]) -> Iterator[Finding]:
    hosts: dict[int, list[str]] = {}
    for entry in config.process:
        hosts.setdefault(split_name(entry.id)[0], []).append(split_address(entry.address)[0])
    for group, members in sorted(hosts.items()):
        if len(members) == 1:
            yield _WARNING, f"g{group} has one member: if its disk is lost, what the group had is lost"
            continue
        host, count = Counter(members).most_common(1)[0]
        if 2 * count > len(members) and not is_loopback(host):
            yield _WARNING, f"{count} of {len(members)} members of g{group} are on {host}: with it, the group stops"


# -- settings


def _check_settings(config: ClusterConfig, names: tuple[str, ...]) -> Iterator[Finding]:
    if config.durability is not Durability.SYNC:
        loses = "a power failure" if config.durability is Durability.ASYNC else "a restart of a majority"
        yield _WARNING, f"durability is {config.durability}: {loses} may lose what was acknowledged"
    if config.network != "none":
        yield _WARNING, f"network is {config.network}: every link is slowed down, which is for experiments"
    if config.trace_wire:
        yield _WARNING, "trace_wire is on: every wire message is written down, which is for studies"
    for entry in config.process:
        if entry.clock_offset_us:
            yield _WARNING, f"{entry.id} has a clock that is off on purpose (clock_offset_us)"
    if config.epoch_s > system().wall_us() / 1e6:
        yield _WARNING, "epoch_s is in the future: clocks would be negative"


def _check_limits(config: ClusterConfig, names: tuple[str, ...]) -> Iterator[Finding]:
    limits, own = config.limits, config.limits.client
    for name in ("open_bytes", "forwarded_bytes", "ingress_bytes", "link_bytes", "undurable_bytes"):
        if getattr(limits, name) < limits.message_bytes:
            yield _WARNING, f"limits.{name} is below limits.message_bytes: the largest messages do not fit"
    for name in ("open_messages", "open_bytes", "followers"):
        if getattr(own, name) > getattr(limits, name):
            yield _WARNING, f"limits.client.{name} is above limits.{name}, which ends it before"
    if own.sessions > limits.clients:
        yield _WARNING, "limits.client.sessions is above limits.clients, which ends it before"
    if limits.connections_per_address > limits.connections:
        yield _WARNING, "limits.connections_per_address is above limits.connections, which ends it before"


_OF_FILES: tuple[Check, ...] = (
    _check_identity,
    _check_certificates,
    _check_tokens,
    _check_settings,
    _check_limits,
)
_OF_PROCESSES: tuple[Check, ...] = (
    _check_keys,
    _check_application,
    _check_data_folders,
    _check_addresses,
    _check_exposure,
    _check_groups,
)
