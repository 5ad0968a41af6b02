"""The grammar of MATCH_RECOGNIZE."""

from __future__ import annotations

from dataclasses import dataclass, field

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from midstream.algebra.patterns import InOrder, Options, Pattern, Repeated, Skip, Symbol
from midstream.language.grouping_grammar import GroupingGrammar
from midstream.language.nodes import Duration, Node

MOST_REPEATED = 1_000
"""How often a part of a pattern can be asked for at most."""


@dataclass(slots=True, eq=False)
class MatchClause:
    """What MATCH_RECOGNIZE says, as written."""

    token: Token
    partition: list[Node] = field(default_factory=list)
    order: list[Node] = field(default_factory=list)
    measures: list[tuple[Node, exp.Identifier]] = field(default_factory=list)
    all_rows: bool = False
    skip: Skip = field(default_factory=Skip)
    pattern: Pattern | None = None
    within: Duration | None = None
    conditions: dict[str, Node] = field(default_factory=dict)


class PatternGrammar(GroupingGrammar):
    """Reads patterns of rows."""

    def match_clause(self) -> MatchClause | None:
        """`MATCH_RECOGNIZE (PARTITION BY … ORDER BY … MEASURES … AFTER MATCH … PATTERN (…) WITHIN … DEFINE …)`."""
        token = self.take_word("MATCH_RECOGNIZE")
        if token is None:
            return None
        self.need(TokenType.L_PAREN, "(")
        made = MatchClause(token)
        made.partition, made.order = self.partition_keys(), self.order_keys()
        if self.take_word("MEASURES"):
            made.measures = self.several(self._measure)
        made.all_rows = self._rows_per_match()
        if self.take_word("AFTER"):
            made.skip = self._skip()
        self.need_word("PATTERN")
        self.need(TokenType.L_PAREN, "(")
        made.pattern = self._options()
        self.need(TokenType.R_PAREN, "a symbol or )")
        if self.take_word("WITHIN"):
            made.within = self.duration()
        if self.take_word("DEFINE"):
            self._defines(made)
        self.need(TokenType.R_PAREN, "PATTERN, WITHIN, DEFINE or )")
        return made

    def _measure(self) -> tuple[Node, exp.Identifier]:
        value = self.value()
        self.need(TokenType.ALIAS, "AS and a name")
        return value, self.identifier("a name after AS")

    def _rows_per_match(self) -> bool:
        """`ONE ROW PER MATCH`, or whether it is `ALL ROWS PER MATCH`."""
        every = bool(self.take(TokenType.ALL))
        if every or self.take_word("ONE"):
            self.need_word("ROWS" if every else "ROW", "PER", "MATCH")
        if every and self.take_word("SHOW", "OMIT"):
            self.need_word("EMPTY", "MATCHES")
        if every and self.peek(TokenType.WITH):
            self.fail("WITH UNMATCHED ROWS is not supported", hint="a row that is in no match is read from the stream")
        return every

    def _skip(self) -> Skip:
        self.need_word("MATCH", "SKIP")
        if self.take_word("PAST"):
            self.need_word("LAST", "ROW")
            return Skip()
        self.need_word("TO")
        if self.take_word("NEXT"):
            self.need_word("ROW")
            return Skip("next row")
        side = self.take_word("FIRST", "LAST")
        symbol = self.identifier("FIRST, LAST, NEXT ROW or a symbol").name.upper()
        return Skip("first" if side and side.text.upper() == "FIRST" else "last", symbol)

    def _defines(self, made: MatchClause) -> None:
        while not made.conditions or self.take(TokenType.COMMA):
            symbol = self.identifier("a symbol")
            if symbol.name.upper() in made.conditions:
                self.fail(f"{symbol.name} is defined twice")
            self.need(TokenType.ALIAS, "AS")
            made.conditions[symbol.name.upper()] = self.value()

    def _options(self) -> Pattern:
        self.deeper()
        options = [self._in_order()]
        while self.take(TokenType.PIPE):
            options.append(self._in_order())
        self._depth -= 1
        return options[0] if len(options) == 1 else Options(tuple(options))

    def _in_order(self) -> Pattern:
        parts = [self._repeated()]
        while not self.peek(TokenType.R_PAREN, TokenType.PIPE):
            parts.append(self._repeated())
        return parts[0] if len(parts) == 1 else InOrder(tuple(parts))

    def _repeated(self) -> Pattern:
        if self.take(TokenType.L_PAREN):
            part = self._options()
            self.need(TokenType.R_PAREN, ")")
        else:
            part = Symbol(self.identifier("a symbol").name.upper())
        bounds = self._bounds()
        if bounds is None:
            return part
        return Repeated(part, *bounds, greedy=not self.take(TokenType.PLACEHOLDER))

    def _bounds(self) -> tuple[int, int | None] | None:
        token = self.take(TokenType.STAR, TokenType.PLUS, TokenType.PLACEHOLDER, TokenType.L_BRACE)
        if token is None:
            return None
        if token.token_type != TokenType.L_BRACE:
            return {TokenType.STAR: (0, None), TokenType.PLUS: (1, None)}.get(token.token_type, (0, 1))
        least = self._times()
        most = self._times() if self.take(TokenType.COMMA) else least
        self.need(TokenType.R_BRACE, "}")
        if least is None and most is None:
            self.fail("a number is missing", token)
        if most is not None and (least or 0) > most:
            self.fail("the least number is greater than the most", token)
        return least or 0, most

    def _times(self) -> int | None:
        token = self.take(TokenType.NUMBER)
        if token is None:
            return None
        if not token.text.isdecimal() or int(token.text[:9]) > MOST_REPEATED:
            self.fail(f"a part is repeated at most {MOST_REPEATED:,} times", token)
        return int(token.text)
