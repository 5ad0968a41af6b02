"""The grammar of calls: functions and the forms that SQL gives some of them, types, and amounts of time."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from midstream.algebra.functions import FIELDS
from midstream.algebra.list_functions import LIST_FUNCTIONS
from midstream.algebra.time import UNITS, plural
from midstream.language.grammar import MOST_EXPANDED, NAMES, NOTHING
from midstream.language.nodes import Duration, Node, TypeName, at, with_arguments
from midstream.language.operator_tables import ESCAPES
from midstream.language.over_grammar import PREDICATE, OverGrammar

AMOUNTS = ("years", "months", "weeks", "days", "hours", "mins", "secs")

PARTS = "year month\nday hour minute second"
"""Units of which one may reach to another: DAY TO SECOND."""


class CallGrammar(OverGrammar):
    """Reads calls, types and durations."""

    def string(self) -> exp.Literal:
        """A string literal."""
        token = self.need(TokenType.STRING, "a string in single quotes")
        return at(exp.Literal(this=token.text, is_string=True), token)

    def _call(self, token: Token) -> Node:
        name = token.text.upper() if token.token_type != TokenType.IDENTIFIER else ""
        self._advance(2)
        forms = {"CAST": self._cast, "TRY_CAST": self._cast, "EXTRACT": self._extract, "TRIM": self._trim}
        forms |= dict.fromkeys(("OVERLAY", "POSITION", "SUBSTRING", "SUBSTR"), self._separated)
        if name not in forms:
            return self._function(token)
        made = forms[name](token)
        self.need(TokenType.R_PAREN, ")")
        return made

    def _named_call(self, name: str, token: Token, *arguments: Node) -> Node:
        return at(exp.Anonymous(this=name, expressions=list(arguments)), token)

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
            if token.text.upper() == "FLOOR" and self.take_word("TO"):
                unit = exp.Literal.string(self.identifier("a unit of time").name)
                made = at(exp.Anonymous(this="date_trunc", expressions=[unit, *made.expressions]), token)
            made.set("order", self.order_keys())
            self._nulls(made)
        self.need(TokenType.R_PAREN, ") or , after an argument")
        call = self._after_call(made)
        if token.text.upper() == "AVG_WHOLE":  # the average in a system in which that of whole numbers is one
            sides = [at(exp.Anonymous(**{**call.copy().args, "this": of}), token) for of in ("sum", "count")]
            return at(exp.Anonymous(this="quotient", expressions=sides), token)
        return self._in_place(token, call) if token.text.casefold() in self.macros else call

    def _in_place(self, token: Token, call: Node) -> Node:
        """What a macro stands for, with a call's arguments in place of its parameters."""
        macro = self.macros[token.text.casefold()]
        if any(call.args.get(key) for key in ("distinct", "order", "filter", "within", "over")):
            self.fail(f"{token.text} is a macro: it takes no DISTINCT, FILTER, ORDER BY or OVER", token)
        if len(call.expressions) != len(macro.expressions):
            takes = f"takes {plural(len(macro.expressions), 'argument')}, not {len(call.expressions)}"
            self.fail(f"{token.text} {takes}", token)
        self._require_outside(macro.this, call.expressions, token)
        made = with_arguments(macro.this, [name.name for name in macro.expressions], call.expressions)
        self._expanded += sum(1 for _ in made.walk())
        if self._expanded > MOST_EXPANDED:
            self.fail(f"macros make more than {MOST_EXPANDED:,} parts of values", token)
        return made

    def _require_outside(self, body: Node, arguments: list[Node], token: Token) -> None:
        """Refuses a column as an argument of a macro in whose value it could mean something else."""
        own = {name.name.casefold() for inner in body.find_all(exp.Lambda) for name in inner.expressions}
        sources = {str(table.alias or table.this.name).casefold() for table in body.find_all(exp.Table)}
        for column in (column for argument in arguments for column in argument.find_all(exp.Column)):
            table = column.args.get("table")
            if table.name.casefold() in sources if table else sources or column.name.casefold() in own:
                hint = f"write the stream's name before it, in full or by another alias: s.{column.name}"
                self.fail(f"{column.name} could be taken for what {token.text} has by this name", token, hint=hint)

    def _arguments(self, token: Token) -> list[Node]:
        if token.text.upper() in ("STRUCT_PACK", "STRUCT"):
            return self._named_arguments()
        if token.text.upper() == "MAKE_INTERVAL":
            found = self.named_values(AMOUNTS, self.value)
            return [found.get(name, exp.Literal.number(0)) for name in AMOUNTS]
        if token.text.lower() in LIST_FUNCTIONS:
            return self.several(self._lambda_or_value)
        if token.text.upper().startswith("JSON_OBJECT") and self._next.text.upper() not in {"VALUE", *",:.)"}:
            self.take_word("KEY")
        arguments, upper = self.values(), token.text.upper()
        while (upper.startswith("JSON_OBJECT") and self.take_word("VALUE")) or (
            upper == "MAP" and self.take(TokenType.COLON_EQ)
        ):
            arguments += self.values()
        return arguments

    def _lambda(self) -> Node:
        """`x -> x + 1`, `(x, i) -> x + i`, `lambda x, i: x + i` or `|x, i| x + i`."""
        token = self._curr
        begin = self.take_word("LAMBDA") or self.take(TokenType.L_PAREN, TokenType.PIPE) or NOTHING
        names = self.several(lambda: self.identifier("the name of an element"))
        if begin.token_type == TokenType.L_PAREN:
            self.need(TokenType.R_PAREN, ")")
        arrow = {TokenType.VAR: TokenType.COLON, TokenType.PIPE: TokenType.PIPE}.get(begin.token_type, TokenType.ARROW)
        self.take(TokenType.FARROW) or self.need(arrow, ": or ->")
        return at(exp.Lambda(this=self.value(), expressions=names), token)

    def _lambda_or_value(self) -> Node:
        place = 2
        while self._at(self._index).token_type == TokenType.L_PAREN and self.token_after(place) == TokenType.COMMA:
            place += 2
        arrow = self.token_after(1 if self._curr.token_type in NAMES else place + 1)
        begins = arrow in (TokenType.ARROW, TokenType.FARROW) or self.peek_word("LAMBDA") or self.peek(TokenType.PIPE)
        return self._lambda() if begins else self.value()

    def _named_arguments(self) -> list[Node]:
        """`a := 1, b := 2`, or `a, b + 1 AS x`: names and values in turn."""
        found: list[Node] = []
        while not found or self.take(TokenType.COMMA):
            name = self.identifier("a name").name if self._next.token_type == TokenType.COLON_EQ else ""
            self.take(TokenType.COLON_EQ)
            value = self.value()
            if self.take(TokenType.ALIAS):
                name = self.identifier("a name").name
            named = name or (value.name if isinstance(value, exp.Column) else f"col{len(found) // 2 + 1}")
            found += [exp.Literal(this=named, is_string=True), value]
        return found

    def named_values(self, names: Sequence[str], read: Callable[[], Node]) -> dict[str, Node]:
        """Values behind their names, `days => 2, hours => 3`, or without them in their order; each of them once."""
        found: dict[str, Node] = {}
        while not found or self.take(TokenType.COMMA):
            left = [name for name in names if name not in found]
            named = self._next.token_type == TokenType.FARROW
            name = self._curr.text.lower() if named else "".join(left[:1])
            if name not in left:
                self.expected(" or ".join(left) or "no value more")
            self._advance(2 * named)
            found[name] = read()
        return found

    def _nulls(self, made: Node) -> None:
        """`IGNORE NULLS` or `RESPECT NULLS`."""
        word = self._curr.text.upper()
        if self.take_words("IGNORE", "NULLS") or self.take_words("RESPECT", "NULLS"):
            made.set("ignore_nulls", word == "IGNORE")

    def _after_call(self, made: Node) -> Node:
        self._nulls(made)
        if self.take_words("WITHIN", "GROUP"):
            made.set("within", self.wrapped(lambda: self.order_keys() or self.expected("ORDER BY")))
        if self.take_words("FILTER", "("):
            self.take(TokenType.WHERE)
            made.set("filter", self.value())
            self.need(TokenType.R_PAREN, ")")
        if self._next.token_type in (TokenType.L_PAREN, *NAMES) and self.take_word("OVER"):
            made.set("over", self.over())
        return made

    def _cast(self, token: Token) -> Node:
        value = self.value()
        self.need(TokenType.ALIAS, "AS and a type")
        kind = exp.TryCast if token.text.upper() == "TRY_CAST" else exp.Cast
        return at(kind(this=value, to=self.type_name()), token)

    def _extract(self, token: Token) -> Node:
        field = self.take(TokenType.VAR, TokenType.STRING) or self.expected("a field such as YEAR or HOUR")
        self.need(TokenType.FROM, "FROM")
        name = FIELDS.get(field.text.upper(), field.text.lower())
        return at(exp.Anonymous(this=name, expressions=[self.value()]), field)

    def _trim(self, token: Token) -> Node:
        """`TRIM(s)`, `TRIM(s, letters)` or `TRIM([BOTH | LEADING | TRAILING] [letters] FROM s)`."""
        plain = self._next.token_type in (TokenType.R_PAREN, TokenType.COMMA, TokenType.DOT)
        side = None if plain else self.take_word("BOTH", "LEADING", "TRAILING")
        name = {"LEADING": "ltrim", "TRAILING": "rtrim"}.get(side.text.upper() if side else "", "trim")
        arguments = [] if self.peek(TokenType.FROM) else self.values()
        if self.take(TokenType.FROM):
            arguments = [self.value(), *arguments]
        return at(exp.Anonymous(this=name, expressions=arguments), token)

    def _separated(self, token: Token) -> Node:
        """A call whose arguments are separated by words or by commas."""
        arguments = [self.value(PREDICATE)]
        while mark := self.take(TokenType.COMMA, TokenType.FROM, TokenType.IN) or self.take_word("PLACING", "FOR"):
            if len(arguments) == 1 and mark.text.upper() == "FOR":
                arguments.append(exp.Literal.number(1))
            arguments.append(self.value(PREDICATE))
        return at(exp.Anonymous(this=token.text, expressions=arguments), token)

    def type_name(self) -> TypeName:
        """The name of a type, with its parameters."""
        token = self._curr
        made = self._base_type()
        while self.peek(TokenType.L_BRACKET) and self._next.token_type in (TokenType.R_BRACKET, TokenType.NUMBER):
            self._advance(2 if self._next.token_type == TokenType.R_BRACKET else 3)
            made = at(TypeName(this="LIST", expressions=[made]), token)
        return made

    def _nested_type(self, name: str, token: Token) -> TypeName:
        """`ARRAY<INT>`, `MAP(INT, TEXT)`, `STRUCT(a INT, b TEXT)`."""
        closing = TokenType.GT if self.peek(TokenType.LT) else TokenType.R_PAREN
        self._advance()
        parts: list[Node] = []
        while not parts or self.take(TokenType.COMMA):
            field = self.identifier("a field's name").name if name == "STRUCT" else ""
            self.take(TokenType.COLON)
            part = self.type_name()
            part.set("name", field)
            parts.append(part)
        self.need(closing, "> or )")
        return at(TypeName(this="LIST" if name == "ARRAY" else name, expressions=parts), token)

    def _base_type(self) -> TypeName:
        token = self._curr
        name = self.identifier("a type name").name.upper()
        name = {"ROW": "STRUCT", "LIST": "ARRAY"}.get(name, name)
        if name in ("ARRAY", "MAP", "STRUCT") and self.peek(TokenType.LT, TokenType.L_PAREN):
            return self._nested_type(name, token)
        if name == "DOUBLE":
            self.take_word("PRECISION")
        if name in ("CHARACTER", "CHAR"):
            self.take_word("VARYING")
        parameters: list[str] = []
        if self.peek(TokenType.L_PAREN):
            parameters = self.wrapped(lambda: self.several(lambda: self.need(TokenType.NUMBER, "a number").text))
        zoned = name in ("TIMESTAMP", "TIME") and self._zone()
        return at(TypeName(this=name, expressions=parameters, zoned=zoned), token)

    def _zone(self) -> bool:
        word = self.take(TokenType.WITH) or self.take_word("WITHOUT")
        if word is None:
            return False
        self.need_word("TIME", "ZONE")
        return word.token_type == TokenType.WITH

    def _interval_of(self, number: Node, token: Token) -> Node:
        """`INTERVAL (a + 1) DAY`: so many times the unit that follows."""
        one = exp.Interval(this=Duration(this="1", unit=self.identifier("a unit of time").name))
        return at(exp.Mul(this=at(one, token), expression=number), token)

    def _escaped(self) -> Node:
        """`E'a\\nb'`: a text with escapes."""
        token = self.need(TokenType.STRING, "a string")
        text = re.sub(r"\\(.)", lambda found: ESCAPES.get(found[1], found[1]), token.text)
        return at(exp.Literal(this=text, is_string=True), token)

    def duration(self) -> Duration:
        """An amount of time: `100`, `-5 SECONDS`, `'5 seconds'`, `INTERVAL '5' SECOND`."""
        token = self._curr
        self.take_word("INTERVAL")
        if text := self.take(TokenType.STRING):
            amount = text.text
        else:
            sign = "-" if self.take(TokenType.DASH) else ""
            amount = sign + self.need(TokenType.NUMBER, "a number or a duration such as '5 seconds'").text
        unit = self._unit()
        if unit and self.take_word("TO"):
            amount, unit = self._parts(amount, unit, self.identifier("a unit of time").name), None
        while unit and self.is_unit(1) and (more := self.take(TokenType.NUMBER, TokenType.STRING)):
            amount, unit = f"{amount} {unit} {more.text}", self._unit()
        return at(Duration(this=amount, unit=unit), token)

    def _parts(self, amount: str, first: str, last: str) -> str:
        """`'1 02:30' DAY TO MINUTE` and its kin, with the unit behind each number."""
        sign, numbers = "-" * amount.lstrip().startswith("-"), re.findall(r"[\d.]+", amount)
        span = re.search(rf"{first.removesuffix('s')}\b.*\b{last.removesuffix('s')}", PARTS, re.IGNORECASE)
        units = span[0].split() if span else self.fail(f"there is nothing from {first} TO {last}")
        if len(numbers) != len(units):
            self.fail(f"{amount!r} has not the numbers of {first} TO {last}")
        return " ".join(f"{sign}{n} {unit}" for n, unit in zip(numbers, units, strict=True))

    def _unit(self) -> str | None:
        token = self.take(TokenType.VAR) if self.is_unit(0) else None
        return token.text if token else None

    def is_unit(self, ahead: int) -> bool:
        """Whether a unit of time comes so far ahead."""
        token = self._at(self._index + ahead)
        word = token.text.lower()
        return token.token_type == TokenType.VAR and (word in UNITS or word.removesuffix("s") in UNITS)
