"""Adaptive queries in slots: what slots see is what one place would see, and what is decided outlives everything."""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.generators import RELATIONAL, random_case
from tests.job.chain import Chain
from tests.profiles import always

import midstream as ms
from midstream.adaptation.observer import Observer
from midstream.adaptation.policy import Policy
from midstream.adaptation.sampling import LOOK_AT, choose, put_together
from midstream.algebra.statistics import Statistics
from midstream.api import Question, ask
from midstream.interface.cli.decided import decided, decided_text
from midstream.interface.demo.check import compare
from midstream.interface.demo.streams import SECOND, START, Scenario, generate
from midstream.job.adaptivity import ATTENTION
from midstream.job.commands.accounts import decisions_of, history_of, statistics_of
from midstream.job.task.reports import SampledSource, SampleRequest, Samples, add_samples, sampled
from midstream.lab.bench.adaptivity_streams import Phase, chain_columns, chain_query, record

EAGER = Policy("auto", least_gain=0.01, margin=0.1, evidence=0.0, patience=1, warm_up=2)
THETA = (
    "SELECT A.v AS a, B.v AS b FROM A [RANGE 50], B [RANGE 50], C [RANGE 50] "
    "WHERE A.k = B.k AND B.w = C.w AND A.v < 25 AND A.v < C.v"
)
ONE_KEY = (
    "SELECT A.v AS a, B.v AS b, C.v AS c FROM A [RANGE 50], B [RANGE 50], C [RANGE 50] WHERE A.k = B.k AND B.k = C.k"
)


def shifting(seed: int = 1) -> tuple[str, dict[str, pa.Table]]:
    """A chain whose first link is hot first, whose last link is hot later."""
    rates = {name: 2.0 for name in "ABC"}
    phases = [Phase(500, rates, {"ab": 20.0, "bc": 2000.0}), Phase(500, rates, {"ab": 2000.0, "bc": 20.0})]
    return chain_query("ABC", 100), record(chain_columns("ABC"), phases, seed)


def some(rows: int, last: int, seed: int = 3) -> dict[str, pa.Table]:
    random = np.random.default_rng(seed)

    def table() -> pa.Table:
        keys = np.minimum(random.zipf(1.3, rows), 400)
        columns = {"k": keys, "v": random.integers(0, 100, rows), "w": random.integers(0, 40, rows)}
        nulls = pa.array(columns["w"], mask=random.random(rows) < 0.1)
        return pa.table({**columns, "w": nulls, "ts": np.sort(random.choice(last, rows, replace=False))})

    return {name: table() for name in "ABC"}


def chain_of(question: Question, folder: Path, plan: str | None, policy: Policy, slots: int = 3) -> Chain:
    return Chain(question.plan, question.catalog, folder, slots=slots, plan=plan, adaptive=policy)


def seen_in(chain: Chain) -> dict[str, Any]:
    """What the observer knows; how wide rows are depends a little on how they lie in memory."""
    seen = chain.driver.watchers.by_query["q"].adaptive.observer.kept()
    for source in seen["sources"].values():
        source["width"] = round(source["width"] / 8)
    return seen


def as_multiset(table: pa.Table) -> list[str]:
    return sorted(map(str, table.to_pylist()))


@pytest.mark.parametrize("query", [THETA, ONE_KEY])
@pytest.mark.parametrize("rows", [120, 4 * LOOK_AT])
def test_slots_see_together_what_one_place_sees(query, rows, tmp_path):
    question = ask(query, some(3 * rows, 40 * rows))
    one, many = (chain_of(question, tmp_path / str(slots), "((A B) C)", Policy("suggest"), slots) for slots in (1, 5))
    for parts in one.cut(question.tables, 3 * rows):
        one.batch(parts)
        many.batch(parts)
        assert seen_in(one) == seen_in(many)
    assert one.query.staged.routes["C"].key != ("k",) or query is ONE_KEY


