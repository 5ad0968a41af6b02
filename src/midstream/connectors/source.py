"""What a source is: rows in partitions, each in an order of its own, that can be read again from any position.

A position lies between two rows of a partition. The rows between two positions never change, so a batch that names its
positions has the same rows whenever it is read, and a manifest that has the positions up to which rows were taken in
says all there is to know: what comes before is done, what comes after is not. No row is lost, none counts twice,
whoever reads, and whatever fails in between. For any positions a <= b <= c of a partition,

    read(a, c) = read(a, b) followed by read(b, c)
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar, TypeAlias

import pyarrow as pa

from midstream.connectors.registry import Option

Position: TypeAlias = int | str
"""A place between two rows of a partition; of two positions the later one is the greater."""

Positions: TypeAlias = Mapping[str, Position]
"""Positions by partition."""


class Source(ABC):
    """Rows that others write, and that stay where they are long enough to be read again.

    A source connects to nothing before it is asked something, and can be pickled before and after: tasks on other
    machines read it, too. One thread at a time asks it. Its `name` is shown and stored: no secret may stand there.

    Rows that cannot be read have nulls in all columns but one more, `#bad`, that says why (`with_bad_rows`).
    """

    options: ClassVar[Mapping[str, Option]] = {}
    replays: ClassVar[bool] = True
    """False if rows cannot be read twice. What was read and not committed when a job ends is then lost."""

    @property
    @abstractmethod
    def name(self) -> str:
        """What messages and manifests call it; positions of a source of another name mean nothing here."""

    def identity(self) -> str:
        """What tells it from others of its name, on another server or made again; empty if nothing does."""
        return ""

    @abstractmethod
    def schema(self) -> pa.Schema:
        """The columns of its rows."""

    @abstractmethod
    def partitions(self) -> Positions:
        """The partitions that there are now, each with the position before its first row."""

    @abstractmethod
    def end(self, partition: str, start: Position, limit: int | None = None) -> Position:
        """Up to where rows can be read now from a position on: all of them, or about as many as the limit."""

    @abstractmethod
    def read(self, partition: str, start: Position, end: Position) -> pa.Table:
        """The rows between two positions."""

    def expect(self, starts: Positions) -> None:
        """Is told that rows behind these positions are read next, by this process: it may begin to fetch them."""
        return None

    def require(self, starts: Positions) -> None:
        """Refuses positions from which it cannot be read any more: rows that nobody has read are gone."""
        return None

    def commit(self, ends: Positions) -> None:
        """Is told that rows up to here will not be asked for again; it may be told so repeatedly."""
        return None

    def lag(self, partition: str, start: Position) -> int | None:
        """How many rows wait behind a position; None if that is not known."""
        return None

    def close(self) -> None:
        """Ends connections; whoever asks something later opens them again."""
        return None
