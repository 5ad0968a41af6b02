"""What `midstream status` says, line by line."""

from __future__ import annotations

from typing import Any

from midstream.algebra.quantities import amount, instant, moment, plural, seconds
from midstream.algebra.time import TimeDomain
from midstream.checkpoint.stops import Standing, stop_lines
from midstream.distribution.plan_texts import slots_text
from midstream.inputs.json_values import json_value


def status_text(answer: dict[str, Any]) -> str:
    """All of it."""
    lines = [head_line(answer), *stop_lines(Standing.of_json(answer)), *rates_lines(answer)]
    for name, stream in answer["streams"].items():
        lines.append(
            f"stream {name}: {stream['rows']:,} rows, {stream['late']:,} late, {stream['unusable']:,} unusable"
        )
    if moving := answer.get("moving"):
        groups = plural(moving["groups"], "group moves", "groups move")
        lines.append(f"{groups} by {moving['protocol']} since batch {moving['since']}")
    lines += [f"link {ends}: {link}" for ends, link in answer.get("links", {}).items()]
    lines += between_slots_lines(answer.get("last_batch"))
    lines += shared_group_lines(answer)
    lines += key_class_lines(answer)
    lines += retention_lines(answer)
    for name, query in answer["queries"].items():
        lines += _query_lines(name, query)
    lines += requests_lines(answer.get("requests", {}))
    return "\n".join(lines)


def _query_lines(name: str, query: dict[str, Any]) -> list[str]:
    moving = f", migrating to {query['migrating_to']}" if query["migrating_to"] else verifying_text(query)
    rests = f", {query['status']}" if query.get("status") in ("replaced", "quarantined") else ""
    return [
        f"query {name}: {results_text(query)}, plan {query['plan'] or 'without joins'}{moving}{rests}",
        *faults_lines(name, query),
        *owed_lines(query),
        *(migration_line(record, query["time"]) for record in query["history"]),
        *(f"  warning: {sentence}" for sentence in query.get("warnings", ())),
        *waits_lines(query.get("waits_for")),
        *shared_lines(query.get("shared_with")),
        *(f"  {line}" for line in query.get("moved", ())),
        *adaptivity_lines(query["adaptivity"]),
    ]


def head_line(answer: dict[str, Any]) -> str:
    """Which job it is, what it does, and how far it is."""
    batch = "no batch done yet" if answer["batch"] is None else f"batch {answer['batch']:,}"
    return f"{answer['name']} at {answer['checkpoint']}: {answer['phase']}, {batch}, {plural(answer['slots'], 'slot')}"


def with_instants(answer: dict[str, Any]) -> dict[str, Any]:
    """A job's status with the instants of timestamp streams as texts that programs read as times, not as ticks."""
    streams = {name: {**stream, **_instants(stream, ("register",))} for name, stream in answer["streams"].items()}
    queries = {
        name: {
            **query,
            **_instants(query, ("released",)),
            "sinks": [{**sink, **_instants(sink | {"time": query["time"]}, ("until",))} for sink in query["sinks"]],
            "removed": query["removed"] and {**query["removed"], **_instants(query["removed"] | query, ("before",))},
        }
        for name, query in answer["queries"].items()
    }
    last = answer["last_batch"] and {
        **answer["last_batch"],
        **{kind: _by_name(answer["last_batch"], kind, answer["streams"]) for kind in ("registers", "latest")},
        "released": _by_name(answer["last_batch"], "released", answer["queries"]),
    }
    return {**answer, "streams": streams, "queries": queries, "last_batch": last}