@pytest.mark.slow
def test_what_is_decided_is_verified_first_if_the_policy_says_so(tmp_path):
    query, tables = shifting()
    question = ask(query, tables)
    chain = chain_of(question, tmp_path, None, Policy(verify=50), 2)
    assert ms.snapshot_equal(chain.run(tables, 100), ms.run(query, tables, batch_rows=100))
    history = chain.manifest.account("q").history
    assert history and all(told["verified"]["difference"] is None for told in history)
    assert chain.query.plan.text == history[-1]["new_plan"]
    assert list(chain.manifest.queries) == ["q"]


def test_what_slots_see_is_about_right(tmp_path):
    """Against the same observer over the rows themselves, in one process."""
    tables = some(30_000, 10**6)
    question = ask(THETA, tables)
    chain = chain_of(question, tmp_path, "((A B) C)", Policy("suggest"), 4)
    for parts in chain.cut(question.tables, 9_000):
        chain.batch(parts)
    seen: Statistics = chain.driver.watchers.by_query["q"].observed
    selected = tables["A"].filter(pa.compute.field("v") < 25)
    shares = [np.bincount(t.column("k").to_numpy(), minlength=401) / t.num_rows for t in (selected, tables["B"])]
    equal = seen.equality(["A.k", "B.k"])
    assert equal is not None and equal.value == pytest.approx(float((shares[0] * shares[1]).sum()), rel=0.25)
    assert seen.selectivities["(A.v < 25)"].value == pytest.approx(0.25, rel=0.2)
    assert seen.selectivities["(A.v < C.v)"].value == pytest.approx(0.87, rel=0.25)
    assert seen.streams["A"].rate.value == pytest.approx(0.03, rel=0.1)
    assert seen.keys["A.k"].skew > 0.3 and sum(o.probed for o in seen.operators) > 0


@pytest.mark.parametrize("same_tick", [False, True])
def test_rows_are_chosen_the_same_however_they_lie(same_tick):
    random = np.random.default_rng(5)
    ticks = np.sort(random.integers(0, 50, 5000) if same_tick else random.choice(10**6, 5000, replace=False))
    whole = choose(ticks, 7)
    assert len(whole.places) == LOOK_AT and len(np.unique(whole.places)) == LOOK_AT
    assert np.array_equal(choose(ticks, 7).places, whole.places)
    assert not np.array_equal(choose(ticks, 8).places, whole.places)
    slot = random.integers(0, 3, 5000)
    parts = [choose(ticks[slot == s], 7, 700) for s in range(3)]
    complete = min(part.complete_to for part in parts)
    merged = np.sort(np.concatenate([p.priorities[p.priorities <= np.uint64(complete)] for p in parts]))
    if same_tick:
        # Rows of one time are numbered in each slot apart, so others are chosen, but no slot is preferred.
        counts = [int((p.priorities <= np.uint64(complete)).sum()) for p in parts]
        assert np.std(counts) < 0.2 * np.mean(counts)
    else:
        assert np.array_equal(merged[:LOOK_AT], whole.priorities[: len(merged)])


def test_a_slot_that_gets_its_rows_in_pieces_sees_the_same():
    tables = some(3 * LOOK_AT, 10**6)
    interests = Observer(ask(THETA, tables).plan, attention=ATTENTION).wanted
    request = SampleRequest("q", interests, {}, {"A": SampledSource("A", ("k", "v"), ("A.k", "A.v"))}, 3, LOOK_AT)
    (rows,) = tables["A"].combine_chunks().to_batches()
    ticks = rows.column("ts").to_numpy()
    whole = sampled([request], "A", rows, ticks)["q", "A"]
    pieces: Samples = {}
    slot = np.random.default_rng(1).integers(0, 4, len(ticks))
    for piece in range(4):
        places = np.flatnonzero(slot == piece)
        add_samples(pieces, sampled([request], "A", rows.take(pa.array(places)), ticks[places]))
    got = pieces["q", "A"]
    assert got.complete_to == whole.complete_to and got.rows == LOOK_AT
    assert np.array_equal(got.priorities, whole.priorities) and np.array_equal(got.passed, whole.passed)
    assert all(np.array_equal(got.hashes(text), whole.hashes(text)) for text in whole.keys)
    assert got.paired == whole.paired


