"""Streams that live at sites: their rows come in at slots of their own, and windows by key are kept there."""

from __future__ import annotations

from random import Random

import pyarrow as pa
import pytest
from tests.distribution.routed.joins import draw_join, draw_plan
from tests.profiles import always

import midstream as ms
from midstream.algebra.physical import walk_physical
from midstream.algebra.physical.routed import OneWayJoin
from midstream.cluster.checkpoint_session import CheckpointSession

SITES = {"eu": [0, 1], "us": [2]}
SCHEMA = pa.schema([("ts", pa.int64()), ("k", pa.int64()), ("v", pa.int64())])
CHAIN = "SELECT A.v AS a, C.v AS c FROM A [RANGE 5], B [RANGE 5], C [RANGE 5] WHERE A.k = B.k AND B.v = C.v"


def session_on(folder, sites=SITES, slots=3, **options) -> CheckpointSession:
    return CheckpointSession(None, checkpoint=str(folder), on="local", slots=slots, sites=sites, **options)


@pytest.mark.parametrize("seed", always(2, range(40)))
def test_joins_of_streams_at_sites_agree_with_the_oracle(seed, tmp_path):
    """By any kind of plan, across a migration and a restart."""
    random = Random(seed)
    joined = draw_join(random, 3 + seed % 2, 12)
    first = str(draw_plan(random, joined.query.conditions))
    second = random.choice([str(draw_plan(random, joined.query.conditions)), None])
    homes = {name: random.choice(["eu", "us", None]) for name in joined.tables}
    at = random.randrange(1, 6)
    for part in range(2):
        with session_on(tmp_path) as session:
            for name, table in joined.tables.items():
                session.stream(name, table.schema, site=homes[name])
            query = session.query("q", joined.text, plan=first)
            session.start()
            for number in range(8):
                if part == 0 and number == at and second is not None:
                    query.migrate(second, "moving_state")
                session.push({name: _span(table, 8 * part + number) for name, table in joined.tables.items()})
            if part == 1:
                session.finish()
                found = query.table()
    same = ms.snapshot_equal(found, ms.reference(joined.text, joined.tables))
    assert same, f"{same}\n{joined.text}\n{first} to {second} with {homes}"


