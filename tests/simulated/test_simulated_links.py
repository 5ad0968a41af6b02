"""Jobs on simulated machines at two sites: how long rows take between them is measured, and queries follow."""

from __future__ import annotations

from functools import partial
from random import Random

import pyarrow as pa
import pytest
from tests.local.test_links import CHAIN, SCHEMA, SITES, rows

import midstream as ms
from midstream.checkpoint.process import running_as
from midstream.cluster.checkpoint_session import CheckpointSession
from midstream.lab.simulated_cluster import SimulatedLink, Simulation
from midstream.lab.simulated_cluster.cluster import SimulatedBackend
from midstream.lab.simulated_cluster.processes import Host, SimulatedProcess
from midstream.lab.simulated_cluster.tasks import Worker

FAST, SLOW = SimulatedLink(latency=0.002), SimulatedLink(latency=4.0)


def machines(simulation: Simulation) -> list[str]:
    """A machine for each slot."""
    names = [f"worker-{slot}" for slot in range(3)]
    for name in names:
        process = SimulatedProcess(name, Host(name), simulation, Random(name))
        simulation.add(name, partial(worker, name, process), speed=1e6)
    return names


def worker(name: str, process: SimulatedProcess, disk: object) -> Worker:
    return Worker(name, process, process.random, lambda _: None)


@pytest.mark.slow
def test_a_link_that_is_measured_to_be_slow_is_taken_for_a_slow_one(tmp_path, seed=3):
    """Nobody tells the job: rows from eu to us take 4 seconds from the ninth batch on."""
    simulation = Simulation(seed, FAST)
    workers = machines(simulation)
    driver = SimulatedProcess("driver-0", Host("north"), simulation, Random(seed))
    with running_as(driver):
        session = CheckpointSession(
            checkpoint=str(tmp_path),
            on=lambda files: SimulatedBackend(files, driver, workers, Random(seed), pinned=True),
            slots=3,
            sites=SITES,
            links={"eu <-> us": "2 ms, 1 GB/s"},
        )
        for name, site in {"A": "eu", "B": "us", "C": "eu"}.items():
            session.stream(name, SCHEMA, site=site)
        query = session.query("q", CHAIN, adaptive="auto")
        session.start()
        for number in range(16):
            if number == 8:
                before, links = query.plan.text, session.links()
                for slot in (0, 1):
                    simulation.connect(workers[slot], workers[2], SLOW)
            session.push(rows(number))
        after, known, decision = query.plan.text, session.links(), query.decisions[-1]
        session.finish()
        found = query.table()
        session.stop()
    assert links == {"eu -> us": "2 ms, 1 GB/s", "us -> eu": "2 ms, 1 GB/s"}, "what is as expected stays"
    assert known["us -> eu"] == links["us -> eu"]
    assert float(known["eu -> us"].split(" s, ")[0]) == pytest.approx(4.0, rel=0.1)
    assert decision.action == "migrate" and decision.reason.startswith("The link from eu to us went from 2 ms")
    assert "-> B" in before and "-> B" not in after
    tables = {name: [row for number in range(16) for row in rows(number)[name]] for name in "ABC"}
    assert ms.snapshot_equal(found, ms.reference(CHAIN, {name: _table(some) for name, some in tables.items()}))


def _table(some: list[dict[str, int]]) -> pa.Table:
    return pa.Table.from_pylist(some, schema=SCHEMA)
