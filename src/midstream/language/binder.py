"""From a query's text to its logical plan.

The plan's shape is canonical: FROM as left-deep joins with their ON conditions, one Select with WHERE, then
semi-joins, Aggregate, Select with HAVING, Project, Distinct. Moving predicates is the optimizer's business.
"""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from midstream.algebra.declarations import Catalog
from midstream.algebra.expressions import TRUE, Expression, Named, conjunction
from midstream.algebra.plan import Aggregate, Distinct, Project, Relation, Select, ToStream
from midstream.algebra.types import TEXT, is_nested
from midstream.errors import QueryError
from midstream.language.aggregates import Aggregates
from midstream.language.binding import Binding
from midstream.language.grammar import DEEPEST_QUERY
from midstream.language.literals import coerce
from midstream.language.nodes import Node
from midstream.language.outputs import item_name, unique_names
from midstream.language.scalars import ScalarBinder, flatten
from midstream.language.scope import Scope
from midstream.language.sequences import push_conditions
from midstream.language.set_operations import combine
from midstream.language.sources import Environment, SourceBinder
from midstream.language.subqueries import Items, SubqueryCondition, apply_subquery, is_correlated, subquery_condition
from midstream.language.text import read
from midstream.language.windows import require_instants, require_window

MOST_COLUMNS = 2_000


def parse(query: str, catalog: Catalog) -> Relation:
    """The bound logical plan of a query; every mistake is a QueryError that knows its place."""
    try:
        binding = Binding(query, catalog)
        return QueryBinder(binding).top(read(query))
    except RecursionError:
        raise QueryError("the query nests too deeply", hint="split it with WITH, or write it flatter") from None


