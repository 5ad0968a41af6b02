"""A copy of a query in manifests: a second name for its state, and for what it has not released yet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from midstream.algebra.time import BEGINNING
from midstream.checkpoint.file_entries import FileLog
from midstream.checkpoint.manifest import Manifest
from midstream.checkpoint.names import copy_name, query_of, renamed_lane
from midstream.checkpoint.records import QueryAccount
from midstream.job.queries.replacing import under_other_name, with_results_only


def with_copy(manifest: Manifest, name: str) -> Manifest:
    """The manifest in which a copy of a query stands beside it: with its state, and what it has not released.

    Groups that move to two slots move for the copy as for the query: it has the tracks of the query. The manifest may
    still have an earlier copy, which ended after its batch.
    """
    manifest = without_copy(manifest, name)
    copy, released = copy_name(name), manifest.released.get(name, BEGINNING)
    waiting = tuple(file for file in manifest.outputs.results.get(name, FileLog()).newer if file.last_from >= released)
    its = manifest.account(name)
    account = QueryAccount(sharing=its.sharing, plans=its.plans)
    made = manifest.mapped(
        lambda by_query: {**by_query, **{renamed_lane(q, copy): by_query[q] for q in _parts_of(by_query, name)}}
    )
    made = made.with_outputs(results={**made.outputs.results, copy: FileLog(waiting)})
    return replace(made, accounts={**made.accounts, copy: account})


def without_copy(manifest: Manifest, name: str) -> Manifest:
    """The manifest without a query's copy."""
    return manifest.without([copy_name(name)])


def _parts_of(by_query: Mapping[str, Any], query: str) -> list[str]:
    """A query's lanes, as far as something is known of them."""
    return [name for name in by_query if query_of(name) == query]


def adopted(manifest: Manifest, name: str) -> Manifest:
    """The manifest in which a query goes on with the plan and the state of its copy; its results stay its own."""
    copy = copy_name(name)
    entry = replace(manifest.queries[name], plan=manifest.queries[copy].plan)
    its, stored = manifest.account(copy), manifest.segments
    others = {part: held for part, held in stored.items() if query_of(part) != name}
    own = {renamed_lane(part, name): stored[part] for part in _parts_of(stored, copy)}
    made = replace(
        manifest,
        queries={**manifest.queries, name: entry},
        segments={**others, name: {}, **own},
    ).with_account(name, sharing=its.sharing, graph=its.graph, plans=its.plans)
    return without_copy(made, name)


def archive_name(manifest: Manifest, name: str) -> str:
    """The name under which the results of a plan that differs stay readable."""
    return f"{name}@{manifest.batch_id}"


def archived(manifest: Manifest, name: str) -> Manifest:
    """The manifest with the results of a query's copy among those of replaced queries."""
    archive = archive_name(manifest, name)
    return with_results_only(under_other_name(manifest, copy_name(name), archive), [archive])
