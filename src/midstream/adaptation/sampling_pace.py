"""When keys are sampled: in few batches, in more while there is something to follow, in fewer while nothing is new."""

from __future__ import annotations

from dataclasses import dataclass

from midstream.codec import forgotten

FIRST_SAMPLES = 4
"""In how many batches keys are sampled at first, one after the other."""


@dataclass(frozen=True, slots=True)
class Attention:
    """How often keys are sampled, and how many of their values are remembered.

    So many batches lie between two samples, at least and at most: the more, the more rows a batch has. While there is
    something to follow, so many batches more are sampled one after the other, if they have `enough` rows of a source to
    show more than chance. While samples show nothing new, the distance between them doubles, up to `resting` times but
    not beyond four windows: where something else would tell that a sample is due.
    """

    apart: tuple[int, int] = (2, 12)
    rows_per_look: int = 1000
    following: int = 0
    enough: int = 0
    resting: int = 1
    most_sampled: int | None = None
    """How many values of all keys together; None: as many of each as there may be."""


@dataclass(slots=True)
class SamplingPace:
    """Whether the next batch is sampled (`due`), and what that depends on: batches since the last one, and the news."""

    attention: Attention = forgotten(Attention)
    apart: int = 0
    """How many batches lie between two samples now."""
    since: int = 0
    """How many batches were not sampled since the last one that was."""
    due: bool = True
    followed: int = 0
    rest: int = 1
    last_rows: int = 0

    def __post_init__(self) -> None:
        self.apart = self.apart or self.attention.apart[0]

    def hurry(self) -> None:
        """Something has changed: samples are as frequent again as the batches allow."""
        self.rest = 1

    def follow(self, something: bool, sources: int) -> None:
        """Learns whether there is something to follow, such as a plan that has just become better."""
        if not something:
            self.followed = 0
        elif self.followed < self.attention.following and self.last_rows >= self.attention.enough * sources:
            self.followed += 1
            self.due, self.since = True, 0

    def note_sample(self, nothing_new: bool) -> None:
        """Learns whether the last sample has shown something: if not, the next may wait longer."""
        self.rest = min(2 * self.rest, self.attention.resting) if nothing_new else max(1, self.rest // 2)

    def end_batch(self, batches: int, rows: int, longest_rest: int) -> None:
        """Decides after a batch whether the next one is sampled; `batches` there were by now."""
        self.last_rows = rows
        self.since += 1
        least, most = self.attention.apart
        usual = min(most, max(least, rows // self.attention.rows_per_look))
        self.apart = max(usual, min(self.rest * usual, longest_rest))
        self.due = batches < FIRST_SAMPLES or self.since >= self.apart
        if self.due:
            self.since = 0
