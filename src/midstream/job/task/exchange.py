"""Rows on their way between the slots of two stages: whose they are, where they go, when they hold, and reports."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from midstream.algebra.carriers import carrier, restored
from midstream.checkpoint.records import grouped
from midstream.errors import JobError
from midstream.job.task.memory import size_of
from midstream.job.task.reports import Report
from midstream.operators.elements import Elements, Hashes, concatenate_batches, rows_without_columns
from midstream.operators.group_hash import group_hash
from midstream.operators.vectors import gather_rows, of_type

PORT, SLOT, GROUP, FROM, TO, NOTE = "#port", "#slot", "#group", "#from", "#to", "#note"

WHOLE = "#whole"
"""The column with what no query reads of rows that are to be buried: a list of one struct, or null."""

NOTE_PORT = -1
"""The port of a row that carries a report instead of payload."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Which shared columns hold the columns of each port."""

    schemas: Mapping[int, pa.Schema]
    places: Mapping[int, tuple[int, ...]]
    columns: tuple[pa.Field, ...]

    @staticmethod
    def of(schemas: Mapping[int, pa.Schema]) -> Layout:
        """The narrowest layout for some schemas."""
        most: Counter[pa.DataType] = Counter()
        for schema in schemas.values():
            most |= Counter(carrier(f.type) for f in schema)
        columns = [pa.field(f"c{i}_{n}", kind) for i, kind in enumerate(most) for n in range(most[kind])]
        places = {port: _places(schema, columns) for port, schema in schemas.items()}
        return Layout(dict(schemas), places, tuple(columns))

    @property
    def row_bytes(self) -> int:
        """About how many bytes a row takes; texts and other values without a fixed width count as some."""
        return sum(width_of(column.type) for column in self.columns) + 8

    def split(self, tables: Iterable[pa.RecordBatch]) -> dict[int, pa.RecordBatch]:
        """The rows of each port that has some, with all columns of the layout."""
        found = grouped(part for table in tables for part in self._split(table).items())
        return {port: concatenate_batches(parts) for port, parts in found.items()}

    def _split(self, table: pa.RecordBatch) -> dict[int, pa.RecordBatch]:
        ports = table.column(PORT).to_numpy()
        if len(ports) == 0:
            return {}
        lowest = int(ports.min())
        counts = np.bincount(ports - lowest)  # far less than sorting them all
        if len(counts) == 1:
            return {lowest: table}
        present = (lowest + np.flatnonzero(counts)).tolist()
        return {port: gather_rows(table, np.flatnonzero(ports == port)) for port in present}

    def payload(self, port: int, rows: pa.RecordBatch) -> pa.RecordBatch:
        """A port's rows in their own schema, without columns that did not come."""
        rows = _unpacked(rows)
        schema, names = self.schemas[port], rows.schema.names
        come = [(i, f) for i, f in zip(self.places[port], schema, strict=True) if self.columns[i].name in names]
        if not come:
            return rows_without_columns(rows.num_rows)
        carried = [(rows.column(self.columns[i].name), f.type) for i, f in come]
        arrays = [column if column.type == kind else restored(column, kind) for column, kind in carried]
        schema = schema if len(come) == len(schema) else pa.schema([f for _, f in come])
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def wide(self, port: int, columns: Sequence[pa.Array], length: int) -> list[pa.Array]:
        """A port's columns among the shared ones."""
        arrays: list[pa.Array | None] = [None] * len(self.columns)
        for place, column in zip(self.places[port], columns, strict=True):
            arrays[place] = of_type(column, self.columns[place].type)
        return [pa.nulls(length, f.type) if a is None else a for a, f in zip(arrays, self.columns, strict=True)]