class QueryBinder:
    """Binds queries and their sub-queries."""

    def __init__(self, binding: Binding) -> None:
        self.binding = binding
        self._depth = 0

    def top(self, node: Node) -> Relation:
        """A whole query: the only place for ISTREAM, DSTREAM and RSTREAM, and where names meet the outside."""
        environment = self._environment(node, Environment({}))
        kind = node.args.get("kind") if isinstance(node, exp.Select) else None
        reserved = ("ts",) if kind is not None else ("valid_from", "valid_to")
        if not isinstance(node, exp.Select):
            return self._set_operation(node, environment, reserved)
        plan = self._select(node, environment, reserved)
        if kind is None:
            return plan
        if kind.this == "rstream":
            require_instants(self.binding, plan, "RSTREAM", kind)
        return ToStream(plan, kind.this)

    def query(self, node: Node, environment: Environment) -> Relation:
        """A sub-query."""
        self._depth += 1
        if self._depth > DEEPEST_QUERY:
            raise self.binding.error(f"queries nest deeper than {DEEPEST_QUERY} levels", node)
        environment = self._environment(node, environment)
        if isinstance(node, exp.Select):
            self._refuse_to_stream(node)
            plan = self._select(node, environment)
        else:
            plan = self._set_operation(node, environment)
        self._depth -= 1
        return plan

    def _refuse_to_stream(self, node: exp.Select) -> None:
        kind = node.args.get("kind")
        if kind is not None:
            word = kind.this.upper()
            raise self.binding.error(
                f"{word} can only stand at the top of a query",
                kind,
                hint=f"write SELECT {word} * FROM (SELECT …), or put a window over the sub-query",
            )

    def _environment(self, node: Node, around: Environment) -> Environment:
        clause = node.args.get("with_")
        environment = around
        names: set[str] = set()
        for cte in clause.expressions if clause is not None else ():
            name = cte.args["alias"].this.name
            if name in names:
                raise self.binding.error(f"WITH defines {name} twice", cte)
            names.add(name)
            environment = Environment({**environment.ctes, name: (cte.this, environment)})
        return environment

    def _set_operation(self, node: Node, environment: Environment, reserved: tuple[str, ...] = ()) -> Relation:
        """Chains are bound from their first query on, so that their length does not matter."""
        chain, first = [node], node.this
        while isinstance(first, exp.SetOperation) and first.args.get("with_") is None:
            chain.append(first)
            first = first.this
        plan = self._operand(first, environment, reserved)
        for operation in reversed(chain):
            plan = combine(self.binding, operation, plan, self._operand(operation.expression, environment, reserved))
        return plan

    def _operand(self, node: Node, environment: Environment, reserved: tuple[str, ...]) -> Relation:
        """One side of a set operation; untyped nulls wait for the other side's type."""
        environment = self._environment(node, environment)
        if isinstance(node, exp.Select):
            self._refuse_to_stream(node)
            return self._select(node, environment, reserved, settle=False)
        return self._set_operation(node, environment, reserved)

    def _select(
        self, node: exp.Select, environment: Environment, reserved: tuple[str, ...] = (), settle: bool = True
    ) -> Relation:
        scope = Scope(self.binding)
        relation = self.tuples(node, scope, environment)
        relation, _ = self.where(node, relation, scope, environment)
        aggregates = Aggregates(self.binding)
        binder = ScalarBinder(self.binding, scope, "SELECT", aggregates)
        self._group_keys(node, scope, aggregates)
        items = self.items(node, binder)
        having = self._having(node, scope, aggregates)
        if aggregates.keys or aggregates.calls:
            items = [(name, aggregates.over_groups(value, binder.places)) for name, value in items]
            relation = self._aggregate(relation, aggregates, having)
        return self._project(node, relation, items, reserved, settle)

    def tuples(self, node: exp.Select, scope: Scope, environment: Environment) -> Relation:
        """The relation of FROM."""
        return SourceBinder(self.binding, environment, self.query).bind(node, scope)

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
        binder = ScalarBinder(self.binding, scope, "WHERE")
        for part in flatten(clause.this, exp.And):
            condition = subquery_condition(part)
            if condition is not None:
                subqueries.append(condition)
                continue
            bound = self._where_part(node, binder, part)
            (correlated if correlate and is_correlated(bound, relation) else kept).append(bound)
        relation, kept = push_conditions(relation, kept)
        predicate = conjunction(kept)
        if predicate != TRUE:
            relation = Select(relation, predicate)
        inner_scope = scope if scope.outer is None else replace(scope, outer=None)
        for condition in subqueries:
            relation = apply_subquery(self, relation, inner_scope, condition, environment)
        return relation, correlated

    def _where_part(self, node: exp.Select, binder: ScalarBinder, part: Node) -> Expression:
        try:
            return binder.condition(part)
        except QueryError as error:
            aliases = [i.alias for i in node.expressions if isinstance(i, exp.Alias)]
            name = error.message.removeprefix("unknown column ")
            if name != error.message and name in aliases:
                error.hint = f"WHERE comes before SELECT: repeat what {name} stands for, or use a sub-query"
            raise

    def items(self, node: exp.Select, binder: ScalarBinder) -> Items:
        """What SELECT asks for: wanted names and values."""
        items: Items = []
        for position, item in enumerate(node.expressions, 1):
            if isinstance(item, exp.Star):
                items.extend(self._star(binder, list(binder.scope.everything()), item))
            elif isinstance(item, exp.Column) and isinstance(item.this, exp.Star):
                source = binder.scope.source(item.args["table"])
                items.extend(self._star(binder, list(source.columns.items()), item))
            elif isinstance(item, exp.Alias):
                items.append((item.alias, binder.bind(item.this)))
            else:
                bound = binder.bind(item)
                items.append((item_name(item, binder.scope, position), bound))
        if len(items) > MOST_COLUMNS:
            raise self.binding.error(f"the query gives more than {MOST_COLUMNS:,} columns", node)
        return items

    def _star(self, binder: ScalarBinder, columns: Items, node: Node) -> Items:
        for _, column in columns:
            binder.places.setdefault(str(column), node.meta.get("start"))
        return columns

    def _group_keys(self, node: exp.Select, scope: Scope, aggregates: Aggregates) -> None:
        clause = node.args.get("group")
        for key in clause.expressions if clause is not None else ():
            binder = ScalarBinder(self.binding, scope, "GROUP BY")
            binder.shorthands = _shorthands(node)
            bound = binder.bind(self._by_position(node, key))
            if is_nested(bound.type):
                raise self.binding.error(
                    f"cannot group by {bound.type}", key, hint="nested values can be carried, not compared"
                )
            aggregates.add_key(coerce(bound, TEXT) if str(bound.type) == "null" else bound)

    def _by_position(self, node: exp.Select, key: Node) -> Node:
        if not isinstance(key, exp.Literal) or key.args.get("is_string") or not key.this.isdecimal():
            return key
        items = node.expressions
        index = int(key.this[:9])
        if not 1 <= index <= len(items):
            raise self.binding.error(f"SELECT has no item {key.this[:9]}", key, hint=f"it has {len(items)}")
        item = items[index - 1]
        if isinstance(item, exp.Star):
            raise self.binding.error(f"item {index} of SELECT is *", key, hint="group by the names of columns")
        return item.this if isinstance(item, exp.Alias) else item  # type: ignore[no-any-return]

    def _having(self, node: exp.Select, scope: Scope, aggregates: Aggregates) -> Expression | None:
        clause = node.args.get("having")
        if clause is None:
            return None
        binder = ScalarBinder(self.binding, scope, "HAVING", aggregates)
        binder.shorthands = _shorthands(node)
        bound = binder.condition(clause.this)
        if not (aggregates.keys or aggregates.calls):
            raise self.binding.error("HAVING needs GROUP BY or an aggregate", clause, hint="filter tuples with WHERE")
        return aggregates.over_groups(bound, binder.places)

    def _aggregate(self, relation: Relation, aggregates: Aggregates, having: Expression | None) -> Relation:
        require_window(self.binding, relation, "an aggregate" if aggregates.calls else "GROUP BY")
        grouped = Aggregate(relation, tuple(aggregates.keys), tuple(aggregates.calls))
        return grouped if having is None else Select(grouped, having)

    def _project(
        self, node: exp.Select, relation: Relation, items: Items, reserved: tuple[str, ...], settle: bool
    ) -> Relation:
        with self.binding.at(node):
            names = unique_names([name for name, _ in items], reserved)
        values = [coerce(v, TEXT) if settle and str(v.type) == "null" else v for _, v in items]
        plan: Relation = Project(relation, tuple(Named(n, v) for n, v in zip(names, values, strict=True)))
        distinct = node.args.get("distinct")
        if distinct is None:
            return plan
        require_window(self.binding, relation, "DISTINCT")
        for name, value in zip(names, values, strict=True):
            if is_nested(value.type):
                raise self.binding.error(
                    f"DISTINCT cannot compare {name}: {value.type}", distinct, hint="nested values can only be carried"
                )
        return Distinct(plan)


def _shorthands(node: exp.Select) -> dict[str, Node]:
    return {i.alias.casefold(): i.this for i in node.expressions if isinstance(i, exp.Alias)}
