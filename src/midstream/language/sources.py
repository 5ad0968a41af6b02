"""FROM: streams, sub-queries and their windows, joined from left to right.

A comma binds weaker than JOIN. Inner joins do not mind, so they all form one left-deep chain; only what follows a comma
and holds a RIGHT or FULL join, or a sequence, is put together on its own first.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pyarrow as pa
from sqlglot import exp

from midstream.algebra.declarations import ARRIVAL
from midstream.algebra.expressions import TRUE, Call, Column, Expression, Named, columns_of, conjunction, conjuncts
from midstream.algebra.plan import (
    JoinKind,
    Project,
    Relation,
    Select,
    Stream,
    Unnested,
    Window,
    gives_at_ends,
    holds_json,
    is_raw,
    is_time,
)
from midstream.algebra.types import BOOLEAN, common_type
from midstream.algebra.windows import NOW, Hop, Rows, SessionGap, Unbounded
from midstream.language.binding import Beyond, Binding, match_name, nearest
from midstream.language.constants import beside, is_constant, one_row
from midstream.language.dependent import Domain, Environment, Queries, rename
from midstream.language.literals import coerce
from midstream.language.nested import told_apart
from midstream.language.nodes import FollowedBy, JoinedSources, Node, is_joined
from midstream.language.patterns import bind_match
from midstream.language.scalars import ScalarBinder, bind_condition
from midstream.language.scope import BOUNDS, Scope, ScopeSource, shared_names
from midstream.language.sequences import bind_step, nearest_by_value
from midstream.language.temporal import Timed, take_windows, timed
from midstream.language.text import shaped
from midstream.language.unnesting import named_elsewhere, places_in, rows_of_function, rows_of_values
from midstream.language.windows import bind_window, join_of, require_instants, valid_until


@dataclass(eq=False)
class SourceBinder:
    """Binds the FROM clause of one SELECT into a relation, and fills the scope.

    `base` is a relation beside whose tuples the clause is read: that to the left of LATERAL, or a domain.
    """

    binding: Binding
    environment: Environment
    binder: Queries
    base: Relation | None = None
    bounded: bool = False

    def bind(self, select: exp.Select, scope: Scope) -> Relation:
        """The relation of a FROM clause."""
        start = select.args.get("from_")
        if start is None:
            return self.base or one_row(self.binding, select)
        self.bounded = any(column.name.casefold() in BOUNDS for column in select.find_all(exp.Column))
        groups = _groups(start.this, select.args.get("joins") or [])
        self._reserve(groups)
        take_windows(select, list(self._timed(groups)))
        relation = self.base
        for scope.part, (first, joins) in enumerate(groups):
            if any(isinstance(j, FollowedBy) or j.args.get("kind") in ("right", "full") for j in joins):
                relation = self._together(relation, self._group(None, first, joins, scope))
            else:
                relation = self._group(relation, first, joins, scope)
        assert relation is not None
        return relation

    def _reserve(self, groups: list[tuple[Node, list[Node]]]) -> None:
        """Gives the sources of this FROM their aliases before those of its sub-queries, which may repeat them."""
        for first, joins in groups:
            for node in (first, *(join.this for join in joins)):
                if isinstance(node, JoinedSources):
                    self._reserve([(node.this, node.args["joins"])])
                else:
                    node.meta["unique"] = self.binding.alias(self._visible(node), node)

    def _timed(self, groups: list[tuple[Node, list[Node]]]) -> Iterator[Timed]:
        """The streams of FROM whose rows no join replaces by nulls, with their time columns."""
        streams = self.binding.catalog.streams
        for first, joins in groups:
            sources = [(first, ""), *((join.this, join.args.get("kind")) for join in joins)]
            for i, (node, kind) in enumerate(sources):
                padded = kind in ("left", "full") or any(k in ("right", "full") for _, k in sources[i + 1 :])
                if isinstance(node, exp.Table) and not padded and not match_name(node.this, self.environment.ctes):
                    for name in match_name(node.this, streams)[:1]:
                        yield timed(node, self._visible(node), streams[name])

    def _visible(self, node: Node) -> str:
        """The name a source has in its SELECT."""
        alias = node.args.get("alias")
        if alias is not None:
            return str(alias.name)
        if isinstance(node, exp.Subquery):
            return "query"
        if isinstance(node, exp.Values | exp.Unnest):
            return "values" if isinstance(node, exp.Values) else str(node.expressions[0].name).lower()
        known = match_name(node.this, [*self.environment.ctes, *self.binding.catalog.streams])
        return known[0] if known else str(node.this.name)

    def _group(self, left: Relation | None, first: Node, joins: list[Node], scope: Scope) -> Relation:
        """What a part of FROM gives, with the tuples to its left."""
        relation = self._together(left, self.source(first, scope, left))
        for join in joins:
            relation = self._join(relation, join, scope)
        return relation

    def _together(self, left: Relation | None, right: Relation) -> Relation:
        """Two sides of a comma, of which the right one may have been put beside the left one already."""
        return right if left is None or _holds(right, left) else self._cross(left, right)

    def _cross(self, left: Relation, right: Relation, on: Expression = TRUE) -> Relation:
        """An inner join; constants are put beside the tuples of the other side."""
        if is_constant(left) or is_constant(right):
            both = beside(left, right) if is_constant(right) else beside(right, left)
            return both if on == TRUE else Select(both, on)
        return join_of(self.binding, "a join", left, right, on)

    def _join(self, left: Relation, join: Node, scope: Scope) -> Relation:
        before, count, merged = scope.latest_part(), len(scope.sources), len(scope.merged)
        if join.args.get("asof") and not is_raw(left):
            join = nearest_by_value(self.binding, join, self._visible(join.this))
        if isinstance(join, FollowedBy):
            right = self.source(join.this, scope)
            relation = bind_step(self.binding, left, right, join, scope.latest_part(scope))
            if join.args.get("mode") == "none":
                del scope.sources[count:]
            return relation
        kind: JoinKind = "inner" if join.args["kind"] == "cross" else join.args["kind"]
        using, condition = join.args.get("using"), join.args.get("on")
        always = condition is None or (isinstance(condition, exp.Boolean) and condition.this)
        beside = kind == "inner" or (kind == "left" and always and not using)
        right = self.source(join.this, scope, left if beside else None, kind)
        added = Scope(self.binding, scope.sources[count:], scope.merged[merged:], scope.hidden, part=scope.part)
        if join.args.get("natural"):
            using = shared_names(before, added)
        on: Expression = TRUE
        together = _holds(right, left)
        if using:
            on = conjunction([self._merge(name, scope, before, added, kind) for name in using])
        elif condition is not None:
            values = self.binder.values(left, self.environment)
            on = bind_condition(self.binding, condition, scope.latest_part(scope), values, left, right)
            left, right = values.put(left, right, condition)
        if (instant := join.this.args.get("as_of")) is not None:
            left, right = self._as_of(left, right, on, scope, instant)
        if kind in ("semi", "anti"):
            del scope.sources[count:], scope.merged[merged:]
        if together:
            return right if on == TRUE else Select(right, on)
        if kind == "inner":
            return self._cross(left, right, on)
        return join_of(self.binding, "a join", left, right, on, kind)

    def _as_of(
        self, left: Relation, right: Relation, on: Expression, scope: Scope, instant: Node
    ) -> tuple[Relation, Relation]:
        """`FOR SYSTEM_TIME AS OF a.ts`: tuples at their own instant, and the newest version of each key at it."""
        binder, times = ScalarBinder(self.binding, scope, "FOR SYSTEM_TIME AS OF"), [s.time for s in scope.sources[:-1]]
        if instant.name.upper() != "PROCTIME" and binder.bind(instant) not in times:
            raise self.binding.error(
                "versions are looked up at the time of what they are joined with",
                instant,
                hint="write FOR SYSTEM_TIME AS OF a.ts, with the time column of the stream a to the left",
            )
        equal = [part for part in conjuncts(on) if isinstance(part, Call) and part.function == "="]
        sides = [side.name for part in equal for side in part.args if isinstance(side, Column)]
        keys = tuple(name for name in sides if name in right.schema.names)
        if is_raw(right) and not keys:
            hint = "say by a window which rows there are at that time: b [UNBOUNDED] FOR SYSTEM_TIME AS OF …"
            raise self.binding.error("versions are told apart by the columns that ON compares", instant, hint=hint)
        now = Window(left, NOW) if is_raw(left) else left
        return now, Window(right, Rows(1, tuple(dict.fromkeys(keys)))) if is_raw(right) else right

    def _merge(self, name: exp.Identifier, scope: Scope, before: Scope, added: Scope, kind: str) -> Expression:
        """One column of USING: an equality, and a single visible column for the two."""
        visible, left = before.resolve(exp.Column(this=name))
        _, right = added.resolve(exp.Column(this=name))
        type_ = common_type(left.type, right.type)
        if type_ is None:
            raise self.binding.error(
                f"cannot compare {left.type} with {right.type}", name, hint="join ON an equality with a CAST"
            )
        a, b = coerce(left, type_), coerce(right, type_)
        if kind not in ("semi", "anti"):
            both = {"right": b, "full": Call("coalesce", (a, b), type_)}.get(kind, a)
            scope.merge(visible, both, {c.name for c in (left, right) if isinstance(c, Column)})
        return Call("=", (told_apart(a), told_apart(b)), BOOLEAN)

    def source(self, node: Node, scope: Scope, left: Relation | None = None, kind: JoinKind = "inner") -> Relation:
        """A stream or sub-query with its window, added to the scope; or several, joined in parentheses.

        What stands beside the tuples of `left` comes with them.
        """
        if node.args.get("shape") is not None:
            node = shaped(node)
        if node.args.get("match") is not None:
            return self._matched(node, scope)
        if isinstance(node, exp.Unnest | exp.Values):
            return self._rows(node, scope, left, kind)
        if node.args.get("lateral") and left is not None:
            return self._lateral(node, node.this, self.environment, scope, left, kind)
        if isinstance(node, JoinedSources):
            inner = Scope(self.binding, part=scope.part, outer=scope.outer, domain=scope.domain)
            relation = self._group(None, node.this, node.args["joins"], inner)
            scope.take_in(inner, node)
            return relation
        if isinstance(node, exp.Subquery):
            return self._subquery(node, node.this, self.environment, scope, left, kind)
        name = node.this
        known = match_name(name, self.environment.ctes)
        if known:
            body, environment = self.environment.ctes[known[0]]
            if not node.args.get("columns"):
                node.set("columns", [name.copy() for name in self.environment.renamed.get(known[0], ())])
            return self._subquery(node, body, environment, scope, left, kind)
        return self._stream(node, name, scope)

    def _matched(self, node: Node, scope: Scope) -> Relation:
        """The matches of a pattern in a stream or sub-query."""
        bare, inner, unique = type(node)(this=node.this), Scope(self.binding), node.meta["unique"]
        bare.meta.update(node.meta)
        bare.meta["unique"] = self.binding.alias(self._visible(bare), node)
        match = bind_match(self.binding, node.args["match"], self.source(bare, inner), inner)
        visible = [*(name.partition(".")[2] for name in match.keys), *(m.name for m in match.measures)]
        names = self._column_names(node, visible)
        fields = zip(names, match.schema, strict=True)
        renamed = Project(match, tuple(Named(f"{unique}.{name}", Column(f.name, f.type)) for name, f in fields))
        source = scope.add(self._visible(node), renamed.schema, names, node.args.get("alias") or node)
        return self._windowed(node, renamed, source)

    def _rows(self, node: Node, scope: Scope, left: Relation | None, kind: JoinKind) -> Relation:
        """VALUES, or a function that gives rows."""
        if node.args.get("window") is not None:
            raise self.binding.error("constants are always there, so they have no window", node.args["window"])
        binder, named = ScalarBinder(self.binding, scope, "FROM"), node.args.get("columns") or ()
        if isinstance(node, exp.Values):
            lists = rows_of_values(binder, node)
        else:
            assert isinstance(node, exp.Unnest)
            node.set("outer", node.args.get("outer") or (kind == "left" and left is not None))
            lists = rows_of_function(binder, node, len(named))
        base = left or self.base or one_row(self.binding, node)
        outside = frozenset[str]().union(*(columns_of(one) for _, one in lists)) - set(base.schema.names)
        if outside:
            error = self.binding.error(
                f"{min(outside).rpartition('.')[2]} is not to the left of this",
                node,
                hint="a function of a column's list stands behind that column's stream: FROM A, unnest(A.list) AS t(x)",
            )
            raise Beyond(error)
        unique, names = node.meta["unique"], [name for name, _ in lists]
        if len(names) == 1 and node.args.get("alias") is not None and not named:
            names = [node.args["alias"].name]
        columns = self._column_names(node, names)
        made = [Named(f"{unique}.{column}", one) for column, (_, one) in zip(columns, lists, strict=True)]
        beside = left or self.base or is_joined(node)
        coming = [] if beside else [Named(f"{unique}.{ARRIVAL}", places_in(binder, lists[0][1], 1, node))]
        relation = Unnested(base, (*made, *coming))
        schema = pa.schema([relation.schema.field(one.name) for one in made])
        source = scope.add(self._visible(node), schema, columns, node)
        source.bounds.update((name, source.columns[column]) for (name, _), column in zip(lists, columns, strict=True))
        source.others.update(named_elsewhere([name for name, _ in lists], list(source.columns.values())))
        source.bounds.update((ARRIVAL, Column(one.name, pa.int64())) for one in coming)
        return relation

    def _lateral(
        self, node: Node, body: Node, environment: Environment, scope: Scope, left: Relation, kind: JoinKind
    ) -> Relation:
        """A sub-query that names what stands to its left."""
        unique, alias = node.meta["unique"], node.args.get("alias")
        relation = self.binder.lateral(body, left, scope, environment, kind)
        kept, made = relation.columns[: len(left.schema)], relation.columns[len(left.schema) :]
        columns = self._column_names(node, [column.name for column in made])
        named = tuple(Named(f"{unique}.{n}", c.expression) for n, c in zip(columns, made, strict=True))
        visible = unique if alias is None else str(alias.name)
        relation = Project(relation.input, (*kept, *named))
        self.binding.json |= {one.name for one in named if holds_json(relation, one.name)}
        scope.add(visible, pa.schema([relation.schema.field(one.name) for one in named]), columns, alias or node)
        return relation

    def _stream(self, node: Node, name: exp.Identifier, scope: Scope) -> Relation:
        streams = self.binding.catalog.streams
        found = match_name(name, streams)
        if len(found) != 1:
            raise self._unknown_stream(name, found)
        declaration = streams[found[0]]
        self.binding.require_same_time(declaration, name)
        stream = Stream(declaration.name, node.meta["unique"], declaration.columns, declaration.time, declaration.site)
        place, visible = node.args.get("alias") or node, declaration.visible.names
        schema = pa.schema([stream.schema.field(f"{stream.alias}.{name}") for name in visible])
        names = self._column_names(node, visible)
        timed = declaration.name not in self.binding.catalog.timeless
        time = names[visible.index(declaration.time)] if timed else None
        source = scope.add(self._visible(node), schema, names, place, time)
        if ARRIVAL in declaration.columns.names:
            source.bounds[ARRIVAL] = Column(f"{stream.alias}.{ARRIVAL}", pa.int64())
        if declaration.name in self.binding.catalog.timeless:
            if (window := node.args.get("window")) is not None and window.this != "UNBOUNDED":
                raise self.binding.error("rows without a time have always been there: they take no window", window)
            return Window(stream, Unbounded())
        return self._windowed(node, stream, source)

    def _unknown_stream(self, name: exp.Identifier, found: list[str]) -> Exception:
        if found:
            return self.binding.ambiguous(name, [f'"{one}"' for one in found])
        known = [*self.environment.ctes, *self.binding.catalog.streams]
        return self.binding.error(f"unknown stream {name.name}", name, hint=nearest(name.name, known, "streams"))

    def _subquery(
        self, node: Node, body: Node, environment: Environment, scope: Scope, left: Relation | None, kind: JoinKind
    ) -> Relation:
        unique, alias = node.meta["unique"], node.args.get("alias")
        try:
            with self.binding.attempt():
                relation = self.binder.query(
                    body.copy(), replace(environment, domain=Domain(scope)), not is_joined(node)
                )
        except Beyond:
            if left is None or node.args.get("window") is not None:
                raise
            return self._lateral(node, body, environment, scope, left, kind)
        names = [name for name in relation.schema.names if name != ARRIVAL]
        columns = self._column_names(node, names)
        new = {ARRIVAL: f"{unique}.{ARRIVAL}"} | {n: f"{unique}.{c}" for n, c in zip(names, columns, strict=True)}
        renamed = rename(relation, new)
        self.binding.json |= {new[name] for name in names if holds_json(relation, name)}
        visible = unique if alias is None and isinstance(node, exp.Subquery) else self._visible(node)
        schema = pa.schema([renamed.schema.field(new[name]) for name in names])
        source = scope.add(visible, schema, columns, alias or node)
        source.others.update(named_elsewhere(names, list(source.columns.values())))
        if len(names) < len(relation.schema):
            source.bounds[ARRIVAL] = Column(new[ARRIVAL], pa.int64())
        window = node.args.get("window")
        if window is not None and not is_raw(renamed):
            require_instants(self.binding, renamed, "a window over this sub-query", window)
        return self._windowed(node, renamed, source)

    def _column_names(self, node: Node, names: list[str]) -> list[str]:
        """The names that columns have in this SELECT: those behind the alias, the others as they are."""
        wanted = [name.name for name in node.args.get("columns") or ()]
        if len(wanted) > len(names):
            message = f"{len(wanted)} names are given to {len(names)} columns"
            raise self.binding.error(message, node.args["columns"][-1])
        given = [*wanted, *names[len(wanted) :]]
        if len(set(given)) < len(given):
            raise self.binding.error("two columns have the same name", node, hint="name all of them differently")
        return given

    def _windowed(self, node: Node, relation: Relation, source: ScopeSource) -> Relation:
        clause, time = node.args.get("window"), node.args.get("time")
        if clause is None:
            return relation
        if time is not None and not is_time(Scope(self.binding, [source]).resolve(time)[1], relation):
            message = f"{clause.this} goes by {time.name}, which is not the time of {source.name}"
            hint = "windows go by the time column that the stream is declared with"
            raise self.binding.error(message, time, hint=hint)
        if (until := clause.args.get("until")) is not None:
            end = ScalarBinder(self.binding, Scope(self.binding, [source]), "VALID UNTIL").bind(until)
            return valid_until(self.binding, relation, end, f"{node.meta['unique']}.#until", until)

        def column(part: exp.Column) -> str:
            _, found = Scope(self.binding, [source]).resolve(part)
            assert isinstance(found, Column)
            return found.name

        spec = bind_window(self.binding, clause, relation.domain, column)
        if isinstance(spec, Hop) and gives_at_ends(relation):
            spec = replace(spec, takes_in_end=True)
        if not self.bounded or not isinstance(spec, Hop | SessionGap) or set(BOUNDS) & set(source.columns):
            return Window(relation, spec)
        names = (f"{node.meta['unique']}.{BOUNDS[0]}", f"{node.meta['unique']}.{BOUNDS[1]}")
        source.bounds.update((b, Column(n, relation.domain.output_type)) for b, n in zip(BOUNDS, names, strict=True))
        return Window(relation, spec, names)


def _groups(first: Node, joins: list[Node]) -> list[tuple[Node, list[Node]]]:
    """The parts of FROM between commas."""
    groups: list[tuple[Node, list[Node]]] = [(first, [])]
    for join in joins:
        if isinstance(join, exp.Join) and join.args.get("kind") is None:
            groups.append((join.this, []))
        else:
            groups[-1][1].append(join)
    return groups


def _holds(relation: Relation, other: Relation) -> bool:
    """Whether a relation has all columns of another, which it was put beside."""
    return set(other.schema.names) <= set(relation.schema.names)
