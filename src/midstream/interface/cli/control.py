"""Commands that talk to a job that runs elsewhere: `midstream status`, `plan`, `migrate`, `add`, `stop` and others."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from midstream.algebra.quantities import plural, size
from midstream.checkpoint.status import is_running, stored_status
from midstream.checkpoint.stops import Phase, Standing, standing, stop_lines
from midstream.checkpoint.store import CheckpointStore
from midstream.errors import JobError
from midstream.interface.asking import asked
from midstream.interface.cli import options
from midstream.interface.cli.endings import USER_ERROR, ends_clearly
from midstream.interface.cli.forecasts import links_text, migration_forecast, rebalance_forecast
from midstream.interface.cli.output import note, show_json, show_text
from midstream.interface.cli.status_text import (
    adaptivity_lines,
    between_slots_lines,
    faults_lines,
    head_line,
    key_class_lines,
    migration_line,
    rates_lines,
    requests_lines,
    results_text,
    retention_lines,
    shared_group_lines,
    shared_lines,
    verifying_text,
    waits_lines,
    with_instants,
)
from midstream.interface.cli.stored_plan import stored_plan
from midstream.interface.leaving import dropped, repaired, resumed, stopped
from midstream.interface.slots import slots_named
from midstream.optimizer.sites.links import link_texts

Checkpoint = Annotated[str, typer.Argument(metavar="CHECKPOINT", help="The job's checkpoint.")]

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
        show_json(with_instants(answer))
        return
    now = Standing.of_json(answer)
    lines = [head_line(answer), *stop_lines(now), *rates_lines(answer)]
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
        moving = f", migrating to {query['migrating_to']}" if query["migrating_to"] else verifying_text(query)
        rests = f", {query['status']}" if query.get("status") in ("replaced", "quarantined") else ""
        plan = query["plan"] or "without joins"
        lines.append(f"query {name}: {results_text(query)}, plan {plan}{moving}{rests}")
        lines += faults_lines(name, query)
        lines += [migration_line(record, query["time"]) for record in query["history"]]
        lines += [f"  warning: {sentence}" for sentence in query.get("warnings", ())]
        lines += waits_lines(query.get("waits_for"))
        lines += shared_lines(query.get("shared_with"))
        lines += [f"  {line}" for line in query.get("moved", ())]
        lines += adaptivity_lines(query["adaptivity"])
    lines += requests_lines(answer.get("requests", {}))
    show_text("\n".join(lines))


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
    wanted = {"query": query, "plan": plan, "strategy": strategy, "part": part, "verify": verify}
    some = None if slots is None else slots_named(slots)
    answer = _asked(checkpoint, timeout, dry_run=dry_run, command="migrate", slots=some, **wanted)
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


def _cancel(checkpoint: str, query: str | None, plan: str | None, timeout: float, json: bool) -> None:
    if query is None or plan is not None:
        raise JobError("--cancel takes the name of a query, and no plan")
    answer = _asked(checkpoint, timeout, command="cancel", query=query)
    show_json(answer) if json else show_text(f"query {query} stays with {answer['plan']}, not {answer['cancelled']}")


@ends_clearly
def rebalance(
    checkpoint: Checkpoint,
    protocol: Annotated[str, typer.Option(help="How groups move: auto, mslb, split_time or ptlb.")] = "auto",
    by: Annotated[str | None, typer.Option(help="Only what later stages exchange by this key, such as B.y.")] = None,
    cancel: Annotated[
        bool, typer.Option("--cancel", help="Keep groups that are on their way in the slots they have.")
    ] = False,
    dry_run: DryRun = False,
    timeout: Patience = 60.0,
    json: options.Json = False,
) -> None:
    """Reassign partition groups to balance load between the slots of a running job.

    \b
    Example:
      midstream rebalance orders.checkpoint
      midstream rebalance orders.checkpoint --protocol split_time
      midstream rebalance orders.checkpoint --by items.product
      midstream rebalance orders.checkpoint --cancel
    """
    if cancel:
        answer = _asked(checkpoint, timeout, command="cancel_rebalance")
        show_json(answer) if json else show_text("groups stay in the slots they have")
        return
    answer = _asked(checkpoint, timeout, dry_run=dry_run, command="rebalance", protocol=protocol, by=by)
    changes = "groups move with the next batch" if answer["changes"] else "the load is balanced already"
    show_json(answer) if json else show_text(rebalance_forecast(answer) if dry_run else changes)


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
        show_text(
            f"the job changes to {plural(slots, 'slot')}"
            if answer["changes"]
            else f"the job has {plural(slots, 'slot')} already"
        )


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


@ends_clearly
def links(
    checkpoint: Checkpoint,
    changed: Annotated[
        list[str] | None, typer.Argument(metavar="[LINK]...", help="A link, such as 'eu -> us: 2 s, 100 KB/s'.")
    ] = None,
    dry_run: DryRun = False,
    timeout: Patience = 60.0,
    json: options.Json = False,
) -> None:
    """Show the links between the sites of a job, or tell a running one that some have become others.

    \b
    Example:
      midstream links orders.checkpoint
      midstream links orders.checkpoint "eu -> us: 2 s, 100 KB/s"
      midstream links orders.checkpoint "eu <-> us: 80 ms, 10 MB/s" --dry-run
    """
    wanted = link_texts(changed or [])
    if not wanted:
        answer = {"links": _status(checkpoint, timeout)["links"]}
    else:
        answer = _asked(checkpoint, timeout, dry_run=dry_run, command="links", links=wanted)
    show_json(answer) if json else show_text(links_text(answer))


def _status(checkpoint: str, timeout: float) -> Any:
    store = CheckpointStore(checkpoint)
    if standing(store.files, None).phase is Phase.RUNNING:
        return _asked(checkpoint, timeout, command="status")
    return stored_status(store)


def _is_running(checkpoint: str) -> bool:
    return is_running(CheckpointStore(checkpoint))


def _asked(checkpoint: str, timeout: float, **request: Any) -> Any:
    """The job's answer; while nobody seems to run it, whoever asks is told what is waited for."""
    store = CheckpointStore(checkpoint)
    if store.batch_ids() and not is_running(store):
        note(f"no job runs on {checkpoint} now; waiting {timeout:g} seconds for one")
    return asked(checkpoint, timeout, **request)
