"""Fingerprints of users' functions: equal for equal code, whatever file or line it stands on.

What a function does follows from its byte code with its constants and names, its defaults, what its closure holds, and
the functions, classes and values of its own package that it refers to. Of other packages the names count. Comments,
docstrings and positions do not matter. A function is looked at once in a process, before it runs: what it writes to
meanwhile is state, not code. Byte code depends on Python's version, so a fingerprint names it, and fingerprints of two
versions say nothing about each other. Whoever needs more, or less, gives the function a version.
"""

from __future__ import annotations

import copyreg
import datetime
import decimal
import dis
import enum
import fractions
import functools
import hashlib
import inspect
import re
import sys
import types
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from midstream.errors import JobError

VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"

_PLAIN = (str, bytes, float, complex, type(None), range, decimal.Decimal, fractions.Fraction)
_TIMES = (datetime.date, datetime.time, datetime.timedelta, datetime.tzinfo)
_METHODS = (staticmethod, classmethod, types.MethodType)
_CONSTANT = frozenset(dis.hasconst)
_HEADER = ("co_argcount", "co_posonlyargcount", "co_kwonlyargcount", "co_names", "co_freevars")

_known: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()
"""The fingerprints of functions that were looked at."""


def fingerprint(function: Callable[..., Any]) -> str:
    """The fingerprint of a function, a class or a callable object.

    >>> fingerprint(lambda x: x + 1) == fingerprint(lambda y: y + 1)
    True
    >>> fingerprint(lambda x: x + 1) == fingerprint(lambda x: x + 2)
    False
    """
    try:
        return _known.setdefault(function, _fingerprint(function))
    except TypeError:  # neither hashed nor referred to weakly
        return _fingerprint(function)


def differ(old: str, new: str) -> bool:
    """Whether two fingerprints are of different code; those of different versions of Python cannot tell."""
    return old != new and old.partition(":")[0] == new.partition(":")[0]


def _fingerprint(function: Callable[..., Any]) -> str:
    digest = hashlib.blake2b(digest_size=12)
    try:
        for text in _Walk(_package(function)).texts(function):
            digest.update(text.encode(errors="surrogatepass") + b"\x00")
    except Exception as error:
        raise JobError(
            f"the code of function {_name(function)} cannot be described",
            detail=f"{type(error).__name__}: {error}",
            hint="give it a version: ScalarFunction(..., version='1'), and another one when what it gives changes",
        ) from error
    return f"{VERSION}:{digest.hexdigest()}"


