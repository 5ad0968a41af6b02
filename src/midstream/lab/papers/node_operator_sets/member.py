"""A node's control of plans: how a change of statistics becomes a change of plans, by either way of modification.

One node leads: it lets changes happen one after another. In centralized mode it also plans: a node reports its
statistics, the leader sends every affected node its new share. In distributed mode a node asks for its turn, starts the
repair of all ways, and calls the affected nodes together. From there both modes follow the same track. The leader takes
part in every migration, so it knows how each one ends. A change that fails or takes too long is given up and tried
again later.

The state can be written down after every transition. Nothing here knows how messages travel or what drives time.
"""

from __future__ import annotations

from dataclasses import replace

from midstream.lab.papers.node_operator_sets import track as tracks
from midstream.lab.papers.node_operator_sets.calls import (
    Called,
    Directed,
    Granted,
    LineMeasured,
    LineReport,
    Measured,
    MemberEvent,
    MemberMessage,
    NewEpoch,
    Repair,
    Report,
    Request,
    Retired,
    Started,
)
from midstream.lab.papers.node_operator_sets.centralized import Coordinator
from midstream.lab.papers.node_operator_sets.distributed import line_triggered, received, repairing_nodes, triggered
from midstream.lab.papers.node_operator_sets.join_plan import JoinPlan
from midstream.lab.papers.node_operator_sets.membership import Draft, Lead, Member, Stepped, everyone
from midstream.lab.papers.node_operator_sets.modification import Setting
from midstream.lab.papers.node_operator_sets.network import Relined
from midstream.lab.papers.node_operator_sets.node_sets import keepers, node_sets
from midstream.lab.papers.node_operator_sets.repair import Message
from midstream.lab.papers.node_operator_sets.statistics import Statistics
from midstream.lab.papers.node_operator_sets.track import Drained, GiveUp, Prepare, Share, Tick, Track
from midstream.lab.papers.node_operator_sets.turns import (
    directed,
    line_reported,
    next_turn,
    reported,
    requested,
    started,
)


def step(member: Member, event: MemberEvent, setting: Setting) -> Stepped:
    """One transition. What a node sends to itself is taken at once."""
    member, sent = _stepped(member, event, setting)
    out: list[MemberMessage] = []
    queue = list(sent)
    while queue:
        message = queue.pop(0)
        if message.to != member.node:
            out.append(message)
            continue
        member, more = _stepped(member, message, setting)
        queue += more
    return member, tuple(out)


def _stepped(member: Member, event: MemberEvent, setting: Setting) -> Stepped:
    match event:
        case Measured(own):
            return _asking(replace(member, wanted=own))
        case LineMeasured(receiver, line):
            if member.base is None:
                return member, (LineReport(member.leader, member.node, receiver, line),)
            return _asking(_relined(member, Relined(member.node, receiver, line)))
        case LineReport(_, sender, receiver, line):
            return line_reported(member, sender, receiver, line, setting)
        case Directed(plan):
            return directed(member, plan, setting)
        case Report(_, stream, own):
            return reported(member, stream, own, setting)
        case Request(_, node):
            return requested(member, node, setting)
        case Granted(_, change, epoch):
            return _granted(member, change, epoch, setting)
        case Repair(_, change, starter, message):
            return _repaired(member, change, starter, message, setting)
        case Called():
            return _called(member, event, setting)
        case Started():
            return started(member, event)
        case Retired(_, epoch, batch):
            return replace(member, retired={**member.retired, epoch: batch}), ()
        case NewEpoch():
            return _renumbered(member, event), ()
        case Drained(epoch):
            return _drained(member, epoch, setting)
        case Tick():
            return _ticked(member, event, setting)
        case _:
            return _on_track(member, event, setting)


def _asking(member: Member) -> Stepped:
    """Reports or asks for a turn, unless the node has done so."""
    if member.wanted is None and not member.relined:
        return member, ()
    if member.base is None and member.wanted is not None:
        own = member.wanted
        return replace(member, wanted=None), (Report(member.leader, member.stream, own),)
    if member.asked is not None or (member.draft is not None and member.draft.starter == member.node):
        return member, ()
    return replace(member, asked=member.track.now), (Request(member.leader, member.node),)


def _relined(member: Member, relined: Relined) -> Member:
    """Notes a line that has changed, in the place of what was known of it."""
    others = tuple(known for known in member.relined if known.ends != relined.ends)
    return replace(member, relined=(*others, relined))


