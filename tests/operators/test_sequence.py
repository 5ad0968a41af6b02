from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.profiles import examples

import midstream as ms
from midstream.inputs import catalog_of
from midstream.language import parse
from midstream.operators import pairing, sequence
from midstream.operators.box import Box
from midstream.operators.elements import Elements
from midstream.optimizer.plans import plan_query

MODES = ("RECENT", "CHRONICLE", "ALL")
CASES = pa.table({"ts": [1, 5, 5, 9], "id": [1, 2, 3, 4], "lane": [1, 1, 1, 2]})
PRODUCTS = pa.table({"ts": [2, 5, 6, 10, 30], "id": [10, 20, 30, 40, 50], "lane": [1, 1, 1, 2, None]})


def pairs(query: str, **inputs: pa.Table) -> list[tuple[object, ...]]:
    table = ms.run(query, inputs, batch_rows=3)
    assert ms.snapshot_equal(table, ms.reference(query, inputs))
    return [tuple(row.values())[:-2] for row in table.to_pylist()]


def asked(mode: str, rest: str = "ON c.lane = p.lane") -> str:
    return f"SELECT c.id, p.id AS product FROM cases AS c FOLLOWED BY products AS p {mode} {rest}"


def test_recent_takes_the_latest_first_and_ties_count_as_before():
    assert pairs(asked("RECENT"), cases=CASES, products=PRODUCTS) == [(1, 10), (3, 20), (3, 30), (4, 40)]


def test_chronicle_uses_each_first_once_and_the_earliest_first():
    assert pairs(asked("CHRONICLE"), cases=CASES, products=PRODUCTS) == [(1, 10), (2, 20), (3, 30), (4, 40)]


def test_all_takes_every_first():
    found = pairs(asked("ALL"), cases=CASES, products=PRODUCTS)
    assert sorted(found) == [(1, 10), (1, 20), (1, 30), (2, 20), (2, 30), (3, 20), (3, 30), (4, 40)]


def test_chronicle_discards_a_first_that_is_too_old_before_pairing():
    cases = pa.table({"ts": [0, 8], "id": [1, 2]})
    products = pa.table({"ts": [10, 11], "id": [10, 20]})
    assert pairs(asked("CHRONICLE", "WITHIN 5"), cases=cases, products=products) == [(2, 10)]


def test_chronicle_does_not_use_up_what_its_condition_rejects():
    cases = pa.table({"ts": [1, 2], "id": [5, 1]})
    products = pa.table({"ts": [3, 4, 5], "id": [3, 9, 9]})
    assert pairs(asked("CHRONICLE", "ON c.id < p.id"), cases=cases, products=products) == [(1, 3), (5, 9)]


def test_the_row_before_can_be_asked_for():
    rows = pa.table({"ts": [1, 3, 3, 8], "id": [1, 2, 2, 4]})
    recent = "SELECT a.id, b.id AS next FROM S AS a FOLLOWED BY S AS b"
    assert pairs(recent, S=rows) == [(2, 2), (2, 2), (2, 4)], "two equal rows are still two rows"
    assert pairs(recent + " ON a.ts < b.ts", S=rows) == [(1, 2), (1, 2), (2, 4)]
    chronicle = "SELECT a.id, b.id AS next FROM S AS a FOLLOWED BY S AS b CHRONICLE"
    assert pairs(chronicle, S=rows) == [(1, 2), (2, 2), (2, 4)]
    assert pairs(chronicle, S=rows.slice(0, 1)) == []
    after = "SELECT a.id, b.id AS next FROM S AS a ASOF JOIN S AS b ON a.ts <= b.ts"
    assert pairs(after, S=rows) == [(1, 2), (2, 2), (2, 2)]


TRADES = pa.table({"ts": [2, 5, 9], "id": [1, 2, 3]})
QUOTES = pa.table({"ts": [1, 2, 5, 5, 7], "id": [10, 20, 30, 40, 50]})


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("t.ts >= q.ts", [(1, 20), (2, 40), (3, 50)]),
        ("q.ts <= t.ts", [(1, 20), (2, 40), (3, 50)]),
        ("t.ts > q.ts", [(1, 10), (2, 20), (3, 50)]),
        ("t.ts <= q.ts", [(1, 20), (2, 30)]),
        ("t.ts < q.ts", [(1, 30), (2, 50)]),
        ("t.ts <= q.ts AND t.ts >= q.ts", [(1, 20), (2, 30)]),
        ("t.ts > q.ts AND t.id > 1", [(2, 20), (3, 50)]),
    ],
)
def test_an_inequality_of_times_is_what_asof_matches_by(condition, expected):
    query = f"SELECT t.id, q.id AS quote FROM trades AS t ASOF JOIN quotes AS q ON {condition}"
    assert pairs(query, trades=TRADES, quotes=QUOTES) == expected