def _unpacked(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Rows with what only some of them bring, if one of them does; of the others it is null."""
    if WHOLE not in rows.schema.names:
        return rows
    packed, rows = rows.column(WHOLE), rows.drop_columns([WHOLE])
    brought = packed.is_valid().to_numpy(zero_copy_only=False)
    if not brought.any():
        return rows
    whole = packed.flatten().take(pa.array(np.cumsum(brought) - 1, mask=~brought))
    for column, values in zip(whole.type, whole.flatten(), strict=True):
        rows = rows.append_column(column.name, values)
    return rows


def width_of(kind: pa.DataType) -> int:
    """About how many bytes a value takes."""
    try:
        return max(1, int(kind.bit_width) // 8)
    except ValueError:
        return 64


def _places(schema: pa.Schema, columns: Sequence[pa.Field]) -> tuple[int, ...]:
    left = list(range(len(columns)))
    found = []
    for column in schema:
        kind = carrier(column.type)
        place = next(i for i in left if columns[i].type == kind)
        left.remove(place)
        found.append(place)
    return tuple(found)


MOST_TEXT = 2**31 - 1
"""How many bytes of text a column of one batch can hold: Arrow numbers them by 32 bits."""


def portions(
    batches: Iterable[pa.RecordBatch], most: int, most_text: int = MOST_TEXT
) -> Iterator[tuple[list[pa.RecordBatch], bool]]:
    """All rows, in portions of about so many bytes, each with whether there may be more; the last one may be empty.

    No column of a portion is larger than one batch can hold.
    """
    held: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        more = size_of(batch)
        size += more
        if held and size > most_text and _widest([*held, batch]) > most_text:
            yield held, True
            held, size = [], more
        held.append(batch)
        if size > most:
            yield held, True
            held, size = [], 0
    yield held, False


def _widest(batches: Sequence[pa.RecordBatch]) -> int:
    """The bytes of the largest column of some batches together."""
    return max((sum(parts) for parts in zip(*([c.nbytes for c in b.columns] for b in batches), strict=True)), default=0)


GROUP_BITS = 8
"""How many bits of a key's hash are its partition group, unless a checkpoint was made with another number."""

GROUPS = 2**GROUP_BITS
"""Into how many partition groups keys are hashed then; a slot owns some of them."""

FEWEST_BITS, MOST_BITS = GROUP_BITS, 12


FAILED = 1
"""What a report among rows has for its beginning if its task failed."""

Slots = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Exchange:
    """What leaves a stage; after the last one only reports do."""

    layout: Layout
    last: bool

    @property
    def names(self) -> list[str]:
        """The columns of what leaves."""
        return [NOTE] if self.last else [PORT, SLOT, FROM, TO, NOTE, *(f.name for f in self.layout.columns)]

    def rows(self, port: int, slots: Slots, elements: Elements) -> pa.RecordBatch:
        """Elements on their way to slots."""
        length = len(elements)
        fixed = [
            pa.array(np.full(length, port, np.int32)),
            pa.array(slots),
            pa.array(elements.valid_from),
            pa.array(elements.valid_to),
            pa.nulls(length, pa.binary()),
        ]
        wide = self.layout.wide(port, elements.columns.columns, length)
        return pa.RecordBatch.from_arrays([*fixed, *wide], names=self.names)

    def elements(self, port: int, rows: pa.RecordBatch) -> Elements:
        """What has travelled, as elements again."""
        return Elements(self.layout.payload(port, rows), rows.column(FROM).to_numpy(), rows.column(TO).to_numpy())

    def onward(self, rows: pa.RecordBatch, slots: int) -> pa.RecordBatch:
        """Rows of a port that a later stage waits for; that a task failed is told to all its slots.

        What this task gives lacks what that one did not give, and different slots may get what different attempts of
        this task gave, so each has to hear of it.
        """
        rows = rows.select(self.names)
        if self.last or not rows.num_rows or rows.column(PORT)[0].as_py() != NOTE_PORT:
            return rows
        failed = rows.filter(pc.is_valid(rows.column(FROM)))
        if not failed.num_rows:
            return rows
        everywhere = failed.take(pa.array(np.zeros(slots, np.int64)))
        everywhere = everywhere.set_column(
            everywhere.schema.get_field_index(SLOT), SLOT, pa.array(np.arange(slots, dtype=np.int32))
        )
        return pa.concat_batches([rows.filter(pc.is_null(rows.column(FROM))), everywhere.cast(rows.schema)])

    def note(self, report: Report, slot: int, routing: Sequence[int]) -> pa.RecordBatch:
        """A report among the rows: on the way to one slot, or to all that may have missed rows of a task that failed.

        A task may be run again, and of its attempts different slots may get different ones: a slot that gets nothing
        from an attempt that failed must hear of it, because the report of a later attempt says that all is well.
        """
        if self.last:
            return pa.RecordBatch.from_arrays([pa.array([report.to_bytes()], pa.binary())], names=self.names)
        slots = [0] if report.error is None else sorted({0, slot, *routing})
        count = len(slots)
        fixed = [
            pa.array([NOTE_PORT] * count, pa.int32()),
            pa.array(slots, pa.int32()),
            pa.array([None if report.error is None else FAILED] * count, pa.int64()),
            pa.nulls(count, pa.int64()),
            pa.array([report.to_bytes()] * count, pa.binary()),
        ]
        wide = [pa.nulls(count, f.type) for f in self.layout.columns]
        return pa.RecordBatch.from_arrays([*fixed, *wide], names=self.names)


def bits_of(groups: int) -> int:
    """How many bits tell so many groups apart.

    >>> bits_of(256)
    8
    """
    return groups.bit_length() - 1


def groups_of(hashes: Hashes, groups: int) -> npt.NDArray[np.intp]:
    """The partition groups of keys, of so many there are."""
    return (hashes >> np.uint64(64 - bits_of(groups))).astype(np.intp)


def in_slot(slot: int) -> int:
    """What stands for the group of rows that belong to a slot whatever their keys are: a negative number."""
    return -1 - slot


def at_site(slots: Sequence[int], groups: int) -> list[int]:
    """The slot of each group among those of a site; nothing for no site.

    >>> at_site((2, 3), 4)
    [2, 2, 3, 3]
    """
    return [slots[group * len(slots) // groups] for group in range(groups)] if slots else []


def slots_of(hashes: Hashes, routing: Sequence[int]) -> Slots:
    """The slots of keys."""
    return np.asarray(routing, np.int32)[groups_of(hashes, len(routing))]


Indices = npt.NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Addressing:
    """To which slots rows go by their partition groups: each to its owner, and to further slots as copies.

    The owner accounts for a row, so that one that goes to several slots is counted once. What belongs to a slot
    whatever its keys are has no group, and no copies. Rows of groups that are `spread` have one owner each among some
    slots, by a second hash, of the columns `by` as they arrive, of all that can be hashed between stages.
    """

    owners: tuple[int, ...]
    copies: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    spread: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    by: tuple[pa.Field, ...] = ()

    def owned(self, groups: npt.NDArray[np.integer], slot: int) -> npt.NDArray[np.bool_]:
        """Which of some rows in a slot are its own, and no copies."""
        owners = np.asarray(self.owners, np.int32)
        here = np.where(groups < 0, -1 - groups, owners[groups]) == slot
        return np.asarray(here | np.isin(groups, list(self.spread))) if self.spread else np.asarray(here)

    def dealt(self, groups: npt.NDArray[np.integer], hashed: Callable[[Indices], Hashes]) -> tuple[Indices, Slots]:
        """The rows in the order in which they leave, those of several slots several times, and where each goes.

        `hashed` gives the second hash of some rows.

        >>> rows, slots = Addressing((0, 1), {1: (0,)}).dealt(np.array([0, 1, -1]), lambda rows: rows)
        >>> rows.tolist(), slots.tolist()
        ([0, 1, 2, 1], [0, 1, 0, 0])
        """
        rows, owners = np.arange(len(groups)), np.asarray(self.owners, np.int32)
        slots = np.asarray(np.where(groups < 0, -1 - groups, owners[groups]), np.int32)
        for group, several in self.spread.items():
            chosen = np.flatnonzero(groups == group)
            if len(chosen):
                slots[chosen] = np.asarray(several, np.int32)[hashed(chosen).view(np.int64) % len(several)]
        if not self.copies:
            return rows, slots
        more = [(np.flatnonzero(groups == group), slot) for group, others in self.copies.items() for slot in others]
        copied = [np.full(len(some), slot, np.int32) for some, slot in more]
        return np.concatenate([rows, *(some for some, _ in more)]), np.concatenate([slots, *copied])


def hash_of_content(elements: Elements) -> Hashes:
    """A hash of rows and when they begin, as far as their columns can be hashed."""
    columns = [column for column in elements.columns.columns if not pa.types.is_nested(column.type)]
    return group_hash([*columns, pa.array(elements.valid_from)])


def to_every_slot(elements: Elements, slots: Sequence[int]) -> tuple[Elements, Slots]:
    """Elements once for each of some slots, and the slots they go to."""
    rows = np.tile(np.arange(len(elements)), len(slots))
    return elements.take(rows), np.repeat(np.asarray(slots, np.int32), len(elements))


def default_routing(slots: int, groups: int = GROUPS) -> list[int]:
    """Groups dealt to slots in runs of equal length.

    >>> default_routing(2)[126:130]
    [0, 0, 1, 1]
    """
    return [group * slots // groups for group in range(groups)]


def chosen_bits(bits: int) -> int:
    """A number of bits that can be."""
    if isinstance(bits, bool) or not isinstance(bits, int) or not FEWEST_BITS <= bits <= MOST_BITS:
        raise JobError(
            f"keys are hashed into partition groups by {FEWEST_BITS} to {MOST_BITS} bits, not {bits!r}",
            hint=f"{FEWEST_BITS} bits are {2**FEWEST_BITS} groups, {MOST_BITS} bits {2**MOST_BITS}",
        )
    return bits


def require_bits(wanted: int | None, known: int, checkpoint: str) -> None:
    """Refuses another number of bits than a checkpoint was made with."""
    if wanted is not None and chosen_bits(wanted) != known:
        raise JobError(
            f"the checkpoint {checkpoint} has partition groups of {known} bits, not of {wanted}",
            detail="its states are sorted by group, and rows are routed by it",
            hint=f"leave group_bits out, say {known}, or use a new checkpoint",
        )
