"""The grammar of windows: what stands in brackets behind a stream."""

from __future__ import annotations

from sqlglot.tokenizer_core import TokenType

from midstream.language.expression_grammar import ExpressionGrammar
from midstream.language.nodes import Node, WindowClause, at


class WindowGrammar(ExpressionGrammar):
    """Reads windows."""

    def _window(self) -> WindowClause | None:
        token = self.take(TokenType.L_BRACKET)
        if token is None:
            return None
        made = self._window_form()
        self.need(TokenType.R_BRACKET, "]")
        return at(made, token)

    def _window_form(self) -> WindowClause:
        token = self.take(TokenType.VAR)
        match token.text.upper() if token else "":
            case "RANGE":
                if self.take_word("UNBOUNDED"):
                    return WindowClause(this="UNBOUNDED")
                return WindowClause(this="RANGE", size=self.duration())
            case "NOW" | "UNBOUNDED" as word:
                return WindowClause(this=word)
            case "ROWS":
                return WindowClause(this="ROWS", rows=self.need(TokenType.NUMBER, "a number of rows").text)
            case "PARTITION":
                return self._partitioned()
            case "HOP":
                size = self.duration()
                self.need(TokenType.COMMA, ", and the slide")
                return self._boundaries(WindowClause(this="HOP", size=size, slide=self.duration()))
            case "TUMBLE":
                return self._boundaries(WindowClause(this="TUMBLE", size=self.duration()))
        if token:
            self._advance(-1)
        self.expected(
            "a window",
            hint="[RANGE 10], [NOW], [UNBOUNDED], [ROWS 5], [PARTITION BY k ROWS 5], [HOP 10, 5] or [TUMBLE 10]",
        )

    def _partitioned(self) -> WindowClause:
        self.need_word("BY")
        columns = [self._partition_column()]
        while self.take(TokenType.COMMA):
            columns.append(self._partition_column())
        self.need_word("ROWS")
        rows = self.need(TokenType.NUMBER, "a number of rows").text
        return WindowClause(this="ROWS", rows=rows, partition=columns)

    def _partition_column(self) -> Node:
        return self._column()

    def _boundaries(self, made: WindowClause) -> WindowClause:
        if self.take_word("OFFSET"):
            made.set("offset", self.duration())
        if self.take_word("ZONE"):
            made.set("zone", self.string())
        return made
