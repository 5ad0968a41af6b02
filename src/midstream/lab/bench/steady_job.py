"""A job with everything on, over streams that do not change: what it holds and costs must not change either.

Queries of every kind share windows; one is added, replaced and dropped again and again, one migrates by every strategy
in turn, one adapts by itself; groups move between slots, their number changes, some rows are late, sinks are called,
the job is stopped and opened again now and then, and old results go.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from midstream.checkpoint.addresses import files_at
from midstream.checkpoint.control import send
from midstream.cluster.checkpoint_session import CheckpointSession
from midstream.errors import DeadLetterWarning, MidstreamError

SCHEMA = pa.schema([("k", pa.int64()), ("g", pa.int64()), ("v", pa.int64()), ("ts", pa.int64())])
STREAMS = ("A", "B", "C")
STEP = 10
"""How far time goes on with a batch."""

QUERIES = {
    "joined": "SELECT A.k, A.v AS a, B.v AS b FROM A [RANGE 100], B [RANGE 100] WHERE A.k = B.k",
    "three": "SELECT A.v AS a, B.v AS b, C.v AS c FROM A [RANGE 60], B [RANGE 60], C [RANGE 60]"
    " WHERE A.k = B.k AND B.k = C.k",
    "counted": "SELECT g, count(*) AS n, max(v) AS top FROM A [RANGE 100] GROUP BY g",
    "hopping": "SELECT g, sum(v) AS s FROM B [HOP 40, 10] GROUP BY g",
    "distinct": "SELECT DISTINCT A.g FROM A [RANGE 50], C [RANGE 50] WHERE A.k = C.k",
    "newest": "SELECT g, v FROM C [PARTITION BY g ROWS 2]",
    "outer": "SELECT A.k, B.v FROM A [RANGE 20] LEFT JOIN B [RANGE 30] ON A.k = B.k",
    "without": "SELECT g FROM A [RANGE 30] EXCEPT SELECT g FROM B [RANGE 30]",
    "changes": "SELECT ISTREAM g, count(*) AS n FROM C [RANGE 50] GROUP BY g",
    "sequence": "SELECT A.v, B.v AS u FROM A FOLLOWED BY B CHRONICLE ON A.k = B.k WITHIN 30",
}
COMING = (
    "SELECT k, v FROM A [RANGE 40] WHERE v > 30",
    "SELECT B.v FROM A [RANGE 40], B [RANGE 40] WHERE A.k = B.k AND A.g = 3",
)
PLANS = ("((A B) C)", "(A (B C))", "A: B C, B: A C, C: B A")
STRATEGIES = (
    "moving_state",
    "moving_state_paced",
    "parallel_track",
    "genmig",
    "genmig_reference_point",
    "genmig_shortened",
    "auto",
)
RETENTION = {"results": "200 batches", "dead_letters": "200 batches", "replaced": "200 batches"}
MIGRATE_EVERY, COME_AND_GO_EVERY, REBALANCE_EVERY, RESCALE_EVERY, REOPEN_EVERY = 25, 40, 60, 110, 500


class SteadyJob:
    """The job on a checkpoint; `look` is called with the account of each batch."""

    def __init__(self, checkpoint: Path, look: Callable[[dict[str, Any]], None], seed: int = 0) -> None:
        self.checkpoint = str(checkpoint)
        self.look = look
        self.random = np.random.default_rng(seed)
        self.plans, self.strategies, self.coming = cycle(PLANS[1:] + PLANS[:1]), cycle(STRATEGIES), cycle(COMING)
        self.batch = 0
        self.delivered = 0
        self.refused = 0
        self.session = self._opened()

    def run(self, batches: int | None, enough: Callable[[], bool] = lambda: False) -> None:
        """Takes in so many batches, or as many as there are until it is enough."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeadLetterWarning)
            self._run(batches, enough)
        self.session.stop()

    def _run(self, batches: int | None, enough: Callable[[], bool]) -> None:
        while self.batch != batches and not enough():
            self._ask()
            self.session.push({name: self._rows() for name in STREAMS})
            self.batch += 1
            if self.batch % REOPEN_EVERY == 0:
                self.session.stop()
                self.session = self._opened()

    def _opened(self) -> CheckpointSession:
        session = CheckpointSession(checkpoint=self.checkpoint, on="local", metrics_retained=1000, retention=RETENTION)
        for name in STREAMS:
            session.stream(name, SCHEMA, lateness=5)
        for name, cql in QUERIES.items():
            session.query(name, cql, adaptive="auto" if name == "joined" else "off")
        session.sink("counted", self._deliver)
        session.on_progress(self.look)
        session.start()
        return session

    def _deliver(self, results: pa.Table, batch_id: int) -> None:
        self.delivered += results.num_rows

    def _rows(self, count: int = 20) -> pa.Table:
        start = self.batch * STEP
        times = start + self.random.integers(0, STEP, count)
        late = self.random.random(count) < 0.02
        columns = {
            "k": self.random.integers(0, 40, count),
            "g": self.random.integers(0, 8, count),
            "v": self.random.integers(0, 50, count),
            "ts": np.where(late, np.maximum(start - 100, 0), times),
        }
        return pa.table(columns, schema=SCHEMA)

    def _ask(self) -> None:
        """Asks for what is due, as people do: through the control folder or by calls."""
        batch, session = self.batch, self.session
        if batch % MIGRATE_EVERY == MIGRATE_EVERY - 1:
            self._try(lambda: session.queries["three"].migrate(next(self.plans), next(self.strategies)))
        if batch % COME_AND_GO_EVERY == 5:
            self._try(lambda: session.query("coming", next(self.coming), replace="coming" in session.queries))
        if batch % (4 * COME_AND_GO_EVERY) == 30 and "coming" in session.queries:
            session.drop("coming")
        if batch % REBALANCE_EVERY == 20:
            send(files_at(self.checkpoint), {"command": "rebalance"})
        if batch % RESCALE_EVERY == 70:
            session.rescale(int(self.random.integers(1, 4)))

    def _try(self, change: Callable[[], object]) -> None:
        try:
            change()
        except MidstreamError:  # such as a migration while another is under way, or one that is not legal
            self.refused += 1
