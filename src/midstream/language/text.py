"""From text to syntax tree: size and depth are checked first, so that nothing that follows can hang or overflow."""

from __future__ import annotations

import re

from sqlglot import exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import TokenError
from sqlglot.tokenizer_core import Token, TokenType

from midstream.errors import QueryError
from midstream.language.dialect import CQL
from midstream.language.grammar import DEEPEST
from midstream.language.nodes import Node, TypeName, place
from midstream.language.query_grammar import QueryGrammar

LONGEST = 1_000_000
"""How many characters a query may have."""

DIALECT = CQL()

OPENING = {TokenType.L_PAREN: ")", TokenType.L_BRACKET: "]"}
CLOSING = {TokenType.R_PAREN, TokenType.R_BRACKET}


def read(text: str) -> Node:
    """The syntax tree of a query."""
    if not isinstance(text, str):
        raise QueryError(f"a query is a text, not {type(text).__name__}")
    if len(text) > LONGEST:
        raise QueryError(f"the query is {len(text):,} characters long", hint=f"at most {LONGEST:,} characters are read")
    tree = DIALECT.parser().parse(tokens_of(text), text)[0]
    assert isinstance(tree, Node)
    return tree


def read_value(text: str) -> Node:
    """The syntax tree of a value alone."""
    grammar = DIALECT.parser()
    assert isinstance(grammar, QueryGrammar)
    return grammar.only_value(tokens_of(text), text)


def type_named(text: str) -> TypeName:
    """The name of a type such as `DECIMAL(10, 2)`."""
    return read_value(f"CAST(NULL AS {text})").args["to"]  # type: ignore[no-any-return]


def shaped(node: Node) -> Node:
    """A source that is written as another shape of one, as the query that it stands for."""
    query, source = read(node.args["shape"]), node.this
    for part in query.walk():
        part.meta["start"] = place(node)
    for table in query.find_all(exp.Table):
        if table.name == "#source":
            table.replace(source)
    made = exp.Subquery(this=query, **{key: node.args.get(key) for key in ("alias", "columns", "window")})
    made.meta.update(node.meta)
    return made


def _require_unicode(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        readable = text.encode(errors="replace").decode()
        raise QueryError("the query holds half of a character", text=readable, position=error.start) from None


def tokens_of(text: str, dialect: Dialect = DIALECT) -> list[Token]:
    """The words and signs of a query."""
    _require_unicode(text)
    try:
        tokens = list(dialect.tokenize(text))
    except TokenError as error:
        raise _unfinished(text, error) from None
    _require_shallow(text, tokens)
    return tokens


def _unfinished(text: str, error: TokenError) -> QueryError:
    """What the tokenizer choked on: it names the place where something began that does not end."""
    found = re.search(r"Missing (.+) from \d+:(\d+)$", str(error.__context__))
    if found:
        what, start = found.group(1), int(found.group(2))
        return QueryError(f"missing {what} to end what begins here", text=text, position=min(start, len(text)))
    start = text.rfind("/*")
    if start >= 0:
        return QueryError("missing */ to end the comment", text=text, position=start)
    return QueryError("the query cannot be read", detail=str(error.__context__), text=text, position=len(text))


def _require_shallow(text: str, tokens: list[Token]) -> None:
    depth = 0
    for token in tokens:
        if token.token_type in OPENING:
            depth += 1
        elif token.token_type in CLOSING:
            depth -= 1
        if depth > DEEPEST:
            raise QueryError(
                f"the query nests deeper than {DEEPEST} levels",
                hint="split it with WITH, or write it flatter",
                text=text,
                position=token.start,
            )
