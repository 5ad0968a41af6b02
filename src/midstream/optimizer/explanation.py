"""Why a plan was chosen: costs node by node, the best alternatives, and what would have to change for each to win."""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from midstream.algebra.plan import Join, MultiJoin, Relation, Select, Stream, Window, render
from midstream.algebra.statistics import UNKNOWN, Estimate, KeyProfile, Statistics, StreamStatistics
from midstream.algebra.time import TimeDomain, amount, rate, share, work
from midstream.optimizer.cost import Constants
from midstream.optimizer.estimates import Estimator
from midstream.optimizer.join_graph import join_graph
from midstream.optimizer.plans import Plan, enumerate_plans

ALTERNATIVES = 3
FACTORS = tuple(2.0**i for i in (1, 2, 3, 4, 6, 8, 10))
"""By what a rate or a selectivity is multiplied or divided, in search of what would make an alternative win."""


@dataclass(frozen=True, slots=True)
class Alternative:
    """Another plan, what it costs, and the least change found under which it would win; none if it wins already."""

    plan: Plan
    cost: float
    wins_if: str | None


@dataclass(frozen=True, slots=True)
class Explanation:
    """A plan with its cost per node, and its rivals."""

    plan: Plan
    statistics: Statistics
    cost: float
    nodes: tuple[tuple[int, Relation, str], ...]
    alternatives: tuple[Alternative, ...]
    tree: str

    @property
    def why(self) -> str:
        """The choice in one paragraph."""
        known = (
            "what was seen of the streams"
            if self.statistics is not UNKNOWN
            else "guesses, as nothing is known of the streams"
        )
        text = f"By {known}, {self.plan.text or 'the only plan'} costs {work(self.cost, self.plan.query.domain)}."
        if not self.alternatives:
            return f"{text} There is no other plan to compare it with."
        parts = []
        for other in self.alternatives:
            more = other.cost / self.cost - 1 if self.cost else 0.0
            costs = rate(other.cost, self.plan.query.domain)
            parts.append(f"{other.plan.text} costs {costs} ({more:+.0%}); {self._change(other)}")
        rivals = "It is not the best" if self.beaten_by(self.alternatives[0]) else "The next best"
        return f"{text} {rivals}: {'. '.join(parts)}."

    def beaten_by(self, other: Alternative) -> bool:
        """Whether another plan is cheaper already: this one was asked for, not chosen."""
        return _is_cheaper(other.cost, self.cost)

    def _change(self, other: Alternative) -> str:
        if self.beaten_by(other):
            return "it is cheaper as things are"
        return (
            f"it would win if {other.wins_if}"
            if other.wins_if
            else "no single change of a rate or selectivity lets it win"
        )

    def as_dict(self) -> dict[str, Any]:
        """All of it as plain values."""
        return {
            "plan": self.plan.text,
            "cost": self.cost,
            "nodes": [{"depth": d, "node": n.label, "note": note} for d, n, note in self.nodes],
            "alternatives": [{"plan": a.plan.text, "cost": a.cost, "wins_if": a.wins_if} for a in self.alternatives],
            "why": self.why,
        }


def explain_plan(plan: Plan, statistics: Statistics | None = None) -> Explanation:
    """Explains a plan against the alternatives under the same statistics."""
    known = statistics or UNKNOWN
    estimator = Estimator(known, plan.emission, Constants().by_tick(plan.query.domain))
    cost = estimator.per_tick(plan.logical)
    rivals = enumerate_plans(plan.query, statistics=statistics)
    ranked = sorted((p for p in rivals if p.text != plan.text), key=lambda p: estimator.per_tick(p.logical))
    unique = list({p.text: p for p in reversed(ranked)}.values())[::-1][:ALTERNATIVES]
    others = tuple(_alternative(plan, cost, p, estimator) for p in unique)
    notes = _notes(plan.logical, estimator, plan.query.domain)

    def noted(node: Relation) -> str:
        return _note(node, estimator, plan.query.domain)

    return Explanation(plan, known, cost, notes, others, render(plan.logical, noted))


def _alternative(plan: Plan, cost: float, other: Plan, estimator: Estimator) -> Alternative:
    its = estimator.per_tick(other.logical)
    return Alternative(other, its, None if _is_cheaper(its, cost) else _wins_if(plan, other, estimator))


