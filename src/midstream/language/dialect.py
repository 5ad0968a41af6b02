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

_WORDS = (
    "ALL AND BETWEEN CASE CROSS DISTINCT ELSE END EXCEPT EXISTS FALSE FROM FULL HAVING ILIKE IN INNER INTERSECT IS JOIN"
    " LEFT LIKE LIMIT NATURAL NOT NULL ON OR RIGHT SELECT THEN TRUE UNION USING WHEN WHERE WITH"
)

_SYMBOLS = """
    AS ALIAS, GROUP GROUP_BY, ORDER ORDER_BY, == EQ, <=> NULLSAFE_EQ, ~* IRLIKE, @> AT_GT, && DAMP, ** DSTAR,
    ! NOT, ~~ LIKE, ~~* ILIKE, <@ LT_AT, #> HASH_ARROW, #>> DHASH_ARROW,
    := COLON_EQ, :: DCOLON, || DPIPE, ->> DARROW, -> ARROW, => FARROW, // DIV, >= GTE, <= LTE, <> NEQ, != NEQ
"""


class CQL(Dialect):
    """SQL over streams with windows."""

    NUMBERS_CAN_BE_UNDERSCORE_SEPARATED = True

    class Tokenizer(tokens.Tokenizer):
        """Letters to tokens; every word that is not listed is a name."""

        HEX_STRINGS: ClassVar = [("x'", "'"), ("X'", "'")]
        IDENTIFIERS: ClassVar = ['"', "`"]
        COMMENTS: ClassVar = ["--", ("/*", "*/")]
        COMMANDS: ClassVar = set()
        KEYWORDS: ClassVar = {
            **{word: TokenType[word] for word in _WORDS.split()},
            **{written: TokenType[name] for written, name in map(str.split, _SYMBOLS.split(","))},
        }

    Parser = QueryGrammar
