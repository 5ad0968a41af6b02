"""The grammar of values: operators by precedence, literals, functions, CASE, CAST.

One table gives the binding power of every operator; `value` climbs it. All parentheses vanish here, because the
shape of the tree says the same.
"""

from __future__ import annotations

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from midstream.language.call_grammar import CallGrammar
from midstream.language.grammar import NAMES
from midstream.language.nodes import Node, at
from midstream.language.operator_tables import (
    BETWEEN,
    BYTEWISE,
    CLAUSES,
    FUNCTION_WORDS,
    LITERALS,
    NEGATABLE,
    POSTFIX,
    PREFIXES,
    SHIFTS,
    SIGN,
    STARTS_OPERAND,
    WINDOW_WORDS,
    WORDS,
    Operator,
)
from midstream.language.over_grammar import PREDICATE


class ExpressionGrammar(CallGrammar):
    """Reads values."""

    def query(self) -> Node:
        """A query, read by the grammar of queries."""
        raise NotImplementedError

    def begins_query(self) -> bool:
        """Whether a query comes next."""
        if self.peek_word("VALUES"):
            return self._next.token_type == TokenType.L_PAREN
        if self.peek_word("PIVOT"):
            return self._next.token_type in NAMES or self.token_after(2) in (TokenType.SELECT, TokenType.FROM)
        named = self._next.token_type in NAMES and (self.peek(TokenType.WITH) or self.peek_word("TABLE"))
        return named or self.peek(TokenType.SELECT, TokenType.FROM)

    def value(self, power: int = 0) -> Node:
        """A value; only operators that bind tighter than `power` belong to it."""
        self.deeper()
        left = self._prefix()
        while True:
            binding = self._binding()
            if binding is None or binding <= power:
                self._depth -= 1
                return left
            left = self._infix(left)

    def _binding(self) -> int | None:
        if (operator := self._between(0)) is not None:
            return operator[0]
        if self.peek(TokenType.NOT):
            worded = self._next.token_type == TokenType.VAR and self._between(1)
            return PREDICATE if self._next.token_type in NEGATABLE or worded else None
        return PREDICATE if self.peek_word("ISNULL", "NOTNULL") else POSTFIX.get(self._curr.token_type)

    def _between(self, ahead: int) -> Operator | None:
        """The operator between two values that comes so far ahead."""
        token, following = self._at(self._index + ahead), self._at(self._index + ahead + 1)
        if token.token_type in SHIFTS and following.token_type == token.token_type and following.start == token.end + 1:
            return SHIFTS[token.token_type]
        if token.token_type == TokenType.VAR and following.token_type in STARTS_OPERAND:
            return WORDS.get(token.text.upper())
        return BETWEEN.get(token.token_type)

    def _infix(self, left: Node) -> Node:
        negated = self.take(TokenType.NOT)
        token, operator = self._curr, self._between(0)
        self._advance()
        made = self._predicate(left, token) if operator is None else self._operation(left, token, *operator)
        if negated and isinstance(made.expression, exp.Any | exp.All):  # not all are like it: one is not
            every = exp.Any if isinstance(made.expression, exp.All) else exp.All
            made.set("expression", every(this=made.expression.this))
        return at(exp.Not(this=made), negated) if negated else made

    def _operation(self, left: Node, token: Token, power: int, kind: type[Node] | str) -> Node:
        """A value, an operator whose first token is behind us, and what comes next."""
        if isinstance(kind, str):
            if token.token_type in SHIFTS:
                self._advance()
            if token.text.upper() == "SIMILAR":
                self.need_word("TO")
            return self._named_call(kind, token, left, self.value(power))
        if power == PREDICATE and (quantified := self._quantified(left, token, kind)) is not None:
            return quantified
        made = at(kind(this=left, expression=self.value(power)), token)
        if not issubclass(kind, exp.Like | exp.ILike) or not self.take_word("ESCAPE"):
            return made
        name = "like_escape" if issubclass(kind, exp.Like) else "ilike_escape"
        return self._named_call(name, token, left, made.expression, self.value(PREDICATE))

    def _quantified(self, left: Node, operator: Token, kind: type[Node]) -> Node | None:
        """`x > ANY (…)` or `x > ALL (…)`, of a list or a sub-query; `= ANY` and `<> ALL` of a sub-query are IN."""
        every = self.peek(TokenType.ALL)
        if not (every or self.peek_word("ANY", "SOME")) or self._next.token_type != TokenType.L_PAREN:
            return None
        self._advance(2)
        query = self.query() if self.begins_query() else None
        if query is not None and operator.token_type in (TokenType.LIKE, TokenType.ILIKE):
            self.fail("LIKE ANY takes patterns, no sub-query", operator, hint="EXISTS (SELECT … WHERE a LIKE b)")
        values = self.values() if query is None else [at(exp.Subquery(this=query), operator)]
        inside = values[0] if len(values) == 1 else self._named_call("list_value", operator, *values)
        self.need(TokenType.R_PAREN, ")")
        membership = (TokenType.NEQ, True), (TokenType.EQ, False)
        if query is not None and (operator.token_type, every) in membership:
            made = at(exp.In(this=left, query=query), operator)
            return at(exp.Not(this=made), operator) if every else made
        quantified = at((exp.All if every else exp.Any)(this=inside), operator)
        return at(kind(this=left, expression=quantified), operator)

    def _predicate(self, left: Node, operator: Token) -> Node:
        match operator.token_type:
            case TokenType.IS:
                return self._is(left, operator)
            case TokenType.IN:
                return self._in(left, operator)
            case TokenType.BETWEEN:
                low = self.value(PREDICATE)
                self.need(TokenType.AND, "AND between the two bounds of BETWEEN")
                return at(exp.Between(this=left, low=low, high=self.value(PREDICATE)), operator)
        made = at(exp.Is(this=left, expression=exp.Null()), operator)
        return at(exp.Not(this=made), operator) if operator.text.upper() == "NOTNULL" else made

    def _is(self, left: Node, operator: Token) -> Node:
        negated = self.take(TokenType.NOT)
        if self.take(TokenType.DISTINCT):
            self.need(TokenType.FROM, "FROM after IS DISTINCT")
            kind = exp.NullSafeEQ if negated else exp.NullSafeNEQ
            return at(kind(this=left, expression=self.value(PREDICATE)), operator)
        token = self.take(TokenType.NULL, TokenType.TRUE, TokenType.FALSE) or self.take_word("UNKNOWN")
        token = token or self.expected("NULL, TRUE, FALSE or DISTINCT FROM after IS")
        is_null, is_true = token.token_type in (TokenType.NULL, TokenType.VAR), token.token_type == TokenType.TRUE
        value = at(exp.Null() if is_null else exp.Boolean(this=is_true), token)
        made = at(exp.Is(this=left, expression=value), operator)
        return at(exp.Not(this=made), operator) if negated else made

    def _in(self, left: Node, operator: Token) -> Node:
        if self.peek(TokenType.L_BRACKET, *NAMES):
            return self._named_call("list_contains", operator, self.value(PREDICATE), left)
        self.need(TokenType.L_PAREN, "( after IN")
        made: Node = exp.false()
        if self.begins_query():
            made = exp.In(this=left, query=self.query())
        elif not self.peek(TokenType.R_PAREN):
            values = self.values()
            alone = values[0].this if len(values) == 1 and isinstance(values[0], exp.Subquery) else None
            made = exp.In(this=left, query=alone) if alone else exp.In(this=left, expressions=values)
        self.need(TokenType.R_PAREN, ")")
        return at(made, operator)

    def _prefix(self) -> Node:
        token = self._curr
        if self.take(TokenType.PLUS):
            return self.value(SIGN)
        if self.take(*PREFIXES):
            power, made = PREFIXES[token.token_type]
            return at(made(this=self.value(power)), token)
        value = self._primary(token)
        while (after := self._suffix(value)) is not None:
            value = after
        return value

    def _suffix(self, value: Node) -> Node | None:
        """The value with what stands right after it: a cast, an element, a field, a time zone."""
        operator = self._curr
        if self.take(TokenType.DCOLON):
            return at(exp.Cast(this=value, to=self.type_name()), operator)
        if self.peek(TokenType.L_BRACKET):
            return self._element(value, operator)
        if self.peek(TokenType.DOT) and not isinstance(value, exp.Literal):
            self._advance()
            if star := self.take(TokenType.STAR):
                return at(exp.Column(this=at(exp.Star(), star), of=value), operator)
            if self._next.token_type == TokenType.L_PAREN:
                call = self._call(self._curr)
                call.set("expressions", [value, *call.expressions])
                return call
            name = self._after_dot()
            return self._named_call("field", operator, value, at(exp.Literal(this=name.name, is_string=True), operator))
        if self._next.text.upper() in BYTEWISE and self.take_word("COLLATE"):
            self._advance()
            return value
        if self.take_words("AT", "TIME", "ZONE"):
            return self._named_call("timezone", operator, self.value(SIGN), value)
        return None

    def _element(self, value: Node, operator: Token) -> Node:
        if self._next.text.upper() in WINDOW_WORDS:
            self.fail("[ is not expected after a value", hint="windows stand after streams and sub-queries in FROM")
        self._advance()
        first = exp.Literal(this="1", is_string=False) if self.peek(TokenType.COLON) else self.value()
        if not self.take(TokenType.COLON):
            self.need(TokenType.R_BRACKET, "]")
            return self._named_call("subscript", operator, value, first)
        last = exp.Neg(this=exp.Literal(this="1", is_string=False)) if self.peek(TokenType.R_BRACKET) else self.value()
        self.need(TokenType.R_BRACKET, "]")
        return self._named_call("list_slice", operator, value, first, last)

    def _list(self, token: Token) -> Node:
        if self._next.text.upper() in WINDOW_WORDS:
            self.fail("a window needs a stream before it", hint="write it after a stream in FROM: A [RANGE 10]")
        self._advance()
        elements = [] if self.peek(TokenType.R_BRACKET) else self.values()
        if len(elements) == 1 and self.take_word("FOR"):
            return self._comprehension(elements[0], token)
        self.need(TokenType.R_BRACKET, "]")
        return self._named_call("list_value", token, *elements)

    def _comprehension(self, element: Node, token: Token) -> Node:
        """`[x + 1 for x in list if x > 0]`, after FOR."""
        name = self.identifier("the name of an element")
        self.need(TokenType.IN, "IN")
        made = self.value()
        if self.take_word("IF"):
            made = self._named_call("list_filter", token, made, exp.Lambda(this=self.value(), expressions=[name]))
        self.need(TokenType.R_BRACKET, "]")
        return self._named_call("list_transform", token, made, exp.Lambda(this=element, expressions=[name]))

    def _array(self, token: Token) -> Node:
        """`ARRAY(SELECT x … ORDER BY y LIMIT 3)`: the list of a sub-query's values, empty if it has none."""
        self._advance(2)
        query = self.query()
        self.need(TokenType.R_PAREN, ")")
        clauses = ("distinct", "group", "having", "qualify", "offset", "ties")
        if not isinstance(query, exp.Select) or len(query.expressions) > 1 or any(map(query.args.get, clauses)):
            self.fail("ARRAY takes a query of one value per row", token, hint="SELECT x FROM (…) ORDER BY x")
        item, limit = query.expressions[0].unalias(), query.args.get("limit")
        made = self._named_call("array_agg", token, item)
        made.set("order", query.args.get("order"))
        if limit is not None:
            made = self._named_call("list_slice", token, made, exp.Literal.number(1), limit)
        for key, value in {"expressions": [made], "order": None, "limit": None}.items():
            query.set(key, value)
        return self._named_call("list_or_empty", token, at(exp.Subquery(this=query), token))

    def _pairs(self, function: str, token: Token) -> Node:
        """`{'a': 1, 'b': 2}`: names and values in turn."""
        self._advance(2 if function == "map_of" else 1)
        parts: list[Node] = []
        while not parts or self.take(TokenType.COMMA):
            word = self.take(TokenType.VAR)
            parts.append(at(exp.Literal.string(word.text), word) if word else self.value())
            self.need(TokenType.COLON, ":")
            parts.append(self.value())
        self.need(TokenType.R_BRACE, "}")
        return self._named_call(function, token, *parts)

    def _primary(self, token: Token) -> Node:
        if self.take(*LITERALS):
            return at(LITERALS[token.token_type](token.text), token)
        match token.token_type:
            case TokenType.DOT if self._next.token_type == TokenType.NUMBER:
                number = self._next.text
                self._advance(2)
                return at(exp.Literal(this=f"0.{number}", is_string=False), token)
            case TokenType.CASE:
                self._advance()
                return self._case(token)
            case TokenType.EXISTS:
                self._advance()
                return self._exists(token)
            case TokenType.L_PAREN:
                self._advance()
                return self._parenthesised(token)
            case TokenType.STAR:
                self.fail("* is not expected here", hint="write * alone in SELECT, or count(*)")
            case TokenType.L_BRACKET:
                return self._list(token)
            case TokenType.L_BRACE:
                return self._pairs("named_struct", token)
            case TokenType.PLACEHOLDER | TokenType.PARAMETER | TokenType.COLON:
                self.fail("queries have no parameters", hint="write the value itself")
        if token.token_type in FUNCTION_WORDS:
            return self._named(token)
        self.expected("an expression")

    def _parenthesised(self, token: Token) -> Node:
        if self.begins_query():
            made: Node = at(exp.Subquery(this=self.query()), token)
        else:
            made = self.value()
            if self.take(TokenType.COMMA):
                made = at(exp.Tuple(expressions=[made, *self.values()]), token)
        self.need(TokenType.R_PAREN, ")")
        return made

    def _exists(self, token: Token) -> Node:
        self.need(TokenType.L_PAREN, "( after EXISTS")
        if self.begins_query():
            made: Node = exp.Exists(this=self.query())
        else:
            made = self._named_call("any_match", token, *self.several(self._lambda_or_value))
            if len(made.expressions) == 1:
                self.fail("EXISTS takes a sub-query, or a list and a function", token, hint="EXISTS (SELECT …)")
        self.need(TokenType.R_PAREN, ")")
        return at(made, token)

    def _case(self, token: Token) -> Node:
        subject = None if self.peek(TokenType.WHEN) else self.value()
        branches = []
        while when := self.take(TokenType.WHEN):
            condition = self.value()
            self.need(TokenType.THEN, "THEN")
            branches.append(at(exp.If(this=condition, true=self.value()), when))
        if not branches:
            self.expected("WHEN")
        default = self.value() if self.take(TokenType.ELSE) else None
        self.need(TokenType.END, "WHEN, ELSE or END")
        return at(exp.Case(this=subject, ifs=branches, default=default), token)

    def _named(self, token: Token) -> Node:
        """A function, a literal that starts with a word, or a column."""
        word = token.text.upper() if token.token_type == TokenType.VAR else ""
        if word == "ARRAY" and self.token_after(2) in (TokenType.SELECT, TokenType.WITH):
            return self._array(token)
        following = self._next.token_type
        signed = following == TokenType.DASH and self.is_unit(3)
        if word == "INTERVAL" and (signed or following in (TokenType.STRING, TokenType.NUMBER)):
            self._advance()
            return at(exp.Interval(this=self.duration()), token)
        if word == "INTERVAL" and (following == TokenType.L_PAREN or self.is_unit(2)):
            self._advance()
            number = self.wrapped(self.value) if self.peek(TokenType.L_PAREN) else self._column()
            return self._interval_of(number, token)
        if following == TokenType.L_PAREN:
            return self.row() if self.take_word("ROW") else self._call(token)
        if word in ("FINAL", "RUNNING") and self.token_after(2) == TokenType.L_PAREN:
            self._advance()
            return self._named_call(word, token, self._call(self._curr))
        if word == "ARRAY" and following == TokenType.L_BRACKET:
            self._advance()
            return self._list(token)
        if word == "MAP" and following == TokenType.L_BRACKET:
            self._advance()
            return self._named_call("map_of", token, *self._list(token).expressions)
        if word == "MAP" and following == TokenType.L_BRACE:
            return self._pairs("map_of", token)
        if word == "E" and following == TokenType.STRING:
            self._advance()
            return self._escaped()
        zoned = word in ("TIME", "TIMESTAMP") and self._next.text.upper() in ("WITH", "WITHOUT")
        if word and (following == TokenType.STRING or (zoned and self._at(self._index + 2).text.upper() == "TIME")):
            named = self.type_name()
            return at(exp.Cast(this=self.string(), to=named), token)
        if token.token_type not in NAMES:
            self.expected("an expression")
        return self._column()

    def _column(self) -> Node:
        self.skip_schema(TokenType.DOT, None, TokenType.DOT)
        first = self._curr
        parts = [self.identifier("a column name")]
        while self.peek(TokenType.DOT) and len(parts) < 2 and self.token_after(2) != TokenType.L_PAREN:
            self._advance()
            if self.peek(TokenType.STAR):
                star = at(exp.Star(), self._curr)
                self._advance()
                return at(exp.Column(this=star, table=parts[0]), first)
            parts.append(self._after_dot())
        return at(exp.Column(this=parts[-1], table=parts[0] if len(parts) == 2 else None), first)

    def _after_dot(self) -> exp.Identifier:
        token = self._curr
        if not token or token.token_type in CLAUSES or not (token.token_type in NAMES or token.text.isidentifier()):
            self.expected("a column name after the dot")
        self._advance()
        return self.identifier_of(token)
