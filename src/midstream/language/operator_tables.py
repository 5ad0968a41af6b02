"""The operators: how tight each binds, and which function it is."""

from __future__ import annotations

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from midstream.language.grammar import NAMES
from midstream.language.nodes import Node
from midstream.language.over_grammar import PREDICATE

OR, AND, NOT = 1, 2, 3
CONCATENATION, SUM, PRODUCT, SIGN = 5, 6, 7, 8

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
    TokenType.TILDE: (PREDICATE, exp.RegexpLike),
    TokenType.NULLSAFE_EQ: (PREDICATE, exp.NullSafeEQ),
    TokenType.DPIPE: (CONCATENATION, exp.DPipe),
    TokenType.ARROW: (CONCATENATION, exp.JSONExtract),
    TokenType.DARROW: (CONCATENATION, exp.JSONExtractScalar),
    TokenType.AMP: (CONCATENATION, exp.BitwiseAnd),
    TokenType.PIPE: (CONCATENATION, exp.BitwiseOr),
    TokenType.PLUS: (SUM, exp.Add),
    TokenType.DASH: (SUM, exp.Sub),
    TokenType.STAR: (PRODUCT, exp.Mul),
    TokenType.SLASH: (PRODUCT, exp.Div),
    TokenType.DIV: (PRODUCT, exp.IntDiv),
    TokenType.MOD: (PRODUCT, exp.Mod),
}

CALLED: dict[TokenType, tuple[int, str]] = {
    TokenType.IRLIKE: (PREDICATE, "regexp_matches_any_case"),
    TokenType.CARET: (SIGN, "raised"),
    TokenType.DSTAR: (SIGN, "raised"),
}
"""Operators that are calls."""

WORDS: dict[str, tuple[int, str]] = {
    "DIV": (PRODUCT, "integer_division"),
    "MOD": (PRODUCT, "mod"),
    "REGEXP": (PREDICATE, "regexp_matches"),
    "RLIKE": (PREDICATE, "regexp_matches"),
    "SIMILAR": (PREDICATE, "regexp_full_match"),
    "GLOB": (PREDICATE, "glob"),
}
"""Words that are operators between two values, and names everywhere else."""

SHIFTS = {TokenType.LT: "shift_left", TokenType.GT: "shift_right"}

STARTS_OPERAND = frozenset({*NAMES, TokenType.NUMBER, TokenType.STRING, TokenType.L_PAREN, TokenType.DASH})

POSTFIX = {TokenType.IS: PREDICATE, TokenType.IN: PREDICATE, TokenType.BETWEEN: PREDICATE, TokenType.NOT: PREDICATE}

NEGATABLE = (TokenType.IN, TokenType.BETWEEN, TokenType.LIKE, TokenType.ILIKE)

FUNCTION_WORDS = frozenset({TokenType.VAR, TokenType.IDENTIFIER, TokenType.LEFT, TokenType.RIGHT})

WINDOW_WORDS = ("RANGE", "ROWS", "NOW", "UNBOUNDED", "HOP", "TUMBLE", "PARTITION")

ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}

CLAUSES = frozenset({TokenType.FROM, TokenType.WHERE, TokenType.GROUP_BY, TokenType.HAVING, TokenType.ALIAS})

OPERATORS: dict[type[Node], str] = {
    exp.Add: "+",
    exp.Sub: "-",
    exp.Mul: "*",
    exp.Div: "/",
    exp.Mod: "%",
    exp.DPipe: "||",
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.Like: "like",
    exp.ILike: "ilike",
    exp.RegexpLike: "regexp_matches",
    exp.JSONExtract: "json_extract",
    exp.JSONExtractScalar: "json_extract_string",
    exp.BitwiseAnd: "bitwise_and",
    exp.BitwiseOr: "bitwise_or",
    exp.IntDiv: "integer_division",
    exp.NullSafeEQ: "is_not_distinct_from",
    exp.NullSafeNEQ: "is_distinct_from",
}

ROW_COMPARISONS = ("=", "<>", "<", "<=", ">", ">=")

COMPARED = frozenset({"=", "<>", "<", "<=", ">", ">=", "in", "is_distinct_from", "is_not_distinct_from"})

CALCULATED = frozenset({"+", "-", "*", "/", "%"})

READS_LITERALS = COMPARED | CALCULATED | {"nullif", "greatest", "least", "coalesce"}
"""Where a string literal beside a date, a timestamp or a number is read as one."""
