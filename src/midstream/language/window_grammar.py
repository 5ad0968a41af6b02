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
                size = self.duration()
                if self.take_word("SLIDE"):
                    return self._boundaries(WindowClause(this="HOP", size=size, slide=self.duration()))
                return WindowClause(this="RANGE", size=size)
            case "NOW" | "UNBOUNDED" as word:
                return WindowClause(this=word)
            case "VALID":
                self.need_word("UNTIL")
                return WindowClause(this="VALID UNTIL", until=self.value())
            case "ROWS":
                return self._rows()
            case "SESSION":
                return self._session()
            case "PARTITION":
                return self._partitioned()
            case "HOP" | "CUMULATE" as word:
                size = self.duration()
                self.need(TokenType.COMMA, ", and the slide" if word == "HOP" else ", and the step")
                return self._boundaries(WindowClause(this=word, size=size, slide=self.duration()))
            case "TUMBLE":
                return self._boundaries(WindowClause(this="TUMBLE", size=self.duration()))
        if token:
            self._advance(-1)
        self.expected(
            "a window",
            hint="[RANGE 10], [NOW], [UNBOUNDED], [ROWS 5], [PARTITION BY k ROWS 5], [HOP 10, 5], [TUMBLE 10], "
            "[CUMULATE 20, 5], [SESSION 5], [PARTITION BY k SESSION 5] or [VALID UNTIL x]",
        )

    def _rows(self, partition: list[Node] | None = None) -> WindowClause:
        made = WindowClause(this="ROWS", rows=self._count(), partition=partition)
        if self.take_word("SLIDE"):
            made.set("slide", self._count())
        made.set("order", self.order_keys())
        return made

    def _count(self) -> str:
        return self.need(TokenType.NUMBER, "a number of rows").text

    def _session(self, partition: list[Node] | None = None) -> WindowClause:
        made = WindowClause(this="SESSION", size=self.duration(), partition=partition)
        if partition is None and self.take_word("PARTITION"):
            made.set("partition", self._partition_columns())
        return made

    def _partitioned(self) -> WindowClause:
        columns = self._partition_columns()
        if self.take_word("SESSION"):
            return self._session(columns)
        self.need_word("ROWS")
        return self._rows(columns)

    def _partition_columns(self) -> list[Node]:
        self.need_word("BY")
        return self.several(self._column)

    def _boundaries(self, made: WindowClause) -> WindowClause:
        if self.take_word("OFFSET"):
            made.set("offset", self.duration())
        if self.take_word("ZONE"):
            made.set("zone", self.string())
        return made
