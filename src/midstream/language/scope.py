"""What column names mean inside one SELECT.

A scope lists the sources of FROM as written. USING merges two columns into one that has no source. A sub-query of
WHERE also sees the scope around it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from sqlglot import exp

from midstream.algebra.expressions import Column, Expression
from midstream.algebra.plan import Relation
from midstream.language.binding import Binding, match_name, nearest
from midstream.language.query_grammar import TO_STREAM


@dataclass(frozen=True, slots=True)
class Source:
    """A stream or sub-query in FROM: its visible name, and its columns by visible name."""

    name: str
    columns: dict[str, Column]


@dataclass
class Scope:
    """The sources and merged columns of one SELECT, and the scope around it if names may come from there."""

    binding: Binding
    sources: list[Source] = field(default_factory=list)
    merged: dict[str, Expression] = field(default_factory=dict)
    hidden: set[str] = field(default_factory=set)
    outer: Scope | None = None

    def add(self, name: str, relation: Relation, columns: list[str], node: exp.Expression) -> Source:
        """A new source, whose relation's columns are visible under other names."""
        if any(source.name == name for source in self.sources):
            raise self.binding.error(
                f"{name} is used twice in FROM", node, hint=f"give one of them another name: {name} AS {name}2"
            )
        fields = zip(columns, relation.schema, strict=True)
        source = Source(name, {visible: Column(f.name, f.type) for visible, f in fields})
        self.sources.append(source)
        return source

    def resolve(self, node: exp.Column) -> tuple[str, Expression]:
        """The visible name and the meaning of a column."""
        found = self._find(node)
        if found is None and self.outer is not None:
            found = self.outer._find(node)
        if found is None:
            raise self._unknown(node)
        return found

    def knows(self, node: exp.Column) -> bool:
        """Whether a column name means something here."""
        return self._find(node) is not None

    def everything(self) -> Iterator[tuple[str, Expression]]:
        """All visible columns in the order of `SELECT *`."""
        yield from self.merged.items()
        for source in self.sources:
            for name, column in source.columns.items():
                if column.name not in self.hidden:
                    yield name, column

    def source(self, name: exp.Identifier) -> Source:
        """A source by its name."""
        found = match_name(name, [s.name for s in self.sources])
        if len(found) == 1:
            return next(s for s in self.sources if s.name == found[0])
        raise self._unknown_source(name, found)

    def _find(self, node: exp.Column) -> tuple[str, Expression] | None:
        table, name = node.args.get("table"), node.this
        if table is not None:
            if not match_name(table, [s.name for s in self.sources]):
                return None
            columns = self.source(table).columns
            found = self._only(name, match_name(name, columns), name)
            return None if found is None else (found, columns[found])
        merged = self._only(name, match_name(name, self.merged), node)
        if merged is not None:
            return merged, self.merged[merged]
        return self._unqualified(name, node)

    def _unqualified(self, name: exp.Identifier, node: exp.Column) -> tuple[str, Expression] | None:
        hits = [(s, found) for s in self.sources for found in match_name(name, s.columns)]
        exact = [(s, found) for s, found in hits if found == name.name]
        hits = exact or hits
        if len(hits) > 1:
            options = " or ".join(f"{s.name}.{found}" for s, found in hits)
            raise self.binding.error(f"{name.name} is ambiguous", node, hint=f"write {options}")
        return (hits[0][1], hits[0][0].columns[hits[0][1]]) if hits else None

    def _only(self, name: exp.Identifier, found: list[str], node: exp.Expression) -> str | None:
        if len(found) > 1:
            options = " or ".join(f'"{f}"' for f in found)
            raise self.binding.error(f"{name.name} is ambiguous", node, hint=f"write {options}")
        return found[0] if found else None

    def _unknown(self, node: exp.Column) -> Exception:
        table, name = node.args.get("table"), node.this
        if any(scope.knows(node) for scope in self.binding.around):
            return self.binding.error(
                f"{name.name} belongs to the query around this one",
                node,
                hint="only WHERE of a plain EXISTS or IN sub-query can name columns from outside, one level up",
            )
        if table is not None:
            names = [s.name for s in self.sources] + [s.name for s in (self.outer.sources if self.outer else [])]
            if not match_name(table, names):
                return self._unknown_source(table, [])
            holder = self if match_name(table, [s.name for s in self.sources]) else self.outer
            source = (holder or self).source(table)
            return self.binding.error(
                f"{source.name} has no column {name.name}", name, hint=nearest(name.name, source.columns)
            )
        known = [c for s in self.sources for c in s.columns]
        hint = nearest(name.name, known)
        if name.name.upper() in TO_STREAM:
            hint = f"{name.name.upper()} stands right after SELECT, before DISTINCT"
        if name.args.get("quoted"):
            hint = f"{hint or ''} (a text stands in single quotes: '{name.name}')".lstrip()
        return self.binding.error(f"unknown column {name.name}", node, hint=hint)

    def _unknown_source(self, name: exp.Identifier, found: list[str]) -> Exception:
        if found:
            options = " or ".join(f'"{f}"' for f in found)
            return self.binding.error(f"{name.name} is ambiguous", name, hint=f"write {options}")
        known = [s.name for s in self.sources]
        return self.binding.error(f"{name.name} is not in FROM", name, hint=nearest(name.name, known))