def test_a_later_match_happens_when_it_comes_and_its_absence_when_it_is_known():
    query = "SELECT t.id, q.id AS quote FROM trades AS t ASOF LEFT JOIN quotes AS q ON t.ts < q.ts WITHIN 2"
    found = ms.run(query, {"trades": TRADES, "quotes": QUOTES}, batch_rows=1)
    assert ms.snapshot_equal(found, ms.reference(query, {"trades": TRADES, "quotes": QUOTES}))
    shown = [(row["id"], row["quote"], row["valid_from"]) for row in found.to_pylist()]
    assert shown == [(1, None, 4), (2, 50, 7), (3, None, 11)]


def test_asof_left_join_pads_what_has_no_first():
    query = "SELECT p.id, c.id AS case_id FROM products AS p ASOF LEFT JOIN cases AS c ON c.lane = p.lane"
    found = pairs(query, cases=CASES, products=PRODUCTS)
    assert found == [(10, 1), (20, 3), (30, 3), (40, 4), (50, None)]


def test_a_chain_continues_from_the_time_of_its_last_pair():
    a, b, c = (pa.table({"ts": [t], "id": [t]}) for t in (1, 3, 5))
    query = "SELECT A.id, B.id AS b, C.id AS c FROM A FOLLOWED BY B FOLLOWED BY C"
    assert pairs(query, A=a, B=b, C=c) == [(1, 3, 5)]
    assert pairs(f"{query} WITHIN 1", A=a, B=b, C=c) == []


def test_a_late_first_is_not_missed():
    cases = pa.table({"ts": [1, 20, 6], "id": [1, 9, 2]})
    products = pa.table({"ts": [7, 21], "id": [10, 20]})
    query = asked("RECENT", "")
    late = ms.run(query, {"cases": cases, "products": products}, batch_rows=1, lateness=20)
    assert ms.snapshot_equal(late, ms.reference(query, {"cases": cases, "products": products}))
    assert [row["id"] for row in late.to_pylist()] == [2, 9]


keys = st.sampled_from([0, 1, 1, 2, None])
doubles = st.sampled_from([0.0, -0.0, 1.5, float("nan"), None])


@st.composite
def streams(draw: st.DrawFn, rows: int) -> pa.Table:
    times = draw(st.lists(st.integers(0, 12), max_size=rows))
    columns = {
        "z": pa.array([draw(st.integers(0, 2)) for _ in times], pa.int64()),
        "k": pa.array([draw(keys) for _ in times], pa.int64()),
        "ts": pa.array(times, pa.int64()),
        "f": pa.array([draw(doubles) for _ in times], pa.float64()),
        "a": pa.array([draw(st.sampled_from(["x", "y", None])) for _ in times], pa.string()),
    }
    return pa.table(columns)


@st.composite
def steps(draw: st.DrawFn, first: str, second: str) -> str:
    parts = [draw(st.sampled_from(MODES))]
    conditions = [
        *draw(st.sampled_from([[], [f"{first}.k = {second}.k"], [f"{first}.k + 1 = {second}.z"]])),
        *draw(st.sampled_from([[], [], [f"{first}.f = {second}.f"]])),
        *draw(st.sampled_from([[], [], [f"{first}.z <= {second}.z"]])),
    ]
    if conditions:
        parts.append("ON " + " AND ".join(conditions))
    within = draw(st.sampled_from([None, 0, 2, 5]))
    if within is not None:
        parts.append(f"WITHIN {within}")
    return f"FOLLOWED BY {second} {' '.join(parts)}"


@examples(60)
@given(data=st.data())
def test_sequences_mean_what_the_oracle_says_under_skew_ties_and_any_batches(data):
    inputs = {name: data.draw(streams(9), name) for name in "ABC"}
    chain = data.draw(st.booleans())
    query = "SELECT A.z AS az, A.a AS aa, A.ts AS ats, B.z AS bz, B.ts AS bts FROM A " + data.draw(steps("A", "B"))
    if chain:
        query = query.replace(" FROM A", ", C.z AS cz FROM A") + " " + data.draw(steps("B", "C"))
    found = ms.run(query, inputs, batch_rows=data.draw(st.integers(1, 12)), lateness=20)
    assert ms.snapshot_equal(found, ms.reference(query, inputs)), query


