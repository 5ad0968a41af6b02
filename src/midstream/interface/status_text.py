"""What `midstream status` says of a job, line by line."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from midstream.algebra.time import BEGINNING, INFINITY, TimeDomain, amount, instant, moment, plural, seconds
from midstream.checkpoint.ledger import StoredSink
from midstream.checkpoint.metrics import Rates
from midstream.checkpoint.reading import StoredJob
from midstream.checkpoint.records import StoredRequest
from midstream.checkpoint.retention import removed_letters
from midstream.checkpoint.stops import stop_lines
from midstream.checkpoint.stored import VERIFYING, StoredMigration, StoredQuery
from midstream.checkpoint.stored_slots import StoredSlots
from midstream.distribution.plan_texts import slots_text
from midstream.inputs.json_values import json_value


def status_text(job: StoredJob) -> str:
    """All of it."""
    slots = job.slots
    lines = [_head(job), *stop_lines(job.standing), *_rates(job.rates())]
    for stream in job.streams.values():
        waits = "" if stream.lag is None else f", {stream.lag:,} wait in its source"
        counts = f"{stream.rows:,} rows, {stream.late:,} late, {stream.unusable:,} unusable"
        lines.append(f"stream {stream.name}: {counts}{waits}")
    if slots.moving is not None:
        groups = plural(slots.moving.groups, "group moves", "groups move")
        lines.append(f"{groups} by {slots.moving.protocol} since batch {slots.moving.since}")
    lines += [f"link {ends}: {link}" for ends, link in job.links.items()]
    lines += [*_between_slots(job), *shared_group_lines(slots)]
    lines += [f"groups by {k.by} are dealt apart: {_per_slot(k.groups)}" for k in slots.key_classes if k.apart]
    limits = [f"{kind} {limit}" for kind, limit in sorted(job.manifest.settings.retention.items())]
    lines += [f"retention: {', '.join(limits)}"] if limits else []
    lines += [line for query in job.queries.values() for line in removed_lines(query)]
    lines += [f"  {removed}" for removed in removed_letters(job.manifest)]
    for query in job.queries.values():
        lines += _query(query)
        lines += [line for sink in job.sinks.get(query.name, ()) for line in owed_lines(sink, query.domain)]
    return "\n".join([*lines, *_requests(job.requests)])


def _head(job: StoredJob) -> str:
    batch = "no batch done yet" if job.batch < 0 else f"batch {job.batch:,}"
    return f"{job.name} at {job.checkpoint}: {job.phase}, {batch}, {plural(job.slots.count, 'slot')}"


def _rates(rates: Rates) -> Iterator[str]:
    if rates.batches:
        speeds = [f"{name} {amount(speed)}" for name, speed in sorted(rates.rows_per_second.items())]
        yield (
            f"last {plural(rates.batches, 'batch', 'batches')} in {seconds(rates.seconds)}, "
            f"{seconds(rates.batch_seconds or 0.0)} each; rows a second: {', '.join(speeds) or 'none'}"
        )


def _between_slots(job: StoredJob) -> Iterator[str]:
    """What rows took between slots in the last batch, and which executors ran them."""
    moved, executors = (dict((job.last_batch or {}).get(key) or {}) for key in ("moved", "executors"))
    if moved:
        most = ", ".join(f"{pair} {size:,}" for pair, size in sorted(moved.items(), key=lambda item: -item[1])[:6])
        yield f"moved between slots in the last batch: {sum(moved.values()):,} bytes ({most})"
    if executors:
        named = ", ".join(f"slot {slot} on {name}" for slot, name in sorted(executors.items()))
        yield f"ran in executors: {named}"


def shared_group_lines(slots: StoredSlots) -> Iterator[str]:
    """The groups that several slots share, or are to; and why the hottest one stays where it is."""
    for group in slots.spread:
        where = f"spread over slots {', '.join(map(str, group.slots))}" if group.slots else "to be spread"
        rests = f"; it rests: {group.resting}" if group.resting else ""
        by = f" by {group.key_class}: rows by" if group.key_class else ": rows of"
        yield f"group {group.group}{by} {group.spread} {where}{rests}"
    about_keys = [decision for decision in slots.decisions if decision["kind"] == "keys"]
    if about_keys and about_keys[-1]["action"] == "stay" and about_keys[-1].get("group") is not None:
        yield about_keys[-1]["reason"]


def _per_slot(counts: tuple[int, ...]) -> str:
    return ", ".join(f"{count} in slot {slot}" for slot, count in enumerate(counts))


def removed_lines(query: StoredQuery) -> Iterator[str]:
    """What retention has removed of a query's results."""
    removed = query.account.removed
    if removed is not None:
        before = instant(removed["before"], query.domain)
        yield f"  {removed['rows']:,} results of query {query.name} that start before {before} were removed"


