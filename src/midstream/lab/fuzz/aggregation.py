"""Random aggregations: keys, sets of keys, aggregates, and conditions on groups."""

from __future__ import annotations

from dataclasses import dataclass

from midstream.lab.fuzz.choices import Choices
from midstream.lab.fuzz.expressions import COMPARISONS, Expressions, Value, both, joined

SETS = ("ROLLUP ({}, {})", "CUBE ({}, {})", "GROUPING SETS (({}), ({}), ())", "GROUPING SETS (({}, {}), ())")


@dataclass(frozen=True)
class Aggregations:
    """Draws what an aggregation selects, and its GROUP BY and HAVING."""

    choices: Choices
    constructs: frozenset[str]

    def draw(self, e: Expressions, kinds: list[str], exact: bool) -> tuple[list[Value], Value]:
        """Keys and aggregates of given kinds, and the clauses behind WHERE."""
        only_global = "group_by" not in self.constructs or self._chance("global_aggregate", 3)
        keys = [] if only_global else [self._key(e, kinds[0])]
        sets = bool(keys) and len(kinds) > 1 and self._chance("grouping_sets", 3)
        if sets:
            keys.append(self._key(e, kinds[1]))
            sets = keys[0] != keys[1]
        items = [*keys, *(self.aggregate(e, kind, exact) for kind in kinds[len(keys) :])]
        if not exact and self.choices.flag():
            items.append(self.aggregate(e, "integer"))
        group = both("", f" GROUP BY {e.pick(*SETS)}", *keys) if sets else joined(", ", keys, " GROUP BY ")
        having = self._having(e, bool(keys) and not sets)
        return items, Value(group.cql + having.cql, group.sql + having.sql, "")

    def _key(self, e: Expressions, kind: str) -> Value:
        """Something to group by that depends on the row: a constant would be read as a position."""
        key = e.of(kind, 1) if self.choices.chance(4) else e.leaf(kind)
        if any(c.sql in key.sql for c in e.columns):
            return key
        return both(kind, "CASE WHEN {} IS NULL THEN {} END", e.choices.choose(e.columns), key)

    def _having(self, e: Expressions, grouped: bool) -> Value:
        parts = []
        if self._chance("having", 3):
            subject = self.aggregate(e, "integer")
            parts.append(both("boolean", f"{{}} {e.pick(*COMPARISONS)} {self.choices.integer(0, 3)}", subject))
        having = joined(" AND ", parts, " HAVING ")
        if grouped:
            return having
        # A continuous query has no row for an aggregate over nothing, a database has one.
        return Value(having.cql, (having.sql + " AND " if having.sql else " HAVING ") + "count(*) > 0", "")

    def aggregate(self, e: Expressions, kind: str, exact: bool = True) -> Value:
        """An aggregate whose value is of a kind, and does not depend on the order of adding if it is to be exact."""
        argument = e.of(kind, 1)
        distinct = "DISTINCT " if self._chance("distinct_aggregate", 4) else ""
        filtered = self._chance("filter", 5)
        where = both("", " FILTER (WHERE {})", e.condition(1)) if filtered else Value("", "", "")
        if self._chance("lists", 6):
            way, place = e.pick("", " DESC", " NULLS FIRST", " DESC NULLS LAST"), e.pick("1", "2", "-1")
            return both(kind, f"(array_agg({distinct}{{}} ORDER BY {{}}{way}){{}})[{place}]", argument, argument, where)
        match kind:
            case "integer":
                form = e.pick("count(*)", f"count({distinct}{{}})", f"sum({distinct}{{}})", "min({})", "max({})")
                sql = f"CAST({form}{{}} AS BIGINT)" if form.startswith("sum") else f"{form}{{}}"
                argument = e.of(e.any_kind(), 1) if form.startswith("count") else argument
                parts = [where] if form == "count(*)" else [argument, where]
                return both(kind, form + "{}", *parts, sql=sql)
            case "double" if not exact:
                names = ("avg", "sum", "stddev", "stddev_pop", "variance", "var_pop")
                name = e.pick(*names[:2] if distinct else names)
                sql = f"{name.replace('variance', 'var_samp')}({distinct}{{}}){{}}"
                return both("inexact", f"{name}({distinct}{{}}){{}}", argument, where, sql=sql)
            case "decimal":
                return both(kind, f"{e.pick('sum', 'min', 'max')}({{}}){{}}", argument, where)
            case _:
                return both(kind, f"{e.pick('min', 'max')}({{}}){{}}", argument, where)

    def _chance(self, construct: str, one_in: int) -> bool:
        return construct in self.constructs and self.choices.chance(one_in)
