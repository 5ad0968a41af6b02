"""Key classes: groups of a later stage move without those of others, whatever the queries, plans and moments."""

from __future__ import annotations

import random
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from tests.job.chain import Chain
from tests.job.many import Many
from tests.job.spreading import GroupBroughtHome, GroupSpread
from tests.job.staged_queries import draw_query
from tests.job.test_chain import KEYS, KEYS_GROUPED, STAGES, as_multiset, tables
from tests.job.test_local_plans import many_keys
from tests.profiles import always

import midstream as ms
from midstream.adaptation.group_moves import BalancePolicy, GroupLoad
from midstream.adaptation.hot_groups import HotPolicy
from midstream.api import ask
from midstream.checkpoint.opening import open_segment
from midstream.checkpoint.store import CheckpointStore
from midstream.distribution.fragments import SpreadGroup, class_received, key_classes
from midstream.distribution.stages import cut
from midstream.inputs import catalog_of
from midstream.job.batch import Batch
from midstream.job.events import MoveCancelled
from midstream.job.slots.class_dealing import ClassLoads
from midstream.job.slots.measuring import Measured, measured
from midstream.job.slots.slot_decisions import SlotDecisions
from midstream.job.slots.spreading import merging_for
from midstream.optimizer.plans import plan_query

BY_V = "B.v = C.v"
TWO_KEYS = f"SELECT A.v AS a, C.v AS c FROM A [RANGE 20], B [RANGE 20], C [RANGE 20] WHERE A.k = B.k AND {BY_V}"


COUNTED = "SELECT B.v, stddev(A.v) AS n FROM A [RANGE 20], B [RANGE 20] WHERE A.k = B.k GROUP BY B.v"


def by_rows(batch: Batch, interval: float) -> Measured:
    """What is measured where every row takes a millisecond: tests do not depend on how fast a machine is."""
    seen = measured(batch, 1.0)
    shared = tuple((number, replace(load, seconds=load.rate / 1000)) for number, load in seen.shared)
    return replace(seen, groups=tuple(replace(g, seconds=g.rate / 1000) for g in seen.groups), shared=shared)


def classes_of(query: str, plan: str | None = None) -> tuple[str, ...]:
    return key_classes(cut(plan_query(ask(query, tables()).plan, plan).physical))


def opened(query: str, folder: Path, inputs: dict[str, pa.Table], plan: str | None = "((A B) C)", **options) -> Chain:
    question = ask(query, inputs)
    return Chain(question.plan, question.catalog, folder, plan=plan, **options)


def owned(chain: Chain) -> int:
    """Checks that each slot holds rows of groups that it owns, by class; gives how many segments were looked at."""
    routing, width, looked_at = chain.driver.state.routing, np.uint64(64 - chain.driver.state.group_bits), 0
    for fragment in chain.query.staged.fragments:
        table = np.array(routing.table(class_received(fragment)))
        grouped = {(s.id, s.key) for s in chain.query.boxes[fragment.number].states() if s.grouping is not None}
        for slot, entries in chain.manifest.segments["q"].get(fragment.number, {}).items():
            for entry in (e for e in entries if (e.state, e.key) in grouped):
                segment = open_segment(chain.driver.files, entry)
                assert (table[segment.hashes >> width] == slot).all(), (fragment.number, slot)
                looked_at += 1
    return looked_at


@pytest.mark.parametrize(
    ("query", "plan", "expected"),
    [
        ("SELECT A.v FROM A [RANGE 20], B [RANGE 20] WHERE A.k = B.k", None, ()),
        (KEYS, "((A B) C)", (BY_V,)),
        (KEYS.replace("B [RANGE 20]", "B [RANGE 20] AS x").replace("B.", "x."), "((A x) C)", (BY_V,)),
        (KEYS_GROUPED, "((A B) C)", (BY_V, "C.k")),
        (STAGES, "((A B) C)", ("A.v", BY_V)),
        ("SELECT count(*) AS n FROM A [RANGE 20]", None, ()),
        (KEYS, "A -> B -> C, B -> A -> C, C -> B -> A", ()),
    ],
)
def test_what_a_fragment_receives_is_a_class_that_is_named_by_its_keys(query, plan, expected):
    assert classes_of(query, plan) == expected


