"""The Python API from docstrings: every public name of `midstream`, and the classes that these give."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from functools import cached_property
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import midstream as ms

OPENING = """# The Python API

Every public name of `midstream`, from its docstrings: `python -m scripts.reference` writes this page. `help(ms.run)`
shows the same. Errors have [a page of their own](errors.md).
"""

SECTIONS: dict[str, tuple[str, ...]] = {
    "Queries over finite inputs": ("run", "Result", "Migration", "plans", "Plan"),
    "What results mean": ("reference", "snapshot_equal"),
    "Jobs": ("Session", "open", "read_results"),
    "Functions of your own": ("ScalarFunction", "AggregateFunction", "SqlFunction"),
    "Rows that cannot be used": ("DeadLetters", "DeadLetterWarning"),
}
GIVEN = {
    "A query of a session": ("midstream.cluster.continuous_query", "ContinuousQuery"),
    "A job that is read": ("midstream.checkpoint.reading", "StoredJob"),
    "A query of a job that is read": ("midstream.checkpoint.stored", "StoredQuery"),
    "A migration": ("midstream.checkpoint.stored", "StoredMigration"),
    "A decision": ("midstream.checkpoint.stored", "StoredDecision"),
}
"""Classes that users meet without importing them."""
INTERNAL = ("store", "manifest", "record")
MODULES = ("midstream.testing",)
"""Modules beside `midstream` itself that users import, where they exist."""


def python_api_page() -> str:
    """The page."""
    parts = [OPENING]
    for heading, names in SECTIONS.items():
        parts.append(f"## {heading}\n")
        parts += [_entry(f"ms.{name}", getattr(ms, name)) for name in names]
    rest = sorted(set(ms.__all__) - {name for names in SECTIONS.values() for name in names} - {"__version__"})
    others = [name for name in rest if not _is_error(getattr(ms, name))]
    if others:
        parts.append("## Other names\n")
        parts += [_entry(f"ms.{name}", getattr(ms, name)) for name in others]
    parts.append("## What these give\n")
    for heading, (module, name) in GIVEN.items():
        parts.append(_class(heading, getattr(import_module(module), name), constructor=False))
    for name in MODULES:
        if find_spec(name) is not None:
            parts += _module(name)
    return "\n".join(parts)


def _is_error(found: Any) -> bool:
    return inspect.isclass(found) and issubclass(found, ms.MidstreamError)


def _module(name: str) -> Iterator[str]:
    module = import_module(name)
    yield f"## `{name}`\n\n{_text(module)}\n"
    for public in getattr(module, "__all__", []):
        yield _entry(f"{name}.{public}", getattr(module, public))


def _entry(title: str, found: Any) -> str:
    if inspect.isclass(found):
        return _class(f"`{title}`", found)
    if not callable(found):
        return f"### `{title}`\n\n`{found!r}`\n"
    return f"### `{title}`\n\n{_block(title, found)}\n{_text(found)}\n"


def _class(heading: str, found: type, constructor: bool = True) -> str:
    shown = f"{_block(found.__name__, found)}\n" if constructor and _signature(found) else ""
    held = fields(found) if is_dataclass(found) and not constructor else ()
    rows = [f"| {_cell(f'{field.name}: {field.type}')} | |" for field in held if field.name not in INTERNAL]
    rows += [f"| {_cell(call)} | {says} |" for call, says in _members(found)]
    table = "\n".join(["| member | is |", "|---|---|", *rows, ""]) if rows else ""
    return f"### {heading}\n\n{shown}{_text(found)}\n\n{table}"


def _members(found: type) -> Iterator[tuple[str, str]]:
    for name in sorted(dir(found)):
        if name.startswith("_"):
            continue
        member = inspect.getattr_static(found, name)
        if isinstance(member, property | cached_property) and inspect.getdoc(member):
            yield name, _first(member)
        elif inspect.isfunction(member) and member.__module__.startswith("midstream"):
            yield f"{name}{_signature(member, bound=True)}", _first(member)


def _signature(found: Any, bound: bool = False) -> str:
    try:
        signature = inspect.signature(found)
    except ValueError:
        return ""
    parameters = list(signature.parameters.values())[1 if bound else 0 :]
    written = str(signature.replace(parameters=parameters))
    plain = re.sub(r"(?<=[:>] )'([^']*)'|(?<=[:>] )\"([^\"]*)\"", lambda m: m[1] or m[2], written)
    return plain.removesuffix(" -> None")


def _block(name: str, found: Any) -> str:
    """A call as one would write it, a line per parameter where it is long."""
    text = name + _signature(found)
    if len(text) > 100:
        opening, _, rest = text.partition("(")
        inside, _, result = rest.rpartition(")")
        lines = "".join(f"    {part},\n" for part in _split(inside))
        text = f"{opening}(\n{lines}){result}"
    return f"```text\n{text}\n```\n"


def _split(parameters: str) -> Iterator[str]:
    """Splits at commas that are not inside brackets."""
    depth, start = 0, 0
    for at, letter in enumerate(parameters):
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and depth == 0:
            yield parameters[start:at].strip()
            start = at + 1
    yield parameters[start:].strip()


def _text(found: Any) -> str:
    """A docstring as Markdown: examples become a block."""
    text = inspect.getdoc(found) or ""
    parts = [f"```pycon\n{part}\n```" if part.startswith(">>>") else part for part in text.split("\n\n")]
    return "\n\n".join(parts)


def _first(found: Any) -> str:
    """The first paragraph on one line."""
    return " ".join((inspect.getdoc(found) or "").partition("\n\n")[0].split()).replace("|", "\\|")


def _cell(call: str) -> str:
    return "`" + call.replace("|", "\\|") + "`"
