"""Verified migrations of a job: a copy of a query migrates under a name of its own, and both answers are compared.

State is named by a manifest, so a copy of a query is a second name for its state and for what it has not released yet.
From then on it is a query like any other: it runs in every slot, migrates by its strategy, and goes on after a restart.
What both have released is compared before a batch is committed, and the verdict is part of the batch's manifest: a
batch that is repeated comes to the same one. If the copy takes the query's place, its state gets the query's name. If
it differs, its results stay readable, as those of replaced queries do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from midstream.algebra.snapshots_so_far import Comparison
from midstream.algebra.time import BEGINNING
from midstream.checkpoint.files import Files
from midstream.checkpoint.manifest import Manifest
from midstream.checkpoint.names import copy_name, query_of, renamed_lane
from midstream.checkpoint.records import QueryAccount
from midstream.checkpoint.stored_results import stored_results
from midstream.errors import InputError, MigrationError
from midstream.job.circumstances import is_finished
from midstream.job.queries.faults import QUARANTINED
from midstream.job.queries.replacing import REPLACED, mapped
from midstream.job.queries.running_query import RunningQuery
from midstream.migration.verified import DIFFERS, FAILED, VERIFYING, Stretch, Verified, can_be_adopted

ENDED = "ended"
"""What the history says of a verification whose streams ended before the rehearsed migration did."""

Queries = MutableMapping[str, RunningQuery]


@dataclass(slots=True)
class Verification:
    """One query that is being verified by another plan, as manifests tell of it."""

    plan: str
    strategy: str
    trigger: str
    part: str
    since: int
    compared_to: int
    stretch: Stretch
    passed: bool = False
    """Whether nothing differed, and the query itself is to migrate now."""
    comparison: Comparison | None = None
    """What is left to compare; rebuilt from the stored results where it is not known."""
    slots: tuple[int, ...] | None = None
    """The slots that go over to the plan; None: all."""

    def to_json(self) -> dict[str, Any]:
        """What a manifest says of it."""
        done = {name: getattr(self, name) for name in _PLAIN}
        some = {} if self.slots is None else {"slots": list(self.slots)}
        return {**done, "ticks": self.stretch.ticks, "until": self.stretch.until, **some}

    @staticmethod
    def from_json(done: Mapping[str, Any]) -> Verification:
        """What a manifest said."""
        slots = tuple(done["slots"]) if "slots" in done else None
        stretch = Stretch(done["ticks"], done["until"])
        return Verification(**{name: done[name] for name in _PLAIN}, stretch=stretch, slots=slots)

    def found(self, end: int | None = None) -> Verified:
        """What has been found if nothing differs."""
        return Verified(self.since, self.compared_to if end is None else end)

    def under_way(self, old_plan: str, copy: RunningQuery | None) -> dict[str, Any]:
        """What the history says of it before its end."""
        return _record(self, old_plan, copy, VERIFYING, None, self.found())


_PLAIN = ("plan", "strategy", "trigger", "part", "since", "compared_to", "passed")


@dataclass(frozen=True, slots=True)
class VerificationVerdict:
    """How a verification ends, or that it goes on; `apply` is what follows once the manifest is committed."""

    outcome: str | None
    found: Verified


@dataclass(frozen=True, slots=True)
class Consequence:
    """What follows for a query once the manifest is committed: how its verification stands (None: it is over).

    Its copy goes on, is removed, or takes the query's place.
    """

    verification: Verification | None
    copy: Literal["goes on", "removed", "adopted"]


@dataclass(slots=True)
class Verifications:
    """The verifications under way, by query."""

    by_query: dict[str, Verification] = field(default_factory=dict)

    def copy(self) -> Verifications:
        """The same, to be changed apart."""
        return Verifications(dict(self.by_query))

    def follow(self, manifest: Manifest) -> None:
        """Goes on with what a manifest says."""
        known = {name: account.verifying for name, account in manifest.accounts.items()}
        self.by_query = {name: Verification.from_json(done) for name, done in known.items() if done is not None}

    def target_of(self, query: str) -> str | None:
        """The plan that a query is being verified with."""
        known = self.by_query.get(query)
        return None if known is None else known.plan

    def summary_of(self, query: str) -> dict[str, Any] | None:
        """The verification of a query as users see it, if there is one."""
        known = self.by_query.get(query)
        return None if known is None else known.to_json()

    def require_rest(self, query: str) -> None:
        """Refuses to begin what a verification under way does not permit."""
        if query in self.by_query:
            raise MigrationError(
                f"query {query} is being verified with another plan, {self.by_query[query].plan}",
                hint="wait for the end of that verification, or cancel it",
            )

    def begin(self, query: str, wanted: Verification) -> None:
        """Follows a copy that has been made."""
        self.by_query[query] = wanted

    def forget(self, query: str, queries: Queries) -> dict[str, Any] | None:
        """Ends a verification, if there is one, and the copy with it; gives its record."""
        known = self.by_query.pop(query, None)
        copy = queries.pop(copy_name(query), None)
        if known is None:
            return None
        old = queries[query].plan.text if query in queries else ""
        return _record(known, old, copy, "cancelled", None, known.found())

    def in_manifest(
        self,
        files: Files,
        manifest: Manifest,
        queries: Mapping[str, RunningQuery],
        written: Callable[[], None] = lambda: None,
    ) -> tuple[Manifest, dict[str, Consequence]]:
        """A batch's manifest with what the comparison of its results has shown, and what follows from that.

        `written` waits for files of the batch that are still being written.
        """
        found: dict[str, Consequence] = {}
        for name, known in self.by_query.items():
            if known.passed and name in manifest.migration:
                continue  # the query itself migrates
            if known.passed:
                found[name] = Consequence(known, "goes on")
                continue
            written()
            manifest, found[name] = _examined(files, manifest, queries, name, known)
        under_way = {name: one.verification.to_json() for name, one in found.items() if one.verification is not None}
        accounts = manifest.accounts.items()
        made = replace(manifest, accounts={n: replace(one, verifying=under_way.get(n)) for n, one in accounts})
        return made, found

    def committed(self, manifest: Manifest, queries: Queries, found: Mapping[str, Consequence]) -> None:
        """Goes on with what was found when the manifest was made, which is committed by now."""
        for name, follows in found.items():
            if follows.copy == "removed":
                queries.pop(copy_name(name), None)
            elif follows.copy == "adopted":
                _go_on_as_copy(queries, name)
            if follows.verification is not None:
                self.by_query[name] = follows.verification
        self.by_query = {n: known for n, known in self.by_query.items() if manifest.account(n).verifying is not None}


def _examined(
    files: Files, manifest: Manifest, queries: Mapping[str, RunningQuery], name: str, known: Verification
) -> tuple[Manifest, Consequence]:
    """The manifest with what the results of a query and its copy say by now, and what follows from that."""
    copy, query = copy_name(name), queries[name]
    verdict, comparison = _verdict(files, manifest, name, known)
    stretch = Stretch(known.stretch.ticks, known.stretch.until)
    migrated = _migrated(manifest, copy, known)
    outcome = verdict.outcome
    if outcome is None and stretch.is_over(migrated, verdict.found.compared_to):
        outcome = "done"
    elif outcome is None and is_finished(manifest):
        outcome = ENDED
    if outcome is None:
        after = replace(known, compared_to=verdict.found.compared_to, stretch=stretch, comparison=comparison)
        return manifest, Consequence(after, "goes on")
    if outcome == "done" and not can_be_adopted(query.plan, queries[copy].after_batch.plan):
        after = replace(known, compared_to=verdict.found.compared_to, passed=True, comparison=None)
        return without_copy(manifest, name), Consequence(after, "removed")
    record = _record(known, query.plan.text, queries[copy], outcome, manifest, verdict.found)
    if outcome == "done":
        return _with_record(adopted(manifest, name), name, record), Consequence(None, "adopted")
    if outcome in (DIFFERS, FAILED):
        record["new_results"] = archive_name(manifest, name)
        manifest = archived(manifest, name)
    return _with_record(without_copy(manifest, name), name, record), Consequence(None, "removed")


def _migrated(manifest: Manifest, copy: str, known: Verification) -> bool:
    """Whether all slots of a copy that are to go over to a plan have done so."""
    if copy in manifest.migration:
        return False
    # A slot whose migration is under way has its old plan.
    plans, usual = manifest.account(copy).plans_of_slots, manifest.queries[copy].plan
    slots = range(manifest.slots.count) if known.slots is None else known.slots
    return all(plans.get(slot, usual) == known.plan for slot in slots if slot < manifest.slots.count)


def _verdict(
    files: Files, manifest: Manifest, name: str, known: Verification
) -> tuple[VerificationVerdict, Comparison | None]:
    """What the results of a query and its copy say by now."""
    copy = copy_name(name)
    if manifest.queries[name].status == QUARANTINED:
        return VerificationVerdict("cancelled", known.found()), None
    if manifest.queries[copy].status == QUARANTINED:
        fault = manifest.account(copy).fault
        reason = "it is in quarantine" if fault is None else fault.reason
        return VerificationVerdict(FAILED, Verified.failing(known.since, known.compared_to, InputError(reason))), None
    comparison = known.comparison
    if comparison is None or comparison.since != known.compared_to:
        comparison = Comparison(known.since)
        _compare(files, manifest, name, comparison, known.compared_to)
    comparison = replace(comparison)
    until = min(manifest.released.get(q, BEGINNING) for q in (name, copy))
    found = _compare(files, manifest, name, comparison, until)
    if found is not None:
        return VerificationVerdict(DIFFERS, replace(found, since=known.since)), None
    return VerificationVerdict(None, known.found(comparison.since)), comparison


def _compare(files: Files, manifest: Manifest, name: str, comparison: Comparison, until: int) -> Verified | None:
    """Compares up to an instant what both have released; gives the difference, if there is one."""
    if until <= comparison.since:
        return None
    since = comparison.since
    x, y = (_between(files, manifest, q, since, until) for q in (name, copy_name(name)))
    comparison.x, comparison.y = [*comparison.x, *x], [*comparison.y, *y]
    found = comparison.compare(until)
    return None if found else Verified.differing(since, since, found, comparison.differs_at)


def _between(files: Files, manifest: Manifest, query: str, since: int, until: int) -> list[Any]:
    """The results of a query that start between two instants."""
    known = replace(manifest, released={**manifest.released, query: until})
    table = stored_results(files, known, query, since)
    return [table] if table.num_rows else []


def _record(
    known: Verification,
    old_plan: str,
    copy: RunningQuery | None,
    outcome: str,
    manifest: Manifest | None,
    found: Verified,
) -> dict[str, Any]:
    """What the history says of a verification: the rehearsed migration, and what was found."""
    past = [] if manifest is None or copy is None else manifest.account(copy.name).history
    rehearsed = next((dict(done) for done in reversed(past) if done.get("new_plan") == known.plan), None)
    if rehearsed is None and copy is not None and copy.migration is not None:
        rehearsed = copy.migration.record(old_plan, None, outcome)
    usual = {"strategy": known.strategy, "part": None, "start_batch": None}
    return {
        **(rehearsed or usual),
        "trigger": known.trigger,
        "old_plan": old_plan,
        "new_plan": known.plan,
        "status": outcome,
        "end_batch": None if manifest is None else manifest.batch_id,
        "verified": found.to_json(),
        **({} if known.slots is None else {"slots": list(known.slots)}),
    }


def with_copy(manifest: Manifest, name: str) -> Manifest:
    """The manifest in which a copy of a query stands beside it: with its state, and what it has not released.

    Groups that move to two slots move for the copy as for the query: it has the tracks of the query. The manifest may
    still have an earlier copy, which ended after its batch.
    """
    manifest = without_copy(manifest, name)
    copy, released = copy_name(name), manifest.released.get(name, BEGINNING)
    waiting = tuple(file for file in manifest.outputs.results.get(name, ()) if file.last_from >= released)
    its = manifest.account(name)
    account = QueryAccount(sharing=its.sharing, local_plans=its.local_plans)
    made = mapped(
        _doubled_as(manifest, name, copy),
        lambda by_query: {**by_query, **{renamed_lane(q, copy): by_query[q] for q in _parts_of(by_query, name)}},
    )
    listed = {query: lists for query, lists in made.outputs.listed.items() if query != copy}
    made = made.with_outputs(results={**made.outputs.results, copy: waiting}, listed=listed)
    return replace(made, accounts={**made.accounts, copy: account})


def without_copy(manifest: Manifest, name: str) -> Manifest:
    """The manifest without a query's copy."""
    copy = copy_name(name)
    if (move := manifest.slots.doubled) is not None:
        queries = {query: how for query, how in move.queries.items() if query != copy}
        manifest = replace(manifest, slots=replace(manifest.slots, doubled=replace(move, queries=queries)))
    return mapped(manifest, lambda by_query: {q: value for q, value in by_query.items() if query_of(q) != copy})