def test_a_query_follows_its_streams_in_slots(tmp_path):
    query, tables = shifting()
    question = ask(query, tables)
    chain = chain_of(question, tmp_path, "(A (B C))", Policy("auto"))
    got = chain.run(question.tables, 150)
    decisions = decisions_of(chain.driver, "q")
    migrations = [d for d in decisions if d["action"] == "migrate"]
    assert len(migrations) == 1 and migrations[0]["moment"] > 500, decisions
    assert chain.query.plan.text == migrations[0]["target"] == "((A B) C)"
    (record,) = history_of(chain.driver, chain.query)
    assert record["trigger"] == migrations[0]["reason"] and record["status"] == "done"
    assert "Migrating." in record["trigger"]
    assert as_multiset(got) == as_multiset(ms.run(query, tables))
    observed = statistics_of(chain.driver, chain.query)["observed"]
    assert observed["streams"]["A"]["rate"] == pytest.approx(2.0, rel=0.2)
    assert len(chain.manifest.to_bytes()) < 200_000


def test_suggesting_never_migrates_in_slots(tmp_path):
    query, tables = shifting()
    question = ask(query, tables)
    chain = chain_of(question, tmp_path, "(A (B C))", Policy("suggest"))
    chain.run(question.tables, 150)
    actions = {d["action"] for d in decisions_of(chain.driver, "q")}
    assert "suggest" in actions and actions <= {"suggest", "stay"}
    assert chain.query.plan.text == "(A (B C))" and history_of(chain.driver, chain.query) == []


@pytest.mark.slow
@pytest.mark.parametrize("every", [2])
def test_restarts_change_nothing_of_what_is_seen_and_decided(every, tmp_path):
    """With a driver that starts anew every few batches, decisions and all that is known are the same."""
    query, tables = shifting()
    question = ask(query, tables)
    steady = chain_of(question, tmp_path / "steady", "(A (B C))", Policy("auto"))
    chain = chain_of(question, tmp_path / "restarted", "(A (B C))", Policy("auto"))
    for i, parts in enumerate(steady.cut(question.tables, 150)):
        steady.batch(parts)
        if i % every == 0:
            chain = chain_of(question, tmp_path / "restarted", "(A (B C))", Policy("auto"))
        chain.batch(parts)
        kept = [untimed(dict(c.manifest.account("q").knowledge or {})) for c in (steady, chain)]
        assert kept[0] == kept[1], f"batch {i}"
    assert chain.query.plan.text == steady.query.plan.text == "((A B) C)"


UNTIMED = ("seconds_per_row", "purge_seconds", "seconds", "purging", "rows", "state_bytes")


def untimed(kept: dict[str, Any]) -> dict[str, Any]:
    """What is kept, without what depends on the clock or on how exchanged rows are dealt."""
    kept = json.loads(json.dumps(kept))
    kept["plans"].get("changes", {}).pop("made", None)
    for source in kept["observer"]["sources"].values():
        source.pop("width", None)
    timed = [*kept["observed"].get("operators", ()), *(told for _, _, told in kept["operators"])]
    for told, name in itertools.product(timed, UNTIMED):
        told.pop(name, None)
    return kept


