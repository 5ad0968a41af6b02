"""What plans are made of, as far as strategies ask.

Inner joins, selections, projections and unions only ever combine intervals by intersection: they keep intervals, so
their results have one form in every plan. Everything else is only equal snapshot by snapshot.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from midstream.algebra import physical as p
from midstream.algebra.windows import Until
from midstream.errors import MigrationError
from midstream.optimizer.plans import Plan


def relational_part(plan: p.PhysicalNode) -> p.PhysicalNode:
    """A plan without ISTREAM, DSTREAM or RSTREAM at its top."""
    return plan.inputs[0] if is_to_stream(plan) else plan


def is_to_stream(plan: p.PhysicalNode) -> bool:
    """Whether the root turns a relation into a stream."""
    return isinstance(plan, p.Changes | p.Instants)


def keeps_intervals(plan: p.PhysicalNode) -> bool:
    """Whether a plan consists of selections, projections, unions and inner joins."""
    return all(node.keeps_intervals for node in p.walk_physical(plan))


def require_one_query(strategy: str, old: Plan, new: Plan) -> None:
    """Both plans must answer the same query over the same windows of the same streams."""
    if old.query != new.query:
        raise MigrationError(f"{strategy} cannot migrate to a plan of another query")
    windows_old, windows_new = ({s.stream.alias: s.window for s in _sources(plan.physical)} for plan in (old, new))
    if windows_old != windows_new:
        raise MigrationError(
            f"{strategy} cannot migrate between these plans: they do not read the same windows",
            detail=f"the old one reads {_listed(windows_old)}, the new one {_listed(windows_new)}",
        )


def require_all(plan: p.PhysicalNode, why: Callable[[p.PhysicalNode], str | None], cannot: str, hint: str) -> None:
    """Refuses a plan with an operator against which something speaks; says what cannot be, and names the operator."""
    for node in p.walk_physical(plan):
        if (reason := why(node)) is not None:
            raise MigrationError(f"{cannot}: it contains {describe(node)}", detail=reason, hint=hint)


def require_interval_keeping(strategy: str, plans: Sequence[Plan], why: str) -> None:
    """Refuses plans with operators whose results are only equal snapshot by snapshot."""
    for part in (relational_part(plan.physical) for plan in plans):
        cannot = f"{strategy} cannot migrate this plan"
        require_all(part, lambda node: None if node.keeps_intervals else why, cannot, _for_any_plan(plans))


def _for_any_plan(plans: Sequence[Plan]) -> str:
    """A strategy that takes what others refuse."""
    nodes = [node for plan in plans for node in p.walk_physical(relational_part(plan.physical))]
    if any(_no_split(node) for node in nodes):
        return "use strategy moving_state, which needs no split time"
    return "use strategy genmig, which is correct for every plan over time windows"


def require_split_time(strategy: str, plans: Iterable[Plan]) -> None:
    """Refuses plans in which no instant parts what the old box knows from what the new box needs."""
    for part in (relational_part(plan.physical) for plan in plans):
        hint = "use strategy moving_state, which needs no split time"
        require_all(part, _no_split, f"{strategy} cannot migrate this plan", hint)


def _no_split(node: p.PhysicalNode) -> str | None:
    match node:
        case p.SourceNode(window=Until()):
            return "its tuples say themselves until when, so nobody knows when the old box is no longer needed"
        case p.SourceNode() if node.longest is None:
            return "its tuples are valid for ever, so there is no instant after which the old box is not needed"
        case p.OverStream():
            return "it looks at rows of any time before, so it cannot be cut at an instant"
        case p.OrderedRows():
            return "its tuples are valid until others come, so nobody knows when the old box is no longer needed"
        case p.OverlappingBounds():
            return "its tuples have other bounds in every window, so an interval of one cannot be cut at any instant"
        case p.FollowedBy():
            return "a sequence is not determined by single snapshots, so it cannot be cut at an instant"
        case p.AssignWindow() | p.Instants():
            return "a window over a sub-query looks back in time, so it cannot be cut at an instant"
    return None


def describe(node: p.PhysicalNode) -> str:
    """An operator as users call it."""
    match node:
        case p.Deduplicate():
            return "DISTINCT"
        case p.GroupAggregate():
            return "an aggregation"
        case p.MatchRows():
            return "MATCH_RECOGNIZE"
        case p.OverPartition() | p.OverStream():
            return "OVER"
        case p.OuterJoin(kind=kind):
            return f"{'an' if kind == 'anti' else 'a'} {kind} {'join' if kind in ('semi', 'anti') else 'outer join'}"
        case p.SetOperation(kind=kind):
            return "EXCEPT" if kind == "difference" else "INTERSECT"
        case p.RowWindow():
            return "a ROWS window"
        case p.SessionWindow():
            return "a SESSION window"
        case p.WindowBounds():
            return "window_start and window_end of windows that overlap"
        case p.FollowedBy():
            return "a sequence"
        case p.AssignWindow() | p.Instants():
            return "a window over a sub-query"
        case p.SourceNode() if node.longest is None:
            return "a [VALID UNTIL …] window" if isinstance(node.window, Until) else "an [UNBOUNDED] window"
    return node.label


def emission_class(node: p.PhysicalNode) -> str:
    """What a node has given out beyond the frontier: everything it knows, nothing, or everything of some branches."""
    match node:
        case p.GroupAggregate() | p.OverPartition() | p.OuterJoin() | p.SetOperation():
            return "nothing"
        case p.OrderedRows() | p.Instants() | p.FollowedBy():
            return "nothing"
        case p.SourceNode() | p.AssignWindow():
            return "everything"
        case p.HashJoin() | p.MultiwayJoin():
            classes = {emission_class(child) for child in node.inputs}
            return "nothing" if "nothing" in classes else " and ".join(sorted(classes))
        case p.Concatenate():
            classes = {emission_class(child) for child in node.inputs}
            if len(classes) == 1:
                return classes.pop()
            return "some: " + "; ".join(sorted(c.content for c in node.inputs if emission_class(c) != "nothing"))
    return emission_class(node.inputs[0])


def _sources(plan: p.PhysicalNode) -> list[p.SourceNode]:
    return [node for node in p.walk_physical(plan) if isinstance(node, p.SourceNode)]


def _listed(windows: Mapping[str, object]) -> str:
    return ", ".join(f"{alias} {window}" for alias, window in sorted(windows.items()))
