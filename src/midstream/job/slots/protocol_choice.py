"""Which protocol moves groups of a job, by what each is predicted to cost.

Between two batches a job names the state of moving groups in their new slots, which costs nothing where sender and
receiver run by one plan. Where it must be sent and worked out for another plan, that costs what the groups hold; to
send their rows to both slots instead costs what arrives within a window. So low rates after high ones speak for the
latter. Split-time balancing costs no more than PTLB, which marks the sender's state, so it is taken where both are.
"""

from __future__ import annotations

from collections.abc import Mapping

from midstream.adaptation.group_moves import MoveTerms
from midstream.algebra.time import BEGINNING
from midstream.checkpoint.manifest import Manifest
from midstream.distribution.fragments import Routing
from midstream.distribution.move_costs import Moved, costs_text, predict_all
from midstream.distribution.move_legality import MSLB, PTLB, SPLIT_TIME
from midstream.errors import is_permitted
from midstream.job.queries.running_query import RunningQuery
from midstream.job.slots.doubled_moves import require_protocol, runs_whole

ORDER = (MSLB, SPLIT_TIME, PTLB)
"""All protocols, those first that are taken if costs are equal."""

LATELY = 3
"""The batches after the first of so many say how fast rows come."""

Queries = Mapping[str, RunningQuery]


def terms_of(queries: Queries, window: float) -> MoveTerms:
    """How groups of a job could move, whichever they are; a window is so long."""
    found = [name for name in ORDER if is_permitted(require_protocol, name, queries)]
    carried = 0.0 if not any(query.local for query in queries.values()) else 1.0
    return MoveTerms(tuple(found), window, carried, any(runs_whole(query) for query in queries.values()))


def cheapest_protocol(manifest: Manifest | None, queries: Queries, old: Routing, new: Routing) -> tuple[str, str]:
    """The protocol for a move that is asked for, and why; time is event time, so that nothing reads a clock."""
    terms = terms_of(queries, longest_window(queries))
    if manifest is None or len(terms.protocols) == 1:
        return MSLB, ""
    costs = predict_all(terms.protocols, _moved(manifest, old, new, terms), terms.window)
    return costs[0].protocol, costs_text(costs)


def _moved(manifest: Manifest, old: Routing, new: Routing, terms: MoveTerms) -> Moved:
    """What moving groups hold and what comes for them in each tick; a group's part is that of its lately come rows."""
    loads = list(manifest.slots.loads) or [1.0] * len(old.groups)
    pairs = zip(loads, old.groups, new.groups, strict=True)
    part = sum(load for load, here, there in pairs if here != there) / max(sum(loads), 1e-9)
    held = list(manifest.entries())
    rows, size = sum(entry.rows for entry in held), sum(entry.bytes for entry in held)
    rate = _rows_per_tick(manifest) * (1.0 if terms.doubled else part)
    return Moved(part * rows * terms.carried, part * size * terms.carried, rate)


def _rows_per_tick(manifest: Manifest) -> float:
    """How many rows have come in each tick of the last batches."""
    recent = manifest.outputs.recent[-LATELY:]
    if len(recent) < 2:
        return 0.0
    since, until = (max(row["registers"].values(), default=BEGINNING) for row in (recent[0], recent[-1]))
    if since == BEGINNING or until <= since:
        return 0.0
    return sum(sum(row["rows"].values()) for row in recent[1:]) / (until - since)


def longest_window(queries: Queries) -> float:
    """The longest window, in ticks."""
    longest = [source.longest for query in queries.values() for source in query.sources]
    return float(max((ticks for ticks in longest if ticks is not None), default=0))