@examples(50)
@given(data=st.data())
def test_asof_joins_mean_what_the_oracle_says(data):
    inputs = {name: data.draw(streams(9), name) for name in "AB"}
    outer = data.draw(st.sampled_from(["", "LEFT "]))
    times = [f"B.ts {order} A.ts" for order in ("<=", "<", ">=", ">")]
    parts = [
        data.draw(st.sampled_from([*times, "A.ts <= B.ts"])),
        *data.draw(st.sampled_from([[], ["A.k = B.k"]])),
        *data.draw(st.sampled_from([[], [], ["A.z <= B.z"], [data.draw(st.sampled_from(times))]])),
    ]
    within = data.draw(st.sampled_from(["WITHIN 0", "WITHIN 3"] if outer else ["", "", "WITHIN 0", "WITHIN 3"]))
    inner = data.draw(st.sampled_from(["A", "A", "(SELECT ts, k, z, a FROM A WHERE z > 0) AS A"]))
    query = (
        "SELECT A.z AS az, A.a AS aa, A.ts AS ats, B.z AS bz, B.ts AS bts "
        f"FROM B ASOF {outer}JOIN {inner} ON {' AND '.join(parts)} {within}"
    )
    found = ms.run(query, inputs, batch_rows=data.draw(st.integers(1, 12)), lateness=20)
    assert ms.snapshot_equal(found, ms.reference(query, inputs)), query


@examples(40)
@given(data=st.data())
def test_what_is_not_followed_is_what_no_pair_of_the_sequence_has(data):
    inputs = {name: data.draw(streams(9), name) for name in "AB"}
    step = data.draw(steps("A", "B").filter(lambda step: "WITHIN" in step))
    for mode in MODES:
        step = step.replace(f" {mode}", "")
    strict = data.draw(st.sampled_from(["", "A.ts < B.ts AND "]))
    step = step.replace("ON ", f"ON {strict}") if "ON " in step else step
    # Rows are told apart by their numbers, which both sides have to bear.
    inputs["A"] = inputs["A"].append_column("n", pa.array(range(len(inputs["A"])), pa.int64()))
    source = data.draw(st.sampled_from(["A", "(SELECT * FROM A WHERE z > 0) AS A"]))
    query = f"SELECT A.n FROM {source} NOT {step}"
    found = ms.run(query, inputs, batch_rows=data.draw(st.integers(1, 12)), lateness=20)
    assert ms.snapshot_equal(found, ms.reference(query, inputs)), query
    followed = ms.run(f"SELECT A.n FROM {source} {step.replace(' B ', ' B ALL ', 1)}", inputs, lateness=20)
    wanted = [n for n, z in enumerate(inputs["A"]["z"].to_pylist()) if z > 0 or source == "A"]
    assert sorted(found["n"].to_pylist()) == sorted({*wanted} - {*followed["n"].to_pylist()}), query
    within = int(step.rpartition(" ")[2])
    assert [inputs["A"]["ts"][n].as_py() + within for n in found["n"].to_pylist()] == found["valid_from"].to_pylist()


ITSELF = (
    "S AS {0}",
    "S AS {0}",
    "(SELECT * FROM S WHERE z > 0) AS {0}",
    "(SELECT ts AS ts, k + 0 AS k, 1 AS z, f AS f, a FROM S) AS {0}",
    "(SELECT ts, k, z, f FROM S UNION ALL SELECT ts, k, z, f FROM T) AS {0}",
    "(SELECT ts, k, z, f FROM S UNION ALL SELECT ts, k, z + 1, f FROM S) AS {0}",
    "(SELECT x.ts AS ts, y.k AS k, x.z AS z, x.f AS f FROM S AS y FOLLOWED BY S AS x) AS {0}",
    "(SELECT x.ts AS ts, y.k AS k, x.z AS z, x.f AS f FROM S AS y FOLLOWED BY S AS x CHRONICLE) AS {0}",
    "(SELECT y.ts AS ts, x.k AS k, y.z AS z, y.f AS f FROM S AS x ASOF JOIN S AS y ON x.ts <= y.ts) AS {0}",
)


