"""Migrations as figures: what a query did before, during and after. matplotlib is needed only here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from midstream.algebra.time import INFINITY
from midstream.checkpoint.stored import StoredMigration
from midstream.errors import JobError

if TYPE_CHECKING:
    from midstream.migration.history import MigrationRecord

OLD, NEW, SHADE = "#0072b2", "#d55e00", "#f0e442"
POINTS = 1_000
"""How many instants a curve over time has, at most."""


@dataclass(frozen=True, slots=True)
class PlottedMigration:
    """A migration as a figure shows it: from where to where on its axis, and its split time if that is known."""

    name: str
    start: float
    end: float
    split: float | None = None


def change_of_record(record: MigrationRecord | StoredMigration) -> PlottedMigration:
    """A migration on the axis of application time."""
    figures = record.actual if isinstance(record, StoredMigration) else record
    started = figures.started_at if figures is not None else None
    ended = figures.ended_at if figures is not None else None
    start = 0 if started is None else started
    return PlottedMigration(_name(record), start, start if ended is None else ended, record.split_time)


def plot_batches(name: str, metrics: pa.Table, history: Sequence[StoredMigration]) -> Any:
    """Results, state and time of a query's batches, with its migrations shaded."""
    rows = metrics.to_pylist()
    batches = [row["batch_id"] for row in rows]
    curves: Mapping[str, list[float]] = {
        "results a batch": [dict(row["results"]).get(name, 0) for row in rows],
        "rows of state": [dict(row["state_rows"]).get(name, 0) for row in rows],
        "seconds a batch": [_seconds(dict(row["seconds"])) for row in rows],
    }
    figure, axes = _pyplot().subplots(len(curves), 1, sharex=True, figsize=(8, 6), layout="constrained")
    last = batches[-1] if batches else 0
    changes = [
        PlottedMigration(_name(m), m.start_batch, last if m.end_batch is None else m.end_batch)
        for m in history
        if m.strategy and m.start_batch is not None
    ]
    for axis, (label, values) in zip(axes, curves.items(), strict=True):
        axis.plot(batches, values, color=OLD, linewidth=1.2)
        axis.set_ylabel(label)
        axis.set_ylim(bottom=0)
        _shade(axis, changes)
    axes[-1].set_xlabel("batch")
    _finish(figure, axes[0], f"query {name}")
    return figure


def plot_results(results: pa.Table, changes: Sequence[PlottedMigration]) -> Any:
    """How many results are valid over time, or come at each, with migrations shaded and split times marked."""
    times, counts = valid_over_time(results)
    figure, axis = _pyplot().subplots(figsize=(8, 3.5), layout="constrained")
    axis.step(times, counts, where="post", color=OLD, linewidth=1.2)
    axis.set_ylabel("valid results" if "valid_from" in results.column_names else "results")
    axis.set_xlabel("time")
    axis.set_ylim(bottom=0)
    _shade(axis, changes)
    _finish(figure, axis, "")
    return figure


def _seconds(parts: Mapping[str, float]) -> float:
    """How long a batch took; of the last one only its job may be known."""
    return parts.get("batch", parts.get("job", np.nan))


def valid_over_time(results: pa.Table) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The instants at which the number of valid results changes, and the number from then on.

    >>> table = pa.table({"valid_from": [0, 2], "valid_to": pa.array([4, None], pa.int64())})
    >>> [values.tolist() for values in valid_over_time(table)]
    [[0, 2, 4], [1, 2, 1]]
    """
    starts = _ticks(results.column("valid_from" if "valid_from" in results.column_names else "ts"))
    ends = _ticks(results.column("valid_to")) if "valid_to" in results.column_names else starts + 1
    ends = ends[ends < INFINITY]
    moments = np.concatenate([starts, ends])
    steps = np.concatenate([np.ones(len(starts), np.int64), -np.ones(len(ends), np.int64)])
    times, places = np.unique(moments, return_inverse=True)
    counts = np.cumsum(np.bincount(places, weights=steps, minlength=len(times)).astype(np.int64))
    step = max(1, len(times) // POINTS)
    return times[::step], counts[::step]


def _ticks(column: pa.ChunkedArray) -> npt.NDArray[np.int64]:
    plain = column.cast(pa.int64()) if not pa.types.is_timestamp(column.type) else _microseconds(column)
    return np.array([INFINITY if value is None else value for value in plain.to_pylist()], np.int64)


def _microseconds(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64())


def _name(record: MigrationRecord | StoredMigration) -> str:
    return f"{record.strategy}: {record.old_plan} → {record.new_plan}"


def _shade(axis: Any, changes: Sequence[PlottedMigration]) -> None:
    for change in changes:
        end = change.end if change.end > change.start else change.start + 1
        axis.axvspan(change.start, end, color=SHADE, alpha=0.35, label=change.name)
        if change.split is not None:
            axis.axvline(change.split, color=NEW, linestyle="--", linewidth=1, label="split time")


def _finish(figure: Any, axis: Any, title: str) -> None:
    if title:
        axis.set_title(title)
    if axis.get_legend_handles_labels()[0]:
        axis.legend(loc="upper left", fontsize="small")
    _pyplot().close(figure)  # a notebook shows what a cell gives; it must not show it twice


def _pyplot() -> Any:
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise JobError(
            "plots need matplotlib, which is not installed", hint="pip install 'midstream[plots]'"
        ) from error
    return pyplot
