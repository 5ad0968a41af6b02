"""Migrating a part of a plan: which part it is, that all else is left alone, and what becomes legal by it."""

from __future__ import annotations

import random
from functools import lru_cache, partial
from typing import Any

import pyarrow as pa
import pytest
from tests.migration.drive import drive, in_order
from tests.profiles import always, mixed

import midstream as ms
from midstream.algebra import physical as p
from midstream.algebra.expressions import Call
from midstream.algebra.snapshots import multiset_equal
from midstream.api import Question, ask
from midstream.cluster.local.embedded_session import EmbeddedSession
from midstream.cluster.local.live_query import LiveQuery
from midstream.migration import in_part
from midstream.migration.costs import Predictor
from midstream.migration.execution import SingleBox
from midstream.migration.genmig import GenMig
from midstream.migration.in_part import InPart, MigratingPart, confined, go_on_in, way
from midstream.migration.parallel_track import ParallelTrack
from midstream.migration.plan_part import part_of
from midstream.migration.protocol import Strategy
from midstream.migration.registry import STRATEGIES
from midstream.migration.split import split_after
from midstream.operators.base import Operator, Work
from midstream.operators.box import Box
from midstream.optimizer.plans import Plan, plan_query

FOUR = "FROM A [RANGE 10], B [RANGE 6], C [RANGE 14], D [RANGE 8] WHERE A.k = B.k AND B.k = C.k AND C.k = D.k"
COUNT = f"SELECT A.k, count(*) AS n {FOUR} GROUP BY A.k"
JOIN = f"SELECT A.v {FOUR}"
DISTINCT_JOIN = f"SELECT DISTINCT A.v {FOUR}"
NAMED = sorted(STRATEGIES.keys() - {"auto"})


def inputs(seed: int = 0, rows: int = 16) -> dict[str, pa.Table]:
    rng = random.Random(seed)
    tables = {}
    for name in "ABCD":
        times = sorted(rng.randint(0, 40) for _ in range(rows))
        keys = [rng.randint(0, 1) for _ in times]
        tables[name] = pa.table({"ts": times, "k": keys, "v": [rng.randint(0, 2) for _ in times]})
    return tables


def plans_of(asked: Question, *shapes: str) -> list[Plan]:
    return [plan_query(asked.plan, shape) for shape in shapes]


def part_text(query: str, old: str, new: str) -> str:
    one, other = plans_of(ask(query, inputs()), old, new)
    part = part_of(one.physical, other.physical)
    return "whole" if part.whole else part.text


@pytest.mark.parametrize(
    ("query", "old", "new", "part"),
    [
        (COUNT, "(((A B) C) D)", "((A (B C)) D)", "((A B) C) to (A (B C))"),
        (COUNT, "(((A B) C) D)", "((A B) (C D))", "(([A B] C) D) to ([A B] (C D))"),
        (COUNT, "(((A B) C) D)", "(D ((A B) C))", "([A B C] D) to (D [A B C])"),
        (JOIN, "((A B) (C D))", "((C D) (A B))", "([A B] [C D]) to ([C D] [A B])"),
        (JOIN, "((A B) (C D))", "((B A) (D C))", "((A B) (C D)) to ((B A) (D C))"),
        (JOIN, "(((A B) C) D)", "(((B A) C) D)", "(A B) to (B A)"),
        (JOIN, "(((A B) C) D)", "A: B C D, B: A C D, C: B A D, D: C B A", "(((A B) C) D) to multiwayjoin(A, B, C, D)"),
    ],
)
def test_the_part_is_where_plans_differ(query, old, new, part):
    assert part_text(query, old, new) == part


def test_equal_plans_have_no_part():
    assert part_text(JOIN, "((A B) (C D))", "((A B) (C D))") == "whole"


def test_a_join_that_loses_duplicates_is_not_exchanged_below_a_distinct():
    """The plans are equivalent because of the DISTINCT at the top, so it belongs to the part."""
    asked = ask("SELECT DISTINCT A.v FROM A [RANGE 10], B [RANGE 6] WHERE A.k = B.k", inputs())
    plain = plan_query(asked.plan, "(A B)").physical
    assert isinstance(plain, p.Deduplicate)
    join = next(node for node in p.walk_physical(plain) if isinstance(node, p.HashJoin))
    once = p.HashJoin(
        join.schema,
        p.Deduplicate(join.left.schema, join.left),
        join.right,
        join.left_key,
        join.right_key,
        join.nulls_equal,
        join.residual,
    )
    reduced = p.replaced(plain, lambda node: once if node is join else None)
    part = part_of(plain, reduced)
    assert part.old is plain and part.new is reduced