@pytest.mark.slow
def test_a_batch_that_fails_before_its_commit_is_forgotten(tmp_path):
    """The driver lives on, and what it had learnt from the batch is not counted twice."""
    query, tables = shifting()
    question = ask(query, tables)
    steady = chain_of(question, tmp_path / "steady", "(A (B C))", Policy("auto"))
    chain = chain_of(question, tmp_path / "failing", "(A (B C))", Policy("auto"))
    for i, parts in enumerate(steady.cut(question.tables, 150)):
        steady.batch(parts)
        if i % 3 == 0 or list(chain.driver.watchers.wishes(chain.driver.state)):
            with pytest.raises(Stopped), pytest.MonkeyPatch.context() as patch:
                patch.setattr(chain.driver.store, "commit", stop)
                chain.batch(parts)
        chain.batch(parts)
        assert decisions_of(chain.driver, "q") == decisions_of(steady.driver, "q")
        assert seen_in(chain) == seen_in(steady)
    assert chain.query.plan.text == "((A B) C)"


class Stopped(Exception):
    """The driver stops here."""


def stop(*_: Any) -> None:
    raise Stopped


@pytest.mark.parametrize("seed", always(2, range(15)))
def test_adapting_eagerly_never_changes_an_answer_in_slots(seed, tmp_path):
    case = random_case(700 + seed, RELATIONAL, most_rows=30)
    question = ask(case.query, case.inputs, time=case.time)
    expected = ms.run(case.query, case.inputs, time=case.time)
    got = chain_of(question, tmp_path, None, EAGER, 1 + seed % 4).run(question.tables, 4)
    same = ms.snapshot_equal(got, expected)
    assert same, f"{case.replay()}\n{same}"


def test_turned_off_a_query_keeps_its_decisions_and_stays(tmp_path):
    query, tables = shifting()
    question = ask(query, tables)
    parts = Chain(question.plan, question.catalog, tmp_path / "cut", plan="(A (B C))").cut(question.tables, 150)
    chain = chain_of(question, tmp_path / "q", "(A (B C))", Policy("auto"))
    for part in itertools.takewhile(lambda _: chain.driver.watchers.by_query["q"].wish is None, parts):
        chain.batch(part)
    before = decisions_of(chain.driver, "q")
    assert before[-1]["action"] == "migrate"
    chain = Chain(question.plan, question.catalog, tmp_path / "q")
    chain.batch({})
    assert chain.query.migration is None and chain.query.plan.text == "(A (B C))"
    assert decisions_of(chain.driver, "q") == before


def test_a_wish_waits_for_a_driver(tmp_path):
    """Decided with one manifest, the migration begins with the next batch, whoever runs it."""
    query, tables = shifting()
    question = ask(query, tables)
    chain = chain_of(question, tmp_path, "(A (B C))", Policy("auto"))
    parts = chain.cut(question.tables, 150)
    while chain.driver.watchers.by_query["q"].wish is None:
        chain.batch(parts[chain.next_batch])
    assert chain.query.migration is None
    chain = chain_of(question, tmp_path, None, Policy("auto"))
    chain.batch(parts[chain.next_batch])
    # What fits into a batch has gone over with it already.
    going = chain.manifest.account("q").plans.migration
    assert (chain.query.plan.text if going is None else going.plan) == "((A B) C)"


@pytest.mark.parametrize("part", ["observer", "plans", "wish"])
def test_what_cannot_be_read_is_seen_anew(part, tmp_path, caplog):
    query, tables = shifting()
    question = ask(query, tables)
    chain = chain_of(question, tmp_path, "(A (B C))", Policy("auto"))
    parts = chain.cut(question.tables, 150)
    for i in range(6):
        chain.batch(parts[i])
    watcher = chain.driver.watchers.by_query["q"]
    kept = {name: value for name, value in watcher.kept().items() if name != part}
    watcher.go_on(5, kept, chain.query.plan)
    assert watcher.adaptive.observer.batches == 0 and "is not used" in caplog.text
    chain.batch(parts[6])
    assert watcher.adaptive.batches == 1


