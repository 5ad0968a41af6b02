"""All that the behaviour of a function depends on, as texts: equal for equal code in every process.

Own is what is defined in the packages of the function itself; it is described in full. Of all else the names count, and
with them the values and functions that foreign wrappers and objects openly hold. What has an identity is described
where it is met first, and by its number after that, so that cycles end. Elements of sets and keys of dictionaries are
ordered by a text that says what they are. What can be described in no such way counts by the name of its type.
"""

from __future__ import annotations

import dis
import enum
import functools
import inspect
import logging
import random
import types
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from midstream.algebra.fingerprints.byte_code import global_names, names_in, operations
from midstream.algebra.fingerprints.values import PLAIN, is_known_by_value, is_plain, plain_text, value_parts
from midstream.algebra.fingerprints.written_names import assigned, attribute, item_of, method_of, parameter

_CACHED = type(functools.lru_cache(len))
_BOUND_IN_C = (types.BuiltinFunctionType, types.MethodWrapperType)
_DESCRIPTORS = (staticmethod, classmethod, property, functools.cached_property, functools.partialmethod)
_CODE = (types.FunctionType, types.MethodType, *_BOUND_IN_C, type, functools.partial, _CACHED, *_DESCRIPTORS)
_CONTAINERS = (list, dict, set, deque, bytearray)
_CONSTANT = frozenset(dis.hasconst)
_ANNOTATIONS = ("__annotate__", "__annotate_func__")
_SIGNATURE = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS
_FLAGS = _SIGNATURE | inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """Something that is described in its turn."""

    value: Any


Description = Iterator[str | Part]


