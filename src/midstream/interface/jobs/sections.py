"""The tables of a job file: their values by key, and all that is wrong with them, each by its place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from midstream.connectors.registry import Option
from midstream.errors import JobError, MidstreamError, instead_of

MISSING = ""
"""What stands for a text that is missing, in a job with mistakes."""


@dataclass(frozen=True, slots=True)
class Mistake:
    """Something wrong at a place of the file, such as `streams.orders.schema`; `part` is the text that is wrong."""

    place: str
    error: MidstreamError
    part: str | None = None

    @property
    def sentence(self) -> str:
        """What is wrong, with its place named once: many messages name it themselves."""
        message = self.error.message
        return message if self.place in message.split() else f"{self.place}: {message}"


class Section:
    """A table of the file, which knows where it is and notes what is wrong with it."""

    def __init__(
        self, place: str, content: Mapping[str, Any], keys: Mapping[str, Option], mistakes: list[Mistake]
    ) -> None:
        self.place = place
        self.content = content
        self.keys = keys
        self.mistakes = mistakes
        self.wrong: set[str] = set()
        for key in content:
            if key not in keys:
                self.refuse(key, JobError(f"unknown key {self.at(key)}", hint=instead_of(key, keys)))

    def at(self, key: str) -> str:
        """A key's full name."""
        return f"{self.place}.{key}" if self.place else key

    def refuse(self, key: str, error: MidstreamError) -> None:
        """Notes that a key's value is wrong."""
        self.wrong.add(key)
        self.mistakes.append(Mistake(self.at(key), error))

    @contextmanager
    def noting(self, key: str) -> Iterator[None]:
        """Notes an error of a key's value instead of raising it."""
        try:
            yield
        except MidstreamError as error:
            self.refuse(key, error)

    def section(self, keys: Mapping[str, Option], *path: str) -> Section:
        """A table in this one, by the names of the tables that lead to it; empty if it is missing."""
        found: Any = self.content
        place = ".".join(path)
        for part in path:
            if part not in found:
                self.refuse(place, JobError(f"the table [{place}] is missing"))
                return Section(place, {}, keys, [])
            found = found[part]
            if not isinstance(found, dict):
                self.refuse(place, JobError(f"{place} must be a table, not {found!r}"))
                return Section(place, {}, keys, [])
        return Section(place, found, keys, self.mistakes)

    def names(self, key: str, needed: bool = True) -> list[str]:
        """The names in a table of tables; at least one if they are needed."""
        found = self.content.get(key, {})
        if not isinstance(found, dict) or (needed and not found):
            self.refuse(key, JobError(f"the job has no {key}", hint=f"add a table [{key}.NAME]"))
            return []
        return list(found)

    def text(self, key: str) -> str:
        """A text that must be there; an empty one, and a mistake, if it is not."""
        if key not in self.content:
            self.refuse(key, JobError(f"{self.at(key)} is missing"))
            return MISSING
        value = self.optional(key)
        if not value and key not in self.wrong:
            self.refuse(key, JobError(f"{self.at(key)} is empty"))
        return str(value or MISSING)

    def given(self, *keys: str) -> dict[str, Any]:
        """The values that some keys have; those that are not there are left out."""
        return {key: value for key in keys if (value := self.optional(key)) is not None}

    def optional(self, key: str) -> Any:
        """A value that the key can have, or None."""
        value = self.content.get(key)
        with self.noting(key):
            if value is not None:
                self.keys[key].require(value, self.at(key))
            return value
        return None
