"""What column names mean inside one SELECT.

A scope lists the sources of FROM as written, in parts: those between two commas. USING merges two columns of a part
into one that has no source. A sub-query also sees the scope around it: all of it, or what its domain has of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

import pyarrow as pa
from sqlglot import exp

from midstream.algebra.expressions import Column, Expression, columns_of, substitute
from midstream.errors import QueryError
from midstream.language.binding import Beyond, Binding, match_name, nearest
from midstream.language.query_grammar import TO_STREAM

BOUNDS = ("window_start", "window_end")
"""How the columns are called that say when a row's window begins and ends."""


@dataclass(frozen=True, slots=True)
class ScopeSource:
    """A stream or sub-query in FROM: its visible name, its columns by visible name, and its part of FROM.

    `bounds` are other names: of columns of its window, and of a function's rows, which `*` does not name; `others` are
    what columns without names are called elsewhere, if nothing else is called so.
    """

    name: str
    columns: dict[str, Column]
    part: int = 0
    time: Column | None = None
    bounds: dict[str, Column] = field(default_factory=dict)
    others: dict[str, Column] = field(default_factory=dict)

    @property
    def named(self) -> dict[str, Column]:
        """All that can be named: a source's own columns before those of its window."""
        return {**self.bounds, **self.columns}


@dataclass(frozen=True, slots=True)
class Merged:
    """A column that USING made of those it hides; `qualified` is how one of them is written with its source."""

    name: str
    expression: Expression
    qualified: str
    part: int
    hides: frozenset[str]


