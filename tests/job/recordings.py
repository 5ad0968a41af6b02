"""Recordings of jobs: what the manifests of fixed runs say, batch by batch, without random names and clocks.

They hold a change of the code's shape to the same behaviour. A change of behaviour that is meant is recorded anew with
`python -m tests.job.recordings`, and its difference read before it is committed.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.job.chain import temporary_checkpoint
from tests.job.many import Many
from tests.job.test_chain import GROUPS, STAGES, THREE, tables

from midstream.api import ask
from midstream.checkpoint.manifest import Manifest
from midstream.errors import MidstreamError
from midstream.job.events import QueryDropped, Scheduled
from midstream.job.task.exchange import GROUPS as PARTITION_GROUPS

RECORDED = Path(__file__).parent / "data" / "recordings.json"
SEEDS = range(6)
TEXTS = {
    "three": THREE,
    "groups": GROUPS,
    "stages": STAGES,
    "outer": "SELECT A.v, B.v AS w FROM A [RANGE 15] LEFT JOIN B [RANGE 15] ON A.k = B.k",
    "distinct": "SELECT DISTINCT k FROM A [RANGE 10]",
}
PLANS = ("((A B) C)", "(A (B C))", "((A C) B)")
STRATEGIES = ("genmig", "moving_state", "parallel_track", "genmig_reference_point", "auto")


def recorded(manifest: Manifest, job: Many) -> dict[str, Any]:
    """What a manifest says, and what queries have released by then."""
    states = {
        name: {
            f"{stage}/{slot}": sorted([entry.state, entry.rows] for entry in entries)
            for stage, slots in stages.items()
            for slot, entries in slots.items()
        }
        for name, stages in manifest.segments.items()
    }
    return {
        "streams": [dict(manifest.streams.registers), dict(manifest.streams.latest), dict(manifest.streams.rows)],
        "slots": [manifest.slots.count, _digest(list(manifest.slots.routing)), len(manifest.slots.moves)],
        "plans": {name: entry.plan for name, entry in manifest.queries.items()},
        "frontiers": [dict(manifest.advanced_to), dict(manifest.released)],
        "migrating": {
            n: [m.plan, m.strategy, m.begun, m.done] for n, a in manifest.accounts.items() if (m := a.plans.migration)
        },
        "histories": {name: _digest(_history(account.history)) for name, account in manifest.accounts.items()},
        "states": {name: _digest(held) for name, held in states.items()},
        "results": {name: _digest(sorted(map(str, job.table(name).to_pylist()))) for name in job.driver.queries},
    }


def _history(history: Any) -> list[Any]:
    known = ("status", "strategy", "old_plan", "new_plan", "start_batch", "end_batch")
    return [[record.get(name) for name in known] for record in history]


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, default=str).encode()).hexdigest()[:12]


def run(seed: int, folder: Path) -> Iterator[dict[str, Any]]:
    """A job in which queries come and go, migrate and move; what each of its manifests says."""
    rng = random.Random(seed)
    question = ask(THREE, tables(rows=70, last=110, seed=seed))
    options: dict[str, Any] = {"catalog": question.catalog, "folder": folder, "slots": 1 + seed % 3}
    job = Many(**options)
    job.add("three", THREE, wanted=PLANS[seed % 3])
    for part in [*job.cut(question.tables, 25), None]:
        for _ in range(rng.randint(0, 2)):
            try:
                _change(job, rng)
            except MidstreamError:
                continue
        if rng.random() < 0.15 and job.driver.manifest is not None:
            job.driver.commits.stop()
            job = Many(**options)
        job.batch(part or {}, end=part is None)
        yield json.loads(json.dumps(recorded(job.manifest, job)))
    job.driver.commits.stop()


def _change(job: Many, rng: random.Random) -> None:
    running, slots = sorted(job.driver.queries), job.driver.state.slots
    match rng.choice(["add", "drop", "migrate", "migrate", "cancel", "rebalance", "rescale", "schedule"]):
        case "add":
            missing = sorted(TEXTS.keys() - set(running))
            if missing:
                job.add(name := rng.choice(missing), TEXTS[name])
        case "drop" if len(running) > 1:
            job.driver.apply(QueryDropped(rng.choice(running[1:])))
        case "migrate":
            job.migrate_query("three", rng.choice(PLANS), rng.choice(STRATEGIES))
        case "cancel":
            job.driver.cancel_migration("three")
        case "rebalance":
            job.driver.rebalance([rng.randrange(slots) for _ in range(PARTITION_GROUPS)])
        case "rescale":
            job.driver.rescale(rng.randint(1, 4))
        case "schedule":
            job.driver.apply(Scheduled(rng.choice(["dfs", "bfs", "rr", "chain"])))


def record() -> None:
    """Writes what the runs say now."""
    found = {}
    for seed in SEEDS:
        with temporary_checkpoint() as folder:
            found[str(seed)] = list(run(seed, folder))
    RECORDED.parent.mkdir(exist_ok=True)
    RECORDED.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    record()
