"""Plans as users write them: arrows show which way rows travel.

`A -> B <- C` is the way of A's rows: they are sent to B's window (destination placement), and C's window is kept where
they then are (source placement). A plan names the way of every stream: `A -> B <- C, B <- A -> C, C <- A <- B`. Names
that would be misread stand in double quotes. `B@eu` says in addition that B lives at the site eu, which is checked: its
window by key is kept there.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from midstream.algebra.placements import ARROWS
from midstream.errors import QueryError
from midstream.optimizer.routed.conditions import RoutedConditions
from midstream.optimizer.routed.plan import HeadPlan, OneWay, check_probe, name_text

_TOKENS = re.compile(r'\s*(->|<-|,|"(?:[^"]|"")*"|(?:(?!->|<-)[^\s,"])+)')
_ARROWS = {arrow: placement for placement, arrow in ARROWS.items()}
_HINT = 'write the way of every stream, "A -> B <- C, B <- A -> C, C <- A <- B"'


def is_routed(text: str) -> bool:
    """Whether a plan's text is that of a routed join and not a tree or probe orders."""
    return any(token[1] in _ARROWS for token in _TOKENS.finditer(text))


@dataclass(frozen=True, slots=True)
class WaysText:
    """A routed plan's text, not yet held against a query: part of a longer text, from `start` to `end`."""

    text: str
    start: int
    end: int

    @property
    def _padded(self) -> str:
        """The part at its place, so that places in it are places in the whole text."""
        return " " * self.start + self.text[self.start : self.end]

    @property
    def heads(self) -> tuple[str, ...]:
        """The streams that have a way."""
        return tuple(tokens[0].name for tokens in _clauses(self._padded) if tokens)

    def ways(self, conditions: RoutedConditions) -> tuple[HeadPlan, ...]:
        """The ways that it means for a query's streams and conditions."""
        try:
            return parse_ways(self._padded, conditions)
        except QueryError as error:
            raise self.at(error) from None

    def refused(self, error: QueryError, head: str, target: str) -> QueryError:
        """An error about a probe, at its place."""
        for tokens in _clauses(self._padded):
            if tokens[0].name == head:
                error.at(self.text, next(t.position for t in tokens if t.name == target))
        return error

    def at(self, error: QueryError) -> QueryError:
        """An error about the part as one about the whole text."""
        error.text = self.text
        return error


def parse_ways(text: str, conditions: RoutedConditions) -> tuple[HeadPlan, ...]:
    """Reads a plan's text and holds it against the query's streams and conditions; the ways are in their order.

    >>> chain = RoutedConditions(("A", "B", "C"), frozenset({frozenset("AB"), frozenset("BC")}))
    >>> print(*parse_ways("C <- B <- A, A -> B <- C, B <- A -> C", chain), sep=", ")
    A -> B <- C, B <- A -> C, C <- B <- A
    """
    ways = [_way(text, tokens, conditions) for tokens in _clauses(text)]
    seen: set[str] = set()
    for way, start in ways:
        if way.head in seen:
            raise QueryError(f"the plan has a second way for {way.head}", hint=_HINT, text=text, position=start)
        seen.add(way.head)
    missing = [s for s in conditions.streams if s not in seen]
    if missing:
        problem = f"the plan has no way for {missing[0]}"
        raise QueryError(problem, hint=_HINT, text=text, position=len(text.rstrip()))
    by_head = {way.head: way for way, _ in ways}
    return tuple(by_head[s] for s in conditions.streams)


@dataclass(frozen=True, slots=True)
class _Token:
    text: str
    position: int

    @property
    def name(self) -> str:
        quoted = self.text.startswith('"')
        return self.text[1:-1].replace('""', '"') if quoted else self.text


def _clauses(text: str) -> list[list[_Token]]:
    clauses: list[list[_Token]] = [[]]
    position, end = 0, len(text.rstrip())
    while position < end:
        found = _TOKENS.match(text, position)
        if found is None:
            at = position + len(text[position:]) - len(text[position:].lstrip())
            raise QueryError(
                "a name in the plan is not closed", hint="end it with a double quote", text=text, position=at
            )
        if found[1] == ",":
            clauses.append([])
        else:
            clauses[-1].append(_Token(found[1], found.start(1)))
        position = found.end()
    return clauses


def _way(text: str, tokens: list[_Token], conditions: RoutedConditions) -> tuple[HeadPlan, int]:
    if not tokens:
        raise QueryError("the plan has an empty way", hint=_HINT, text=text, position=len(text.rstrip()))
    for i, token in enumerate(tokens):
        if (token.text in _ARROWS) != bool(i % 2):
            wanted = "an arrow, -> or <-," if i % 2 else "a stream"
            raise QueryError(
                f"the plan has {token.text!r} where {wanted} must be", hint=_HINT, text=text, position=token.position
            )
        if not i % 2 and token.name not in conditions.numbers:
            stream = _at_its_site(text, token, conditions)
            if stream is not None:
                tokens[i] = _Token(name_text(stream), token.position)
                continue
            known = ", ".join(conditions.streams)
            problem = f"the plan names {token.name}, which the query does not join"
            raise QueryError(problem, detail=f"it joins {known}", text=text, position=token.position)
    if len(tokens) % 2 == 0:
        last = tokens[-1]
        raise QueryError("the plan ends in an arrow", hint=_HINT, text=text, position=last.position)
    names = tokens[::2]
    joins = tuple(OneWay(n.name, _ARROWS[a.text]) for a, n in zip(tokens[1::2], names[1:], strict=True))
    way = HeadPlan(names[0].name, joins)
    _check_way(text, way, names, conditions)
    return way, names[0].position


def _at_its_site(text: str, token: _Token, conditions: RoutedConditions) -> str | None:
    """The stream that a plan names with the site at which it lives; None for any other name."""
    stream, at, site = token.name.rpartition("@")
    if not at or stream not in conditions.numbers:
        return None
    home = conditions.sites.get(stream)
    if home == site:
        return stream
    declared = ", ".join(sorted(set(conditions.sites.values()))) or "none"
    raise QueryError(
        f"the plan names the site {site}, at which {stream} does not live",
        detail=f"the sites of the query's streams are {declared}; "
        "-> sends partial results to the site of the stream, <- keeps its window wherever it is probed",
        hint=f"write {stream} alone" if home is None else f"write {stream} alone or {stream}@{home}",
        text=text,
        position=token.position + len(stream) + token.text.startswith('"'),
    )


def _check_way(text: str, way: HeadPlan, names: list[_Token], conditions: RoutedConditions) -> None:
    met: list[str] = []
    for token in names:
        if token.name in met:
            problem = f"the way of {way.head} meets {token.name} twice"
            raise QueryError(problem, hint="name every other stream once", text=text, position=token.position)
        if met:
            try:
                check_probe(met, token.name, conditions)
            except QueryError as error:
                raise error.at(text, token.position) from None
        met.append(token.name)
    left = [s for s in conditions.streams if s not in met]
    if left:
        end = names[-1].position + len(names[-1].text)
        problem = f"the way of {way.head} never meets {left[0]}"
        raise QueryError(problem, hint="name every other stream once", text=text, position=end)
