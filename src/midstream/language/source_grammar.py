"""The grammar of FROM's sources: streams, sub-queries, joins in parentheses, VALUES and functions that give rows."""

from __future__ import annotations

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from midstream.language.grammar import NAMES
from midstream.language.nodes import JoinedSources, Node, at, everything_of
from midstream.language.shape_grammar import AMOUNTS, ShapeGrammar

_CLAUSES = (
    "SEMI ANTI ASOF FOLLOWED RECENT CHRONICLE WITHIN OFFSET FETCH WINDOW QUALIFY LATERAL PIVOT UNPIVOT MINUS EMIT"
    " POSITIONAL OUTER PASTE GLOBAL ANY MATCH_CONDITION"
)

NOT_AN_ALIAS = _CLAUSES.split()

AFTER_QUERY = {TokenType[name] for name in ("R_PAREN", "UNION", "EXCEPT", "INTERSECT", "ORDER_BY", "LIMIT")}
"""What can follow a query in parentheses that is part of a query."""


class SourceGrammar(ShapeGrammar):
    """Reads sources."""

    def joins(self) -> list[Node]:
        """The joins behind a source, read by the grammar of queries."""
        raise NotImplementedError

    def source(self) -> Node:
        """A stream or sub-query; its window may stand before or after its alias."""
        token = self._curr
        if self.peek(TokenType.L_BRACKET):
            self.fail("a window needs a stream before it", hint="write for instance A [RANGE 10]")
        tabled = self.take_words("TABLE", "(") or self.take_words("LATERAL", "TABLE", "(")
        if tabled or self._begins_rows():
            made = self._rows_source()
            if tabled:
                self.need(TokenType.R_PAREN, ")")
            self._decorate(made)
            return at(made, token)
        lateral = self._next.token_type == TokenType.L_PAREN and bool(self.take_word("LATERAL"))
        if self.take(TokenType.L_PAREN):
            if not (self.begins_query() or (self.peek(TokenType.L_PAREN) and self._is_query())):
                return self._joined_sources(token)
            made = exp.Subquery(this=self.query(), lateral=lateral)
            self.need(TokenType.R_PAREN, ")")
        else:
            self.skip_schema(TokenType.DOT)
            made = exp.Table(this=self.identifier("a stream name"))
            if self.peek(TokenType.DOT):
                hint = "a stream has a plain name; if it has dots or brackets, write it in double quotes"
                self.expected("a window, an alias or the next clause", hint)
        self._decorate(made)
        at(made, token)
        while self.peek_word("PIVOT", "UNPIVOT"):
            made = self.pivoted(made)
            self._decorate(made)
        return made

    def _is_query(self) -> bool:
        """Whether what stands in parentheses here is a query, or part of one, and no source of a join."""
        place = self._index
        while self._at(place).token_type == TokenType.L_PAREN:
            place += 1
        if self._at(place).token_type not in (TokenType.SELECT, TokenType.WITH) and self._at(place).text != "VALUES":
            return False
        place, depth = self._index + 1, 1
        while depth and self._at(place):
            depth += {TokenType.L_PAREN: 1, TokenType.R_PAREN: -1}.get(self._at(place).token_type, 0)
            place += 1
        return self._at(place).token_type in AFTER_QUERY

    def _begins_rows(self) -> bool:
        """Whether VALUES or a function that gives rows comes next."""
        ahead = int(self.peek_word("LATERAL"))
        return self.token_after(ahead) in NAMES and self.token_after(ahead + 1) == TokenType.L_PAREN

    def _rows_source(self) -> Node:
        """`unnest(a) [WITH ORDINALITY]`, `generate_series(1, 3)`, `VALUES (1), (2)`, `TUMBLE(…)`, `GAP_FILL(…)`."""
        self.take_word("LATERAL")
        if self.peek_word("VALUES"):
            return self.rows_written()
        if self.peek_word("GAP_FILL"):
            return self.gap_fill()
        if self.peek_word(*AMOUNTS):
            return self.windowed()
        made = exp.Unnest(expressions=[self._call(self._curr)])
        made.set("ordinality", self.take_words("WITH", "ORDINALITY"))
        return made

    def lateral_view(self, token: Token) -> Node:
        """`LATERAL VIEW [OUTER] explode(a) t AS x, y`."""
        outer = bool(self.take_word("OUTER"))
        made = at(exp.Unnest(expressions=[self._call(self._curr)], outer=outer), token)
        made.set("alias", self.identifier("a name"))
        if self.take(TokenType.ALIAS):
            made.set("columns", self.names("a column name"))
        return at(exp.Join(this=made, kind="cross"), token)

    def _joined_sources(self, token: Token) -> Node:
        """Joins in parentheses."""
        made = JoinedSources(this=self.source(), joins=self.joins())
        self.need(TokenType.R_PAREN, ") or a join")
        if not self._is_named():
            return at(made, token)
        named = at(exp.Subquery(this=at(everything_of(made.this, joins=made.args["joins"]), token)), token)
        self._decorate(named)
        return named

    def _is_named(self) -> bool:
        """Whether an alias comes next."""
        return self.peek(TokenType.ALIAS) or (self.peek(*NAMES) and not self.peek_word(*NOT_AN_ALIAS))

    def _decorate(self, source: Node) -> None:
        window = self._window()
        self._system_time(source)
        if (clause := self.match_clause()) is not None:
            if window:
                self.fail("MATCH_RECOGNIZE takes a stream, not a window", clause.token, hint="WITHIN bounds a match")
            source.set("match", clause)
            window = self._window()
        if self._is_named():
            self.take(TokenType.ALIAS)
            source.set("alias", self.identifier("a name after AS"))
            source.set("columns", self.column_names())
        self._system_time(source)
        second = self._curr
        after = self._window()
        if window and after:
            self.fail("a stream has one window only", second, hint="between two streams stands a comma or JOIN")
        if window or after:
            source.set("window", window or after)

    def _system_time(self, source: Node) -> None:
        """`FOR SYSTEM_TIME AS OF a.ts`."""
        if self.take_words("FOR", "SYSTEM_TIME"):
            self.need(TokenType.ALIAS, "AS")
            self.need_word("OF")
            source.set("as_of", self.value())

    def rows_written(self) -> Node:
        """`VALUES (1, 'a'), (2, 'b')`."""
        token = self.need_word("VALUES")
        return at(exp.Values(expressions=self.several(self.row)), token)