@pytest.mark.parametrize("slots", [3])
def test_the_demonstration_decides_once(slots, tmp_path):
    scenario = Scenario(seconds=16)
    batches = generate(scenario)
    tables = {name: pa.concat_tables([batch[name] for batch in batches]) for name in batches[0]}
    question = ask(scenario.query, tables)
    chain = chain_of(question, tmp_path, scenario.old_plan, Policy("auto"), slots)
    for batch in batches:
        chain.batch({name: rows.combine_chunks().to_batches()[0] for name, rows in batch.items()})
    chain.batch({}, end=True)
    (made,) = [d for d in decisions_of(chain.driver, "q") if d["action"] == "migrate"]
    assert chain.manifest.queries["q"].time == "timestamp"
    told = decided(str(tmp_path), "q")
    assert told["why"] == decisions_of(chain.driver, "q")[-1]["reason"] and told["plan"] == made["target"]
    text = decided_text(told)
    assert re.search(r"^A: [\d,]+ per second", text, re.M), text[:800]
    assert "at 2023-11-14 22:13:" in text
    assert made["reason"] in text
    assert made["moment"] >= START + scenario.flips_at * SECOND
    assert chain.query.plan.text == made["target"] and len(history_of(chain.driver, chain.query)) == 1
    assert compare(chain.results(), batches, scenario).right


def test_an_expression_that_cannot_be_computed_is_not_looked_at():
    tables = some(50, 1000)
    relation = ask("SELECT A.k FROM A [RANGE 9], B [RANGE 9] WHERE A.k + 1 = B.k", tables).plan
    observer = Observer(relation, attention=ATTENTION)
    rows = pa.RecordBatch.from_pydict({"k": pa.array([2**63 - 1, 1])})
    request = SampleRequest("q", observer.wanted, {}, {"A": SampledSource("A", ("k",), ("A.k",))}, 0, 8)
    choice = choose(np.array([1, 2]), 0)
    assert request.sample("A", rows, choice) is None
    look = request.sample("A", rows.slice(1), choose(np.array([2]), 0))
    assert look is not None and put_together([look]).rows == 1


def exploding() -> tuple[str, dict[str, pa.Table]]:
    """Any two streams join to many rows, all three to few."""
    random, tables = np.random.default_rng(4), {}
    for name in "ABC":
        keys = {column: random.integers(0, 12, 1600) for column in "ab"}
        ticks = np.sort(random.integers(0, 1200, 1600))
        tables[name] = pa.table({"ts": ticks, **keys, "v": random.integers(0, 1000, 1600)})
    streams = ", ".join(f"{name} [RANGE 100]" for name in "ABC")
    where = "A.b = B.a AND B.b = C.a AND A.v + B.v + C.v < 150"
    return f"SELECT A.v AS u, B.v AS v, C.v AS w FROM {streams} WHERE {where}", tables


def test_a_query_whose_intermediate_results_explode_goes_over_to_a_routed_join(tmp_path):
    query, tables = exploding()
    question = ask(query, tables)
    chain = chain_of(question, tmp_path, "((A B) C)", Policy("auto"))
    got = chain.run(question.tables, 240)
    (migration,) = [d for d in decisions_of(chain.driver, "q") if d["action"] == "migrate"]
    assert "<-" in chain.query.plan.text and chain.query.plan.text == migration["target"], migration
    (record,) = history_of(chain.driver, chain.query)
    assert record["status"] == "done" and record["trigger"] == migration["reason"]
    assert as_multiset(got) == as_multiset(ms.run(query, tables))


def test_plans_of_several_stages_are_decided_upon_while_groups_move(tmp_path):
    query, inputs = shifting()
    question = ask(query, inputs)
    chain = chain_of(question, tmp_path, "(A (B C))", EAGER, 2)
    both = 0
    for number, part in enumerate(chain.cut(question.tables, 200)):
        if number == 14:
            chain.driver.rebalance([1] * 100 + [0] * 156, protocol="split_time_balancing")
        chain.batch(part)
        both += chain.manifest.slots.doubled is not None and chain.query.migration is not None
    chain.batch({}, end=True)
    assert both and [move["start_batch"] for move in chain.manifest.slots.moves if "protocol" in move] == [14]
    assert ms.snapshot_equal(chain.results(), ms.run(query, inputs))