def test_a_selection_may_move_within_the_part():
    asked = ask(
        "SELECT A.k, count(*) AS n FROM A [RANGE 5], B [RANGE 5] WHERE A.k = B.k AND A.v > 1 GROUP BY A.k", inputs()
    )
    below = plan_query(asked.plan, "(A B)").physical
    join = next(node for node in p.walk_physical(below) if isinstance(node, p.HashJoin))
    selection = next(node for node in p.walk_physical(below) if isinstance(node, p.Filter))
    source = selection.input
    wide = pa.schema(sorted([*join.schema, source.schema.field("A.v")], key=lambda f: f.name))
    late = p.Filter(
        join.schema,
        p.HashJoin(wide, source, join.right, join.left_key, join.right_key, join.nulls_equal, None),
        selection.predicate,
    )
    above = p.replaced(below, lambda node: late if node is join else None)
    part = part_of(below, above)
    assert part.old is join and part.new is late


def worked(box: Box, kind: str) -> Work:
    total = Work()
    for operator in _named(box, kind):
        total.add(operator.work)
    return total


def _named(box: Box, kind: str) -> list[Operator]:
    nodes = [(node, operator) for node, operator in zip(box.nodes, box.operators, strict=True)]
    if kind == "below":
        return [o for node, o in nodes if sorted(_aliases(node)) == ["A", "B"] and isinstance(node, p.HashJoin)]
    return [o for node, o in nodes if isinstance(node, p.GroupAggregate)]


def _aliases(node: p.PhysicalNode) -> list[str]:
    return [n.stream.alias for n in p.walk_physical(node) if isinstance(n, p.SourceNode)]


def work_of(strategy: str | None, part: str, kind: str) -> Work:
    """What the operators of a kind did in both boxes of a run."""
    asked = ask(COUNT, inputs(3, 24))
    old, new = plans_of(asked, "(((A B) C) D)", "((A B) (C D))")
    boxes: list[Box] = []

    def begin(live: LiveQuery) -> None:
        assert isinstance(live.execution, SingleBox)
        boxes.append(live.execution.box)
        if strategy is not None:
            live.migrate(new, strategy, part=part)

    found, live = drive(asked, old, 5, [(8, begin)])
    assert isinstance(live.execution, SingleBox) and found.num_rows
    if strategy is not None:
        assert live.history[0].outcome == "done"
        boxes.append(live.execution.box)
    total = Work()
    for box in boxes:
        total.add(worked(box, kind))
    return total


@pytest.mark.parametrize("name", NAMED)
@pytest.mark.parametrize("kind", ["below", "above"])
def test_operators_outside_the_part_do_what_they_would_have_done_anyway(name, kind):
    assert work_of(name, "smallest", kind) == work_of(None, "auto", kind)


@pytest.mark.parametrize("kind", ["below", "above"])
def test_operators_of_a_whole_plan_are_run_twice(kind):
    assert work_of("genmig", "whole", kind).inserted > work_of(None, "auto", kind).inserted


@pytest.mark.parametrize("name", NAMED)
def test_states_outside_the_part_are_not_touched(name):
    asked = ask(COUNT, inputs(3, 24))
    old, new = plans_of(asked, "(((A B) C) D)", "((A B) (C D))")

    def held(box: Box) -> list[list[int]]:
        operators = [*_named(box, "below"), *_named(box, "above")]
        return [[id(s) for s in state.segments] for operator in operators for state in operator.states]

    def begin(live: LiveQuery) -> None:
        assert isinstance(live.execution, SingleBox)
        before = live.execution.box
        content = held(before)
        assert all(content)
        live.migrate(new, name, part="smallest")
        assert held(before) == content
        if isinstance(live.execution, SingleBox):
            assert held(live.execution.box) == content

    drive(asked, old, 5, [(8, begin)])


@pytest.mark.parametrize("name", ["genmig_reference_point", "parallel_track"])
def test_joins_below_an_aggregate_become_legal(name):
    asked = ask(COUNT, inputs())
    old, new = plans_of(asked, "(((A B) C) D)", "((A (B C)) D)")
    with pytest.raises(ms.MigrationError, match="it contains an aggregation"):
        way(STRATEGIES[name], old, new, {}, "whole")
    with pytest.raises(ms.MigrationError, match="it contains an aggregation") as caught:
        way(STRATEGIES[name], old, new, {})
    assert 'or part="smallest", which migrates ((A B) C) to (A (B C))' in str(caught.value.hint)
    assert isinstance(way(STRATEGIES[name], old, new, {}, "smallest"), InPart)


