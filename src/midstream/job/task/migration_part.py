"""The migration of a task's plan: a second box, and the execution by which both run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from midstream.job.task.memory import Memory, bind
from midstream.job.task.reports import BoxWatch, FragmentReport
from midstream.job.task.state_store import NamedState
from midstream.job.task.works import FragmentWork, MigrationWork
from midstream.migration.execution import Execution, SingleBox
from midstream.migration.in_part import move_by, way_decided
from midstream.migration.protocol import Figures, Migrating
from midstream.migration.registry import strategy_named
from midstream.migration.state_move import Portions
from midstream.operators.base import Operator
from midstream.operators.box import Box
from midstream.scheduling.scheduler import Scheduler, Sink


class MigrationPart:
    """Goes over from a box to that of another plan, as it was decided; `execution` is what runs at present."""

    def __init__(self, box: Box, sink: Sink, work: FragmentWork, migration: MigrationWork) -> None:
        self.old, self.new = box, Box(migration.target.plan, work.functions)
        self.migration = migration
        self.restored_to = work.restored_to
        self.execution: Execution = SingleBox(box, sink, partial(Scheduler, schedule=work.scheduling))
        self.migrating: Migrating | None = None
        self.figures = Figures()
        """What a migration that ended in this batch has cost in it."""
        self.watch: BoxWatch | None = None

    def open(self, fill: Callable[[], None], spill: Callable[[], None], memory: Memory) -> None:
        """Begins, or goes on from where the last batch ended; `fill` fills the states that there are by then."""
        migration, single = self.migration, self.execution
        assert isinstance(single, SingleBox)
        if migration.begins:
            fill()
            single.restore(self.restored_to)
        bind(self.new.operators, memory)
        self.watch = BoxWatch(self.new)
        strategy = way_decided(strategy_named(migration.strategy), dict(migration.decision))
        self.migrating = self.execution = strategy.open(single, self.new, dict(migration.decision))
        if migration.begins:
            move_by(self.migrating, Portions(memory.moved, spill))
            self.migrating.begin()
        else:
            fill()
            self.migrating.restore(self.restored_to)
        if migration.cancels:
            self.figures = self.migrating.figures
            self.execution, self.migrating = self.migrating.cancel(), None
        elif migration.finishes:
            self.finish()

    def finish(self) -> None:
        """Leaves the new box in place of both."""
        assert self.migrating is not None
        self.figures = self.migrating.figures
        self.execution, self.migrating = self.migrating.finish(), None

    @property
    def operators(self) -> list[Operator]:
        """The operators of both boxes."""
        return [*self.old.operators, *self.new.operators]

    def report(self, report: FragmentReport) -> None:
        """Adds what the new box did, how far the migration is, and what it has cost in this batch."""
        report.work.add(self.new.work)
        figures = self.figures
        if self.migrating is not None:
            figures = self.migrating.figures
            report.migrated, report.held_from = self.migrating.done, self.migrating.held_from
        report.processed_twice += figures.processed_twice
        report.extra_rows += max(figures.extra_rows, figures.peak_extra_rows)
        report.target_operators = [] if self.watch is None else self.watch.reports()

    def named_states(self) -> Iterator[NamedState]:
        """All states under the names they are stored by: what they hold, or while two boxes run also for whom."""
        if isinstance(self.execution, SingleBox):
            for state in self.execution.states():
                yield (state.id, state.key), state
            return
        for name, state in self.execution.named_states():
            yield (name, state.key), state
