"""The grammar of values: operators by precedence, literals, functions, CASE, CAST.

One table gives the binding power of every operator; `value` climbs it. All parentheses vanish here, because the
shape of the tree says the same.
"""

from __future__ import annotations

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from midstream.language.grammar import NAMES, Grammar
from midstream.language.nodes import Duration, Node, TypeName, at

OR, AND, NOT, PREDICATE, CONCATENATION, SUM, PRODUCT, SIGN = range(1, 9)

BINARY: dict[TokenType, tuple[int, type[exp.Expression]]] = {
    TokenType.OR: (OR, exp.Or),
    TokenType.AND: (AND, exp.And),
    TokenType.EQ: (PREDICATE, exp.EQ),
    TokenType.NEQ: (PREDICATE, exp.NEQ),
    TokenType.LT: (PREDICATE, exp.LT),
    TokenType.LTE: (PREDICATE, exp.LTE),
    TokenType.GT: (PREDICATE, exp.GT),
    TokenType.GTE: (PREDICATE, exp.GTE),
    TokenType.LIKE: (PREDICATE, exp.Like),
    TokenType.ILIKE: (PREDICATE, exp.ILike),
    TokenType.DPIPE: (CONCATENATION, exp.DPipe),
    TokenType.PLUS: (SUM, exp.Add),
    TokenType.DASH: (SUM, exp.Sub),
    TokenType.STAR: (PRODUCT, exp.Mul),
    TokenType.SLASH: (PRODUCT, exp.Div),
    TokenType.MOD: (PRODUCT, exp.Mod),
}

POSTFIX = {TokenType.IS: PREDICATE, TokenType.IN: PREDICATE, TokenType.BETWEEN: PREDICATE, TokenType.NOT: PREDICATE}

NEGATABLE = (TokenType.IN, TokenType.BETWEEN, TokenType.LIKE, TokenType.ILIKE)

FUNCTION_WORDS = frozenset({TokenType.VAR, TokenType.IDENTIFIER, TokenType.LEFT, TokenType.RIGHT})

CLAUSES = frozenset({TokenType.FROM, TokenType.WHERE, TokenType.GROUP_BY, TokenType.HAVING, TokenType.ALIAS})

UNITS = frozenset(
    {"us", "ms", "s", "sec", "min", "h", "d", "microsecond", "millisecond", "second", "minute", "hour", "day"}
    | {"week", "month", "quarter", "year"}
)

FIELDS = {"DOW": "dayofweek", "DOY": "dayofyear"}


