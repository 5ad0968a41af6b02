"""A text under a name that the checkpoint knows with another one: taken up, put in its place, or refused."""

from __future__ import annotations

from dataclasses import dataclass

from midstream.algebra.declarations import Catalog
from midstream.algebra.plan import Relation
from midstream.checkpoint.manifest import Manifest, QueryEntry
from midstream.errors import JobError, MidstreamError
from midstream.job.commands.adding import Adding, first_plan
from midstream.job.events import QueryReplaced, QueryWithdrawn
from midstream.job.job import Job
from midstream.job.queries.replacing import (
    Difference,
    emits_alike,
    name_of_old,
    other_emission,
    refusal,
    same_query,
    with_name_free,
)
from midstream.job.queries.running_query import RunningQuery
from midstream.language import parse
from midstream.optimizer.plans import Plan


@dataclass(frozen=True, slots=True)
class Text:
    """A query as a session is given it."""

    name: str
    cql: str
    relation: Relation
    plan: Plan | str | None = None
    every: int | None = None
    share: bool = True


@dataclass(frozen=True, slots=True)
class Rewording:
    """Makes way for texts; the job's gate is held."""

    job: Job
    adding: Adding
    catalog: Catalog

    def make_way(self, text: Text, replace: bool) -> bool:
        """Makes way for a text; says whether it is the same query as the checkpoint has, in other words."""
        manifest = self.job.manifest
        entry = manifest.queries.get(text.name) if manifest else None
        if (
            manifest is None
            or entry is None
            or (entry.cql == text.cql and emits_alike(text.relation, entry, text.every))
        ):
            self.job.apply(QueryWithdrawn(text.name))
            return False
        self._require_rest(manifest, text.name, entry)
        old = self._old(text.name, entry)
        if old is not None and self._is_same(old, text):
            self.job.apply(QueryWithdrawn(text.name))
            return True
        fresh = self._fresh(text)
        difference = Difference.between(manifest, text.name, fresh)
        if not replace and entry.cql == text.cql:
            raise other_emission(text.name, text.relation, entry.emit_every, text.every)
        if not replace:
            raise refusal(text.name, entry.cql, difference)
        self._put_aside(manifest, fresh, old, difference)
        return False

    def _require_rest(self, manifest: Manifest, name: str, entry: QueryEntry) -> None:
        running = self.job.queries.get(name)
        verifying = name in self.job.state.verifications.by_query
        if verifying or name in manifest.migration or (running is not None and running.migration is not None):
            raise JobError(
                f"query {name} has another text than in the checkpoint, and it is migrating",
                detail=f"there it is: {entry.cql}",
                hint="change the text once the migration has ended",
            )
        if manifest.account(name).local_plans:
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
        try:
            return self.adding.query(name, entry.cql, parse(entry.cql, self.catalog), None, entry.emit_every, True)
        except MidstreamError:
            return None

    def _is_same(self, old: RunningQuery, text: Text) -> bool:
        """Whether the text, by the plan that the checkpoint has, is the query that it was."""
        try:
            new = self.adding.query(text.name, text.cql, text.relation, None, text.every, True, text.share)
        except MidstreamError:
            return False
        return same_query(old, new)

    def _fresh(self, text: Text) -> RunningQuery:
        plan = first_plan(self.job, text.relation, text.plan, text.every)
        functions = self.catalog.functions
        made = RunningQuery.of(
            text.name, text.cql, plan, functions, self.job.state.routes, text.every, bits=self.job.state.group_bits
        )
        made.share = text.share
        return made

    def _put_aside(
        self, manifest: Manifest, new: RunningQuery, old: RunningQuery | None, difference: Difference
    ) -> None:
        aside = name_of_old(manifest, new.name)
        freed = with_name_free(manifest, new.name, new.cql, new.plan.text, difference)
        self.job.apply(QueryReplaced(new.name, aside, freed, old))