@examples(60)
@given(data=st.data())
def test_no_row_is_paired_with_itself(data):
    few = st.sampled_from([0, 1, 1, 2])
    inputs = {}
    for name in "ST":
        times = data.draw(st.lists(few, max_size=7))
        inputs[name] = pa.table(
            {
                "k": pa.array([data.draw(st.sampled_from([0, None])) for _ in times], pa.int64()),
                "ts": pa.array(times, pa.int64()),
                "z": pa.array([data.draw(st.integers(0, 1)) for _ in times], pa.int64()),
                "f": pa.array([data.draw(st.sampled_from([0.0, float("nan")])) for _ in times], pa.float64()),
                "a": pa.array([data.draw(st.sampled_from(["x", None])) for _ in times], pa.string()),
            }
        )
    first, second = (data.draw(st.sampled_from(ITSELF)).format(name) for name in "AB")
    asof = data.draw(st.booleans())
    step = data.draw(steps("A", "B")).replace(" B ", f" {second} ", 1)
    if asof:
        outer = data.draw(st.sampled_from(["", "LEFT "]))
        order = data.draw(st.sampled_from(["<=", "<", ">=", ">"]))
        step = f"ASOF {outer}JOIN {second} ON A.ts {order} B.ts WITHIN {data.draw(st.integers(0, 2))}"
    query = f"SELECT A.z AS az, A.k AS ak, A.ts AS ats, B.z AS bz, B.ts AS bts FROM {first} {step}"
    if asof and data.draw(st.booleans()):
        step = f"NOT FOLLOWED BY {second} ON A.k = B.k AND A.z <= B.z WITHIN {data.draw(st.integers(0, 2))}"
        query = f"SELECT A.z AS az, A.ts AS ats, C.z AS cz FROM {first} {step} FOLLOWED BY S AS C"
    if not asof and data.draw(st.booleans()):
        query = query.replace(" FROM ", ", C.z AS cz FROM ", 1) + f" {data.draw(steps('B', 'C'))}".replace(
            " C ", " S AS C ", 1
        )
    found = ms.run(query, inputs, batch_rows=data.draw(st.integers(1, 8)), lateness=20)
    assert ms.snapshot_equal(found, ms.reference(query, inputs)), query