class _Walk:
    """Describes all that a function's behaviour depends on, each part once."""

    def __init__(self, package: str) -> None:
        self.package = package
        self.met: dict[int, Any] = {}
        """By identity; kept alive, since identities of what is gone are given again."""

    def texts(self, value: Any) -> Iterator[str]:
        """A value, as texts that are the same in every process."""
        match value:
            case enum.Enum():
                yield f"{_name(type(value))} {value.name} {value.value!r}"
            case int():
                yield f"{_name(type(value))} {int(value):x}"
            case re.Pattern():
                yield f"pattern {value.pattern!r} {value.flags}"
            case _ if isinstance(value, (*_PLAIN, *_TIMES)):
                yield f"{_name(type(value))} {value!r}"
            case set() | frozenset():
                yield f"set {sorted(' '.join(_Walk(self.package).texts(part)) for part in value)}"
            case _ if id(value) in self.met:
                yield f"again {list(self.met).index(id(value))}"
            case _:
                self.met[id(value)] = value
                yield from self._parts(value)

    def _parts(self, value: Any) -> Iterator[str]:
        match value:
            case tuple() | list():
                yield from self._all(f"sequence {len(value)}", *value)
            case dict():
                items = sorted((" ".join(self.texts(key)), part) for key, part in value.items() if _is_orderly(key))
                yield from self._all(f"mapping {len(value)}", *(part for item in items for part in item))
            case types.CodeType():
                yield from self._code(value)
            case functools.partial():
                yield from self._all("partial", value.func, value.args, value.keywords)
            case _ if isinstance(value, _METHODS):
                yield from self._all("method", value.__func__, getattr(value, "__self__", None))
            case property():
                yield from self._all("property", value.fget, value.fset)
            case functools.cached_property():
                yield from self._all("property", value.func)
            case _ if inner := getattr(value, "__wrapped__", None):
                yield from self._all("wrapper", inner, *self._own_code(value))
            case types.FunctionType() if _package(value) == self.package:
                yield from self._all("function", *self._own_code(value))
            case type() if _package(value) == self.package:
                yield from self._all(f"class {len(value.__bases__)}", *value.__bases__, _members(value))
            case types.ModuleType() | type() | types.FunctionType():
                yield _name(value)
            case _ if _package(type(value)) == self.package:
                yield from self._all("object", type(value), value.__getstate__())
            case _:
                yield from self._all(_name(type(value)), *_reduced(value))

    def _all(self, *parts: Any) -> Iterator[str]:
        for part in parts:
            yield from self.texts(part)

    def _own_code(self, function: Any) -> tuple[Any, ...]:
        """Code, defaults, closure, and what the code refers to in its module and in modules of its package."""
        if not isinstance(function, types.FunctionType):
            return ()
        code, names = function.__code__, _names(function.__code__)
        places, used = [function.__globals__], list[dict[str, Any]]()
        for known in places:
            found = {name: known[name] for name in names if name in known}
            used.append(found)
            places += [vars(part) for part in found.values() if self._is_new_module(part, places)]
        cells = [cell.cell_contents for cell in function.__closure__ or () if cell != types.CellType()]
        last = code.co_argcount + code.co_kwonlyargcount
        optional = code.co_varnames[code.co_argcount - len(function.__defaults__ or ()) : last]
        return code, optional, function.__defaults__, function.__kwdefaults__, cells, used

    def _is_new_module(self, value: Any, places: list[dict[str, Any]]) -> bool:
        own = isinstance(value, types.ModuleType) and value.__name__.partition(".")[0] == self.package
        return own and not any(vars(value) is known for known in places)

    def _code(self, code: types.CodeType) -> Iterator[str]:
        """Byte code with its constants in the order of their use: those not used, such as docstrings, do not matter."""
        instructions, extended = bytearray(code.co_code), 0
        for place in range(0, len(instructions), 2):
            operation, argument = instructions[place], extended | instructions[place + 1]
            if operation in _CONSTANT:
                yield from self.texts(code.co_consts[argument])
                instructions[place + 1] = 0
            extended = argument << 8 if operation == dis.EXTENDED_ARG else 0
        yield instructions.hex()
        yield from (str(getattr(code, name)) for name in _HEADER)


def _members(kind: type) -> dict[str, Any]:
    """The methods, properties and constants of a class."""
    return {name: part for name, part in vars(kind).items() if name in ("__init__", "__call__") or name[:2] != "__"}


def _names(code: types.CodeType) -> list[str]:
    """The names that code and the functions within it refer to."""
    inner = [name for part in code.co_consts if isinstance(part, types.CodeType) for name in _names(part)]
    return sorted({*code.co_names, *inner})


def _is_orderly(key: Any) -> bool:
    return isinstance(key, (*_PLAIN, *_TIMES, int, tuple, enum.Enum))


def _reduced(value: Any) -> tuple[Any, ...]:
    """What a value of another package is made of, as `copy` and `pickle` ask for it; nothing if it does not say."""
    try:
        own = copyreg.dispatch_table.get(type(value))
        made = value.__reduce_ex__(4) if own is None else own(value)
    except Exception:
        return ()
    return (made,) if isinstance(made, str) else tuple(list(p) if isinstance(p, Iterator) else p for p in made)


def _name(value: Any) -> str:
    return f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', getattr(value, '__name__', ''))}"


def _package(value: Any) -> str:
    """The package in which a function, a class, or the class of an object is defined."""
    while isinstance(value, functools.partial):
        value = value.func
    value = inspect.unwrap(value) if callable(value) else value
    own = value if isinstance(value, type | types.FunctionType | types.MethodType) else type(value)
    return str(getattr(own, "__module__", "") or "").partition(".")[0]
