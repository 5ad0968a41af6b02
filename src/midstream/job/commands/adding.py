"""How a query that comes to a session is planned: as the checkpoint has it, or so that it shares what others run.

A query over the same streams as a running one takes the running one's join order, unless another is asked for. If that
gives them nothing in common because their selections differ, it runs the join without selections (the core) and selects
from its output: from the second such query on they all share one join.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from midstream.algebra.declarations import UserFunction
from midstream.algebra.plan import Relation, Stream
from midstream.errors import MidstreamError
from midstream.job.job import Job
from midstream.job.outputs.expected_moves import topology_now
from midstream.job.queries.running_query import Cutting, RunningQuery
from midstream.optimizer.cores import Core, core_of, over_common_core
from midstream.optimizer.plans import Plan, plan_query


@dataclass(slots=True)
class Adding:
    """Plans the queries of a session."""

    job: Job
    functions: Mapping[str, UserFunction]
    _cores: dict[str, tuple[Plan, Core | None]] = field(default_factory=dict)

    def query(
        self,
        name: str,
        cql: str,
        relation: Relation,
        wanted: Plan | str | None = None,
        every: int | None = None,
        share: bool = True,
        ordered: bool = False,
    ) -> RunningQuery:
        """The query as it will run; what the checkpoint knows of it comes first, then `wanted`.

        `ordered`: its joins are to be ordered for itself, with its selections below them.
        """
        manifest = self.job.manifest

        def running(plan: Plan, core: tuple[str, ...] | None = None) -> RunningQuery:
            if manifest is not None and name in manifest.queries:
                # A query that has state must be cut as it was: its state lies where its rows have arrived so far.
                merging = frozenset(manifest.slots.merging.get(name, ()))
                cutting = Cutting(self.job.state.routes, True, self.job.state.group_bits, merging)
                made = RunningQuery.of(name, cql, plan, self.functions, cutting, every)
            else:
                made = self.fresh(name, cql, plan, every)
            made.core, made.share = core, share
            return made

        if manifest is not None and name in manifest.queries:
            plan = _remembered(relation, manifest.queries[name].plan, every)
            sharing = manifest.account(name).sharing
            columns = () if sharing is None else sharing.core or ()
            core = core_of(plan.query, plan.emission) if columns else None
            return running(plan) if core is None else running(core.over(plan, columns), columns)
        plain = running(first_plan(self.job, relation, wanted, every))
        if not share or wanted is not None or self._has_partner(plain):
            return plain
        for plan in self._like_others(plain):
            alike = running(plan)
            if self._has_partner(alike):
                return alike
        chosen = None if ordered else self._with_core(plain.plan)
        if chosen is None:
            return plain
        return running(*chosen)

    def fresh(self, name: str, cql: str, plan: Plan, every: int | None) -> RunningQuery:
        """A new query by a plan; it may give streams routes by which running queries would still be cut as they are."""
        state = self.job.state
        cutting = Cutting(state.routes, bits=state.group_bits)
        made = RunningQuery.of(name, cql, plan, self.functions, cutting, every)
        routes = made.staged.routes
        readers = [own for query in self.job.queries.values() for own in query.all_plans]
        if routes.items() <= state.routes.items() or all(own.is_cut_by({**state.routes, **routes}) for own in readers):
            return made
        return RunningQuery.of(name, cql, plan, self.functions, dataclasses.replace(cutting, fixed=True), every)

    def _others(self) -> Iterator[RunningQuery]:
        return (query for query in self.job.queries.values() if query.share and query.has_one_plan)

    def _has_partner(self, query: RunningQuery) -> bool:
        """Whether some part of a plan that remembers something runs already."""
        apart = self.job.state.routing.apart
        fingerprint = self.job.fingerprints.outline(query, apart)
        wanted = {node.text for node in fingerprint.nodes()}
        for other in self._others():
            theirs = self.job.fingerprints.of(other, apart)
            if theirs.progress == fingerprint.progress and any(node.text in wanted for node in theirs.nodes()):
                return True
        return False

    def _like_others(self, query: RunningQuery) -> Iterator[Plan]:
        """The query by the join orders of others over the same streams."""
        aliases = {(s.stream.name, s.stream.alias) for s in query.sources}
        tried = {query.plan.text}
        for other in self._others():
            if other.plan.text in tried or {(s.stream.name, s.stream.alias) for s in other.sources} != aliases:
                continue
            tried.add(other.plan.text)
            try:
                yield plan_query(query.plan.query, other.plan.text, query.emit_every)
            except MidstreamError:
                continue

    def _with_core(self, plan: Plan) -> tuple[Plan, tuple[str, ...]] | None:
        """The plan over the join that others have too, with the columns that all of them need."""
        staying = (query for query in self._others() if query.name not in self.job.state.retiring)
        return over_common_core(plan, ((self._core(query), query.core) for query in staying))

    def _core(self, query: RunningQuery) -> Core | None:
        known = self._cores.get(query.name)
        if known is None or known[0] is not query.plan:
            known = self._cores[query.name] = (query.plan, core_of(query.plan.query, query.plan.emission))
        return known[1]


def _remembered(relation: Relation, text: str, every: int | None) -> Plan:
    """The plan of a text that a manifest holds; what has no join to order has a text that orders nothing."""
    usual = plan_query(relation, None, every)
    return usual if text in ("", usual.text) else plan_query(relation, text, every)


def first_plan(job: Job, relation: Relation, wanted: Plan | str | None = None, every: int | None = None) -> Plan:
    """The plan that is wanted, or the best by guessed rates, the sites of streams and the links between them."""
    topology = topology_now(job) if wanted is None and _at_sites(relation) else None
    if topology is None:
        return plan_query(relation, wanted, every)
    return plan_query(relation, None, every, constants=job.watchers.constants, spread=True, topology=topology)


def _at_sites(relation: Relation) -> bool:
    """Whether some of the streams that a query reads live at sites."""
    if isinstance(relation, Stream):
        return relation.site is not None
    return any(_at_sites(below) for below in relation.inputs)
