"""Arrival routes that follow the plans at work.

A stream arrives by one route; a plan that needs it by another reads it through an exchange. When plans change, another
route may need fewer exchanges. Then the streams arrive by it from the next batch on, and the state of the plans that
are cut another way is moved to where their rows arrive now, as in any move of state. That needs no word in manifests
but the routes themselves: from the same plans and routes, the same follows after a restart.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from midstream.distribution.fragments import STAY, Route
from midstream.distribution.moves import plan_move
from midstream.errors import MidstreamError
from midstream.job.queries.running_query import Cutting, RunningQuery


@dataclass(frozen=True, slots=True)
class Rerouting:
    """Other routes, and the queries that are cut another way by them."""

    routes: Mapping[str, Route]
    queries: Mapping[str, RunningQuery]
    trigger: str


@dataclass(slots=True)
class Rerouter:
    """Looks for better routes whenever the plans have changed."""

    _known: tuple[object, ...] = ()
    _found: Rerouting | None = field(default=None)

    def better(
        self,
        queries: Mapping[str, RunningQuery],
        routes: Mapping[str, Route],
        bits: int | None,
        merges: Mapping[str, frozenset[str]] | None = None,
    ) -> Rerouting | None:
        """Routes that need fewer exchanges, if there are any; None while a query runs by several plans.

        Queries in `merges` are to be cut so that slots can share keys of some classes, others not; None leaves them.

        A query whose state is about to be moved to another plan is moved to that plan as these routes cut it. States
        are sorted by partition groups of so many `bits`.
        """
        if merges is not None and (recut := merging(queries, routes, bits, merges)) is not None:
            return recut
        if not all(query.has_one_plan or _moves(query) for query in queries.values()):
            return None
        plans = tuple((name, _next(query).staged) for name, query in queries.items())
        known = (*plans, *sorted((name, route.key or ()) for name, route in routes.items()))
        if len(known) != len(self._known) or any(_differ(a, b) for a, b in zip(known, self._known, strict=True)):
            self._known, self._found = known, rerouting(queries, routes, bits)
        return self._found


def _differ(one: object, other: object) -> bool:
    """Whether two plans are other objects; comparing them costs more than looking for routes again."""
    assert isinstance(one, tuple) and isinstance(other, tuple)
    return one[0] != other[0] or (one[1] is not other[1] and one[1] != other[1])


def rerouting(
    queries: Mapping[str, RunningQuery], routes: Mapping[str, Route], bits: int | None = None
) -> Rerouting | None:
    """The routes that queries would have chosen, first come, first served, if these need fewer exchanges."""
    wanted = {name: route for name, route in routes.items() if route.slots}
    coming = {name: _next(query) for name, query in queries.items()}
    for query in coming.values():
        wanted.update(_cut(query, wanted, False, bits).staged.routes)
    chosen = {**routes, **wanted}
    made = {name: _cut(query, chosen, True, bits) for name, query in coming.items()}
    if _exchanges(made.values()) >= _exchanges(coming.values()):
        return None
    changed = {name: query for name, query in made.items() if query.staged != coming[name].staged}
    try:
        for name, query in changed.items():
            old = queries[name]
            plan_move(old.staged, old.plan.physical, query.staged, query.functions)
    except MidstreamError:
        return None
    return Rerouting(chosen, changed, _routes_text(routes, chosen))


def merging(
    queries: Mapping[str, RunningQuery],
    routes: Mapping[str, Route],
    bits: int | None,
    wanted: Mapping[str, frozenset[str]],
) -> Rerouting | None:
    """The queries that are cut another way, because slots are to share keys of some classes, or no more."""
    changed = {
        name: merged(query, merges, routes, bits)
        for name, query in queries.items()
        if query.merging != (merges := wanted.get(name, frozenset()))
    }
    if not changed or not all(query.has_one_plan for query in queries.values()):
        return None
    where = {name: "in another stage" if query.merging else "where it lies" for name, query in changed.items()}
    reasons = [f"what query {name} makes of a key meets {place}" for name, place in where.items()]
    return Rerouting(routes, changed, "; ".join(reasons))


def merged(query: RunningQuery, merges: frozenset[str], routes: Mapping[str, Route], bits: int | None) -> RunningQuery:
    """The query cut so that slots can share the rows of keys of some classes."""
    return _cut(replace(query, merging=merges), routes, True, bits)


def _moves(query: RunningQuery) -> bool:
    return query.migration is not None and query.migration.moves and not query.migration.cancelling


def _next(query: RunningQuery) -> RunningQuery:
    """The query by the plan that the next batch runs."""
    return query.migration.target if query.migration is not None and _moves(query) else query


def _cut(query: RunningQuery, routes: Mapping[str, Route], routes_fixed: bool, bits: int | None) -> RunningQuery:
    cutting = Cutting(routes, routes_fixed, bits, query.merging)
    made = RunningQuery.of(query.name, query.cql, query.plan, query.functions, cutting, query.emit_every)
    made.share, made.core = query.share, query.core
    return made


def _exchanges(queries: Iterable[RunningQuery]) -> int:
    return sum(len(query.staged.fragments) for query in queries)


def _routes_text(old: Mapping[str, Route], new: Mapping[str, Route]) -> str:
    changed = {name: route for name, route in new.items() if route != old.get(name, STAY)}
    return "; ".join(f"{name} arrives {_in_words(route)}" for name, route in sorted(changed.items()))


def _in_words(route: Route) -> str:
    """A route as people read it.

    >>> _in_words(Route(("k",))), _in_words(Route(())), _in_words(STAY)
    ('by k', 'in one slot', 'in any slot')
    """
    if route.key is None:
        return "in any slot"
    return f"by {', '.join(route.key)}" if route.key else "in one slot"