def _span(table: pa.Table, number: int) -> pa.Table:
    """The rows of one sixteenth of all time."""
    times = table.column("ts").to_numpy()
    return table.filter(pa.array((times * 16 // (times.max() + 1)).clip(0, 15) == number))


def opened(folder, **homes):
    session = session_on(folder)
    for name in "ABC":
        session.stream(name, SCHEMA, site=homes.get(name))
    return session


def table(*rows: tuple[int, int, int]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in rows], schema=SCHEMA)


def test_windows_by_key_are_kept_in_the_slots_of_their_streams_site(tmp_path):
    with opened(tmp_path, A="eu", B="us", C="eu") as session:
        session.query("q", CHAIN, plan="A -> B@us -> C, B -> A -> C@eu, C -> B -> A")
        session.start()
        session.push({name: [{"ts": i, "k": i % 7, "v": i % 5} for i in range(60)] for name in "ABC"})
        manifest, staged = session._job.manifest, session._job.queries["q"].staged
    kept = {str(name): set(manifest.segments["q"].get(number, {})) for name, number in staged.windows.items()}
    assert kept == {"by A.k": {0, 1}, "by B.k": {2}, "by B.v": {2}, "by C.v": {0, 1}}
    probes = [n for f in staged.fragments for n in walk_physical(f.plan) if isinstance(n, OneWayJoin)]
    assert len(probes) == 6


def test_a_copied_window_is_kept_in_the_slots_of_the_sites_that_probe_it_alone(tmp_path):
    """Through plans that copy B to eu, A and C to us, and nothing: no result is lost on the way."""
    plans = [
        "A <- B -> C, B -> A -> C, C <- B -> A",
        "A -> B <- C, B <- A <- C, C -> B <- A",
        "A -> B -> C, B -> A -> C, C -> B -> A",
    ]
    rows = {name: [(i, i % 7, i % 5) for i in range(60)] for name in "ABC"}
    kept = []
    with opened(tmp_path, A="eu", B="us", C="eu") as session:
        query = session.query("q", CHAIN, plan=plans[0])
        session.start()
        for number in range(3):
            if number:
                query.migrate(plans[number], "moving_state")
            session.push({name: table(*each[20 * number : 20 * number + 20]) for name, each in rows.items()})
            windows, segments = session._job.queries["q"].staged.windows, session._job.manifest.segments["q"]
            copied = [set(segments.get(place, {})) for name, place in windows.items() if name.everywhere]
            kept.append(copied)
        session.finish()
        found = query.table()
    assert kept == [[{0, 1}, {0, 1}], [{2}, {2}], []]  # B by the keys of A and of C; A and C by one each
    same = ms.snapshot_equal(found, ms.reference(CHAIN, {name: table(*each) for name, each in rows.items()}))
    assert same and found.num_rows, str(same)


def test_a_plan_that_names_another_site_is_refused_at_the_place(tmp_path):
    with opened(tmp_path, A="eu") as session, pytest.raises(ms.QueryError) as refused:
        session.query("q", CHAIN, plan="A -> B -> C, B -> A@us -> C, C -> B -> A")
    shown = str(refused.value)
    assert "the plan names the site us, at which A does not live" in shown and "A@eu" in shown
    line, caret = next((a, b) for a, b in zip(shown.split("\n"), shown.split("\n")[1:], strict=False) if "^" in b)
    assert line[caret.index("^") :].startswith("@us")


def test_a_site_that_nobody_declared_is_refused(tmp_path):
    with session_on(tmp_path) as session, pytest.raises(ms.MidstreamError, match="site 'asia', which is not declared"):
        session.stream("A", SCHEMA, site="asia")
    with pytest.raises(ms.MidstreamError, match="live at no site"):
        ms.Session().stream("A", SCHEMA, site="eu")


@pytest.mark.parametrize(
    ("sites", "slots", "words"),
    [
        ({"eu": [0, 5]}, 3, "names slot 5, which the job does not have"),
        ({"eu": []}, 3, "is a list of slots"),
        ({"eu": "01"}, 3, "is a list of slots"),
        ({"e@u": [0]}, 3, "cannot name a site"),
    ],
)
def test_sites_that_cannot_be_are_refused(sites, slots, words, tmp_path):
    with pytest.raises(ms.MidstreamError, match=words):
        session_on(tmp_path, sites, slots)


def test_slots_are_fixed_where_streams_live_at_sites(tmp_path):
    with pytest.raises(ms.MidstreamError, match="a job with sites has no rebalancing"):
        session_on(tmp_path, rebalancing=True)
    with opened(tmp_path, A="eu") as session:
        session.query("q", CHAIN)
        for change in (lambda: session.rescale(2), session.rebalance):
            with pytest.raises(ms.MidstreamError, match="a job with sites cannot"):
                change()


def test_a_stream_lives_only_in_slots_that_the_job_has(tmp_path):
    with session_on(tmp_path) as session:
        session.stream("A", SCHEMA)
        session.query("q", "SELECT v FROM A [NOW]")
        session.start()
        session.push({"A": table((0, 1, 1))})
        session.rescale(2)
        with pytest.raises(
            ms.errors.JobError, match="stream C cannot live at a site yet: the job goes over from 3 to 2"
        ):
            session.stream("C", SCHEMA, site="us")
        session.push({"A": table((1, 1, 1))})
        with pytest.raises(ms.errors.JobError, match="stream C would live in slot 2, which the job does not have"):
            session.stream("C", SCHEMA, site="us")
        session.push({"A": table((2, 1, 1))})
    with pytest.raises(
        ms.errors.JobError, match="site us names slot 2"
    ):  # the job keeps the slots that it was asked for
        session_on(tmp_path, slots=3)
    with session_on(tmp_path, slots=4) as again:
        again.stream("A", SCHEMA)
        again.query("q", "SELECT v FROM A [NOW]")
        again.start()
        again.push({"A": table((3, 1, 1))})
        again.stream("C", SCHEMA, site="us")
        again.query("late", "SELECT v FROM C [NOW]")
        again.push({"A": table((4, 1, 1)), "C": table((4, 2, 7))})
        again.finish()
        assert again.queries["late"].table()["v"].to_pylist() == [7]
        assert len(again.queries["q"].table()) == 5


def test_a_stream_cannot_move_between_sites_on_a_checkpoint(tmp_path):
    with opened(tmp_path, A="eu") as session:
        session.query("q", CHAIN)
        session.start()
        session.push("A", [{"ts": 1, "k": 1, "v": 1}])
    with session_on(tmp_path) as session, pytest.raises(ms.MidstreamError, match="stream A cannot move"):
        session.stream("A", SCHEMA, site="us")


def test_bytes_between_slots_are_counted_by_pair_and_kept_in_the_metrics(tmp_path):
    """Rows of A come in at slots 0 and 1, and its partners live in slot 2: every byte of A goes there."""
    seen = []
    with session_on(tmp_path) as session:
        session.stream("A", SCHEMA, site="eu").stream("B", SCHEMA, site="us")
        query = "SELECT A.v AS a, B.v AS b FROM A [RANGE 5], B [RANGE 5] WHERE A.k = B.k"
        session.query("q", query, plan="A -> B, B <- A")
        session.on_progress(lambda event: seen.append(event["moved"]))
        session.start()
        session.push({name: [{"ts": i, "k": i % 7, "v": i % 5} for i in range(60)] for name in "AB"})
        told = session.metrics().column("moved").to_pylist()
    assert {pair.split(" to ")[0] for pair in seen[0]} <= {"0", "1"}, "B's rows stay where its window is"
    assert seen[0]["0 to 2"] > 0 and seen[0]["1 to 2"] > 0
    assert dict(told[0]) == seen[0]


def test_explain_tells_the_rows_that_move_beside_what_was_expected(tmp_path):
    """Rows of both streams come in at a site, so each of them moves once to where it meets the others."""
    with session_on(tmp_path, {"eu": [0, 1, 2]}) as session:
        session.stream("A", SCHEMA, site="eu").stream("B", SCHEMA, site="eu")
        text = "SELECT A.v AS a, B.v AS b FROM A [RANGE 5], B [RANGE 5] WHERE A.k = B.k"
        query = session.query("q", text, plan="(A B)", adaptive="suggest")
        session.start()
        for start in range(0, 300, 60):
            session.push({name: [{"ts": start + i, "k": i % 7, "v": i % 5} for i in range(60)] for name in "AB"})
        told = query.explain().split("\n")
    (line,) = (line for line in told if line.startswith("Rows between stages"))
    assert line.startswith("Rows between stages in the last batch: 120, ") and "were expected" in line


def test_sites_are_not_those_of_the_same_query_elsewhere(tmp_path):
    for turn, sites in enumerate([{}, {"B": "us"}]):
        with session_on(tmp_path / str(turn)) as session:
            for name in "ABC":
                session.stream(name, SCHEMA, site=sites.get(name))
            where = "B@us" if sites else "B"
            query = session.query("q", CHAIN, plan=f"A -> {where} -> C, B -> A -> C, C -> B -> A")
            assert "B" in query.plan.text
