"""The operators: how tight each binds, and which function it is."""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from midstream.language.grammar import NAMES
from midstream.language.nodes import Node
from midstream.language.over_grammar import PREDICATE

NOT, CONCATENATION, SIGN = 3, 5, 8

Operator = tuple[int, type[Node] | str]
"""How tight an operator binds, and the node or the call that it is."""

_INFIX = """
    OR 1 Or -, AND 2 And -, EQ 4 EQ =, NEQ 4 NEQ <>, LT 4 LT <, LTE 4 LTE <=, GT 4 GT >, GTE 4 GTE >=, LIKE 4 Like like,
    ILIKE 4 ILike ilike, TILDE 4 RegexpLike regexp_matches, NULLSAFE_EQ 4 NullSafeEQ is_not_distinct_from,
    DPIPE 5 DPipe ||, ARROW 5 JSONExtract json_extract, DARROW 5 JSONExtractScalar json_extract_string,
    AMP 5 BitwiseAnd bitwise_and, PIPE 5 BitwiseOr bitwise_or, PLUS 6 Add +, DASH 6 Sub -, STAR 7 Mul *, SLASH 7 Div /,
    DIV 7 IntDiv integer_division, MOD 7 Mod %
"""
"""Operators between two values: the token, how tight it binds, its node, and the function that it is."""

INFIX = [row.split() for row in _INFIX.split(",")]

OPERATORS: dict[type[Node], str] = {exp.NullSafeNEQ: "is_distinct_from"} | {
    getattr(exp, node): function for _, _, node, function in INFIX[2:]
}

_CALLED = """
    IRLIKE 4 regexp_matches_any_case, AT_GT 4 list_has_all, LT_AT 4 list_within, PLACEHOLDER 4 json_has_key,
    DAMP 4 list_has_any, HASH_ARROW 5 json_at, DHASH_ARROW 5 json_text_at, HASH 5 xor, CARET 8 raised, DSTAR 8 raised
"""

BETWEEN: dict[TokenType, Operator] = {
    **{TokenType[token]: (int(power), getattr(exp, node)) for token, power, node, _ in INFIX},
    **{TokenType[token]: (int(power), name) for token, power, name in map(str.split, _CALLED.split(","))},
}
"""Operators between two values that are one token; those of the second kind are calls."""

_WORDS = """
    DIV 7 integer_division, MOD 7 mod, QUOTIENT 7 quotient, REGEXP 4 regexp_matches, RLIKE 4 regexp_matches,
    SIMILAR 4 regexp_full_match, MATCHES_SQL 4 matches_sql, GLOB 4 glob
"""

WORDS: dict[str, Operator] = {word: (int(power), name) for word, power, name in map(str.split, _WORDS.split(","))}
"""Words that are operators between two values, and names everywhere else."""

PREFIXES = {TokenType.NOT: (NOT, exp.Not), TokenType.DASH: (SIGN, exp.Neg), TokenType.TILDE: (SIGN, exp.BitwiseNot)}
"""Operators before a value."""

LITERALS: dict[TokenType, Callable[[str], Node]] = {
    TokenType.NUMBER: lambda text: exp.Literal(this=text, is_string=False),
    TokenType.STRING: lambda text: exp.Literal(this=text, is_string=True),
    TokenType.HEX_STRING: lambda text: exp.HexString(this=text),
    TokenType.NULL: lambda text: exp.Null(),
    TokenType.TRUE: lambda text: exp.Boolean(this=True),
    TokenType.FALSE: lambda text: exp.Boolean(this=False),
}
"""Constants that are one token."""

SHIFTS: dict[TokenType, Operator] = {
    TokenType.LT: (CONCATENATION, "shift_left"),
    TokenType.GT: (CONCATENATION, "shift_right"),
}

STARTS_OPERAND = frozenset({*NAMES, TokenType.NUMBER, TokenType.STRING, TokenType.L_PAREN, TokenType.DASH})

POSTFIX = {TokenType.IS: PREDICATE, TokenType.IN: PREDICATE, TokenType.BETWEEN: PREDICATE, TokenType.NOT: PREDICATE}

NEGATABLE = frozenset(TokenType[name] for name in ["IN", "BETWEEN", "LIKE", "ILIKE", "TILDE", "IRLIKE"])

FUNCTION_WORDS = frozenset({TokenType.VAR, TokenType.IDENTIFIER, TokenType.LEFT, TokenType.RIGHT})

WINDOW_WORDS = ("RANGE", "ROWS", "NOW", "UNBOUNDED", "HOP", "TUMBLE", "PARTITION")

ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}

BYTEWISE = frozenset({"C", "POSIX", "BINARY", "UCS_BASIC", "UTF8_BINARY", "DEFAULT"})
"""Collations by which texts are ordered as here: by the numbers of their letters."""

CLAUSES = frozenset({TokenType.FROM, TokenType.WHERE, TokenType.GROUP_BY, TokenType.HAVING, TokenType.ALIAS})