def _granted(member: Member, change: int, epoch: int, setting: Setting) -> Stepped:
    """Starts to repair all ways by what this node now knows of its stream, or of one of its lines."""
    member = replace(member, asked=None)
    base, now = member.base, member.track.now
    if base is None or epoch != member.track.epoch + 1 or (member.wanted is None and not member.relined):
        return member, tuple(GiveUp(to, change, member.node) for to in everyone(member))
    if member.wanted is not None:
        node, sent = triggered(base, member.wanted, setting)
        return _drafted(replace(member, draft=Draft(change, member.node, now, node), wanted=None), sent, setting)
    relined, *rest = member.relined
    node, sent = line_triggered(base, relined, setting)
    draft = Draft(change, member.node, now, node, relined=relined)
    return _drafted(replace(member, draft=draft, relined=tuple(rest)), sent, setting)


def _repaired(member: Member, change: int, starter: str, message: Message, setting: Setting) -> Stepped:
    stale = member.draft is not None and change < member.draft.change
    if change in member.track.ended or member.base is None or stale:
        return member, ()
    if member.draft is None or member.draft.change != change:
        # Changes come one after another: an unfinished one has ended elsewhere.
        fresh = replace(member.base, received=0, sent={})
        member = replace(member, draft=Draft(change, starter, member.track.now, fresh))
    draft = member.draft
    assert draft is not None and member.base is not None
    node, sent = received(draft.node, message, setting, member.base.own)
    # Whatever a starter hears of its repairs is progress, for which it is patient anew.
    return _drafted(replace(member, draft=replace(draft, node=node, since=member.track.now)), sent, setting)


def _drafted(member: Member, sent: tuple[Message, ...], setting: Setting) -> Stepped:
    """Sends on what repair sends; calls the affected nodes when all ways are repaired."""
    draft, home = member.draft, setting.costs.network.home
    assert draft is not None
    out: list[MemberMessage] = [Repair(home(m.to), draft.change, draft.starter, m) for m in sent]
    if draft.starter == member.node and not draft.node.open and draft.called is None:
        notified = {home(stream): count for stream, count in draft.node.sent.items()}
        epoch, orders = member.track.epoch + 1, draft.node.orders
        if not notified:
            # No operator changes, but rates along the ways may have: all nodes go on from what they know now.
            return member, (*out, *(NewEpoch(to, draft.change, epoch, orders) for to in everyone(member)))
        members = tuple(sorted({*notified, member.node, member.leader}))
        out += [Called(m, draft.change, epoch, members, orders, notified.get(m, 0)) for m in members]
    elif draft.called is not None:
        member, more = _called(member, draft.called, setting)
        out += more
    return member, tuple(out)


def _called(member: Member, message: Called, setting: Setting) -> Stepped:
    """Takes part in the migration as soon as all messages of the modification are here."""
    if message.change in member.track.ended or member.base is None:
        return member, ()
    if member.draft is None or member.draft.change != message.change:
        fresh = replace(member.base, received=0, sent={})
        member = replace(member, draft=Draft(message.change, "", member.track.now, fresh))
    draft = member.draft
    assert draft is not None
    if draft.node.received < message.expected:
        return replace(member, draft=replace(draft, called=message)), ()
    node = replace(draft.node, orders=message.orders, received=0, sent={})
    member = replace(member, draft=replace(draft, node=node, called=message))
    if member.lead is not None:
        absent = tuple(n for n in member.lead.nodes if n not in message.members)
        member = replace(member, lead=replace(member.lead, absent=absent, orders=message.orders))
    share = Share(node.node_set, node.keepers)
    return _on_track(member, Prepare(member.node, message.change, message.epoch, message.members, share), setting)


def _on_track(member: Member, event: tracks.TrackEvent, setting: Setting) -> Stepped:
    """Lets the track take an event, and draws conclusions if a change has ended by it."""
    before = member.track
    after, notified = tracks.step(before, event, member.patience)
    member, sent = replace(member, track=after), list[MemberMessage](notified)
    for change in [c for c in after.ended if c not in before.ended]:
        member, more = _ended(member, change, after.ended[change])
        sent += more
    return member, tuple(sent)