def _doubled_as(manifest: Manifest, name: str, copy: str) -> Manifest:
    """The manifest in which groups move for a copy of a query in the same way as for the query, if they do."""
    move = manifest.slots.doubled
    if move is None or name not in move.queries:
        return manifest
    queries = {**move.queries, copy: move.queries[name]}
    return replace(manifest, slots=replace(manifest.slots, doubled=replace(move, queries=queries)))


def _parts_of(by_query: Mapping[str, Any], query: str) -> list[str]:
    """A query's lanes, as far as something is known of them."""
    return [name for name in by_query if query_of(name) == query]


def adopted(manifest: Manifest, name: str) -> Manifest:
    """The manifest in which a query goes on with the plan and the state of its copy; its results stay its own."""
    copy = copy_name(name)
    entry = replace(manifest.queries[name], plan=manifest.queries[copy].plan)
    its, stored = manifest.account(copy), manifest.segments
    others = {part: held for part, held in stored.items() if query_of(part) != name}
    own = {renamed_lane(part, name): stored[part] for part in _parts_of(stored, copy)}
    made = replace(
        manifest,
        queries={**manifest.queries, name: entry},
        segments={**others, name: {}, **own},
    ).with_account(name, sharing=its.sharing, graph=its.graph, local_plans=its.local_plans)
    return without_copy(made, name)


