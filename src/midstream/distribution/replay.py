"""Planning how what one plan has kept of its streams goes through another plan, when both are spread over slots."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from midstream.algebra import physical as p
from midstream.distribution.fragments import Fragment, Staged
from midstream.distribution.moves import Origin, Shipment, StateName, origins_of
from midstream.distribution.placement import Placed, Placements
from midstream.errors import InternalError
from midstream.migration.contents import Contents
from midstream.migration.protocol import Functions
from midstream.operators.box import Box


def plan_replay(
    old: Staged, old_plan: p.PhysicalNode, new: Staged, functions: Functions
) -> Mapping[int, tuple[Shipment, ...]]:
    """What each fragment of the new plan is given of the streams that it reads."""
    contents = Contents(Box(old_plan, functions))
    origins = dict(origins_of(old, functions))
    return {f.number: tuple(_of_leaves(f, contents, origins, new)) for f in new.fragments}


def _of_leaves(
    fragment: Fragment, contents: Contents, origins: Mapping[StateName, Origin], new: Staged
) -> list[Shipment]:
    found: dict[str, Shipment] = {}
    for source in fragment.sources:
        kept = contents.leaf(source)
        if kept is None:
            raise InternalError(f"the window of {source.stream.alias} is not kept")
        held = kept.known.held
        found[source.stream.alias] = Shipment(
            fragment.number,
            "leaf",
            source.stream.alias,
            (),
            source.schema,
            tuple(kept.columns[name] for name in source.schema.names),
            _placed(fragment, source, new),
            None if held is None else origins[held.state.id, held.state.key],
        )
    return list(found.values())


def _placed(fragment: Fragment, source: p.Source, new: Staged) -> Placed:
    """Where a source's rows arrive; a fragment that does not have the key by which they do needs them nowhere."""
    placed = Placements(fragment, new.routes)(source)
    return replace(placed, keys=frozenset(key for key in placed.keys if set(key) <= set(source.schema.names)))
