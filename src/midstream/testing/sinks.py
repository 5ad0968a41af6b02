"""One law for any sink: whatever fails, repeats or is replaced, its target has each result once.

A run is a series of deliveries, as a job makes them. Each step runs in a process of its own, as after a restart, and
some are killed while they write. After a kill the target has all of the delivery or nothing; after the repeat, all.
"""

from __future__ import annotations

import os
import pickle
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import pyarrow as pa

from midstream.algebra.time import BEGINNING
from midstream.connectors.forms import Form, between, in_form
from midstream.connectors.sink import Delivery, Sink, deliver
from midstream.errors import JobError

MakeSink = Callable[[str], Sink]
Read = Callable[[str], Iterable[Mapping[str, Any]]]
SCHEMA = pa.schema(
    [
        ("k", pa.int64()),
        ("name", pa.string()),
        ("v", pa.float64()),
        ("valid_from", pa.int64()),
        ("valid_to", pa.int64()),
    ]
)
NAMES = ("plain", "", None, 'a "quoted", text', "two\nlines", "Größe ∞", "\\N", "'; DROP TABLE t; --")
LENGTH, KEYS = 100, 5
BEGUN = b" "
"""What a process says when it begins to write; no pickle begins so."""


def check_sink(make_sink: MakeSink, read: Read, *, kills: int = 4, seed: int = 0, seen_in_part: bool = False) -> None:
    """Fails unless a sink has each result once, whatever happens to it.

    `make_sink(place)` makes a new sink for a target of that name, such as a table; `read(place)` gives the rows that
    the target has, as dictionaries. `kills` is how often a process is killed in the middle of writing, at moments that
    `seed` draws. What such a process leaves must be all of a delivery or nothing, unless the target has no transactions
    and a delivery may be `seen_in_part` until it is repeated. Processes are forks of this one.
    """
    __tracebackhide__ = True
    if not hasattr(os, "fork"):
        raise JobError("sinks are tested in forks of this process, which this system does not have")
    for law in (
        _repeats,
        _survives_kills,
        _goes_on_from_a_copy,
        _follows_replaced_queries,
        _notices_losses,
        _refuses_races,
    ):
        law(_Target(make_sink, read, law.__name__.strip("_"), seen_in_part), Random(seed), kills)


class _Watched:
    """A sink that says when it begins to write, and how long that takes."""

    def __init__(self, sink: Sink, begun: Callable[[], None]) -> None:
        self.sink, self.begun, self.seconds = sink, begun, 0.0
        self.name, self.form, self.open, self.last = sink.name, sink.form, sink.open, sink.last

    def write(self, delivery: Delivery, table: pa.Table) -> None:
        self.begun()
        start = time.monotonic()
        self.sink.write(delivery, table)
        self.seconds = time.monotonic() - start


@dataclass
class _Target:
    """A place that sinks write to, and what it should have."""

    make_sink: MakeSink
    read: Read
    place: str
    seen_in_part: bool = False
    given: list[tuple[Delivery, pa.Table]] = field(default_factory=list)
    form: Form = "rows"

    def __post_init__(self) -> None:
        self.form = _forked(lambda _: self._open())

    def _open(self) -> Form:
        sink = self.make_sink(self.place)
        sink.open(in_form(SCHEMA.empty_table(), sink.form, "q", 0).schema)
        return sink.form

    def results(self, random: Random) -> pa.Table:
        """Results of which at most one per key is valid at an instant."""
        rows = []
        for k in range(KEYS):
            at = random.randrange(8)
            while at < LENGTH:
                end = at + random.randrange(1, 30)
                rows.append((k, random.choice(NAMES), random.random(), at, end if end < LENGTH else None))
                rows += rows[-1:] if self.form != "current" and random.random() < 0.2 else []
                at = end + random.choice((0, 0, 5))
        return pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in rows], SCHEMA)

    def give(self, *given: tuple[Delivery, pa.Table], kill_after: float | None = None) -> float:
        """Delivers in a new process, each by a new sink; says how many seconds were spent in `write`.

        The process may be killed some seconds after the first `write` has begun.
        """

        def act(begun: Callable[[], None]) -> float:
            seconds = 0.0
            for delivery, table in given:
                sink = _Watched(self.make_sink(self.place), begun)
                deliver(sink, table, delivery)
                seconds += sink.seconds
            return seconds

        return float(_forked(act, kill_after) or 0.0)

    def require(self, given: list[tuple[Delivery, pa.Table]], when: str) -> None:
        """Fails unless the target has exactly what was given, each result once."""
        wanted = self.wanted(given)
        found = self.found()
        if found != wanted:
            raise AssertionError(
                f"{when}, {self.place} lacks {sum((wanted - found).values())} of {wanted.total()} rows, and has "
                f"{sum((found - wanted).values())} too many: {[*(wanted - found), *(found - wanted)][:3]}"
            )

    def wanted(self, given: list[tuple[Delivery, pa.Table]]) -> Counter[Any]:
        """The rows that a target has after some deliveries."""
        if not given:
            return Counter()
        now = given[-1][0].now
        latest = [t for d, t in given if self.form != "current" or d.identity == given[-1][0].identity]
        return _counted(in_form(pa.concat_tables(latest), self.form, "q", now).to_pylist())

    def found(self) -> Counter[Any]:
        """The rows that the target has."""
        names = in_form(SCHEMA.empty_table(), self.form, "q", 0).column_names
        return _counted({name: row[name] for name in names} for row in _forked(lambda _: list(self.read(self.place))))