def _ended(member: Member, change: int, committed: bool) -> Stepped:
    """The draft becomes the base, or it is forgotten; the leader tells those who took no part."""
    sent: list[MemberMessage] = []
    if member.draft is not None and member.draft.change == change:
        draft = member.draft
        if committed:
            member = replace(member, base=draft.node)
        elif draft.relined is not None:
            if draft.relined.ends not in (known.ends for known in member.relined):
                member = _relined(member, draft.relined)
        elif draft.starter == member.node and member.wanted is None:
            member = replace(member, wanted=draft.node.own)
        member = replace(member, draft=None)
    if member.lead is not None and member.lead.change == change:
        lead = replace(member.lead, change=None)
        if committed:
            sent += [NewEpoch(n, change, member.track.epoch, lead.orders) for n in lead.absent]
            coordinator = lead.coordinator and lead.coordinator.using(lead.planned or lead.coordinator.plan)
            wanted = None if lead.wanted == lead.planned else lead.wanted
            lead = replace(lead, coordinator=coordinator, planned=None, wanted=wanted)
        elif lead.coordinator is not None:
            lead = replace(lead, planned=None, waiting=("report",))
        member = replace(member, lead=lead)
    return member, tuple(sent)


def _renumbered(member: Member, message: NewEpoch) -> Member:
    """A node that took no part in a migration goes over to the plan in use; its share is the same."""
    if message.epoch <= member.track.epoch:
        return member
    base = member.base
    if base is not None:
        drafted = member.draft is not None and member.draft.change == message.change
        node = member.draft.node if drafted and member.draft is not None else base
        base = replace(node, orders=message.orders, received=0, sent={})
    lead = member.lead
    if lead is not None and lead.change == message.change:
        lead = replace(lead, change=None)
    track = replace(member.track, epoch=message.epoch)
    return replace(member, track=track, base=base, draft=None, lead=lead)


def _drained(member: Member, epoch: int, setting: Setting) -> Stepped:
    member, sent = _on_track(member, Drained(epoch), setting)
    member = replace(member, retired={e: batch for e, batch in member.retired.items() if e > epoch})
    if member.lead is None:
        return member, sent
    member = replace(member, lead=replace(member.lead, drained=max(member.lead.drained, epoch)))
    member, more = next_turn(member, setting)
    return member, (*sent, *more)


def _ticked(member: Member, tick: Tick, setting: Setting) -> Stepped:
    """Gives up what takes too long, and tries again what is still wanted."""
    member, sent = _on_track(member, tick, setting)
    out, now = list(sent), tick.now
    draft, move = member.draft, member.track.move
    if draft is not None and draft.starter == member.node and now - draft.since > member.patience and move is None:
        out += [GiveUp(to, draft.change, member.node) for to in everyone(member)]
    lead = member.lead
    if lead is not None and lead.change is not None and now - lead.since > 3 * member.patience:
        busy = member.track.move is not None and member.track.move.change == lead.change
        if not busy:
            member, more = _on_track(member, GiveUp(member.node, lead.change, member.node), setting)
            out += more
    if member.lead is not None:
        member, more = next_turn(member, setting)
        out += more
    member, more = _asking(member)
    return member, (*out, *more)


def centralized_members(
    plan: JoinPlan, statistics: Statistics, setting: Setting, leader: str, patience: float
) -> dict[str, Member]:
    """The members of a plan, one per node; one of them plans for all."""
    network = setting.costs.network
    sets = node_sets(plan, network)
    kept = keepers(sets)
    members = {}
    for stream in setting.conditions.streams:
        node = network.home(stream)
        share = Share(sets[node], tuple(sorted(kept.get(stream, ()))))
        lead = Lead(network.nodes, coordinator=Coordinator(plan, statistics)) if node == leader else None
        members[node] = Member(stream, leader, patience, Track(node, 0, {0: share}), lead=lead)
    return members


def distributed_members(
    plan: JoinPlan, statistics: Statistics, setting: Setting, leader: str, patience: float
) -> dict[str, Member]:
    """The members of a plan, one per node; each modifies its own share, one of them lends turns."""
    network, members = setting.costs.network, {}
    for stream, base in repairing_nodes(plan, statistics, setting).items():
        node = network.home(stream)
        share = Share(base.node_set, base.keepers)
        lead = Lead(network.nodes) if node == leader else None
        members[node] = Member(stream, leader, patience, Track(node, 0, {0: share}), base=base, lead=lead)
    return members