def test_groups_of_a_class_move_alone_and_write_nothing(tmp_path):
    inputs = many_keys(rows=60, last=100)
    chain = opened(KEYS, tmp_path, inputs)
    parts = chain.cut(inputs, 12)
    for part in parts[:5]:
        chain.batch(part)
    before = chain.manifest
    assert before.slots.apart == {}
    assert chain.driver.rebalance([1 - slot for slot in before.slots.routing], key_class=BY_V)
    chain.batch(parts[5])
    assert chain.manifest.slots.routing == before.slots.routing
    assert list(chain.manifest.slots.apart[BY_V]) == [1 - slot for slot in before.slots.routing]
    (record,) = chain.manifest.slots.moves
    assert (record["groups"], record["classes"]) == (256, {BY_V: 256})
    assert record["trigger"] == f"asked for; 256 groups by {BY_V}"
    assert (record["rows_sent"], record["bytes_written"], chain.moves) == (0, 0, 0)
    for fragment in chain.query.staged.fragments:
        held = before.segments["q"].get(fragment.number, {})
        now = chain.manifest.segments["q"].get(fragment.number, {})
        stays = all({e.place for e in held[slot]} & {e.place for e in now.get(slot, ())} for slot in held)
        assert stays == (class_received(fragment) == "") or not held
    assert owned(chain)
    chain = opened(KEYS, tmp_path, inputs)
    for part in parts[6:]:
        chain.batch(part)
    chain.batch({}, end=True)
    assert ms.snapshot_equal(chain.results(), ms.reference(KEYS, inputs))


def test_another_number_of_slots_deals_every_class(tmp_path):
    inputs = many_keys(rows=60, last=100)
    chain = opened(KEYS, tmp_path, inputs, slots=3)
    parts = chain.cut(inputs, 12)
    for number, part in enumerate(parts):
        if number == 3:
            chain.driver.rebalance([2] * 256, key_class=BY_V)
        if number == 5:
            assert chain.manifest.slots.apart == {BY_V: (2,) * 256}
            chain.driver.rescale(2)
        chain.batch(part)
    assert (chain.manifest.slots.count, chain.manifest.slots.apart) == (2, {})
    assert owned(chain)
    chain.batch({}, end=True)
    assert ms.snapshot_equal(chain.results(), ms.reference(KEYS, inputs))


PLANS = ("((A B) C)", "(A (B C))", "((A C) B)")
STEPS = (
    "class",
    "class",
    "class",
    "share",
    "share",
    "even",
    "even one",
    "common",
    "doubled",
    "back",
    "migrate",
    "rescale",
    "restart",
)


