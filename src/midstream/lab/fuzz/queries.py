"""Random queries over given streams, written twice: as CQL, and as SQL over the contents of their windows.

A query is drawn from outside in: set operation, then blocks of SELECT, whose sources are streams under windows or
sub-queries. The set of allowed constructs says what may appear.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from midstream.lab.fuzz.aggregation import Aggregations
from midstream.lab.fuzz.choices import Choices
from midstream.lab.fuzz.expressions import INEXACT, Expressions, Value, both, joined
from midstream.lab.fuzz.over import draw_over, draw_place, first_rows, in_order
from midstream.lab.fuzz.sources import BOUNDED, ENDLESS, Leaf, Source, WindowChoice, draw_window, leaf_source
from midstream.lab.fuzz.streams import StreamSpec

SET_KINDS = ("integer", "integer", "integer", "boolean", "string", "double", "date", "decimal")
PATTERNS = ("a b", "a b+", "a b* c", "a (b | c)+", "a b{1,2} c", "a b+? c", "a? b c", "(a b){1,2}")
DEFINED = ("v < PREV(v)", "v >= FIRST(a.v)", "v <= 3", "COUNT(b.v) < 3", "SUM(a.v) < 9", "a.v IS NULL OR v <> a.v")
SKIPPED = ("", " AFTER MATCH SKIP PAST LAST ROW", " AFTER MATCH SKIP TO NEXT ROW", " AFTER MATCH SKIP TO LAST b")
SET_FORMS = {
    "union_all": "UNION ALL",
    "union": "UNION",
    "except_all": "EXCEPT ALL",
    "except": "EXCEPT",
    "intersect_all": "INTERSECT ALL",
    "intersect": "INTERSECT",
}


@dataclass(frozen=True)
class Query:
    """A query in both languages; `sql` is None if it means nothing to a database."""

    cql: str
    sql: str | None
    columns: tuple[Value, ...]
    leaves: tuple[Leaf, ...]


@dataclass
class Writer:
    """Draws one query."""

    choices: Choices
    streams: tuple[StreamSpec, ...]
    constructs: frozenset[str]
    most_joined: int = 4
    forms: tuple[str, ...] = BOUNDED + ENDLESS
    leaves: list[Leaf] = field(default_factory=list)
    windows_over_queries: int = 0

    def query(self) -> Query:
        """The whole query."""
        form = self._one_of("istream", "dstream", "rstream", often=3)
        if form == "rstream":
            self.forms = self._instantwise_forms()
        sequence = self._one_of("followed_by", "asof_join", "match_recognize", often=6)
        if sequence:
            body = self._match() if sequence == "match_recognize" else self._sequence(sequence)
        elif self._chance("raw", 10):
            body = self._raw()
        else:
            body = self._first_rows(self._relation(depth=1, kinds=None))
        cql = self._to_stream(body.cql, form) if form else body.cql
        relational = not (form or sequence or self.windows_over_queries)
        return Query(cql, body.sql if relational else None, body.columns, tuple(self.leaves))

    def _first_rows(self, body: Query) -> Query:
        if any(column.kind == "inexact" for column in body.columns):
            return body
        if self._chance("distinct_on", 8):
            head, tail = "SELECT DISTINCT ON (c0) * FROM (", f") AS {self._alias()}{in_order(body.columns)}"
            return replace(body, cql=f"{head}{body.cql}{tail}", sql=f"{head}{body.sql}{tail}")
        if not self._chance("limit", 6):
            return body
        first = first_rows(body.columns, self.choices.integer(0, 4), self.choices.integer(0, 1))
        return replace(body, cql=body.cql + first, sql=f"{body.sql}{first}")

    def _to_stream(self, cql: str, form: str) -> str:
        combined = any(f" {word} " in cql for word in ("UNION", "EXCEPT", "INTERSECT"))
        if cql.startswith("SELECT ") and not combined and self.choices.flag():
            return cql.replace("SELECT ", f"SELECT {form.upper()} ", 1)
        return f"SELECT {form.upper()} * FROM ({cql}) AS {self._alias()}"

    def _relation(self, depth: int, kinds: list[str] | None) -> Query:
        form = self._one_of(*SET_FORMS, often=4)
        if form is None:
            return self._block(depth, kinds)
        if kinds is None and not self.choices.chance(3):
            stream = self.choices.choose(self.streams)
            names = ["k", *self.choices.some([c.name for c in stream.columns[1:]], 0, 1)]
            left, right = self._plain_block(stream, names), self._plain_block(stream, names)
        else:
            kinds = kinds or [self.choices.choose(SET_KINDS) for _ in range(self.choices.integer(1, 2))]
            left, right = self._block(0, kinds), self._block(0, kinds)
        word = SET_FORMS[form]
        return Query(f"{left.cql} {word} {right.cql}", f"{left.sql} {word} {right.sql}", left.columns, ())

    def _plain_block(self, stream: StreamSpec, names: list[str]) -> Query:
        """Some columns of one windowed stream: two of these have rows in common."""
        source = leaf_source(self._leaf(self.forms, stream))
        items = [c for name in names for c in source.columns if c.cql.endswith(f".{name}")]
        e = self._expressions(source.columns)
        where = both("", " WHERE {}", e.condition(1)) if self._chance("where", 3) else Value("", "", "")
        head = self._items(items)
        cql, sql = f"{head.cql} FROM {source.cql}{where.cql}", f"{head.sql} FROM {source.sql}{where.sql}"
        return Query(f"SELECT {cql}", f"SELECT {sql}", _named(items), ())

    def _kinds(self, columns: tuple[Value, ...]) -> list[str]:
        """The kinds of the output, most often of columns at hand."""
        return [self._expressions(columns).any_kind() for _ in range(self.choices.integer(1, 4))]

    def _block(self, depth: int, kinds: list[str] | None) -> Query:
        """One SELECT with everything that belongs to it."""
        common, from_, columns, conditions = self._from(depth)
        if self._chance("where", 3):
            conditions.append(self._expressions(columns).condition())
        if self._chance("semi_join", 8) or self._chance("anti_join", 8):
            conditions.append(self._sub_query_condition(columns))
        where = joined(" AND ", conditions, " WHERE ")
        head, tail, output = self._head(columns, kinds)
        cql = f"{common.cql}SELECT {head.cql} FROM {from_.cql}{where.cql}{tail.cql}"
        sql = f"{common.sql}SELECT {head.sql} FROM {from_.sql}{where.sql}{tail.sql}"
        return Query(cql, sql, output, ())

    def _head(self, columns: tuple[Value, ...], kinds: list[str] | None) -> tuple[Value, Value, tuple[Value, ...]]:
        """The select list, what follows WHERE, and the output columns."""
        exact = kinds is not None
        kinds = kinds or self._kinds(columns)
        if self._chance("group_by", 3) or self._chance("global_aggregate", 8):
            made, tail = Aggregations(self.choices, self.constructs).draw(self._expressions(columns), kinds, exact)
            return self._items(made), tail, _named(made)
        e, tail = self._expressions(columns), Value("", "", "")
        items = [e.leaf(kind) if exact or self.choices.flag() else e.of(kind, 1) for kind in kinds]
        distinct = "DISTINCT " if self._chance("distinct", 5) else ""
        if e.allowed and not exact and not distinct and self.choices.chance(5):
            items.append(self.choices.choose(INEXACT)(e, 1))
        if not exact and not distinct and self._chance("over", 5):
            items.append(draw_over(e))
        if not exact and self._chance("scalar_subquery", 6):
            items.append(self._scalar(columns))
        if self._chance("qualify", 8):
            tail = both("", f" QUALIFY {{}} <= {self.choices.integer(1, 3)}", draw_place(e))
        return self._items(items, distinct), tail, _named(items)

    def _scalar(self, columns: tuple[Value, ...]) -> Value:
        """The value of a sub-query over another stream, most often about the same key."""
        leaf = leaf_source(self._leaf(self.forms))
        inner = self.choices.choose([c for c in leaf.columns if c.kind != "time"])
        form = self.choices.choose(["max({})", "min({})", "count({})"])
        tied = not self.choices.chance(3)
        on = self._join_condition(columns, leaf.columns, theta=self.choices.chance(4)) if tied else None
        where = joined(" AND ", [on] if on else [], " WHERE ")
        call = both("integer" if form.startswith("count") else inner.kind, form, inner)
        parts = ((call.cql, leaf.cql, where.cql), (call.sql, leaf.sql, where.sql))
        cql, sql = (f"(SELECT {a} FROM {b}{c})" for a, b, c in parts)
        return Value(cql, sql, call.kind)

    def _items(self, items: list[Value], distinct: str = "") -> Value:
        named = [both(item.kind, f"{{}} AS c{i}", item) for i, item in enumerate(items)]
        listed = joined(", ", named)
        return Value(distinct + listed.cql, distinct + listed.sql, "")

    def _from(self, depth: int) -> tuple[Value, Value, tuple[Value, ...], list[Value]]:
        """A WITH clause or nothing, the FROM clause, its columns, and conditions for WHERE."""
        common = Value("", "", "")
        joins = [
            j
            for j in ("inner_join", "theta_join", "cross_join", "left_join", "right_join", "full_join")
            if j in self.constructs
        ]
        count = self.choices.choose([1, 1, 1, 2, 2, 2, 3, 4] if depth else [1, 1, 1, 2, 2, 3]) if joins else 1
        if count > 2 and len(joins) > 1:
            joins = [j for j in joins if j != "cross_join"]
        source = self._source(depth)
        if depth and self._chance("with", 12):
            name = self._alias()
            inner = self._block(0, None)
            common = Value(f"WITH {name} AS ({inner.cql}) ", f"WITH {name} AS ({inner.sql}) ", "")
            source = Source(name, name, _qualified(name, inner.columns))
        text, columns, conditions = Value(source.cql, source.sql, ""), source.columns, []
        commas = self.choices.flag()
        if commas:
            joins = [j for j in joins if not j.startswith(("left", "right", "full"))] or joins
        for _ in range(min(count, self.most_joined) - 1):
            other = self._source(0)
            kind = self.choices.choose(joins)
            text, more = self._joined(text, columns, other, kind, commas)
            columns += other.columns
            conditions += more
        if self._chance("unnest", 6):
            other = self._elements(columns)
            text, columns = Value(f"{text.cql}, {other.cql}", f"{text.sql}, {other.sql}", ""), columns + other.columns
        return common, text, columns, conditions

    def _elements(self, columns: tuple[Value, ...]) -> Source:
        """The elements of a list of some columns of one kind, null at times, which is a function beside the rows."""
        kind = self.choices.choose([c.kind for c in columns if c.kind != "time"] or ["time"])
        same = [c for c in columns if c.kind == kind]
        listed = both("", "[{}]", joined(", ", [self.choices.choose(same) for _ in range(self.choices.integer(1, 3))]))
        made = both("", "CASE WHEN {} IS NOT NULL THEN {} END", self.choices.choose(columns), listed)
        alias = self._alias()
        text = both("", f"unnest({{}}) AS {alias}(e)", made)
        return Source(text.cql, text.sql, (Value(f"{alias}.e", f"{alias}.e", kind),))

    def _joined(
        self, left: Value, columns: tuple[Value, ...], other: Source, kind: str, commas: bool
    ) -> tuple[Value, list[Value]]:
        on = self._join_condition(columns, other.columns, theta=kind == "theta_join")
        if kind == "cross_join":
            on = None
        if commas and kind in ("inner_join", "theta_join", "cross_join"):
            return Value(f"{left.cql}, {other.cql}", f"{left.sql}, {other.sql}", ""), [on] if on else []
        word = {"left_join": "LEFT JOIN", "right_join": "RIGHT JOIN", "full_join": "FULL JOIN"}.get(kind, "JOIN")
        word, clause = (word, both("", " ON {}", on)) if on else ("CROSS JOIN", Value("", "", ""))
        cql, sql = (
            f"{a} {word} {b}{c}" for a, b, c in ((left.cql, other.cql, clause.cql), (left.sql, other.sql, clause.sql))
        )
        return Value(cql, sql, ""), []

    def _join_condition(self, left: tuple[Value, ...], right: tuple[Value, ...], theta: bool) -> Value | None:
        """Equality on one or two pairs of columns, or any other comparison between the sides."""
        pairs = [(a, b) for a in left for b in right if a.kind == b.kind and (theta or a.kind != "time")]
        if not pairs:
            return None
        keys = [p for p in pairs if p[0].cql.endswith(".k") and p[1].cql.endswith(".k")]
        first = keys[-1] if keys and not self.choices.chance(4) else self.choices.choose(pairs)
        e = self._expressions(left + right)
        symbol = e.pick("<", "<=", ">", "<>", "IS NOT DISTINCT FROM") if theta else "="
        parts = [both("boolean", f"{{}} {symbol} {{}}", *first)]
        if self.choices.chance(4):
            parts.append(both("boolean", f"{{}} {e.pick('=', '<=')} {{}}", *self.choices.choose(pairs)))
        if e.allowed and self.choices.chance(6):
            parts.append(e.condition(1))
        return joined(" AND ", parts)

    def _source(self, depth: int) -> Source:
        if depth and self._chance("subquery", 4):
            return self._sub_query_source()
        if depth and self.windows_over_queries < 1 and self._chance("window_over_subquery", 4):
            return self._windowed_sub_query()
        return leaf_source(self._leaf(self.forms))

    def _leaf(self, forms: tuple[str, ...], stream: StreamSpec | None = None) -> Leaf:
        stream = stream or self.choices.choose(self.streams)
        leaf = Leaf(self._alias(), stream, draw_window(self.choices, stream, self.constructs, forms))
        self.leaves.append(leaf)
        return leaf

    def _alias(self) -> str:
        self.names = getattr(self, "names", 0) + 1
        return f"q{self.names}"

    def _sub_query_source(self) -> Source:
        inner = self._relation(0, None)
        name = self._alias()
        return Source(f"({inner.cql}) AS {name}", f"({inner.sql}) AS {name}", _qualified(name, inner.columns))

    def _windowed_sub_query(self) -> Source:
        """A window over a sub-query, which is then looked at instant by instant and so must have few."""
        self.windows_over_queries += 1
        forms, self.forms = self.forms, self._instantwise_forms()
        inner = self._relation(0, None)
        self.forms = forms
        stream = replace(self.streams[0], columns=())
        usable = tuple(f for f in forms if f not in ("partitioned_rows", "valid_until"))
        window = draw_window(self.choices, stream, self.constructs, usable)
        window = replace(window, size=min(window.size, 5)) if window.form == "range" else window
        name = self._alias()
        text = f"({inner.cql}){window.cql(stream.time)} AS {name}"
        return Source(text, "", _qualified(name, inner.columns))

    def _instantwise_forms(self) -> tuple[str, ...]:
        return BOUNDED if self.streams[0].time.is_integer else ("now",)

    def _sub_query_condition(self, columns: tuple[Value, ...]) -> Value:
        """EXISTS or IN over another stream, most often about the same key."""
        leaf = leaf_source(self._leaf(self.forms))
        kinds = [k for k in ("semi_join", "anti_join") if k in self.constructs]
        negated = "NOT " if self.choices.choose(kinds) == "anti_join" else ""
        on = self._join_condition(columns, leaf.columns, theta=False)
        more = self._expressions(leaf.columns).condition(1) if self._chance("where", 4) else None
        if on is None or self.choices.flag():
            where = joined(" AND ", [part for part in (on, more) if part], " WHERE ")
            body = Value(f"SELECT 1 FROM {leaf.cql}{where.cql}", f"SELECT 1 FROM {leaf.sql}{where.sql}", "")
            return both("boolean", f"{negated}EXISTS ({{}})", body)
        pairs = [(a, b) for a in columns for b in leaf.columns if a.kind == b.kind != "time"]
        outer, inner = self.choices.choose(pairs)
        where = joined(" AND ", [more] if more else [], " WHERE ")
        body = Value(
            f"SELECT {inner.cql} FROM {leaf.cql}{where.cql}", f"SELECT {inner.sql} FROM {leaf.sql}{where.sql}", ""
        )
        return both("boolean", f"{{}} {negated}IN ({{}})", outer, body)

    def _raw(self) -> Query:
        """A stream without a window: selected, projected, united."""

        def block(kinds: list[str]) -> Query:
            stream = self.choices.choose(self.streams)
            leaf = Leaf(self._alias(), stream, WindowChoice("raw"))
            self.leaves.append(leaf)
            source = leaf_source(leaf)
            e = self._expressions(source.columns)
            items = [e.of(kind, 1) for kind in kinds]
            where = both("", " WHERE {}", e.condition()) if "where" in self.constructs else Value("", "", "")
            head = self._items(items)
            return Query(
                f"SELECT {head.cql} FROM {source.cql}{where.cql}",
                f"SELECT {head.sql} FROM {source.sql}{where.sql}",
                _named(items),
                (),
            )

        kinds = [self.choices.choose(SET_KINDS) for _ in range(self.choices.integer(1, 3))]
        first = block(kinds)
        if not self._chance("union_all", 2):
            return first
        second = block(kinds)
        return Query(f"{first.cql} UNION ALL {second.cql}", f"{first.sql} UNION ALL {second.sql}", first.columns, ())

    def _sequence(self, form: str) -> Query:
        """A chain of streams in which each follows the one before."""
        count = self.choices.choose([2, 2, 3]) if form == "followed_by" else 2
        leaves = [Leaf(self._alias(), self.choices.choose(self.streams), WindowChoice("raw")) for _ in range(count)]
        sources = [leaf_source(leaf) for leaf in leaves]
        text = sources[0].cql
        for before, after in zip(leaves, leaves[1:], strict=False):
            on = f" ON {before.alias}.k = {after.alias}.k"
            if form == "followed_by":
                absent = after is leaves[-1] and self.choices.chance(4)
                mode = "" if absent else self.choices.choose([" RECENT", " CHRONICLE", " ALL"])
                step = f"{'NOT ' * absent}FOLLOWED BY {leaf_source(after).cql}{mode}{on if self.choices.flag() else ''}"
            else:
                order = self.choices.choose(["", "<=", "<", ">=", ">"])
                times = f" AND {before.alias}.ts {order} {after.alias}.ts" if order else ""
                step = f"ASOF {self.choices.choose(['', 'LEFT '])}JOIN {leaf_source(after).cql}{on}{times}"
            within = f" WITHIN {after.stream.time.duration(self.choices.integer(0, 15))}"
            must = step.startswith("NOT") or ("ASOF LEFT" in step and ".ts <" in step)
            text += f" {step}{within if self.choices.flag() or must else ''}"
        columns = tuple(column for source in sources[: count - ("NOT FOLLOWED" in text)] for column in source.columns)
        return self._of_stream(text, columns)

    def _match(self) -> Query:
        """Rows of one stream, one right after the other, that fit a pattern."""
        stream, alias, choose = self.choices.choose(self.streams), self._alias(), self.choices.choose
        pattern, partition = choose(PATTERNS), choose(["PARTITION BY k ", ""])
        defined = ", ".join(f"{symbol} AS {choose(DEFINED)}" for symbol in "bc" if symbol in pattern)
        text = (
            f"{stream.name} MATCH_RECOGNIZE ({partition}ORDER BY ts "
            "MEASURES FIRST(a.v) AS m0, LAST(b.v) AS m1, COUNT(b.v) AS m2"
            f"{choose(['', ' ALL ROWS PER MATCH'])}{choose(SKIPPED)} PATTERN ({pattern}) "
            f"WITHIN {stream.time.duration(self.choices.integer(1, 15))} DEFINE {defined}) AS {alias}"
        )
        names = [*(["k"] if partition else []), "m0", "m1", "m2"]
        return self._of_stream(text, tuple(Value(f"{alias}.{n}", f"{alias}.{n}", "integer") for n in names))

    def _of_stream(self, text: str, columns: tuple[Value, ...]) -> Query:
        """What is selected of rows that were found."""
        e = self._expressions(columns)
        items = [e.of(kind, 1) for kind in self._kinds(columns)]
        where = f" WHERE {e.condition(1).cql}" if "where" in self.constructs and self.choices.flag() else ""
        return Query(f"SELECT {self._items(items).cql} FROM {text}{where}", None, _named(items), ())

    def _expressions(self, columns: tuple[Value, ...]) -> Expressions:
        return Expressions(self.choices, columns, "expressions" in self.constructs)

    def _chance(self, construct: str, one_in: int) -> bool:
        return construct in self.constructs and self.choices.chance(one_in)

    def _one_of(self, *constructs: str, often: int) -> str | None:
        """One of the allowed constructs, one time in `often`."""
        allowed = [c for c in constructs if c in self.constructs]
        if not allowed or not self.choices.chance(often):
            return None
        return self.choices.choose(allowed)


def _named(items: list[Value]) -> tuple[Value, ...]:
    return tuple(Value(f"c{i}", f"c{i}", item.kind) for i, item in enumerate(items))


def _qualified(name: str, columns: tuple[Value, ...]) -> tuple[Value, ...]:
    return tuple(Value(f"{name}.{c.cql}", f"{name}.{c.sql}", c.kind) for c in columns)
