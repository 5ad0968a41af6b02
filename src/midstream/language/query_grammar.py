"""The grammar of queries: SELECT, FROM with windows, joins and sequences, set operations, WITH."""

from __future__ import annotations

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from midstream.algebra.functions import AGGREGATE, SCALAR
from midstream.language.grammar import DEEPEST_QUERY, NAMES
from midstream.language.nodes import FollowedBy, JoinedSources, Node, WindowClause, all_of, at, everything_of, lateral
from midstream.language.operator_tables import NEGATABLE
from midstream.language.source_grammar import SourceGrammar

TO_STREAM = ("ISTREAM", "DSTREAM", "RSTREAM", "KEEP")

_VALUES = "NUMBER STRING HEX_STRING L_PAREN CASE NULL TRUE FALSE EXISTS DISTINCT ALL LEFT RIGHT"

STARTS_VALUE = NAMES | {TokenType[name] for name in _VALUES.split()}

ENDS_ITEM = frozenset({None, TokenType.FROM, TokenType.COMMA})

SET_OPERATIONS: dict[TokenType, type[exp.SetOperation]] = dict(
    zip((TokenType.UNION, TokenType.EXCEPT, TokenType.INTERSECT), (exp.Union, exp.Except, exp.Intersect), strict=True)
)


class QueryGrammar(SourceGrammar):
    """Reads queries."""

    def parse(self, raw_tokens: list[Token], sql: str) -> list[exp.Expr | None]:
        """The syntax tree of a text: one query, no scripts."""
        self._begin(raw_tokens, sql)
        return [self.whole_query()]

    def only_value(self, raw_tokens: list[Token], sql: str) -> Node:
        """The syntax tree of a text that is a value."""
        self._begin(raw_tokens, sql)
        made = self.value()
        if self._curr:
            self.expected("the end of the value")
        return made

    def whole_query(self) -> Node:
        """A query and nothing after it but semicolons."""
        self._macros()
        if not self._curr or self.peek(TokenType.SEMICOLON):
            self.fail("the query is empty", hint="write for instance SELECT * FROM A [RANGE 10]")
        if not (self.begins_query() or self.peek(TokenType.L_PAREN)):
            self.expected("SELECT", hint="a query starts with SELECT or WITH")
        made = self.query()
        end = self._curr
        while self.take(TokenType.SEMICOLON):
            pass
        if self._curr and end.token_type == TokenType.SEMICOLON:
            self.fail("one query at a time", end, hint="remove what follows the ;")
        if self.peek(TokenType.L_BRACKET):
            self.fail("a window needs a stream before it", hint="write the window after a stream in FROM")
        if self.peek(TokenType.R_PAREN):
            self.fail("there is no ( for this )")
        if self._curr:
            self.fail(f"unexpected {self.found()}", hint="the query could have ended before it")
        return made

    def query(self) -> Node:
        """A query: WITH, then selections joined by set operations; INTERSECT binds tighter."""
        self._query_depth += 1
        if self._query_depth > DEEPEST_QUERY:
            self.fail(f"queries nest deeper than {DEEPEST_QUERY} levels", hint="name parts of it with WITH")
        around, self.macros = self.macros, dict(self.macros)
        ctes = self._definitions()
        made = self._union()
        self.rows_wanted(made)
        for words in (("CHANGES",), ("FINAL",), ("ON", "WINDOW", "CLOSE")):
            self.take_words("EMIT", *words)
        if ctes:
            made.set("with_", exp.With(expressions=[*ctes, *made.args.get("with_", exp.With()).expressions]))
        self._query_depth, self.macros = self._query_depth - 1, around
        return made

    def _definitions(self) -> list[Node]:
        """Macros and WITH, in which queries that are read stand first: macros behind them mean nothing there."""
        ctes: list[Node] = []
        while self.peek_word("CREATE") or self.peek(TokenType.WITH):
            self._macros()
            if not self.take(TokenType.WITH):
                break
            recursive = self._next.token_type in NAMES and self.take_word("RECURSIVE")
            found = self.several(self._cte)
            for cte in found:
                cte.set("recursive", bool(recursive))
            ctes += found
        return ctes

    def _macros(self) -> None:
        """`CREATE [OR REPLACE] [TEMP] MACRO name(a, b) AS value;`: a value that is put in place of its calls."""
        while self.take_word("CREATE"):
            if self.take(TokenType.OR):
                self.need_word("REPLACE")
            self.take_word("TEMP", "TEMPORARY")
            if not self.take_word("MACRO", "FUNCTION"):
                self.expected("MACRO", hint="streams are declared before queries: [streams.NAME] in a job file")
            token, name = self._curr, self.identifier("the name of a macro").name.casefold()
            if name in SCALAR or name in AGGREGATE:
                self.fail(f"{name} is a function of the language", token, hint="give the macro another name")
            parameters = self.wrapped(lambda: self.names("a parameter") if self.peek(*NAMES) else [])
            self.need(TokenType.ALIAS, "AS")
            if self.begins_query() or self.peek_word("TABLE"):
                self.fail("a macro is a value, no table", hint="name a query with WITH")
            self.macros[name] = exp.Lambda(this=self.value(), expressions=parameters)
            self.need(TokenType.SEMICOLON, "; and a query")

    def _cte(self) -> Node:
        token = self._curr
        name = self.identifier("a name after WITH")
        columns = self.column_names()
        self.need(TokenType.ALIAS, "AS")
        if self._next.text.upper() == "MATERIALIZED":
            self.take(TokenType.NOT)
        self.take_word("MATERIALIZED")
        body = self.wrapped(self.query)
        return at(exp.CTE(this=body, alias=exp.TableAlias(this=name, columns=columns)), token)

    def _union(self) -> Node:
        left = self._intersect()
        while token := self.take(TokenType.UNION, TokenType.EXCEPT) or self.take_word("MINUS"):
            all_, by_name, shared = self._set_all(), self.take_words("BY", "NAME"), self.take_word("CORRESPONDING")
            named = self.column_names() if shared and self.take_word("BY") else []
            left = self._combined(token, left, all_, self._intersect())
            left.set("by_name", by_name)
            left.set("corresponding", named if shared else None)
        return left

    def _intersect(self) -> Node:
        left = self._term()
        while token := self.take(TokenType.INTERSECT):
            left = self._combined(token, left, self._set_all(), self._term())
        return left

    def _set_all(self) -> bool:
        word = self.take(TokenType.ALL, TokenType.DISTINCT)
        return word is not None and word.token_type == TokenType.ALL

    def _combined(self, token: Token, left: Node, all_: bool, right: Node) -> Node:
        made = SET_OPERATIONS.get(token.token_type, exp.Except)(this=left, expression=right, distinct=not all_)
        return at(made, token)

    def _term(self) -> Node:
        if self.peek(TokenType.L_PAREN):
            return self.wrapped(self.query)
        if self.peek(TokenType.SELECT, TokenType.FROM) or self.peek_word("TABLE"):
            return self._select()
        if self.begins_query():
            token = self._curr
            rows = self.pivot_on() if self.peek_word("PIVOT") else self.rows_written()
            return at(everything_of(rows), token)
        self.expected("SELECT")

    def _select(self) -> Node:
        """`SELECT … [FROM a] …`, or `FROM a [SELECT …] …`, which without SELECT gives all columns."""
        made = at(exp.Select(expressions=[exp.Star()]), self._curr)
        if begun := self.take(TokenType.FROM) or self.take_word("TABLE"):
            self._from(made)
        if self.take(TokenType.SELECT):
            kind, distinct = self._to_stream(), self.take(TokenType.DISTINCT)
            on = self.row() if distinct and self.take(TokenType.ON) else None
            if not distinct:
                self.take(TokenType.ALL)
            made.set("expressions", self._items())
            made.set("kind", at(exp.Var(this=kind.text.lower()), kind) if kind else None)
            made.set("distinct", at(exp.Distinct(on=on), distinct) if distinct else None)
        if not begun and self.take(TokenType.FROM):
            self._from(made)
        self._clauses(made)
        return made

    def _to_stream(self) -> Token | None:
        if not self.peek_word(*TO_STREAM):
            return None
        following, after = self._next.token_type, self.token_after(2)
        whole = following == TokenType.STAR and after in ENDS_ITEM
        negated = following == TokenType.NOT and after not in NEGATABLE
        return self.take(TokenType.VAR) if whole or negated or following in STARTS_VALUE else None

    def _items(self) -> list[Node]:
        if self.peek(TokenType.FROM):
            self.expected("at least one column", hint="write SELECT * for all columns")
        return self.several(self._item)

    def _item(self) -> Node:
        if star := self.take(TokenType.STAR):
            return self._star(at(exp.Star(), star))
        value = self.value()
        if isinstance(value, exp.Column) and isinstance(value.this, exp.Star):
            self._star(value.this)
        start = self._curr
        named = self.take(TokenType.ALIAS)
        if named and (text := self.take(TokenType.STRING)):
            return at(exp.Alias(this=value, alias=self.identifier_of(text)), start)
        if named or (self.peek(*NAMES) and (not self.peek_word("OFFSET") or self._next.token_type not in STARTS_VALUE)):
            return at(exp.Alias(this=value, alias=self.identifier("a name after AS")), start)
        return value

    def _star(self, star: Node) -> Node:
        """`* EXCLUDE (a, b) REPLACE (v + 1 AS v) RENAME (a AS b)`."""
        if self.take_word("EXCLUDE") or self.take(TokenType.EXCEPT):
            star.set("exclude", self.column_names() or [self.identifier("a column name")])
        while self._next.token_type == TokenType.L_PAREN and (word := self.take_word("REPLACE", "RENAME")):
            star.set(word.text.lower(), self.wrapped(self._items))
        return star

    def _from(self, select: exp.Select) -> None:
        select.set("from_", exp.From(this=self.source()))
        select.set("joins", joins := self.joins())
        for join in (join for join in joins if isinstance(join, exp.Join) and join.args.get("within") is not None):
            sides = (select.args["from_"].this, join.this)
            if len(joins) > 1 or join.args["kind"] != "inner" or any(side.args.get("window") for side in sides):
                self.fail("WITHIN is for an inner join of two streams", hint="write a [RANGE 10] JOIN b [RANGE 10] …")
            for side in sides:
                side.set("window", WindowClause(this="RANGE", size=join.args["within"].copy()))

    def joins(self) -> list[Node]:
        return list(iter(self._join_step, None))

    def _join_step(self) -> Node | None:
        token = self._curr
        if self.take(TokenType.COMMA):
            return at(exp.Join(this=self.source()), token)
        if self.take_words("LATERAL", "VIEW"):
            return self.lateral_view(token)
        step = self.peek_words("NOT", "FOLLOWED") or self.peek_words("LEFT", "ASOF")
        return self._followed_by() if step or self.peek_word("FOLLOWED", "ASOF") else self._join()

    def _join(self) -> Node | None:
        token = self._curr
        natural = self.take(TokenType.NATURAL)
        side = self.take(TokenType.LEFT, TokenType.RIGHT, TokenType.FULL)
        outer = self.take_word("OUTER") if side else None
        kind = None if outer else self.take(TokenType.INNER, TokenType.CROSS) or self.take_word("SEMI", "ANTI")
        if not self.peek(TokenType.JOIN):
            if side or kind or natural:
                self.expected("JOIN")
            return None
        self._advance()
        if side and kind and (side.token_type != TokenType.LEFT or kind.text.upper() not in ("SEMI", "ANTI")):
            self.fail(f"there is no {side.text.upper()} {kind.text.upper()} JOIN", token)
        made = exp.Join(this=self.source(), natural=bool(natural))
        made.set("within", self.duration() if self.take_word("WITHIN") else None)
        bare = not natural and not self.peek(TokenType.ON, TokenType.USING) and not made.this.args.get("lateral")
        if bare and not made.args.get("within"):
            inner = list(iter(self._join, None)) if not kind or kind.token_type != TokenType.CROSS else []
            made.set("this", at(JoinedSources(this=made.this, joins=inner), token) if inner else made.this)
        word = kind.text.lower() if kind else side.text.lower() if side else "inner"
        made.set("kind", word)
        if not natural:
            self._condition(made, word)
        beside = made.this.args.get("lateral") or isinstance(made.this, exp.Unnest)
        if word == "left" and beside and made.args.get("on", exp.true()) != exp.true():
            rows = everything_of(made.this, where=exp.Where(this=made.args["on"]))
            made.set("this", lateral(rows, made.this, made.this.args.get("alias")))
            made.set("on", exp.true())
        return at(made, token)

    def _condition(self, join: Node, kind: str) -> None:
        if kind == "cross":
            if self.peek(TokenType.ON, TokenType.USING):
                self.fail("CROSS JOIN takes no condition", hint="write JOIN … ON …")
            return
        if self.take(TokenType.ON):
            join.set("on", self.value())
        elif self.take(TokenType.USING):
            join.set("using", self.wrapped(lambda: self.names("a column name")))
        elif kind == "inner":
            join.set("kind", "cross")
        elif not join.this.args.get("lateral"):
            self.expected("ON or USING", hint="a join without a condition is written CROSS JOIN")

    def _followed_by(self) -> Node:
        """`[NOT] FOLLOWED BY b [RECENT | CHRONICLE | ALL] [ON …] [WITHIN …]`, or `[LEFT] ASOF [LEFT] JOIN b`."""
        token, negated, left = self._curr, self.take(TokenType.NOT), self.take(TokenType.LEFT)
        if asof := self.take_word("ASOF"):
            made = FollowedBy(mode="recent", asof=True, outer=bool(left or self.take(TokenType.LEFT)))
            self.need(TokenType.JOIN, "JOIN")
        else:
            self._advance()
            self.need_word("BY")
            made = FollowedBy(mode="none", outer=True) if negated else FollowedBy()
        made.set("this", self.source())
        if not asof and not negated and (mode := self.take_word("RECENT", "CHRONICLE") or self.take(TokenType.ALL)):
            made.set("mode", mode.text.lower())
        parts = [self.wrapped(self.value)] if asof and self.take_word("MATCH_CONDITION") else []
        parts += [self.value()] if self.take(TokenType.ON) else []
        made.set("on", all_of(parts) if parts else None)
        if asof and self.peek(TokenType.USING):
            self.fail("ASOF JOIN takes ON", hint="write ON a.k = b.k")
        if self.take_word("WITHIN"):
            made.set("within", self.duration())
        return at(made, token)

    def _clauses(self, select: exp.Select) -> None:
        if token := self.take(TokenType.WHERE):
            select.set("where", at(exp.Where(this=self.value()), token))
        if token := self.take(TokenType.GROUP_BY):
            self.need_word("BY")
            select.set("group", at(self.group(), token))
        if token := self.take(TokenType.HAVING):
            select.set("having", at(exp.Having(this=self.value()), token))
        while token := self.take_word("WINDOW", "QUALIFY"):
            if token.text.upper() == "WINDOW":
                select.set("windows", self.several(self.named_window))
            else:
                select.set("qualify", at(exp.Qualify(this=self.value()), token))