def random_step(chain: Chain, step: str, rng: random.Random) -> None:
    """Asks for a change; what is refused changes nothing."""
    state = chain.driver.state
    known = sorted({name for query in state.queries.values() for name in key_classes(query.staged)})
    scattered = [rng.randrange(state.slots) for _ in range(2**state.group_bits)]
    few = [rng.randrange(state.slots) if rng.random() < 0.05 else slot for slot in state.routing.groups]
    if state.manifest is None:
        return
    with suppress(ms.MidstreamError):
        match step:
            case "class" if known:
                chain.driver.rebalance(rng.choice([scattered, few]), key_class=rng.choice(known))
            case "share" if known:
                name = rng.choice(known)
                groups = [group for group, load in enumerate(state.manifest.slots.class_loads.get(name, ())) if load]
                spread = rng.choice(name.split(" = "))
                merging = merging_for(state.queries, spread, name) if rng.random() < 0.8 else ()
                wanted = SpreadGroup(
                    rng.choice(groups or [0]), spread, rng.randint(2, 3), "a test", merging=merging, key_class=name
                )
                ends = [group for group in state.spread.groups if rng.random() < 0.3]
                chain.driver.apply(GroupSpread(wanted))
                for group in ends:
                    chain.driver.apply(GroupBroughtHome(group))
            case "even":
                chain.driver.rebalance(None, rng.choice(["auto", "mslb"]))
            case "even one" if known:
                chain.driver.rebalance(None, key_class=rng.choice(known))
            case "common":
                chain.driver.rebalance(rng.choice([scattered, few]))
            case "doubled":
                chain.driver.rebalance(rng.choice([scattered, None]), "split_time_balancing")
            case "back":
                chain.driver.apply(MoveCancelled())
            case "migrate":
                strategy = rng.choice(["auto", "moving_state", "moving_state_paced", "genmig"])
                slots = rng.choice([None, None, [rng.randrange(state.slots)]])
                chain.migrate(rng.choice(PLANS), strategy, slots=slots)
            case "rescale" if rng.random() < 0.5:
                chain.driver.rescale(rng.randint(1, 4))


@pytest.mark.parametrize("seed", always(2, range(200)))
def test_classes_move_at_random_and_results_stay(seed, tmp_path):
    rng = random.Random(seed)
    query, inputs = draw_query(rng, one_key=rng.random() < 0.3), tables(rows=36, last=80, seed=seed)
    chain = opened(query, tmp_path, inputs, None, slots=rng.randint(2, 4), seed=seed)
    log = []
    for part in chain.cut(ask(query, inputs).tables, rng.randint(5, 12)):
        for step in rng.choices(STEPS, k=rng.randint(0, 2)):
            if step == "restart" and chain.driver.manifest is not None:
                chain = opened(query, tmp_path, inputs, None, seed=seed)
            else:
                random_step(chain, step, rng)
            log.append(f"{chain.next_batch}: {step}")
        chain.batch(part)
        whole = chain.manifest.slots.doubled is None and not chain.manifest.slots.shared
        if whole and not chain.query.migrates and not chain.query.local:
            owned(chain)
    chain.batch({}, end=True)
    difference = ms.snapshot_equal(chain.results(), ms.reference(query, inputs))
    assert difference, f"{difference}\n{query}\n{log}"


CATALOG = catalog_of({name: table.schema for name, table in tables().items()}, "ts")
SHARING = {
    "joined": TWO_KEYS,
    "twice": TWO_KEYS.replace("A.v AS a", "A.k AS a"),
    "counted": "SELECT B.v, count(*) AS n FROM A [RANGE 20], B [RANGE 20] WHERE A.k = B.k GROUP BY B.v",
    "distinct": "SELECT DISTINCT B.v FROM A [RANGE 20], B [RANGE 20] WHERE A.k = B.k",
}


@pytest.mark.parametrize("seed", always(1, range(40)))
def test_queries_that_share_exchanges_stay_right_when_their_classes_are_dealt_apart(seed, tmp_path):
    rng, inputs = random.Random(seed), tables(rows=40, last=80, seed=seed)
    many = Many(catalog=CATALOG, folder=tmp_path, slots=rng.randint(2, 3), seed=seed)
    for name, cql in SHARING.items():
        many.add(name, cql)
    for part in many.cut(inputs, rng.randint(5, 12)):
        step = rng.choice(("class", "class", "share", "share", "even", "even one", "common", "rescale", "restart"))
        if step == "restart" and many.driver.manifest is not None:
            many = Many(catalog=CATALOG, folder=tmp_path, seed=seed)
        else:
            random_step(many, step, rng)
        many.batch(part)
    many.batch({}, end=True)
    for name, cql in SHARING.items():
        read = {stream: table for stream, table in inputs.items() if f"{stream} [" in cql}
        assert ms.snapshot_equal(many.table(name), ms.reference(cql, read)), name


