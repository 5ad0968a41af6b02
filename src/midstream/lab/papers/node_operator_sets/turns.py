"""The leader's turns: changes of plans happen one after another, each when the plans before it have drained.

In centralized mode the leader plans a change by itself, from what nodes report. In distributed mode it grants a turn to
the node that has asked first.
"""

from __future__ import annotations

from dataclasses import replace

from midstream.lab.papers.node_operator_sets.calls import Granted, Retired, Started
from midstream.lab.papers.node_operator_sets.join_plan import JoinPlan
from midstream.lab.papers.node_operator_sets.membership import Member, Stepped, leading
from midstream.lab.papers.node_operator_sets.modification import Setting
from midstream.lab.papers.node_operator_sets.node_sets import keepers
from midstream.lab.papers.node_operator_sets.statistics import StreamStatistics
from midstream.lab.papers.node_operator_sets.track import Prepare, Share
from midstream.optimizer.sites.links import Link


def directed(member: Member, plan: JoinPlan, setting: Setting) -> Stepped:
    """Goes over to a plan that somebody asks for, when it is its turn."""
    lead = replace(leading(member), wanted=plan, waiting=("report",))
    return next_turn(replace(member, lead=lead), setting)


def reported(member: Member, stream: str, own: StreamStatistics, setting: Setting) -> Stepped:
    """Plans again by what a node reports of its stream."""
    lead = leading(member)
    assert lead.coordinator is not None
    lead = replace(lead, coordinator=lead.coordinator.with_report(stream, own), waiting=("report",))
    return next_turn(replace(member, lead=lead), setting)


def line_reported(member: Member, sender: str, receiver: str, line: Link, setting: Setting) -> Stepped:
    """Plans again for a line that has changed."""
    lead = leading(member)
    assert lead.coordinator is not None
    coordinator = lead.coordinator.with_line(sender, receiver, line, setting)
    lead = replace(lead, coordinator=coordinator, waiting=("report",))
    return next_turn(replace(member, lead=lead), setting)


def requested(member: Member, node: str, setting: Setting) -> Stepped:
    """Lets a node wait for its turn."""
    lead = leading(member)
    if node not in lead.waiting:
        lead = replace(lead, waiting=(*lead.waiting, node))
    return next_turn(replace(member, lead=lead), setting)


def next_turn(member: Member, setting: Setting) -> Stepped:
    """Starts the next change if none is in progress and old plans have drained."""
    lead = leading(member)
    if lead.change is not None or not lead.waiting or lead.drained < member.track.epoch:
        return member, ()
    epoch = member.track.epoch + 1
    change = lead.changes + 1
    lead = replace(lead, changes=change, since=member.track.now)
    if lead.coordinator is None:
        first, *rest = lead.waiting
        lead = replace(lead, change=change, waiting=tuple(rest), absent=())
        return replace(member, lead=lead), (Granted(first, change, epoch),)
    coordinator = lead.coordinator
    found = coordinator.modified(setting, lead.wanted)
    lead = replace(lead, waiting=())
    if not found.affected:
        return replace(member, lead=replace(lead, wanted=None)), ()
    nodes = tuple(sorted({*found.affected, member.node}))
    absent = tuple(n for n in lead.nodes if n not in nodes)
    decided = coordinator.decided(found.plan, lead.wanted is not None)
    lead = replace(lead, change=change, planned=found.plan, absent=absent, coordinator=decided)
    kept, home = keepers(found.sets), setting.costs.network.home
    by_node = {home(s): tuple(sorted(kept.get(s, ()))) for s in setting.conditions.streams}
    shares = {node: Share(found.sets[node], by_node[node]) for node in nodes}
    return replace(member, lead=lead), tuple(Prepare(n, change, epoch, nodes, shares[n]) for n in nodes)


def started(member: Member, message: Started) -> Stepped:
    """Counts the streams that start under a new plan; plans run one after another, so only one is counted at a time."""
    lead = leading(member)
    started = {**lead.started, message.stream: message.batch}
    if len(started) < len(lead.nodes):
        return replace(member, lead=replace(lead, started=started)), ()
    last = max(started.values())
    return replace(member, lead=replace(lead, started={})), tuple(Retired(n, message.epoch, last) for n in lead.nodes)
