"""What a job decides about its slots by itself: how many there are, which groups they share, and which groups move.

After each batch that brought rows, the load of slots (processor seconds, `Report.processor`) and the state that they
keep are measured, and parted among the groups of each slot by the rows that came for them. How many slots there are is
decided by the clock instead, because batches fall behind by the clock.

Where plans are to change after the same batch, they go first, and loads count as they are predicted to be then: a move
or a hot group is decided about that still pays. Both begin at once where they can; else slots wait.

Decisions are taken before the batch is committed and are part of its manifest, with what is remembered: a process that
continues from it decides as if nothing had happened.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from midstream.adaptation.decider import (
    Candidate,
    Caution,
    DeciderMemory,
    DecisionOutcome,
    DecisionVerdict,
    DecisionWatch,
    Now,
    decide,
    made,
)
from midstream.adaptation.group_moves import BalancePolicy, GroupMoves, group_moves
from midstream.adaptation.hot_groups import HOME, HotGroup, HotPolicy, Sharing, hot_groups
from midstream.adaptation.scaling import ScalePolicy, SlotRange, busiest, slot_numbers
from midstream.checkpoint.records import Slots
from midstream.codec import read, written
from midstream.distribution.fragments import Routing, in_words
from midstream.distribution.move_legality import MSLB
from midstream.job.batch import Batch
from midstream.job.slots.both_at_once import SHARED
from midstream.job.slots.measuring import Measure, Measured, PlansDecided, carry_out, hot_look, measured, refused
from midstream.job.slots.protocol_choice import longest_window, terms_of
from midstream.job.slots.relocation import groups_moved
from midstream.job.slots.spreading import SpreadGroups
from midstream.job.task.exchange import default_routing

WINDOW = 60.0
"""How many seconds a window is taken for, as long as nothing says how fast time goes."""

REMEMBERED = 32
"""How many decisions manifests remember."""

SMOOTHED = 0.5
"""What part of a group's load is kept from look to look: a single look may catch a slot at odds with itself."""


NO_PLANS = PlansDecided()


@dataclass(frozen=True, slots=True)
class Remembered:
    """What a manifest keeps for the decisions after the next batch.

    By kind of decision what is remembered of changes, the loads that were seen lately, and the seconds of a window.
    """

    changes: Mapping[str, DeciderMemory] = field(default_factory=dict)
    loads: tuple[float, ...] = ()
    window: float = WINDOW


@dataclass(frozen=True, slots=True)
class Look:
    """A batch that was run, as it is decided about: what was measured, and what is `waiting` or to change besides."""

    batch: Batch
    seen: Measured
    waiting: bool
    spread: SpreadGroups
    plans: PlansDecided
    known: Remembered

    @property
    def slots(self) -> int:
        """How many slots there are."""
        return self.batch.slots.count


@dataclass(frozen=True, slots=True)
class Proposal:
    """What could be changed of one kind, and what is `measured` of it; `nothing` is why it stays if it is empty.

    While it is `settling` nothing can be said of what came of a change.
    """

    candidates: list[Candidate[Any]]
    caution: Caution
    measured: float
    nothing: str = ""
    settling: bool = False
    hot: Mapping[int, HotGroup] = field(default_factory=dict)

    def came(self, name: str, watch: DecisionWatch) -> dict[str, DecisionOutcome]:
        """What came of a change."""
        otherwise = watch.before if watch.undo else 0.0
        return {} if self.settling else {name: DecisionOutcome(self.measured, watch.expected, otherwise)}


