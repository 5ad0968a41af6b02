"""Verified migrations of a job: a copy of a query migrates under a name of its own, and both answers are compared.

State is named by a manifest, so a copy of a query is a second name for its state and for what it has not released yet.
From then on it is a query like any other: it runs in every slot, migrates by its strategy, and goes on after a restart.
What both have released is compared before a batch is committed, and the verdict is part of the batch's manifest: a
batch that is repeated comes to the same one. If the copy takes the query's place, its state gets the query's name. If
it differs, its results stay readable, as those of replaced queries do.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from midstream.algebra.snapshots_so_far import Comparison
from midstream.algebra.time import BEGINNING, INFINITY
from midstream.checkpoint.files import Files
from midstream.checkpoint.manifest import Manifest
from midstream.checkpoint.names import copy_name, query_of_copy
from midstream.checkpoint.stored_results import stored_results
from midstream.codec import forgotten, read, written
from midstream.errors import InputError, MigrationError, QueryError
from midstream.job.circumstances import is_finished
from midstream.job.migrations.copies import adopted, archive_name, archived, without_copy
from midstream.job.migrations.shadows import ShadowText
from midstream.job.queries.completeness import changes_from
from midstream.job.queries.faults import QUARANTINED
from midstream.job.queries.running_query import RunningQuery
from midstream.job.queries.succession import can_wait
from midstream.migration.verified import DIFFERS, FAILED, VERIFYING, Stretch, Verified, can_be_adopted

log = logging.getLogger(__name__)

ENDED = "ended"
"""What the history says of a verification whose streams ended before the rehearsed migration did."""

KEPT = {DIFFERS: "", FAILED: "", ENDED: "the streams have ended", "cancelled": "it is in quarantine"}
"""Why a query keeps its text, by how the other text ended; nothing where the comparison says why."""

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
    comparison: Comparison | None = forgotten(lambda: None)
    """What is left to compare; rebuilt from the stored results where it is not known."""
    slots: tuple[int, ...] | None = None
    """The slots that go over to the plan; None: all."""
    shadow: ShadowText | None = None
    """The other text that the copy runs by, if it does."""
    differs: Verified | None = None
    """The first difference, where it is for people to judge."""

    def found(self, end: int | None = None) -> Verified:
        """What has been found, if nothing differs from here on."""
        return self.differs or Verified(self.since, self.compared_to if end is None else end)

    def under_way(self, old_plan: str, copy: RunningQuery | None) -> dict[str, Any]:
        """What the history says of it before its end."""
        return _record(self, old_plan, copy, VERIFYING, None, self.found())


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

    def follow(self, manifest: Manifest) -> None:
        """Goes on with what a manifest says."""
        known = {name: account.verifying for name, account in manifest.accounts.items()}
        self.by_query = {name: read(Verification, done) for name, done in known.items() if done is not None}

    def is_shadow(self, copy: str) -> bool:
        """Whether a copy runs by another text than its query."""
        return any(copy == copy_name(name) and known.shadow is not None for name, known in self.by_query.items())

    def changing_with(self, query: str) -> list[str]:
        """The queries whose texts change together with that of a query, which is among them."""
        known = self.by_query[query].shadow
        if known is None or not known.change:
            return [query]
        return [name for name, one in self.by_query.items() if one.shadow and one.shadow.change == known.change]

    def target_of(self, query: str) -> str | None:
        """The plan that a query is being verified with."""
        known = self.by_query.get(query)
        return None if known is None else known.plan

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
        wait: Callable[[], None] = lambda: None,
    ) -> tuple[Manifest, dict[str, Consequence]]:
        """A batch's manifest with what the comparison of its results has shown, and what follows from that.

        `wait` is for files of the batch that are still being written.
        """
        found, made = dict[str, Consequence](), manifest
        for name, known in self.by_query.items():
            if known.passed and manifest.account(name).plans.migration is not None:
                continue  # the query itself migrates
            if known.passed and not (known.shadow and is_finished(manifest)):
                found[name] = Consequence(known, "goes on")
                continue
            if known.shadow is not None and not known.shadow.columns:
                others = {copy_name(n): self.by_query[n].shadow for n in self.changing_with(name)}
                withheld = {copy: shadow is not None and shadow.withhold for copy, shadow in others.items()}
                manifest, found[name] = _filled(manifest, made, queries, name, known, withheld)
                continue
            wait()
            manifest, found[name] = _examined(files, manifest, queries, name, known)
        under_way = {name: written(one.verification) for name, one in found.items() if one.verification is not None}
        accounts = manifest.accounts.items()
        told = replace(manifest, accounts={n: replace(one, verifying=under_way.get(n)) for n, one in accounts})
        return told, found

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
    if known.since == INFINITY:
        since = _complete_from(manifest, copy)
        known = replace(known, since=since, compared_to=since)
    verdict, comparison = _verdict(files, manifest, query, known)
    stretch = Stretch(known.stretch.ticks, known.stretch.until)
    migrated = _migrated(manifest, copy, known)
    outcome, shadow = verdict.outcome, known.shadow
    waits = shadow is not None and (shadow.waits or is_finished(manifest))  # after the last batch nobody comes
    if outcome == DIFFERS and shadow is not None and shadow.waits:
        return manifest, Consequence(replace(known, differs=verdict.found, comparison=None), "goes on")
    follows = shadow is None or follows_old(manifest, queries[copy], shadow.withhold)
    if outcome is None and stretch.is_over(migrated, verdict.found.compared_to) and follows and not waits:
        outcome = "done"
    elif outcome is None and is_finished(manifest):
        outcome = ENDED
    if outcome is None:
        after = replace(known, compared_to=verdict.found.compared_to, stretch=stretch, comparison=comparison)
        return manifest, Consequence(after, "goes on")
    after = replace(known, compared_to=verdict.found.compared_to, passed=True, comparison=None)
    if outcome == "done" and shadow is not None:
        return manifest, Consequence(after, "goes on")
    if outcome == "done" and not can_be_adopted(query.plan, queries[copy].after_batch.plan):
        return without_copy(manifest, name), Consequence(after, "removed")
    record = _record(known, query.plan.text, queries[copy], outcome, manifest, verdict.found)
    if outcome == "done":
        return _with_record(adopted(manifest, name), name, record), Consequence(None, "adopted")
    if outcome in (DIFFERS, FAILED):
        record["new_results"] = archive_name(manifest, name)
        manifest = archived(manifest, name)
    return _with_record(without_copy(manifest, name), name, record), Consequence(None, "removed")


def _filled(
    manifest: Manifest,
    batch: Manifest,
    queries: Mapping[str, RunningQuery],
    name: str,
    known: Verification,
    withheld: Mapping[str, bool],
) -> tuple[Manifest, Consequence]:
    """The same of a text that takes the place once it, and all copies that change with it, can go on from where their
    queries end. `withheld` says by copy whether it gives no results that lack rows.

    If one of them has failed in the `batch`, or that is the last of all, none takes a place.
    """
    failed = next((copy for copy in withheld if batch.queries[copy].status == QUARANTINED), None)
    if failed is None and not is_finished(batch):
        ready = all(is_full(batch, queries[c]) and follows_old(batch, queries[c], w) for c, w in withheld.items())
        return manifest, Consequence(replace(known, passed=ready), "goes on")
    outcome = ENDED if failed is None else FAILED
    record = _record(known, queries[name].plan.text, queries[copy_name(name)], outcome, batch, known.found())
    if failed is not None:
        fault = batch.account(failed).fault
        error = InputError("it is in quarantine" if fault is None else fault.reason)
        record["why"] = f"the new text of query {query_of_copy(failed)} failed: {error}"
    return _with_record(without_copy(manifest, name), name, record), Consequence(None, "removed")


def _migrated(manifest: Manifest, copy: str, known: Verification) -> bool:
    """Whether all slots of a copy that are to go over to a plan have done so."""
    if known.shadow is not None:
        return True
    known_plans = manifest.account(copy).plans
    if known_plans.migration is not None:
        return False
    # A slot whose migration is under way has its old plan.
    plans, usual = known_plans.of_slots, manifest.queries[copy].plan
    slots = range(manifest.slots.count) if known.slots is None else known.slots
    return all(plans.get(slot, usual) == known.plan for slot in slots if slot < manifest.slots.count)


def _verdict(
    files: Files, manifest: Manifest, query: RunningQuery, known: Verification
) -> tuple[VerificationVerdict, Comparison | None]:
    """What the results of a query and its copy say by now."""
    name, copy = query.name, copy_name(query.name)
    if manifest.queries[name].status == QUARANTINED:
        return VerificationVerdict("cancelled", known.found()), None
    if manifest.queries[copy].status == QUARANTINED:
        fault = manifest.account(copy).fault
        reason = "it is in quarantine" if fault is None else fault.reason
        return VerificationVerdict(FAILED, Verified.failing(known.since, known.compared_to, InputError(reason))), None
    if known.differs is not None:
        return VerificationVerdict(None, known.differs), None
    comparison = known.comparison
    if comparison is None or comparison.since != known.compared_to:
        comparison = Comparison(known.since)
        _compare(files, manifest, query, comparison, known.compared_to, known)
    comparison = replace(comparison)
    until = min(manifest.released.get(q, BEGINNING) for q in (name, copy))
    found = _compare(files, manifest, query, comparison, until, known)
    if found is not None:
        return VerificationVerdict(DIFFERS, replace(found, since=known.since)), None
    return VerificationVerdict(None, known.found(comparison.since)), comparison


def _compare(
    files: Files, manifest: Manifest, query: RunningQuery, comparison: Comparison, until: int, known: Verification
) -> Verified | None:
    """Compares up to an instant what both have released; gives the difference, if there is one."""
    if until <= comparison.since:
        return None
    since = comparison.since
    # A query by another text has no past: what the old one gave before may be valid still.
    shadow = known.shadow
    first = BEGINNING if shadow is not None and since == known.since else since
    x, y = (_between(files, manifest, q, first, until) for q in (query.name, copy_name(query.name)))
    if shadow is not None:
        try:
            x, y = ([shadow.compared(table, query.functions) for table in side] for side in (x, y))
        except (InputError, QueryError) as error:
            return Verified(since, since, f"they cannot be compared where {shadow.where}: {error.message}")
    comparison.x, comparison.y = [*comparison.x, *x], [*comparison.y, *y]
    found = comparison.compare(until)
    return None if found else Verified.differing(since, since, found, comparison.differs_at)


def _between(files: Files, manifest: Manifest, query: str, since: int, until: int) -> list[Any]:
    """The results of a query that start between two instants."""
    known = replace(manifest, released={**manifest.released, query: until})
    table = stored_results(files, known, query, since)
    return [table] if table.num_rows else []


def is_full(manifest: Manifest, copy: RunningQuery) -> bool:
    """Whether a copy by another text has been given all rows that are kept for it, and has come to where they begin."""
    sharing, at = manifest.account(copy.name).sharing, manifest.advanced_to.get(copy.name, BEGINNING)
    if sharing is None or manifest.fills(copy.name):
        return False
    return sharing.start == INFINITY or changes_from(at, copy.plan.query) >= sharing.start


def follows_old(manifest: Manifest, copy: RunningQuery, withheld: bool) -> bool:
    """Whether a query has answered up to where a copy by another text can go on, and is to.

    Nobody waits for a query that has failed. A text that is to give no results that lack rows waits until it has all.
    """
    old, sharing = query_of_copy(copy.name), manifest.account(copy.name).sharing
    if sharing is None or not can_wait(manifest, old, copy):
        return True
    begins = manifest.advanced_to.get(copy.name, BEGINNING)
    if withheld and sharing.lacks_rows and sharing.whole_at is not None:
        begins = max(begins, sharing.whole_at)
    return manifest.released.get(old, BEGINNING) >= changes_from(begins, copy.plan.query)


def _complete_from(manifest: Manifest, copy: str) -> int:
    """From which instant on the results of a copy by another text are complete."""
    if (sharing := manifest.account(copy).sharing) is None:
        return INFINITY
    whole = sharing.whole_at if sharing.lacks_rows else sharing.start
    return INFINITY if whole is None else max(sharing.start, whole)


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
    begun = next((done["start_batch"] for done in past if done.get("event") == "started"), None)
    migrations = (dict(done) for done in reversed(past) if "event" not in done)
    rehearsed = next((done for done in migrations if done.get("new_plan") == known.plan), None)
    if rehearsed is None and copy is not None and copy.migration is not None:
        rehearsed = copy.migration.record(old_plan, None, outcome)
    usual = {"strategy": known.strategy, "part": None, "start_batch": begun}
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


def tell_of_kept_texts(manifest: Manifest) -> None:
    """Logs why queries keep their texts whose other texts ended with a manifest's batch."""
    for name, account in manifest.accounts.items():
        for record in account.history:
            ended = record.get("end_batch") == manifest.batch_id and record["strategy"] == "replace"
            if ended and (usual := KEPT.get(record["status"])) is not None:
                why = record.get("why") or record["verified"]["difference"] or usual
                log.warning("query %s keeps its text: %s", name, why)


def _with_record(manifest: Manifest, name: str, record: Mapping[str, Any]) -> Manifest:
    return manifest.with_account(name, history=[*manifest.account(name).history, record])


def _go_on_as_copy(queries: Queries, name: str) -> None:
    copy, share = queries.pop(copy_name(name)), queries[name].share

    def renamed(own: RunningQuery) -> RunningQuery:
        return replace(own.after_batch, name=name, share=share, migration=None, programs={})

    queries[name] = replace(renamed(copy), local={slot: renamed(own) for slot, own in copy.local.items()})
