"""What both grammars stand on: looking at the next token, taking it, and saying what was expected instead.

The grammars decide by looking ahead and never go back, so the time they take is linear in the text. They are no
subclasses of sqlglot's parser: they need nothing of it, and its compiled form (`sqlglot[c]`) allows none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from midstream.errors import QueryError
from midstream.language.nodes import at

T = TypeVar("T")

NAMES = frozenset({TokenType.VAR, TokenType.IDENTIFIER})

SCHEMAS = frozenset({"main", "public", "default", "memory"})
"""What other systems call the schema that a table is in unless it is said otherwise."""

LONGEST_NAME = 255

DEEPEST = 100
"""How deep values may nest; every later stage walks them recursively."""

MOST_EXPANDED = 100_000
"""How many parts of values macros may make."""

DEEPEST_QUERY = 30
"""How deep queries may nest inside queries."""


NOTHING = Token(TokenType.SENTINEL, "")
"""What comes after the last token; it is false."""


class Grammar:
    """Steps over tokens."""

    def __init__(self, **options: Any) -> None:
        """As sqlglot makes the parser of a dialect; none of its options matters here."""
        self._begin([], "")

    def _begin(self, tokens: list[Token], text: str) -> None:
        """Starts at the first token of a text."""
        self.sql, self._tokens = text, tokens
        self._depth = self._query_depth = self._expanded = 0
        self.macros: dict[str, exp.Lambda] = {}
        self._index = -1
        self._advance()

    def _advance(self, steps: int = 1) -> None:
        self._index += steps
        self._curr, self._next = self._at(self._index), self._at(self._index + 1)

    def _at(self, index: int) -> Token:
        return self._tokens[index] if index < len(self._tokens) else NOTHING

    def fail(self, message: str, token: Token | None = None, hint: str | None = None) -> NoReturn:
        """Raises the error at a token, by default the one that comes next."""
        token = token or self._curr
        position = token.start if token else self._tokens[-1].end + 1 if self._tokens else 0
        raise QueryError(message, hint=hint).at(self.sql, position)

    def expected(self, what: str, hint: str | None = None) -> NoReturn:
        """Raises an error that says what should have come instead of the next token."""
        word = self._curr.text if self._curr.token_type not in (*NAMES, TokenType.STRING) else ""
        if not hint and word.isalpha() and "name" in what:
            hint = f'{word} is a word of the language; as a name, write "{word}"'
        self.fail(f"expected {what}, found {self.found()}", hint=hint)

    def found(self) -> str:
        """The next token as an error message names it."""
        if not self._curr:
            return "the end of the query"
        text = self._curr.text
        return f"'{text if len(text) <= 40 else text[:40] + '…'}'"

    def peek(self, *types: TokenType) -> bool:
        """Whether the next token has one of the types."""
        return self._curr.token_type in types

    def take(self, *types: TokenType) -> Token | None:
        """The next token if it has one of the types; it is then behind us."""
        if self._curr.token_type not in types:
            return None
        token = self._curr
        self._advance()
        return token

    def need(self, type_: TokenType, what: str) -> Token:
        """The next token, which must have the type."""
        return self.take(type_) or self.expected(what)

    def peek_word(self, *words: str) -> bool:
        """Whether the next token is one of some unreserved words."""
        return self._curr.token_type == TokenType.VAR and self._curr.text.upper() in words

    def take_word(self, *words: str) -> Token | None:
        """The next token if it is one of some unreserved words."""
        return self.take(TokenType.VAR) if self.peek_word(*words) else None

    def need_word(self, *words: str) -> Token:
        """The next tokens, which must be these unreserved words; the last of them."""
        return [self.take_word(word) or self.expected(word) for word in words][-1]

    def peek_words(self, *words: str) -> bool:
        """Whether the next tokens are these words, reserved or not, or marks."""
        return all(self._at(self._index + ahead).text.upper() == word for ahead, word in enumerate(words))

    def take_words(self, *words: str) -> bool:
        """Whether the next tokens are these; they are then behind us."""
        found = self.peek_words(*words)
        if found:
            self._advance(len(words))
        return found

    def token_after(self, steps: int) -> TokenType:
        """The type of a token further ahead."""
        return self._at(self._index + steps).token_type

    def several(self, read: Callable[[], T]) -> list[T]:
        """One or more things that are read so, separated by commas."""
        found = [read()]
        while self.take(TokenType.COMMA):
            found.append(read())
        return found

    def wrapped(self, read: Callable[[], T]) -> T:
        """What is read so, in parentheses."""
        self.need(TokenType.L_PAREN, "(")
        found = read()
        self.need(TokenType.R_PAREN, ")")
        return found

    def skip_schema(self, *behind: TokenType | None) -> None:
        """Leaves out the name of the schema that holds every stream, if these tokens follow it."""
        while self._curr.text.lower() in SCHEMAS and all(
            self.token_after(ahead) == kind for ahead, kind in enumerate(behind, 1) if kind is not None
        ):
            self._advance(2)

    def identifier(self, what: str) -> exp.Identifier:
        """A name."""
        return self.identifier_of(self.take(*NAMES) or self.expected(what))

    def identifier_of(self, token: Token) -> exp.Identifier:
        """A token as a name."""
        if not 0 < len(token.text) <= LONGEST_NAME:
            self.fail(f"a name has 1 to {LONGEST_NAME} characters", token)
        return at(exp.Identifier(this=token.text, quoted=token.token_type == TokenType.IDENTIFIER), token)

    def names(self, what: str) -> list[exp.Identifier]:
        """Names between commas."""
        return self.several(lambda: self.identifier(what))

    def column_names(self) -> list[exp.Identifier]:
        """`(a, b)`, or nothing."""
        return self.wrapped(lambda: self.names("a column name")) if self.peek(TokenType.L_PAREN) else []

    def deeper(self) -> None:
        """Goes one level down, if that is allowed."""
        self._depth += 1
        if self._depth > DEEPEST:
            self.fail(f"the query nests deeper than {DEEPEST} levels", hint="split it with WITH, or write it flatter")
