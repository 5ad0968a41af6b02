"""The names that code writes to: caches, counters and other state of a run, which are not code.

Written are a global or nonlocal name that is assigned to, an attribute that is assigned to, and a container that is
changed where it stands under its name: `CACHE[key] = value` (written as `CACHE`), `CACHE.update(…)` (`CACHE()`),
`CACHE[key].append(row)` (`CACHE[]`). The stack of the byte code is followed to tell which container is changed. What is
changed under another name (an alias, an argument of a call) is not seen.
"""

from __future__ import annotations

import dis
import types
from collections.abc import Iterable, Iterator, Mapping

from midstream.algebra.fingerprints.byte_code import inner_codes, names_in

CONSTRUCTORS = frozenset({"__init__", "__new__", "__post_init__", "__init_subclass__", "__set_name__", "__setstate__"})

_SET_METHODS = {"add", "discard", "difference_update", "intersection_update", "symmetric_difference_update"}
_LIST_METHODS = {
    "append",
    "appendleft",
    "extend",
    "extendleft",
    "insert",
    "popleft",
    "remove",
    "reverse",
    "rotate",
    "sort",
}
_DICT_METHODS = {"clear", "move_to_end", "pop", "popitem", "setdefault", "subtract", "update"}
_MUTATORS = frozenset(_SET_METHODS | _LIST_METHODS | _DICT_METHODS)
_UNCHANGING = frozenset({"NOP", "RESUME", "EXTENDED_ARG", "KW_NAMES", "CACHE", "NOT_TAKEN", "MAKE_CELL"})
_WRITES = frozenset(
    number for name, number in dis.opmap.items() if name.startswith(("STORE_", "DELETE_")) and "_FAST" not in name
)
_ENDS = ("JUMP_FORWARD", "JUMP_BACKWARD", "RETURN_", "RAISE_VARARGS", "RERAISE")


def attribute(name: str) -> str:
    """An attribute among written names, of whatever object."""
    return f".{name}"


def assigned(name: str) -> str:
    """A global or nonlocal name among written names that itself is assigned to, whatever it has."""
    return f"{name} ="


def item_of(name: str) -> str:
    """What an item of a container is called among written names."""
    return name if not name or name.endswith("[]") else f"{name}[]"


def method_of(name: str) -> str:
    """What a container is called among written names that is changed by a method of its own."""
    return name if not name or name.endswith("[]") else f"{name}()"


def parameter(code: types.CodeType, name: str) -> str:
    """A parameter among written names, whose default is changed."""
    return f"{code.co_qualname}={name}"


def written_names(code: types.CodeType) -> frozenset[str]:
    """The names that code and the functions within it write to; constructors set attributes up.

    >>> def count(key): COUNTS[key] = COUNTS.get(key, START) + 1
    >>> written_names(count.__code__)
    frozenset({'COUNTS'})
    """
    names = frozenset(_Stack(code).written() if _may_write(code) else ()).union(*map(written_names, inner_codes(code)))
    return frozenset(name for name in names if name[0] != ".") if code.co_name in CONSTRUCTORS else names


def _may_write(code: types.CodeType) -> bool:
    return not (_WRITES.isdisjoint(code.co_code[::2]) and _MUTATORS.isdisjoint(code.co_names))


def written_by_run(codes: Iterable[types.CodeType], methods: Mapping[types.CodeType, str]) -> frozenset[str]:
    """What is written during a run; of `methods` only those run that have a special name or one that code refers to."""
    waiting, names, written = list(codes), frozenset({"initialize", "iterate", "terminate"}), frozenset[str]()
    while running := [code for code in waiting if _is_named(methods.get(code), names)]:
        waiting = [code for code in waiting if not _is_named(methods.get(code), names)]
        names = names.union(*map(names_in, running))
        written = written.union(*map(written_names, running))
    return written


def _is_named(method: str | None, names: frozenset[str]) -> bool:
    return method is None or method in names or (method[:2] == "__" == method[-2:])


class _Stack:
    """The names on the stack of byte code, instruction by instruction; "" is a value without a name."""

    def __init__(self, code: types.CodeType) -> None:
        self.code = code
        self.names: list[str] = []
        self.at_target: dict[int, list[str]] = {}
        """The stack at targets of jumps."""
        self.parameters = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]

    def written(self) -> Iterator[str]:
        ended = False
        for instruction in dis.get_instructions(self.code):
            if ended:  # the code below is entered by a jump or by an exception
                self.names = self.at_target.get(instruction.offset, [])
            yield from filter(None, self._writes(instruction))
            self._jump(instruction)
            self._step(instruction)
            ended = instruction.opname.startswith(_ENDS)

    def _writes(self, instruction: dis.Instruction) -> Iterator[str]:
        match instruction.opname:
            case "STORE_GLOBAL" | "DELETE_GLOBAL":
                yield assigned(instruction.argval)
            case "STORE_DEREF" | "DELETE_DEREF" if instruction.argval in self.code.co_freevars:
                yield assigned(instruction.argval)
            case "STORE_ATTR" | "DELETE_ATTR":
                yield attribute(instruction.argval)
            case "STORE_SUBSCR" | "DELETE_SUBSCR":
                yield from self.names[-2:-1]
            case "STORE_SLICE":
                yield from self.names[-3:-2]
            case "LOAD_METHOD" | "LOAD_ATTR" if instruction.argval in _MUTATORS:
                yield from map(method_of, self.names[-1:])

    def _jump(self, instruction: dis.Instruction) -> None:
        if instruction.opcode in dis.hasjrel or instruction.opcode in dis.hasjabs:
            effect = dis.stack_effect(instruction.opcode, instruction.arg, jump=True)
            there = self.names[:effect] if effect < 0 else [*self.names, *[""] * effect]
            self.at_target.setdefault(instruction.argval, there)

    def _step(self, instruction: dis.Instruction) -> None:
        """Applies an instruction to the stack."""
        names, operation, argument = self.names, instruction.opname, instruction.arg or 0
        effect = dis.stack_effect(instruction.opcode, instruction.arg, jump=False)
        if operation in ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF", "LOAD_CLASSDEREF"):
            names += [instruction.argval] * effect
        elif operation in ("LOAD_ATTR", "LOAD_METHOD"):
            names[-1:] = [attribute(instruction.argval)] * (effect + 1)
        elif operation.startswith("LOAD_FAST"):
            local = instruction.argval if isinstance(instruction.argval, tuple) else (instruction.argval,)
            names += [parameter(self.code, name) if name in self.parameters else "" for name in local]
        elif operation == "COPY":
            names += names[-argument:][:1] or [""]
        elif operation == "SWAP" and argument <= len(names):
            names[-1], names[-argument] = names[-argument], names[-1]
        elif operation == "BINARY_SUBSCR" or instruction.argrepr == "[]":
            names[-2:] = map(item_of, names[-2:-1])
        elif operation in _UNCHANGING or "JUMP" in operation or operation.startswith(("POP_", "STORE_", "DELETE_")):
            del names[max(0, len(names) + min(effect, 0)) :]
        elif effect > 0:
            names += [""] * effect
        else:
            del names[max(0, len(names) + effect - 1) :]
            names.append("")