class Walk:
    """Goes through all that a function's behaviour depends on; `state` are names whose values are not code."""

    def __init__(self, packages: frozenset[str], state: frozenset[str] = frozenset()) -> None:
        self.packages, self.state = packages, state
        self.codes: list[types.CodeType] = []
        self.methods: dict[types.CodeType, str] = {}
        """The names by which the methods of classes are called."""
        self.called: set[types.CodeType] = set()
        """Methods that are called by reference."""
        self._met: dict[int, tuple[int, Any]] = {}
        """Numbers by identity; keeps what it numbers alive, since identities of what is gone are given again."""
        self._members: set[tuple[int, str]] = set()

    def texts(self, root: Any) -> Iterator[str]:
        """The description, depth-first; without recursion, since data may be nested deeper than calls can be."""
        under_way = [self._parts(root)]
        while under_way:
            try:
                part = next(under_way[-1], None)
            except Exception:  # users' objects can fail in any way where they are read
                part = "unreadable"
            if part is None:
                under_way.pop()
            elif isinstance(part, str):
                yield part
            else:
                under_way.append(self._parts(part.value))

    def _parts(self, value: Any) -> Description:
        while isinstance(value, _CACHED):  # how results are cached does not matter
            value = value.__wrapped__
        if is_plain(value):
            yield plain_text(value, type(value))
        elif (parts := value_parts(value)) is not None:
            yield from map(Part, parts)
        elif isinstance(value, types.CodeType):
            yield from _instructions(value)
        elif type(value) is tuple:
            yield from self._sequence(value)
        elif type(value) is frozenset:
            yield from self._set(value)
        elif id(value) in self._met:
            yield f"again {self._met[id(value)][0]}"
        else:
            self._met[id(value)] = len(self._met), value
            yield from self._code(value) if isinstance(value, _CODE) else self._data(value)

    def _code(self, value: Any) -> Description:
        match value:
            case functools.partial() | functools.partialmethod():
                yield from map(Part, (value.func, value.args, value.keywords))
            case staticmethod() | classmethod():
                yield Part(value.__func__)
            case property():
                yield from map(Part, (value.fget, value.fset, value.fdel))
            case functools.cached_property():
                yield Part(value.func)
            case types.MethodType():
                if isinstance(value.__func__, types.FunctionType):
                    self.called.add(value.__func__.__code__)
                yield from map(Part, (value.__func__, value.__self__))
            case type():
                yield from self._class(value) if self._is_own(value) else [_name(value)]
            case types.FunctionType():
                yield from self._function(value) if self._is_own(value) else self._foreign_function(value)
            case _:
                yield _name(value)
                if not isinstance(value.__self__, types.ModuleType):
                    yield Part(value.__self__)

    def _data(self, value: Any) -> Description:
        if isinstance(value, types.ModuleType):
            yield value.__name__
            return
        yield Part(type(value))
        own = self._is_own(type(value)) or isinstance(value, types.SimpleNamespace)
        if isinstance(value, dict | types.MappingProxyType):
            yield from self._mapping(value)
            yield from [Part(value.default_factory)] if isinstance(value, defaultdict) else ()
        elif isinstance(value, list | tuple | deque):
            yield from self._sequence(value)
        elif isinstance(value, set | frozenset):
            yield from self._set(value)
        elif isinstance(value, PLAIN):
            yield from (plain_text(value, kind) for kind in PLAIN if isinstance(value, kind))
        elif not own:
            yield from self._foreign_object(value)
        if own:
            yield from self._named(self._attributes(value).items())

    def _function(self, function: types.FunctionType) -> Description:
        code, held = function.__code__, function.__globals__
        self.codes.append(code)
        yield Part(code)
        for name, default in _defaults(function).items():
            yield name
            yield self._unless_state(parameter(code, name), default)
        for name, content in _closure(function).items():
            yield self._unless_state(name, content)  # without the name, which may be another
        names = names_in(code)
        for name in sorted(global_names(code) & held.keys()):
            yield name
            yield from self._variable(name, held[name], names)
        yield from self._named((name, part) for name, part in vars(function).items() if self._counts(name, part))

    def _variable(self, name: str, value: Any, names: frozenset[str]) -> Description:
        """What a name of a module has; of a module of the own packages, all that code with these names may mean."""
        if not (isinstance(value, types.ModuleType) and value.__name__.partition(".")[0] in self.packages):
            yield self._unless_state(name, value)
            return
        yield "module"
        for member in sorted(names & vars(value).keys()):
            if (id(value), member) not in self._members:
                self._members.add((id(value), member))
                yield member
                part = vars(value)[member]
                name = attribute(member) if self._is_state(attribute(member), part) else member
                yield from self._variable(name, part, names)

    def _class(self, kind: type) -> Description:
        yield from map(Part, (type(kind), kind.__bases__))
        parts = {name: part for name, part in vars(kind).items() if self._counts(name, part)}
        if isinstance(kind, enum.EnumMeta):  # its tables grow while it is used
            parts = {name: part for name, part in parts.items() if name[0] != "_"} | dict(kind.__members__)
        for name, part in parts.items():
            self._note_methods(name, part)
        yield from self._named(parts.items())

    def _note_methods(self, name: str, part: Any) -> None:
        function = getattr(part, "__func__", part)
        if isinstance(part, property) and isinstance(part.fset, types.FunctionType):
            self.methods[part.fset.__code__] = ""
        elif isinstance(function, types.FunctionType):
            self.methods[function.__code__] = name

    def _foreign_function(self, function: types.FunctionType) -> Description:
        yield f"{function.__globals__.get('__name__')}.{function.__code__.co_qualname}"
        held = [*_closure(function).values(), getattr(function, "__wrapped__", None)]
        yield from (Part(part) for part in held if self._is_followed(part))

    def _foreign_object(self, value: Any) -> Description:
        if isinstance(value, logging.Logger | random.Random):  # their attributes are settings and progress of a run
            return
        yield _name(value)
        held = {name: part for name, part in _instance_dict(value).items() if name[0] != "_" or name == "__wrapped__"}
        yield from self._named((name, part) for name, part in held.items() if self._is_followed(part))

    def _is_followed(self, part: Any) -> bool:
        return isinstance(part, _CODE) or is_known_by_value(part)

    def _attributes(self, value: Any) -> dict[str, Any]:
        """The attributes of an object that its own code does not write to, in its dictionary and its slots."""
        kinds = type(value).__mro__
        found = dict(_instance_dict(value))
        computed = set()
        for kind in kinds:
            for name, member in vars(kind).items():
                if isinstance(member, functools.cached_property):
                    computed.add(name)
                elif isinstance(member, types.MemberDescriptorType) and hasattr(value, name):
                    found.setdefault(name, member.__get__(value, kind))
        return {name: part for name, part in found.items() if name not in computed and self._counts(name, part)}

    def _counts(self, name: str, part: Any) -> bool:
        """Whether an attribute is code or a constant; special names matter only where they are code."""
        if isinstance(part, _CODE):
            return name not in _ANNOTATIONS
        special = name[:2] == "__" == name[-2:] or isinstance(part, types.MemberDescriptorType)
        return not (special or self._is_state(attribute(name), part))

    def _unless_state(self, name: str, value: Any) -> str | Part:
        return "state" if self._is_state(name, value) else Part(value)

    def _is_state(self, name: str, value: Any) -> bool:
        """Whether a run writes to what has a name; methods and items of objects other than containers are their own."""
        if isinstance(value, (*_CODE, types.ModuleType)) or assigned(name) in self.state:
            return assigned(name) in self.state
        if name in self.state or not isinstance(value, _CONTAINERS):
            return name in self.state
        parts = value.values() if isinstance(value, dict) else value
        in_parts = item_of(name) in self.state and all(isinstance(part, _CONTAINERS) for part in parts)
        return in_parts or method_of(name) in self.state

    def _named(self, parts: Iterable[tuple[str, Any]]) -> Description:
        for name, part in sorted(parts, key=lambda item: item[0]):
            yield name
            yield Part(part)
        yield "end"

    def _sequence(self, value: Any) -> Description:
        yield f"sequence {len(value)}"
        for part in value:
            yield plain_text(part, type(part)) if is_plain(part) else Part(part)

    def _set(self, value: Any) -> Description:
        """Elements that look the same count by their looks, since their order is not known."""
        yield f"set {len(value)}"
        by_looks = defaultdict(list)
        for part in value:
            by_looks[self._looks(part)].append(part)
        for looks, parts in sorted(by_looks.items()):
            yield looks
            yield Part(parts[0]) if len(parts) == 1 and not is_plain(parts[0]) else f"{len(parts)}"

    def _mapping(self, value: Any) -> Description:
        """Keys that look the same stay in the order of the dictionary."""
        yield f"mapping {len(value)}"
        for looks, key, part in sorted(((self._looks(key), key, part) for key, part in value.items()), key=_first):
            yield looks
            if not is_plain(key):
                yield Part(key)
            yield plain_text(part, type(part)) if is_plain(part) else Part(part)

    def _looks(self, value: Any, depth: int = 3) -> str:
        """A short text by which elements and keys are ordered."""
        if is_plain(value):
            return plain_text(value, type(value))
        if depth == 0:
            return _name(type(value))
        parts: Iterable[Any]
        if isinstance(value, types.FunctionType):
            parts = (value.__code__.co_qualname, value.__code__.co_code, *filter(is_plain, value.__code__.co_consts))
        elif isinstance(value, (type, *_BOUND_IN_C)):
            parts = (_name(value),)
        elif (known := value_parts(value)) is not None or isinstance(value, tuple):
            parts = known or value
        elif isinstance(value, frozenset):
            parts = sorted(self._looks(part, depth - 1) for part in value)
        else:
            held = self._attributes(value) if self._is_own(type(value)) else {}
            parts = (part for item in sorted(held.items(), key=_first) for part in item if is_plain(part))
        return f"{_name(type(value))} {[self._looks(part, depth - 1) for part in parts]}"

    def _is_own(self, value: Any) -> bool:
        return package(value) in self.packages


