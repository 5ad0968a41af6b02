"""What a job answers to a command, and what it foretells of one, in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from midstream.adaptation.cost_corrections import costs_text
from midstream.algebra.time import TimeDomain, amount, length, plural, seconds, size
from midstream.checkpoint.commands import (
    Adapt,
    AddQuery,
    CancelMigration,
    CancelRebalance,
    ChangeLinks,
    Command,
    CorrectCosts,
    DropQuery,
    Migrate,
    OfferPlans,
    Rebalance,
    ReplaceQuery,
    Rescale,
    ResumeQuery,
    ScheduleOperators,
    ShowPlan,
    ShowStatus,
    StopJob,
    SwitchQuery,
)
from midstream.errors import InternalError

Record = dict[str, Any]


def answer_text(command: Command | None, answer: Record) -> str:
    """What a job has done, or said; without a command, the links that it has."""
    match command:
        case None | ChangeLinks():
            return links_text(answer)
        case ShowStatus():
            return f"{answer['name']}: {answer['phase']}, batch {answer['batch']}"
        case ShowPlan():
            return str(answer["explain"])
        case OfferPlans():
            return "\n".join(_plan_line(record) for record in answer["plans"])
        case Migrate(query):
            changes = "changes" if command.verify is None else f"is verified for {command.verify}, and then changes"
            return f"query {query} {changes} from {answer['from']} to {answer['to']}"
        case CancelMigration(query):
            kept = "its text" if answer["text"] else f"{answer['plan']}, not {answer['cancelled']}"
            return f"query {query} stays with {kept}"
        case ScheduleOperators():
            return f"scheduling changes from {answer['from']} to {answer['to']}"
        case Adapt(query):
            return f"adaptivity of query {query} changes from {answer['from']} to {answer['to']}"
        case AddQuery(query):
            return f"query {query} was added"
        case ReplaceQuery(query):
            parts = [answer, *answer["readers"]]
            if answer["paced"]:
                named = ", ".join(part["query"] for part in parts)
                many = f"queries {named} are" if answer["readers"] else f"query {query} is"
                until = f"which answers until then{answer['earliest']}"
                told = f"{many} replaced once the new text can go on from where the old one ends, {until}"
                return "\n  ".join([told, *(line for part in parts for line in _window_lines(part))])
            if command.verify is not None:
                then = "and waits then" if command.then == "wait" else "and changes if they give the same"
                return f"query {query} runs by both texts for {command.verify}, {then}"
            return "\n".join(f"query {p['query']} is replaced with the next batch: {change_text(p)}" for p in parts)
        case SwitchQuery(query):
            return f"query {query} changes with the next batch; {verified_text(answer['verified'])}"
        case DropQuery(query):
            return f"query {query} was dropped"
        case ResumeQuery(query):
            return f"query {query} goes on; the rows since it was stopped are left out for it"
        case Rebalance():
            return "groups move with the next batch" if answer["changes"] else "the load is balanced already"
        case CancelRebalance():
            return "groups stay in the slots they have"
        case Rescale(slots):
            return f"the job {'changes to' if answer['changes'] else 'has'} {plural(slots, 'slot')}" + (
                "" if answer["changes"] else " already"
            )
        case CorrectCosts():
            return costs_text(answer["costs"])
        case StopJob():
            return "the job has stopped" if answer["stopping"] else "the job does not run"
    raise InternalError(f"there are no words for the answer to {command}")


def forecast_text(command: Command, record: Record) -> str:
    """What a command would do."""
    match command:
        case Migrate():
            return migration_forecast(record)
        case CancelMigration(query):
            left = record["text"] or record["cancelled"]
            return f"query {query} would stay with {'its text' if record['text'] else record['plan']}, not {left}"
        case ScheduleOperators():
            return f"scheduling would change from {record['from']} to {record['to']}"
        case Adapt(query):
            return f"adaptivity of query {query} would change from {record['from']} to {record['to']}"
        case AddQuery(query):
            columns = ", ".join(f"{name} {kind}" for name, kind in record["columns"])
            first = f"query {query} would run by {record['plan'] or 'its only plan'} and give {columns}"
            since = "" if record["answers_from"] is None else f", with instant {record['answers_from']}"
            begins = [] if record["begins"] is None else [f"it would begin{since}: {change_text(record['begins'])}"]
            warnings = [f"warning: {text}" for text in record["warnings"]]
            return "\n".join([first, *warnings, *begins, record["operators"]])
        case ReplaceQuery(query) if command.verify is not None:
            then = "wait then" if command.then == "wait" else "change if they give the same"
            return f"query {query} would run by both texts for {command.verify}, and {then}: {change_text(record)}"
        case ReplaceQuery(query):
            parts = [record, *record["readers"]]
            return "\n".join(f"query {part['query']} would be replaced: {change_text(part)}" for part in parts)
        case SwitchQuery(query):
            return f"query {query} would change to {record['cql']}; {verified_text(record['verified'])}"
        case DropQuery(query):
            rows = f"{size(record['state_bytes'])} of state ({plural(record['state_rows'], 'row')})"
            return f"query {query} would go, with {rows} and {plural(record['results'], 'result')}"
        case ResumeQuery(query):
            missed = plural(record["missed"], "batch", "batches")
            return f"query {query} would go on without the rows of {missed} since batch {record['since']}"
        case Rebalance():
            return rebalance_forecast(record)
        case CancelRebalance():
            moving = record["cancelled"]
            count = 0 if moving is None else moving["groups"]
            return (
                f"{plural(count, 'group')} would stay in their slots"
                if moving
                else "the move that waits would not begin"
            )
        case Rescale(slots):
            return _moved_line(record) if record["groups"] else f"the job has {plural(slots, 'slot')} already"
        case ChangeLinks():
            return links_text(record)
        case CorrectCosts():
            return f"plans would be weighed by {_costs(record['to'])} instead of {_costs(record['from'])}"
        case StopJob():
            paused = plural(len(record["queries"]), "query", "queries")
            return f"the job would end after the batch under way; {paused} would pause"
    raise InternalError(f"there are no words for a forecast of {command}")


def _costs(costs: Record) -> str:
    return ", ".join(f"{name} {amount(cost)}" for name, cost in costs.items())


def verified_text(found: Record) -> str:
    """What a comparison of two texts has found so far."""
    if found["difference"] is None:
        return "nothing has differed"
    return "; ".join(str(found["difference"]).splitlines())


def _plan_line(record: Record) -> str:
    cost = "" if record["cost"] is None else f", costs {amount(record['cost'])} per tick"
    return f"{record['plan']}{cost}{', runs' if record['running'] else ''}"


def _moved_line(record: Record) -> str:
    by = f" by {record['protocol']}" if "protocol" in record else ""
    waits = "; it would wait for the migration under way" if record["waits"] else ""
    return (
        f"{plural(record['groups'], 'partition group')} would move{by}, "
        f"with about {size(record['state_bytes'])} of state; "
        f"the fullest slot would have {record['skew'][1]:g} times the mean instead of {record['skew'][0]:g}{waits}"
    )


def rebalance_forecast(record: Record) -> str:
    """What dealing groups evenly would move, and which groups slots would share."""
    lines = []
    if record["groups"]:
        lines.append(_moved_line(record))
    lines += [f"  {count} of them by {name}" for name, count in record.get("classes", {}).items()]
    for group in record["spread"]:
        by = f" by {group['by']}" if group.get("by") else ""
        lines.append(f"group {group['group']}{by} would be shared by {group['slots']} slots: {group['reason']}")
    for home in record["brought_home"]:
        named = f"{home[1]} by {home[0]}" if isinstance(home, list | tuple) else home
        lines.append(f"group {named} would come home to one slot")
    return "\n".join(lines) or "the load is balanced already"


def migration_forecast(record: Record) -> str:
    """What each strategy is predicted to take from one plan to another; the one that `auto` would choose is marked."""
    domain = TimeDomain.of_word(record["time"])
    if record["from"] == record["to"]:
        return f"query {record['query']} runs by {record['to']} already: nothing would migrate"
    whole = f"{record['from']} to {record['to']}"
    part = f"; only {record['part']} migrates" if record["part"] not in (None, "", whole) else ""
    lines = [f"query {record['query']} would go over from {record['from']} to {record['to']}{part}"]
    lines.append(f"  {'strategy':24}{'takes':>28}{'rows of work':>24}{'rows held':>24}{'silent for':>28}")
    for each in record["strategies"]:
        mark = "*" if each["strategy"] == record["strategy"] else " "
        if each["legal"]:
            takes, silent = (_range(each["ranges"][name], domain) for name in ("duration", "silence"))
            work, rows = (_range(each["ranges"][name]) for name in ("work", "rows"))
            lines.append(f"{mark} {each['strategy']:24}{takes:>28}{work:>24}{rows:>24}{silent:>28}")
        else:
            lines.append(f"  {each['strategy']:24}refused: {each['why']}")
    lines.append("  takes and silent for are in stream time; work and rows held are beside what the query does anyway")
    return "\n".join([*lines, *_trust(record)])


def _range(bounds: Sequence[float], domain: TimeDomain | None = None) -> str:
    """From and to which value a figure is expected; in the same unit, the unit once."""
    low, high = (amount(round(each)) if domain is None else length(each, domain) for each in bounds)
    if low == high:
        return high
    number, _, unit = low.partition(" ")
    return f"{number if unit and high.endswith(f' {unit}') else low} to {high}"


def _trust(record: Record) -> list[str]:
    """What the figures rest on."""
    measured = {each["strategy"]: each["measured"] for each in record["strategies"] if each.get("measured")}
    named = ", ".join(f"{name} ({plural(count, 'migration')})" for name, count in measured.items())
    unwatched = "" if record["observed"] else ", and nobody watches how often keys meet (the query is not adaptive)"
    lines = [f"  corrected by what migrations of this job took: {named}"] if measured else []
    if unknown := record.get("unknown"):
        come = f"how many rows come from {', '.join(unknown)} is not known yet (two batches tell)"
        return [*lines, f"  {come}: these figures are guesses"]
    if any(each["legal"] and not each.get("measured") for each in record["strategies"]):
        others = "the other figures are" if measured else "these figures are"
        lines.append(
            f"  {others} a model's, not measured in this job yet{unwatched}: a tenth of what it says to ten times that"
        )
    return lines


def links_text(record: Record) -> str:
    """The links between sites; in a forecast also what would change, and the plans that would be the best then."""
    lines = [f"link {ends}: {link}" for ends, link in record["links"].items()] or ["there are no links between sites"]
    for name, query in record.get("queries", {}).items():
        if query["best"] == query["plan"]:
            lines.append(f"query {name}: {query['plan']} would still be the best plan")
        else:
            costs = f"{amount(query['cost'])} against {amount(query['best_cost'])}"
            lines.append(f"query {name}: {query['best']} would be better than {query['plan']} ({costs} per tick)")
    return "\n".join(lines)


def change_text(record: Record) -> str:
    """What a query starts with, a window a line."""
    takes = f" (about {seconds(record['seconds'])} to read rows)" if record["seconds"] else ""
    waits = f"; the old text answers until this one can go on from where it ends{record['earliest']}"
    until = waits if record["paced"] else record["gap"]
    return "\n  ".join([f"{record['complete']}{until}{takes}", *_window_lines(record)])


def _window_lines(record: Record) -> list[str]:
    from midstream.job.queries.verdict import WindowVerdict  # help on commands does without what runs jobs

    return [str(WindowVerdict(**window)) for window in record["windows"]]