@pytest.mark.parametrize("name", ["genmig", "genmig_shortened", "genmig_reference_point", "parallel_track"])
def test_a_split_needs_ends_only_where_the_part_begins(name):
    """A ROWS window below the part, and a window that never ends but is joined with one that does."""
    rows, endless = (JOIN.replace("A [RANGE 10]", f"A [{window}]") for window in ("ROWS 3", "UNBOUNDED"))
    for query, shapes in ((rows, ("((A B) (C D))", "(A (B (C D)))")), (endless, ("(((A B) C) D)", "((A B) (C D))"))):
        asked = ask(query, inputs(5))
        old, new = plans_of(asked, *shapes)
        with pytest.raises(ms.MigrationError, match="it contains"):
            way(STRATEGIES[name], old, new, {}, "whole")
        begin = partial(LiveQuery.migrate, plan=new, strategy=name, part="smallest")
        found, live = drive(asked, old, 3, [(6, begin)], reopen=True)
        assert live.history[0].part is not None
        assert ms.snapshot_equal(found, ms.reference(query, asked.tables)) and in_order(found)


def test_an_endless_window_in_the_part_is_refused():
    asked = ask(JOIN.replace("A [RANGE 10]", "A [UNBOUNDED]"), inputs())
    old, new = plans_of(asked, "(((A B) C) D)", "((A (B C)) D)")
    with pytest.raises(ms.MigrationError, match=r"it contains an \[UNBOUNDED\] window"):
        way(STRATEGIES["genmig"], old, new, {}, "smallest")


def test_what_only_the_whole_plan_has_kept_migrates_as_a_whole():
    """The part has kept the selected tuples of a join below it; the whole plan has kept what they were joined from."""
    asked = ask(COUNT, inputs())
    old, new = plans_of(asked, "(((A B) C) D)", "((A (B C)) D)")

    class NotInPart:
        name = "moving_state"

        def refuse(self, old: Plan, new: Plan, functions: Any) -> None:
            if _aliases(old.physical) != list("ABCD"):
                raise ms.MigrationError("not in part")

        decide = open = None

    strategy: Any = NotInPart()
    assert way(strategy, old, new, {}) is strategy


@pytest.mark.parametrize("name", NAMED)
@pytest.mark.parametrize(("old", "new"), [("(((A B) C) D)", "(D (C (A B)))"), ("(D ((A B) C))", "((C (A B)) D)")])
def test_joins_over_what_is_below_the_part_go_by_one_name(name, old, new):
    """A state keeps its id when what it was joined from now comes from below the part."""
    asked = ask(JOIN, inputs(5))
    before, after = plans_of(asked, old, new)
    migrate = partial(LiveQuery.migrate, plan=after, strategy=STRATEGIES[name], part="smallest")
    found, _ = drive(asked, before, 4, [(5, migrate)])
    alone, _ = drive(asked, before, 4)
    assert multiset_equal(found, alone)
    part = part_of(before.physical, after.physical)
    inside = {node.content for node in p.walk_physical(part.new_plan)}
    assert inside <= {node.content for node in p.walk_physical(after.physical)}


def test_a_part_of_another_kind_is_refused():
    with pytest.raises(ms.MigrationError, match="cannot be of the part 'half'"):
        ms.Migration(at=1, plan="(A B)", part="half")  # type: ignore[arg-type]
    asked = ask(JOIN, inputs())
    (plan,) = plans_of(asked, "(((A B) C) D)")
    with pytest.raises(ms.MigrationError, match="cannot be of the part 'half'"):
        way(STRATEGIES["genmig"], plan, plan, {}, "half")


@pytest.mark.parametrize("part", ["auto", "whole"])
def test_records_name_the_part(part):
    change = ms.Migration(at=20, plan="((A B) (C D))", strategy="genmig", part=part)
    settings: dict[str, Any] = {"migrations": [change], "batch_rows": 5, "full": True}
    (record,) = ms.run(COUNT, inputs(), plan="(((A B) C) D)", **settings).history
    assert (record.new_plan, record.strategy) == ("((A B) (C D))", "genmig")
    assert record.part == (None if part == "whole" else "(([A B] C) D) to ([A B] (C D))")


PAIRS = (("(((A B) C) D)", "((A B) (C D))"), ("((A B) (C D))", "(D ((A B) C))"))


