"""A text under a name that the checkpoint knows with another one: taken up, put in its place, or refused."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from midstream.adaptation.policy import Policy
from midstream.algebra.declarations import Catalog
from midstream.algebra.plan import Relation
from midstream.checkpoint.manifest import REPLACED, Manifest, QueryEntry
from midstream.checkpoint.names import copy_name, is_rehearsal
from midstream.errors import JobError, MidstreamError, QueryError
from midstream.job.commands.adding import Adding, first_plan
from midstream.job.events import MigrationCancelled, QueryReplaced, QueryWithdrawn
from midstream.job.job import Job
from midstream.job.queries.backfill import Backfill
from midstream.job.queries.completeness import COMPLETE
from midstream.job.queries.declared import added_columns, as_known, more_columns
from midstream.job.queries.derived_windows import is_derivable
from midstream.job.queries.replacing import (
    emits_alike,
    name_of_old,
    other_emission,
    refusal,
    same_query,
    with_name_free,
)
from midstream.job.queries.running_query import NOW, Beginning, RunningQuery
from midstream.job.queries.succession import hands_on
from midstream.job.queries.verdict import Verdict, with_source
from midstream.job.task.results import result_table
from midstream.language import parse
from midstream.language.over_queries import redefined
from midstream.optimizer.plans import Plan, plan_query


@dataclass(frozen=True, slots=True)
class Text:
    """A query as a session is given it."""

    name: str
    cql: str
    relation: Relation
    plan: Plan | str | None = None
    every: int | None = None
    share: bool = True
    begins: Beginning = NOW


@dataclass(frozen=True, slots=True)
class DeclaredQuery:
    """A query as a program declares it: how it adapts, and whether it may take the place of another text."""

    text: Text
    policy: Policy | None = None
    replace: bool = False


@dataclass(frozen=True, slots=True)
class Replacement:
    """A query that takes another's place: how it begins, and the manifest in which the old one goes by another name."""

    text: Text
    new: RunningQuery
    aside: str
    freed: Manifest
    verdict: Verdict

    def to_json(self) -> dict[str, Any]:
        """What is said of it."""
        verdict = self.verdict.to_json()
        return {"query": self.text.name, "plan": self.new.plan.text, "old_results": self.aside, **verdict}


