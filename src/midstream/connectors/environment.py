"""Values from the environment in options: `${NAME}` stands for a variable, so that a job file holds no secret.

What was put in that way is replaced by its name in every message that may be logged or stored.
"""

from __future__ import annotations

import os
import re

from midstream.errors import JobError

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")

_used: dict[str, str] = {}
"""The values that this process has put in, with the names of their variables."""


def expanded(text: str, place: str) -> str:
    """A text with its variables replaced by their values; `place` is the option that it belongs to."""

    def value(found: re.Match[str]) -> str:
        name = found[1]
        if name not in os.environ:
            raise JobError(
                f"{place} needs the environment variable {name}, which is not set", hint=f"export {name}=…, then start"
            )
        conceal(os.environ[name], name)
        return os.environ[name]

    return _VARIABLE.sub(value, text)


def conceal(value: str, name: str) -> None:
    """Has a value be replaced by a name in all messages from now on."""
    if value:
        _used.setdefault(value, name)


def hidden(text: str) -> str:
    """A message in which the values of variables are replaced by their names.

    >>> os.environ["A_TOKEN"] = "no one knows"
    >>> hidden(f"no access with {expanded('${A_TOKEN}', 'token')}")
    'no access with ${A_TOKEN}'
    """
    for value in sorted(_used, key=len, reverse=True):
        text = text.replace(value, f"${{{_used[value]}}}")
    return text
