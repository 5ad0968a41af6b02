"""Stored plans, migrations and queries as notebooks show them."""

from __future__ import annotations

from collections.abc import Set

from midstream.algebra.time import TimeDomain, amount, length, size
from midstream.checkpoint.stored import PlanGraph, StoredMigration, StoredQuery
from midstream.html import Branch, Mark, drawn, escaped, preformatted, section, side_by_side, table, trees
from midstream.optimizer.plan_html import shapes_html


@drawn.register(PlanGraph)
def graph_html(graph: PlanGraph, shared: Set[str] = frozenset(), mark: Mark = "") -> str:
    """A plan's operators as a tree; those whose content is `shared` look different from the others."""
    if not graph.nodes:
        return f"<span>{escaped(graph.plan or 'without joins')}</span>"
    nodes = {node.id: node for node in graph.nodes}
    fed = {feeder for node in graph.nodes for feeder in node.inputs}

    def branch(id: str) -> Branch:
        node = nodes[id]
        figures = node.figures
        counts = "" if figures is None else f"  {figures.rows_in:,} in, {figures.rows_out:,} out"
        marked: Mark = ("shared" if node.content in shared else mark) if mark else ""
        return Branch(f"{node.label}{counts}", tuple(branch(i) for i in node.inputs if i in nodes), marked)

    return trees(branch(node.id) for node in graph.nodes if node.id not in fed)


def plans_html(old: PlanGraph, new: PlanGraph) -> str:
    """Two plans side by side, what both compute set apart from what only one does."""
    shared = {node.content for node in old.nodes} & {node.content for node in new.nodes} - {""}
    before, after = graph_html(old, shared, "old"), graph_html(new, shared, "new")
    return side_by_side((f"before: {old.plan}", before), (f"after: {new.plan}", after))


@drawn.register(StoredMigration)
def migration_html(migration: StoredMigration, running: PlanGraph | None = None) -> str:
    """A migration: both plans, what was predicted and what was measured; `running` is the old plan, if it is known."""
    title = f"{migration.query}: {migration.strategy or migration.status}, {migration.status}, {migration.trigger}"
    if not migration.strategy:
        return section(title, f"<p>{escaped(migration.note)}</p>")
    target = migration.target
    if running is not None and target is not None and running.complete and target.complete:
        plans = plans_html(running, target)
    else:
        plans = shapes_html(migration.old_plan, migration.new_plan)
    headings = ("", "took", "rows of work", "rows held", "longest silence")
    return section(title, plans, table(headings, _figures(migration)))


def _figures(migration: StoredMigration) -> list[list[str]]:
    predicted, actual = migration.forecast, migration.actual
    domain = TimeDomain.of_word(migration.time)

    def row(name: str, took: float | None, work: float, held: float, silence: float) -> list[str]:
        return [name, length(took or 0, domain), amount(work), amount(held), length(silence, domain)]

    lines = []
    if predicted is not None:
        lines.append(row("predicted", predicted.duration, predicted.work, predicted.rows, predicted.silence))
    if actual is not None:
        twice, held = actual.processed_twice, actual.peak_extra_rows
        lines.append(row("measured", actual.duration, twice, held, actual.longest_silence))
    return lines


@drawn.register(StoredQuery)
def query_html(query: StoredQuery) -> str:
    """A query: its text, its plan, its state, its migration under way and its history."""
    facts = table(
        ["status", "results", "adaptivity", "state"],
        [[query.status, query.results, query.adaptivity.mode, f"{query.state_rows:,} rows, {size(query.state_bytes)}"]],
    )
    under_way = graph_html(query.graph) if query.migration is None else migration_html(query.migration, query.graph)
    past = query.history._repr_html_() if query.history else ""
    return section(f"query {query.name}", preformatted(query.cql), facts, under_way, past)