def _notes(
    plan: Relation, estimator: Estimator, domain: TimeDomain, depth: int = 0
) -> tuple[tuple[int, Relation, str], ...]:
    found = [(depth, plan, _note(plan, estimator, domain))]
    for child in plan.inputs:
        found += _notes(child, estimator, domain, depth + 1)
    return tuple(found)


def _note(node: Relation, estimator: Estimator, domain: TimeDomain) -> str:
    """Rate, population and cost of a node; the selectivity of what selects or joins."""
    if isinstance(node, Stream):
        return ""
    flow = estimator.flow(node)
    parts = [rate(flow.rate, domain), f"holds {amount(flow.population)}"]
    selected = _selectivity(node, estimator)
    if selected is not None:
        parts.append(f"selectivity {share(selected)}")
    own = estimator.own_cost(node).per_tick(estimator.constants)
    if own and not isinstance(node, Window):
        parts.append(f"cost {rate(own, domain)}")
    return f"[{', '.join(parts)}]"


def _selectivity(node: Relation, estimator: Estimator) -> float | None:
    if isinstance(node, Select):
        below = estimator.flow(node.input).population
        return estimator.flow(node).population / below if below else None
    if isinstance(node, Join | MultiJoin) and getattr(node, "kind", "inner") == "inner":
        combinations = 1.0
        for child in node.inputs:
            combinations *= estimator.flow(child).population
        return estimator.flow(node).population / combinations if combinations else None
    return None


def _wins_if(plan: Plan, other: Plan, estimator: Estimator) -> str | None:
    """The smallest change of one rate or one selectivity under which the other plan is cheaper."""
    for factor in FACTORS:
        for text, changed in _changes(plan, estimator, factor):
            if _is_cheaper(changed.per_tick(other.logical), changed.per_tick(plan.logical)):
                return text
    return None


def _is_cheaper(cost: float, than: float) -> bool:
    return cost < than * (1 - 1e-6)


def _changes(plan: Plan, estimator: Estimator, factor: float) -> list[tuple[str, Estimator]]:
    found = []
    for alias, flow in _rates(plan, estimator).items():
        for times, word in ((factor, "rose"), (1 / factor, "fell")):
            streams = dict(estimator.statistics.streams)
            known = streams.get(alias) or StreamStatistics(Estimate(flow))
            streams[alias] = replace(known, rate=Estimate(flow * times), population=known.population * times)
            text = f"the rate of {alias} {word} {factor:g} times"
            found.append((text, _with(estimator, replace(estimator.statistics, streams=MappingProxyType(streams)))))
    for terms in {t for g in _graphs(plan.logical) for t in g}:
        for times, word in ((factor, "more"), (1 / factor, "fewer")):
            text = f"{' = '.join(sorted(terms))} held for {factor:g} times {word} pairs"
            found.append((text, _Scaled(estimator, terms, times)))
    return found


class _Scaled(Estimator):
    """An estimator in whose world one equality holds more or less often."""

    def __init__(self, like: Estimator, terms: frozenset[str], times: float) -> None:
        super().__init__(like.statistics, like.emission, like.constants, like.spread)
        self.terms, self.times, self.like = terms, times, like

    def equality(self, terms: frozenset[str]) -> float | None:
        """The selectivity, multiplied if it is about the terms in question."""
        measured = self.like.equality(terms)
        if measured is None:
            return None
        return min(1.0, measured * self.times) if self.terms <= terms else measured


def _with(estimator: Estimator, statistics: Statistics) -> Estimator:
    return Estimator(statistics, estimator.emission, estimator.constants, estimator.spread, estimator.topology)


def _rates(plan: Plan, estimator: Estimator) -> dict[str, float]:
    return {
        node.input.alias: estimator.flow(node).rate
        for _, node, _ in _notes(plan.logical, estimator, plan.query.domain)
        if isinstance(node, Window) and isinstance(node.input, Stream)
    }


def _graphs(plan: Relation) -> list[set[frozenset[str]]]:
    """Pairs of terms that joins of the plan compare."""
    found: set[frozenset[str]] = set()
    graph = join_graph(plan)
    for terms in graph.equal_terms:
        texts = [str(t) for t, _ in terms]
        found |= {frozenset({a, b}) for i, a in enumerate(texts) for b in texts[i + 1 :]}
    rest = [g for child in (graph.inputs if graph.inputs != (plan,) else plan.inputs) for g in _graphs(child)]
    return [found, *rest]


def heavy_hitters(profile: KeyProfile) -> int:
    """How many values of a key are heavy."""
    return int(profile.heavy.sum())
