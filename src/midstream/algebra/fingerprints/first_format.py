"""The first format of fingerprints, `3.11:…`, as checkpoints have it from before there was another.

A function is compared with a record of this format as the record was made, so that code that has not changed is not
refused. This format knows fewer kinds of values, and cannot tell where a `repr` with a memory address got into it.
"""

from __future__ import annotations

import functools
import hashlib
import types
from collections.abc import Callable, Iterator
from typing import Any

Plain = str | bytes | int | float | complex | bool | None


class Unstable(Exception):
    """The description of a function differs from process to process."""


def first_digest(function: Callable[..., Any]) -> str | None:
    """The digest of a function in the first format; None if that differs from process to process."""
    digest = hashlib.blake2b(digest_size=12)
    try:
        for text in _Walk(_package(function)).of(function):
            digest.update(text.encode(errors="surrogatepass"))
            digest.update(b"\x00")
    except Unstable:
        return None
    except Exception:  # such as a value that refers to itself: it had no fingerprint, so the record is of other code
        return ""
    return digest.hexdigest()


class _Walk:
    """Goes through all that a function's behaviour depends on, each part once."""

    def __init__(self, package: str) -> None:
        self.package = package
        self.seen: set[int] = set()

    def of(self, value: Any) -> Iterator[str]:
        if isinstance(value, Plain):
            yield f"{type(value).__name__} {value!r}"
        elif isinstance(value, types.CodeType):
            yield from self._code(value, None)
        elif isinstance(value, tuple | list):
            yield f"{type(value).__name__} {len(value)}"
            for part in value:
                yield from self.of(part)
        elif isinstance(value, frozenset | set):
            yield f"set {sorted(map(_stable, value))}"
        elif isinstance(value, dict):
            for key, part in sorted(value.items(), key=lambda item: _stable(item[0])):
                yield repr(key)
                yield from self.of(part)
        elif id(value) in self.seen:
            yield "again"
        else:
            self.seen.add(id(value))
            yield from self._object(value)

    def _object(self, value: Any) -> Iterator[str]:
        if isinstance(value, functools.partial):
            yield from (text for part in (value.func, value.args, value.keywords) for text in self.of(part))
        elif isinstance(value, staticmethod | classmethod | types.MethodType):
            yield from self.of(value.__func__)
        elif isinstance(value, property):
            yield from (text for part in (value.fget, value.fset) for text in self.of(part))
        elif isinstance(value, types.FunctionType) and self._is_own(value):
            yield from self._function(value)
        elif isinstance(value, type) and self._is_own(value):
            yield from self._class(value)
        elif isinstance(value, type | types.FunctionType | types.BuiltinFunctionType | types.ModuleType):
            yield f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', value.__name__)}"
        else:
            yield from self.of(type(value))
            kept = getattr(value, "__dict__", {})
            yield from self.of({name: part for name, part in kept.items() if isinstance(part, Plain)})

    def _function(self, function: types.FunctionType) -> Iterator[str]:
        code = function.__code__
        yield from self._code(code, function.__doc__)
        yield from self.of(function.__defaults__)
        yield from self.of(function.__kwdefaults__)
        for cell in function.__closure__ or ():
            try:
                yield from self.of(cell.cell_contents)
            except ValueError:  # not filled yet
                yield "empty"
        for name in sorted(_names(code)):
            if name in function.__globals__:
                yield name
                yield from self.of(function.__globals__[name])

    def _code(self, code: types.CodeType, doc: str | None) -> Iterator[str]:
        yield code.co_code.hex()
        yield f"{code.co_argcount} {code.co_posonlyargcount} {code.co_kwonlyargcount} {code.co_flags}"
        yield " ".join(code.co_names)
        for place, constant in enumerate(code.co_consts):
            if place or doc is None or constant != doc:
                yield from self.of(constant)

    def _class(self, kind: type) -> Iterator[str]:
        yield from self.of(kind.__bases__)
        for name, part in sorted(vars(kind).items()):
            described = isinstance(part, types.FunctionType | staticmethod | classmethod | property | Plain)
            if described and name not in ("__doc__", "__module__", "__qualname__", "__firstlineno__"):
                yield name
                yield from self.of(part)

    def _is_own(self, value: Any) -> bool:
        return _package(value) == self.package


def _names(code: types.CodeType) -> set[str]:
    """The names that code refers to, that of functions within it included."""
    inner = (part for part in code.co_consts if isinstance(part, types.CodeType))
    return set(code.co_names).union(*map(_names, inner))


def _package(value: Any) -> str:
    while isinstance(value, functools.partial):
        value = value.func
    own = value if isinstance(value, type | types.FunctionType | types.MethodType) else type(value)
    return str(getattr(own, "__module__", "") or "").partition(".")[0]


def _stable(value: Any) -> str:
    """The `repr` of an element or a key, if it is the same in every process."""
    if isinstance(value, tuple):
        list(map(_stable, value))
    elif not isinstance(value, Plain) and (isinstance(value, frozenset) or " at 0x" in repr(value)):
        raise Unstable
    return repr(value)