@dataclass(frozen=True, slots=True)
class Rewording:
    """Makes way for texts; the job's gate is held."""

    job: Job
    adding: Adding
    catalog: Catalog

    def make_way(self, text: Text, replace: bool) -> tuple[Text, bool]:
        """Makes way for a text; gives it as it is to be planned, and whether the checkpoint has it in other words."""
        manifest = self.job.manifest
        entry = manifest.queries.get(text.name) if manifest else None
        if manifest is None or entry is None or self._is_as_it_was(entry, text):
            self.job.apply(QueryWithdrawn(text.name))
            return text, False
        if (going := self._on_its_way(manifest, entry, text)) is not None:
            self.job.apply(QueryWithdrawn(text.name))
            return going, False
        changing = self.job.state.verifications.by_query.get(text.name)
        if replace and changing is not None and changing.shadow is not None:
            self.job.apply(MigrationCancelled(text.name, f"another text is to take its place: {text.cql}"))
        self._require_rest(manifest, text.name, entry)
        old = self._old(text.name, entry)
        if old is not None and self._is_same(old, text):
            self.job.apply(QueryWithdrawn(text.name))
            return text, True
        if not replace and entry.cql == text.cql and not emits_alike(text.relation, entry, text.every):
            raise other_emission(text.name, text.relation, entry.emit_every, text.every)
        if not replace and entry.cql == text.cql:
            raise more_columns(text.name, added_columns(manifest, self.catalog.streams.values()))
        (change,) = self.changes([text], backfill=False, among=self._of_checkpoint(manifest))
        if not replace:
            raise refusal(text.name, entry.cql, change.verdict)
        self.job.apply(QueryReplaced(text.name, change.aside, change.freed, old))
        return dataclasses.replace(text, plan=change.new.plan), False

    def _is_as_it_was(self, entry: QueryEntry, text: Text) -> bool:
        """Whether a text is the checkpoint's, answers at the same instants, and takes no column that it did not have.

        Only a text that takes all columns there are can take more than it did.
        """
        if entry.cql != text.cql or not emits_alike(text.relation, entry, text.every):
            return False
        if "*" not in text.cql or not added_columns(self.job.manifest, self.catalog.streams.values()):
            return True
        old = self._old(text.name, entry)
        return old is None or self._is_same(old, text)

    def _on_its_way(self, manifest: Manifest, entry: QueryEntry, text: Text) -> Text | None:
        """The text that goes on answering where the one that is given takes its place once it has been filled."""
        known, copy = self.job.state.verifications.by_query.get(text.name), manifest.queries.get(copy_name(text.name))
        if known is None or known.shadow is None or copy is None or known.shadow.cql != text.cql:
            return None
        if not emits_alike(text.relation, copy, text.every) or (old := self._old(text.name, entry)) is None:
            return None
        return Text(text.name, entry.cql, old.plan.query, None, entry.emit_every, text.share)

    def with_readers(self, text: Text) -> list[Text]:
        """A text that is to take a query's place, and those that queries that read it have then."""
        old, texts = self.job.queries[text.name].cql, [text]
        for query in self.job.queries.values():
            if (cql := redefined(query.cql, text.name, old, text.cql)) != query.cql:
                texts.append(self._read_again(query, cql, text))
        return texts

    def _read_again(self, query: RunningQuery, cql: str, changed: Text) -> Text:
        try:
            relation = parse(cql, self.catalog)
        except QueryError as error:
            raise QueryError(
                f"query {query.name} cannot read query {changed.name} any more",
                detail=f"{error.message}; a query is changed together with those that read it",
                hint=f"change query {query.name} first so that it does not need what will be missing, or drop it",
            ) from error
        return Text(query.name, cql, relation, None, query.emit_every, query.share, changed.begins)

    def _of_checkpoint(self, manifest: Manifest) -> dict[str, RunningQuery]:
        """The queries that go on, also those that have yet to be declared."""
        entries = manifest.queries.items()
        known = {name: self._old(name, entry) for name, entry in entries if entry.status != REPLACED}
        return {name: query for name, query in known.items() if query is not None and not is_rehearsal(name)}

    def changes(
        self, texts: Sequence[Text], backfill: bool = True, among: Mapping[str, RunningQuery] | None = None
    ) -> list[Replacement]:
        """What putting texts in the places of queries would do, as one change; if one of them is refused, all are.

        A window for which nobody keeps all rows is filled from the source where a text has a rate for that. The queries
        `among` which they begin are those of the job, unless others are given.
        """
        freed, queries = self.job.manifest, dict(self.job.queries if among is None else among)
        begun = list[tuple[Text, str]]()
        for text in texts:
            entry = freed.queries.get(text.name) if freed else None
            if freed is None or entry is None:
                raise JobError(f"query {text.name} has not begun", hint="wait for its first batch")
            self._require_rest(freed, text.name, entry)
            old, aside = self._old(text.name, entry), name_of_old(freed, text.name)
            queries[text.name] = new = self._fresh(text, old)
            self.job.deliveries.require_taken(text.name, result_table(new.plan, None).schema)
            if old is not None:
                queries[aside] = old.called(aside)
            freed = with_name_free(freed, text.name, text.cql, new.plan.text)
            begun.append((text, aside))
        assert freed is not None
        return [
            Replacement(text, new, aside, freed, verdict)
            for text, aside in begun
            for new, verdict in [self._beginning(freed, queries, text.name, text.begins.rate if backfill else None)]
        ]

    def addition(self, text: Text) -> tuple[RunningQuery, Verdict | None]:
        """What a new query would begin as, beside those that run, and with what; None: it begins with the job."""
        new, before = self.adding.query(text.name, text.cql, text.relation, text.plan), self.job.manifest
        new.begins = dataclasses.replace(text.begins, rate=None)
        if before is None:
            return new, None
        return self._beginning(before, {**self.job.queries, new.name: new}, new.name, text.begins.rate)

    def _beginning(
        self, freed: Manifest, queries: Mapping[str, RunningQuery], name: str, rate: int | None
    ) -> tuple[RunningQuery, Verdict]:
        """A query as it begins: with what others keep, or if it is complete sooner then, filled from sources, too."""
        apart, costs = self.job.state.routing.apart, self.job.watchers.constants
        plain, new, streams = Verdict.of(freed, queries, name, apart, costs), queries[name], self.job.cluster.rereading
        if plain.complete == COMPLETE and not new.begins.withhold:
            return new, plain
        if rate is None or not hands_on(new):
            readable = [s.stream for s in new.sources if streams(s.stream.name) is not None and is_derivable(new)]
            why = "with a backfill_rate its source is read" if hands_on(new) else "what only passes rows is not filled"
            return new, plain.because({stream.alias: why for stream in readable})
        found = Backfill.of(new, self.job.files, freed, streams)
        filled = with_source(freed, queries, name, found, rate, apart)
        old = {alias: rows for alias, (_, rows) in found.windows.items()}
        verdict = Verdict.of(freed, {**queries, name: filled}, name, apart, costs, old)
        return (filled, verdict) if verdict.whole_at < plain.whole_at else (new, plain.because(found.why))

    def _require_rest(self, manifest: Manifest, name: str, entry: QueryEntry) -> None:
        running, changing = self.job.queries.get(name), self.job.state.verifications.by_query.get(name)
        if changing is not None and changing.shadow is not None:
            raise JobError(
                f"query {name} is being replaced already",
                detail=f"its new text is: {changing.shadow.cql}",
                hint=f"wait until that has taken its place, or cancel it: midstream migrate CHECKPOINT {name} --cancel",
            )
        if (
            changing is not None
            or manifest.account(name).plans.migration is not None
            or (running is not None and running.migration is not None)
        ):
            raise JobError(
                f"query {name} has another text than in the checkpoint, and it is migrating",
                detail=f"there it is: {entry.cql}",
                hint="change the text once the migration has ended",
            )
        if manifest.account(name).plans.local:
            raise JobError(
                f"query {name} has another text than in the checkpoint, and its slots run by different plans",
                detail=f"there it is: {entry.cql}",
                hint="migrate all its slots to one plan, then change the text",
            )

    def _old(self, name: str, entry: QueryEntry) -> RunningQuery | None:
        """The query by the text that the checkpoint has; None if that text has no meaning any more."""
        running = self.job.queries.get(name)
        if running is not None:
            return running
        streams = {one.name: as_known(self.job.manifest, one) for one in self.catalog.streams.values()}
        catalog = dataclasses.replace(self.catalog, streams=streams)
        try:
            return self.adding.query(name, entry.cql, parse(entry.cql, catalog), None, entry.emit_every, True)
        except MidstreamError:
            return None

    def _is_same(self, old: RunningQuery, text: Text) -> bool:
        """Whether the text, by the plan that the checkpoint has, is the query that it was."""
        try:
            new = self.adding.query(text.name, text.cql, text.relation, None, text.every, True, text.share)
        except MidstreamError:
            return False
        return same_query(old, new)

    def _fresh(self, text: Text, old: RunningQuery | None) -> RunningQuery:
        """The query as it would begin: by the old one's join order, where it has one for it."""
        plan = first_plan(self.job, text.relation, text.plan, text.every)
        if old is not None and text.plan is None and old.plan.text != plan.text:
            with suppress(MidstreamError):
                plan = plan_query(text.relation, old.plan.text, text.every)
        made = self.adding.fresh(text.name, text.cql, plan, text.every)
        made.share, made.begins = text.share, dataclasses.replace(text.begins, rate=None)
        return made


def verdicts(job: Job) -> dict[str, Verdict]:
    """What the queries that come with the next batch start with."""
    before, state = job.manifest, job.state
    new = [] if before is None else [name for name in state.queries if name not in before.queries]
    apart, costs = state.routing.apart, job.watchers.constants
    found = {name: Verdict.of(before, state.queries, name, apart, costs) for name in new if before is not None}
    return {name: _with_rate(state.queries[name], verdict) for name, verdict in found.items()}


def _with_rate(query: RunningQuery, verdict: Verdict) -> Verdict:
    """The verdict on a query that is filled from sources once it runs: only then can these be asked what they have."""
    if query.begins.rate is None or not hands_on(query):
        return verdict
    why = f"its source is read once the job runs, {query.begins.rate:,} rows a batch"
    return verdict.because({source.stream.alias: why for source in query.sources})
