"""From a query's text to its logical plan.

The plan's shape is canonical: FROM as left-deep joins with their ON conditions, one Select with WHERE, then
semi-joins, Aggregate, Select with HAVING, Over, Select with QUALIFY, Project, Distinct, then Over and Select for
LIMIT. Moving predicates is the optimizer's business.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from sqlglot import exp

from midstream.algebra.declarations import ARRIVAL, Catalog
from midstream.algebra.expressions import (
    TRUE,
    AggregateCall,
    Column,
    Expression,
    Named,
    NamedAggregate,
    columns_of,
    conjunction,
    conjuncts,
)
from midstream.algebra.plan import Aggregate, JoinKind, Project, Relation, Select, ToStream, Union
from midstream.algebra.types import INTEGER, TEXT
from midstream.errors import QueryError
from midstream.language.aggregates import Aggregates
from midstream.language.attached import Attachments
from midstream.language.binding import Beyond, Binding
from midstream.language.constants import is_timeless, one_row, require_stream, time_type
from midstream.language.dependent import Environment, complete, require_own
from midstream.language.grammar import DEEPEST_QUERY
from midstream.language.groupings import above_groupings, one_per_set
from midstream.language.items import Items, bind_items, spread
from midstream.language.lateral import lateral_query
from midstream.language.limits import (
    PLACE,
    GivenRows,
    Limit,
    first_of_each,
    limited,
    limited_distinct,
    limited_result,
    position_of,
    wanted_of,
)
from midstream.language.literals import coerce
from midstream.language.nested import distinct
from midstream.language.nodes import Node, flatten
from midstream.language.outputs import unique_names
from midstream.language.over import Overs, narrowed
from midstream.language.over_queries import with_queries
from midstream.language.recursion import defined
from midstream.language.result_order import KEY
from midstream.language.scalars import ScalarBinder
from midstream.language.scope import Scope
from midstream.language.sequences import push_conditions
from midstream.language.set_operations import combine
from midstream.language.sources import SourceBinder
from midstream.language.subqueries import (
    SubqueryCondition,
    apply_subquery,
    has_aggregate,
    has_over,
    is_correlated,
    move_conditions,
    subquery_condition,
)
from midstream.language.text import read
from midstream.language.unnesting import Unnests
from midstream.language.windows import require_instants, require_window

COUNT = NamedAggregate("count(*)", AggregateCall("count", (), INTEGER))
"""What makes a group of all tuples, where nothing else asks for one."""


def parse(query: str, catalog: Catalog, *, keys: bool = False) -> Relation:
    """The bound logical plan of a query; every mistake is a QueryError that knows its place.

    With `keys`, a SELECT also gives what its ORDER BY goes by, for whoever reads the whole result and puts it in order.
    """
    try:
        query = with_queries(query, catalog.queries, catalog.streams)
        tree = read(query)
        tree.set("keys", keys and not any(tree.args.get(clause) for clause in ("kind", "limit", "offset")))
        binding = Binding(query, catalog, time_type=time_type(tree, catalog))
        plan = QueryBinder(binding).top(tree)
        require_stream(binding, plan, tree)
        return plan
    except Beyond as beyond:
        raise beyond.error from None
    except RecursionError:
        raise QueryError("the query nests too deeply", hint="split it with WITH, or write it flatter") from None


@dataclass(frozen=True, slots=True)
class ResultShape:
    """What is asked of a query besides its text.

    Names that its columns do not have, whether nulls get a type, and a first column that tells in which order its rows
    came, if one does.
    """

    reserved: tuple[str, ...] = ()
    settled: bool = True
    in_order: bool = False


class QueryBinder:
    """Binds queries and their sub-queries."""

    def __init__(self, binding: Binding) -> None:
        self.binding = binding
        self._depth = 0

    def top(self, node: Node) -> Relation:
        """A whole query: the only place for ISTREAM, DSTREAM and RSTREAM, and where names meet the outside."""
        environment = self._environment(node, Environment({}))
        kind = node.args.get("kind") if isinstance(node, exp.Select) else None
        asked = ResultShape(("ts",) if kind is not None else ("valid_from", "valid_to"))
        if not isinstance(node, exp.Select):
            return self._set_operation(node, environment, asked)
        plan = self._select(node, environment, replace(asked, in_order=kind is not None and kind.this == "keep"))
        if kind is None:
            return plan
        if kind.this == "rstream":
            require_instants(self.binding, plan, "RSTREAM", kind)
        return ToStream(plan, kind.this)

    def query(self, node: Node, environment: Environment, in_order: bool = False) -> Relation:
        """A sub-query; `in_order` asks for a first column that tells in which order its rows came, if one does."""
        self._depth += 1
        if self._depth > DEEPEST_QUERY:
            raise self.binding.error(f"queries nest deeper than {DEEPEST_QUERY} levels", node)
        try:
            return self._operand(node, environment, ResultShape(in_order=in_order))
        finally:
            self._depth -= 1

    def _refuse_to_stream(self, node: exp.Select) -> None:
        if (kind := node.args.get("kind")) is not None:
            word = kind.this.upper()
            hint = f"write SELECT {word} * FROM (SELECT …), or put a window over the sub-query"
            raise self.binding.error(f"{word} can only stand at the top of a query", kind, hint=hint)

    def _environment(self, node: Node, around: Environment) -> Environment:
        clause = node.args.get("with_")
        environment, names = around, set[str]()
        for cte in clause.expressions if clause is not None else ():
            name = cte.args["alias"].this.name
            if name in names:
                raise self.binding.error(f"WITH defines {name} twice", cte)
            names.add(name)
            named = {**environment.renamed, name: cte.args["alias"].args.get("columns") or ()}
            others = {n: q for n, q in environment.ctes.items() if n in names or n.casefold() != name.casefold()}
            ctes = {**others, name: defined(self, cte, environment)}
            environment = replace(environment, ctes=ctes, renamed=named)
        return environment

    def _set_operation(self, node: Node, environment: Environment, asked: ResultShape) -> Relation:
        """Chains are bound from their first query on, so that their length does not matter."""
        chain, first = [node], node.this
        while isinstance(first, exp.SetOperation) and not any(first.args.get(k) for k in ("with_", "limit", "offset")):
            chain.append(first)
            first = first.this
        asked = replace(asked, settled=False, in_order=False)
        plan = self._operand(first, environment, asked)
        for operation in reversed(chain):
            plan = combine(self.binding, operation, plan, self._operand(operation.expression, environment, asked))
        return limited_result(self.binding, plan, node, environment.given)

    def _operand(self, node: Node, environment: Environment, asked: ResultShape) -> Relation:
        """A sub-query, or one side of a set operation, whose untyped nulls wait for the other side's type."""
        environment = self._environment(node, environment)
        if isinstance(node, exp.Select):
            self._refuse_to_stream(node)
            return self._select(node, environment, asked)
        return self._set_operation(node, environment, asked)

    def _select(self, node: exp.Select, environment: Environment, asked: ResultShape) -> Relation:
        if (above := above_groupings(node, self.binding)) is not None:
            return self._select(above, environment, asked)
        if node.args.get("group") is not None and (sets := node.args["group"].args.get("sets")):
            return self._grouping_sets(node, sets, environment, ResultShape(asked.reserved))
        scope, given = environment.scope(self.binding), environment.given
        relation = self.tuples(node, scope, environment)
        relation, _ = self.where(node, relation, scope, environment)
        below = Attachments(self, relation, environment)
        aggregates, unnests = Aggregates(self.binding), Unnests(self.binding)
        self._group_keys(node, scope, aggregates, below)
        attached = Attachments(self, relation, environment, known=dict(below.known))
        overs = Overs(self.binding, node.args.get("windows") or (), given)
        binder = ScalarBinder(self.binding, scope, "SELECT", aggregates, attached, overs)
        binder.unnests, binder.below = unnests, below
        items = bind_items(binder, node)
        having = self._having(node, aggregates, binder)
        wanted = wanted_of(node, binder, items, _shorthands(node), given)
        if node.args.get("keys") and (node.args.get("distinct") is None or wanted.on is not None):
            items += [(f"{KEY}{place}", one.key) for place, one in enumerate(wanted.order)]
        relation = below.joined(relation, lambda e: e)
        coming = [] if aggregates.keys or aggregates.calls else binder.coming()
        came = [] if not asked.in_order or node.args.get("order") or node.args.get("distinct") else coming
        items = [*((ARRIVAL, c) for c in came if str(c).endswith(ARRIVAL)), *items, *((c.name, c) for c in given)]
        if wanted.qualify is not None and not overs.calls:
            raise self.binding.error("QUALIFY needs OVER", node.args["qualify"], hint="filter tuples with WHERE")
        aggregates.brought = attached.columns() | overs.names() | unnests.names()

        def over(value: Expression) -> Expression:
            return aggregates.over_groups(value, binder.places) if aggregates.keys or aggregates.calls else value

        if aggregates.keys or aggregates.calls:
            having = None if having is None else over(having)
            grouped = self._aggregate(relation, aggregates, environment, node)
            relation = attached.joined(grouped, over, *conjuncts(having))
            relation = relation if having is None else Select(relation, having)
        else:
            relation = attached.joined(relation, over)
        items, wanted = [(name, over(value)) for name, value in items], wanted.changed(over)
        read = [*(value for _, value in items), *(over(one.expression) for one in unnests.lists), *wanted.reads]
        told = asked.in_order and wanted.order and node.args.get("distinct") is None
        if told and is_timeless(relation, self.binding.catalog):
            wanted = replace(wanted, limit=wanted.limit or Limit(0, None, False))
            items.insert(0, (ARRIVAL, Column(PLACE, INTEGER)))
        relation = overs.applied(relation, over, read, coming)
        relation = unnests.applied(_selected(relation, list(conjuncts(wanted.qualify))), over)
        return self._project(node, relation, items, replace(wanted, coming=tuple(coming)), asked)

    def _grouping_sets(
        self, node: exp.Select, sets: list[exp.Tuple], environment: Environment, asked: ResultShape
    ) -> Relation:
        """One query per set of keys, in which the keys of the other sets are null."""
        every = Union(tuple(self._select(one, environment, asked) for one in one_per_set(node, sets)))
        united = every if node.args.get("distinct") is None else distinct(every)
        if node.args.get("limit") is None and node.args.get("offset") is None:
            return united
        return limited_result(self.binding, united, node, environment.given)

    def tuples(self, node: exp.Select, scope: Scope, environment: Environment) -> Relation:
        """The relation of FROM."""
        move_conditions(node)
        base = None if environment.domain is None else environment.domain.tuples(self.binding)
        return SourceBinder(self.binding, environment, self, base).bind(node, scope)

    def values(self, relation: Relation, environment: Environment) -> Attachments:
        """The sub-queries that the condition of a join of a relation holds."""
        return Attachments(self, relation, environment)

    def lateral(self, node: Node, base: Relation, scope: Scope, environment: Environment, kind: JoinKind) -> Project:
        """The tuples of a relation with what a sub-query gives beside each."""
        return lateral_query(self, node, base, scope, environment, kind)

    def where(
        self, node: exp.Select, relation: Relation, scope: Scope, environment: Environment, correlate: bool = False
    ) -> tuple[Relation, list[Expression]]:
        """The relation after WHERE, and the conditions that only the query around it can check."""
        clause = node.args.get("where")
        if clause is None:
            return relation, []
        kept: list[Expression] = []
        correlated: list[Expression] = []
        subqueries: list[SubqueryCondition] = []
        attached = Attachments(self, relation, environment)
        binder = ScalarBinder(self.binding, scope, "WHERE", subqueries=attached)
        binder.shorthands = _shorthands(node)
        for part in flatten(clause.this, exp.And):
            condition = subquery_condition(part)
            if condition is not None:
                subqueries.append(condition)
                continue
            bound = binder.condition(part)
            (correlated if correlate and is_correlated(bound, relation) else kept).append(bound)
        late = [part for part in kept if columns_of(part) & attached.columns()]
        relation, kept = push_conditions(relation, [part for part in kept if part not in late])
        relation = _selected(relation, kept)
        relation = _selected(attached.joined(relation, lambda e: e, *late), late)
        for condition in subqueries:
            relation = apply_subquery(self, relation, scope, condition, environment)
        return relation, correlated

    def _group_keys(self, node: exp.Select, scope: Scope, aggregates: Aggregates, below: Attachments) -> None:
        clause = node.args.get("group")
        if clause is None:
            return
        keys = clause.expressions
        if clause.args.get("all"):
            keys = _without_aggregates(node, self.binding.catalog, ScalarBinder(self.binding, scope, "GROUP BY"))
        others = clause.args.get("others")
        for key in others or ():
            aggregates.nulled.append(self._group_key(node, scope, key, below))
        if not keys and (others is not None or not clause.args.get("all")):
            aggregates.calls.append(COUNT)
        for key in keys:
            bound = self._group_key(node, scope, key, below)
            if bound in aggregates.nulled:
                raise self.binding.error(
                    "two names of one value are keys of groupings", key, hint="group by one of them"
                )
            aggregates.add_key(coerce(bound, TEXT) if str(bound.type) == "null" else bound)

    def _group_key(self, node: exp.Select, scope: Scope, key: Node, below: Attachments) -> Expression:
        binder = ScalarBinder(self.binding, scope, "GROUP BY", subqueries=below)
        binder.shorthands = _shorthands(node)
        return binder.bind(self._by_position(node, key))

    def _by_position(self, node: exp.Select, key: Node) -> Node:
        place = position_of(self.binding, key, len(node.expressions))
        if place is None:
            return key
        item = node.expressions[place]
        if isinstance(item, exp.Star):
            raise self.binding.error(f"item {place + 1} of SELECT is *", key, hint="group by the names of columns")
        return item.this if isinstance(item, exp.Alias) else item  # type: ignore[no-any-return]

    def _having(self, node: exp.Select, aggregates: Aggregates, select: ScalarBinder) -> Expression | None:
        clause = node.args.get("having")
        if clause is None:
            return None
        binder = ScalarBinder(self.binding, select.scope, "HAVING", aggregates, select.subqueries)
        binder.shorthands = _shorthands(node)
        bound = binder.condition(clause.this)
        if not (aggregates.keys or aggregates.calls):
            aggregates.calls.append(COUNT)
        select.places.update(binder.places)
        return bound

    def _aggregate(
        self, relation: Relation, aggregates: Aggregates, environment: Environment, node: exp.Select
    ) -> Relation:
        require_window(self.binding, "an aggregate" if aggregates.calls else "GROUP BY", relation)
        given, every = environment.given, None
        if not aggregates.keys and (given or is_timeless(relation, self.binding.catalog)):
            domain = environment.domain if given else None
            every = domain.tuples(self.binding) if domain else one_row(self.binding, node)
        for one in aggregates.calls:
            require_own(self.binding, one.call, frozenset(column.name for column in given), node)
        for column in given:
            aggregates.add_key(column)
        grouped = Aggregate(relation, tuple(aggregates.keys), tuple(aggregates.calls))
        return grouped if every is None else complete(self.binding, every, grouped)

    def _project(
        self, node: exp.Select, relation: Relation, items: Items, wanted: GivenRows, asked: ResultShape
    ) -> Relation:
        with self.binding.at(node):
            names = unique_names([name for name, _ in items], asked.reserved)
        values = [coerce(v, TEXT) if asked.settled and str(v.type) == "null" else v for _, v in items]
        columns = tuple(Named(n, v) for n, v in zip(names, values, strict=True))
        if node.args.get("distinct") is None or wanted.on is not None:
            if wanted.on is not None or wanted.limit is not None:
                relation = narrowed(relation, [*values, *wanted.reads], wanted.coming)
            if wanted.on is not None:
                relation = first_of_each(self.binding, relation, (*wanted.on, *wanted.keys), wanted.order)
            return Project(limited(self.binding, relation, wanted.order, wanted.limit, wanted.keys), columns)
        require_window(self.binding, "DISTINCT", relation)
        plan = distinct(Project(relation, columns))
        return limited_distinct(self.binding, plan, columns, wanted, node)


def _selected(relation: Relation, conditions: list[Expression]) -> Relation:
    predicate = conjunction(conditions)
    return relation if predicate == TRUE else Select(relation, predicate)


def _without_aggregates(node: exp.Select, catalog: Catalog, binder: ScalarBinder) -> list[Node]:
    """The items of SELECT that GROUP BY ALL groups by."""
    values = [one for item in node.expressions for one in spread(binder, item)]
    return [value for value in values if not has_aggregate(value, catalog) and not has_over(value)]


def _shorthands(node: exp.Select) -> dict[str, Node]:
    return {i.alias.casefold(): i.this for i in node.expressions if isinstance(i, exp.Alias)}