def skewed(rows: int = 300, hot: float = 0.3, keys: int = 200) -> dict[str, pa.Table]:
    """Keys of the first exchange are even, one value of the second carries much of the rows."""
    random_ = np.random.default_rng(3)

    def table(values: np.ndarray) -> pa.Table:
        times = np.sort(random_.integers(0, 100, rows))
        return pa.table({"k": random_.integers(0, keys, rows), "v": values, "ts": times})

    return {
        "A": table(random_.integers(0, 40, rows)),
        "B": table(np.where(random_.random(rows) < hot, 7, random_.integers(0, 40, rows))),
        "C": table(random_.integers(0, 40, rows)),
    }


def test_dealing_evenly_weighs_each_class_by_its_own_load(tmp_path):
    inputs = skewed()
    chain = opened(TWO_KEYS, tmp_path, inputs, slots=2)
    parts = chain.cut(inputs, 60)
    for part in parts[:5]:
        chain.batch(part)
    loads = ClassLoads.of(chain.manifest)
    assert list(loads.by_class) == ["", BY_V]
    assert np.allclose(np.sum([*loads.by_class.values()], axis=0), chain.manifest.slots.loads, atol=0.2)
    chain.driver.rebalance([0] * 256, key_class=BY_V)
    chain.batch(parts[5])
    before = chain.driver.state.routing
    assert ClassLoads.of(chain.manifest).skew(before) > 1.05
    assert chain.driver.rebalance(None)
    wanted = chain.driver.state.wanted
    assert wanted is not None and wanted.protocol == "mslb"
    assert ClassLoads.of(chain.manifest).skew(wanted) < 1.02
    for part in parts[6:]:
        chain.batch(part)
    chain.batch({}, end=True)
    assert ms.snapshot_equal(chain.results(), ms.reference(TWO_KEYS, inputs))


def measured_by_rows(batch: Batch, interval: float) -> Measured:
    """What a batch took, as if each row took as long, and time were not measured."""
    counts = {"": [0.0] * 256, BY_V: [0.0] * 256}
    for report in batch.reports:
        for group, count in report.traffic.groups.items():
            later = report.traffic.of_class(BY_V).get(group, 0)
            counts[""][group] += count - later
            counts[BY_V][group] += later
    dealing = batch.slots.dealing
    groups = [
        GroupLoad(slot, counts[name][group] / 1000)
        for name in ("", BY_V)
        for group, slot in enumerate(dealing.table(name))
    ]
    return Measured(tuple(groups), 0.5, 1.0, classes=("", BY_V))


