"""The grammar of orders and of OVER: partitions, frames, and windows that have a name."""

from __future__ import annotations

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from midstream.language.grammar import NAMES, Grammar
from midstream.language.nodes import Node, at

PREDICATE = 4
"""How tight comparisons bind: what stands before IN in POSITION, or before AND in a frame, binds tighter."""

UNITS = ("ROWS", "RANGE", "GROUPS")


class OverGrammar(Grammar):
    """Reads what stands behind ORDER BY and OVER."""

    def value(self, power: int = 0) -> Node:
        """A value, read by the grammar of values."""
        raise NotImplementedError

    def values(self) -> list[Node]:
        """One or more values, separated by commas."""
        return self.several(self.value)

    def row(self) -> Node:
        """`(a, b)`."""
        token = self._curr
        return at(exp.Tuple(expressions=self.wrapped(self.values)), token)

    def partition_keys(self) -> list[Node]:
        """`PARTITION BY key, …`, or nothing."""
        return self.values() if self.take_word("PARTITION") and self.need_word("BY") else []

    def order_keys(self) -> list[Node]:
        """`ORDER BY key [ASC | DESC] [NULLS FIRST | LAST], …`, or nothing."""
        return self.several(self._order_key) if self.take(TokenType.ORDER_BY) and self.need_word("BY") else []

    def _order_key(self) -> Node:
        token = self._curr
        key = exp.Star() if self.take(TokenType.ALL) else self.value()
        way = self.take(TokenType.LT, TokenType.GT) if self.take(TokenType.USING) else self.take_word("ASC", "DESC")
        made = exp.Ordered(this=key, desc=bool(way and way.text.upper() in ("DESC", ">")))
        if self.take_word("NULLS"):
            nulls = self.take_word("FIRST", "LAST") or self.expected("FIRST or LAST")
            made.set("nulls", nulls.text.upper())
        return at(made, token)

    def over(self) -> Node:
        """`w` or `([w] [PARTITION BY …] [ORDER BY …] [frame])`, after OVER."""
        token = self._curr
        if self.peek(*NAMES):
            return at(exp.Window(alias=self.identifier("the name of a window")), token)
        self.need(TokenType.L_PAREN, "(")
        made = at(exp.Window(), token)
        if self.peek(*NAMES) and not self.peek_word("PARTITION", *UNITS):
            made.set("alias", self.identifier("the name of a window"))
        made.set("partition_by", self.partition_keys())
        made.set("order", self.order_keys())
        if self.peek_word(*UNITS):
            made.set("spec", self._frame())
        elif self.take_words("SESSION", "WITH", "GAP"):
            made.set("gap", self.value())
        self.need(TokenType.R_PAREN, "PARTITION BY, ORDER BY, a frame or )")
        return made

    def _frame(self) -> Node:
        token = self._curr
        self._advance()
        made = at(exp.WindowSpec(kind=token.text.lower(), end="CURRENT ROW"), token)
        between = self.take(TokenType.BETWEEN)
        self._bound(made, "start")
        if between:
            self.need(TokenType.AND, "AND and the end of the frame")
            self._bound(made, "end")
        if self.take_word("EXCLUDE"):
            two = self.peek_word("CURRENT", "NO")
            made.set("excluded", f"{self._curr.text} {self._next.text if two else ''}".strip().upper())
            self._advance(1 + two)
        return made

    def _bound(self, frame: Node, which: str) -> None:
        if self.take_word("CURRENT"):
            self.need_word("ROW")
            frame.set(which, "CURRENT ROW")
            return
        frame.set(which, "UNBOUNDED" if self.take_word("UNBOUNDED") else self.value(PREDICATE + 1))
        side = self.take_word("PRECEDING", "FOLLOWING") or self.expected("PRECEDING or FOLLOWING")
        frame.set(f"{which}_side", side.text.upper())

    def named_window(self) -> Node:
        """`w AS (…)`, after WINDOW."""
        name = self.identifier("a name after WINDOW")
        self.need(TokenType.ALIAS, "AS")
        return exp.Alias(this=self.over(), alias=name)

    def rows_wanted(self, made: Node) -> None:
        """`ORDER BY … LIMIT n [WITH TIES] OFFSET m`, or `OFFSET m ROWS FETCH FIRST n ROWS ONLY`."""
        token = self._curr
        found: dict[str, object] = {}
        if order := self.order_keys():
            found["order"] = order
        while self.peek(TokenType.LIMIT) or self.peek_word("OFFSET", "FETCH"):
            word = self._curr.text.upper()
            self._advance()
            if word == "FETCH":
                self.take_word("FIRST", "NEXT") or self.expected("FIRST or NEXT")
                found |= {"limit": exp.Literal.number(1)} if self.peek_word("ROW", "ROWS") else self._how_many()
                self.take_word("ROW", "ROWS")
                found["ties"] = not self.take_word("ONLY") and self._ties(needed=True)
            elif word == "OFFSET":
                found["offset"] = self.value()
                self.take_word("ROW", "ROWS")
            elif not self.take(TokenType.ALL):
                found |= self._how_many()
                found["ties"] = self._ties()
        if found and any(made.args.get(key) is not None for key in ("order", "limit", "offset")):
            self.fail("this query has an order already", token, hint="make it a sub-query: SELECT * FROM (…) …")
        for key, value in found.items():
            made.set(key, value)
        if found:
            made.meta["order"] = token.start

    def _how_many(self) -> dict[str, object]:
        """A number of rows, or `50%` or `50 PERCENT` of them."""
        remainder = self.token_after(2) in (TokenType.NUMBER, TokenType.L_PAREN)
        if self._next.token_type != TokenType.MOD or remainder or not self.peek(TokenType.NUMBER):
            return {"limit": self.value(), "percent": self.take_word("PERCENT") is not None}
        number = at(exp.Literal.number(self._curr.text), self._curr)
        self._advance(2)
        return {"limit": number, "percent": True}

    def _ties(self, needed: bool = False) -> bool:
        if needed and not self.peek(TokenType.WITH):
            self.expected("ONLY or WITH TIES")
        return bool(self.take(TokenType.WITH) and self.need_word("TIES"))