@dataclass
class Scope:
    """The sources and merged columns of one SELECT, and the scope around it if names may come from there."""

    binding: Binding
    sources: list[ScopeSource] = field(default_factory=list)
    merged: list[Merged] = field(default_factory=list)
    hidden: set[str] = field(default_factory=set)
    outer: Scope | None = None
    part: int = 0
    domain: Mapping[str, Expression] | None = None

    def add(
        self, name: str, schema: pa.Schema, columns: list[str], node: exp.Expression, time: str | None = None
    ) -> ScopeSource:
        """A new source, whose columns are visible under other names."""
        self._require_new(name, node)
        fields = zip(columns, schema, strict=True)
        known = {visible: Column(f.name, f.type) for visible, f in fields}
        source = ScopeSource(name, known, self.part, None if time is None else known[time])
        self.sources.append(source)
        return source

    def take_in(self, inner: Scope, node: exp.Expression) -> None:
        """Adds what joins in parentheses have brought."""
        for source in inner.sources:
            self._require_new(source.name, node)
        self.sources += inner.sources
        self.merged += inner.merged
        self.hidden |= inner.hidden

    def _require_new(self, name: str, node: exp.Expression) -> None:
        if any(source.name == name for source in self.sources):
            raise self.binding.error(
                f"{name} is used twice in FROM", node, hint=f"give one of them another name: {name} AS {name}2"
            )

    def latest_part(self, outer: Scope | None = None) -> Scope:
        """The part of FROM that is being read, which is all that USING sees and the first that ON looks at."""
        sources = [s for s in self.sources if s.part == self.part]
        merged = [m for m in self.merged if m.part == self.part]
        return Scope(self.binding, sources, merged, self.hidden, outer, self.part)

    def merge(self, name: str, expression: Expression, hidden: set[str]) -> None:
        """One visible column in the place of several of this part, the latest source's among them."""
        self.hidden |= hidden
        others = [m for m in self.merged if (m.name, m.part) != (name, self.part)]
        hides = frozenset(hidden).union(*(m.hides for m in self.merged if m not in others))
        self.merged = [*others, Merged(name, expression, f"{self.sources[-1].name}.{name}", self.part, hides)]

    def resolve(self, node: exp.Column) -> tuple[str, Expression]:
        """The visible name and the meaning of a column."""
        scope: Scope | None = self
        domains: list[Mapping[str, Expression]] = []
        while scope is not None:
            found = scope._find(node)
            if found is not None:
                return found[0], self._inside(found[1], domains, node)
            domains += [] if scope.domain is None else [scope.domain]
            scope = scope.outer
        named = [s for s in self.sources if not node.args.get("table") or match_name(node.args["table"], [s.name])]
        unnamed = [s.others[node.name.lower()] for s in named if node.name.lower() in s.others]
        if len(unnamed) == 1:
            return node.name, unnamed[0]
        raise self._unknown(node)

    def _inside(self, value: Expression, domains: list[Mapping[str, Expression]], node: exp.Column) -> Expression:
        """What a value around sub-queries is within them."""
        for domain in reversed(domains):
            missing = sorted(columns_of(value) - set(domain))
            if missing:
                message = f"{node.name} belongs to the query around this one"
                raise Beyond(self.binding.error(message, node, hint="join with what it names"), missing[0])
            value = substitute(value, dict(domain))
        return value

    def knows(self, node: exp.Column) -> bool:
        """Whether a column name means something here."""
        return self._find(node) is not None

    def nested(self, node: exp.Column) -> exp.Identifier | None:
        """The column that holds a field, if `column.field` is what is written and no source has the name."""
        table: exp.Identifier = node.args["table"]
        scopes = [self, *([self.outer] if self.outer else [])]
        if any(match_name(table, [s.name for s in scope.sources]) for scope in scopes):
            return None
        return table if self.knows(exp.Column(this=table)) else None

    def row(self, node: exp.Column) -> ScopeSource | None:
        """The source whose rows a name means, if no column has it."""
        found = [] if self.knows(node) else match_name(node.this, [s.name for s in self.sources])
        return self.source(node.this) if found else None

    def everything(self) -> Iterator[tuple[str, Expression]]:
        """All visible columns in the order of `SELECT *`: a merged one where the first of those that it hides is."""
        left = list(self.merged)
        for source in sorted(self.sources, key=lambda source: source.part):
            for name, column in source.columns.items():
                if column.name not in self.hidden:
                    yield name, column
                for merged in [m for m in left if column.name in m.hides]:
                    left.remove(merged)
                    yield merged.name, merged.expression

    def source(self, name: exp.Identifier) -> ScopeSource:
        """A source by its name, of this query or of one around it."""
        found = match_name(name, [s.name for s in self.sources])
        if len(found) == 1:
            return next(s for s in self.sources if s.name == found[0])
        if not found and self.outer is not None:
            with suppress(QueryError):
                return self.outer.source(name)
        raise self._unknown_source(name, found)

    def _find(self, node: exp.Column) -> tuple[str, Expression] | None:
        table, name = node.args.get("table"), node.this
        if table is not None:
            if not match_name(table, [s.name for s in self.sources]):
                return None
            columns = self.source(table).named
            found = match_name(name, columns)
            if len(found) > 1:
                raise self.binding.ambiguous(name, [f'"{one}"' for one in found])
            return (found[0], columns[found[0]]) if found else None
        return self._unqualified(name, node)

    def _unqualified(self, name: exp.Identifier, node: exp.Column) -> tuple[str, Expression] | None:
        """A column by its name alone; a merged one stands for all of its part that have the name."""
        merged = [m for m in self.merged if match_name(name, [m.name])]
        hits = [(m.name, m.expression, m.qualified) for m in merged]
        for source in self.sources:
            if all(m.part != source.part for m in merged):
                hits += [
                    (found, source.named[found], f"{source.name}.{found}") for found in match_name(name, source.named)
                ]
        hits = [hit for hit in hits if hit[0] == name.name] or hits
        if len(hits) > 1:
            raise self.binding.ambiguous(name, [qualified for _, _, qualified in hits], node)
        return hits[0][:2] if hits else None

    def _unknown(self, node: exp.Column) -> Exception:
        table, name = node.args.get("table"), node.this
        if table is not None:
            source = self.source(table)
            return self.binding.error(
                f"{source.name} has no column {name.name}", name, hint=nearest(name.name, source.columns, "columns")
            )
        known = [c for s in self.sources for c in s.columns]
        hint = nearest(name.name, known, "columns") if self.sources else "there is no FROM: write SELECT … FROM A"
        if name.name.upper() in TO_STREAM:
            hint = f"{name.name.upper()} stands right after SELECT, before DISTINCT"
        if name.name.casefold() in BOUNDS:
            hint = f"{name.name} is a column of [TUMBLE …], [HOP …], [CUMULATE …] and [SESSION …] windows"
        if name.args.get("quoted"):
            hint = f"{hint or ''} (a text stands in single quotes: '{name.name}')".lstrip()
        return self.binding.error(f"unknown column {name.name}", node, hint=hint)

    def _unknown_source(self, name: exp.Identifier, found: list[str]) -> Exception:
        if found:
            return self.binding.ambiguous(name, [f'"{one}"' for one in found])
        known = [s.name for s in self.sources]
        return self.binding.error(f"{name.name} is not in FROM", name, hint=nearest(name.name, known, "names"))


def shared_names(before: Scope, added: Scope) -> list[exp.Identifier]:
    """The names that two sides of a NATURAL JOIN have in common."""
    there = [name for name, _ in added.everything()]
    names = [name for name, _ in before.everything() if any(name.casefold() == n.casefold() for n in there)]
    return [exp.Identifier(this=name, quoted=False) for name in dict.fromkeys(names)]
