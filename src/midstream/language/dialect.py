"""CQL as a sqlglot dialect.

Few words are reserved, so that streams and columns may be called nearly anything: `istream`, `range`, `rows`, `hop`
and all type names are ordinary names wherever they cannot mean anything else.
"""

from __future__ import annotations

from typing import ClassVar

from sqlglot import tokens
from sqlglot.dialects.dialect import Dialect
from sqlglot.tokenizer_core import TokenType

from midstream.language.query_grammar import QueryGrammar


class CQL(Dialect):
    """SQL over streams with windows."""

    class Tokenizer(tokens.Tokenizer):
        """Letters to tokens; every word that is not listed is a name."""

        HEX_STRINGS: ClassVar = [("x'", "'"), ("X'", "'")]
        IDENTIFIERS: ClassVar = ['"', "`"]
        COMMENTS: ClassVar = ["--", ("/*", "*/")]
        COMMANDS: ClassVar = set()
        KEYWORDS: ClassVar = {
            "==": TokenType.EQ,
            "<=>": TokenType.NULLSAFE_EQ,
            "~*": TokenType.IRLIKE,
            "**": TokenType.DSTAR,
            ":=": TokenType.COLON_EQ,
            "::": TokenType.DCOLON,
            "||": TokenType.DPIPE,
            "->>": TokenType.DARROW,
            "->": TokenType.ARROW,
            "//": TokenType.DIV,
            ">=": TokenType.GTE,
            "<=": TokenType.LTE,
            "<>": TokenType.NEQ,
            "!=": TokenType.NEQ,
            "ALL": TokenType.ALL,
            "AND": TokenType.AND,
            "AS": TokenType.ALIAS,
            "BETWEEN": TokenType.BETWEEN,
            "CASE": TokenType.CASE,
            "CROSS": TokenType.CROSS,
            "DISTINCT": TokenType.DISTINCT,
            "ELSE": TokenType.ELSE,
            "END": TokenType.END,
            "EXCEPT": TokenType.EXCEPT,
            "EXISTS": TokenType.EXISTS,
            "FALSE": TokenType.FALSE,
            "FROM": TokenType.FROM,
            "FULL": TokenType.FULL,
            "GROUP": TokenType.GROUP_BY,
            "HAVING": TokenType.HAVING,
            "ILIKE": TokenType.ILIKE,
            "IN": TokenType.IN,
            "INNER": TokenType.INNER,
            "INTERSECT": TokenType.INTERSECT,
            "IS": TokenType.IS,
            "JOIN": TokenType.JOIN,
            "LEFT": TokenType.LEFT,
            "LIKE": TokenType.LIKE,
            "LIMIT": TokenType.LIMIT,
            "NATURAL": TokenType.NATURAL,
            "NOT": TokenType.NOT,
            "NULL": TokenType.NULL,
            "ON": TokenType.ON,
            "OR": TokenType.OR,
            "ORDER": TokenType.ORDER_BY,
            "RIGHT": TokenType.RIGHT,
            "SELECT": TokenType.SELECT,
            "THEN": TokenType.THEN,
            "TRUE": TokenType.TRUE,
            "UNION": TokenType.UNION,
            "USING": TokenType.USING,
            "WHEN": TokenType.WHEN,
            "WHERE": TokenType.WHERE,
            "WITH": TokenType.WITH,
        }

    Parser = QueryGrammar