@dataclass(frozen=True, slots=True)
class DecidedSlots:
    """How groups are to be dealt, if otherwise, what was decided lately, and what is remembered."""

    routing: Routing | None
    decisions: tuple[Mapping[str, Any], ...]
    remembered: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class SlotDecisions:
    """Decides about a job's slots, by the policies that there are; what it knows is what the last manifest says.

    Groups move by themselves by `balance`, are shared by `hot`, and slots come and go `among` some by `scaling`.
    """

    balance: BalancePolicy | None = None
    hot: HotPolicy | None = None
    among: SlotRange | None = None
    scaling: ScalePolicy = field(default_factory=ScalePolicy)
    measure: Measure = measured
    smoothed: float = SMOOTHED

    def after(
        self,
        batch: Batch,
        interval: float,
        waiting: bool = False,
        spread: SpreadGroups | None = None,
        plans: PlansDecided = NO_PLANS,
    ) -> DecidedSlots:
        """What is decided after a batch that began `interval` seconds after the one before it.

        Groups are left where they are while a change is `waiting`. `spread` records which groups several slots are to
        share. `plans` are to change after the same batch.
        """
        before = Slots() if batch.before is None else batch.before.slots
        decisions = tuple(before.decisions)
        if not batch.incoming.has_rows:
            return DecidedSlots(None, decisions, before.deciding)
        known = read(Remembered, before.deciding)
        seen = self._smoothed(known.loads, self.measure(batch, max(1e-6, interval)))
        window = longest_window(batch.queries) / seen.ticks_per_second if seen.ticks_per_second else 0.0
        known = Remembered(known.changes, tuple(load.seconds for load in seen.loads), window or known.window)
        moving, predicted = waiting or batch.slots.move is not None, plans.applied(seen, batch)
        look = Look(batch, predicted, moving, spread or SpreadGroups(), plans, known)
        routing = None
        for kind, propose in RULES.items():
            proposal = propose(self, look)
            if proposal is None:
                continue
            memory, verdict = _decided(look, proposal, known.changes.get(kind, DeciderMemory()))
            known = replace(known, changes={**known.changes, kind: memory})
            decisions = _with(decisions, {"batch": batch.batch_id, "kind": kind, **_record(look, verdict, proposal)})
            if verdict.action != "stay" and verdict.candidate is not None:
                routing = _carried_out(look, verdict.candidate.change, verdict.reason)
                break
        return DecidedSlots(routing, decisions, written(known))

    def _smoothed(self, past: Sequence[float], seen: Measured) -> Measured:
        """What was measured, with what groups took lately."""
        kept, loads = self.smoothed if len(past) == len(seen.loads) else 0.0, [load.seconds for load in seen.loads]
        before = past if kept else loads
        return seen.taking([round(kept * o + (1 - kept) * n, 9) for o, n in zip(before, loads, strict=True)])


def _decided(look: Look, proposal: Proposal, memory: DeciderMemory) -> tuple[DeciderMemory, DecisionVerdict[Any]]:
    """Decides about one kind of change."""
    now = Now(look.batch.batch_id, clock=look.batch.started)
    memory, verdict = decide(memory, now, proposal.candidates, proposal.caution, proposal.came, proposal.nothing)
    if verdict.action == "back":
        return memory, _undone(proposal, verdict)
    if verdict.action == "stay" or verdict.candidate is None:
        return memory, verdict
    memory = made(memory, now, proposal.caution, verdict.candidate)
    return memory, replace(verdict, reason=f"{verdict.reason}{look.plans.in_words}")


