"""The error catalogue: every class of error, with messages that are provoked while the page is written."""

from __future__ import annotations

import importlib
import inspect
import os
import pkgutil
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from scripts.reference.error_examples import EXAMPLES, Example

import midstream
from midstream.errors import ClusterError, InternalError, MidstreamError
from midstream.interface.cli.endings import CLUSTER_ERROR, INTERNAL_ERROR, USER_ERROR

OPENING = f"""# Errors

Every class of error and warning, with messages that are provoked while this page is written
(`python -m scripts.reference`). An error has a `message`, and where they help a `detail` (why) and a `hint` (what would
be right); they are attributes of the exception, and lines of its text. All errors are `ms.MidstreamError`.

The command line prints an error to standard error and exits with {USER_ERROR}, or with {INTERNAL_ERROR} for a defect of
Midstream and {CLUSTER_ERROR} for a process that died ([exit codes](command-line.md#exit-codes)). `--debug` adds the
traceback.
"""


def errors_page() -> str:
    """The page."""
    return "\n".join([OPENING, *(_section(kind) for kind in error_classes())])


def error_classes() -> list[type[Warning] | type[MidstreamError]]:
    """The base, every error below it wherever it is defined, and every warning."""
    for module in pkgutil.walk_packages(midstream.__path__, "midstream."):
        if "__main__" not in module.name and not module.name.startswith("midstream.lab"):
            importlib.import_module(module.name)
    return [MidstreamError, *_below(MidstreamError), *_below(UserWarning)]


def _below(kind: type[Exception]) -> Iterator[type[Any]]:
    for child in sorted(filter(_of_the_product, kind.__subclasses__()), key=_name):
        yield child
        yield from _below(child)


def _of_the_product(kind: type) -> bool:
    """Not of tests and of the laboratory, which may have errors of their own."""
    return kind.__module__.startswith("midstream.") and not kind.__module__.startswith("midstream.lab.")


def _name(kind: type) -> str:
    return kind.__name__


def _section(kind: type[Warning] | type[MidstreamError]) -> str:
    public = f"`ms.{kind.__name__}`" if kind.__name__ in midstream.__all__ else f"`{kind.__module__}.{kind.__name__}`"
    base = kind.__bases__[0].__name__
    parent = f", {'an' if base[0] in 'AEIO' else 'a'} `{base}`" if kind is not MidstreamError else ""
    parts = [f"## {kind.__name__}\n", f"{public}{parent}. {inspect.getdoc(kind)} {_exit(kind)}".rstrip() + "\n"]
    parts += [_shown(example) for example in EXAMPLES.get(kind.__name__, ())]
    return "\n".join(parts)


def _exit(kind: type) -> str:
    if issubclass(kind, InternalError):
        return f"Exit code {INTERNAL_ERROR}."
    if issubclass(kind, ClusterError):
        return f"Exit code {CLUSTER_ERROR}."
    if issubclass(kind, MidstreamError) and kind is not MidstreamError:
        return f"Exit code {USER_ERROR}."
    return ""


def _shown(example: Example) -> str:
    return f"```text\n{provoked(example)}\n```\n\n*Cause:* {example.cause}\n\n*Remedy:* {example.remedy}\n"


def provoked(example: Example) -> str:
    """The text of the error or warning that an example gives."""
    with _empty_folder(), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            told = example.provoke()
        except MidstreamError as error:
            return str(error).replace(f"{Path.cwd()}/", "").replace(f"{Path.cwd().resolve()}/", "")
        if isinstance(told, str):
            return told
        return str(next(w.message for w in caught if _of_the_product(type(w.message))))


@contextmanager
def _empty_folder() -> Iterator[None]:
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            yield
        finally:
            os.chdir(before)