def _deliveries(table: pa.Table, cuts: list[int], **changed: Any) -> list[tuple[Delivery, pa.Table]]:
    """Results cut at instants, as a job delivers them; `had` is what its record has had before each."""
    found, had = [], changed.pop("had", None)
    for number, (since, until) in enumerate(zip(cuts, cuts[1:], strict=False)):
        part = between(table, since, until)
        delivery = Delivery("q", "first", "checkpoint", "history", number, since, until, SCHEMA, had)
        found.append((replace(delivery, **changed), part))
        had = until if part.num_rows else had
    return found


def _had(table: pa.Table, until: int) -> int | None:
    return until if between(table, BEGINNING, until).num_rows else None


def _cuts(random: Random) -> list[int]:
    within = sorted(random.sample(range(1, LENGTH), 4))
    return [BEGINNING, *within, within[-1], LENGTH, LENGTH + 50]


def _repeats(target: _Target, random: Random, _kills: int) -> None:
    """Deliveries that come twice, and old ones that come again, change nothing."""
    given = _deliveries(target.results(random), _cuts(random))
    for number, one in enumerate(given):
        target.give(one, one, (replace(given[0][0], had=None), given[0][1]))
        if number % 3 == 2:
            target.require(given[: number + 1], "after deliveries that were repeated")
    target.require(given, "after deliveries that were repeated")


def _survives_kills(target: _Target, random: Random, kills: int) -> None:
    """A process that is killed while it writes leaves all of a delivery, or nothing."""
    cuts = [BEGINNING, *sorted(random.sample(range(30, LENGTH), kills)), LENGTH + 50]
    first, *later = _deliveries(target.results(random), cuts)
    seconds, given = target.give(first), [first]
    for one in later:
        target.give(one, kill_after=random.uniform(0, seconds))
        if not target.seen_in_part and target.found() not in (target.wanted(given), target.wanted([*given, one])):
            raise AssertionError(f"killed while it wrote, {target.place} has a part of a delivery")
        target.give(one)
        given.append(one)
        target.require(given, "after a kill and a repeat")


def _goes_on_from_a_copy(target: _Target, random: Random, _kills: int) -> None:
    """A checkpoint that is restored from a copy delivers again what the target has, cut otherwise, and then goes on."""
    table, cuts = target.results(random), _cuts(random)
    target.give(*_deliveries(table, cuts[:4]))
    again = sorted({cuts[1], *random.sample(range(cuts[1], LENGTH), 4), LENGTH})
    target.give(*_deliveries(table, again, had=_had(table, cuts[1])))
    target.require(_deliveries(table, [BEGINNING, LENGTH]), "after a restored copy has gone on")


def _follows_replaced_queries(target: _Target, random: Random, _kills: int) -> None:
    """The results of a query that takes the name of another follow, or take the place of, those of the old one."""
    old, new = target.results(random), target.results(random)
    first = _deliveries(old, [BEGINNING, 40, 60])
    then = _deliveries(new, [BEGINNING, 50, LENGTH], identity="second")
    target.give(*first, *then, then[-1])
    target.require([*first, *then], "after its query was replaced")


def _notices_losses(target: _Target, random: Random, _kills: int) -> None:
    """A target that does not have what it was given before is refused."""
    delivery, table = _deliveries(target.results(random), [50, LENGTH])[0]
    try:
        target.give((replace(delivery, had=50), table))
    except JobError:
        return
    raise AssertionError(f"{target.place} takes results though it has lost those that it had before")


def _refuses_races(target: _Target, random: Random, _kills: int) -> None:
    """Of two writers that were both told that the target has nothing, one is refused."""
    delivery, table = _deliveries(target.results(random), [BEGINNING, LENGTH])[0]
    rows = in_form(table, target.form, "q", delivery.now)

    def race(_begun: object) -> bool:
        sinks = [target.make_sink(target.place) for _ in range(2)]
        for sink in sinks:
            sink.open(rows.schema)
            sink.last(delivery)
        sinks[0].write(delivery, rows)
        try:
            sinks[1].write(delivery, rows)
        except Exception:
            return True
        return False

    if not _forked(race):
        raise AssertionError(f"two writers have both written the same delivery to {target.place}")
    target.require([(delivery, table)], "after a race of two writers")


def _counted(rows: Iterable[Mapping[str, Any]]) -> Counter[Any]:
    return Counter(tuple(sorted(row.items())) for row in rows)


def _forked(act: Callable[[Callable[[], None]], Any], kill_after: float | None = None) -> Any:
    """What something gives in a fork of this process, or raises there; None if the fork is to be killed.

    It is given a function that says it has begun: a kill falls so many seconds later.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _answer(act, writing)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        if kill_after is not None:
            pipe.read(1)
            time.sleep(kill_after)  # no synchronisation: the law holds at any moment
            os.kill(child, signal.SIGKILL)
        content = pipe.read().lstrip(BEGUN)
    os.waitpid(child, 0)
    if kill_after is not None:
        return None
    if not content:
        raise AssertionError("a process that was to deliver has died")
    result, error = pickle.loads(content)
    if error is not None:
        raise error
    return result


def _answer(act: Callable[[Callable[[], None]], Any], writing: int) -> None:
    try:
        try:
            content = pickle.dumps((act(lambda: _write(writing, BEGUN)), None))
        except Exception as error:
            content = pickle.dumps((None, error))
        _write(writing, content)
    finally:
        os._exit(0)


def _write(pipe: int, content: bytes) -> None:
    while content:
        content = content[os.write(pipe, content) :]
