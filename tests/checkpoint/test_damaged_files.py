"""Every file of a checkpoint, of the control folder and of a job, damaged in any way: only our own errors come out.

`pytest -m slow --seeds N` damages N times instead of 20,000 times.
"""

from __future__ import annotations

import json
import random
import tomllib
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import midstream as ms
from midstream.checkpoint import lists, metrics
from midstream.checkpoint.addresses import files_at
from midstream.checkpoint.check import check
from midstream.checkpoint.control import send
from midstream.checkpoint.lease import seen
from midstream.checkpoint.manifest import Manifest
from midstream.checkpoint.store import CheckpointStore
from midstream.errors import MidstreamError
from midstream.interface.jobs.job_file import read_job
from midstream.job.gate import Gate
from midstream.job.requests import Requests
from midstream.lab.simulated_cluster.storage import SimulatedFiles, VolatileDisk, insert

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("ts", pa.int64())])
QUERIES = {
    "joined": "SELECT A.v AS a, B.v AS b FROM A [RANGE 20], B [RANGE 20] WHERE A.k = B.k",
    "grouped": "SELECT k, COUNT(*) AS n FROM A [RANGE 10] GROUP BY k",
}
CASES = 120
MANY_CASES = 20_000

JOB = """
[job]
name = "fuzzed"
checkpoint = "checkpoint"
slots = 2

[streams.A]
format = "parquet"
path = "in"
schema = "k BIGINT, v BIGINT, ts BIGINT"
time = "ts"
lateness = 5

[queries.q]
cql = "SELECT k, COUNT(*) AS n FROM A [RANGE 10] GROUP BY k"
"""


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The files of a checkpoint of a job that has run for some batches."""
    folder = tmp_path_factory.mktemp("whole")
    with pytest.MonkeyPatch.context() as patched, warnings.catch_warnings(), opened(str(folder)) as session:
        warnings.simplefilter("ignore")
        patched.setattr(metrics, "RECENT", 2)
        patched.setattr(metrics, "TIER", 2)
        patched.setattr(lists, "MOST_NAMED", 1)
        session.start()
        for i in range(4):
            rows = pa.table({"k": [i % 3, 1], "v": [i, i], "ts": [10 * i, 10 * i + 1]}, schema=SCHEMA)
            session.push({"A": rows, "B": rows})
        session.push("A", pa.table({"k": [1], "v": [1], "ts": [0]}, schema=SCHEMA))
    found = {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    kinds = {path.partition("/")[0] for path in found}
    assert {"manifests", "state", "results", "dead_letters", "metrics", "lists", "lease"} <= kinds
    return found


def opened(checkpoint: str) -> ms.Session:
    session = ms.Session(checkpoint=checkpoint, on="local", slots=2, retained=2)
    for name in "AB":
        session.stream(name, SCHEMA)
    for name, cql in QUERIES.items():
        session.query(name, cql)
    return session


def damaged(content: bytes, chance: random.Random) -> bytes:
    """The content with bytes flipped, cut out, doubled or put in, or something else in its place."""
    made = bytearray(content)
    for _ in range(chance.choice([1, 1, 2, 8])):
        place = chance.randrange(len(made) + 1)
        match chance.randrange(6):
            case 0 if place < len(made):
                made[place] ^= 1 << chance.randrange(8)
            case 1:
                del made[place : place + chance.choice([1, 4, 100, len(made)])]
            case 2:
                made[place:place] = made[place : place + chance.choice([1, 8, 200])]
            case 3:
                made[place:place] = chance.randbytes(chance.choice([1, 4, 50]))
            case 4:
                made[place:] = b""
            case _:
                other = [b"", b"null", b"[]", b"{}", b"-1", b'{"a": ' * 50, b"\xff\xfe", bytes(64)]
                made[place : place + chance.choice([1, 10])] = chance.choice(other)
    return bytes(made)


def only_our_errors(action: Callable[[], Any]) -> None:
    try:
        action()
    except MidstreamError as error:
        assert str(error)


def sampled(uri: str) -> None:
    """All that reads a checkpoint without running it."""
    files = files_at(uri)
    store = CheckpointStore(uri)
    only_our_errors(lambda: seen(files))
    only_our_errors(lambda: [check(files, manifest) for manifest in [store.latest()] if manifest is not None])
    only_our_errors(lambda: ms.open(uri).queries)
    only_our_errors(lambda: ms.open(uri).dead_letters())
    only_our_errors(lambda: ms.open(uri).metrics())
    for name in QUERIES:
        only_our_errors(lambda name=name: ms.open(uri).results(name))  # type: ignore[misc]


def run_on(uri: str) -> None:
    """A session goes on there."""
    session = None
    try:
        session = opened(uri)
        session.start()
        session.push("A", pa.table({"k": [1], "v": [1], "ts": [100]}, schema=SCHEMA))
    except MidstreamError as error:
        assert str(error)
    finally:
        if session is not None:
            only_our_errors(session.stop)


def damage_a_file(disk: dict[str, bytes], seed: int) -> None:
    chance = random.Random(seed)
    path = chance.choice(sorted(disk))
    content = damaged(disk[path], chance)
    uri = insert("damaged", VolatileDisk({**disk, path: content}, {}))
    try:
        if path.startswith("manifests/"):
            only_our_errors(lambda: Manifest.from_bytes(content, path))
        sampled(uri)
        if chance.random() < 0.2:
            run_on(uri)
    except Exception as error:
        raise AssertionError(f"seed {seed}, {path}: {type(error).__name__}: {error}") from error


def damage_a_request(seed: int) -> None:
    chance = random.Random(seed)
    files = SimulatedFiles(insert("asked", VolatileDisk()))
    request = {"command": chance.choice(["migrate", "add", "status", "rescale"]), "query": "q", "slots": 3}
    send(files, request)
    requests = Requests(files, Gate())
    for path in files.list("control"):
        files.disk.seen[path] = damaged(files.disk.seen[path], chance)
    folder = chance.choice(["taken", "refused", "requests"])
    files.write_atomic(f"control/{folder}/7.json", damaged(json.dumps(request).encode(), chance))
    only_our_errors(lambda: requests.go_on(None, lambda request: {"done": True}))
    only_our_errors(lambda: requests.answer_all(lambda request: {"done": True}))


def damage_a_job(folder: Path, seed: int) -> None:
    path = folder / "job.toml"
    path.write_bytes(damaged(JOB.encode(), random.Random(seed)))
    try:
        read_job(path)
    except MidstreamError as error:
        assert str(error)


def test_the_job_that_is_damaged_is_right(tmp_path):
    tomllib.loads(JOB)
    (tmp_path / "job.toml").write_text(JOB)
    read_job(tmp_path / "job.toml")


def test_damaged_files_of_a_checkpoint_give_our_own_errors(disk):
    for seed in range(CASES):
        damage_a_file(disk, seed)


def test_damaged_requests_give_our_own_errors():
    for seed in range(CASES):
        damage_a_request(seed)


def test_damaged_job_files_give_our_own_errors(tmp_path):
    for seed in range(CASES):
        damage_a_job(tmp_path, seed)


@pytest.mark.slow
def test_much_damage_gives_our_own_errors(disk, tmp_path, request):
    for seed in range(CASES, CASES + (request.config.getoption("--seeds") or MANY_CASES)):
        damage_a_file(disk, seed)
        damage_a_request(seed)
        damage_a_job(tmp_path, seed)
