"""What is shared while one query is bound: its text, the catalog, and the names that are taken.

Aliases are unique over the whole plan, also between sub-queries, so that a column's name says where it comes from
wherever it is met.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pyarrow as pa
from sqlglot import exp

from midstream.algebra.declarations import Catalog, StreamDeclaration
from midstream.algebra.expressions import Call, Column, Expression, Literal, columns_of, walk
from midstream.algebra.semantics.scalars import evaluator
from midstream.algebra.types import TEXT, is_number
from midstream.errors import InputError, QueryError
from midstream.language.nodes import place

MOST_SOURCES = 100
"""How many streams and sub-queries a query may read, repeated use of WITH included."""


class Beyond(Exception):
    """A column of the query around a sub-query is named where the tuples do not have it.

    `name` is what it is called around the sub-query, `error` what a user is told if nothing else can be done.
    """

    def __init__(self, error: QueryError, name: str = "") -> None:
        super().__init__(error)
        self.error, self.name = error, name


@dataclass
class Binding:
    """The state of binding one query."""

    text: str
    catalog: Catalog
    aliases: set[str] = field(default_factory=set)
    places: dict[str, int | None] = field(default_factory=dict)
    first_stream: StreamDeclaration | None = None
    sources: int = 0
    time_type: pa.DataType = field(default_factory=pa.int64)
    json: set[str] = field(default_factory=set)
    """The columns of sub-queries and aggregates that are known to hold JSON."""

    def error(
        self, message: str, node: exp.Expression | None, *, detail: str | None = None, hint: str | None = None
    ) -> QueryError:
        """An error at a node."""
        return QueryError(message, detail=detail, hint=hint).at(self.text, place(node))

    def ambiguous(self, name: exp.Identifier, options: Iterable[str], node: exp.Expression | None = None) -> QueryError:
        """The error that a name could mean any of several."""
        return self.error(f"{name.name} is ambiguous", node or name, hint=f"write {' or '.join(options)}")

    @contextmanager
    def at(self, node: exp.Expression | None) -> Iterator[None]:
        """Gives errors from below the place of a node, unless they have one."""
        try:
            yield
        except QueryError as error:
            raise error.at(self.text, place(node)) from None

    @contextmanager
    def attempt(self) -> Iterator[None]:
        """While something is bound that may have to be bound in another way: gives its aliases back then."""
        taken, count = set(self.aliases), self.sources
        try:
            yield
        except Beyond:
            self.aliases, self.sources = taken, count
            raise

    def alias(self, wanted: str, node: exp.Expression | None) -> str:
        """An alias that nothing in the plan has yet: the wanted one, or one like it."""
        self.sources += 1
        if self.sources > MOST_SOURCES:
            raise self.error(f"the query reads more than {MOST_SOURCES} streams", node)
        plain = wanted.replace(".", "_")
        name, count = plain, 1
        while name.casefold() in self.aliases:
            count += 1
            name = f"{plain}_{count}"
        self.aliases.add(name.casefold())
        self.places[name] = place(node)
        return name

    def folded(self, value: Expression) -> Expression:
        """A number or a text that is computed of constants alone as a constant; anything else as it is.

        What cannot be computed is left to the run, and so are functions of a user's own.
        """
        if isinstance(value, Call) and value.function == "list_value":
            return value.with_arguments(tuple(map(self.folded, value.args)))
        if isinstance(value, Literal) or columns_of(value) or not (is_number(value.type) or value.type == TEXT):
            return value
        if any(isinstance(part, Call) and part.function in self.catalog.functions for part in walk(value)):
            return value
        try:
            return Literal(evaluator(value, [], self.catalog)(()), value.type)
        except InputError:
            return value

    def marked(self, value: Expression) -> Expression:
        """A value, of which JSON is known to be such."""
        return Call("as_json", (value,), TEXT) if isinstance(value, Column) and value.name in self.json else value

    def require_same_time(self, stream: StreamDeclaration, node: exp.Expression) -> None:
        """Refuses to mix integer time with timestamps, and timestamps that have a zone with those that have none."""
        first = self.first_stream = self.first_stream or stream
        if first.domain.agrees_with(stream.domain):
            return
        raise self.error(
            f"{stream.name} and {first.name} do not share a time: "
            f"{stream.domain.type} and {first.domain.type} cannot be mixed in one query",
            node,
            detail=f"{stream.name}.{stream.time} holds {stream.domain.kind}, "
            f"{first.name}.{first.time} holds {first.domain.kind}",
            hint=_cast_hint(stream, first),
        )


def _cast_hint(stream: StreamDeclaration, first: StreamDeclaration) -> str:
    if stream.domain.is_integer or first.domain.is_integer:
        return "cast the time column of one of them before it becomes a stream"
    bare = stream if stream.domain.type.tz is None else first
    return (
        f"give {bare.name}.{bare.time} its zone before it becomes a stream: assume_timezone of pyarrow.compute, "
        "tz_localize of pandas, or TIMESTAMP instead of TIMESTAMP_NTZ in a schema of Spark"
    )


def nearest(name: str, known: Iterable[str], kind: str, alike: float = 0.6) -> str | None:
    """A hint that names what was probably meant, or what is available; `kind` is its plural.

    `alike` is how alike two spellings must be, of at most 1.

    >>> nearest("bidz", ["bids", "asks"], "streams")
    'did you mean bids?'
    >>> nearest("trades", ["bids", "asks"], "streams")
    'available streams: bids, asks'
    >>> nearest("window", ["dow", "pow"], "functions", 0.75)
    'available functions: dow, pow'
    """
    names = list(dict.fromkeys(known))
    by_fold = {n.casefold(): n for n in names}
    close = difflib.get_close_matches(name.casefold()[:100], by_fold, n=1, cutoff=alike)
    if close:
        return f"did you mean {by_fold[close[0]]}?"
    if not names:
        return None
    shown = ", ".join(names[:12]) + (", …" if len(names) > 12 else "")
    return f"available {kind}: {shown}"


def match_name(identifier: exp.Identifier, names: Iterable[str]) -> list[str]:
    """The names an identifier can mean: the exact one, else, unless it is quoted, those equal but for case."""
    wanted, known = identifier.name, list(names)
    if wanted in known:
        return [wanted]
    if identifier.args.get("quoted"):
        return []
    return [n for n in dict.fromkeys(known) if n.casefold() == wanted.casefold()]