def _verifying(query: StoredQuery) -> str:
    """What runs beside a query, and what a comparison has found of both; a text that is not compared begins nowhere."""
    if query.migration is None or query.verifying is None:
        return ""
    found = query.migration.verified or {}
    if query.migration.strategy == "replace" and found.get("since") == INFINITY:
        return ", another text runs beside it until that can go on from where this one ends"
    return f", being verified with {query.verifying}, {found.get('difference') or 'the same so far'}"


def _query(query: StoredQuery) -> Iterator[str]:
    moving = f", migrating to {query.migrating_to}" if query.migrating_to else ""
    moving += _verifying(query)
    rests = f", {query.status}" if query.status in ("replaced", "quarantined") else ""
    yield f"query {query.name}: {results_text(query)}, plan {query.plans or 'without joins'}{moving}{rests}"
    if query.account.set_aside is not None:
        yield f"  {query.account.set_aside.rows:,} rows were set aside: its expressions failed for them"
    if query.quarantine is not None:
        yield f"  stopped since batch {query.quarantine.batch}: {query.quarantine.reason}"
        yield f"  midstream resume CHECKPOINT {query.name} resumes it, midstream drop ends it"
    yield from (migration_line(change) for change in (*query.history, query.migration) if change is not None)
    yield from (f"  warning: {sentence}" for sentence in query.warnings)
    if query.waits_for is not None:
        silent = f"silent for {plural(query.waits_for.batches, 'batch', 'batches')}"
        since = "without any rows so far" if query.waits_for.behind is None else silent
        yield f"  waits for stream {query.waits_for.stream}, {since}: a skew for it would end that"
    yield from (f"  keeps {rows:,} rows of state together with {name}" for name, rows in query.shared_with.items())
    if query.adaptivity.mode != "off" or query.decisions:
        decided = query.decisions[-1].reason if query.decisions else "nothing decided yet"
        yield f"  adaptivity {query.adaptivity.mode}: {decided}"


def results_text(query: StoredQuery) -> str:
    """How many results a query has released, and how many are computed and wait."""
    count = plural(query.results, "result")
    if not query.account.waiting:
        return count
    complete = "" if query.released is None else f", complete up to {instant(query.released, query.domain)},"
    waiting = query.account.waiting
    return f"{count}{complete} and {waiting:,} that {'waits' if waiting == 1 else 'wait'} for later rows"


def migration_line(change: StoredMigration) -> str:
    """One change of a query, past or under way."""
    record = change.record
    if record.get("event") == "started":
        kept = ", ".join(f"{alias} since batch {batch}" for alias, batch in record["inherited"].items())
        shared = f", with what {', '.join(record['shares'])} keeps: {kept}" if kept else ""
        return f"  started with batch {change.start_batch}{shared}: {record['complete']}{record['gap']}"
    if record.get("event") in ("quarantined", "resumed", "functions changed"):
        since = f", stopped in batch {change.start_batch}" if record["event"] == "resumed" else ""
        return f"  {record['event']} with batch {change.end_batch}{since}: {change.trigger}"
    batches = "not ended" if change.end_batch is None else f"batches {change.start_batch} to {change.end_batch}"
    whole = f"{change.old_plan} to {change.new_plan}"
    part = f" in {change.part}" if change.part not in (None, "", whole) else ""
    where = f" in {slots_text(change.slots)}" if change.slots else ""
    status = f"{change.status}, {batches}{_found(change)}"
    return f"  {whole}{where} by {change.strategy}{part}, {change.trigger}: {status}"


