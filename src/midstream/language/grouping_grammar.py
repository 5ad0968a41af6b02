"""What GROUP BY groups by: one list of keys, or several, whose results are united."""

from __future__ import annotations

from itertools import chain, combinations, product

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from midstream.language.nodes import Node
from midstream.language.window_grammar import WindowGrammar

MOST_SETS = 64


class GroupingGrammar(WindowGrammar):
    """Reads GROUP BY."""

    def group(self) -> Node:
        """`GROUP BY a, ROLLUP (b, c)`, `a, b WITH CUBE`, `GROUPING SETS ((a), (b), ())`, `GROUP BY ALL`."""
        if self.take(TokenType.ALL):
            return exp.Group(expressions=[], all=True)
        elements = self.several(self._grouping)
        for word in ("ROLLUP", "CUBE"):
            if self.take_words("WITH", word):
                elements = [self._sets(word, [sets[0] for sets in elements])]
        if self.peek_words("GROUPING", "SETS"):
            elements = [self._grouping()]
        combined = [list(chain(*chosen)) for chosen in product(*elements)]
        if len(combined) > MOST_SETS:
            self.fail(f"GROUP BY has more than {MOST_SETS} groupings")
        if len(combined) == 1:
            return exp.Group(expressions=combined[0])
        sets = [exp.Tuple(expressions=[key.copy() for key in keys]) for keys in combined]
        return exp.Group(expressions=[], sets=sets)

    def _grouping(self) -> list[list[Node]]:
        """The sets that one element of GROUP BY stands for."""
        word = self._curr.text.upper()
        if self.take_words("GROUPING", "SETS"):
            return list(chain(*self.wrapped(lambda: self.several(self._grouping))))
        if word in ("ROLLUP", "CUBE") and self._next.token_type == TokenType.L_PAREN:
            self._advance()
            return self._sets(word, [_keys_of(key) for key in self.wrapped(self.values)])
        return [[]] if self.take_words("(", ")") else [_keys_of(self.value())]

    def _sets(self, word: str, parts: list[list[Node]]) -> list[list[Node]]:
        """All beginnings of a list, or all selections of it; the whole first."""
        if word == "CUBE" and 2 ** len(parts) > MOST_SETS:
            self.fail(f"CUBE of {len(parts)} columns is more than {MOST_SETS} groupings")
        sizes = range(len(parts), -1, -1)
        chosen = ([parts[:n]] if word == "ROLLUP" else combinations(parts, n) for n in sizes)
        return [list(chain(*some)) for some in chain(*chosen)]


def _keys_of(node: Node) -> list[Node]:
    """The keys of one element: several if it is a list in parentheses."""
    return list(node.expressions) if isinstance(node, exp.Tuple) else [node]
