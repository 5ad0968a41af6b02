"""The judgement of a simulated job: what it read, gave, delivered and carried out, held against the oracle."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from midstream.api import reference, snapshot_equal
from midstream.checkpoint.check import check
from midstream.checkpoint.collect import collect, garbage
from midstream.checkpoint.lists import dead_letters_of
from midstream.checkpoint.manifest import Manifest
from midstream.checkpoint.process import running_as
from midstream.checkpoint.query_windows import ALWAYS
from midstream.checkpoint.records import StoredRequest
from midstream.checkpoint.store import CheckpointStore
from midstream.cluster.sinks import Folder
from midstream.job.outputs.results import results_of_query
from midstream.lab.simulation.edges import held_by_identity
from midstream.lab.simulation.run import SimulatedRun
from midstream.lab.simulation.workload import SCHEMA, STREAMS
from midstream.language import parse
from midstream.optimizer.plans import plan_query


def judge(run: SimulatedRun) -> None:
    """Raises a `SimulationFailure` if anything is not as it must be."""
    with running_as(run.world.user):
        store = CheckpointStore(run.world.uri)
        manifest = store.latest()
        if manifest is None:
            raise run.failure("nothing was committed")
        _require_chain(run, manifest)
        if damage := check(store.files, manifest):
            raise run.failure(f"files of the checkpoint are damaged: {damage}")
        accepted = _accepted(run)
        _require_dead_letters(run, store, manifest, accepted)
        _require_requests(run)
        _require_kept(run, manifest)
        for name, entry in manifest.queries.items():
            if entry.status == "running":
                _require_results(run, store, manifest, name, accepted)
        collect(store, store.files)
        if left := garbage(store, store.files):
            raise run.failure(f"files are left that nobody names: {left}")


def _require_chain(run: SimulatedRun, newest: Manifest) -> None:
    """Every batch was seen, each read files that nobody had read, and all were read."""
    if sorted(run.seen) != list(range(newest.batch_id + 1)):
        raise run.failure(f"of {newest.batch_id + 1} batches only these were seen: {sorted(run.seen)}")
    for number in range(1, newest.batch_id + 1):
        for name in STREAMS:
            if not run.seen[number - 1].read[name] <= run.seen[number].read[name]:
                raise run.failure(f"batch {number} forgot files of {name}")
    for name in STREAMS:
        if run.seen[newest.batch_id].read[name] != frozenset(run.workload.files[name]):
            raise run.failure(f"files of {name} were not read, or from nowhere")


def _accepted(run: SimulatedRun) -> dict[str, pa.Table]:
    """The rows that were in time when they came."""
    rows: dict[str, list[pa.Table]] = {name: [SCHEMA.empty_table()] for name in STREAMS}
    for number in sorted(run.seen):
        before = run.seen.get(number - 1)
        for name in STREAMS:
            fresh = run.seen[number].read[name] - (before.read[name] if before else frozenset())
            least = before.registers.get(name) if before else None
            for path in sorted(fresh):
                table = run.workload.files[name][path]
                rows[name].append(table if least is None else table.filter(pc.greater_equal(table["ts"], least)))
    return {name: pa.concat_tables(tables) for name, tables in rows.items()}


def _require_dead_letters(
    run: SimulatedRun, store: CheckpointStore, manifest: Manifest, accepted: Mapping[str, pa.Table]
) -> None:
    all_rows = sum(t.num_rows for files in run.workload.files.values() for t in files.values())
    late = all_rows - sum(table.num_rows for table in accepted.values())
    record = sum(manifest.streams.late.values())
    kept = sum(file.rows for file in dead_letters_of(store.files, manifest))
    if not late == record == kept:
        raise run.failure(f"{late} rows came late, {record} were counted, and {kept} are dead letters")


def _require_kept(run: SimulatedRun, manifest: Manifest) -> None:
    """Nothing has outlived its retention, whatever clocks said for a moment."""
    removed = {name: account.removed for name, account in manifest.accounts.items() if account.removed is not None}
    if removed or manifest.outputs.removed_dead_letters is not None:
        raise run.failure(f"these were removed, too early: {removed}, {manifest.outputs.removed_dead_letters}")


def _require_requests(run: SimulatedRun) -> None:
    """No request shows its effect in two batches, and none in a manifest that nobody asked for."""
    batches: dict[str, set[int]] = {}
    for record in _records(run):
        batches.setdefault(record.id, set()).add(record.batch or 0)
    for number, where in batches.items():
        if len(where) > 1:
            raise run.failure(f"request {number} was carried out in batches {sorted(where)}")
        if number not in run.asked:
            raise run.failure(f"nobody asked for request {number}")
    for number, reply in run.answers.items():
        request = run.asked[number]
        if "error" in reply and any(r.id == number and r.refused is None for r in _records(run)):
            raise run.failure(f"request {request} was refused, and carried out all the same")
        if "result" in reply and request.get("command") in ("add", "drop", "migrate") and number not in batches:
            raise run.failure(f"request {request} was promised, and no manifest tells of it")


def _records(run: SimulatedRun) -> list[StoredRequest]:
    """What manifests told of requests."""
    return [record for seen in run.seen.values() for record in seen.requests]


def _require_results(
    run: SimulatedRun, store: CheckpointStore, manifest: Manifest, name: str, accepted: Mapping[str, pa.Table]
) -> None:
    cql = manifest.queries[name].cql
    inputs = {stream: table for stream, table in accepted.items() if f" {stream} " in f"{cql} "}
    expected = reference(cql, inputs, time="ts")
    plan = plan_query(parse(cql, _catalog(inputs)), None, manifest.queries[name].emit_every)
    got = results_of_query(store.files, manifest, name, plan)
    since = _whole_since(run, name, cql)
    if since is None:
        return
    given, wanted = cut(got, since), cut(expected, since)
    if "valid_from" in got.schema.names:
        difference = snapshot_equal(given, wanted)
        if not difference:
            raise run.failure(f"query {name}: {difference}")
    elif Counter(map(str, given.to_pylist())) != Counter(map(str, wanted.to_pylist())):
        raise run.failure(f"query {name} gave {given.to_pylist()}, not {wanted.to_pylist()}")
    _require_delivered(run, name, got, manifest)


def _catalog(inputs: Mapping[str, pa.Table]) -> Any:
    from midstream.algebra.declarations import Catalog
    from midstream.inputs import StreamSettings

    return Catalog({name: StreamSettings("ts").declaration(name, SCHEMA) for name in inputs}, {})


def _whole_since(run: SimulatedRun, name: str, cql: str) -> int | None:
    """From which instant on a query's results are those of all rows; None if that is never so."""
    first = max(run.seen)  # a query may have been dropped and added again, even between the same two batches
    while first and run.seen[first - 1].queries.get(name) == cql and not _begins(run, name, first):
        first -= 1
    if first == 0:
        return -(2**62)
    record = run.seen[first].sharing.get(name)
    if record is None:
        return None
    if all(begun == ALWAYS for begun in record.since.values()):
        return record.start
    return None if record.whole_at is None else max(record.start, record.whole_at)