def _instants(record: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    domain = TimeDomain.of_word(record["time"])
    return {name: json_value(moment(record[name], domain)) for name in names}


def _by_name(last: dict[str, Any], kind: str, known: dict[str, Any]) -> dict[str, Any]:
    return {
        name: json_value(moment(tick, TimeDomain.of_word(known[name]["time"]))) if name in known else tick
        for name, tick in (last.get(kind) or {}).items()
    }


def between_slots_lines(last: dict[str, Any] | None) -> list[str]:
    """What rows took between slots in the last batch, and which executors ran them."""
    moved, executors = (dict((last or {}).get(key) or {}) for key in ("moved", "executors"))
    lines = []
    if moved:
        most = ", ".join(f"{pair} {size:,}" for pair, size in sorted(moved.items(), key=lambda item: -item[1])[:6])
        lines.append(f"moved between slots in the last batch: {sum(moved.values()):,} bytes ({most})")
    if executors:
        named = ", ".join(f"slot {slot} on {name}" for slot, name in sorted(executors.items()))
        lines.append(f"ran in executors: {named}")
    return lines


def shared_group_lines(answer: dict[str, Any]) -> list[str]:
    """The groups that several slots share, or are to; and why the hottest one stays where it is."""
    lines = []
    for group in answer.get("spread", ()):
        where = f"spread over slots {', '.join(map(str, group['slots']))}" if group["slots"] else "to be spread"
        rests = f"; it rests: {group['resting']}" if group["resting"] else ""
        named = f"group {group['group']}: rows of {group['spread']}"
        if group.get("key_class"):
            named = f"group {group['group']} by {group['key_class']}: rows by {group['spread']}"
        lines.append(f"{named} {where}{rests}")
    about_keys = [decision for decision in answer.get("slot_decisions", ()) if decision["kind"] == "keys"]
    if about_keys and about_keys[-1]["action"] == "stay" and about_keys[-1].get("group") is not None:
        lines.append(about_keys[-1]["reason"])
    return lines


def key_class_lines(answer: dict[str, Any]) -> list[str]:
    """How the groups of key classes that are dealt apart lie in slots."""
    apart = (known for known in answer.get("key_classes", ()) if known["apart"])
    return [f"groups by {known['by']} are dealt apart: {_per_slot(known['groups'])}" for known in apart]


def _per_slot(counts: list[int]) -> str:
    return ", ".join(f"{count} in slot {slot}" for slot, count in enumerate(counts))


def faults_lines(name: str, query: dict[str, Any]) -> list[str]:
    """Why a query is in quarantine, and what was set aside for it."""
    fault, aside = query.get("quarantine"), query.get("set_aside", 0)
    lines = [f"  {aside:,} rows were set aside: its expressions failed for them"] if aside else []
    if fault is not None:
        lines.append(f"  stopped since batch {fault['batch']}: {fault['reason']}")
        lines.append(f"  midstream resume CHECKPOINT {name} resumes it, midstream drop ends it")
    return lines


def owed_lines(query: dict[str, Any]) -> list[str]:
    """Which sinks have not had all results that are released.

    >>> sinks = [{"name": "out", "until": 7, "owed": 3}, {"name": "table", "until": 9, "owed": 0}]
    >>> owed_lines({"time": "integer", "sinks": sinks})
    ['  sink out is owed 3 results, those that start at 7 or later']
    """
    domain = TimeDomain.of_word(query["time"])
    return [
        f"  sink {sink['name']} is owed {plural(sink['owed'], 'result')}, "
        + (
            "all there are"
            if sink["until"] is None
            else f"those that start at {instant(sink['until'], domain)} or later"
        )
        for sink in query["sinks"]
        if sink["owed"]
    ]


def adaptivity_lines(answer: dict[str, Any] | None) -> list[str]:
    """How a query adapts, and what it last decided."""
    if answer is None:
        return []
    decision = answer["decision"]
    lines = [f"  adaptivity {answer['mode']}: {decision['reason'] if decision else 'nothing decided yet'}"]
    return [*lines, *([f"    decides nothing now: {answer['waits']}"] if answer.get("waits") else [])]


def requests_lines(answer: dict[str, Any]) -> list[str]:
    """What was asked and is not done yet, and what was given up."""

    def words(request: dict[str, Any]) -> str:
        return " ".join(str(request[key]) for key in ("command", "query", "plan", "scheduling") if key in request)

    given_up = [request for request in answer.get("done", ()) if "refused" in request]
    return [
        *(f"waits for a batch: {words(request)}" for request in answer.get("waiting", ())),
        *(f"given up with batch {request['batch']}: {words(request)}: {request['refused']}" for request in given_up),
    ]


def waits_lines(answer: dict[str, Any] | None) -> list[str]:
    """The stream that a query waits for."""
    if answer is None:
        return []
    since = (
        f"silent for {plural(answer['batches'], 'batch', 'batches')}"
        if answer["behind"] is not None
        else "without any rows so far"
    )
    return [f"  waits for stream {answer['stream']}, {since}: a skew for it would end that"]


def shared_lines(common: dict[str, int] | None) -> list[str]:
    """How much of its state a query keeps together with others."""
    return [f"  keeps {rows:,} rows of state together with {other}" for other, rows in (common or {}).items()]


def retention_lines(answer: dict[str, Any]) -> list[str]:
    """What is kept for a while only, and what has gone."""
    limits = [f"{kind} {limit}" for kind, limit in sorted(answer.get("retention", {}).items())]
    lines = [f"retention: {', '.join(limits)}"] if limits else []
    for name, query in answer["queries"].items():
        gone = query.get("removed")
        if gone is not None:
            before = instant(gone["before"], TimeDomain.of_word(query["time"]))
            lines.append(f"  {gone['rows']:,} results of query {name} that start before {before} were removed")
    gone = answer.get("removed_dead_letters")
    return [*lines, *([f"  {gone['rows']:,} dead letters were removed"] if gone else [])]


def verifying_text(query: dict[str, Any]) -> str:
    """The plan that a query is verified with, if it is."""
    answer = query.get("verifying")
    return "" if answer is None else f", being verified with {answer['plan']}, the same so far"


def _found(record: dict[str, Any], time: str) -> str:
    """What a verification has found, if there was one."""
    verified = record.get("verified")
    if verified is None or record["status"] == "verifying":
        return ""
    if verified["difference"] is None:
        since, until = (instant(verified[name], TimeDomain.of_word(time)) for name in ("since", "compared_to"))
        return f"; verified from {since} to {until}"
    rows = [f"\n    only in the old plan's results: {row}" for row in verified["only_in_old"][:3]]
    rows += [f"\n    only in the new plan's results: {row}" for row in verified["only_in_new"][:3]]
    kept = f"\n    the new plan's results are kept as {record['new_results']}" if "new_results" in record else ""
    return f"; {verified['difference']}{''.join(rows)}{kept}"


def results_text(query: dict[str, Any]) -> str:
    """How many results a query has released, and how many are computed and wait.

    >>> results_text({"results": 39, "waiting": 12, "released": 120, "time": "integer"})
    '39 results, complete up to 120, and 12 that wait for later rows'
    """
    count = plural(query["results"], "result")
    if not query["waiting"]:
        return count
    until = None if query["released"] is None else instant(query["released"], TimeDomain.of_word(query["time"]))
    complete = "" if until is None else f", complete up to {until},"
    return f"{count}{complete} and {query['waiting']:,} that wait for later rows"


def migration_line(record: dict[str, Any], time: str) -> str:
    """One change of a query, past or under way; `time` says whether its instants are integers or timestamps."""
    if record.get("event") == "started":
        kept = ", ".join(f"{alias} since batch {batch}" for alias, batch in record["inherited"].items())
        shared = f", with what {', '.join(record['shares'])} keeps: {kept}" if kept else ""
        return f"  started with batch {record['start_batch']}{shared}: {record['complete']}"
    if record.get("event") in ("quarantined", "resumed", "functions changed"):
        since = f", stopped in batch {record['start_batch']}" if record["event"] == "resumed" else ""
        return f"  {record['event']} with batch {record['end_batch']}{since}: {record['trigger']}"
    ended = record["end_batch"] is not None
    batches = f"batches {record['start_batch']} to {record['end_batch']}" if ended else "not ended"
    whole = f"{record['old_plan']} to {record['new_plan']}"
    part = f" in {record['part']}" if record.get("part") not in (None, "", whole) else ""
    where = f" in {slots_text(record['slots'])}" if record.get("slots") else ""
    return (
        f"  {record['old_plan']} to {record['new_plan']}{where} by {record['strategy']}{part}, {record['trigger']}: "
        f"{record['status']}, {batches}{_found(record, time)}"
    )


def rates_lines(answer: dict[str, Any]) -> list[str]:
    """Rows and results per second, lately."""
    rates = answer["rates"]
    if not rates["batches"]:
        return []
    speeds = [f"{name} {amount(speed)}" for name, speed in sorted(rates["rows_per_second"].items())]
    return [
        f"last {plural(rates['batches'], 'batch', 'batches')} in {seconds(rates['seconds'])}, "
        f"{seconds(rates['batch_seconds'] or 0.0)} each; rows a second: {', '.join(speeds) or 'none'}"
    ]