def holds(strategy: Strategy, query: str, seed: int) -> bool:
    """Whether a run that migrates in part, by a strategy that may be broken, gives what it should."""
    asked, (old, new), expected, alone = question(query, seed)
    rng = random.Random(seed)
    rows, place = rng.choice([2, 5]), rng.randint(3, 10)
    found, live = drive(
        asked, old, rows, [(place, partial(LiveQuery.migrate, plan=new, strategy=strategy, part="smallest"))]
    )
    assert live.history[0].part is not None
    same = bool(ms.snapshot_equal(found, expected)) and in_order(found)
    return same and (query != JOIN or bool(multiset_equal(found, alone)))


@lru_cache(maxsize=200)
def question(query: str, seed: int) -> tuple[Question, list[Plan], pa.Table, pa.Table]:
    """A query over random streams, two plans with a part between them, and what any migration must give."""
    asked = ask(query, inputs(seed, 12))
    plans = plans_of(asked, *random.Random(seed).choice(PAIRS))
    return asked, plans, ms.reference(query, asked.tables), drive(asked, plans[0], 5)[0]


def noticed(strategy: Strategy, query: str = JOIN, seeds: int = 12) -> bool:
    return any(not holds(strategy, query, seed) for seed in range(seeds))


@pytest.mark.parametrize(("name", "query"), always(len(NAMED), mixed([*NAMED], [JOIN, COUNT, DISTINCT_JOIN])))
def test_nothing_is_noticed_where_nothing_is_wrong(name, query):
    assert not noticed(STRATEGIES[name], query, 5)


def test_a_split_that_forgets_what_came_from_below_is_noticed():
    forgetful = GenMig(split_rule=lambda s: max(split_after(s.sources[:0], s.starts, s.registers), s.frontier))
    assert noticed(forgetful, seeds=40)


def test_marks_that_forget_what_came_from_below_are_noticed():
    """Only what was in the part's own windows counts as old."""

    def direct_parts(marks: tuple[Any, ...]) -> Any:
        kept = tuple(mark for mark in marks if not mark.name.startswith("["))
        return kept[0] if len(kept) == 1 else Call("or", kept, kept[0].type)

    assert noticed(ParallelTrack(rule=direct_parts))


@pytest.mark.parametrize("forgotten", ["below", "above"])
def test_operators_that_do_not_go_on_are_noticed(forgotten, monkeypatch):
    def forgets(old: Box, new: Box) -> None:
        if (len(_aliases(new.plan)) == 1 and "above" or "below") != forgotten:
            go_on_in(old, new)

    monkeypatch.setattr(in_part, "go_on_in", forgets)
    assert noticed(STRATEGIES["moving_state"], COUNT)


def test_a_part_above_that_runs_ahead_is_noticed(monkeypatch):
    """Told that everything is complete, the aggregate answers for time to come."""
    monkeypatch.setattr(MigratingPart, "_above_at", lambda self, passed: self.frontier + 20)
    assert noticed(STRATEGIES["genmig"], COUNT)


def test_a_migration_can_be_foretold():
    tables = inputs()
    session = EmbeddedSession()
    for name in "ABCD":
        session.stream(name, tables[name].schema)
    query = session.query("q", COUNT, plan="(((A B) C) D)")
    session.push(dict(tables))
    told = query.explain_migration("((A B) (C D))")
    assert told.startswith("migrates: (([A B] C) D) to ([A B] (C D))\nmigration by ")
    assert "parallel_track          refused" not in told  # of the part: asked for by part="smallest"
    whole = query.explain_migration("((A B) (C D))", part="whole")
    assert whole.startswith("migrates: the whole plan\n") and "parallel_track          refused" in whole
    query.migrate("((A B) (C D))", "moving_state")
    assert query.history[-1].part == "(([A B] C) D) to ([A B] (C D))"
    query.migrate("(((A B) C) D)", "genmig")
    assert query.migrating == "(((A B) C) D)"
    query.migrate("(D ((A B) C))", "genmig", queue=True)
    query.cancel_migration()
    assert query.migrating is None and query.plan.text == "((A B) (C D))"
    assert query.history[-1].status == "cancelled"


def test_less_is_predicted_for_a_part():
    asked = ask(COUNT, inputs(3, 24))
    old, new = plans_of(asked, "(((A B) C) D)", "((A B) (C D))")
    told: list[Any] = []

    def predict(live: LiveQuery) -> None:
        situation = live.situation(new)
        for known in (confined(situation)[0], situation):
            assert known.old is not None and known.new is not None
            told.append(Predictor(known.old, known.new, known).predict("genmig", GenMig().decide(known)))

    drive(asked, old, 5, [(8, predict)])
    assert told[0].work < told[1].work and told[0].rows < told[1].rows