def _instructions(code: types.CodeType) -> Description:
    """Byte code with its constants in the order of their use: those not used, such as docstrings, do not matter."""
    instructions, constants = bytearray(code.co_code), []
    for place, operation, argument in operations(code):
        if operation in _CONSTANT:
            constants.append(code.co_consts[argument])
            instructions[place + 1] = 0
    yield instructions.hex()
    yield from map(Part, constants)
    only_by_name = code.co_varnames[code.co_argcount :][: code.co_kwonlyargcount]
    yield f"{code.co_argcount} {code.co_posonlyargcount} {only_by_name} {code.co_flags & _FLAGS}"
    yield " ".join(code.co_names)
    yield getattr(code, "co_exceptiontable", b"").hex()


def packages(function: Any) -> frozenset[str]:
    """The packages whose code is a function's own: that of the function, and those of the functions it is made of."""
    match function:
        case functools.partial():
            given = (function.func, *function.args, *function.keywords.values())
            return frozenset().union(*(packages(part) for part in given if isinstance(part, _CODE)))
        case types.MethodType():
            return packages(function.__self__) | packages(function.__func__)
        case type() | types.FunctionType():
            inner = inspect.getattr_static(function, "__wrapped__", None)
            return frozenset({package(function)}) | (frozenset() if inner is None else packages(inner))
        case _:
            held = _instance_dict(function)
            inside = [part for name in ("__wrapped__", "pyfunc") if isinstance(part := held.get(name), _CODE)]
            return frozenset({package(type(function))}) if not inside else packages(inside[0])


def package(value: Any) -> str:
    """The package that a class or a function is defined in; a wrapper says the module of what it wraps."""
    module = value.__globals__.get("__name__") if isinstance(value, types.FunctionType) else None
    return str(module or getattr(value, "__module__", "") or "").partition(".")[0]


def _first(item: tuple[Any, ...]) -> Any:
    return item[0]


def _name(value: Any) -> str:
    """The qualified name of a class or function, or of the type of an object without a name."""
    for word in ("__qualname__", "__name__"):
        if isinstance(value, type) or inspect.getattr_static(value, word, None) is not None:
            return f"{getattr(value, '__module__', '')}.{getattr(value, word)}"
    return f"{type(value).__module__}.{type(value).__qualname__}"


def _instance_dict(value: Any) -> dict[str, Any]:
    held = getattr(value, "__dict__", None)
    return held if isinstance(held, dict) else {}


def _defaults(function: types.FunctionType) -> dict[str, Any]:
    given = function.__defaults__ or ()
    positional = function.__code__.co_varnames[: function.__code__.co_argcount]
    return dict(zip(positional[len(positional) - len(given) :], given, strict=True)) | (function.__kwdefaults__ or {})


def _closure(function: types.FunctionType) -> dict[str, Any]:
    """What the cells of a function hold; those not filled yet are left out."""
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    return {name: cell.cell_contents for name, cell in cells if cell != types.CellType()}