def _found(change: StoredMigration) -> str:
    """What a verification has found, if there was one."""
    verified = change.verified
    if verified is None or change.status == VERIFYING:
        return ""
    if verified["difference"] is None:
        return _compared(verified["since"], verified["compared_to"], TimeDomain.of_word(change.time))
    rows = [f"\n    only in the old plan's results: {row}" for row in verified["only_in_old"][:3]]
    rows += [f"\n    only in the new plan's results: {row}" for row in verified["only_in_new"][:3]]
    kept = change.record.get("new_results")
    rows += [] if kept is None else [f"\n    the new plan's results are kept as {kept}"]
    return f"; {verified['difference']}{''.join(rows)}"


def _compared(since: int, until: int, domain: TimeDomain) -> str:
    """Over which instants two answers were found to be the same; nothing if they were not compared.

    >>> from midstream.algebra.time import TIMESTAMP_TIME
    >>> _compared(BEGINNING, 0, TIMESTAMP_TIME), _compared(0, INFINITY, TIMESTAMP_TIME)
    ('; verified from the beginning to 1970-01-01 00:00:00', '; verified from 1970-01-01 00:00:00 to the end')
    >>> _compared(INFINITY, INFINITY, TIMESTAMP_TIME)
    ''
    """
    if since >= INFINITY:
        return ""
    first = "the beginning" if since <= BEGINNING else instant(since, domain)
    return f"; verified from {first} to {'the end' if until >= INFINITY else instant(until, domain)}"


def owed_lines(sink: StoredSink, domain: TimeDomain) -> Iterator[str]:
    """What of the results that are released a sink has not had.

    >>> list(owed_lines(StoredSink("out", 7, 3), TimeDomain.of_word("integer")))
    ['  sink out is owed 3 results, those that start at 7 or later']
    """
    if sink.owed:
        later = "all there are" if sink.until is None else f"those that start at {instant(sink.until, domain)} or later"
        yield f"  sink {sink.name} is owed {plural(sink.owed, 'result')}, {later}"


def _requests(requests: tuple[StoredRequest, ...]) -> Iterator[str]:
    """What was asked and is not done yet, and what was given up."""
    for request in requests:
        if request.status == "waiting":
            yield f"waits for a batch: {request.text}"
        elif request.status == "refused":
            yield f"given up with batch {request.batch}: {request.text}: {request.refused}"


def with_instants(record: dict[str, Any]) -> dict[str, Any]:
    """A job's status with the instants of timestamp streams as texts that programs read as times, not as ticks."""

    def times(values: dict[str, Any], time: str, *names: str) -> dict[str, Any]:
        domain = TimeDomain.of_word(time)
        return {**values, **{name: json_value(moment(values[name], domain)) for name in names}}

    def by_name(kind: str, known: dict[str, Any]) -> dict[str, Any]:
        ticks = (record["last_batch"].get(kind) or {}).items()
        return {n: times({n: tick}, known[n]["time"], n)[n] if n in known else tick for n, tick in ticks}

    streams = {name: times(stream, stream["time"], "register", "latest") for name, stream in record["streams"].items()}
    queries = {}
    for name, query in record["queries"].items():
        shown = times(query, query["time"], "released")
        shown["removed"] = query["removed"] and times(query["removed"], query["time"], "before")
        queries[name] = {**shown, "sinks": [times(sink, query["time"], "until") for sink in query["sinks"]]}
    last = record["last_batch"] and {
        **record["last_batch"],
        **{kind: by_name(kind, record["streams"]) for kind in ("registers", "latest")},
        "released": by_name("released", record["queries"]),
    }
    return {**record, "streams": streams, "queries": queries, "last_batch": last}