def drawn(seed: int, rows: int, most_keys: int) -> pa.Table:
    rng = np.random.default_rng(seed)
    times = np.sort(rng.integers(0, rows // 2, rows))
    return pa.table({"ts": times, "id": np.arange(rows), "lane": rng.integers(0, most_keys, rows)})


@pytest.mark.parametrize("mode", MODES)
def test_tidying_up_the_state_changes_nothing(mode, monkeypatch):
    monkeypatch.setattr(sequence, "SPARE_ROWS", 3)
    inputs = {"cases": drawn(1, 60, 3), "products": drawn(2, 60, 3)}
    query = asked(mode, "ON c.lane = p.lane WITHIN 9")
    assert ms.snapshot_equal(ms.run(query, inputs, batch_rows=7), ms.reference(query, inputs))


@pytest.mark.parametrize("mode", MODES)
def test_pairs_built_in_pieces_are_the_same(mode, monkeypatch):
    monkeypatch.setattr(pairing, "PAIRS_AT_ONCE", 4)
    inputs = {"cases": drawn(3, 40, 2), "products": drawn(4, 40, 2)}
    assert ms.snapshot_equal(ms.run(asked(mode), inputs), ms.reference(asked(mode), inputs))


def operator_after(query: str, rows: int) -> sequence.FollowedByOperator:
    schema = pa.schema([("ts", pa.int64()), ("id", pa.int64()), ("lane", pa.int64())])
    catalog = catalog_of({"cases": schema, "products": schema})
    box = Box(plan_query(parse(query, catalog)).physical)
    operator = next(o for o in box.operators if isinstance(o, sequence.FollowedByOperator))
    for start in range(0, rows, 500):
        times = np.arange(start, start + 500)
        for port in (0, 1):
            names = operator.kept[port].schema
            columns = {f.name: times % 5 if f.name.endswith("lane") else times for f in names}
            batch = pa.RecordBatch.from_pydict(columns, schema=names)
            operator.process(port, Elements(batch, times, times + 1))
        operator.advance(start + 500)
    return operator


@pytest.mark.parametrize(
    ("query", "most"),
    [
        (asked("RECENT"), 2 * 5),
        (asked("CHRONICLE"), 2 * 500),
        (asked("ALL", "ON c.lane = p.lane WITHIN 50"), 2 * 550),
        (asked("CHRONICLE", "ON c.lane = p.lane WITHIN 50"), 2 * 550),
        (asked("CHRONICLE", "ON c.lane = p.lane AND c.id < p.id WITHIN 50"), 2 * 550),
        ("SELECT a.id FROM cases AS a FOLLOWED BY cases AS b ON a.lane = b.lane", 2 * 5),
    ],
)
def test_state_stays_bounded(query, most):
    operator = operator_after(query, 20_000)
    assert operator.kept[0].rows <= most + sequence.SPARE_ROWS
    assert operator.kept[1].rows == 0
    assert operator.used.rows <= most + sequence.SPARE_ROWS


LATER = "SELECT c.id FROM cases AS c ASOF {0}JOIN products AS p ON c.lane = p.lane AND c.ts < p.ts {1}"


ABSENT = "SELECT c.id FROM cases AS c NOT FOLLOWED BY products AS p ON c.lane = p.lane AND c.ts < p.ts WITHIN 50"


@pytest.mark.parametrize("query", [LATER.format("", ""), LATER.format("LEFT ", "WITHIN 50"), ABSENT])
def test_seconds_wait_no_longer_than_they_must_and_firsts_not_at_all(query):
    operator = operator_after(query, 20_000)
    assert operator.kept[0].rows <= sequence.SPARE_ROWS
    assert operator.kept[1].rows <= 5


@pytest.mark.parametrize("query", [LATER.format("LEFT ", "WITHIN 50"), ABSENT])
def test_seconds_without_a_later_first_are_forgotten_when_their_time_is_up(query):
    times = np.arange(5000)
    schema = pa.schema([("ts", pa.int64()), ("id", pa.int64()), ("lane", pa.int64())])
    box = Box(plan_query(parse(query, catalog_of({"cases": schema, "products": schema}))).physical)
    operator = next(o for o in box.operators if isinstance(o, sequence.FollowedByOperator))
    names = operator.kept[1].schema
    given = 0
    for part in np.array_split(times, 50):
        batch = pa.RecordBatch.from_pydict(dict.fromkeys(names.names, part), schema=names)
        operator.process(1, Elements(batch, part, part + 1))
        answered = operator.advance(int(part[-1]) + 1)
        given += 0 if answered is None else len(answered)
        assert operator.kept[1].rows <= 51
    assert given == 5000 - 50


def test_an_operator_that_went_on_from_its_states_answers_the_same():
    inputs = {"cases": drawn(5, 80, 3), "products": drawn(6, 80, 3)}
    query = asked("CHRONICLE", "ON c.lane = p.lane WITHIN 15")
    schema = inputs["cases"].schema
    plan = plan_query(parse(query, catalog_of({"cases": schema, "products": schema}))).physical
    found: list[tuple[object, ...]] = []
    came = {name: table.append_column("#arrival", pa.array(range(len(table)))) for name, table in inputs.items()}
    box = Box(plan)
    for low in range(0, 40, 5):
        moved = Box(plan)
        for old, new in zip(box.states(), moved.states(), strict=True):
            new.replace_segments(old.segments)
        moved.restore(low if low else box.frontier)
        box = moved
        operator = next(o for o in box.operators if isinstance(o, sequence.FollowedByOperator))
        for port, name in enumerate(("cases", "products")):
            table = (
                came[name].filter((pa.compute.field("ts") >= low) & (pa.compute.field("ts") < low + 5)).combine_chunks()
            )
            columns = {f.name: table.column(f.name.split(".")[-1]).combine_chunks() for f in operator.kept[port].schema}
            times = table.column("ts").to_numpy()
            batch = pa.RecordBatch.from_pydict(columns, schema=operator.kept[port].schema)
            operator.process(port, Elements(batch, times, times + 1))
        given = operator.advance(low + 5)
        if given is not None:
            names = ("c.id", "p.id")
            found += zip(*(given.columns.column(n).to_pylist() for n in names), strict=True)
    expected = [(row["id"], row["product"]) for row in ms.reference(query, inputs).to_pylist()]
    assert sorted(found) == sorted(expected)
