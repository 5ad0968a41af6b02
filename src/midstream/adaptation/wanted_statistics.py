"""What is worth knowing about the streams of a query: exactly what the optimizer would ask for.

The optimizer is let loose on statistics that know nothing but note every question. So what is observed and what is
asked cannot drift apart.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from midstream.algebra.expressions import Column, Expression, columns_of, substitute
from midstream.algebra.plan import Relation, streams_of
from midstream.algebra.statistics import Statistics
from midstream.optimizer.estimates import Estimator
from midstream.optimizer.join_graph import JoinGraph, bits
from midstream.optimizer.origins import origin
from midstream.optimizer.prepare import as_written, normalize, prepare
from midstream.optimizer.variants import marked, possible_marks


@dataclass(frozen=True, slots=True)
class WantedStatistics:
    """Per alias the keys by text and the selections; beside them conditions over several streams.

    `classes` says which keys are compared with each other. Everything is in words of the streams' columns.
    """

    keys: Mapping[str, Mapping[str, tuple[Expression, ...]]]
    selections: Mapping[str, tuple[tuple[str, Expression], ...]]
    pairs: tuple[tuple[str, Expression, tuple[str, ...]], ...]
    classes: tuple[frozenset[str], ...]

    def columns(self, alias: str) -> frozenset[str]:
        """The columns of a source that have to be seen, with its alias."""
        terms = [term for terms in self.keys.get(alias, {}).values() for term in terms]
        terms += [condition for _, condition in self.selections.get(alias, ())]
        terms += [condition for _, condition, owners in self.pairs if alias in owners]
        names = frozenset[str]().union(*(columns_of(term) for term in terms))
        return frozenset(name for name in names if name.startswith(f"{alias}."))


class _Asked(Mapping[str, Any]):
    """Knows nothing and remembers what it was asked for."""

    def __init__(self) -> None:
        self.texts: dict[str, None] = {}

    def __getitem__(self, text: str) -> Any:
        self.texts[text] = None
        raise KeyError(text)

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 1


def wanted_statistics_of(query: Relation) -> WantedStatistics:
    """What the optimizer asks about the streams of a query, over its variants."""
    normal = normalize(query)
    asked = _Asked()
    estimator = Estimator(Statistics(keys=asked))
    graphs: list[JoinGraph] = []

    def note(graph: JoinGraph) -> Relation:
        graphs.append(graph)
        return as_written(graph)

    marks = possible_marks(normal)
    for variant in [frozenset(), *(frozenset({m}) for m in marks)]:
        estimator.cost(prepare(marked(normal, frozenset(variant)), note))
    return _sorted_out(query, graphs, asked)


def _sorted_out(query: Relation, graphs: list[JoinGraph], asked: _Asked) -> WantedStatistics:
    keys: dict[str, dict[str, tuple[Expression, ...]]] = {s.alias: {} for s in streams_of(query)}
    selections: dict[str, dict[str, Expression]] = {alias: {} for alias in keys}
    pairs: dict[str, tuple[Expression, tuple[str, ...]]] = {}
    classes: dict[frozenset[str], None] = {}
    for graph in graphs:
        for terms in graph.equal_terms:
            known = [t for t in (_over_streams(graph, term) for term, _ in terms) if t is not None]
            for term in known:
                keys[_alias(term)][str(term)] = (term,)
            classes[frozenset(map(str, known))] = None
        for condition, _ in graph.other_conditions:
            over = _over_streams(graph, condition)
            owners = sorted({name.partition(".")[0] for name in columns_of(over)}) if over is not None else []
            if over is not None and len(owners) == 1:
                selections[owners[0]][str(condition)] = over
            elif over is not None and len(owners) > 1:
                pairs[str(condition)] = over, tuple(owners)
    columns = {f"{s.alias}.{f.name}": f.type for s in streams_of(query) for f in s.columns}
    for text in asked.texts:
        names = text.split(", ")
        aliases = {name.partition(".")[0] for name in names}
        if all(name in columns for name in names) and len(aliases) == 1:
            keys[aliases.pop()].setdefault(text, tuple(Column(name, columns[name]) for name in names))
    return WantedStatistics(
        keys,
        {alias: tuple(found.items()) for alias, found in selections.items()},
        tuple((text, over, owners) for text, (over, owners) in pairs.items()),
        tuple(classes),
    )


def _over_streams(graph: JoinGraph, expression: Expression) -> Expression | None:
    """An expression in words of the streams' own columns; None if it is about something computed."""
    by_name: dict[str, Expression] = {}
    for number in bits(graph.mask(expression)):
        relation = graph.inputs[number]
        for name in columns_of(expression) & set(relation.schema.names):
            found = origin(relation, name)
            if found is None:
                return None
            by_name[name] = found
    return substitute(expression, by_name) if by_name else None


def _alias(term: Expression) -> str:
    return next(iter(columns_of(term))).partition(".")[0]