def _with(decisions: Sequence[Mapping[str, Any]], record: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
    """The decisions that are remembered; of a run of decisions of a kind to stay only the last."""
    last = next((past for past in reversed(decisions) if past["kind"] == record["kind"]), None)
    repeated = last is not None and record["action"] == last["action"] == "stay"
    return (*(past for past in decisions if not (repeated and past is last)), record)[-REMEMBERED:]


def _about_slots(decisions: SlotDecisions, look: Look) -> Proposal | None:
    """How many slots there are to be."""
    if decisions.among is None or look.waiting:
        return None
    busy, policy = look.seen.busy, decisions.scaling
    nothing = f"{busiest(busy, look.slots)} No other number of slots is nearer to what they should have to do. Staying."
    return Proposal(list(slot_numbers(busy, look.slots, decisions.among, policy)), policy.caution, busy, nothing)


def _about_keys(decisions: SlotDecisions, look: Look) -> Proposal | None:
    """Which groups several slots are to share."""
    policy = decisions.hot
    if policy is None or look.waiting:
        return None
    groups, dealing = hot_look(look.batch, look.seen, look.spread)
    found = hot_groups(groups, dealing, policy, refused(look.batch.queries))
    apart = look.plans.apart(SHARED)
    candidates = [replace(c, against=apart) if apart and not c.against else c for c in found]
    nothing = "No group has more to do than a slot's fair share. Staying."
    return Proposal(list(candidates), policy.caution, dealing.skew, nothing, hot=groups)


def _about_groups(decisions: SlotDecisions, look: Look) -> Proposal | None:
    """Which groups are to move."""
    policy, seen = decisions.balance, look.seen
    if policy is None:
        return None
    terms = terms_of(look.batch.queries, look.known.window)
    if len(seen.classes) > 1:
        terms = replace(terms, protocols=(MSLB,))  # groups of later stages move by naming their state alone
    resting = look.known.changes.get("groups", DeciderMemory()).resting
    under_way = "Groups are under way; what that changes must show first." if look.waiting else ""
    found = group_moves(seen.loads, look.slots, terms, policy, {*seen.fixed, *map(int, resting)}, under_way)
    if not found.against:
        words = ", ".join(f"{count} {in_words(name)}" for name, count in _classes_moved(look, found.change).items())
        done = f"{found.done} Groups: {words}." if words else found.done
        found = replace(found, done=done, against=look.plans.apart(found.change.protocol))
    return Proposal([found], policy.caution, found.before, settling=look.waiting)


def _classes_moved(look: Look, moves: GroupMoves) -> dict[str, int]:
    """How many groups move of each key class, if some do that are not of what arrives."""
    dealing = look.batch.slots.dealing
    found = groups_moved(dealing, look.seen.dealt(dealing, moves.places))
    return found if any(found) else {}


RULES: dict[str, Callable[[SlotDecisions, Look], Proposal | None]] = {
    "slots": _about_slots,
    "keys": _about_keys,
    "groups": _about_groups,
}
"""What is decided about slots, one after the other: the first change that is made goes alone."""


def _undone(proposal: Proposal, verdict: DecisionVerdict[Any]) -> DecisionVerdict[Any]:
    """A group that was shared in vain comes home."""
    hot, watch, skew = proposal.hot.get(int(verdict.name)), verdict.watch, proposal.measured
    if hot is None or watch is None:
        return DecisionVerdict("stay", "What several slots shared has come home already. Staying.")
    reason = (
        f"{hot} comes home: the fullest slot was to have {watch.expected:.2f} times the mean and has {skew:.2f} times; "
        f"it had {watch.before:.2f} times before."
    )
    return DecisionVerdict(HOME, reason, Candidate(verdict.name, HOME, Sharing(hot), 0.0, expected=skew))


def _carried_out(look: Look, change: Any, reason: str) -> Routing | None:
    """How groups are to be dealt as was decided; which are to be shared is recorded."""
    dealing = look.batch.slots.dealing
    match change:
        case Sharing() as sharing:
            carry_out(sharing, reason, look.batch.queries, look.spread)
        case GroupMoves() as moves:
            return replace(look.seen.dealt(dealing, moves.places), trigger=reason, protocol=moves.protocol)
        case int(slots):
            return Routing(tuple(default_routing(slots, len(dealing.groups))), slots, reason)
    return None


def _record(look: Look, verdict: DecisionVerdict[Any], proposal: Proposal) -> dict[str, Any]:
    """What manifests say of a decision."""
    return {"action": verdict.action, **_figures(look, verdict, proposal), "reason": verdict.reason}


def _figures(look: Look, verdict: DecisionVerdict[Any], proposal: Proposal) -> dict[str, Any]:
    candidate, made, measured = verdict.candidate, verdict.action != "stay", proposal.measured
    expected = candidate.expected if candidate is not None and candidate.expected is not None and made else measured
    match None if candidate is None else candidate.change:
        case GroupMoves() as moves:
            classes = _classes_moved(look, moves) if made else {}
            return moves.as_dict(len(look.batch.slots.routing) if made else 0) | (
                {"classes": classes} if classes else {}
            )
        case int(slots):
            wanted = slots if made else look.slots
            return {"slots": wanted, "busy": round(measured, 3), "expected_busy": round(expected, 3)}
        case Sharing() as sharing:
            return {**sharing.as_dict(), "skew": round(measured, 3), "expected_skew": round(expected, 3)}
    return {}


def deciders(rebalancing: bool, slots: SlotRange | None) -> SlotDecisions | None:
    """Those who decide about a job's slots; None if nobody does."""
    if not rebalancing and slots is None:
        return None
    return SlotDecisions(BalancePolicy() if rebalancing else None, HotPolicy() if rebalancing else None, slots)
