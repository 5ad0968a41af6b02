"""Windows that several operators of a session remember: kept once, and given to those that come later.

States with equal id and key hold the same rows if they began with the same push. Segments never change, so they can
all hold the same ones: after each push the states that are equal take over the segments of one of them. A new query
finds the windows it needs by their id and starts from their present content.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from midstream.checkpoint.records import grouped
from midstream.cluster.local.shared_parts import Owner, SharedPart
from midstream.job.task.task_graph import has_null_keys, window_alias
from midstream.migration.contents import ports_of
from midstream.migration.execution import SingleBox
from midstream.operators.base import Operator
from midstream.operators.box import Wire
from midstream.operators.elements import Elements
from midstream.operators.state.sorted_state import SortedState


@dataclass(frozen=True, slots=True)
class WholeWindow:
    """A state that keeps a window of one stream, where it is kept, and from which instant on it is whole."""

    alias: str
    since: int
    wire: Wire
    operator: Operator
    state: SortedState
    whole_from: int

    @property
    def has_null_keys(self) -> bool:
        """Whether rows with a null key are there too: a join by equality drops them."""
        return has_null_keys(self.operator, self.state)

    def content(self) -> Elements:
        """What is still valid of it."""
        return self.state.alive(self.operator.frontier)


def windows_of(owner: Owner) -> Iterator[WholeWindow]:
    """The windows that a query or a part keeps itself."""
    box = owner.box
    for i, operator in enumerate([] if box is None else box.operators):
        assert box is not None
        for port, state in ports_of(operator):
            alias = None if port is None else window_alias(box.nodes[i].inputs[port])
            if alias is not None and port is not None:
                whole_from = max(operator.frontier, owner.whole_from)
                yield WholeWindow(alias, owner.since[alias], Wire(i, port), operator, state, whole_from)


def windows_in_common(owner: Owner, owners: Iterable[Owner]) -> Iterator[tuple[WholeWindow, WholeWindow]]:
    """The windows of a newcomer that others keep already, each with the one that has been kept longest."""
    known = grouped((window.state.id, window) for other in owners for window in windows_of(other))
    done: set[Wire] = set()
    for window in windows_of(owner):
        fit = [w for w in known.get(window.state.id, ()) if w.has_null_keys or not window.has_null_keys]
        if fit and window.wire not in done:
            done.add(window.wire)
            yield window, min(fit, key=lambda w: w.since)


def inherit_windows(owner: Owner, execution: SingleBox, owners: Iterable[Owner]) -> dict[str, WholeWindow]:
    """Gives a newcomer the windows that others keep, although they do something else with them; says which."""
    known: dict[str, WholeWindow] = {}
    for window, kept in list(windows_in_common(owner, owners)):
        known[window.alias] = kept
        owner.since[window.alias] = kept.since
        content = kept.content()
        if len(content):
            execution.scheduler.send([window.wire], content)
        if isinstance(owner, SharedPart):
            owner.whole_from = max(owner.whole_from, kept.whole_from)
    return known


def unify(owners: Iterable[Owner]) -> None:
    """Lets equal windows hold the same segments: those of the one that has forgotten least, where none is missed."""
    equal: dict[tuple[object, ...], list[WholeWindow]] = defaultdict(list)
    for owner in owners:
        for window in windows_of(owner):
            equal[window.state.id, window.state.key, window.since, window.has_null_keys].append(window)
    for windows in equal.values():
        if len(windows) > 1:
            first = min(windows, key=lambda w: w.whole_from)
            for other in windows:
                if other is not first and first.whole_from <= other.operator.frontier:
                    other.state.replace_segments(first.state.segments)
