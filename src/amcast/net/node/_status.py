"""How a node is: for `amcast status`, and as figures for Prometheus."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..system import system
from ..wire.control import Status
from .metrics import Metrics

if TYPE_CHECKING:
    from .server import NodeServer


def status_of(server: NodeServer) -> Status:
    node = server.node
    leader = node.process.leader if node.is_running else None
    peers = {name: node.links[id_].is_connected for name, id_ in server.ids.items() if id_ != node.id}
    return Status(
        name=node.name,
        group=f"g{node.group}",
        protocol=server.config.protocol,
        boot=server.folder.boot,
        is_leader=node.is_running and node.process.is_leader,
        leader=None if leader is None else node.topology.name(leader),
        delivered=node.deliveries.next,
        open_messages=node.admission.open_messages,
        clients=len(node.clients.channels),
        peers=peers,
        messages_in=node.messages_in,
        messages_out=node.messages_out,
        dropped=sum(link.dropped for link in node.links.values()),
        durability=str(server.config.durability),
        undurable=node.barrier.undurable,
        uptime_s=round(system().monotonic_s() - server.started_s, 3),
        rss_mb=round(system().peak_memory_mb(), 1),
        problem=_problem_of(server),
        application=None if server.host is None else server.host.position,
        incarnation=server.folder.incarnation,
        connections=server.budget.total,
        strangers=server.budget.strangers,
        followers=len(server.followers),
        forwarded_bytes=node.admission.forwarded.bytes,
        refused={str(cause): count for cause, count in server.refusals.counts.items() if count},
        held_at=None if server.host is None else server.host.held_at,
        warnings=tuple(_warnings_of(server)),
    )


def _warnings_of(server: NodeServer) -> list[str]:
    found = server.credential_watch.warnings()
    if server.config.is_exposed(server.node.name):
        found.append(f"listens on {server.process_config.address} without TLS: whoever reaches it may do everything")
    if server.audit.problem is not None:
        found.append(server.audit.problem)
    found += server.gate.doubts
    return found


def _problem_of(server: NodeServer) -> str | None:
    node = server.node
    if server.start_problem is not None:
        return server.start_problem
    if not node.is_running:
        return f"is starting: waits for {', '.join(server.gate.missing) or 'nobody'}"
    if node.process.is_silent:
        return "lost its disk: waits for its group to take it back"
    if server.witnesses.problem is not None:
        return server.witnesses.problem
    if node.waits_for_space:
        return "the disk is full: nothing is acknowledged until there is space"
    if not node.takes_input:
        return "the disk is behind: no more input is taken until it has caught up"
    problems = (
        None if server.host is None else server.host.problem,
        server.backfill.problem,
        server.followers.problem,
        None if node.trace is None else node.trace.failed,
        "gets deliveries that it missed from other members: replace none of their disks now"
        if server.backfill.is_filling
        else None,
    )
    return next((problem for problem in problems if problem is not None), None)


def metrics_of(server: NodeServer) -> Metrics:
    status = status_of(server)
    busy = server.node.admission.turned_away
    lag = 0 if status.application is None else status.delivered - status.application
    return {
        "amcast_delivered_total": ("counter", "Messages delivered, by position.", status.delivered),
        "amcast_messages_in_total": ("counter", "Messages received from peers and clients.", status.messages_in),
        "amcast_messages_out_total": ("counter", "Messages sent to peers and clients.", status.messages_out),
        "amcast_dropped_total": ("counter", "Messages to peers that were away or slow.", status.dropped),
        "amcast_busy_total": ("counter", "Client messages turned away because too much was open.", busy),
        "amcast_refused_total": ("counter", "Connections refused or cut off, by cause.", server.refusals.counts),
        "amcast_connections": ("gauge", "Connections that are open.", status.connections),
        "amcast_strangers": ("gauge", "Connections that have not said who they are.", status.strangers),
        "amcast_followers": ("gauge", "Connections that follow deliveries.", status.followers),
        "amcast_forwarded_bytes": ("gauge", "Passed on to the leader, not delivered yet.", status.forwarded_bytes),
        "amcast_open_messages": ("gauge", "Accepted from clients, not delivered yet.", status.open_messages),
        "amcast_clients": ("gauge", "Clients connected.", status.clients),
        "amcast_is_leader": ("gauge", "1 if this process leads its group.", float(status.is_leader)),
        "amcast_peers_connected": ("gauge", "Links that are up.", sum(status.peers.values())),
        "amcast_undurable_records": ("gauge", "Records on their way to the disk.", status.undurable),
        "amcast_application_lag": ("gauge", "Delivered, not applied by the application yet.", lag),
        "amcast_resident_megabytes": ("gauge", "Peak resident memory.", status.rss_mb),
        **_metrics_of_certificates(server),
    }


def _metrics_of_certificates(server: NodeServer) -> Metrics:
    tls = server.security.tls
    if tls is None:
        return {}
    left_s = tls.ends_s - system().wall_us() / 1e6
    return {"amcast_certificate_seconds": ("gauge", "Until this node's certificate, or its CA's, ends.", left_s)}
