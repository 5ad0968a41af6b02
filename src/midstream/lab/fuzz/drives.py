"""How a case is run: by which plan, in which batches and schedule, and to which plans it migrates on the way."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from random import Random

import pyarrow as pa

from midstream.api import Migration, plans, run
from midstream.errors import DeadLetterWarning, MidstreamError
from midstream.lab.fuzz.cases import Case
from midstream.lab.fuzz.streams import LAST_TIME
from midstream.migration.registry import STRATEGIES

BATCHES = (1, 3, 7, 40, 10_000)
SCHEDULES = ("dfs", "bfs", "rr", "batch:3", "chain")
MOST_MIGRATIONS = 2
VERIFIED = 5
"""For how long both plans are compared before some of the migrations."""


@dataclass(frozen=True, slots=True)
class Drive:
    """The settings of a run."""

    batch_rows: int
    scheduling: str
    plan: str | None
    migrations: tuple[Migration, ...]

    @classmethod
    def draw(cls, random: Random, case: Case) -> Drive:
        """Any settings that a case allows."""
        known = [plan.text for plan in plans(case.query, case.inputs, time=case.time)]
        moments = sorted(random.sample(range(1, LAST_TIME), random.randint(0, MOST_MIGRATIONS)))
        migrations = [
            Migration(
                case.moment(at),
                random.choice(known),
                random.choice(sorted(STRATEGIES)),
                verify=random.choice([None, None, None, case.duration(VERIFIED)]),
            )
            for at in moments
        ]
        return cls(random.choice(BATCHES), random.choice(SCHEDULES), random.choice([None, *known]), tuple(migrations))

    def by_any_strategy(self) -> Drive:
        """The same, where each migration takes a strategy that is right for its plans."""
        return replace(self, migrations=tuple(replace(migration, strategy="auto") for migration in self.migrations))

    def without_migrations(self) -> Drive:
        """The same by one plan."""
        return replace(self, migrations=())

    def run(self, case: Case) -> pa.Table:
        """The results of a case."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeadLetterWarning)
            return run(
                case.query,
                case.inputs,
                time=case.time,
                plan=self.plan,
                migrations=list(self.migrations),
                batch_rows=self.batch_rows,
                scheduling=self.scheduling,
            )


def result_of(case: Case, drive: Drive) -> pa.Table | MidstreamError:
    """The results of a case, or its refusal."""
    try:
        return drive.run(case)
    except MidstreamError as error:
        return error
