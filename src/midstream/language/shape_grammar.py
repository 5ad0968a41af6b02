"""Sources that are another shape of a table: gaps filled, rows as columns, columns as rows.

Each stands for a query over the source, which is written here as text; `#source` is the source in it.
"""

from __future__ import annotations

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from midstream.algebra.foreign_functions import WINDOW_TIME
from midstream.language.grammar import NAMES
from midstream.language.nodes import Node, WindowClause, at
from midstream.language.pattern_grammar import PatternGrammar

SOURCE = '"#source"'

Aliased = tuple[Node, str, str]
"""A value, its text, and the name behind AS."""

FILLED = {"INTERPOLATE": 'ELSE {0} + ({1} - {0}) * ("#place" - 1) / len("#series")', "KEEPNULL": "", "LOCF": "ELSE {0}"}
"""What the rows of a gap have of the row before it, and of the row behind it."""

AMOUNTS = {"TUMBLE": "size offset", "HOP": "slide size offset", "CUMULATE": "step size offset", "SESSION": "gap"}
"""Windows that are written as functions of streams, and what amounts of time they take."""


class ShapeGrammar(PatternGrammar):
    """Reads windows as functions, GAP_FILL, PIVOT and UNPIVOT."""

    def source(self) -> Node:
        """A source, read by the grammar of sources."""
        raise NotImplementedError

    def windowed(self) -> Node:
        """`TUMBLE(a, ts, size)`, `SESSION(TABLE a PARTITION BY k, DESCRIPTOR(ts), gap)`: the bounds are columns too."""
        token, word = self._curr, self._curr.text.upper()
        self._advance(2)
        self.take_words("DATA", "=>")
        self.take_word("TABLE")
        source = self.source() if self.peek(TokenType.L_PAREN) else self._named_source()
        window = at(WindowClause(this=word, begins=True), token)
        if self.take_word("PARTITION"):
            self.need_word("BY")
            keys = [self._column()]
            while self._next.text.upper() not in ("DESCRIPTOR", "TIMECOL") and self.take(TokenType.COMMA):
                keys.append(self._column())
            window.set("partition", keys)
        self.need(TokenType.COMMA, ", and the column of time")
        self.take_words("TIMECOL", "=>")
        source.set("time", self.wrapped(self._column) if self.take_word("DESCRIPTOR") else self._column())
        names = AMOUNTS[word].split()
        found = self.named_values(names, self.duration) if self.take(TokenType.COMMA) else {}
        for name, amount in found.items():
            window.set({"step": "slide", "gap": "size"}.get(name, name), amount)
        if missing := [name for name in names if name not in ("offset", *found)]:
            self.expected(f", and the {missing[0]}")
        self.need(TokenType.R_PAREN, ")")
        source.set("window", window)
        timed = any(token.text.lower() == "window_time" for token in self._tokens)
        columns = f"*, window_start, window_end{f', {WINDOW_TIME} AS window_time' if timed else ''}"
        shape = f"SELECT {columns} FROM {SOURCE}"
        alias = source.this.copy() if isinstance(source, exp.Table) else source.args.get("alias")
        return at(exp.Subquery(this=source, shape=shape, alias=alias), token)

    def _named_source(self) -> Node:
        self.skip_schema(TokenType.DOT)
        return at(exp.Table(this=self.identifier("a stream name")), self._curr)

    def gap_fill(self) -> Node:
        """`GAP_FILL(a [window], ts, step, LOCF(x), INTERPOLATE(y), KEEPNULL(z) PARTITION BY k)`."""
        token = self.need_word("GAP_FILL")
        self.need(TokenType.L_PAREN, "(")
        source = self.source()
        self.need(TokenType.COMMA, ", and the column of time")
        time = self._column_name()
        self.need(TokenType.COMMA, ", and the time between two rows")
        _, step, _ = self._aliased(False)
        filled = dict(self.several(self._strategy)) if self.take(TokenType.COMMA) else {}
        partition = "PARTITION BY " + ", ".join(self._column_names()) if self.take_word("PARTITION") else ""
        self.need(TokenType.R_PAREN, ")")
        behind = {name: _quoted(f"#next {name}") for name, word in filled.items() if word == "INTERPOLATE"}
        leads = [f"lead({name}) OVER w AS {to}" for name, to in {time: '"#next"', **behind}.items()]
        values = [
            f'CASE WHEN "#place" = 1 THEN {name} {FILLED[word].format(name, behind.get(name, ""))} END AS {name}'
            for name, word in filled.items()
        ]
        hidden = ", ".join(['"#next"', '"#series"', '"#at"', '"#place"', *behind.values()])
        inner = f"SELECT *, {', '.join(leads)} FROM {SOURCE} WINDOW w AS ({partition} ORDER BY {time})"
        series = f'CASE WHEN "#next" > {time} THEN range({time}, "#next", {step}) ELSE [{time}] END AS "#series"'
        changed = ", ".join([f'"#at" AS {time}', *values])
        text = (
            f'SELECT * EXCLUDE ({hidden}) REPLACE ({changed}) FROM (SELECT *, {series} FROM ({inner}) AS "#rows") '
            'AS "#spans", unnest("#series") WITH ORDINALITY AS "#filled"("#at", "#place")'
        )
        return at(exp.Subquery(this=source, shape=text), token)

    def _strategy(self) -> tuple[str, str]:
        word = self.take_word(*FILLED) or self.expected("LOCF, INTERPOLATE or KEEPNULL")
        return self.wrapped(self._column_name), word.text.upper()

    def pivoted(self, source: Node) -> Node:
        """`a PIVOT (sum(x) FOR k IN (1, 2) GROUP BY y)` or `a UNPIVOT [INCLUDE NULLS] (v FOR n IN (x, y))`."""
        token = self.take_word("PIVOT", "UNPIVOT")
        assert token is not None
        if token.text.upper() == "PIVOT":
            text = self.wrapped(self._pivot)
        else:
            nulls = self.take_word("INCLUDE") and self.need_word("NULLS")
            text = self.wrapped(self._unpivot) + ("" if nulls else ' WHERE "#value" IS NOT NULL')
        return at(exp.Subquery(this=source, shape=text), token)

    def _pivot(self) -> str:
        aggregates = self.several(self._aliased)
        self.need_word("FOR")
        keys = self._pivot_keys()
        self.need(TokenType.IN, "IN")
        return self._pivot_text(aggregates, keys, self.wrapped(lambda: self.several(self._aliased)))

    def _pivot_keys(self) -> list[str]:
        """`k`, or `(a, b)`, of which each value is a row."""
        names = self.column_names() if self.peek(TokenType.L_PAREN) else [self.identifier("a column")]
        return [_quoted(one.name) for one in names]

    def pivot_on(self) -> Node:
        """`PIVOT a ON k IN (1, 2) USING sum(x) GROUP BY y`, which is `a PIVOT (sum(x) FOR k IN (1, 2) GROUP BY y)`."""
        token, source = self.need_word("PIVOT"), self.source()
        self.need(TokenType.ON, "ON")
        keys = self._pivot_keys()
        if not self.take(TokenType.IN):
            hint = "write ON k IN (1, 2): a query has its columns before its rows"
            self.fail("PIVOT needs the values of which it makes columns", hint=hint)
        chosen = self.wrapped(lambda: self.several(self._aliased))
        self.need(TokenType.USING, "USING and aggregates")
        text = self._pivot_text(self.several(self._aliased), keys, chosen)
        return at(exp.Subquery(this=source, shape=text), token)

    def _pivot_text(self, aggregates: list[Aliased], keys: list[str], chosen: list[Aliased]) -> str:
        groups, several = "", len(aggregates) > 1
        if self.take(TokenType.GROUP_BY):
            groups = ", ".join(self._column_names())
        read = {_quoted(column.name) for node, _, _ in aggregates for column in node.find_all(exp.Column)}
        items = [groups or f"* EXCLUDE ({', '.join(sorted(read | set(keys)))})"]
        for value, text, alias in chosen:
            name = alias or (value.name if isinstance(value, exp.Literal) else text)
            for call, written, label in aggregates:
                if not isinstance(call, exp.Anonymous):
                    self.fail("PIVOT needs aggregates", hint="write for instance sum(x) FOR k IN (1, 2)")
                whole = f"{name}_{label or written}" if several or label else name
                items.append(f"{written} FILTER (WHERE ({', '.join(keys)}) = {text}) AS {_quoted(whole)}")
        return f"SELECT {', '.join(items)} FROM {SOURCE} GROUP BY ALL"

    def _unpivot(self) -> str:
        value = self._column_name()
        self.need_word("FOR")
        name = self._column_name()
        self.need(TokenType.IN, "IN")
        columns = self.wrapped(lambda: self.names("a column"))
        values = ", ".join(_quoted(one.name) for one in columns)
        words = ", ".join("'" + one.name.replace("'", "''") + "'" for one in columns)
        rows = f'SELECT * EXCLUDE ({values}), unnest([{words}]) AS {name}, unnest([{values}]) AS "#value" FROM {SOURCE}'
        return f'SELECT * RENAME ("#value" AS {value}) FROM ({rows}) AS "#rows"'

    def _aliased(self, named: bool = True) -> Aliased:
        """A value, its text, and the name behind AS, if there is one."""
        start, value = self._curr, self.value()
        text = self.sql[start.start : self._at(self._index - 1).end + 1]
        alias = self.take(TokenType.ALIAS) or (self.peek(*NAMES) and not self.peek_word("FOR"))
        return value, text, self.identifier("a name").name if named and alias else ""

    def _column_name(self) -> str:
        return _quoted(self.identifier("a column").name)

    def _column_names(self) -> list[str]:
        self.need_word("BY")
        return [_quoted(one.name) for one in self.names("a column")]


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
