"""Byte code read instruction by instruction, and the names in it."""

from __future__ import annotations

import dis
import types
from collections.abc import Iterator


def operations(code: types.CodeType) -> Iterator[tuple[int, int, int]]:
    """The place, the operation and the argument of each instruction; much faster than `dis.get_instructions`."""
    instructions, extended = code.co_code, 0
    for place in range(0, len(instructions), 2):
        operation, argument = instructions[place], extended | instructions[place + 1]
        yield place, operation, argument
        extended = argument << 8 if operation == dis.EXTENDED_ARG else 0


def inner_codes(code: types.CodeType) -> list[types.CodeType]:
    """The code of functions and classes within code."""
    return [part for part in code.co_consts if isinstance(part, types.CodeType)]


def names_in(code: types.CodeType) -> frozenset[str]:
    """The names of globals, attributes and modules that code and the functions within it refer to."""
    return frozenset(code.co_names).union(*map(names_in, inner_codes(code)))


def global_names(code: types.CodeType) -> frozenset[str]:
    """The names that code and the functions within it read from their module.

    >>> sorted(global_names((lambda row: [row.total + total for _ in row]).__code__))
    ['total']
    """
    read = (_global_name(code, operation, argument) for _, operation, argument in operations(code))
    return frozenset(filter(None, read)).union(*map(global_names, inner_codes(code)))


_LOAD_GLOBAL = dis.opmap["LOAD_GLOBAL"]
_LOAD_NAMES = frozenset(dis.opmap.get(name) for name in ("LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"))


def _global_name(code: types.CodeType, operation: int, argument: int) -> str | None:
    if operation == _LOAD_GLOBAL:  # the lowest bit says whether it is called
        return code.co_names[argument >> 1]
    return code.co_names[argument] if operation in _LOAD_NAMES else None