def test_seconds_of_a_later_stage_are_those_of_its_classes(tmp_path):
    inputs = many_keys(rows=60, last=100)
    chain = opened(KEYS, tmp_path, inputs, slots=2)
    parts = chain.cut(inputs, 40)
    chain.batch(parts[0])
    batch = chain.batch(parts[1])
    for report in batch.reports:
        report.processor = {(0, 0): 1.0, (0, 1): 2.0, (1, 0): 4.0, (1, 1): 8.0}[report.stage, report.slot]
    seen = measured(batch, 1.0)
    assert seen.classes == ("", BY_V)
    assert len(seen.groups) == 512
    found: dict[tuple[str, str], float] = {}
    for number, load in enumerate(seen.groups):
        place = (seen.classes[number // 256], str(load.owner))
        found[place] = found.get(place, 0.0) + load.seconds
    assert found == pytest.approx({("", "0"): 1.0, ("", "1"): 2.0, (BY_V, "0"): 4.0, (BY_V, "1"): 8.0})
    held = sum(part.state_bytes for report in batch.reports for part in report.fragments.values())
    assert sum(load.bytes for load in seen.groups) == pytest.approx(held)


def test_groups_of_a_class_move_by_themselves(tmp_path):
    inputs = skewed()
    chain = opened(TWO_KEYS, tmp_path, inputs, slots=2)
    for number, part in enumerate(chain.cut(inputs, 45)):
        if number == 2:
            chain.driver.rebalance([0] * 256, key_class=BY_V)
        if number == 3:
            before = chain.driver.state.routing
            chain.driver.deciding = SlotDecisions(BalancePolicy(), measure=measured_by_rows)
        chain.batch(part)
    moved = [record for record in chain.manifest.slots.decisions if record["action"] == "move"]
    assert moved and BY_V in moved[0]["classes"]
    assert f" by {BY_V}" in moved[0]["reason"]
    assert all(group < 256 for move in moved[0]["moves"] for group in move["groups"])
    assert chain.manifest.slots.apart[BY_V] != before.apart[BY_V]
    assert owned(chain)
    chain.batch({}, end=True)
    assert ms.snapshot_equal(chain.results(), ms.reference(TWO_KEYS, inputs))


def test_a_hot_group_of_a_later_stage_that_cannot_be_divided_is_named(tmp_path):
    inputs = skewed()
    chain = opened(COUNTED, tmp_path, inputs, None, slots=3)
    chain.driver.deciding = SlotDecisions(hot=HotPolicy(hot=0.05), measure=by_rows)
    for part in chain.cut(inputs, 60):
        chain.batch(part)
    last = [record for record in chain.manifest.slots.decisions if record["kind"] == "keys"][-1]
    assert (last["action"], last["by"]) == ("stay", "B.v")
    assert last["group"] < 256
    assert " by B.v has " in last["reason"]
    assert "query q cannot have B.v spread: Aggregate stddev(A.v) by B.v needs all rows of a key" in last["reason"]


def hottest_of(chain: Chain, key_class: str) -> int:
    return int(np.argmax(chain.manifest.slots.class_loads[key_class]))


@pytest.mark.parametrize("spread", ["B.v", "C.v"])
def test_slots_share_a_group_of_a_later_stage(spread, tmp_path):
    inputs = skewed()
    chain = opened(TWO_KEYS, tmp_path, inputs, slots=3)
    parts = chain.cut(inputs, 60)
    for part in parts[:4]:
        chain.batch(part)
    group = hottest_of(chain, BY_V)
    chain.driver.apply(GroupSpread(SpreadGroup(group, spread, 3, "a test", key_class=BY_V)))
    for part in parts[4:9]:
        chain.batch(part)
    (shared,) = chain.manifest.slots.shared
    assert (shared.key_class, shared.group, len(shared.slots)) == (BY_V, group, 3)
    assert BY_V in chain.manifest.slots.apart
    chain.driver.apply(GroupBroughtHome((BY_V, group)))
    for part in parts[9:]:
        chain.batch(part)
    assert not chain.manifest.slots.shared
    assert owned(chain)
    chain.batch({}, end=True)
    moves = [(m["rows_sent"], m["bytes_written"]) for m in chain.manifest.slots.moves]
    assert moves == [(0, 0), (0, 0)]
    assert as_multiset(chain.results()) == as_multiset(ms.run(TWO_KEYS, inputs))


THREE = TWO_KEYS.partition(" AS c ")[2]
MERGED = {
    "counted": (
        "SELECT B.v, count(*) AS n, max(A.v) AS m FROM A [RANGE 20], B [RANGE 20] WHERE A.k = B.k GROUP BY B.v",
        "B.v",
    ),
    "hopping": ("SELECT B.v, sum(A.v) AS s FROM A [HOP 20, 5], B [HOP 20, 5] WHERE A.k = B.k GROUP BY B.v", "B.v"),
    "means": ("SELECT B.v, avg(A.v) AS m FROM A [RANGE 20], B [RANGE 20] WHERE A.k = B.k GROUP BY B.v", "B.v"),
    "distinct": ("SELECT DISTINCT B.v FROM A [RANGE 20], B [RANGE 20] WHERE A.k = B.k", "B.v"),
    "above a join": (TWO_KEYS.replace("A.v AS a, C.v AS c", "C.v, min(A.v) AS m") + " GROUP BY C.v", BY_V),
    "having": (
        "SELECT ISTREAM B.v, count(*) AS n FROM A [RANGE 20], B [RANGE 20] WHERE A.k = B.k GROUP BY B.v"
        " HAVING count(*) > 2",
        "B.v",
    ),
    "counted above what is distinct by more": (
        f"SELECT g, count(*) AS n FROM (SELECT DISTINCT B.v AS g, A.v AS v {THREE}) AS d GROUP BY g",
        BY_V,
    ),
    "grouped above finer groups": (
        f"SELECT g, sum(m) AS s FROM (SELECT C.v AS g, A.v, count(*) AS m {THREE} GROUP BY C.v, A.v) AS d GROUP BY g",
        BY_V,
    ),
    "distinct above finer groups": (
        f"SELECT DISTINCT g, m FROM (SELECT B.v AS g, A.v AS v, count(*) AS m {THREE} GROUP BY B.v, A.v) AS d",
        BY_V,
    ),
    "changes of finer groups": (f"SELECT ISTREAM B.v AS g, count(*) AS n {THREE} GROUP BY B.v, A.v", BY_V),
    "changes of what was distinct by more": (
        f"SELECT DSTREAM g FROM (SELECT DISTINCT B.v AS g, A.v AS v {THREE}) AS d",
        BY_V,
    ),
}


@pytest.mark.parametrize("name", always(6, reversed(MERGED)))
def test_slots_share_a_key_that_is_aggregated_or_distinct_in_a_later_stage(name, tmp_path):
    (query, by), inputs = MERGED[name], skewed()
    inputs = {stream: table for stream, table in inputs.items() if f"{stream} [" in query}
    plan = "((A B) C)" if "C" in inputs else None
    chain = opened(query, tmp_path, inputs, plan, slots=3)
    plain, parts = chain.query.staged, chain.cut(inputs, 60)
    for part in parts[:3]:
        chain.batch(part)
    group, merging = hottest_of(chain, by), merging_for(chain.driver.queries, "B.v", by)
    assert merging == ("q",)
    chain.driver.apply(GroupSpread(SpreadGroup(group, "B.v", 3, "a test", merging=merging, key_class=by)))
    there = set[int]()
    for number, part in enumerate(parts[3:8]):
        if number == 2:
            chain = opened(query, tmp_path, inputs, plan)
        for report in chain.batch(part).reports:
            there |= {report.slot} if report.traffic.exchanged.get(by, {}).get("B.v", {}).get(group) else set()
    (shared,) = chain.manifest.slots.shared
    assert (shared.key_class, shared.group, len(shared.slots)) == (by, group, 3)
    assert len(chain.query.staged.fragments) == len(plain.fragments) + 1
    assert f"parts of {by}" in key_classes(chain.query.staged)
    assert len(there) > 1
    chain.driver.apply(GroupBroughtHome((by, group)))
    for part in parts[8:]:
        chain.batch(part)
    assert not chain.manifest.slots.shared and not any(map(any, chain.manifest.slots.merging.values()))
    assert str(chain.query.staged) == str(plain)
    assert owned(chain)
    chain.batch({}, end=True)
    assert ms.snapshot_equal(chain.results(), ms.reference(query, inputs))


def test_a_stream_that_arrives_by_another_querys_key_is_aggregated_in_parts(tmp_path):
    inputs = {"B": skewed(hot=0.8, keys=30)["B"]}
    with ms.Session(on="local", checkpoint=str(tmp_path), slots=3) as session:
        session.stream("B", inputs["B"].schema, time="ts")
        session.query("by_key", "SELECT k, count(*) AS n FROM B [RANGE 20] GROUP BY k")
        counted = session.query("counted", "SELECT v, count(*) AS n FROM B [RANGE 20] GROUP BY v")
        distinct = session.query("distinct", "SELECT DISTINCT v FROM B [RANGE 20]")
        session.start()
        shared = set[str | None]()
        for start in range(0, 120, 12):
            ticks = inputs["B"]["ts"].to_numpy()
            session.push("B", inputs["B"].filter(pa.array((ticks >= start) & (ticks < start + 12))))
            session.rebalance()
            manifest = CheckpointStore(str(tmp_path)).latest()
            assert manifest is not None
            shared |= {group.key_class for group in manifest.slots.shared}
        session.finish()
        assert shared == {"B.v"}
        for query in (counted, distinct):
            assert ms.snapshot_equal(query.table(), ms.reference(query.cql, inputs))


@pytest.mark.parametrize("name", ["counted", "distinct"])
def test_an_aggregated_key_of_a_later_stage_is_divided_by_itself(name, tmp_path):
    (query, by), inputs = MERGED[name], skewed(hot=0.9, keys=20)
    inputs = {stream: inputs[stream] for stream in "AB"}
    chain = opened(query, tmp_path, inputs, None, slots=3)
    chain.driver.deciding = SlotDecisions(hot=HotPolicy(), measure=by_rows)
    for part in chain.cut(inputs, 60):
        chain.batch(part)
    spread = [record for record in chain.manifest.slots.decisions if record["action"] == "spread"]
    assert spread, [record["reason"] for record in chain.manifest.slots.decisions]
    assert spread[0]["by"] == by and chain.manifest.slots.shared[0].key_class == by
    chain.batch({}, end=True)
    assert ms.snapshot_equal(chain.results(), ms.reference(query, inputs))


def test_a_group_of_a_later_stage_is_divided_by_itself(tmp_path):
    inputs = skewed(hot=0.9, keys=20)
    chain = opened(TWO_KEYS, tmp_path, inputs, slots=3)
    chain.driver.deciding = SlotDecisions(hot=HotPolicy(), measure=by_rows)
    for part in chain.cut(inputs, 60):
        chain.batch(part)
    spread = [record for record in chain.manifest.slots.decisions if record["action"] == "spread"]
    assert spread, [record["reason"] for record in chain.manifest.slots.decisions]
    assert spread[0]["by"] == BY_V
    assert chain.manifest.slots.shared[0].key_class == BY_V
    chain.batch({}, end=True)
    assert as_multiset(chain.results()) == as_multiset(ms.run(TWO_KEYS, inputs))


def test_a_session_deals_a_class_and_says_so(tmp_path):
    inputs = many_keys(rows=40, last=80)
    with ms.Session(on="local", checkpoint=str(tmp_path), slots=2) as session:
        for name, table in inputs.items():
            session.stream(name, table.schema)
        query = session.query("q", KEYS, plan="((A B) C)")
        session.start()
        session.push({name: table.slice(0, 20) for name, table in inputs.items()})
        assert session.rebalance([1] * 256, by="B.v")
        session.push({name: table.slice(20) for name, table in inputs.items()})
        assert f"Groups by {BY_V} are dealt apart: 0 in slot 0, 256 in slot 1" in query.explain()
    found = ms.open(str(tmp_path)).slots
    assert [(known.by, known.apart, known.groups) for known in found.key_classes] == [(BY_V, True, (0, 256))]
    assert sum(found.rows) == pytest.approx(sum(found.loads), abs=0.5)


def test_a_class_that_is_not_there_and_protocols_for_arriving_rows_are_refused(tmp_path):
    inputs = many_keys(rows=30, last=60)
    chain = opened(KEYS, tmp_path, inputs)
    chain.batch(chain.cut(inputs, 12)[0])
    with pytest.raises(ms.MidstreamError, match=r"nothing is exchanged by A\.v") as refused:
        chain.driver.rebalance(None, key_class="A.v")
    assert refused.value.detail == f"the key classes of this job are {BY_V}"
    with pytest.raises(ms.MigrationError, match=f"split_time_balancing cannot move groups by {BY_V}"):
        chain.driver.rebalance([1] * 256, "split_time_balancing", BY_V)
    with pytest.raises(ms.MidstreamError, match="names the slot of each of the 256"):
        chain.driver.rebalance([1] * 255, key_class=BY_V)
