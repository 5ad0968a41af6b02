"""How the slots of a batch are laid out: who owns which partition groups, and which groups several slots have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from midstream.checkpoint.records import DoubledMove
from midstream.distribution.routing import Routing
from midstream.distribution.spread_groups import SpreadGroup
from midstream.job.arriving.incoming import Incoming
from midstream.job.lanes import copies_of
from midstream.job.task.exchange import Delivery, Shares


@dataclass(frozen=True, slots=True)
class SlotLayout:
    """How many slots there are, and which of them owns each partition group.

    Several slots share the groups that are `spread`, except those that rest. `move` is the one under way of groups
    whose rows go to two slots. Of key classes that are dealt `apart`, other slots own groups.
    """

    count: int
    routing: tuple[int, ...]
    spread: tuple[SpreadGroup, ...] = ()
    move: DoubledMove | None = None
    apart: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    @property
    def copies(self) -> dict[int, tuple[int, ...]]:
        """The slots besides the owner's to which arriving rows of groups that move go."""
        return copies_of(self.routing, self.move)

    @property
    def dealing(self) -> Routing:
        """How groups of all key classes are dealt."""
        return Routing(self.routing, self.count, apart=self.apart)

    @property
    def shared(self) -> list[SpreadGroup]:
        """The partition groups that several slots share in this batch."""
        return [group for group in self.spread if group.active]

    @property
    def arriving(self) -> list[SpreadGroup]:
        """The groups that several slots share of what arrives."""
        return [group for group in self.shared if not group.key_class]

    @property
    def exchanged(self) -> dict[str, dict[int, Shares]]:
        """The groups that several slots share of what later stages receive, by key class and number."""
        found: dict[str, dict[int, Shares]] = {}
        for group in self.shared:
            if group.key_class:
                found.setdefault(group.key_class, {})[group.group] = Shares(group.spread, group.slots)
        return found

    @property
    def has_copies(self) -> bool:
        """Whether rows come to slots that other slots account for."""
        return bool(self.copies) or bool(self.arriving)

    @property
    def one_slot_each(self) -> bool:
        """Whether every group is in one slot alone, and stays so."""
        return not self.copies and not self.spread and self.move is None

    def delivery(self, stream: str, incoming: Incoming) -> Delivery:
        """To which slots arriving rows of a stream go; those that may go anywhere go to one."""
        route, shared = incoming.routes.get(stream), self.arriving
        if not shared:
            return Delivery(self.routing, self.copies if route is not None and route.key else {})
        copies = {group.group: group.slots[1:] for group in shared if stream in group.copied}
        spread = {group.group: group.slots for group in shared if stream == group.spread}
        return Delivery(self.routing, copies, spread, incoming.hashable(stream) if spread else ())
