"""Which queries share what in a batch: a function of the last manifest and of the queries there are.

Nodes of equal structure hold the same if their windows began with the same batch. So the manifest remembers of each
query since which batch each of its windows is kept; a new query takes over what others have stored, or parts of plans
that run, and with them their beginning, until all that came before it has ended. Queries share a graph in each stage if
they read streams of equal progress, and what goes from one stage to the next goes once; windows of streams are kept
once anyway. So are those of routed joins, but a new query by one starts with empty windows.
A query that migrates is alone, and stays so until what it held then has ended: a new plan may have kept less of a
window than its name says. So is a query that does not run by one plan in all slots.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from midstream.algebra.time import BEGINNING, INFINITY
from midstream.checkpoint.manifest import Manifest
from midstream.checkpoint.names import copy_name, is_rehearsal, lane_name, query_of_copy
from midstream.checkpoint.query_windows import ALWAYS, SharingRecord, WindowFilling
from midstream.job.queries.completeness import changes_from, started, whole_at
from midstream.job.queries.derived_windows import DerivedWindow, Others, derived_windows, first_whole
from midstream.job.queries.filling import Kept, Pace, Ranges, left, next_given
from midstream.job.queries.fingerprints import Fingerprint, Fingerprints, Outline, largest, read_by
from midstream.job.queries.named_states import NamedInput, first_instants, named_inputs
from midstream.job.queries.running_query import RunningQuery
from midstream.job.queries.succession import answered_to, ended, hands_on, last_instant, unanswered
from midstream.job.queries.takeovers import Takeovers
from midstream.job.task.lanes import KEPT
from midstream.job.task.shipping import Shipped
from midstream.job.task.task_graph import probed_alias, probed_token
from midstream.job.task.works import FragmentWork, Member, TaskWork
from midstream.operators.shared_graph import NodeNames


@dataclass
class SharingPlan:
    """Who shares what in one batch."""

    batch_id: int
    before: Manifest | None
    queries: Mapping[str, RunningQuery]
    frontiers: Mapping[str, int]
    """To which frontier this batch advances each query."""
    fingerprints: Fingerprints = field(default_factory=Fingerprints)
    migrated: frozenset[str] = frozenset()
    """The queries whose states were moved to another plan right before this batch."""
    sooner: frozenset[str] = frozenset()
    """The queries whose fragments run a stage sooner than they say."""
    apart: Collection[str] = ()
    """The key classes that are not dealt as rows arrive."""
    pace: Pace = Pace()

    def __post_init__(self) -> None:
        self.records: dict[str, SharingRecord] = {}
        self.taken = Takeovers()
        self.filled: set[str] = set()
        self.rest: dict[str, Ranges] = {}
        """What queries that are being filled have yet to be given, by the names of lanes."""
        for name, query in self.queries.items():
            if (stored := self._stored(name)) is not None:
                self.records[name] = self._known(query, stored)
        for name in [name for name in self.queries if name not in self.records]:
            self.fingerprints.tidy()
            self.records[name] = self._begun(self.queries[name])
        self._running_at: dict[object, set[str]] = {}

    def _shape(self, query: RunningQuery) -> Fingerprint:
        return self.fingerprints.of(query, self.apart)

    def _stored(self, name: str) -> SharingRecord | None:
        return None if self.before is None else self.before.account(name).sharing

    def is_fresh(self, name: str) -> bool:
        """Whether a query is new in this batch."""
        return self.before is not None and name not in self.before.queries

    def _known(self, query: RunningQuery, stored: SharingRecord) -> SharingRecord:
        if stored.filling is not None and self.before is not None and self.before.fills(query.name):
            kept = self.before.segments.get(lane_name(query.name, KEPT), {})
            return self._fill(query, stored, stored.filling, kept)
        if stored.filling is not None:
            stored = replace(stored, own=False, filling=None)
        since = {s.stream.alias: stored.since.get(s.stream.alias, self.batch_id) for s in query.sources}
        record = replace(stored, since=since)
        if not query.has_one_plan or query.name in self.migrated:
            return SharingRecord(record.since, record.start, self._whole_at(query), True)
        if record.whole_at is not None and self._worked_through(query) >= record.whole_at:
            return SharingRecord(dict.fromkeys(record.since, ALWAYS), record.start)
        return record

    def _worked_through(self, query: RunningQuery) -> int:
        """How far all fragments of a query were: what waits for answers is behind the streams."""
        return min(query.frontiers(self._advanced_to(query.name)).values())

    def _begun(self, query: RunningQuery) -> SharingRecord:
        """The record of a query that is new, or of which the manifest does not tell."""
        aliases = {source.stream.alias for source in query.sources}
        if self.before is None:
            return SharingRecord(dict.fromkeys(aliases, ALWAYS))
        if query.name in self.before.queries:
            return SharingRecord(dict.fromkeys(aliases, self.batch_id), own=True, whole_at=self._whole_at(query))
        if query.begins.paced:
            return self._begin_to_fill(query)
        since, partners = dict[str, int](), dict[str, None]()
        start, shares = self.frontiers[query.name], query.share and query.migration is None
        if pair := self.pair(query.name):
            start = self._advanced_to(copy_name(pair))
        elif shares and (reached := self._reach_back(query, since, partners)) is not None:
            start = reached
        if shares and not since:
            self._take_over_nodes(query, since, partners)
            self.taken.needed.update(partners)
            start = max([start, *self._name(self._nameable(query, since), since, partners)])
            start = max([start, *self._derive(self._derivable(query, since), since, partners)])
        inherited = dict(sorted(since.items()))
        # What changed at an instant shows only to those who also know the instant before.
        known = min(changes_from(start, query.plan.query), INFINITY) if inherited else start
        start = max(known, answered_to(self.before, query.name, BEGINNING))
        since = {alias: since.get(alias, self.batch_id) for alias in aliases}
        whole = self._whole_at(query, partners if inherited.keys() == aliases else ())
        own = not shares or (pair is not None and self.records[copy_name(pair)].own)
        record = SharingRecord(since, start, whole, own, inherited=inherited, shares=tuple(partners))
        if query.begins.withhold and record.lacks_rows and record.whole_at is not None:
            return replace(record, start=max(start, changes_from(record.whole_at, query.plan.query)))
        return record

    def _begin_to_fill(self, query: RunningQuery) -> SharingRecord:
        """The record of a query that nobody hears, and that begins to be given rows that others or sources keep."""
        begins, whole = query.begins, {window.alias: ALWAYS for window in query.begins.again}
        since = {source.stream.alias: self.batch_id for source in query.sources} | whole
        found = self._derivable(query, whole)
        record = SharingRecord(since | {f.rows.alias: f.begun for f in found}, INFINITY, self._whole_at(query), True)
        filling = WindowFilling("", (*(f.filled for f in found), *begins.again), rate=begins.rate)
        return self._fill(query, record, filling, {number: f.lying.held for number, f in enumerate(found)})

    def _fill(self, query: RunningQuery, record: SharingRecord, filling: WindowFilling, kept: Kept) -> SharingRecord:
        assert self.before is not None
        done, slots = self._worked_through(query), self.before.slots
        filling, given, rest = next_given(filling, query.name, kept, self.pace, slots, done)
        self.taken.rows.extend(given)
        self.filled.add(query.name)
        self.rest.update({lane_name(query.name, KEPT): rest} if rest else {})
        return replace(record, own=True, filling=left(filling, rest, self.frontiers[query.name]))

    def _others(self, query: RunningQuery) -> Iterator[tuple[RunningQuery, Fingerprint, SharingRecord]]:
        """The queries that a new one can start from; what came with it in this batch has nothing yet."""
        for name, record in self.records.items():
            other = self.queries[name]
            startable = self._can_share(other, record) and not other.staged.windows
            if name != query.name and startable and not self.is_fresh(name):
                yield other, self._shape(other), record

    def _take_over_nodes(self, query: RunningQuery, since: dict[str, int], partners: dict[str, None]) -> None:
        where = self._shape(query).progress, self.pair(query.name)
        running: dict[str, tuple[str, SharingRecord]] = {}
        for other, theirs, record in self._others(query):
            for node in theirs.nodes() if (theirs.progress, self.pair(other.name)) == where else ():
                running.setdefault(node.text, (other.name, record))
        for node in largest(self._shape(query).root, running):
            name, record = running[node.text]
            if not node.aliases & since.keys():
                since.update({alias: record.since[alias] for alias in node.aliases})
                partners[name] = None

    def _nameable(self, query: RunningQuery, known: Collection[str]) -> list[NamedInput]:
        """What can begin with what others have stored, where nobody keeps rows from further back."""
        assert self.before is not None
        found = named_inputs(query, known, [(o, shape.inputs) for o, shape, _ in self._others(query)], self.before)
        begun = {alias: self.records[one.of].since[alias] for one in found for alias in one.aliases}
        if all(since == ALWAYS for since in begun.values()):
            return found
        kept = {f.rows.alias: f.begun for f in self._derivable(query, known)}
        later = {alias for alias, since in begun.items() if kept.get(alias, since) < since}
        return [one for one in found if not one.aliases & later]

    def _name(self, found: list[NamedInput], since: dict[str, int], partners: dict[str, None]) -> list[int]:
        """Has states begin with what others have stored; gives how far these had been forgotten."""
        self.taken.inputs.extend(found)
        partners |= dict.fromkeys(one.of for one in found)
        since |= {alias: self.records[one.of].since[alias] for one in found for alias in sorted(one.aliases)}
        return [self._advanced_to(one.of) for one in found]

    def _derivable(self, query: RunningQuery, known: Collection[str]) -> list[DerivedWindow]:
        assert self.before is not None
        return list(derived_windows(query, known, self.kept_by_others(query), self.before))

    def kept_by_others(self, query: RunningQuery) -> Others:
        """The queries whose rows a new one can start with."""
        return [(other, record.since) for other, _, record in self._others(query)]

    def _derive(self, found: list[DerivedWindow], since: dict[str, int], partners: dict[str, None]) -> list[int]:
        """Has windows start with rows that others keep; gives how far these had been forgotten."""
        for window in found:
            since[window.rows.alias], partners[window.rows.of] = window.begun, None
            self.taken.rows.append(window.rows)
        return [self._advanced_to(window.rows.of) for window in found]

    def _reach_back(self, query: RunningQuery, since: dict[str, int], partners: dict[str, None]) -> int | None:
        """Gives the instant from which on a query answers that is asked about the past; None if nothing tells of it."""
        wanted = self._wanted_since(query)
        if wanted >= self.frontiers[query.name]:
            return None
        ways, since_of = [], {name: record.since for name, record in self.records.items()}
        passed = {other.name: self._worked_through(other) for other, _, _ in self._others(query)}.__getitem__
        for inputs in (self._nameable(query, ()), []):  # rows of others may tell of more of the past
            found = self._derivable(query, {alias for one in inputs for alias in one.aliases})
            whole = first_instants(inputs, since_of, passed)
            if (earliest := first_whole(query, found, passed, whole)) is not None:
                ways.append((max(wanted, earliest), inputs, found))
        if not ways:
            return None
        start, inputs, found = min(ways, key=lambda way: way[0])
        self._name(inputs, since, partners)
        self._derive(found, since, partners)
        return min(start, self.frontiers[query.name])

    def ended(self) -> frozenset[str]:
        """The queries that have answered up to where those begin that take their places, with what is stored alone."""
        starts = {name: self.start(name) for name in self.records if self.is_fresh(name)}
        over = ended(self.before, starts) if self.before and starts else frozenset[str]()
        return (over & self.queries.keys()) - self.taken.needed

    def _answers_back(self, name: str) -> bool:
        """Whether a new query answers for instants that have passed: it begins apart, from the beginning."""
        if not self.is_fresh(name) or self.pair(name) is not None:
            return False
        return self.start(name) < changes_from(self.frontiers[name], self.queries[name].plan.query)

    def pair(self, name: str) -> str | None:
        """The query whose place is taken by a text that has run beside it, of both that text and its successor.

        The text is behind others that read the same streams, and its successor goes on from where it is, if it has all
        that it needs from there.
        """
        if self.is_fresh(name):
            return name if copy_name(name) in self.queries and hands_on(self.queries[name]) else None
        return query_of_copy(name) if is_rehearsal(name) else None

    def _wanted_since(self, query: RunningQuery) -> int:
        """From when on a query is to know: as asked, and unless it runs by parts of others, as the old one ended."""
        self._take_over_nodes(query, parts := dict[str, int](), {})
        whole = parts.keys() == {source.stream.alias for source in query.sources}
        ended = INFINITY if whole else answered_to(self.before, query.name, INFINITY)
        return last_instant(min(query.begins.since, ended), query.plan.query)

    def _can_share(self, query: RunningQuery, record: SharingRecord) -> bool:
        """Whether others may have what a query has; what is its own, only who takes it over by the same plan."""
        hands_over = (pair := self.pair(query.name)) is not None and self.is_fresh(pair)
        return query.share and query.has_one_plan and (hands_over or not record.own)

    def _whole_at(self, query: RunningQuery, partners: Iterable[str] = ()) -> int | None:
        """When everything has ended for a query that came before its windows began, or those that `partners` kept."""
        return whole_at(query, self.before, [self.records[name] for name in partners])

    def start(self, query: str) -> int:
        """From when on a query's results are given."""
        return self.records[query].start

    def place(self, query: str) -> object | None:
        """Queries of one place share a graph in each stage; None for those that are alone."""
        if query in self.filled:
            return ("filled", query)
        if (known := self.queries.get(query)) is None or not self._can_share(known, self.records[query]):
            return None
        if (routed := bool(known.staged.windows)) and self.is_fresh(query):
            return None
        past = query if self._answers_back(query) else self.pair(query)
        return (self._shape(known).progress, self.frontiers[query], routed, query in self.sooner, past)

    def gathered(self, works: Sequence[FragmentWork]) -> list[TaskWork]:
        """The works of a stage, those that have something in common as one."""
        if len(works) == 1 and not self._shares(works, set()):
            return [TaskWork.alone(works[0])]
        alone, groups = list[TaskWork](), dict[object, list[FragmentWork]]()
        for work in works:
            if (place := self.place(work.query)) is None or work.apart.lane is not None:
                alone.append(TaskWork.alone(work))
            else:
                apart = work.fragment.stage, work.apart.arrives, bool(work.apart.probed)
                groups.setdefault((place, apart), []).append(work)
        common = self._common(groups.values())
        for group in groups.values():
            for part in self._parted(group):
                alone.append(self._together(part) if self._shares(part, common) else TaskWork.alone(part[0]))
        return alone

    def _parted(self, group: list[FragmentWork]) -> list[list[FragmentWork]]:
        """The works that have a graph in common; fragments of one routed join alone have none."""
        routed = self.queries[group[0].query].staged.windows and len({work.query for work in group}) == 1
        return [[work] for work in group] if routed else [group]

    def _shares(self, works: Sequence[FragmentWork], common: set[object]) -> bool:
        """Whether works have nodes with names: there are several, one begins, or others keep the same windows."""
        first = works[0]
        begins = first.fragment.stage == 0 and (self.is_fresh(first.query) or first.query in self.filled)
        return len(works) > 1 or begins or bool(common and common & self._tokens(first))

    def exchanged(self, query: str) -> dict[int, object]:
        """By what the output of its fragments is known, where other queries may have the same; by fragment.

        What a new query reads of others it reads as they do. What it computes itself it reads for itself: its producers
        then send what is there already, too.
        """
        if (place := self.place(query)) is None:
            return {}
        fingerprint, since = self._shape(self.queries[query]), self.records[query].since
        known = self._running(place) if self.is_fresh(query) else None
        found: dict[int, object] = {}
        for outline in fingerprint.outlines.values():
            for leaf in read_by(outline, lambda o: known is None or o.identity(since) in known, known is None):
                found[leaf.node.fragment] = (place, leaf.identity(since))  # type: ignore[attr-defined]
        return found

    def _running(self, place: object) -> set[str]:
        """What the queries of a place that are not new remember."""
        if place not in self._running_at:
            self._running_at[place] = {
                node.identity(record.since)
                for name, record in self.records.items()
                if self.place(name) == place and not self.is_fresh(name)
                for node in self._shape(self.queries[name]).nodes()
            }
        return self._running_at[place]

    def _tokens(self, work: FragmentWork) -> set[object]:
        known, since = self._shape(self.queries[work.query]), self.records[work.query].since
        if work.query in self.filled:  # what is being filled nobody else has
            return set()
        if (number := work.fragment.number) in known.kept:
            return {(*probed_token(known.kept[number]), since[probed_alias(known.kept[number])])}
        windows = [(w, w.alias) for w in known.inputs if w.fragment == number]
        return {(w.state.id, w.state.key, w.nulls, since[alias]) for w, alias in windows if alias is not None}

    def _common(self, groups: Iterable[Sequence[FragmentWork]]) -> set[object]:
        """The windows that several groups keep."""
        seen, common = set[object](), set[object]()
        for group in groups:
            here = set().union(*(self._tokens(work) for work in group))
            common |= seen & here
            seen |= here
        return common

    def _together(self, works: Sequence[FragmentWork]) -> TaskWork:
        members = [self._member(work) for work in works]
        first, later = self.queries[works[0].query], works[0].fragment.stage > 0
        frontier = self.frontiers[first.name]
        known = [m.work.restored_to if later else self._advanced_to(m.work.query) for m in members if not m.fresh]
        begun = BEGINNING if later else min(frontier, last_instant(self.start(first.name), first.plan.query))
        return TaskWork(
            tuple(members),
            max(known, default=begun),
            max(work.advance_to for work in works) if later else frontier,
            works[0].scheduling,
            self.taken.derived(works),
            self.taken.taken(works, self._numbers),
        )

    def _numbers(self, query: str, fragment: int) -> Iterator[tuple[Outline, int]]:
        since = self.records[query].since
        outlines = self._shape(self.queries[query]).outlines[fragment].walk()
        return ((outline, self.fingerprints.number(outline.identity(since))) for outline in outlines)

    def _member(self, work: FragmentWork) -> Member:
        query, since = self.queries[work.query], self.records[work.query].since
        outline = self._shape(query).outlines[work.fragment.number]
        fresh, later = self.is_fresh(work.query), work.fragment.stage > 0
        named = self.fingerprints.named(work.name, outline, since)
        if fresh and later:
            named = Shipped(self._new_names(work.query, outline, False))
        grid = query.boxes[work.fragment.number].grid if later else query.grid
        return Member(work, named, {} if work.query in self.filled else since, fresh, grid)

    def _new_names(self, query: str, outline: Outline, runs: bool) -> NodeNames:
        """The numbers of nodes of a new query that reads other fragments: what does not run yet has its own."""
        identity = outline.identity(self.records[query].since)
        runs = runs or (outline.remembers and identity in self._running(self.place(query)))
        number = self.fingerprints.number(identity if runs else f"{identity} of {query}, new in {self.batch_id}")
        return NodeNames(number, tuple(self._new_names(query, below, runs) for below in outline.inputs))

    def _advanced_to(self, query: str) -> int:
        return BEGINNING if self.before is None else self.before.advanced_to.get(query, BEGINNING)

    def remembered(self) -> dict[str, SharingRecord]:
        """What the manifest remembers."""
        cores = {name: query.after_batch.core for name, query in self.queries.items()}
        return {n: r if r.core == cores[n] else replace(r, core=cores[n]) for n, r in self.records.items()}

    def started(self, name: str, ended: int = INFINITY) -> list[dict[str, Any]]:
        """What a query's history says of its start, if it came while others ran; one whose place it takes has ended."""
        if not self.is_fresh(name):
            return []
        record, plan = self.records[name], self.queries[name].plan
        fewer = [one for one in self.taken.inputs if one.query == name and not one.same]
        derived = {alias: one.of for one in fewer for alias in sorted(one.aliases)}
        derived |= {rows.alias: rows.of for rows in self.taken.rows if rows.query == name}
        gap = unanswered(ended, record.start, plan.domain)
        return [{**started(record, self.batch_id, plan), "derived": derived, "gap": gap}]
