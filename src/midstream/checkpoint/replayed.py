"""Dead letters that went back into a stream: each once, however often a replay is interrupted.

A record is made before the rows are written anywhere, and holds them and the name of the file that they go to. Whoever
finds a record that is not done writes that file first. So a letter is either left or in exactly one record, and the
rows of a record have one name, under which a source reads them once.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

import pyarrow as pa

from midstream.checkpoint.failures import AlreadyThere
from midstream.checkpoint.files import Files

REPLAYED = "replayed"
"""The folder of the records."""


@dataclass(frozen=True, slots=True)
class Letter:
    """A row that could not be used, as JSON, with the reason and the batch that it came with."""

    batch_id: int
    stream: str
    reason: str
    row: str

    @property
    def digest(self) -> str:
        """Stands for the letter; letters that are the same in all are interchangeable."""
        content = json.dumps([self.batch_id, self.stream, self.reason, self.row])
        return hashlib.blake2b(content.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


@dataclass(frozen=True, slots=True)
class ReplayRecord:
    """Letters that go to a file; once it is there, the record is `done` and holds only what stands for them."""

    number: int
    file: str
    digests: tuple[str, ...]
    letters: tuple[Letter, ...] = ()
    done: bool = False

    @property
    def path(self) -> str:
        """Where the record lies in the checkpoint."""
        return f"{REPLAYED}/{self.number:012d}.json"

    @property
    def content(self) -> bytes:
        """The record as it is written."""
        letters = [] if self.done else [asdict(letter) for letter in self.letters]
        record = {"file": self.file, "digests": self.digests, "letters": letters, "done": self.done}
        return json.dumps(record).encode()


def letters_in(table: pa.Table) -> list[Letter]:
    """The letters of a table of dead letters."""
    return [Letter(**row) for row in table.to_pylist()]


def replays_of(files: Files) -> list[ReplayRecord]:
    """The records of a checkpoint, oldest first."""
    found = []
    for path in files.list(REPLAYED):
        if path.endswith(".json") and not path.rpartition("/")[2].startswith("."):
            record = json.loads(files.read(path))
            letters = tuple(Letter(**letter) for letter in record["letters"])
            number = int(path.rpartition("/")[2].removesuffix(".json"))
            found.append(ReplayRecord(number, record["file"], tuple(record["digests"]), letters, record["done"]))
    return found


def left(letters: Iterable[Letter], replays: Iterable[ReplayRecord]) -> list[Letter]:
    """The letters that are in no record."""
    gone = Counter(digest for replay in replays for digest in replay.digests)
    found = []
    for letter in letters:
        if gone[letter.digest]:
            gone[letter.digest] -= 1
        else:
            found.append(letter)
    return found


def begin(files: Files, replays: Sequence[ReplayRecord], file: str, letters: Sequence[Letter]) -> ReplayRecord | None:
    """Records that letters go to a file; None if somebody else has recorded something meanwhile."""
    number = max((replay.number for replay in replays), default=-1) + 1
    replay = ReplayRecord(number, file, tuple(letter.digest for letter in letters), tuple(letters))
    try:
        files.write_atomic(replay.path, replay.content, only_if_absent=True)
    except AlreadyThere:
        return None
    return replay


def end(files: Files, replay: ReplayRecord) -> None:
    """Records that the file is there."""
    done = ReplayRecord(replay.number, replay.file, replay.digests, (), True)
    files.write_atomic(done.path, done.content)