class ExpressionGrammar(Grammar):
    """Reads values."""

    def query(self) -> Node:
        """A query, read by the grammar of queries."""
        raise NotImplementedError

    def begins_query(self) -> bool:
        """Whether a query comes next."""
        return self.peek(TokenType.SELECT) or (self.peek(TokenType.WITH) and self._next.token_type in NAMES)

    def value(self, power: int = 0) -> Node:
        """A value; only operators that bind tighter than `power` belong to it."""
        self.deeper()
        left = self._prefix()
        while True:
            binding = self._binding()
            if binding is None or binding <= power:
                self._depth -= 1
                return left
            left = self._infix(left, binding)

    def _binding(self) -> int | None:
        kind = self._curr.token_type
        if kind in BINARY:
            return BINARY[kind][0]
        if kind == TokenType.NOT and self._next.token_type not in NEGATABLE:
            return None
        return POSTFIX.get(kind)

    def _infix(self, left: Node, binding: int) -> Node:
        token = self._curr
        if token.token_type in BINARY and token.token_type not in (TokenType.LIKE, TokenType.ILIKE):
            self._advance()
            made = BINARY[token.token_type][1](this=left, expression=self.value(binding))
            return at(made, token)
        negated = self.take(TokenType.NOT)
        operator = self._curr
        self._advance()
        made = self._predicate(left, operator)
        return at(exp.Not(this=made), negated) if negated else made

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
        made = at(BINARY[operator.token_type][1](this=left, expression=self.value(PREDICATE)), operator)
        if self.peek_word("ESCAPE"):
            self.fail("LIKE … ESCAPE is not supported", hint="use regexp_matches(s, pattern) or contains(s, part)")
        return made

    def _is(self, left: Node, operator: Token) -> Node:
        negated = self.take(TokenType.NOT)
        if self.take(TokenType.DISTINCT):
            self.need(TokenType.FROM, "FROM after IS DISTINCT")
            kind = exp.NullSafeEQ if negated else exp.NullSafeNEQ
            return at(kind(this=left, expression=self.value(PREDICATE)), operator)
        token = self.take(TokenType.NULL, TokenType.TRUE, TokenType.FALSE)
        if token is None:
            self.expected("NULL, TRUE, FALSE or DISTINCT FROM after IS")
        is_null, is_true = token.token_type == TokenType.NULL, token.token_type == TokenType.TRUE
        value = at(exp.Null() if is_null else exp.Boolean(this=is_true), token)
        made = at(exp.Is(this=left, expression=value), operator)
        return at(exp.Not(this=made), operator) if negated else made

    def _in(self, left: Node, operator: Token) -> Node:
        self.need(TokenType.L_PAREN, "( after IN")
        if self.begins_query():
            made = exp.In(this=left, query=self.query())
        else:
            made = exp.In(this=left, expressions=self.values())
        self.need(TokenType.R_PAREN, ")")
        return at(made, operator)

    def values(self) -> list[Node]:
        """One or more values, separated by commas."""
        found = [self.value()]
        while self.take(TokenType.COMMA):
            found.append(self.value())
        return found

    def _prefix(self) -> Node:
        token = self._curr
        match token.token_type:
            case TokenType.NOT:
                self._advance()
                return at(exp.Not(this=self.value(NOT)), token)
            case TokenType.DASH:
                self._advance()
                return at(exp.Neg(this=self.value(SIGN)), token)
            case TokenType.PLUS:
                self._advance()
                return self.value(SIGN)
        value = self._primary(token)
        while self.peek(TokenType.DCOLON):
            operator = self._curr
            self._advance()
            value = at(exp.Cast(this=value, to=self.type_name()), operator)
        if self.peek(TokenType.L_BRACKET):
            self.fail("[ is not expected after a value", hint="windows stand after streams and sub-queries in FROM")
        return value

    def _primary(self, token: Token) -> Node:
        match token.token_type:
            case TokenType.NUMBER:
                self._advance()
                return at(exp.Literal(this=token.text, is_string=False), token)
            case TokenType.DOT if self._next.token_type == TokenType.NUMBER:
                number = self._next.text
                self._advance(2)
                return at(exp.Literal(this=f"0.{number}", is_string=False), token)
            case TokenType.STRING:
                return self.string()
            case TokenType.HEX_STRING:
                self._advance()
                return at(exp.HexString(this=token.text), token)
            case TokenType.NULL:
                self._advance()
                return at(exp.Null(), token)
            case TokenType.TRUE | TokenType.FALSE:
                self._advance()
                return at(exp.Boolean(this=token.token_type == TokenType.TRUE), token)
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
                self.fail("a window needs a stream before it", hint="write it after a stream in FROM: A [RANGE 10]")
            case TokenType.PLACEHOLDER | TokenType.PARAMETER | TokenType.COLON:
                self.fail("queries have no parameters", hint="write the value itself")
        if token.token_type in FUNCTION_WORDS:
            return self._named(token)
        self.expected("an expression")

    def string(self) -> exp.Literal:
        """A string literal."""
        token = self.need(TokenType.STRING, "a string in single quotes")
        return at(exp.Literal(this=token.text, is_string=True), token)

    def _parenthesised(self, token: Token) -> Node:
        if self.begins_query():
            made: Node = at(exp.Subquery(this=self.query()), token)
        else:
            made = self.value()
            if self.peek(TokenType.COMMA):
                self.fail("a list of values is not a value", hint="compare the columns one by one, joined by AND")
        self.need(TokenType.R_PAREN, ")")
        return made

    def _exists(self, token: Token) -> Node:
        self.need(TokenType.L_PAREN, "( after EXISTS")
        if not self.begins_query():
            self.expected("SELECT")
        made = exp.Exists(this=self.query())
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
        if self._next.token_type == TokenType.L_PAREN:
            return self._call(token)
        word = token.text.upper() if token.token_type == TokenType.VAR else ""
        following = self._next.token_type
        if word == "INTERVAL" and following in (TokenType.STRING, TokenType.NUMBER):
            self._advance()
            return at(exp.Interval(this=self.duration()), token)
        if word and following == TokenType.STRING:
            named = self.type_name()
            return at(exp.Cast(this=self.string(), to=named), token)
        if token.token_type not in NAMES:
            self.expected("an expression")
        return self._column()

    def _column(self) -> Node:
        first = self._curr
        parts = [self.identifier("a column name")]
        while self.peek(TokenType.DOT):
            if len(parts) == 2:
                hint = "a column is written column or stream.column; fields of nested values cannot be read"
                self.fail("a column name has too many parts", first, hint=hint)
            self._advance()
            if self.peek(TokenType.STAR) and len(parts) == 1:
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

    def _call(self, token: Token) -> Node:
        name = token.text.upper() if token.token_type != TokenType.IDENTIFIER else ""
        self._advance(2)
        match name:
            case "CAST" | "TRY_CAST":
                return self._cast(token, name)
            case "EXTRACT":
                return self._extract(token)
            case "POSITION":
                return self._position(token)
        return self._function(token)

    def _function(self, token: Token) -> Node:
        made = at(exp.Anonymous(this=token.text, expressions=[]), token)
        if self.peek(TokenType.STAR) and self._next.token_type == TokenType.R_PAREN:
            made.set("expressions", [at(exp.Star(), self._curr)])
            self._advance()
        elif not self.peek(TokenType.R_PAREN):
            if self.take(TokenType.DISTINCT):
                made.set("distinct", True)
            else:
                self.take(TokenType.ALL)
            made.set("expressions", self._arguments(token))
        self.need(TokenType.R_PAREN, ") or , after an argument")
        return self._after_call(made)

    def _arguments(self, token: Token) -> list[Node]:
        arguments = self.values()
        if token.text.upper() in ("SUBSTRING", "SUBSTR") and self.take(TokenType.FROM):
            arguments.append(self.value())
            if self.take_word("FOR"):
                arguments.append(self.value())
        if self.peek(TokenType.ORDER_BY):
            self.fail("an aggregate takes no ORDER BY", hint="a snapshot is a multiset: it has no order")
        return arguments

    def _after_call(self, made: Node) -> Node:
        if self.peek_word("FILTER") and self._next.token_type == TokenType.L_PAREN:
            self._advance(2)
            self.need(TokenType.WHERE, "WHERE")
            made.set("filter", self.value())
            self.need(TokenType.R_PAREN, ")")
        if self.peek_word("OVER", "WITHIN") and (
            self._next.token_type == TokenType.L_PAREN or self._next.text.upper() == "GROUP"
        ):
            self.fail(
                "window functions are not part of the language",
                hint="put the window on the stream, for instance A [ROWS 5], and aggregate over it",
            )
        return made

    def _cast(self, token: Token, name: str) -> Node:
        value = self.value()
        self.need(TokenType.ALIAS, "AS and a type")
        kind = exp.TryCast if name == "TRY_CAST" else exp.Cast
        made = at(kind(this=value, to=self.type_name()), token)
        self.need(TokenType.R_PAREN, ")")
        return made

    def _extract(self, token: Token) -> Node:
        field = self.take(TokenType.VAR, TokenType.STRING)
        if field is None:
            self.expected("a field such as YEAR or HOUR")
        self.need(TokenType.FROM, "FROM")
        value = self.value()
        self.need(TokenType.R_PAREN, ")")
        name = FIELDS.get(field.text.upper(), field.text.lower())
        return at(exp.Anonymous(this=name, expressions=[value]), field)

    def _position(self, token: Token) -> Node:
        needle = self.value(PREDICATE)
        self.need(TokenType.IN, "IN")
        value = self.value()
        self.need(TokenType.R_PAREN, ")")
        return at(exp.Anonymous(this="strpos", expressions=[value, needle]), token)

    def type_name(self) -> TypeName:
        """The name of a type, with its parameters."""
        token = self._curr
        name = self.identifier("a type name").name.upper()
        if name == "DOUBLE":
            self.take_word("PRECISION")
        parameters = []
        if self.take(TokenType.L_PAREN):
            parameters.append(self.need(TokenType.NUMBER, "a number").text)
            while self.take(TokenType.COMMA):
                parameters.append(self.need(TokenType.NUMBER, "a number").text)
            self.need(TokenType.R_PAREN, ")")
        zoned = False
        if name in ("TIMESTAMP", "TIME"):
            zoned = self._zone()
        return at(TypeName(this=name, expressions=parameters, zoned=zoned), token)

    def _zone(self) -> bool:
        word = self.take(TokenType.WITH) or self.take_word("WITHOUT")
        if word is None:
            return False
        self.need_word("TIME")
        self.need_word("ZONE")
        return word.token_type == TokenType.WITH

    def duration(self) -> Duration:
        """An amount of time: `100`, `-5 SECONDS`, `'5 seconds'`, `INTERVAL '5' SECOND`."""
        token = self._curr
        self.take_word("INTERVAL")
        if text := self.take(TokenType.STRING):
            amount = text.text
        else:
            sign = "-" if self.take(TokenType.DASH) else ""
            amount = sign + self.need(TokenType.NUMBER, "a number or a duration such as '5 seconds'").text
        unit = self.take(TokenType.VAR).text if self._unit_follows() else None  # type: ignore[union-attr]
        return at(Duration(this=amount, unit=unit), token)

    def _unit_follows(self) -> bool:
        word = self._curr.text.lower()
        return self.peek(TokenType.VAR) and (word in UNITS or word.removesuffix("s") in UNITS)