def archive_name(manifest: Manifest, name: str) -> str:
    """The name under which the results of a plan that differs stay readable."""
    return f"{name}@{manifest.batch_id}"


def archived(manifest: Manifest, name: str) -> Manifest:
    """The manifest with the results of a query's copy among those of replaced queries."""
    copy, archive, outputs = copy_name(name), archive_name(manifest, name), manifest.outputs
    entry = replace(manifest.queries[copy], status=REPLACED)
    account = QueryAccount(results=manifest.account(copy).results)
    return replace(
        manifest,
        queries={**manifest.queries, archive: entry},
        accounts={**manifest.accounts, archive: account},
        released={**manifest.released, archive: manifest.released.get(copy, BEGINNING)},
    ).with_outputs(
        results={**outputs.results, archive: outputs.results.get(copy, ())},
        listed={**outputs.listed, archive: outputs.listed.get(copy, ())},
    )


def _with_record(manifest: Manifest, name: str, record: Mapping[str, Any]) -> Manifest:
    return manifest.with_account(name, history=[*manifest.account(name).history, record])


def _go_on_as_copy(queries: Queries, name: str) -> None:
    copy, share = queries.pop(copy_name(name)), queries[name].share

    def renamed(own: RunningQuery) -> RunningQuery:
        return replace(own.after_batch, name=name, share=share, migration=None, programs={})

    queries[name] = replace(renamed(copy), local={slot: renamed(own) for slot, own in copy.local.items()})
