"""UNION, EXCEPT and INTERSECT: columns meet by position, in their common type, under the first query's names.

The ALL forms are multiset operations per snapshot; the others work on distinct tuples.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.types as kind
from sqlglot import exp

from midstream.algebra.expressions import Call, Column, Literal, Named, conjunction
from midstream.algebra.plan import Difference, Distinct, Intersect, Join, Project, Relation, Union
from midstream.algebra.types import BOOLEAN, TEXT, is_nested, mixed_type, show_type
from midstream.language.binding import Binding, match_name
from midstream.language.dependent import rename
from midstream.language.literals import coerce
from midstream.language.nested import distinct as distinct_of
from midstream.language.nested import told_apart
from midstream.language.nodes import Node
from midstream.language.windows import require_window

WORDS: dict[type[Node], str] = {exp.Union: "UNION", exp.Except: "EXCEPT", exp.Intersect: "INTERSECT"}


def combine(binding: Binding, node: Node, left: Relation, right: Relation) -> Relation:
    """The set operation of two relations."""
    word, distinct = WORDS[type(node)], bool(node.args.get("distinct"))
    if node.args.get("by_name"):
        left, right = _by_name(left, right)
    elif (named := node.args.get("corresponding")) is not None:
        shared = [name for name in left.schema.names if name in right.schema.names]
        names = [found for name in named for found in match_name(name, shared)] if named else shared
        if not names or len(names) < len(named):
            raise binding.error("CORRESPONDING takes columns that both sides have", node)
        left, right = _with_columns(left, names), _with_columns(right, names)
    types = common_types(binding, node, word, left, right)
    left, right = cast(left, types), cast(right, types)
    if distinct or not isinstance(node, exp.Union):
        require_window(binding, word, left, right)
    match node:
        case exp.Union():
            united = Union((*_united(left), right))
            return distinct_of(united) if distinct else united
        case _ if any(is_nested(kind) for kind in left.schema.types):
            return _by_join(binding, node, word, left, right)
        case exp.Except():
            return Difference(_distinct(left, distinct), _distinct(right, distinct))
    return Intersect(_distinct(left, distinct), _distinct(right, distinct))


def _by_name(left: Relation, right: Relation) -> tuple[Relation, Relation]:
    """Both sides with all columns of either; what one does not have is null there."""
    names = list(dict.fromkeys([*left.schema.names, *right.schema.names]))
    return _with_columns(left, names), _with_columns(right, names)


def _with_columns(plan: Relation, names: list[str]) -> Relation:
    fields = {field.name: Column(field.name, field.type) for field in plan.schema}
    return Project(plan, tuple(Named(name, fields.get(name, Literal(None, pa.null()))) for name in names))


def _united(plan: Relation) -> tuple[Relation, ...]:
    return plan.united if isinstance(plan, Union) else (plan,)


def _distinct(plan: Relation, wanted: bool) -> Relation:
    return Distinct(plan) if wanted and not isinstance(plan, Distinct) else plan


def common_types(binding: Binding, node: Node, word: str, left: Relation, right: Relation) -> list[pa.DataType]:
    """The common types of the columns of both sides."""
    if len(left.schema) != len(right.schema):
        raise binding.error(f"{word} needs equally many columns, not {len(left.schema)} and {len(right.schema)}", node)
    types = []
    for a, b in zip(left.schema, right.schema, strict=True):
        both = a.type if a.type == b.type else mixed_type(a.type, b.type)
        if both is None:
            raise binding.error(
                f"{word} cannot put {show_type(a.type)} and {show_type(b.type)} into column {a.name}",
                node,
                hint="cast one of them with CAST(x AS …)",
            )
        types.append(TEXT if kind.is_null(both) else both)
    return types


def cast(plan: Relation, types: list[pa.DataType]) -> Relation:
    """A relation with its columns in other types."""
    if plan.schema.types == types:
        return plan
    if isinstance(plan, Project):
        typed = zip(plan.columns, types, strict=True)
        return Project(plan.input, tuple(Named(c.name, coerce(c.expression, t)) for c, t in typed))
    fields = zip(plan.schema, types, strict=True)
    return Project(plan, tuple(Named(f.name, coerce(Column(f.name, f.type), t)) for f, t in fields))


def _by_join(binding: Binding, node: Node, word: str, left: Relation, right: Relation) -> Relation:
    """Lists, structs and maps are told apart by texts, so what one side has of them is looked up in the other."""
    if not node.args.get("distinct"):
        raise binding.error(f"{word} ALL cannot count lists, structs and maps", node, hint=f"write {word}")
    alias = binding.alias("other", node)
    other = rename(right, {name: f"{alias}.{name}" for name in right.schema.names})
    columns = zip(left.schema, other.schema, strict=True)
    sides = [(told_apart(Column(a.name, a.type)), told_apart(Column(b.name, b.type))) for a, b in columns]
    on = conjunction([Call("is_not_distinct_from", pair, BOOLEAN) for pair in sides])
    return Join(distinct_of(left), other, on, "anti" if isinstance(node, exp.Except) else "semi")
