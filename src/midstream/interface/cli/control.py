"""Commands that talk to a job that runs elsewhere: `midstream status`, `plan`, `migrate`, `add`, `stop` and others."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from midstream.algebra.quantities import amount, plural, seconds, size
from midstream.checkpoint.status import is_running, stored_status
from midstream.checkpoint.store import CheckpointStore
from midstream.distribution.plan_texts import slots_text
from midstream.errors import JobError
from midstream.interface.asking import asked
from midstream.interface.cli import options
from midstream.interface.cli.endings import USER_ERROR, ends_clearly
from midstream.interface.cli.forecasts import migration_forecast
from midstream.interface.cli.output import note, show_json, show_text
from midstream.interface.cli.stored_plan import stored_plan
from midstream.interface.leaving import dropped, repaired, resumed, stopped
from midstream.interface.slots import slots_named

Checkpoint = Annotated[str, typer.Argument(metavar="CHECKPOINT", help="The checkpoint of the running job.")]
QueryName = Annotated[str, typer.Argument(metavar="QUERY", help="The query's name.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only show what it would do and cost.")]
Patience = Annotated[float, typer.Option("--timeout", help="Seconds to wait for the job's answer.")]


@ends_clearly
def status(checkpoint: Checkpoint, timeout: Patience = 60.0, json: options.Json = False) -> None:
    """Show the progress of a job; from its checkpoint if it does not run.

    \b
    Example:
      midstream status orders.checkpoint
    """
    answer = _status(checkpoint, timeout)
    if json:
        show_json(answer)
        return
    rests = "" if answer["running"] else ", not running"
    lines = [
        f"{answer['checkpoint']}: batch {answer['batch']}, {plural(answer['slots'], 'slot')}{rests}",
        *_rates(answer),
    ]
    for name, stream in answer["streams"].items():
        lines.append(
            f"stream {name}: {stream['rows']:,} rows, {stream['late']:,} late, {stream['unusable']:,} unusable"
        )
    if moving := answer.get("moving"):
        lines.append(f"{moving['groups']} groups move by {moving['protocol']} since batch {moving['since']}")
    lines += _between_slots(answer.get("last_batch"))
    lines += shared_group_lines(answer)
    lines += _retention(answer)
    for name, query in answer["queries"].items():
        moving = f", migrating to {query['migrating_to']}" if query["migrating_to"] else _verifying(query)
        rests = f", {query['status']}" if query.get("status") in ("replaced", "quarantined") else ""
        plan = query["plan"] or "without joins"
        lines.append(f"query {name}: {query['results']:,} results, plan {plan}{moving}{rests}")
        lines += _faults(name, query)
        lines += [_migration(record) for record in query["history"]]
        lines += [f"  warning: {sentence}" for sentence in query.get("warnings", ())]
        lines += _waits(query.get("waits_for"))
        lines += _adaptivity(query["adaptivity"])
    lines += _requests(answer.get("requests", {}))
    show_text("\n".join(lines))


def _between_slots(last: dict[str, Any] | None) -> list[str]:
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
        lines.append(f"group {group['group']}: rows of {group['spread']} {where}{rests}")
    about_keys = [decision for decision in answer.get("slot_decisions", ()) if decision["kind"] == "keys"]
    if about_keys and about_keys[-1]["action"] == "stay" and about_keys[-1].get("group") is not None:
        lines.append(about_keys[-1]["reason"])
    return lines


@ends_clearly
def plan(checkpoint: Checkpoint, query: QueryName, timeout: Patience = 60.0, json: options.Json = False) -> None:
    """Show the current plan of a query of a job; from its checkpoint if it does not run.

    \b
    Example:
      midstream plan orders.checkpoint hot
    """
    if not _is_running(checkpoint) and CheckpointStore(checkpoint).batch_ids():
        answer = stored_plan(checkpoint, query)
    else:
        answer = _asked(checkpoint, timeout, command="plan", query=query)
    show_json(answer) if json else show_text(answer["explain"])


@ends_clearly
def migrate(
    checkpoint: Checkpoint,
    query: Annotated[str | None, typer.Argument(metavar="QUERY", help="The query's name.")] = None,
    plan: Annotated[
        str | None, typer.Argument(metavar="PLAN", help="The plan to migrate to, such as '((A B) C)'.")
    ] = None,
    strategy: Annotated[str, typer.Option(help="The migration strategy.")] = "auto",
    scheduling: Annotated[
        str | None, typer.Option(help="Which operator runs when, for all queries: dfs, bfs, rr, batch:10 or chain.")
    ] = None,
    part: Annotated[str, typer.Option(help="What migrates: auto (where plans differ), smallest, whole.")] = "auto",
    slots: Annotated[
        str | None, typer.Option(help="The slots that migrate, such as 1 or 0,2, each by itself; all by default.")
    ] = None,
    verify: Annotated[
        str | None,
        typer.Option(help="First let a copy migrate, and compare both for so much stream time: '10 minutes'."),
    ] = None,
    cancel: Annotated[
        bool, typer.Option("--cancel", help="Go back to the plan before the migration under way.")
    ] = False,
    dry_run: DryRun = False,
    timeout: Patience = 60.0,
    json: options.Json = False,
) -> None:
    """Migrate a query of a running job to another plan while results keep flowing.

    \b
    Example:
      midstream migrate orders.checkpoint hot "(A (B C))" --strategy genmig
      midstream migrate orders.checkpoint hot "(A (B C))" --slots 1
      midstream migrate orders.checkpoint hot "(A (B C))" --verify "10 minutes"
      midstream migrate orders.checkpoint hot --cancel
      midstream migrate orders.checkpoint --scheduling bfs
    """
    if cancel:
        _cancel(checkpoint, query, plan, timeout, json)
        return
    if scheduling is not None:
        changed = _asked(checkpoint, timeout, command="schedule", scheduling=scheduling)
        if query is None:
            show_json(changed) if json else show_text(f"scheduling changes from {changed['from']} to {changed['to']}")
            return
    if query is None or plan is None:
        raise JobError("a migration needs a query and a plan", hint="or only --scheduling, for all queries")
    wanted: dict[str, Any] = {
        "command": "migrate",
        "query": query,
        "plan": plan,
        "strategy": strategy,
        "part": part,
        "verify": verify,
    }
    if slots is not None:
        wanted["slots"] = slots_named(slots)
    answer = _asked(checkpoint, timeout, dry_run=dry_run, **wanted)
    changes = "changes" if verify is None else f"is verified for {verify}, and then changes"
    words = (
        migration_forecast(answer) if dry_run else f"query {query} {changes} from {answer['from']} to {answer['to']}"
    )
    show_json(answer) if json else show_text(words)


@ends_clearly
def add(
    checkpoint: Checkpoint,
    query: QueryName,
    cql: options.Cql,
    adaptive: Annotated[str, typer.Option(help="Adaptivity: off, suggest or auto.")] = "off",
    timeout: Patience = 60.0,
    json: options.Json = False,
) -> None:
    """Add a query to a running job.

    \b
    Example:
      midstream add orders.checkpoint big "SELECT * FROM orders [NOW] WHERE amount > 100"
    """
    answer = _asked(checkpoint, timeout, command="add", query=query, cql=options.query_text(cql), adaptive=adaptive)
    show_json(answer) if json else show_text(f"query {query} was added")


@ends_clearly
def drop(checkpoint: Checkpoint, query: QueryName, timeout: Patience = 60.0, json: options.Json = False) -> None:
    """Drop a query of a job, running or not, with its state.

    \b
    Example:
      midstream drop orders.checkpoint big
    """
    answer = dropped(checkpoint, timeout, query)
    show_json(answer) if json else show_text(f"query {query} was dropped")


@ends_clearly
def resume(checkpoint: Checkpoint, query: QueryName, timeout: Patience = 60.0, json: options.Json = False) -> None:
    """Resume a query that was stopped by a bad value, without the rows that arrived since.

    \b
    Example:
      midstream resume orders.checkpoint big
    """
    answer = resumed(checkpoint, timeout, query)
    show_json(answer) if json else show_text(
        f"query {query} goes on; the rows since it was stopped are left out for it"
    )


@ends_clearly
def repair(
    checkpoint: Checkpoint,
    give_up: Annotated[
        bool, typer.Option("--give-up", help="Continue without results and dead letters whose files are lost.")
    ] = False,
    json: options.Json = False,
) -> None:
    """Repair the checkpoint of a stopped job, and report what cannot be repaired.

    \b
    Example:
      midstream repair orders.checkpoint
      midstream repair orders.checkpoint --give-up
    """
    answer = repaired(checkpoint, give_up)
    if json:
        show_json(answer)
    else:
        for path in answer["restored"]:
            show_text(f"restored {path}")
        for file in answer["lost"]:
            show_text(f"{'given up' if answer['given_up'] else 'lost'}: {file['path']}, {file['rows']:,} rows")
        show_text("the job can go on" if answer["whole"] else "restore the lost files from a copy, or use --give-up")
    if not answer["whole"]:
        raise typer.Exit(USER_ERROR)


@ends_clearly
def stop(checkpoint: Checkpoint, timeout: Patience = 60.0, json: options.Json = False) -> None:
    """Stop a running job between two batches, and wait for its end.

    \b
    Example:
      midstream stop orders.checkpoint
    """
    answer = stopped(checkpoint, timeout)
    show_json(answer) if json else show_text("the job has stopped" if answer["stopping"] else "the job does not run")


def _faults(name: str, query: dict[str, Any]) -> list[str]:
    """Why a query is in quarantine, and what was set aside for it."""
    fault, aside = query.get("quarantine"), query.get("set_aside", 0)
    lines = [f"  {aside:,} rows were set aside: its expressions failed for them"] if aside else []
    if fault is not None:
        lines.append(f"  stopped since batch {fault['batch']}: {fault['reason']}")
        lines.append(f"  midstream resume CHECKPOINT {name} resumes it, midstream drop ends it")
    return lines


def _adaptivity(answer: dict[str, Any] | None) -> list[str]:
    if answer is None:
        return []
    decision = answer["decision"]
    return [f"  adaptivity {answer['mode']}: {decision['reason'] if decision else 'nothing decided yet'}"]


def _requests(answer: dict[str, Any]) -> list[str]:
    """What was asked and is not done yet, and what was given up."""

    def words(request: dict[str, Any]) -> str:
        return " ".join(str(request[key]) for key in ("command", "query", "plan", "scheduling") if key in request)

    given_up = [request for request in answer.get("done", ()) if "refused" in request]
    return [
        *(f"waits for a batch: {words(request)}" for request in answer.get("waiting", ())),
        *(f"given up with batch {request['batch']}: {words(request)}: {request['refused']}" for request in given_up),
    ]


def _cancel(checkpoint: str, query: str | None, plan: str | None, timeout: float, json: bool) -> None:
    if query is None or plan is not None:
        raise JobError("--cancel takes the name of a query, and no plan")
    answer = _asked(checkpoint, timeout, command="cancel", query=query)
    show_json(answer) if json else show_text(f"query {query} stays with {answer['plan']}, not {answer['cancelled']}")


@ends_clearly
def rebalance(
    checkpoint: Checkpoint,
    protocol: Annotated[str, typer.Option(help="How groups move: auto, mslb, split_time or ptlb.")] = "auto",
    timeout: Patience = 60.0,
    json: options.Json = False,
) -> None:
    """Reassign partition groups to balance load between the slots of a running job.

    \b
    Example:
      midstream rebalance orders.checkpoint
      midstream rebalance orders.checkpoint --protocol split_time
    """
    answer = _asked(checkpoint, timeout, command="rebalance", protocol=protocol)
    changes = "groups move with the next batch" if answer["changes"] else "the load is balanced already"
    show_json(answer) if json else show_text(changes)


@ends_clearly
def rescale(
    checkpoint: Checkpoint,
    slots: Annotated[int, typer.Argument(min=1, help="How many slots share the work of a batch.")],
    dry_run: DryRun = False,
    timeout: Patience = 60.0,
    json: options.Json = False,
) -> None:
    """Change the number of slots of a running job; its state moves before the next batch that permits it.

    \b
    Example:
      midstream rescale orders.checkpoint 8
    """
    answer = _asked(checkpoint, timeout, dry_run=dry_run, command="rescale", slots=slots)
    if json:
        show_json(answer)
    elif dry_run:
        show_text(f"{answer['groups']} partition groups would move, with about {size(answer['state_bytes'])} of state")
    else:
        show_text(f"the job changes to {slots} slots" if answer["changes"] else f"the job has {slots} slots already")


@ends_clearly
def adapt(
    checkpoint: Checkpoint,
    query: QueryName,
    mode: Annotated[str, typer.Argument(metavar="MODE", help="off, suggest or auto.")],
    timeout: Patience = 60.0,
    json: options.Json = False,
) -> None:
    """Change the adaptivity of a query of a running job: off, suggestions only, or automatic.

    \b
    Example:
      midstream adapt orders.checkpoint hot suggest
    """
    answer = _asked(checkpoint, timeout, command="adapt", query=query, mode=mode)
    show_json(answer) if json else show_text(
        f"adaptivity of query {query} changes from {answer['from']} to {answer['to']}"
    )


def _waits(answer: dict[str, Any] | None) -> list[str]:
    if answer is None:
        return []
    since = f"silent for {answer['batches']} batches" if answer["behind"] is not None else "without any rows so far"
    return [f"  waits for stream {answer['stream']}, {since}: a skew for it would end that"]


def _retention(answer: dict[str, Any]) -> list[str]:
    """What is kept for a while only, and what has gone."""
    limits = [f"{kind} {limit}" for kind, limit in sorted(answer.get("retention", {}).items())]
    lines = [f"retention: {', '.join(limits)}"] if limits else []
    for name, query in answer["queries"].items():
        gone = query.get("removed")
        if gone is not None:
            lines.append(f"  {gone['rows']:,} results of query {name} that start before {gone['before']} were removed")
    gone = answer.get("removed_dead_letters")
    return [*lines, *([f"  {gone['rows']:,} dead letters were removed"] if gone else [])]


def _verifying(query: dict[str, Any]) -> str:
    answer = query.get("verifying")
    return "" if answer is None else f", being verified with {answer['plan']}, the same so far"


def _found(record: dict[str, Any]) -> str:
    """What a verification has found, if there was one."""
    verified = record.get("verified")
    if verified is None or record["status"] == "verifying":
        return ""
    if verified["difference"] is None:
        return f"; verified from {verified['since']} to {verified['compared_to']}"
    rows = [f"\n    only in the old plan's results: {row}" for row in verified["only_in_old"][:3]]
    rows += [f"\n    only in the new plan's results: {row}" for row in verified["only_in_new"][:3]]
    kept = f"\n    the new plan's results are kept as {record['new_results']}" if "new_results" in record else ""
    return f"; {verified['difference']}{''.join(rows)}{kept}"


def _migration(record: dict[str, Any]) -> str:
    if record.get("event") == "started":
        kept = ", ".join(f"{alias} since batch {batch}" for alias, batch in record["inherited"].items())
        shared = f", with what {', '.join(record['shares'])} keeps: {kept}" if kept else ""
        return f"  started with batch {record['start_batch']}{shared}"
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
        f"{record['status']}, {batches}{_found(record)}"
    )


def _status(checkpoint: str, timeout: float) -> Any:
    if _is_running(checkpoint):
        return _asked(checkpoint, timeout, command="status")
    return stored_status(CheckpointStore(checkpoint))


def _is_running(checkpoint: str) -> bool:
    return is_running(CheckpointStore(checkpoint))


def _asked(checkpoint: str, timeout: float, **request: Any) -> Any:
    """The job's answer; while nobody seems to run it, whoever asks is told what is waited for."""
    store = CheckpointStore(checkpoint)
    if store.batch_ids() and not is_running(store):
        note(f"no job runs on {checkpoint} now; waiting {timeout:g} seconds for one")
    return asked(checkpoint, timeout, **request)


def _rates(answer: dict[str, Any]) -> list[str]:
    rates = answer["rates"]
    if not rates["batches"]:
        return []
    speeds = [f"{name} {amount(speed)}" for name, speed in sorted(rates["rows_per_second"].items())]
    return [
        f"last {plural(rates['batches'], 'batch', 'batches')} in {seconds(rates['seconds'])}, "
        f"{seconds(rates['batch_seconds'] or 0.0)} each; rows a second: {', '.join(speeds) or 'none'}"
    ]
