"""The plans of a batch as manifests tell them: operators, what feeds them, and what each did in the batch.

A reader of a checkpoint has neither the streams' schemas nor the job's program, so a plan cannot be rebuilt from
the query's text; with its operators written down it can be shown. `content` is equal for operators of any plans that
compute the same.
"""

from __future__ import annotations

import base64
import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from midstream.algebra.physical import PhysicalNode, SourceNode
from midstream.checkpoint.names import lane_name
from midstream.checkpoint.records import grouped
from midstream.distribution.fragments import Fragment, Received
from midstream.job.queries.running_query import RunningQuery
from midstream.job.task.lanes import TARGET
from midstream.job.task.reports import FragmentReport, OperatorReport, Report
from midstream.job.task.results import result_table
from midstream.optimizer.growth import growth

Record = dict[str, Any]


def plans_of(queries: Mapping[str, RunningQuery], slots: Sequence[Report]) -> dict[str, Record]:
    """The plan that each query runs by after a batch, and the one it goes over to, if it does."""
    found, reports = {}, _by_part(slots)
    for name, query in queries.items():
        if query.local:
            found[name] = _by_slots(name, query, slots)
            continue
        after, migration = query.after_batch, query.migration
        ended = after is not query and migration is not None and not migration.cancelling
        record = {**graph_of(after), "figures": _figures(reports, name, after, "target" if ended else "old")}
        if migration is not None and after is query:
            target = migration.target
            record["target"] = {**graph_of(target), "figures": _figures(reports, name, target, "target")}
        found[name] = record
    return found


def _by_slots(name: str, query: RunningQuery, slots: Sequence[Report]) -> Record:
    """A query whose slots run by different plans: its own plan, and under `local` those of the other slots."""
    rest = _by_part([report for report in slots if report.slot not in query.local])
    record: Record = {**graph_of(query), "figures": _figures(rest, name, query, "old"), "local": {}}
    for slot, own in sorted(query.local.items()):
        reports = [report for report in slots if report.slot == slot]
        record["local"][str(slot)] = {"plan": own.after_batch.plan.text, **plans_of({name: own}, reports)[name]}
    return record


def graph_of(query: RunningQuery) -> Record:
    """The operators of a query's plan and the columns of its results; made once."""
    if query.graph is None:
        schema = result_table(query.plan, None).schema.serialize().to_pybytes()
        nodes = [node for fragment in query.staged.fragments for node in _nodes(fragment)]
        query.graph = {"nodes": nodes, "schema": base64.b64encode(schema).decode()}
        if grows := growth(query.plan.physical):
            query.graph["warnings"] = list(grows)
    return query.graph


def _nodes(fragment: Fragment) -> list[Record]:
    """The operators of a fragment, root first; one that receives what another fragment gives has that as input."""
    found: list[Record] = []

    def add(node: PhysicalNode) -> str:
        if isinstance(node, Received):
            return f"{node.fragment}.0"
        place = len(found)
        found.append({})
        found[place] = {
            "id": f"{fragment.number}.{place}",
            "kind": "Source" if isinstance(node, SourceNode) else type(node).__name__,  # the page has words for these
            "label": node.label,
            "stage": fragment.stage,
            "content": hashlib.sha256(node.content.encode()).hexdigest()[:16],
            **({"stream": node.stream.name} if isinstance(node, SourceNode) else {}),
            "inputs": [add(child) for child in node.inputs],
        }
        return f"{fragment.number}.{place}"

    add(fragment.plan)
    return found


Reports = dict[str, list[tuple[int, FragmentReport]]]
"""What fragments did in slots, by the query, or the lane of one, that they belong to."""

Seen = dict[tuple[int, str, int], OperatorReport]
"""What operators did, by fragment, label, and number among those of one label, root first."""


def _by_part(slots: Sequence[Report]) -> Reports:
    records = (each for report in slots for each in report.fragments.items())
    return grouped((part, (fragment, record)) for (part, fragment), record in records)


def _figures(reports: Reports, name: str, query: RunningQuery, which: str) -> dict[str, list[float]]:
    """What each operator did in the batch: rows in, rows out, seconds, and the rows and bytes it keeps."""
    seen: Seen = {}
    if which == "target":
        for fragment, record in reports.get(lane_name(name, TARGET), ()):
            _add(seen, fragment, record.operators)
    for fragment, record in reports.get(name, ()):
        _add(seen, fragment, record.operators if which == "old" else record.target_operators)
    found: dict[str, list[float]] = {}
    numbers: Counter[tuple[int, str]] = Counter()
    for node in graph_of(query)["nodes"]:
        place = int(node["id"].partition(".")[0]), node["label"]
        did = seen.get((*place, numbers[place]))
        numbers[place] += 1
        if did is not None:
            found[node["id"]] = [did.work.taken, did.work.given, round(did.seconds, 6), did.state_rows, did.state_bytes]
    return found


def _add(seen: Seen, fragment: int, reports: Sequence[OperatorReport]) -> None:
    """Adds what operators did in a slot; reports come children first."""
    numbers: Counter[str] = Counter()
    for report in reversed(reports):
        place = fragment, report.label, numbers[report.label]
        numbers[report.label] += 1
        if place not in seen:
            seen[place] = report
            continue
        known, seen[place] = seen[place], OperatorReport(report.label)
        seen[place].add(known)
        seen[place].add(report)