def _begins(run: SimulatedRun, name: str, batch: int) -> bool:
    """Whether a query was added in a batch."""
    return run.seen[batch].begun.get(name) == batch


def cut(table: pa.Table, since: int) -> pa.Table:
    """A result from an instant on."""
    if "valid_from" not in table.schema.names:
        if since <= -(2**62):
            return table
        return table.filter(pc.greater_equal(table["ts"], pa.scalar(min(since + 1, 2**63 - 1), table["ts"].type)))
    kept = table.filter(
        pc.or_kleene(pc.is_null(table["valid_to"]), pc.greater(table["valid_to"], min(since, 2**63 - 1)))
    )
    place = kept.schema.get_field_index("valid_from")
    starts = pc.max_element_wise(kept["valid_from"], pa.scalar(since, kept["valid_from"].type))
    return kept.set_column(place, "valid_from", starts)


def _require_delivered(run: SimulatedRun, name: str, got: pa.Table, manifest: Manifest) -> None:
    """Sinks were given every result once, as far as they can tell."""
    if name not in run.texts or _reworded(run, name):
        return
    if run.in_folder(name):
        _require_held(run, name, got, manifest)
    elif not run.copies.restored:
        _require_given(run, name, got)


def _reworded(run: SimulatedRun, name: str) -> bool:
    """Whether a query had another text by request: its sinks were given results of both."""
    texts = {seen.queries[name] for seen in run.seen.values() if name in seen.queries}
    return not texts <= {run.workload.queries.get(name), run.texts.get(name)}


def _require_given(run: SimulatedRun, name: str, got: pa.Table) -> None:
    """A function was given every result, and the same ones whenever a batch was delivered again."""
    total: Counter[str] = Counter()
    for (query, batch_id), tables in run.delivered.items():
        if query != name:
            continue
        contents = [Counter(map(str, table.to_pylist())) for table in tables]
        if any(content != contents[0] for content in contents):
            raise run.failure(f"the sink of {name} was given different results for batch {batch_id}")
        total += contents[0]
    if run.texts[name] == run.workload.queries[name] and total != Counter(map(str, got.to_pylist())):
        raise run.failure(f"the sink of {name} was given {total.total()} results of {got.num_rows}")


def _require_held(run: SimulatedRun, name: str, got: pa.Table, manifest: Manifest) -> None:
    """The folder has every result of a query once, and none of another query of its name beside what that released."""
    held = held_by_identity(Folder(run.world.results_uri))
    found, wanted = held.get(manifest.account(name).identity or "", Counter()), Counter(map(str, got.to_pylist()))
    if found != wanted:
        raise run.failure(
            f"the folder has {found.total()} results of {name}, of {wanted.total()}: {wanted - found} are missing, and "
            f"{found - wanted} should not be there"
        )
